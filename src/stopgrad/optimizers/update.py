"""One step of training, built into the graph of a loss: from a rule to assignments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stopgrad.autodiff.reverse import gradients
from stopgrad.builder import Inside, current
from stopgrad.errors import DTypeError, GradientError, GraphError, ShapeError
from stopgrad.flow.explain import explain
from stopgrad.graph import Graph, Operation, Output, describe
from stopgrad.operands import Array, Tensor
from stopgrad.ops.convert import cast
from stopgrad.ops.data import Parameter, assign, constant, parameter
from stopgrad.optimizers.rules import Clock, Moment, Rule, rate_at
from stopgrad.structure import flatten, paths
from stopgrad.types import DType, float32, float64


@dataclass(frozen=True, eq=False)
class Update:
    """One step of an optimiser: what ``session.run([loss, update.run])`` assigns, all at once.

    Attributes:
        updates: each parameter, and each parameter that holds state, with its next value. All are computed
            from the values before the step.
        state: what the optimiser keeps, by name, such as ``"adamw/m/dense/w"``: parameters of the graph,
            which a session saves and restores with all others. ``"adamw/step"`` counts the steps made.
        gradients: of the loss by each parameter that is moved, before anything is done to them.
        learning_rate: that of the step to come, a scalar; of parameters in no group of their own.
        untouched: the parameters given that no gradient reaches, by name, with the reason. They have no
            state, and nothing is computed for them.
        run: what to fetch.
    """

    updates: dict[Output, Output]
    state: dict[str, Output]
    gradients: dict[Output, Output]
    learning_rate: Output
    untouched: dict[str, str]
    run: tuple[Output, ...]

    def __repr__(self) -> str:
        return (
            f"<Update of {len(self.gradients)} parameters with {len(self.state)} of state"
            f"{f', {len(self.untouched)} untouched' if self.untouched else ''}>"
        )


class _State:
    """The parameters that hold state, with their values before and after the step."""

    def __init__(self) -> None:
        self.held: dict[str, Output] = {}
        self.next: dict[Output, Tensor] = {}

    def hold(self, name: str, value: Array) -> Output:
        """A parameter for state, which :attr:`next` gets a value for."""
        held = parameter(value, name=name)
        self.held[held.op.name] = held
        return held


def built(loss: Any, parameters: Any, rule: Rule) -> Update:
    """The step of a rule, in the graph of the loss."""
    scalar = _loss(loss)
    graph = scalar.op.graph
    named = _named(parameters, graph)
    with _below(graph, rule.name):
        found = dict(zip(named, gradients(scalar, list(named.values())), strict=True))
        reached = {name: g for name, g in found.items() if g is not None}
        untouched = _untouched(scalar, {name: x for name, x in named.items() if name not in reached})
        if not reached:
            raise GradientError(_no_gradient(scalar, untouched))
        return _assembled(named, reached, untouched, rule)


def _assembled(
    named: Mapping[str, Output], reached: Mapping[str, Output], untouched: dict[str, str], rule: Rule
) -> Update:
    state = _State()
    step = state.hold("step", np.zeros((), np.int64))
    state.next[step] = step + np.int64(1)
    rate = rate_at(rule.learning_rate, step)
    clock = Clock(cast(state.next[step], float64), rate)
    moved: dict[Output, Tensor] = {}
    for name, g in reached.items():
        moved[named[name]] = _moved(named[name], name, g, rule, clock, state)
    updates = {**moved, **state.next}
    return Update(
        updates,
        state.held,
        {named[name]: g for name, g in reached.items()},
        rate if isinstance(rate, Output) else constant(rate, float64, name="learning_rate"),
        untouched,
        tuple([assign(x, new) for x, new in updates.items()]),
    )


def _moved(x: Output, name: str, gradient: Output, rule: Rule, clock: Clock, state: _State) -> Tensor:
    """A parameter after the step."""
    dtype = arithmetic(x.dtype)
    slots = {slot: state.hold(f"{slot}/{name}", first) for slot, first in rule.slots(x, dtype).items()}
    g = cast(gradient, dtype)
    at = Moment(cast(x, dtype), -g if rule.maximize else g, slots, clock)
    new, kept = rule.step(at)
    for slot, held in slots.items():
        state.next[held] = kept[slot]
    return cast(new, x.dtype)


def arithmetic(dtype: DType) -> DType:
    """In what the steps of parameters of *dtype* are computed, and their state is kept."""
    return dtype if dtype.itemsize >= 4 else float32


def _below(graph: Graph, name: str) -> Inside:
    """Inside, operations are built in the graph, and named below *name*."""
    block = Inside(graph=graph, pending=None)
    return block.named(graph, current().prefix_in(graph) + name)


# ------------------------------------------------------------------------------------------- arguments


def _loss(loss: Any) -> Output:
    if isinstance(loss, Operation):
        loss = loss.as_output()
    if not isinstance(loss, Output):
        raise GraphError(
            f"the loss is an output of a graph, not {loss!r:.60}; for functions of arrays there is sg.grad"
        )
    if not loss.dtype.is_floating:
        raise DTypeError(f"the loss is a floating-point number, not {describe(loss)}")
    if loss.type.ndim:
        raise ShapeError(f"the loss is a scalar, not {describe(loss)}; take its mean with sg.reduce_mean")
    return loss


def _named(parameters: Any, graph: Graph) -> dict[str, Output]:
    """The parameters by name: the keys of a dict, else what they are called in the graph."""
    leaves = flatten(parameters)[0]
    keys: Sequence[str] = paths(parameters) if isinstance(parameters, Mapping) else ()
    named: dict[str, Output] = {}
    seen: dict[Output, str] = {}
    for i, leaf in enumerate(leaves):
        x = _parameter(leaf, graph)
        name = keys[i] if keys else x.op.name
        if x in seen:
            raise GraphError(f"{describe(x)} is among the parameters twice; give it once")
        seen[x], named[name] = name, x
    if not named:
        raise GraphError("there are no parameters to move; give those that sg.parameter made")
    return named


def _parameter(x: Any, graph: Graph) -> Output:
    if isinstance(x, Operation):
        x = x.as_output()
    if not isinstance(x, Output):
        raise GraphError(f"parameters are outputs that sg.parameter made, not {x!r:.60}")
    if x.op.definition is not Parameter:
        raise GraphError(f"only a parameter, made by sg.parameter, can be moved; not {describe(x)}")
    if x.op.graph is not graph:
        raise GraphError(f"{describe(x)} belongs to another graph than the loss")
    if not x.dtype.is_floating:
        cure = (
            "make a parameter for the real part and one for the imaginary part"
            if x.dtype.is_complex
            else "leave it out"
        )
        raise DTypeError(f"{describe(x)} is not a floating-point parameter; {cure}")
    return x


# ---------------------------------------------------------------------------------------- no gradient


def _untouched(loss: Output, without: Mapping[str, Output]) -> dict[str, str]:
    """Why no gradient reaches each of these, by name."""
    if not without:
        return {}
    flow = explain(loss, list(without.values()))
    found = {}
    for name, x in without.items():
        reach = flow[x]
        cuts = "; ".join(str(cut) for cut in reach.cuts[:_SHOWN])
        more = f"; and {len(reach.cuts) - _SHOWN} more" if len(reach.cuts) > _SHOWN else ""
        found[name] = f"{reach.status.value}: {cuts}{more}" if cuts else reach.status.value
    return found


_SHOWN = 3
"""So many cuts are told for a parameter."""


def _no_gradient(loss: Output, untouched: Mapping[str, str]) -> str:
    told = [f"\n  {name}: {reason}" for name, reason in list(untouched.items())[:10]]
    more = f"\n  and {len(untouched) - 10} more" if len(untouched) > 10 else ""
    return (
        f"no gradient of {describe(loss)} reaches any of the parameters, so there is nothing to move; "
        f"take a stop away, or give other parameters{''.join(told)}{more}"
    )
