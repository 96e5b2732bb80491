"""The decorator for NumPy's functions on outputs, and NumPy's parameters that have no meaning for outputs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, Tensor

F = TypeVar("F", bound=Callable[..., Any])

FORMS: dict[str, Callable[..., Tensor]] = {}
"""The functions by NumPy's names, if their parameters differ from those of the standard's function.

Otherwise the standard's function takes the call.
"""

_IN_PLACE = "an output never changes, nor does an array that meets one; take the result: y = np.{name}(...)"
_AT_DEFAULT: dict[str, tuple[tuple[Any, ...], str]] = {
    "out": ((None,), _IN_PLACE),
    "where": ((True, np._NoValue), "choose with sg.where, before or afterwards"),
    "initial": ((np._NoValue, None), "join it by hand, as in sg.maximum(x.max(), initial)"),
    "order": (("C", "K", "A", None), "the elements of outputs have no other order than C's; transpose first"),
    "subok": ((True, False), "True or False"),
    "like": ((None,), "leave it out"),
    "casting": (("same_kind", "safe", "unsafe"), "cast with x.astype first"),
    "kind": ((None, "stable", "quicksort", "mergesort", "heapsort"), "sorting is stable in any case"),
    "mode": (("raise",), "bring indices into range with sg.clip or sg.math.floormod"),
    "shape": ((None,), "use sg.zeros, sg.ones or sg.full"),
    "mean": ((np._NoValue,), "leave it out"),
    "optimize": ((False, True, "greedy", "optimal"), "leave it out"),
    "signature": ((None,), "leave it out"),
    "device": ((None, "cpu"), "sg.Session(engine=...) and sg.function(engine=...) say where to compute"),
}
"""Parameters that outputs take at NumPy's default only: the harmless values, and the cure for others."""


def without(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments without those in the table above, whose values must be harmless ones.

    Raises:
        ArgumentError: one of them has another value.
    """
    others = {}
    for key, value in kwargs.items():
        if key not in _AT_DEFAULT:
            others[key] = value
            continue
        harmless, cure = _AT_DEFAULT[key]
        text = isinstance(value, str)
        if not any([value is default or (text and value == default) for default in harmless]):  # noqa: C419
            raise ArgumentError(f"np.{name}: {key}= cannot be had on outputs; {cure.format(name=name)}")
    return others


def form(function: F) -> F:
    """Decorator: the function is called for NumPy's function of its name."""
    code, name = function.__code__, function.__name__.rstrip("_")
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    own = set(parameters)
    out = parameters.index("out") if "out" in parameters else sys.maxsize
    guarded = d.guarded(f"np.{name}")(function)

    @d.reads_arguments
    @functools.wraps(function)
    def called(*args: object, **kwargs: object) -> Any:
        if len(args) > out:
            without(name, {"out": args[out]})
        if kwargs and not (own - {"out"}).issuperset(kwargs):
            own_settings = {key: value for key, value in kwargs.items() if key in own and key != "out"}
            kwargs = own_settings | without(name, {k: v for k, v in kwargs.items() if k not in own_settings})
        return guarded(*args, **kwargs)

    called.__doc__ = function.__doc__ or f"``np.{name}`` on outputs, with NumPy's parameters."
    FORMS[name] = called
    return cast("F", called)
