"""What the rules for ONNX's operators share: how a node calls them, and how a table is filled.

A rule is a function of a :class:`Call` and of the node's operands, in order: outputs of the graph that is
being built, lists of them for sequences, None for optional ones that are missing. Those that
decide about shapes arrive as :class:`Known` (:func:`knows`). A rule builds with this library's public
functions, and returns an output, or a tuple of them if the operator has several results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import onnx
from onnx.defs import OpSchema

import stopgrad as sg
from stopgrad.base.types import DType
from stopgrad.interop.shared import calling
from stopgrad.interop.shared.calling import (
    Known as Known,
    Rule as Rule,
    Table as Table,
    Value as Value,
    dtype_from as dtype_from,
    known_positions as known_positions,
    knows as knows,
)
from stopgrad.interop.shared.conversions import Refused as Refused


def dtype_of_code(code: int) -> DType | None:
    """Our element type for a number of ``TensorProto.DataType``, or None."""
    try:
        return dtype_from(onnx.helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, TypeError, ValueError):
        return None


class Body:
    """A graph that is an attribute of a node, with the names that it can see around it.

    Attributes:
        graph: the ``GraphProto``.
        inputs, outputs: the names of its inputs and outputs.
        around: the values around it, a :class:`stopgrad.interop.onnx.translating.Space`.
    """

    __slots__ = ("around", "graph", "inputs", "outputs")

    graph: onnx.GraphProto
    around: Any
    inputs: list[str]
    outputs: list[str]

    def __init__(self, graph: onnx.GraphProto, around: object) -> None:
        self.graph = graph
        self.around = around
        self.inputs = [str(x.name) for x in graph.input]
        self.outputs = [str(x.name) for x in graph.output]


class Translator(calling.Translator, Protocol):
    """What a :class:`Call` asks of the translator that builds the graph."""

    def next_key(self, seed: float | None) -> sg.Output: ...
    def run_body(self, body: Body, args: Sequence[Any]) -> list[Any]: ...
    def trying(self) -> AbstractContextManager[None]: ...


class Call(calling.Call):
    """A node, as its rule sees it.

    Attributes:
        op_type, name, domain: of the node; a node without a name has that of its first result.
        opset: the version of the domain that the model, or the function around the node, imports.
        attributes: by name, as Python values; tensors as arrays, graphs as :class:`Body`.
        outputs: how many results the node has, with those that it leaves unnamed before others.
        schema: the operator's schema, ``onnx.defs.OpSchema``, or None.
        around: the values of the graph around the node, by name.
    """

    node: onnx.NodeProto
    schema: OpSchema | None
    around: Mapping[str, Any] | dict[str, Any]
    domain: str

    def __init__(
        self,
        node: onnx.NodeProto,
        name: str,
        opset: int,
        attributes: dict[str, Any],
        operands: Sequence[Any],
        translator: Translator,
        schema: OpSchema | None = None,
        around: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(str(node.op_type), name, len(node.output), attributes, operands, translator)
        self.node, self.schema, self.around = node, schema, around or {}
        self.domain = str(node.domain)
        self.opset = opset

    CURE = "make it an initializer, or fix the inputs that it is computed from with known={name: value}"

    # ---------------------------------------------------------------------------------------- questions

    def wants(self, i: int) -> bool:
        """Whether the node names its result *i*."""
        return i < self.outputs and bool(self.node.output[i])

    def operand_name(self, i: int) -> str:
        """An operand's name in the operator's schema, and in the model."""
        formal = ""
        if self.schema is not None and self.schema.inputs:
            formal = self.schema.inputs[min(i, len(self.schema.inputs) - 1)].name
        actual = self.node.input[i] if i < len(self.node.input) else ""
        return f"{formal or f'operand {i}'} ({actual!r})"

    @property
    def maximum_iterations(self) -> int | None:
        """The most steps of loops that a computed condition ends, if the user has said it."""
        limit: int | None = self._translator.maximum_iterations
        return limit

    # ----------------------------------------------------------------------------------------- quantised

    @property
    def straight(self) -> bool:
        """Whether gradients go straight through the rounding of quantised numbers."""
        return self._translator.soft is not None

    @property
    def adapted(self) -> bool:
        """Whether adapters may stand beside matrices of quantised numbers."""
        return self._translator.adapted

    def soften(self, whole: sg.Output, soft: sg.Output) -> None:
        """Remember of which numbers a tensor of integers is the rounding."""
        if self.straight:
            self._translator.soft[whole] = soft

    def moved(self, whole: sg.Output, move: Callable[[sg.Output], Any]) -> sg.Output:
        """A tensor of integers whose elements are only moved; the numbers that it remembers move alike."""
        result = move(whole)
        soft = self._translator.soft.get(whole) if self.straight else None
        if soft is not None:
            self.soften(result, move(soft))
        return result

    def dequantized(self, whole: sg.Output | Known, matrix: sg.Output) -> None:
        """Remember of which stored whole numbers a matrix of floats is made: adapters may stand beside it."""
        name = self._translator.stored.get(id(self.raw(whole)))
        if name is not None and matrix.ndim == 2:
            self._translator.dequantized.setdefault(name, []).append(matrix)

    def floated(self, whole: sg.Output, dtype: DType) -> sg.Output:
        """A tensor of integers as floats; if asked for, its gradient goes to what they were rounded from."""
        soft = self._translator.soft.get(whole) if self.straight else None
        hard = whole if whole.dtype is dtype else sg.cast(whole, dtype)
        if soft is None or not dtype.is_floating:
            return hard
        return sg.straight_through(hard, soft if soft.dtype is dtype else sg.cast(soft, dtype))

    # ------------------------------------------------------------------------------------------ operands

    def known(self, i: int, x: sg.Output | Known) -> np.ndarray[Any, Any]:
        """The value of operand *i* = *x*, which must be known when the graph is built.

        Raises:
            Refused: it is not.
        """
        return self._numbers(i, x)

    def number(self, i: int, x: sg.Output | Known) -> Any:
        """The one number or symbolic size that operand *i* = *x* holds, which must be known.

        Raises:
            Refused: it is not, or there are several.
        """
        value = self._translator.known(self.raw(x))
        if value is None:
            self.unknown(i, "the model computes it")
        if value.array.size != 1:
            self.fail(f"{self.operand_name(i)} is one number, not {value.array.size}")
        return value.array.reshape(-1).tolist()[0]

    # ------------------------------------------------------------------------------------------ building

    def named(self, name: str) -> sg.Output:
        """The value of a name in the graph around the node, as an output.

        Raises:
            Refused: no node before this one computes it.
        """
        tensor = self.tensor(self.around.get(name))
        if not isinstance(tensor, sg.Output):
            self.fail(f"it speaks of {name!r}, which is no tensor that stands before it")
        return tensor

    def having(self, attributes: dict[str, Any]) -> Call:
        """The same node with other attributes, for the rule of an operator that it comprises."""
        context = (self.operands, self._translator, self.schema, self.around)
        return Call(self.node, self.name, self.opset, attributes, *context)

    def key(self) -> sg.Output:
        """A key for random numbers, from the attribute ``seed``, or else a different one for each node."""
        seed = self.attributes.get("seed")
        return self._translator.next_key(None if seed is None else float(seed))

    def run(self, body: Body, args: Sequence[Any]) -> list[Any]:
        """Build a body for these values of its inputs; its results, as outputs."""
        return [self.tensor(y) for y in self.run_known(body, args)]

    def run_known(self, body: Body, args: Sequence[Any]) -> list[Any]:
        """As :meth:`run`, but known results are :class:`Known`."""
        results: list[Any] = self._translator.run_body(body, args)
        return results

    def trying(self) -> AbstractContextManager[None]:
        """A context in which bodies may fail: refusals inside are not reported; the caller says why."""
        return self._translator.trying()
