"""TensorFlow's graphs and SavedModels as graphs of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.errors import ArgumentError, DTypeError, FileError, GraphError, ShapeError
from stopgrad.graph.builder import Inside
from stopgrad.graph.operands import as_array, shorten
from stopgrad.graph.public import guarded
from stopgrad.interop.imported import Model
from stopgrad.interop.shared.building import RANDOM, label_from, leaves_by_name, raise_for, scope_from
from stopgrad.interop.shared.conversions import Refused
from stopgrad.interop.tensorflow.checking import check_operations, check_sizes
from stopgrad.interop.tensorflow.evidence import Weights, weights_of
from stopgrad.interop.tensorflow.function_library import Library, functions_in
from stopgrad.interop.tensorflow.nodes import Node, Source, graph_body
from stopgrad.interop.tensorflow.objects import Objects
from stopgrad.interop.tensorflow.operators.calling import Known
from stopgrad.interop.tensorflow.reading import (
    GraphSource,
    check_filled,
    dtype_of_number,
    read,
    shape_from,
    type_name,
)
from stopgrad.interop.tensorflow.translating import (
    KNOWN_OPERATIONS,
    Space,
    Stored,
    Translator,
    most_nodes,
)

SIGNATURE = "serving_default"
"""The signature of a SavedModel that is loaded if none is named."""
_SILENT = frozenset(
    {"NoOp", "Assert", "Const", "Placeholder", "VarHandleOp", "SaveV2", "RestoreV2", "PrintV2"}
)
"""Operations that are no outputs by themselves, though nothing reads them."""
_RETURNED = re.compile(r"Identity(_\d+)?")
"""What TensorFlow 2 calls the results of a function."""
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal")
"""How the names of operations that draw begin."""


@guarded("load")
def load(
    source: GraphSource,
    outputs: str | Iterable[str] | None = None,
    *,
    signature: str | None = None,
    known: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    parameters: str | Iterable[str] | None = None,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
) -> Model:
    """A TensorFlow graph as a graph of this library's operations, to differentiate, check, explain and run.

    TensorFlow need not be installed. Frozen graphs of TensorFlow 1 and 2 are read, and SavedModels, of which
    one signature is loaded, with the variables of its checkpoint. Each node becomes operations in a scope of
    its name; reports show the node in place of a source line. Functions are inlined; loops and branches, also
    those of TensorFlow 1 (``Switch``, ``Merge``, ``Enter``), become ours, and a loop has a gradient where the
    graph tells how many steps it makes at most.

    What a running program holds is traced by TensorFlow, and read in the same way: functions, models and
    modules. Variables have the values that they have now, and reports name the user's lines.

    ``StopGradient`` and ``PreventGradient`` are gates of ours. A custom gradient is kept where the file or
    the program holds its function; elsewhere asking for that gradient is an error, as it is in TensorFlow.

    Parameters of a SavedModel are its floating-point variables, of a program those that it trains. Of a
    frozen graph they are the constants that were variables, as the names of what reads them tell, or, in a
    graph without such names, that convolutions, matrix products, biases, normalisations and embeddings use as
    weights; all others are constants, as data are that a loss closes over. Name others with *parameters*.
    Unknown sizes are symbolic. Random numbers come from one more parameter, ``"random_key"``, unless the node
    has a seed; they are not TensorFlow's.

    A file is only read: nothing in it is executed, and only a SavedModel's own folder is opened.

    Args:
        source: the path of a graph (``.pb``, or ``.pbtxt`` in text form) or of a SavedModel's folder; the
            bytes of a ``GraphDef``, or TensorFlow's ``GraphDef`` itself. Or, where TensorFlow is imported, a
            function of Python, a ``tf.function``, a concrete function, a ``tf.Graph``, a Keras model or layer
            (as it computes in inference), or a ``tf.Module`` that can be called.
        outputs: names of nodes, or of their results as in ``"split:1"``; by default those of the signature,
            or of a graph the ``Identity`` nodes in which a function of TensorFlow 2 ends; or of one that does
            not end so, what no other node reads or waits for.
        signature: of a SavedModel; by default ``"serving_default"``, or the only one.
        known: arrays by the names of inputs that decide about sizes or structure: they are fixed to these
            values and no longer inputs.
        shapes: sizes by the names of inputs, where the graph leaves them open: numbers, names, or None.
        parameters: names of the floating-point variables and constants that are parameters, instead of
            those above; ``*`` stands for any characters.
        inputs: what a function or model is called with, in order or by name: arrays, tensors or
            ``tf.TensorSpec``. All else, Python's numbers among it, becomes part of the program.

    Returns:
        A :class:`stopgrad.interop.imported.Model`, which takes the inputs in order or by name. It returns
        the output; or, where there are several, a dict of them by name; of a function what it returns.

    Raises:
        MissingFileError: there is no such file.
        FileError: the file is damaged, or reaches outside of its folder.
        GraphError: operations are unknown, or nodes cannot be translated; all are named at once. TensorFlow
            cannot trace a function; the user's line is named.
        ArgumentError, DTypeError, ShapeError: an argument does not fit the graph.

    Examples:
        >>> import stopgrad.tensorflow as sgtf
        >>> with sg.Graph().as_default():
        ...     x = sg.placeholder(sg.float32, [2], name="x")
        ...     graph = sgtf.to_graph({"y": sg.exp(x)})
        >>> sgtf.load(graph)(np.zeros(2, np.float32))
        array([1., 1.], dtype=float32)

    References:
        https://www.tensorflow.org/guide/saved_model,
        https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/graph.proto
    """
    for what, argument in (("known", known), ("shapes", shapes)):
        if argument is not None and not isinstance(argument, Mapping):
            raise ArgumentError(f"{what} is a dict by the names of inputs, not {shorten(argument)}")
    with np.errstate(all="ignore"):  # Whatever numbers a file holds.
        loading = _Loading(source, inputs, dict(known or {}), dict(shapes or {}))
        return loading.model(outputs, signature, _patterns(parameters))


class _Loading:
    """A graph that is being loaded."""

    def __init__(
        self,
        source: GraphSource,
        inputs: Sequence[Any] | Mapping[str, Any] | None,
        known: dict[str, Any],
        shapes: dict[str, Any],
    ) -> None:
        self.source = read(source, inputs)
        self.live = self.source.live
        self.known, self.shapes = known, shapes
        self.name = self.source.name
        graph = self.source.graph
        raw = [*graph.node, *[node for f in graph.library.function for node in f.node_def]]
        check_filled((node.attr["value"].tensor for node in raw if node.op == "Const"), self.name)
        self.count = len(raw)
        meta = self.source.meta
        body = graph_body(graph, self.name)
        self.objects = Objects(None if meta is None else meta.object_graph_def, body)
        if self.live is not None:
            self.objects.captured.update(self.live.captured)
            self.objects.returned.update(self.live.returned)
            self.objects.untraced.update(self.live.untraced)
        self.library = Library(graph, self.objects)
        self.body = self.library.add(body)
        self.inputs: dict[str, Any] = {}

    def model(
        self, outputs: str | Iterable[str] | None, signature: str | None, patterns: Sequence[str] | None
    ) -> Model:
        feeds, fetches = self._feeds_and_fetches(outputs, signature)
        results = list(fetches.values())
        order = self.library.order(self.body, results)
        check_sizes(order, self.library, self.name, most_nodes(self.count))
        check_operations(order, self.library, KNOWN_OPERATIONS, self.name)
        weights = frozenset() if self.live is not None else weights_of(self.body, order, self.library)
        graph = sg.Graph()
        translator = Translator(
            self.library, self.name, self.count, Weights(weights, patterns), self.source.bundle, self.live
        )
        with graph.as_default():
            self._hold(translator)
            self._place(translator, feeds, order)
            key = None
            if self._draws(order):
                key = translator.random_key = sg.parameter(np.array([0, 0], np.uint32), name=RANDOM)
            self._restore(translator)
            space = translator.outermost = Space(self.body, {})
            ys = translator.run(self.body, results, space)
            raise_for(translator.refusals, self.name)
            translator.weights.check(self.name)
            by_name = {name: self._output(translator, name, y) for name, y in zip(fetches, ys, strict=True)}
        parameters = dict(translator.parameters)
        if key is not None and translator.drawn:
            parameters[RANDOM] = key
        names, live = list(by_name), self.live
        flat = tuple if live is None else live.flattened
        rebuild = _by_name(names) if live is None or outputs is not None else live.rebuilt
        return Model(
            graph,
            self.inputs,
            by_name,
            parameters,
            leaves=lambda args, kwargs: leaves_by_name(self.name, list(self.inputs), flat(args), kwargs),
            rebuild=rebuild,
            name=self.name,
        )

    # -------------------------------------------------------------------------------- inputs and outputs

    def _feeds_and_fetches(
        self, outputs: str | Iterable[str] | None, signature: str | None
    ) -> tuple[dict[str, str], dict[str, Source]]:
        """The placeholders by the names of inputs, and results by the names of outputs."""
        meta = self.source.meta
        chosen = None if meta is None else self._signature(signature)
        if meta is None and signature is not None:
            raise ArgumentError(f"{self.name} is no SavedModel and has no signatures; give outputs=")
        feeds: dict[str, str] = {}
        if chosen is not None:
            feeds = {key: _node_of(info.name) for key, info in sorted(chosen.inputs.items())}
        if outputs is None and chosen is not None:
            return feeds, {key: self._source(info.name) for key, info in sorted(chosen.outputs.items())}
        if self.live is not None:
            feeds = {name: name for name in self.live.inputs}
        if outputs is None:
            stated = None if self.live is None else self.live.outputs
            return feeds, self._unread() if stated is None else stated
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        if not names or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
            raise ArgumentError(f"outputs are names of nodes, each once, not {shorten(outputs)}")
        return feeds, {name: self._source(name) for name in names}

    def _signature(self, signature: str | None) -> Any:
        signatures = {
            name: definition
            for name, definition in self.source.meta.signature_def.items()
            if not name.startswith("__saved_model") and len(definition.outputs)
        }
        if signature is None and SIGNATURE not in signatures and len(signatures) != 1:
            raise ArgumentError(
                f"{self.name} has the signatures {shorten(sorted(signatures))}; name one with signature="
            )
        name = signature or (SIGNATURE if SIGNATURE in signatures else next(iter(signatures)))
        if name not in signatures:
            raise ArgumentError(
                f"{self.name} has no signature {name!r}; it has {shorten(sorted(signatures))}"
            )
        return signatures[name]

    def _source(self, name: str) -> Source:
        node, colon, index = name.rpartition(":")
        source = (node, int(index)) if colon and index.isdecimal() else (name, 0)
        if source[0] not in self.body.nodes:
            raise ArgumentError(
                f"{self.name} has no node {source[0]!r}; it has {shorten(sorted(self.body.nodes)[:50])}"
            )
        return source

    def _unread(self) -> dict[str, Source]:
        """The results of a graph for which nobody named any.

        A function of TensorFlow 2 ends in an ``Identity`` for each of its results, which runs after all that
        the function does. In other graphs it is what no other node reads or waits for.
        """
        nodes = self.body.nodes.values()
        read_here = {name for node in nodes for name in (*(x for x, _ in node.inputs), *node.controls)}
        last = [
            node
            for node in nodes
            if node.name not in read_here and node.op not in _SILENT and not self._is_stored(node)
        ]
        returned = [node for node in last if node.op == "Identity" and _RETURNED.fullmatch(node.name)]
        results: dict[str, Source] = {}
        for node in [node for node in returned if node.controls] or returned or last:
            for i in range(max(node.outputs, 1)):
                results[node.name if node.outputs < 2 else f"{node.name}:{i}"] = node.name, i
        if not results:
            raise ArgumentError(f"every node of {self.name} is read by another; name outputs=")
        return results

    def _is_stored(self, node: Node) -> bool:
        """Whether a node only reads a constant: a variable that freezing has replaced."""
        while node.op == "Identity" and node.inputs[0][0] in self.body.nodes:
            node = self.body.nodes[node.inputs[0][0]]
        return node.op == "Const"

    def _hold(self, translator: Translator) -> None:
        """Put in the place of placeholders what a running program captured."""
        captures = {} if self.live is None else self.live.held
        for node_name, captured in captures.items():
            name = captured.variable or node_name
            variable = translator.held(name, captured.value, captured.trainable)
            translator.placeholders[node_name] = variable.value if captured.variable is None else variable

    def _place(self, translator: Translator, feeds: Mapping[str, str], order: Sequence[Node]) -> None:
        """Make the placeholders that the results need, and all of a signature."""
        called = {node: name for name, node in feeds.items()}
        placed = translator.placeholders
        needed = [node.name for node in order if node.op == "Placeholder" and node.name not in placed]
        for node_name in dict.fromkeys([*feeds.values(), *needed]):
            node = self.body.nodes.get(node_name)
            name = called.get(node_name, node_name)
            if node is None or node.op != "Placeholder":
                raise FileError(
                    f"the input {name!r} of {self.name} is {node_name!r}, which is no placeholder"
                )
            if name in self.known:
                translator.placeholders[node_name] = self._fixed(node, name, self.known.pop(name))
            else:
                placeholder = self._placeholder(node, name)
                translator.placeholders[node_name] = self.inputs[name] = placeholder
        for what, unused in (("known", self.known), ("shapes", self.shapes)):
            if unused:
                raise ArgumentError(
                    f"{what} names {next(iter(unused))!r}, which is no input; the model has "
                    f"{shorten(list(self.inputs))}"
                )

    def _declared(self, node: Node, name: str) -> tuple[Any, Any]:
        """The element type and sizes that a placeholder declares."""
        number = node.attributes["dtype"].type if "dtype" in node.attributes else 0
        dtype = dtype_of_number(number)
        if type_name(number) == "DT_RESOURCE" and self.live is not None:
            raise GraphError(
                f"the input {name!r} of {self.name} is a variable that is passed as an argument; load the "
                "function itself, with the variable in inputs="
            )
        if type_name(number) == "DT_RESOURCE":
            raise GraphError(
                f"the input {name!r} of {self.name} is the handle of a variable, and a GraphDef holds no "
                "values of variables; load the function that it was made from, its concrete function or a "
                "SavedModel, or freeze the graph before"
            )
        if dtype is None:
            raise DTypeError(
                f"the input {name!r} of {self.name} has the element type {type_name(number)}, which there "
                "is not here; ask for outputs that do not need it"
            )
        shape = shape_from(node.attributes["shape"].shape) if "shape" in node.attributes else None
        return dtype, None if shape == () and _is_old(self.source.graph) else shape

    def _placeholder(self, node: Node, name: str) -> sg.Output:
        dtype, shape = self._declared(node, name)
        sizes = self.shapes.pop(name, None)
        if sizes is not None:
            shape = _merged(shape, sizes, name, self.name)
        if shape is None:
            raise ShapeError(
                f"the input {name!r} of {self.name} has no shape, not even a number of axes; give it with "
                f"shapes={{{name!r}: (None, 3)}}"
            )
        head, _, last = label_from(name).rpartition("/")
        with Inside(prefix=scope_from(head)):
            return sg.placeholder(dtype, list(shape), name=last or "input")

    def _fixed(self, node: Node, name: str, value: Any) -> Known:
        """The value to which an input is fixed."""
        dtype, shape = self._declared(node, name)
        array = as_array(value, dtype if isinstance(value, (int, float, bool, list, tuple)) else None)
        if array.dtype != dtype.numpy:
            raise DTypeError(f"known: the input {name!r} is {dtype.name}, not {array.dtype}")
        if shape is not None:
            _merged(shape, array.shape, name, self.name)
        return Known(np.array(array))

    # --------------------------------------------------------------------------------------- building

    def _restore(self, translator: Translator) -> None:
        """Give the variables what the checkpoint holds for them, as TensorFlow does: by the graph itself."""
        meta = self.source.meta
        name = "" if meta is None or self.source.bundle is None else meta.saver_def.restore_op_name
        if not name:
            return self._bind(translator)
        restored = [(_node_of(name), 0)]
        file_name = _node_of(meta.saver_def.filename_tensor_name)
        space = Space(self.body, {file_name: [Known(np.asarray(b"", object))]} if file_name else {})
        for node in self.library.order(self.body, restored):
            if node.name not in space.values:
                translator.translate(node, space)
        raise_for(translator.refusals, self.name)
        self._bind(translator)

    def _bind(self, translator: Translator) -> None:
        """Give variables that are still without a value what the checkpoint holds for their objects.

        TensorFlow restores objects, and the restore operation knows only those that the graph copied.
        """
        bundle = self.source.bundle
        keys = {} if bundle is None else self.objects.keys()
        for number, handle in self.objects.handles.items():
            node = self.body.nodes[handle]
            if node.op == "VarHandleOp" and bundle is not None and keys.get(number) in bundle.entries:
                name = node.attributes["shared_name"].s.decode(errors="replace") or handle
                variable = translator.variable(name, False)
                if variable.value is None:
                    variable.value = Stored(bundle, keys[number], node.attributes["dtype"].type)

    def _draws(self, order: Sequence[Node]) -> bool:
        """Whether any node may draw random numbers."""
        waiting, seen = [*order], set[str]()
        while waiting:
            node = waiting.pop()
            if node.op.startswith(_RANDOM):
                return True
            for name in functions_in(node):
                if name in self.library and name not in seen:
                    seen.add(name)
                    waiting += self.library.order(self.library.body(name))
        return False

    def _output(self, translator: Translator, name: str, y: Any) -> sg.Output:
        try:
            output = translator.tensor(y)
        except Refused as error:
            raise GraphError(f"the output {name!r} of {self.name}: {error}") from None
        if not isinstance(output, sg.Output):
            raise GraphError(f"the output {name!r} of {self.name} is no tensor, but a {type(y).__name__}")
        return output


def _by_name(names: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
    """What a model returns: its output, or a dict of several."""
    return lambda ys: ys[0] if len(names) == 1 else dict(zip(names, ys, strict=True))


def _patterns(parameters: str | Iterable[str] | None) -> list[str] | None:
    """The names of parameters that are asked for."""
    if parameters is None:
        return None
    patterns = [parameters] if isinstance(parameters, str) else list(parameters)
    if not all(isinstance(name, str) for name in patterns):
        raise ArgumentError(f"parameters are names of variables and constants, not {shorten(parameters)}")
    return patterns


def _node_of(name: str) -> str:
    """The node of a result's name."""
    node, colon, index = name.rpartition(":")
    return node if colon and index.isdecimal() else name.removeprefix("^")


def _is_old(graph: Any) -> bool:
    """Whether a placeholder's shape ``[]`` may mean that it is unknown, as in early graphs."""
    return 0 < graph.versions.producer < 24


def _merged(shape: Any, sizes: Any, name: str, file: str) -> list[Any]:
    """Sizes that a placeholder declares, with those that are given where it leaves them open."""
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Sequence):
        raise ArgumentError(f"shapes: the sizes of {name!r} are a list of numbers or names, not {sizes!r}")
    if shape is None:
        return list(sizes)
    fits = len(shape) == len(sizes) and all(
        a is None or b is None or a == b for a, b in zip(shape, sizes, strict=False)
    )
    if not fits:
        raise ShapeError(f"the input {name!r} of {file} has the sizes {list(shape)}, not {list(sizes)}")
    return [b if a is None else a for a, b in zip(shape, sizes, strict=True)]
