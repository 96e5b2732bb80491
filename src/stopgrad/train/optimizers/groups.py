"""Parameter groups: which rule updates which parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.patterns import matching
from stopgrad.graph.graph import Output, describe
from stopgrad.graph.operands import shorten
from stopgrad.train.optimizers.arguments import How
from stopgrad.train.optimizers.rules import Rule


def rules_for(named: Mapping[str, Output], rule: Rule, others: Rule | None, how: How) -> dict[str, Rule]:
    """The rule for each parameter, by name; all parameters of a group share one object."""
    found: dict[str, Rule] = {}
    for patterns, group in how["groups"].items():
        chosen = _rule_of_group(rule, group, patterns)
        for name in matching("groups", patterns, named):
            found.setdefault(name, chosen)
    rest = _Rest(rule, others)
    found = {name: found[name] if name in found else rest.rule_for(x) for name, x in named.items()}
    without: dict[Rule, Rule] = {}
    for name in matching("no_decay", how["no_decay"], named):
        one = found[name]
        if not hasattr(one, "weight_decay"):
            raise ArgumentError(f"no_decay: {one.name} has no weight decay")
        found[name] = without[one] = without.get(one) or one.altered(weight_decay=0.0)
    for name, one in found.items():
        why = one.refusal(named[name].op.value.array.shape)
        if why:
            raise ArgumentError(f"{one.name} cannot move {describe(named[name])}: {why}")
    return found


class _Rest:
    """The rule for parameters that are in no group."""

    def __init__(self, rule: Rule, others: Rule | None) -> None:
        self.rule, self.others = rule, others

    def rule_for(self, parameter: Output) -> Rule:
        return (
            self.others
            if self.others is not None and self.rule.refusal(parameter.op.value.array.shape)
            else self.rule
        )


def _rule_of_group(rule: Rule, group: object, patterns: object) -> Rule:
    if isinstance(group, Rule):
        return group
    if not isinstance(group, Mapping):
        raise ArgumentError(
            f"groups: {patterns!r} has a dict of hyperparameters or a rule, such as "
            f"{{'learning_rate': 0.01}} or sg.optimizers.SGD(0.01); not {group!r:.60}"
        )
    known = [one.name for one in fields(rule)]
    for key in group:
        if key not in known:
            raise ArgumentError(
                f"groups: {patterns!r}: {rule.name} has no {key!r:.60}; it has {shorten(known)}"
            )
    return rule.altered(**group)
