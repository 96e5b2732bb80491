"""Libraries written for PyTorch, unchanged, under a watch: where gradients arrive, and which line cuts the others."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("stopgrad.torch")

import torch

import stopgrad.torch as sgt
from library_models import CASES, Case, Line, library

pytestmark = pytest.mark.filterwarnings("ignore")  # What the libraries warn of is theirs.

ARRIVES = ("flows", "partly stopped")


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    """One thread for tiny tensors, and numbers that are the same every time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def expected(case: Case, key: str) -> str:
    """What the case says of a parameter."""
    return next((status for name, status in case.status.items() if fnmatch.fnmatchcase(key, name)), "flows")


def received(parameter: Any) -> bool:
    """Whether autograd gave it a gradient."""
    return parameter.grad is not None and bool(parameter.grad.abs().max() > 0)


def check_cut(flow: Any, line: Line) -> None:
    """The line, or where it has no text the reason, is among what cuts each of its parameters."""
    keys = [key for key in flow if fnmatch.fnmatchcase(key, line.keys)]
    assert keys, line
    for key in keys:
        cuts = flow[key].cuts
        if line.reason:
            assert any(line.reason in cut.reason for cut in cuts), (key, [cut.reason for cut in cuts])
        if line.text:
            file, number = line.place
            found = [(cut.location.file, cut.location.line, cut.location.end_line) for cut in cuts]
            assert any(at == file and first <= number <= last for at, first, last in found), (key, line, found)


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_a_library_is_what_autograd_does(name: str) -> None:
    case = CASES[name]()
    with sgt.watch() as seen:
        loss = case.loss()
    flow = seen.explain(loss, case.model)
    loss.backward()
    parameters = dict(case.model.named_parameters())
    assert set(flow) == set(parameters)
    for key, parameter in parameters.items():
        assert received(parameter) == (expected(case, key) in ARRIVES), (key, "the case is wrong")
        assert flow[key].status == expected(case, key), (key, flow[key])
    for line in case.cuts:
        check_cut(flow, line)
