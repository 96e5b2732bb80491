"""What the rules for ONNX's operators share: how a node calls them, and how a table is filled.

A rule is a function of a :class:`Call` and of the node's operands, in order: outputs of the graph that is
being built, lists of them for sequences, None for optional ones that are missing. Those that
decide about shapes arrive as :class:`Known` (:func:`knows`). A rule builds with this library's public
functions, and returns an output, or a tuple of them if the operator has several results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
import onnx
from onnx.defs import OpSchema

import stopgrad as sg
from stopgrad.base.types import DType, DTypeLike, dtype_of
from stopgrad.interop.shared.conversions import Refused as Refused

Rule = Callable[..., Any]
Table = dict[str, Rule]

R = TypeVar("R", bound=Rule)


class Known:
    """A value that is known while the graph is built: numbers, or sizes that may be symbolic.

    Attributes:
        array: the values; an array of objects where a :class:`stopgrad.Dim` is among them.
        dtype: the element type; for symbolic sizes, the one to which they would be cast; None for one that
            we lack, such as float8.
        initializer: the name of the parameter whose stored value it is, or "".
    """

    __slots__ = ("array", "dtype", "initializer", "output")

    def __init__(
        self,
        array: np.generic | np.ndarray[Any, Any],
        dtype: DType | None = None,
        initializer: str = "",
        output: sg.Output | None = None,
    ) -> None:
        self.array: np.ndarray[Any, Any] = array if isinstance(array, np.ndarray) else np.asarray(array)
        self.dtype = dtype_from(self.array.dtype) if dtype is None else dtype
        self.initializer = initializer
        self.output = output  # The parameter or constant for it in the graph, once there is one.

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def is_symbolic(self) -> bool:
        """Whether a symbolic size is among the values."""
        return self.array.dtype.kind == "O"

    def __repr__(self) -> str:
        return f"<Known {self.dtype} {self.array!r:.80}>"


def dtype_from(dtype: DTypeLike) -> DType | None:
    """Our element type for a dtype, or None."""
    try:
        return dtype_of(dtype)
    except sg.DTypeError:
        return None


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

    def __init__(self, graph: onnx.GraphProto, around: Any) -> None:
        self.graph = graph
        self.around = around
        self.inputs = [str(x.name) for x in graph.input]
        self.outputs = [str(x.name) for x in graph.output]


def knows(*positions: int) -> Callable[[R], R]:
    """Decorator: the rule takes the operands at these positions as known values, not as tensors.

    They arrive as :class:`Known`, or as outputs if their values are not known. No constant is built for them,
    and a floating-point initializer that is only used so becomes no parameter.
    """

    def decorate(rule: R) -> R:
        KNOWS[rule] = frozenset(positions)
        return rule

    return decorate


KNOWS: dict[Rule, frozenset[int]] = {}
"""The positions of the operands that a rule takes as known values."""


class Translator(Protocol):
    """What a :class:`Call` asks of the translator that builds the graph."""

    def known(self, x: object) -> Known | None: ...
    def tensor(self, x: object) -> Any: ...
    def next_key(self, seed: float | None) -> Any: ...
    def run_body(self, body: Body, args: Sequence[Any]) -> list[Any]: ...
    def trying(self) -> AbstractContextManager[None]: ...


class Call:
    """A node, as its rule sees it.

    Attributes:
        op_type, name, domain: of the node; a node without a name has that of its first result.
        opset: the version of the domain that the model, or the function around the node, imports.
        attributes: by name, as Python values; tensors as arrays, graphs as :class:`Body`.
        outputs: how many results the node has, with those that it leaves unnamed before others.
        schema: the operator's schema, ``onnx.defs.OpSchema``, or None.
        around: the values of the graph around the node, by name.
    """

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
        self.node, self.schema, self.around = node, schema, around or {}
        self.op_type, self.domain, self.name = str(node.op_type), str(node.domain), name
        self.opset = opset
        self.attributes = attributes
        self.outputs = len(node.output)
        self._raw = tuple(operands)
        self._given: Sequence[Any] = self._raw
        self._translator = translator

    # ---------------------------------------------------------------------------------------- questions

    def wants(self, i: int) -> bool:
        """Whether the node names its result *i*."""
        return i < self.outputs and bool(self.node.output[i])

    def attribute(self, name: str, default: object = None) -> Any:
        """An attribute, or a default if the node does not have it."""
        return self.attributes.get(name, default)

    def fail(self, reason: str) -> NoReturn:
        """Refuse to translate the node, for this reason."""
        raise Refused(reason)

    def operand_name(self, i: int) -> str:
        """An operand's name in the operator's schema, and in the model."""
        formal = ""
        if self.schema is not None and self.schema.inputs:
            formal = self.schema.inputs[min(i, len(self.schema.inputs) - 1)].name
        given = self.node.input[i] if i < len(self.node.input) else ""
        return f"{formal or f'operand {i}'} ({given!r})"

    # ------------------------------------------------------------------------------------------ operands

    def raw(self, x: object) -> Any:
        """The :class:`Known` from which an operand was made, or the operand itself."""
        for given, raw in zip(self._given, self._raw, strict=True):
            if given is x:
                return raw
        return x

    def is_known(self, x: sg.Output | Known) -> bool:
        """Whether the value of an operand is known."""
        return self._translator.known(self.raw(x)) is not None

    def known(self, i: int, x: sg.Output | Known) -> np.ndarray[Any, Any]:
        """The value of operand *i* = *x*, which must be known when the graph is built.

        Raises:
            Refused: it is not.
        """
        found = self._translator.known(self.raw(x))
        if found is not None and not found.is_symbolic:
            array: np.ndarray[Any, Any] = found.array
            return array
        self.unknown(i, "a symbolic size is in it" if found is not None else "the model computes it")

    def sizes(self, x: sg.Output | Known, i: int | None = None) -> tuple[Any, ...]:
        """The sizes that an operand holds, as numbers or :class:`stopgrad.Dim`.

        Raises:
            Refused: they are not known when the graph is built.
        """
        found = self._translator.known(self.raw(x))
        if found is None:
            self.unknown(self._position(x) if i is None else i, "the model computes it")
        return tuple([s if isinstance(s, sg.Dim) else int(s) for s in found.array.reshape(-1).tolist()])

    def number(self, i: int, x: sg.Output | Known) -> Any:
        """The one number or symbolic size that operand *i* = *x* holds, which must be known.

        Raises:
            Refused: it is not, or there are several.
        """
        found = self._translator.known(self.raw(x))
        if found is None:
            self.unknown(i, "the model computes it")
        if found.array.size != 1:
            self.fail(f"{self.operand_name(i)} is one number, not {found.array.size}")
        return found.array.reshape(-1).tolist()[0]

    def _position(self, x: object) -> int:
        return next((i for i, given in enumerate(self._given) if given is x), 0)

    def unknown(self, i: int, why: str) -> NoReturn:
        """Refuse the node because operand *i* is not known when the graph is built."""
        self.fail(
            f"{self.operand_name(i)} must be known when the graph is built, and {why}; make it an "
            "initializer, or fix the inputs that it is computed from with known={name: value}"
        )

    # ------------------------------------------------------------------------------------------ building

    def tensor(self, x: sg.Output | Known | Sequence[Any] | None) -> Any:
        """An operand as an output, also if it is a :class:`Known`."""
        return self._translator.tensor(x)

    def named(self, name: str) -> Any:
        """The value of a name in the graph around the node, as an output.

        Raises:
            Refused: no node before this one computes it.
        """
        found = self.tensor(self.around.get(name))
        if not isinstance(found, sg.Output):
            self.fail(f"it speaks of {name!r}, which is no tensor that stands before it")
        return found

    def key(self) -> Any:
        """A key for random numbers, from the attribute ``seed``, or else a different one for each node."""
        seed = self.attributes.get("seed")
        return self._translator.next_key(None if seed is None else float(seed))

    def run(self, body: Body, args: Sequence[Any]) -> list[Any]:
        """Build a body for these values of its inputs; its results, as outputs."""
        return [self.tensor(y) for y in self.run_known(body, args)]

    def run_known(self, body: Body, args: Sequence[Any]) -> list[Any]:
        """As :meth:`run`, but known results are :class:`Known`."""
        found: list[Any] = self._translator.run_body(body, args)
        return found

    def trying(self) -> Any:
        """A context in which bodies may fail: refusals inside are not reported; the caller says why."""
        return self._translator.trying()
