"""Which users' ``autograd.Function``s are running their forward, as the frames of Python show it.

``Function.apply`` has a frame of its own in some releases of PyTorch and none in others, where it is
implemented in C. The forward that it calls has one in all.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from stopgrad.interop.torch import internals

_Function: Any = torch.autograd.Function
_made: Any = internals.function_counter


class _Forwards:
    """The code of the forwards of all functions that there are."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[CodeType, list[weakref.ref[type]]]] = {}
        self._counted = ""

    def of(self, code: CodeType) -> list[type]:
        """The functions whose forward is some code, the newest last."""
        known = self._of.get(id(code))
        return [] if known is None else [function for ref in known[1] if (function := ref()) is not None]

    def look(self) -> None:
        """Look for functions again, if new ones were made."""
        counted = repr(_made)  # Each class of a function counts on.
        if _made is not None and counted == self._counted:
            return
        found: dict[int, tuple[CodeType, list[weakref.ref[type]]]] = {}
        for function in _subclasses(_Function):
            code = getattr(getattr(function, "forward", None), "__code__", None)
            if isinstance(code, CodeType):
                found.setdefault(id(code), (code, []))[1].append(weakref.ref(function))
        self._of, self._counted = found, counted


_FORWARDS = _Forwards()


def _subclasses(function: type) -> Iterator[type]:
    stack = [function]
    while stack:
        below: list[type] = type.__subclasses__(stack.pop())
        yield from below
        stack += below


def forwards_around(frame: FrameType | None) -> list[tuple[type, FrameType]]:
    """The functions whose forwards a frame is in, outermost first, each with the frame of its forward."""
    _FORWARDS.look()
    found: list[tuple[type, FrameType]] = []
    contexts: list[object] = []
    while frame is not None:
        functions = _FORWARDS.of(frame.f_code)
        if functions:
            first = _first_argument(frame)
            exact = getattr(type(first), "_forward_cls", None)
            # A forward may call that of a class which it derives from, with its own context.
            if exact is not None and contexts and contexts[-1] is first:
                found[-1] = exact, frame
            elif exact is not None or _has_own_context(functions[-1]):
                found.append((exact or functions[-1], frame))
                contexts.append(first)
        frame = frame.f_back
    found.reverse()
    return found


def _has_own_context(function: Any) -> bool:
    """Whether a function's forward is called without a context, which ``setup_context`` gets instead."""
    return function.setup_context is not _Function.setup_context


def _first_argument(frame: FrameType) -> object:
    """What the function that a frame runs was called with first, if it still has it."""
    code = frame.f_code
    if code.co_argcount:
        return frame.f_locals.get(code.co_varnames[0])
    if code.co_flags & inspect.CO_VARARGS:
        given = frame.f_locals.get(code.co_varnames[code.co_kwonlyargcount])
        return given[0] if given else None
    return None
