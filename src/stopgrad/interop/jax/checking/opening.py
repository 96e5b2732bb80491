"""Jaxprs without the stops of some lines, also inside of what they call; rules of custom gradients stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex

from stopgrad.base.source import RawLocation
from stopgrad.interop.jax.checking.holding import RULED, STOP
from stopgrad.interop.jax.places import place_of

Opens = Callable[[RawLocation | None], bool]
"""Whether the stops at a place are taken out."""


def opened(closed: jex.ClosedJaxpr, opens: Opens) -> jex.ClosedJaxpr:
    """A jaxpr in which stops at some places pass their operand on."""
    return jex.ClosedJaxpr(_opened(closed.jaxpr, opens, None), closed.consts)


def _opened(jaxpr: jex.Jaxpr, opens: Opens, around: RawLocation | None) -> jex.Jaxpr:
    equations = []
    for eqn in jaxpr.eqns:
        place = place_of(eqn, around)
        if eqn.primitive.name == STOP and opens(place):
            eqn = eqn.replace(primitive=jax.lax.copy_p)
        elif eqn.primitive.name not in RULED:
            params = {name: _within(value, opens, place) for name, value in eqn.params.items()}
            if any(params[name] is not value for name, value in eqn.params.items()):
                eqn = eqn.replace(params=params)
        equations.append(eqn)
    if all(a is b for a, b in zip(equations, jaxpr.eqns, strict=True)):
        return jaxpr
    return jaxpr.replace(eqns=equations)


def _within(value: Any, opens: Opens, place: RawLocation | None) -> Any:
    """A parameter of an equation, with the jaxprs in it opened; itself if it has none with such stops."""
    if isinstance(value, (tuple, list)):
        parts = [_within(item, opens, place) for item in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else type(value)(parts)
    if isinstance(value, jex.ClosedJaxpr):
        inner = _opened(value.jaxpr, opens, place)
        return value if inner is value.jaxpr else jex.ClosedJaxpr(inner, value.consts)
    return _opened(value, opens, place) if isinstance(value, jex.Jaxpr) else value
