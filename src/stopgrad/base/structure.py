"""Nested structures of values: dicts, lists, tuples, named tuples, dataclasses, through optree."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import optree

Spec: TypeAlias = optree.PyTreeSpec
"""A structure without its leaves."""

NAMESPACE = "stopgrad"
"""The namespace under which dataclasses are registered with optree."""
_LEAVES: set[type] = set()
"""Types that are leaves for good. No dataclass: it may have become a structure since it was met as a leaf."""


def _register(kind: type) -> None:
    """Register a dataclass with optree; its fields are the children."""
    names = tuple(field.name for field in dataclasses.fields(kind))

    def flatten(value: object) -> tuple[list[Any], None, tuple[str, ...]]:
        return [getattr(value, name) for name in names], None, names

    def unflatten(_: object, children: Iterable[Any]) -> Any:
        value: Any = object.__new__(kind)
        for name, child in zip(names, children, strict=True):
            object.__setattr__(value, name, child)
        return value

    optree.register_pytree_node(kind, flatten, unflatten, namespace=NAMESPACE)


def flatten(tree: Any, none_is_leaf: bool = False) -> tuple[list[Any], Spec]:
    """The leaves of *tree*, and its structure, which :func:`unflatten` fills with other leaves.

    None is an empty structure, unless *none_is_leaf*.

    Examples:
        >>> leaves, spec = flatten({"b": [1, 2], "a": (3,)})
        >>> leaves, unflatten(spec, "xyz")
        ([3, 1, 2], {'b': ['y', 'z'], 'a': ('x',)})
    """
    while True:
        leaves, spec = optree.tree_flatten(tree, none_is_leaf=none_is_leaf, namespace=NAMESPACE)
        if _LEAVES.issuperset(map(type, leaves)):
            return leaves, spec
        for kind in {*map(type, leaves)} - _LEAVES:  # Dataclasses count as leaves until they are registered.
            # What stands for one tensor, such as an optimiser's step, is a leaf.
            if dataclasses.is_dataclass(kind) and not hasattr(kind, "as_output"):
                with contextlib.suppress(ValueError):  # By another thread, or before an interrupt.
                    _register(kind)
            else:
                _LEAVES.add(kind)


def is_leaf(x: object) -> bool:
    """Whether *x* is a leaf, not a structure."""
    leaves, _ = flatten(x)
    return len(leaves) == 1 and leaves[0] is x


def unflatten(spec: Spec, leaves: Iterable[Any]) -> Any:
    """A structure that :func:`flatten` took apart, with these leaves."""
    return optree.tree_unflatten(spec, leaves)


def tensors_among(tree: object) -> list[Any]:
    """The leaves of *tree* without numbers, strings and functions; all leaves if there are no others."""
    leaves = flatten(tree)[0]
    tensors = [x for x in leaves if not (isinstance(x, _BESIDE) or callable(x))]
    return tensors or leaves


_BESIDE = (bool, int, float, complex, str, bytes)


class _Leaf:
    """A placeholder for leaves in messages."""

    def __repr__(self) -> str:
        return "tensor"


def shown(spec: Spec) -> str:
    """A structure as messages print it.

    Examples:
        >>> shown(flatten({"a": (1, 2)})[1])
        "{'a': (tensor, tensor)}"
    """
    return repr(unflatten(spec, [_Leaf()] * spec.num_leaves))


def map_leaves(function: Callable[[Any], Any], tree: object) -> Any:
    """*tree* with *function* applied to each leaf."""
    leaves, spec = flatten(tree)
    return unflatten(spec, [function(leaf) for leaf in leaves])


def paths(tree: object) -> list[str]:
    """The path to each leaf, such as ``"params.w"`` or ``"layers.0"``, in the order of :func:`flatten`."""
    return [".".join(map(str, path)) for path in paths_in(flatten(tree)[1])]


def paths_in(spec: Spec) -> list[tuple[Any, ...]]:
    """The keys, positions and names of fields that lead to each leaf, in the order of :func:`flatten`."""
    return [tuple([_key_of(entry) for entry in accessor]) for accessor in spec.accessors()]


def _key_of(entry: optree.PyTreeEntry) -> object:
    return entry.field if isinstance(entry, optree.NamedTupleEntry) else entry.entry
