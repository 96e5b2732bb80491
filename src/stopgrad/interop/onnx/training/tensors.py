"""What becomes of each floating-point tensor of a model: trained, frozen, or a constant, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from stopgrad.interop.imported import Model
from stopgrad.interop.onnx.training.graph_building import Step
from stopgrad.interop.onnx.training.modes import Forms
from stopgrad.interop.onnx.training.training_description import Asked
from stopgrad.interop.onnx.weights import Verdict

USES = ("trained", "statistic", "frozen", "constant")
"""What a tensor may be."""


class Fate(NamedTuple):
    """What becomes of a tensor.

    Attributes:
        use: one of :data:`USES`.
        why: the reason.
        dtype, shape: of the tensor.
        of: the names that the exported module has for what it was made from, if they are known and others.
    """

    use: str
    why: str
    dtype: str
    shape: tuple[int, ...]
    of: tuple[str, ...] = ()

    def entry(self) -> dict[str, Any]:
        """As the manifest says it."""
        more = {"of": list(self.of)} if self.of else {}
        return {"use": self.use, "why": self.why, "dtype": self.dtype, "shape": list(self.shape), **more}


def verdicts_of(model: Model) -> dict[str, Verdict]:
    """The verdicts on the parameters of a loaded model: single numbers most often are constants."""
    floating = {name: x for name, x in model.parameters.items() if x.dtype.is_floating}
    return {
        name: Verdict(bool(x.shape), why, (), x.dtype.name, x.op.value.array.shape)
        for name, x in floating.items()
        for why in ["a parameter of the model" if x.shape else "a single number"]
    }


def fates(step: Step, asked: Asked, shapes: Forms, verdicts: Mapping[str, Verdict]) -> dict[str, Fate]:
    """What becomes of each tensor, by name.

    Args:
        step: what was built.
        asked: what was asked for.
        shapes: the statistics of the model.
        verdicts: on the floating-point tensors of the file.
    """
    by_name = {}
    for name, verdict in verdicts.items():
        use, why = _use(name, step, asked, shapes, verdict)
        sources = tuple(other for other in verdict.of if other != name)
        by_name[name] = Fate(use, why, verdict.dtype, verdict.shape, sources)
    for name, x in step.parameters.items():  # Adapters.
        if name not in by_name:
            by_name[name] = Fate("trained", "an adapter", x.dtype.name, x.op.value.array.shape)
    return by_name


def _use(name: str, step: Step, asked: Asked, shapes: Forms, verdict: Verdict) -> tuple[str, str]:
    if name in step.parameters:
        return "trained", verdict.why if verdict.weight else f"asked for, though {verdict.why}"
    if name in shapes.statistics or name in shapes.fixed:
        renewed = "renewed by each step" if name in shapes.statistics else "as the file has it"
        return "statistic", f"a running statistic, {renewed}"
    if name in step.untouched:
        return "frozen", f"no gradient reaches it: {step.untouched[name]}"
    if not verdict.weight:
        return "constant", verdict.why
    if asked.lora is not None:
        return "frozen", "adapters are trained"
    return "frozen", "only names others" if asked.only else "freeze names it"


def counted(fate: Fate) -> int:
    """How many numbers a tensor has."""
    return math.prod(fate.shape)
