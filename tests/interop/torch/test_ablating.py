"""``ablate`` of PyTorch functions: each verdict against gradients of twins written without a line's stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from stopgrad.errors import ArgumentError

import stopgrad as sg
import stopgrad.torch as sgt

Tensor = torch.Tensor


def leaf() -> Tensor:
    return torch.tensor([0.5, 2.0, -1.25], requires_grad=True)


def made_of(detached: bool, data: bool, blocked: bool) -> Callable[[Tensor], Tensor]:
    def loss(x: Tensor) -> Tensor:
        a = x * (x.detach() if detached else x)
        b = (x.data if data else x) * x
        with torch.set_grad_enabled(not blocked):
            m = x.exp()
        return (a + 2.0 * b + m * x).sum()

    return loss


def stopped(x: Tensor) -> Tensor:
    a = x * x.detach()
    b = x.data * x
    with torch.no_grad():
        m = x.exp()
    return (a + 2.0 * b + m * x).sum()


def grad_of(f: Callable[[Tensor], Tensor]) -> Tensor:
    x = leaf()
    return torch.autograd.grad(f(x), x)[0]


def test_each_line_changes_the_gradient_by_what_its_twin_says() -> None:
    x = leaf()
    found = sgt.ablate(stopped, x, repeats=1)
    assert [stop.kind for stop in found.stops] == ["detach", "data", "torch.no_grad()"]
    given = grad_of(stopped)
    assert torch.equal(given, grad_of(made_of(True, True, True)))
    for i, stop in enumerate(found.stops):
        assert stop.verdict == "changes the gradient"
        open = grad_of(made_of(*[i != j for j in range(3)]))
        larger = max(given.norm(), open.norm())
        assert stop.inputs["x"].difference == pytest.approx(float((given - open).norm() / larger), rel=1e-5)
        assert stop.seconds_with is not None
    assert found.engine == "PyTorch, watched"
    assert "operations" not in str(found)
    assert torch.equal(x, leaf())


def softmax(x: Tensor) -> Tensor:
    z = (x - x.max().detach()).exp()
    return (z / z.sum())[0]


def test_verdicts_of_stops_that_change_nothing() -> None:
    stop = sgt.ablate(softmax, leaf(), repeats=0).stops[0]
    assert stop.verdict == "changes nothing"
    assert stop.seconds_with is None
    other = sgt.ablate(lambda x, y: (x * y.detach()).sum(), leaf(), torch.ones(3), repeats=0).stops[0]
    assert other.verdict == "idle"

    def logged(x: Tensor) -> Tensor:
        loss = (x * x).sum()
        loss.detach().item()
        return loss

    assert sgt.ablate(logged, leaf()).stops == ()
    assert sgt.ablate(lambda x: torch.nn.functional.softmax(x, 0)[0], leaf()).stops == ()


def test_a_small_change_is_a_change() -> None:
    stop = sgt.ablate(lambda x: (x + 1e-6 * x.detach() * x).sum(), leaf(), repeats=0).stops[0]
    assert stop.verdict == "changes the gradient"


def test_without_it_the_gradient_is_an_error() -> None:
    def loss(x: Tensor) -> Tensor:
        y = x.detach()
        y = y.numpy()
        return (x * torch.from_numpy(y)).sum()

    stop = sgt.ablate(loss, leaf(), repeats=0).stops[0]
    assert stop.verdict == "without it, the gradient is an error"
    assert stop.error is not None
    assert "Can't call numpy() on Tensor that requires grad" in stop.error


def test_modules_and_functions_with_a_backward_of_their_own() -> None:
    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 3.0 * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return 5.0 * g

    net = torch.nn.Linear(3, 2)

    def loss(net: torch.nn.Module, x: Tensor) -> Tensor:
        hidden = net(x)
        return (Triple.apply(hidden) * hidden.detach()).sum()

    def open(net: torch.nn.Module, x: Tensor) -> Tensor:
        hidden = net(x)
        return (Triple.apply(hidden) * hidden).sum()

    x = torch.ones(4, 3)
    stop = sgt.ablate(loss, net, x, repeats=0).stops[0]
    for name, p in net.named_parameters():
        a, b = (torch.autograd.grad(f(net, x), p)[0] for f in (loss, open))
        larger = max(a.norm(), b.norm())
        assert stop.inputs[f"net.{name}"].difference == pytest.approx(
            float((a - b).norm() / larger), rel=1e-5
        )


def test_the_question_finds_its_world() -> None:
    assert [one.verdict for one in sg.ablate(softmax, leaf(), repeats=0).stops] == ["changes nothing"]
    with pytest.raises(ArgumentError, match="repeats is a whole number"):
        sgt.ablate(softmax, leaf(), repeats=-1)
