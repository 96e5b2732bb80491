"""Tensors with some elements changed: ``x.at[index].set(v)`` and the like, and TensorFlow's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    DType,
    DTypeError,
    Op,
    Operation,
    Output,
    Shape,
    ShapeError,
    ShapeLike,
    Tensor,
)
from stopgrad.ops.elementwise.arithmetic import add, divide, maximum, minimum, multiply, negative
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.elementwise.powers import pow
from stopgrad.ops.indexing.brackets import Choice, choice_of, take_index
from stopgrad.ops.indexing.gather import GatherV2, TensorScatterAdd
from stopgrad.ops.indexing.positions import as_indices, from_front, raveled
from stopgrad.ops.indexing.scatters import (
    TensorScatterMax,
    TensorScatterMin,
    TensorScatterMul,
    TensorScatterUpdate,
)
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.shapes.reshape import broadcast_to, reshape
from stopgrad.ops.structural.sources import ones_like, zeros

__all__ = [
    "at",
    "gather_nd",
    "scatter_nd",
    "tensor_scatter_nd_add",
    "tensor_scatter_nd_max",
    "tensor_scatter_nd_min",
    "tensor_scatter_nd_sub",
    "tensor_scatter_nd_update",
]


def like(updates: ArrayLike, x: ArrayLike, constraint: str) -> Any:
    """Updates in the dtype of the tensor that they go into; a dtype of a higher kind is refused."""
    target = d.type_of(x).dtype
    updates = updates.as_output() if isinstance(updates, Operation) else updates
    actual = d.type_of(updates).dtype
    if actual is target:
        return updates if isinstance(updates, Output) else d.as_array(updates, target)
    if _rank(actual) > _rank(target):
        raise DTypeError(
            f"({constraint}) updates of {actual} do not go into a tensor of {target} without loss; convert "
            "one with sg.cast"
        )
    return cast(d.as_array(updates) if d.is_python(updates) else updates, target)


def _rank(dtype: DType) -> int:
    """The kind of a dtype as a rank: booleans, integers, floating-point numbers, complex numbers."""
    return 0 if dtype.is_bool else 1 if dtype.is_integer else 3 if dtype.is_complex else 2


# ---------------------------------------------------------------------------------------------------- x.at


class At:
    """``x.at``: an index in brackets after it says which elements to change."""

    __slots__ = ("_x",)

    def __init__(self, x: ArrayLike) -> None:
        self._x = x

    def __getitem__(self, index: object) -> Updates:
        return Updates(self._x, index)

    def __repr__(self) -> str:
        return (
            "x.at: write x.at[index].set(v), add, subtract, multiply, divide, power, min, max, apply or get"
        )


class Updates:
    """``x.at[index]``: its methods return *x* with the elements at the index changed."""

    __slots__ = ("_index", "_x")

    def __init__(self, x: ArrayLike, index: object) -> None:
        self._x = x
        self._index = index

    def __repr__(self) -> str:
        return "x.at[index]: call set, add, subtract, multiply, divide, power, min, max, apply or get on it"

    @d.guarded("x.at[...].get")
    def get(self, name: str | None = None) -> Tensor:
        """The elements: ``x[index]``."""
        return take_index(self._x, self._index, name)

    @d.guarded("x.at[...].set")
    def set(self, values: ArrayLike, name: str | None = None) -> Tensor:
        """The tensor with *values* at the index; of several for one element the last remains."""
        return self._changed(values, TensorScatterUpdate, lambda old, new: new, name)

    @d.guarded("x.at[...].add")
    def add(self, values: ArrayLike, name: str | None = None) -> Tensor:
        """The tensor with *values* added; several for one element add up."""
        return self._changed(values, TensorScatterAdd, add, name)

    @d.guarded("x.at[...].subtract")
    def subtract(self, values: ArrayLike, name: str | None = None) -> Tensor:
        """The tensor with *values* subtracted; several for one element are all subtracted."""
        return self._changed(negative(like(values, self._x, "C1")), TensorScatterAdd, add, name)

    @d.guarded("x.at[...].multiply")
    def multiply(self, values: ArrayLike, name: str | None = None) -> Tensor:
        """The tensor multiplied by *values*; several for one element all multiply it."""
        return self._changed(values, TensorScatterMul, multiply, name)

    @d.guarded("x.at[...].divide")
    def divide(self, values: ArrayLike, name: str | None = None) -> Tensor:
        """The tensor divided by *values*; several for one element all divide it."""
        return divide(self._x, Updates(ones_like(self._x), self._index).multiply(values), name)

    @d.guarded("x.at[...].power")
    def power(self, values: ArrayLike, name: str | None = None) -> Tensor:
        """The tensor raised to the power of *values*; several for one element all apply, in turn."""
        return pow(self._x, Updates(ones_like(self._x), self._index).multiply(values), name)

    @d.guarded("x.at[...].min")
    def min(self, values: ArrayLike, name: str | None = None) -> Tensor:
        """The tensor with each element replaced by the smallest of it and its *values*."""
        return self._changed(values, TensorScatterMin, minimum, name)

    @d.guarded("x.at[...].max")
    def max(self, values: ArrayLike, name: str | None = None) -> Tensor:
        """The tensor with each element replaced by the largest of it and its *values*."""
        return self._changed(values, TensorScatterMax, maximum, name)

    @d.guarded("x.at[...].apply")
    def apply(self, function: Callable[[Any], Any], name: str | None = None) -> Tensor:
        """The tensor with *function* applied to the elements, once even where the index names one twice."""
        if not callable(function):
            raise ArgumentError(
                f"apply takes a function of the elements, not {function!r:.60}; set takes values"
            )
        return self.set(d.call(function, self.get()), name)

    def _changed(
        self, values: ArrayLike, scatter: type[Op], join: Callable[[Any, Any], Any], name: str | None
    ) -> Tensor:
        """The tensor with *values* joined to its elements: by *scatter*, or for a slice by *join*."""
        x = self._x
        with d.about(scatter, x):
            values = like(values, x, "C4")
        mask = _traced_mask(self._index)
        if mask is not None:
            return _where(mask, x, values, join, name)
        choice = choice_of(x, self._index)
        values = _fitted(values, choice)
        if choice.numbers is not None:
            return choice.join(scatter, x, values, name)
        if scatter is not TensorScatterUpdate:
            values = join(choice.take(x), values)
        return choice.put(x, values, name)


def _fitted(values: ArrayLike, choice: Choice) -> Any:
    """Values broadcast to the shape of the choice; surplus leading axes of size 1 are dropped."""
    actual, expected = d.type_of(values).shape, choice.shape
    if actual == expected:
        return values
    extra = len(actual) - len(expected)
    if extra > 0 and all(isinstance(n, int) and n == 1 for n in actual[:extra]):
        values, actual = reshape(values, actual[extra:]), actual[extra:]
    try:
        return broadcast_to(values, expected)
    except ShapeError:
        raise ShapeError(
            f"values of shape {d.show_shape(actual)} do not fit what the index chooses, of shape "
            f"{d.show_shape(expected)}"
        ) from None


def _traced_mask(index: object) -> Output | None:
    """The index, if it is a mask whose values are known only when the graph runs."""
    if isinstance(index, tuple) and len(index) == 1:
        (index,) = index
    index = index.as_output() if isinstance(index, Operation) else index
    return index if isinstance(index, Output) and index.dtype.is_bool else None


def _where(
    mask: Output, x: ArrayLike, values: ArrayLike, join: Callable[[Any, Any], Any], name: str | None
) -> Tensor:
    """An update at a traced mask: a choice between the old and the new value of each element.

    The values cannot be one for each element that the mask chooses, since their number depends on data.
    """
    kind, rest = d.type_of(x), d.type_of(x).shape[mask.ndim :]
    if not d.same_shape(mask.shape, kind.shape[: mask.ndim]) or d.type_of(values).ndim > len(rest):
        raise ShapeError(
            f"with a mask of shape {d.show_shape(mask.shape)} that is known only when the graph runs, on "
            f"{kind!r}, the values "
            f"must be a scalar, or broadcast to {d.show_shape(rest)}; sg.where(mask, values, x) takes one "
            "for each element"
        )
    mask = reshape(mask, (*mask.shape, *(1,) * len(rest)))
    return where(mask, join(x, broadcast_to(values, kind.shape)), x, name)


@d.guarded("at")
def at(x: ArrayLike) -> At:
    """``x.at`` for arrays as well as outputs: ``sg.at(x)[index].set(v)`` is *x* with v at the index.

    The index is any that brackets take. The methods are ``set``, ``add``, ``subtract``, ``multiply``,
    ``divide``, ``power``, ``min``, ``max`` and ``apply``, which return a new tensor, and ``get``, which
    returns the elements.

    Args:
        x: any tensor.

    Returns:
        An object to index. Values broadcast to the shape of what the index chooses, and are converted to x's
        dtype. Indices in tensors that lie outside of x change nothing. Of several values set for one element
        the last remains. A mask that is known only when the graph runs takes a scalar, or values that
        broadcast to the axes after those of the mask.

    Examples:
        >>> sg.at(np.zeros(4))[[1, -1]].set([1.0, 2.0])
        array([0., 1., 0., 2.])
        >>> sg.at(np.ones((2, 2)))[:, 0].multiply(3.0)
        array([[3., 1.],
               [3., 1.]])
    """
    return At(x if isinstance(x, Output) else x.as_output() if isinstance(x, Operation) else d.as_array(x))


# ------------------------------------------------------------------------------- by vectors of indices


def _policy(bad_indices_policy: str) -> None:
    if bad_indices_policy not in ("", "DEFAULT", "IGNORE"):
        raise ArgumentError(
            f"bad_indices_policy={bad_indices_policy!r}: indices outside of the tensor are ignored here; "
            "take '' or "
            "'IGNORE', and check indices before"
        )


def _read(indices: ArrayLike, shape: Shape, batch_dims: int = 0) -> tuple[Any, int]:
    """The row-major numbers of the elements that vectors of indices choose, and the vectors' length."""
    indices = as_indices(indices)
    kind = d.type_of(indices)
    d.check_dtype(kind, d.is_integer, "integers as indices")
    if not kind.ndim or not isinstance(kind.shape[-1], int):
        raise ShapeError(
            f"(C2) the last axis of the indices {kind!r} must have a known size: an index for each axis"
        )
    depth = kind.shape[-1]
    if depth + batch_dims > len(shape):
        raise ShapeError(
            f"(C2) {depth} indices for the {len(shape) - batch_dims} axes of {d.show_shape(shape)}"
        )
    if not depth:
        return zeros(kind.shape[:-1], "int32"), 0
    last = kind.ndim - 1
    parts = [reshape(part_of(indices, last, i, 1), kind.shape[:-1]) for i in np.arange(depth).tolist()]
    sizes = shape[batch_dims : batch_dims + depth]
    return (from_front(parts[0], sizes[0]) if depth == 1 else raveled(parts, sizes)), depth


@d.guarded("gather_nd")
def gather_nd(
    params: ArrayLike,
    indices: ArrayLike,
    batch_dims: int = 0,
    name: str | None = None,
    bad_indices_policy: str = "",
) -> Tensor:
    """Elements or slices of a tensor, chosen by vectors of indices.

    Args:
        params: any tensor.
        indices: integers; along the last axis, an index for each of params' first axes after batch_dims.
            Negative ones count from the axis's end.
        batch_dims: how many leading axes the two share.
        bad_indices_policy: '' or 'IGNORE': indices outside of the tensor give 0 and take no gradient.

    Returns:
        A tensor of shape indices.shape[:-1] + params.shape[batch_dims + indices.shape[-1]:].

    Constraints:
        (C1) The indices are integers.
        (C2) The last axis of the indices has a known size, no larger than the number of params' axes.
        (C3) params and indices agree in the sizes of batch_dims leading axes.

    Examples:
        >>> sg.gather_nd(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0, 1], [1, -2]]))
        array([2., 3.])
    """
    _policy(bad_indices_policy)
    kind, batch = d.type_of(params), d.whole(batch_dims)
    chosen = d.type_of(as_indices(indices)).shape
    if not 0 <= batch < max(len(chosen), 1) or not d.same_shape(kind.shape[:batch], chosen[:batch]):
        raise ShapeError(f"(C3) batch_dims={batch} for {kind!r} and indices of shape {d.show_shape(chosen)}")
    numbers, depth = _read(indices, kind.shape, batch)
    flat = (*kind.shape[:batch], d.product(kind.shape[batch : batch + depth]), *kind.shape[batch + depth :])
    return d.apply(GatherV2, (reshape(params, flat), numbers), (batch, batch), name)


def _scattered(
    definition: type[Op], tensor: ArrayLike, indices: ArrayLike, updates: ArrayLike, name: str | None
) -> Tensor:
    shape = d.type_of(tensor).shape
    numbers, depth = _read(indices, shape)
    with d.about(definition, tensor):
        updates = like(updates, tensor, "C3")
    expected = (*d.type_of(numbers).shape, *shape[depth:])
    if not d.same_shape(d.type_of(updates).shape, expected):
        raise ShapeError(
            f"(C4) the updates must have the shape {d.show_shape(expected)}, not {d.type_of(updates)!r}"
        )
    flat = reshape(tensor, (d.product(shape[:depth]), *shape[depth:]))
    return reshape(d.apply(definition, (flat, numbers, updates), (0, 0)), shape, name)


_DOCUMENTATION = """{what}.

Args:
    tensor: the tensor to begin with.
    indices: integers; along the last axis, an index for each of the tensor's first axes. Negative ones count
        from the axis's end; those outside of it are dropped.
    updates: {updates}; converted to the tensor's dtype.{policy}

Returns:
    The tensor.{several}

Constraints:
    (C1) The indices are integers.
    (C2) The last axis of the indices has a known size, no larger than the number of the tensor's axes.
    (C3) The updates' dtype is of no higher kind than the tensor's.
    (C4) The updates have the shape indices.shape[:-1] + tensor.shape[indices.shape[-1]:].

Examples:
    >>> sg.{function}(np.array([1.0, 2.0, 3.0]), np.array([[0], [2]]), np.array([5.0, -5.0]))
    {example}
"""


def _public(definition: type[Op], function_name: str, **parts: str) -> Callable[..., Tensor]:
    @d.guarded(function_name)
    def function(
        tensor: ArrayLike,
        indices: ArrayLike,
        updates: ArrayLike,
        bad_indices_policy: str = "",
        name: str | None = None,
    ) -> Tensor:
        _policy(bad_indices_policy)
        return _scattered(definition, tensor, indices, updates, name)

    function.__name__ = function.__qualname__ = function_name
    function.__doc__ = _DOCUMENTATION.format(function=function_name, policy=_POLICY, **parts)
    return function


_POLICY = "\n    bad_indices_policy: '' or 'IGNORE'."

tensor_scatter_nd_add: Callable[..., Tensor] = _public(
    TensorScatterAdd,
    "tensor_scatter_nd_add",
    what="A tensor with updates added to elements or slices that vectors of indices choose",
    updates="what to add",
    several=" Updates of one place add up.",
    example="array([ 6.,  2., -2.])",
)
tensor_scatter_nd_min: Callable[..., Tensor] = _public(
    TensorScatterMin,
    "tensor_scatter_nd_min",
    what="A tensor with the smallest of each element that vectors of indices choose and its updates",
    updates="what to compare with the elements there",
    several=" Values that tie share the gradient evenly.",
    example="array([ 1.,  2., -5.])",
)
tensor_scatter_nd_max: Callable[..., Tensor] = _public(
    TensorScatterMax,
    "tensor_scatter_nd_max",
    what="A tensor with the largest of each element that vectors of indices choose and its updates",
    updates="what to compare with the elements there",
    several=" Values that tie share the gradient evenly.",
    example="array([5., 2., 3.])",
)


@d.guarded("tensor_scatter_nd_sub")
def tensor_scatter_nd_sub(
    tensor: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> Tensor:
    _policy(bad_indices_policy)
    with d.about(TensorScatterAdd, tensor):
        updates = like(updates, tensor, "C3")
    return _scattered(TensorScatterAdd, tensor, indices, negative(updates), name)


tensor_scatter_nd_sub.__doc__ = _DOCUMENTATION.format(
    function="tensor_scatter_nd_sub",
    policy=_POLICY,
    what="A tensor with updates subtracted from elements or slices that vectors of indices choose",
    updates="what to subtract",
    several=" Updates of one place add up.",
    example="array([-4.,  2.,  8.])",
)


@d.guarded("tensor_scatter_nd_update")
def tensor_scatter_nd_update(
    tensor: ArrayLike, indices: ArrayLike, updates: ArrayLike, name: str | None = None
) -> Tensor:
    return _scattered(TensorScatterUpdate, tensor, indices, updates, name)


tensor_scatter_nd_update.__doc__ = _DOCUMENTATION.format(
    function="tensor_scatter_nd_update",
    policy="",
    what="A tensor with the elements or slices that vectors of indices choose replaced",
    updates="the new elements or slices",
    several=" Of several updates to one place the last remains, and only that one gets a gradient.",
    example="array([ 5.,  2., -5.])",
)


@d.guarded("scatter_nd")
def scatter_nd(
    indices: ArrayLike,
    updates: ArrayLike,
    shape: ShapeLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> Tensor:
    """Zeros, with updates added to elements or slices that vectors of indices choose.

    Args:
        indices: integers; along the last axis, an index for each of the first axes. Negative ones count from
            the axis's end; those outside of it are dropped.
        updates: the elements or slices to add; updates of one place add up.
        shape: of the result.
        bad_indices_policy: '' or 'IGNORE'.

    Returns:
        A tensor of that shape, and of the updates' dtype.

    Constraints:
        (C1) The indices are integers.
        (C2) The last axis of the indices has a known size, no larger than the number of sizes in shape.
        (C3) The updates are numbers.
        (C4) The updates have the shape indices.shape[:-1] + shape[indices.shape[-1]:].

    Examples:
        >>> sg.scatter_nd(np.array([[0], [2], [0]]), np.array([1.0, 2.0, 3.0]), [4])
        array([4., 0., 2., 0.])
    """
    _policy(bad_indices_policy)
    tensor = zeros(d.shape_of(shape), d.type_of(updates).dtype)
    return _scattered(TensorScatterAdd, tensor, indices, updates, name)
