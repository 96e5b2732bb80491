"""Gradient clipping, by value and by global norm."""

from __future__ import annotations

from collections.abc import Mapping

from stopgrad.base.types import float32, float64
from stopgrad.graph.operands import Tensor
from stopgrad.ops.elementwise.arithmetic import add_n, minimum
from stopgrad.ops.elementwise.composite import clip_by_value
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.elementwise.powers import sqrt
from stopgrad.ops.shapes.reshape import reduce_sum


def by_value(gradients: Mapping[str, Tensor], bound: float) -> dict[str, Tensor]:
    """The gradients with each element clipped to between minus and plus *bound*."""
    return {name: clip_by_value(g, -bound, bound) for name, g in gradients.items()}


def by_global_norm(gradients: Mapping[str, Tensor], bound: float) -> dict[str, Tensor]:
    """The gradients scaled to a common norm of at most *bound*, as by PyTorch's ``clip_grad_norm_``."""
    factor = minimum(bound / (global_norm(gradients) + 1e-6), 1.0)
    return {name: g * cast(factor, g.dtype) for name, g in gradients.items()}


def global_norm(gradients: Mapping[str, Tensor]) -> Tensor:
    """The root of the sum of the squares of all elements."""
    widest = float64 if any(g.dtype is float64 for g in gradients.values()) else float32
    sums = [cast(reduce_sum(g * g), widest) for g in gradients.values()]
    return sqrt(add_n(sums) if len(sums) > 1 else sums[0])
