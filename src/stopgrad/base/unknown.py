"""The operators, Python's and NumPy's, of whole numbers that are not known yet.

Sizes themselves define the operators whose result is a size. All others build an operation on tensors, or
raise an error that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np

from stopgrad.base.coercion import is_whole
from stopgrad.base.errors import ArgumentError, ShapeError

ON_TENSORS: dict[str, Callable[[Any, Any], Any]] = {}
"""Python's operators on tensors, by name. ``ops.operators``, which is above this module, fills it."""

_SIGNS = {
    **{"add": "+", "sub": "-", "mul": "*", "pow": "**", "floordiv": "//", "mod": "%"},
    **{"truediv": "/", "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"},
    **{"lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_UFUNCS = {
    **{"add": "add", "subtract": "sub", "multiply": "mul", "power": "pow", "floor_divide": "floordiv"},
    **{"remainder": "mod", "divide": "truediv", "matmul": "matmul", "bitwise_and": "and"},
    **{"bitwise_or": "or", "bitwise_xor": "xor", "left_shift": "lshift", "right_shift": "rshift"},
    **{"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"},
    **{"equal": "eq", "not_equal": "ne"},
}


def no_value(what: str) -> ShapeError:
    """The error for an expression of sizes that is not a size."""
    return ShapeError(
        f"{what} has no value yet, and is no size: sizes are known when values are fed. Use // for a size, "
        "x / n and x * n for a tensor x, and otherwise sg.size(x, axis=0), a tensor that can be cast"
    )


def _undecided(a: object, sign: str, b: object) -> ShapeError:
    return ShapeError(
        f"whether {a!r} {sign} {b!r} is known when a value is fed: give the size as a number where the "
        "placeholder or the shapes of sg.function name it, or compare sg.size(x, axis=0), a tensor, for "
        "sg.cond or sg.where"
    )


def _is_flag(x: Any) -> bool:
    return x.shape == () and str(x.dtype) == "bool"


def of_sizes(name: str, reflected: bool = False) -> Callable[[Any], Any]:
    """Decorator for an operator of sizes; with a tensor or an array it becomes that operator of tensors.

    With anything else it raises an error that says what to do.
    """

    def decorate(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def operate(self: Unknown, other: object) -> Any:
            if isinstance(other, (int, Unknown)) or is_whole(other):
                return method(self, other)
            if hasattr(other, "as_output"):
                return NotImplemented  # An output has the operator itself.
            if hasattr(other, "shape") and hasattr(other, "dtype") and not _is_flag(other):
                return ON_TENSORS[name](other, self) if reflected else ON_TENSORS[name](self, other)
            if not isinstance(other, (float, complex)):
                raise ArgumentError(
                    f"{other!r:.60} is no size: sizes are whole numbers, "
                    "and what is computed from them and from other sizes"
                )
            if name in _MIRRORED:
                raise _undecided(self, _SIGNS[name], other)
            a, b = (other, self) if reflected else (self, other)
            raise no_value(f"{a!r} {_SIGNS[name]} {b!r}")

        return operate

    return decorate


class Unknown:
    """A whole number that is not known yet. The subclass defines its arithmetic.

    ``==`` is identity, so ``n == 3`` is False whatever the number turns out to be.
    """

    __slots__ = ()

    def is_at_least(self, other: Any) -> bool | None:
        """Whether it is at least *other* for all values of the names; None if that depends on them."""
        raise NotImplementedError

    @of_sizes("lt")
    def __lt__(self, other: int | Unknown) -> bool:
        return not self._decided(other, other, "<")

    @of_sizes("ge")
    def __ge__(self, other: int | Unknown) -> bool:
        return self._decided(other, other, ">=")

    @of_sizes("gt")
    def __gt__(self, other: Any) -> bool:
        return self._decided(other + 1, other, ">")

    @of_sizes("le")
    def __le__(self, other: Any) -> bool:
        return not self._decided(other + 1, other, "<=")

    def _decided(self, low: int | Unknown, other: object, sign: str) -> bool:
        answer = self.is_at_least(low)
        if answer is None:
            raise _undecided(self, sign, other)
        return answer

    def __divmod__(self: Any, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self: Any, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __pos__(self) -> Self:
        return self

    __floor__ = __pos__
    __ceil__ = __pos__
    __trunc__ = __pos__

    def __round__(self, digits: int | None = None) -> Self:
        return self

    def __abs__(self) -> Self:
        if self.is_at_least(0):
            return self
        raise no_value(f"abs({self!r})")

    def __invert__(self) -> NoReturn:
        raise no_value(f"~{self!r}")

    def __int__(self) -> int:
        raise ShapeError(
            f"the size {self!r} has no value yet: it is known when a value is fed; "
            "for its value in the graph use sg.size, and for a loop over it sg.scan"
        )

    __index__ = __int__

    def __float__(self) -> float:
        raise no_value(f"float({self!r})")

    def __complex__(self) -> complex:
        raise no_value(f"complex({self!r})")

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec.rstrip("dn"))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **_: object) -> Any:
        """The result of a NumPy function, or of an operator of NumPy's numbers and arrays, on a size."""
        name = _UFUNCS.get(ufunc.__name__, "") if method == "__call__" and len(inputs) == 2 else ""
        if not name:
            raise no_value(f"np.{ufunc.__name__} of {self!r}")
        a, b = inputs
        if name in ("eq", "ne"):  # A number never equals an unknown size; arrays are compared by element.
            alone = not any(getattr(x, "shape", ()) for x in inputs)
            return name == "ne" if alone else ON_TENSORS[name](a, b)
        if isinstance(a, Unknown):
            return getattr(a, f"__{name}__")(b)
        return getattr(b, f"__{_MIRRORED.get(name) or f'r{name}'}__")(a)


def _refuse(name: str, reflected: bool) -> None:
    """Add an operator whose result is never a size: an error, or with tensors the operator of tensors."""

    def refused(self: Unknown, other: object) -> NoReturn:
        a, b = (other, self) if reflected else (self, other)
        raise no_value(f"{a!r} {_SIGNS[name]} {b!r}")

    setattr(Unknown, f"__{'r' if reflected else ''}{name}__", of_sizes(name, reflected)(refused))


for _name in ("truediv", "matmul", "and", "or", "xor", "lshift", "rshift"):
    _refuse(_name, False)
    _refuse(_name, True)
_refuse("pow", True)
