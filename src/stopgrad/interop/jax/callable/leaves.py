"""Takes the structures that JAX users pass and get apart into arrays and other leaves."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import tree_util

from stopgrad.base.structure import flatten, unflatten
from stopgrad.graph.graph import Operation, Output


class Leaves(NamedTuple):
    """A structure taken apart by JAX, and inside its leaves by us, for dataclasses unknown to JAX.

    Attributes:
        values: the leaves.
        paths: the path of each, such as ``(SequenceKey(0), DictKey('w'))``.
        outer: JAX's structure.
        inner: our structure of each of its leaves; None for one that is a leaf to us, too.
    """

    values: list[Any]
    paths: list[tuple[Any, ...]]
    outer: Any
    inner: tuple[Any, ...]

    @property
    def key(self) -> Hashable:
        """The key by which structures are compared."""
        return self.outer, self.inner

    def rebuilt(self, values: Sequence[Any]) -> Any:
        """The structure with other leaves."""
        leaves = iter(values)
        parts = [
            next(leaves) if spec is None else unflatten(spec, [next(leaves) for _ in range(spec.num_leaves)])
            for spec in self.inner
        ]
        return tree_util.tree_unflatten(self.outer, parts)


def leaves_of(tree: object) -> Leaves:
    """Take a structure apart."""
    pairs, outer = tree_util.tree_flatten_with_path(tree)
    values: list[Any] = []
    paths: list[tuple[Any, ...]] = []
    inner: list[Any] = []
    for path, leaf in pairs:
        parts, spec = ([leaf], None) if is_array(leaf) or is_output(leaf) else flatten(leaf)
        if spec is None or (len(parts) == 1 and parts[0] is leaf):
            inner.append(None)
            paths.append(path)
        else:
            inner.append(spec)
            paths += [(*path, *map(tree_util.GetAttrKey, below)) for below in spec.paths()]
        values += parts
    return Leaves(values, paths, outer, tuple(inner))


def is_output(x: object) -> bool:
    """Whether a leaf belongs to a graph of ours."""
    return isinstance(x, (Output, Operation))


def is_array(x: object) -> bool:
    """Whether a leaf is an array or tracer of JAX."""
    return isinstance(x, (jax.Array, np.ndarray, np.generic)) or hasattr(x, "__jax_array__")
