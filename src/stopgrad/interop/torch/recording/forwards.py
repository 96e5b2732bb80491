"""Finds the ``autograd.Function``s whose forwards are being run, by the code of these.

Around a forward lay a frame of ``Function.apply``, until that was implemented in C, in 2.14. The frame of the
forward itself is there in all releases.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Iterator, Sequence
from types import CellType, CodeType, FrameType
from typing import Any, NamedTuple

import torch

from stopgrad.interop.torch import internals

_Function: Any = torch.autograd.Function
_COUNTER: Any = internals.function_counter
_BASE = frozenset([_Function.forward, _Function.setup_context])


class Forward(NamedTuple):
    """A forward that is being run.

    Attributes:
        function: the ``autograd.Function``.
        frame: the outermost frame of its forward, or of its ``setup_context``.
    """

    function: Any
    frame: FrameType


class _Codes:
    """The codes of all forwards, by their identity, with the functions that have them, the newest last."""

    def __init__(self) -> None:
        self._counter: str | None = None
        self.codes: dict[int, tuple[CodeType, list[weakref.ref[Any]]]] = {}

    def refresh(self, anew: bool = False) -> None:
        """Look for new functions, if there may be any, or *anew* for what became of known ones."""
        # Each new class takes a number, and to print the counter takes none. Without it, all are asked for.
        counter = None if _COUNTER is None else repr(_COUNTER)
        if counter is not None and counter == self._counter and not anew:
            return
        codes: dict[int, tuple[CodeType, list[weakref.ref[Any]]]] = {}
        for function in _functions():
            for code in _codes_of(function):
                codes.setdefault(id(code), (code, []))[1].append(weakref.ref(function))
        self.codes, self._counter = codes, counter

    def frames(self, frame: FrameType | None) -> list[FrameType]:
        """The frames of forwards that a frame is in, itself included, innermost first."""
        codes, frames = self.codes, []
        while frame is not None:
            if id(frame.f_code) in codes:
                frames.append(frame)
            frame = frame.f_back
        return frames

    def functions(self, frame: FrameType) -> list[Any]:
        """The living functions whose forward a frame may be."""
        return [function for ref in self.codes[id(frame.f_code)][1] if (function := ref()) is not None]


_CODES = _Codes()


def _functions() -> Iterator[Any]:
    """All ``autograd.Function``s that are there, without those of transformations."""
    functions: dict[Any, None] = {}
    stack = [_Function]
    while stack:
        for function in stack.pop().__subclasses__():
            if function not in functions:
                functions[function] = None
                stack.append(function)
    return (subclass for subclass in functions if subclass.__module__ != internals.MADE_BY_TRANSFORMS)


def _codes_of(function: type[torch.autograd.Function]) -> Iterator[CodeType]:
    """The codes that run when a function is applied: of its forward, and of ``setup_context``."""
    for called in (function.forward, function.setup_context):
        code = None if called in _BASE else _code_of(called)
        if code is not None:
            yield code


def _code_of(called: object) -> CodeType | None:
    """The code that a call of something runs first; None if that is implemented in C."""
    while isinstance(called, functools.partial):
        called = called.func
    code = getattr(called, "__code__", None) or getattr(type(called).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def forwards_around(frame: FrameType | None) -> list[Forward]:
    """The forwards of ``autograd.Function``s that a frame is in, innermost first."""
    _CODES.refresh()
    frames = _CODES.frames(frame)
    if not frames and not torch.is_inference_mode_enabled():  # That is the other reason to be asked.
        _CODES.refresh(anew=True)
        frames = _CODES.frames(frame)
    if len(frames) == 1:  # To look into frames takes long, and they then hold what they hold now.
        functions = _CODES.functions(frames[0])
        if len(functions) == 1:
            return [Forward(functions[0], frames[0])]
    return _distinguished(frames)


def _distinguished(frames: Sequence[FrameType]) -> list[Forward]:
    """The forwards of frames, innermost first, some of which may belong to one, or to none."""
    forwards: list[Forward] = []
    contexts: list[Any] = []
    for frame in reversed(frames):
        context = _context_of(frame)
        if context is not None:
            function = internals.function_of(context)
            if any(context is other for other in contexts):
                continue  # It was called by another, such as one that calls super().forward(ctx, ..).
            contexts.append(context)
        else:
            function = _newest(frame)
            if function is None or (forwards and _is_called_by(forwards[-1].function, function)):
                continue
        forwards.append(Forward(function, frame))
    return forwards[::-1]


def _is_called_by(outer: type[torch.autograd.Function], inner: type[torch.autograd.Function]) -> bool:
    """Whether a forward without a context, inside of another, was called by that, and not applied."""
    if inner.setup_context in _BASE:
        return True  # If it were applied, it would have one.
    return outer is not inner and issubclass(outer, inner)


def _context_of(frame: FrameType) -> object:
    """The ``ctx`` among a frame's arguments, which knows its function; None if there is none."""
    code, values = frame.f_code, frame.f_locals
    arguments = [values.get(name) for name in code.co_varnames[: min(code.co_argcount, 2)]]
    if code.co_flags & inspect.CO_VARARGS:
        arguments += values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())[:2]
    return next((argument for argument in arguments if internals.function_of(argument) is not None), None)


def _newest(frame: FrameType) -> type[torch.autograd.Function] | None:
    """The newest function that has the code of a frame and, if others have it, too, what it was made with."""
    functions = _CODES.functions(frame)
    exact = [candidate for candidate in functions if _is_made_with(candidate, frame)]
    return next(reversed(exact or functions), None)


def _is_made_with(function: type[torch.autograd.Function], frame: FrameType) -> bool:
    """Whether a function's forward has in its closure what a frame has in its own."""
    called = function.forward
    if _code_of(called) is not frame.f_code:
        called = function.setup_context
    values = frame.f_locals
    cells = zip(frame.f_code.co_freevars, getattr(called, "__closure__", None) or (), strict=False)
    return all(_holds(cell, values.get(name)) for name, cell in cells)


def _holds(cell: CellType, value: object) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:  # It is empty.
        return False
