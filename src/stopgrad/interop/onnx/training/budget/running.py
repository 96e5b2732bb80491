"""The order in which ONNX Runtime runs the nodes of a graph, and the memory that it then needs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from stopgrad.interop.onnx.nodes import text
from stopgrad.interop.onnx.training.budget.schedules import Use, held_in
from stopgrad.interop.onnx.training.budget.tape import Tape, step_of


def peak_of(model: Any, tape: Tape, nodes: Sequence[Any] | None = None) -> int:
    """The most bytes of what a graph makes that are held at once, without its results.

    Args:
        model: the graph.
        tape: its sizes; what is computed again has those of what it repeats.
        nodes: in the place of the model's own.
    """
    nodes = list(model.graph.node if nodes is None else nodes)
    steps = [step_of(node, {}) for node in nodes]
    memory: list[Use] = []
    where: dict[str, Hashable] = {}
    for i in in_order(nodes):
        step = steps[i]
        keys = [where.get(x) for x in step.inputs]
        written: dict[Hashable, int] = {}
        for y in step.outputs:
            if step.view:
                where[y] = keys[0]
            elif step.inputs and y not in tape.results:
                where[y] = y
                sized = tape.tensors.get(y) or tape.tensors.get(y.partition("/again")[0])
                written[y] = sized.bytes if sized else 0
        memory.append(([key for key in keys if key is not None], written, step.over))
    return max(held_in(memory), default=0)


def in_order(nodes: Sequence[Any]) -> list[int]:
    """The numbers of nodes in the runtime's default order.

    It walks from the last node that no other reads; of what a node reads, what stands last in the file comes
    first (``Graph::ReverseDFSFrom``).
    """
    makers = {text(y): i for i, node in enumerate(nodes) for y in node.output if y}
    read = [sorted({makers[x] for x in step_of(node, {}).inputs if x in makers}) for node in nodes]
    inner = {i for before in read for i in before}
    waiting = [(i, False) for i in range(len(nodes)) if i not in inner]
    seen: set[int] = set()
    order = []
    while waiting:
        i, ready = waiting.pop()
        if ready:
            order.append(i)
        elif i not in seen:
            seen.add(i)
            waiting.append((i, True))
            waiting += [(j, False) for j in read[i] if j not in seen]
    return order
