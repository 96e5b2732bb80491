"""Columns of predictions that are compared with rows of targets, each with all, by the rules of broadcasting.

``pred - target`` of shapes ``[n, 1]`` and ``[n]`` is a table of all pairs. It is a mistake where one of them
is trained and the other is data, where nobody wrote that a new axis is wanted, and where the loss is a sum or
mean of the table, element by element. Whatever else is done with a table (a kernel, a softmax, the least of
each row, a mask of pairs) says that pairs are meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from stopgrad.base.sizes import Dim
from stopgrad.base.source import Location
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation, Output

KIND = "broadcast-loss"
"""What findings of this kind are called."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of operations and functions in all frameworks, without underscores and capitals.
_PRODUCTS = _words("mul multiply rmul")
_CANDIDATES = (
    _PRODUCTS
    | _words("sub rsub subtract squareddifference mseloss l1loss smoothl1loss huberloss softmarginloss kldiv")
    | _words("poissonnllloss")
)
_LOGARITHMS = _words("log log1p log2 logsigmoid logaddexp softplus")
_CASTS = _words("cast to float double half type identity clone contiguous")
_SCALES = _PRODUCTS | _CASTS | _words("div truediv realdiv divide truedivide neg negative sqrt square")
"""What a loss does with the sum of each row."""
_ELEMENT_BY_ELEMENT = (
    _SCALES
    | _LOGARITHMS
    | _words("sub rsub subtract squareddifference pow power rpow integerpow abs absolute add addv2 radd addn")
    | _words(
        "rtruediv rsqrt reciprocal cosh logcosh where select selectv2 maximum minimum max min clamp clampmin"
    )
    | _words(
        "clampmax clip clipbyvalue relu relu6 leakyrelu elu sign stopgradient detach foreignstop greater gt"
    )
    | _words("greaterequal ge less lt lessequal le equal eq notequal ne isnan isfinite logicaland logicalor")
    | _words("logicalnot zeroslike oneslike fulllike customgradient xlogy")
)
_RESHAPES = _words("reshape ravel flatten view squeeze unsqueeze expanddims")
_TOTALS = _words("sum mean nansum nanmean reducesum reducemean")
_NEW_AXIS = _words("unsqueeze expanddims reshape view getitem stridedslice broadcastto")
_FILLED = _words("zeroslike oneslike fulllike zeros ones fill")
_RANKS = frozenset({"BroadcastTo", "Reshape", "ExpandDims"})
"""Our operations by which an imported one gives its operands further axes."""
_APART = 256
"""The most arguments of a function that are told apart."""
_DEEPEST = 24
"""The most operations that are looked at to find out what an operand was made of."""

Shape = tuple[Any, ...]


class Comparison(NamedTuple):
    """A prediction that is compared with each target.

    Attributes:
        operation: the operation that compares.
        shapes: of its operands, as the user wrote them.
        result: the shape of the table.
        is_trained: whether the column is what is trained, and the row the target.
    """

    operation: Operation
    shapes: tuple[Shape, Shape]
    result: Shape
    is_trained: bool

    @property
    def message(self) -> str:
        """The fact."""
        a, b, table = (_worded(shape) for shape in (*self.shapes, self.result))
        return f"shapes {a} and {b} are broadcast to {table}: each prediction is compared with every target"

    @property
    def cure(self) -> str:
        """What helps."""
        column, row = ("pred", "target") if self.is_trained else ("target", "pred")
        return f"give both one shape: {column}[..., 0], or {row}[..., None]"


def _worded(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def is_column_with_row(a: Shape, b: Shape) -> bool:
    """Whether one shape ends in the other and an axis of size 1, and both broadcast to a larger one.

    Examples:
        >>> is_column_with_row((8, 1), (8,)), is_column_with_row((8,), (2, 8, 1))
        (True, True)
        >>> is_column_with_row((8, 1), (8, 1)), is_column_with_row((1, 1), (1,))
        (False, False)
    """
    column, row = sorted((a, b), key=len, reverse=True)
    return (
        0 < len(row) < len(column)
        and column[-len(row) - 1 :] == (*row, 1)
        and row != (1,) * len(row)
        and 0 not in column
    )


def may_compare(call: str, shapes: Sequence[Shape]) -> bool:
    """Whether a recorded operation may be a comparison by mistake; whether it is one, its report says.

    Examples:
        >>> may_compare("torch.Tensor.sub", [(8, 1), (8,)]), may_compare("MatMul", [(8, 1), (8,)])
        (True, False)
    """
    return len(shapes) > 1 and _plain(call) in _CANDIDATES and is_column_with_row(*shapes[:2])


def _plain(call: str) -> str:
    return call.rpartition(".")[2].replace("_", "").lower()


def _name(op: Operation) -> str:
    return _plain(op.attributes["call"]) if op.type in ("Foreign", "ForeignStop") else op.type.lower()


Where = Callable[[Operation], Location | None]
Masks = dict[Output, int]
"""For tensors, which of those that are trained they depend on, as bits."""


def comparisons(
    ys: Sequence[Output],
    xs: Mapping[str, Output],
    where: Where,
    every: bool,
    is_mapped: Callable[[Operation], bool] | None = None,
) -> list[Comparison]:
    """The comparisons by mistake in what leads to ys, one for each line.

    Args:
        ys: the losses.
        xs: what is trained, by name.
        where: the place of an operation.
        every: whether xs may be all the arguments of a function, so that targets are among them.
        is_mapped: whether an operation is in a function that is mapped over an axis, in which the user does
            not see it.
    """
    if not ys:
        return []
    apart = every and len(xs) <= _APART
    masks = {x: 1 << k if apart else 1 for k, x in enumerate(xs.values())}
    targets = {x for name, x in xs.items() if apart and "." not in name and "[" not in name}
    by_line: dict[Any, Comparison] = {}
    for comparison in _within(ys[0].op.graph.subgraph_to(ys), ys, masks, targets, where):
        row = min(comparison.shapes, key=len)
        if (
            len(row) == 1
            and len(comparison.result) == 2
            and is_mapped is not None
            and is_mapped(comparison.operation)
        ):
            continue  # The user compares one prediction, or one target, with all.
        at = where(comparison.operation)
        by_line.setdefault(comparison.operation if at is None else (at.own.file, at.own.line), comparison)
    return list(by_line.values())


def _within(
    operations: Sequence[Operation], ends: Iterable[Output], masks: Masks, targets: set[Output], where: Where
) -> Iterator[Comparison]:
    """The comparisons among operations, and in the bodies that they run."""
    if not _may_compare(operations):
        return
    xs = set(masks)
    for op in operations:
        mask = 0
        for x in op.inputs:
            mask |= masks.get(x, 0)
        if mask:
            for y in op.outputs:
                masks[y] = masks.get(y, 0) | mask
        for body, inner in _bodies(op, masks):
            yield from _within(body.operations(), body.results, inner, set(), where)
    yield from _Tables(operations, set(ends), masks, targets, where, xs).judged()


def _may_compare(operations: Iterable[Operation]) -> bool:
    """Whether anything may be found at all: quick, since most graphs have nothing."""
    for op in operations:
        if op.definition.has_bodies:
            return True
        if len(op.inputs) > 1 and _name(op) in _CANDIDATES and _is_table(op):
            return True
    return False


def _is_table(op: Operation) -> bool:
    """Whether an operation broadcasts its operands to a shape that neither has."""
    a, b = (tuple(x.shape) for x in op.inputs[:2])
    return a != b and (_count(op.outputs[0]) == 1 or tuple(op.outputs[0].shape) not in (a, b))


def _bodies(op: Operation, masks: Masks) -> Iterator[tuple[Body, Masks]]:
    """The bodies of an operation, with what their parameters depend on: those of a loop by its carry, too."""
    if not op.definition.has_bodies:
        return
    for wire in op.definition.wires(op):
        inner = {x: masks.get(op.inputs[i], 0) for x, i in zip(wire.body.inputs, wire.operands, strict=True)}
        if wire.feedback:
            whole = max(inner.values(), default=0)
            inner |= {wire.body.inputs[i]: whole for i in wire.feedback.values()}
        yield wire.body, inner


class _Tables:
    """Follows the tables of pairs among operations to where they end."""

    def __init__(
        self,
        operations: Sequence[Operation],
        ends: set[Output],
        masks: Masks,
        targets: set[Output],
        where: Where,
        xs: set[Output],
    ) -> None:
        self._operations, self._ends, self._masks, self._targets = operations, ends, masks, targets
        self._where = where
        self._xs = xs
        self._comparisons: list[Comparison] = []
        self._of: dict[Output, int] = {}  # For what is made of tables: of which, as bits.
        self._exponentials: set[Output] = set()
        self._summed = self._otherwise = 0

    def judged(self) -> Iterator[Comparison]:
        """The tables of which nothing but a sum or a mean is taken."""
        for op in self._operations:
            comparison = self._compared(op)
            if comparison is not None:
                self._begins(comparison)
            else:
                self._follow(op)
        for k, table in enumerate(self._comparisons):
            if self._summed >> k & 1 and not self._otherwise >> k & 1:
                yield table

    def _begins(self, comparison: Comparison) -> None:
        bit, y = 1 << len(self._comparisons), comparison.operation.outputs[0]
        self._comparisons.append(comparison)
        if _count(y) == 1:  # A loss that takes the sum itself.
            self._summed |= bit
        else:
            self._of[y] = bit
            self._otherwise |= bit if y in self._ends else 0

    def _follow(self, op: Operation) -> None:
        """What an operation makes of tables."""
        tables = [x for x in op.inputs if x in self._of]
        if not tables:
            return
        bits, name = 0, _name(op)
        for x in tables:
            bits |= self._of[x]
        if any(x in self._exponentials for x in tables) and name not in _LOGARITHMS:
            self._otherwise |= bits
        if name in _TOTALS:
            self._summed |= bits
        elif name == "exp":
            self._exponentials.update(op.outputs)
        elif name not in _RESHAPES and not self._is_element_by_element(op, name, bits):
            self._otherwise |= bits
        for y in op.outputs:
            if _count(y) != 1:
                self._of[y] = bits
                self._otherwise |= bits if y in self._ends else 0

    def _is_element_by_element(self, op: Operation, name: str, bits: int) -> bool:
        """Whether an operation treats each element of tables, or of sums of their rows, as a loss does.

        It does not where something is given for each pair, or is trained for each row; nor where sums of rows
        are compared with anything, since these are what a layer gives that was written out.
        """
        size = max(_count(x) for x in op.inputs if x in self._of)
        others = [x for x in op.inputs if x not in self._of and _count(x) != 1 and not _is_filled(x)]
        tables = [table for k, table in enumerate(self._comparisons) if bits >> k & 1]
        if all(size != prod(table.result) for table in tables):
            return name in _SCALES and not any(self._masks.get(x, 0) for x in others)
        shapes = [table.shapes[not self._is_column(table)] for table in tables]
        if name not in _ELEMENT_BY_ELEMENT or _count(op.outputs[0]) != size:
            return False
        return all(
            _count(x) < size and (not self._masks.get(x, 0) or tuple(x.shape) in shapes) for x in others
        )

    def _is_column(self, comparison: Comparison) -> bool:
        """Whether the first of the shapes is that of what is trained."""
        return comparison.is_trained == (len(comparison.shapes[0]) > len(comparison.shapes[1]))

    def _compared(self, op: Operation) -> Comparison | None:
        """The comparison by mistake that an operation may be."""
        if len(op.inputs) < 2 or _name(op) not in _CANDIDATES:
            return None
        a, b = (self._written(x, op) for x in op.inputs[:2])
        shapes = tuple(a.shape), tuple(b.shape)
        trained = self._prediction(a, b) if is_column_with_row(*shapes) else None
        if trained is None:
            return None
        if _name(op) in _PRODUCTS and not _has_logarithm(trained):
            return None
        column, row = (a, b) if len(shapes[0]) > len(shapes[1]) else (b, a)
        if trained is row and row in self._xs:  # Such as centres: there may be as many as there are data.
            return None
        if self._is_meant(column, row, op):
            return None
        return Comparison(op, shapes, (*column.shape[:-1], row.shape[-1]), trained is column)

    def _written(self, x: Output, op: Operation) -> Output:
        """An operand as the user wrote it, before the operation itself gave it further axes."""
        at = self._where(op)
        while at is not None and x.op.type in _RANKS and self._where(x.op) is at:
            x = x.op.inputs[0]
        return x

    def _prediction(self, a: Output, b: Output) -> Output | None:
        """Which of two is trained, if the other is data."""
        of_a, of_b = self._masks.get(a, 0), self._masks.get(b, 0)
        if not of_a or not of_b:
            return a if of_a else b if of_b else None
        if of_a & of_b:
            return None
        # Of a function whose arguments are all asked about: one is an argument, the other made of several.
        for target, of_target, other, of_other in ((a, of_a, b, of_b), (b, of_b, a, of_a)):
            if of_other.bit_count() > 1 and of_target.bit_count() == 1 and _origin(target) in self._targets:
                return other
        return None

    def _is_meant(self, column: Output, row: Output, op: Operation) -> bool:
        """Whether the user made the column of something of the row's shape, to compare all with all.

        A column of data may also have been made on another line, for predictions that were columns then.
        """
        made_by = _begun(column).op
        if _name(made_by) not in _NEW_AXIS or not made_by.inputs or made_by.inputs[0].shape != row.shape:
            return False
        made_at, compared_at = self._where(made_by), self._where(op)
        same = (
            made_at is None
            or compared_at is None
            or (made_at.file, made_at.line) == (compared_at.file, compared_at.line)
        )
        return same or bool(self._masks.get(column, 0))


def _count(x: Output) -> int | Dim:
    return prod(x.shape)


def _is_filled(x: Output) -> bool:
    """Whether a tensor holds one number, again and again."""
    return _name(x.op) in _FILLED or (x.op.type in _RANKS and _count(x.op.inputs[0]) == 1)


def _begun(x: Output) -> Output:
    """What gave a tensor its shape."""
    while _name(x.op) in _CASTS | _NEW_AXIS and x.op.inputs and x.op.inputs[0].shape == x.shape:
        x = x.op.inputs[0]
    return x


def _origin(x: Output) -> Output:
    """What a tensor was made of, by operations of one operand and on each element."""
    for _ in range(_DEEPEST):
        inputs = [operand for operand in x.op.inputs if operand.op.type != "Const"]
        if len(inputs) != 1 or _count(inputs[0]) != _count(x):
            break
        (x,) = inputs
    return x


def _has_logarithm(x: Output) -> bool:
    """Whether a tensor is a logarithm, as far as its elements were made one by one."""
    size, stack, steps = _count(x), [x], 0
    while stack and steps < _DEEPEST:
        op, steps = stack.pop().op, steps + 1
        name = _name(op)
        if name in _LOGARITHMS:
            return True
        if name in _ELEMENT_BY_ELEMENT:
            stack += [operand for operand in op.inputs if _count(operand) == size]
    return False
