"""The rows in stopgrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg
from runtime.problems import ATTACKS, RATE, REACH, STRIDE, Data, mapped
from runtime.steps_ours import Steps

Call = Callable[[], Any]


def softmax_loss(x: Any, w: Any) -> Any:
    z = x - sg.stop_gradient(sg.reduce_max(x, axis=-1, keepdims=True))
    e = sg.exp(z)
    p = e / sg.reduce_sum(e, axis=-1, keepdims=True)
    return sg.reduce_sum(w * p)


def cross_entropy(x: Any, labels: Any) -> Any:
    chosen = sg.take_along_axis(sg.log_softmax(x), sg.expand_dims(labels, -1), axis=-1)
    return -sg.reduce_mean(chosen)


def mlp_loss(params: Any, x: Any, labels: Any) -> Any:
    *hidden, last = params
    for layer in hidden:
        x = sg.relu(x @ layer["w"] + layer["b"])
    return cross_entropy(x @ last["w"] + last["b"], labels)


def cnn_loss(params: Any, x: Any, labels: Any) -> Any:
    x = sg.relu(sg.conv2d(x, params["conv1"]["w"], 1, "SAME") + params["conv1"]["b"])
    x = sg.relu(sg.conv2d(x, params["conv2"]["w"], 1, "SAME") + params["conv2"]["b"])
    x = sg.max_pool2d(x, 2, 2, "VALID")
    x = sg.reshape(x, [x.shape[0], -1])
    return mlp_loss([params["dense1"], params["dense2"]], x, labels)


def free_energy(params: Any, v: Any) -> Any:
    return -sg.reduce_sum(v * params["a"], axis=-1) - sg.reduce_sum(
        sg.softplus(v @ params["w"] + params["b"]), axis=-1
    )


def contrastive_divergence(params: Any, v: Any, key: Any) -> Any:
    for_h, for_v = sg.unstack(sg.random_split(key))
    h = sg.random_bernoulli(None, for_h, sg.sigmoid(v @ params["w"] + params["b"]))
    back = sg.matmul(sg.cast(h, v.dtype), params["w"], transpose_b=True) + params["a"]
    sample = sg.stop_gradient(sg.cast(sg.random_bernoulli(None, for_v, sg.sigmoid(back)), v.dtype))
    return sg.reduce_mean(free_energy(params, v)) - sg.reduce_mean(free_energy(params, sample))


def mixture_loss(params: Any, x: Any) -> Any:
    difference = sg.expand_dims(x, 1) - params["mean"]
    z = difference / sg.exp(params["log_scale"])
    log_p = (
        sg.log_softmax(params["logit"])
        - 0.5 * sg.reduce_sum(z * z, axis=-1)
        - sg.reduce_sum(params["log_scale"], axis=-1)
    )
    r = sg.stop_gradient(sg.softmax(log_p))
    return -sg.reduce_mean(sg.reduce_sum(r * log_p, axis=-1))


def norm(x: Any, layer: Any) -> Any:
    return sg.layer_norm(x, layer["scale"], layer["offset"])


def attention(x: Any, layer: Any, heads: int) -> Any:
    batch, length, width = x.shape

    def split(name: str) -> Any:
        parts = sg.reshape(x @ layer[name], [batch, length, heads, width // heads])
        return sg.transpose(parts, [0, 2, 1, 3])

    scores = sg.matmul(split("query"), split("key"), transpose_b=True) / (width // heads) ** 0.5
    scores = sg.where(np.tri(length, dtype=bool), scores, -1e9)
    mixed = sg.transpose(sg.softmax(scores) @ split("value"), [0, 2, 1, 3])
    return sg.reshape(mixed, [batch, length, width]) @ layer["out"]


def transformer_loss(params: Any, x: Any, labels: Any, heads: int) -> Any:
    h = sg.gather(params["words"], x) + params["places"]
    for layer in params["layers"]:
        h = h + attention(norm(h, layer["norm1"]), layer, heads)
        h = h + sg.gelu(norm(h, layer["norm2"]) @ layer["up"], approximate=True) @ layer["down"]
    return cross_entropy(h @ params["head"], labels)


def lstm_loss(params: Any, x: Any, targets: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = sg.split(x @ params["w"] + h @ params["u"] + params["b"], 4, axis=-1)
        c = sg.sigmoid(f) * c + sg.sigmoid(i) * sg.tanh(g)
        h = sg.sigmoid(o) * sg.tanh(c)
        return (h, c), h

    start = sg.zeros(targets.shape[1:])
    _, states = sg.scan(step, (start, start), x)
    return sg.reduce_mean(sg.square(states - targets))


def norms_loss(params: Any, w: Any) -> Any:
    x = params["x"]
    for scale, offset in zip(params["scales"], params["offsets"], strict=True):
        x = sg.gelu(sg.layer_norm(x, scale, offset), approximate=True)
    return sg.reduce_mean(w * x)


def deep_loss(params: Any, x: Any) -> Any:
    for layer in params:
        x = sg.tanh(x @ layer["w"] + layer["b"])
    return sg.reduce_mean(sg.square(x))


def deep_scan_loss(stacked: Any, x: Any) -> Any:
    x, _ = sg.scan(lambda x, layer: (sg.tanh(x @ layer["w"] + layer["b"]), None), x, stacked)
    return sg.reduce_mean(sg.square(x))


def add_up(*arguments: Any) -> Any:
    total = arguments[0]
    for x in arguments[1:]:
        total = total + x
    return total * 2.0


def add_up_dict(arguments: Any) -> Any:
    return add_up(*arguments.values())


def step_of(loss: Any) -> Any:
    def step(params: Any, *batch: Any) -> Any:
        value, gradient = sg.value_and_grad(loss)(params, *batch)
        return value, mapped(lambda p, g: p - RATE * g, params, gradient)

    return step


def pgd_step(params: Any, x: Any, labels: Any) -> Any:
    found = x
    for _ in range(ATTACKS):
        direction = sg.sign(sg.grad(mlp_loss, argnums=1)(params, found, labels))
        found = sg.clip_by_value(found + STRIDE * direction, x - REACH, x + REACH)
        found = sg.clip_by_value(found, 0.0, 1.0)
    return step_of(mlp_loss)(params, sg.stop_gradient(found), labels)


class Library(Steps):
    """stopgrad on one of its engines."""

    def __init__(self, engine: str, device: str) -> None:
        self.engine = engine
        if engine != "numpy":
            import jax

            if device == "gpu" and jax.default_backend() != "gpu":
                raise RuntimeError("JAX sees no GPU")
            self.asarray, self.wait = jax.numpy.asarray, jax.block_until_ready
        else:
            self.asarray, self.wait = np.asarray, lambda x: x
        self.version = sg.__version__

    def touch(self) -> None:
        self.wait(sg.function(lambda x: x + 1.0, engine=self.engine)(np.ones(2, np.float32)))

    to_numpy = staticmethod(np.asarray)

    def _compiled(self, f: Any, *arguments: Any) -> Call:
        compiled = sg.function(f, engine=self.engine)
        placed = mapped(self.asarray, list(arguments))
        return lambda: self.wait(compiled(*placed))

    def softmax_loss(self, data: Data) -> Call:
        return self._compiled(sg.value_and_grad(softmax_loss), data["x"], data["w"])

    def cross_entropy(self, data: Data) -> Call:
        return self._compiled(sg.value_and_grad(cross_entropy), data["x"], data["labels"])

    def mlp(self, data: Data) -> Call:
        return self._compiled(step_of(mlp_loss), data["params"], data["x"], data["labels"])

    def cnn(self, data: Data) -> Call:
        return self._compiled(step_of(cnn_loss), data["params"], data["x"], data["labels"])

    def rbm(self, data: Data) -> Call:
        key = sg.random_key(0)
        return self._compiled(step_of(contrastive_divergence), data["params"], data["v"], key)

    def mixture(self, data: Data) -> Call:
        return self._compiled(sg.value_and_grad(mixture_loss), data["params"], data["x"])

    def pgd(self, data: Data) -> Call:
        return self._compiled(pgd_step, data["params"], data["x"], data["labels"])

    def call(self, data: Data) -> Call:
        f = add_up_dict if isinstance(data["arguments"][0], dict) else add_up
        if data["kind"] == "own":
            return self._compiled(f, *data["arguments"])
        compiled, arguments = sg.function(f, engine=self.engine), data["arguments"]
        return lambda: compiled(*arguments)

    def session(self, data: Data) -> Call:
        with sg.Graph().as_default() as graph:
            x = sg.placeholder(sg.float32, [8])
            y = add_up(x)
        session, value = sg.Session(graph, engine=self.engine), data["x"]
        return lambda: session.run(y, {x: value})

    def transformer(self, data: Data) -> Call:
        heads = data["heads"]
        loss = lambda params, x, labels: transformer_loss(params, x, labels, heads)
        return self._compiled(step_of(loss), data["params"], data["x"], data["labels"])

    def lstm(self, data: Data) -> Call:
        return self._compiled(sg.value_and_grad(lstm_loss), data["params"], data["x"], data["targets"])

    def norms(self, data: Data) -> Call:
        return self._compiled(sg.value_and_grad(norms_loss), data["params"], data["w"])

    def deep(self, data: Data) -> Call:
        return self._compiled(sg.value_and_grad(deep_loss), data["params"], data["x"])

    def deep_scan(self, data: Data) -> Call:
        stacked = mapped(lambda *parts: np.stack(parts), *data["params"])
        return self._compiled(sg.value_and_grad(deep_scan_loss), stacked, data["x"])
