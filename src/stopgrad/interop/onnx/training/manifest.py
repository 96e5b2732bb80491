"""The contents of ``manifest.json``; docs/train-graph.md has its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx

import stopgrad as sg
from stopgrad.base.types import Dim
from stopgrad.graph.graph import Output
from stopgrad_trainer.contents import FORMAT as FORMAT, VERSION as VERSION, WEIGHTS as WEIGHTS

STATE_FILE = "state.safetensors"


@dataclass(frozen=True)
class Port:
    """An input or output of one of the graphs.

    Attributes:
        name: its name in the file.
        role: for inputs ``input``, ``labels``, ``learning_rate``, ``parameter``, ``state``, ``gradient`` or
            ``scalar``; for outputs ``loss``, ``output``, ``gradient``, ``parameter``, ``state`` or
            ``scalar``.
        value: the tensor.
        more: further entries: ``updates``, ``over`` or ``of``.
    """

    name: str
    role: str
    value: Output
    more: Mapping[str, Any] | None = None

    def entry(self) -> dict[str, Any]:
        """As the manifest says it."""
        kind = described(self.value)
        return {"name": self.name, "role": self.role, **kind, **(self.more or {})}


@dataclass(frozen=True)
class Plan:
    """One of the graphs, before it is written."""

    inputs: list[Port]
    outputs: list[Port]

    def entry(self, file: str) -> dict[str, Any]:
        """As the manifest says it."""
        return {
            "file": file,
            "inputs": [port.entry() for port in self.inputs],
            "outputs": [port.entry() for port in self.outputs],
        }


def described(x: Output) -> dict[str, Any]:
    """The dtype and shape of a tensor, with the names of symbolic sizes."""
    return {"dtype": x.dtype.name, "shape": [str(s) if isinstance(s, Dim) else s for s in x.shape]}


def ports(named: Mapping[str, Output], role: str) -> list[Port]:
    """Inputs or outputs of one role."""
    return [Port(name, role, x) for name, x in named.items()]


def unique(name: str, taken: set[str]) -> str:
    """A name that is not taken; it is added to those taken."""
    candidate, i = name, 1
    while candidate in taken:
        candidate, i = f"{name}_{i}", i + 1
    taken.add(candidate)
    return candidate


def versions() -> dict[str, str]:
    """The versions of the software that wrote the folder."""
    return {"stopgrad": sg.__version__, "onnx": str(onnx.__version__)}


def of_model(kind: str) -> bool:
    """Whether a kind of state is part of the exported model."""
    return kind in ("parameter", "statistic")
