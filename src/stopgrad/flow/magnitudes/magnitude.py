"""How large gradients are: what is measured in a backward pass, and what its numbers count as.

The definitions and their reasons are in docs/flow-report.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from stopgrad.graph.graph import Operation, Output

VANISHED = 1e-7
"""A gradient has vanished where it is less than this of a layer's nearer the loss.

At a learning rate that changes all of that layer, the change of this one is below the rounding of float32.
"""
EXPLODED = 1 / VANISHED
"""A gradient has exploded where it is more than this times that of a layer nearer the loss."""
TINY = 1e-15
"""The root mean square of all gradients below which none is of use, whatever the optimizer.

Steps of Adam are 1e-7 of its learning rate then, since its epsilon is 1e-8; and steps without such a
division, at a learning rate of 1 or less, are below the rounding of weights.
"""


@dataclass(frozen=True)
class Magnitude:
    """How large the gradient is that arrived at a tensor.

    Attributes:
        norm: its Euclidean norm; NaN or infinite if it has such elements.
        elements: the number of its elements.
        zeros: how many of them are exactly 0; None if the gradient was changed or gone before they were
            counted, which is when a report is made.
        nans, infs: how many are NaN, infinite.
        parameter_norm: the norm of the tensor itself when the report was made, or, where a gradient is 0 or
            not finite, when it arrived; None if it is not known.
    """

    norm: float
    elements: int
    zeros: int | None = 0
    nans: int = 0
    infs: int = 0
    parameter_norm: float | None = None

    @property
    def ratio(self) -> float | None:
        """The gradient's norm as a share of the tensor's; None if that is not known, or 0."""
        return self.norm / self.parameter_norm if self.parameter_norm else None

    @property
    def is_zero(self) -> bool:
        """Whether every element is exactly 0."""
        return self.zeros == self.elements > 0

    @property
    def is_finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return not (self.nans or self.infs)


@dataclass
class Measured:
    """What was measured in a backward pass.

    The tensors are those of a graph of what ran, which may be another than the one that a report is about:
    one in which loops are written out.

    Attributes:
        ys: what was differentiated.
        xs: the tensors asked about, by name.
        of: how large the gradients are that arrived there; those without one have no entry.
        at: the norm of the gradient at each tensor in between, as far as it is known.
        hooks: operations that stand for hooks, by the tensors whose gradients go through them.
        stops: tensors that were constants for the gradient.
        owners: the user's operations of which those of the graph are copies.
    """

    ys: Sequence[Output]
    xs: Mapping[str, Output]
    of: Mapping[str, Magnitude]
    at: Mapping[Output, float] = field(default_factory=dict)
    hooks: Mapping[Output, Operation] = field(default_factory=dict)
    stops: Collection[Output] = ()
    owners: Mapping[Operation, Operation] = field(default_factory=dict)

    @property
    def root_mean_square(self) -> float:
        """That of all elements of the gradients; NaN if there are none."""
        elements = sum(one.elements for one in self.of.values())
        whole = math.hypot(*[one.norm for one in self.of.values()])  # Squares may be too small for a number.
        return whole / math.sqrt(elements) if elements else math.nan
