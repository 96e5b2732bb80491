"""Programs of PyTorch's that cannot be imported: an error that says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("stopgrad.torch")

import torch
from torch import nn

import stopgrad as sg
import stopgrad.torch as sgt

pytestmark = pytest.mark.filterwarnings("ignore")  # What torch.export warns of is PyTorch's.


@pytest.fixture(autouse=True, scope="module")
def _operators() -> Iterator[None]:
    """Two operators that nobody but this file knows."""
    library = torch.library.Library("stopgrad_tests", "DEF")
    for name in ("folded", "twisted"):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x * 2.0, "CompositeExplicitAutograd")
        library.impl(name, lambda x: torch.empty_like(x), "Meta")
    yield
    library._destroy()


class Of(nn.Module):
    """A module that computes a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def unknown() -> Any:
    theirs = torch.ops.stopgrad_tests
    return Of(lambda x: theirs.folded(x) + theirs.twisted(theirs.folded(x)))


def decides(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


def nonsense(x: Any) -> Any:
    raise ValueError("theirs")


def line_of(text: str) -> str:
    """The first line of this file that holds a text, as messages name it."""
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(i for i, line in enumerate(lines, 1) if text in line)}"


X = torch.ones(2, 3)


@dataclass(frozen=True)
class Refused:
    """Something that must fail, and what the message must hold: what is wrong, and what to do."""

    does: Callable[[], Any]
    says: tuple[str, ...]


REFUSED = {
    "unknown operators, all at once": Refused(
        lambda: sgt.load(unknown(), X), ("stopgrad_tests.folded", "stopgrad_tests.twisted")
    ),
    "the same, exported before": Refused(
        lambda: sgt.load(torch.export.export(unknown(), (X,))),
        ("stopgrad_tests.folded", "stopgrad_tests.twisted"),
    ),
    "no example": Refused(lambda: sgt.load(nn.Linear(3, 1)), ("example",)),
    "no module": Refused(lambda: sgt.load(3, X), ("Module", "3")),
    "a class of modules": Refused(lambda: sgt.load(nn.Linear, X), ("takes a torch.nn.Module", "Linear")),
    "an array as the example": Refused(
        lambda: sgt.load(nn.Linear(3, 1), np.ones((2, 3), np.float32)), ("tensor",)
    ),
    "Python decides by a value": Refused(
        lambda: sgt.load(Of(decides), X), ("torch.export", "torch.where", line_of("if x.sum() > 0"))
    ),
    "other sizes than were loaded": Refused(
        lambda: sgt.load(nn.Linear(3, 1), X)(np.ones((4, 3), np.float32)), ("[4, 3]",)
    ),
    "another type than was loaded": Refused(
        lambda: sgt.load(nn.Linear(3, 1), X)(np.ones((2, 3), np.int32)), ("int32", "float32")
    ),
    "too many arguments": Refused(lambda: sgt.load(nn.Linear(3, 1), X)(X.numpy(), X.numpy()), ("argument",)),
    "a parameter that is not there": Refused(
        lambda: sgt.load(nn.Linear(3, 1), X).apply({"weights": X.numpy()}, X.numpy()), ("weights", "weight")
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_told(name: str) -> None:
    case = REFUSED[name]
    with pytest.raises(sg.StopgradError) as caught:
        case.does()
    message = str(caught.value)
    for words in case.says:
        assert words in message, message
    assert Path(__file__).name in message, message
    assert not isinstance(caught.value, sg.InternalError)


def test_what_the_module_itself_raises_is_seen() -> None:
    with pytest.raises(Exception, match="theirs"):
        sgt.load(Of(nonsense), X)


def test_a_load_leaves_the_module_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    sgt.load(model.eval(), X)
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
