"""The rows in JAX: ``jax.jit`` of ``jax.value_and_grad``, in the words of jax.nn, jax.lax and optax.

As installed, or tuned: with the options of the compiler that stopgrad sets where there are convolutions, and
with memory kept between calls (in workers.py, by the environment). Layers in a row are one ``lax.scan``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from runtime.problems import ATTACKS, EPSILON, RATE, REACH, STRIDE, Data
from runtime.steps_jax import Steps

Call = Callable[[], Any]


def softmax_loss(x: Any, w: Any) -> Any:
    return jnp.sum(w * jax.nn.softmax(x))


def cross_entropy(x: Any, labels: Any) -> Any:
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(x, labels))


def mlp_loss(params: Any, x: Any, labels: Any) -> Any:
    *hidden, last = params
    for layer in hidden:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return cross_entropy(x @ last["w"] + last["b"], labels)


def conv(x: Any, layer: Any) -> Any:
    y = lax.conv_general_dilated(x, layer["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + layer["b"]


def cnn_loss(params: Any, x: Any, labels: Any) -> Any:
    x = jax.nn.relu(conv(x, params["conv1"]))
    x = jax.nn.relu(conv(x, params["conv2"]))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return mlp_loss([params["dense1"], params["dense2"]], x.reshape(x.shape[0], -1), labels)


def free_energy(params: Any, v: Any) -> Any:
    return -(v @ params["a"]) - jnp.sum(jax.nn.softplus(v @ params["w"] + params["b"]), axis=-1)


def contrastive_divergence(params: Any, v: Any, key: Any) -> Any:
    for_h, for_v = jax.random.split(key)
    h = jax.random.bernoulli(for_h, jax.nn.sigmoid(v @ params["w"] + params["b"])).astype(v.dtype)
    back = jax.nn.sigmoid(h @ params["w"].T + params["a"])
    sample = lax.stop_gradient(jax.random.bernoulli(for_v, back).astype(v.dtype))
    return jnp.mean(free_energy(params, v)) - jnp.mean(free_energy(params, sample))


def mixture_loss(params: Any, x: Any) -> Any:
    z = (x[:, None] - params["mean"]) / jnp.exp(params["log_scale"])
    log_p = (
        jax.nn.log_softmax(params["logit"])
        - 0.5 * jnp.sum(z * z, axis=-1)
        - jnp.sum(params["log_scale"], axis=-1)
    )
    r = lax.stop_gradient(jax.nn.softmax(log_p))
    return -jnp.mean(jnp.sum(r * log_p, axis=-1))


def layer_norm(x: Any, scale: Any, offset: Any) -> Any:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + EPSILON) * scale + offset


def norm(x: Any, layer: Any) -> Any:
    return layer_norm(x, layer["scale"], layer["offset"])


def attention(x: Any, layer: Any, heads: int) -> Any:
    def split(name: str) -> Any:
        return (x @ layer[name]).reshape(*x.shape[:2], heads, -1)

    mixed = jax.nn.dot_product_attention(split("query"), split("key"), split("value"), is_causal=True)
    return mixed.reshape(x.shape) @ layer["out"]


def transformer_loss(params: Any, x: Any, labels: Any, heads: int) -> Any:
    h = params["words"][x] + params["places"]
    for layer in params["layers"]:
        h = h + attention(norm(h, layer["norm1"]), layer, heads)
        h = h + jax.nn.gelu(norm(h, layer["norm2"]) @ layer["up"]) @ layer["down"]
    return cross_entropy(h @ params["head"], labels)


def lstm_loss(params: Any, x: Any, targets: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ params["w"] + h @ params["u"] + params["b"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros(targets.shape[1:])
    _, states = lax.scan(step, (start, start), x)
    return jnp.mean((states - targets) ** 2)


def norms_loss(params: Any, w: Any) -> Any:
    x = params["x"]
    for scale, offset in zip(params["scales"], params["offsets"], strict=True):
        x = jax.nn.gelu(layer_norm(x, scale, offset))
    return jnp.mean(w * x)


def deep_loss(stacked: Any, x: Any) -> Any:
    x, _ = lax.scan(lambda x, layer: (jnp.tanh(x @ layer["w"] + layer["b"]), None), x, stacked)
    return jnp.mean(x * x)


def add_up(*arguments: Any) -> Any:
    total = arguments[0]
    for x in arguments[1:]:
        total = total + x
    return total * 2.0


def add_up_dict(arguments: Any) -> Any:
    return add_up(*arguments.values())


def step_of(loss: Any) -> Any:
    def step(params: Any, *batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, *batch)
        return value, jax.tree.map(lambda p, g: p - RATE * g, params, gradient)

    return step


def pgd_step(params: Any, x: Any, labels: Any) -> Any:
    found = x
    for _ in range(ATTACKS):
        direction = jnp.sign(jax.grad(mlp_loss, argnums=1)(params, found, labels))
        found = jnp.clip(found + STRIDE * direction, x - REACH, x + REACH)
        found = jnp.clip(found, 0.0, 1.0)
    return step_of(mlp_loss)(params, lax.stop_gradient(found), labels)


NO_CONVOLUTIONS = "LIBRARY_FUSION_TYPE_REDUCE,LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
FOR_CONVOLUTIONS = {"xla_cpu_experimental_ynn_fusion_type": NO_CONVOLUTIONS}


class Library(Steps):
    """JAX on its default device."""

    def __init__(self, variant: str, device: str) -> None:
        self.version = jax.__version__
        self.options = FOR_CONVOLUTIONS if variant == "tuned" and device == "cpu" else None
        if device == "gpu" and jax.default_backend() != "gpu":
            raise RuntimeError("JAX sees no GPU")

    def touch(self) -> None:
        jax.jit(lambda x: x + 1.0)(jnp.ones(2)).block_until_ready()

    to_numpy = staticmethod(np.asarray)

    def _compiled(self, f: Any, *arguments: Any, options: Any = None) -> Call:
        compiled = jax.jit(f, compiler_options=options)
        placed = jax.tree.map(jnp.asarray, arguments)
        return lambda: jax.block_until_ready(compiled(*placed))

    def softmax_loss(self, data: Data) -> Call:
        return self._compiled(jax.value_and_grad(softmax_loss), data["x"], data["w"])

    def cross_entropy(self, data: Data) -> Call:
        return self._compiled(jax.value_and_grad(cross_entropy), data["x"], data["labels"])

    def mlp(self, data: Data) -> Call:
        return self._compiled(step_of(mlp_loss), data["params"], data["x"], data["labels"])

    def cnn(self, data: Data) -> Call:
        arguments = data["params"], data["x"], data["labels"]
        return self._compiled(step_of(cnn_loss), *arguments, options=self.options)

    def rbm(self, data: Data) -> Call:
        return self._compiled(step_of(contrastive_divergence), data["params"], data["v"], jax.random.key(0))

    def mixture(self, data: Data) -> Call:
        return self._compiled(jax.value_and_grad(mixture_loss), data["params"], data["x"])

    def pgd(self, data: Data) -> Call:
        return self._compiled(pgd_step, data["params"], data["x"], data["labels"])

    def call(self, data: Data) -> Call:
        f = add_up_dict if isinstance(data["arguments"][0], dict) else add_up
        if data["kind"] == "own":
            return self._compiled(f, *data["arguments"])
        compiled, arguments = jax.jit(f), data["arguments"]
        return lambda: compiled(*arguments).block_until_ready()

    def session(self, data: Data) -> Call:
        """JAX has no sessions; what is one call to a user of it."""
        compiled, value = jax.jit(add_up), data["x"]
        return lambda: np.asarray(compiled(value))

    def transformer(self, data: Data) -> Call:
        heads = data["heads"]
        loss = lambda params, x, labels: transformer_loss(params, x, labels, heads)
        return self._compiled(step_of(loss), data["params"], data["x"], data["labels"])

    def lstm(self, data: Data) -> Call:
        return self._compiled(jax.value_and_grad(lstm_loss), data["params"], data["x"], data["targets"])

    def norms(self, data: Data) -> Call:
        return self._compiled(jax.value_and_grad(norms_loss), data["params"], data["w"])

    def deep(self, data: Data) -> Call:
        stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *data["params"])
        return self._compiled(jax.value_and_grad(deep_loss), stacked, data["x"])

    deep_scan = deep
