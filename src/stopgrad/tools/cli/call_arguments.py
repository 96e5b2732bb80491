"""Arguments for the library's functions, for a program: data, placeholders, or a graph's outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.errors import ArgumentError
from stopgrad.base.structure import flatten, map_leaves, paths, unflatten
from stopgrad.base.types import FRESH, Dim, TensorType, bind_sizes, name_of, tensor_type
from stopgrad.graph.arguments import operation_name, parameters_of
from stopgrad.graph.build import emit
from stopgrad.graph.builder import Placed
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.operands import is_tensor, shorten
from stopgrad.interop.imported import Model
from stopgrad.ops.structural.sources import Parameter, Placeholder
from stopgrad.tools.cli.annotations import from_annotation
from stopgrad.tools.cli.inputs import Argument, arguments_of, line_of, namespace
from stopgrad.tools.cli.user_programs import Program

# --------------------------------------------------------------------------------------- sizes and data


def bound_sizes(arguments: Sequence[Argument], names: Mapping[str, Any]) -> list[Argument]:
    """The arguments with named sizes of annotations replaced by those of other arguments' actual shapes.

    ``def loss(x: "float32[n, 3]", y: "float32[n]")`` and ``--shape x=7,3``: then y has 7 elements.
    """
    binding: dict[str, int] = {}
    for argument in arguments:
        noted = from_annotation(argument.parameter.annotation, names)
        if isinstance(noted, TensorType) and hasattr(argument.value, "shape"):
            tried = dict(binding)
            numbers = all(isinstance(size, int) for size in argument.value.shape)
            if numbers and bind_sizes(noted.shape, argument.value.shape, tried):
                binding = tried
    return [
        argument._replace(value=map_leaves(lambda x: with_sizes(x, binding), argument.value))
        for argument in arguments
    ]


def with_sizes(leaf: object, numbers: Mapping[str, int]) -> Any:
    """A type with numbers for the named sizes that are known; any other leaf unchanged."""
    if not isinstance(leaf, TensorType):
        return leaf
    return tensor_type(
        leaf.dtype, tuple(numbers.get(name_of(s), s) if isinstance(s, Dim) else s for s in leaf.shape)
    )


def small_sizes(types: Sequence[TensorType]) -> dict[str, int]:
    """Small numbers for open sizes, different from each other and from known sizes."""
    taken = {size for type in types for size in type.shape if isinstance(size, int)}
    free = (number for number in range(3, 10**6) if number not in taken)
    numbers: dict[str, int] = {}
    for type in types:
        for size in type.shape:
            if isinstance(size, Dim) and (name := name_of(size)) and name not in numbers:
                numbers[name] = next(free)
    return numbers


def random_data(type: TensorType, random: np.random.Generator) -> np.ndarray:
    """A random array of a type: standard normal numbers; for integers zeros and ones, valid on every axis."""
    shape: Any = type.shape
    if type.dtype.is_floating:
        return np.asarray(random.standard_normal(shape)).astype(type.dtype.numpy)
    if type.dtype.is_complex:
        parts = random.standard_normal((2, *shape))
        return np.asarray(parts[0] + 1j * parts[1]).astype(type.dtype.numpy)
    return random.integers(0, 2, shape).astype(type.dtype.numpy)


def types_in(tree: object) -> Iterator[tuple[str, TensorType]]:
    """The leaves that are types, by path."""
    leaves = flatten(tree)[0]
    yield from (
        (path, leaf) for path, leaf in zip(paths(tree), leaves, strict=True) if isinstance(leaf, TensorType)
    )


def placeholders(tree: Any, graph: Graph, name: str) -> Any:
    """*tree* with a placeholder of the graph for each leaf that is a type."""
    leaves, spec = flatten(tree)
    filled = [
        emit(
            Placeholder, (), (leaf.dtype, leaf.shape, ()), operation_name(f"{name}.{path}".rstrip(".")), graph
        ).outputs[0]
        if isinstance(leaf, TensorType)
        else leaf
        for path, leaf in zip(paths(tree), leaves, strict=True)
    ]
    return unflatten(spec, filled)


# -------------------------------------------------------------------------------------------- calls


class Call(NamedTuple):
    """The arguments for :func:`explain` and for the functions that compute.

    Attributes:
        args: the function and its arguments; or ys and xs.
        options: ``argnums`` and ``feed_dict``, if any.
        data: a description of the data, for reports.
        open: the open sizes, each with an argument that has it, written as for ``--shape``.
    """

    args: tuple[Any, ...]
    options: dict[str, Any]
    data: str = ""
    open: Mapping[str, str] = {}


class Wanted(NamedTuple):
    """What the command line says about a program's inputs.

    Attributes:
        shapes: the values of ``--shape``.
        example: the value of ``--example``.
        argnums: positions in the function's signature.
        seed: of random data; None if nothing is computed, so that sizes may stay open.
        trained_with: the values of ``--optimizer`` and ``--grad``, if they are given, by these names.
    """

    shapes: Sequence[tuple[str, TensorType]]
    example: str | None
    argnums: Sequence[int] | None
    seed: int | None
    trained_with: Mapping[str, str] = {}


def call_of(program: Program, wanted: Wanted, arguments: Sequence[Argument] | None = None) -> Call:
    """The call for a program: a function of arrays, one that builds a graph, or an output of a graph.

    Args:
        program: the subject.
        wanted: what the command line says.
        arguments: the function's arguments; looked for here unless given.
    """
    if arguments is None:
        arguments = given_to(program, wanted)
    if arguments:
        return _function_call(program, arguments, wanted)
    if wanted.argnums is not None:
        raise ArgumentError(f"--argnums: {program.target} takes no arrays as arguments")
    return _graph_call(program, wanted)


def given_to(program: Program, wanted: Wanted) -> list[Argument]:
    """The arguments of a program that is a function; none for a graph or its output."""
    if isinstance(program.value, (Output, Model)):
        return []
    return arguments_of(program, wanted.shapes, wanted.example)


# -------------------------------------------------------------------------- functions of arrays


def _function_call(program: Program, arguments: Sequence[Argument], wanted: Wanted) -> Call:
    f, arguments, argnums = chosen(program, arguments, wanted.argnums)
    options: dict[str, Any] = {} if argnums is None else {"argnums": argnums}
    if wanted.seed is not None:
        values, data = with_data(program, arguments, wanted.seed)
        return Call((f, *values), options, data)
    arguments = bound_sizes(arguments, namespace(program))
    types = [
        (argument.parameter.name, path, type)
        for argument in arguments
        for path, type in types_in(argument.value)
    ]
    open = {
        str(size): ".".join(part for part in (name, path) if part)
        for name, path, type in types
        for size in type.shape
        if isinstance(size, Dim)
    }
    if open:
        graph = Graph()
        values = [placeholders(argument.value, graph, argument.parameter.name) for argument in arguments]
    else:
        values = [map_leaves(_zeros, argument.value) for argument in arguments]
    return Call((f, *values), options, open=open)


def with_data(program: Program, arguments: Sequence[Argument], seed: int) -> tuple[list[Any], str]:
    """A function's arguments, with random arrays where only types are known; and their description."""
    arguments, sizes = with_numbers(program, arguments)
    random = np.random.default_rng(seed)
    values = [map_leaves(lambda x: _data(x, random), argument.value) for argument in arguments]
    return values, _function_data(arguments, sizes, seed)


def with_numbers(program: Program, arguments: Sequence[Argument]) -> tuple[list[Argument], dict[str, int]]:
    """The arguments with small numbers for open sizes, and these numbers."""
    arguments = bound_sizes(arguments, namespace(program))
    sizes = small_sizes([type for argument in arguments for _, type in types_in(argument.value)])
    return [
        argument._replace(value=map_leaves(lambda x: with_sizes(x, sizes), argument.value))
        for argument in arguments
    ], sizes


def chosen(
    program: Program, arguments: Sequence[Argument], argnums: Sequence[int] | None
) -> tuple[Any, list[Argument], list[int] | None]:
    """A function of the given arguments alone, these arguments, and which of them are asked about."""
    parameters = parameters_of(program.value)
    by_name = {argument.parameter.name: argument for argument in arguments}
    for n in argnums or ():
        if not 0 <= n < len(parameters):
            names = ", ".join(f"{i} {p.name}" for i, p in enumerate(parameters))
            raise ArgumentError(f"--argnums holds {n}; the arguments of {program.target} are {names}")
        parameter = parameters[n]
        by_name.setdefault(parameter.name, Argument(parameter, parameter.default, "its default"))
    selected = [by_name[p.name] for p in parameters if p.name in by_name]
    places = {argument.parameter.name: i for i, argument in enumerate(selected)}
    positions = None if argnums is None else [places[parameters[n].name] for n in argnums]
    return _function_of(program.value, selected), selected, positions


def _function_of(f: Callable[..., Any], arguments: Sequence[Argument]) -> Any:
    """*f* as a function of these arguments alone, by position; the other parameters keep their defaults."""
    names = [argument.parameter.name for argument in arguments]
    signature = inspect.signature(f)

    def call(*args: Any) -> Any:
        bound = signature.bind_partial()
        bound.arguments.update(zip(names, args, strict=True))
        bound.apply_defaults()
        with Placed(None):
            return f(*bound.args, **bound.kwargs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    call.__name__ = getattr(f, "__name__", "function")
    return call


def _zeros(leaf: object) -> Any:
    """An array of a type that takes no memory, for uses that look only at the type."""
    if not isinstance(leaf, TensorType):
        return leaf
    return np.broadcast_to(np.zeros((), leaf.dtype.numpy), leaf.shape)  # type: ignore[arg-type]


def _data(leaf: object, random: np.random.Generator) -> Any:
    return random_data(leaf, random) if isinstance(leaf, TensorType) else leaf


def _function_data(arguments: Sequence[Argument], sizes: Mapping[str, int], seed: int) -> str:
    """A description of a function's arguments."""
    sources: dict[str, list[str]] = {}
    types = []
    for argument in arguments:
        name = argument.parameter.name
        types += [
            (".".join(part for part in (name, path) if part), type) for path, type in types_in(argument.value)
        ]
        if any(map(is_tensor, flatten(argument.value)[0])):
            sources.setdefault(argument.source.removesuffix(" and --shape"), []).append(name)
    return "; ".join(
        [*_random_data(types, sizes, seed), *[f"{', '.join(v)} from {k}" for k, v in sources.items()]]
    )


def _random_data(types: Sequence[tuple[str, TensorType]], sizes: Mapping[str, int], seed: int) -> list[str]:
    if not types:
        return []
    numbers = ", ".join(f"{'?' if FRESH.fullmatch(name) else name} = {n}" for name, n in sizes.items())
    shown = ", ".join(f"{name} {type}" for name, type in types)
    return [f"random at seed {seed}{f' with {numbers}' if numbers else ''}: {shown}"]


# -------------------------------------------------------------------------- functions that build graphs


def _graph_call(program: Program, wanted: Wanted) -> Call:
    built = program.value
    if isinstance(built, Model):
        built = list(built.outputs.values()), [*built.inputs.values(), *built.parameters.values()]
    elif not isinstance(built, Output):
        with Graph().as_default():
            built = built()
    ys, xs, feeds = _parts_of(program, built)
    graph = ys[0].op.graph
    open = {
        op.name: op.outputs[0]
        for op in graph.subgraph_to(ys)
        if op.definition is Placeholder and op.outputs[0] not in feeds
    }
    unknown = next((path for path, _ in wanted.shapes if path not in open), None)
    if unknown is not None:
        existing = f"the placeholders {', '.join(open)}" if open else "no placeholder that is not fed"
        raise ArgumentError(f"--shape names {unknown!r}, but {program.target} has {existing}")
    if wanted.seed is None:
        return Call((ys, xs), {})
    types = {name: x.type for name, x in open.items()} | dict(wanted.shapes)
    sizes = _sizes_of(open, types)
    types = {name: with_sizes(type, sizes) for name, type in types.items()}
    computed = next((f"{name} is {type!r}" for name, type in types.items() if type.symbolic), None)
    if computed is not None:
        raise ArgumentError(f"the placeholder {computed}; say its sizes with --shape")
    random = np.random.default_rng(wanted.seed)
    data = _random_data(list(types.items()), sizes, wanted.seed)
    feeds = {**feeds, **{open[name]: random_data(type, random) for name, type in types.items()}}
    return Call((ys, xs), {"feed_dict": feeds} if feeds else {}, "; ".join(data))


def _sizes_of(open: Mapping[str, Output], types: Mapping[str, TensorType]) -> dict[str, int]:
    """Numbers for the sizes of placeholders: from ``--shape``, or small ones."""
    binding: dict[str, int] = {}
    for name, x in open.items():
        if not types[name].symbolic and not bind_sizes(x.type.shape, types[name].shape, binding):  # type: ignore[arg-type]
            raise ArgumentError(f"--shape says {name} is {types[name]!r}, but it is the placeholder {x!r}")
    rest = small_sizes([with_sizes(type, binding) for type in types.values()])
    return {**binding, **rest}


def _parts_of(program: Program, returned: object) -> tuple[list[Output], list[Output], dict[Output, Any]]:
    """What a function that builds a graph returned: ys; ys and xs; or ys, xs and what to feed."""
    parts = list(returned) if type(returned) is tuple and len(returned) in (2, 3) else [returned]
    feeds = parts.pop() if len(parts) == 3 else {}
    ys = _outputs(parts[0])
    if not ys or not isinstance(feeds, Mapping) or not all(isinstance(x, (Output, Operation)) for x in feeds):
        raise ArgumentError(
            f"{line_of(program)}{program.name} returns {shorten(returned)}; a function without arguments "
            "builds a graph and returns its loss, or (loss, xs), or (loss, xs, feeds)"
        )
    graph = ys[0].op.graph
    xs = (
        _outputs(parts[1])
        if len(parts) == 2
        else [op.outputs[0] for op in graph.operations if op.definition is Parameter]
    )
    if not xs:
        raise ArgumentError(
            f"{line_of(program)}the graph of {program.name} has no parameters to ask about; "
            "return (loss, xs) with the outputs that you mean"
        )
    return ys, xs, {x.as_output(): value for x, value in feeds.items()}


def _outputs(tree: object) -> list[Output]:
    """The outputs in a structure; none if it holds anything else."""
    leaves = flatten(tree)[0]
    if not all(isinstance(leaf, (Output, Operation)) for leaf in leaves):
        return []
    return [leaf.as_output() for leaf in leaves]
