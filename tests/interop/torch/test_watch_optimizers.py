"""Steps of PyTorch's optimizers, which a watch need not see: whoever else would see them still does."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("stopgrad.torch")

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

import stopgrad.torch as sgt

X = torch.linspace(-1.0, 1.0, 8).view(2, 4)


class Noting(TorchFunctionMode):
    """Notes the names of the functions that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def trained(kind: Any, watched: bool, **settings: Any) -> list[torch.Tensor]:
    """The parameters after three steps."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = kind(model.parameters(), **settings)
    for _ in range(3):
        if watched:
            with sgt.watch() as seen:
                optimizer.zero_grad()
                loss = model(X).square().sum()
                loss.backward()
                optimizer.step()
            assert all(reach.arrives for reach in seen.explain(loss, model).values())
            continue
        optimizer.zero_grad()
        model(X).square().sum().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Rprop", "Adafactor"]
)
def test_watched_steps_are_the_same(name: str) -> None:
    kind = getattr(torch.optim, name)
    for plain, watched in zip(trained(kind, False, lr=0.1), trained(kind, True, lr=0.1), strict=True):
        assert torch.equal(plain, watched)


@pytest.mark.parametrize("inside", [False, True])
def test_a_mode_of_the_users_sees_a_step(inside: bool) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(X).sum().backward()
    mode = Noting()
    outer, inner = (sgt.watch(), mode) if inside else (mode, sgt.watch())
    with outer, inner:
        optimizer.step()
    assert "addcdiv_" in mode.names


@pytest.mark.parametrize("whose", ["every", "one"])
def test_what_hooks_of_a_step_make_is_seen(whose: str) -> None:
    model, made = nn.Linear(4, 3), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def hook(*_: object) -> None:
        made.append(model(X).detach().sum())

    register = optimizer.register_step_pre_hook if whose == "one" else register_optimizer_step_pre_hook
    handle = register(hook)
    try:
        with sgt.watch() as seen:
            model(X).sum().backward()
            optimizer.step()
        assert seen.explain(made[0], model)["weight"].status == "stopped"
    finally:
        handle.remove()


def test_a_closure_is_seen() -> None:
    model, losses = nn.Linear(4, 3), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure() -> Any:
        optimizer.zero_grad()
        losses.append(model(X).sum())
        losses[0].backward()
        return losses[0]

    with sgt.watch() as seen:
        optimizer.step(closure)
    assert seen.explain(losses[0], model)["weight"].status == "flows"


def test_a_differentiable_step_is_seen() -> None:
    rate = torch.tensor(0.1, requires_grad=True)
    start = torch.ones(3, requires_grad=True)
    with sgt.watch() as seen:
        w = start.clone()
        optimizer = torch.optim.SGD([w], lr=0.1, differentiable=True)
        w.grad = torch.ones(3) * rate
        optimizer.step()
        loss = w.sum()
    loss.backward()
    assert (rate.grad is not None) is seen.explain(loss, {"rate": rate})["rate"].arrives


def test_operations_after_a_step_are_recorded() -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    with sgt.watch() as seen:
        model(X).sum().backward()
        optimizer.step()
        loss = model(X).detach().sum() + model.bias.sum()
    flow = seen.explain(loss, model)
    assert (flow["weight"].status, flow["bias"].status) == ("stopped", "partly stopped")


def test_a_step_that_fails_leaves_the_watch_running() -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    with sgt.watch() as seen:
        model(X).sum().backward()
        optimizer.state[model.weight]["step"] = None
        with pytest.raises((AttributeError, KeyError, TypeError)):
            optimizer.step()
        loss = model(X).detach().sum()
    assert seen.explain(loss, model)["weight"].status == "stopped"
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("wrong", [True, False])
def test_a_step_between_forward_and_backward_is_named(wrong: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sgt.watch():
        model(X).sum().backward()
        loss = model(X).sum()
        if not wrong:
            loss.backward()
            optimizer.step()
            return
        optimizer.step()
        with pytest.raises(RuntimeError) as caught:
            loss.backward()
    notes = "\n".join(caught.value.__notes__)
    shows = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 10)
    assert ("optimizer.step()" if shows else "does not show what derivatives need") in notes


def test_none_is_hidden_from_classes_of_tensors() -> None:
    names: list[str] = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(getattr(func, "__name__", ""))
            return super().__torch_function__(func, types, args, kwargs)

    w = torch.ones(3).as_subclass(Own).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.1, foreach=False)
    w.grad = torch.ones(3).as_subclass(Own)
    with sgt.watch():
        names.clear()
        optimizer.step()
    assert "add_" in names
