"""What a session's run computes, and how the next run that asks for the same is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.errors import FeedError, GraphError
from stopgrad.engines import Engine
from stopgrad.graph.graph import Graph, Operand, Operation, Output, describe, needed
from stopgrad.ops.gates.stopping import Named, Probe
from stopgrad.ops.structural.groups import NoOp
from stopgrad.ops.structural.sources import Assign, Parameter, Placeholder
from stopgrad.run.programs import Program

Feeds = Mapping[Any, Any]
ARRAYS, DTYPE = {np.ndarray}, attrgetter("dtype")


@dataclass(frozen=True, eq=False)
class Plan:
    """What has to be computed for one choice of fetches and feeds.

    Attributes:
        fetches: the outputs that are computed and returned.
        feeds: the outputs that are fed.
        parameters: the parameters whose values are read.
        assigned: the parameters that get new values, from the outputs *assigns*.
        acting: outputs of operations that run for what they do, and are fed all that they need.
        done: positions, among all that is returned, of groups of assignments, True when these are done.
        unsized: what engines that keep sizes symbolic have compiled.
    """

    fetches: list[Output]
    feeds: list[Output]
    parameters: list[Output]
    assigned: list[Output]
    assigns: list[Output]
    acting: list[Output]
    done: list[int]
    unsized: dict[Engine, Program] = field(default_factory=dict)


class Again(NamedTuple):
    """What computes the fetches of the last run from other arrays of NumPy.

    Attributes:
        engine: the engine that has compiled it.
        direct: takes the arrays. It raises an error, having done nothing, if their shapes are others.
        dtypes: their dtypes, which it does not check.
    """

    engine: Engine
    direct: Callable[..., Sequence[Any]]
    dtypes: list[Any]

    @staticmethod
    def of(plan: Plan, program: Program, arrays: Sequence[Any]) -> Again | None:
        """None if a run reads or changes more than that, or if it is fed other arrays than NumPy's."""
        engine = program.backend
        more = plan.parameters or plan.assigned or plan.acting
        if more or not engine.checks or engine.mesh is not None or {*map(type, arrays)} != ARRAYS:
            return None
        direct = program.direct(arrays)
        return None if direct is None else Again(engine, direct, [*map(DTYPE, arrays)])


class Last(NamedTuple):
    """What a run was asked for, by which the next one that asks for the same is known.

    Attributes:
        kind: the type of the fetches: an output, or a list or tuple of outputs, operations and names.
        fetches: the identities of these.
        feeds: the identities of what was fed.
        held: all of these, since identities of what is gone are given anew.
        plan: what is computed.
        spec: the structure of the fetches; None for one output.
        again: what computes it again, where nothing is read but what is fed.
    """

    kind: type
    fetches: list[int]
    feeds: list[int]
    held: object
    plan: Plan
    spec: Any
    again: Again | None = None

    @staticmethod
    def of(fetches: Any, leaves: Sequence[object], feeds: Feeds, plan: Plan, spec: object) -> Last | None:
        """None if the fetches are of another kind, which may change and remain the same object."""
        kind = type(fetches)
        if kind not in (Output, list, tuple):
            return None
        parts: Sequence[object] = [fetches] if kind is Output else fetches
        ids = [*map(id, parts)]
        if ids != [*map(id, leaves)]:
            return None
        return Last(kind, ids, [*map(id, feeds)], (leaves, [*feeds]), plan, spec)

    def asks(self, fetches: Any, feeds: Any) -> bool:
        """Whether a run asks for the same."""
        kind = type(fetches)
        if kind is not self.kind or type(feeds) is not dict:
            return False
        ids = [id(fetches)] if self.spec is None else [*map(id, fetches)]
        return ids == self.fetches and [*map(id, feeds)] == self.feeds


def member(graph: Graph, x: object) -> Output:
    """The output of the graph that an output, operation or name stands for."""
    if isinstance(x, str):
        return graph.output(x)
    if not isinstance(x, Operand):
        raise GraphError(f"Session.run: {x!r} is no output, operation or name")
    output = x.as_output()
    if output.op.graph is not graph:
        raise GraphError(f"Session.run: {describe(output)} belongs to another graph than the session")
    return output


def _fetched(graph: Graph, x: object) -> Output:
    """What is fetched; for the name of a probe, the gradient there."""
    op = graph.operation(x) if isinstance(x, str) and ":" not in x else None
    if op is None or op.definition is not Probe:
        return member(graph, x)
    gradients = [other for other in graph.operations if other.definition is Named and other.origin is op]
    if len(gradients) == 1:
        return gradients[0].outputs[0]
    if gradients:
        names = ", ".join(repr(gradient.name) for gradient in gradients)
        raise GraphError(f"Session.run: several gradients arrive at the probe {x!r}; fetch one of {names}")
    raise GraphError(
        f"Session.run: {x!r} is the name of a probe, and no gradient has been generated that passes it; call "
        f"sg.gradients before, or fetch '{x}:0', the tensor itself"
    )


def plan_for(graph: Graph, leaves: Sequence[Any], fed: Sequence[Any]) -> Plan:
    """The plan of a run that fetches *leaves* and is fed *fed*. Raises if more must be fed."""
    fetches = [_fetched(graph, leaf) for leaf in leaves]
    feeds = [member(graph, x) for x in fed]
    provided = set(feeds)
    if len(provided) < len(feeds):
        twice = next(x for x, times in Counter(feeds).items() if times > 1)
        raise FeedError(f"{describe(twice)} is fed twice; give it one value")
    running = needed(fetches, provided)
    acting = _able_to_act(graph, provided, running)
    running = needed([*fetches, *acting], provided)
    for op in running:
        if op.definition is Placeholder:
            user = _consumer(op, running)
            raise FeedError(
                f"{describe(op)} must be fed, because "
                f"{f'{describe(user)} needs it' if user else 'it is fetched'}; add it to feed_dict"
            )
    assigns = [op for op in running if op.definition is Assign]
    assigned: dict[Output, Operation] = {}
    for op in assigns:
        parameter = op.inputs[0]
        if parameter in assigned:
            raise GraphError(
                f"one run would assign {describe(parameter)} twice, "
                f"by {describe(assigned[parameter])} and by {describe(op)}; "
                "fetch one of them, or combine them into one"
            )
        assigned[parameter] = op
        if parameter in provided:
            raise FeedError(f"{describe(parameter)} is both fed and assigned in one run; do one of them")
    parameters = [op.outputs[0] for op in running if op.definition is Parameter]
    done = [i for i, y in enumerate(fetches) if y not in provided and _assigns_alone(y.op)]
    computed = [y for i, y in enumerate(fetches) if i not in done]
    return Plan(computed, feeds, parameters, list(assigned), [op.outputs[0] for op in assigns], acting, done)


def _assigns_alone(op: Operation) -> bool:
    """Whether an operation stands for assignments that run together, and for nothing else."""
    return op.definition is NoOp and all(x.op.definition is Assign for x in op.inputs)


def _able_to_act(graph: Graph, provided: set[Output], running: Sequence[Operation]) -> list[Output]:
    """What runs for what it does, if all that it needs is fed, and no parameter is assigned for it alone."""
    able = []
    computed = {*running}
    for op in graph.acting:
        more = [other for other in needed([op.outputs[0]], provided) if other not in computed]
        if not any(other.definition in (Placeholder, Assign) for other in more):
            able.append(op.outputs[0])
    return able


def _consumer(op: Operation, running: Sequence[Operation]) -> Operation | None:
    return next((user for user in running if any(x.op is op for x in user.inputs)), None)
