"""Python functions traced into graphs: what was given, what is computed, and what was returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stopgrad.base.errors import ArgumentError, GradientError, GraphError, StopgradError
from stopgrad.base.structure import flatten, unflatten
from stopgrad.base.types import Dim, dtype_of
from stopgrad.graph.arguments import Constant, argument_paths, joined, operation_name
from stopgrad.graph.body import bodies_in, walk
from stopgrad.graph.build import as_output, emit
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.operands import as_array
from stopgrad.ops.gates.stopping import Named, Probe
from stopgrad.ops.structural.sources import Assign, Parameter, Placeholder
from stopgrad.transforms.gradients.tracing import ArgumentGraph, is_tensor

Static = Sequence[tuple[int | str, Constant]]
"""The static arguments: their positions or names, and what they are."""

Signature = Sequence[tuple[tuple[Any, ...], Any] | Constant]
"""What tells calls apart: of arrays the shape, perhaps with open sizes, and dtype; of all else the value."""


@dataclass(frozen=True, eq=False)
class Traced:
    """A function traced for one signature.

    Attributes:
        name: what errors call the function.
        graph: what was built.
        inputs: the traced arguments, called by their paths.
        outputs: the results.
        paths: of the traced arguments.
        symbolic: whether sizes are left open.
        spec: the structure of what the function returned; None where that is one result alone.
        leaves: what stood in it, with a mark in the place of each result.
    """

    name: str
    graph: Graph
    inputs: list[Output]
    outputs: list[Output]
    paths: list[str]
    symbolic: bool
    spec: Any
    leaves: list[Any]

    def rebuild(self, results: Sequence[Any]) -> Any:
        """What the function returned, with these results."""
        if self.spec is None:
            return results[0]
        given = iter(results)
        return unflatten(self.spec, [leaf if leaf is not _RESULT else next(given) for leaf in self.leaves])


def trace(
    f: Callable[..., Any],
    name: str,
    with_probes: bool,
    spec: Any,
    signature: Signature,
    static: Static = (),
) -> Traced:
    """Call a function once on outputs that stand for its arguments.

    Args:
        f: the function.
        name: what errors call it.
        with_probes: whether the gradients at its probes are among the results.
        spec: the structure of the arguments, without the static ones.
        signature: what stands in it.
        static: the others.
    """
    paths = argument_paths(f, spec)
    graph = ArgumentGraph()
    with graph.as_default():
        leaves = [
            s.value if isinstance(s, Constant) else _stand_in(graph, name, path, s)
            for path, s in zip(paths, signature, strict=True)
        ]
        traced = [i for i, s in enumerate(signature) if not isinstance(s, Constant)]
        args, kwargs = unflatten(spec, leaves)
        args, kwargs = joined(args, kwargs, static)
        result = f(*args, **kwargs)
        if with_probes:
            result = result, probed(graph.operations, name)
        result_leaves, result_spec = flatten(result)
        outputs = [as_output(x, graph) for x in result_leaves if _is_result(x)]
    check_outputs(name, graph, outputs, "sg.function")
    inputs = [leaves[i] for i in traced]
    alone = result_spec == _ALONE and len(outputs) == 1
    return Traced(
        name,
        graph,
        inputs,
        outputs,
        [paths[i] for i in traced],
        any(x.type.symbolic for x in inputs),
        None if alone else result_spec,
        [_RESULT if _is_result(x) else x for x in result_leaves],
    )


def check_outputs(name: str, graph: Graph, outputs: Sequence[Output], where: str) -> None:
    """Refuse what a traced function returned of another graph, and parameters, which it cannot hold."""
    for y in outputs:
        if y.op.graph is not graph:
            raise GraphError(f"{name} returned {describe(y)}, which belongs to another graph")
    stray = next((op for op in graph.subgraph_to(outputs) if op.definition in (Parameter, Assign)), None)
    if stray is not None:
        raise GraphError(
            f"{describe(stray)} inside {where}: parameters live in a session; "
            "pass values in and return the new ones"
        )


def _stand_in(graph: Graph, name: str, path: str, known: tuple[Any, ...]) -> Output:
    shape, dtype, *sharding = known
    try:
        values = dtype_of(dtype), tuple(shape), *(sharding or [()])
        return emit(Placeholder, (), values, operation_name(path), graph).outputs[0]
    except StopgradError as error:
        raise type(error)(f"{name}: {path}: {error.message}") from None


def _is_result(x: Any) -> bool:
    return is_tensor(x) or (isinstance(x, (int, float, complex, Dim)) and not isinstance(x, bool))


def array_argument(name: str, path: Callable[[], str], x: Any) -> Any:
    """A traced argument as a NumPy array; errors say which argument it is."""
    try:
        return as_array(x)
    except StopgradError as error:
        raise type(error)(f"{name}: {path()}: {error.message}") from None


_, _ALONE = flatten(0)
_RESULT = object()


# -------------------------------------------------------------------------------------------- probes


def probed(operations: Iterable[Operation], name: str) -> dict[str, Any]:
    """The gradients at the probes among operations, by the names of the probes.

    None where no gradient was generated or none arrives; a list, in the order of their generation, where
    several were.

    Raises:
        GradientError: a probe stands in a body, which runs any number of times.
    """
    operations = list(operations)
    found: dict[str, list[Output]] = {op.name: [] for op in operations if op.definition is Probe}
    for op in operations:
        if op.definition is Named and op.origin is not None and op.origin.definition is Probe:
            found.setdefault(op.origin.name, []).append(op.outputs[0])
        body = next(bodies_in(op.values), None)
        inside = [] if body is None else [one for one in walk([op]) if one.definition is Probe]
        if inside:
            raise GradientError(
                f"{name}: {describe(inside[0])} stands inside a function of {describe(op)}, which may run "
                "any number of times, so that the gradient there is no one tensor; probe what goes in or "
                "comes out, or add zeros there, a part for each step, and take the gradient towards these"
            )
    return {label: None if not gs else gs[0] if len(gs) == 1 else gs for label, gs in found.items()}


def started(graph: Graph | None) -> int:
    """How many operations a graph has now."""
    return 0 if graph is None else len(graph)


def probes_since(graph: Graph | None, start: int, name: str) -> dict[str, Any]:
    """:func:`probed`, of what has been built since."""
    if graph is None:
        raise ArgumentError(f"{name}: with_probes=True needs a graph to look for probes in")
    return probed(graph.operations[start:], name)
