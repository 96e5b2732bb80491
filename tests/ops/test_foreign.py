"""Operations of other frameworks in a graph of ours, and imported programs as functions."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import random
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base.source import Location
from stopgrad.flow.asked import Asked, Recorded
from stopgrad.flow.explain import flow_of
from stopgrad.flow.nans.case import is_square
from stopgrad.flow.parts import Finding
from stopgrad.graph.builder import Placed
from stopgrad.graph.graph import Graph
from stopgrad.graph.op import Status
from stopgrad.interop.imported import Model
from stopgrad.ops.structural.foreign import foreign, foreign_stop
from stopgrad.ops.structural.foreign_programs import Step, written


@pytest.fixture
def graph() -> Graph:
    graph = sg.Graph()
    with graph.as_default():
        sg.placeholder(sg.float32, [3], name="x")
        sg.placeholder(sg.float32, [3], name="y")
    return graph


def test_gradients_pass_a_foreign_operation(graph: Graph) -> None:
    x, y = graph.output("x"), graph.output("y")
    (z,) = foreign([x, y], "torch.add", [("float32", 3)])
    flow = sg.explain(z, [x, y])
    assert [flow[t].status for t in (x, y)] == [Status.FLOWS, Status.FLOWS]


@pytest.mark.parametrize("status", ["stopped", "not differentiable", "undefined", "disconnected"])
def test_a_wall_keeps_gradients_from_one_operand(graph: Graph, status: str) -> None:
    x, y = graph.output("x"), graph.output("y")
    (z,) = foreign([x, y], "torch.frob", [("float32", 3)], walls=[(1, status, "it is so")])
    flow = sg.explain(z, [x, y])
    assert (flow[x].status, flow[y].status) == ("flows", status)
    if status != "disconnected":
        assert [cut.reason for cut in flow[y].cuts] == ["it is so"]


def test_results_may_depend_on_different_operands(graph: Graph) -> None:
    x, y = graph.output("x"), graph.output("y")
    a, b = foreign([x, y], "torch.two", [("float32",), ("float32", 3)], reach=[(0,), (1,)])
    assert [sg.explain(a, [x, y])[t].status for t in (x, y)] == ["flows", "disconnected"]
    assert [sg.explain(b, [x, y])[t].status for t in (x, y)] == ["disconnected", "flows"]


def test_integers_of_a_foreign_operation_carry_no_gradient(graph: Graph) -> None:
    x = graph.output("x")
    values, positions = foreign([x], "torch.topk", [("float32", 2), ("int64", 2)])
    assert sg.explain(values, x)[x].status == "flows"
    assert sg.explain(positions, x)[x].status == "not differentiable"


def test_a_stop_of_another_framework_is_a_gate(graph: Graph) -> None:
    x, y = graph.output("x"), graph.output("y")
    stopped = foreign_stop(x, "Tensor.detach", "detach")
    idle = foreign_stop(foreign_stop(y, "Tensor.detach", "detach"), "Tensor.detach", "detach")
    (z,) = foreign([x, stopped, idle], "torch.add", [("float32", 3)])
    flow = sg.explain(z, [x, y])
    assert (flow[x].status, flow[y].status) == ("partly stopped", "stopped")
    assert [cut.reason for cut in flow[x].cuts] == ["detach"]
    assert sum(gate.idle for gate in flow.gates) == 1
    np.testing.assert_array_equal(sg.Session(graph).run(stopped, {x: np.ones(3, np.float32)}), np.ones(3))


def test_a_report_calls_things_as_they_are_called_there(graph: Graph) -> None:
    x = graph.output("x")
    with Placed(Location("/somewhere/model.py", 7, source="h.detach()")):
        (h,) = foreign([x], "torch.tanh", [("float32", 3)])
        z = foreign_stop(h, "Tensor.detach", "detach")
    noted = Finding("kept", "h was made before the watch began", (h.op,))
    flow = flow_of(Asked(graph, (z,), {"layer.weight": x}, is_function=True), findings=[noted])
    text = flow.to_text()
    assert "stopped: layer.weight" in text
    assert "/somewhere/model.py:7" in text
    assert "kept: /somewhere/model.py:7  h was made before the watch began" in text
    assert noted in flow.findings
    assert repr(h.op) == "<torch.tanh>"


def test_a_record_says_nothing_of_stops_on_plain_data_and_of_what_is_only_logged(graph: Graph) -> None:
    x, y = graph.output("x"), graph.output("y")
    with graph.as_default():
        data = foreign_stop(sg.placeholder(sg.float32, [3]), "Tensor.detach", "detach")
    (z,) = foreign([x, data], "torch.add", [("float32", 3)])
    foreign_stop(z, "Tensor.detach", "detach")
    for recorded in (None, Recorded()):
        flow = flow_of(Asked(graph, (z,), {"x": x, "y": y}, is_function=True, recorded=recorded))
        assert [finding.kind for finding in flow.findings].count("idle") == (0 if recorded else 2)


def test_text_keeps_foreign_operations(graph: Graph) -> None:
    x = graph.output("x")
    frob = Step("jax.frob", (("float32", 3),), ((0, "stopped", "so"),), ((0,),), code=b"\0\xff")
    foreign([x], *frob[:4], program=written([frob]))
    foreign_stop(x, "Tensor.detach", "detach")
    assert sg.Graph.from_text(graph.to_text()).to_text() == graph.to_text()


def test_what_was_only_recorded_has_no_gradient_to_generate_and_no_value(graph: Graph) -> None:
    x = graph.output("x")
    (z,) = foreign([x], "torch.tanh", [("float32", 3)])
    with pytest.raises(sg.GradientError, match=r"torch.tanh: .* recorded to be looked at"):
        sg.gradients(z, x)
    for engine in ("numpy", "xla"):
        with pytest.raises(sg.EngineError, match=r"torch.tanh"), sg.Session(graph, engine=engine) as session:
            session.run(z, {x: np.ones(3, np.float32)})


def program(*heads: Any, code: bytes = b"") -> str:
    """The text of a program that says anything."""
    return base64.b64encode(json.dumps(heads).encode() + b"\n" + code).decode()


HEAD: list[Any] = [2, "c", [["float32", 3]], [], [], [], [], [], ""]
NEXT: list[Any] = [2, "d", [["float32", 3]], [], [], [], [0], [0], ""]

WRONG: dict[str, dict[str, Any]] = {
    "no name": {"call": ""},
    "a result without dtype": {"results": ((),)},
    "a result of no known dtype": {"results": (("float33", 3),)},
    "walls that are numbers": {"walls": (0,)},
    "a wall without a reason": {"walls": ((0, "stopped"),)},
    "a wall at a name": {"walls": (("a", "stopped", "so"),)},
    "a wall at a truth": {"walls": ((False, "stopped", "so"),)},
    "a wall of no status": {"walls": ((0, "flows", "so"),)},
    "a wall whose reason is a number": {"walls": ((0, "stopped", 5),)},
    "a wall before the first operand": {"walls": ((-1, "stopped", "so"),)},
    "a wall behind the last operand": {"walls": ((1, "stopped", "so"),)},
    "two walls of one operand": {"walls": ((0, "stopped", "so"), (0, "undefined", "so"))},
    "a dependence on no operand": {"reach": ((1,),)},
    "a dependence on a name": {"reach": (("a",),)},
    "dependences that are numbers": {"reach": (0,)},
    "more dependences than results": {"reach": ((0,), (0,))},
    "no base64": {"program": "@@@@"},
    "no ASCII": {"program": "\xe9"},
    "no JSON": {"program": base64.b64encode(b"hello\nxx").decode()},
    "too deep": {"program": base64.b64encode(b"[" * 100_000).decode()},
    "a number of 5,000 digits": {"program": base64.b64encode(b"[[" + b"9" * 5000 + b"]]\n").decode()},
    "no steps": {"program": program()},
    "steps that are numbers": {"program": program(5)},
    "a step with one field": {"program": program([1])},
    "code of a negative length": {"program": program([-2, *HEAD[1:]], code=b"xx")},
    "less code than it says": {"program": program(HEAD, code=b"x")},
    "more code than it says": {"program": program(HEAD, code=b"xxx")},
    "a gradient for no operand": {"program": program(HEAD, [*NEXT[:6], [1], [0], ""], code=b"xxxx")},
    "a gradient of no result": {"program": program(HEAD, [*NEXT[:6], [0], [1], ""], code=b"xxxx")},
    "a gradient twice": {"program": program(HEAD, [*NEXT[:6], [0, 0], [0], ""], code=b"xxxx")},
    "a gradient with more results": {
        "program": program(HEAD, [2, "d", [["float32", 3]] * 2, *NEXT[3:]], code=b"xxxx")
    },
    "a refusal of no result": {"program": program([*HEAD[:5], [[1, "so"]], *HEAD[6:]], code=b"xx")},
    "a wall in a gradient at no operand": {
        "program": program(HEAD, [*NEXT[:3], [[2, "stopped", "so"]], *NEXT[4:]], code=b"xxxx")
    },
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_refused_when_it_is_read(graph: Graph, what: str) -> None:
    right = {"call": "c", "results": (("float32", 3),), "walls": (), "reach": (), "program": ""}
    line = "f: float32[3] = Foreign(x, call={call!r}, results={results!r}, walls={walls!r}, "
    line += "reach={reach!r}, program={program!r})"
    text = graph.to_text()
    sg.Graph.from_text(text + line.format(**right, **{}))
    sg.Graph.from_text(text + line.format(**{**right, "program": program(HEAD, NEXT, code=b"xxxx")}))
    with pytest.raises(sg.GraphError, match="line 3 of the graph's text"):
        sg.Graph.from_text(text + line.format(**{**right, **WRONG[what]}))


def test_programs_that_say_anything_are_refused_or_keep_what_they_say() -> None:
    generator = random.Random(0)
    pieces: list[Any] = [0, 1, 2, 7, -1, True, None, 0.5, "", "stopped", "float32", [], [0], [["float32", 3]]]
    kept = 0
    for _ in range(1500):
        heads = copy.deepcopy([HEAD, NEXT][: generator.randrange(1, 3)])
        for _ in range(generator.randrange(1, 3)):
            head = generator.choice(heads)
            head[generator.randrange(len(head))] = copy.deepcopy(generator.choice(pieces))
        with sg.Graph().as_default() as graph:
            x = sg.placeholder(sg.float32, [3], name="x")
            try:
                (y,) = foreign([x], "c", [("float32", 3)], program=program(*heads, code=b"xxxx"))
            except sg.ArgumentError:
                continue
            kept += 1
            assert sg.explain(y, [x])[x].status == "flows"
            with contextlib.suppress(sg.GradientError):
                sg.gradients(y, [x])
            assert Graph.from_text(graph.to_text()).to_text() == graph.to_text()
    assert kept > 20


# --------------------------------------------------------------------------------------------- programs


@pytest.fixture
def model() -> Model:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n", 3], name="x")
        w = sg.parameter(np.full((3, 2), 0.5, np.float32), name="w")
        v = sg.parameter(np.ones(2, np.float32), name="v")
        y = sg.reduce_sum(sg.tanh(x @ w) * sg.stop_gradient(v))
    return Model(
        graph,
        {"x": x},
        {"y": y},
        {"w": w, "v": v},
        leaves=lambda args, kwargs: list(args),
        rebuild=lambda values: {"loss": values[0]},
        name="net",
    )


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
WANTED = float(np.tanh(X @ np.full((3, 2), 0.5)).sum())


def test_a_program_is_called_with_arrays_of_any_size(model: Model) -> None:
    for x in (X, X[:1]):
        wanted = np.tanh(x @ np.full((3, 2), 0.5)).sum()
        np.testing.assert_allclose(model(x)["loss"], wanted, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(sg.function(model)(x)["loss"], wanted, rtol=1e-6, atol=1e-6)


def test_a_program_is_differentiated_with_respect_to_its_parameters(model: Model) -> None:
    gradient = sg.grad(lambda p: model.apply(p, X)["loss"])(model.values())
    wanted = X.T @ (1 - np.tanh(X @ np.full((3, 2), 0.5)) ** 2)
    np.testing.assert_allclose(gradient["w"], wanted, atol=1e-6)
    np.testing.assert_array_equal(gradient["v"], np.zeros(2))


def test_a_program_is_explained_at_its_own_lines(model: Model) -> None:
    flow = sg.explain(lambda p, x: model.apply(p, x)["loss"], model.values(), X)
    assert (flow["p.w"].status, flow["p.v"].status, flow["x"].status) == ("flows", "stopped", "flows")
    (cut,) = flow["p.v"].cuts
    assert cut.location is not None
    assert cut.location.source == "sg.stop_gradient(v)"


def test_parameters_that_are_not_given_keep_their_values(model: Model) -> None:
    np.testing.assert_allclose(model.apply({"v": np.zeros(2, np.float32)}, X)["loss"], 0.0)
    np.testing.assert_allclose(model.apply({}, X)["loss"], WANTED, atol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "x", "message"),
    [
        ({"u": 1.0}, X, "no parameter 'u'"),
        ({}, X.astype(np.float64), "takes x as float32, not float64"),
        ({}, X[:, :2], "was given an array of shape"),
    ],
)
def test_a_program_refuses_what_it_does_not_take(
    model: Model, parameters: dict[str, object], x: np.ndarray, message: str
) -> None:
    with pytest.raises(sg.StopgradError, match=message):
        model.apply(parameters, x)


def test_two_calls_of_another_framework_are_not_taken_for_the_same(graph: Graph) -> None:
    x = graph.output("x")
    (a,), (b,) = (foreign([x], "torch.rand_like", [("float32", 3)]) for _ in range(2))
    assert not is_square((a * b).op)
    assert is_square((a * a).op)
    assert is_square((sg.sin(x) * sg.sin(x)).op)
