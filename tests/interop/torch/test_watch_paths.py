"""What a watch says of paths that autograd does not show by itself; what arrives is what ``.grad`` is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
# By torch.func.jvp, in classes that differ between releases of PyTorch.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*torch.jit.script:{kind}")
    for kind in ("DeprecationWarning", "FutureWarning")
]
Tensor = Any
Says = list[tuple[str, list[str]]]


class Forget(torch.autograd.Function):  # type: ignore[misc]
    """A product that has no gradient for its second factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.saved_tensors[0], None


def forgotten_once(x: Tensor, y: Tensor) -> Tensor:
    return Forget.apply(x, x)


def function_without_gradients(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return Forget.apply(x, y)


def function_in_a_loop(x: Tensor, y: Tensor) -> Tensor:
    total = x * 0.0
    for _ in range(2):
        total = total + Forget.apply(x, torch.tanh(y).detach())
    return total


def tangent(x: Tensor, y: Tensor) -> Tensor:
    return torch.func.jvp(torch.sin, (y,), (x,))[1]


def tangent_at_a_stopped_point(x: Tensor, y: Tensor) -> Tensor:
    return torch.func.jvp(torch.sin, (y.detach(),), (x,))[1]


def slope(x: Tensor, y: Tensor) -> Tensor:
    factor = y.detach()
    return torch.func.grad(lambda t: (torch.tanh(t) * factor).sum())(x)


def slope_without_gradients(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.func.grad(lambda t: (torch.tanh(t) * y).sum())(x)


def parameter_of_data(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.Parameter(x.detach().clone()) * y


def floor_of_rounded(x: Tensor, y: Tensor) -> Tensor:
    return torch.floor(torch.round(x)) + y


def written_into_what_was_stopped(x: Tensor, y: Tensor) -> Tensor:
    z = torch.cat([x.detach(), x.detach()])[3:]
    z.add_(y)
    return z


def filled_part(x: Tensor, y: Tensor) -> Tensor:
    z = torch.cat([x, x])[3:]
    z.fill_(0.3)
    return z + y


def seen_through_a_copy(x: Tensor, y: Tensor) -> Tensor:
    z = torch.sign(x)
    alias = z.detach()
    z.mul_(0.5)
    return alias + y


def view_that_left(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        z = x.detach()
    z[1:].mul_(0.5)
    return z + y


FUNCTION = "inside Forget.forward"
CASES: dict[Callable[..., Tensor], Says] = {
    forgotten_once: [("partly stopped", ["Forget.backward returns None for it"]), ("disconnected", [])],
    function_without_gradients: [("stopped", ["torch.no_grad()"])] * 2,
    function_in_a_loop: [("flows", []), ("stopped", ["detach"])],
    tangent: [("flows", []), ("flows", [])],
    tangent_at_a_stopped_point: [("flows", []), ("stopped", ["detach"])],
    slope: [("flows", []), ("stopped", ["detach"])],
    slope_without_gradients: [("stopped", ["torch.no_grad()"])] * 2,
    parameter_of_data: [("stopped", ["nn.Parameter makes a new leaf"]), ("flows", [])],
    floor_of_rounded: [("not differentiable", ["its gradient is zero everywhere"]), ("flows", [])],
    written_into_what_was_stopped: [("stopped", ["detach"]), ("flows", [])],
    filled_part: [("not differentiable", ["overwritten in place"]), ("flows", [])],
    seen_through_a_copy: [("not differentiable", ["detach"]), ("flows", [])],
    view_that_left: [("stopped", ["torch.no_grad()"]), ("flows", [])],
}
CUT_AT = {floor_of_rounded: 1, view_that_left: 1, parameter_of_data: 1, tangent_at_a_stopped_point: 1}
"""Of some functions, how many lines below their first one the cut is."""


def arguments() -> list[Tensor]:
    return [torch.tensor(values, requires_grad=True) for values in ([0.3, -0.4, 1.2], [0.7, 0.2, -0.6])]


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_statuses_and_cuts(function: Callable[..., Tensor]) -> None:
    x, y = arguments()
    with sgt.watch() as seen:
        loss = function(x, y).sum()
    flow = seen.explain(loss, {"x": x, "y": y})
    assert [(flow[key].status, [cut.reason for cut in flow[key].cuts]) for key in "xy"] == CASES[function]
    first = function.__code__.co_firstlineno
    lines = {cut.location.line - first for key in "xy" for cut in flow[key].cuts}
    assert function not in CUT_AT or lines == {CUT_AT[function]}
    if loss.requires_grad:
        loss.backward()
    arrived = [flow[key].arrives for key in "xy"]
    assert arrived == [t.grad is not None and bool(t.grad.any()) for t in (x, y)]


def test_without_its_block_a_function_passes_gradients() -> None:
    x, y = arguments()
    with sgt.watch() as seen:
        loss = function_without_gradients(x, y).sum()
    (cut,) = seen.explain(loss, {"x": x})["x"].cuts
    assert cut.opens == ("x",)


def test_a_leaf_that_is_written_into_is_still_seen_through_its_memory() -> None:
    x, _ = arguments()
    with sgt.watch() as seen:
        with torch.no_grad():
            alias = x.detach()
            x.tanh_()
        loss = (alias * 2.0).sum()
    assert seen.explain(loss, {"x": x})["x"].status == "stopped"


def test_integers_are_told_of_where_a_view_is_overwritten() -> None:
    x, i = torch.ones(3, requires_grad=True), torch.tensor([1, 2, 0])
    weight = torch.eye(3, requires_grad=True)
    with sgt.watch() as seen:
        y = torch.nn.functional.linear(i.float(), weight)[:]
        y.copy_(x)
        loss = y.sum()
    flow = seen.explain(loss, {"x": x, "i": i, "weight": weight})
    assert [flow[key].status for key in flow] == ["flows", "not differentiable", "not differentiable"]
