"""The gradient generator: the derivatives of ys with respect to xs as more operations of the same graph.

:func:`backpropagate` is the whole algorithm; the code around it checks the user's arguments, fits cotangents
to their operands, and treats the groups of xs that selective gates make separately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from stopgrad.base.arrays import ArrayLike
from stopgrad.base.coercion import flag, whole
from stopgrad.base.errors import DTypeError, GradientError, GraphError, ShapeError
from stopgrad.base.garbage import without_gc
from stopgrad.base.progress import Progress
from stopgrad.base.structure import flatten, unflatten
from stopgrad.base.types import same_size
from stopgrad.graph.build import as_output, local, visible
from stopgrad.graph.builder import Builder, Inside, Trace, current
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.operands import as_array
from stopgrad.graph.public import guarded
from stopgrad.graph.scope import Scope, as_scope
from stopgrad.graph.selective import Acting
from stopgrad.graph.verify import verify_if_enabled
from stopgrad.ops.structural.sources import ones_like, zeros_like
from stopgrad.transforms.gradients.cotangents import NOWHERE, Cotangents, Holds, Parts, pull_back
from stopgrad.transforms.gradients.holding import Holding, has_open_gates, total
from stopgrad.transforms.gradients.reach import Step, routes
from stopgrad.transforms.gradients.transform_arguments import outputs_in


def backpropagate(
    ys: Sequence[Output],
    xs: Sequence[Output],
    seeds: Sequence[Output],
    path: list[Step],
    acting: Acting,
    stops: Collection[Output] = (),
) -> list[Output | None]:
    """The cotangents that reach xs from seeds at ys, along a path; None for an x that none reaches.

    The path is consumed, so that a long one is freed as soon as possible.
    """
    if has_open_gates(path, acting):
        return [total(parts) for parts in Holding(path, acting).run(ys, xs, seeds, path, stops)]
    builder = current()
    cotangents = Cotangents(ys, xs, seeds, stops, builder)
    while path:
        op, live = path.pop()  # ids are a topological order: no recursion, no sort
        g = cotangents.take(op)
        if g is not None:
            builder.origin = op  # each gradient operation remembers its forward operation
            for x, dx in pull_back(op, g, live, acting):
                cotangents.add(x, dx)  # many uses: collected, then one AddN
    return [cotangents.arrived_at(x) for x in xs]


def parts_in_body(
    parameters: Mapping[Output, int],
    ys: Sequence[Output],
    xs: Sequence[Output],
    seeds: Sequence[Output],
    path: list[Step],
    acting: Acting,
    holds: Sequence[Holds] = (),
) -> list[Parts]:
    """The cotangents that reach parameters of a body, apart by what is held where they leave it.

    The parameters come with the positions of the operands that they stand for. *holds* is what is held for
    each of the seeds, by default nothing.
    """
    if any(holds) or has_open_gates(path, acting):
        return Holding(path, acting, parameters).run_inside(ys, xs, seeds, path, holds)
    cotangents = backpropagate(ys, xs, seeds, path, acting)
    return [Parts() if dx is None else Parts({NOWHERE: dx}) for dx in cotangents]


# ------------------------------------------------------------------------------------------ around it


def generating(graph: Graph, name: str) -> Inside:
    """A context for building a gradient: operations are named below *name*, and equal ones are built once.

    The builder's ``origin`` is the forward operation whose gradient is being built.
    """
    outer = current()
    trace = outer.tracing
    while trace is not None and trace.graph is not graph:
        trace = trace.outer  # A gradient of tensors around a body is generated around it, too.
    block = Inside(graph=graph, pending=None, shared={}, tracing=trace)
    return block.named(graph, outer.prefix_in(graph), name)


_FOR_ARRAYS = "; for functions of arrays there is sg.grad"


@guarded("gradients")
def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: str = "none",
) -> Any:
    """Add operations that compute the derivatives of the sum of ys with respect to each x.

    Args:
        ys, xs: an output or a nested structure of outputs, all of one graph. For a y that is no scalar, the
            sum of its elements is differentiated.
        grad_ys: cotangents of ys, of their shapes and dtypes; None for ones. Complex ys need them.
        name: the scope of the added operations.
        gate_gradients, aggregation_method: TensorFlow's hints to its executor, which have no effect here.
        stop_gradients: outputs treated as constants at every use; gradients still arrive at them.
        unconnected_gradients: ``"none"`` or ``"zero"``: what to return for an x that no gradient reaches.

    Returns:
        The structure of xs, with an output of x's type, or None, for each x; for a single x a list of one.
        :func:`explain` says why it is None. For complex tensors, the gradient is the conjugate of the
        mathematical derivative, as in TensorFlow.

    Raises:
        GraphError, DTypeError, ShapeError: ys, xs and grad_ys do not fit together.
        GradientError: a gradient is undefined. The graph is then as before, unless another thread has built
            in it meanwhile: then the operations that had been added stay, unused.

    References:
        Reverse accumulation (Linnainmaa 1970), with the interface of TensorFlow's ``tf.gradients``.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     x = sg.placeholder(sg.float64, name="x")
        ...     (dx,) = sg.gradients(x * sg.stop_gradient(x), [x])
        >>> with sg.Session(graph) as session:
        ...     float(session.run(dx, {x: 3.0}))
        3.0
    """
    flag(gate_gradients, "gate_gradients")
    if aggregation_method is not None:
        whole(aggregation_method)
    unconnected = getattr(unconnected_gradients, "value", unconnected_gradients)  # TensorFlow has an Enum.
    if unconnected not in ("none", "zero"):
        raise GradientError(
            f"gradients: unconnected_gradients is 'none' or 'zero', not {unconnected_gradients!r}"
        )
    derivatives = _derivatives(ys, xs, grad_ys, stop_gradients, name, unconnected == "zero")
    is_flat = isinstance(xs, (Output, Operation)) or (type(xs) is list and {*map(type, xs)} == {Output})
    return derivatives if is_flat else unflatten(flatten(xs)[1], derivatives)


def _derivatives(
    ys: Any, xs: Any, grad_ys: Any, stop_gradients: Any, name: str, zeros: bool = False
) -> list[Output | None]:
    """The gradient for each x; *zeros* asks for zeros instead of None."""
    roots = outputs_in(ys, "gradients: ys", _FOR_ARRAYS)
    targets = outputs_in(xs, "gradients: xs", _FOR_ARRAYS)
    walls = outputs_in(stop_gradients, "gradients: stop_gradients", _FOR_ARRAYS)
    if not roots:
        raise GradientError("gradients: ys is empty; give at least one output to differentiate")
    graph = roots[0].op.graph
    seeds = [g for g in flatten(grad_ys)[0] if isinstance(g, Output)]
    for x in (*roots, *targets, *walls, *seeds):
        if x.op.graph is not graph:
            roots = [local(y) for y in roots]
            graph = _one_graph(roots, [*targets, *walls])
            break
    roots = [visible(y) for y in roots] if graph._hidden else roots
    arrived = without_gc(_generated, roots, targets, grad_ys, set(walls), graph, name, zeros)
    return [arrived[x] for x in targets]


def _generated(
    ys: Sequence[Output],
    xs: Sequence[Output],
    grad_ys: Any,
    stops: Collection[Output],
    graph: Graph,
    name: str,
    zeros: bool,
) -> dict[Output, Output | None]:
    """The gradient for each x, built in a scope of its own; *zeros* asks for zeros instead of None."""
    start = len(graph)
    with generating(graph, name):
        builder = current()
        seeds = _seeds(ys, grad_ys, graph, builder)
        arrived = _pulled(ys, xs, seeds, stops, builder)
        builder.origin = ys[0].op
        if zeros:
            arrived = {x: zeros_like(x) if g is None else g for x, g in arrived.items()}
        verify_if_enabled(graph, start)
    return arrived


def _pulled(
    ys: Sequence[Output],
    xs: Sequence[Output],
    seeds: Sequence[Output],
    stops: Collection[Output],
    builder: Builder,
) -> dict[Output, Output | None]:
    """The gradient for each x, which is in the graph of ys or in one around it that is being traced.

    Cotangents of the body's captures are propagated from the captured tensors on; they are computed inside.
    """
    if builder.tracing is None:
        return _through(ys, xs, seeds, stops, builder)
    arrived: dict[Output, Output | None] = dict.fromkeys(xs)
    leaving: dict[Graph, list[tuple[Output, Output]]] = {ys[0].op.graph: list(zip(ys, seeds, strict=True))}
    graph: Graph | None = ys[0].op.graph
    trace: Trace | None = builder.tracing
    while graph is not None and leaving:
        here = leaving.pop(graph, [])
        local_xs = [x for x in arrived if x.op.graph is graph]
        captures: dict[Output, Output] = {}
        if trace is not None and any(x.op.graph is not graph for x in xs):
            captures = {parameter: x for x, parameter in trace.captures.items()}
            stops = {*stops, *(parameter for parameter, x in captures.items() if x in stops)}
        if here:
            reached = list(dict.fromkeys([*local_xs, *captures]))
            cotangents = _through([y for y, _ in here], reached, [g for _, g in here], stops, builder)
            arrived.update((x, cotangents[x]) for x in local_xs)
            for parameter, x in captures.items():
                g = cotangents[parameter]
                if g is not None:
                    leaving.setdefault(x.op.graph, []).append((x, g))
        graph, trace = (None, None) if trace is None else (trace.outer_graph, trace.outer)
    return arrived


TOLD = 20_000
"""The operations from which on it may take long enough to be told."""


def _through(
    ys: Sequence[Output],
    xs: Sequence[Output],
    seeds: Sequence[Output],
    stops: Collection[Output],
    builder: Builder,
) -> dict[Output, Output | None]:
    """The cotangents that reach xs from seeds at ys, all in one graph."""
    groups = routes(ys, xs, stops)
    shared = builder.shared
    assert shared is not None
    arrived: dict[Output, Output | None] = {}
    for _, _, path in groups:
        for op, _ in path:
            # Operations that an earlier differentiation generated are reused.
            if op.origin is not None and op.definition.merged and _may_use(op, builder):
                shared[op.definition, op.inputs, op.values] = op
    large = sum(len(path) for _, _, path in groups) >= TOLD
    with Progress("generating gradients") if large else nullcontext():
        for acting, group, path in groups:
            arrived.update(zip(group, backpropagate(ys, group, seeds, path, acting, stops), strict=True))
    return arrived


def _may_use(op: Operation, builder: Builder) -> bool:
    """Whether an operation is in the builder's graph, and no ``no_gradient`` block hides it there."""
    hidden = op.graph._hidden.get(op) if op.graph._hidden else None
    return op.graph is builder.graph and (hidden is None or hidden.holds(builder.region))


def _one_graph(ys: Sequence[Output], others: Sequence[Output]) -> Graph:
    """The graph of ys. Raises unless the others are in it, too, or in a graph around one being traced."""
    graph, trace = ys[0].op.graph, current().tracing
    own = set(ys)
    for x in (*ys, *others):
        enclosing = x not in own and trace is not None and trace.graph is graph and trace.adopts(x.op.graph)
        if x.op.graph is not graph and not enclosing:
            raise GraphError(f"gradients: {describe(ys[0])} and {describe(x)} belong to two graphs")
    return graph


def _seeds(ys: Sequence[Output], grad_ys: Any, graph: Graph, builder: Builder) -> list[Output]:
    """The cotangents of ys to begin with, checked against their ys."""
    cotangents = (
        [None] * len(ys)
        if grad_ys is None
        else list(grad_ys)
        if isinstance(grad_ys, (list, tuple))
        else flatten(grad_ys)[0]
    )
    if len(cotangents) != len(ys):
        raise GradientError(f"gradients: {len(cotangents)} grad_ys for {len(ys)} ys; give one each")
    builder.origin = ys[0].op
    return [_seed(y, g, graph, builder) for y, g in zip(ys, cotangents, strict=True)]


def _seed(y: Output, cotangent: ArrayLike | None, graph: Graph, builder: Builder) -> Output:
    """The cotangent of one y: the given one, or ones."""
    if cotangent is None:
        if y.dtype.is_complex:
            raise DTypeError(
                f"gradients: {describe(y)} is complex; give its cotangent in grad_ys, or take sg.real or "
                "sg.abs of it first"
            )
        builder.origin = y.op
        seed: Output = ones_like(y)
        return seed
    try:
        g = as_output(
            as_array(cotangent, y.dtype) if isinstance(cotangent, (int, float, complex, list)) else cotangent,
            graph,
        )
    except DTypeError as error:
        raise DTypeError(f"gradients: no cotangent of {describe(y)}: {error.message}") from None
    if g.op.graph is not graph:
        g = local(g)
    if g.op.graph is not graph:
        raise GraphError(
            f"gradients: the cotangent {describe(g)} belongs to another graph than {describe(y)}"
        )
    if g.dtype is not y.dtype:
        raise DTypeError(
            f"gradients: the cotangent of {describe(y)} must be {y.dtype}, not {g.dtype}; convert with "
            "sg.cast"
        )
    if g.ndim != y.ndim or not all(same_size(a, b) for a, b in zip(g.shape, y.shape, strict=True)):
        raise ShapeError(f"gradients: the cotangent of {describe(y)} must have its shape, not {g.type!r}")
    return g


class Gradients:
    """The result of generating gradients, in the style of TensorFlow's Java and C++ interfaces.

    Examples:
        >>> graph = sg.Graph()
        >>> with graph.as_default():
        ...     x = sg.placeholder(sg.float32)
        >>> sg.Gradients.create(sg.Scope(graph), x * x, [x]).dy(0).dtype
        float32
    """

    __slots__ = ("_cotangents",)

    def __init__(self, cotangents: Sequence[Output | None]) -> None:
        self._cotangents = tuple(cotangents)

    @classmethod
    def create(
        cls, scope: Scope | Graph, ys: Any, xs: Any, grad_ys: Any = None, name: str = "gradients"
    ) -> Gradients:
        """Generate gradients in a scope; the arguments are those of :func:`gradients`."""
        scope = as_scope(scope, "Gradients.create")
        with scope:
            return cls(gradients(ys, flatten(xs)[0], grad_ys, scope.name or name))

    def dy(self, index: int = 0) -> Output | None:
        """The derivative with respect to the x at this position; None if it is not connected."""
        return self._cotangents[index]

    def __iter__(self) -> Iterator[Output | None]:
        return iter(self._cotangents)

    def __len__(self) -> int:
        return len(self._cotangents)


def _add_gradients(self: Graph, ys: Any, xs: Any, grad_ys: Any = None, prefix: str | None = None) -> Any:
    """:func:`gradients` in this graph; *prefix* names the scope."""
    with self.as_default():
        return gradients(ys, xs, grad_ys, name="gradients" if prefix is None else prefix)


Graph.add_gradients = _add_gradients  # type: ignore[method-assign]
