"""The training steps in stopgrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg
from runtime.steps import ADAM, COMMIT, DISCOUNT, FOLLOW, MOMENTUM, SETTLE, TEMPERATURE, Data

Call = Callable[[], Any]


def mlp(layers: Any, x: Any) -> Any:
    *hidden, last = layers
    for layer in hidden:
        x = sg.relu(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def small_mlp_loss(params: Any, x: Any, y: Any) -> Any:
    return sg.reduce_mean(sg.square(mlp(params, x) - y))


def drawn(actor: Any, observed: Any, noise: Any) -> Any:
    mean, log_std = sg.split(mlp(actor, observed), 2, axis=-1)
    log_std = sg.clip_by_value(log_std, -5.0, 2.0)
    action = sg.tanh(mean + sg.exp(log_std) * noise)
    log_p = -0.5 * sg.square(noise) - log_std - 0.9189385 - sg.log(1.0 - sg.square(action) + 1e-6)
    return action, sg.reduce_sum(log_p, axis=-1, keepdims=True)


def valued(critics: Any, observed: Any, action: Any) -> Any:
    return [mlp(critic, sg.concat([observed, action], -1)) for critic in critics]


def sac_loss(params: Any, target: Any, batch: Any) -> Any:
    observed, action, reward, after, noise, next_noise = batch
    alpha = sg.exp(sg.stop_gradient(params["log_alpha"]))
    next_action, next_log_p = drawn(params["actor"], after, next_noise)
    future = sg.minimum(*valued(target, after, next_action)) - alpha * next_log_p
    aim = sg.stop_gradient(reward + DISCOUNT * future)
    critic = sum(sg.reduce_mean(sg.square(q - aim)) for q in valued(params["critics"], observed, action))
    found, log_p = drawn(params["actor"], observed, noise)
    worth = sg.minimum(*valued(sg.stop_gradient(params["critics"]), observed, found))
    actor = sg.reduce_mean(alpha * log_p - worth)
    entropy = sg.stop_gradient(log_p) - float(noise.shape[-1])
    return critic + actor - sg.reduce_mean(params["log_alpha"] * entropy)


def vqvae_loss(params: Any, x: Any) -> Any:
    first, second, last = params["down"]
    h = sg.relu(sg.conv2d(x, first["w"], 2, "SAME") + first["b"])
    h = sg.relu(sg.conv2d(h, second["w"], 2, "SAME") + second["b"])
    z = sg.conv2d(h, last["w"], 1, "SAME") + last["b"]
    codes, shape = params["codes"], z.shape
    flat = sg.reshape(z, [-1, shape[-1]])
    distances = (
        sg.reduce_sum(sg.square(flat), axis=-1, keepdims=True)
        - 2.0 * sg.matmul(flat, codes, transpose_b=True)
        + sg.reduce_sum(sg.square(codes), axis=-1)
    )
    q = sg.reshape(sg.gather(codes, sg.argmin(distances, axis=-1)), shape)
    codebook = sg.reduce_mean(sg.square(q - sg.stop_gradient(z)))
    commitment = sg.reduce_mean(sg.square(z - sg.stop_gradient(q)))
    h = sg.straight_through(q, z)
    up, out = params["up"]
    batch, side, _, _ = shape
    h = sg.conv2d_transpose(h, up["w"], [batch, 2 * side, 2 * side, up["w"].shape[2]], 2, "SAME")
    h = sg.relu(h + up["b"])
    made = sg.conv2d_transpose(h, out["w"], list(x.shape), 2, "SAME") + out["b"]
    return sg.reduce_mean(sg.square(made - x)) + codebook + COMMIT * commitment


def batch_norm(x: Any, layer: Any) -> Any:
    mean, variance = sg.moments(x, list(range(len(x.shape) - 1)))
    return sg.batch_normalization(x, mean, variance, layer["offset"], layer["scale"], 1e-5)


def projected(params: Any, x: Any) -> Any:
    first, second = params["convolutions"]
    x = sg.relu(batch_norm(sg.conv2d(x, first["w"], 1, "SAME"), first))
    x = sg.relu(batch_norm(sg.conv2d(x, second["w"], 2, "SAME"), second))
    x = sg.reduce_mean(x, axis=[1, 2])
    first, second = params["projector"]
    return batch_norm(sg.relu(batch_norm(x @ first["w"], first)) @ second["w"], second)


def predicted(params: Any, z: Any) -> Any:
    first, second = params["predictor"]
    return sg.relu(batch_norm(z @ first["w"], first)) @ second["w"] + second["b"]


def simsiam_loss(params: Any, one: Any, other: Any) -> Any:
    z1, z2 = projected(params, one), projected(params, other)
    p1, p2 = predicted(params, z1), predicted(params, z2)
    alike = sg.cosine_similarity(p1, sg.stop_gradient(z2)) + sg.cosine_similarity(p2, sg.stop_gradient(z1))
    return -0.5 * sg.reduce_mean(alike)


def info_nce_loss(params: Any, one: Any, other: Any) -> Any:
    a = sg.l2_normalize(mlp(params[0], one), axis=-1)
    b = sg.l2_normalize(mlp(params[1], other), axis=-1)
    logits, right = sg.matmul(a, b, transpose_b=True) / TEMPERATURE, sg.range(a.shape[0])
    there = sg.sparse_softmax_cross_entropy_with_logits(right, logits)
    back = sg.sparse_softmax_cross_entropy_with_logits(right, sg.transpose(logits))
    return 0.5 * sg.reduce_mean(there + back)


def deq_loss(params: Any, x: Any, labels: Any) -> Any:
    fed = x @ params["u"] + params["b"]
    with sg.no_gradient():
        z = sg.fori_loop(0, SETTLE, lambda _, z: sg.tanh(z @ params["w"] + fed), sg.zeros_like(fed))
    z = sg.tanh(z @ params["w"] + fed)
    logits = z @ params["head"]["w"] + params["head"]["b"]
    return sg.reduce_mean(sg.sparse_softmax_cross_entropy_with_logits(labels, logits))


def gru_loss(params: Any, x: Any, targets: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        x_r, x_z, x_n = sg.split(x @ params["w"] + params["b"], 3, axis=-1)
        h_r, h_z, h_n = sg.split(h @ params["u"], 3, axis=-1)
        r, z = sg.sigmoid(x_r + h_r), sg.sigmoid(x_z + h_z)
        h = (1.0 - z) * sg.tanh(x_n + r * h_n) + z * h
        return h, h

    _, states = sg.scan(step, sg.zeros(targets.shape[1:]), x)
    return sg.reduce_mean(sg.square(states - targets))


def gpt_loss(params: Any, x: Any, labels: Any, heads: int) -> Any:
    batch, length = x.shape

    def norm(h: Any, layer: Any) -> Any:
        return sg.layer_norm(h, layer["scale"], layer["offset"])

    def dense(h: Any, layer: Any) -> Any:
        return h @ layer["w"] + layer["b"]

    def split(part: Any) -> Any:
        return sg.transpose(sg.reshape(part, [batch, length, heads, -1]), [0, 2, 1, 3])

    h = sg.gather(params["words"], x) + params["places"]
    for block in params["blocks"]:
        q, k, v = map(split, sg.split(dense(norm(h, block["norm1"]), block["qkv"]), 3, axis=-1))
        mixed = sg.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + dense(sg.reshape(sg.transpose(mixed, [0, 2, 1, 3]), h.shape), block["out"])
        h = h + dense(sg.gelu(dense(norm(h, block["norm2"]), block["up"]), approximate=True), block["down"])
    logits = dense(norm(h, params["norm"]), params["head"])
    return sg.reduce_mean(sg.sparse_softmax_cross_entropy_with_logits(labels, logits))


class Steps:
    """What a library has for the training steps."""

    engine: str
    asarray: Callable[[Any], Any]
    wait: Callable[[Any], Any]

    def _trained(self, loss: Any, rule: Any, data: Data) -> Call:
        """A call is a step from what the last one left."""

        def step(params: Any, state: Any, *batch: Any) -> Any:
            value, gradient = sg.value_and_grad(loss)(params, *batch)
            return value, *rule.apply(params, gradient, state)

        compiled = sg.function(step, engine=self.engine, donate_argnums=(0, 1))
        placed = sg.map_structure(self.asarray, [data["params"], rule.init(data["params"]), *data["batch"]])
        held, batch = placed[:2], placed[2:]

        def call() -> Any:
            value, *held[:] = self.wait(compiled(*held, *batch))
            return value

        return call

    def sac(self, data: Data) -> Call:
        rule = sg.optimizers.Adam(ADAM)

        def step(params: Any, state: Any, target: Any, batch: Any) -> Any:
            value, gradient = sg.value_and_grad(sac_loss)(params, target, batch)
            params, state = rule.apply(params, gradient, state)
            target = sg.map_structure(lambda t, p: t + FOLLOW * (p - t), target, params["critics"])
            return value, params, state, target

        compiled = sg.function(step, engine=self.engine, donate_argnums=(0, 1, 2))
        given = [data["params"], rule.init(data["params"]), data["params"]["critics"], data["batch"]]
        *held, batch = sg.map_structure(self.asarray, given)
        held[2] = sg.map_structure(lambda x: x + 0.0, held[2])  # Memory that is donated is nobody else's.

        def call() -> Any:
            value, *held[:] = self.wait(compiled(*held, batch))
            return value

        return call

    def vqvae(self, data: Data) -> Call:
        return self._trained(vqvae_loss, sg.optimizers.Adam(ADAM), data)

    def simsiam(self, data: Data) -> Call:
        return self._trained(simsiam_loss, sg.optimizers.SGD(0.05, momentum=MOMENTUM), data)

    def info_nce(self, data: Data) -> Call:
        return self._trained(info_nce_loss, sg.optimizers.Adam(ADAM), data)

    def deq(self, data: Data) -> Call:
        return self._trained(deq_loss, sg.optimizers.Adam(ADAM), data)

    def gru(self, data: Data) -> Call:
        return self._trained(gru_loss, sg.optimizers.Adam(ADAM), data)

    def gpt(self, data: Data) -> Call:
        heads = data["heads"]
        return self._trained(lambda *given: gpt_loss(*given, heads), sg.optimizers.AdamW(ADAM), data)

    def small_mlp_device(self, data: Data) -> Call:
        return self._trained(small_mlp_loss, sg.optimizers.Adam(ADAM), data)

    def small_mlp_numpy(self, data: Data) -> Call:
        rule, batch = sg.optimizers.Adam(ADAM), data["batch"]

        @sg.function(engine=self.engine)
        def step(params: Any, state: Any, *batch: Any) -> Any:
            value, gradient = sg.value_and_grad(small_mlp_loss)(params, *batch)
            return value, *rule.apply(params, gradient, state)

        held = [data["params"], rule.init(data["params"])]

        def call() -> Any:
            value, *held[:] = step(*held, *batch)
            return value

        return call

    def small_mlp_session(self, data: Data) -> Call:
        with sg.Graph().as_default() as graph:
            feeds = {sg.placeholder(sg.float32, part.shape): part for part in data["batch"]}
            params = sg.map_structure(sg.parameter, data["params"])
            loss = small_mlp_loss(params, *feeds)
            update = sg.optimizers.adam(loss, params, ADAM).run
        session = sg.Session(graph, engine=self.engine)
        return lambda: session.run([loss, update], feeds)[0]

    def chain(self, data: Data) -> Call:
        count = data["count"]

        def f(x: Any) -> Any:
            for _ in range(count):
                x = sg.tanh(x)
            return sg.reduce_mean(x)

        x = np.asarray(data["x"])
        return lambda: sg.value_and_grad(f)(x)
