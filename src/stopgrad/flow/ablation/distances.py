"""How far gradients with and without a stop are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.base.dtypes import DType
from stopgrad.flow.ablation.variants import Gradient, Gradients, finite
from stopgrad.flow.ablation.zero_arrivals import tolerance

ROUNDINGS = 64.0
"""The factor by which the rounding errors of a zero may differ between programs."""


def infinite(plain: Gradients, open: Gradients) -> str:
    """The text about gradients that are not finite."""
    if not finite(plain):
        return "the gradient has NaNs or infinities on the given data; what is finite is compared"
    return "" if finite(open) else "without it, the gradient has NaNs or infinities on the given data"


def _wide(g: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return g.astype(np.complex128 if g.dtype.kind == "c" else np.float64).ravel()


def _both(g: Gradient, h: Gradient) -> Sequence[np.ndarray[Any, Any]]:
    """Two gradients of one input, flattened; absent ones count as zero."""
    return np.broadcast_arrays(*[np.zeros(1) if x is None else _wide(x) for x in (g, h)])


def compared(plain: Gradients, open: Gradients) -> tuple[float, float | None]:
    """The norm of the difference relative to the larger norm, and the cosine; absent gradients are zero.

    Elements that are equally infinite or NaN in both are left out; otherwise the difference is infinite.
    """
    pairs = [_both(g, h) for g, h in zip(plain, open, strict=True)]
    if not pairs:
        return 0.0, None
    a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
    there = np.isfinite(a)
    if not np.array_equal(there, np.isfinite(b)):
        return float("inf"), None
    a, b = a[there], b[there]
    size = max(largest(a), largest(b))
    if not size:
        return 0.0, None
    a, b = a / size, b / size  # To avoid overflow.
    norms = [float(np.linalg.norm(x)) for x in (a, b)]
    cosine = float(np.vdot(a, b).real / (norms[0] * norms[1])) if all(norms) else None
    return float(np.linalg.norm(a - b)) / max(norms), None if cosine is None else max(-1.0, min(1.0, cosine))


def nearness(dtype: DType) -> float:
    """The difference, relative to their largest element, within which gradients count as the same.

    It has room for the rounding of sums of many terms, if these are in double precision.
    """
    return tolerance(dtype) * (1024 if dtype.name in ("float64", "complex128") else 1)


def largest(g: Gradient) -> float:
    return 0.0 if g is None else float(np.abs(_wide(g)).max(initial=0.0))


def near(g: Gradient, h: Gradient, within: float) -> bool:
    """Whether two gradients of one input agree within a fraction of their largest element."""
    a, b = _both(g, h)
    there = np.isfinite(a)
    if not np.array_equal(there, np.isfinite(b)):
        return False
    a, b = a[there], b[there]
    return bool((np.abs(a - b) <= within * max(largest(a), largest(b))).all())
