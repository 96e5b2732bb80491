"""Gates that change the gradient that passes back: set it to zero, scale it, or clip it."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, Op, Output, ShapeError, Tensor, TensorType
from stopgrad.ops.elementwise.arithmetic import maximum, minimum, negative, square
from stopgrad.ops.elementwise.compare import greater
from stopgrad.ops.elementwise.convert import cast, conj as conjugate, real, where, wide
from stopgrad.ops.elementwise.powers import rsqrt
from stopgrad.ops.gates.stopping import Gate, gate_leaves
from stopgrad.ops.shapes.reshape import beside, reduce_sum
from stopgrad.ops.structural.sources import zeros_like

__all__ = ["clip_gradient", "clip_gradient_norm", "reverse_gradient", "scale_gradient", "zero_gradient"]

T = TypeVar("T")


class ZeroGradient(Gate):
    """Identity whose gradient is zero: the operand is connected, but its gradient is 0.

    Args:
        x: a tensor; the function also takes a nested structure of tensors.

    Returns:
        The operand.

    Examples:
        >>> sg.grad(lambda x: sg.zero_gradient(x) * x)(3.0)
        array(3., dtype=float32)
    """

    infer = staticmethod(lambda x: x)
    gradient: d.Gradient = {"x": lambda g, op: zeros_like(g)}
    held = lambda now, base, acts: base[0]
    samples: d.Samples = [d.sample(d.floats(3))]


@d.builds(ZeroGradient)
def zero_gradient(x: T, name: str | None = None) -> T:
    gated: T = gate_leaves(lambda leaf: d.apply(ZeroGradient, (leaf,), (), name), x, name)
    return gated


def _scalars(x: TensorType, *others: TensorType) -> TensorType:
    """The settings of a gate are scalars of its operand's dtype."""
    d.check_same_dtype(x, *others)
    for other in others:
        if not d.is_for_each(other, x):
            raise ShapeError(f"(C2) takes a scalar, not {other!r}")
    return x


def _set(definition: type[Op], x: ArrayLike, *settings: ArrayLike, name: str | None) -> Tensor:
    """A gate with scalar settings."""
    for setting in settings:
        if d.type_of(setting).ndim:
            wrong = ShapeError(f"(C2) takes a scalar, not {d.type_of(setting)!r}")
            d.raise_for(definition, wrong, (x, *settings))
    return d.apply(definition, (x, *settings), (), name)


class ScaleGradient(Gate):
    """Identity whose gradient is multiplied by a number.

    Args:
        x: a tensor; the function also takes a nested structure of tensors.
        s: the number, or an output that holds it; itself without gradient.

    Returns:
        The operand.

    Constraints:
        (C1) x and s have one dtype.
        (C2) s is a scalar.

    Examples:
        >>> sg.grad(lambda x: sg.scale_gradient(x * x, 0.5))(3.0)
        array(3., dtype=float32)
    """

    infer = staticmethod(lambda x, s: _scalars(x, s))
    gradient: d.Gradient = {
        "x": lambda g, op: g * beside(op.s, g),
        "s": d.not_differentiable("a gate's setting takes no part in the value"),
    }
    held = lambda now, base, acts: base[0] + np.conj(beside(base[1], base[0])) * (now[0] - base[0])
    samples: d.Samples = [d.sample(d.floats(3), d.floats())]


@d.builds(ScaleGradient)
def scale_gradient(x: T, s: ArrayLike, name: str | None = None) -> T:
    gated: T = gate_leaves(lambda leaf: _set(ScaleGradient, leaf, s, name=name), x, name)
    return gated


@d.guarded("reverse_gradient")
def reverse_gradient(x: T, s: ArrayLike = 1.0, name: str | None = None) -> T:
    """Identity whose gradient is multiplied by -s.

    Args:
        x: a tensor, or a nested structure of tensors.
        s: a number, or a scalar output of x's dtype.

    Returns:
        The operand.

    References:
        Ganin and Lempitsky 2015, arXiv:1409.7495.

    Examples:
        >>> sg.grad(lambda x: sg.reverse_gradient(x * x))(3.0)
        array(-6., dtype=float32)
    """
    return scale_gradient(x, -s if isinstance(s, (int, float)) else negative(s), name)


class ClipGradient(Gate):
    """Identity whose gradient is clipped, element by element.

    Args:
        x: a tensor; the function also takes a nested structure of tensors.
        low: the least value, a number or an output that holds it; itself without gradient.
        high: the greatest value, likewise.

    Returns:
        The operand. The gate clips the gradient that comes back through it at every order, so the second
        derivative is not that of the clipped first one.

    Constraints:
        (C1) x, low and high are real numbers of one dtype.
        (C2) low and high are scalars.

    Examples:
        >>> sg.grad(lambda x: sg.clip_gradient(x * x, -1.0, 1.0))(3.0)
        array(6., dtype=float32)
        >>> sg.grad(lambda x: sg.clip_gradient(x, -1.0, 1.0) * 5.0)(3.0)
        array(1., dtype=float32)
    """

    @staticmethod
    def infer(x: TensorType, low: TensorType, high: TensorType) -> TensorType:
        d.check_dtype(x, d.is_real, "real numbers, which alone have an order")
        return _scalars(x, low, high)

    gradient: d.Gradient = {
        "x": lambda g, op: minimum(maximum(g, beside(op.low, g)), beside(op.high, g)),
        "low": d.not_differentiable("a gate's setting takes no part in the value"),
        "high": d.not_differentiable("a gate's setting takes no part in the value"),
    }
    clips = True
    samples: d.Samples = [d.sample(d.floats(3), np.array(-10.0), np.array(10.0))]


@d.builds(ClipGradient)
def clip_gradient(x: T, low: ArrayLike, high: ArrayLike, name: str | None = None) -> T:
    gated: T = gate_leaves(lambda leaf: _set(ClipGradient, leaf, low, high, name=name), x, name)
    return gated


class ClipGradientByNorm(Gate):
    """Identity whose gradient is shrunk to a Euclidean norm of at most max_norm, each tensor by itself.

    Args:
        x: a tensor; the function also takes a nested structure of tensors.
        max_norm: a positive number, or an output that holds it; itself without gradient.

    Returns:
        The operand. The gate shrinks the gradient that comes back through it at every order, so the second
        derivative is not that of the shrunk first one.

    Constraints:
        (C1) x and max_norm have one dtype.
        (C2) max_norm is a scalar.

    References:
        Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063.

    Examples:
        >>> sg.grad(lambda x: sg.reduce_sum(sg.clip_gradient_norm(x, 1.0) * 5.0))(np.array([3.0, 4.0]))
        array([0.70710678, 0.70710678])
    """

    infer = staticmethod(lambda x, max_norm: _scalars(x, max_norm))
    gradient: d.Gradient = {
        "x": lambda g, op: _shrunk(g, op.max_norm),
        "max_norm": d.not_differentiable("a gate's setting takes no part in the value"),
    }
    clips = True
    samples: d.Samples = [d.sample(d.floats(3), np.array(100.0))]


@d.builds(ClipGradientByNorm)
def clip_gradient_norm(x: T, max_norm: ArrayLike, name: str | None = None) -> T:
    gated: T = gate_leaves(lambda leaf: _set(ClipGradientByNorm, leaf, max_norm, name=name), x, name)
    return gated


def _shrunk(g: Output, max_norm: Output) -> Tensor:
    """The cotangent *g*, scaled down to a norm of at most *max_norm*."""
    count = max_norm.ndim  # The number of batch axes: each example has a norm of its own.
    g, max_norm = wide(g), wide(max_norm)
    squares = real(g * conjugate(g)) if g.dtype.is_complex else square(g)
    squared = reduce_sum(squares, tuple(range(count, g.ndim)), keepdims=count > 0)
    limit = beside(real(max_norm) if g.dtype.is_complex else max_norm, g)
    above = greater(squared, square(limit))
    # Below the limit the factor is exactly 1, and its own derivative is exactly 0.
    factor = where(above, limit * rsqrt(where(above, squared, 1)), 1)
    return g * cast(factor, g.dtype)
