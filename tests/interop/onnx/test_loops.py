"""Loops of ONNX whose number of steps their conditions tell, or nothing does: values and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytest.importorskip("onnx")

import onnx
from onnx_loops import doubling, inside, looped

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


ENOUGH = next(n for n in range(20) if by_hand(n)[0].max() >= 9)


def run_in(engine: str, source: Any, most: int, x: Any = START, **fed: Any) -> list[Any]:
    """What a model computes, and the gradient of its sum by x."""
    loaded = sgo.load(source, maximum_iterations=most)
    y = loaded.outputs["y"]
    with loaded.graph.as_default():
        (gradient,) = sg.gradients(sg.reduce_sum(y), [loaded.inputs["x"]])
    feeds = {loaded.inputs[name]: np.asarray(value) for name, value in {"x": x, **fed}.items()}
    with sg.Session(loaded.graph, engine=engine) as session:
        return list(session.run([y, gradient], feeds))


FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "alone": (doubling(), {}),
    "beside a count": (doubling(counted=True), {"count": 100}),
    "in a branch": (inside("If"), {"on": True}),
    "in a loop": (inside("Loop"), {}),
}


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "xla"])
@pytest.mark.parametrize("form", FORMS)
def test_within_the_bound_the_loop_is_as_without_and_beyond_it_nobody_takes_it_for_one(
    form: str, engine: str
) -> None:
    source, fed = FORMS[form]
    start = START * 4 if form == "in a loop" else START  # Whose body begins with a smaller state.
    value, gradient = run_in(engine, source, 9, start, **fed)
    np.testing.assert_allclose(value, sgo.load(source)(x=start, **fed), rtol=1e-6)
    step = np.array([[1e-2, 0]], np.float32)
    ahead, behind = (run_in("numpy", source, 9, start + way * step, **fed)[0].sum() for way in (1, -1))
    np.testing.assert_allclose(gradient[0, 0], (ahead - behind) / 2e-2, rtol=1e-2)
    np.testing.assert_array_equal(run_in(engine, source, 40, start, **fed), [value, gradient])
    if engine == "xla":  # It cannot raise.
        assert all(np.isnan(x).all() for x in run_in(engine, source, 1, start, **fed))
        return
    text = "loop 'loop' passed its bound of 1 iterations: raise maximum_iterations"
    text = text if engine == "numpy" else text.replace("'", "").replace(": ", "_").replace(" ", "_")
    with pytest.raises(sg.EngineError, match=text):
        run_in(engine, source, 1, start, **fed)


def test_exactly_as_many_steps_as_the_bound_are_no_error() -> None:
    value, _ = by_hand()
    np.testing.assert_allclose(run_in("numpy", doubling(), ENOUGH)[0], value, rtol=1e-6)
    with pytest.raises(sg.EngineError, match=f"bound of {ENOUGH - 1} iterations"):
        run_in("numpy", doubling(), ENOUGH - 1)
    np.testing.assert_allclose(sgo.load(doubling())(START), value, rtol=1e-6)


def test_a_branch_that_is_not_taken_has_no_bound() -> None:
    for engine in ("numpy", "onnxruntime", "xla"):
        value, gradient = run_in(engine, inside("If"), 1, on=False)
        np.testing.assert_array_equal(value, -START)
        np.testing.assert_array_equal(gradient, -np.ones_like(START))


def test_examples_that_pass_the_bound_in_a_batch_are_nan() -> None:
    loaded = sgo.load(doubling(), maximum_iterations=ENOUGH)
    many = np.stack([START, START * 1e-4])
    found = sg.vmap(lambda x: loaded(x))(many)
    np.testing.assert_allclose(found[0], by_hand()[0], rtol=1e-6)
    assert np.isnan(found[1]).all()


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
    text = r"Name:'loop_loop_passed_its_bound_of_8_iterations_raise_maximum_iterations/Gather'"
    with pytest.raises(Exception, match=text):
        loss(w, START * 1e-4)
    for name in ("eval", "train_step"):
        nodes = onnx.load(tmp_path / "t" / f"{name}.onnx").graph.node
        assert any("passed_its_bound" in node.name for node in nodes), name
    predict = ort.InferenceSession(str(tmp_path / "t" / "predict.onnx"))
    (found,) = predict.run(None, {"x": START * 1e-4, "W": w})  # The model's own graph has no bound.
    assert found.max() >= 9
    again = sgo.load(tmp_path / "t" / "eval.onnx", maximum_iterations=8)
    fed = {"x": START * 1e-4, "W": w, label: target}
    found = again(**{name: x for name, x in fed.items() if name in again.inputs})
    assert np.isnan(found["loss"]), "what is read again does not raise"


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "4", True])
def test_another_bound_is_refused(wrong: Any) -> None:
    with pytest.raises(sg.ArgumentError, match="maximum_iterations is a whole number from 1 on"):
        sgo.load(doubling(), maximum_iterations=wrong)
