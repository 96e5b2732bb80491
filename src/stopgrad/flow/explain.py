"""Does this loss reach this parameter, and if not, which operation cuts the path, and on which line?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stopgrad.autodiff.tracing import outputs_in
from stopgrad.build import without_gc
from stopgrad.errors import GradientError, GraphError
from stopgrad.flow.asked import Asked, asked, label
from stopgrad.flow.model import Flow
from stopgrad.flow.survey import surveys
from stopgrad.graph import Operation, Output, describe
from stopgrad.public import guarded


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
        A :class:`Flow`: for each x a ``status``, the numbers of ``paths`` and ``cut_paths``, and ``cuts``.
        The statuses: ``"flows"``; ``"partly stopped"`` (some paths are cut); ``"stopped"`` (every path is
        cut, and without the gates one would be open); ``"not differentiable"`` (every path passes an integer,
        a comparison, a rounding, ...); ``"undefined"`` (every path passes an operation whose gradient is an
        error); ``"disconnected"`` (there is no path). A gradient is generated for the first two.

    Raises:
        GraphError, GradientError: ys and xs are not of one graph, or there are none.

    Examples:
        >>> sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)["b"].status
        'stopped'
    """
    question = asked("explain", ys, args, kwargs, argnums)
    return without_gc(flow_of, question, outputs_in(stop_gradients, "explain: stop_gradients"))


def flow_of(question: Asked, stops: Sequence[Output] = ()) -> Flow:
    """The report that answers a question."""
    found = surveys(question.graph, question.ys, list(question.xs.values()), dict.fromkeys(stops))
    return Flow(question, found)


def assert_flows(ys: Any, xs: Any) -> None:
    """Raise unless gradients of ys arrive at every x.

    Raises:
        GradientError: with what cuts the paths, and on which lines.
    """
    flow = explain(outputs_in(ys, "assert_flows: ys"), xs)
    if not all(found.arrives for found in flow.values()):
        raise GradientError(f"assert_flows: some gradients do not arrive\n{flow.to_text()}")


def assert_blocked(ys: Any, xs: Any, by: Any = None) -> None:
    """Raise if gradients of ys arrive at any x.

    Args:
        ys, xs: as for :func:`explain`.
        by: an operation or output of one that must be among those that cut the paths; None for any.

    Raises:
        GradientError: which gradients arrive, or what cuts them instead.
    """
    flow = explain(outputs_in(ys, "assert_blocked: ys"), xs)
    if by is not None and not hasattr(by, "as_output"):
        raise GraphError(f"assert_blocked: by is an operation or an output, not {by!r:.60}")
    gate = None if by is None else by if isinstance(by, Operation) else by.as_output().op
    for key, found in flow.items():
        if found.arrives:
            raise GradientError(f"assert_blocked: some gradients arrive\n{flow.to_text()}")
        if gate is not None and not any(gate in cut.operations for cut in found.cuts):
            raise GradientError(
                f"assert_blocked: {label(key)} is not cut by {describe(gate)}\n{flow.to_text()}"
            )
