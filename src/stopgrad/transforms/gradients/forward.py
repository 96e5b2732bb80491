"""Forward mode from two pullbacks.

A pullback is linear in its cotangent, so its own pullback is the pushforward (J. Townsend 2017, "A new trick
for calculating Jacobian vector products"). So every operation's reverse rule serves both modes, gates
included; the parts of the first pullback that are not needed are never run.
"""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.graph.graph import Output
from stopgrad.ops.structural.sources import identity, zeros_like
from stopgrad.transforms.gradients.reverse import gradients


def push_forward(
    ys: Sequence[Output], xs: Sequence[Output], tangents: Sequence[Output]
) -> list[Output | None]:
    """The tangents of ys for *tangents* of xs; None for a y that no x moves."""
    moving = [y for y in ys if y.type.differentiable]
    # Only a pullback that is not linear (clip_gradient) reads their value: it is differentiated at 0.
    covectors = [identity(zeros_like(y)) for y in moving]
    pulled = gradients(moving, xs, covectors) if moving else []
    pairs = [(g, t) for g, t in zip(pulled, tangents, strict=False) if g is not None]
    if not pairs:
        return [None] * len(ys)
    pushed = iter(gradients([g for g, _ in pairs], covectors, [t for _, t in pairs]))
    return [next(pushed) if y.type.differentiable else None for y in ys]
