"""Programs of ours that are saved as graphs of TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([*shape, seed]).uniform(-1.5, 1.5, shape).astype(np.float32)


def _softmax(x: Any) -> Any:
    numerator = sg.exp(x - sg.stop_gradient(sg.reduce_max(x, -1, keepdims=True)))
    return numerator / sg.reduce_sum(numerator, -1, keepdims=True)


def _network(x: Any) -> Any:
    w = sg.parameter(numbers(6, 5), name="layer/w")
    b = sg.parameter(numbers(5), name="layer/b")
    h = sg.gelu(x @ w + b)
    return sg.reduce_mean(sg.square(sg.sigmoid(h) * sg.stop_gradient(h)), 1)


def _convolution(x: Any) -> Any:
    image = sg.reshape(x, [x.shape[0], 6, 1, 1]) * numbers(1, 6)[:, :, None]
    filters = sg.parameter(numbers(3, 3, 1, 2), name="filters")
    h = sg.relu(sg.conv(image, filters, strides=2, padding="SAME"))
    return sg.reduce_sum(sg.max_pool(h, 2, 1, "SAME") + sg.avg_pool(h, 2, 1, "SAME"), (1, 2))


def _attention(x: Any) -> Any:
    q = sg.reshape(x, [x.shape[0], 2, 3])
    scores = sg.einsum("bik,bjk->bij", q, q)
    return sg.matmul(sg.softmax(scores, -1), sg.stop_gradient(q))


def _moving(x: Any) -> Any:
    y = sg.concat([x[:, ::-1], sg.pad(x[:, 1:3], [[0, 0], [1, 1]])], 1)
    first, second = sg.split(y, 2, axis=1)
    z = sg.stack([first, second * 2.0], 1)
    turned = sg.transpose(sg.tile(z, [1, 2, 1]), [0, 2, 1])
    return sg.cumsum(turned, 1) + sg.one_hot([1, 2, 0, 1, 3], 5)[:, :4]


def _chosen(x: Any) -> Any:
    top, _ = sg.top_k(x, 2)
    return sg.where(x > 0, sg.log1p(sg.abs(x)), sg.expm1(x)) + sg.reduce_prod(top, 1, keepdims=True)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "softmax": _softmax,
    "network": _network,
    "convolution": _convolution,
    "attention": _attention,
    "moving": _moving,
    "chosen": _chosen,
}


def built(name: str) -> tuple[Any, Any]:
    """The input and the output of a program, in a graph of their own."""
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 6], name="x")
        return x, PROGRAMS[name](x)
