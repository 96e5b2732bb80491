"""What a SavedModel's tree of objects says: what functions are bound to, and where the values are."""

from __future__ import annotations

from collections import deque
from typing import Any

from stopgrad.interop.tensorflow.nodes import Body, Source, reference

OUTSIDE = ""
"""In the place of a function's name: the graph around all functions."""
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
"""How the key of a variable's value ends in a checkpoint."""


class Objects:
    """The objects of a SavedModel.

    Attributes:
        handles: nodes of the graph around all functions, by the numbers of the objects for which they stand.
        captured: by functions, what is bound to their last arguments: results of other functions, or of the
            graph around (:data:`OUTSIDE`). A function with something that is not known here is not listed.
        returned: by functions that return lists, which of the items are tensors.
        untraced: why there is no function for a custom gradient, by its name.
    """

    def __init__(self, tree: Any, graph: Body) -> None:
        self._nodes = [] if tree is None else list(tree.nodes)
        self.handles: dict[int, str] = {}
        self.captured: dict[str, list[tuple[str, Source]]] = {}
        self.returned: dict[str, list[bool]] = {}
        self.untraced: dict[str, str] = {}
        functions = {} if tree is None else tree.concrete_functions
        for node in graph.nodes.values():
            called = node.attributes["f"].func.name if "f" in node.attributes else node.op
            if called in functions:
                bound = functions[called].bound_inputs
                last = node.inputs[len(node.inputs) - len(bound) :]
                self.handles.update((i, name) for i, (name, _) in zip(bound, last, strict=False))
        for name, function in functions.items():
            places = [self._bound(i, name) for i in function.bound_inputs]
            known_places = [place for place in places if place is not None]
            if len(known_places) == len(places):
                self.captured[name] = known_places
            items = (
                function.output_signature.list_value.values or function.output_signature.tuple_value.values
            )
            if len(items):
                self.returned[name] = [not item.HasField("none_value") for item in items]

    def _bound(self, number: int, function: str) -> tuple[str, Source] | None:
        if number in self.handles:
            return OUTSIDE, (self.handles[number], 0)
        if 0 <= number < len(self._nodes) and self._nodes[number].HasField("captured_tensor"):
            captured = self._nodes[number].captured_tensor
            return captured.concrete_function, reference(captured.name, function)
        return None

    def keys(self) -> dict[int, str]:
        """The keys of variables in the checkpoint, by their numbers: their shortest ways from the root."""
        keys: dict[int, str] = {}
        ways: dict[int, str] = {0: ""}
        waiting = deque([0] if self._nodes else [])
        while waiting:
            number = waiting.popleft()
            if self._nodes[number].HasField("variable"):
                keys[number] = ways[number].lstrip("/") + _VALUE
            for child in self._nodes[number].children:
                if child.node_id not in ways and 0 <= child.node_id < len(self._nodes):
                    ways[child.node_id] = f"{ways[number]}/{_escaped(child.local_name)}"
                    waiting.append(child.node_id)
        return keys


def _escaped(name: str) -> str:
    """A name as keys hold it."""
    return str(name).replace(".", "..").replace("/", ".S")
