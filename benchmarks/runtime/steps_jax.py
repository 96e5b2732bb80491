"""The training steps in JAX, with the losses and optimisers of optax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from runtime.steps import ADAM, COMMIT, DISCOUNT, FOLLOW, MOMENTUM, SETTLE, TEMPERATURE, Data

Call = Callable[[], Any]
IMAGES = ("NHWC", "HWIO", "NHWC")


def mlp(layers: Any, x: Any) -> Any:
    *hidden, last = layers
    for layer in hidden:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def small_mlp_loss(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean(optax.squared_error(mlp(params, x), y))


def drawn(actor: Any, observed: Any, noise: Any) -> Any:
    mean, log_std = jnp.split(mlp(actor, observed), 2, axis=-1)
    log_std = jnp.clip(log_std, -5.0, 2.0)
    action = jnp.tanh(mean + jnp.exp(log_std) * noise)
    log_p = -0.5 * noise**2 - log_std - 0.9189385 - jnp.log(1.0 - action**2 + 1e-6)
    return action, jnp.sum(log_p, axis=-1, keepdims=True)


def valued(critics: Any, observed: Any, action: Any) -> Any:
    return [mlp(critic, jnp.concatenate([observed, action], -1)) for critic in critics]


def sac_loss(params: Any, target: Any, batch: Any) -> Any:
    observed, action, reward, after, noise, next_noise = batch
    alpha = jnp.exp(lax.stop_gradient(params["log_alpha"]))
    next_action, next_log_p = drawn(params["actor"], after, next_noise)
    future = jnp.minimum(*valued(target, after, next_action)) - alpha * next_log_p
    aim = lax.stop_gradient(reward + DISCOUNT * future)
    critic = sum(jnp.mean((q - aim) ** 2) for q in valued(params["critics"], observed, action))
    found, log_p = drawn(params["actor"], observed, noise)
    worth = jnp.minimum(*valued(lax.stop_gradient(params["critics"]), observed, found))
    actor = jnp.mean(alpha * log_p - worth)
    entropy = lax.stop_gradient(log_p) - float(noise.shape[-1])
    return critic + actor - jnp.mean(params["log_alpha"] * entropy)


def conv(x: Any, w: Any, stride: int) -> Any:
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=IMAGES)


def conv_transpose(x: Any, w: Any) -> Any:
    return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=IMAGES, transpose_kernel=True)


def vqvae_loss(params: Any, x: Any) -> Any:
    first, second, last = params["down"]
    h = jax.nn.relu(conv(x, first["w"], 2) + first["b"])
    h = jax.nn.relu(conv(h, second["w"], 2) + second["b"])
    z = conv(h, last["w"], 1) + last["b"]
    codes = params["codes"]
    flat = z.reshape(-1, z.shape[-1])
    distances = jnp.sum(flat**2, -1, keepdims=True) - 2.0 * flat @ codes.T + jnp.sum(codes**2, -1)
    q = codes[jnp.argmin(distances, axis=-1)].reshape(z.shape)
    codebook = jnp.mean((q - lax.stop_gradient(z)) ** 2)
    commitment = jnp.mean((z - lax.stop_gradient(q)) ** 2)
    h = z + lax.stop_gradient(q - z)
    up, out = params["up"]
    h = jax.nn.relu(conv_transpose(h, up["w"]) + up["b"])
    made = conv_transpose(h, out["w"]) + out["b"]
    return jnp.mean((made - x) ** 2) + codebook + COMMIT * commitment


def batch_norm(x: Any, layer: Any) -> Any:
    axes = tuple(range(x.ndim - 1))
    mean, variance = jnp.mean(x, axes), jnp.var(x, axes)
    return (x - mean) * (lax.rsqrt(variance + 1e-5) * layer["scale"]) + layer["offset"]


def projected(params: Any, x: Any) -> Any:
    first, second = params["convolutions"]
    x = jax.nn.relu(batch_norm(conv(x, first["w"], 1), first))
    x = jax.nn.relu(batch_norm(conv(x, second["w"], 2), second))
    x = jnp.mean(x, axis=(1, 2))
    first, second = params["projector"]
    return batch_norm(jax.nn.relu(batch_norm(x @ first["w"], first)) @ second["w"], second)


def predicted(params: Any, z: Any) -> Any:
    first, second = params["predictor"]
    return jax.nn.relu(batch_norm(z @ first["w"], first)) @ second["w"] + second["b"]


def simsiam_loss(params: Any, one: Any, other: Any) -> Any:
    z1, z2 = projected(params, one), projected(params, other)
    p1, p2 = predicted(params, z1), predicted(params, z2)
    alike = optax.cosine_similarity(p1, lax.stop_gradient(z2), epsilon=1e-8)
    return -0.5 * jnp.mean(alike + optax.cosine_similarity(p2, lax.stop_gradient(z1), epsilon=1e-8))


def info_nce_loss(params: Any, one: Any, other: Any) -> Any:
    a, b = mlp(params[0], one), mlp(params[1], other)
    a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
    b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
    logits, right = a @ b.T / TEMPERATURE, jnp.arange(len(a))
    there = optax.softmax_cross_entropy_with_integer_labels(logits, right)
    back = optax.softmax_cross_entropy_with_integer_labels(logits.T, right)
    return 0.5 * jnp.mean(there + back)


def deq_loss(params: Any, x: Any, labels: Any) -> Any:
    fed = x @ params["u"] + params["b"]
    w, given = lax.stop_gradient((params["w"], fed))
    z = lax.fori_loop(0, SETTLE, lambda _, z: jnp.tanh(z @ w + given), jnp.zeros_like(fed))
    z = jnp.tanh(z @ params["w"] + fed)
    logits = z @ params["head"]["w"] + params["head"]["b"]
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def gru_loss(params: Any, x: Any, targets: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        x_r, x_z, x_n = jnp.split(x @ params["w"] + params["b"], 3, axis=-1)
        h_r, h_z, h_n = jnp.split(h @ params["u"], 3, axis=-1)
        r, z = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z)
        h = (1.0 - z) * jnp.tanh(x_n + r * h_n) + z * h
        return h, h

    _, states = lax.scan(step, jnp.zeros(targets.shape[1:]), x)
    return jnp.mean(optax.squared_error(states, targets))


def gpt_loss(params: Any, x: Any, labels: Any, heads: int) -> Any:
    def norm(h: Any, layer: Any) -> Any:
        return jax.nn.standardize(h, axis=-1, epsilon=1e-5) * layer["scale"] + layer["offset"]

    def dense(h: Any, layer: Any) -> Any:
        return h @ layer["w"] + layer["b"]

    def through(h: Any, block: Any) -> Any:
        q, k, v = jnp.split(dense(norm(h, block["norm1"]), block["qkv"]), 3, axis=-1)
        q, k, v = (part.reshape(*h.shape[:2], heads, -1) for part in (q, k, v))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        h = h + dense(mixed.reshape(h.shape), block["out"])
        return h + dense(jax.nn.gelu(dense(norm(h, block["norm2"]), block["up"])), block["down"]), None

    h, _ = lax.scan(through, params["words"][x] + params["places"], params["blocks"])
    logits = dense(norm(h, params["norm"]), params["head"])
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def step_of(loss: Any, optimizer: Any) -> Any:
    def step(params: Any, state: Any, *batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, *batch)
        updates, state = optimizer.update(gradient, state, params)
        return value, optax.apply_updates(params, updates), state

    return step


class Steps:
    """What JAX has for the training steps."""

    options: Any

    def _trained(self, loss: Any, optimizer: Any, data: Data, options: Any = None) -> Call:
        """A call is a step from what the last one left."""
        compiled = jax.jit(step_of(loss, optimizer), donate_argnums=(0, 1), compiler_options=options)
        params, batch = jax.tree.map(jnp.array, (data["params"], data["batch"]))
        held = [params, optimizer.init(params)]

        def call() -> Any:
            value, *held[:] = jax.block_until_ready(compiled(*held, *batch))
            return value

        return call

    def sac(self, data: Data) -> Call:
        optimizer = optax.adam(ADAM)

        @partial(jax.jit, donate_argnums=(0, 1, 2))
        def step(params: Any, state: Any, target: Any, batch: Any) -> Any:
            loss = lambda params, batch: sac_loss(params, target, batch)
            value, params, state = step_of(loss, optimizer)(params, state, batch)
            return value, params, state, optax.incremental_update(params["critics"], target, FOLLOW)

        params, target, batch = jax.tree.map(
            jnp.array, (data["params"], data["params"]["critics"], data["batch"])
        )
        held = [params, optimizer.init(params), target]

        def call() -> Any:
            value, *held[:] = jax.block_until_ready(step(*held, batch))
            return value

        return call

    def vqvae(self, data: Data) -> Call:
        return self._trained(vqvae_loss, optax.adam(ADAM), data, self.options)

    def simsiam(self, data: Data) -> Call:
        return self._trained(simsiam_loss, optax.sgd(0.05, MOMENTUM), data, self.options)

    def info_nce(self, data: Data) -> Call:
        return self._trained(info_nce_loss, optax.adam(ADAM), data)

    def deq(self, data: Data) -> Call:
        return self._trained(deq_loss, optax.adam(ADAM), data)

    def gru(self, data: Data) -> Call:
        return self._trained(gru_loss, optax.adam(ADAM), data)

    def gpt(self, data: Data) -> Call:
        heads, blocks = data["heads"], data["params"]["blocks"]
        stacked = {**data["params"], "blocks": jax.tree.map(lambda *parts: np.stack(parts), *blocks)}
        loss = lambda params, x, labels: gpt_loss(params, x, labels, heads)
        return self._trained(loss, optax.adamw(ADAM, weight_decay=1e-2), {**data, "params": stacked})

    def small_mlp_device(self, data: Data) -> Call:
        return self._trained(small_mlp_loss, optax.adam(ADAM), data)

    def small_mlp_numpy(self, data: Data) -> Call:
        optimizer, batch = optax.adam(ADAM), data["batch"]
        step = jax.jit(step_of(small_mlp_loss, optimizer))
        held = [data["params"], jax.tree.map(np.asarray, optimizer.init(data["params"]))]

        def call() -> Any:
            value, *held[:] = jax.tree.map(np.asarray, step(*held, *batch))
            return value

        return call

    def small_mlp_session(self, data: Data) -> Call:
        """JAX has no sessions: parameters stay with it, batches are NumPy arrays, the loss is a number."""
        optimizer, batch = optax.adam(ADAM), data["batch"]
        step = jax.jit(step_of(small_mlp_loss, optimizer), donate_argnums=(0, 1))
        params = jax.tree.map(jnp.array, data["params"])
        held = [params, optimizer.init(params)]

        def call() -> Any:
            value, *held[:] = step(*held, *batch)
            return np.asarray(value)

        return call

    def chain(self, data: Data) -> Call:
        def f(x: Any) -> Any:
            for _ in range(data["count"]):
                x = jnp.tanh(x)
            return jnp.mean(x)

        x = jnp.asarray(data["x"])
        return lambda: jax.block_until_ready(jax.value_and_grad(f)(x))
