"""Families of definitions that share a shape rule, and the public functions of the regular ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from stopgrad.batch_rules import ELEMENTWISE
from stopgrad.build import apply, emit
from stopgrad.graph import Output
from stopgrad.op import Op
from stopgrad.operands import Tensor
from stopgrad.ops.inference import broadcast, is_floating, is_inexact, is_number, same
from stopgrad.public import publish

INF, NAN = math.inf, math.nan
EXTREMES = ((0.0,), (-0.0,), (INF,), (-INF,), (NAN,))
PAIRS = ((0.0, INF), (-0.0, 1.0), (INF, -INF), (NAN, 1.0), (1.0, 0.0), (0.0, 0.0), (-1.0, INF))


def unary(definition: type[Op], function_name: str) -> Callable[..., Tensor]:
    """The public function of an operation with one operand and no attributes."""

    def function(x: Any, name: str | None = None) -> Tensor:
        if type(x) is Output:  # As most often: nothing to convert.
            return emit(definition, (x,), (), name).outputs[0]
        return apply(definition, (x,), (), name)

    function.__name__ = function.__qualname__ = function_name
    return publish(definition, function)


def binary(definition: type[Op], function_name: str) -> Callable[..., Tensor]:
    """The public function of an operation with two operands and no attributes."""

    def function(x: Any, y: Any, name: str | None = None) -> Tensor:
        if type(x) is Output is type(y):  # As most often: nothing to convert.
            return emit(definition, (x, y), (), name).outputs[0]
        return apply(definition, (x, y), (), name)

    function.__name__ = function.__qualname__ = function_name
    return publish(definition, function)


class Elementwise(Op, abstract=True):
    """One operand; the result has its type. (C1) floating-point or complex."""

    infer = same(is_inexact)
    batch = ELEMENTWISE
    extremes: ClassVar[Sequence[tuple[Any, ...]]] = EXTREMES


class RealElementwise(Elementwise, abstract=True):
    """One operand; the result has its type. (C1) floating-point."""

    infer = same(is_floating)


class Arithmetic(Op, abstract=True):
    """Two operands of one numeric dtype (C1) whose shapes broadcast (C2)."""

    infer = broadcast(is_number)
    batch = ELEMENTWISE
    extremes: ClassVar[Sequence[tuple[Any, ...]]] = PAIRS
