"""The rows in TensorFlow without Keras: ``tf.function`` of a gradient tape, plain or with ``jit_compile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from runtime.problems import ATTACKS, EPSILON, RATE, REACH, STRIDE, Data, LeftOut, leaves, mapped
from runtime.steps_tensorflow import Steps

Call = Callable[[], Any]


def softmax_loss(x: Any, w: Any) -> Any:
    return tf.reduce_sum(w * tf.nn.softmax(x))


def cross_entropy(x: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x))


def mlp_loss(params: Any, x: Any, labels: Any) -> Any:
    *hidden, last = params
    for layer in hidden:
        x = tf.nn.relu(x @ layer["w"] + layer["b"])
    return cross_entropy(x @ last["w"] + last["b"], labels)


def cnn_loss(params: Any, x: Any, labels: Any) -> Any:
    x = tf.nn.relu(tf.nn.conv2d(x, params["conv1"]["w"], 1, "SAME") + params["conv1"]["b"])
    x = tf.nn.relu(tf.nn.conv2d(x, params["conv2"]["w"], 1, "SAME") + params["conv2"]["b"])
    x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    return mlp_loss([params["dense1"], params["dense2"]], tf.reshape(x, [x.shape[0], -1]), labels)


def free_energy(params: Any, v: Any) -> Any:
    return -tf.reduce_sum(v * params["a"], axis=-1) - tf.reduce_sum(
        tf.nn.softplus(v @ params["w"] + params["b"]), axis=-1
    )


def bernoulli(p: Any) -> Any:
    return tf.cast(tf.random.uniform(p.shape) < p, p.dtype)


def contrastive_divergence(params: Any, v: Any) -> Any:
    h = bernoulli(tf.sigmoid(v @ params["w"] + params["b"]))
    back = tf.sigmoid(tf.matmul(h, params["w"], transpose_b=True) + params["a"])
    sample = tf.stop_gradient(bernoulli(back))
    return tf.reduce_mean(free_energy(params, v)) - tf.reduce_mean(free_energy(params, sample))


def mixture_loss(params: Any, x: Any) -> Any:
    z = (x[:, None] - params["mean"]) / tf.exp(params["log_scale"])
    log_p = (
        tf.nn.log_softmax(params["logit"])
        - 0.5 * tf.reduce_sum(z * z, axis=-1)
        - tf.reduce_sum(params["log_scale"], axis=-1)
    )
    r = tf.stop_gradient(tf.nn.softmax(log_p))
    return -tf.reduce_mean(tf.reduce_sum(r * log_p, axis=-1))


def layer_norm(x: Any, scale: Any, offset: Any) -> Any:
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, EPSILON)


def norm(x: Any, layer: Any) -> Any:
    return layer_norm(x, layer["scale"], layer["offset"])


def attention(x: Any, layer: Any, heads: int) -> Any:
    batch, length, width = x.shape

    def split(name: str) -> Any:
        parts = tf.reshape(dense(x, layer[name]), [batch, length, heads, width // heads])
        return tf.transpose(parts, [0, 2, 1, 3])

    scores = tf.matmul(split("query"), split("key"), transpose_b=True) / (width // heads) ** 0.5
    scores = tf.where(np.tri(length, dtype=bool), scores, -1e9)
    mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), split("value")), [0, 2, 1, 3])
    return dense(tf.reshape(mixed, [batch, length, width]), layer["out"])


def dense(x: Any, w: Any) -> Any:
    """As Keras' dense layer has it: one product."""
    return tf.tensordot(x, w, 1)


def transformer_loss(params: Any, x: Any, labels: Any, heads: int) -> Any:
    h = tf.gather(params["words"], x) + params["places"]
    for layer in params["layers"]:
        h = h + attention(norm(h, layer["norm1"]), layer, heads)
        h = h + dense(
            tf.nn.gelu(dense(norm(h, layer["norm2"]), layer["up"]), approximate=True), layer["down"]
        )
    return cross_entropy(dense(h, params["head"]), labels)


def lstm_step(params: Any, state: Any, x: Any) -> Any:
    h, c = state
    i, f, g, o = tf.split(x @ params["w"] + h @ params["u"] + params["b"], 4, axis=-1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def lstm_loss(params: Any, x: Any, targets: Any) -> Any:
    """Unrolled: TensorFlow's own loops take longer."""
    state = tf.zeros(targets.shape[1:]), tf.zeros(targets.shape[1:])
    states = []
    for part in tf.unstack(x):
        state = lstm_step(params, state, part)
        states.append(state[0])
    return tf.reduce_mean(tf.square(tf.stack(states) - targets))


def lstm_scan_loss(params: Any, x: Any, targets: Any) -> Any:
    """As a loop: XLA takes minutes to compile what is unrolled."""
    start = tf.zeros(targets.shape[1:]), tf.zeros(targets.shape[1:])
    states, _ = tf.scan(lambda state, part: lstm_step(params, state, part), x, start)
    return tf.reduce_mean(tf.square(states - targets))


def norms_loss(params: Any, w: Any) -> Any:
    x = params["x"]
    for scale, offset in zip(params["scales"], params["offsets"], strict=True):
        x = tf.nn.gelu(layer_norm(x, scale, offset), approximate=True)
    return tf.reduce_mean(w * x)


def deep_loss(params: Any, x: Any) -> Any:
    for layer in params:
        x = tf.tanh(x @ layer["w"] + layer["b"])
    return tf.reduce_mean(x * x)


def add_up(*arguments: Any) -> Any:
    total = arguments[0]
    for x in arguments[1:]:
        total = total + x
    return total * 2.0


def add_up_dict(arguments: Any) -> Any:
    return add_up(*arguments.values())


def gradient_of(loss: Any) -> Any:
    def value_and_gradient(params: Any, *batch: Any) -> Any:
        flat = list(leaves(params))
        with tf.GradientTape() as tape:
            tape.watch(flat)
            value = loss(params, *batch)
        # The gradient of an embedding is sparse by itself; what a user adds to it is dense.
        return value, [tf.convert_to_tensor(g) for g in tape.gradient(value, flat)]

    return value_and_gradient


def step_of(loss: Any) -> Any:
    def step(params: Any, *batch: Any) -> Any:
        value, gradients = gradient_of(loss)(params, *batch)
        return value, [p - RATE * g for p, g in zip(leaves(params), gradients, strict=True)]

    return step


def pgd_step(params: Any, x: Any, labels: Any) -> Any:
    found = x
    for _ in range(ATTACKS):
        with tf.GradientTape() as tape:
            tape.watch(found)
            loss = mlp_loss(params, found, labels)
        found = found + STRIDE * tf.sign(tape.gradient(loss, found))
        found = tf.clip_by_value(tf.clip_by_value(found, x - REACH, x + REACH), 0.0, 1.0)
    return step_of(mlp_loss)(params, tf.stop_gradient(found), labels)


class Library(Steps):
    """TensorFlow's graphs, run by itself or by XLA."""

    def __init__(self, variant: str, device: str) -> None:
        self.version = tf.__version__
        self.jit = variant == "xla"

    def touch(self) -> None:
        tf.function(lambda x: x + 1.0, jit_compile=self.jit)(tf.ones(2)).numpy()

    to_numpy = staticmethod(np.asarray)

    def _compiled(self, f: Any, *arguments: Any) -> Call:
        compiled = tf.function(f, jit_compile=self.jit, autograph=False)
        placed = mapped(tf.constant, list(arguments))
        return lambda: compiled(*placed)

    def softmax_loss(self, data: Data) -> Call:
        return self._compiled(gradient_of(softmax_loss), data["x"], data["w"])

    def cross_entropy(self, data: Data) -> Call:
        return self._compiled(gradient_of(cross_entropy), data["x"], data["labels"])

    def mlp(self, data: Data) -> Call:
        return self._compiled(step_of(mlp_loss), data["params"], data["x"], data["labels"])

    def cnn(self, data: Data) -> Call:
        return self._compiled(step_of(cnn_loss), data["params"], data["x"], data["labels"])

    def rbm(self, data: Data) -> Call:
        tf.random.set_seed(0)
        return self._compiled(step_of(contrastive_divergence), data["params"], data["v"])

    def mixture(self, data: Data) -> Call:
        return self._compiled(gradient_of(mixture_loss), data["params"], data["x"])

    def pgd(self, data: Data) -> Call:
        return self._compiled(pgd_step, data["params"], data["x"], data["labels"])

    def call(self, data: Data) -> Call:
        f = add_up_dict if isinstance(data["arguments"][0], dict) else add_up
        if data["kind"] == "own":
            return self._compiled(f, *data["arguments"])
        compiled, arguments = tf.function(f, jit_compile=self.jit, autograph=False), data["arguments"]
        return lambda: compiled(*mapped(tf.convert_to_tensor, arguments)).numpy()

    def session(self, data: Data) -> Call:
        if self.jit:
            raise LeftOut("sessions run without it")
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [8])
            y = add_up(x)
        session, value = tf.compat.v1.Session(graph=graph), data["x"]
        return lambda: session.run(y, {x: value})

    def transformer(self, data: Data) -> Call:
        heads = data["heads"]
        loss = lambda params, x, labels: transformer_loss(params, x, labels, heads)
        return self._compiled(step_of(loss), data["params"], data["x"], data["labels"])

    def lstm(self, data: Data) -> Call:
        loss = lstm_scan_loss if self.jit else lstm_loss
        return self._compiled(gradient_of(loss), data["params"], data["x"], data["targets"])

    def norms(self, data: Data) -> Call:
        return self._compiled(gradient_of(norms_loss), data["params"], data["w"])

    def deep(self, data: Data) -> Call:
        return self._compiled(gradient_of(deep_loss), data["params"], data["x"])

    deep_scan = deep
