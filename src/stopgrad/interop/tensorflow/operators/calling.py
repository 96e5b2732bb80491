"""What the rules for TensorFlow's operations share: how a node calls them, and how a table is filled.

A rule is a function of a :class:`Call` and of the node's data operands, in order, without control inputs:
outputs of the graph that is being built. Those that decide about shapes arrive as :class:`Known`
(:func:`knows`; ``knows(-1)`` is the last operand). A rule builds with this library's public functions, and
returns an output, a tuple of them if the operation has several results, or None if it has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import stopgrad as sg
from stopgrad.interop.shared import calling
from stopgrad.interop.shared.calling import (
    Known as Known,
    Rule as Rule,
    Table as Table,
    dtype_from as dtype_from,
    knows as knows,
)
from stopgrad.interop.shared.conversions import Refused as Refused


class Function(NamedTuple):
    """A function of the graph's library, as an attribute names it.

    Attributes:
        name: the function.
        attributes: values for the attributes that its body leaves open, as ``AttrValue``.
    """

    name: str
    attributes: Mapping[str, Any]


class Call(calling.Call):
    """A node, as its rule sees it.

    Attributes:
        op_type, name: of the node.
        attributes: by name, as Python values: bytes as str, types as :class:`stopgrad.DType` (None for those
            that we lack), shapes as tuples with None for unknown sizes (None for an unknown number of axes),
            tensors as arrays, functions as :class:`Function`, lists as lists of these.
        outputs: how many results the node has; 0 if the file does not tell, and nothing reads any.
    """

    CURE = "make it a Const, or fix the inputs that it is computed from with known={name: value}"

    def known(self, x: sg.Output | Known) -> np.ndarray[Any, Any]:
        """The value of an operand, which must be known when the graph is built, and hold no symbolic size.

        Raises:
            Refused: it is not.
        """
        return self._numbers(self._position(x), x)

    def next_key(self, seed: int = 0, seed2: int = 0) -> Any:
        """A key for random numbers: from the two seeds, or a different one for each node if both are 0."""
        return self._translator.next_key(seed, seed2)

    def call(self, function: Function, args: Sequence[Any]) -> list[Any]:
        """Build a function's body for these arguments; its results, as outputs."""
        return [self.tensor(y) for y in self.call_known(function, args)]

    def call_known(self, function: Function, args: Sequence[Any]) -> list[Any]:
        """As :meth:`call`, but known results are :class:`Known`, and lists and handles stay what they are."""
        found: list[Any] = self._translator.call(function, args)
        return found
