"""Operators that compute each element by itself: arithmetic, logic, bits, comparisons, casts."""

from __future__ import annotations

from typing import Any

import stopgrad as sg
from stopgrad.onnx.operators.calling import Call, Table


def _binary(function: Any) -> Any:
    return lambda node, x, y: function(x, y)


def identity(node: Call, x: Any) -> Any:
    return x


ELEMENTWISE: Table = {
    "Add": _binary(sg.add),
    "Sub": _binary(sg.subtract),
    "Mul": _binary(sg.multiply),
    "Identity": identity,
}
