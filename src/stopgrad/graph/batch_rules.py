"""How operations are batched: the rules that definitions name in ``batch``.

A rule builds what an operation computes for each example, from operands some of which hold many examples
along their first axis. It gets the operation for one example, whose types and attributes it reads; the
operands here; which of them are batched; and the number of examples. It returns the outputs, all batched; or
:class:`Partly` if some are not; or None if it does not apply. Then, and without a rule, the operation runs in
a loop over the examples.

Most operations belong to a family: :func:`ELEMENTWISE`, :func:`ALONG` (axes are one further),
:func:`FOLD` (the examples join the first axis). :mod:`stopgrad.graph.batched_bodies` batches whole functions.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stopgrad.base.types import Size, product
from stopgrad.graph.build import constant_in, emit, graph_for
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.kinds import Kind
from stopgrad.graph.op import REGISTRY

Outputs = Sequence[Output]
Flags = Sequence[bool]


class Partly(NamedTuple):
    """What a rule returns if only some of the outputs are batched."""

    outputs: Outputs
    batched: Flags


Rule = Callable[[Operation, Outputs, Flags, Size], "Outputs | Partly | None"]


# ------------------------------------------------------------------------------------- building blocks


def again(op: Operation, inputs: Sequence[Output], values: tuple[Any, ...] | None = None) -> Outputs:
    """The operation on other operands, with the same name."""
    label = op._label
    name = "" if not label or label[-1] == "/" else label
    return emit(op.definition, tuple(inputs), op.values if values is None else values, name).outputs


def build(type: str, *inputs: Output, values: tuple[Any, ...] = ()) -> Output:
    """Build an operation of a type, and return its output."""
    return emit(REGISTRY[type], inputs, values, "").outputs[0]


def reshaped(x: Output, shape: Sequence[Size]) -> Output:
    return x if x.shape == tuple(shape) else build("Reshape", x, values=(tuple(shape),))


def transposed(x: Output, perm: Sequence[int]) -> Output:
    return x if list(perm) == list(range(x.ndim)) else build("Transpose", x, values=(tuple(perm),))


def moved(x: Output, source: int, target: int) -> Output:
    """*x* with one axis moved to another position."""
    order = [i for i in range(x.ndim) if i != source]
    order.insert(target, source)
    return transposed(x, order)


def repeated(x: Output, size: Size) -> Output:
    """An unbatched tensor, repeated for each example."""
    return build("BroadcastTo", x, values=((size, *x.shape),))


def everywhere(operands: Outputs, batched: Flags, size: Size) -> list[Output]:
    """The operands, with those that are not batched repeated for each example."""
    return [x if b else repeated(x, size) for x, b in zip(operands, batched, strict=True)]


def widened(x: Output, rank: int) -> Output:
    """A batched tensor with axes of size 1 behind the first, so that each example has *rank* axes."""
    missing = rank - (x.ndim - 1)
    return x if missing <= 0 else reshaped(x, (x.shape[0], *(1,) * missing, *x.shape[1:]))


def lengthened(x: Output, rank: int) -> Output:
    """A tensor with axes of size 1 appended, so that it has *rank* axes."""
    return reshaped(x, (*x.shape, *(1,) * (rank - x.ndim)))


def changed(op: Operation, **values: object) -> tuple[Any, ...]:
    """The operation's attributes, some of them replaced."""
    return tuple([values.get(n, v) for n, v in zip(op.definition.attributes, op.values, strict=True)])


def shifted(op: Operation, size: Size, **fronts: Callable[[Size], object]) -> tuple[Any, ...]:
    """The operation's attributes with one more axis in front.

    Their kinds say what they mean. For tuples with an entry for each axis, *fronts* give the entry in front.
    """
    values = []
    for (name, kind), value in zip(op.definition.kinds.items(), op.values, strict=True):
        if kind is Kind.AXIS:
            value = value + 1
        elif kind is Kind.AXES:
            value = tuple([a + 1 for a in value])
        elif kind is Kind.PERMUTATION:
            value = (0, *[a + 1 for a in value])
        elif kind is Kind.SHAPE:
            value = (size, *value)
        elif name in fronts:
            value = (fronts[name](size), *value)
        values.append(value)
    return tuple(values)


# -------------------------------------------------------------------------------------------- families


def ELEMENTWISE(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """Operands that broadcast: so do the examples."""
    rank = op.outputs[0].ndim
    return again(op, [widened(x, rank) if b else x for x, b in zip(operands, batched, strict=True)])


# Definitions read this from their rule: see the trait.
ELEMENTWISE.elementwise = True  # type: ignore[attr-defined]


def ALONG(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """All operands are batched, and axes in attributes are one further."""
    return again(op, everywhere(operands, batched, size), shifted(op, size))


def along(**fronts: Callable[[Size], Any]) -> Rule:
    """:func:`ALONG` for attributes with an entry for each axis: the entries for the axis of examples."""

    def rule(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:
        return again(op, everywhere(operands, batched, size), shifted(op, size, **fronts))

    return rule


def FOLD(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """The entries along the operands' first axis are independent: the examples join that axis."""
    return _folded(op, everywhere(operands, batched, size), range(len(operands)), size)


def _folded(op: Operation, operands: Outputs, which: Sequence[int], size: Size) -> Outputs:
    """The examples join the first axis of some operands, and that of the outputs."""
    inputs = [
        reshaped(x, (x.shape[0] * x.shape[1], *x.shape[2:])) if i in which else x
        for i, x in enumerate(operands)
    ]
    values = tuple(
        [
            (size * v[0], *v[1:]) if kind is Kind.SHAPE else v
            for kind, v in zip(op.definition.kinds.values(), op.values, strict=True)
        ]
    )
    folded = again(op, inputs, values)
    return [reshaped(y, (size, *original.shape)) for y, original in zip(folded, op.outputs, strict=True)]


# ------------------------------------------------------------------------------------ shapes and parts


def BROADCAST(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """One operand, which is broadcast to a shape."""
    return [build("BroadcastTo", widened(operands[0], op.outputs[0].ndim), values=((size, *op.shape),))]


def PAD(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """Padding. If its value differs from example to example, it is put in afterwards."""
    x, value = operands
    here = batched[0]
    paddings = ((0, 0), *op.paddings) if here else op.paddings
    if not batched[1]:
        return again(op, (x, value), (paddings,))
    pad = REGISTRY["PadV2"]
    zero = scalar_beside(x, 0, x.dtype.numpy)
    around = emit(pad, (x, zero), (paddings,), "").outputs[0]
    inside = build("Fill", scalar_beside(x, True, bool), values=(op.inputs[0].shape,))
    inside = emit(pad, (inside, scalar_beside(x, False, bool)), (op.paddings,), "").outputs[0]
    return [build("SelectV2", inside, around, widened(value, op.outputs[0].ndim))]


def scalar_beside(x: Output, value: complex, dtype: npt.DTypeLike) -> Output:
    """A scalar constant in the graph in which operations on *x* are built."""
    return constant_in(graph_for(x), np.asarray(value, dtype))


def ONE_HOT(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """Batched indices move the axis; batched values are chosen afterwards."""
    indices, on, off = operands
    axis = op.axis + 1 if batched[0] else op.axis
    if not (batched[1] or batched[2]):
        return again(op, operands, changed(op, axis=axis))
    hits = emit(
        op.definition,
        (indices, scalar_beside(on, True, bool), scalar_beside(on, False, bool)),
        changed(op, axis=axis),
        "",
    ).outputs[0]
    rank = op.outputs[0].ndim
    on, off = (widened(x, rank) if b else x for x, b in ((on, batched[1]), (off, batched[2])))
    return [build("SelectV2", hits, on, off)]


def GATHER(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """Indices that all examples share move the axis; batched ones select within their example."""
    params, indices = operands
    if not op.batch_dims and not batched[1]:
        return again(op, operands, changed(op, axis=op.axis + 1))
    if not op.batch_dims and not batched[0]:
        return [moved(again(op, operands)[0], op.axis, 0)]
    both = everywhere((params, indices), batched, size)
    return again(op, both, (op.axis + 1, op.batch_dims + 1))


def SCATTER(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """Like :func:`GATHER`, of which it is the transpose."""
    x, indices, updates = operands
    if not op.batch_dims and not batched[1]:
        x, updates = everywhere((x, updates), (batched[0], batched[2]), size)
        return again(op, (x, indices, updates), changed(op, axis=op.axis + 1))
    return again(op, everywhere(operands, batched, size), (op.axis + 1, op.batch_dims + 1))


# -------------------------------------------------------------------------------------------- products


def MATMUL(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """If all examples share a matrix, they join the rows of one product."""
    a, b = operands
    ta, tb = op.transpose_a, op.transpose_b
    if batched[0] and not batched[1] and b.ndim == 2:
        return [_rows_times(_last_swapped(a) if ta else a, b, tb, op)]
    if batched[1] and not batched[0] and a.ndim == 2:
        return [_last_swapped(_rows_times(b if tb else _last_swapped(b), a, not ta, op))]
    rank = op.outputs[0].ndim
    a, b = (widened(x, rank) if there else x for x, there in zip((a, b), batched, strict=True))
    if a.shape[-2 if ta else -1] == 1 and b.shape[-1 if tb else -2] == 1:  # an outer product
        return [build("Mul", _last_swapped(a) if ta else a, _last_swapped(b) if tb else b)]
    return again(op, (a, b))


def _rows_times(rows: Output, matrix: Output, transpose: bool, op: Operation) -> Output:
    """[..., m, k] times one matrix, as a product of two matrices."""
    flat = reshaped(rows, (product(rows.shape[:-1]), rows.shape[-1]))
    result = again(op, (flat, matrix), (False, transpose))[0]
    return reshaped(result, (*rows.shape[:-1], result.shape[-1]))


def _last_swapped(x: Output) -> Output:
    """The last two axes exchanged."""
    if 1 in x.shape[-2:]:
        return reshaped(x, (*x.shape[:-2], x.shape[-1], x.shape[-2]))
    return transposed(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def SOLVE(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """If all examples share the matrix, they join the columns of the right-hand side."""
    matrix, rhs = operands
    if not batched[0]:
        last = rhs.ndim - 2
        columns = moved(rhs, 0, last)
        flat = reshaped(columns, (*columns.shape[:last], size * columns.shape[-1]))
        y = again(op, (matrix, flat))[0]
        return [moved(reshaped(y, (*y.shape[:-1], *columns.shape[last:])), y.ndim - 1, 0)]
    rank = op.outputs[0].ndim
    return again(
        op, [widened(x, rank) if is_batched else x for x, is_batched in zip(operands, batched, strict=True)]
    )


def EINSUM(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """The equation gets one more letter, for the examples."""
    left, _, right = op.equation.partition("->")
    letter = next(c for c in string.ascii_letters if c not in op.equation)
    terms = [letter + term if b else term for term, b in zip(left.split(","), batched, strict=True)]
    return again(op, operands, (f"{','.join(terms)}->{letter}{right}",))


# --------------------------------------------------------------------------------------- convolutions


def CONV(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs | None:  # noqa: N802
    """If all examples share the filters, they join the batch; else each example is a group of channels."""
    x, filters = operands
    if not batched[1]:
        return _folded(op, operands, (0,), size)
    if not batched[0] and op.groups == 1:
        return [_from_channels(again(op, (x, _channels(filters)))[0], size)]
    return _by_channels(op, operands, batched, size)


def CONV_BACK_INPUT(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs | None:  # noqa: N802
    """Like :func:`CONV`, with filters and cotangents as operands."""
    if not batched[0]:
        return _folded(op, operands, (1,), size)
    return _by_channels(op, operands, batched, size)


def CONV_BACK_FILTER(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs | None:  # noqa: N802
    """Like :func:`CONV`, but examples never join the batch, over which it sums."""
    x, g = operands
    if not batched[0] and op.groups == 1:
        values = changed(op, shape=(*op.shape[:-1], size * op.shape[-1]))
        return [_from_channels(again(op, (x, _channels(g)), values)[0], size)]
    return _by_channels(op, operands, batched, size)


def _by_channels(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs | None:
    """Each example becomes one group of channels, or several. The number of examples must be known."""
    if not isinstance(size, int):
        return None
    values: dict[str, Any] = {"groups": op.groups * size}
    if "shape" in op.definition.attributes:
        values["shape"] = (*op.shape[:-1], size * op.shape[-1])
    inputs = [_channels(x) for x in everywhere(operands, batched, size)]
    return [_from_channels(again(op, inputs, changed(op, **values))[0], size)]


def _channels(x: Output) -> Output:
    """[examples, ..., channels] as [..., examples · channels]."""
    last = moved(x, 0, x.ndim - 2)
    return reshaped(last, (*last.shape[:-2], last.shape[-2] * last.shape[-1]))


def _from_channels(y: Output, size: Size) -> Output:
    """[..., examples · channels] as [examples, ..., channels]."""
    channels = y.shape[-1] // size if size != 0 else 0
    return moved(reshaped(y, (*y.shape[:-1], size, channels)), y.ndim - 1, 0)


# ------------------------------------------------------------------------------------- gates and keys


def NAMES(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Partly:  # noqa: N802
    """A gate that does not use the values of the tensors behind its first operand."""
    return Partly(again(op, operands), batched[:1])


def SWITCH(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """A gate with an operand, a scalar condition, and then tensors that it only names."""
    both = everywhere(operands[:2], batched[:2], size)
    return again(op, (*both, *operands[2:]))


def KEYS(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Outputs:  # noqa: N802
    """A random draw, with a key for each example."""
    return again(op, everywhere(operands, batched, size))
