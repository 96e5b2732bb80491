"""Graphs that TensorFlow has traced: what they captured, their custom gradients, and the user's lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stopgrad.base.errors import ArgumentError, GraphError
from stopgrad.base.source import Location
from stopgrad.graph.operands import shorten
from stopgrad.interop.tensorflow.live import Traced, tensorflow, user_frame
from stopgrad.interop.tensorflow.messages import GraphDef
from stopgrad.interop.tensorflow.nodes import Source, reference
from stopgrad.interop.tensorflow.objects import OUTSIDE

if TYPE_CHECKING:
    import tensorflow as tf


class Held(NamedTuple):
    """What a placeholder stands for.

    Attributes:
        value: an array.
        variable: the name of the variable whose value it is; None for a constant.
        trainable: whether the variable is trained.
    """

    value: np.ndarray[Any, Any]
    variable: str | None = None
    trainable: bool = False


class Live:
    """A graph of a running program.

    Attributes:
        graph: its ``GraphDef``, a message of ours, with the functions of custom gradients.
        name: of the program, for messages.
        held: what placeholders stand for that are no inputs, by their names.
        inputs: the placeholders that are inputs.
        outputs: the results, by name; None for a graph that does not say.
        captured, returned, untraced: of custom gradients, as :class:`.objects.Objects` has them.
    """

    name: str
    graph: GraphDef
    inputs: list[Any]
    outputs: dict[str, Source] | None
    held: dict[str, Held]

    def __init__(self, traced: Traced) -> None:
        self._traced = traced
        self._graph = graph = traced.graph
        self.name = traced.name
        self._functions = {
            str(name): function.graph
            for name, function in getattr(graph, "_functions", {}).items()
            if getattr(function, "graph", None) is not None
        }
        self.graph = GraphDef()
        self.graph.ParseFromString(graph.as_graph_def().SerializeToString())
        self._structure = getattr(graph, "structured_outputs", None)
        captures = list(getattr(graph, "captures", ()))
        inside = {id(placeholder) for _, placeholder in captures}
        self.inputs = [x.op.name for x in getattr(graph, "inputs", ()) if id(x) not in inside]
        self.outputs = self._named() if hasattr(graph, "outputs") else None
        self._taken: set[str] = set()
        self.held = dict(self._captured(captures))
        self._handles = {id(outer): placeholder.op.name for outer, placeholder in captures}
        self.captured: dict[str, list[tuple[str, Source]]] = {}
        self.returned: dict[str, list[bool]] = {}
        self.untraced: dict[str, str] = {}
        self._add_gradients()

    # ---------------------------------------------------------------------------------------- captures

    def _captured(self, captures: Sequence[tuple[Any, Any]]) -> Iterator[tuple[str, Held]]:
        for outer, placeholder in captures:
            if not hasattr(outer, "numpy"):
                raise ArgumentError(
                    f"{self.name} takes {shorten(outer)} from the graph around it; load the function that "
                    "holds both"
                )
            held = self._held(outer, placeholder.op.name, self._graph)
            if held is not None:
                yield placeholder.op.name, held

    def _held(self, outer: tf.Tensor, name: str, graph: tf.Graph) -> Held | None:
        """What a captured value stands for; None for the handle of something that is no variable."""
        variable = next((v for v in getattr(graph, "variables", ()) if v.handle is outer), None)
        if variable is not None:
            name = self._traced.paths.get(id(variable), variable.name.removesuffix(":0"))
            is_trained = bool(variable.trainable) and id(variable) not in self._traced.frozen
            return Held(np.asarray(variable.numpy()), self._unique(name), is_trained)
        if outer.dtype != tensorflow().resource:
            return Held(np.asarray(outer.numpy()))
        value = _of_handle(outer)
        return None if value is None else Held(np.asarray(value), self._unique(name))

    def _unique(self, name: str) -> str:
        unique = name
        while unique in self._taken:
            unique = f"{name}_{len(self._taken)}"
        self._taken.add(unique)
        return unique

    # ----------------------------------------------------------------------------------------- results

    def _named(self) -> dict[str, Source]:
        """The results, by their keys in a dict, or their numbers."""
        outputs = self._graph.outputs
        structure = self._structure
        names = [str(i) for i in range(len(outputs))]
        if isinstance(structure, Mapping) and all(hasattr(structure[key], "dtype") for key in structure):
            names = [str(key) for key in sorted(structure)]
        if len(outputs) == 1 and names == ["0"]:
            names = ["output"]
        if not outputs:
            raise GraphError(f"{self.name} returns no tensor; return what it computes")
        return {name: reference(x.name, self.name) for name, x in zip(names, outputs, strict=True)}

    def rebuilt(self, ys: Sequence[Any]) -> object:
        """The results in the structure in which the function returns them."""
        nest = tensorflow().nest
        tensors = iter(ys)
        parts = [
            next(tensors) if hasattr(part, "dtype") else part
            for part in nest.flatten(self._structure, expand_composites=True)
        ]
        return nest.pack_sequence_as(self._structure, parts, expand_composites=True)

    def flattened(self, args: Sequence[Any]) -> list[Any]:
        """The tensors among arguments, in the order of the inputs."""
        return [leaf for arg in args for leaf in tensorflow().nest.flatten(arg)]

    # ------------------------------------------------------------------------------------------- lines

    def place(self, function: str, node: str) -> Location | None:
        """The user's line that made a node of a function, or of the graph around all (:data:`OUTSIDE`)."""
        graph = self._graph if function == OUTSIDE else self._functions.get(function)
        try:
            operation = None if graph is None else graph.get_operation_by_name(node)
        except (KeyError, ValueError):
            return None
        frame = None if operation is None else user_frame(operation.traceback)
        return None if frame is None else Location(frame[0], frame[1], function=frame[2])

    # --------------------------------------------------------------------------------------- gradients

    def _add_gradients(self) -> None:
        """Trace the gradient functions of custom gradients, which TensorFlow keeps in a registry."""
        registry = getattr(sys.modules.get("tensorflow.python.framework.ops"), "gradient_registry", None)
        seen: set[str] = set()
        waiting = [(OUTSIDE, self._graph), *self._functions.items()]
        while waiting and registry is not None:
            function, graph = waiting.pop()
            for op in graph.get_operations():
                mark = _mark(op)
                if mark is None or mark in seen:
                    continue
                seen.add(mark)
                try:
                    gradient = registry.lookup(mark)
                    traced = tensorflow().function(gradient).get_concrete_function(None, *op.inputs)
                except Exception as error:  # Of the user's; asking for this gradient is an error then.
                    self.untraced[mark] = f"TensorFlow could not trace: {type(error).__name__}: {error}"
                    continue
                waiting += self._add(traced, mark, function, graph)

    def _add(self, traced: Any, mark: str, function: str, graph: tf.Graph) -> Iterator[tuple[str, Any]]:
        """Add a gradient function to the library; the functions that are new by it."""
        definition = GraphDef()
        definition.ParseFromString(traced.graph.as_graph_def().SerializeToString())
        gradient = definition.library.function.add()
        gradient.ParseFromString(traced.function_def.SerializeToString())
        name = str(gradient.signature.name)
        names = {str(f.signature.name) for f in self.graph.library.function}
        for library_function in definition.library.function:
            if library_function.signature.name not in names:
                self.graph.library.function.add().CopyFrom(library_function)
        self.graph.library.registered_gradients.add(gradient_func=name, registered_op_type=mark)
        places = [self._place_of(x, function, graph, traced.graph) for x in traced.captured_inputs]
        known_places = [place for place in places if place is not None]
        if len(known_places) == len(places):
            self.captured[name] = known_places
        returned = traced.structured_outputs
        if isinstance(returned, (list, tuple)):
            self.returned[name] = [hasattr(part, "dtype") for part in returned]
        graphs = {name: traced.graph}
        graphs.update((str(k), f.graph) for k, f in getattr(traced.graph, "_functions", {}).items())
        added = [(k, inner) for k, inner in graphs.items() if k not in self._functions and inner is not None]
        self._functions.update(added)
        return iter(added)

    def _place_of(
        self, x: tf.Tensor, function: str, graph: tf.Graph, inner_graph: tf.Graph
    ) -> tuple[str, Source] | None:
        """Which result around a custom gradient its function, of the graph *inner_graph*, has captured."""
        if id(x) not in self._handles and hasattr(x, "numpy"):
            name = f"captured_{len(self._handles)}"  # Only the gradient needs it.
            held = self._held(x, name, inner_graph)
            if held is None:
                return None
            self.held[name], self._handles[id(x)] = held, name
            self.graph.node.add(op="Placeholder", name=name)
        if id(x) in self._handles:
            return OUTSIDE, (self._handles[id(x)], 0)
        if getattr(x, "graph", None) is not graph:
            x = next((inner for outer, inner in getattr(graph, "captures", ()) if outer is x), None)
        if x is None:
            return None
        if function != OUTSIDE:
            for i, argument in enumerate(graph.inputs):
                if argument is x:
                    return function, (self._argument(function, i), 0)
        return function, reference(x.name, self.name)

    def _argument(self, function: str, i: int) -> str:
        """What the library calls an argument of a function."""
        signatures = {f.signature.name: f.signature for f in self.graph.library.function}
        return str(signatures[function].input_arg[i].name)


def _mark(op: tf.Operation) -> str | None:
    """The name under which the gradient of an operation is registered, where it is its own."""
    try:
        return str(op.get_attr("_gradient_op_type").decode())
    except ValueError:
        return None


def _of_handle(handle: object) -> Any:
    """The value of the variable behind a handle; None if it is the handle of something else."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    try:
        read: Callable[..., Any] = tensorflow().raw_ops.ReadVariableOp
        return read(resource=handle, dtype=data.shape_and_type[0].dtype).numpy()
    except tensorflow().errors.OpError:
        return None
