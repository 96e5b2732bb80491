"""Functions of nested structures, as ``jax.tree`` has them.

Examples:
    >>> sg.tree.map(lambda x: 2 * x, {"a": 1, "b": [2]})
    {'a': 2, 'b': [4]}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stopgrad.base.trees import (
    tree_flatten as flatten,
    tree_leaves as leaves,
    tree_map as map,
    tree_map_with_path as map_with_path,
    tree_reduce as reduce,
    tree_structure as structure,
    tree_unflatten as unflatten,
)
from stopgrad.ops.namespaces.contents import reads

__all__ = ["flatten", "leaves", "map", "map_with_path", "reduce", "structure", "unflatten"]
if not TYPE_CHECKING:  # Type checkers know what is there.
    __getattr__, __dir__ = reads("tree", __all__)
