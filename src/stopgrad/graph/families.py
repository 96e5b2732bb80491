"""Families of operations that share a shape rule, and the public functions of unary and binary operations."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, cast

import numpy as np

from stopgrad.base.arrays import Array, ArrayLike, Namespace
from stopgrad.base.promotion import Promotion
from stopgrad.base.samples import pairs
from stopgrad.graph.batch_rules import ELEMENTWISE
from stopgrad.graph.build import apply, emit
from stopgrad.graph.graph import Output
from stopgrad.graph.immediate import recalled
from stopgrad.graph.inferred import about
from stopgrad.graph.op import Op, Samples
from stopgrad.graph.operands import Tensor, type_of
from stopgrad.graph.public import guarded, publish, reads_arguments
from stopgrad.graph.traits import Unsound
from stopgrad.graph.type_rules import (
    Infer,
    broadcast,
    is_floating,
    is_inexact,
    is_number,
    normal_axes,
    normal_axis,
    same,
)

F = TypeVar("F", bound=Callable[..., Any])
INF, NAN = math.inf, math.nan
EXTREMES = ((0.0,), (-0.0,), (INF,), (-INF,), (NAN,))
ALIKE = (((3,), (3,)), (("n",), ("n",)), ((0, 2), (0, 2)))
PAIRS = ((0.0, INF), (-0.0, 1.0), (INF, -INF), (NAN, 1.0), (1.0, 0.0), (0.0, 0.0), (-1.0, INF))


BY_ZERO = Unsound(
    "divides integers by zero, which gives a number without meaning",
    lambda dtype, x, y: y == 0 if dtype.is_integer else None,
)


class Unary(Protocol):
    """The public function of an operation with one operand and no attributes."""

    def __call__(self, x: ArrayLike, /, name: str | None = None) -> Tensor: ...


class Binary(Protocol):
    """The public function of an operation with two operands and no attributes."""

    def __call__(self, x: ArrayLike, y: ArrayLike, /, name: str | None = None) -> Tensor: ...


def unary(definition: type[Op], function_name: str, parameter: str = "x") -> Unary:
    """The public function of an operation with one operand, called *parameter*, and no attributes."""

    @guarded(definition.type)
    def whole(x: ArrayLike, name: str | None = None) -> Tensor:
        return apply(definition, (x,), (), name)

    @reads_arguments
    def function(x: ArrayLike, name: str | None = None) -> Tensor:
        # The usual cases: an operation on an output, or an array like that of an earlier call.
        if type(x) is Output:
            if not (graph := x.op.graph).careful or graph.is_plain(x):
                try:
                    return emit(definition, (x,), (), name, graph, 1).outputs[0]
                except Exception:
                    return whole(x, name)  # Promotes the operand, or fails again with the full error.
        elif name is None and (result := recalled(definition, (x,))) is not None:
            return result
        return whole(x, name)

    return _named(definition, whole, function, function_name, parameter, "name")


def binary(definition: type[Op], function_name: str, first: str = "x", second: str = "y") -> Binary:
    """The public function of an operation with two operands, *first* and *second*, and no attributes."""

    @guarded(definition.type, alike=True)
    def whole(x: ArrayLike, y: ArrayLike, name: str | None = None) -> Tensor:
        return apply(definition, (x, y), (), name)

    @reads_arguments
    def function(x: ArrayLike, y: ArrayLike, name: str | None = None) -> Tensor:
        # The usual cases: an operation on outputs, or arrays like those of an earlier call.
        if type(x) is Output:
            if type(y) is Output and (not (graph := x.op.graph).careful or graph.is_plain(x, y)):
                try:
                    return emit(definition, (x, y), (), name, graph, 1).outputs[0]
                except Exception:
                    return whole(x, y, name)  # Promotes the operands, or fails again with the full error.
        elif name is None and type(y) is not Output and (result := recalled(definition, (x, y))) is not None:
            return result
        return whole(x, y) if name is None else whole(x, y, name)

    return _named(definition, whole, function, function_name, first, second, "name")


def directly(definition: type[Op], *values: object) -> Callable[[F], F]:
    """Decorator of the public function of an operation with two operands.

    With two outputs and nothing else, it builds the operation with these attributes, if it can be built.
    """

    def decorate(whole: F) -> F:
        @functools.wraps(whole)
        def function(*args: object, **kwargs: object) -> Tensor:
            if len(args) == 2 and not kwargs:
                x, y = args
                if type(x) is Output and type(y) is Output and (graph := x.op.graph) is y.op.graph:
                    is_inferred = ((x.type, y.type), values) in definition._inferred
                    if is_inferred and (not graph.careful or graph.is_plain(x, y)):
                        return emit(definition, (x, y), values, None, graph, 1).outputs[0]
            return whole(*args, **kwargs)

        return cast("F", publish(definition, reads_arguments(function)))

    return decorate


def _named(
    definition: type[Op],
    whole: Callable[..., Tensor],
    function: Callable[..., Tensor],
    function_name: str,
    *parameters: str,
) -> Callable[..., Tensor]:
    """Publish a function under its name, with TensorFlow's names for its parameters."""
    for form in (whole, function):
        form.__name__ = form.__qualname__ = function_name
    code = function.__code__
    reader = code.replace(co_varnames=(*parameters, *code.co_varnames[len(parameters) :]))
    function.__code__ = reader
    return publish(definition, reads_arguments(function))


def axis_in(definition: type[Op], axis: int, x: ArrayLike) -> int:
    """The *axis* argument of a public function for *x*, counted from the front."""
    ndim = _ndim(x)
    if type(axis) is int and 0 <= axis < ndim:
        return axis
    with about(definition, x):
        return normal_axis(axis, ndim)


def axes_in(definition: type[Op], axis: int | Sequence[int] | None, x: ArrayLike) -> tuple[int, ...]:
    """The *axis* argument of a public function for *x* as a tuple: one axis, several, or None for all."""
    ndim = _ndim(x)
    if type(axis) is int and 0 <= axis < ndim:
        return (axis,)
    with about(definition, x):
        return normal_axes(axis, ndim)


def _ndim(x: ArrayLike) -> int:
    return x.ndim if isinstance(x, (Output, np.ndarray)) else type_of(x).ndim


def flushed(xp: Namespace, x: Array) -> Array:
    """*x* with subnormal numbers replaced by 0, since XLA on CPUs compares them as equal to 0.

    Functions that also look at the bits would be wrong otherwise.
    """
    return xp.where(x == 0, xp.copysign(xp.zeros((), x.dtype), x), x)


class Elementwise(Op, abstract=True):
    """One operand, floating-point or complex (C1); the result has its type."""

    infer: ClassVar[Infer] = same(is_inexact)
    batch = ELEMENTWISE
    rounds_once = True
    extremes: ClassVar[Sequence[tuple[Any, ...]]] = EXTREMES


class RealElementwise(Elementwise, abstract=True):
    """One operand, floating-point (C1); the result has its type."""

    infer: ClassVar[Infer] = same(is_floating)


class Arithmetic(Op, abstract=True):
    """Two operands of one numeric dtype (C1) whose shapes broadcast (C2)."""

    infer: ClassVar[Infer] = broadcast(is_number)
    batch = ELEMENTWISE
    rounds_once = True
    extremes: ClassVar[Sequence[tuple[Any, ...]]] = PAIRS


class GradientOfElementwise(Op, abstract=True):
    """The operand's cotangent from the result y and its cotangent g, in one operation instead of several.

    A complex y is passed conjugated, so that each of these operations is a holomorphic function of y and g.

    Args:
        y: the result of the operation.
        g: its cotangent.

    Returns:
        The cotangent of x.
    """

    infer: ClassVar[Infer] = broadcast(is_inexact, "y", "g")
    promotes: ClassVar[Promotion | None] = None
    batch = ELEMENTWISE
    rounds_once = True
    samples: Samples = pairs(shapes=ALIKE)
    extremes: ClassVar[Sequence[tuple[Any, ...]]] = PAIRS


class GradientOfActivation(GradientOfElementwise, abstract=True):
    """The same for a real activation: y and g are floating-point."""

    infer: ClassVar[Infer] = broadcast(is_floating, "y", "g")
    promotes: ClassVar[Promotion | None] = None
