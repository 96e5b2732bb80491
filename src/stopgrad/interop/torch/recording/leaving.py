"""Values that leave PyTorch for Python, by ``.item()`` or ``.numpy()``, and may come back."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.source import RawLocation, decode
from stopgrad.flow.source_lines import place as place_text
from stopgrad.interop.torch.recording.places import with_caller
from stopgrad.interop.torch.recording.record import Value, now, stop

MADE_OF = "what may be made of it "
REMEMBERED = 1024
"""How many of the latest numbers that left are remembered."""
SHORT = 64
"""The elements of lists up to this length are remembered."""
DIGITS = 6
"""A number with more significant digits than this is taken for the same number wherever it is met."""


class Departure(NamedTuple):
    """A value that left.

    Attributes:
        what: what it became: a number.
        value: what it was.
        call, why: how it left.
        place: where.
        serial: when, in the order of events.
    """

    what: Any
    value: Value
    call: str
    why: str
    place: RawLocation | None
    serial: int


class _Span(NamedTuple):
    """The memory of an array that left."""

    begin: int
    end: int
    array: weakref.ref[Any]
    departure: Departure


class Departures:
    """The values that left for Python. Arrays are referred to weakly."""

    def __init__(self) -> None:
        self._numbers: dict[Any, Departure] = {}
        self._spans: list[_Span] = []
        self._sites: dict[Any, dict[int, Departure]] = {}  # Of arrays, the last one that left at each place.

    def note(self, what: object, value: Value, call: str, why: str, place: RawLocation | None) -> None:
        """Note that a value left: it became *what*."""
        if isinstance(what, np.ndarray):
            spans = [span for span in self._spans if span.array() is not None]
            departure = Departure(None, value, call, why, with_caller(place), now())
            begin = what.__array_interface__["data"][0]
            self._spans = [*spans, _Span(begin, begin + what.nbytes, weakref.ref(what), departure)]
            if place is not None:
                self._sites.setdefault(place[0], {})[place[1]] = departure
            return
        serial, left_at = now(), with_caller(place)
        for number in _numbers_in(what, SHORT):
            departure = Departure(number, value, call, why, left_at, serial)
            for key in _keys(number):
                self._numbers.pop(key, None)
                self._numbers[key] = departure
        while len(self._numbers) > 2 * REMEMBERED:
            del self._numbers[next(iter(self._numbers))]

    def remembered(self) -> list[Departure]:
        """The departures that are still remembered, in order."""
        arrays = [departure for sites in self._sites.values() for departure in sites.values()]
        return sorted([*self._numbers.values(), *arrays], key=lambda departure: departure.serial)

    def __bool__(self) -> bool:
        return bool(self._numbers or self._spans or self._sites)

    def returning(self, arguments: tuple[Any, ...], place: RawLocation | None) -> list[Value]:
        """The values among the arguments of a call that had left, each stopped where it left."""
        values: list[Value] = []
        for x in _leaves(arguments):
            if isinstance(x, np.ndarray):
                values += self.of_memory(x.__array_interface__["data"][0], place) if x.size else []
            else:
                departure = self._of_number(x)
                values += [] if departure is None else [_back(departure, place)]
        return values

    def of_memory(self, address: int, place: RawLocation | None) -> list[Value]:
        """What had left of which an array may be made that came back: whose memory it has; or, where that is
        its own, the arrays that left further up in the same function.
        """
        for span in reversed(self._spans):
            if span.begin <= address < span.end and span.array() is not None:
                return [_back(span.departure, place)]
        if place is None:
            return []
        sites = self._sites.get(place[0], {})
        return [
            _back(departure, place, MADE_OF)
            for instruction, departure in sites.items()
            if instruction < place[1]
        ]

    def _of_number(self, x: float) -> Departure | None:
        for key in _keys(x):
            departure = self._numbers.get(key)
            if departure is not None:
                return departure
        return None


def _back(departure: Departure, place: RawLocation | None, what: str = "") -> Value:
    """A value that came back, behind a stop at the place where it left."""
    place = with_caller(place)
    where = "" if place is None else f", {what}came back at {place_text(decode(place).cause)}"
    why = f"left for Python by {departure.why}{where}"
    return stop(departure.value, departure.call, why, departure.place)


def _keys(x: float) -> Iterator[Any]:
    """The keys by which a number is recognised: its identity, and its value if that is distinctive."""
    if type(x) is float or type(x) is complex:
        yield "object", id(x)
        if len(repr(x).strip("-0.").replace(".", "")) > DIGITS:
            yield "value", x


def _numbers_in(tree: object, limit: int) -> list[Any]:
    """The numbers in a short, perhaps nested, list; nothing of a long one."""
    numbers: list[Any] = []
    stack = [tree]
    while stack and len(numbers) <= limit:
        x = stack.pop()
        if isinstance(x, (list, tuple)):
            stack.extend(x)
        else:
            numbers.append(x)
    return numbers if len(numbers) <= limit else []


def _leaves(arguments: Any) -> Iterator[Any]:
    """The numbers and arrays among the arguments of a call."""
    stack = [arguments]
    while stack:
        x = stack.pop()
        kind = type(x)
        if kind is float or kind is complex or kind is np.ndarray:
            yield x
        elif kind is tuple or kind is list:
            stack.extend(x[:REMEMBERED])
        elif kind is dict:
            stack.extend(x.values())
