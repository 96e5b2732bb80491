"""The grammar of values in the text of a graph (sizes, numbers, words, tuples), and their reader.

::

    value  = size | number | 'word' | True | False | None | dtype | tuple | form
    tuple  = ( ) | ( value , ) | ( value , value ... )
    list   = [ ] | [ value , ... ]             in arrays only
    form   = name ( value , ... )              array, body, complex, bits, hex
    number = an integer | a float | inf | nan, with or without a minus
    size   = integers and names with + - * // ** and brackets, and max(size, integer)

Only sizes are computed from the text, and their terms, powers and coefficients are bounded; see
:mod:`stopgrad.graph.text.limits` and :mod:`stopgrad.base.sizes`. Reading takes time in proportion to the
text.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from stopgrad.base.errors import GraphError
from stopgrad.base.sizes import DEGREE, LONGEST, depth, within_bounds
from stopgrad.base.types import DTYPES, Dim, at_least, total
from stopgrad.graph.text import limits

# Letters beyond ASCII stand for themselves; names of sizes are checked as a whole.
_TOKEN = re.compile(
    r"""[ ]*+(?:
      (?P<number>[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?)
    | (?P<name>[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*+)
    | (?P<word>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
    | (?P<sign>\*\*|//|[-+*(),\[\]])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_WORDS = {"True": True, "False": False, "None": None, "inf": math.inf, "nan": math.nan}
_OPERATORS = ("+", "-", "*", "//")

Forms = dict[str, Callable[..., object]]
"""The forms of a text by name: functions of the values between the brackets."""


def _complex(*parts: Any) -> complex:
    if len(parts) != 2 or not all(type(part) in (int, float) for part in parts):
        raise GraphError("complex takes a real and an imaginary part")
    return complex(*parts)


def _bits(*parts: object) -> float:
    if len(parts) != 1 or not isinstance(parts[0], str) or re.fullmatch("[0-9a-f]{16}", parts[0]) is None:
        raise GraphError("bits takes the 16 hexadecimal digits of a float")
    value: float = struct.unpack(">d", bytes.fromhex(parts[0]))[0]
    return value


def _hex(*parts: object) -> bytes:
    if len(parts) != 1 or not isinstance(parts[0], str) or re.fullmatch("(?:[0-9a-f]{2})*", parts[0]) is None:
        raise GraphError("hex takes the bytes of an array in hexadecimal digits")
    return bytes.fromhex(parts[0])


FORMS: Forms = {"complex": _complex, "bits": _bits, "hex": _hex}


class _Bracket:
    """The state of reading since a bracket was opened (or since the beginning of the text)."""

    __slots__ = ("comma", "end", "form", "minus", "operator", "parts", "terms")

    def __init__(self, form: str, minus: bool) -> None:
        self.form = form  # The name before the bracket, if there is one.
        self.end = "]" if form == "[" else ")"
        self.minus = minus  # Whether there is a minus before that.
        self.parts: list[Any] = []  # The values, up to the last comma.
        self.terms: list[Any] = []  # The terms of the value after it.
        self.operator = ""  # The operator after these.
        self.comma = False

    def take(self, value: object) -> None:
        """Add an operand."""
        terms, operator = self.terms, self.operator
        if operator in ("+", "-"):
            terms.append(check_size(value) if operator == "+" else -check_size(value))
            if len(terms) > LONGEST:
                raise GraphError(f"a sum of more than {LONGEST} terms")
        elif operator:
            terms[-1] = _computed(operator, terms[-1], value)
        else:
            terms.append(value)
        self.operator = ""

    def close(self) -> object:
        """Finish the current value."""
        terms, self.terms = self.terms, []
        return terms[0] if len(terms) == 1 else check_size(total(terms))


class Values:
    """Reads the values of a text, which are separated by commas, one after the other.

    Args:
        text: the text.
        named: finds a size by its name.
        forms: the forms that are allowed.
    """

    def __init__(self, text: str, named: Callable[[str], Dim], forms: Forms) -> None:
        self._text = text
        self._named = named
        self._forms = forms
        self._at = 0
        self._advance()

    @property
    def ended(self) -> bool:
        return self._kind == "end"

    def attribute(self) -> tuple[str, Any]:
        """The next ``name=value``."""
        name = self._token
        if self._kind != "name" or not self._text.startswith("=", self._at):
            self._refuse("an attribute, as name=value")
        self._at += 1
        self._advance()
        return name, self.value()

    def value(self) -> object:
        """The next value, up to a comma or the end."""
        brackets = [_Bracket("", False)]
        while True:
            inner = brackets[-1]
            minus = self._takes("-")
            if len(brackets) > 1 and self._sign == inner.end and not minus and not inner.terms:
                value: Any = self._closed(brackets)  # After a final comma, or with nothing inside.
            else:
                form = self._bracket()
                if form is not None:
                    brackets.append(_Bracket(form, minus))
                    if len(brackets) > limits.DEPTH:
                        raise GraphError(f"more than {limits.DEPTH} brackets stand inside one another")
                    continue
                value = self._finished(self._atom(), minus)
            while True:
                inner = brackets[-1]
                inner.take(value)
                if self._sign in _OPERATORS:
                    check_size(inner.terms[-1])
                    inner.operator = self._sign
                    self._advance()
                    break
                if len(brackets) == 1:
                    if not self._takes(",") and not self.ended:
                        self._refuse("a comma or the end")
                    return inner.close()
                if self._takes(","):
                    inner.parts.append(inner.close())
                    inner.comma = True
                    break
                if self._sign != inner.end:
                    self._refuse(f"a comma or {inner.end!r}")
                inner.parts.append(inner.close())
                inner.comma = False
                value = self._closed(brackets)

    # --------------------------------------------------------------------------------------- tokens

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise GraphError(f"{self._text[self._at : self._at + 20].strip()!r} is no part of a value")
        kind = match.lastgroup or "end"
        self._kind, self._token = kind, match[kind]
        self._sign = self._token if kind == "sign" else ""
        self._at = match.end()

    def _takes(self, sign: str) -> bool:
        matches = self._sign == sign
        if matches:
            self._advance()
        return matches

    def _refuse(self, expected: str) -> NoReturn:
        token = "the end" if self.ended else repr(self._token[:20])
        raise GraphError(f"expected {expected}, found {token}")

    def _bracket(self) -> str | None:
        """The name before an opening bracket, perhaps empty; None if no bracket opens here."""
        if self._takes("["):
            return "["
        name = self._token if self._kind == "name" and self._text.startswith("(", self._at) else ""
        if name:
            self._advance()
        return name if self._takes("(") else None

    def _atom(self) -> object:
        kind, token = self._kind, self._token
        if kind in ("sign", "end"):
            self._refuse("a value")
        self._advance()
        if kind == "number":
            return _number(token)
        if kind == "word":
            return _word(token)
        if token in _WORDS:
            return _WORDS[token]
        return DTYPES[token] if token in DTYPES else self._named(token)

    def _closed(self, brackets: list[_Bracket]) -> object:
        """The value of the brackets that are closed here, with a power behind them."""
        self._advance()
        bracket = brackets.pop()
        parts = bracket.parts
        value: Any
        if bracket.form == "max":
            if len(parts) != 2 or type(parts[1]) is not int:
                raise GraphError("max takes a size and an integer")
            value = _not_too_deep(at_least(check_size(parts[0]), parts[1]))
        elif bracket.form == "[":
            value = parts
        elif bracket.form:
            if bracket.form not in self._forms:
                raise GraphError(f"nothing is written {bracket.form[:20]}(...)")
            value = self._forms[bracket.form](*parts)
        else:
            value = check_size(parts[0]) if len(parts) == 1 and not bracket.comma else tuple(parts)
        return self._finished(value, bracket.minus)

    def _finished(self, value: object, minus: bool) -> object:
        """An operand, with the power behind it and the minus before it."""
        if self._takes("**"):
            power = self._atom()
            if type(power) is not int or not 0 <= power <= DEGREE or not isinstance(value, Dim):
                raise GraphError(f"a power is that of a size, with an exponent of at most {DEGREE}")
            value = value**power
        if not minus:
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float, Dim)):
            raise GraphError("a minus stands before a number or a size")
        return -value


def check_size(value: object) -> int | Dim:
    if type(value) is int:
        return within_bounds(value)
    if not isinstance(value, Dim):
        raise GraphError("only sizes are computed with")
    return value


def _computed(operator: str, a: object, b: object) -> int | Dim:
    a, b = check_size(a), check_size(b)
    if operator == "*":
        return check_size(a * b)
    if b == 0:
        raise GraphError("a size is divided by 0")
    return _not_too_deep(a // b)


def _not_too_deep(size: int | Dim) -> int | Dim:
    if depth(size) > limits.DEPTH:
        raise GraphError(f"more than {limits.DEPTH} quotients and maxima stand inside one another")
    return size


def _number(token: str) -> int | float:
    if len(token) > limits.DIGITS:
        raise GraphError(f"a number has more than {limits.DIGITS} digits")
    return int(token) if token.isdigit() else float(token)


def _word(token: str) -> str:
    inner = token[1:-1]
    return _ESCAPE.sub(_unescaped, inner) if "\\" in inner else inner


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        if match[4] not in _ESCAPED:
            raise GraphError(f"{match[0]!r} is no character")
        return _ESCAPED[match[4]]
    if int(code, 16) > 0x10FFFF:
        raise GraphError(f"{match[0]!r} is no character")
    return chr(int(code, 16))


# -------------------------------------------------------------------------------------------- spelling


def spell_number(value: complex) -> str:
    """The text of a Python number, which reads back with the same bits."""
    if isinstance(value, complex):
        return f"complex({spell_number(value.real)}, {spell_number(value.imag)})"
    if isinstance(value, float) and value != value and struct.pack(">d", value) != _NAN:
        return f"bits('{struct.pack('>d', value).hex()}')"
    text = repr(value)
    if len(text) > limits.DIGITS:
        raise GraphError(f"a number has more than {limits.DIGITS} digits")
    return text


_NAN = struct.pack(">d", math.nan)
