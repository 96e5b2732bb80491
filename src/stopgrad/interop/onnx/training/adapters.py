"""LoRA: small trained matrices beside frozen weights, as :func:`stopgrad.add_lora` adds them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import stopgrad as sg
from stopgrad.base.coercion import real
from stopgrad.base.errors import ArgumentError
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import show_shape
from stopgrad.interop.onnx.patterns import patterns_of
from stopgrad.train.adapters import Adapted, unfit


@dataclass(frozen=True)
class Lora:
    """Which weights get adapters, and of what size.

    Attributes:
        weights: patterns of names of parameters that are matrices.
        rank: of the adapters.
        alpha: adapters count alpha / rank; by default the rank, so that they count 1.
        seed: of the random initial values.
    """

    weights: Sequence[str]
    rank: int = 8
    alpha: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(patterns_of(self.weights, "lora")))
        if not isinstance(self.rank, int) or isinstance(self.rank, bool) or self.rank < 1:
            raise ArgumentError(f"lora: the rank is a whole number from 1 on, not {self.rank!r}")
        if self.alpha is not None and not real(self.alpha) > 0:
            raise ArgumentError(f"lora: alpha is a number above 0, not {self.alpha!r}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ArgumentError(f"lora: the seed is a whole number from 0 on, not {self.seed!r}")


def lora_of(lora: Lora | Mapping[str, Any] | str | Sequence[str] | None) -> Lora | None:
    """A :class:`Lora` from what users give: patterns, a dict of its arguments, or a Lora."""
    if lora is None or isinstance(lora, Lora):
        return lora
    if isinstance(lora, Mapping):
        fields = list(Lora.__dataclass_fields__)
        wrong = next((key for key in lora if key not in fields), None)
        if wrong is not None or "weights" not in lora:
            problem = f"no {wrong!r}" if wrong is not None else "no default for weights"
            raise ArgumentError(f"lora: there is {problem}; it takes {', '.join(fields)}")
        return Lora(**lora)
    return Lora(lora)


@dataclass(frozen=True)
class Adapter:
    """The small matrices beside one weight.

    Attributes:
        weight: its name.
        first, second: the names of the matrices, which are trained.
        merged: the weight with the adapter added.
        scale: the factor of the adapter.
    """

    weight: str
    first: str
    second: str
    merged: Output
    scale: float


def adapted(
    lora: Lora, outputs: Sequence[Output], weights: Mapping[str, Output], taken: Collection[str]
) -> tuple[Adapted, list[Adapter]]:
    """A copy of a graph with adapters beside some of its weights.

    Args:
        lora: the adapters' rank and scale.
        outputs: the outputs that the copy must have.
        weights: those that get adapters, by name.
        taken: names that the adapters may not have.

    Raises:
        ArgumentError: a weight is no matrix that matrix products use, or the rank is larger than it.
    """
    for name, w in weights.items():
        reason = _misshapen(lora, w)
        if reason:
            raise ArgumentError(f"lora: {name!r} cannot have an adapter: {reason}")
        clash = next((own for own in _names(name) if own in taken), None)
        if clash is not None:
            raise ArgumentError(f"lora: the model has {clash!r} already; leave {name!r} out")
    alpha = lora.rank if lora.alpha is None else lora.alpha
    based = set(weights.values())
    unadapted = [y for y in outputs if y not in based]
    copy = sg.add_lora(unadapted, list(weights.values()), lora.rank, alpha, key=lora.seed)
    adapters = [
        Adapter(name, *_names(name), copy.merged[w.op.name], alpha / lora.rank) for name, w in weights.items()
    ]
    return copy, adapters


def _misshapen(lora: Lora, w: Output) -> str:
    """Why no adapter of this rank fits beside a tensor; empty if one does."""
    shape = tuple(w.shape)
    if len(shape) != 2:
        return f"it is {w.dtype.name}{show_shape(shape)}, and adapters stand beside matrices; choose others"
    if lora.rank > min(shape):
        return f"the rank {lora.rank} is larger than a side of it, {show_shape(shape)}"
    return ""


def unfit_for(lora: Lora, weights: Mapping[str, Output], outputs: Sequence[Output]) -> dict[str, str]:
    """Those of some weights beside which no such adapter can stand, each with the reason."""
    reasons = {name: reason for name, w in weights.items() if (reason := _misshapen(lora, w))}
    others = {w: name for name, w in weights.items() if name not in reasons}
    return reasons | {others[w]: reason for w, reason in unfit(list(others), outputs).items()}


def learned(copy: Adapted, weights: Mapping[str, Output]) -> dict[str, Output]:
    """The trained matrices of adapters, by name."""
    matrices = {}
    for name, w in weights.items():
        for own, end in zip(_names(name), _ENDS, strict=True):
            matrices[own] = copy.parameters[f"{w.op.name}/{end}"]
    return matrices


_ENDS = ("lora_a", "lora_b")


def _names(weight: str) -> tuple[str, str]:
    return f"{weight}/{_ENDS[0]}", f"{weight}/{_ENDS[1]}"
