"""What a custom gradient's function closes over: its gradient function knows nothing of that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
CLOSED = "a custom gradient gives none to what its function closes over"
"""Why no gradient passes to such a value."""
MOST = 100_000
"""The most values that are looked at for one function."""


def closed_over(
    results: Iterable[Node], arguments: Collection[Node], takes: Callable[[Node], Sequence[Node]]
) -> list[Node]:
    """The values that results were made of beside a function's arguments.

    Of what does not depend on the arguments at all, it is the values that were put together with what does:
    whether the function computed these itself or found them makes no difference to their gradients.

    Args:
        results: what the function returned.
        arguments: what it was given.
        takes: the values of which a value was made.
    """
    depends: dict[Node, bool] = {}
    inside: list[Node] = []
    stack = [(result, False) for result in results]
    while stack and len(depends) < MOST:
        node, is_done = stack.pop()
        if node in depends:
            continue
        if node in arguments:
            depends[node] = True
        elif is_done:
            depends[node] = any(depends.get(x, False) for x in takes(node))
            inside += [node] if depends[node] else []
        else:
            stack.append((node, True))
            stack += [(x, False) for x in takes(node) if x not in depends]
    beside = dict.fromkeys(x for node in inside for x in takes(node) if not depends.get(x, True))
    return [*beside, *[result for result in results if not depends.get(result, True)]]
