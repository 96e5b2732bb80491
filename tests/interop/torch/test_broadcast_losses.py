"""Losses in PyTorch that compare each prediction with every target, by mistake, and those that mean it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from broadcasting import SIZES, TRAINED, WRONG, correct, loss, values  # noqa: E402
from torch.nn import functional  # noqa: E402

import stopgrad.torch as sgt  # noqa: E402

FUNCTIONS = {
    **{"mean": torch.mean, "sum_": torch.sum, "min_": torch.amin, "logsumexp": torch.logsumexp},
    **{"sq": torch.square, "abs_": torch.abs, "softmax": torch.softmax, "softplus": functional.softplus},
    **{name: getattr(torch, name) for name in ("sqrt", "where", "maximum", "log", "exp", "relu", "sigmoid")},
}


def of(seen: Any, trained: Any) -> list[Any]:
    flow = seen.backward_calls[0].explain(trained)
    return [one for one in flow.findings if one.kind == "broadcast-loss"]


def told(text: str, n: int) -> list[Any]:
    """What is said of a loss."""
    given = {name: torch.tensor(x, requires_grad=name in TRAINED) for name, x in values(n).items()}
    with sgt.watch() as seen:
        loss(text, FUNCTIONS, given).backward()
    return of(seen, {name: given[name] for name in TRAINED})


@pytest.mark.parametrize("text", WRONG)
def test_what_is_compared_with_all_by_mistake(text: str) -> None:
    assert told(text, 6)
    assert not told(WRONG[text], 6)


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
def test_broadcasting_that_is_meant(n: int) -> None:
    assert not [text for text in correct() if told(text, n)]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_pytorch(name: str, reduction: str) -> None:
    net, x = torch.nn.Linear(3, 1), torch.ones(8, 3)
    for y, wanted in ((torch.ones(8), 1), (torch.ones(8, 1), 0)):
        with sgt.watch() as seen:
            getattr(functional, name)(net(x), y, reduction=reduction).mean().backward()
        assert len(of(seen, net)) == wanted
