"""Finds lines of the user's source through the frames of PyTorch and of this package."""

from __future__ import annotations

import copy
import functools
import os
import sys
from types import CodeType, FrameType
from typing import Any

import torch

from stopgrad.base.source import (
    FILES,
    OWN,
    Calls,
    RawLocation,
    called,
    calls_around,
    is_internal,
    kind_of,
    outward,
)
from stopgrad.interop.torch import internals

_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OPTIMIZERS = os.path.join(_TORCH, "optim") + os.sep
_GRAD_MODE = os.path.join(_TORCH, "autograd", "grad_mode.py")
_MODULE = os.path.join(_TORCH, "nn", "modules", "module.py")
_CHECKPOINT = os.path.join(_TORCH, "utils", "checkpoint.py")
_BETWEEN = ("<string>", "<frozen ", copy.__file__, functools.__file__)
_INTERNAL: set[str] = set()
_OUTSIDE: set[str] = set()


def _is_between(file: str) -> bool:
    """Whether a file is PyTorch's or ours, and so holds no line of the user's."""
    is_between = file.startswith(_BETWEEN) or is_internal(file)
    files = _INTERNAL if is_between else _OUTSIDE
    if len(files) >= FILES:
        files.clear()
    files.add(file)
    return is_between


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The first frame outside of PyTorch and of this package, starting at *frame*."""
    between = _INTERNAL
    while frame is not None:
        file = frame.f_code.co_filename
        if file in between or (file not in _OUTSIDE and _is_between(file)):
            frame = frame.f_back
        else:
            return frame
    return None


def place_of(frame: FrameType | None) -> RawLocation | None:
    """The instruction that a frame is executing."""
    return None if frame is None else (frame.f_code, frame.f_lasti)


class Around:
    """The calls of functions around the place that was entered last.

    Further down in the same function they are the same, so they are only looked up elsewhere.
    """

    __slots__ = ("_frame", "_last", "calls")

    def __init__(self) -> None:
        self.calls: Calls = ()
        self._frame = 0
        self._last: RawLocation | None = None

    def enter(self, frame: FrameType | None) -> RawLocation | None:
        """The instruction that a frame is executing."""
        if frame is None:
            return None
        last, place = self._last, (frame.f_code, frame.f_lasti)
        if last is None or place[0] is not last[0] or place[1] <= last[1] or id(frame) != self._frame:
            calls = calls_around(frame.f_back)
            if calls != self.calls:  # Equal ones are one object.
                self.calls = calls
        self._last, self._frame = place, id(frame)
        return place


def with_caller(place: RawLocation | None) -> RawLocation | None:
    """The same place; in a library's code that is being executed, with the user's line that led there."""
    if place is None or not isinstance(place[0], CodeType) or kind_of(place[0].co_filename) == OWN:
        return place
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code is not place[0] or frame.f_lasti != place[1]):
        frame = frame.f_back
    return place if frame is None else called(place[0], place[1], outward(frame.f_back), _MODULE)


class Entry:
    """The code that switches gradients on or off, as its frame shows it.

    Attributes:
        manager: the identity of the context manager; 0 if there is none.
        why: its name, as users write it.
        leaves: whether it happens in the manager's ``__exit__``.
        begins: whether what was before is what the manager will come back to: ``set_grad_enabled`` does when
            it is made, all others when they are entered. (An older one may have had the same identity.)
        place: where it was entered: for a decorated function, its decorator.
        optimizes: whether it happens in a step of an optimizer.
        recomputes: whether it happens in a checkpoint, which runs its function again later.
    """

    __slots__ = ("begins", "leaves", "manager", "optimizes", "place", "recomputes", "why")

    manager: int
    leaves: bool
    begins: bool
    why: str
    optimizes: bool
    recomputes: bool
    place: RawLocation | None

    def __init__(self, frame: FrameType | None) -> None:
        self.manager, self.leaves, self.begins = 0, False, False
        self.why = "torch.set_grad_enabled(False)"
        while frame is not None and frame.f_code.co_filename.startswith(_HERE):
            frame = frame.f_back
        while frame is not None and frame.f_code.co_filename == _GRAD_MODE:
            manager = frame.f_locals.get("self")
            self.manager = id(manager)
            name = frame.f_code.co_name
            self.leaves, self.begins = name == "__exit__", name == "__init__"
            if type(manager).__name__ != "set_grad_enabled":
                self.why, self.begins = f"torch.{type(manager).__name__}()", True
            frame = frame.f_back
        file = "" if frame is None else frame.f_code.co_filename
        self.optimizes = file.startswith(_OPTIMIZERS)
        self.recomputes = file == _CHECKPOINT
        self.place = decorator_place(frame) or with_caller(place_of(user_frame(frame)))


def decorator_place(frame: FrameType | None) -> RawLocation | None:
    """The line of the decorator whose function a frame of PyTorch runs; None if it runs none."""
    if frame is None or frame.f_code.co_filename != internals.DECORATORS:
        return None
    function: Any = frame.f_locals.get("func")
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code: Any = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or _is_between(code.co_filename):
        return None
    return called(code, 0, outward(frame), _MODULE)


def hooks_of(tensor: torch.Tensor) -> tuple[RawLocation, ...]:
    """Where the hooks of a tensor are written, through which its gradient goes; without PyTorch's own."""
    codes = [getattr(hook, "__code__", None) for hook in (internals.hooks_of(tensor) or {}).values()]
    return tuple(
        [(code, 0) for code in codes if isinstance(code, CodeType) and not _is_between(code.co_filename)]
    )
