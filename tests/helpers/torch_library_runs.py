"""Runs the losses of libraries without and with a watch, and says where the watch is wrong."""

from __future__ import annotations

import fnmatch
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from library_checks import Findings
from torch_libraries import Case, Line, Verdict

import stopgrad.torch as sgt
from stopgrad import Flow, Status
from stopgrad.interop.torch.recording.used import parameters_of

LONGEST = 24
"""The most lines of a report on a library: what somebody reads at a glance."""
FROZEN = "requires_grad is False"
ARRIVES = (Status.FLOWS, Status.PARTLY_STOPPED)


class Run:
    """A loss that was computed and differentiated.

    Attributes:
        values: of the loss, the parameters and the buffers afterwards, and of the gradients.
        flows: the report on each backward pass; none without a watch.
        got: for each backward pass, the parameters that autograd gave a gradient, and whether it is not zero.
    """

    def __init__(self, build: Callable[[], Case], watched: bool) -> None:
        seeded(0)
        self.case = case = build()
        self.parameters = dict(parameters_of(case.model))
        self.got: list[dict[str, bool]] = []
        self.flows: list[Flow] = []
        self._seen: Any = None
        for name, parameter in self.parameters.items():
            if parameter.requires_grad and parameter.is_leaf:
                parameter.register_post_accumulate_grad_hook(lambda p, name=name: self._note(name, p))
        seeded(1)
        if watched:
            with sgt.watch() as self._seen:
                loss = case.loss()
        else:
            loss = case.loss()
        if loss is not None:
            if watched:
                self.flows, self._seen = [self._seen.explain(loss, case.model)], None
            self.got = []
            loss.backward()
        elif watched:
            self.flows = [
                call.explain(case.model) for call in self._seen.backward_calls if call.kind == "backward"
            ]
        self.values = {} if loss is None else {"loss": loss.detach().clone()}
        self.values |= {
            f"{name}.grad": p.grad.clone() for name, p in self.parameters.items() if p.grad is not None
        }
        self.values |= {
            name: x.detach().clone()
            for name, x in case.model.state_dict(keep_vars=True).items()
            if isinstance(x, torch.Tensor)
        }

    def _note(self, name: str, parameter: torch.Tensor) -> None:
        calls = (
            [] if self._seen is None else [one for one in self._seen.backward_calls if one.kind == "backward"]
        )
        at = max(len(calls) - 1, 0)
        while len(self.got) <= at:
            self.got.append({})
        grad = parameter.grad
        assert grad is not None
        for key, other in self.parameters.items():
            if other is parameter:
                self.got[at][key] = bool(
                    grad.to_dense().abs().max() > 0 if grad.is_sparse else grad.abs().max() > 0
                )


def seeded(seed: int) -> None:
    """Draw the same numbers from now on."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def examined(build: Callable[[], Case]) -> Findings:
    """What is wrong of a loss.

    Raises:
        Exception: whatever the library raises.
    """
    plain, watched = Run(build, False), Run(build, True)
    case, found = watched.case, Findings()
    if len(watched.flows) != len(case.verdicts):
        found.verdicts.append(f"{len(watched.flows)} backward passes, not {len(case.verdicts)}")
    for number, (verdict, flow) in enumerate(zip(case.verdicts, watched.flows, strict=False)):
        got = watched.got[number] if number < len(watched.got) else {}
        if set(flow) != set(watched.parameters):
            found.verdicts.append(f"the report is about {sorted(set(flow) ^ set(watched.parameters))}, too")
        for key in watched.parameters:
            found.parameters += 1
            _check_verdict(found, case, verdict, key, got.get(key), flow[key].status)
            _check_lines(found, verdict, key, flow, not watched.parameters[key].requires_grad)
        text = str(flow)
        if len(text.splitlines()) > LONGEST or "site-packages" in text:
            found.texts.append(text)
    found.changed = _different(plain.values, watched.values)
    return found


def _check_verdict(
    found: Findings, case: Case, verdict: Verdict, key: str, nonzero: bool | None, status: str
) -> None:
    """Compare what the case, autograd and the report say of a parameter."""
    wanted, gets = verdict.of(key), nonzero is not None
    if gets is not (wanted in ARRIVES) and not (wanted == Status.NOT_DIFFERENTIABLE and not nonzero):
        found.case.append(f"{key}: {wanted}, and autograd gives {'a' if gets else 'no'} gradient")
    elif wanted in ARRIVES and not nonzero and not case.vanishes(key):
        found.case.append(f"{key}: its gradient is zero by the numbers")
    if status != wanted:
        found.verdicts.append(f"{key}: {status}, not {wanted}")


def _check_lines(found: Findings, verdict: Verdict, key: str, flow: Flow, frozen: bool) -> None:
    """Compare the lines that cut paths to a parameter with those of the case.

    Each of the case is told, and each stop that is told is of the case; of a parameter that is not
    differentiable, whatever cuts. That a parameter itself is frozen, autograd says.
    """
    cuts = flow[key].cuts
    lines = [line for line in verdict.cuts if fnmatch.fnmatchcase(key, line.keys)]
    for line in lines:
        if not any(_is(cut, line) for cut in cuts):
            found.lines.append(f"{key}: {line.text or line.reason!r} is not told")
    for cut in cuts:
        told = cut.status in (Status.STOPPED, flow[key].status)
        if told and not (frozen and cut.reason == FROZEN) and not any(_is(cut, line) for line in lines):
            found.lines.append(f"{key}: {cut.reason} at {cut.location!r} is told")


def _is(cut: Any, line: Line) -> bool:
    """Whether a cut is that of a line."""
    if line.reason and line.reason not in cut.reason:
        return False
    if not line.text:
        return True
    at = cut.location
    return at is not None and (at.file, at.line) in line.places


def _different(plain: Mapping[str, torch.Tensor], watched: Mapping[str, torch.Tensor]) -> list[str]:
    """The values that are not the same, bit by bit."""
    found = [
        f"{key} is there only {'without' if key in plain else 'with'} a watch"
        for key in plain.keys() ^ watched.keys()
    ]
    for key in plain.keys() & watched.keys():
        a, b = (x.to_dense() if x.is_sparse else x for x in (plain[key], watched[key]))
        if a.dtype != b.dtype or a.numpy().tobytes() != b.numpy().tobytes():
            found.append(f"{key} is another number with a watch")
    return found


def ratio(build: Callable[[], Case], runs: int = 5) -> float:
    """The processor time of a loss and its backward pass with a watch, over that without."""
    times: dict[bool, list[float]] = {False: [], True: []}
    seeded(0)
    cases = {watched: build() for watched in (False, True)}
    for _ in range(runs + 1):
        for watched, case in cases.items():
            case.model.zero_grad()
            begun = time.process_time()
            if watched:
                with sgt.watch():
                    loss = case.loss()
            else:
                loss = case.loss()
            if loss is not None:
                loss.backward()
            times[watched].append(time.process_time() - begun)
    return min(times[True][1:]) / max(min(times[False][1:]), 1e-6)
