"""Reports arguments that a JAX function does not use: a result was dropped, or a constant used instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

import stopgrad as sg
from stopgrad.base.source import decode
from stopgrad.flow.parts import Finding
from stopgrad.graph.builder import Inside
from stopgrad.graph.graph import Graph, Output
from stopgrad.interop.jax.places import is_installed, place_of
from stopgrad.interop.jax.steps import needed


def unused(
    closed: jex.ClosedJaxpr,
    values: Sequence[Any],
    graph: Graph,
    inputs: Sequence[Output],
    asked: Mapping[str, int],
) -> list[Finding]:
    """Findings about the arguments on which no result depends.

    They are only about arguments that could have a gradient, and about lines outside of installed libraries:
    what a library computes besides, such as the averages of batch normalisation, is often not used.

    Args:
        closed: the jaxpr of the function.
        values: the arguments' values.
        graph, inputs: the graph built from it, to which operations that mark lines are added.
        asked: the positions of the arguments that are asked about, by their paths.
    """
    jaxpr = closed.jaxpr
    live = needed(jaxpr)
    used = {v for eqn in live for v in _variables(eqn)}.union(
        v for v in jaxpr.outvars if not isinstance(v, jex.Literal)
    )
    idle = {
        path: i for path, i in asked.items() if jaxpr.invars[i] not in used and inputs[i].type.differentiable
    }
    if not idle:
        return []
    acting = set(map(id, live))
    dead = [eqn for eqn in jaxpr.eqns if id(eqn) not in acting]
    findings = []
    for path, i in idle.items():
        eqn, message = _last_from(jaxpr.invars[i], dead), f"what is computed from {path} here is used nowhere"
        if eqn is None:
            eqn = _instead(closed, live, values[i])
            message = f"{path} is not used; an array of the same numbers is, which the function brings along"
        place = None if eqn is None else place_of(eqn, None)
        if place is not None and not is_installed(decode(place).file):
            with graph.as_default(), Inside(place=place):
                mark = sg.identity(inputs[i])
            findings.append(Finding("unused", message, (mark.op,), (path,)))
    return findings


def _variables(eqn: jex.JaxprEqn) -> list[Any]:
    return [v for v in eqn.invars if not isinstance(v, jex.Literal)]


def _last_from(v: Any, dead: Sequence[Any]) -> Any:
    """The last of these equations that depends on a variable, or None."""
    reached, last = {v}, None
    for eqn in dead:
        if not reached.isdisjoint(_variables(eqn)):
            reached.update(eqn.outvars)
            last = eqn
    return last


def _instead(closed: jex.ClosedJaxpr, live: Sequence[Any], value: Any) -> Any:
    """The first equation with a constant equal to an argument whose elements are not all the same."""
    if isinstance(value, jax.ShapeDtypeStruct) or np.size(value) < 2:
        return None
    twins = {
        v
        for v, constant in zip(closed.jaxpr.constvars, closed.consts, strict=True)
        if np.shape(constant) == np.shape(value)
        and np.dtype(constant.dtype) == value.dtype
        and _equal(constant, value)
    }
    return next((eqn for eqn in live if not twins.isdisjoint(_variables(eqn))), None)


def _equal(array: Any, other: Any) -> bool:
    a, b = np.asarray(array), np.asarray(other)
    return bool((a != a.flat[0]).any()) and np.array_equal(a, b)
