"""What one update moves, as ``explain`` has it, held against what the user's own step moves."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import stopgrad.torch as sgt
from stopgrad.base.errors import ArgumentError, FlowError
from stopgrad.flow.updates import HELD, MOVES, WITHOUT

X = torch.tensor([[1.0, 2.0], [3.0, -1.0]])


def net() -> torch.nn.ModuleDict:
    torch.manual_seed(0)
    return torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 2), "head": torch.nn.Linear(2, 1)})


def raw(model: Any, x: Any) -> Any:
    return (model["head"](model["encoder"](x)) ** 2).sum()


def held(model: Any, x: Any) -> Any:
    return (model["head"](model["encoder"](x).detach()) ** 2).sum()


def adamw(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)


def momentum(model: Any) -> Any:
    """An optimizer that remembers a gradient of the encoder."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    raw(model, X).backward()
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


TRAININGS: dict[str, tuple[Any, Any, bool, str]] = {
    "sgd": (raw, lambda m: torch.optim.SGD(m.parameters(), lr=0.1), False, MOVES),
    "sgd, stopped": (held, lambda m: torch.optim.SGD(m.parameters(), lr=0.1), False, HELD),
    "sgd, gradients of zeros": (held, lambda m: torch.optim.SGD(m.parameters(), lr=0.1), True, HELD),
    "sgd with decay, stopped": (
        held,
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.1),
        False,
        HELD,
    ),
    "sgd with decay, gradients of zeros": (
        held,
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.1),
        True,
        WITHOUT,
    ),
    "adamw": (raw, adamw, False, MOVES),
    "adamw, stopped": (held, adamw, False, HELD),
    "adamw, gradients of zeros": (held, adamw, True, WITHOUT),
    "momentum, stopped": (held, momentum, False, HELD),
    "momentum, gradients of zeros": (held, momentum, True, WITHOUT),
    "head alone": (raw, lambda m: torch.optim.AdamW(m["head"].parameters(), lr=0.1), False, HELD),
    "two groups": (
        raw,
        lambda m: torch.optim.SGD(
            [{"params": m["encoder"].parameters(), "lr": 0.0}, {"params": m["head"].parameters()}], lr=0.1
        ),
        False,
        HELD,
    ),
    "lbfgs": (raw, lambda m: torch.optim.LBFGS(m.parameters(), lr=0.1), False, MOVES),
    "lbfgs, stopped": (held, lambda m: torch.optim.LBFGS(m["head"].parameters(), lr=0.1), False, HELD),
    "adam, maximised": (raw, lambda m: torch.optim.Adam(m.parameters(), lr=0.1, maximize=True), False, MOVES),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_the_verdict_is_what_moves(name: str) -> None:
    loss, make, zeros, verdict = TRAININGS[name]
    model = net()
    optimizer = make(model)
    if zeros:
        raw(model, X).backward()
        optimizer.zero_grad(set_to_none=False)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]))
    versions = [p._version for p in model.parameters()]
    draws = torch.random.get_rng_state()
    flow = sgt.explain(loss, model, X, model=model, optimizer=optimizer)
    after = model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]
    assert torch.equal(draws, torch.random.get_rng_state())
    assert _same(before, after)
    assert versions == [p._version for p in model.parameters()]
    assert flow["encoder.weight"].update.verdict == verdict
    assert {finding.kind for finding in flow.findings if "moves" in finding.kind} == {verdict} & {WITHOUT}
    steps = flow["head.weight"].update.steps
    found = {name: flow[name].moves for name in flow}
    kept = {name: x.clone() for name, x in model.named_parameters()}

    def closure() -> Any:
        optimizer.zero_grad(set_to_none=not zeros)
        value = loss(model, X)
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(closure)
    assert found == {name: bool((x != kept[name]).any()) for name, x in model.named_parameters()}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def test_what_is_frozen_is_held() -> None:
    model = net()
    model["encoder"].requires_grad_(False)
    flow = sgt.explain(raw, model, X, model=model, optimizer=adamw(model))
    assert flow["encoder.weight"].update.verdict == HELD
    assert flow["head.weight"].update.verdict == MOVES


def test_sparse_gradients() -> None:
    table = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    flow = sgt.explain(lambda i: table(i).sum(), torch.tensor([1, 2]), model=table, optimizer=optimizer)
    assert flow["weight"].update.verdict == MOVES
    assert not optimizer.state


def test_what_must_be_held() -> None:
    model = net()
    sgt.assert_held(
        raw, model, X, model=model, only="encoder.*", optimizer=torch.optim.Adam(model["head"].parameters())
    )
    with pytest.raises(FlowError, match=r"an update moves encoder\.weight, encoder\.bias"):
        sgt.assert_held(raw, model, X, model=model, only="encoder.*", optimizer=adamw(model))


def test_what_is_no_optimizer_is_named() -> None:
    model = net()
    with pytest.raises(ArgumentError, match=r"optimizer is one of torch\.optim"):
        sgt.explain(raw, model, X, optimizer=3)
    broken = adamw(model)
    broken.step = lambda: 1 / 0
    with pytest.raises(ArgumentError, match="ZeroDivisionError"):
        sgt.explain(raw, model, X, optimizer=broken)
