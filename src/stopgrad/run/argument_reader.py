"""Reading the arguments of a call whose structure is known.

Taking any structure apart and comparing what was found takes several times as long as looking up, in a
function written for one structure, what should be there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from stopgrad.base.structure import Spec, flatten, unflatten

Reader: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]
"""Returns the leaves of positional and keyword arguments; raises :data:`DIFFERS` for another structure."""

DIFFERS = (LookupError, TypeError, ValueError)


def reader(spec: Spec) -> Reader:
    """A function that reads the leaves of arguments.

    Args:
        spec: the structure of the pair of positional and keyword arguments.

    Examples:
        >>> read = reader(flatten(((0, {"w": 0, "b": [0, 0]}), {}))[1])
        >>> read((1, {"w": 2, "b": [3, 4]}), {})
        (1, 3, 4, 2)
        >>> read((1, {"w": 2, "c": [3, 4]}), {})
        Traceback (most recent call last):
        KeyError: 'b'
    """
    written = _written(spec)
    if written is None:
        return _flattened(spec)
    lines, names = written
    source = "\n    ".join(["def read(args, kwargs):", *lines])
    exec(source, names)  # noqa: S102 - of names that are made here; keys and types are no part of the text
    read: Reader = names["read"]
    return read


def _written(spec: Spec) -> tuple[list[str], dict[str, Any]] | None:
    """The body of a reader, and the keys and types that it names; None if there is another kind of node.

    Leaves are not looked at: it is for the caller to see that they are no structures.
    """
    args, kwargs = unflatten(spec, range(spec.num_leaves))
    lines: list[str] = []
    names: dict[str, Any] = {}
    leaves = [""] * spec.num_leaves
    todo: list[tuple[str, Any]] = [("args", args), ("kwargs", kwargs)]
    for count, (name, node) in enumerate(todo):  # It grows.
        kind = type(node)
        if kind is int:  # A leaf's position.
            leaves[node] = name
            continue
        if node is None:
            lines.append(f"if {name} is not None: raise ValueError")
            continue
        named = isinstance(node, tuple) and hasattr(kind, "_fields")
        if kind not in (dict, list, tuple) and not named:
            return None
        names[f"T{count}"] = kind
        lines.append(f"if type({name}) is not T{count} or len({name}) != {len(node)}: raise ValueError")
        parts = [f"v{count}_{i}" for i in range(len(node))]
        todo += zip(parts, node.values() if kind is dict else node, strict=True)
        if kind is dict:
            names |= {f"k{part}": key for part, key in zip(parts, node, strict=True)}
            lines += [f"{part} = {name}[k{part}]" for part in parts]
        elif parts:
            lines.append(f"{', '.join(parts)}, = {name}")
    return [*lines, f"return ({''.join(f'{leaf}, ' for leaf in leaves)})"], names


def _flattened(spec: Spec) -> Reader:
    def read(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        leaves, structure = flatten((args, kwargs))
        if structure != spec:
            raise ValueError
        return leaves

    return read
