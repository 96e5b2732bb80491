"""Finds a function's arguments: from given shapes, an example in its file, annotations, or defaults.

A leaf of an argument is an array or number, which is passed; or a ``TensorType``, which only describes such
an array.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stopgrad.base.errors import ArgumentError
from stopgrad.base.source import Location
from stopgrad.base.structure import flatten, paths, unflatten
from stopgrad.base.types import TensorType, dtype_of, shape_of, tensor_type
from stopgrad.flow.source_lines import place
from stopgrad.graph.arguments import parameters_of
from stopgrad.graph.operands import is_tensor
from stopgrad.interop.value_worlds import is_module
from stopgrad.tools.cli.annotations import from_annotation, scalar_annotation
from stopgrad.tools.cli.user_programs import Program


class Argument(NamedTuple):
    """An argument of a function: its value, a structure whose leaves may be types, and the source of it."""

    parameter: inspect.Parameter
    value: Any
    source: str


def arguments_of(
    program: Program, shapes: Sequence[tuple[str, TensorType]], example: str | None
) -> list[Argument]:
    """A function's arguments, in order.

    Parameters whose default is no array are left out, and keep it.

    Args:
        program: the function.
        shapes: the values of ``--shape``, which take precedence.
        example: the name of the example function; None to look for one.

    Raises:
        ArgumentError: an argument has no source, or a path or an example does not exist.
    """
    parameters = parameters_of(program.value)
    example_values, misfit = _from_example(program, parameters, example)
    by_root: dict[str, list[tuple[str, TensorType]]] = {p.name: [] for p in parameters}
    others = []
    for path, type in shapes:
        root, _, rest = path.partition(".")
        if root in by_root:
            by_root[root].append((rest, type))
        else:
            others.append(path)
    names = namespace(program)
    arguments, missing = [], []
    for parameter in parameters:
        argument = _argument(parameter, example_values, by_root[parameter.name], names)
        if argument is not None:
            arguments.append(argument)
        elif parameter.default is parameter.empty and parameter.kind not in _OPEN:
            missing.append(parameter)
    if others and (arguments or missing):
        listed = ", ".join(by_root)
        raise ArgumentError(f"--shape names {others[0]!r}, but {program.target} has the parameters {listed}")
    if missing and misfit is not None:
        raise misfit
    if missing:
        raise _no_source(program, parameters, missing)
    return arguments


_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _argument(
    parameter: inspect.Parameter,
    example_values: Mapping[str, Any],
    shapes: Sequence[tuple[str, TensorType]],
    names: Mapping[str, Any],
) -> Argument | None:
    name, default = parameter.name, parameter.default
    has_default = default is not parameter.empty
    value, source = None, ""
    if name in example_values:
        value, source = example_values[name], "the example"
    elif (value := from_annotation(parameter.annotation, names)) is not None:
        source = "its annotation"
    elif has_default and any(map(is_tensor, flatten(default)[0])):
        value, source = default, "its default"
    elif not has_default and (value := scalar_annotation(parameter.annotation, names)) is not None:
        source = "its annotation"
    if shapes:
        value, source = _with_shapes(name, value, shapes), f"{source} and --shape" if source else "--shape"
    return Argument(parameter, value, source) if source else None


def _with_shapes(name: str, value: object, shapes: Sequence[tuple[str, TensorType]]) -> Any:
    """A value with the types of ``--shape`` put in; or, without a value, made of these types."""
    whole = [type for path, type in shapes if not path]
    if whole:
        if len(shapes) > 1:
            raise ArgumentError(f"--shape names {name!r} more than once, or both whole and in parts")
        return whole[0]
    if value is None:
        return _nested([(path.split("."), type) for path, type in shapes], name)
    leaves, spec = flatten(value)
    places = {path: i for i, path in enumerate(paths(value))}
    for path, type in shapes:
        if path not in places:
            existing = ", ".join(".".join(part for part in (name, one) if part) for one in places)
            raise ArgumentError(f"--shape names {f'{name}.{path}'!r}, but there are {existing}")
        leaves[places[path]] = type
    return unflatten(spec, leaves)


def _nested(shapes: Sequence[tuple[list[str], TensorType]], where: str) -> Any:
    """Dicts, or lists if the keys are 0, 1, ..., made from the paths of ``--shape``."""
    nested: dict[str, Any] = {}
    for path, type in shapes:
        inner = nested
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
            if isinstance(inner, TensorType):
                break
        if isinstance(inner, TensorType) or path[-1] in inner:
            raise ArgumentError(f"--shape names {'.'.join([where, *path])!r} twice, or whole and in parts")
        inner[path[-1]] = type
    return _as_lists(nested)


def _as_lists(tree: object) -> Any:
    if not isinstance(tree, dict):
        return tree
    inner = {key: _as_lists(value) for key, value in tree.items()}
    places = [str(i) for i in range(len(inner))]
    return [inner[i] for i in places] if set(places) == set(inner) else inner


def namespace(program: Program) -> Mapping[str, Any]:
    """The names that a function's annotations may use."""
    return getattr(inspect.unwrap(program.value), "__globals__", program.names)


def defined(program: Program) -> Location | None:
    """The line of a function's definition, below its decorators."""
    code = getattr(inspect.unwrap(program.value), "__code__", None)
    if code is None:
        return None
    first = code.co_firstlineno
    lines = linecache.getlines(code.co_filename)[first - 1 :]
    if lines and lines[0].lstrip().startswith("@"):
        first += next((i for i, line in enumerate(lines) if re.match(r"\s*(async\s+)?def\b", line)), 0)
    return Location(code.co_filename, first)


def line_of(program: Program) -> str:
    """The same, for the beginning of a message."""
    location = defined(program)
    return "" if location is None else f"{place(location)}: "


def _annotation_text(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _no_source(
    program: Program, parameters: Sequence[inspect.Parameter], missing: Sequence[inspect.Parameter]
) -> ArgumentError:
    first = missing[0].name
    name = program.name.rpartition(".")[2]
    noted = [
        f"its annotation {_annotation_text(p.annotation)} says no shape"
        for p in missing
        if p.annotation is not p.empty
    ]
    needed = [p for p in parameters if p.kind not in _OPEN and p.default is p.empty]
    if any(p.kind is p.KEYWORD_ONLY for p in needed):
        returned = f"dict({', '.join(f'{p.name}=...' for p in needed)})"
    else:
        returned = f"({', '.join(p.name for p in needed)}{',' * (len(needed) == 1)})"
    return ArgumentError(
        f"{line_of(program)}{name}: nothing says what {', '.join(p.name for p in missing)} "
        f"{'is' if len(missing) == 1 else 'are'}{f' ({chr(59).join(noted)})' if noted else ''}; "
        f"give --shape {first}=2,3 (or of a part: --shape {first}.w=2,3:float64), "
        f'or annotate it ({first}: "float32[n, 3]"), '
        f"or write beside it: def {name}_example(): return {returned}"
    )


# ----------------------------------------------------------------------------------------- an example


def _from_example(
    program: Program, parameters: Sequence[inspect.Parameter], name: str | None
) -> tuple[dict[str, Any], ArgumentError | None]:
    """The example's values by the names of parameters; and why an example was not used."""
    called_example = _example(program, name)
    if called_example is None:
        return {}, None
    called, value = called_example
    signature = inspect.Signature(parameters)
    by_name = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    try:
        if by_name:
            with contextlib.suppress(TypeError):
                return _by_parameter(signature.bind_partial(**value)), None
        return _by_parameter(signature.bind_partial(*(value if type(value) is tuple else (value,)))), None
    except TypeError as error:
        refused = ArgumentError(
            f"the example {called} does not fit {program.target}{signature}: {error}; it returns a tuple of "
            "the arguments, or a dict of them by name"
        )
    if name is None and called in EXAMPLES:  # The example may be for other functions in the file.
        return {}, refused
    raise refused


def _by_parameter(bound: inspect.BoundArguments) -> dict[str, Any]:
    return {name: _with_types(value) for name, value in bound.arguments.items()}


def _with_types(value: object) -> Any:
    """A value with types for leaves without values; itself if none changes, since not all can be copied."""
    leaves, spec = flatten(value)
    typed = [_typed(leaf) for leaf in leaves]
    same = all(new is old for new, old in zip(typed, leaves, strict=True))
    return value if same else unflatten(spec, typed)


def _typed(leaf: object) -> Any:
    """A leaf; as a type if it has a shape and a dtype but no values, such as jax.ShapeDtypeStruct."""
    if is_tensor(leaf) or is_module(leaf) or not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    return tensor_type(dtype_of(leaf.dtype), shape_of(leaf.shape))


EXAMPLES = ("example", "example_inputs")
"""The names of examples in a file, tried after those that contain the function's name."""


def _example(program: Program, name: str | None) -> tuple[str, Any] | None:
    if name is not None:
        if name not in program.names:
            raise ArgumentError(f"--example {name}: {program.target.rpartition(':')[0]} has no {name!r}")
        value = program.names[name]
        return name, value() if callable(value) else value
    last = program.name.rpartition(".")[2]
    shared = EXAMPLES if parameters_of(program.value) else ()
    for name in (f"{last}_example", f"example_{last}", *shared):
        value = program.names.get(name)
        if callable(value) and value is not program.value and not _required(value):
            return name, value()
    return None


def _required(f: Callable[..., Any]) -> bool:
    return any(p.default is p.empty and p.kind not in _OPEN for p in parameters_of(f))
