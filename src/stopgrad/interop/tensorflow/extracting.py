"""Takes parts out of graphs, as functions."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stopgrad.base.errors import FileError
from stopgrad.interop.tensorflow.messages import AttrValue
from stopgrad.interop.tensorflow.nodes import Argument, Body, Node, Source

if TYPE_CHECKING:
    from google.protobuf.message import Message


class Part(NamedTuple):
    """A part of a graph, whose arguments are called ``argument_0`` and so on.

    Attributes:
        nodes: by name.
        outputs: what is asked of it.
    """

    nodes: dict[str, Node]
    outputs: list[Source]

    def as_function(self, name: str, count: int) -> Body:
        """The part as a function of so many arguments."""
        return Body(name, [Argument(_argument(k), 0) for k in range(count)], self.nodes, self.outputs)


def _argument(k: int) -> str:
    return f"argument_{k}"


def extracted(
    nodes: dict[str, Node],
    wanted: Sequence[Source],
    argument: Callable[[Source], int | None],
    inside: Callable[[str], bool],
) -> Part:
    """The part of a graph that computes some results.

    Args:
        nodes: of the graph.
        wanted: the results.
        argument: tells which argument a result is; None for what belongs to the part.
        inside: tells whether a node that only runs before another one belongs to the part.
    """

    def read(source: Source) -> Source:
        k = argument(source)
        return source if k is None else (_argument(k), 0)

    outputs = [read(source) for source in wanted]
    part: dict[str, Node] = {}
    waiting = [source[0] for source, renamed in zip(wanted, outputs, strict=True) if renamed is source]
    while waiting:
        name = waiting.pop()
        if name in part:
            continue
        node = nodes.get(name)
        if node is None:
            raise FileError(f"a node reads {name!r}, which is not there")
        inputs = [read(source) for source in node.inputs]
        before = [name for name in node.controls if inside(name)]
        part[name] = Node(name, node.op, inputs, before, node.attributes)
        waiting += [
            source[0] for source, renamed in zip(node.inputs, inputs, strict=True) if renamed is source
        ]
        waiting += before
    return Part(part, outputs)


def function_attribute(*names: str) -> Message:
    """An attribute that names a function, or several."""
    attribute = AttrValue()
    if len(names) == 1:
        attribute.func.name = names[0]
    else:
        for name in names:
            attribute.list.func.add().name = name
    return attribute


def types(count: int) -> Message:
    """An attribute that lists so many types."""
    attribute = AttrValue()
    attribute.list.type.extend([0] * count)
    return attribute


def unused(nodes: Container[str], name: str) -> str:
    """A name that no node has."""
    while name in nodes:
        name = f"{name}_"
    return name
