"""Functions run by XLA with the kernels for rows, however small they are, and compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.engines.xla import native as kernels, work
from stopgrad.engines.xla.native import rows
from stopgrad.graph.interpreter import Region

R = np.random.default_rng(0)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Region]:
    """The regions of all graphs that a test compiles from now on, which may be as small as they like."""
    regions: list[Region] = []

    def spied(operations: Sequence[Any], wanted: Sequence[Any], compile: Any) -> Sequence[Region]:
        made = kernels.regions(operations, wanted, compile)
        regions.extend(made)
        return made

    monkeypatch.setattr(rows, "LEAST", 1)
    monkeypatch.setattr(rows, "LEAST_COLUMNS", 2)
    monkeypatch.setattr(rows, "_pays", lambda shape, results: True)
    monkeypatch.setattr(work, "regions", spied)
    return regions


def native(f: Callable[..., Any], *arrays: Any) -> list[np.ndarray[Any, Any]]:
    made = sg.function(f, engine="xla")(*arrays)
    return [np.asarray(y) for y in (made if isinstance(made, (list, tuple)) else [made])]


def plain(f: Callable[..., Any], *arrays: Any) -> list[np.ndarray[Any, Any]]:
    made = sg.function(f, engine="xla", strict=True)(*arrays)
    return [np.asarray(y) for y in (made if isinstance(made, (list, tuple)) else [made])]


def exactly(f: Callable[..., Any], *arrays: Any) -> list[np.ndarray[Any, Any]]:
    """With NumPy, in float64."""
    wide = [a.astype(np.float64) if np.asarray(a).dtype == np.float32 else a for a in arrays]
    made = sg.function(f, engine="numpy")(*wide)
    return [np.asarray(y) for y in (made if isinstance(made, (list, tuple)) else [made])]


def agree(f: Callable[..., Any], *arrays: Any, rtol: float = 2e-6, atol: float = 0.0) -> None:
    for got, want in zip(native(f, *arrays), exactly(f, *arrays), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
    return (R.normal(size=shape) * scale).astype(np.float32)


# ------------------------------------------------------------------------------------------ functions

POSITIVE = {sg.sqrt, sg.log, sg.rsqrt}
APPROXIMATE: Any = lambda x: sg.gelu(x, approximate=True)
UNARY: list[Any] = [
    *(sg.negative, sg.abs, sg.sign, sg.square, sg.sqrt, sg.rsqrt, sg.reciprocal, sg.floor, sg.ceil, sg.round),
    *(sg.exp, sg.expm1, sg.log, sg.log1p, sg.tanh, sg.sigmoid, sg.erf, sg.erfc, sg.relu, sg.relu6, sg.elu),
    *(sg.softplus, sg.log_sigmoid, sg.silu, sg.gelu, sg.leaky_relu),
    APPROXIMATE,
    *(lambda x: sg.cast(sg.is_nan(x), x.dtype), lambda x: sg.cast(sg.is_inf(x), x.dtype)),
    lambda x: sg.where(sg.is_finite(x), x, 7.0),
    *(lambda x: x**2, lambda x: x**3.0, lambda x: x**-1, lambda x: x**0.5),
]
for _n, _f in enumerate(UNARY):
    if _f.__name__ == "<lambda>":
        _f.__name__ = f"form{_n}"


def is_for_positive(f: Any) -> bool:
    """Whether one of the functions of one number wants positive numbers."""
    return f in POSITIVE or f.__name__ in ("log1p", f"form{len(UNARY) - 1}")


BINARY: list[Any] = [
    *(sg.add, sg.subtract, sg.multiply, sg.divide, sg.maximum, sg.minimum, sg.squared_difference),
    *(lambda x, y, op=op: sg.cast(op(x, y), x.dtype) for op in (sg.equal, sg.not_equal, sg.less)),
    *(lambda x, y, op=op: sg.where(op(x, y), x, y) for op in (sg.less_equal, sg.greater, sg.greater_equal)),
    lambda x, y: sg.where(sg.logical_and(x > 0, sg.logical_not(y > 0)), x, y),
    lambda x, y: sg.where(sg.logical_or(x > 0, y > 0), x, 1.0),
]


REDUCTIONS: list[Any] = [
    *(sg.reduce_sum, sg.reduce_max, sg.reduce_min, sg.reduce_mean, sg.reduce_variance, sg.reduce_logsumexp)
]


def stable(x: Any, w: Any) -> Any:
    z = x - sg.stop_gradient(sg.reduce_max(x, axis=-1, keepdims=True))
    e = sg.exp(z)
    return sg.reduce_sum(w * (e / sg.reduce_sum(e, axis=-1, keepdims=True)))


def normed(x: Any, w: Any) -> Any:
    return sg.reduce_sum(sg.square(sg.gelu(sg.layer_norm(x, w, w)))) + sg.reduce_sum(sg.layer_norm(x * 2.0))


LOSSES: list[Any] = [
    stable,
    lambda x, w: sg.reduce_mean(sg.softmax_cross_entropy_with_logits(sg.softmax(w), x)),
    lambda x, w: sg.reduce_sum(w * sg.log_softmax(x)),
    lambda x, w: sg.reduce_sum(sg.reduce_logsumexp(x + w, axis=-1) * 2.0),
    lambda x, w: sg.reduce_sum(w * sg.reduce_max(sg.maximum(x, w), axis=-1, keepdims=True)),
]
