"""Set functions, and others whose results have shapes that depend on data.

For arrays the shapes are known at once; for outputs, ``size=`` is the number of elements of the result.
"""

from __future__ import annotations

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, Tensor
from stopgrad.ops.indexing.masks import nonzero as nonzero
from stopgrad.ops.order.bins import searchsorted as _searchsorted
from stopgrad.ops.order.sets import (
    isin as isin,
    unique_all as unique_all,
    unique_counts as unique_counts,
    unique_inverse as unique_inverse,
    unique_values as unique_values,
)
from stopgrad.ops.shapes.moving import take as _take
from stopgrad.ops.xp.support import standard

__all__ = [
    "isin",
    "nonzero",
    "searchsorted",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


@standard
def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, side: str = "left", sorter: ArrayLike | None = None
) -> Tensor:
    """The positions at which numbers fit into a sorted vector: :func:`stopgrad.searchsorted`.

    Args:
        x1: a vector, in ascending order.
        x2: numbers of any shape.
        side: "left" for the position before elements equal to a number, "right" for the one after them.
        sorter: indices that sort *x1*, if it is not sorted.

    Returns:
        The positions, as int64, in x2's shape.

    Examples:
        >>> sg.xp.searchsorted(np.array([1.0, 2.0]), np.array([1.5, 9.0]))
        array([1, 2])
    """
    ordered = x1 if sorter is None else _take(x1, sorter)
    return _searchsorted(ordered, x2, side, d.int64)
