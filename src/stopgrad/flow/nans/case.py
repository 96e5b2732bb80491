"""An event with its surroundings: the sources of its operands, the users of its result, and the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.flow.nans.follower import Event, NumpyArray
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.op import Op
from stopgrad.ops.elementwise.arithmetic import AddV2, Mul, RealDiv, Square, Sub
from stopgrad.ops.elementwise.convert import Cast, SelectV2
from stopgrad.ops.elementwise.powers import Exp, Pow, Reciprocal, Sqrt
from stopgrad.ops.linalg.norms import VectorNorm
from stopgrad.ops.neural.activations import Sigmoid
from stopgrad.ops.reductions.reduce import Mean, Variance
from stopgrad.ops.shapes.reshape import Sum
from stopgrad.ops.structural.sources import Const

FAR = 8
"""The number of operations within which the parts of a pattern are searched."""


def neighbours(op: Operation, users: Mapping[Output, Sequence[Operation]]) -> frozenset[Operation]:
    """The operations whose values a pattern around *op* may need."""
    nearby: dict[Operation, None] = {}
    for start in forwards(op):
        ahead = [start]
        for _ in range(FAR):
            ahead = [user for near in ahead for y in near.outputs for user in users.get(y, ())][:FAR]
            nearby.update(dict.fromkeys(ahead))
        behind = [start, *nearby]
        for _ in range(FAR):
            nearby.update(dict.fromkeys(behind))
            behind = [*dict.fromkeys(x.op for near in behind for x in near.inputs if x.op not in nearby)]
    return frozenset(nearby)


def forwards(op: Operation) -> Iterator[Operation]:
    """An operation, its forward operation, and so on to the user's own."""
    current: Operation | None = op
    while current is not None:
        yield current
        current = current.origin


class Case:
    """An event with its surroundings.

    Attributes:
        made: the event.
        op: its operation.
        base: the user's operation: itself, or the one whose gradient it computes.
        index: the index of the first bad element.
        only_backward: whether it reaches only gradients, and no values.
        seen: the operands and results of the operations around.
    """

    op: Operation
    base: Operation
    index: tuple[int, ...]
    seen: Mapping[Operation, tuple[list[Any], list[Any]]]

    def __init__(
        self,
        event: Event,
        seen: Mapping[Operation, tuple[list[Any], list[Any]]],
        users: Mapping[Output, Sequence[Operation]],
        only_backward: bool,
    ) -> None:
        self.event = event
        self.op = event.operation
        self.base = list(forwards(self.op))[-1]
        self.index = event.index
        self.only_backward = only_backward
        self.seen, self._users = seen, users

    @property
    def in_gradient(self) -> bool:
        return self.op is not self.base

    def value(self, x: Output) -> NumpyArray | None:
        """The value of an output, if it was kept."""
        seen = self.seen.get(x.op)
        if seen is not None:
            return np.asarray(seen[1][x.index])
        for user in self._users.get(x, ()):  # A parameter of a body.
            if user in self.seen:
                for operand, array in zip(user.inputs, self.seen[user][0], strict=True):
                    if operand is x:
                        return np.asarray(array)
        return None

    def at(self, x: Output, index: tuple[int, ...] | None = None) -> Any:
        """An output's value at the bad element; NaN if it has none there, or one that is not real."""
        array, index = self.value(x), self.index if index is None else index
        if array is None or array.ndim > len(index):
            return np.nan
        index = index[len(index) - array.ndim :]
        if any(i >= n and n != 1 for i, n in zip(index, array.shape, strict=True)):
            return np.nan
        element = array[tuple([0 if n == 1 else i for i, n in zip(index, array.shape, strict=True)])]
        if array.dtype.kind == "c":
            return np.nan if element.imag else element.real
        return element

    def operand(self, i: int) -> Any:
        """The value of an operand of the user's operation at the bad element."""
        return self.at(self.base.inputs[i]) if i < len(self.base.inputs) else np.nan

    def users(self, x: Output) -> list[Operation]:
        """The user's operations that take an output and may carry a gradient."""
        return [
            user
            for user in self._users.get(x, ())
            if order_of(user) == order_of(x.op)
            and any(y.dtype.is_floating or y.dtype.is_complex for y in user.outputs)
        ]


def order_of(op: Operation) -> int:
    """The number of differentiations between an operation and the user's own."""
    return sum(1 for step in forwards(op) if step.origin is not None and not _is_again(step))


def _is_again(op: Operation) -> bool:
    """Whether an operation computes its forward operation again, as the gradient of a branch does."""
    origin = op.origin
    return (
        origin is not None
        and origin.definition is op.definition
        and origin.values == op.values
        and len(origin.inputs) == len(op.inputs)
        and all(
            x.op.origin is y.op or (not x.op.inputs and x.op.type == y.op.type)
            for x, y in zip(op.inputs, origin.inputs, strict=True)
        )
    )


# ---------------------------------------------------------------------------------------- structure


def moved_from(x: Output) -> Output | None:
    """The operand of which an output is a moved or converted copy, or None."""
    op = x.op
    i = 0 if op.definition is Cast else op.definition.moved_from(op, x.index)
    return None if i is None else op.inputs[i]


def source(x: Output) -> Operation:
    """The operation that computes a value, skipping those that only move or convert it."""
    for _ in range(FAR):
        behind = moved_from(x)
        if behind is None:
            break
        x = behind
    return x.op


def constant(x: Output) -> Any:
    """The value of a constant with one number; NaN for anything else."""
    op = source(x)
    array = op.values[0].array if op.definition is Const else np.empty(0)
    return array.flat[0] if array.size and np.all(array == array.flat[0]) else np.nan


def comes_from(x: Output, *types: type[Op]) -> bool:
    return source(x).definition in types


def is_one_plus_exp(op: Operation) -> bool:
    """Whether an operation adds 1 to an exponential."""
    if op.definition is not AddV2:
        return False
    a, b = op.inputs
    return (constant(a) == 1 and comes_from(b, Exp)) or (constant(b) == 1 and comes_from(a, Exp))


def is_sum_of_exp(op: Operation) -> bool:
    """Whether an operation adds up exponentials."""
    return op.definition in (Sum, Mean) and comes_from(op.inputs[0], Exp)


def is_square(op: Operation) -> bool:
    """Whether an operation multiplies something by itself."""
    return op.definition is Square or (
        (op.definition is Mul and is_same(source(op.inputs[0]), source(op.inputs[1])))
        or (op.definition is Pow and constant(op.inputs[1]) == 2)
    )


def unguarded(op: Operation) -> Operation:
    """The operation behind a ``where`` that avoids a zero, as the library's own functions build it."""
    while op.definition is SelectV2:
        op = source(op.inputs[2])
    return op


def is_norm(op: Operation) -> bool:
    """Whether an operation is a Euclidean norm, by its function or written out."""
    op = unguarded(op)
    if op.definition is VectorNorm:
        return True
    return op.definition is Sqrt and is_sum_of_squares(unguarded(source(op.inputs[0])))


def is_sum_of_squares(op: Operation) -> bool:
    return op.definition is Sum and is_square(source(op.inputs[0]))


def is_deviation(op: Operation) -> bool:
    return op.definition is Sqrt and is_variance(source(op.inputs[0]))


def is_variance(op: Operation) -> bool:
    """Whether an operation is a variance, by its function or as the mean of squared distances."""
    return op.definition is Variance or (op.definition is Mean and is_square(source(op.inputs[0])))


def is_same(a: Operation, b: Operation, depth: int = 4) -> bool:
    """Whether two operations compute the same, by a comparison of some operations before them."""
    if a is b:
        return True
    if depth == 0 or a.definition is not b.definition or a.values != b.values or not a.inputs:
        return False
    pairs = zip(a.inputs, b.inputs, strict=False)
    same = len(a.inputs) == len(b.inputs) and a.definition.merged
    return same and all(x is y or is_same(source(x), source(y), depth - 1) for x, y in pairs)


def is_shares(op: Operation) -> bool:
    """Whether an operation divides exponentials by their sum."""
    if op.definition is not RealDiv:
        return False
    over, under = source(op.inputs[0]), source(op.inputs[1])
    if over.definition is not Exp or under.definition is not Sum:
        return False
    return is_same(over, source(under.inputs[0]))


def is_one_minus_sigmoid(op: Operation) -> bool:
    return op.definition is Sub and constant(op.inputs[0]) == 1 and comes_from(op.inputs[1], Sigmoid)


def is_sigmoid_written(op: Operation) -> bool:
    """1 / (1 + exp(-x)), written out."""
    under = (
        source(op.inputs[1])
        if op.definition is RealDiv
        else source(op.inputs[0])
        if op.definition is Reciprocal
        else op
    )
    return under is not op and is_one_plus_exp(under)


def is_difference_of_means(op: Operation) -> bool:
    """E[x²] - E[x]²."""
    if op.definition is not Sub:
        return False
    a, b = source(op.inputs[0]), source(op.inputs[1])
    return (
        a.definition is Mean
        and is_square(source(a.inputs[0]))
        and is_square(b)
        and comes_from(b.inputs[0], Mean)
    )


def choice_behind(case: Case, inner: Operation) -> Operation | None:
    """The ``where`` that is the only user of *inner*, and takes the other branch at the bad element."""
    if len(inner.outputs) != 1:
        return None
    x, same = inner.outputs[0], True
    for _ in range(FAR):
        users = case.users(x)
        if len(users) != 1:
            return None
        (user,) = users
        if user.definition is SelectV2 and x is not user.inputs[0]:
            return user if _is_away(case, inner, user, x, same) else None
        same = same and user.definition.elementwise
        if len(user.outputs) != 1:
            return None
        x = user.outputs[0]
    return None


def _is_away(case: Case, inner: Operation, choice: Operation, branch: Output, same: bool) -> bool:
    condition, y = case.value(choice.inputs[0]), case.value(inner.outputs[0])
    result = case.value(choice.outputs[0])
    if condition is None or y is None or result is None:
        return False
    taken = np.broadcast_to(condition if branch is choice.inputs[1] else ~condition, result.shape)
    if not taken.any():
        return True
    index = _index_in(case, inner, y.shape)
    return bool(same and index is not None and y.shape == result.shape and not taken[index])


def _index_in(case: Case, inner: Operation, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The index of the bad element in the result of *inner*, which may be reduced."""
    index = case.index
    if len(index) == len(shape):
        return index if all(i < n for i, n in zip(index, shape, strict=True)) else None
    axis = dict(zip(inner.definition.attributes, inner.values, strict=True)).get("axis")
    if not isinstance(axis, tuple) or len(index) - len(axis) != len(shape):
        return None
    return tuple([i for a, i in enumerate(index) if a not in axis])
