"""The training steps in TensorFlow without Keras: variables, a gradient tape, its own fused updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from runtime.problems import LeftOut, leaves, mapped
from runtime.steps import ADAM, COMMIT, DISCOUNT, FOLLOW, MOMENTUM, SETTLE, TEMPERATURE, Data

Call = Callable[[], Any]
BETA1, BETA2 = 0.9, 0.999


def mlp(layers: Any, x: Any) -> Any:
    *hidden, last = layers
    for layer in hidden:
        x = tf.nn.relu(dense(x, layer))
    return dense(x, last)


def dense(x: Any, layer: Any) -> Any:
    """As Keras' dense layer has it: one product."""
    return tf.nn.bias_add(tf.tensordot(x, layer["w"], 1), layer["b"])


def squared_error(x: Any, y: Any) -> Any:
    return tf.reduce_mean(tf.math.squared_difference(x, y))


def small_mlp_loss(params: Any, x: Any, y: Any) -> Any:
    return squared_error(mlp(params, x), y)


def drawn(actor: Any, observed: Any, noise: Any) -> Any:
    mean, log_std = tf.split(mlp(actor, observed), 2, axis=-1)
    log_std = tf.clip_by_value(log_std, -5.0, 2.0)
    action = tf.tanh(mean + tf.exp(log_std) * noise)
    log_p = -0.5 * tf.square(noise) - log_std - 0.9189385 - tf.math.log(1.0 - tf.square(action) + 1e-6)
    return action, tf.reduce_sum(log_p, axis=-1, keepdims=True)


def valued(critics: Any, observed: Any, action: Any) -> Any:
    return [mlp(critic, tf.concat([observed, action], -1)) for critic in critics]


def sac_loss(params: Any, target: Any, *batch: Any) -> Any:
    observed, action, reward, after, noise, next_noise = batch
    alpha = tf.exp(tf.stop_gradient(params["log_alpha"]))
    next_action, next_log_p = drawn(params["actor"], after, next_noise)
    future = tf.minimum(*valued(target, after, next_action)) - alpha * next_log_p
    aim = tf.stop_gradient(reward + DISCOUNT * future)
    critic = sum(squared_error(q, aim) for q in valued(params["critics"], observed, action))
    found, log_p = drawn(params["actor"], observed, noise)
    fixed = mapped(tf.stop_gradient, params["critics"])
    actor = tf.reduce_mean(alpha * log_p - tf.minimum(*valued(fixed, observed, found)))
    entropy = tf.stop_gradient(log_p) - float(noise.shape[-1])
    return critic + actor - tf.reduce_mean(params["log_alpha"] * entropy)


def conv(x: Any, layer: Any, stride: int) -> Any:
    return tf.nn.bias_add(tf.nn.conv2d(x, layer["w"], stride, "SAME"), layer["b"])


def conv_transpose(x: Any, layer: Any) -> Any:
    batch, side, _, _ = x.shape
    shape = [batch, 2 * side, 2 * side, layer["w"].shape[2]]
    return tf.nn.bias_add(tf.nn.conv2d_transpose(x, layer["w"], shape, 2, "SAME"), layer["b"])


def vqvae_loss(params: Any, x: Any) -> Any:
    first, second, last = params["down"]
    z = conv(tf.nn.relu(conv(tf.nn.relu(conv(x, first, 2)), second, 2)), last, 1)
    codes = params["codes"]
    flat = tf.reshape(z, [-1, z.shape[-1]])
    distances = (
        tf.reduce_sum(tf.square(flat), axis=-1, keepdims=True)
        - 2.0 * tf.matmul(flat, codes, transpose_b=True)
        + tf.reduce_sum(tf.square(codes), axis=-1)
    )
    q = tf.reshape(tf.gather(codes, tf.argmin(distances, axis=-1)), z.shape)
    codebook = squared_error(q, tf.stop_gradient(z))
    commitment = squared_error(z, tf.stop_gradient(q))
    up, out = params["up"]
    made = conv_transpose(tf.nn.relu(conv_transpose(z + tf.stop_gradient(q - z), up)), out)
    return squared_error(made, x) + codebook + COMMIT * commitment


def batch_norm(x: Any, layer: Any) -> Any:
    """The fused one, which has images of any height and width: here of one pixel, where x has none."""
    pixels = x if len(x.shape) == 4 else x[:, None, None, :]
    y, _, _ = tf.compat.v1.nn.fused_batch_norm(pixels, layer["scale"], layer["offset"], epsilon=1e-5)
    return tf.reshape(y, x.shape)


def projected(params: Any, x: Any) -> Any:
    first, second = params["convolutions"]
    x = tf.nn.relu(batch_norm(tf.nn.conv2d(x, first["w"], 1, "SAME"), first))
    x = tf.nn.relu(batch_norm(tf.nn.conv2d(x, second["w"], 2, "SAME"), second))
    x = tf.reduce_mean(x, axis=[1, 2])
    first, second = params["projector"]
    return batch_norm(tf.nn.relu(batch_norm(x @ first["w"], first)) @ second["w"], second)


def predicted(params: Any, z: Any) -> Any:
    first, second = params["predictor"]
    return dense(tf.nn.relu(batch_norm(z @ first["w"], first)), second)


def cosine_similarity(x: Any, y: Any) -> Any:
    return tf.reduce_sum(tf.nn.l2_normalize(x, axis=-1) * tf.nn.l2_normalize(y, axis=-1), axis=-1)


def simsiam_loss(params: Any, one: Any, other: Any) -> Any:
    z1, z2 = projected(params, one), projected(params, other)
    p1, p2 = predicted(params, z1), predicted(params, z2)
    alike = cosine_similarity(p1, tf.stop_gradient(z2)) + cosine_similarity(p2, tf.stop_gradient(z1))
    return -0.5 * tf.reduce_mean(alike)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def info_nce_loss(params: Any, one: Any, other: Any) -> Any:
    a = tf.nn.l2_normalize(mlp(params[0], one), axis=-1)
    b = tf.nn.l2_normalize(mlp(params[1], other), axis=-1)
    logits, right = tf.matmul(a, b, transpose_b=True) / TEMPERATURE, tf.range(a.shape[0])
    return 0.5 * (cross_entropy(logits, right) + cross_entropy(tf.transpose(logits), right))


def deq_loss(params: Any, x: Any, labels: Any) -> Any:
    fed = x @ params["u"] + params["b"]
    w, given = tf.stop_gradient(params["w"]), tf.stop_gradient(fed)
    z = tf.zeros_like(fed)
    for _ in range(SETTLE):  # Unrolled: TensorFlow's own loops take longer, with and without XLA.
        z = tf.tanh(z @ w + given)
    z = tf.tanh(z @ params["w"] + fed)
    return cross_entropy(dense(z, params["head"]), labels)


def gru_step(params: Any, h: Any, x: Any) -> Any:
    x_r, x_z, x_n = tf.split(x, 3, axis=-1)
    h_r, h_z, h_n = tf.split(h @ params["u"], 3, axis=-1)
    r, z = tf.sigmoid(x_r + h_r), tf.sigmoid(x_z + h_z)
    return (1.0 - z) * tf.tanh(x_n + r * h_n) + z * h


def gru_loss(params: Any, x: Any, targets: Any) -> Any:
    """Unrolled: TensorFlow's own loops take longer."""
    h, states = tf.zeros(targets.shape[1:]), []
    for part in tf.unstack(dense(x, params)):
        h = gru_step(params, h, part)
        states.append(h)
    return squared_error(tf.stack(states), targets)


def gru_scan_loss(params: Any, x: Any, targets: Any) -> Any:
    """As a loop: XLA takes minutes to compile what is unrolled."""
    start = tf.zeros(targets.shape[1:])
    states = tf.scan(lambda h, part: gru_step(params, h, part), dense(x, params), start)
    return squared_error(states, targets)


def layer_norm(x: Any, layer: Any) -> Any:
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, layer["offset"], layer["scale"], 1e-5)


def gpt_loss(params: Any, x: Any, labels: Any, heads: int) -> Any:
    batch, length = x.shape
    seen = np.tri(length, dtype=bool)

    def split(part: Any) -> Any:
        return tf.transpose(tf.reshape(part, [batch, length, heads, -1]), [0, 2, 1, 3])

    h = tf.gather(params["words"], x) + params["places"]
    for block in params["blocks"]:
        parts = dense(layer_norm(h, block["norm1"]), block["qkv"])
        q, k, v = map(split, tf.split(parts, 3, axis=-1))
        scores = tf.matmul(q, k, transpose_b=True) * q.shape[-1] ** -0.5
        mixed = tf.matmul(tf.nn.softmax(tf.where(seen, scores, -1e9)), v)
        h = h + dense(tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), h.shape), block["out"])
        wide = tf.nn.gelu(dense(layer_norm(h, block["norm2"]), block["up"]), approximate=True)
        h = h + dense(wide, block["down"])
    return cross_entropy(dense(layer_norm(h, params["norm"]), params["head"]), labels)


class Adam:
    """TensorFlow's fused update, on variables; with decay, AdamW."""

    def __init__(self, trained: list[Any], decay: float = 0.0) -> None:
        self.moments = [[tf.Variable(tf.zeros_like(p)) for _ in range(2)] for p in trained]
        self.powers = [tf.Variable(BETA1), tf.Variable(BETA2)]
        self.decay = decay

    def __call__(self, trained: list[Any], gradients: list[Any]) -> None:
        power1, power2 = (power.read_value() for power in self.powers)
        for p, (m, v), g in zip(trained, self.moments, gradients, strict=True):
            if self.decay:
                p.assign(p * (1.0 - ADAM * self.decay))
            tf.raw_ops.ResourceApplyAdam(
                var=p.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=power1,
                beta2_power=power2,
                lr=ADAM,
                beta1=BETA1,
                beta2=BETA2,
                epsilon=1e-8,
                grad=g,
            )
        for power, beta in zip(self.powers, (BETA1, BETA2), strict=True):
            power.assign(power * beta)


class Momentum:
    """Stochastic gradient descent with momentum, fused, on variables."""

    def __init__(self, trained: list[Any]) -> None:
        self.momenta = [tf.Variable(tf.zeros_like(p)) for p in trained]

    def __call__(self, trained: list[Any], gradients: list[Any]) -> None:
        for p, m, g in zip(trained, self.momenta, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(var=p.handle, accum=m.handle, lr=0.05, grad=g, momentum=MOMENTUM)


class Steps:
    """What TensorFlow has for the training steps."""

    jit: bool

    def _step(self, loss: Any, optimizer: Any, params: Any, after: Any = None) -> Any:
        """A compiled step that changes its variables, and gives the loss."""
        held = mapped(tf.Variable, params)
        trained = list(leaves(held))
        move = optimizer(trained)

        @tf.function(jit_compile=self.jit, autograph=False)
        def step(*batch: Any) -> Any:
            with tf.GradientTape() as tape:
                value = loss(held, *batch)
            # The gradient of an embedding is sparse by itself; what the update takes is dense.
            move(trained, [tf.convert_to_tensor(g) for g in tape.gradient(value, trained)])
            if after is not None:
                after(held)
            return value

        return step

    def _trained(self, loss: Any, optimizer: Any, data: Data, after: Any = None) -> Call:
        """A call is a step from what the last one left."""
        step = self._step(loss, optimizer, data["params"], after)
        batch = [tf.constant(part) for part in data["batch"]]
        return lambda: step(*batch)

    def sac(self, data: Data) -> Call:
        target = mapped(tf.Variable, data["params"]["critics"])

        def follow(held: Any) -> None:
            for t, p in zip(leaves(target), leaves(held["critics"]), strict=True):
                t.assign_add(FOLLOW * (p - t))

        loss = lambda params, *batch: sac_loss(params, target, *batch)
        return self._trained(loss, Adam, data, follow)

    def vqvae(self, data: Data) -> Call:
        return self._trained(vqvae_loss, Adam, data)

    def simsiam(self, data: Data) -> Call:
        return self._trained(simsiam_loss, Momentum, data)

    def info_nce(self, data: Data) -> Call:
        return self._trained(info_nce_loss, Adam, data)

    def deq(self, data: Data) -> Call:
        return self._trained(deq_loss, Adam, data)

    def gru(self, data: Data) -> Call:
        return self._trained(gru_scan_loss if self.jit else gru_loss, Adam, data)

    def gpt(self, data: Data) -> Call:
        heads = data["heads"]
        loss = lambda params, x, labels: gpt_loss(params, x, labels, heads)
        return self._trained(loss, lambda trained: Adam(trained, decay=1e-2), data)

    def small_mlp_device(self, data: Data) -> Call:
        return self._trained(small_mlp_loss, Adam, data)

    def small_mlp_numpy(self, data: Data) -> Call:
        raise LeftOut("its updates keep their variables")

    def small_mlp_session(self, data: Data) -> Call:
        """Batches are NumPy arrays, the loss is a number: a session's, or with XLA a function's."""
        batch = data["batch"]
        if self.jit:
            step = self._step(small_mlp_loss, Adam, data["params"])
            return lambda: step(*map(tf.convert_to_tensor, batch)).numpy()
        with tf.Graph().as_default() as graph:
            feeds = {tf.compat.v1.placeholder(tf.float32, part.shape): part for part in batch}
            held = mapped(lambda p: tf.compat.v1.Variable(p, use_resource=True), data["params"])
            loss = small_mlp_loss(held, *feeds)
            update = tf.compat.v1.train.AdamOptimizer(ADAM).minimize(loss, var_list=list(leaves(held)))
            begin = tf.compat.v1.global_variables_initializer()
        session = tf.compat.v1.Session(graph=graph)
        session.run(begin)
        return lambda: session.run([loss, update], feeds)[0]

    def chain(self, data: Data) -> Call:
        if self.jit:
            raise LeftOut("the row is about what is not compiled")
        x = tf.constant(data["x"])

        def call() -> Any:
            y = x
            with tf.GradientTape() as tape:
                tape.watch(x)
                for _ in range(data["count"]):
                    y = tf.tanh(y)
                value = tf.reduce_mean(y)
            return value, tape.gradient(value, x)

        return call
