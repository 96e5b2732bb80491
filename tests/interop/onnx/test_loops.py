"""Loops of ONNX whose number of steps their conditions tell, or nothing does: values and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytest.importorskip("onnx")

from onnx_loops import doubling, looped

import stopgrad.onnx as sgo

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


# ------------------------------------------------------------------------- loops that a computation ends


START = np.array([[1.0, 2.0]], np.float32)


def by_hand(most: int = 100) -> tuple[Any, Any]:
    """The result and the gradient of its sum by the first state, by the same steps in float64."""
    w, s, jacobian = (
        np.array([[1.1, 0.7], [0.8, 0.9]], np.float32).astype(float),
        START.astype(float),
        np.eye(2),
    )
    for _ in range(most):
        s, jacobian = s @ w, jacobian @ w
        if s.max() >= 9:
            break
    return s, jacobian.sum(1)[None]


@pytest.mark.parametrize("counted", [False, True])
def test_a_bound_gives_a_loop_by_condition_its_gradient(counted: bool) -> None:
    loaded = sgo.load(doubling(counted), maximum_iterations=8)
    with loaded.graph.as_default():
        (gradient,) = sg.gradients(sg.reduce_sum(loaded.outputs["y"]), [loaded.inputs["x"]])
    for count in (100, 2) if counted else (100,):
        feeds = {loaded.inputs["x"]: START}
        if counted:
            feeds[loaded.inputs["count"]] = np.int64(count)
        with sg.Session(loaded.graph, engine="numpy") as session:
            y, found = session.run([loaded.outputs["y"], gradient], feeds)
        value, expected = by_hand(count)
        np.testing.assert_allclose(y, value, rtol=1e-6)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_loop_that_needs_more_steps_gives_no_number_that_could_be_taken_for_its_result() -> None:
    steps = next(n for n in range(20) if by_hand(n)[0].max() >= 9)
    assert np.isfinite(sgo.load(doubling(), maximum_iterations=steps)(START)).all()
    assert np.isnan(sgo.load(doubling(), maximum_iterations=steps - 1)(START)).all()
    np.testing.assert_allclose(sgo.load(doubling())(START), by_hand()[0], rtol=1e-6)


def test_the_files_of_training_hold_the_bound(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    how: Any = {"loss": "mse", "optimizer": "sgd", "train": "W", "folder": tmp_path / "t"}
    with pytest.raises(sg.GradientError, match=r"computed condition ends 'loop'.*maximum_iterations"):
        sgo.training(doubling(), **how)
    sgo.training(doubling(), maximum_iterations=8, **how)
    session = ort.InferenceSession(str(tmp_path / "t" / "gradients.onnx"))
    w, label = np.array([[1.1, 0.7], [0.8, 0.9]], np.float32), None
    label = next(x.name for x in session.get_inputs() if x.name not in ("x", "W"))
    target = np.zeros((1, 2), np.float32)

    def loss(weights: Any, start: Any = START) -> Any:
        return session.run(None, {"x": start, "W": weights.astype(np.float32), label: target})

    value, gradient = loss(w)
    np.testing.assert_allclose(value, (by_hand()[0] ** 2).mean(), rtol=1e-5)
    for at in np.ndindex(2, 2):
        step = np.zeros((2, 2))
        step[at] = 1e-2
        difference = (loss(w + step)[0] - loss(w - step)[0]) / 2e-2
        np.testing.assert_allclose(gradient[at], difference, rtol=1e-2)
    assert np.isnan(loss(w, START * 1e-4)[0])


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "4", True])
def test_another_bound_is_refused(wrong: Any) -> None:
    with pytest.raises(sg.ArgumentError, match="maximum_iterations is a whole number from 1 on"):
        sgo.load(doubling(), maximum_iterations=wrong)
