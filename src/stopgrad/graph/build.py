"""Builds operations from their definitions, or computes them at once if there is no graph.

:func:`emit` adds an operation to a graph. :func:`apply`, which the public functions call, takes outputs,
arrays and Python numbers, and computes with NumPy if there is no graph at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import Any, TypeVar, cast

import numpy as np

from stopgrad.base.dtypes import BY_NUMPY
from stopgrad.base.errors import GraphError, StopgradError
from stopgrad.base.locks import exclusive
from stopgrad.base.promotion import Promotion
from stopgrad.base.source import capture
from stopgrad.base.types import Dim, DType, TensorType, bool_, complex64, float32, int32, tensor_type
from stopgrad.graph.body import Body
from stopgrad.graph.builder import CURRENT, Builder, Inside, Pending, Trace, current, default_graph
from stopgrad.graph.copying import copy_operations
from stopgrad.graph.graph import Graph, Operation, Output, by_id, describe, needed
from stopgrad.graph.immediate import evaluate, recalled
from stopgrad.graph.inferred import (
    about,
    infer_types,
    raise_for,
)
from stopgrad.graph.names import check_name as check_label
from stopgrad.graph.op import REGISTRY, Op
from stopgrad.graph.operands import (
    Literal,
    NumpyArray,
    as_array,
    fits,
    holds,
    is_python,
    python_dtype,
    type_of,
)

T = TypeVar("T")

# -------------------------------------------------------------------------------------------- building


def emit(
    definition: type[Op],
    inputs: tuple[Output, ...],
    values: tuple[Any, ...] = (),
    name: str | None = None,
    graph: Graph | None = None,
    ours: int = 0,
) -> Operation:
    """Add an operation to the graph of its inputs, or to the body that is being traced and uses them.

    An empty *name* is none, not even one that a scope has pending. The first *ours* callers are not the user.
    """
    try:
        builder: Builder = CURRENT.get()().__self__  # type: ignore[union-attr]
    except AttributeError:  # A block has ended.
        builder = current()
    trace = region = place = calls = pending = None
    if builder.special:
        builder = current()
        trace, region, place, calls, pending = builder.rare(name is None)
    if graph is None:
        graph = inputs[0].op.graph if inputs else _default_or_raise(builder, definition)
    # Most operations have one or two operands: no loop for these.
    if len(inputs) == 2:
        x, y = inputs
        types: tuple[TensorType, ...] = (x.type, y.type)
        foreign = x.op.graph is not graph or y.op.graph is not graph
    elif len(inputs) == 1:
        (x,) = inputs
        types = (x.type,)
        foreign = x.op.graph is not graph
    else:
        types, foreign = _types(inputs, graph)
    if trace is not None and (foreign or trace.graph is not graph):
        graph, inputs, types, foreign = _in_body(trace, graph, inputs)
    if foreign:
        raise_for(definition, _two_graphs(builder, inputs), inputs)
    results = definition._inferred.get((types, values)) or _inferred(definition, inputs, values)
    if graph._hidden:
        inputs = tuple([visible(x, builder) for x in inputs])
    if builder.graph is graph:
        prefix, origin = builder.prefix, builder.origin
        if pending is not None:
            name = pending.name
    else:
        prefix, origin, pending = builder.prefix_in(graph), None, None
    place = place or capture(ours) if origin is None else None
    shared = builder.shared if origin is not None and definition.merged else None
    if shared is not None:
        key = definition, inputs, definition.identity(values) if values and definition.inexact else values
        op = shared.get(key)
        if op is not None and graph.holds(op):
            return op
    if shared is None and name is not None and (type(name) is not str or name):
        op = named(graph, prefix, name, pending, definition, inputs, values, results, place, origin, region)
    else:
        op = Operation(graph, definition, inputs, values, results, prefix, place, origin, region)
        if shared is not None:
            shared[key] = op
    return op if calls is None else calls.note(op)


@exclusive
def named(
    graph: Graph, prefix: str, name: str, pending: Pending | None, definition: type[Op], *parts: Any
) -> Operation:
    """A new operation with a name that no other thread can take; *parts* are the class's other arguments."""
    inputs, values, types, *origins = parts
    label = graph.names.label(prefix, name)
    op = Operation(graph, definition, inputs, values, types, label, *origins)
    graph.names.note(op, pending)
    return op


def _types(inputs: Sequence[Output], graph: Graph) -> tuple[tuple[TensorType, ...], bool]:
    """The types of operands, and whether any belongs to another graph."""
    foreign = any([x.op.graph is not graph for x in inputs])  # noqa: C419 - a generator costs more
    return tuple([x.type for x in inputs]), foreign


def _inferred(
    definition: type[Op], inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> tuple[TensorType, ...]:
    with about(definition, *inputs):
        return infer_types(definition, tuple([x.type for x in inputs]), values)


def _default_or_raise(builder: Builder, definition: type[Op]) -> Graph:
    if builder.graph is None:
        raise GraphError(f"{definition.type}: needs a graph; build it inside 'with graph.as_default():'")
    return builder.graph


def _two_graphs(builder: Builder, inputs: Sequence[Output]) -> GraphError:
    trace = builder.tracing
    for x in inputs:
        done = x.op.graph._body_of
        if done and (trace is None or not trace.encloses(x.op.graph)):
            return GraphError(
                f"an operand was made inside {done}, which does not enclose this place; let the "
                "function there return it"
            )
    if trace is None:
        return GraphError(
            "the operands belong to two graphs; build both in one, or feed the value of one into the other"
        )
    return GraphError(
        f"inside {trace.what}, an operand belongs to a graph that does not enclose it; "
        "build it in the graph around it, or pass its value in"
    )


def _in_body(
    trace: Trace, graph: Graph, inputs: tuple[Output, ...]
) -> tuple[Graph, tuple[Output, ...], tuple[TensorType, ...], bool]:
    """While a body is traced, the graph to build in, and the operands as known there, with :func:`_types`."""
    if graph is trace.graph or (inputs and trace.adopts(graph)):
        graph = trace.graph
        inputs = tuple([x if x.op.graph is graph else captured(trace, x) for x in inputs])
    return graph, inputs, *_types(inputs, graph)


def captured(trace: Trace, x: Output) -> Output:
    """The tensor for *x* inside the body: a parameter if *x* is of an enclosing graph, else *x* itself."""
    if x.op.graph is trace.graph:
        return x
    capture = trace.captures.get(x)
    if capture is None or not trace.graph.holds(capture.op):
        if not trace.adopts(x.op.graph):
            return x
        if trace.remakes and x.op.definition.remade:
            return remade(_sources(x))[x]
        capture = trace.captures[x] = parameter_of(trace.graph, x.type, x.op)
    return capture


def _sources(x: Output) -> list[Operation]:
    """The operations that must be built again inside a body to get *x*, in order."""
    chain, stack = {x.op}, [x.op]
    while stack:
        for source in {y.op for y in stack.pop().inputs} - chain:
            if source.definition.remade:
                chain.add(source)
                stack.append(source)
    return sorted(chain, key=by_id)


def remade(operations: Sequence[Operation]) -> dict[Output, Output]:
    """Build operations of enclosing graphs again in the body that is being traced, from captured operands.

    Called inside :func:`tracing`.

    Returns:
        a dict from their old operands and outputs to the new ones.
    """
    trace, inside = current().tracing, set(operations)
    assert trace is not None
    graph = trace.graph
    built = {x: captured(trace, x) for op in operations for x in op.inputs if x.op not in inside}
    copy_operations(
        operations, built, lambda op, inputs: emit(op.definition, inputs, op.values, "", graph).outputs
    )
    return built


def tracing(
    what: str,
    outer_graph: Graph | None,
    *,
    remakes: bool = False,
    origin: Operation | None = None,
) -> Inside:
    """A context in which operations are built in a new body, whose Trace it yields.

    *what* names the construct in errors. With an *origin*, the operations are for its gradient, and equal
    ones are built once.
    """
    trace = Trace(Graph(), outer_graph, current().tracing, what, remakes)
    trace.graph._body_of = what
    trace.graph.careful = True
    shared: dict[Any, Operation] | None = None if origin is None else {}
    return Inside(
        trace,
        graph=trace.graph,
        prefix="",
        tracing=trace,
        region=None,
        pending=None,
        origin=origin,
        shared=shared,
    )


def building_in(graph: Graph) -> Inside:
    """A context in which operations on tensors of *graph* are built there, whatever is being traced."""
    builder = current()
    if builder.graph is graph:
        return Inside()
    trace = builder.tracing
    while trace is not None and trace.graph is not graph:
        trace = trace.outer
    origin = builder.origin
    shared: dict[Any, Operation] | None = None if origin is None else {}
    return Inside(graph=graph, tracing=trace, region=None, pending=None, origin=origin, shared=shared)


def close(trace: Trace, parameters: Sequence[Output], results: Sequence[Output | None]) -> Body:
    """The body that was traced, with the given parameters, and then one for each capture.

    Called inside :func:`tracing`. Results that come from an enclosing graph are captured.
    """
    outputs = [None if y is None else visible(captured(trace, y)) for y in results]
    for y in outputs:
        if y is not None and y.op.graph is not trace.graph:
            raise GraphError(
                f"inside {trace.what}, the function returned {describe(y)}, which belongs to a graph that "
                "does not enclose it; pass its value in"
            )
    trace.forget_undone()
    return Body(trace.graph, [*parameters, *trace.captures.values()], outputs)


def inline(
    outputs: Sequence[Output],
    replacements: Mapping[Output, Output],
    built: dict[Output, Output] | None = None,
) -> list[Output]:
    """Build here what a body computes, with tensors in the place of its parameters.

    The new tensor for each of the body's tensors is put into *built*.
    """
    built = {} if built is None else built
    built.update(replacements)
    builder = current()

    def build(op: Operation, inputs: tuple[Output, ...]) -> Sequence[Output]:
        if builder.origin is not None:
            builder.origin = op
        return emit(op.definition, inputs, op.values, "").outputs

    copy_operations(needed(outputs, built), built, build)
    return [built[y] for y in outputs]


def parameter_of(graph: Graph, type: TensorType, like: Operation | None = None) -> Output:
    """A new parameter of a body, with the location of *like*, for which it stands."""
    place = None if like is None else (like._place, like._instruction)
    values = (type.dtype, type.shape, ())
    return Operation(graph, REGISTRY["Placeholder"], (), values, (type,), location=place).outputs[0]


def local(x: Output) -> Output:
    """*x* itself, or inside a body that is being traced, the parameter for it."""
    trace = current().tracing
    return x if trace is None else captured(trace, x)


def graph_for(x: Output) -> Graph:
    """The graph in which operations on *x* are built here: that of *x*, or the body that captures it."""
    trace = current().tracing
    return x.op.graph if trace is None or not trace.adopts(x.op.graph) else trace.graph


def visible(x: Output, builder: Builder | None = None) -> Output:
    """*x* as it may be used here: outside of the ``no_gradient`` blocks that built it, a stopped copy."""
    graph = x.op.graph
    region = graph._hidden.get(x.op)
    if region is None:
        return x
    here = (builder or current()).region
    while region is not None and not region.holds(here):
        key = x, get_ident()
        stopped = graph._exits.get(key)
        if stopped is None or not graph.holds(stopped.op):
            # The stop at the end of the block, with the line of the block.
            gate, types = REGISTRY["StopGradient"], (x.type,)
            stop = Operation(graph, gate, (x,), (), types, location=region.location, region=region.outer)
            stopped = graph._exits[key] = stop.outputs[0]
        x, region = stopped, region.outer
    return x


def check_name(name: str | None) -> None:
    """Raise for an invalid name, even if no operation gets it. An empty name means none."""
    if name is not None and not (isinstance(name, str) and not name):
        check_label(name)


def apply(
    definition: type[Op], operands: Sequence[Any], values: tuple[Any, ...] = (), name: str | None = None
) -> Any:
    """Build the operation if there is a graph, else compute it with NumPy.

    Operands are outputs, operations with one output, arrays, nested lists of numbers, or numbers; a Python
    number or list takes the dtype of the first operand that has one.
    """
    try:
        for x in operands:
            if type(x) is not Output:
                break
        else:
            if operands:
                if (tuple([x.type for x in operands]), values) not in definition._inferred:
                    operands = cast("list[Output]", coerce(definition, operands))
                outputs = emit(definition, tuple(operands), values, name, None, 1).outputs
                return outputs[0] if len(outputs) == 1 else outputs
        symbolic = next((x for x in operands if type(x) is Output), None)
        if symbolic is None:
            result = recalled(definition, operands, values)
            if result is not None and name is None:
                return result
            operands = [joined(x) for x in operands]
            symbolic = next((x for x in operands if isinstance(x, Output)), None)
        graph = graph_for(symbolic) if symbolic is not None else default_graph()
        arrays: Sequence[Any] = operands
        if graph is None or (_plain_types(operands), values) not in definition._inferred:
            arrays = coerce(definition, operands)
            if graph is None:
                check_name(name)
                return evaluate(definition, cast("list[NumpyArray]", arrays), values, operands)
            with about(definition, *arrays):  # Checked before a constant is built.
                infer_types(definition, tuple([type_of(x) for x in arrays]), values)
        inputs = tuple([x if type(x) is Output else constant_in(graph, x) for x in arrays])
        outputs = emit(definition, inputs, values, name, graph).outputs
        return outputs[0] if len(outputs) == 1 else outputs
    except StopgradError as error:
        error.name_after(definition.type)
        raise
    except TypeError:  # An attribute may have no hash.
        definition.canonical(values)
        raise


# -------------------------------------------------------------------------------------------- operands


def _plain_types(operands: Sequence[Any]) -> tuple[TensorType, ...] | None:
    """The types of operands that an operation takes as they are, if it takes these types; None for others."""
    types = []
    for x in operands:
        if type(x) is Output:
            types.append(x.type)
            continue
        dtype = BY_NUMPY.get(x.dtype) if type(x) is np.ndarray else None
        if dtype is None:
            return None
        types.append(tensor_type(dtype, x.shape))
    return tuple(types)


def coerce(definition: type[Op], operands: Sequence[Any]) -> list[Output | NumpyArray]:
    """Make arrays of all operands but outputs, and bring those that must share a dtype to it."""
    promotes = definition.promotes
    if promotes is None:
        company = next((type_of(x).dtype for x in operands if not is_python(x)), None)
        return [
            _tensor(x, company if is_python(x) and company and fits(x, company) else None, operands)
            for x in operands
        ]
    names = promotes.operands
    if not names:
        return together(*operands, promotes=promotes)
    places = [i for i, name in enumerate(definition.operands) if name in names]
    if definition.variadic in names:
        places += range(len(definition.operands), len(operands))
    coerced = list(operands)
    for i, x in zip(places, together(*[operands[i] for i in places], promotes=promotes), strict=True):
        coerced[i] = x
    return [_tensor(x, None, operands) for x in coerced]


def joined(x: Any) -> Any:
    """An operand; of a list with outputs in it, the stack."""
    if isinstance(x, Operation):
        return x.as_output()
    if not holds(x, Output, Operation):
        return x
    return apply(REGISTRY["Pack"], [joined(v) for v in x], (0,))


def together(*xs: object, promotes: Promotion) -> list[Output | NumpyArray]:
    """Tensors brought to one dtype by casts in the graph; unchanged if the common dtype is not allowed."""
    inputs: list[Any] = []
    strong: list[DType] = []
    weak: list[DType] = []
    for x in xs:
        number = _NUMBERS.get(type(x))
        if number is None and type(x) is not Output:
            x = joined(x)
            if not isinstance(x, Output):
                number = (python_dtype(x) or int32) if is_python(x) else None
                x = as_array(x) if number is None else x
        inputs.append(x)
        if number is None:
            strong.append(x.type.dtype if type(x) is Output else type_of(x).dtype)
        else:
            weak.append(number)
    if not strong:  # Python's integers may need more than 32 bits.
        strong = [d for d in [type_of(x).dtype for x in inputs] if d.is_integer and d.itemsize > 4]
    common = promotes.common(strong, weak)
    if not weak and all([d is common for d in strong]):  # noqa: C419 - a generator costs more
        return inputs
    dtype = common if promotes.to(common) else None
    return [x if type(x) is Output and x.type.dtype is dtype else _tensor(x, dtype, inputs) for x in inputs]


_NUMBERS = {float: float32, int: int32, bool: bool_, complex: complex64}


def _tensor(x: Any, dtype: DType | None, company: Sequence[Any]) -> Output | NumpyArray:
    """An output or array of a dtype; sizes become outputs, in the graph of the other operands."""
    if dtype is not None and type(x) is float:  # The usual case.
        return np.asarray(x, dtype.numpy)
    if isinstance(x, Dim) or holds(x, Dim):
        symbolic = next((y for y in company if isinstance(y, Output)), None)
        graph = default_graph() if symbolic is None else graph_for(symbolic)
        if graph is None:
            return as_array(x)  # This raises, and says why.
        dtype = dtype or python_dtype(x) or int32
        if isinstance(x, Dim):
            return emit(REGISTRY["Size"], (), (x, dtype), "", graph).outputs[0]
        parts = [_tensor(v, dtype, company) for v in x]
        inputs = tuple([v if isinstance(v, Output) else constant_in(graph, v) for v in parts])
        return emit(REGISTRY["Pack"], inputs, (0,), "", graph).outputs[0]
    if not isinstance(x, Output):
        return as_array(x, dtype)
    if dtype is None or x.type.dtype is dtype:
        return x
    return emit(REGISTRY["Cast"], (x,), (dtype,), "").outputs[0]


def constant_in(graph: Graph, array: NumpyArray, name: str | None = "") -> Output:
    """A constant in a graph.

    Unnamed scalars, which are numbers in the user's code, are built once per graph.
    """
    if array.ndim == 0 and name == "":
        key = array.dtype, array.tobytes()
        scalar = scalar_in(graph, key)
        if scalar is None:
            scalar = emit(REGISTRY["Const"], (), (Literal(array),), name, graph).outputs[0]
            graph._scalars[key, get_ident()] = scalar
        return scalar
    return emit(REGISTRY["Const"], (), (Literal(array),), name, graph).outputs[0]


def scalar_in(graph: Graph, key: tuple[Any, ...]) -> Output | None:
    """The unnamed scalar constant of a dtype and value that this thread has built in a graph, if it has."""
    scalar = graph._scalars.get((key, get_ident()))
    if scalar is None:
        return None
    op, operations = scalar.op, graph._operations
    return scalar if op.id < len(operations) and operations[op.id] is op else None


def scalar_key(op: Operation) -> tuple[Any, ...] | None:
    """What :func:`scalar_in` finds an operation's output by; None if it does not."""
    if op.definition is not REGISTRY["Const"] or op.outputs[0].type.shape:
        return None
    array = op.values[0].array
    key = array.dtype, array.tobytes()
    return key if scalar_in(op.graph, key) is op.outputs[0] else None


def as_output(x: object, graph: Graph | None = None) -> Output:
    """*x* as an output: itself, its only output, or a constant."""
    if isinstance(x, Output):
        return x
    if isinstance(x, Operation):
        return x.as_output()
    if graph is None:
        graph = _default_or_raise(current(), REGISTRY["Const"])
    if isinstance(x, Dim):
        return emit(REGISTRY["Size"], (), (x, int32), "", graph).outputs[0]
    return constant_in(graph, as_array(x))
