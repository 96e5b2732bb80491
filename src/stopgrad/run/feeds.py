"""Fed values: their conversion to what placeholders take, and the named sizes that they determine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.errors import FeedError, ShapeError
from stopgrad.base.trees import tree_leaves
from stopgrad.base.types import FRESH, Size, TensorType, bind_sizes, size_value
from stopgrad.engines import Engine
from stopgrad.graph.graph import Output, describe
from stopgrad.graph.operands import show_shape
from stopgrad.ops.structural.sharding import declared_sharding


def feed_value(x: Output, value: Any, engine: Engine) -> Array:
    """A fed value as an array of x's dtype.

    Numbers are converted within their kind, as in TensorFlow. On a mesh, *value* is this process's own part.
    """
    expected = x.type
    if (
        type(value) is np.ndarray
        and value.dtype == expected.dtype.numpy
        and value.shape == expected.shape
        and engine.mesh is None
    ):
        return value  # As in most runs.
    if not (engine.is_native(value) and value.dtype == expected.dtype.numpy):
        value = _as_numpy(x, value)  # Other libraries convert fewer objects than NumPy, by other rules.
    if value.dtype != expected.dtype.numpy:
        if value.dtype.kind in "OUSMm":
            raise FeedError(f"{describe(x)} was fed {value!r:.60}, which is no array of numbers")
        if not _may_become(value, expected):
            raise FeedError(
                f"{describe(x)} was fed {_kind(value)}, which is not converted to {expected.dtype} silently; "
                "convert it first"
            )
        with np.errstate(all="ignore"):
            value = value.astype(expected.dtype.numpy)
    part = value.shape
    if engine.mesh is not None:
        value = _placed(x, value, engine)
    shape = value.shape
    if shape != expected.shape and (
        len(shape) != expected.ndim
        or any(isinstance(s, int) and s != n for s, n in zip(expected.shape, shape, strict=True))
    ):
        raise FeedError(
            f"{describe(x)} was fed {_fed(part, shape, expected.shape)}; "
            f"it takes {show_shape(expected.shape)}"
        )
    return value


def _placed(x: Output, value: Array, engine: Engine) -> Array:
    """The whole of a fed value, made of the parts of all processes."""
    spec = declared_sharding(x)
    if len(value.shape) != x.ndim:
        return value  # The caller refuses its shape.
    try:
        return engine.place(value, spec)
    except ShapeError as error:
        raise FeedError(f"{describe(x)} was fed a value that does not fit: {error.message}") from None


def _as_numpy(x: Output, value: object) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ma.MaskedArray):
        raise FeedError(
            f"{describe(x)} was fed a masked array; "
            "fill it first, with value.filled(0.0), and feed its mask by itself"
        )
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # A RuntimeError: JAX's array was deleted.
        raise FeedError(f"{describe(x)} was fed {_no_array(value, error)}") from None


def _no_array(value: object, error: Exception) -> str:
    """What was fed in the place of an array, for errors."""
    tensor = next((part for part in tree_leaves(value) if isinstance(part, Output)), None)
    if tensor is not None:
        return (
            f"{describe(tensor)}, which has no value until its graph runs; feed an array: make it outside of "
            "the graph, or feed what Session.run gives for that tensor; or use the tensor itself in the graph"
        )
    why = "its parts differ in length" if "inhomogeneous" in str(error) else error
    return f"a value that is no array: {why}"


def _fed(part: tuple[int, ...], whole: tuple[int, ...], expected: tuple[Size, ...]) -> str:
    """A fed shape, for errors; of a process's own part, also the shape that it should have."""
    if part == whole:
        return f"a value of shape {show_shape(whole)}"
    own = [
        size * mine // all if isinstance(size, int) and all else size
        for size, mine, all in zip(expected, part, whole, strict=True)
    ]
    return (
        f"{show_shape(part)} by this process, whose own part is to be {show_shape(own)}; with those of the "
        f"others it is a value of shape {show_shape(whole)}"
    )


def _may_become(value: np.ndarray[Any, Any], expected: TensorType) -> bool:
    if value.size == 0 and value.dtype == np.float64:
        return True  # An empty list has no dtype of its own.
    if expected.dtype.is_integer and value.dtype.kind in "iu":
        limits = np.iinfo(expected.dtype.numpy)
        return value.size == 0 or bool(limits.min <= value.min() and value.max() <= limits.max)
    if value.dtype.kind == "b":
        return expected.dtype.is_bool
    if expected.dtype.name == "bfloat16":
        return value.dtype.kind in "iuf"
    return np.can_cast(value.dtype, expected.dtype.numpy, "same_kind")


def _kind(value: np.ndarray[Any, Any]) -> str:
    span = f" from {value.min()} to {value.max()}" if value.dtype.kind in "iu" and value.size else ""
    return f"{value.dtype}{show_shape(value.shape)}{span}"


def sizes_of(
    feeds: Sequence[Output],
    shapes: Sequence[tuple[int, ...]],
    feed_text: Callable[[Output], str] = lambda x: f"{describe(x)} was fed a value",
    others: str = "feeds",
) -> dict[str, int]:
    """The named sizes, determined by the shapes that were fed.

    Args:
        feeds: the outputs that were fed.
        shapes: the shapes of the values.
        feed_text: the beginning of an error about one of them.
        others: the word for the others in errors.
    """
    binding: dict[str, int] = {}
    for x, shape in zip(feeds, shapes, strict=True):
        before = dict(binding)
        if not bind_sizes(x.shape, shape, binding):
            sizes = ", ".join(f"{name} = {size}" for name, size in before.items() if not FRESH.match(name))
            raise FeedError(
                f"{feed_text(x)} of shape {show_shape(shape)}; "
                f"{f'other {others} say {sizes}' if sizes else 'a name stands for one size'}"
            )
    for x, shape in zip(feeds, shapes, strict=True):
        if any(
            not isinstance(s, int) and size_value(s, binding) != n
            for s, n in zip(x.shape, shape, strict=True)
        ):
            raise FeedError(f"{feed_text(x)} of shape {show_shape(shape)}, where {binding} is known")
    return binding
