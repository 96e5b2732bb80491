"""Nested structures of arrays in a file: parameters, the state of an optimiser, whatever holds arrays."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.errors import ArgumentError, GraphError
from stopgrad.base.structure import flatten, paths_in, unflatten
from stopgrad.graph.files import AnyPath, ArrayFile, write_arrays
from stopgrad.graph.graph import Operation, Output, describe
from stopgrad.graph.operands import as_array, type_of
from stopgrad.graph.public import guarded, reads_arguments

__all__ = ["load", "save"]

_NOTE = "structure"
"""The header's entry that holds the structure, as JSON: a list of a word and its parts for each node."""

DEPTH = 64
"""The most structures inside one another."""

_PLAIN = (bool, int, float, str)


@guarded("save")
def save(path: AnyPath, tree: Any) -> None:
    """Writes a nested structure of arrays to a file, in the format of safetensors.

    An old file stays until the new one is complete. The values of a graph's parameters are saved by
    :meth:`Session.save`, and the state of a training run by :class:`Checkpoints`.

    Args:
        path: the path of the file. The two arguments may also be given the other way round.
        tree: dicts, lists, tuples, named tuples and dataclasses, which hold arrays, numbers, texts and None.
            The keys of dicts are texts or integers.

    Raises:
        ArgumentError: there is something that a file cannot hold.
        FileError: the file cannot be written.

    Examples:
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "parameters.safetensors")
        >>> sg.save(path, {"w": np.ones((2, 3)), "layers": [np.zeros(2)], "step": 7})
        >>> sg.load(path)
        {'w': array([[1., 1., 1.],
               [1., 1., 1.]]), 'layers': [array([0., 0.])], 'step': 7}
    """
    if not _is_path(path) and _is_path(tree):
        path, tree = tree, path
    if not _is_path(path):
        raise ArgumentError(f"takes the path of a file and a structure, not {path!r:.60}")
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    structure = _taken_apart(tree, "", arrays, 0)
    write_arrays(path, arrays, {_NOTE: json.dumps(structure, separators=(",", ":"))})


@reads_arguments
def _taken_apart(tree: Any, name: str, arrays: dict[str, np.ndarray[Any, Any]], depth: int) -> Any:
    """The structure as JSON; its arrays are put into *arrays*, named by their paths."""
    if depth > DEPTH:
        raise ArgumentError(f"more than {DEPTH} structures stand inside one another, at {name[:60]!r}")
    if tree is None or type(tree) in _PLAIN:
        return ["is", tree]
    parts = _parts(tree, name)
    if parts is not None:
        kind, named = parts
        return [kind, [[key, _taken_apart(x, _below(name, key), arrays, depth + 1)] for key, x in named]]
    if isinstance(tree, (Output, Operation)):
        raise ArgumentError(
            f"{describe(tree)} has no value here: save what Session.run or a function returned; Session.save "
            "writes the values of parameters"
        )
    if not (hasattr(tree, "dtype") and hasattr(tree, "__array__")):
        raise ArgumentError(f"{name or 'the structure'} is {tree!r:.60}, which is no array, number or text")
    own_name = name or "array"
    while own_name in arrays or own_name == "__metadata__":
        own_name += "'"
    arrays[own_name] = as_array(tree)
    return ["array", own_name]


def _parts(tree: Any, name: str) -> tuple[str, list[tuple[Any, Any]]] | None:
    """The kind of a structure and its parts by their keys; None for a leaf."""
    if isinstance(tree, Mapping):
        for key in tree:
            if type(key) not in (str, int):
                raise ArgumentError(f"{name or 'the structure'} has the key {key!r:.60}, no text or integer")
        return "dict", list(tree.items())
    fields = getattr(tree, "_fields", None)
    if isinstance(tree, tuple) and fields is not None:
        return "dict", list(zip(fields, tree, strict=True))
    if isinstance(tree, (list, tuple)):
        return "list" if isinstance(tree, list) else "tuple", list(enumerate(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return "dict", [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    return None


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _is_path(x: object) -> bool:
    return isinstance(x, (str, os.PathLike))


@guarded("load")
def load(path: AnyPath, like: Any = None) -> Any:
    """Reads a structure of arrays that :func:`save` wrote, or any file in the format of safetensors.

    Nothing in the file is executed.

    Args:
        path: the path of the file.
        like: a structure to return the arrays in, whose arrays must have their shapes and dtypes. Without it,
            named tuples and dataclasses come back as dicts, and a file that another library wrote as a dict
            by the names of its arrays.

    Returns:
        The structure, with NumPy arrays.

    Raises:
        GraphError: the file is broken, or does not fit *like*.
        FileError: the file cannot be read.

    Examples:
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "parameters.safetensors")
        >>> sg.save(path, (np.ones(2), None))
        >>> sg.load(path, like=(np.zeros(2), None))
        (array([1., 1.]), None)
    """
    with ArrayFile(path) as file:
        note = file.notes.get(_NOTE)
        if note is None:
            tree: Any = {name: file.read(name, None, name) for name in sorted(file.names)}
        else:
            tree = _put_together(_structure_in(note, path), file, 0)
    return tree if like is None else _fitted(tree, like, path)


def _structure_in(note: str, path: AnyPath) -> Any:
    try:
        return json.loads(note)
    except (ValueError, RecursionError):
        raise _no_structure(path) from None


def _no_structure(path: object) -> GraphError:
    return GraphError(f"{path} says how its arrays are nested in a way that sg.save does not write")


def _put_together(node: Any, file: ArrayFile, depth: int) -> Any:
    if not isinstance(node, list) or len(node) != 2 or depth > DEPTH:
        raise _no_structure(file.path)
    kind, content = node
    if kind == "is" and (content is None or type(content) in _PLAIN):
        return content
    if kind == "array" and isinstance(content, str):
        return file.read(content, None, content)
    if kind not in ("dict", "list", "tuple") or not isinstance(content, list):
        raise _no_structure(file.path)
    parts = [*_named(content, file, depth)]
    if kind == "dict":
        return dict(parts)
    return [x for _, x in parts] if kind == "list" else tuple([x for _, x in parts])


def _named(content: list[Any], file: ArrayFile, depth: int) -> Iterator[tuple[Any, Any]]:
    for part in content:
        if not isinstance(part, list) or len(part) != 2 or type(part[0]) not in (str, int):
            raise _no_structure(file.path)
        yield part[0], _put_together(part[1], file, depth + 1)


@reads_arguments
def _fitted(tree: Any, like: Any, path: AnyPath) -> Any:
    """What was read, in the structure of *like*."""
    expected, spec = flatten(like)
    leaves, tree_spec = flatten(tree)
    places = paths_in(spec)
    by_path = dict(zip(paths_in(tree_spec), leaves, strict=True))
    missing = [place for place in places if place not in by_path]
    extra = by_path.keys() - places
    if missing or extra:
        differences = [f"no {_shown(missing)}"] if missing else []
        differences += [f"{_shown(sorted(extra, key=str))} besides"] if extra else []
        raise GraphError(f"{path} does not fit the structure: it has {' and '.join(differences)}")
    for place, leaf in zip(places, expected, strict=True):
        if isinstance(leaf, _PLAIN):
            continue
        has, needs = type_of(by_path[place]), type_of(leaf)
        if has != needs:
            raise GraphError(f"{path} holds {has!r} for {_shown([place])}, where {needs!r} is wanted")
    return unflatten(spec, [by_path[place] for place in places])


def _shown(places: Sequence[tuple[Any, ...]]) -> str:
    return ", ".join([".".join(map(str, place)) or "the whole" for place in places[:5]])
