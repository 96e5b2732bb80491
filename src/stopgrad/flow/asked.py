"""Questions about gradients: about ys and xs of a graph, or about a function and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stopgrad.base.errors import GradientError, GraphError
from stopgrad.base.source import Calls
from stopgrad.base.structure import flatten, paths, tensors_among, unflatten
from stopgrad.graph.arguments import argument_names
from stopgrad.graph.build import as_output, visible
from stopgrad.graph.builder import CallNotes, NotedCalls
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.operands import NumpyArray, is_tensor
from stopgrad.graph.public import call, reads_arguments
from stopgrad.transforms.gradients.transform_arguments import Tracing, outputs_in
from stopgrad.transforms.gradients.transforms import argument_positions


@dataclass(frozen=True)
class Recorded:
    """What is known of a graph that records everything that a program did.

    Stops before values that are only logged or shown, and stops of plain data, are not reported.

    Attributes:
        frozen: the stops that stand for tensors that require no gradient; of each, whether it is at the line
            that froze the tensor.
        unwritten: the stops that nobody wrote, so that nobody can take them out.
        updates: the operations that write into a frozen tensor, such as an average of weights: their first
            operand is what it holds, the others are what is written.
        requires: how the framework says that a tensor requires no gradient.
    """

    frozen: Mapping[Operation, bool] = field(default_factory=dict)
    unwritten: Collection[Operation] = ()
    updates: Collection[Operation] = ()
    requires: str = "requires_grad is False"


@dataclass(frozen=True)
class Asked:
    """The ys and xs of a question, in one graph.

    Attributes:
        graph: the graph of ys and xs.
        ys: what is differentiated.
        xs: the tensors with respect to which; keys are the outputs themselves or, for a function, the paths
            of its arguments.
        feeds: the values of the placeholders that stand for a function's arguments.
        is_function: whether a function was asked about; xs then have the names of its arguments.
        recorded: what is known of a graph that was recorded; None for others.
        calls: the calls of the user's functions that led to operations, outermost first, where these are
            known.
        by_library: whether an operation is one that a library or the framework put in. Of a tensor that a
            gradient reaches, nobody asks which further paths it cuts; nor whether a stop of it is idle.
        updated: the xs that the function itself writes anew, such as running statistics: that no gradient
            reaches these is no finding.
        is_mapped: whether an operation is in a function that is mapped over an axis, as by ``jax.vmap``.
    """

    graph: Graph
    ys: tuple[Output, ...]
    xs: Mapping[Any, Output]
    feeds: Mapping[Output, NumpyArray] = field(default_factory=dict)
    is_function: bool = False
    recorded: Recorded | None = None
    calls: Mapping[Operation, Calls] = field(default_factory=dict)
    by_library: Callable[[Operation], bool] | None = None
    updated: Collection[Output] = ()
    is_mapped: Callable[[Operation], bool] | None = None


def label(key: object) -> str:
    """The name of a tensor that was asked about."""
    return key.name if isinstance(key, Output) else str(key)


def asked(
    what: str,
    ys: object,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    argnums: int | Sequence[int] | None = None,
) -> Asked:
    """The question from the arguments of the public function *what*: ys and xs, or a function and arguments.

    Raises:
        GraphError, GradientError: they are neither.
    """
    if callable(ys) and not isinstance(ys, (Output, Operation)):
        return _of_function(what, ys, args, kwargs, argnums)
    if len(args) != 1 or kwargs:
        raise GraphError(f"{what}: takes ys and xs, or a function and its arguments")
    if argnums is not None:
        raise GraphError(f"{what}: argnums is for functions; of a graph, name the tensors themselves as xs")
    return of_graph(what, ys, args[0])


def of_graph(what: str, ys: object, xs: object) -> Asked:
    """The question about outputs of a graph."""
    roots, targets = outputs_in(ys, f"{what}: ys"), outputs_in(tensors_among(xs), f"{what}: xs")
    if not roots:
        raise GradientError(f"{what}: ys is empty; give at least one output")
    graph = roots[0].op.graph
    for x in (*roots, *targets):
        if x.op.graph is not graph:
            raise GraphError(
                f"{what}: {describe(x)} and {describe(roots[0])} belong to two graphs, so that no gradient "
                "can pass between them; ask about tensors of one graph"
            )
    return Asked(graph, tuple([visible(y) for y in roots]), {x: x for x in targets})


@reads_arguments
def _of_function(
    what: str,
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    argnums: int | Sequence[int] | None,
) -> Asked:
    positions = range(len(args)) if argnums is None else argument_positions(argnums, args, what)
    names = argument_names(f, len(args))
    tracing, calls = Tracing(args, kwargs), CallNotes(_CALLING)
    with tracing.building(), NotedCalls(calls):
        entered = [_enter(tracing, arg, name) for arg, name in zip(args, names, strict=True)]
        result = call(f, *entered, **tracing.enter(kwargs))
        ys = [visible(as_output(y, tracing.graph)) for y in flatten(result)[0]]
    if not ys:
        raise GradientError(f"{what}: the function returned no tensor; let it return what is differentiated")
    keys: dict[str, Output] = {}
    for i in positions:
        for path, leaf in zip(paths(entered[i]), flatten(entered[i])[0], strict=True):
            if isinstance(leaf, Output):
                keys[".".join(part for part in (names[i], path) if part)] = leaf
    return Asked(tracing.graph, tuple(ys), keys, tracing.feeds, is_function=True, calls=calls.of)


_CALLING = _of_function.__code__


def _enter(tracing: Tracing, tree: object, first: str) -> Any:
    """*tree* with stand-ins for its tensors and its numbers with gradients."""
    leaves, spec = flatten(tree)
    named = zip(leaves, tracing.names(tree, first), strict=True)
    return unflatten(
        spec,
        [
            tracing.stand_in(x, name) if is_tensor(x) or isinstance(x, (float, complex)) else x
            for x, name in named
        ],
    )
