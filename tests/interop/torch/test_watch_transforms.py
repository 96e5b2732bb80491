"""Watches of ``torch.func``: its backward passes are listed, and explained for its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
func = torch.func


def parts(p: dict[str, Any], x: Any) -> Any:
    """Uses arguments with a gradient on every path, on one of two, on none; and one not at all."""
    with torch.no_grad():
        dark = p["dark"].sum()
    return (p["open"] * x + p["half"] * p["half"].detach()).sum() * dark


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda p, x: func.grad(parts)(p, x),
    "grad_and_value": lambda p, x: func.grad_and_value(parts)(p, x),
    "vjp": lambda p, x: func.vjp(lambda q: parts(q, x), p)[1](torch.ones(())),
    "jacrev": lambda p, x: func.jacrev(parts)(p, x),
    "vmap": lambda p, x: func.vmap(func.grad(parts), in_dims=(None, 0))(p, x[None]),
}


@pytest.mark.parametrize("requires", [True, False])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_its_backward_passes_are_listed_and_explained(name: str, requires: bool) -> None:
    p = {key: torch.ones(3, requires_grad=requires) for key in ("open", "half", "dark", "idle")}
    with sgt.watch() as seen:
        TRANSFORMS[name](p, torch.ones(3))
    (call,) = seen.backward_calls
    assert call.kind == "grad"
    assert call.location.line == TRANSFORMS[name].__code__.co_firstlineno
    flow = call.explain(p)
    assert flow["open"].status == "flows"
    assert flow["half"].status == "partly stopped"
    assert [cut.location.line for cut in flow["half"].cuts] == [parts.__code__.co_firstlineno + 4]
    assert [flow[key].arrives for key in ("dark", "idle")] == [False, False]


def test_a_transform_computes_gradients_where_they_are_off_around_it() -> None:
    p = {key: torch.ones(3, requires_grad=True) for key in ("open", "half", "dark", "idle")}
    with sgt.watch() as seen, torch.no_grad():
        gradients = func.grad(parts)(p, torch.ones(3))
    flow = seen.backward_calls[0].explain(p)
    assert [flow[key].arrives for key in p] == [bool(gradients[key].any()) for key in p]
    assert [flow[key].arrives for key in p] == [True, True, False, False]
