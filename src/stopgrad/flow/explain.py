"""Explains whether a loss reaches a parameter, and if not, which operation cuts the path, on which line."""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.base.garbage import without_gc
from stopgrad.flow.asked import Asked, asked
from stopgrad.flow.flow import Flow
from stopgrad.flow.parts import Finding
from stopgrad.flow.survey import surveys
from stopgrad.graph.graph import Output
from stopgrad.graph.public import guarded
from stopgrad.transforms.gradients.tracing import outputs_in


@guarded("explain")
def explain(
    ys: object,
    *args: object,
    argnums: int | Sequence[int] | None = None,
    stop_gradients: object = None,
    **kwargs: object,
) -> Flow:
    """Whether gradients of ys arrive at each x; and if not, why not.

    Args:
        ys: an output or nested structure of outputs, as for :func:`gradients`; or a function.
        args: the xs, as for :func:`gradients`, where numbers and strings are ignored; or the function's
            arguments.
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
        GraphError, GradientError: ys and xs are of several graphs, or there are none.

    Examples:
        >>> sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)["b"].status
        'stopped'
    """
    question = asked("explain", ys, args, kwargs, argnums)
    return without_gc(flow_of, question, outputs_in(stop_gradients, "explain: stop_gradients"))


def flow_of(question: Asked, stops: Sequence[Output] = (), findings: Sequence[Finding] = ()) -> Flow:
    """The report for a question, with further findings."""
    found = surveys(question.graph, question.ys, list(question.xs.values()), dict.fromkeys(stops))
    return Flow(question, found, findings)
