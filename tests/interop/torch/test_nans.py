"""NaNs and infinities of PyTorch code: the line, and the cure; autograd says if there are any."""

from __future__ import annotations

import linecache
import warnings
from typing import Any

import pytest
from tiers import some

pytest.importorskip("torch")

import torch

import stopgrad as sg
import stopgrad.torch as sgt
from helpers import nans_in_torch
from helpers.nans_in_torch import CASES, X


def given(numbers: Any) -> Any:
    return torch.tensor(numbers, requires_grad=True)


def is_bad(f: Any, x: Any) -> tuple[bool, bool]:
    """Whether PyTorch's own value, and its own gradient, hold NaNs or infinities."""
    value = f(x)
    if value is not None:
        value.backward()
    grad, x.grad = x.grad, None
    return value is not None and not bool(value.isfinite()), not bool(grad.isfinite().all())


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("name", some(CASES, 3))
def test_the_line_at_fault_is_named_and_right_twins_are_finite(name: str) -> None:
    case = CASES[name]
    in_values, in_gradient = is_bad(case.wrong, given(case.given))
    assert in_values or in_gradient
    trace = sg.trace_nan(case.wrong, given(case.given))
    assert trace.first is not None
    assert trace.first.where == case.where
    assert ("the result" in trace.reaches, any("gradient" in x for x in trace.reaches)) == (
        in_values,
        in_gradient,
    )
    assert trace.first.location is not None
    assert trace.first.location.file == nans_in_torch.__file__
    assert "# here" in linecache.getline(trace.first.location.file, trace.first.location.line)
    assert trace.first.pattern == case.pattern
    fixed = case.given if case.fixed is None else case.fixed
    assert is_bad(case.right, given(fixed)) == (False, False)
    right = sgt.trace_nan(case.right, given(fixed))
    assert not right, str(right)


@pytest.mark.parametrize("name", ["where and sqrt", "mask times sqrt", "masked_fill and sqrt"])
def test_anomaly_mode_names_the_same_operation(name: str) -> None:
    x = given(CASES[name].given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="SqrtBackward0"):
            CASES[name].wrong(x).backward()
    trace = sg.trace_nan(CASES[name].wrong, given(CASES[name].given))
    assert trace.first is not None
    assert trace.first.origin_name == "torch.sqrt"


def test_modules_have_their_parameters_names() -> None:
    net = torch.nn.Linear(2, 2)
    with torch.no_grad():
        net.weight[0, 1] = float("nan")
    trace = sg.trace_nan(lambda net, x: net(x).sum(), net, torch.ones(3, 2))
    assert trace.first is not None
    assert (trace.first.source, trace.first.name, trace.first.index) == ("parameter", "net.weight", (0, 1))
    asked = sg.trace_nan(lambda: torch.log(net(torch.ones(3, 2)) * 0).sum(), model=net)
    assert asked.first is not None


def test_nothing_of_the_user_is_changed() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    net(torch.ones(1, 2)).sum().backward()
    before = [(p.detach().clone(), p.grad.clone()) for p in net.parameters() if p.grad is not None]
    sg.trace_nan(lambda x: net(x).sum(), torch.ones(1, 2), model=net)
    for (p, grad), q in zip(before, net.parameters(), strict=True):
        assert q.grad is not None
        assert torch.equal(p, q)
        assert torch.equal(grad, q.grad)


def test_what_is_discarded_is_harmless() -> None:
    trace = sg.trace_nan(nans_in_torch.written_over, given(X))
    assert not trace
    assert trace.harmless == 1


def test_gradients_of_some_are_asked_for() -> None:
    def loss(a: Any, b: Any) -> Any:
        return torch.sqrt(a).sum() + b.sum()

    assert sg.trace_nan(loss, given(X), given(X)).reaches == ("the gradient of a",)
    assert not sg.trace_nan(loss, given(X), given(X), only="b")
    assert not sg.trace_nan(loss, given(X), given(X), gradient=False)


def test_bad_arguments_are_told() -> None:
    with pytest.raises(sg.ArgumentError, match="takes a function and its arguments, not Tensor"):
        sgt.trace_nan(torch.ones(2))
    with pytest.raises(sg.ArgumentError, match="returned NoneType, and no tensor"):
        sgt.trace_nan(lambda x: None, given(X))
    with pytest.raises(ZeroDivisionError):
        sgt.trace_nan(lambda x: 1 / 0, given(X))
