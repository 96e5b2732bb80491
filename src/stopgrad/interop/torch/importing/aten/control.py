"""PyTorch's higher-order operators (branches and loops) as control flow of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

import stopgrad as sg
from stopgrad.interop.shared.conversions import Value, brought


class Translator(Protocol):
    """Builds the programs that branches and loops hold."""

    def run(self, module: torch.fx.GraphModule, operands: Sequence[Value]) -> Any: ...


def _results(outputs: Sequence[sg.Output]) -> list[Any]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def _branched(
    translator: Translator,
    pred: sg.Output,
    true: torch.fx.GraphModule,
    false: torch.fx.GraphModule,
    operands: Sequence[Value] = (),
) -> tuple[Any, ...]:
    """The branches close over the operands, some of which may be sizes."""
    pred = brought(pred, sg.bool_)
    first, second = (
        (lambda branch=branch: _results(translator.run(branch, operands))) for branch in (true, false)
    )
    return tuple(sg.cond(pred, first, second))


def _looped(
    translator: Translator,
    cond: torch.fx.GraphModule,
    body: torch.fx.GraphModule,
    carried: Sequence[Value],
    more: Sequence[Value] = (),
) -> tuple[Any, ...]:
    def going(*carry: sg.Output) -> sg.Output:
        return brought(_results(translator.run(cond, [*carry, *more]))[0], sg.bool_)

    def step(*carry: sg.Output) -> tuple[Any, ...]:
        return tuple(_results(translator.run(body, [*carry, *more])))

    return tuple(sg.while_loop(going, step, tuple(carried)))


def _scanned(
    translator: Translator,
    combine: torch.fx.GraphModule,
    init: Sequence[Value],
    xs: Sequence[Value],
    more: Sequence[Value] = (),
) -> tuple[Any, ...]:
    count = len(init)

    def step(carry: Sequence[sg.Output], x: Sequence[sg.Output]) -> tuple[list[Any], list[Any]]:
        outputs = _results(translator.run(combine, [*carry, *x, *more]))
        return list(outputs[:count]), list(outputs[count:])

    carry, ys = sg.scan(step, list(init), list(xs))
    return (*carry, *ys)


def _mapped(
    translator: Translator, function: torch.fx.GraphModule, xs: Sequence[Value], more: Sequence[Value] = ()
) -> tuple[Any, ...]:
    def step(parts: Sequence[sg.Output]) -> list[Any]:
        return list(_results(translator.run(function, [*parts, *more])))

    return tuple(sg.map_fn(step, list(xs)))


CONTROL: dict[str, Any] = {
    "cond": _branched,
    "while_loop": _looped,
    "scan": _scanned,
    "map_impl": _mapped,
}
"""Translations by the name of the operator; each takes the translator, to build the inner programs."""
