"""A jaxpr as the function of which JAX's gradient is the derivative: what is stopped is held at a point.

It is evaluated at two points at once. Each value is a pair: at the base point, and where the inputs have been
moved; behind a stop, the moved value is that of the base point. So a stop in a loop holds at each iteration
what it had there, in a branch what the branch makes of the base point, and nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex

from stopgrad.base.errors import GraphError
from stopgrad.base.source import RawLocation, decode
from stopgrad.interop.jax.places import place_of
from stopgrad.interop.jax.steps import CALLS, RECOMPUTED, SILENT, inner_jaxprs, needed, operands_of_scan

STOP = "stop_gradient"
RULED = {"custom_jvp_call", "custom_vjp_call", "custom_lin"}
"""Primitives whose gradient is a rule, so that stops in their functions stop nothing."""
_ENTERED = CALLS | RECOMPUTED

Holds = Callable[[Any, RawLocation | None], bool]
"""Whether an equation that stops, at a place, holds its value."""


class Pair(NamedTuple):
    """A value at the base point and where inputs have been moved; one object where nothing moves it."""

    base: Any
    moved: Any

    @property
    def moves(self) -> bool:
        return self.base is not self.moved


def with_stops_held(
    closed: jex.ClosedJaxpr, holds: Holds
) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    """The results of a jaxpr where inputs are moved from a base point, with stops held there."""

    def moved(base: Sequence[Any], there: Sequence[Any]) -> list[Any]:
        pairs = [Pair(b, m) for b, m in zip(base, there, strict=True)]
        results = _run(closed.jaxpr, closed.consts, pairs, holds, None)
        return [y.moved for y in results]

    return moved


def _run(
    jaxpr: jex.Jaxpr, consts: Iterable[Any], inputs: Sequence[Pair], holds: Holds, around: RawLocation | None
) -> list[Pair]:
    env: dict[Any, Pair] = dict(zip(jaxpr.invars, inputs, strict=True))
    env.update((v, Pair(c, c)) for v, c in zip(jaxpr.constvars, consts, strict=True))

    def read(v: Any) -> Pair:
        return Pair(v.val, v.val) if isinstance(v, jex.Literal) else env[v]

    for eqn in needed(jaxpr):
        if eqn.primitive.name not in SILENT:
            place = place_of(eqn, around)
            results = _equation(eqn, [read(v) for v in eqn.invars], holds, place)
            env.update(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _equation(
    eqn: jex.JaxprEqn, inputs: Sequence[Pair], holds: Holds, place: RawLocation | None
) -> list[Pair]:
    name, params = eqn.primitive.name, eqn.params
    if name == STOP:
        x = inputs[0]
        return [Pair(x.base, x.base) if holds(eqn, place) else x]
    if not any(x.moves for x in inputs):
        values = _bound(eqn, [x.base for x in inputs])
        return [Pair(y, y) for y in values]
    if name in _ENTERED:
        return _run(*_parts(params[_ENTERED[name]]), inputs, holds, place)
    if name in RULED or not _has_stops(eqn):
        return _both(eqn, inputs)
    if name == "scan":
        return _scan(params, inputs, holds, place)
    if name == "while":
        return _while(eqn, inputs, holds, place)
    if name == "cond":
        return _cond(eqn, inputs, holds, place)
    where = "" if place is None else f", at {decode(place)!r}"
    raise GraphError(f"check_gradients: a stop inside of {name} cannot be held at its value{where}")


def _bound(eqn: jex.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """The results of an equation."""
    if eqn.primitive.name in RULED:
        closed = inner_jaxprs(eqn.params)[0]
        results: list[Any] = jex.jaxpr_as_fun(_closed(closed))(*values)
        return results
    params = eqn.primitive.get_bind_params(eqn.params)
    functions, params = params if isinstance(params, tuple) else ((), params)  # Of JAX before 0.10.
    result = eqn.primitive.bind(*functions, *values, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


def _both(eqn: jex.JaxprEqn, inputs: Sequence[Pair]) -> list[Pair]:
    base = _bound(eqn, [x.base for x in inputs])
    moved = _bound(eqn, [x.moved for x in inputs])
    return [Pair(b, m) for b, m in zip(base, moved, strict=True)]


def _parts(closed: jex.ClosedJaxpr) -> tuple[jex.Jaxpr, Sequence[Any]]:
    return getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())


def _closed(jaxpr: jex.Jaxpr) -> jex.ClosedJaxpr:
    return jaxpr if hasattr(jaxpr, "jaxpr") else jex.ClosedJaxpr(jaxpr, ())


def _has_stops(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation holds stops that act."""
    return any(
        True for inner in inner_jaxprs(eqn.params) for _ in stops_in(getattr(inner, "jaxpr", inner), None)
    )


def stops_in(jaxpr: jex.Jaxpr, around: RawLocation | None) -> Iterator[tuple[Any, RawLocation | None]]:
    """The equations that stop gradients on the way to a jaxpr's results, with their places."""
    yield from acting(jaxpr, around, {STOP})


def acting(
    jaxpr: jex.Jaxpr, around: RawLocation | None, names: set[str]
) -> Iterator[tuple[Any, RawLocation | None]]:
    """The equations of these primitives, outside of functions with rules, with their places."""
    for eqn in needed(jaxpr):
        place = place_of(eqn, around)
        if eqn.primitive.name in names:
            yield eqn, place
        if eqn.primitive.name not in RULED:
            for inner in inner_jaxprs(eqn.params):
                yield from acting(getattr(inner, "jaxpr", inner), place, names)


# ------------------------------------------------------------------------------------- loops and branches


def _scan(
    params: Mapping[str, Any], inputs: Sequence[Pair], holds: Holds, place: RawLocation | None
) -> list[Pair]:
    consts, carries = operands_of_scan(params)
    jaxpr, captured = _parts(params["jaxpr"])
    fixed, first, xs = inputs[:consts], inputs[consts : consts + carries], inputs[consts + carries :]

    def body(carry: Any, parts: Any) -> tuple[tuple[list[Any], list[Any]], tuple[list[Any], list[Any]]]:
        operands = [*fixed, *_pairs(carry), *_pairs(parts)]
        results = _run(jaxpr, captured, operands, holds, place)
        return _lists(results[:carries]), _lists(results[carries:])

    last, ys = jax.lax.scan(
        body, _lists(first), _lists(xs), length=params["length"], reverse=params["reverse"]
    )
    return [*_pairs(last), *_pairs(ys)]


def _pairs(parts: tuple[Sequence[Any], Sequence[Any]]) -> list[Pair]:
    return [Pair(b, m) for b, m in zip(*parts, strict=True)]


def _lists(pairs: Sequence[Pair]) -> tuple[list[Any], list[Any]]:
    return [x.base for x in pairs], [x.moved for x in pairs]


def _while(eqn: jex.JaxprEqn, inputs: Sequence[Pair], holds: Holds, place: RawLocation | None) -> list[Pair]:
    """The loop runs as long as the moved values say; the base point's runs by itself for what it returns."""
    params = eqn.params
    tests, fixed = params["cond_nconsts"], params["body_nconsts"]
    cond, body = params["cond_jaxpr"], _parts(params["body_jaxpr"])
    cond_consts, consts, first = inputs[:tests], inputs[tests : tests + fixed], inputs[tests + fixed :]

    def goes_on(carry: Any) -> Any:
        return jex.jaxpr_as_fun(_closed(cond))(*[x.moved for x in cond_consts], *carry[1])[0]

    def step(carry: Any) -> tuple[list[Any], list[Any]]:
        return _lists(_run(*body, [*consts, *_pairs(carry)], holds, place))

    _, moved = jax.lax.while_loop(goes_on, step, _lists(first))
    base = _bound(eqn, [x.base for x in inputs])
    return [Pair(b, m) for b, m in zip(base, moved, strict=True)]


def _cond(eqn: jex.JaxprEqn, inputs: Sequence[Pair], holds: Holds, place: RawLocation | None) -> list[Pair]:
    """The branch that the moved values take, on both points; and what the base point's own branch returns."""
    index, operands = inputs[0], inputs[1:]

    def branch(closed: jex.ClosedJaxpr) -> Callable[..., Any]:
        def run(parts: Any) -> list[Any]:
            return _lists(_run(*_parts(closed), _pairs(parts), holds, place))[1]

        return run

    branches = [branch(closed) for closed in eqn.params["branches"]]
    number = index.moved
    if number.dtype == bool:
        number = number.astype("int32")
    moved = jax.lax.switch(number, branches, _lists(operands))
    base = _bound(eqn, [x.base for x in inputs])
    return [Pair(b, m) for b, m in zip(base, moved, strict=True)]
