"""Writes graphs as TensorFlow's ``GraphDef``, with ``StopGradient`` where ours have one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.errors import EngineError
from stopgrad.graph.body import Body
from stopgrad.graph.files import AnyPath, replacing
from stopgrad.graph.graph import Operation, Output, describe, needed
from stopgrad.graph.public import guarded
from stopgrad.interop.shared.saving import Given, Values, Wanted, asked, value_of
from stopgrad.interop.tensorflow.messages import AttrValue
from stopgrad.interop.tensorflow.writing.control import CONTROL, State
from stopgrad.interop.tensorflow.writing.function_defs import fill_function, rename_functions
from stopgrad.interop.tensorflow.writing.graph_def_nodes import NUMBERS, Nodes, shape_attribute
from stopgrad.interop.tensorflow.writing.node_rules import CURES, OTHERS, WRITERS, refused
from stopgrad.ops.gates.custom import CustomGradient
from stopgrad.ops.gates.stopping import Gate
from stopgrad.rewrite import fold, merge, rewrite, simplify

LARGEST = 2**31 - 2**20
"""The largest graph, in bytes, that is written; the format is limited to 2 GiB."""


@guarded("save")
def save(path: AnyPath, outputs: Wanted, inputs: Given = None, *, values: Values = None) -> None:
    """Write a graph, for instance a gradient, as a frozen graph that TensorFlow loads and differentiates.

    ``tf.compat.v1.import_graph_def`` reads it. Inputs are placeholders, parameters are constants that an
    ``Identity`` reads, as freezing leaves them, and stops are ``StopGradient`` nodes, at which TensorFlow's
    gradients end, too. Other gates have no form in TensorFlow's graphs. Loops and branches are
    ``StatelessWhile`` and ``StatelessCase`` of functions.

    Args:
        path: of the file; one that ends with ``.pbtxt`` is written in text form.
        outputs: what the graph computes, by the names of its nodes; a list of outputs has the names of their
            operations. Or an imported model, or a function of arrays.
        inputs: what it is given, likewise; by default all placeholders that are needed. A parameter among
            them is a placeholder of the graph; others are stored in it.
        values: of parameters: a session, or arrays by the parameters' names; by default their first values.

    Raises:
        ArgumentError: an argument is not what it must be, or an input is missing.
        EngineError: an operation has no form in TensorFlow; it is named with its line and what to do instead.
        FileError: the file cannot be written. An older one is left as it was.

    References:
        https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/graph.proto
    """
    graph = _graph(outputs, inputs, values)
    content = str(graph).encode() if str(path).endswith(".pbtxt") else _bytes(graph)
    with replacing(path) as file, open(file, "wb", closefd=False) as stream:
        stream.write(content)


@guarded("to_graph")
def to_graph(outputs: Wanted, inputs: Given = None, *, values: Values = None) -> bytes:
    """The bytes of the ``GraphDef`` that :func:`save` writes. Arguments and errors are the same.

    Examples:
        >>> import stopgrad.tensorflow as sgtf
        >>> with sg.Graph().as_default():
        ...     x = sg.placeholder(sg.float32, ["batch", 2], name="x")
        ...     content = sgtf.to_graph({"y": x * sg.exp(sg.stop_gradient(x))})
        >>> [op.type for op in sgtf.load(content).graph.operations]
        ['Placeholder', 'StopGradient', 'Exp', 'Mul']
    """
    return _bytes(_graph(outputs, inputs, values))


def _bytes(graph: Any) -> bytes:
    if graph.ByteSize() > LARGEST:
        raise EngineError("the graph does not fit into one file: it would have more than 2 GiB")
    content: bytes = graph.SerializeToString()
    return content


def _graph(outputs: Wanted, inputs: Given, values: Values) -> Any:
    xs, ys, stored = asked(outputs, inputs, "graph")
    everything = {**xs, **stored}
    done = rewrite([*ys.values()], [*everything.values()], (simplify, fold, merge))
    writing = _Writing()
    for name in (*everything, *ys):
        writing.nodes.unique(name)
    for (name, old), x in zip(everything.items(), done.inputs, strict=True):
        if name in stored:
            writing.store(name, x, value_of(old, name, values))
        else:
            writing.place(name, x)
    writing.write(done.outputs)
    for name, y in zip(ys, done.outputs, strict=True):
        writing.nodes.add("Identity", [writing.names[y]], name, T=y.dtype)
    writing.nodes.tidy(ys)
    rename_functions(writing.nodes.graph)
    return writing.nodes.graph


class _Writing:
    """A graph that is being written.

    Attributes:
        nodes: its nodes.
        names: of the results that are written, by our outputs.
    """

    def __init__(self, around: _Writing | None = None) -> None:
        self.nodes = Nodes()
        self.names: dict[Output, str] = {}
        self.library: Any = self.nodes.graph.library if around is None else around.library
        self._functions: dict[str, int] = {} if around is None else around._functions

    def place(self, name: str, x: Output) -> None:
        """Write an input."""
        self._check_type(x)
        placeholder = self.nodes.add("Placeholder", [], name, dtype=x.dtype, shape=shape_attribute(x.shape))
        self.names[x] = placeholder
        self.nodes.sizes.read(placeholder, x.shape)

    def store(self, name: str, x: Output, value: Any) -> None:
        """Write a parameter with its value."""
        self._check_type(x)
        constant = self.nodes.constant(value, name)
        self.names[x] = self.nodes.add("Identity", [constant], self.nodes.unique(f"{name}/read"), T=x.dtype)

    def write(self, outputs: list[Output]) -> None:
        """Write what outputs need."""
        for op in needed(outputs, self.names):
            with self.nodes.at(op.name):
                written = self._written(op)
            names = written if isinstance(written, list) else [written]
            self.names.update(zip(op.outputs, names, strict=True))

    def _written(self, op: Operation) -> str | list[str]:
        for y in op.outputs:
            self._check_type(y)
        if op.type in OTHERS:
            return self._by_others(op)
        if op.type in CONTROL:
            return CONTROL[op.type](self, op, [self.names[x] for x in op.inputs])
        writer = WRITERS.get(op.type)
        is_gate = issubclass(op.definition, (Gate, CustomGradient))
        if writer is None:
            why = CURES.get(op.type, "there is none for it here")
            raise refused(op, f"no gate of TensorFlow's does that; {why}" if is_gate else why)
        return writer(self.nodes, op, [self.names[x] for x in op.inputs])

    def body(self, body: Body, arguments: Sequence[str]) -> list[str]:
        """Write a body for these arguments; its results."""
        self.names.update(zip(body.inputs, arguments, strict=True))
        self.write(list(body.results))
        return [self.names[y] for y in body.results]

    def function(
        self,
        role: str,
        takes: Sequence[State],
        returns: Sequence[State],
        build: Callable[[_Writing, list[str]], list[str]],
    ) -> str:
        """Write a function that *build* fills, given its arguments; its name."""
        count = self._functions[role] = self._functions.get(role, 0) + 1
        name = f"{role}_{count}"
        inner = _Writing(self)
        arguments = []
        for i, state in enumerate(takes):
            kind = AttrValue()
            kind.type = state.number
            arguments.append(
                inner.nodes.add("Placeholder", [], inner.nodes.unique(f"argument_{i}"), dtype=kind)
            )
            inner.nodes.sizes.read(arguments[-1], state.shape)
        results = build(inner, arguments)
        inner.nodes.tidy(results)
        definition = self.library.function.add()
        types = [state.number for state in returns]
        fill_function(definition, inner.nodes.graph, name, arguments, results, types)
        return name

    def _by_others(self, op: Operation) -> list[str]:
        """Write an operation as others."""
        graph = sg.Graph()
        with graph.as_default():
            placeholders = [sg.placeholder(x.dtype, x.shape) for x in op.inputs]
            settings = dict(zip(op.definition.attributes, op.values, strict=True))
            result = OTHERS[op.type](*placeholders, **settings)
        operands = [self.names[x] for x in op.inputs]
        self.names.update(zip(placeholders, operands, strict=True))
        self.write([result])
        return [self.names[result]]

    def _check_type(self, x: Output) -> None:
        if x.dtype not in NUMBERS:
            raise EngineError(f"{describe(x)}: TensorFlow has no element type {x.dtype.name}")
