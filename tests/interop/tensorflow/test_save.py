"""Graphs that are written for TensorFlow: read again by us, and by TensorFlow where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.tensorflow_saved import PROGRAMS, built, numbers

import stopgrad as sg
import stopgrad.tensorflow as sgtf

GRAPHS = Path(__file__).parent / "graphs"


def outcome(f: Any, x: Any, seed: Any) -> tuple[Any, Any]:
    """The value of a function, and its gradient for a cotangent."""
    return f(x), sg.grad(lambda x: sg.reduce_sum(f(x) * seed))(x)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_saved_graph_has_the_same_values_and_gradients_when_it_is_loaded(name: str, tmp_path: Path) -> None:
    x, y = built(name)
    sgtf.save(tmp_path / "graph.pb", {"y": y})
    model = sgtf.load(tmp_path / "graph.pb")
    given = numbers(3, 6, seed=1)
    value = sg.Session(y.op.graph, engine="numpy").run(y, {x: given})
    seed = numbers(*value.shape, seed=2)
    with y.op.graph.as_default():
        (dx,) = sg.gradients(y, [x], seed)
    found, slope = outcome(model, given, seed)
    np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
    wanted = sg.Session(y.op.graph, engine="numpy").run(dx, {x: given})
    np.testing.assert_allclose(slope, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "chosen"])
def test_a_gradient_can_be_saved(name: str, tmp_path: Path) -> None:
    x, y = built(name)
    with y.op.graph.as_default():
        (dx,) = sg.gradients(y, [x])
    sgtf.save(tmp_path / "graph.pbtxt", {"dx": dx}, {"x": x})
    given = numbers(3, 6, seed=1)
    wanted = sg.Session(y.op.graph, engine="numpy").run(dx, {x: given})
    np.testing.assert_allclose(sgtf.load(tmp_path / "graph.pbtxt")(given), wanted, rtol=1e-5, atol=1e-6)


def test_parameters_come_back_as_parameters_with_other_values_if_asked() -> None:
    _, y = built("network")
    model = sgtf.load(sgtf.to_graph({"y": y}, values={"layer/b": np.zeros(5, np.float32)}))
    assert sorted(model.parameters) == ["layer/b", "layer/w"]
    assert not model.values()["layer/b"].any()
    assert np.array_equal(model.values()["layer/w"], numbers(6, 5))


def test_stops_are_nodes_of_tensorflows() -> None:
    _, y = built("softmax")
    types = [op.type for op in sgtf.load(sgtf.to_graph({"y": y})).graph.operations]
    assert types.count("StopGradient") == 1


@pytest.mark.parametrize(
    ("gate", "cure"),
    [
        (lambda x: sg.straight_through(sg.round(x), x), "sg.stop_gradient(hard - soft)"),
        (lambda x: sg.scale_gradient(x, 0.5), "sg.stop_gradient(x - s * x)"),
        (lambda x: sg.clip_gradient(x, -1.0, 1.0), "save the gradient itself"),
        (lambda x: sg.stop_gradient(x, when=sg.reduce_sum(x) > 0), "sg.where(when"),
    ],
)
def test_a_gate_that_tensorflow_lacks_is_named_with_what_to_do(gate: Any, cure: str) -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        y = gate(x) * 2.0
    with pytest.raises(sg.EngineError, match="cannot be written") as caught:
        sgtf.to_graph({"y": y})
    assert cure in str(caught.value)
    assert "test_save.py" in str(caught.value)


LOOPS = ["while_fixed", "while_bounded", "while_over_rows", "while_with_list", "while_with_history", "case"]
LOOPS += ["cond_nested", "old_while_nested", "old_cond", "list_that_grows"]


def kept(name: str) -> tuple[Any, dict[str, Any], list[str]]:
    """A graph that TensorFlow wrote, with its numbers and the names of its outputs."""
    with np.load(GRAPHS / f"{name}.npz") as file:
        held = {key: file[key] for key in file.files}
    outputs = [key.removeprefix("out/") for key in held if key.startswith("out/")]
    return sgtf.load(GRAPHS / f"{name}.pb", outputs), held, outputs


@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_branches_have_the_same_values_and_gradients_when_they_are_loaded(name: str) -> None:
    first, numbers_held, outputs = kept(name)
    second = sgtf.load(sgtf.to_graph(first), outputs)
    given = [numbers_held[f"in/{x}"] for x in first.inputs]

    def total(model: Any, x: Any) -> Any:
        held = [x if one.shape == x.shape and one.dtype.kind == "f" else one for one in given]
        ys = model(*held)
        ys = list(ys.values()) if isinstance(ys, dict) else [ys]
        return sg.add_n([sg.reduce_sum(y * y) for y in ys])

    x = next(one for one in given if one.dtype.kind == "f")
    for a, b in zip(*(sg.value_and_grad(lambda x: total(m, x))(x) for m in (first, second)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_tensorflow_differentiates_saved_loops_and_branches_to_the_same_numbers(name: str) -> None:
    tf = pytest.importorskip("tensorflow")
    model, held, outputs = kept(name)
    v1 = tf.compat.v1
    definition = v1.GraphDef.FromString(sgtf.to_graph(model))
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        ys = tf.import_graph_def(definition, return_elements=[f"{y}:0" for y in outputs], name="")
        (slope,) = v1.gradients(ys, graph.get_tensor_by_name("x:0"), [held[f"seed/{y}"] for y in outputs])
        given = {f"{x}:0": held[f"in/{x}"] for x in model.inputs}
        made, derived = session.run([ys, slope], given)
    for y, value in zip(outputs, made, strict=True):
        np.testing.assert_allclose(value, held[f"out/{y}"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(derived, held["grad/x"], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_tensorflow_differentiates_a_saved_graph_to_the_same_numbers(name: str) -> None:
    tf = pytest.importorskip("tensorflow")
    x, y = built(name)
    given = numbers(3, 6, seed=1)
    with y.op.graph.as_default():
        (dx,) = sg.gradients(y, [x])
    value, wanted = sg.Session(y.op.graph, engine="numpy").run([y, dx], {x: given})
    v1 = tf.compat.v1
    definition = v1.GraphDef.FromString(sgtf.to_graph({"y": y}))
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        (found,) = tf.import_graph_def(definition, return_elements=["y:0"], name="")
        (slope,) = v1.gradients(found, graph.get_tensor_by_name("x:0"))
        made, derived = session.run([found, slope], {"x:0": given})
    np.testing.assert_allclose(made, value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(derived, wanted, rtol=1e-5, atol=1e-6)
