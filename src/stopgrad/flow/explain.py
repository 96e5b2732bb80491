"""Does this loss reach this parameter, and if not, which operation cuts the path, and on which line?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stopgrad.arguments import argument_names
from stopgrad.autodiff.reasons import Reach, reach
from stopgrad.autodiff.tracing import Tracing, is_tensor, outputs_in
from stopgrad.autodiff.transforms import argument_positions
from stopgrad.body import walk
from stopgrad.build import as_output, visible
from stopgrad.errors import GradientError, GraphError
from stopgrad.graph import Graph, Operation, Output, describe
from stopgrad.public import call, guarded, reads_arguments
from stopgrad.structure import flatten, paths, tensors_among, unflatten


@dataclass(frozen=True)
class GateUse:
    """A gate between ys and the tensors asked about: the statuses it causes, and whether it does anything."""

    operation: Operation
    cuts: tuple[str, ...]

    @property
    def idle(self) -> bool:
        """Whether the gate cuts no path at all."""
        return not self.cuts


class Flow(Mapping[Any, Reach]):
    """Per tensor asked about, whether gradients arrive, and what cuts the paths of those that do not.

    Keys are the outputs themselves, or, for a function, the paths of its arguments (``"params.w"``).
    """

    def __init__(self, found: dict[Any, Reach], graph: Graph, ys: Sequence[Output]) -> None:
        self._found = found
        self._graph = graph
        self._ys = ys

    def __getitem__(self, key: Any) -> Reach:
        if isinstance(key, Operation):
            key = key.as_output()
        try:
            return self._found[key]
        except KeyError:
            known = ", ".join(_label(k) for k in self._found)
            raise KeyError(f"explain was not asked about {_label(key)}; it knows {known}") from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def gates(self) -> tuple[GateUse, ...]:
        """The gates ys are computed through, with the names of tensors each cuts off, in part or whole."""
        gates = [op for op in walk(self._graph.subgraph_to(self._ys)) if op.definition.gate]
        return tuple(
            GateUse(
                op,
                tuple(
                    _label(key)
                    for key, found in self._found.items()
                    if any(cut.operation is op for cut in found.cuts)
                ),
            )
            for op in gates
        )

    def to_text(self) -> str:
        """A line per tensor, and below it one for each operation that cuts a path, with the user's line.

        Examples:
            >>> with sg.Graph().as_default():
            ...     x = sg.placeholder(sg.float32, name="x")
            ...     print(sg.explain(sg.exp(x), [x]).to_text())
            x:0  flows
        """
        width = max((len(_label(key)) for key in self._found), default=0)
        lines = []
        for key, found in self._found.items():
            lines.append(f"{_label(key):<{width}}  {found.status}")
            lines += [f"{'':<{width}}    {cut}" for cut in found.cuts]
        return "\n".join(lines)

    __str__ = to_text

    def __repr__(self) -> str:
        return f"<Flow {', '.join(f'{_label(k)}: {v.status}' for k, v in self._found.items())}>"


def _label(key: Any) -> str:
    return key.name if isinstance(key, Output) else str(key)


@guarded("explain")
def explain(
    ys: Any, *args: Any, argnums: int | Sequence[int] | None = None, stop_gradients: Any = None, **kwargs: Any
) -> Flow:
    """Whether gradients of ys arrive at each x; and if not, why not.

    Args:
        ys: an output or nested structure of outputs, as for :func:`gradients`; or a function.
        args: the xs, as for :func:`gradients`, numbers and strings among them being passed over; or the
            function's arguments.
        argnums: which of the function's arguments are asked about; all unless given.
        stop_gradients: as for :func:`gradients`.
        kwargs: the function's keyword arguments, which are not asked about.

    Returns:
        A :class:`Flow`: for each x a ``status`` and ``cuts``. The statuses: ``"flows"``;
        ``"partly stopped"`` (some paths are cut); ``"stopped"`` (every path is cut, and without the gates one
        would be open); ``"not differentiable"`` (every path passes an integer, a comparison, a rounding,
        ...); ``"undefined"`` (every path passes an operation whose gradient is an error);
        ``"disconnected"`` (there is no path).

    Examples:
        >>> sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)["b"].status
        'stopped'
    """
    if callable(ys) and not isinstance(ys, (Output, Operation)):
        return _explain_function(ys, args, kwargs, argnums)
    if len(args) != 1 or kwargs:
        raise GraphError("explain: takes ys and xs, or a function and its arguments")
    roots, targets = outputs_in(ys, "explain: ys"), outputs_in(tensors_among(args[0]), "explain: xs")
    stops = outputs_in(stop_gradients, "explain: stop_gradients")
    if not roots:
        raise GradientError("explain: ys is empty")
    for x in targets:
        if x.op.graph is not roots[0].op.graph:
            raise GraphError(f"explain: {describe(x)} and {describe(roots[0])} belong to two graphs")
    graph = roots[0].op.graph
    roots = [visible(y) for y in roots]
    return Flow(dict(reach(roots, targets, stops)), graph, roots)


@reads_arguments
def _explain_function(
    f: Callable[..., Any], args: Sequence[Any], kwargs: Any, argnums: int | Sequence[int] | None
) -> Flow:
    positions = range(len(args)) if argnums is None else argument_positions(argnums, args, "explain")
    tracing = Tracing(args, kwargs)
    with tracing.building():
        entered = [_enter(tracing, arg) for arg in args]
        made = call(f, *entered, **tracing.enter(kwargs))
        ys = [visible(as_output(y, tracing.graph)) for y in flatten(made)[0]]
    names = argument_names(f, len(args))
    keys: dict[str, Output] = {}
    for i in positions:
        for path, leaf in zip(paths(entered[i]), flatten(entered[i])[0], strict=True):
            if isinstance(leaf, Output):
                keys[".".join(part for part in (names[i], path) if part)] = leaf
    found = reach(ys, list(keys.values()))
    return Flow({key: found[leaf] for key, leaf in keys.items()}, tracing.graph, ys)


def _enter(tracing: Tracing, tree: Any) -> Any:
    leaves, spec = flatten(tree)
    return unflatten(
        spec, [tracing.stand_in(x) if is_tensor(x) or isinstance(x, (float, complex)) else x for x in leaves]
    )


def assert_flows(ys: Any, xs: Any) -> None:
    """Raise unless gradients of ys arrive at every x.

    Raises:
        GradientError: with what cuts the paths, and on which lines.
    """
    flow = explain(outputs_in(ys, "assert_flows: ys"), outputs_in(tensors_among(xs), "assert_flows: xs"))
    if any(found.status not in ("flows", "partly stopped") for found in flow.values()):
        raise GradientError(f"assert_flows: some gradients do not arrive\n{flow.to_text()}")


def assert_blocked(ys: Any, xs: Any, by: Any = None) -> None:
    """Raise if gradients of ys arrive at any x.

    Args:
        ys, xs: as for :func:`explain`.
        by: an operation or output of one that must be among those that cut the paths; None for any.

    Raises:
        GradientError: which gradients arrive, or what cuts them instead.
    """
    flow = explain(outputs_in(ys, "assert_blocked: ys"), outputs_in(tensors_among(xs), "assert_blocked: xs"))
    if by is not None and not hasattr(by, "as_output"):
        raise GraphError(f"assert_blocked: by is an operation or an output, not {by!r:.60}")
    gate = None if by is None else by if isinstance(by, Operation) else by.as_output().op
    for found in flow.values():
        if found.status in ("flows", "partly stopped"):
            raise GradientError(f"assert_blocked: some gradients arrive\n{flow.to_text()}")
        if gate is not None and not any(cut.operation is gate for cut in found.cuts):
            raise GradientError(f"assert_blocked: not cut by {describe(gate)}\n{flow.to_text()}")
