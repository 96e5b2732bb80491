"""Graphs with control flow, gates and variables, for :mod:`tests.helpers.tensorflow_graphs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tests.helpers.tensorflow_graphs import expected, freeze, keep, maker, numbers, old

v1 = tf.compat.v1

# -------------------------------------------------------------------------------------------------- softmax


@maker
def softmax(path: Path) -> None:
    def f(x: Any) -> Any:
        numerator = tf.exp(x)
        return numerator / tf.reduce_sum(numerator, -1, keepdims=True)

    freeze(path, f, {"x": numbers(3, 4)})


@maker
def stable_softmax(path: Path) -> None:
    def f(x: Any) -> Any:
        z = x - tf.reduce_max(x, -1, keepdims=True)
        numerator = tf.exp(z)
        return numerator / tf.reduce_sum(numerator, -1, keepdims=True)

    freeze(path, f, {"x": numbers(3, 4)})


@maker
def stopped_softmax(path: Path) -> None:
    def f(x: Any) -> Any:
        z = x - tf.stop_gradient(tf.reduce_max(x, -1, keepdims=True))
        numerator = tf.exp(z)
        return numerator / tf.reduce_sum(numerator, -1, keepdims=True)

    freeze(path, f, {"x": numbers(3, 4)})


# ------------------------------------------------------------------------------------------------------ loops


def _fixed_loop(x: Any, w: Any) -> Any:
    def step(i: Any, h: Any) -> Any:
        return i + 1, tf.tanh(tf.matmul(h, w)) + tf.stop_gradient(h)

    return tf.while_loop(lambda i, h: i < 4, step, [0, x])[1]


@maker
def while_fixed(path: Path) -> None:
    w = tf.Variable(numbers(3, 3, seed=1), name="w")
    freeze(path, lambda x: _fixed_loop(x, w), {"x": numbers(2, 3)}, {"w": w})


@maker
def while_bounded(path: Path) -> None:
    """Ends where the norm is large; ``maximum_iterations`` bounds it."""
    w = tf.Variable(numbers(3, 3, seed=2), name="w")

    def f(x: Any) -> Any:
        def step(h: Any) -> Any:
            return [tf.matmul(h, w) + x]

        return tf.while_loop(lambda h: tf.reduce_sum(h * h) < 1e3, step, [x], maximum_iterations=6)[0]

    freeze(path, f, {"x": numbers(2, 3)}, {"w": w})


@maker
def while_over_rows(path: Path) -> None:
    """As many steps as there are rows, which is known only when the graph runs."""
    w = tf.Variable(numbers(3, 3, seed=3), name="w")

    def f(x: Any) -> Any:
        total = tf.zeros([3])
        for i in tf.range(tf.shape(x)[0]):
            total = tf.tanh(total + tf.linalg.matvec(w, x[i]))
        return total

    freeze(path, f, {"x": numbers(5, 3)}, {"w": w})


@maker
def while_with_list(path: Path) -> None:
    def f(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            return 0.5 * carry + tf.sin(row)

        return tf.scan(step, x, initializer=tf.zeros([3])), tf.map_fn(lambda row: row * row, x)

    freeze(path, f, {"x": numbers(5, 3)})


@maker
def while_with_history(path: Path) -> None:
    """Each step reads what the steps before it have written."""

    def f(x: Any) -> Any:
        written = tf.TensorArray(tf.float32, 6, element_shape=[2, 3], clear_after_read=False)
        written = written.write(0, x).write(1, tf.sin(x))

        def step(i: Any, array: Any) -> Any:
            return i + 1, array.write(i, array.read(i - 1) * array.read(i - 2))

        return tf.while_loop(lambda i, array: i < 6, step, [2, written])[1].stack()

    freeze(path, f, {"x": numbers(2, 3)}, open_sizes=False)


@maker
def while_with_break(path: Path) -> None:
    def f(x: Any) -> Any:
        total = tf.zeros([3])
        for i in tf.range(10):
            total = total + x[0] * tf.cast(i, tf.float32)
            if tf.reduce_sum(tf.abs(total)) > 20.0:
                break
        return total

    freeze(path, f, {"x": numbers(2, 3)})


@maker
def while_downwards(path: Path) -> None:
    def f(x: Any) -> Any:
        for i in tf.range(5, 0, -2):
            x = x + tf.cast(i, tf.float32) * tf.sin(x)
        return x

    freeze(path, f, {"x": numbers(2, 3)})


@maker
def while_with_and(path: Path) -> None:
    def f(x: Any) -> Any:
        i = tf.constant(0)
        while i < 3 and tf.reduce_sum(x) < 100.0:
            x = x * 1.5 + 1.0
            i += 1
        return x

    freeze(path, f, {"x": numbers(2, 3)})


@maker
def list_that_grows(path: Path) -> None:
    def f(x: Any) -> Any:
        array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        for i in tf.range(4):
            array = array.write(i, x * tf.cast(i + 1, tf.float32))
        return array.stack(), array.concat()

    freeze(path, f, {"x": numbers(2, 3)}, open_sizes=False)


@maker
def gradient_of_a_loop(path: Path) -> None:
    def f(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            h = x
            for _ in tf.range(3):
                h = tf.sin(h) * x
            y = tf.reduce_sum(h)
        return tape.gradient(y, x)

    freeze(path, f, {"x": numbers(2, 3)}, open_sizes=False)


@maker
def cond(path: Path) -> None:
    w = tf.Variable(numbers(3, seed=4), name="w")

    def f(x: Any, positive: Any) -> Any:
        return tf.cond(positive, lambda: x * w, lambda: tf.stop_gradient(x) * tf.sin(w))

    freeze(path, f, {"x": numbers(2, 3), "positive": np.asarray(False)}, {"w": w})


@maker
def cond_nested(path: Path) -> None:
    def f(x: Any) -> Any:
        def inner() -> Any:
            return tf.cond(tf.reduce_max(x) > 100.0, lambda: x, lambda: tf.exp(x))

        return tf.cond(tf.reduce_sum(x) > -50.0, inner, lambda: -x)

    freeze(path, f, {"x": numbers(2, 3)})


@maker
def case(path: Path) -> None:
    def f(x: Any, i: Any) -> Any:
        return tf.switch_case(i, [lambda: x, lambda: tf.sin(x), lambda: x * x])

    freeze(path, f, {"x": numbers(2, 3), "i": np.asarray(7, np.int32)})


# --------------------------------------------------------------------------------------- of TensorFlow 1


def _in_old_form(path: Path, build: Any, fed: Any, sizes: Any = None) -> None:
    v1.disable_control_flow_v2()
    try:
        old(path, build, fed, sizes=sizes)
    finally:
        v1.enable_control_flow_v2()


@maker
def old_while(path: Path) -> None:
    def build(x: Any) -> Any:
        w = v1.get_variable("w", initializer=numbers(3, 3, seed=1), use_resource=False)
        return {"y": _fixed_loop(x, w)}

    _in_old_form(path, build, {"x": numbers(2, 3)}, {"x": [None, 3]})


@maker
def old_while_nested(path: Path) -> None:
    def build(x: Any) -> Any:
        def step(i: Any, h: Any) -> Any:
            inner = tf.while_loop(lambda j, g: j < 3, lambda j, g: (j + 1, tf.sin(g) + x), [0, h])
            return i + 1, inner[1] * 0.5

        return {"y": tf.while_loop(lambda i, h: i < 2, step, [0, x])[1]}

    _in_old_form(path, build, {"x": numbers(2, 3)})


@maker
def old_cond(path: Path) -> None:
    def build(x: Any, positive: Any) -> Any:
        def one() -> Any:
            return tf.cond(tf.reduce_sum(x) > 1e3, lambda: x, lambda: tf.exp(x)), x

        def other() -> Any:
            return tf.stop_gradient(x) * x, tf.sin(x)

        first, second = tf.cond(positive, one, other)
        return {"y": first, "z": second}

    _in_old_form(path, build, {"x": numbers(2, 3), "positive": np.asarray(True)})


@maker
def old_cond_twice(path: Path) -> None:
    """Two branches of one condition, of which the second needs the first; and one around a loop."""

    def build(x: Any) -> Any:
        positive = tf.reduce_sum(x) > 0
        first = tf.cond(positive, lambda: tf.sin(x), lambda: x * x)
        second = tf.cond(positive, lambda: first * 2.0, lambda: first + x)
        around = tf.cond(positive, lambda: _fixed_loop(x, tf.eye(3)), lambda: _fixed_loop(-x, tf.eye(3)))
        return {"y": second, "z": around}

    _in_old_form(path, build, {"x": numbers(2, 3)})


@maker
def old_cond_in_while(path: Path) -> None:
    def build(x: Any) -> Any:
        def step(i: Any, h: Any) -> Any:
            even = tf.equal(i % 2, 0)
            return i + 1, tf.cond(even, lambda: tf.tanh(h), lambda: h * x)

        return {"y": tf.while_loop(lambda i, h: i < 5, step, [0, x])[1]}

    _in_old_form(path, build, {"x": numbers(2, 3)})


@maker
def old_array(path: Path) -> None:
    def build(x: Any) -> Any:
        return {"y": tf.map_fn(lambda row: tf.sin(row) * row, x)}

    _in_old_form(path, build, {"x": numbers(4, 3)})


@maker
def lowered_while(path: Path) -> None:
    w = tf.Variable(numbers(3, 3, seed=1), name="w")
    freeze(path, lambda x: _fixed_loop(x, w), {"x": numbers(2, 3)}, {"w": w}, lowered=True)


@maker
def lowered_cond(path: Path) -> None:
    def f(x: Any, positive: Any) -> Any:
        return tf.cond(positive, lambda: x * x, lambda: tf.stop_gradient(x) * x)

    freeze(path, f, {"x": numbers(2, 3), "positive": np.asarray(False)}, lowered=True)


# ------------------------------------------------------------------------------------------------- variables


@maker
def two_signatures(path: Path) -> None:
    module = tf.Module()
    module.w = tf.Variable(numbers(3, 2, seed=5), name="w")
    module.b = tf.Variable(numbers(2, seed=6), name="b")
    module.count = tf.Variable(3, name="count")
    spec = tf.TensorSpec([None, 3], tf.float32, name="x")

    @tf.function(input_signature=[spec])
    def forward(x: Any) -> Any:
        return {"y": tf.nn.relu(x @ module.w + module.b)}

    @tf.function(input_signature=[spec])
    def counted(x: Any) -> Any:
        module.count.assign_add(1)
        return {
            "z": tf.stop_gradient(x) @ module.w * tf.cast(module.count, tf.float32),
            "count": module.count.read_value(),
        }

    signatures = {"serving_default": forward, "counted": counted}
    tf.saved_model.save(module, str(path), signatures=signatures)
    shutil_assets(path)
    fed, variables = {"x": numbers(4, 3)}, {"w": module.w, "b": module.b}
    keep(path, **expected(forward, fed, variables))
    keep(path.with_name("two_signatures_counted"), **expected(counted, fed, {"w": module.w}))


def shutil_assets(path: Path) -> None:
    """Drop what a SavedModel holds besides: empty folders are not kept by git, and fingerprints differ."""
    (path / "fingerprint.pb").unlink(missing_ok=True)
    if (path / "assets").exists():
        (path / "assets").rmdir()


@maker
def custom_gradient(path: Path) -> None:
    @tf.custom_gradient
    def seven(x: Any) -> Any:
        return tf.tanh(x), lambda g: 7.0 * g

    module = tf.Module()
    module.w = tf.Variable(numbers(3, 2, seed=5), name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def f(x: Any) -> Any:
        return {"y": seven(x @ module.w)}

    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(path), signatures=f, options=options)
    shutil_assets(path)
    keep(path, **expected(f, {"x": numbers(4, 3)}, {"w": module.w}))


@maker
def custom_gradient_with_captures(path: Path) -> None:
    """The gradient function takes the arguments, and what the function computes of them, from around it."""

    @tf.custom_gradient
    def f(a: Any, b: Any) -> Any:
        c = tf.sin(a)
        return c * b, lambda g: (2.0 * g * b, g * a * c)

    module = tf.Module()
    spec = [tf.TensorSpec([2, 3], tf.float32, name=name) for name in "ab"]
    called = tf.function(lambda a, b: {"y": f(a, b)}, input_signature=spec)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(path), signatures=called, options=options)
    shutil_assets(path)
    keep(path, **expected(called, {"a": numbers(2, 3), "b": numbers(2, 3, seed=3)}, {}))


@maker
def keras_export(path: Path) -> None:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((6,)),
            tf.keras.layers.Dense(5, activation="relu"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dense(2, activation="softmax"),
        ]
    )
    for k, v in enumerate(model.variables):
        v.assign(
            np.abs(numbers(*v.shape, seed=k)) + 0.5 if "variance" in v.path else numbers(*v.shape, seed=k)
        )
    model.export(str(path), verbose=False)
    shutil_assets(path)
    variables = {v.path: v for v in model.trainable_variables}
    fed = {"x": numbers(3, 6)}
    found = expected(lambda x: model(x, training=False), fed, {k: v.value for k, v in variables.items()})
    loaded = tf.saved_model.load(str(path)).signatures["serving_default"]
    (name,) = loaded.structured_input_signature[1]
    (result,) = loaded.structured_outputs
    renamed = {
        "in": {name: fed["x"]},
        "out": {result: found["out"]["output"]},
        "seed": {result: found["seed"]["output"]},
    }
    keep(path, **{**found, **renamed, "grad": {name: found["grad"]["x"]}})


@maker
def old_saved_model(path: Path) -> None:
    """A SavedModel of TensorFlow 1, whose variables are references."""
    graph = tf.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("layer/w", initializer=numbers(3, 2, seed=5), use_resource=False)
        y = tf.nn.tanh(tf.matmul(x, w), name="y")
        session.run(v1.global_variables_initializer())
        fed = numbers(4, 3)
        value = session.run(y, {x: fed})
        seed = numbers(4, 2, seed=7)
        slopes = session.run(v1.gradients([y], [x, w], [seed]), {x: fed})
        held = session.run(w)
        builder = v1.saved_model.Builder(str(path))
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    keep(
        path,
        **{"in": {"x": fed}, "out": {"y": value}, "seed": {"y": seed}, "grad": {"x": slopes[0]},
           "variable": {"w": held}, "slope": {"w": slopes[1]}},
    )  # fmt: skip
