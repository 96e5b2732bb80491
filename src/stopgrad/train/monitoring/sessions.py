"""Monitors of sessions: the loss is a tensor of a graph, and a session holds the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.asked import of_graph
from stopgrad.flow.fed import fed_to
from stopgrad.flow.magnitudes.repeated import Repeated
from stopgrad.graph.operands import shorten
from stopgrad.graph.public import guarded
from stopgrad.ops.structural.sources import Parameter
from stopgrad.run.session import Session
from stopgrad.train.monitoring.monitor import Monitor
from stopgrad.train.monitoring.verdicts import verdicts_of
from stopgrad.transforms.gradients.transform_arguments import outputs_in


class SessionMonitor(Monitor):
    """Monitors the gradients of a loss with the values of a session; :func:`monitor` makes it.

    Called in each step, it computes the gradient a second time in those that are sampled, with the session's
    engine, and has nothing to do in the others.
    """

    def __init__(self, session: Session, loss: Any, xs: Any, every: int, to: object) -> None:
        super().__init__(every, to)
        if not isinstance(session, Session):
            raise ArgumentError(f"monitor: a session is needed, not {shorten(session)}")
        if xs is None:
            above = session.graph.subgraph_to(outputs_in(loss, "monitor: loss"))
            parameters = [op.outputs[0] for op in above if op.definition is Parameter]
            xs = [x for x in parameters if x.type.differentiable]
        self._session = session
        self._question = of_graph("monitor", loss, xs)
        self._repeated: Repeated | None = None

    def __call__(self, feed_dict: Mapping[Any, Any] | None = None) -> None:
        """Note a step; before or after its run, but not both.

        Args:
            feed_dict: what is fed in it, as for :meth:`Session.run`.
        """
        if self.due:
            self._safely("sampling", self._sample, feed_dict)
        self.step += 1

    def _sample(self, feed_dict: Mapping[Any, Any] | None) -> None:
        question, session = self._question, self._session
        if self._repeated is None:
            self._repeated = Repeated(question, engine=session.engine)
        self._take(verdicts_of(self._repeated(fed_to("monitor", question, feed_dict, (), session))))


@guarded("monitor")
def monitor(
    session: Session, loss: Any, xs: Any = None, *, every: int = 100, to: Any = None
) -> SessionMonitor:
    """Watch the gradients of a loss while it is trained, and tell when a verdict on them changes.

    Args:
        session: runs the training, and holds the parameters.
        loss: an output, or a nested structure of outputs, of the session's graph.
        xs: the parameters that are watched; all that the loss is computed from, unless given.
        every: one step in so many is sampled, beginning with the first; the gradient is then computed once
            more.
        to: where it reports to: None for the standard output, which is told changes alone; a path, for a file
            of JSON lines; a stream; an object with ``add_scalar``, as TensorBoard's ``SummaryWriter``; one
            with ``log``, as a run of Weights & Biases; or a list of these.

    Returns:
        A function of the feeds, which is called once in each step.

    Raises:
        ArgumentError, GraphError, GradientError: these do not fit together.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     x = sg.placeholder(sg.float32, name="x")
        ...     w = sg.parameter(1.0, name="w")
        ...     loss = sg.relu(w * x)
        ...     step = sg.assign(w, w - 1.0)
        >>> with sg.Session(graph, engine="numpy") as session:
        ...     monitor = sg.monitor(session, loss, every=1)
        ...     for _ in range(3):
        ...         monitor({x: 1.0})
        ...         _ = session.run(step)
        stopgrad: since step 1, the gradient of w is exactly 0: ...Relu is dead: it is off wherever a gradient
        arrives
    """
    return SessionMonitor(session, loss, xs, every, to)
