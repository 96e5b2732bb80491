"""Tracing of the functions that users pass to loops and branches, over nested structures of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optree import PyTreeSpec

from stopgrad.graph import defining as d
from stopgrad.graph.builder import Trace
from stopgrad.graph.defining import (
    ArgumentError,
    Body,
    DType,
    DTypeError,
    Graph,
    Op,
    Operation,
    Output,
    ShapeError,
    StopgradError,
    TensorType,
)

Run = Callable[[Body, Sequence[Any]], Any]
"""How an engine runs a body while an operation is lowered: from the operands to the results."""


@dataclass
class Traced:
    """A function that was traced into a body.

    Attributes:
        trace: the trace, with the captures.
        parameters: the body's own parameters, without the captures.
        results: the tensors that it returned.
        spec: the structure that it returned them in.
    """

    trace: Trace
    parameters: list[Output]
    results: list[Output]
    spec: Any

    def body(self, captures: Sequence[Output] | None = None) -> Body:
        """The body, with parameters for *captures*, by default its own captures, after its own parameters."""
        graph, own = self.trace.graph, self.trace.captures
        captured = own if captures is None else captures
        extra = [own[x] if x in own else d.parameter_of(graph, x.type, x.op) for x in captured]
        return Body(graph, [*self.parameters, *extra], self.results)


def operands(what: str, *trees: Any) -> list[tuple[list[Any], Any]]:
    """For each nested structure its leaves as outputs and arrays, and its spec.

    Python floats take the dtype of the first floating-point tensor among the leaves. Errors name the
    construct, *what*.
    """
    everything = [leaf for tree in trees for leaf in d.flatten(tree)[0]]
    tensors = (d.type_of(x).dtype for x in everything if hasattr(x, "dtype") or hasattr(x, "as_output"))
    company = next((dtype for dtype in tensors if dtype.is_floating), None)
    return [_operands(what, tree, company) for tree in trees]


def _operands(what: str, tree: Any, company: DType | None) -> tuple[list[Any], Any]:
    leaves, spec = d.flatten(tree)
    tensors: list[Any] = []
    for path, leaf in zip(d.paths(tree), leaves, strict=True):
        if isinstance(leaf, (Output, Operation)):
            tensors.append(leaf.as_output())
            continue
        try:
            tensors.append(d.as_array(leaf, company if isinstance(leaf, float) else None))
        except StopgradError as error:
            where = f" at {path}" if path else ""
            raise type(error)(f"{what}: takes tensors, and{where} {error.message}") from None
    return tensors, spec


def graph_of(*groups: Sequence[Any]) -> Graph | None:
    """The graph to build in: that of the first output among the operands, or the default graph, or None."""
    symbolic = next((x for group in groups for x in group if isinstance(x, Output)), None)
    return d.graph_for(symbolic) if symbolic is not None else d.default_graph()


def check_function(f: object, what: str, role: str) -> None:
    """Raise unless *f* is callable; errors name the construct (*what*) and the parameter (*role*)."""
    if not callable(f):
        raise ArgumentError(f"{what}: {role} must be a function, not {f!r:.60}")


def check_default(what: str, name: str, value: object, default: object, cure: str) -> None:
    """Raise unless a parameter of TensorFlow's that has no meaning here has its default value."""
    if value is not default and not (isinstance(value, np.bool_) and bool(value) is default):
        raise ArgumentError(f"{what}: {name} has no meaning here but {default}: {cure}")


NOT_PROPAGATED = "a gradient is built where it is asked for; stop it with sg.stop_gradient on the result"
NOT_SWAPPED = "to keep less in memory for the gradient, wrap the function in sg.checkpoint"


def check_parallel(what: str, iterations: int) -> None:
    """Raise unless this is a positive whole number; steps run one after another in any case."""
    if not d.is_whole(iterations) or iterations < 1:
        raise ArgumentError(f"{what}: parallel_iterations is a positive whole number, not {iterations!r:.60}")


def trace_function(
    f: Callable[..., Any],
    types: Sequence[TensorType],
    arguments: Callable[[list[Any]], Any],
    what: str,
    graph: Graph | None,
) -> Traced:
    """Call a function once on parameters of these types, and keep what it builds.

    Args:
        f: the function.
        types: of the parameters.
        arguments: makes the tuple of the function's arguments from the parameters.
        what: names the function in errors.
        graph: the graph in which the construct is built, if it is known.
    """
    with d.tracing(what, graph) as trace:
        parameters = [d.parameter_of(trace.graph, t) for t in types]
        leaves, spec = d.flatten(d.call(f, *arguments(list(parameters))))
        results = []
        for leaf in leaves:
            try:
                y = d.as_output(leaf, trace.graph)
            except StopgradError as error:
                raise type(error)(
                    f"{what}: the function returned what is no tensor: {error.message}"
                ) from None
            results.append(y)
        body = d.close(trace, parameters, results)
        return Traced(trace, parameters, list(body.results), spec)


def apply_traced(
    definition: type[Op], traced: Traced, operands: Sequence[Any], values: tuple[Any, ...], name: str | None
) -> list[Any]:
    """The results of an operation that runs a traced function; without results, nothing is built."""
    if not traced.results:
        return []
    results = d.apply(definition, operands, values, name)
    return list(results) if isinstance(results, tuple) else [results]


def union(traced: Sequence[Traced]) -> list[Output]:
    """The captures of all the functions, each once."""
    return list(dict.fromkeys(x for function in traced for x in function.trace.captures))


def same_type(a: TensorType, b: TensorType) -> bool:
    """Whether two types may be equal: they have the same dtype, and no sizes that are known to differ."""
    return a.dtype is b.dtype and a.ndim == b.ndim and all(map(d.same_size, a.shape, b.shape))


def same_types(some: Sequence[TensorType], others: Sequence[TensorType]) -> bool:
    """Whether two lists of types have the same length and pass :func:`same_type` pair by pair."""
    return len(some) == len(others) and all(map(same_type, some, others))


def check_carry(
    types: Sequence[TensorType], spec: PyTreeSpec, traced: Traced, returned: PyTreeSpec, what: str
) -> None:
    """Raise if a function returns its carry with another structure, dtype or shape.

    Args:
        types: of the tensors of the first carry.
        spec: its structure.
        traced: the function; the tensors of the carry that it returns are the first of its results.
        returned: the structure of that carry.
        what: names the construct in errors.
    """
    if returned != spec:
        raise ArgumentError(
            f"{what}: the carry must keep its structure: it was {d.shown(spec)}, "
            f"the function returned {d.shown(returned)}"
        )
    names = d.paths(d.unflatten(spec, list(types)))
    for name, t, y in zip(names, types, traced.results, strict=False):
        where = f" at {name}" if name else ""
        if y.type.dtype is not t.dtype:
            raise DTypeError(
                f"{what}: the carry{where} must keep its dtype: it was {t!r}, the function returned "
                f"{d.describe(y)}; convert with sg.cast{d.widened(y)}"
            )
        if not same_type(y.type, t):
            raise ShapeError(
                f"{what}: the carry{where} must keep its shape: it was {t!r}, the function returned "
                f"{d.describe(y)}"
            )


def weak(leaves: Sequence[Any], arrays: Sequence[Any], results: Sequence[Output]) -> list[Any] | None:
    """A carry's first values, with Python numbers converted to the dtypes that the function returns.

    None if that changes nothing.
    """
    changed = False
    converted = []
    for leaf, array, y in zip(leaves, arrays, results, strict=False):
        dtype = y.type.dtype
        if d.is_python(leaf) and d.type_of(array).dtype is not dtype and dtype.is_differentiable:
            array, changed = d.as_array(leaf, dtype), True
        converted.append(array)
    return converted if changed else None
