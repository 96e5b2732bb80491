"""Branches and loops: what PyTorch calls higher-order operators, as constructs of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.interop.shared.values import brought


def _results(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def _branched(translator: Any, pred: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> Any:
    """The operands are closed over, sizes among them."""
    pred = brought(pred, sg.bool_)
    first, second = ((lambda one=one: _results(translator.run(one, operands))) for one in (true, false))
    return tuple(sg.cond(pred, first, second))


def _looped(translator: Any, cond: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    def going(*carry: Any) -> Any:
        return brought(_results(translator.run(cond, [*carry, *more]))[0], sg.bool_)

    def step(*carry: Any) -> Any:
        return tuple(_results(translator.run(body, [*carry, *more])))

    return tuple(sg.while_loop(going, step, tuple(carried)))


def _scanned(
    translator: Any, combine: Any, init: Sequence[Any], xs: Sequence[Any], more: Sequence[Any] = ()
) -> Any:
    count = len(init)

    def step(carry: Any, x: Any) -> Any:
        made = _results(translator.run(combine, [*carry, *x, *more]))
        return list(made[:count]), list(made[count:])

    carry, ys = sg.scan(step, list(init), list(xs))
    return (*carry, *ys)


def _mapped(translator: Any, function: Any, xs: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    def step(parts: Any) -> Any:
        return list(_results(translator.run(function, [*parts, *more])))

    return tuple(sg.map_fn(step, list(xs)))


CONTROL: dict[str, Any] = {
    "cond": _branched,
    "while_loop": _looped,
    "scan": _scanned,
    "map_impl": _mapped,
}
"""By the name of the higher-order operator; each takes the translator, which runs programs inside."""
