"""``check_gradients`` of PyTorch functions: autograd's own gradients are judged, and constants are held."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from stopgrad.errors import ArgumentError, GradientError
from tiers import some

import stopgrad as sg
import stopgrad.torch as sgt

Tensor = torch.Tensor
VALUES = [0.5, 2.0, -1.25]


def leaf(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(VALUES, dtype=dtype, requires_grad=True)


def ruled(factor: float) -> Callable[[Any], Any]:
    """A square, whose backward is right for a factor of 2."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return factor * g * ctx.saved_tensors[0]

    return Square.apply


def without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        weights = x.exp() / x.exp().sum()
        weights.mul_(2.0)
    return (weights * x).sum()


@torch.no_grad()
def frozen(x: Tensor) -> Tensor:
    return x.exp()


def looped(x: Tensor) -> Tensor:
    c = x
    for _ in range(3):
        c = c * c.detach() + x
    return c


def inner_gradient(x: Tensor) -> Tensor:
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (g * x.data).sum()


RIGHT: dict[str, Callable[[Tensor], Any]] = {
    "detach": lambda x: (x.sin() * x.detach()).sum(),
    "loop": looped,
    "data": lambda x: x.data.exp() * x,
    "no_grad": without_gradients,
    "decorated": lambda x: frozen(x) * x,
    "item": lambda x: x * x[0].item() * float(x.detach()[1]),
    "numpy": lambda x: x * torch.from_numpy(x.detach().numpy() ** 2),
    "tensor": lambda x: x * torch.tensor(x.tolist()),
    "integers": lambda x: x.long().float() * x,
    "straight-through": lambda x: (x + (x.round() - x).detach()) ** 2,
    "Function": lambda x: ruled(2.0)(x) * x.detach(),
    "inner gradient": inner_gradient,
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(looped, x, use_reentrant=False),
    "reentrant": lambda x: torch.utils.checkpoint.checkpoint(looped, x, use_reentrant=True),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5) * random.random() * float(np.random.rand()),
    "functional": lambda x: torch.func.grad(lambda y: (y**3).sum())(x.detach()) * x,
    "vmap": lambda x: torch.vmap(lambda row: row * row.sin())(x) * x.detach(),
    "stopped": lambda x: x.detach() ** 2,
    "chosen": lambda x: x * (3.0 if bool(x[0] > 0) else 1.0) * x.detach()[x.argmax()],
}


@pytest.mark.parametrize("name", some(RIGHT, 3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_right_gradients_pass_with_constants_held(name: str, dtype: torch.dtype) -> None:
    x = leaf(dtype)
    checked = sgt.check_gradients(RIGHT[name], x)
    assert checked.passed
    assert checked["x"].error < 1e-3
    assert x.tolist() == VALUES
    assert x.grad is None


@pytest.mark.parametrize("name", ["detach", "data", "no_grad", "decorated", "item"])
def test_ignored_stops_are_told(name: str) -> None:
    assert not sgt.check_gradients(RIGHT[name], leaf(torch.float64), stops="ignore").passed


def test_a_stop_in_a_loop_is_held_at_each_iteration() -> None:
    def closed(x: float) -> float:
        c, slope = x, 1.0
        for _ in range(3):
            c, slope = c * c + x, c * slope + 1.0
        return slope

    worst = sgt.check_gradients(looped, torch.tensor(0.7, requires_grad=True))["x"].worst
    assert worst is not None
    assert worst.generated == pytest.approx(closed(0.7), rel=1e-6)
    assert worst.numeric == pytest.approx(closed(0.7), rel=1e-6)


@pytest.mark.parametrize("factor", [1.0, 2.002, -2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wrong_functions_differ(factor: float, dtype: torch.dtype) -> None:
    with pytest.raises(GradientError, match="differ"):
        sgt.check_gradients(lambda x: ruled(factor)(x), leaf(dtype), rtol=1e-4)
    checked = sgt.check_gradients(ruled(factor), leaf(dtype), rtol=1e-4, raises=False)
    (result,) = checked.values()
    worst = result.worst
    assert worst is not None
    assert worst.index is not None
    x = VALUES[worst.index[0]]
    assert worst.generated == pytest.approx(factor * x, rel=1e-5)
    assert worst.numeric == pytest.approx(2.0 * x, rel=1e-5)
    with pytest.raises(RuntimeError):
        torch.autograd.gradcheck(ruled(factor), leaf(torch.float64), rtol=1e-4, atol=1e-6)
    assert torch.autograd.gradcheck(ruled(2.0), leaf(torch.float64))


def test_the_way_names_stops_and_functions_by_their_lines() -> None:
    def loss(x: Tensor) -> Tensor:
        return (ruled(1.0)(x) * x.detach()).sum() * x[0].item()

    checked = sgt.check_gradients(loss, leaf(), raises=False)
    assert [held.what for held in checked.custom] == ["Square.apply"]
    assert [held.what for held in checked.held] == ["Tensor.detach", "Tensor.item"]
    assert {held.location.file for held in checked.held if held.location} == {__file__}


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 2),
        torch.nn.BatchNorm1d(2),
        torch.nn.Tanh(),
        torch.nn.Dropout(),
        torch.nn.Linear(2, 1),
    )


def test_modules_in_training_and_all_that_is_put_back() -> None:
    model, x = net(), torch.randn(8, 3)
    model[0].weight.grad = torch.ones(2, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    states = torch.get_rng_state().clone(), random.getstate()
    checked = sgt.check_gradients(lambda net, x: net(x).square().mean(), model, x)
    assert list(checked) == [f"net.{name}" for name, _ in model.named_parameters()]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model[0].weight.grad, torch.ones(2, 3))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert model.training


def test_an_error_on_the_way_leaves_everything_as_it_was() -> None:
    calls = []

    def loss(x: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 4:
            raise RuntimeError("the fifth call")
        return (x * x).sum()

    x = leaf(torch.float64)
    with pytest.raises(RuntimeError, match="the fifth call"):
        sgt.check_gradients(loss, x)
    assert x.tolist() == VALUES


def stopped_rule(is_right: bool) -> Callable[[Any], Any]:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 2.0 * g * (x if is_right else x.detach())

    return Square.apply


def test_second_derivatives_and_the_stops_of_rules() -> None:
    right, wrong = stopped_rule(True), stopped_rule(False)
    x = leaf(torch.float64)
    for stops in ("hold", "program"):
        assert sgt.check_gradients(lambda x: right(x) * x.detach(), x, order=2, stops=stops).passed
    assert sgt.check_gradients(lambda x: wrong(x), x, order=2).passed
    checked = sgt.check_gradients(lambda x: wrong(x), x, order=2, stops="program", raises=False)
    worst = checked["x"].worst
    assert worst is not None
    assert (worst.order, worst.generated) == (2, 0.0)


def test_kinks_ties_and_infinite_derivatives() -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    checked = sgt.check_gradients(lambda x: x.relu().sum(), x)
    assert [(kink.index, kink.low) for kink in checked["x"].kinks] == [((0,), 0.0)]
    tied = sgt.check_gradients(lambda x: x.max(), torch.tensor([1.0, 1.0, 0.0], requires_grad=True))
    assert {kink.index for kink in tied["x"].kinks} == {(0,), (1,)}
    steep = sgt.check_gradients(lambda x: x.sqrt().sum(), x, raises=False)
    assert [kink.low for kink in steep["x"].kinks] == [np.inf]
    broken = sgt.check_gradients(lambda x: (x - 2.0).log(), x, raises=False)
    assert "NaN or infinite" in broken["x"].reason


@pytest.mark.parametrize("name", some(["bfloat16", "float16", "complex64", "complex128"], 4))
def test_every_precision(name: str) -> None:
    x = leaf(getattr(torch, name))
    assert sgt.check_gradients(lambda x: ((x * x).abs() * x.detach().abs()).sum(), x).passed
    assert not sgt.check_gradients(lambda x: ruled(1.0)(x).abs(), x, raises=False).passed


@pytest.mark.slow
def test_empty_shared_and_large_tensors() -> None:
    empty = torch.zeros(0, 2, requires_grad=True)
    assert sgt.check_gradients(lambda x, e: x.sum() + e.sum(), leaf(), empty).passed
    tied = torch.nn.Linear(2, 2, bias=False)
    pair = torch.nn.ModuleDict({"a": tied, "b": tied})
    assert sgt.check_gradients(lambda m, x: m["b"](m["a"](x)).sum(), pair, torch.ones(1, 2)).passed
    large = torch.linspace(-1.0, 2.0, 1000, requires_grad=True)
    assert sgt.check_gradients(lambda x: (x.sin() * x.detach()).sum(), large)["x"].method == "directional"
    assert not sgt.check_gradients(lambda x: ruled(1.9)(x).sum(), large, raises=False).passed


def test_what_cannot_be_checked() -> None:
    count = iter(range(10**6))
    for f, args, says in [
        (lambda x: x * next(count), (leaf(),), "the function is not deterministic"),
        (lambda x: x, (torch.ones(2),), "none of the arguments requires a gradient"),
        (lambda x: 3.0, (leaf(),), "returned no tensor"),
        (3, (), "takes a function"),
        (torch.vmap(lambda row: row * row.detach()), (leaf(),), "inside of a function of torch.func"),
    ]:
        with pytest.raises(ArgumentError, match=says):
            sgt.check_gradients(f, *args)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="in reverse mode, not in forward mode"):
        sgt.check_gradients(lambda x: x, leaf(), modes="forward")


def test_the_question_finds_its_world() -> None:
    assert sg.check_gradients(lambda x: (x.sin() * x.detach()).sum(), leaf()).passed
    with pytest.raises(GradientError):
        sg.check_gradients(lambda x: ruled(1.0)(x).sum(), leaf())
