"""One step of training in the graph of a loss: builds the assignments of a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stopgrad.base.errors import GradientError
from stopgrad.base.types import DType
from stopgrad.flow.explain import explain
from stopgrad.graph.build import emit
from stopgrad.graph.builder import Inside, current
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.operands import Literal, NumpyArray, Tensor
from stopgrad.ops.elementwise.compare import equal, logical_and
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.structural.groups import group
from stopgrad.ops.structural.sharding import declared_sharding
from stopgrad.ops.structural.sources import Parameter, assign, constant, parameter
from stopgrad.train.optimizers.clipping import by_global_norm, by_value
from stopgrad.train.optimizers.loss_scale import LossScale, all_finite
from stopgrad.train.optimizers.optimizer_arguments import How, checked, loss_in, named
from stopgrad.train.optimizers.parameter_groups import rules_for
from stopgrad.train.optimizers.rules import Clock, Moment, Rule, arithmetic, rate_at
from stopgrad.transforms.control.branches import cond
from stopgrad.transforms.gradients.reverse import gradients


@dataclass(frozen=True, eq=False)
class Update:
    """One step of an optimiser, which ``session.run([loss, update.run])`` makes.

    Attributes:
        updates: each parameter, and each parameter that holds state, with its next value. All are computed
            from the values before the step.
        state: the optimiser's state by name, such as ``"adamw/m/dense/w"``: parameters of the graph, which a
            session saves and restores with all others. ``"adamw/step"`` counts the steps made.
        gradients: of the loss with respect to each parameter that is updated, before clipping.
        learning_rate: the rate of the next step, a scalar, for parameters that are in no group.
        averages: for each parameter that is updated, the parameter that holds its average; empty unless asked
            for.
        untouched: the given parameters that no gradient reaches, by name, with the reason. They have no
            state, and nothing is computed for them.
        run: the tensor to fetch: True once everything has been assigned.

    Steps of float16 and bfloat16 parameters are computed in float32, in which their state is stored, too. The
    parameter itself is rounded after each step, so steps smaller than its precision have no effect. PyTorch
    computes everything in the parameter's dtype.
    """

    updates: dict[Output, Output]
    state: dict[str, Output]
    gradients: dict[Output, Output]
    learning_rate: Output
    averages: dict[Output, Output]
    untouched: dict[str, str]
    run: Output

    def as_output(self) -> Output:
        """The tensor to fetch, so that ``session.run([loss, update])`` makes the step, too."""
        return self.run

    def __repr__(self) -> str:
        return (
            f"<Update of {len(self.gradients)} parameters with {len(self.state)} of state"
            f"{f', {len(self.untouched)} untouched' if self.untouched else ''}>"
        )


def built(
    loss: Output | Operation, parameters: Any, rule: Rule, how: Mapping[str, Any], others: Rule | None = None
) -> Update:
    """The step of a rule, in the graph of the loss; *others* updates the parameters that the rule cannot."""
    scalar, treated = loss_in(loss), checked(how)
    graph = scalar.op.graph
    all_named = named(parameters, graph)
    rules = rules_for(all_named, rule, others, treated)
    with _below(graph, treated["name"] or rule.name):
        scale = LossScale.of(treated["loss_scale"])
        arriving = gradients(
            scalar, list(all_named.values()), None if scale is None else [scale.seed(scalar)]
        )
        gradient_of = dict(zip(all_named, arriving, strict=True))
        untouched = _reasons_for(scalar, {n: x for n, x in all_named.items() if gradient_of[n] is None})
        if len(untouched) == len(all_named):
            raise GradientError(_no_gradient(scalar, untouched))
        step = _Step({n: x for n, x in all_named.items() if n not in untouched}, rules, treated, scale)
        live = {n: g for n, g in gradient_of.items() if g is not None}
        live = live if scale is None else scale.divided(live)
        step.build(live)
        widest = max((arithmetic(x.dtype) for x in step.parameters.values()), key=lambda d: d.itemsize)
        rate = step.rate_of(rule, widest)
        return Update(
            step.next,
            step.state,
            {all_named[n]: g for n, g in live.items()},
            rate if isinstance(rate, Output) else constant(rate, widest, name="learning_rate"),
            step.averages,
            untouched,
            group([assign(x, new) for x, new in step.next.items()], name="run"),
        )


class _Step:
    """One step while it is being built.

    Attributes:
        parameters: those that are updated, by name.
        state: the parameters that hold state, by their names in the graph.
        averages: the parameters that hold averages.
        next: the parameters and the state with their values after the step.
    """

    def __init__(
        self,
        parameters: Mapping[str, Output],
        rules: Mapping[str, Rule],
        how: How,
        scale: LossScale | None = None,
    ) -> None:
        self.parameters, self.rules, self.how, self.scale = parameters, rules, how, scale
        self.state: dict[str, Output] = {}
        self.averages: dict[Output, Output] = {}
        self.next: dict[Output, Tensor] = {}
        self._done = parameter(np.zeros((), np.int64), name="step")
        holders = [self._done] if scale is None else [self._done, *scale.state]
        self.state |= {x.op.name: x for x in holders}
        self._graph = self._done.op.graph
        self._rates: dict[tuple[Rule, DType], Any] = {}

    def build(self, gradients: Mapping[str, Output]) -> None:
        """Fill :attr:`next`."""
        wide = {n: cast(g, arithmetic(self.parameters[n].dtype)) for n, g in gradients.items()}
        slots = {n: self._slots(n) for n in wide}
        for n, g in wide.items():
            self.rate_of(self.rules[n], g.dtype)
        if self.how["average"] is not None:
            for n, x in self.parameters.items():
                first = x.op.value.array.astype(arithmetic(x.dtype).numpy, copy=False)
                self.averages[x] = self._hold(f"average/{n}", first, x)
        totals, full = self._accumulated(wide)
        finite = None
        if self.scale is not None:
            finite = all_finite(totals.values())
            self.next.update(self.scale.renewed(finite, full))
        conditions = [condition for condition in (full, finite) if condition is not None]
        times = float(self.how["accumulate"])

        def moved() -> dict[Output, Tensor]:
            means = totals if full is None else {n: total / times for n, total in totals.items()}
            return self._after_step(means, slots)

        if not conditions:
            self.next.update(moved())
            return
        changing = self._changing(slots)
        changes = conditions[0] if len(conditions) == 1 else logical_and(conditions[0], conditions[1])
        # The new values are computed only in the runs that change them.
        new = cond(changes, lambda: list(moved().values()), lambda: list(changing))
        self.next.update(zip(changing, new, strict=True))

    def _accumulated(self, wide: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Output | None]:
        """The gradients of all runs since the last change, and whether this one changes parameters.

        Without accumulation, these are the gradients themselves and None.
        """
        times = self.how["accumulate"]
        if times == 1:
            return dict(wide), None
        count = self._hold("micro_step", np.zeros((), np.int64))
        full = equal(count, np.int64(times - 1))
        sums = {
            n: self._hold(f"accumulated/{n}", np.zeros(x.op.value.array.shape, wide[n].dtype.numpy), x)
            for n, x in self.parameters.items()
        }
        summed = {n: sums[n] + g for n, g in wide.items()}
        self.next[count] = where(full, np.int64(0), count + np.int64(1))
        self.next.update(
            {sums[n]: where(full, np.zeros((), total.dtype.numpy), total) for n, total in summed.items()}
        )
        return summed, full

    def rate_of(self, rule: Rule, dtype: DType) -> Any:
        """The learning rate of a rule in this step."""
        if (rule, dtype) not in self._rates:
            learning_rate = rule.learning_rate
            same = [key for key in self._rates if key[0].learning_rate is learning_rate and key[1] is dtype]
            rate = self._rates[same[0]] if same else rate_at(learning_rate, self._done, dtype)
            self._rates[rule, dtype] = rate
        return self._rates[rule, dtype]

    def _hold(self, name: str, value: NumpyArray, like: Output | None = None) -> Output:
        """A parameter for state, which owns its first value: zeros that are never written to take no memory.

        It is divided over devices like the parameter *like*, if it has the same shape.
        """
        value.flags.writeable = False
        spec = () if like is None or value.shape != like.shape else declared_sharding(like)
        state = emit(Parameter, (), (Literal(value), spec), name, self._graph).outputs[0]
        self.state[state.op.name] = state
        return state

    def _slots(self, name: str) -> dict[str, Output]:
        x = self.parameters[name]
        first = self.rules[name].slots(x.op.value.array.shape, arithmetic(x.dtype))
        return {slot: self._hold(f"{slot}/{name}", value, x) for slot, value in first.items()}

    def _changing(self, slots: Mapping[str, Mapping[str, Output]]) -> list[Output]:
        """The parameters for which :meth:`_after_step` returns new values, in its order."""
        states = [x for own in slots.values() for x in own.values()]
        return [*self.parameters.values(), *states, *self.averages.values(), self._done]

    def _after_step(
        self, gradients: Mapping[str, Tensor], slots: Mapping[str, Mapping[str, Output]]
    ) -> dict[Output, Tensor]:
        """Parameters, state and averages after the step, and the count of steps."""
        if self.how["clip_value"] is not None:
            gradients = by_value(gradients, self.how["clip_value"])
        if self.how["clip_norm"] is not None:
            gradients = by_global_norm(gradients, self.how["clip_norm"])
        done = self._done + np.int64(1)
        counts = {dtype: cast(done, dtype) for _, dtype in self._rates}
        clocks = {(rule, dtype): Clock(counts[dtype], rate) for (rule, dtype), rate in self._rates.items()}
        moved: dict[Output, Tensor] = {}
        new_state: dict[Output, Tensor] = {}
        averages: dict[Output, Tensor] = {}
        for n, x in self.parameters.items():
            rule, g = self.rules[n], gradients[n]
            at = Moment(cast(x, g.dtype), -g if rule.maximize else g, slots[n], clocks[rule, g.dtype])
            new, state = rule.step(at)
            moved[x] = cast(new, x.dtype)
            new_state.update({holder: state[slot] for slot, holder in slots[n].items()})
            part = self.how["average"]
            if part is not None:
                average = self.averages[x]
                averages[average] = part * average + (1.0 - part) * cast(moved[x], average.dtype)
        return {**moved, **new_state, **averages, self._done: done}


def _below(graph: Graph, name: str) -> Inside:
    """A context in which operations are built in the graph, and named below *name*."""
    block = Inside(graph=graph, pending=None)
    return block.named(graph, current().prefix_in(graph), name)


# ---------------------------------------------------------------------------------------- no gradient


def _reasons_for(loss: Output, without: Mapping[str, Output]) -> dict[str, str]:
    """Why no gradient reaches each of these, by name."""
    if not without:
        return {}
    flow = explain(loss, list(without.values()))
    reasons = {}
    for name, x in without.items():
        reach = flow[x]
        cuts = "; ".join(str(cut) for cut in reach.cuts[:_SHOWN])
        more = f"; and {len(reach.cuts) - _SHOWN} more" if len(reach.cuts) > _SHOWN else ""
        reasons[name] = f"{reach.status.value}: {cuts}{more}" if cuts else reach.status.value
    return reasons


_SHOWN = 3
"""The number of cuts shown for a parameter."""


def _no_gradient(loss: Output, untouched: Mapping[str, str]) -> str:
    lines = [f"\n  {name}: {reason}" for name, reason in list(untouched.items())[:10]]
    more = f"\n  and {len(untouched) - 10} more" if len(untouched) > 10 else ""
    return (
        f"no gradient of {describe(loss)} reaches any of the parameters, so there is nothing to move; "
        f"take a stop away, or give other parameters{''.join(lines)}{more}"
    )
