"""The walk that copies operations, to rewrite or batch them, or to inline a body."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stopgrad.graph.graph import Operation, Output

Build = Callable[[Operation, tuple[Output, ...]], "Sequence[Output | None]"]
"""Builds the new outputs for an old operation from its new operands.

There may be None for an output that nobody uses.
"""


def copy_operations(operations: Iterable[Operation], copies: dict[Output, Output], build: Build) -> None:
    """Build operations again, in order.

    Args:
        operations: the old ones.
        copies: from old outputs to new ones: at first those that are given, which stay, then all.
        build: builds the new outputs of each operation.
    """
    keep = copies.setdefault
    for op in operations:
        built = build(op, tuple([copies[x] for x in op.inputs]))
        if len(op.outputs) == 1:  # Most operations have one; a loop would take twice as long.
            (new,) = built
            if new is not None:
                keep(op.outputs[0], new)
            continue
        for y, new in zip(op.outputs, built, strict=True):
            if new is not None:
                keep(y, new)
