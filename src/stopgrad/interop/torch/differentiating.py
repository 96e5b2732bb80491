"""Differentiates losses only to measure their gradients: nobody else sees that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from stopgrad.interop.torch.recording.autograd_nodes import node_of
from stopgrad.interop.torch.recording.measuring import Measuring
from stopgrad.interop.torch.recording.record import Sizes
from stopgrad.interop.torch.recording.recorder import Recorder

Tensor = torch.Tensor


def differentiated(recorder: Recorder, losses: Sequence[Tensor], tensors: Iterable[Tensor]) -> Sizes | None:
    """How large the gradients of losses are at tensors, and on the way there.

    The gradients go through the user's hooks, but no tensor's ``grad`` is changed, and what the graph has
    saved is kept. If PyTorch cannot differentiate, the report tells that.

    Args:
        recorder: has recorded how the losses were made.
        losses: are differentiated, as their sum.
        tensors: with respect to these.
    """
    roots = [loss for loss in losses if loss.requires_grad and node_of(loss) is not None]
    xs = [x for x in dict.fromkeys(tensors) if x.requires_grad]
    if not roots or not xs:
        return None
    sizes = Sizes()
    measuring = Measuring(recorder, sizes)
    seeds = [torch.ones_like(loss) for loss in roots]
    try:
        with set_aside(xs), _same_random_numbers(), measuring.over(roots):
            gradients = torch.autograd.grad(roots, xs, seeds, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        why = str(error).partition("\n")[0]
        recorder.not_known(f"the gradients could not be computed, and how large they are is not known: {why}")
        return None
    for x, grad in zip(xs, gradients, strict=True):
        if grad is not None:
            measuring.at_leaf(x, grad)
    return sizes


@contextmanager
def set_aside(tensors: Sequence[Tensor]) -> Iterator[None]:
    """A context in which tensors have no ``grad``, to which a function's own backward might add."""
    grads = [x.grad for x in tensors]
    try:
        for x in tensors:
            x.grad = None
        yield
    finally:
        for x, grad in zip(tensors, grads, strict=True):
            x.grad = grad


def _same_random_numbers() -> Any:
    """A context that leaves the generators of random numbers as they were."""
    cuda: Any = torch.cuda
    return torch.random.fork_rng(range(cuda.device_count()) if cuda.is_initialized() else ())
