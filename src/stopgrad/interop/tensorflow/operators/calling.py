"""What the rules for TensorFlow's operations share: how a node calls them, and how a table is filled.

A rule is a function of a :class:`Call` and of the node's data operands, in order, without control inputs:
outputs of the graph that is being built. Those that decide about shapes arrive as :class:`Known`
(:func:`knows`; ``knows(-1)`` is the last operand). A rule builds with this library's public functions, and
returns an output, a tuple of them if the operation has several results, or None if it has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

import stopgrad as sg
from stopgrad.interop.shared import calling
from stopgrad.interop.shared.calling import (
    Known as Known,
    Rule as Rule,
    Table as Table,
    dtype_from as dtype_from,
    knows as knows,
    knows_all as knows_all,
)
from stopgrad.interop.shared.conversions import Refused as Refused
from stopgrad.interop.tensorflow.function_library import Library
from stopgrad.interop.tensorflow.nodes import Body, Function as Function, Source
from stopgrad.interop.tensorflow.objects import OUTSIDE


class Space(Protocol):
    """What a :class:`Call` asks of the names that its node can see."""

    body: Body
    path: str
    values: dict[str, Sequence[Any]]

    def read(self, source: Source) -> object: ...


class Translator(calling.Translator, Protocol):
    """What a :class:`Call` asks of the translator that builds the graph."""

    library: Library
    drawn: int

    def next_key(self, seed: int, seed2: int) -> sg.Output: ...
    def outside(self, source: Source) -> object: ...
    def trying(self) -> AbstractContextManager[None]: ...
    def inside(self, step: sg.Output | None = None) -> AbstractContextManager[None]: ...


class Call(calling.Call):
    """A node, as its rule sees it.

    Attributes:
        op_type, name: of the node.
        attributes: by name, as Python values: bytes as str, types as :class:`stopgrad.DType` (None for those
            that we lack), shapes as tuples with None for unknown sizes (None for an unknown number of axes),
            tensors as arrays, functions as :class:`Function`, lists as lists of these.
        outputs: how many results the node has.
        open_attributes: as ``AttrValue``: the node's own, and those that the function around was given.
    """

    open_attributes: Mapping[str, Any] | dict[str, Any]

    def __init__(
        self,
        op_type: str,
        name: str,
        outputs: int,
        attributes: dict[str, Any],
        operands: Sequence[Any],
        translator: Any,
        open_attributes: Mapping[str, Any] | None = None,
        depth: int = 0,
        space: object = None,
    ) -> None:
        super().__init__(op_type, name, outputs, attributes, operands, translator)
        self._space: Any = space
        self.open_attributes = open_attributes or {}
        self._depth = depth

    CURE = "make it a Const, or fix the inputs that it is computed from with known={name: value}"

    def known(self, x: sg.Output | Known) -> np.ndarray[Any, Any]:
        """The value of an operand, which must be known when the graph is built, and hold no symbolic size.

        Raises:
            Refused: it is not.
        """
        return self._numbers(self._position(x), x)

    def next_key(self, seed: int = 0, seed2: int = 0) -> sg.Output:
        """A key for random numbers: from the two seeds, or a different one for each node if both are 0."""
        return self._translator.next_key(seed, seed2)

    @property
    def read_results(self) -> int:
        """How many of its results others read, the last one that is read and all before it."""
        count: int = self._space.body.read_results(self.name.removeprefix(self._space.path))
        return count

    def captured(self, function: str) -> list[Any] | None:
        """What a function took from the one around the node; None if it is not known here."""
        captures: list[object] = []
        for name, source in self.library.objects.captured.get(function, ()):
            if name == OUTSIDE:
                captures.append(self._translator.outside(source))
            elif name == self._space.body.name and source[0] in self._space.values:
                captures.append(self._space.read(source))
            else:
                return None
        return captures

    @property
    def operands(self) -> tuple[Any, ...]:
        """All operands, known or not."""
        return self._raw

    @property
    def library(self) -> Library:
        """The functions of the graph, a :class:`stopgrad.interop.tensorflow.function_library.Library`."""
        return self._translator.library

    def key_count(self) -> int:
        """How many random keys were asked for until now."""
        count: int = self._translator.drawn
        return count

    def trying(self) -> AbstractContextManager[None]:
        """A context in which functions may fail: refusals inside are not reported; the caller says why."""
        attempt: AbstractContextManager[None] = self._translator.trying()
        return attempt

    def inside(self, step: sg.Output | None = None) -> AbstractContextManager[None]:
        """A context for the body of a branch, or of a loop at this step: there no variable is written."""
        context: AbstractContextManager[None] = self._translator.inside(step)
        return context

    def variable(self, name: str, is_reference: bool) -> object:
        """The variable of a name."""
        return self._translator.variable(name, is_reference)

    def write(self, variable: object, value: sg.Output | Known) -> None:
        """Give a variable another value.

        Raises:
            Refused: the node stands in a loop or branch.
        """
        self._translator.write(variable, value)

    def call(self, function: Function, args: Sequence[Any]) -> list[Any]:
        """Build a function's body for these arguments; its results, as outputs."""
        return [self.tensor(y) for y in self.call_known(function, args)]

    def call_known(
        self, function: Function, args: Sequence[Any], wanted: Sequence[tuple[str, int]] | None = None
    ) -> list[Any]:
        """As :meth:`call`, but known results are :class:`Known`, and lists and handles stay what they are.

        Results of other nodes of the function can be *wanted*, by their names and numbers.
        """
        results: list[Any] = self._translator.call(function, args, f"{self.name}/", self._depth + 1, wanted)
        return results
