"""What is measured of parameters: whether they changed, and how large their gradients are.

Nothing here takes random numbers, writes into a tensor, or is seen by modes or by autograd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.measuring import norms_of

Tensor = torch.Tensor
SAMPLE = 4096
"""The elements of a parameter that are copied to compare it before and after a step."""
FAR = 0.01
"""The part of their size by which values differ that have moved far."""
UNDONE = 0.05
"""The part of a step's change that is left when it counts as undone."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprints(tensors: Sequence[Tensor]) -> list[int | None]:
    """For each tensor a number that changes when any of its elements does; None where it cannot be read.

    It is made of the sums of all elements' bits, read as integers, of every third one's and every fifth
    one's: opposite changes of two elements leave the first as it was.
    """
    with internals.DisableTorchFunction(), internals.DisableTorchDispatch(), torch.no_grad():
        return [_fingerprint(x) for x in tensors]


def _fingerprint(x: Tensor) -> int | None:
    try:
        plain = internals.local_part(x).detach()
        if plain.layout is not torch.strided or plain.is_meta or not plain.numel():
            return None
        if plain.is_complex():
            plain = torch.view_as_real(plain)
        bits = plain.contiguous().view(_INTEGERS[plain.element_size()]).flatten()
        return hash(tuple([int(part.sum(dtype=torch.int64)) for part in (bits, bits[::3], bits[1::5])]))
    except (KeyError, NotImplementedError, RuntimeError, TypeError):
        return None


def sample_of(x: Tensor) -> Tensor | None:
    """A copy of a tensor's first elements; None where they cannot be read."""
    with internals.DisableTorchFunction(), internals.DisableTorchDispatch(), torch.no_grad():
        try:
            plain = internals.local_part(x).detach()
            plain = torch.view_as_real(plain) if plain.is_complex() else plain
            return plain.flatten()[:SAMPLE].to(torch.float64, copy=True)
        except (NotImplementedError, RuntimeError, TypeError):
            return None


def is_undone(step: tuple[Tensor | None, Tensor | None], now: Tensor | None) -> bool:
    """Whether hardly anything is left of what a step changed: samples before and after it, and now."""
    before, after = step
    if before is None or after is None or now is None or before.shape != now.shape:
        return False
    with internals.DisableTorchFunction(), internals.DisableTorchDispatch(), torch.no_grad():
        changed, left = float((after - before).abs().sum()), float((now - before).abs().sum())
    return changed > 0 and left < UNDONE * changed


def is_far(start: Tensor | None, now: Tensor | None) -> bool:
    """Whether values differ by more than a hundredth of their size."""
    if start is None or now is None or start.shape != now.shape:
        return False
    with internals.DisableTorchFunction(), internals.DisableTorchDispatch(), torch.no_grad():
        return float((now - start).norm()) > FAR * float(start.norm())


def gradient_norms(tensors: Sequence[Tensor]) -> list[float | None]:
    """The norms of tensors' gradients; None where there is none, or none that can be read."""
    with internals.DisableTorchFunction(), internals.DisableTorchDispatch(), torch.no_grad():
        grads = [x.grad for x in tensors]
        present = [grad.detach() for grad in grads if grad is not None]
        norms = iter(norms_of(present))
        return [None if grad is None else next(norms) for grad in grads]


def state_of(grad: Tensor | None) -> tuple[int, int] | None:
    """What a gradient is known by: another tensor, or one that was written into, is another gradient."""
    return None if grad is None else (id(grad), internals.version_of(grad))


def is_finite(norm: float | None) -> bool:
    """Whether a norm is known and a number."""
    return norm is not None and math.isfinite(norm)
