"""NumPy's elementwise functions, as nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.onnx_nodes.values import Value
from stopgrad.onnx_nodes.writing import BOOL, Writing, writes

# Functions of NumPy's that are one operator of ONNX on floating-point operands.
_UNARY = {
    **{"abs": "Abs", "negative": "Neg", "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "sqrt": "Sqrt"},
    **{"exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "arcsin": "Asin"},
    **{"arccos": "Acos", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh"},
    **{"arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh", "reciprocal": "Reciprocal"},
    "rint": "Round",
}
_BINARY = {
    **{"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "minimum": "Min"},
    **{"maximum": "Max", "power": "Pow"},
}
_COMPARING = {
    **{"equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater"},
    **{"greater_equal": "GreaterOrEqual"},
}
_LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}


class Elementwise(Writing):
    """Elementwise functions."""

    def astype(self, x: Any, dtype: Any) -> Any:
        return self.cast(x, dtype) if isinstance(x, Value) else np.asarray(x).astype(dtype)

    def positive(self, x: Any) -> Any:
        return x

    @writes
    def not_equal(self, x: Any, y: Any) -> Any:
        return self.logical_not(self.equal(x, y))  # type: ignore[attr-defined]

    @writes
    def logical_not(self, x: Any) -> Any:
        x = self.value(x, BOOL)
        return self.node("Not", [x], BOOL, x.shape)

    @writes
    def square(self, x: Any) -> Any:
        return x * x

    @writes
    def where(self, condition: Any, x: Any, y: Any) -> Any:
        dtype = self.common(x, y)
        condition, x, y = self.value(condition, BOOL), self.value(x, dtype), self.value(y, dtype)
        return self.node("Where", [condition, x, y], dtype, self.broadcast(condition, x, y))

    @writes
    def isnan(self, x: Any) -> Any:
        return self.node("IsNaN", [x], BOOL, x.shape)

    @writes
    def isinf(self, x: Any) -> Any:
        return self.node("IsInf", [x], BOOL, x.shape)

    @writes
    def isfinite(self, x: Any) -> Any:
        return self.logical_not(self.logical_or(self.isnan(x), self.isinf(x)))  # type: ignore[attr-defined]

    @writes
    def clip(self, x: Any, low: Any, high: Any) -> Any:
        return self.minimum(self.maximum(x, low), high)  # type: ignore[attr-defined]

    @writes
    def log1p(self, x: Any) -> Any:
        """By Kahan's formula, accurate where x is small."""
        u = x + 1.0
        return self.where(self.equal(u, 1.0), x, self.log(u) * (x / (u - 1.0)))  # type: ignore[attr-defined]


def _unary(name: str, op_type: str) -> Any:
    def function(self: Any, x: Any) -> Any:
        return self.elementwise(op_type, x)

    function.__name__ = name
    return writes(function)


def _binary(name: str, op_type: str, result: Any = None) -> Any:
    def function(self: Any, x: Any, y: Any) -> Any:
        return self.elementwise(op_type, x, y, result=result)

    function.__name__ = name
    return writes(function)


for _name, _op in _UNARY.items():
    setattr(Elementwise, _name, _unary(_name, _op))
for _name, _op in _BINARY.items():
    setattr(Elementwise, _name, _binary(_name, _op))
for _name, _op in {**_COMPARING, **_LOGICAL}.items():
    setattr(Elementwise, _name, _binary(_name, _op, BOOL))
