"""The report as JSON: what the page about it says, field by field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import DOCS

import stopgrad as sg
from stopgrad.flow.magnitudes.troubles import KINDS
from stopgrad.flow.updates import VERDICTS
from stopgrad.graph.op import Status

PAGE = (DOCS / "flow-report.md").read_text(encoding="utf-8")

# What each field holds; a list stands for a list of such, "or None" is told by a tuple.
LOCATION = {
    **{"file": str, "line": int, "end_line": (int, None), "column": (int, None), "end_column": (int, None)},
    **{"function": (str, None), "expression": (str, None), "caller": (dict, None)},
}
TENSOR = {"name": str, "dtype": str, "shape": [(int, str)]}
OPERATION = {"name": str, "type": str, "gradient_of": (str, None)}
MAGNITUDE = {
    **{"norm": (float, str), "parameter_norm": (float, None), "ratio": (float, str, None)},
    **{"elements": int, "zeros": int, "nans": int, "infs": int},
}
END = {"key": str, "norm": (float, str)}
UPDATE = {
    **{"verdict": str, "handed": bool, "gradient": (float, str, None), "moved": (float, str, None)},
    **{"at": int, "steps": int, "why": (str, None)},
}
SCHEMA: dict[str, Any] = {
    "format": str,
    "version": int,
    "summary": {
        **{"tensors": int, "reached": int, "cuts": int, "idle": int, "frozen": int},
        "statuses": dict.fromkeys(map(str, Status), int),
        "magnitudes": ({"measured": int, "kinds": dict.fromkeys(KINDS, int)}, None),
        "updates": (dict.fromkeys(VERDICTS, int), None),
    },
    "ys": [TENSOR],
    "xs": [
        {
            **{**TENSOR, "key": str, "status": str, "paths": (int, str), "cut_paths": (int, str)},
            **{"cuts": [int], "frozen": bool, "magnitude": (MAGNITUDE, None)},
            "update": (UPDATE, None),
        },
    ],
    "cuts": [
        {
            **{"status": str, "reason": str, "location": (LOCATION, None), "uses": int, "switched": bool},
            **{"operations": [OPERATION], "behind": [str], "opens": [str]},
        }
    ],
    "gates": [
        {
            **{"location": (LOCATION, None), "uses": int, "operations": [OPERATION], "idle": bool},
            **{"fully": [str], "partly": [str], "why_idle": (str, None)},
        }
    ],
    "troubles": [
        {
            **{"kind": str, "keys": [str], "at_layers": bool, "from": (END, None), "to": (END, None)},
            "causes": [
                {"reason": str, "location": (LOCATION, None), "uses": int, "operations": [OPERATION]},
            ],
        }
    ],
    "findings": [
        {
            **{"kind": str, "message": str, "location": (LOCATION, None), "operations": [str]},
            **{"keys": [str], "frozen": bool},
        }
    ],
}


def check(value: Any, schema: Any, where: str = "report") -> None:
    """Whether a value is what the schema says."""
    if isinstance(schema, tuple):
        if value is None:
            assert None in schema, where
            return
        kinds = [one for one in schema if one is not None]
        if len(kinds) == 1:
            check(value, kinds[0], where)
        else:
            assert type(value) in kinds, f"{where}: {value!r}"
    elif isinstance(schema, list):
        assert type(value) is list, where
        for i, one in enumerate(value):
            check(one, schema[0], f"{where}[{i}]")
    elif isinstance(schema, dict):
        assert type(value) is dict, where
        assert set(value) == set(schema), where
        for key, one in value.items():
            check(one, schema[key], f"{where}.{key}")
    else:
        assert type(value) is schema, f"{where}: {value!r}"


def loss(params: Any, x: Any, tokens: Any, flag: Any) -> Any:
    h = sg.stop_gradient(x @ params["w"]) + params["b"] * sg.stop_gradient(params["b"])
    k = sg.cast(sg.argmax(h + params["q"], axis=-1), sg.float64)
    idle = sg.stop_gradient(sg.ones([3]))
    t = sg.reduce_sum(sg.gather(h, tokens)) * sg.stop_gradient(params["s"], when=flag)
    return (h * idle).sum() + k.sum() + t + sg.prevent_gradient(params["p"], "no")


ARGS = (
    {
        "w": np.ones((3, 3)),
        "b": np.ones(3),
        "q": np.ones(3),
        "s": 1.0,
        "p": np.ones(()),
        "unused": np.ones(1),
    },
    np.ones((2, 3)),
    np.array([0, 1]),
    np.array(True),
)


def small(a: Any, b: Any, c: Any, d: Any) -> Any:
    return sg.relu(a - 9.0) + b + 1e-9 * (c + sg.stop_gradient(a)) + sg.sqrt(d)


def graphs() -> list[sg.Flow]:
    """Reports of several kinds."""
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["n", None], name="x")
        z = sg.placeholder(sg.float32, [], name="z")
        (dx,) = sg.gradients(sg.reduce_max(sg.stop_gradient(x) * x), [x])
        made: dict[str, Any] = {"sg": sg, "x": x}
        exec(compile("y = sg.stop_gradient(x)", "<cell>", "exec"), made)
        init = sg.placeholder(sg.float32, [], name="init")
        end, _ = sg.scan(lambda s, _: (sg.stop_gradient(s) * 2.0, s), init, length=3)
        return [
            sg.explain(loss, *ARGS),
            sg.explain(loss, *ARGS)["params"],
            sg.explain(dx, [x, z]),
            sg.explain(made["y"], [x]),
            sg.explain(end, [init]),
            sg.explain(end, []),
            sg.explain(small, 1.0, 1.0, 1e-9, 0.0, magnitudes=True),
        ]


@pytest.mark.parametrize("i", range(7))
def test_every_field_is_there_and_of_its_kind(i: int) -> None:
    flow = graphs()[i]
    document = flow.to_dict()
    check(document, SCHEMA)
    text = flow.to_json()
    assert json.loads(text) == document
    assert json.loads(flow.to_json(indent=2)) == document
    assert "\n" not in text


def test_the_page_names_every_field() -> None:
    told = re.findall(r"^\| (`[^|]+) \|", PAGE.split("## JSON")[1], re.MULTILINE)
    named = {name for cell in told for name in re.findall(r"`(\w+)`", cell)}

    def fields(schema: Any) -> set[str]:
        if isinstance(schema, (list, tuple)):
            return set().union(*map(fields, schema))
        if not isinstance(schema, dict):
            return set()
        own = schema.keys() - {*map(str, Status), *KINDS, *VERDICTS}
        return own.union(*map(fields, schema.values()))

    assert named == fields(SCHEMA)


def test_what_the_fields_say() -> None:
    flow = sg.explain(loss, *ARGS)
    document = flow.to_dict()
    assert document["format"] == "stopgrad.flow"
    assert document["version"] == 1
    xs = {x["key"]: x for x in document["xs"]}
    assert list(xs) == list(flow)
    for key, reach in flow.items():
        x = xs[key]
        assert (x["status"], x["paths"], x["cut_paths"]) == (reach.status, reach.paths, reach.cut_paths)
        assert x["dtype"] == flow.xs[key].dtype.name
        told = [document["cuts"][i] for i in x["cuts"]]
        assert [cut["reason"] for cut in told] == [cut.reason for cut in reach.cuts]
        assert all(key in cut["behind"] for cut in told)
    assert xs["params.w"]["shape"] == [3, 3]
    assert document["summary"]["tensors"] == len(flow) == sum(document["summary"]["statuses"].values())
    assert document["summary"]["reached"] == sum(reach.arrives for reach in flow.values())
    assert document["summary"]["idle"] == 1
    assert document["summary"]["cuts"] == len(document["cuts"])
    switched = [cut for cut in document["cuts"] if cut["switched"]]
    assert [cut["behind"] for cut in switched] == [["params.s"]]
    (tokens,) = xs["tokens"]["cuts"]
    assert document["cuts"][tokens]["behind"] == ["tokens"]
    (idle,) = [gate for gate in document["gates"] if gate["idle"]]
    assert "sg.ones" in idle["location"]["expression"]
    assert {finding["kind"] for finding in document["findings"]} >= {"idle", "stopped", "undefined"}


def test_columns_cut_the_expression_out_of_the_file() -> None:
    """Characters, also behind letters that take several bytes."""
    größe = {"w": 1.0}
    flow = sg.explain(lambda größe: größe["w"] * 2.0 + sg.stop_gradient(größe["w"]), größe)
    (cut,) = flow.to_dict()["cuts"]
    place = cut["location"]
    line = Path(place["file"]).read_text(encoding="utf-8").splitlines()[place["line"] - 1]
    assert line[place["column"] : place["end_column"]] == place["expression"]
    assert place["expression"] == 'sg.stop_gradient(größe["w"])'
    assert place["end_line"] == place["line"]
    assert place["function"] == "<lambda>"


def test_large_numbers_are_texts() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, name="x")
        y = x
        numbers = {}
        for i in range(1, 20_001):
            y = y + y
            if i in (53, 54, 20_000):
                document = json.loads(sg.explain(y + sg.stop_gradient(x), [x]).to_json())
                numbers[i] = document["xs"][0]["paths"], document["xs"][0]["cut_paths"]
    assert numbers[53] == (hex(2**53 + 1), 1)
    assert int(numbers[54][0], 16) == 2**54 + 1
    assert int(numbers[20_000][0], 16) == 2**20_000 + 1
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, name="x")
        y = x
        for _ in range(53):
            y = y + y
        assert sg.explain(y, [x]).to_dict()["xs"][0]["paths"] == 2**53


def test_the_same_question_has_the_same_text() -> None:
    first, second = [sg.explain(loss, *ARGS).to_json() for _ in range(2)]
    assert first == second


def test_a_part_of_a_report_has_its_own_cuts() -> None:
    flow = sg.explain(loss, *ARGS)
    part = flow["params"].to_dict()
    assert {x["key"] for x in part["xs"]} == {key for key in flow if key.startswith("params.")}
    used = {i for x in part["xs"] for i in x["cuts"]}
    assert used == set(range(len(part["cuts"])))
    assert len(part["cuts"]) < len(flow.to_dict()["cuts"])
