"""The one walk by which operations are copied: rewritten, batched, or built again for a body's operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stopgrad.graph.graph import Operation, Output

Build = Callable[[Operation, tuple[Output, ...]], "Sequence[Output | None]"]
"""From an old operation and its new operands to what takes the place of its outputs.

An output that nobody uses may have None in its place.
"""


def copy_operations(operations: Iterable[Operation], made: dict[Output, Output], build: Build) -> None:
    """Build operations again, in order.

    Args:
        operations: the old ones.
        made: what has become of old outputs: at first of what the operations start from, then of all of them.
            What is given at first stays.
        build: says what is built for each.
    """
    keep = made.setdefault
    for op in operations:
        built = build(op, tuple([made[x] for x in op.inputs]))
        if len(op.outputs) == 1:  # As most operations have: a loop would take twice as long.
            (new,) = built
            if new is not None:
                keep(op.outputs[0], new)
            continue
        for y, new in zip(op.outputs, built, strict=True):
            if new is not None:
                keep(y, new)
