"""The statements without functions, as TensorFlow has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from programs.forms import SMOOTH, STOPS, WHOLE
from programs.language import Form

LIBRARY = "tensorflow"


def form(kinds: str, ways: str, text: str, *, opened: str = "", weight: float = 1.0, parts: str = "") -> Form:
    """A form of TensorFlow's alone."""
    takes, makes = kinds.split("->")
    every = tuple([tuple(part.split()) for part in ways.split(";")])
    openings: Mapping[str, str] = {LIBRARY: opened} if opened else {}
    return Form(takes, makes, every, {LIBRARY: text}, openings, 0, weight, tuple(parts.split()))


TEXTS = {
    "tanh": "tf.tanh({0})",
    "sin": "tf.sin({0})",
    "scaled": "{0} * 0.7 + 0.1",
    "add": "{0} + {1}",
    "minus": "{0} - {1} * 0.6",
    "times": "tf.sin({0}) * {1}",
    "blend": "tf.sigmoid({0}) * {1} + {2}",
    "summed": "tf.reduce_mean({0}) + {1}",
    "turned": "tf.reverse({0}, [0])",
    "halves": "tf.split(tf.concat([{0}, {1}], 0), 2)",
    "floor": "tf.floor({0} * 3.0)",
    "round": "tf.round({0} * 3.0)",
    "to_integers": "tf.cast({0} * 3.0, tf.int32)",
    "to_numbers": "tf.cast({0}, tf.float32) * 0.3",
    "above": "{0} > {1}",
    "less": "{0} < {1}",
    "not": "tf.logical_not({0})",
    "counted": "tf.where({0}, {1}, {2} + 1)",
    "where": "tf.where({0}, {1}, {2})",
    "bounded": "tf.where({0} > {1}, {2}, {2} * 0.5)",
    "gathered": "tf.gather({0}, tf.clip_by_value({1}, 0, 2))",
    "position": "tf.argmax({0}, output_type=tf.int32) + {1}",
    "times_position": "{0} * tf.cast(tf.argmax({1}) + 1, tf.float32)",
    "times_own_position": "{0} * tf.cast(tf.argmax({0}) + 1, tf.float32)",
    "largest": "tf.math.top_k({0}, 3)",
    "sorted": "tf.sort({0})",
    "order": "tf.argsort({0})",
    "stop": "tf.stop_gradient({0})",
    "stop_twice": "tf.stop_gradient(tf.tanh(tf.stop_gradient({0})))",
    "stop_behind_floor": "tf.floor(tf.stop_gradient({0}) * 3.0)",
    "stop_one": "tf.stop_gradient({0} * {1}) + {0}",
    "stop_both": "(tf.stop_gradient({0}), tf.stop_gradient({1}))",
}
"""The texts of statements that other libraries have as well."""

OPENED = {
    "floor": "tf.tanh({0})",
    "round": "tf.tanh({0})",
    "stop": "{0}",
    "stop_twice": "tf.tanh({0})",
    "stop_one": "{0} * {1} + {0}",
    "stop_both": "({0}, {1})",
}

SHARED = {
    name: replace(one, text={LIBRARY: TEXTS[name]}, opened={LIBRARY: OPENED[name]} if name in OPENED else {})
    for name, one in {**SMOOTH, **WHOLE, **STOPS}.items()
    if name in TEXTS
}

OWN = {
    "relu": form("f->f", "o", "tf.nn.relu({0}) + 0.1 * {0}"),
    "softmax": form("f->f", "o", "tf.nn.softmax({0})"),
    "signed": form("f->f", "x", "tf.sign({0})", opened="tf.tanh({0})"),
    "through_floor": form("f->f", "o|s|sx", "{0} + tf.stop_gradient(tf.floor({0}) - {0})", weight=2.0),
    "stacked": form("ff->f", "o o", "tf.reduce_sum(tf.stack([{0}, {1}]), 0)"),
    "unstacked": form("ff->ff", "o o;o o", "tf.unstack(tf.stack([{0}, {1}]) * 0.9)"),
    "parted": form("ff->f", "o .", "tf.stack([{0}, {0} * 2.0, {0} + 1.0])[1]"),
    "crossed": form("ff->f", "o o", "tf.linalg.matvec(tf.tensordot({0}, {1}, 0), {1}) * 0.1"),
    "scattered": form(
        "ffi->f",
        "o o o",
        "tf.tensor_scatter_nd_add({0}, tf.clip_by_value({2}, 0, 2)[:, None], {1})",
    ),
    "segments": form(
        "fi->f", "o o", "tf.math.unsorted_segment_sum({0}, tf.clip_by_value({1}, 0, 2), 3) + 0.1 * {0}"
    ),
    "spread": form("fi->f", "o o", "tf.scatter_nd(tf.clip_by_value({1}, 0, 2)[:, None], {0}, [3]) + {0}"),
    "ranked": form("ff->f", "x o", "tf.gather({1}, tf.argsort({0}))"),
    "one_hot": form("ff->f", "x o", "tf.one_hot(tf.argmax({0}), 3) * {1}"),
    "chosen": form("ff->f", "o x", "tf.where({1} > 0.1, {0}, 0.5 * {0})"),
    "dropped": form("f->f", "o", "tf.nn.dropout({0}, 0.3) + 0.01 * {0}"),
    "ragged": form("f->f", "o", "tf.RaggedTensor.from_row_splits({0}, [0, 1, 3]).flat_values * 1.1"),
    "sparse": form(
        "ff->f",
        "o o",
        "tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0, 0], [1, 1], [2, 2]], {0}, [3, 3]), "
        "{1}[:, None])[:, 0]",
    ),
    "array": form(
        "ff->f",
        "o o",
        "tf.reduce_sum(tf.TensorArray(tf.float32, 2).write(0, {0}).write(1, {1}).stack(), 0)",
    ),
    "array_stopped": form(
        "ff->f",
        "o s",
        "tf.reduce_sum("
        "tf.TensorArray(tf.float32, 2).write(0, {0}).write(1, tf.stop_gradient({1})).stack(), 0)",
        opened="tf.reduce_sum(tf.TensorArray(tf.float32, 2).write(0, {0}).write(1, {1}).stack(), 0)",
    ),
    "linear": form("f->f", "o", "net({0}[None])[0]", parts="net.kernel net.bias", weight=2.0),
    "sequence": form(
        "f->f", "o", "seq({0}[None])[0]", parts="seq.first.kernel seq.second.kernel seq.second.bias"
    ),
    "functional": form("f->f", "o|s", "fun({0}[None])[0]", parts="net.kernel net.bias", weight=1.0),
    "frozen": form("f->f", "o", "frozen({0}[None])[0]", parts="frozen.kernel frozen.bias", weight=2.0),
    "biased": form("f->f", "o", "{0} + unwatched", parts="un.watched"),
    "held": form("f->f", "o", "{0} + held * 0.5", parts="held.variable"),
    "looked_up": form(
        "fi->f", "o o", "{0} + table(tf.clip_by_value({1}, 0, 2))[0]", parts="table.embeddings"
    ),
    "row": form(
        "fi->f", "o o", "{0} + tf.gather(rows, tf.clip_by_value({1}, 0, 2))[1]", parts="rows.variable"
    ),
    "normed": form("f->f", "o", "{0} + norm(tf.ones((1, 3)))[0]", parts="norm.gamma norm.beta"),
    "stop_in_keras": form("f->f", "s", "keras.ops.stop_gradient({0})", opened="{0}"),
    "assigned": form("f->f", "s", "store.assign({0}) + 0.1", opened="{0} + 0.1", weight=2.0),
    "assign_added": form("f->f", "s", "store.assign_add({0}) * 0.5", opened="{0} * 0.5"),
    "python": form("f->f", "o", "tf.reshape(tf.py_function(tf.tanh, [{0}], tf.float32), [3])"),
    "numpy": form(
        "f->f",
        "x",
        "tf.reshape(tf.numpy_function(np.tanh, [{0}], tf.float32), [3])",
    ),
    "slope": form("ff->f", "o o", "slope(lambda t: tf.tanh(t) * {1}, {0})"),
    "slope_with_stop": form(
        "ff->f",
        "o s",
        "slope(lambda t: tf.tanh(t) * tf.stop_gradient({1}), {0})",
        opened="slope(lambda t: tf.tanh(t) * {1}, {0})",
    ),
    "slope_in_graph": form(
        "ff->f", "o o", "tf.function(lambda t, u: tf.gradients(tf.tanh(t) * u, t)[0])({0}, {1})"
    ),
    "own_scale": form("ff->f", "o o", "own_scale({0}, {1})"),
    "own_forget": form("ff->f", "o x", "own_forget({0}, {1})"),
    "own_linear": form("f->f", "o", "own_linear({0})", parts="own.weight"),
}

TENSORFLOW = {**SHARED, **OWN}
