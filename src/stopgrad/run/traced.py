"""Tracing: Python functions called once on outputs, with the graphs that they build."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

from optree import PyTreeSpec

from stopgrad.base.errors import (
    ArgumentError,
    FeedError,
    GradientError,
    GraphError,
    ShapeError,
    StopgradError,
)
from stopgrad.base.garbage import with_rare_gc
from stopgrad.base.structure import flatten, unflatten
from stopgrad.base.types import Dim, dtype_of
from stopgrad.engines import Engine
from stopgrad.graph.arguments import Constant, argument_paths, joined, operation_name
from stopgrad.graph.body import bodies_in, walk
from stopgrad.graph.build import as_output, emit
from stopgrad.graph.builder import Inside
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.operands import is_tensor
from stopgrad.ops.gates.stopping import Named, Probe
from stopgrad.ops.structural.sources import Assign, Parameter, Placeholder
from stopgrad.rewrite import prepare
from stopgrad.run.argument_reader import Reader, reader
from stopgrad.run.compiling import Compiler, cached, compile_sized
from stopgrad.run.feeds import sizes_of
from stopgrad.run.programs import Program
from stopgrad.run.tuning import Sample
from stopgrad.transforms.gradients.transform_arguments import ArgumentGraph

Static = Sequence[tuple[int | str, Constant]]
"""The static arguments: their positions or names, and their values."""

Signature = Sequence[tuple[tuple[Any, ...], Any] | Constant]
"""What calls of one traced function share: shapes and dtypes of arrays, and the values of all else."""


class Traced:
    """A function traced for one signature of its arguments, and the programs compiled of it."""

    name: str
    inputs: list[Output]
    paths: list[str]

    def __init__(
        self,
        compiler: Compiler,
        graph: Graph,
        inputs: list[Output],
        paths: list[str],
        outputs: list[Output],
        spec: PyTreeSpec | None,
        leaves: list[Any],
        donated: Sequence[int],
        argument_spec: PyTreeSpec,
    ) -> None:
        self.name = compiler.name
        self.graph = graph
        self.inputs, self.paths = inputs, paths  # The traced arguments and their paths.
        self.outputs = outputs
        # What runs for what it does comes behind the results.
        self._computed = [*outputs, *[op.outputs[0] for op in graph.acting]]
        self.called = False
        self.spec = spec  # The structure of the function's results; None for a single output.
        # Its leaves, with a mark in the place of each output; None if they are just what is computed.
        plain = not graph.acting and all(leaf is _RESULT for leaf in leaves)
        self._leaves = None if plain else leaves
        self._argument_spec = argument_spec  # The structure of the arguments.
        self._donated = donated  # The positions of arrays that may be overwritten.
        self._compiler = compiler
        self._program: Program | None = None
        self._unsized: dict[Engine, Program] = {}  # What engines that keep sizes symbolic have compiled.
        # Refers to itself weakly, so that it is freed at once when it is dropped.
        size = compiler.options.cache_size
        self._sized = cached(partial(Traced._for_shapes, weakref.proxy(self)), size, "function")

    @cached_property
    def read(self) -> Reader:
        """Reads the leaves of arguments of the structure for which the function was traced."""
        return reader(self._argument_spec)

    def rebuild(self, results: Sequence[Any]) -> Any:
        """What the function returned, with these results in the place of outputs."""
        if self.spec is None:
            return results[0]
        if self._leaves is None:
            return unflatten(self.spec, results)
        rest = iter(results)
        return unflatten(self.spec, [leaf if leaf is not _RESULT else next(rest) for leaf in self._leaves])

    def compile(self, engine: Engine, sample: Sample | None = None) -> None:
        """Compile it now if all sizes are known; else each call finds or compiles its program."""
        if not any(x.type.symbolic for x in self.inputs):
            prepared = prepare(self._computed, self.inputs, {}, engine.mesh is not None)
            compile = self._compiler.compile
            self._program = compile(engine, prepared, donated=self._donated, sample=sample, outside=True)

    def program(
        self, engine: Engine, arrays: Sequence[Any], sample: Sample | None = None, own: bool = False
    ) -> Program:
        """The program for arrays of these shapes; *own*: whether any of them is the engine's own."""
        program = self._program
        if program is None or (own and program.small):
            shapes = tuple([x.shape for x in arrays])
            program = self._sized(engine, shapes, sample, False) if program is None else program
            if own and program.small:
                program = self._sized(engine, shapes, sample, True)
        return program

    def _for_shapes(
        self, engine: Engine, shapes: Sequence[tuple[int, ...]], sample: Sample | None, own: bool
    ) -> Program:
        """Compile for these shapes of the arguments, which determine the sizes that were left open."""
        paths = dict(zip(self.inputs, self.paths, strict=True))
        try:
            binding = sizes_of(
                self.inputs, shapes, lambda x: f"{self.name}: {paths[x]} was given an array", "arguments"
            )
        except FeedError as error:
            raise ShapeError(error.message) from None
        donated, outside = self._donated, not own
        compile = partial(self._compiler.compile, engine, donated=donated, sample=sample, outside=outside)
        return compile_sized(engine, self._computed, self.inputs, binding, self._unsized, compile)


def trace(
    f: Callable[..., Any],
    compiler: Compiler,
    engine: Engine,
    spec: PyTreeSpec,
    signature: Signature,
    static: Static = (),
) -> Traced:
    """Call a function once on outputs that stand for its arguments.

    Args:
        f: the function.
        compiler: the one that will compile it; its options say whether probes are returned.
        engine: the engine, whose mesh becomes the current one.
        spec: the structure of the arguments without the static ones.
        signature: the leaves of that structure.
        static: the static arguments.
    """
    name, options = compiler.name, compiler.options
    paths = argument_paths(f, spec)
    graph = ArgumentGraph()
    with Inside(mesh=engine.mesh), graph.as_default():
        leaves = [
            s.value if isinstance(s, Constant) else _stand_in(graph, name, path, s)
            for path, s in zip(paths, signature, strict=True)
        ]
        traced = [i for i, s in enumerate(signature) if not isinstance(s, Constant)]
        args, kwargs = unflatten(spec, leaves)
        args, kwargs = joined(args, kwargs, static)
        result = with_rare_gc(partial(f, *args, **kwargs))
        if options.with_probes:
            result = result, probed(graph.operations, name)
        result_leaves, result_spec = flatten(result)
        outputs = [as_output(x, graph) for x in result_leaves if _is_result(x)]
    check_outputs(name, graph, outputs, "sg.function")
    return Traced(
        compiler,
        graph,
        [leaves[i] for i in traced],
        [paths[i] for i in traced],
        outputs,
        None if result_spec == _ALONE and len(outputs) == 1 else result_spec,
        [_RESULT if _is_result(x) else x for x in result_leaves],
        _donated(name, options.donate_argnums, spec, signature),
        spec,
    )


def _donated(name: str, argnums: Sequence[int], spec: PyTreeSpec, signature: Signature) -> list[int]:
    """The positions of the arrays that belong to donated arguments."""
    if not argnums:
        return []
    count = spec.child(0).num_children
    missing = next((n for n in argnums if not -count <= n < count), None)
    if missing is not None:
        raise ArgumentError(
            f"function: donate_argnums holds {missing}, but {name} was given {count} positional arguments"
        )
    donated = {n % count for n in argnums}
    arrays = [
        not by_keyword and which in donated
        for (by_keyword, which, *_), s in zip(spec.paths(), signature, strict=True)
        if not isinstance(s, Constant)
    ]
    return [n for n, is_donated in enumerate(arrays) if is_donated]


def check_outputs(name: str, graph: Graph, outputs: Sequence[Output], where: str) -> None:
    """Raise if a traced function returned outputs of another graph, or uses parameters."""
    for y in outputs:
        if y.op.graph is not graph:
            raise GraphError(f"{name} returned {describe(y)}, which belongs to another graph")
    stray = next((op for op in graph.subgraph_to(outputs) if op.definition in (Parameter, Assign)), None)
    if stray is not None:
        raise GraphError(
            f"{describe(stray)} inside {where}: parameters live in a session; "
            "pass values in and return the new ones"
        )


def _stand_in(graph: Graph, name: str, path: str, part: tuple[Any, ...]) -> Output:
    shape, dtype, *sharding = part
    try:
        values = dtype_of(dtype), tuple(shape), *(sharding or [()])
        return emit(Placeholder, (), values, operation_name(path), graph).outputs[0]
    except StopgradError as error:
        raise type(error)(f"{name}: {path}: {error.message}") from None


def _is_result(x: object) -> bool:
    return is_tensor(x) or (isinstance(x, (int, float, complex, Dim)) and not isinstance(x, bool))


_ALONE = flatten(0)[1]
_RESULT = object()


# -------------------------------------------------------------------------------------------- probes


def probed(operations: Iterable[Operation], name: str) -> dict[str, Any]:
    """The gradients at the probes among operations, by the names of the probes.

    It is None if no gradient was generated or none arrives, and a list, in the order of generation, if there
    are several.

    Raises:
        GradientError: a probe stands in a body, which runs any number of times.
    """
    operations = list(operations)
    by_probe: dict[str, list[Output]] = {op.name: [] for op in operations if op.definition is Probe}
    for op in operations:
        if op.definition is Named and op.origin is not None and op.origin.definition is Probe:
            by_probe.setdefault(op.origin.name, []).append(op.outputs[0])
        body = next(bodies_in(op.values), None)
        inside = [] if body is None else [inner for inner in walk([op]) if inner.definition is Probe]
        if inside:
            raise GradientError(
                f"{name}: {describe(inside[0])} stands inside a function of {describe(op)}, which may run "
                "any number of times, so that the gradient there is no one tensor; probe what goes in or "
                "comes out, or add zeros there, a part for each step, and take the gradient towards these"
            )
    return {label: None if not gs else gs[0] if len(gs) == 1 else gs for label, gs in by_probe.items()}


def started(graph: Graph | None) -> int:
    """The number of operations that a graph has now."""
    return 0 if graph is None else len(graph)


def probes_since(graph: Graph | None, start: int, name: str) -> dict[str, Any]:
    """:func:`probed`, for the operations that were built after *start*."""
    if graph is None:
        raise ArgumentError(f"{name}: with_probes=True needs a graph to look for probes in")
    return probed(graph.operations[start:], name)
