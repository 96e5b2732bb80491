"""Which inputs get None from the ``backward`` of a user's ``autograd.Function``: these are walls.

A backward pass shows it; if none has run, the function's ``backward`` is called with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stopgrad.interop.torch.recording.record import Event, Value

Node = Any  # torch.autograd.graph.Node, which PyTorch annotates with a method for its metadata, a dict.
NOT_DIFFERENTIABLE = "not differentiable"


class Returned:
    """The event of a user's function; its first *asked* inputs are those that the node's edges lead to."""

    __slots__ = ("asked", "edges", "event", "known", "others")

    def __init__(self, event: Event, edges: Sequence[Value | None], asked: int) -> None:
        self.event, self.edges, self.asked = event, tuple(edges), asked
        self.others = event.walls
        self.known = False

    def note(self, given: Sequence[bool]) -> None:
        """Note for which of its edges the function returned a gradient."""
        self.known = True
        passes = {value for value, some in zip(self.edges, given, strict=True) if some}
        reason = f"{self.event.call}.backward returns None for it"
        blocked = [i for i in range(self.asked) if self.event.inputs[i] not in passes]
        self.event.walls = (*self.others, *[(i, NOT_DIFFERENTIABLE, reason) for i in blocked])

    def hook(self) -> Callable[[Any, Any], None]:
        """A hook for the node, called after its backward has run."""

        def seen(grads: Sequence[torch.Tensor | None], _: object) -> None:
            if len(grads) == len(self.edges):
                self.note([grad is not None for grad in grads])

        return seen


def returned_for_zeros(node: Node) -> list[bool] | None:
    """For which edges a node's ``backward`` returns a gradient, tried with zeros; None if it fails."""
    try:
        zeros = [
            torch.zeros([int(n) for n in about.shape], dtype=about.dtype, device=about.device)
            for about in node._input_metadata
        ]
        with torch.no_grad():
            found = node._forward_cls.backward(node, *zeros)
        found = found if isinstance(found, tuple) else (found,)
        needed = iter(
            [grad is not None for grad, need in zip(found, node.needs_input_grad, strict=True) if need]
        )
        return [to is not None and next(needed) for to, _ in node.next_functions]
    except Exception:  # The user's code may raise anything; the answer is then unknown.
        return None
