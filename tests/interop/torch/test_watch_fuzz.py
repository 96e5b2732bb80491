"""Random eager programs: what the watch says of their gradients is what PyTorch's own backward does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch_mistakes import leaves
from watch_programs import Program, drawn, parameters, quiet, run, works

import stopgrad as sg
import stopgrad.torch as sgt

pytestmark = pytest.mark.slow

QUICK = range(150)
NIGHTLY = range(150, 10_150)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ----------------------------------------------------------------------------------------------- what holds


def complaints(program: Program) -> dict[tuple[str, str], str]:
    """What is wrong with the report about a program, by kind and key; empty where all is well."""
    given = parameters(program.seed)
    with sgt.watch() as seen:
        loss = program.loss(given)
    flow = seen.explain(loss, given)
    if float(loss.detach()) != float(program.loss(parameters(program.seed)).detach()):
        return {("value", ""): "the watch changed the loss"}
    if loss.requires_grad:
        loss.backward()
    found = {}
    others = Others(program)
    for key, x in leaves(given).items():
        for kind, text in wrong(program, key, x.grad, flow, others):
            found[kind, key] = f"{key}: {text}"
    return found


def wrong(program: Program, key: str, grad: Any, flow: sg.Flow, others: Others) -> Iterator[tuple[str, str]]:
    """What is wrong with one status."""
    reach = flow[key]
    if reach.arrives and grad is None:
        yield "arrives", f"{reach.status!r}, and its gradient is None"
    elif reach.arrives and not grad.any() and not program.partial:
        yield "arrives", f"{reach.status!r}, and its gradient is zero"
    elif not reach.arrives and grad is not None and grad.any():
        yield "misses", f"{reach.status!r}, and it has a gradient"
    elif reach.status in ("stopped", "not differentiable"):
        lines = {
            cut.location.line for cut in reach.cuts if cut.location and cut.location.file == program.file
        }
        stops = [
            k for k, (line, s) in enumerate(program.placed()) if lines & set(range(line, line + s.lines))
        ]
        if key == "frozen":  # Where it was frozen is not in the program.
            return
        if not reach.cuts or not lines:
            yield "nowhere", f"{reach.status!r}, and nothing says where"
        elif not all(may_stop(program, k) for k in stops):
            yield "line", f"{reach.status!r} at lines {sorted(lines)}, of which one stops nothing"
        elif not (program.lost or program.shares or any(others.passes(key, k) for k in stops)):
            yield "line", f"{reach.status!r} at lines {sorted(lines)}, to which it does not come"
    elif reach.status == "disconnected" and not program.lost and program.reads(key) and others.matters(key):
        yield "disconnected", "'disconnected', and the loss changes with it"


def may_stop(program: Program, k: int) -> bool:
    """Whether a gradient may end in a statement; of memory written through ``.data`` in its last write."""
    return bool(program.statements[k].stops) or (program.shares and program.statements[k].writes)


class Others:
    """The same program with one parameter changed: what is different."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._runs: dict[tuple[str | None, int], tuple[list[dict[str, Any]], float]] = {}

    def _given(self, key: str | None, k: int) -> dict[str, Any]:
        """The parameters, one of them changed a little or much."""
        given = parameters(self.program.seed)
        if key is not None:
            values = leaves(given)[key].data
            change = torch.randn(values.shape, dtype=values.dtype, generator=torch.Generator().manual_seed(k))
            values += (0.3, 3.0, 10.0)[k] * change
        return given

    def _run(self, key: str | None, k: int) -> tuple[list[dict[str, Any]], float]:
        if (key, k) not in self._runs:
            states = run(self.program, self._given(key, k))
            self._runs[key, k] = states, float(self.program.loss(self._given(key, k)).detach())
        return self._runs[key, k]

    def matters(self, key: str) -> bool:
        """Whether the loss changes with a parameter."""
        usual = self._run(None, 0)[1]
        return any(self._run(key, k)[1] != usual for k in range(3))

    def passes(self, key: str, k: int) -> bool:
        """Whether what a statement stops changes with a parameter, or may be made of it without changing."""
        if any(statement.hidden for statement in self.program.statements[:k]):
            return self.program.depends(key, k)
        usual = self._run(None, 0)[0][k]
        others = [self._run(key, size)[0][k] for size in range(3)]
        return any(not same(other[name], usual[name]) for other in others for name in usual)


def same(x: Any, y: Any) -> bool:
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return x.shape == y.shape and bool((x == y).all())
    return x is y


def least(program: Program, kind: tuple[str, str]) -> Program:
    """The same complaint of fewer statements, and fewer terms of the loss."""
    fewer = [Program(program.seed, program.statements, (name,)) for name in program.summed]
    program = next((one for one in fewer if works(one) and kind in complaints(one)), program)
    for _ in range(2):
        for k in reversed(range(len(program.statements))):
            one = program.without(k)
            if works(one) and kind in complaints(one):
                program = one
    return program


def check(seed: int) -> None:
    program = drawn(seed)
    with quiet():
        found = complaints(program)
        if found:
            kind = next(iter(found))
            program = least(program, kind)
            raise AssertionError(f"{complaints(program)[kind]}\n{program.text}")


@pytest.mark.parametrize("start", range(0, len(QUICK), 50))
def test_reports_agree_with_backward(start: int) -> None:
    for seed in QUICK[start : start + 50]:
        check(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(0, len(NIGHTLY), 200))
def test_reports_agree_with_backward_in_many_programs(start: int) -> None:
    for seed in NIGHTLY[start : start + 200]:
        check(seed)
