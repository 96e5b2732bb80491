"""ONNX models as graphs of ours."""

from __future__ import annotations

import keyword
import re
import warnings
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

import stopgrad as sg
from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError, DTypeError, FileError, GraphError, ShapeError
from stopgrad.base.source import to_user
from stopgrad.base.types import DType, Size
from stopgrad.graph.operands import as_array, shorten
from stopgrad.graph.public import guarded
from stopgrad.interop.imported import Model
from stopgrad.interop.onnx.checking import check_model, draws, versions_of
from stopgrad.interop.onnx.erased import restored
from stopgrad.interop.onnx.nodes import all_nodes, domain_of, graphs_in, live, read_in, text
from stopgrad.interop.onnx.operators import OPERATORS
from stopgrad.interop.onnx.operators.calling import Known, Value, dtype_of_code, known_positions
from stopgrad.interop.onnx.patterns import matches, patterns_of
from stopgrad.interop.onnx.reading import ModelSource, Source, read
from stopgrad.interop.onnx.translating import Space, Translator, stored
from stopgrad.interop.onnx.weights import Verdict, weighing_of
from stopgrad.interop.shared.building import (
    FAILED,
    RANDOM,
    label_from,
    leaves_by_name,
    raise_for,
    stored_parameter,
)
from stopgrad.interop.shared.conversions import Refused


@guarded("load")
def load(
    source: ModelSource,
    *,
    known: Mapping[str, Any] | None = None,
    parameters: str | Iterable[str] = (),
    quantized: str | None = None,
    maximum_iterations: int | None = None,
) -> Model:
    """An ONNX model as a graph of this library's operations, to differentiate, check, explain, train and run.

    Opsets from 13 on are read. Each node becomes operations in a scope of its name; reports show the node in
    place of a source line. Floating-point initializers that are weights become parameters, all others
    constants: masks, tables of positions, buffers that the file says are such (docs/train-graph.md, "What is
    trained", has the evidence).
    Symbolic sizes stay symbolic: equal names are equal sizes. Computations of shapes are done at once, on
    symbolic sizes.

    Our own gates, which :func:`save` writes as functions of the domain ``stopgrad``, become gates again.
    Functions are inlined. ``Loop`` and ``Scan`` become loops of ours, and have gradients where the
    number of steps is known. Random numbers come from one more parameter, ``"random_key"``, unless the node
    has a seed; they are not those of other runtimes.

    A file is only read: nothing in it is executed, and external data lies in the model's own folder.

    Args:
        source: a path; the bytes of a file; or an ``onnx.ModelProto``.
        known: arrays by the names of inputs that decide about sizes or structure: they are fixed to these
            values and no longer inputs.
        parameters: patterns of names of floating-point initializers that are parameters whatever is known of
            them, such as ``"*"``.
        quantized: ``"straight-through"`` for gradients that go through the rounding of quantised numbers as
            if it were not there, within their range (QDQ and dynamic quantisation); None for none.
        maximum_iterations: the most steps of a ``Loop`` whose number of steps a computation decides. With it,
            such a loop has a gradient. A run that needs more steps ends with an error; XLA cannot raise, and
            gives NaN for its results and gradients.

    Returns:
        A :class:`stopgrad.interop.imported.Model`, which takes the inputs in order or by name. It returns
        the output; or, where there are several, a dict of them by name.

    Raises:
        MissingFileError: there is no such file.
        FileError: the file is damaged, of an unknown version, or reaches outside of its folder.
        GraphError: operators are unknown, or nodes cannot be translated; all are named at once.
        ArgumentError, DTypeError, ShapeError: *known* does not fit the model.

    References:
        https://onnx.ai/onnx/repo-docs/IR.html, https://onnx.ai/onnx/operators/

    Examples:
        >>> import onnx
        >>> import stopgrad.onnx as sgo
        >>> model = sgo.load(onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["" : 18]>
        ...     agraph (float[batch, 2] x) => (float[batch, 2] y) { y = Exp(x) }'''))
        >>> model(np.zeros((1, 2), np.float32))
        array([[1., 1.]], dtype=float32)
    """
    if known is not None and not isinstance(known, Mapping):
        raise ArgumentError(f"known is a dict of arrays by the names of inputs, not {shorten(known)}")
    straight = straight_of(quantized)
    patterns = patterns_of(parameters, "parameters")
    most = most_of(maximum_iterations)
    return weighed(read(source, lean=True), known or {}, patterns, straight, most)[0]


def most_of(maximum_iterations: object) -> int | None:
    """The most steps of loops, as users give it.

    Raises:
        ArgumentError: it is no whole number from 1 on.
    """
    if maximum_iterations is None:
        return None
    if not is_whole(maximum_iterations) or not 1 <= whole(maximum_iterations) < 2**31:
        raise ArgumentError(f"maximum_iterations is a whole number from 1 on, not {maximum_iterations!r:.60}")
    return whole(maximum_iterations)


def straight_of(quantized: object) -> bool:
    """Whether gradients go straight through rounding.

    Raises:
        ArgumentError: another word asks for something else.
    """
    if quantized not in (None, STRAIGHT):
        raise ArgumentError(f"quantized is {STRAIGHT!r} or None, not {quantized!r:.60}")
    return quantized is not None


STRAIGHT = "straight-through"
"""The gradient of quantised models that can be asked for."""


def weighed(
    source: Source,
    known: Mapping[str, Any],
    parameters: Sequence[str],
    straight: bool = False,
    most: int | None = None,
    adapted: bool = False,
) -> tuple[Model, dict[str, Verdict]]:
    """A model as :func:`load` gives it, and the verdicts on its floating-point initializers.

    Args:
        adapted: whether adapters may be put beside matrices inside of operators on quantised numbers.
    """
    with np.errstate(all="ignore"):  # Whatever numbers a file holds.
        loading = _Loading(source, dict(known), parameters)
        loading.straight, loading.most, loading.adapted = straight, most, adapted
        return loading.model(), loading.verdicts


class _Loading:
    """A model that is being loaded."""

    def __init__(self, source: Source, known: dict[str, Any], patterns: Sequence[str]) -> None:
        self.source, self.known, self.patterns = source, known, patterns
        self.proto, self.name = _with_gates(source), source.name
        self.versions = versions_of(self.proto, self.name)
        self.sizes: dict[str, Any] = {}
        self.alike: dict[str, int] = {}  # How many sizes would have these names.
        self.inputs: dict[str, Any] = {}
        self.parameters: dict[str, Any] = {}
        self.straight = self.adapted = False
        self.most: int | None = None
        self.weighing = weighing_of(self.proto)
        self.verdicts: dict[str, Verdict] = {}

    def model(self) -> Model:
        functions = check_model(self.proto, self.name, OPERATORS)
        graph = sg.Graph()
        count = sum(1 for _ in all_nodes(self.proto))
        translator = Translator(functions, self.source.folder, self.name, count)
        translator.soft = {} if self.straight else None
        translator.maximum_iterations, translator.adapted = self.most, self.adapted
        with graph.as_default():
            values = self._values(translator)
            translator.stored = {id(x): name for name, x in values.items() if isinstance(x, Known)}
            if draws(self.proto):
                key = sg.parameter(np.array([0, 0], np.uint32), name=RANDOM)
                translator.random_key = self.parameters[RANDOM] = key
            names = [text(y.name) for y in self.proto.graph.output]
            space = Space(ChainMap(values), self.versions)
            results = translator.run_nodes(self.proto.graph.node, names, space)
            self._raise_for(translator, names, results)
            outputs = {
                name: self._output(translator, name, y) for name, y in zip(names, results, strict=True)
            }
        if RANDOM in self.parameters and not translator.drawn:
            del self.parameters[RANDOM]
        return Model(
            graph,
            self.inputs,
            outputs,
            self.parameters,
            leaves=self._leaves,
            rebuild=lambda ys: ys[0] if len(names) == 1 else dict(zip(names, ys, strict=True)),
            name=text(self.proto.graph.name) or self.name,
            dequantized={name: xs[0] for name, xs in translator.dequantized.items() if len(xs) == 1},
        )

    # ------------------------------------------------------------------------------------------- inputs

    def _values(self, translator: Translator) -> dict[str, Any]:
        """The inputs and initializers, by name."""
        graph = self.proto.graph
        values: dict[str, Any] = {}
        read_as_known = _read_as_known(graph)
        for name, array in stored(graph, self.source.folder, self.source.places):
            values[name] = self._initializer(name, array, name in read_as_known)
        unread = dict(self.known)
        for x in graph.input:
            name = text(x.name)
            if name in unread:
                values[name] = self._fixed(x, unread.pop(name))
            elif name not in values:
                values[name] = self.inputs[name] = self._placeholder(x)
        if unread:
            raise ArgumentError(
                f"known names {next(iter(unread))!r}, which is no input; the model has "
                f"{shorten(list(self.inputs))}"
            )
        return values

    def _initializer(self, name: str, array: np.generic | np.ndarray[Any, Any], as_known: bool) -> Known:
        constant = Known(array)
        if constant.dtype is None or not constant.dtype.is_differentiable or as_known:
            return constant
        verdict = self.verdicts[name] = self.weighing.of(name, constant.array)
        if not verdict.weight and not any(matches(name, pattern) for pattern in self.patterns):
            return constant
        parameter = stored_parameter(array, name, self.name, "initializer")
        self.parameters[name] = parameter.output
        return parameter

    def _placeholder(self, x: onnx.ValueInfoProto) -> sg.Output:
        name = text(x.name)
        dtype, shape = self._type(x)
        return sg.placeholder(dtype, shape, name=label_from(name) or "input")

    def _type(self, x: onnx.ValueInfoProto) -> tuple[DType, list[Size | None]]:
        """The tensor type that a model declares for an input."""
        name, kind = text(x.name), x.type
        if not kind.HasField("tensor_type"):
            what = kind.WhichOneof("value") or "nothing"
            raise GraphError(
                f"the input {name!r} of {self.name} is no tensor ({what.removesuffix('_type')}); models take "
                "tensors here"
            )
        dtype = dtype_of_code(kind.tensor_type.elem_type)
        if dtype is None:
            raise DTypeError(
                f"the input {name!r} of {self.name} has an element type that there is not here "
                f"(number {kind.tensor_type.elem_type} of TensorProto.DataType); fix it with "
                f"known={{{name!r}: ...}}, or convert the model"
            )
        if not kind.tensor_type.HasField("shape"):
            raise ShapeError(
                f"the input {name!r} of {self.name} has no shape, not even a number of axes; write it into "
                "the model, or fix the input with known="
            )
        return dtype, [self._size(d, name) for d in kind.tensor_type.shape.dim]

    def _size(self, d: onnx.TensorShapeProto.Dimension, name: str) -> Size | None:
        if d.HasField("dim_value"):
            if d.dim_value < 0:
                raise FileError(f"the input {name!r} of {self.name} has the size {d.dim_value}")
            return d.dim_value
        symbol = text(d.dim_param)
        if not symbol:
            return None
        if symbol not in self.sizes:
            self.sizes[symbol] = self._named(symbol)
        return self.sizes[symbol]

    def _named(self, symbol: str) -> sg.Dim:
        """The symbolic size for a name in the model, changed if it is no valid name here."""
        name = re.sub(r"\W", "_", symbol)
        if not name.isidentifier() or keyword.iskeyword(name) or re.fullmatch(r"_\d*", name):
            name = f"size_{name}"
        while name in self.alike:
            self.alike[name] += 1
            name = f"{name}_{self.alike[name]}"
        self.alike[name] = 1
        try:
            return sg.dim(name)
        except sg.ShapeError:  # The name is reserved.
            return sg.dim(f"{name}_")

    def _fixed(self, x: onnx.ValueInfoProto, value: np.generic | np.ndarray[Any, Any]) -> Known:
        """The value to which an input is fixed."""
        name = text(x.name)
        if not x.type.HasField("tensor_type"):
            raise ArgumentError(f"known: the input {name!r} is no tensor, and cannot be fixed")
        dtype = dtype_of_code(x.type.tensor_type.elem_type)
        array = as_array(value, dtype if isinstance(value, (int, float, bool, list, tuple)) else None)
        if dtype is not None and array.dtype != dtype.numpy:
            raise DTypeError(f"known: the input {name!r} is {dtype.name}, not {array.dtype}")
        if x.type.tensor_type.HasField("shape"):
            declared = [
                d.dim_value if d.HasField("dim_value") else None for d in x.type.tensor_type.shape.dim
            ]
            fits = len(declared) == array.ndim and all(
                a is None or a == b for a, b in zip(declared, array.shape, strict=True)
            )
            if not fits:
                raise ShapeError(f"known: the input {name!r} has shape {declared}, not {list(array.shape)}")
        return Known(np.array(array))

    # ------------------------------------------------------------------------------------------ outputs

    def _output(self, translator: Translator, name: str, y: Value) -> sg.Output:
        if isinstance(y, (list, tuple)) or y is None:
            raise GraphError(
                f"the output {name!r} of {self.name} is a sequence or optional; models return tensors here"
            )
        try:
            return translator.tensor(y)
        except Refused as error:
            raise GraphError(f"the output {name!r} of {self.name}: {error}") from None

    def _raise_for(self, translator: Translator, names: Sequence[str], results: Sequence[Any]) -> None:
        raise_for(translator.refusals, self.name)
        missing = [name for name, y in zip(names, results, strict=True) if y is FAILED]
        if missing:
            raise FileError(f"nothing in {self.name} computes its output {missing[0]!r}")

    # ------------------------------------------------------------------------------------------ calling

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return leaves_by_name(self.name, list(self.inputs), args, kwargs)


def _with_gates(source: Source) -> onnx.ModelProto:
    """The model, with gates that tools have erased put back; the user is warned of those that cannot be."""
    model, _, lost = restored(source.model)
    if lost:
        count = "a gate" if len(lost) == 1 else f"{len(lost)} gates"
        warnings.warn(
            f"{source.name} had {count} that an optimiser or inliner has erased, so gradients flow where "
            f"they were cut or changed: {shorten(lost)}; load the file that was saved, and optimise only "
            "what is never differentiated",
            stacklevel=to_user(),
        )
    return model


def _read_as_known(graph: onnx.GraphProto) -> set[str]:
    """The names read only where rules take known values, and by no function or inner graph."""
    known: set[str] = set()
    others = {text(y.name) for y in graph.output}
    for node in live(graph.node, [text(y.name) for y in graph.output]):
        domain, op_type = domain_of(node), text(node.op_type)
        rule = OPERATORS.get(f"{domain}::{op_type}" if domain else op_type)
        positions = known_positions(rule, len(node.input))
        for i, x in enumerate(node.input):
            (known if i in positions else others).add(text(x))
        for body in graphs_in(node):
            others.update(read_in(body))
    return known - others
