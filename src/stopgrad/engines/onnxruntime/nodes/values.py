"""Values: the arrays that lowerings compute with while they write nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array, Namespace
from stopgrad.base.types import Dim, Shape, Size, product
from stopgrad.graph.operands import NumpyArray

Operand: TypeAlias = "Array | Dim | complex | Sequence[Operand]"
"""What can become a value: values, sizes, numbers, NumPy's arrays, and lists of these."""
_Place: TypeAlias = "Size | slice | EllipsisType | Value | NumpyArray | list[int] | None"
Index: TypeAlias = "_Place | tuple[_Place, ...]"
"""What an index of a value can be, in all or along an axis."""


class Value:
    """An array of an ONNX graph that is being written. It has NumPy's operators and methods.

    Attributes:
        name: its name in the graph.
        dtype: of its elements.
        shape: its sizes, which may be symbolic.
    """

    __slots__ = ("dtype", "name", "shape", "xp")
    __array_ufunc__ = None  # With NumPy's arrays, the operators of this class are called.

    if TYPE_CHECKING:  # The operators are set below.

        def __add__(self, other: Operand) -> Value: ...
        def __radd__(self, other: Operand) -> Value: ...
        def __sub__(self, other: Operand) -> Value: ...
        def __rsub__(self, other: Operand) -> Value: ...
        def __mul__(self, other: Operand) -> Value: ...
        def __rmul__(self, other: Operand) -> Value: ...
        def __truediv__(self, other: Operand) -> Value: ...
        def __rtruediv__(self, other: Operand) -> Value: ...
        def __floordiv__(self, other: Operand) -> Value: ...
        def __mod__(self, other: Operand) -> Value: ...
        def __pow__(self, other: Operand) -> Value: ...
        def __matmul__(self, other: Operand) -> Value: ...
        def __and__(self, other: Operand) -> Value: ...
        def __or__(self, other: Operand) -> Value: ...
        def __xor__(self, other: Operand) -> Value: ...
        def __lshift__(self, other: Operand) -> Value: ...
        def __rshift__(self, other: Operand) -> Value: ...
        def __lt__(self, other: Operand) -> Value: ...
        def __le__(self, other: Operand) -> Value: ...
        def __gt__(self, other: Operand) -> Value: ...
        def __ge__(self, other: Operand) -> Value: ...
        def __eq__(self, other: object) -> Value: ...  # type: ignore[override]  # by element
        def __ne__(self, other: object) -> Value: ...  # type: ignore[override]  # by element
        def __hash__(self) -> int: ...
        def __neg__(self) -> Value: ...
        def __abs__(self) -> Value: ...
        def __invert__(self) -> Value: ...

    xp: Namespace
    name: str
    shape: tuple[Size, ...]
    dtype: np.dtype[Any]

    def __init__(self, xp: Namespace, name: str, dtype: npt.DTypeLike, shape: Shape) -> None:
        self.xp = xp
        self.name = name
        self.dtype = np.dtype(dtype)
        self.shape = tuple(shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int | Dim:
        return product(self.shape)

    @property
    def T(self) -> Value:  # noqa: N802 - as NumPy has it
        return self.xp.transpose(self)

    @property
    def real(self) -> Value:
        return self.xp.real(self)

    @property
    def imag(self) -> Value:
        return self.xp.imag(self)

    def astype(self, dtype: npt.DTypeLike, copy: bool = True) -> Value:
        return self.xp.astype(self, dtype)

    def reshape(self, *shape: Size | Sequence[Size]) -> Value:
        return self.xp.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: int) -> Value:
        return self.xp.transpose(self, *axes)

    def __getitem__(self, index: Index) -> Value:
        return self.xp.getitem(self, index)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        size = self.shape[0]
        if isinstance(size, Dim):
            raise self.xp.unsized(f"the number of rows, {size},")
        return size

    def __iter__(self) -> Iterator[Any]:
        # Without it, Python would index until an IndexError, which does not come.
        return iter([self[i] for i in range(len(self))])

    def __bool__(self) -> bool:
        raise self.xp.missing("a decision by a value, while the graph is written,")

    __float__ = __bool__
    __int__ = __bool__
    __index__ = __bool__

    def __repr__(self) -> str:
        return f"<Value {self.name}: {self.dtype}{list(self.shape)}>"


def _method(name: str) -> Callable[..., Value]:
    return lambda self, *args, **kwargs: getattr(self.xp, name)(self, *args, **kwargs)


for _name in ("sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin", "squeeze", "swapaxes"):
    setattr(Value, _name, _method(_name))
for _name in ("conj", "cumsum", "flatten", "ravel", "round", "clip", "repeat"):
    setattr(Value, _name, _method(_name))

_OPERATORS = {
    **{"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide"},
    **{"mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or"},
    **{"xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift"},
}
for _name, _function in _OPERATORS.items():
    setattr(Value, f"__{_name}__", lambda self, other, f=_function: getattr(self.xp, f)(self, other))
    setattr(Value, f"__r{_name}__", lambda self, other, f=_function: getattr(self.xp, f)(other, self))
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
for _name, _function in {**_COMPARISONS, "eq": "equal", "ne": "not_equal"}.items():
    setattr(Value, f"__{_name}__", lambda self, other, f=_function: getattr(self.xp, f)(self, other))
for _name, _function in {"neg": "negative", "invert": "invert", "abs": "abs", "pos": "positive"}.items():
    setattr(Value, f"__{_name}__", lambda self, f=_function: getattr(self.xp, f)(self))
Value.__hash__ = object.__hash__  # type: ignore[method-assign]
