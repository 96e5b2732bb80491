"""What the ``backward`` of a user's ``autograd.Function`` gives back: None for an input is a wall.

That is seen when a backward pass runs; where none has, the function's ``backward`` is called on zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stopgrad.interop.torch.recording.record import Event, Value

Node = Any
NOT_DIFFERENTIABLE = "not differentiable"


class Returned:
    """The event of a user's function, the first *asked* inputs of which are what its edges lead to."""

    __slots__ = ("asked", "edges", "event", "known", "others")

    def __init__(self, event: Event, edges: Sequence[Value | None], asked: int) -> None:
        self.event, self.edges, self.asked = event, tuple(edges), asked
        self.others = event.walls
        self.known = False

    def note(self, given: Sequence[bool]) -> None:
        """It gave something back for these of its edges."""
        self.known = True
        passes = {value for value, some in zip(self.edges, given, strict=True) if some}
        reason = f"{self.event.call}.backward returns None for it"
        blocked = [i for i in range(self.asked) if self.event.inputs[i] not in passes]
        self.event.walls = (*self.others, *[(i, NOT_DIFFERENTIABLE, reason) for i in blocked])

    def hook(self) -> Callable[[Any, Any], None]:
        """What a node calls after its backward has run."""

        def seen(grads: Sequence[torch.Tensor | None], _: object) -> None:
            if len(grads) == len(self.edges):
                self.note([grad is not None for grad in grads])

        return seen


def returned_for_zeros(node: Node) -> list[bool] | None:
    """For which of the edges of a node its ``backward`` gives something back; None where it does not run."""
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
    except Exception:  # Whatever the user's code raises: it is not known then.
        return None
