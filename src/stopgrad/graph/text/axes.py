"""Checks that the axes in an operation's attributes exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stopgrad.base.errors import GraphError
from stopgrad.graph.graph import Output
from stopgrad.graph.kinds import Kind
from stopgrad.graph.op import Op
from stopgrad.graph.operands import shorten

_AXES = (Kind.AXIS, Kind.AXES, Kind.PERMUTATION)


class Axes:
    """Knows which attributes of which definitions are axes."""

    def __init__(self) -> None:
        self._attributes: dict[type[Op], list[tuple[int, str, bool]]] = {}

    def check(self, definition: type[Op], inputs: Sequence[Output], values: Sequence[Any]) -> None:
        """Raise for axes that the first operand does not have. They are counted from the front."""
        attributes = self._attributes.get(definition)
        if attributes is None:
            attributes = self._attributes[definition] = [
                (i, name, kind is Kind.AXIS)
                for i, (name, kind) in enumerate(definition.kinds.items())
                if kind in _AXES
            ]
        for i, name, alone in attributes:
            axes = (values[i],) if alone else values[i]
            # A new axis may be behind the last one.
            end = (inputs[0].ndim if inputs else 0) + alone
            if len(set(axes)) < len(axes) or not all([0 <= axis < end for axis in axes]):  # noqa: C419
                raise GraphError(f"{name} is {shorten(values[i])}, which the operand does not have")
