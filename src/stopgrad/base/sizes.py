"""Sizes: an ``int``, or a :class:`Dim`, which has no value until something is fed.

A :class:`Dim` is a polynomial with integer coefficients over :class:`Symbol` s, kept in normal form, so
``n*n + 2*n + 1`` and ``(n + 1) * (n + 1)`` are one object. A symbol is a name, or an expression that is not a
polynomial, such as ``n // 2``, and can compute its value. Both are interned while they are referenced.

Equality of objects (``==``) is total; whether two sizes *must* be equal is the separate question
:func:`same_size`.

Sizes are bounded, so that none takes long to compute, even one from an untrusted file: :data:`LARGEST`,
:data:`LONGEST` and :data:`DEGREE`.
"""

from __future__ import annotations

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
from typing import Any

from stopgrad.base.coercion import whole
from stopgrad.base.dtypes import DTYPES
from stopgrad.base.errors import ArgumentError, ShapeError
from stopgrad.base.interning import Interned
from stopgrad.base.unknown import Unknown, no_value, of_sizes

LARGEST = 2**63 - 1
"""No array has a larger size; no number in a size is larger."""

LONGEST = 10_000
"""The most names and quotients that a size may hold, each counted every time it occurs."""

DEGREE = 64
"""The most sizes in one product: no NumPy array has more axes."""


class Symbol:
    """A variable of the polynomials: a name, or the quotient or the larger of two sizes. Interned.

    Attributes:
        name: the name; empty for a computed symbol.
        rule: ``"//"`` or ``"max"``; empty for a name.
        of: the sizes that it is computed from.
        depth: 0 for a name; otherwise greater than that of all symbols from which it is computed.
        length: the number of names and quotients in its text.
        never_negative: whether its form shows that it is at least 0 for all values of the names.
    """

    __slots__ = ("__weakref__", "_rank", "depth", "length", "name", "never_negative", "of", "rule")

    name: str
    rule: str
    of: tuple[Size, ...]
    depth: int
    length: int
    never_negative: bool

    def __init__(self, name: str, rule: str = "", of: tuple[Size, ...] = ()) -> None:
        self.name, self.rule, self.of = name, rule, of
        inside = [symbol for size in of for symbol in _symbols(size)]
        self.depth = 1 + max([s.depth for s in inside], default=0) if rule else 0
        self.length = 1 + sum(map(_length, of))
        if self.length > LONGEST:
            raise _too_long()
        self.never_negative = all(map(_never_negative, of[-1:] if rule == "max" else of))
        self._rank = "" if rule else _padded(name)

    @property
    def rank(self) -> str:
        """The key that sorts symbols: unknown sizes in the order of creation, so ``_9`` before ``_10``."""
        unknown = [] if self._rank else [self]
        while unknown:  # The inner ones first: nested quotients would take cubic time otherwise.
            symbol = unknown[-1]
            inside = {s: s._rank for size in symbol.of for s in _symbols(size)}
            missing = [s for s, rank in inside.items() if not rank]
            if not missing:
                symbol._rank = symbol.text(inside)
                unknown.pop()
            unknown += missing
        return self._rank

    def value(self, binding: Mapping[str, int], values: Mapping[Symbol, int]) -> int:
        """The value, given those of the names (*binding*) and of the symbols inside (*values*)."""
        if not self.rule:
            if self.name not in binding:
                raise ShapeError(
                    f"the size {self.name!r} is not determined by what was fed; "
                    "feed a value whose shape names it"
                )
            return binding[self.name]
        a, b = [_evaluated(size, values) for size in self.of]
        if self.rule == "max":
            return max(a, b)
        if b == 0:
            whole = _normal({((self, 1),): 1})
            raise ShapeError(f"the size {whole!r} has no value: {self.of[1]!r} is 0{_where(whole, binding)}")
        return a // b

    def text(self, texts: Mapping[Symbol, str]) -> str:
        """The text, given that of the symbols inside."""
        if not self.rule:
            return self.name
        parts = [_written(size, texts) for size in self.of]
        if self.rule == "max":
            return f"max({', '.join(parts)})"
        return self.rule.join(
            part if isinstance(size, int) or part.isidentifier() else f"({part})"
            for size, part in zip(self.of, parts, strict=True)
        )


_Monomial = tuple[tuple[Symbol, int], ...]


class Dim(Unknown):
    """A size that is unknown until values are fed: a polynomial over named sizes. Made by :func:`dim`.

    Examples:
        >>> n = dim("n")
        >>> (n + 1) * (n + 1) is n * n + 2 * n + 1
        True
        >>> (n * 6) // 3, 2 * n - n - n, (n + 1) // 2
        (2*n, 0, (n + 1)//2)

    Expressions that are not sizes, such as ``n / 2`` and ``n > 1``, have no value before something is fed.
    With tensors and arrays a size acts like a Python integer: ``x / n`` and ``n * x`` are operations. ``==``
    is identity, so ``n == 3`` is False whatever is fed later.
    """

    __slots__ = ("__weakref__", "length", "terms")

    terms: tuple[tuple[_Monomial, int], ...]
    length: int

    @of_sizes("add")
    def __add__(self, other: Size) -> Size:
        return total([self, other])

    @of_sizes("mul")
    def __mul__(self, other: Size) -> Size:
        others = _terms(other)
        if len(self.terms) * len(others) > LONGEST:
            raise _too_long()
        factors: dict[_Monomial, int] = {}
        for (a, p), (b, q) in itertools.product(self.terms, others):
            monomial = _multiplied(a, b)
            factors[monomial] = factors.get(monomial, 0) + p * q
        return _normal(factors)

    @of_sizes("pow")
    def __pow__(self, power: int) -> Size:
        if isinstance(power, Dim):
            raise no_value(f"{self!r} ** {power!r}")
        power = whole(power)
        if not 0 <= power <= DEGREE:
            raise ShapeError(f"a size has powers from 0 to {DEGREE}, not {shown(power)}")
        return product([self] * power)

    def __neg__(self) -> Size:
        return self * -1

    @of_sizes("sub")
    def __sub__(self, other: Size) -> Size:
        return self + -_size(other)

    @of_sizes("sub", reflected=True)
    def __rsub__(self, other: Size) -> Size:
        return -self + other

    @of_sizes("add", reflected=True)
    def __radd__(self, other: Size) -> Size:
        return self + other

    @of_sizes("mul", reflected=True)
    def __rmul__(self, other: Size) -> Size:
        return self * other

    @of_sizes("floordiv")
    def __floordiv__(self, other: Size) -> Size:
        exact = exact_quotient(self, other)
        return exact if exact is not None else _computed("//", self, _size(other))

    @of_sizes("floordiv", reflected=True)
    def __rfloordiv__(self, other: int) -> Size:
        return _computed("//", _size(other), self)

    @of_sizes("mod")
    def __mod__(self, other: Size) -> Size:
        return self - (self // other) * other

    @of_sizes("mod", reflected=True)
    def __rmod__(self, other: int) -> Size:
        return other - (other // self) * self

    def is_at_least(self, other: Size) -> bool | None:
        difference = self - _size(other)
        if isinstance(difference, int):
            return difference >= 0
        if _never_negative(difference):
            return True
        return False if _never_negative(-difference - 1) else None

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        texts: dict[Symbol, str] = {}
        for symbol in symbols(self):
            texts[symbol] = symbol.text(texts)
        return _written(self, texts)

    def __reduce__(self) -> tuple[Any, ...]:
        places = {symbol: i for i, symbol in enumerate(symbols(self))}
        parts = [(s.name, s.rule, [_packed(size, places) for size in s.of]) for s in places]
        return _unpickled, (_process(), parts, _packed(self, places))


Size = int | Dim
Shape = tuple[Size, ...]

_SYMBOLS: Interned[Symbol] = Interned()
_DIMS: Interned[Dim] = Interned()


# -------------------------------------------------------------------------------------------- numbers


def _size(size: int | Dim) -> Size:
    """An operand of sizes' arithmetic, as exactly an ``int`` or a :class:`Dim`."""
    if isinstance(size, Dim):
        return size
    try:
        number = whole(size)
    except TypeError:
        raise ArgumentError(
            f"{size!r} is no size: sizes are whole numbers, "
            "and what is computed from them and from other sizes"
        ) from None
    return within_bounds(number)


def within_bounds(number: int) -> int:
    """*number*, if a size can hold it."""
    if not -LARGEST <= number <= LARGEST:
        raise ShapeError(f"{shown(number)} is no size: no array has a size beyond {LARGEST}")
    return number


def shown(number: int) -> str:
    """A number as messages print it; Python refuses to print huge ones."""
    return str(number) if number.bit_length() <= 256 else f"a number of {number.bit_length()} bits"


def _too_long() -> ShapeError:
    return ShapeError(f"a size of more than {LONGEST} names and quotients; give its parts names of their own")


# --------------------------------------------------------------------------------------- normal form


def _terms(size: Size) -> tuple[tuple[_Monomial, int], ...]:
    canonical = _size(size)
    return canonical.terms if isinstance(canonical, Dim) else (((), canonical),)


def _symbols(size: Size) -> list[Symbol]:
    """The symbols of a size's monomials, without those inside quotients."""
    if isinstance(size, int):
        return []
    return [symbol for monomial, _ in size.terms for symbol, _ in monomial]


def symbols(size: Size) -> list[Symbol]:
    """All symbols in a size, with those inside quotients before the quotients."""
    reached: dict[Symbol, None] = {}
    stack = [size]
    while stack:
        for symbol in _symbols(stack.pop()):
            if symbol not in reached:
                reached[symbol] = None
                stack += symbol.of
    return sorted(reached, key=operator.attrgetter("depth"))


def _length(size: Size) -> int:
    return size.length if isinstance(size, Dim) else 0


def _never_negative(size: Size) -> bool:
    """Whether a size's form shows that it is at least 0 for all values of its names."""
    return all(
        factor >= 0 and all(symbol.never_negative for symbol, _ in monomial)
        for monomial, factor in _terms(size)
    )


def _multiplied(a: _Monomial, b: _Monomial, sign: int = 1) -> _Monomial:
    """The product of two monomials, or with *sign* -1 their quotient."""
    powers = dict(a)
    for symbol, power in b:
        powers[symbol] = powers.get(symbol, 0) + sign * power
    monomial = [(symbol, power) for symbol, power in powers.items() if power]
    if len(monomial) > 1:
        monomial.sort(key=lambda p: p[0].rank)
    if sum([power for _, power in monomial]) > DEGREE:
        raise ShapeError(f"the product of more than {DEGREE} sizes; no array has so many axes")
    return tuple(monomial)


def _order(term: tuple[_Monomial, int]) -> tuple[int, list[tuple[str, int]]]:
    return -sum(power for _, power in term[0]), [(symbol.rank, power) for symbol, power in term[0]]


def _normal(total: Mapping[_Monomial, int]) -> Size:
    terms = [(monomial, factor) for monomial, factor in total.items() if factor]
    if len(terms) > 1:
        terms.sort(key=_order)
    for _, factor in terms:
        within_bounds(factor)
    if not terms or not terms[0][0]:
        return terms[0][1] if terms else 0
    return _DIMS.one(tuple(terms), _dim_of, terms)


def _dim_of(terms: Sequence[tuple[_Monomial, int]]) -> Dim:
    size = object.__new__(Dim)
    size.terms = tuple(terms)
    size.length = sum(symbol.length for monomial, _ in terms for symbol, _ in monomial)
    if size.length > LONGEST:
        raise _too_long()
    return size


def _computed(rule: str, a: Size, b: Size) -> Size:
    if rule == "//" and isinstance(b, int) and b == 0:
        raise ShapeError(f"the size {a!r} cannot be divided by 0")
    # By identity, so that the key does not keep the operands alive; the symbol itself does.
    key = rule, *[(size,) if isinstance(size, int) else id(size) for size in (a, b)]
    return _normal({((_SYMBOLS.one(key, Symbol, "", rule, (a, b)), 1),): 1})


def total(sizes: Iterable[Size]) -> Size:
    """The sum of sizes; 0 for none."""
    factors: dict[_Monomial, int] = {}
    for size in sizes:
        for monomial, factor in _terms(size):
            factors[monomial] = factors.get(monomial, 0) + factor
    return _normal(factors)


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes; 1 for none."""
    return math.prod(sizes)


def exact_quotient(a: Size, b: Size) -> Size | None:
    """``a / b`` if that is a size for all values of the names, else None.

    Examples:
        >>> exact_quotient(dim("n") * 6, 3), exact_quotient(dim("n"), 2)
        (2*n, None)
    """
    divisor = _terms(b)
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    if len(divisor) != 1:
        return 1 if a is b else None
    ((monomial, factor),) = divisor
    quotient: dict[_Monomial, int] = {}
    for term, coefficient in _terms(a):
        if not factor or coefficient % factor:
            return None
        divided = _multiplied(term, monomial, -1)
        if any(power < 0 for _, power in divided):
            return None
        quotient[divided] = coefficient // factor
    return _normal(quotient)


def at_least(size: Size, low: int) -> Size:
    """``max(size, low)``.

    Examples:
        >>> at_least(dim("n") + 1, 0), at_least(dim("n") - 1, 0)
        (n + 1, max(n - 1, 0))
    """
    size, low = _size(size), whole(low)
    if isinstance(size, int):
        return max(size, low)
    return size if low <= 0 and _never_negative(size) else _computed("max", size, within_bounds(low))


# ---------------------------------------------------------------------------------------------- names

FRESH = re.compile(r"\b_\d+\b")
"""The names of unknown sizes. They are valid in one process only: texts, files and pickles rename them."""

# Words with other meanings in the text form of a graph.
_RESERVED = {*DTYPES, "inf", "nan", "max", "array"}

_FRESH = itertools.count(1)


def _padded(text: str) -> str:
    return FRESH.sub(lambda m: f"_{int(m[0][1:]):012d}", text)


def dim(name: str | None = None) -> Dim:
    """The size called *name*; without a name, a fresh unknown size that equals no other."""
    if name is None:
        return named(f"_{next(_FRESH)}")
    if not isinstance(name, str) or not name.isidentifier() or name in _RESERVED or keyword.iskeyword(name):
        raise ShapeError(f"{name!r} cannot name a size; take an identifier, such as 'batch'")
    if FRESH.fullmatch(name):
        raise ShapeError(
            f"{name!r} cannot name a size: such names are kept for unknown ones; take None for one"
        )
    return named(str(name))


def named(name: str) -> Dim:
    """The size of a name, which may also be that of an unknown size."""
    size = _normal({((_SYMBOLS.one(name, Symbol, name), 1),): 1})
    assert isinstance(size, Dim)
    return size


_TOKEN = uuid.uuid4().hex
_ELSEWHERE: Interned[Dim] = Interned()


def _process() -> str:
    """An identifier of this process, different from that of all others, even forked ones."""
    return f"{_TOKEN}-{os.getpid()}"


_Packed = int | list[tuple[list[tuple[int, int]], int]]


def _packed(size: Size, places: Mapping[Symbol, int]) -> _Packed:
    """A size in the form for pickles, with its symbols as numbers."""
    if isinstance(size, int):
        return size
    return [
        ([(places[symbol], power) for symbol, power in monomial], factor) for monomial, factor in size.terms
    ]


def _unpickled(process: str, parts: Sequence[tuple[str, str, list[_Packed]]], packed: _Packed) -> Size:
    """A size from a pickle. Unknown sizes of another process become fresh ones, the same ones each time."""
    sizes: list[Size] = []

    def unpacked(packed: _Packed) -> Size:
        if isinstance(packed, int):
            return packed
        return total(product([factor, *(sizes[i] ** power for i, power in ps)]) for ps, factor in packed)

    for name, rule, of in parts:
        if rule:
            sizes.append(_computed(rule, *map(unpacked, of)))
        elif process != _process() and FRESH.fullmatch(name):
            sizes.append(_ELSEWHERE.one((process, name), dim))
        else:
            sizes.append(named(name))
    return unpacked(packed)


def renamed(size: Size, unknown: Callable[[str], str]) -> Size:
    """A size with its unknown sizes renamed by the function *unknown*."""
    sizes: dict[Symbol, Size] = {}

    def rebuilt(size: Size) -> Size:
        if isinstance(size, int):
            return size
        return total(product([factor, *(sizes[s] ** power for s, power in m)]) for m, factor in size.terms)

    for symbol in symbols(size):
        if symbol.rule:
            sizes[symbol] = _computed(symbol.rule, *map(rebuilt, symbol.of))
        else:
            name = symbol.name
            sizes[symbol] = named(unknown(name) if FRESH.fullmatch(name) else name)
    return rebuilt(size)


def depth(size: Size) -> int:
    """The nesting depth of quotients and maxima."""
    return max([symbol.depth for symbol in _symbols(size)], default=0)


# --------------------------------------------------------------------------------------------- values


def size_value(size: Size, binding: Mapping[str, int]) -> int:
    """The value of a size, given those of its names.

    Examples:
        >>> size_value((dim("n") + 1) // 2, {"n": 4})
        2
    """
    if isinstance(size, int):
        return size
    values: dict[Symbol, int] = {}
    for symbol in symbols(size):
        values[symbol] = within_bounds(symbol.value(binding, values))
    return _evaluated(size, values)


def length_value(size: Size, binding: Mapping[str, int]) -> int:
    """:func:`size_value` for the length of an axis, which must not be negative."""
    length = size_value(size, binding)
    if not 0 <= length <= LARGEST:
        raise ShapeError(
            f"the size {size!r} is {shown(length)}{_where(size, binding)}; no array has such a size"
        )
    return length


def _evaluated(size: Size, values: Mapping[Symbol, int]) -> int:
    if isinstance(size, int):
        return size
    return sum(
        factor * math.prod([values[symbol] ** power for symbol, power in monomial])
        for monomial, factor in size.terms
    )


def _where(size: Size, binding: Mapping[str, int]) -> str:
    """The values of the fed sizes on which a size depends, for messages."""
    names = [s.name for s in sorted(symbols(size), key=lambda s: s.rank) if not s.rule]
    shown = ", ".join(f"{name} = {binding[name]}" for name in names[:8])
    return f" where {shown}{', ...' if len(names) > 8 else ''}" if names else ""


def _written(size: Size, symbol_texts: Mapping[Symbol, str]) -> str:
    """A size's text, given that of its symbols."""
    if isinstance(size, int):
        return str(size)

    def factor_text(symbol: Symbol, power: int, alone: bool) -> str:
        text = symbol_texts[symbol] if alone or symbol.rule != "//" else f"({symbol_texts[symbol]})"
        return text if power == 1 else f"{text}**{power}"

    parts = []
    for monomial, factor in size.terms:
        alone = factor == 1 and len(monomial) == 1 and monomial[0][1] == 1
        texts = [factor_text(symbol, power, alone) for symbol, power in monomial]
        parts.append("*".join(texts if factor == 1 and texts else [str(factor), *texts]))
    return " + ".join(parts).replace("+ -", "- ")


# The values of names while a graph is checked against fed values; None while it is built.
_BINDING: ContextVar[Mapping[str, int] | None] = ContextVar("binding", default=None)


@contextmanager
def checking(binding: Mapping[str, int]) -> Iterator[None]:
    """A context in which sizes that were assumed equal must have equal values under *binding*."""
    token = _BINDING.set(binding)
    try:
        yield
    finally:
        _BINDING.reset(token)


def same_size(a: Size, b: Size) -> bool:
    """Whether two sizes may be equal: False only if they surely differ.

    While a graph is built, sizes that may be equal are assumed to be; the operation's shape rule runs again,
    under :func:`checking`, when values are fed.
    """
    if a is b or a == b:
        return True
    binding = _BINDING.get()
    if binding is not None:
        return size_value(a, binding) == size_value(b, binding)
    return isinstance(_size(a) - _size(b), Dim)
