"""Explains whether a loss reaches a parameter, and if not, which operation cuts the path, on which line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stopgrad.base.coercion import flag
from stopgrad.base.errors import FeedError
from stopgrad.base.garbage import without_gc
from stopgrad.flow.asked import Asked, asked
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.magnitude import Measured
from stopgrad.flow.magnitudes.norm_program import measured_on
from stopgrad.flow.parts import Finding
from stopgrad.flow.survey import surveys
from stopgrad.graph.graph import Output
from stopgrad.graph.public import guarded
from stopgrad.run.session import Session
from stopgrad.transforms.gradients.transform_arguments import outputs_in


@guarded("explain")
def explain(
    ys: object,
    *args: object,
    argnums: int | Sequence[int] | None = None,
    stop_gradients: object = None,
    magnitudes: bool = False,
    feed_dict: Mapping[Any, Any] | None = None,
    session: Session | None = None,
    **kwargs: object,
) -> Flow:
    """Whether gradients of ys arrive at each x; and if not, why not.

    Args:
        ys: an output or nested structure of outputs, as for :func:`gradients`; or a function.
        args: the xs, as for :func:`gradients`, where numbers and strings are ignored; or the function's
            arguments.
        argnums: which of the function's arguments are asked about; all unless given.
        stop_gradients: as for :func:`gradients`.
        magnitudes: whether to compute the gradient, and tell how large it is at each x, and where it vanishes
            or explodes. NumPy computes it, or XLA what NumPy cannot.
        feed_dict: for a graph, a dict from placeholders (or any outputs, or names) to values.
        session: for a graph, a session that holds the values of its parameters; else they have their first
            ones.
        kwargs: the function's keyword arguments, which are not asked about.

    Returns:
        A :class:`Flow`: for each x a ``status``, the numbers of ``paths`` and ``cut_paths``, and ``cuts``.
        The statuses: ``"flows"``; ``"partly stopped"`` (some paths are cut); ``"stopped"`` (every path is
        cut, and without the gates one would be open); ``"not differentiable"`` (every path passes an integer,
        a comparison, a rounding, ...); ``"undefined"`` (every path passes an operation whose gradient is an
        error); ``"disconnected"`` (there is no path). A gradient is generated for the first two.

    Raises:
        GraphError, GradientError: ys and xs are of several graphs, or there are none. With *magnitudes*, the
            gradient of something that a gradient reaches is an error.
        FeedError: values are not asked for, are missing or do not fit.

    Examples:
        >>> sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)["b"].status
        'stopped'
        >>> flow = sg.explain(lambda a: sg.relu(a - 9.0), 1.0, magnitudes=True)
        >>> flow["a"].status, flow["a"].magnitude.norm
        ('flows', 0.0)
    """
    if (feed_dict is not None or session is not None) and not flag(magnitudes, "explain: magnitudes"):
        raise FeedError("explain: values are used with magnitudes=True only")
    question = asked("explain", ys, args, kwargs, argnums)
    stops = outputs_in(stop_gradients, "explain: stop_gradients")
    measured = measured_on("explain", question, feed_dict, session, stops) if magnitudes else None
    return without_gc(flow_of, question, stops, (), measured)


def flow_of(
    question: Asked,
    stops: Sequence[Output] = (),
    findings: Sequence[Finding] = (),
    measured: Measured | None = None,
) -> Flow:
    """The report for a question, with further findings, and with what was measured."""
    xs = list(question.xs.values())
    surveyed = surveys(question.graph, question.ys, xs, dict.fromkeys(stops), question.by_library)
    return Flow(question, surveyed, findings, measured)
