"""What a running program holds is loaded, with its names, structures and lines; or an error helps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
import stopgrad.tensorflow as sgtf

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def w() -> Any:
    return tf.Variable(np.ones((3, 2), np.float32), name="w")


# --------------------------------------------------------------------------------------------- sources


def test_each_form_of_a_function_is_the_same_program(w: Any) -> None:
    traced = tf.function(lambda x: x @ w)
    concrete = traced.get_concrete_function(tf.TensorSpec((None, 3), name="x"))
    models = [
        sgtf.load(lambda x: x @ w, inputs=[X]),
        sgtf.load(traced, inputs=[tf.TensorSpec((None, 3))]),
        sgtf.load(concrete),
        sgtf.load(concrete.graph),
    ]
    for model in models:
        assert list(model.parameters) == ["w"]
        assert list(model.inputs) == ["x"]
        np.testing.assert_array_equal(model(X), X @ w.numpy())


def test_a_function_without_arguments_needs_no_inputs(w: Any) -> None:
    assert float(sgtf.load(lambda: tf.reduce_sum(w))()) == 6.0


def test_a_signature_says_what_a_function_takes(w: Any) -> None:
    f = tf.function(lambda x: x @ w, input_signature=[tf.TensorSpec((None, 3), name="rows")])
    assert list(sgtf.load(f).inputs) == ["rows"]


def test_a_module_is_called() -> None:
    class Doubled(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = tf.Variable(2.0, name="v")
            self.second = tf.Variable([3.0], name="v")

        def __call__(self, x: Any) -> Any:
            return x * self.first * self.second

    model = sgtf.load(Doubled(), inputs=[X])
    assert list(model.parameters) == ["v", "v_1"]
    np.testing.assert_array_equal(model(X), 6.0 * X)


def test_a_sequential_model_says_itself_what_it_takes_and_has_the_paths_of_keras() -> None:
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    )
    loaded = sgtf.load(model)
    assert list(loaded.parameters) == [v.path for v in model.trainable_variables]
    np.testing.assert_allclose(loaded(X), model(X), rtol=1e-5)


def test_a_functional_model_returns_what_it_returns_in_keras() -> None:
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    y = keras.layers.Dense(4)(keras.layers.Concatenate()([a, b]))
    model = keras.Model({"a": a, "b": b}, {"y": y, "z": b})
    fed = {"a": X, "b": X[:, :2]}
    loaded = sgtf.load(model)
    assert list(loaded.inputs) == ["a", "b"]
    for given in (loaded(fed), loaded(**fed)):
        np.testing.assert_allclose(given["y"], model(fed)["y"], rtol=1e-5)
        np.testing.assert_array_equal(given["z"], fed["b"])


class Subclassed(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.frozen = keras.layers.Dense(4), keras.layers.Dense(1)
        self.frozen.trainable = False

    def call(self, x: Any) -> Any:
        return self.frozen(self.first(x))


def test_a_subclassed_model_takes_an_example_until_it_is_built() -> None:
    model = Subclassed()
    with pytest.raises(sg.ArgumentError, match=r"does not say what it takes; say it with inputs="):
        sgtf.load(model)
    built = sgtf.load(model, inputs=[X])
    np.testing.assert_allclose(sgtf.load(model)(X[:1]), model(X[:1]), rtol=1e-5)
    for loaded in (built, sgtf.load(model)):
        assert list(loaded.parameters) == [v.path for v in model.first.variables]
        np.testing.assert_allclose(loaded(X), model(X), rtol=1e-5)


def test_what_is_not_trained_is_no_parameter_unless_it_is_asked_for() -> None:
    kept = tf.Variable(X, trainable=False, name="kept")
    learnt = tf.Variable(X, name="learnt")
    data = tf.constant(X)

    def f() -> Any:
        return tf.reduce_sum(tf.matmul(data * kept, learnt, transpose_b=True))

    assert list(sgtf.load(f).parameters) == ["learnt"]
    assert list(sgtf.load(f, parameters="kept").parameters) == ["kept"]


def test_values_are_those_of_now(w: Any) -> None:
    w.assign(3.0 * w)
    model = sgtf.load(lambda: tf.reduce_sum(w))
    w.assign(w * 0.0)
    assert float(model()) == 18.0


def test_arguments_and_results_keep_their_structure(w: Any) -> None:
    def f(x: Any, extra: Any, flag: bool, *, scale: float = 2.0) -> Any:
        h = x @ w * scale
        return {"a": [h, None], "b": extra["q"]} if flag else h

    model = sgtf.load(f, inputs=[X, {"q": X}, True])
    assert list(model.inputs) == ["x", "extra"]
    made = model(X, {"q": X})
    assert made["a"][1] is None
    np.testing.assert_array_equal(made["a"][0], X @ w.numpy() * 2.0)
    np.testing.assert_array_equal(made["b"], X)
    by_name = sgtf.load(f, inputs={"x": X, "extra": {"q": X}, "flag": False, "scale": 3.0})
    np.testing.assert_array_equal(by_name(x=X, extra=X), X @ w.numpy() * 3.0)


# ----------------------------------------------------------------------------------------------- lines


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if text in line and "line_of" not in line)


def test_reports_name_the_line_that_stops(w: Any) -> None:
    def f(x: Any) -> Any:
        h = x @ w
        return tf.stop_gradient(h) * 2.0  # the stop

    model = sgtf.load(f, inputs=[X])
    report = sg.explain(lambda p: model.apply(p, X), model.values())
    assert report["p.w"].status == "stopped"
    assert f"{Path(__file__).name}:{line_of('# the stop')}" in str(report)


def test_lines_are_known_inside_of_functions_and_loops(w: Any) -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return tf.stop_gradient(tf.exp(x))  # inside

    def f(x: Any) -> Any:
        total = tf.zeros((2, 2))
        for _ in tf.range(3):
            total += inner(x @ w)
        return total

    model = sgtf.load(f, inputs=[X])
    report = sg.explain(lambda p: model.apply(p, X), model.values())
    assert f"{Path(__file__).name}:{line_of('# inside')}" in str(report)


# ---------------------------------------------------------------------------------------------- errors


def test_a_function_with_arguments_needs_inputs() -> None:
    with pytest.raises(sg.ArgumentError, match=r"takes x, y; say what it is called with.*tf\.TensorSpec"):
        sgtf.load(lambda x, y: x + y)


def test_what_python_needs_to_know_is_an_error_with_the_line_and_a_cure() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        return y * np.asarray(y).max()  # NumPy

    line = line_of("# NumPy")
    where = re.escape(f"{__file__}:{line}: return y * np.asarray(y).max()")
    with pytest.raises(sg.GraphError, match=f"TensorFlow cannot trace f: (?s:.*){where}(?s:.*)tf.cond"):
        sgtf.load(f, inputs=[X])


def test_an_error_that_the_function_raises_itself_is_its_own() -> None:
    def f(x: Any) -> Any:
        raise TypeError("five rows, please")

    with pytest.raises(TypeError, match="five rows, please") as caught:
        sgtf.load(f, inputs=[X])
    assert not isinstance(caught.value, sg.StopgradError)


def test_a_graph_def_with_variables_says_what_to_load_instead(w: Any) -> None:
    concrete = tf.function(lambda: tf.reduce_sum(w)).get_concrete_function()
    with pytest.raises(sg.GraphError, match=r"is the handle of a variable.*load the function"):
        sgtf.load(concrete.graph.as_graph_def())


def test_a_variable_may_be_an_argument(w: Any) -> None:
    f = tf.function(lambda x, v: x @ v)
    assert list(sgtf.load(f, inputs=[X, w]).parameters) == ["w"]
    with pytest.raises(sg.GraphError, match=r"'v' of .* is a variable that is passed as an argument"):
        sgtf.load(f.get_concrete_function(X, w))


def test_inputs_are_for_what_is_yet_to_be_traced(w: Any) -> None:
    concrete = tf.function(lambda: tf.reduce_sum(w)).get_concrete_function()
    with pytest.raises(sg.ArgumentError, match="is traced already"):
        sgtf.load(concrete, inputs=[X])
    with pytest.raises(sg.ArgumentError, match="a file has its own inputs"):
        sgtf.load(b"graph", inputs=[X])


def test_a_function_that_returns_nothing_has_no_gradient_to_speak_of() -> None:
    def f() -> None:
        pass

    with pytest.raises(sg.GraphError, match="f returns no tensor"):
        sgtf.load(f)


def test_a_custom_gradient_that_cannot_be_traced_is_an_error_when_it_is_asked_for(w: Any) -> None:
    @tf.custom_gradient
    def odd(x: Any) -> Any:
        return tf.identity(x), lambda g: g * g.numpy()

    model = sgtf.load(lambda: tf.reduce_sum(odd(tf.exp(w))))
    with pytest.raises(sg.GradientError, match="which TensorFlow could not trace: AttributeError"):
        sg.grad(model.apply)(model.values())
