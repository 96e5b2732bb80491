"""Running results of any associative function, in logarithmically many steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stopgrad.base.structure import Spec
from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, ShapeError, Tensor
from stopgrad.ops.composing import tensor
from stopgrad.ops.indexing.slices import StridedSlice, part_of
from stopgrad.ops.shapes.join import concat, reverse as turned, stack
from stopgrad.ops.shapes.reshape import reshape

__all__ = [
    "associative_scan",
]


@d.guarded("associative_scan")
def associative_scan(
    fn: Callable[[Any, Any], Any], elems: object, reverse: bool = False, axis: int = 0
) -> Any:
    """The running results of an associative function along an axis: x₀, fn(x₀, x₁), fn(fn(x₀, x₁), x₂), …

    It takes about 2 log₂ n calls of the function, each for many elements at once, instead of n.

    Args:
        fn: a function of two structures like elems that returns a third. It must be associative, and treat
            each place along the axis by itself, as elementwise functions and products of stacked matrices do.
        elems: a tensor, or a nested structure of tensors with one size along the axis.
        reverse: whether to run from the end.
        axis: the axis along which to run.

    Returns:
        The running results, in the structure of elems.

    Constraints:
        (C1) There is at least one tensor, and the axis exists in each.
        (C2) The tensors have one size along the axis, known when the graph is built.
        (C3) fn returns a structure like elems, of the same sizes.

    References:
        G. Blelloch 1990, "Prefix sums and their applications".

    Examples:
        >>> sg.associative_scan(lambda a, b: a * b, np.array([1.0, 2.0, 3.0, 4.0]))
        array([ 1.,  2.,  6., 24.])
    """
    leaves, spec = d.flatten(elems)
    if not leaves or not callable(fn):
        raise ArgumentError(
            f"(C1) takes a function and at least one tensor, not {fn!r:.60} and {len(leaves)}"
        )
    leaves = [tensor(x) for x in leaves]
    axes = [d.normal_axis(axis, d.type_of(x).ndim, "C1") for x in leaves]
    sizes = [d.type_of(x).shape[a] for x, a in zip(leaves, axes, strict=True)]
    size = sizes[0]
    if not isinstance(size, int) or any(not d.same_size(n, size) for n in sizes):
        raise ShapeError(f"(C2) the sizes along the axis must be one number, not {sizes}")
    back = d.flag(reverse, "reverse")
    rows = [turned(x, [a]) for x, a in zip(leaves, axes, strict=True)] if back else leaves
    both = lambda low, high: _combined(fn, spec, low, high)
    scanned = _scanned(both, rows, axes, size)
    if back:
        scanned = [turned(x, [a]) for x, a in zip(scanned, axes, strict=True)]
    return d.unflatten(spec, scanned)


def _combined(fn: Callable[[Any, Any], Any], spec: Spec, low: list[Any], high: list[Any]) -> list[Any]:
    ys, shape = d.flatten(d.call(fn, d.unflatten(spec, low), d.unflatten(spec, high)))
    if shape != spec or any(d.type_of(a).shape != d.type_of(b).shape for a, b in zip(ys, low, strict=True)):
        raise ShapeError("(C3) fn must return a structure like its arguments, of the same sizes")
    return ys


def _scanned(
    both: Callable[[list[Any], list[Any]], list[Any]], rows: list[Any], axes: list[int], size: int
) -> list[Any]:
    """The running results: first for pairs of neighbours, and from these for all elements."""
    levels = []
    while size > 1:
        levels.append((rows, size))
        pairs = size // 2
        rows = both(_every_second(rows, axes, 0, pairs), _every_second(rows, axes, 1, pairs))
        size = pairs
    for whole, count in reversed(levels):
        odd = rows  # The results at positions 1, 3, 5, …
        inner = (count - 1) // 2
        first = [part_of(x, a, 0, 1) for x, a in zip(whole, axes, strict=True)]
        if inner:
            before = [part_of(x, a, 0, inner) for x, a in zip(odd, axes, strict=True)]
            even = both(before, _every_second(whole, axes, 2, inner))
            even = [concat([x, y], a) for x, y, a in zip(first, even, axes, strict=True)]
        else:
            even = first
        rows = [_alternating(x, y, a, count) for x, y, a in zip(even, odd, axes, strict=True)]
    return rows


def _every_second(rows: list[Any], axes: list[int], start: int, count: int) -> list[Any]:
    slices = []
    for x, axis in zip(rows, axes, strict=True):
        spans = tuple((start, count, 2) if i == axis else (0, n, 1) for i, n in enumerate(d.type_of(x).shape))
        slices.append(d.apply(StridedSlice, (x,), (spans,)))
    return slices


def _alternating(even: ArrayLike, odd: ArrayLike, axis: int, count: int) -> Tensor:
    """*count* elements, taken alternately from two tensors."""
    pairs = count // 2
    shape = d.type_of(odd).shape
    mixed = reshape(
        stack([part_of(even, axis, 0, pairs), odd], axis + 1), (*shape[:axis], 2 * pairs, *shape[axis + 1 :])
    )
    return concat([mixed, part_of(even, axis, pairs, 1)], axis) if count % 2 else mixed
