"""Arithmetic with sizes, which PyTorch writes with Python's operators."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

import stopgrad as sg
from stopgrad.interop.shared.conversions import Refused, Value
from stopgrad.interop.torch.importing.aten.calling import Call


def _binary(function: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    return lambda call, x, y: function(x, y)


def _divided(call: Call, x: Value, y: Value) -> Any:
    if isinstance(x, sg.Dim) or isinstance(y, sg.Dim):
        raise Refused("a quotient of sizes that is no whole number has no translation; use // or a tensor")
    return x / y


def _floating(call: Call, x: sg.Output | sg.Dim | float) -> Any:
    return x if isinstance(x, (sg.Output, sg.Dim)) else float(x)


def _whole(call: Call, x: sg.Output | sg.Dim | float) -> Any:
    return x if isinstance(x, (sg.Output, sg.Dim)) else int(x)


def _largest(call: Call, x: Value, y: Value) -> Any:
    return _extreme(max, x, y)


def _smallest(call: Call, x: Value, y: Value) -> Any:
    return _extreme(min, x, y)


def _extreme(function: Callable[..., Any], x: Value, y: Value) -> Any:
    if isinstance(x, (sg.Dim, sg.Output)) or isinstance(y, (sg.Dim, sg.Output)):
        if isinstance(x, sg.Dim) and isinstance(y, int) and y <= 1 and function is max:
            return x  # Symbolic sizes are taken to be at least 1.
        raise Refused("the larger or smaller of symbolic sizes has no translation; export with a fixed size")
    return function(x, y)


SIZES: dict[Any, Any] = {
    operator.add: _binary(operator.add),
    operator.sub: _binary(operator.sub),
    operator.mul: _binary(operator.mul),
    operator.floordiv: _binary(operator.floordiv),
    operator.mod: _binary(operator.mod),
    operator.pow: _binary(operator.pow),
    operator.truediv: _divided,
    operator.neg: lambda call, x: -x,
    math.ceil: lambda call, x: math.ceil(x),
    math.floor: lambda call, x: math.floor(x),
    math.trunc: _whole,
    torch.sym_int: _whole,
    torch.sym_float: _floating,
    torch.sym_max: _largest,
    torch.sym_min: _smallest,
}
"""Translations by the function that a node calls."""
