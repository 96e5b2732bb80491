"""Checks graphs before they are built: unknown operations are told at once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from stopgrad.base.errors import FileError, GraphError
from stopgrad.interop.shared.inlining import Inlined
from stopgrad.interop.tensorflow.function_library import Library, functions_in
from stopgrad.interop.tensorflow.nodes import Node

_SHOWN = 8
"""The most nodes of one operation that an error names."""


def called_in(node: Node, library: Library) -> Iterator[str]:
    """The functions of the graph that a node calls."""
    for name in functions_in(node):
        if name in library:
            yield name


def check_sizes(nodes: Iterable[Node], library: Library, name: str, limit: int) -> None:
    """Refuse functions that call themselves, or that become too many nodes where they are inlined.

    Raises:
        FileError: there are such functions, or one of them is damaged.
    """

    def look(function: str) -> tuple[int, list[str]]:
        order = library.order(library.body(function))
        return len(order), [f for node in order for f in called_in(node, library)]

    inlined, total = Inlined(look, name), 0
    for function in [f for node in nodes for f in called_in(node, library)]:
        total += inlined.size(function)
        if total > limit:
            raise FileError(f"the functions of {name} become more than {limit} nodes")


def check_operations(nodes: Iterable[Node], library: Library, operators: Container[str], name: str) -> None:
    """Refuse a graph with operations that have no rule.

    Args:
        nodes: those that run.
        library: the functions that they may call.
        operators: the operations that have a rule.
        name: the graph, for messages.

    Raises:
        GraphError: there are such operations; all are named, with their nodes.
        FileError: a function is damaged.
    """
    unknown: dict[str, list[str]] = {}
    waiting: list[tuple[str, Iterable[Node]]] = [("", nodes)]
    seen: set[str] = set()
    while waiting:
        where, here = waiting.pop(0)
        for node in here:
            if node.op not in operators and node.op not in library:
                unknown.setdefault(node.op, []).append(f"{where}{node.name}")
            for function in called_in(node, library):
                if function not in seen:
                    seen.add(function)
                    waiting.append((f"{function}: ", library.order(library.body(function))))
    if not unknown:
        return
    lines = []
    for op, names in sorted(unknown.items()):
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        lines.append(f"{op} ({len(names)}): {', '.join(map(repr, names[:_SHOWN]))}{more}")
    count = "1 operation" if len(lines) == 1 else f"{len(lines)} operations"
    raise GraphError(
        f"{count} of {name} have no translation; their nodes:\n  "
        + "\n  ".join(lines)
        + "\nask for other outputs, with outputs=, or save the graph with other operations"
    )
