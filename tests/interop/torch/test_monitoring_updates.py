"""A monitor that knows the optimizer tells what it moves without a gradient, and changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import stopgrad.torch as sgt  # noqa: E402
from stopgrad.base.errors import ArgumentError  # noqa: E402

X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)


class Net(torch.nn.Module):
    """An encoder, whose gradient may be cut, and a head."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.head, self.cut = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1), cut

    def forward(self, x: Any) -> Any:
        hidden = self.encoder(x)
        return self.head(hidden.detach() if self.cut else hidden)


MAKE: dict[str, Callable[[Any], Any]] = {
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0.1),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1),
}


def trained(name: str, cut: bool, monitored: bool, inside: bool, zeros: bool) -> tuple[Any, Any, set[str]]:
    """The network, its monitor, and what the last step of three moved."""
    net = Net(cut=False)
    optimizer = MAKE[name](net.parameters())
    monitor = sgt.monitor(net, every=1, to=[], optimizer=optimizer) if monitored else None
    for step in range(3):
        net.cut = cut and step > 0
        before = copy.deepcopy(net.state_dict())
        optimizer.zero_grad(set_to_none=not zeros)
        if monitor is not None:
            monitor.__enter__()
        net(X).sum().backward()
        if inside:
            optimizer.step()
            optimizer.zero_grad(set_to_none=not zeros)
        if monitor is not None:
            monitor.__exit__(None, None, None)
        if not inside:
            optimizer.step()
        moved = {key for key, x in net.state_dict().items() if not torch.equal(x, before[key])}
    return net, monitor, moved


@pytest.mark.parametrize("inside", [False, True], ids=["step outside", "step inside"])
@pytest.mark.parametrize("zeros", [False, True], ids=["none", "zeros"])
@pytest.mark.parametrize("cut", [False, True], ids=["right", "cut"])
@pytest.mark.parametrize("name", MAKE)
def test_what_moves_without_a_gradient_is_told(name: str, cut: bool, zeros: bool, inside: bool) -> None:
    net, monitor, moved = trained(name, cut, True, inside, zeros)
    twin, _, _ = trained(name, cut, False, inside, zeros)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), twin.parameters(), strict=True))
    told = {key for c in monitor.changes if c.state == "moves without a gradient" for key in c.keys}
    assert told == ({key for key in moved if key.startswith("encoder")} if cut else set())
    assert bool(told) is (cut and zeros and name != "sgd")


def test_an_optimizer_is_as_it_was() -> None:
    _, monitor, _ = trained("momentum", True, True, True, True)
    assert not monitor._updates._optimizer._optimizer_step_pre_hooks


def test_optimizers_that_a_monitor_cannot_use_are_named() -> None:
    net = Net(cut=False)
    with pytest.raises(ArgumentError, match="LBFGS computes the loss anew"):
        sgt.monitor(net, optimizer=torch.optim.LBFGS(net.parameters()))
    with pytest.raises(ArgumentError, match=r"optimizer is one of torch\.optim"):
        sgt.monitor(net, optimizer=3)
