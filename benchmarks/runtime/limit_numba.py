"""Rows written by hand as loops that Numba compiles, in parallel and with its fast mathematics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from runtime.problems import Data, LeftOut

Call = Callable[[], Any]


@numba.njit(parallel=True, fastmath=True)
def softmax_loss(x: Any, w: Any) -> Any:
    rows, columns = x.shape
    gradient, losses = np.empty_like(x), np.empty(rows, np.float32)
    for i in numba.prange(rows):
        top = np.float32(-np.inf)
        for j in range(columns):
            top = max(top, x[i, j])
        total = weighted = np.float32(0.0)
        for j in range(columns):
            e = np.exp(x[i, j] - top)
            gradient[i, j] = e
            total += e
            weighted += e * w[i, j]
        weighted, scale = weighted / total, np.float32(1.0) / total
        for j in range(columns):
            gradient[i, j] *= scale * (w[i, j] - weighted)
        losses[i] = weighted
    return losses.sum(), gradient


@numba.njit(parallel=True, fastmath=True)
def cross_entropy(x: Any, labels: Any) -> Any:
    rows, columns = x.shape
    gradient, losses = np.empty_like(x), np.empty(rows, np.float32)
    for i in numba.prange(rows):
        top = np.float32(-np.inf)
        for j in range(columns):
            top = max(top, x[i, j])
        total = np.float32(0.0)
        for j in range(columns):
            e = np.exp(x[i, j] - top)
            gradient[i, j] = e
            total += e
        scale = np.float32(1.0) / (total * np.float32(rows))
        for j in range(columns):
            gradient[i, j] *= scale
        gradient[i, labels[i]] -= np.float32(1.0) / np.float32(rows)
        losses[i] = np.log(total) - (x[i, labels[i]] - top)
    return losses.mean(), gradient


@numba.njit(parallel=True, fastmath=True)
def mixture(mean: Any, log_scale: Any, log_weight: Any, x: Any, blocks: int) -> Any:
    points, dimensions = x.shape
    components = len(log_weight)
    inverse = np.exp(-log_scale)
    base = log_weight - log_scale.sum(axis=1)
    losses = np.zeros(blocks, np.float32)
    count = np.zeros((blocks, components), np.float32)
    first = np.zeros((blocks, components, dimensions), np.float32)
    second = np.zeros((blocks, components, dimensions), np.float32)
    for block in numba.prange(blocks):
        log_p, r = np.empty(components, np.float32), np.empty(components, np.float32)
        for n in range(block * points // blocks, (block + 1) * points // blocks):
            for k in range(components):
                square = np.float32(0.0)
                for d in range(dimensions):
                    z = (x[n, d] - mean[k, d]) * inverse[k, d]
                    square += z * z
                log_p[k] = base[k] - np.float32(0.5) * square
            top = np.float32(-np.inf)
            for k in range(components):
                top = max(top, log_p[k])
            total = np.float32(0.0)
            for k in range(components):
                r[k] = np.exp(log_p[k] - top)
                total += r[k]
            for k in range(components):
                r[k] /= total
                losses[block] -= r[k] * log_p[k]
                count[block, k] += r[k]
                for d in range(dimensions):
                    z = (x[n, d] - mean[k, d]) * inverse[k, d]
                    first[block, k, d] += r[k] * z
                    second[block, k, d] += r[k] * z * z
    scale = np.float32(1.0 / points)
    counts = count.sum(axis=0)
    by_mean = -first.sum(axis=0) * inverse * scale
    by_scale = (counts.reshape(components, 1) - second.sum(axis=0)) * scale
    return losses.sum() * scale, np.exp(log_weight) - counts * scale, by_scale, by_mean


@numba.njit
def add_up_one(x: Any) -> Any:
    return x * np.float32(2.0)


@numba.njit
def add_up_ten(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any) -> Any:
    return (a + b + c + d + e + f + g + h + i + j) * np.float32(2.0)


class Library:
    """Numba."""

    unwritten = "a stand-in, written by hand where it shows what the machine can do"

    def __init__(self, variant: str, device: str) -> None:
        self.version = numba.__version__

    def touch(self) -> None:
        numba.njit(lambda x: x + 1.0)(2.0)

    to_numpy = staticmethod(np.asarray)

    def softmax_loss(self, data: Data) -> Call:
        return lambda: softmax_loss(data["x"], data["w"])

    def cross_entropy(self, data: Data) -> Call:
        return lambda: cross_entropy(data["x"], data["labels"])

    def mixture(self, data: Data) -> Call:
        params, x = data["params"], data["x"]

        def call() -> Any:
            logit = params["logit"]
            log_weight = logit - np.logaddexp.reduce(logit)
            return mixture(params["mean"], params["log_scale"], log_weight, x, numba.get_num_threads())

        return call

    def call(self, data: Data) -> Call:
        if data["kind"] == "own":
            raise LeftOut("its arrays are NumPy's")
        arguments = data["arguments"]
        if isinstance(arguments[0], dict):
            raise LeftOut("takes no dicts")
        f = add_up_one if len(arguments) == 1 else add_up_ten
        return lambda: f(*arguments)
