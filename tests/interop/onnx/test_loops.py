"""Loops of ONNX whose number of steps their conditions tell, or nothing does: values and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import stopgrad.onnx as sgo

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
GRU = Path(__file__).parent / "exported" / "keras_gru"


def test_a_gru_of_keras_is_differentiated_as_tensorflow_does() -> None:
    model, expected = sgo.load(GRU.with_suffix(".onnx")), np.load(GRU.with_suffix(".npz"))
    ((_, x),), (y,) = model.inputs.items(), model.outputs.values()
    with model.graph.as_default():
        gradients = sg.gradients(sg.reduce_sum(sg.square(y)), list(model.parameters.values()))
    assert x.shape[1] != 5, "the length is symbolic, so that nothing could be unrolled"
    with sg.Session(model.graph, engine="numpy") as session:
        found = session.run([y, *gradients], {x: expected["x"]})
    np.testing.assert_allclose(found[0], expected["y"], rtol=1e-5, atol=1e-7)
    wanted = {
        g.shape: g for g in (expected[name] for name in ("g0", "g1", "g2", "g3", "g4") if name in expected)
    }
    compared = [g for g in found[1:] if g.shape in wanted]
    assert len(compared) == 4
    for g in compared:
        np.testing.assert_allclose(g, wanted[g.shape], rtol=1e-5, atol=1e-6)


def looped(count: str = "", condition: tuple[str, str, str] | None = None) -> Any:
    """A model that multiplies x by w as often as a count and a condition after each step allow."""
    op_type, *compared = condition or ("Identity", "go")
    nodes = [
        helper.make_node("Mul", ["s", "w"], ["s/new"]),
        helper.make_node("Add", ["k", "one"], ["k/new"]),
        helper.make_node(op_type, compared, ["go/new"]),
    ]
    number, state = ([], INT64), ([2], FLOAT)
    given = {"i": number, "go": ([], BOOL), "s": state, "k": number}
    made = {"go/new": ([], BOOL), "s/new": state, "k/new": number}
    infos = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in one.items()]
        for one in (given, made, {"x": state, "n": number}, {"y": state})
    ]
    body = helper.make_graph(nodes, "body", infos[0], infos[1])
    loop = helper.make_node("Loop", [count, "", "x", "zero"], ["y", "steps"], "loop", body=body)
    numbers = {"zero": 0, "one": 1, "five": 5}
    stored = [numpy_helper.from_array(np.array(value), name) for name, value in numbers.items()]
    stored.append(numpy_helper.from_array(np.float32([2, 3]), "w"))
    graph = helper.make_graph([loop], "model", infos[2], infos[3], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(source: Any, **how: Any) -> tuple[Any, Any]:
    """The value and the gradient by w, for x = [1, 1] and n = 4."""
    model = sgo.load(source, **how)
    with model.graph.as_default():
        (g,) = sg.gradients(sg.reduce_sum(model.outputs["y"]), [model.parameters["w"]])
    fed = {"x": np.float32([1, 1]), "n": np.array(4)}
    with sg.Session(model.graph, engine="numpy") as session:
        return tuple(session.run([model.outputs["y"], g], {x: fed[n] for n, x in model.inputs.items()}))


CONDITIONS: dict[str, tuple[Any, int]] = {
    "the condition is true until the count": (looped("five", ("Less", "i", "five")), 5),
    "it ends the loop with the last step": (looped("five", ("Less", "k/new", "five")), 5),
    "it ends the loop before": (looped("five", ("Less", "k/new", "one")), 1),
    "it is handed on": (looped("five"), 5),
    "it is turned round": (looped("five", ("Greater", "five", "i")), 5),
    "an input ends the loop before the file's count": (looped("five", ("Less", "k/new", "n")), 4),
    "an input does not end it before": (looped("five", ("LessOrEqual", "i", "n")), 5),
}


@pytest.mark.parametrize("case", CONDITIONS)
def test_as_many_steps_are_differentiated_as_the_condition_lets_be(case: str) -> None:
    source, steps = CONDITIONS[case]
    y, g = run(source)
    w = np.array([2.0, 3.0])
    np.testing.assert_allclose(y, w**steps)
    np.testing.assert_allclose(g, steps * w ** (steps - 1))


@pytest.mark.parametrize(
    ("count", "condition"), [("n", None), ("", ("Less", "k/new", "n"))], ids=["count", "condition"]
)
def test_an_unknown_count_is_cured_by_the_input_that_the_error_names(count: str, condition: Any) -> None:
    source = looped(count, condition)
    with pytest.raises(sg.GradientError, match=r"load it with known=\{'n': 4\}"):
        run(source)
    y, g = run(source, known={"n": np.array(4)})
    np.testing.assert_allclose(y, [2.0**4, 3.0**4])
    np.testing.assert_allclose(g, [4 * 2.0**3, 4 * 3.0**3])


def test_a_loop_of_an_unknown_count_has_values() -> None:
    model = sgo.load(looped("n"))
    np.testing.assert_allclose(model(x=np.float32([1, 1]), n=np.array(3)), [8.0, 27.0])
