"""Parameter groups: which rule updates which parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.patterns import matching
from stopgrad.graph.graph import Output, describe
from stopgrad.graph.operands import shorten
from stopgrad.train.optimizers.optimizer_arguments import How
from stopgrad.train.optimizers.rules import Rule


def rules_for(named: Mapping[str, Output], rule: Rule, others: Rule | None, how: How) -> dict[str, Rule]:
    """The rule for each parameter, by name; all parameters of a group share one object."""
    rules: dict[str, Rule] = {}
    for patterns, group in how["groups"].items():
        group_rule = _rule_of_group(rule, group, patterns)
        for name in matching("groups", patterns, named):
            rules.setdefault(name, group_rule)
    rest = _Rest(rule, others)
    rules = {name: rules[name] if name in rules else rest.rule_for(x) for name, x in named.items()}
    undecayed: dict[Rule, Rule] = {}
    for name in matching("no_decay", how["no_decay"], named):
        own_rule = rules[name]
        if not hasattr(own_rule, "weight_decay"):
            raise ArgumentError(f"no_decay: {own_rule.name} has no weight decay")
        rules[name] = undecayed[own_rule] = undecayed.get(own_rule) or own_rule.altered(weight_decay=0.0)
    for name, own_rule in rules.items():
        why = own_rule.refusal(named[name].op.value.array.shape)
        if why:
            raise ArgumentError(f"{own_rule.name} cannot move {describe(named[name])}: {why}")
    return rules


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
    hyperparameters = [field.name for field in fields(rule)]
    for key in group:
        if key not in hyperparameters:
            raise ArgumentError(
                f"groups: {patterns!r}: {rule.name} has no {key!r:.60}; it has {shorten(hyperparameters)}"
            )
    return rule.altered(**group)
