"""What the tests of PyTorch libraries share: importing them, and what is known of a loss of theirs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn


def library(name: str) -> ModuleType:
    """A module of a library, or the reason why a test of it is skipped."""
    top = name.partition(".")[0]
    if importlib.util.find_spec(top) is None:
        pytest.skip(f"{top} is not installed")
    if top in ("torchvision", "lightly", "timm", "transformers", "peft", "pytorch_lightning"):
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
class Case:
    """A loss of a library, and what is true of it.

    Attributes:
        model: whose parameters are asked about.
        loss: computes it.
        status: of the parameters that match a pattern, the first that does; of the others "flows".
        cuts: the lines that keep gradients from parameters.
    """

    model: nn.Module
    loss: Callable[[], torch.Tensor]
    status: Mapping[str, str] = field(default_factory=dict)
    cuts: tuple[Line, ...] = ()


CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build
