"""Every gate, in every kind of body: programs for the tests that save them as ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


@sg.custom_gradient
def sevenfold(x: Any) -> Any:
    return sg.tanh(x), lambda g: g * 7.0


@sg.custom_gradient
def keeping(x: Any) -> Any:
    e = sg.exp(-sg.abs(x))
    return sg.log(1.0 + e), lambda g: g * e * x


@sg.custom_gradient
def pair(x: Any, k: Any) -> Any:
    return (x * k, sg.sin(x)), lambda g, h: (g * 2.0 + h * x, None)


@sg.custom_gradient
def sized(x: Any) -> Any:
    """Its gradient has sizes that its cotangent does not tell."""
    return sg.reduce_sum(x * x, axis=0), lambda g: sg.broadcast_to(g * 0.5, x.shape)


@sg.custom_gradient
def gated(x: Any) -> Any:
    """Gates and a custom gradient in a gradient function."""
    return x * x, lambda g: sg.stop_gradient(g * x) + sevenfold(x) * sg.scale_gradient(g, 0.5)


vjp = sg.custom_vjp(lambda x: x * x * x)
vjp.defvjp(lambda x: (x * x * x, (x, sg.cos(x))), lambda kept, g: (kept[0] * kept[1] * g,))
jvp = sg.custom_jvp(lambda x: sg.log(1.0 + sg.exp(x)))
jvp.defjvp(lambda xs, ts: (jvp(*xs), ts[0] * sg.sigmoid(xs[0]) * 3.0))


def closing(x: Any, w: Any) -> Any:
    """A custom gradient whose two functions use tensors from outside."""
    return sg.custom_gradient(lambda x: (x * sg.reduce_sum(w), lambda g: g * sg.reduce_max(w)))(x)


def unseen(x: Any) -> Any:
    with sg.no_gradient():
        hidden = sg.exp(x)
    return hidden * x


Gate = Callable[[Any, Any, Any], Any]
GATES: dict[str, Gate] = {
    "stop": lambda x, w, on: sg.stop_gradient(x) * x,
    "stop wrt": lambda x, w, on: sg.stop_gradient(x * sg.reduce_sum(w), wrt=[w]),
    "stop when": lambda x, w, on: sg.stop_gradient(x, when=on) * x,
    "stop when not": lambda x, w, on: sg.stop_gradient(x, when=sg.logical_not(on)) * x,
    "stop wrt when": lambda x, w, on: sg.stop_gradient(x * sg.reduce_sum(w), wrt=[w], when=on),
    "no_gradient": lambda x, w, on: unseen(x),
    "zero": lambda x, w, on: sg.zero_gradient(x) * x,
    "scale": lambda x, w, on: sg.scale_gradient(x, 0.25),
    "scale by a tensor": lambda x, w, on: sg.scale_gradient(x, sg.reduce_mean(w)),
    "reverse": lambda x, w, on: sg.reverse_gradient(x, 2.0),
    "clip": lambda x, w, on: sg.clip_gradient(x * x, -0.1, 0.1),
    "clip norm": lambda x, w, on: sg.clip_gradient_norm(x * x, 0.1),
    "straight through": lambda x, w, on: sg.straight_through(sg.round(x), sg.sin(x)),
    "prevent": lambda x, w, on: sg.prevent_gradient(x, "never here"),
    "probe": lambda x, w, on: sg.probe(x, "here") * x,
    "custom": lambda x, w, on: sevenfold(x) * x,
    "custom, kept": lambda x, w, on: keeping(x),
    "custom, pair": lambda x, w, on: sg.add(*pair(x, sg.reduce_sum(w))),
    "custom, sizes": lambda x, w, on: sized(x) + x,
    "custom, gates": lambda x, w, on: gated(x),
    "custom, closing": lambda x, w, on: closing(x, w),
    "custom_vjp": lambda x, w, on: vjp(x),
    "custom_jvp": lambda x, w, on: jvp(x),
}


def summed(made: Any) -> Any:
    return made[0] + sg.reduce_sum(made[1], axis=0)


Inside = Callable[[Gate, Any, Any, Any], Any]
BODIES: dict[str, Inside] = {
    "graph": lambda gate, x, w, on: gate(x, w, on),
    "cond": lambda gate, x, w, on: sg.cond(on, lambda: gate(x, w, on), lambda: x),
    "while": lambda gate, x, w, on: sg.while_loop(
        lambda i, a: sg.reduce_max(i) < 2.5,
        lambda i, a: [i + 1.0, 0.5 * gate(a, w, on)],
        [sg.reduce_sum(x * 0.0), x],
        maximum_iterations=4,
    )[1],
    "scan": lambda gate, x, w, on: summed(
        sg.scan(lambda a, t: (0.5 * gate(a, w, on) + t, a), x, sg.stack([x, x * 0.1]))
    ),
    "loop in cond": lambda gate, x, w, on: sg.cond(
        on, lambda: sg.fori_loop(0, 2, lambda i, a: 0.5 * gate(a, w, on), x), lambda: x * 2.0
    ),
}


def built(gate: str, body: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    x = sg.placeholder(sg.float32, ["batch", 3], name="x")
    on = sg.placeholder(sg.bool_, [], name="on")
    rng = np.random.default_rng(1)
    w, v = (sg.parameter(rng.normal(size=(3, 3)).astype(np.float32) * 0.5, name=name) for name in "wv")
    y = sg.reduce_sum(sg.square(BODIES[body](GATES[gate], x @ w, w, on) @ v))
    return y, {"x": x, "on": on}, {"x": x, "w": w, "v": v}
