"""NumPy's elementwise functions, as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.engines.onnxruntime.nodes import elementary
from stopgrad.engines.onnxruntime.nodes.node_writing import BOOL, Writing, writes
from stopgrad.engines.onnxruntime.nodes.values import Operand, Value

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)

# NumPy's functions that are a single operator of ONNX.
_UNARY = {
    **{"sign": "Sign", "sqrt": "Sqrt", "exp": "Exp", "log": "Log"},
    **{"tanh": "Tanh", "floor": "Floor", "ceil": "Ceil", "rint": "Round", "reciprocal": "Reciprocal"},
}
# Functions that runtimes have in float32 only. In float64 they are written as formulas.
_UNARY_IN_FLOAT32 = {
    **{"tan": "Tan", "arcsin": "Asin", "arccos": "Acos", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh"},
    **{"arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh"},
}
_BINARY = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "minimum": "Min", "maximum": "Max"}
_COMPARING = {
    **{"equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater"},
    **{"greater_equal": "GreaterOrEqual"},
}
_LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
_BITWISE = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"}


def _floating(x: Array) -> Any:
    """The dtype in which a function whose result is floating-point is computed, as in NumPy."""
    return FLOAT64 if x.dtype.kind in "biu" else x.dtype


class Elementwise(Writing):
    """Elementwise functions."""

    def astype(self, x: Operand, dtype: npt.DTypeLike) -> Any:
        return self.cast(x, dtype) if isinstance(x, Value) else np.asarray(x).astype(dtype)

    def positive(self, x: Array) -> Any:
        return x

    def broadcast_arrays(self, *xs: Operand) -> list[Any]:
        shape = self.broadcast(*xs)
        return [self.broadcast_to(x, shape) for x in xs]

    # ---------------------------------------------------------------------------------------- arithmetic

    @writes
    def negative(self, x: Array) -> Any:
        return self.elementwise("Neg", x)

    @writes
    def abs(self, x: Array) -> Any:
        return x if x.dtype == BOOL else self.elementwise("Abs", x)

    absolute = abs  # noqa: A003 - the method above

    @writes
    def square(self, x: Array) -> Any:
        return x * x

    @writes
    def divide(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        if dtype.kind in "biu":
            x, y = self.value(x, FLOAT64), self.value(y, FLOAT64)
        return self.elementwise("Div", x, y)

    true_divide = divide

    @writes
    def floor_divide(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        if dtype.kind in "iu":
            return self._whole_quotient(self.value(x, dtype), y)
        x, y = self.value(x, dtype), self.value(y, dtype)
        rest = self.fmod(x, y)
        quotient = (x - rest) / y
        quotient = self.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1.0, quotient)
        whole = self.floor(quotient)
        whole = self.where(quotient - whole > 0.5, whole + 1.0, whole)
        plain = x / y
        return self.where(y == 0, plain, self.where(quotient == 0, self.copysign(quotient, plain), whole))

    def _divisor(self, y: Any, dtype: np.dtype[Any]) -> tuple[Value, Any, Any]:
        """y with 1 in the place of 0 and -1, by which runtimes crash; and where these are."""
        if not isinstance(y, Value) and not np.any(np.isin(y, (0, -1))):
            return self.value(y, dtype), None, None
        y = self.value(y, dtype)
        zero, negative = y == 0, y == -1 if dtype.kind == "i" else None
        barred = zero if negative is None else self.logical_or(zero, negative)
        return self.where(barred, np.ones((), dtype), y), zero, negative

    def _whole_quotient(self, x: Value, y: Operand) -> Value:
        """The quotient rounded down; as in NumPy, 0 where y is 0."""
        divisor, zero, negative = self._divisor(y, x.dtype)
        quotient = self.elementwise("Div", x, divisor)
        if x.dtype.kind == "i":
            rest = x - quotient * divisor
            above = (rest != 0) & ((rest < 0) != (divisor < 0))
            quotient = quotient - self.cast(above, x.dtype)
        if negative is not None:
            quotient = self.where(negative, -x, quotient)
        return quotient if zero is None else self.where(zero, np.zeros((), x.dtype), quotient)

    @writes
    def remainder(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        if dtype.kind in "iu":
            # The divisor is 1 in the place of -1 and 0: the remainder is 0, as NumPy has it for both.
            return self.elementwise("Mod", self.value(x, dtype), self._divisor(y, dtype)[0])
        x, y = self.value(x, dtype), self.value(y, dtype)
        rest = self.fmod(x, y)
        moved = self.where((rest < 0) != (y < 0), rest + y, rest)
        return self.where(rest == 0, self.copysign(self.zeros_like(rest), y), moved)

    mod = remainder

    @writes
    def fmod(self, x: Operand, y: Operand) -> Any:
        """The remainder with the sign of x."""
        dtype = self.common(x, y)
        if dtype.kind not in "iu":
            return self.elementwise("Mod[fmod]", self.value(x, dtype), y, fmod=1)
        # For integers, the runtime would compute fmod with floats.
        x, y = self.value(x, dtype), self._divisor(y, dtype)[0]
        rest = self.elementwise("Mod", x, y)
        if dtype.kind == "u":
            return rest
        return self.where((rest != 0) & ((x < 0) != (y < 0)), rest - y, rest)

    @writes
    def power(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        if dtype.kind in "iu":
            return self._whole_power(self.value(x, dtype), self.value(y, dtype))
        return self.elementwise("Pow", x, y)

    float_power = power

    def _whole_power(self, x: Value, y: Value) -> Value:
        """Integer powers modulo 2ⁿ: squares in a loop over the bits of the exponent. Runtimes use floats."""
        shape = self.broadcast(x, y)
        kinds = [(np.dtype(np.int64), ()), (BOOL, ()), *[(x.dtype, shape)] * 3]

        def step(n: Value, goes_on: Value, power: Value, base: Value, exponent: Value) -> list[Any]:
            power = self.where((exponent & 1) == 1, power * base, power)
            return [goes_on, power, base * base, exponent >> 1]

        begin = [self.broadcast_to(v, shape) for v in (np.ones((), x.dtype), x, y)]
        bits = np.array(x.dtype.itemsize * 8, np.int64)
        body = self.body(kinds, step)
        return self.write("Loop", [bits, None, *begin], [(x.dtype, shape)] * 3, body=body)[0]

    # ------------------------------------------------------------------------------------------ rounding

    @writes
    def round(self, x: Array, decimals: int = 0) -> Any:
        if decimals:
            raise self.missing("rounding to decimals")
        return self.elementwise("Round", x) if x.dtype.kind not in "biu" else x

    @writes
    def trunc(self, x: Array) -> Any:
        return self.where(x < 0, self.ceil(x), self.floor(x))

    # --------------------------------------------------------------------------------------- comparisons

    @writes
    def not_equal(self, x: Operand, y: Operand) -> Any:
        return self.logical_not(self.equal(x, y))

    @writes
    def logical_not(self, x: Operand) -> Any:
        x = self.value(x, BOOL)
        return self.node("Not", [x], BOOL, x.shape)

    @writes
    def where(self, condition: Operand, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        if isinstance(condition, (bool, np.bool_)):
            return self.value(x if condition else y, dtype)
        condition, x, y = self.value(condition, BOOL), self.value(x, dtype), self.value(y, dtype)
        return self.node("Where", [condition, x, y], dtype, self.broadcast(condition, x, y))

    @writes
    def clip(self, x: Operand, low: Operand, high: Operand) -> Any:
        x = x if low is None else self.maximum(x, low)
        return x if high is None else self.minimum(x, high)

    @writes
    def isnan(self, x: Array) -> Any:
        if x.dtype.kind in "biu":
            return self.full_like(x, False, BOOL)
        return self.elementwise("IsNaN", x, result=BOOL)

    @writes
    def isinf(self, x: Array) -> Any:
        if x.dtype.kind in "biu":
            return self.full_like(x, False, BOOL)
        return self.elementwise("IsInf", x, result=BOOL)

    @writes
    def isfinite(self, x: Array) -> Any:
        if x.dtype.kind in "biu":
            return self.full_like(x, True, BOOL)
        return self.abs(x) < math.inf

    # ---------------------------------------------------------------------------------------------- bits

    @writes
    def invert(self, x: Array) -> Any:
        return self.logical_not(x) if x.dtype == BOOL else self.elementwise("BitwiseNot", x)

    bitwise_not = invert

    @writes
    def left_shift(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        x, y, beyond = self._shifted(x, y, dtype)
        shifted = self.elementwise("BitShift[LEFT]", x, y, direction="LEFT")
        shifted = shifted if beyond is None else self.where(beyond, np.zeros((), shifted.dtype), shifted)
        return self.cast(shifted, dtype)

    @writes
    def right_shift(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        x, y, beyond = self._shifted(x, y, dtype)
        if dtype.kind == "i":  # The complement of a negative number is shifted, and complemented again.
            mask = self.cast(
                self.where(self.cast(x, dtype) < 0, np.array(-1, dtype), np.array(0, dtype)), x.dtype
            )
            x = x ^ mask
        shifted = self.elementwise("BitShift[RIGHT]", x, y, direction="RIGHT")
        shifted = shifted if beyond is None else self.where(beyond, np.zeros((), shifted.dtype), shifted)
        return self.cast(shifted ^ mask if dtype.kind == "i" else shifted, dtype)

    def _shifted(self, x: Operand, y: Operand, dtype: np.dtype[Any]) -> tuple[Value, Value, Any]:
        """The bits of x, the distance, and where the distance exceeds the number of bits, as NumPy allows."""
        bits = np.dtype(f"uint{dtype.itemsize * 8}")
        x = self.cast(self.value(x, dtype), bits)
        if not isinstance(y, Value) and np.all((np.asarray(y) >= 0) & (np.asarray(y) < dtype.itemsize * 8)):
            return x, self.value(y, bits), None
        y = self.cast(self.value(y, dtype), bits)
        beyond = y >= dtype.itemsize * 8
        return x, self.where(beyond, np.zeros((), bits), y), beyond

    @writes
    def signbit(self, x: Array) -> Any:
        """False for NaN before version 26 of ONNX, which brings the operator that reads bits."""
        if x.dtype.kind in "biu":
            return x < 0
        if self.opset >= 26:
            return self.same_bits(x, np.dtype(f"int{x.dtype.itemsize * 8}")) < 0
        return (x < 0) | ((x == 0) & (self.divide(1.0, x) < 0))

    def same_bits(self, x: Array, dtype: npt.DTypeLike) -> Value:
        """The same bits as another dtype of the same size. Needs version 26 of ONNX."""
        return self.node("BitCast", [x], dtype, x.shape, to=np.dtype(dtype))

    @writes
    def copysign(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        x, y = self.value(x, dtype), self.value(y, dtype)
        # Not a choice between -|x| and |x|: the runtime's Where makes 0.0 of -0.0.
        return self.abs(x) * self.where(self.signbit(y), np.array(-1, dtype), np.array(1, dtype))

    @writes
    def nextafter(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        x, y = self.value(x, dtype), self.value(y, dtype)
        return elementary.nextafter(self, x, y)

    # --------------------------------------------------------------------------------------- mathematics

    def in_float64(self, function: Callable[..., Any], *xs: Operand) -> Value:
        """Applies a float64 formula to operands of any dtype, and casts the result back."""
        dtype = self.common(*xs)
        dtype = FLOAT64 if dtype.kind in "biu" else dtype
        return self.cast(function(self, *[self.value(x, FLOAT64) for x in xs]), dtype)

    @writes
    def expm1(self, x: Array) -> Any:
        return elementary.expm1(self, self.value(x, _floating(x)))

    @writes
    def log1p(self, x: Array) -> Any:
        return elementary.log1p(self, self.value(x, _floating(x)))

    @writes
    def logaddexp(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        return elementary.logaddexp(self, self.value(x, dtype), self.value(y, dtype))

    @writes
    def exp2(self, x: Array) -> Any:
        return self.power(np.array(2, _floating(x)), x)

    @writes
    def log2(self, x: Operand) -> Any:
        return self.in_float64(lambda xp, x: xp.log(x) * (1 / math.log(2)), x)

    @writes
    def log10(self, x: Operand) -> Any:
        return self.in_float64(lambda xp, x: xp.log(x) * (1 / math.log(10)), x)

    @writes
    def sin(self, x: Array) -> Any:
        x = self.value(x, _floating(x))
        return elementary.sin(self, x, self._sine) if x.dtype == FLOAT64 else self._sine(x)

    @writes
    def cos(self, x: Array) -> Any:
        x = self.value(x, _floating(x))
        return elementary.cos(self, x, self._sine, self._cosine) if x.dtype == FLOAT64 else self._cosine(x)

    def _sine(self, x: Value) -> Value:
        return self.elementwise("Sin", x)

    def _cosine(self, x: Value) -> Value:
        return self.elementwise("Cos", x)

    # ------------------------------------------------------------------------------------------- complex

    @writes
    def conj(self, x: Array) -> Any:
        return x

    conjugate = conj

    @writes
    def real(self, x: Array) -> Any:
        return x

    @writes
    def imag(self, x: Array) -> Any:
        return self.zeros_like(x)


def _unary(name: str, op_type: str) -> Any:
    def function(self: Writing, x: Array) -> Any:
        return self.elementwise(op_type, self.value(x, _floating(x)) if op_type != "Sign" else x)

    function.__name__ = name
    return writes(function)


def _unary_in_float32(name: str, op_type: str) -> Any:
    formula = getattr(elementary, name)

    def function(self: Writing, x: Array) -> Any:
        x = self.value(x, _floating(x))
        return formula(self, x) if x.dtype == FLOAT64 else self.elementwise(op_type, x)

    function.__name__ = name
    return writes(function)


def _through_float64(name: str) -> Any:
    formula = getattr(elementary, name)

    def function(self: Writing, *xs: Operand) -> Any:
        return self.in_float64(formula, *xs)

    function.__name__ = name
    return writes(function)


def _binary(name: str, op_type: str, result: npt.DTypeLike | None = None) -> Any:
    def function(self: Writing, x: Array, y: Operand) -> Any:
        return self.elementwise(op_type, x, y, result=result)

    function.__name__ = name
    return writes(function)


def _logical(name: str, op_type: str) -> Any:
    def function(self: Writing, x: Array, y: Operand) -> Any:
        return self.elementwise(op_type, self.value(x, BOOL), self.value(y, BOOL))

    function.__name__ = name
    return writes(function)


def _bitwise(name: str, op_type: str) -> Any:
    def function(self: Writing, x: Array, y: Operand) -> Any:
        return self.elementwise(op_type if self.common(x, y) == BOOL else f"Bitwise{op_type}", x, y)

    function.__name__ = name
    return writes(function)


for _name, _op in _UNARY.items():
    setattr(Elementwise, _name, _unary(_name, _op))
for _name, _op in _UNARY_IN_FLOAT32.items():
    setattr(Elementwise, _name, _unary_in_float32(_name, _op))
for _name in ("arctan2", "cbrt", "hypot"):
    setattr(Elementwise, _name, _through_float64(_name))
for _name, _op in _BINARY.items():
    setattr(Elementwise, _name, _binary(_name, _op))
for _name, _op in _COMPARING.items():
    setattr(Elementwise, _name, _binary(_name, _op, BOOL))
for _name, _op in _LOGICAL.items():
    setattr(Elementwise, _name, _logical(_name, _op))
for _name, _op in _BITWISE.items():
    setattr(Elementwise, _name, _bitwise(_name, _op))
