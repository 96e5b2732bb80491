"""Monitors of trainings in PyTorch: what they tell, and that they change nothing, whatever happens."""

from __future__ import annotations

import copy
import gc
import io
import weakref
from collections.abc import Callable
from typing import Any

import pytest

sg = pytest.importorskip("stopgrad")
torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint
nn, functional = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        self.frozen = False

    def forward(self, x: Any) -> Any:
        h = torch.relu(self.first(x))
        return self.head(h.detach() if self.frozen else h)


def quiet(net: Any, every: int = 1, **options: Any) -> Any:
    return sgt.monitor(net, every=every, to=io.StringIO(), **options)


def batch(step: int) -> Any:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(step))


def train(net: Any, monitor: Any, steps: int, before: Callable[[int], object] = lambda step: None) -> Any:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(steps):
        before(step)
        with monitor:
            optimizer.zero_grad()
            net(batch(step)).square().mean().backward()
        optimizer.step()
    return optimizer


def states(monitor: Any) -> list[tuple[int, str, tuple[str, ...]]]:
    return [(change.step, change.state, change.keys) for change in monitor.changes]


PATCHED = [
    (torch.nn.Module, "__call__"),
    (torch.nn.Parameter, "__new__"),
    (torch, "compile"),
    (torch.inference_mode, "__enter__"),
    (torch.inference_mode, "__exit__"),
]
PLAIN: list[Any] = []


@pytest.fixture(autouse=True)
def _plain() -> None:
    """What PyTorch is before a test. Libraries that other tests import patch it, too."""
    with sgt.watch():
        pass  # PyTorch is patched once for the process.
    PLAIN[:] = [vars(owner)[name] for owner, name in PATCHED]


def nothing_is_patched(net: Any) -> bool:
    hooks = [
        *(hooks for part in net.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)),
        *[p._backward_hooks or {} for p in net.parameters()],
    ]
    return (
        all(vars(owner)[name] is plain for (owner, name), plain in zip(PATCHED, PLAIN, strict=True))
        and torch._C._len_torch_function_stack() == 0
        and "forward" not in vars(net)
        and not any(hooks)
    )


# ---------------------------------------------------------------------------------------- what is told


def test_nothing_is_told_while_nothing_changes() -> None:
    net = Net()
    monitor = quiet(net)
    train(net, monitor, 6)
    assert monitor.changes == ()
    assert monitor.step == 6


def test_a_layer_that_dies_is_told_with_its_line_in_the_next_sample() -> None:
    net = Net()
    monitor = quiet(net, every=3)

    def kill(step: int) -> None:
        if step == 4:
            net.first.bias.data.fill_(-100.0)

    train(net, monitor, 10, kill)
    assert states(monitor) == [
        (6, "zero", ("first.weight", "first.bias")),
        (6, "zero", ("head.weight",)),
    ]
    text = str(monitor.changes[0])
    assert text.startswith("since step 6, the gradient of first.weight, first.bias is exactly 0: ")
    assert text.endswith(" relu is dead: it is off wherever a gradient arrives")
    assert "test_monitoring.py:" in text


def test_a_cut_that_begins_and_ends_is_told_with_its_line() -> None:
    net = Net()
    monitor = quiet(net)
    train(net, monitor, 6, lambda step: setattr(net, "frozen", step in (2, 3)))
    keys = ("first.weight", "first.bias")
    assert states(monitor) == [(2, "stopped", keys), (4, "arrives", keys)]
    assert monitor.changes[0].cause.endswith(" detach")


def test_a_nan_is_told_and_a_parameter_that_is_one_itself() -> None:
    net = Net()
    monitor = quiet(net)

    def spoil(step: int) -> None:
        if step == 2:
            net.head.weight.data[0, 0] = float("nan")

    train(net, monitor, 4, spoil)
    (change,) = monitor.changes
    assert (change.step, change.state, len(change.keys)) == (2, "not finite", 4)
    assert change.cause.endswith("head.weight is so already")


def test_a_parameter_that_was_frozen_does_not_count() -> None:
    net = Net()
    monitor = quiet(net)
    train(net, monitor, 4, lambda step: net.first.requires_grad_(step != 2))
    assert monitor.changes == ()


def test_only_some_parameters_can_be_monitored() -> None:
    net = Net()
    net.first.bias.data.fill_(-100.0)
    monitor = quiet(net, only="head.*")
    train(net, monitor, 1)
    assert states(monitor) == [(0, "zero", ("head.weight",))]


def test_a_step_without_backward_is_not_sampled_but_the_next_one_is() -> None:
    net = Net()
    net.first.bias.data.fill_(-100.0)
    monitor = quiet(net, every=10)
    for step in range(3):
        with monitor:
            loss = net(batch(0)).sum()
            if step == 2:
                loss.backward()
    assert [change.step for change in monitor.changes] == [2, 2]


def test_of_many_backward_passes_a_gradient_arrives_if_it_does_in_any() -> None:
    net = Net()
    monitor = quiet(net)
    with monitor:
        for micro in range(12):
            net.frozen = micro != 11
            net(batch(micro)).sum().backward()
    assert monitor.changes == ()


def test_a_gradient_that_is_only_asked_for_trains_nothing() -> None:
    """As a penalty on the slope with respect to the data, which is computed beside the loss."""
    net = Net()
    monitor = quiet(net)
    with monitor:
        x = batch(0).requires_grad_()
        torch.autograd.grad(net(x).sum(), x)
        net.first(x).square().mean().backward()
    assert states(monitor) == [(0, "disconnected", ("head.weight", "head.bias"))]


def test_steps_may_have_the_numbers_of_a_training_that_goes_on() -> None:
    net = Net()
    monitor = quiet(net)
    monitor.step = 1000
    net.first.bias.data.fill_(-100.0)
    train(net, monitor, 1)
    assert {change.step for change in monitor.changes} == {1000}
    assert monitor.step == 1001


def test_a_model_without_parameters_to_train_is_refused() -> None:
    with pytest.raises(sg.ArgumentError, match="no parameter of the model requires a gradient"):
        sgt.monitor(Net().requires_grad_(False))


# --------------------------------------------------------------------------------- nothing is changed


class Deep(nn.Module):
    """With all that could go wrong: dropout, running averages, hooks, a checkpoint, shared weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.3))
        self.again, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        h = self.inner(x)
        h.register_hook(lambda g: g * 1.5)
        h = checkpoint(self.again, self.again(h), use_reentrant=False)
        return self.head(h)


@pytest.mark.parametrize("every", [1, 2])
def test_a_training_is_the_same_bits_with_and_without_a_monitor(every: int) -> None:
    net = Deep()
    twin = copy.deepcopy(net)
    torch.manual_seed(1)
    plain = train(net, torch.enable_grad(), 6)
    state = torch.get_rng_state()
    torch.manual_seed(1)
    monitor = quiet(twin, every=every)
    monitored = train(twin, monitor, 6)
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip(net.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    first, second = plain.state_dict()["state"], monitored.state_dict()["state"]
    assert all(torch.equal(first[i]["exp_avg_sq"], second[i]["exp_avg_sq"]) for i in first)
    assert nothing_is_patched(twin)


def test_steps_that_are_not_sampled_run_as_without_a_monitor() -> None:
    net = Net()
    monitor = quiet(net, every=2)
    seen = []
    for step in range(4):
        with monitor:
            seen.append(nothing_is_patched(net))
            net(batch(step)).sum().backward()
    assert seen == [False, True, False, True]


def test_no_tensor_is_kept_alive() -> None:
    net = Net()
    monitor = quiet(net)
    with monitor:
        loss = net(batch(0)).sum()
        loss.backward()
    gone = weakref.ref(loss)
    del loss
    gc.collect()
    assert gone() is None


class Fails(torch.autograd.Function):
    error: BaseException = ZeroDivisionError("mine")

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise Fails.error


def failing(net: Any, where: str, error: BaseException) -> None:
    """A step that fails."""

    def fail(*_: object) -> None:
        raise error

    Fails.error = error
    if where == "forward":
        handle = net.head.register_forward_pre_hook(fail)
        try:
            net(batch(0))
        finally:
            handle.remove()
    elif where == "backward":
        Fails.apply(net(batch(0))).sum().backward()
    else:
        net(batch(0)).sum().backward()
        raise error


@pytest.mark.parametrize("where", ["forward", "backward", "afterwards"])
@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_a_step_that_fails_or_is_interrupted_leaves_nothing_patched(where: str, error: BaseException) -> None:
    net = Net()
    net.first.bias.data.fill_(-100.0)
    monitor = quiet(net)
    with pytest.raises(type(error)), monitor:
        failing(net, where, error)
    assert nothing_is_patched(net)
    assert monitor.changes == ()  # A step that fails says nothing,
    assert monitor.step == 1
    train(net, monitor, 1)
    assert {change.step for change in monitor.changes} == {1}  # and the next one does.


# ---------------------------------------------------------------------------------------- compiled code


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_model_stays_compiled_and_what_arrives_is_told(in_place: bool) -> None:
    net, runs = Net(), []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            runs.append(1)
            return graph(*args)

        return run

    compiled = torch.compile(net, backend=backend)
    if in_place:
        net.compile(backend=backend)
        compiled = net
    monitor = quiet(compiled)

    def kill(step: int) -> None:
        if step == 2:
            net.first.bias.data.fill_(-100.0)

    train(compiled, monitor, 4, kill)
    assert len(runs) == 4
    prefix = "" if in_place else "_orig_mod."
    keys = tuple(f"{prefix}{name}" for name in ("first.weight", "first.bias", "head.weight"))
    assert states(monitor) == [(2, "zero", keys)]
    assert monitor.changes[0].cause == ""
    assert nothing_is_patched(net)
