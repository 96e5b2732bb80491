"""What is known of tensors as products of a core and a factor that is constant along its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stopgrad.base.types import TensorType
from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.shapes.reshape import BroadcastTo
from stopgrad.rewrite.engine import Copying
from stopgrad.rewrite.forms.factors import ONE, Factor, Maker

Axes = tuple[int, ...]


class Scaled(NamedTuple):
    """A tensor as core · factor, with rows along these axes.

    The factor of a core has only sums of exponentials; without a core, the tensor is the factor, perhaps
    repeated.
    """

    core: Output | None
    factor: Factor
    axes: Axes


@dataclass
class Rows:
    """What is known in one new graph.

    Attributes:
        scaled: tensors that have a factor.
        sums: the sums s of exponentials, and their axes.
        exponentials: the sum s of each e = exp(x - max x).
        zeros: tensors that are 0 up to rounding, and the exponentials that make them so.
    """

    scaled: dict[Output, Scaled] = field(default_factory=dict)
    sums: dict[Output, Axes] = field(default_factory=dict)
    exponentials: dict[Output, Output] = field(default_factory=dict)
    zeros: dict[Output, Output] = field(default_factory=dict)


class Rewriting(Maker):
    """An operation of the old graph, as a handler gets it."""

    def __init__(
        self, copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...], rows: Rows
    ) -> None:
        super().__init__(copying, op)
        self.inputs = inputs
        self.values = values
        self.rows = rows
        self.type: TensorType = op.outputs[0].type
        self.steps = 0

    def as_it_is(self) -> Output:
        return self.make(self.like.definition, *self.inputs, values=self.values)

    def part(self, x: Output, axes: Axes) -> Scaled:
        """An operand of an elementwise operation as core and factor."""
        x = unrepeated(x)
        scaled = self.rows.scaled.get(x)
        if scaled is not None and scaled.axes == axes:
            return scaled
        if is_row(x, self.type.ndim, axes):
            return Scaled(None, Factor(over=(x,)), axes)
        return Scaled(x, ONE, axes)

    def factor_of(self, row: Output) -> Factor:
        """A row's value as a factor."""
        scaled = self.rows.scaled.get(row)
        return Factor(over=(row,)) if scaled is None or scaled.core is not None else scaled.factor

    def parts(self) -> tuple[list[Scaled], Axes] | None:
        """All operands as cores and factors, if any has a factor."""
        scaled = [self.rows.scaled.get(unrepeated(x)) for x in self.inputs]
        axes = next((entry.axes for entry in scaled if entry is not None), None)
        return None if axes is None else ([self.part(x, axes) for x in self.inputs], axes)

    def times(self, a: Factor, b: Factor) -> Factor:
        return a.times(b, self.rows.sums.keys())

    def safe(self, factor: Factor) -> tuple[Factor, Factor]:
        """The sums of exponentials in a factor, with its sign, and the rest of it."""
        sums = self.rows.sums
        inside = [tuple([y for y in part if y in sums]) for part in factor[1:]]
        outside = [tuple([y for y in part if y not in sums]) for part in factor[1:]]
        return Factor(factor.negative, *inside), Factor(False, *outside)

    def result(self, core: Output, factor: Factor, axes: Axes) -> Output | None:
        """Build a tensor with a factor, and record the factor."""
        if core.type is not self.type:
            return None
        result = self.scaled(core, factor)
        if not factor.is_one:
            self.rows.scaled[result] = Scaled(core, factor, axes)
        return result

    def row_result(self, factor: Factor, axes: Axes) -> Output:
        """Copy the operation, whose result is constant along rows, and record its factors."""
        row = self.as_it_is()
        self.rows.scaled.setdefault(row, Scaled(None, factor, axes))
        return row


def unrepeated(x: Output) -> Output:
    """The tensor that another repeats along axes of size 1."""
    if x.op.definition is BroadcastTo and x.op.inputs[0].ndim == x.ndim:
        return x.op.inputs[0]
    return x


def is_row(x: Output, ndim: int, axes: Axes) -> bool:
    """Whether a tensor, broadcast to *ndim* axes, has size 1 along these."""
    missing = ndim - x.ndim
    return all(a < missing or x.shape[a - missing] == 1 for a in axes)
