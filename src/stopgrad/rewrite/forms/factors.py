"""Products of tensors that are constant along rows, kept as lists of factors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.types import DType
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.op import Op
from stopgrad.graph.operands import Literal
from stopgrad.ops.elementwise.arithmetic import Mul, Neg, RealDiv
from stopgrad.ops.structural.sources import Const
from stopgrad.rewrite.engine import Copying


class Factor(NamedTuple):
    """``± product of over / product of under``: tensors of size 1 along the axes of a row, or scalars."""

    negative: bool = False
    over: tuple[Output, ...] = ()
    under: tuple[Output, ...] = ()

    def times(self, other: Factor, cancelled: Set[Output] = frozenset()) -> Factor:
        """The product. Of the tensors that are both over and under, only *cancelled* ones are dropped."""
        over, under = Counter(self.over + other.over), Counter(self.under + other.under)
        for y in cancelled & over.keys() & under.keys():
            both = min(over[y], under[y])
            over[y] -= both
            under[y] -= both
        return Factor(self.negative != other.negative, tuple(over.elements()), tuple(under.elements()))

    @property
    def is_one(self) -> bool:
        return not (self.negative or self.over or self.under)

    def inverse(self) -> Factor:
        return Factor(self.negative, self.under, self.over)

    def negated(self) -> Factor:
        return Factor(not self.negative, self.over, self.under)

    def opposes(self, other: Factor) -> bool:
        """Whether one is the negative of the other, in any order of factors."""
        return (
            self.negative != other.negative
            and Counter(self.over) == Counter(other.over)
            and Counter(self.under) == Counter(other.under)
        )


ONE = Factor()


def count_of(sizes: Iterable[Any]) -> int:
    """The product of sizes, which must be known."""
    return math.prod(int(size) for size in sizes)


class Maker:
    """Builds operations in the new graph of a rewrite, for an operation of the old one."""

    def __init__(self, copying: Copying, like: Operation) -> None:
        self.copying = copying
        self.like = like

    def make(self, definition: type[Op], *inputs: Output, values: tuple[object, ...] = ()) -> Output:
        return self.copying.once(definition, inputs, values, self.like)[0]

    def existing(
        self, definition: type[Op], *inputs: Output, values: tuple[object, ...] = ()
    ) -> Output | None:
        """The operation that :meth:`make` would find; None if it would build one."""
        outputs = self.copying.table.get(self.copying.key(definition, inputs, values, self.like))
        return None if outputs is None else outputs[0]

    def constant(self, value: float, dtype: DType) -> Output:
        return self.make(Const, values=(Literal(np.array(value, dtype.numpy)),))

    def multiply(self, a: Output, b: Output) -> Output:
        """The product; an equal one is found in either order."""
        return self.make(Mul, a, b) if a.op.id <= b.op.id else self.make(Mul, b, a)

    def product(self, factors: Sequence[Output]) -> Output | None:
        """The product of all factors, smaller tensors first; None for none."""
        result: Output | None = None
        for y in sorted(factors, key=lambda y: (y.ndim, y.op.id)):
            result = y if result is None else self.multiply(result, y)
        return result

    def row(self, factor: Factor, dtype: DType) -> Output:
        """A factor as a tensor; a scalar if all its parts are scalars."""
        over, under = self.product(factor.over), self.product(factor.under)
        if over is None:
            over, factor = self.constant(-1.0 if factor.negative else 1.0, dtype), ONE
        quotient = over if under is None else self.make(RealDiv, over, under)
        return self.make(Neg, quotient) if factor.negative else quotient

    def scaled(self, core: Output, factor: Factor) -> Output:
        """A tensor times a factor, with only one operation of the tensor's size."""
        if not factor.over and factor.under:
            under = self.product(factor.under)
            assert under is not None
            return self.make(RealDiv, core, self.make(Neg, under) if factor.negative else under)
        if factor.over or factor.under:
            return self.make(Mul, core, self.row(factor, core.dtype))
        return self.make(Neg, core) if factor.negative else core
