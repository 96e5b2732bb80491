"""The arguments of a function: their names, which are static, and which have open sizes."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from optree import PyTreeSpec

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError, ShapeError, StopgradError
from stopgrad.base.structure import paths_in
from stopgrad.base.types import Dim, Shape, shape_of
from stopgrad.graph.operands import shorten, show_shape
from stopgrad.graph.sharding import Spec, show_spec, spec_of

# -------------------------------------------------------------------------------------------- names


def parameters_of(f: Callable[..., object]) -> list[inspect.Parameter]:
    """A function's parameters; empty if Python does not know them."""
    try:
        return list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return []


def positional(parameters: Iterable[inspect.Parameter]) -> list[str]:
    """The names of parameters that can be given by position, in order."""
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def argument_names(f: Callable[..., object], count: int) -> list[str]:
    """The names of the first positional arguments; their numbers if they have none."""
    parameters = parameters_of(f)
    names = positional(parameters)
    rest = next((f"{p.name}." for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    return [names[i] if i < len(names) else f"{rest}{i - len(names) if rest else i}" for i in range(count)]


def argument_paths(f: Callable[..., object], spec: PyTreeSpec) -> list[str]:
    """The path of each leaf of ``(args, kwargs)``, such as ``"params.w"``."""
    names = argument_names(f, spec.child(0).num_children)
    paths = []
    for by_keyword, which, *rest in paths_in(spec):
        first = which if by_keyword else names[which]
        paths.append(".".join(map(str, [first, *rest])))
    return paths


def plain_path(text: str) -> str:
    """A path in the form of :func:`argument_paths`.

    Examples:
        >>> plain_path("params['layers'][0]"), plain_path("params.layers.0")
        ('params.layers.0', 'params.layers.0')
    """
    return _INDEX.sub(lambda match: f".{match['inside']}", text).lstrip(".")


_INDEX = re.compile(r"""\[\s*(?P<quote>["']?)(?P<inside>[^\]]*?)(?P=quote)\s*\]""")


def operation_name(path: str) -> str:
    """A name for an operation, made of a path; it has only letters, digits and a few signs."""
    return _NO_NAME.sub("_", path).lstrip("_/\\>-").rstrip("_/")


_NO_NAME = re.compile(r"[^A-Za-z0-9_.\\/>-]")


def without_first(f: Callable[..., object], first: Callable[[], Any]) -> tuple[Callable[..., Any], str]:
    """A function whose first argument is what *first* returns at each call; and that argument's name."""

    @functools.wraps(f)
    def method(*args: object, **kwargs: object) -> Any:
        return f(first(), *args, **kwargs)

    parameters = parameters_of(f)
    names = positional(parameters)
    rest = parameters[1:] if names else parameters
    method.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
    return method, names[0] if names else ""


# -------------------------------------------------------------------------------------------- static


class Constant(NamedTuple):
    """An argument that is part of the signature, where True, 1 and 1.0 differ, and 0j and -0j do."""

    value: Any
    marks: Any

    @classmethod
    def of(cls, value: object) -> Constant:
        return cls(value, _marks(value))


def _marks(x: Any) -> object:
    """What distinguishes a value from others that are equal to it."""
    kind = type(x)
    if kind is float or kind is complex:
        return kind, repr(x)
    if kind is tuple:
        return kind, *map(_marks, x)
    return kind


class Statics:
    """The static arguments of a function, which are part of its signature as whole objects.

    Args:
        f: the function.
        name: what errors call it.
        argnums: positions of arguments, or one.
        argnames: names of arguments, or one.

    A named argument is also static if it is given by position, and the other way round.
    """

    def __init__(self, f: Callable[..., object], name: str, argnums: object, argnames: object) -> None:
        self._f, self._name = f, name
        parameters = parameters_of(f)
        names = positional(parameters)
        kinds = {p.kind for p in parameters}
        open_ended = not parameters or inspect.Parameter.VAR_POSITIONAL in kinds
        self._positions = {
            _position(n, names, open_ended, name) for n in several(argnums, is_whole, "static_argnums", name)
        }
        static_names = several(argnames, lambda n: isinstance(n, str), "static_argnames", name)
        parameter_names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
            unknown = next((n for n in static_names if n not in parameter_names), None)
            if unknown is not None:
                raise ArgumentError(
                    f"function: static_argnames holds {unknown!r}, but {name} has the parameters "
                    f"{', '.join(parameter_names) or 'none'}"
                )
        self._names = {*static_names, *[names[i] for i in self._positions if i < len(names)]}
        self._positions |= {i for i, n in enumerate(names) if n in self._names}

    def __bool__(self) -> bool:
        return bool(self._positions or self._names)

    @property
    def positions(self) -> frozenset[int]:
        return frozenset(self._positions)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._names)

    def split(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[tuple[int | str, Constant], ...]]:
        """The arguments with None in the place of static ones, and the static ones."""
        constants: list[tuple[int | str, Constant]] = []
        dynamic = list(args)
        for i in sorted(self._positions):
            if i < len(dynamic):
                constants.append((i, self._constant(i, dynamic[i])))
                dynamic[i] = None
        others = dict(kwargs)
        for name in sorted(self._names & others.keys()):
            constants.append((name, self._constant(name, others[name])))
            others[name] = None
        return tuple(dynamic), others, tuple(constants)

    def _constant(self, which: int | str, value: object) -> Constant:
        try:
            hash(value)
        except TypeError:
            label = which if isinstance(which, str) else argument_names(self._f, which + 1)[which]
            cure = (
                "; give a tuple, or a number"
                if isinstance(value, (list, dict, set))
                else "; leave it out of the static arguments, and it is traced"
            )
            raise ArgumentError(
                f"function: the static argument {label} of {self._name} is {shorten(value)}, "
                f"which has no hash to know it by{cure}"
            ) from None
        return Constant.of(value)


def joined(
    args: Sequence[Any], kwargs: Mapping[str, Any], static: Iterable[tuple[int | str, Constant]]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with the static ones put back."""
    positional, others = list(args), dict(kwargs)
    for which, constant in static:
        if isinstance(which, str):
            others[which] = constant.value
        else:
            positional[which] = constant.value
    return positional, others


def several(argument: Any, fits: Callable[[Any], bool], what: str, name: str) -> tuple[Any, ...]:
    """Positions or names, given as a list or as a single one; *what* names the argument in errors."""
    alone = isinstance(argument, str) or is_whole(argument) or not isinstance(argument, Iterable)
    entries = () if argument is None else (argument,) if alone else tuple(argument)
    wrong = [n for n in entries if not fits(n)]
    if wrong:
        kind = "names of arguments" if what.endswith("names") else "positions of arguments, such as 0"
        raise ArgumentError(f"function: {what} of {name} are {kind}, not {shorten(wrong[0])}")
    return entries


def _position(n: object, names: Sequence[str], open_ended: bool, name: str) -> int:
    n = whole(n)
    if open_ended and n >= 0:
        return n
    if not -len(names) <= n < len(names):
        raise ArgumentError(
            f"function: static_argnums holds {n}, but {name} has {len(names)} arguments by position"
            f"{f': {chr(44).join(names)}' if names else ''}"
        )
    return n % len(names)


# ------------------------------------------------------------------------- properties of some arguments


class ByPath:
    """Properties of some arguments of a function, by their paths.

    Args:
        f: the function.
        name: what errors call it.
        what: the property, as the argument of :func:`function` is called.
        said: a dict from paths of arguments to properties; it may be nested.
        example: an example for errors.
        read: checks and converts the property of one argument.
    """

    def __init__(
        self,
        f: Callable[..., object],
        name: str,
        what: str,
        values: object,
        example: str,
        read: Callable[[Any], Any],
    ) -> None:
        self._name, self._what, self._example, self._read = name, what, example, read
        self._said: dict[str, Any] = {}
        self._add("", values)
        parameters = parameters_of(f)
        self._roots = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
        if parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            unknown = next((path for path in self._said if path.partition(".")[0] not in self._roots), None)
            if unknown is not None:
                listed = ", ".join(p.name for p in parameters)
                raise ArgumentError(
                    f"function: {what} names {unknown!r}, but {name} has the parameters {listed or 'none'}"
                )

    def _add(self, before: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise ArgumentError(
                f"function: {self._what} is a dict from arguments to {self._what}, such as {self._example}, "
                f"not {shorten(value)}"
            )
        for key, part in value.items():
            path = before + plain_path(str(key))
            if isinstance(part, Mapping):
                self._add(f"{path}.", part)
                continue
            try:
                self._said[path] = self._read(part)
            except StopgradError as error:
                label = f"{self._what}[{path!r}] of {self._name}"
                raise type(error)(f"function: {label}: {error.message}") from None

    def positions(self, paths: Sequence[str], signature: Sequence[Any], below: bool) -> dict[int, Any]:
        """The properties of leaves, by position; with *below*, a path also stands for all leaves below it."""
        places = {path: i for i, path in enumerate(paths)}
        properties = {}
        for path, value in self._said.items():
            root = path.partition(".")[0]
            inside = [leaf for leaf in paths if leaf.startswith(f"{path}.")]
            near = [leaf for leaf in paths if leaf == root or leaf.startswith(f"{root}.")]
            if path in places:
                properties[places[path]] = value
            elif inside and below:
                properties.update({places[leaf]: value for leaf in inside})
            elif near or root not in self._roots:  # Else the argument was left out, or is None.
                raise ArgumentError(
                    f"function: {self._what} names {path!r}, but {self._name} was given "
                    f"{', '.join(near or paths)}"
                )
        constant = next((i for i in properties if isinstance(signature[i], Constant)), None)
        if constant is not None:
            raise ArgumentError(
                f"function: {self._what} names {paths[constant]!r}, but {self._name} was given "
                f"{shorten(signature[constant].value)}, which is part of the signature; pass an array"
            )
        return properties


class Shapes(ByPath):
    """The shapes of some arguments in every call, with open sizes."""

    def __init__(self, f: Callable[..., object], name: str, shapes: object) -> None:
        super().__init__(f, name, "shapes", shapes, "{'x': ['batch', 3]}", _shape)

    def apply(self, signature: list[Any], paths: Sequence[str]) -> None:
        """Replace the shapes of given arrays in a signature."""
        for i, expected in self.positions(paths, signature, below=False).items():
            shape, dtype = signature[i]
            if len(shape) != len(expected) or any(
                not isinstance(a, Dim) and a != b for a, b in zip(expected, shape, strict=True)
            ):
                raise ShapeError(
                    f"{self._name}: {paths[i]} has the shape {show_shape(shape)}, "
                    f"and shapes= says {show_shape(expected)}"
                )
            signature[i] = expected, dtype


def _shape(sizes: Any) -> Shape:
    try:
        return shape_of(sizes)
    except StopgradError:
        raise
    except TypeError:
        raise ShapeError(
            f"{shorten(sizes)} is no shape; take a list of numbers, names, and None for unknown sizes"
        ) from None


class Shardings(ByPath):
    """The shardings of some arguments in every call; that of a structure applies to all arrays in it."""

    def __init__(self, f: Callable[..., object], name: str, shardings: object) -> None:
        super().__init__(f, name, "shardings", shardings, "{'x': ('data', None)}", lambda spec: spec)

    def of(self, signature: Sequence[Any], paths: Sequence[str]) -> dict[int, Spec]:
        """The shardings of leaves, by their positions."""
        specs = {}
        for i, sharding in self.positions(paths, signature, below=True).items():
            rank = len(signature[i][0])
            try:
                specs[i] = spec_of(sharding, rank)
            except StopgradError as error:
                raise type(error)(f"{self._name}: {paths[i]}: {error.message}") from None
            if len(specs[i]) > rank:
                raise ShapeError(
                    f"{self._name}: {paths[i]}: the sharding {show_spec(specs[i])} has {len(specs[i])} "
                    f"entries; the array has {rank} axes"
                )
        return specs
