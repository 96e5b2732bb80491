"""Element types, sizes and tensor types. All are interned: two equal ones are the same object.

A *size* is an ``int`` or a :class:`Dim`, a polynomial with integer coefficients over named sizes, kept in
normal form, so ``n*n + 2*n + 1`` and ``(n + 1) * (n + 1)`` are one object. What is no polynomial, such as
``n // 2``, is a named unknown of its own that remembers how to compute itself. Equality of objects
(``==``) is total; whether two sizes *must* be equal is the separate question :func:`same_size`.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import math
import operator
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from stopgrad.errors import ArgumentError, DTypeError, ShapeError


class DType:
    """The type of one element.

    Examples:
        >>> float32.name, float32.itemsize, float32.is_floating
        ('float32', 4, True)
    """

    __slots__ = (
        "is_bool",
        "is_complex",
        "is_differentiable",
        "is_floating",
        "is_integer",
        "itemsize",
        "kind",
        "name",
        "numpy",
        "real",
    )

    name: str
    numpy: np.dtype[Any]
    real: DType

    def __init__(self, name: str, numpy: Any, kind: str) -> None:
        self.name = name
        self.numpy = np.dtype(numpy)
        self.kind = kind
        self.itemsize = self.numpy.itemsize
        self.is_bool = kind == "b"
        self.is_integer = kind in "iu"
        self.is_floating = kind == "f"
        self.is_complex = kind == "c"
        self.is_differentiable = kind in "fc"
        self.real = self

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_of, (self.name,)


DTYPES: dict[str, DType] = {}


def _define(name: str, numpy: Any, kind: str) -> DType:
    return DTYPES.setdefault(name, DType(name, numpy, kind))


float16 = _define("float16", np.float16, "f")
bfloat16 = _define("bfloat16", ml_dtypes.bfloat16, "f")
float32 = _define("float32", np.float32, "f")
float64 = _define("float64", np.float64, "f")
complex64 = _define("complex64", np.complex64, "c")
complex128 = _define("complex128", np.complex128, "c")
int8 = _define("int8", np.int8, "i")
int16 = _define("int16", np.int16, "i")
int32 = _define("int32", np.int32, "i")
int64 = _define("int64", np.int64, "i")
uint8 = _define("uint8", np.uint8, "u")
uint16 = _define("uint16", np.uint16, "u")
uint32 = _define("uint32", np.uint32, "u")
uint64 = _define("uint64", np.uint64, "u")
bool_ = _define("bool", np.bool_, "b")
complex64.real = float32
complex128.real = float64

_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES.values()}
_BY_PYTHON = {bool: bool_, int: int32, float: float32, complex: complex64}

DTypeLike = DType | str | type | np.dtype


def dtype_of(x: Any) -> DType:
    """The :class:`DType` meant by a name, a NumPy dtype or scalar type, or a Python number type.

    Examples:
        >>> dtype_of("float32") is float32 is dtype_of(np.float32) is dtype_of(float)
        True
    """
    if type(x) is DType:
        return x
    if isinstance(x, str) and x in DTYPES:
        return DTYPES[x]
    try:
        return (
            _BY_PYTHON[x]
            if isinstance(x, type) and x in _BY_PYTHON
            else _BY_NUMPY[np.dtype(x).newbyteorder("=")]
        )
    except (KeyError, TypeError):
        raise DTypeError(f"{x!r} is no element type of stopgrad; it has {', '.join(DTYPES)}") from None


# ---------------------------------------------------------------------------------------------- sizes

Shape = tuple["int | Dim", ...]
_Monomial = tuple[tuple[str, int], ...]


class Dim:
    """A size not known until values are fed: a polynomial over named sizes. Made by :func:`dim`.

    Examples:
        >>> n = dim("n")
        >>> (n + 1) * (n + 1) is n * n + 2 * n + 1
        True
        >>> (n * 6) // 3, 2 * n - n - n, (n + 1) // 2
        (2*n, 0, (n + 1)//2)
    """

    __slots__ = ("terms",)

    terms: tuple[tuple[_Monomial, int], ...]

    def __add__(self, other: int | Dim) -> int | Dim:
        total = dict(self.terms)
        for monomial, factor in _terms(other):
            total[monomial] = total.get(monomial, 0) + factor
        return _normal(total)

    def __mul__(self, other: int | Dim) -> int | Dim:
        total: dict[_Monomial, int] = {}
        for (a, p), (b, q) in itertools.product(self.terms, _terms(other)):
            powers = dict(a)
            for name, power in b:
                powers[name] = powers.get(name, 0) + power
            monomial = tuple(sorted(powers.items(), key=lambda p: _rank(p[0])))
            total[monomial] = total.get(monomial, 0) + p * q
        return _normal(total)

    def __neg__(self) -> int | Dim:
        return self * -1

    def __sub__(self, other: int | Dim) -> int | Dim:
        return self + -other

    def __rsub__(self, other: int | Dim) -> int | Dim:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: int | Dim) -> int | Dim:
        exact = exact_quotient(self, other)
        return exact if exact is not None else _derived("//", self, other)

    def __rfloordiv__(self, other: int) -> int | Dim:
        return _derived("//", other, self)

    def __mod__(self, other: int | Dim) -> int | Dim:
        return self - (self // other) * other

    def __int__(self) -> int:
        raise ShapeError(
            f"the size {self!r} has no value yet: it is known when a value is fed; "
            "for its value in the graph use sg.size"
        )

    __index__ = __int__

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        parts = []
        for monomial, factor in self.terms:
            alone = factor == 1 and len(monomial) == 1 and monomial[0][1] == 1
            names = [
                _text(name, alone) if power == 1 else f"{_text(name, alone)}**{power}"
                for name, power in monomial
            ]
            parts.append("*".join(names if factor == 1 and names else [str(factor), *names]))
        return " + ".join(parts).replace("+ -", "- ")

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (repr(self), _process())


Size = int | Dim

# What the text form of a graph writes for something else.
_RESERVED = {*DTYPES, "inf", "nan", "max", "array"}

_DIMS: dict[Any, Dim] = {}
_DERIVED: dict[str, tuple[str, Any, Any]] = {}
_FRESH = itertools.count(1)


def _terms(size: int | Dim) -> tuple[tuple[_Monomial, int], ...]:
    if isinstance(size, Dim):
        return size.terms
    try:
        return (((), operator.index(size)),)
    except TypeError:
        raise ArgumentError(
            f"{size!r} is no size: sizes are whole numbers, "
            "and what is computed from them and from other sizes"
        ) from None


def _text(name: str, alone: bool) -> str:
    """A name as a factor: a quotient in brackets, where it does not stand alone."""
    return name if alone or name not in _DERIVED or _DERIVED[name][0] == "max" else f"({name})"


def _normal(total: Mapping[_Monomial, int]) -> int | Dim:
    terms = tuple(
        sorted(
            ((m, f) for m, f in total.items() if f),
            key=lambda t: (-sum(p for _, p in t[0]), [(_rank(n), p) for n, p in t[0]]),
        )
    )
    if not terms or terms[0][0] == ():
        return terms[0][1] if terms else 0
    found = _DIMS.get(terms)
    if found is None:
        made = object.__new__(Dim)
        made.terms = terms
        found = _DIMS.setdefault(terms, made)  # Another thread may have been faster.
    return found


def _derived(symbol: str, a: int | Dim, b: int | Dim) -> int | Dim:
    def text(size: int | Dim) -> str:
        return repr(size) if isinstance(size, int) or str(size).isidentifier() else f"({size!r})"

    name = f"max({a!r}, {b!r})" if symbol == "max" else f"{text(a)}{symbol}{text(b)}"
    _DERIVED[name] = (symbol, a, b)
    return _normal({((name, 1),): 1})


FRESH = re.compile(r"\b_\d+\b")
"""The names of unknown sizes.

They mean something in one process only: texts, files and pickles rename them.
"""


@lru_cache(4096)
def _rank(name: str) -> str:
    """What names are sorted by: unknown sizes as they were made, so ``_9`` before ``_10``."""
    return FRESH.sub(lambda m: f"_{int(m[0][1:]):012d}", name)


def dim(name: str | None = None) -> Dim:
    """The size called *name*; without a name, a fresh one equal to no other."""
    if name is None:
        return _named(f"_{next(_FRESH)}")
    if not isinstance(name, str) or not name.isidentifier() or name in _RESERVED or keyword.iskeyword(name):
        raise ShapeError(f"{name!r} cannot name a size; take an identifier, such as 'batch'")
    if FRESH.fullmatch(name):
        raise ShapeError(
            f"{name!r} cannot name a size: such names are kept for unknown ones; take None for one"
        )
    return _named(name)


def _named(name: str) -> Dim:
    found = _normal({((name, 1),): 1})
    assert isinstance(found, Dim)
    return found


_TOKEN = uuid.uuid4().hex
_ELSEWHERE: dict[tuple[str, str], str] = {}


def _process() -> str:
    """What tells this process from all others, forked ones too."""
    return f"{_TOKEN}-{os.getpid()}"


def _unpickled(text: str, process: str) -> int | Dim:
    """A size from a pickle: unknown sizes of another process are fresh ones here, the same each time."""
    if process != _process():
        text = FRESH.sub(lambda m: _ELSEWHERE.setdefault((process, m[0]), repr(dim())), text)
    return size_from_text(text, reserved=True)


def at_least(size: int | Dim, low: int) -> int | Dim:
    """``max(size, low)``.

    Examples:
        >>> at_least(dim("n") + 1, 0), at_least(dim("n") - 1, 0)
        (n + 1, max(n - 1, 0))
    """
    if isinstance(size, int):
        return max(size, low)
    return size if low <= 0 and _never_negative(size) else _derived("max", size, low)


def _never_negative(size: int | Dim) -> bool:
    """Whether a size is at least 0 for all values of its names, as far as its form tells."""
    return all(
        factor >= 0 and all(_never_negative_name(name) for name, _ in monomial)
        for monomial, factor in _terms(size)
    )


def _never_negative_name(name: str) -> bool:
    if name not in _DERIVED:
        return True
    symbol, a, b = _DERIVED[name]
    return b >= 0 if symbol == "max" else _never_negative(a) and _never_negative(b)


def exact_quotient(a: int | Dim, b: int | Dim) -> int | Dim | None:
    """``a / b`` where that is a size for every value of the names, else None.

    Examples:
        >>> exact_quotient(dim("n") * 6, 3), exact_quotient(dim("n"), 2)
        (2*n, None)
    """
    divisor = _terms(b)
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    if len(divisor) != 1:
        return 1 if a == b else None
    ((monomial, factor),) = divisor
    quotient: dict[_Monomial, int] = {}
    for term, coefficient in _terms(a):
        powers = dict(term)
        for name, power in monomial:
            powers[name] = powers.get(name, 0) - power
        if not factor or coefficient % factor or any(p < 0 for p in powers.values()):
            return None
        monomials = sorted(((n, p) for n, p in powers.items() if p), key=lambda p: _rank(p[0]))
        quotient[tuple(monomials)] = coefficient // factor
    return _normal(quotient)


def product(sizes: Iterable[int | Dim]) -> int | Dim:
    """The product of sizes; 1 for none."""
    return math.prod(sizes)


def size_value(size: int | Dim, binding: Mapping[str, int]) -> int:
    """The number a size stands for once its names have values.

    Examples:
        >>> size_value((dim("n") + 1) // 2, {"n": 4})
        2
    """
    if isinstance(size, int):
        return size
    total = 0
    for monomial, factor in size.terms:
        for name, power in monomial:
            factor *= _name_value(name, binding) ** power
        total += factor
    return total


def _name_value(name: str, binding: Mapping[str, int]) -> int:
    if name in _DERIVED:
        symbol, a, b = _DERIVED[name]
        p, q = size_value(a, binding), size_value(b, binding)
        return max(p, q) if symbol == "max" else p // q
    if name not in binding:
        raise ShapeError(
            f"the size {name!r} is not determined by what was fed; feed a value whose shape names it"
        )
    return binding[name]


def size_from_text(text: str, reserved: bool = False) -> int | Dim:
    """The size that *text* spells, as ``repr`` writes it; *reserved* allows the names of unknown sizes, too.

    Examples:
        >>> size_from_text("max(n - 1, 0)//2 + 3*m") is at_least(dim("n") - 1, 0) // 2 + 3 * dim("m")
        True
    """
    try:
        return _spelled(ast.parse(text.strip(), mode="eval").body, _named if reserved else dim)
    except (SyntaxError, KeyError):
        raise ShapeError(f"{text!r} spells no size") from None


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def _spelled(node: ast.expr, named: Callable[[str], Dim]) -> int | Dim:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return named(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_spelled(operand, named)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)):
            return product([_spelled(left, named)] * power)
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_spelled(left, named), _spelled(right, named))
        case ast.Call(func=ast.Name(id="max"), args=[a, bound]) if isinstance(
            low := _spelled(bound, named), int
        ):
            return at_least(_spelled(a, named), low)
    raise ShapeError(f"{ast.unparse(node)!r} spells no size")


# What the sizes are while a graph is checked against fed values; None while it is built.
_BINDING: ContextVar[Mapping[str, int] | None] = ContextVar("binding", default=None)


@contextmanager
def checking(binding: Mapping[str, int]) -> Iterator[None]:
    """Inside, sizes assumed equal while building must have equal values under *binding*."""
    token = _BINDING.set(binding)
    try:
        yield
    finally:
        _BINDING.reset(token)


def same_size(a: int | Dim, b: int | Dim) -> bool:
    """Whether two sizes may be taken for equal: False only where they surely differ.

    While building, sizes of which nothing is known are taken for equal; the operation's shape rule runs
    once more, under :func:`checking`, when values are fed.
    """
    if a is b or a == b:
        return True
    binding = _BINDING.get()
    if binding is not None:
        return size_value(a, binding) == size_value(b, binding)
    difference = a - b
    return isinstance(difference, Dim)


# --------------------------------------------------------------------------------------- tensor types


class TensorType:
    """Element type and shape. Interned: compare with ``is``. Made by :func:`tensor_type`.

    Examples:
        >>> tensor_type(float32, (dim("n"), 3))
        float32[n, 3]
    """

    __slots__ = ("differentiable", "dtype", "ndim", "shape", "symbolic")

    dtype: DType
    shape: Shape
    ndim: int
    differentiable: bool
    symbolic: bool

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor_type, (self.dtype, self.shape)

    @property
    def size(self) -> int | Dim:
        """The number of elements."""
        return product(self.shape)


_TYPES: dict[tuple[DType, Shape], TensorType] = {}


def tensor_type(dtype: DType, shape: Shape) -> TensorType:
    """The one :class:`TensorType` of this dtype and shape."""
    found = _TYPES.get((dtype, shape))
    if found is None:
        made = object.__new__(TensorType)
        made.dtype, made.shape, made.ndim = dtype, shape, len(shape)
        made.differentiable = dtype.is_differentiable
        made.symbolic = any(isinstance(size, Dim) for size in shape)
        found = _TYPES.setdefault((dtype, shape), made)  # Another thread may have been faster.
    return found


ShapeLike = int | str | Dim | None | Sequence["int | str | Dim | None"]


def shape_of(shape: ShapeLike) -> Shape:
    """A shape from what a user writes: numbers, names of sizes, ``None`` for a fresh one.

    Examples:
        >>> shape_of(["batch", 3])
        (batch, 3)
    """
    if shape is None or isinstance(shape, (int, np.integer, str, Dim)):
        shape = (shape,)
    return tuple(_one_size(size) for size in shape)


def _one_size(size: Any) -> int | Dim:
    if isinstance(size, Dim):
        return size
    if size is None or isinstance(size, str):
        return dim(size)
    try:
        number = operator.index(size)
    except TypeError:
        raise ShapeError(f"{size!r} is no size; take a number, a name, or None for an unknown one") from None
    if number < 0:
        raise ShapeError(f"the size {number} is negative; take None or a name for an unknown size")
    return number


def bind_sizes(shape: Shape, actual: Sequence[int], binding: dict[str, int]) -> bool:
    """Learn from one fed shape what the named sizes are. Returns whether the shapes agree so far."""
    if len(shape) != len(actual):
        return False
    for size, number in zip(shape, actual, strict=True):
        if isinstance(size, int):
            if size != number:
                return False
        elif str(size).isidentifier() and binding.setdefault(str(size), number) != number:
            return False
    return True


def map_sizes(value: Any, function: Callable[[Dim], Any]) -> Any:
    """*value*, an attribute, with *function* applied to every :class:`Dim` in it."""
    if isinstance(value, Dim):
        return function(value)
    if isinstance(value, tuple):
        return tuple(map_sizes(v, function) for v in value)
    if isinstance(value, slice):
        return slice(map_sizes(value.start, function), map_sizes(value.stop, function), value.step)
    return value
