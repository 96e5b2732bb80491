"""Functions of nested structures, with the names that JAX gives them; optree does the work.

Dataclasses are structures here, and None is an empty one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from stopgrad.base.errors import ArgumentError
from stopgrad.base.structure import Spec, flatten, paths, shown, unflatten

__all__ = [
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_structure",
    "tree_unflatten",
]


def tree_map(function: Callable[..., object], tree: object, *rest: object) -> Any:
    """A structure with a function applied to each leaf.

    Args:
        function: takes a leaf of the structure, and the leaf at its place in each of the others.
        tree: nested dicts, lists, tuples, named tuples and dataclasses.
        rest: further structures like it.

    Returns:
        A structure like *tree*, of what the function returns.

    Raises:
        ArgumentError: the structures differ.

    Examples:
        >>> sg.tree_map(lambda w, g: w - 0.5 * g, {"w": 1.0, "b": [2.0]}, {"w": 2.0, "b": [4.0]})
        {'w': 0.0, 'b': [0.0]}
    """
    leaves, spec = flatten(tree)
    columns = [leaves, *[_like(other, spec, "tree_map") for other in rest]]
    return unflatten(spec, [function(*row) for row in zip(*columns, strict=True)])


def _like(tree: object, spec: Spec, what: str) -> list[Any]:
    leaves, own = flatten(tree)
    if own != spec:
        raise ArgumentError(f"{what}: the structures differ: {shown(spec)} and {shown(own)}")
    return leaves


def tree_map_with_path(function: Callable[..., object], tree: object, *rest: object) -> Any:
    """A structure with a function applied to each leaf's path and the leaf.

    Args:
        function: takes the path, such as ``"layers.0.w"``, and the leaf, and those of the other structures.
        tree: a nested structure.
        rest: further structures like it.

    Returns:
        A structure like *tree*, of what the function returns.

    Examples:
        >>> sg.tree_map_with_path(lambda path, x: path, {"layers": [1.0, 2.0]})
        {'layers': ['layers.0', 'layers.1']}
    """
    return tree_map(function, unflatten(flatten(tree)[1], paths(tree)), tree, *rest)


def tree_leaves(tree: object) -> list[Any]:
    """The leaves of a structure, in order; dicts by their sorted keys.

    Args:
        tree: a nested structure.

    Returns:
        A list of its leaves.

    Examples:
        >>> sg.tree_leaves({"b": [1, 2], "a": (3, None)})
        [3, 1, 2]
    """
    return flatten(tree)[0]


def tree_flatten(tree: object) -> tuple[list[Any], Spec]:
    """The leaves of a structure, and the structure without them.

    Args:
        tree: a nested structure.

    Returns:
        The leaves, and what :func:`tree_unflatten` takes.

    Examples:
        >>> leaves, structure = sg.tree_flatten({"a": 1, "b": 2})
        >>> sg.tree_unflatten(structure, [x * 10 for x in leaves])
        {'a': 10, 'b': 20}
    """
    return flatten(tree)


def tree_structure(tree: object) -> Spec:
    """A structure without its leaves.

    Args:
        tree: a nested structure.

    Returns:
        What :func:`tree_unflatten` takes; equal for equal structures.

    Examples:
        >>> sg.tree_structure([1, 2]) == sg.tree_structure(["a", "b"])
        True
    """
    return flatten(tree)[1]


def tree_unflatten(structure: Spec, leaves: Iterable[Any]) -> Any:
    """A structure with these leaves.

    Args:
        structure: what :func:`tree_flatten` or :func:`tree_structure` returned.
        leaves: as many as it has places.

    Returns:
        The structure.

    Examples:
        >>> sg.tree_unflatten(sg.tree_structure((0, [0])), "xy")
        ('x', ['y'])
    """
    return unflatten(structure, leaves)


_NOTHING = object()


def tree_reduce(function: Callable[[Any, Any], Any], tree: object, initializer: object = _NOTHING) -> Any:
    """All leaves of a structure combined by a function of two.

    Args:
        function: takes what was combined so far and the next leaf.
        tree: a nested structure.
        initializer: what to begin with; by default the first leaf.

    Returns:
        The last result.

    Examples:
        >>> sg.tree_reduce(lambda a, b: a + b, {"a": 1, "b": [2, 3]})
        6
    """
    first = () if initializer is _NOTHING else (initializer,)
    return functools.reduce(function, flatten(tree)[0], *first)
