"""Modules of Flax's nnx, which are changed in place: what of them is kept as it was.

nnx is never imported here: who has one of its modules has imported it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax

from stopgrad.interop.jax.tracing import path_of

_NEEDED = ("Pytree", "Variable", "Optimizer", "DiffState", "Param", "grad", "iter_graph")


def nnx() -> Any:
    """Flax's nnx, if it was imported and has what is asked of it; else None."""
    module = sys.modules.get("flax.nnx")
    return module if all(hasattr(module, name) for name in _NEEDED) else None


def is_module(x: object) -> bool:
    """Whether something is an object of nnx that holds variables: a module, a list of these, an optimizer."""
    flax = nnx()
    return flax is not None and isinstance(x, flax.Pytree)


def is_optimizer(x: object) -> bool:
    """Whether something is an optimizer of nnx."""
    flax = nnx()
    return flax is not None and isinstance(x, flax.Optimizer)


def is_variable(x: object) -> bool:
    """Whether something is a variable of nnx."""
    flax = nnx()
    return flax is not None and isinstance(x, flax.Variable)


def modules_in(tree: object) -> list[Any]:
    """The modules and variables in a structure, not those inside of them."""

    def is_one(x: object) -> bool:
        return is_module(x) or is_variable(x)

    return [x for x in jax.tree_util.tree_leaves(tree, is_leaf=is_one) if is_one(x)]


@contextlib.contextmanager
def restored(trees: Iterable[object]) -> Iterator[None]:
    """Modules in these structures are afterwards as they were: the same arrays, and no further attributes."""
    flax = nnx()
    parts: dict[int, tuple[Any, dict[str, Any]]] = {}
    values: dict[int, tuple[Any, Any]] = {}
    for root in [] if flax is None else [x for tree in trees for x in modules_in(tree)]:
        for _, node in flax.iter_graph(root):
            if isinstance(node, flax.Variable):
                values[id(node)] = node, node.get_raw_value()
            elif isinstance(node, flax.Pytree):
                parts[id(node)] = node, dict(vars(node))
    try:
        yield
    finally:
        for node, attributes in parts.values():
            here = vars(node)
            if list(here) != list(attributes) or any(here[k] is not v for k, v in attributes.items()):
                here.clear()
                here.update(attributes)
        for variable, value in values.values():
            if variable.get_raw_value() is not value:
                variable.set_raw_value(value)


def tied(first: str, tree: object) -> Mapping[str, str]:
    """For the path of each variable that stood earlier in a structure, its first path."""
    located, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_variable)
    seen: dict[int, str] = {}
    aliases = {}
    for path, leaf in located:
        if is_variable(leaf):
            name = path_of(first, path)
            earliest = seen.setdefault(id(leaf), name)
            if earliest != name:
                aliases[name] = earliest
    return aliases
