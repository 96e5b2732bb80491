"""Slices with steps, and indexing with brackets."""

from __future__ import annotations

from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Dim,
    Namespace,
    Op,
    Output,
    Shape,
    ShapeError,
    ShapeLike,
    Size,
    Span,
    Spans,
    Tensor,
    TensorType,
)

__all__: list[str] = []


def slices_of(spans: Spans) -> tuple[slice, ...]:
    """Python's slices for spans."""
    return tuple(_slice(*span) for span in spans)


def _slice(start: int, size: int, step: int) -> slice:
    if size == 0:
        return slice(0, 0)
    stop = start + (size - 1) * step + (1 if step > 0 else -1)
    return slice(start, stop if stop >= 0 else None, step)


def check_spans(spans: Spans, x: TensorType) -> None:
    """Raise ShapeError unless there is one span for each axis (C1) and all lie in x (C2)."""
    if len(spans) != x.ndim:
        raise ShapeError(f"(C1) {len(spans)} slices for {x.ndim} axes")
    for axis, ((start, count, step), size) in enumerate(zip(spans, x.shape, strict=True)):
        if all(isinstance(n, int) for n in (start, count, size)) and count:
            last = start + (count - 1) * step
            if not (0 <= start < size and 0 <= last < size):
                raise ShapeError(
                    f"(C2) elements {start} to {last} do not all lie in axis {axis}, of size {size}"
                )


class StridedSlice(Op):
    """Elements at regular distances along each axis; the operation behind ``x[a:b:c]``.

    Args:
        x: any tensor.
        spans: for each axis the first element, the number of elements and the step.

    Returns:
        These elements.

    Constraints:
        (C1) There is one span for each axis of x.
        (C2) All the elements lie in x.
        (C3) The function's bounds and indices are whole numbers, sizes, and arrays of integers or booleans,
            and its steps are numbers other than 0.
    """

    @staticmethod
    def infer(x: TensorType, *, spans: Spans) -> TensorType:
        check_spans(spans, x)
        return d.tensor_type(x.dtype, tuple(size for _, size, _ in spans))

    gradient: d.Gradient = {"x": lambda g, op: d.apply(StridedSliceGrad, (g,), (op.x.shape, op.spans))}
    batch = d.along(spans=lambda size: (0, size, 1))
    moves = ("x",)
    lower: d.Lowering = lambda xp, x, spans: x[slices_of(spans)]
    samples: d.Samples = [
        d.sample(d.floats(5, 3), spans=((1, 2, 2), (2, 3, -1))),
        d.sample(d.floats(4), spans=((0, 0, 1),)),
    ]


class StridedSliceGrad(Op):
    """The gradient of a slice: zeros, with the cotangent where the elements were taken.

    Args:
        g: the cotangent.
        shape: of the tensor that was sliced.
        spans: what was taken of it.

    Returns:
        A tensor of that shape.

    Constraints:
        (C1) The cotangent has the slice's shape.

    Examples:
        >>> sg.ops.StridedSliceGrad.function(np.ones(2), (4,), ((1, 2, 2),))
        array([0., 1., 0., 1.])
    """

    @staticmethod
    def infer(g: TensorType, *, shape: Shape, spans: Spans) -> TensorType:
        d.check_shape(g, tuple(size for _, size, _ in spans), "the cotangent", "C1", of="the slice")
        return d.tensor_type(g.dtype, shape)

    gradient: d.Gradient = {"g": lambda g, op: d.apply(StridedSlice, (g,), (op.spans,))}

    batch = d.along(spans=lambda size: (0, size, 1))
    moves = ("g",)
    pads = True

    @staticmethod
    def lower(xp: Namespace, g: Array, shape: tuple[int, ...], spans: Spans) -> Array:
        full = xp.zeros(shape, g.dtype)
        full[slices_of(spans)] = g
        return full

    @staticmethod
    def xla(xp: Namespace, g: Array, shape: tuple[int, ...], spans: Spans) -> Array:
        # A pad with gaps between the elements: XLA fuses it, where a scatter would be a loop.
        flipped = [i for i, (_, _, step) in enumerate(spans) if step < 0]
        g = xp.flip(g, flipped) if flipped else g
        padding = []
        for total, (start, size, step) in zip(shape, spans, strict=True):
            low = start if step > 0 else start + (size - 1) * step
            reach = (size - 1) * abs(step) + 1 if size else 0
            padding.append((low, total - low - reach, abs(step) - 1) if size else (0, total, 0))
        return xp.lax.pad(g, xp.zeros((), g.dtype), padding)

    samples: d.Samples = [
        d.sample(d.floats(2, 3), shape=(5, 3), spans=((1, 2, 2), (2, 3, -1))),
        d.sample(d.floats(0), shape=(4,), spans=((0, 0, 1),)),
    ]


@d.builds(StridedSliceGrad)
def strided_slice_grad(g: ArrayLike, shape: ShapeLike, spans: Spans, name: str | None = None) -> Tensor:
    return d.apply(StridedSliceGrad, (g,), (d.shape_of(shape), spans), name)


def part_of(x: ArrayLike, axis: int, start: Size, size: Size) -> Tensor:
    """*size* elements from *start* along an axis."""
    spans = tuple((start, size, 1) if i == axis else (0, s, 1) for i, s in enumerate(d.type_of(x).shape))
    return d.apply(StridedSlice, (x,), (spans,))


def span_of(index: slice, size: Size) -> Span:
    """The span of a Python slice along an axis of this size, which may be symbolic."""
    for bound in (index.start, index.stop, index.step):
        if bound is None or (isinstance(bound, Dim) and bound is not index.step):
            continue
        if isinstance(bound, Dim) or not d.is_whole(bound):
            hint = "sg.dynamic_slice starts where a tensor says" if isinstance(bound, Output) else ""
            raise ShapeError(
                f"(C3) {bound!r} bounds no slice; take whole numbers and sizes, and for the step a number"
                f"{hint and '; '}{hint}"
            )
    index = slice(
        *[b if b is None or isinstance(b, Dim) else d.whole(b) for b in (index.start, index.stop, index.step)]
    )
    step = 1 if index.step is None else index.step
    if step == 0:
        raise ShapeError("(C3) a slice's step cannot be 0")
    if isinstance(size, int) and not isinstance(index.start, Dim) and not isinstance(index.stop, Dim):
        start, stop, step = slice(index.start, index.stop, step).indices(size)
        return start, len(range(start, stop, step)), step
    stop = _bound(index.stop, size, step)
    if step > 0:
        # A start beyond the end leaves no elements, so it need not be clipped.
        start = (
            0
            if index.start is None
            else index.start
            if not isinstance(index.start, int) or index.start >= 0
            else _bound(index.start, size, step)
        )
        reach = (size if stop is None else stop) - start
    else:
        start = size - 1 if index.start is None else _bound(index.start, size, step)
        reach = start - (-1 if stop is None else stop)
    return start, (d.at_least(reach, 0) + (abs(step) - 1)) // abs(step), step


def _bound(bound: Size | None, size: Size, step: int) -> Any:
    """A slice's bound, counted from the front and clipped to the end; None for the default."""
    if bound is None:
        return None
    if isinstance(bound, int) and bound < 0:
        return d.at_least(size + bound, 0 if step > 0 else -1)
    end = size if step > 0 else size - 1
    return end - d.at_least(end - bound, 0)


def position_in(part: Size, size: Size) -> Size:
    """An index along an axis of this size, counted from the front."""
    position = part
    if isinstance(position, int) and position < 0:
        position = size + position
    if isinstance(position, int) and isinstance(size, int) and not 0 <= position < size:
        raise ShapeError(f"(C2) index {part} is out of range for an axis of size {size}")
    return position
