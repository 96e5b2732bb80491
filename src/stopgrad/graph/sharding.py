"""Shardings: how a tensor is divided over the axes of a mesh of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stopgrad.base.errors import ArgumentError, ShapeError
from stopgrad.graph.operands import shorten, show_shape

Entry = str | tuple[str, ...] | None
Spec = tuple[Entry, ...]
"""For each axis of a tensor: the axis of the mesh that divides it, several axes, or None for none.

``"*"`` leaves an axis to the engine. The empty spec says nothing about a tensor.
"""

FREE = "*"

_CURE = (
    "give an entry for each axis of the tensor: the name of an axis of the mesh, a tuple of names, None "
    'where it is not divided, or "*" where that is left to the engine'
)


def spec_of(sharding: object, rank: int) -> Spec:
    """The canonical spec of what a user gave.

    Args:
        sharding: a tuple or list with an entry for each axis; axes behind the last entry are not divided. Or
            JAX's PartitionSpec or NamedSharding; None says nothing.
        rank: the number of axes of the tensor.

    Raises:
        ArgumentError: an entry is invalid, or an axis of the mesh divides two axes of the tensor.

    Examples:
        >>> spec_of(("data",), 2), spec_of([None, ("data", "model")], 2)
        (('data', None), (None, ('data', 'model')))
    """
    if sharding is None:
        return ()
    entries = getattr(sharding, "spec", sharding)
    entries = (entries,) if isinstance(entries, str) else entries
    if not isinstance(entries, Iterable) or isinstance(entries, Mapping):
        raise ArgumentError(f"{shorten(sharding)} is no sharding; {_CURE}")
    spec = checked_spec(tuple([_entry(entry) for entry in entries]))
    return spec + (None,) * (rank - len(spec))


def _entry(entry: object) -> object:
    if type(entry).__name__ == "UnconstrainedSingleton":  # JAX's PartitionSpec.UNCONSTRAINED.
        return FREE
    if isinstance(entry, (tuple, list)):
        return tuple(entry) if len(entry) > 1 else entry[0] if entry else None
    return entry


def checked_spec(spec: object) -> Spec:
    """A spec in its canonical form.

    Raises:
        ArgumentError: it is invalid.
    """
    names: list[str] = []
    if not isinstance(spec, tuple):
        raise ArgumentError(f"{shorten(spec)} is no sharding; {_CURE}")
    for entry in spec:
        several = entry if isinstance(entry, tuple) else (entry,)
        free = entry is None or (isinstance(entry, str) and entry == FREE)
        if not free and not (several and all(isinstance(n, str) and n.isidentifier() for n in several)):
            raise ArgumentError(f"{shorten(entry)} in a sharding names no axis of a mesh; {_CURE}")
        names += [] if free else several
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ArgumentError(
            f"the sharding {show_spec(spec)} has {twice!r} twice; an axis of the mesh divides one of a tensor"
        )
    return spec


def names_in(entry: Entry) -> tuple[str, ...]:
    """The axes of the mesh that divide an axis."""
    return () if entry is None or entry == FREE else (entry,) if isinstance(entry, str) else entry


def check_spec(spec: Spec, shape: Sequence[Any], axes: Mapping[str, int]) -> None:
    """Check a spec against a mesh's axes and the known sizes of a tensor.

    Raises:
        ArgumentError: the mesh has no such axis.
        ShapeError: a size is not a multiple of the number of devices that divide it.
    """
    for position, (entry, size) in enumerate(zip(spec, shape, strict=bool(spec))):
        parts = 1
        for name in names_in(entry):
            if name not in axes:
                raise ArgumentError(f"the mesh has no axis {name!r}; it has {show_axes(axes)}")
            parts *= axes[name]
        if isinstance(size, int) and size % parts:
            raise ShapeError(
                f"axis {position} of {show_shape(tuple(shape))} has size {size}, "
                f"which the {parts} devices along {' and '.join(map(repr, names_in(entry)))} do not divide "
                "evenly; take a multiple, or None there"
            )


def show_spec(spec: Spec) -> str:
    """A spec as errors print it."""
    return f"({', '.join(map(repr, spec))}{',' if len(spec) == 1 else ''})"


def show_axes(axes: Mapping[str, int]) -> str:
    """A mesh's axes as errors print them."""
    return " × ".join([f"{name}={size}" for name, size in axes.items()]) or "no axes"
