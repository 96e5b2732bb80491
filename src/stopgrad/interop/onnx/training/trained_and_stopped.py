"""Chooses, by patterns of names, which parameters are trained and where gradients stop."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.words import some
from stopgrad.graph.graph import Operation, Output
from stopgrad.interop.onnx.patterns import matches

SHOWN = 6
"""The most names that an error suggests for a pattern."""


def missing(what: str, pattern: str, names: Iterable[str], kind: str) -> ArgumentError:
    """The error that a pattern matches nothing, with similar names."""
    candidates = list(names)
    near = difflib.get_close_matches(pattern.strip("/*."), candidates, 3, 0.4) or candidates
    there = f"there are {some(near, SHOWN)}" if candidates else f"the model has no {kind}"
    return ArgumentError(f"{what}: {pattern!r} matches no {kind}; {there}")


def chosen(what: str, patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that match any of the patterns, in their order.

    Raises:
        ArgumentError: a pattern matches nothing.
    """
    matched: set[str] = set()
    for pattern in patterns:
        hits = [name for name in names if matches(name, pattern)]
        if not hits:
            raise missing(what, pattern, names, "parameter")
        matched.update(hits)
    return [name for name in names if name in matched]


def trained(
    names: Sequence[str],
    freeze: Sequence[str],
    only: Sequence[str],
    constants: Collection[str] = (),
    train: Sequence[str] = (),
) -> list[str]:
    """The parameters that are trained.

    Args:
        names: of all parameters.
        freeze: patterns of parameters not to train.
        only: patterns of parameters to train; if empty, all.
        constants: the names of those that are constants of the model by all evidence: they are trained only
            if *only* or *train* names them.
        train: patterns of parameters that are trained besides, constants or not.

    Raises:
        ArgumentError: a pattern matches nothing, or nothing is left to train.
    """
    more = set(chosen("train", train, names))
    selected = chosen("only", only, names) if only else [name for name in names if name not in constants]
    selected = [name for name in names if name in more or name in set(selected)]
    frozen = set(chosen("freeze", freeze, names))
    remaining = [name for name in selected if name not in frozen]
    if not remaining:
        raise ArgumentError(
            "no parameter is left to train: "
            + (
                f"freeze leaves none of {some(selected, SHOWN)}"
                if selected
                else f"constants such as {some(names, SHOWN)} are trained if train= names them"
                if names
                else "the model has none"
            )
        )
    return remaining


def stopped(
    patterns: Sequence[str],
    operations: Sequence[Operation],
    results: Iterable[Output],
    aliases: Mapping[str, str] | None = None,
) -> dict[str, list[Output]]:
    """The outputs at which to stop gradients, by pattern.

    Args:
        patterns: of names of operations; of scopes, which mean the outputs that leave them; or of values.
        operations: of the model, in order.
        results: of the model.
        aliases: further names of nodes and values, each with its scope.

    Raises:
        ArgumentError: a pattern matches nothing through which a gradient could pass.
    """
    named = {op: op.name for op in operations}
    scopes = dict.fromkeys(prefix for name in named.values() for prefix in _scopes(name))
    stops = {}
    for pattern in patterns:
        also = {scope for name, scope in (aliases or {}).items() if matches(name, pattern)}
        inside = {
            op
            for op, name in named.items()
            if _meant(name, pattern) or (also and not also.isdisjoint([name, *_scopes(name)]))
        }
        hits = [x for x in _leaving(inside, operations, results) if x.dtype.is_differentiable]
        if not hits:
            candidates = [*scopes, *named.values(), *(aliases or {})]
            raise missing("stop", pattern, dict.fromkeys(candidates), "scope, operation or value of floats")
        stops[pattern] = hits
    return stops


def _scopes(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def _meant(name: str, pattern: str) -> bool:
    """Whether a pattern matches an operation's name or a scope around it."""
    pattern = pattern.strip("/")
    return fnmatch.fnmatchcase(name, pattern) or any(
        fnmatch.fnmatchcase(scope, pattern) for scope in _scopes(name)
    )


def _leaving(
    inside: set[Operation], operations: Sequence[Operation], results: Iterable[Output]
) -> list[Output]:
    """The outputs of some operations that are used outside of these, or are results."""
    used = [x for op in operations if op not in inside for x in op.inputs] + list(results)
    return [x for x in dict.fromkeys(used) if x.op in inside]
