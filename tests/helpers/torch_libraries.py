"""What the tests of PyTorch libraries share: importing them, and what is known of losses of theirs.

A :class:`Case` is a loss that people use a library for, on a model made small, with what is true of it: which
parameters get a gradient, and which lines of the library keep it from others. Both are written by hand, from
the library's source; ``torch_library_runs`` holds the watch against them.
"""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from library_checks import Cases
from torch import nn


def library(name: str) -> ModuleType:
    """A module of a library, or the reason why a test of it is skipped."""
    top = name.partition(".")[0]
    if importlib.util.find_spec(top) is None:
        pytest.skip(f"{top} is not installed")
    _let_torchvision_import()
    return importlib.import_module(name)


_DECLARED: list[Any] = []


def _let_torchvision_import() -> None:
    """Declare the two operators without which ``import torchvision`` fails beside a PyTorch for the CPU.

    The registry's torchvision is built for CUDA, so that its operators written in C++ do not load beside a
    PyTorch for the CPU. Its Python needs only that two of them be known; no test here calls one.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _DECLARED:
        return
    try:
        torch.ops.load_library(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(declared)


@dataclass(frozen=True)
class Line:
    """A line of source, found by what is written there.

    Attributes:
        text: what only that line holds; empty where no line is known.
        of: the module, class or function in whose source it stands.
        keys: the parameters that it cuts, as a pattern.
        reason: a word of what the report says.
        other: of two lines that cut, one behind the other, the other, which may be told instead.
    """

    text: str
    of: Any = None
    keys: str = "*"
    reason: str = ""
    other: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """Its file, and its number there."""
        return self._place(self.text)

    @property
    def places(self) -> list[tuple[str, int]]:
        """That of the other line, too."""
        return [self._place(text) for text in (self.text, self.other) if text]

    def _place(self, text: str) -> tuple[str, int]:
        of = inspect.unwrap(self.of)
        lines, first = inspect.getsourcelines(of)  # Of a module, the first is said to be 0.
        file = str(inspect.getsourcefile(of))
        found = [i for i, line in enumerate(lines, max(first, 1)) if text in line]
        assert len(found) == 1, f"{text!r} stands on {len(found)} lines of {file}"
        return file, found[0]


@dataclass(frozen=True)
class Verdict:
    """What is true of a backward pass.

    Attributes:
        status: of the parameters that match a pattern, the first that does; of the others "flows".
        cuts: all lines that keep gradients from parameters.
    """

    status: Mapping[str, str] = field(default_factory=dict)
    cuts: tuple[Line, ...] = ()

    def of(self, key: str) -> str:
        """What is true of a parameter."""
        return next((told for name, told in self.status.items() if fnmatch.fnmatchcase(key, name)), "flows")


@dataclass(frozen=True)
class Case:
    """A loss of a library, and what is true of it.

    Attributes:
        model: whose parameters are asked about.
        loss: computes it; or calls ``backward`` itself, and returns None.
        status, cuts: what is true of it, as of a :class:`Verdict`.
        calls: of a loss that calls ``backward`` itself, what is true of each call.
        zero: patterns of parameters whose gradient is zero by the numbers, though the program passes one on:
            biases before a norm or a softmax, say.
    """

    model: nn.Module
    loss: Callable[[], torch.Tensor | None]
    status: Mapping[str, str] = field(default_factory=dict)
    cuts: tuple[Line, ...] = ()
    calls: Sequence[Verdict] = ()
    zero: tuple[str, ...] = ()

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """What is true of each backward pass."""
        return self.calls or (Verdict(self.status, self.cuts),)

    def vanishes(self, key: str) -> bool:
        """Whether the gradient of a parameter may be zero by the numbers."""
        return any(fnmatch.fnmatchcase(key, pattern) for pattern in self.zero)


CASES: Cases[Case] = Cases()
case = CASES.of


def stirred(model: nn.Module, scale: float = 0.1) -> nn.Module:
    """A model whose parameters are no zeros, which would keep gradients from what is before them."""
    for parameter in model.parameters():
        if not parameter.detach().any():
            nn.init.normal_(parameter, std=scale)
    return model
