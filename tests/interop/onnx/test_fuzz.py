"""Whatever an ONNX file holds, loading ends with a model or one of our errors, in bounded time and memory."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

pytest.importorskip("onnx")

import onnx
import onnx_mutants
from onnx import TensorProto, helper
from onnx_mutants import ASKED, mutant, outcome, seeds

import stopgrad as sg
import stopgrad.onnx as sgo

pytestmark = pytest.mark.slow

FLOATS = TensorProto.FLOAT
BYTES = 2**29
"""So much more memory no model of this file needs."""


@pytest.fixture(scope="module")
def real() -> list[bytes]:
    return list(seeds().values())


# ---------------------------------------------------------------------------------------------- mutants


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(r=st.randoms(use_true_random=False))
def test_mutants_that_hypothesis_makes(real: list[bytes], r: random.Random) -> None:
    content = mutant(r, real)
    how, what = outcome(content, **(ASKED if r.random() < 0.5 else {}))
    assert how != "broken", what


def _fuzzed(seed: int, seconds: float, folder: Path, *more: str) -> dict[str, Any]:
    """What the fuzzer reports, from a process of its own."""
    script = Path(onnx_mutants.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run(
        [sys.executable, str(script), str(seed), str(seconds), str(folder), *more],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300 + 4 * seconds,
    )
    left = folder / "current.onnx"  # What it was loading when it was killed.
    assert run.returncode == 0, (
        f"exit {run.returncode} at {left if left.exists() else 'start'}: {run.stderr[-2000:]}"
    )
    return dict(json.loads(run.stdout))


def _check(report: dict[str, Any]) -> None:
    print({key: value for key, value in report.items() if key != "failures"})
    assert not report["failures"], "\n".join(f"{x['file']}: {x['why']}" for x in report["failures"])
    assert report["tried"] > 1000
    assert report["loaded"] > 20
    assert report["kinds"].keys() >= {"FileError", "GraphError"}


@pytest.mark.nightly
def test_mutants_of_real_files_for_a_minute(tmp_path: Path) -> None:
    _check(_fuzzed(0, 60, tmp_path))


@pytest.mark.nightly
@pytest.mark.parametrize("word", ["layer", "form", "loop"])
def test_mutants_of_fused_and_quantised_layers_and_of_loops(tmp_path: Path, word: str) -> None:
    _check(_fuzzed(9, 120, tmp_path, word))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 9))
def test_mutants_of_real_files_for_long(tmp_path: Path, seed: int) -> None:
    _check(_fuzzed(seed, 300, tmp_path))


def test_the_fuzzer_sees_what_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(source: Any) -> None:
        while True:
            pass

    def fail(source: Any) -> None:
        raise KeyError(source)

    monkeypatch.setattr(onnx_mutants, "SECONDS", 0.2)
    monkeypatch.setattr(sgo, "load", spin)
    assert outcome(b"")[1] == "more than 0.2 s"
    monkeypatch.setattr(sgo, "load", fail)
    assert outcome(b"") == ("broken", "KeyError: b''")


# ------------------------------------------------------------------------------ models that mean harm


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A bound on what the process may take beyond what it has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def model(
    nodes: list[Any], initializers: dict[str, Any] | None = None, functions: Any = (), **opsets: int
) -> Any:
    """A model from x to y, of float32 with an open batch size."""
    values = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (initializers or {}).items()]
    x, y = (helper.make_tensor_value_info(name, FLOATS, ["n", 2]) for name in "xy")
    graph = helper.make_graph(nodes, "harm", [x], [y], values)
    imports = [helper.make_opsetid("", 18), *[helper.make_opsetid(k, v) for k, v in opsets.items()]]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def nested(depth: int) -> Any:
    """Branches in branches, made from the outside: protobuf copies nothing that is nested deeply."""
    made = model([node("If", "c", "y")], {"c": np.array(True)})
    inner = made.graph.node[0]
    for i in range(depth):
        inner.op_type = "If"
        branches = {
            name: inner.attribute.add(name=name, type=onnx.AttributeProto.GRAPH).g for name in BRANCHES
        }
        for j, (name, graph) in enumerate(branches.items()):
            graph.name = name
            graph.output.add().name = f"y{i}_{j}"
            made_here = graph.node.add(op_type="Identity" if i == depth - 1 else "Neg", input=["x"])
            made_here.output.append(f"y{i}_{j}")
        inner = branches["then_branch"].node[0]
        if i < depth - 1:
            inner.input[:] = ["c"]
    return made


BRANCHES = ("then_branch", "else_branch")


def function(name: str, nodes: list[Any]) -> Any:
    return helper.make_function(
        "f", name, ["x"], ["y"], nodes, [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    )


def own(name: str, x: str, y: str) -> Any:
    return helper.make_node(name, [x], [y], domain="f")


def doubling(levels: int) -> Any:
    """Functions of which each calls the one below twice."""
    functions = [function("F0", [node("Neg", "x", "y")])]
    functions += [
        function(f"F{i}", [own(f"F{i - 1}", "x", "h"), own(f"F{i - 1}", "h", "y")]) for i in range(1, levels)
    ]
    return model([own(f"F{levels - 1}", "x", "y")], functions=functions, f=1)


def declaring(dims: list[int], **fields: Any) -> Any:
    """An initializer that declares what it does not hold."""
    made = model([node("Add", "x w", "y")])
    made.graph.initializer.append(TensorProto(name="w", data_type=FLOATS, dims=dims, **fields))
    return made


def made_huge(op_type: str, inputs: str, values: dict[str, Any], **attributes: Any) -> Any:
    """A node whose result is enormous, added to x."""
    return model([node(op_type, inputs, "h", **attributes), node("Add", "x h", "y")], values)


def looping() -> Any:
    body = helper.make_graph(
        [node("Identity", "c", "d"), node("Add", "h h", "g")],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, []), ("c", 9, []), ("h", 1, [2]))],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("d", 9, []), ("g", 1, [2]))],
    )
    values = {"m": np.array(2**62), "c": np.array(True), "s": np.ones(2, np.float32)}
    return model([node("Loop", "m c s", "h", body=body), node("Add", "x h", "y")], values)


HUGE = 10**6
ONES = np.ones(2, np.float32)
HARMFUL: dict[str, Callable[[], Any]] = {
    "branches nested 50 deep": lambda: nested(50),
    "branches nested 2000 deep": lambda: nested(2000),
    "a chain of 50000 nodes": lambda: model(
        [node("Neg", f"h{i}" if i else "x", f"h{i + 1}" if i < 49_999 else "y") for i in range(50_000)]
    ),
    "a function that calls itself": lambda: model(
        [own("F", "x", "y")], functions=[function("F", [own("F", "x", "y")])], f=1
    ),
    "functions in a circle": lambda: model(
        [own("F", "x", "y")],
        functions=[function("F", [own("G", "x", "y")]), function("G", [own("F", "x", "y")])],
        f=1,
    ),
    "functions that double 60 times": lambda: doubling(60),
    "functions 3000 deep": lambda: model(
        [own("F2999", "x", "y")],
        functions=[
            function("F0", [node("Neg", "x", "y")]),
            *[function(f"F{i}", [own(f"F{i - 1}", "x", "y")]) for i in range(1, 3000)],
        ],
        f=1,
    ),
    "a billion numbers declared": lambda: declaring([HUGE, 1000]),
    "more numbers than there are": lambda: declaring([2**62, 2**62]),
    "sizes whose product wraps to 0": lambda: declaring([2**32, 2**32], raw_data=b""),
    "a negative size": lambda: declaring([-1, 2], raw_data=b"\0" * 8),
    "too few bytes": lambda: declaring([2], raw_data=b"\0" * 7),
    "floats and bytes at once": lambda: declaring([2], raw_data=b"\0" * 8, float_data=[1.0, 2.0]),
    "a constant of shape": lambda: made_huge("ConstantOfShape", "s", {"s": np.array([HUGE, HUGE])}),
    "an expansion": lambda: made_huge("Expand", "w s", {"w": ONES, "s": np.array([HUGE, HUGE, 2])}),
    "a tiling": lambda: made_huge("Tile", "w s", {"w": ONES, "s": np.array([10**12])}),
    "a range": lambda: made_huge(
        "Range",
        "a b c",
        {"a": np.array(0.0, np.float32), "b": np.array(1e12, np.float32), "c": np.array(1.0, np.float32)},
    ),
    "a range without step": lambda: made_huge(
        "Range", "a b c", {"a": np.array(0), "b": np.array(1), "c": np.array(0)}
    ),
    "a padding": lambda: made_huge("Pad", "w s", {"w": ONES, "s": np.array([10**12, 10**12])}),
    "a one-hot of depth": lambda: made_huge(
        "OneHot", "i d v", {"i": np.array([1, 2]), "d": np.array(10**13), "v": ONES}
    ),
    "an enlarging": lambda: made_huge("Resize", "w  s", {"w": ONES, "s": np.array([1e12], np.float32)}),
    "an upper triangle of shape": lambda: model(
        [node("ConstantOfShape", "s", "h"), node("Trilu", "h", "g"), node("Add", "x g", "y")],
        {"s": np.array([HUGE, HUGE])},
    ),
    "random numbers of shape": lambda: made_huge("RandomNormal", "", {}, shape=[HUGE, HUGE]),
    "a loop without end": looping,
    "a window": lambda: made_huge("HannWindow", "d", {"d": np.array(10**13)}),
    "ten thousand splits": lambda: model(
        [node("Split", "x", " ".join(f"h{i}" for i in range(10_000)), axis=0), node("Add", "x h9", "y")]
    ),
    "a large power of sizes": lambda: model(
        [
            node("Shape", "x", "s"),
            *[
                node("Mul", f"{'s' if not i else f's{i}'} {'s' if not i else f's{i}'}", f"s{i + 1}")
                for i in range(60)
            ],
            node("Reshape", "x s60", "y"),
        ]
    ),
    "an equation of many letters": lambda: model(
        [
            node(
                "Einsum",
                " ".join(["x"] * 25),
                "y",
                equation=",".join(f"{chr(97 + i)}Z" for i in range(25))
                + "->"
                + "abcdefghijklmnopqrstuvwxyZ"[:25],
            )
        ]
    ),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_model_that_means_harm(name: str, little_memory: None) -> None:
    made = HARMFUL[name]()
    for source in (made, made.SerializeToString()):
        how, what = outcome(source, len(made.graph.node))
        assert how != "broken", what


# ------------------------------------------------------------------------------------- external data


def outside(folder: Path, location: str, **more: Any) -> Path:
    """A model in a folder, with a weight at a location."""
    made = model([node("Add", "x w", "y")])
    tensor = made.graph.initializer.add(name="w", data_type=FLOATS, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "inside" / "model.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(made.SerializeToString())
    (folder / "inside" / "data").write_bytes(np.ones(4, np.float32).tobytes())
    (folder / "secret").write_bytes(np.full(2, 7, np.float32).tobytes())
    return path


def test_external_data_of_the_folder_is_read(tmp_path: Path) -> None:
    made = sgo.load(outside(tmp_path, "data", offset=4, length=8))
    np.testing.assert_array_equal(made.values()["w"], [1, 1])


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "above": ("../secret", {}),
    "above, through the folder": ("../inside/../secret", {}),
    "absolute": ("/etc/passwd", {}),
    "a device": ("/dev/zero", {}),
    "no name": ("", {}),
    "the folder": (".", {}),
    "missing": ("nothing", {}),
    "the end of a name": ("data\0/../secret", {}),
    "begins behind its end": ("data", {"offset": 4096}),
    "begins before it": ("data", {"offset": -8}),
    "longer than it": ("data", {"length": 2**40}),
    "shorter than the weight": ("data", {"length": 4}),
    "no number": ("data", {"offset": "x"}),
    "a large number": ("data", {"offset": 2**70}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_external_data_that_is_refused(tmp_path: Path, name: str, little_memory: None) -> None:
    location, more = REFUSED[name]
    with pytest.raises(sg.FileError, match="w"):
        sgo.load(outside(tmp_path, location, **more))


@pytest.mark.parametrize("kind", ["symbolic link", "link of the folder", "pipe", "hard link"])
def test_external_data_that_is_no_plain_file_of_the_folder(tmp_path: Path, kind: str) -> None:
    path = outside(tmp_path, "folder/secret" if kind == "link of the folder" else "link")
    link = path.parent / "link"
    if kind == "symbolic link":
        link.symlink_to(tmp_path / "secret")
    elif kind == "link of the folder":
        (path.parent / "folder").symlink_to(tmp_path)
    elif kind == "pipe":
        os.mkfifo(link)
    else:
        os.link(tmp_path / "secret", link)
    how, what = outcome(path)
    assert (how, what) == ("refused", "FileError")


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "empty", "text", "null in its name"])
def test_a_path_that_is_no_model(tmp_path: Path, kind: str, little_memory: None) -> None:
    path: Any = tmp_path / "model.onnx"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = "/dev/zero"
    elif kind == "null in its name":
        path = "model\0.onnx"
    else:
        path.write_text("" if kind == "empty" else "import os\n" * 20)
    how, what = outcome(path)
    assert (how, what) == ("refused", "FileError")
