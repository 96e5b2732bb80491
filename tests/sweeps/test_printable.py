"""Names, calls and messages from elsewhere: a terminal shows them, and does not obey them."""

from __future__ import annotations

import json
import random
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base.printable import printable
from stopgrad.base.source import Location
from stopgrad.flow.reports.notices import Notice, github, sarif

EVIL = "\x1b]0;pwn\x07\x1b[31m\x9b2J\u202e\u2028\r\x00"


def unsafe(text: str) -> str:
    """What of a text moves a terminal's cursor, colours, title or direction of writing."""
    return "".join([sign for sign in text if not sign.isprintable() and sign not in "\n\t"])


def test_printable_text_is_shown_as_it_is_and_the_rest_as_escapes() -> None:
    assert printable("µ – 数 – é – 🙂\n\tx") == "µ – 数 – é – 🙂\n\tx"
    assert printable(EVIL) == r"\x1b]0;pwn\x07\x1b[31m\x9b2J\u202e\u2028\r\x00"
    assert not unsafe(printable("".join(map(chr, range(0x3000)))))


def texts() -> Iterator[tuple[str, str]]:
    """Texts of graphs with evil names, calls, labels and messages."""
    x = "x: float32[3] = Placeholder(dtype=float32, shape=(3,))\n"
    evil = json.dumps(EVIL)  # The grammar of texts has its escapes.
    called = f"call={evil}, results=(('float32', 3),), walls=((0, 'stopped', {evil}),)"
    for what, made in {
        "a call": f"ForeignStop(x, call={evil}, why='w')",
        "a reason": f"ForeignStop(x, call='c', why={evil})",
        "a wall": f"Foreign(x, {called}, reach=(), program='')",
        "a label": f"Probe(x, label={evil})",
        "a message": f"PreventGradient(x, message={evil})",
        "a type": f"Exp{EVIL}(x)",
        "an operand": f"Exp(x{EVIL})",
        "an attribute": f"Cast(x, dtype={EVIL})",
    }.items():
        yield what, f"{x}f: float32[3] = {made}\ny: float32[] = Sum(f, axis=(0,), keepdims=False)"
    yield "a name", f"x{EVIL}: float32[3] = Placeholder(dtype=float32, shape=(3,))"


@pytest.mark.parametrize(("what", "text"), list(texts()), ids=[what for what, _ in texts()])
def test_what_a_graphs_text_says(what: str, text: str) -> None:
    said = []

    def heard(f: Callable[[], Any]) -> Any:
        try:
            return f()
        except sg.StopgradError as error:
            said.extend([str(error), error.message, repr(error)])
            return None

    graph = heard(lambda: sg.Graph.from_text(text))
    if graph is not None:
        x, y = graph.operations[0].outputs[0], graph.operations[-1].outputs[0]
        said += [repr(op) for op in graph.operations] + [graph.to_text()]
        flow = heard(lambda: sg.explain(y, [x]))
        if flow is not None:
            said += [
                str(flow),
                flow.to_text(color=True),
                flow.to_github(),
                flow.to_sarif(),
                flow._repr_html_(),
            ]
            said[-4] = re.sub("\x1b\\[[0-9;]*m", "", said[-4])  # Our own colours.
        heard(lambda: sg.gradients(y, [x]))
        heard(lambda: sg.assert_flows(y, [x]))
        heard(lambda: sg.Session(graph, engine="numpy").run(y, {x: np.ones(3, np.float32)}))
        heard(lambda: sg.Session(graph, engine="numpy").run(y))
    assert said
    assert not {unsafe(text) for text in said if unsafe(text)}


def test_keys_of_dicts() -> None:
    key = f"w{EVIL}"
    params = {key: np.ones(3), "b": np.ones(3)}

    def loss(p: Any) -> Any:
        return sg.reduce_sum(p[key] * sg.stop_gradient(p["b"]) * sg.stop_gradient(p[key]))

    flow = sg.explain(loss, params)
    shown = [str(flow), flow.to_github(), flow.to_sarif()]
    shown += [str(sg.check_gradients(loss, params)), str(sg.ablate(loss, params))]
    for f in (
        lambda: sg.grad(lambda p: sg.reduce_sum(p[key] + np.ones(4)))(params),
        lambda: sg.assert_blocked(loss, params),
        lambda: sg.grad(loss)({key: "text", "b": np.ones(3)}),
        lambda: sg.value_and_grad(lambda p: p)(params),
        lambda: flow[EVIL],
    ):
        with pytest.raises((sg.StopgradError, KeyError)) as caught:
            f()
        shown.append(str(caught.value))
    assert not {unsafe(text) for text in shown if unsafe(text)}


def test_notices_of_evil_names_are_one_line_each() -> None:
    notice = Notice("warning", f"a{EVIL}\nb", f"{EVIL}\n::error::x", Location(f"/ci/{EVIL}\n.py", 3))
    made = github([notice])
    assert made.count("\n") == 0
    assert made.startswith("::warning ")
    assert not unsafe(made)
    assert not unsafe(sarif([notice]))
    assert json.loads(sarif([notice]))["runs"][0]["results"][0]["level"] == "warning"


def test_places_in_a_file_of_a_graph(tmp_path: Path) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        y = sg.stop_gradient(x)
        for op in graph.operations:
            op._place, op._instruction = Location(f"/a{EVIL}.py", 3, source=f"f(x){EVIL}", function=EVIL), 0
    graph.save(tmp_path / "graph.sg")
    found = sg.Graph.load(tmp_path / "graph.sg")
    x, y = (op.outputs[0] for op in found.operations)
    shown = [str(sg.explain(y, [x]))]
    with pytest.raises(sg.StopgradError) as caught:
        sg.Session(found).run(y)
    assert not {unsafe(text) for text in [*shown, str(caught.value)] if unsafe(text)}


def test_warnings_and_errors_that_wrap_others() -> None:
    with warnings.catch_warnings():
        error = sg.EngineError(f"the engine says {EVIL}")
    error.name_after(EVIL)
    assert not unsafe(str(error))
    assert not unsafe(sg.InternalError(EVIL).message)


PIECES = [
    *EVIL,
    *"aé数🙂/\\.:,=%#?&<>'\"\n\t ~",
    "::error::",
    "%0A",
    "::",
    "\ud800",
    "\udc80",
    "\U000e0001",
    "x" * 300,
]
PIECES += ["file:", "C:", "//", "..", "\x7f", "\u200f", "\u2066", "\ufeff"]


def hostile(r: random.Random) -> str:
    return "".join(r.choice(PIECES) for _ in range(r.choice((0, 1, 2, 5, 20))))


def commands_of(text: str) -> list[tuple[str, dict[str, str], str]]:
    """The commands in a text, as GitHub's runner reads them."""
    found = []
    for line in text.split("\n"):
        match = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
        assert match is not None, line
        pairs = dict(pair.split("=", 1) for pair in match[2].split(","))
        found.append((match[1], {key: decoded(value) for key, value in pairs.items()}, decoded(match[3])))
    return found


def decoded(text: str) -> str:
    for code, sign in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, sign)
    return text


def hostile_notices(first: int, count: int) -> None:
    for seed in range(first, first + count):
        r = random.Random(seed)
        at = Location(hostile(r) or "x", r.randrange(1, 99), source=hostile(r), function=hostile(r))
        notices = [Notice("error", hostile(r), hostile(r), at), Notice("note", hostile(r), hostile(r))]
        made, log = github(notices), sarif(notices)
        assert not unsafe(made), seed
        assert not unsafe(log), seed
        log.encode()
        made.encode()
        (kind, told, message), (other, _, _) = commands_of(made)
        assert (kind, other) == ("error", "notice"), seed
        assert set(told) == {"file", "line", "title"}, seed
        assert told["title"] == f"stopgrad: {printable(notices[0].rule)}", seed
        assert message == printable(notices[0].message), seed
        results = json.loads(log)["runs"][0]["results"]
        assert [one["message"]["text"] for one in results] == [printable(n.message) for n in notices], seed
        uri = results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.isascii(), seed
        assert not re.search(r"[\s<>\"\\]", uri), seed


def test_notices_of_hostile_names_are_read_back_as_they_were() -> None:
    hostile_notices(0, 300)


@pytest.mark.nightly
def test_50_000_notices_of_hostile_names() -> None:
    hostile_notices(1_000, 50_000)
