"""Lines of the user's source, and who stands on the way to them."""

from __future__ import annotations

import copy
import functools
import os
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils import _contextlib

from stopgrad.base.source import FILES, RawLocation, is_internal

_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OPTIMIZERS = os.path.join(_TORCH, "optim") + os.sep
_GRAD_MODE = os.path.join(_TORCH, "autograd", "grad_mode.py")
_CHECKPOINT = os.path.join(_TORCH, "utils", "checkpoint.py")
_BETWEEN = ("<string>", "<frozen ", copy.__file__, functools.__file__)
_FUNCTION: Any = torch.autograd.Function
_APPLY = _FUNCTION.apply.__func__.__code__
_INTERNAL: dict[str, bool] = {}


def _is_between(file: str) -> bool:
    """Whether a file stands between us and the user's line."""
    if len(_INTERNAL) >= FILES:
        _INTERNAL.clear()
    found = _INTERNAL[file] = file.startswith(_BETWEEN) or is_internal(file)
    return found


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The first frame outside of PyTorch and of this package, from one on."""
    known = _INTERNAL
    while frame is not None:
        file = frame.f_code.co_filename
        between = known.get(file)
        if between is None:
            between = _is_between(file)
        if not between:
            return frame
        frame = frame.f_back
    return None


def place_of(frame: FrameType | None) -> RawLocation | None:
    """The instruction that a frame is at."""
    return None if frame is None else (frame.f_code, frame.f_lasti)


class Entry:
    """Who switches gradients on or off.

    Attributes:
        manager: the identity of the context manager; 0 where there is none.
        why: what it is, as users write it.
        leaves: whether that is its ``__exit__``.
        constructs: whether it is only being constructed.
        place: where it was entered: for a decorated function, its decorator.
        optimizes: whether a step of an optimizer does it.
        recomputes: whether a checkpoint does it, which runs its function again later.
    """

    __slots__ = ("constructs", "leaves", "manager", "optimizes", "place", "recomputes", "why")

    def __init__(self, frame: FrameType | None) -> None:
        self.manager, self.leaves, self.constructs = 0, False, False
        self.why = "torch.set_grad_enabled(False)"
        while frame is not None and frame.f_code.co_filename.startswith(_HERE):
            frame = frame.f_back
        while frame is not None and frame.f_code.co_filename == _GRAD_MODE:
            manager = frame.f_locals.get("self")
            self.manager = id(manager)
            if type(manager).__name__ != "set_grad_enabled":
                self.why = f"torch.{type(manager).__name__}()"
            name = frame.f_code.co_name
            self.leaves, self.constructs = name == "__exit__", name == "__init__"
            frame = frame.f_back
        file = "" if frame is None else frame.f_code.co_filename
        self.optimizes = file.startswith(_OPTIMIZERS)
        self.recomputes = file == _CHECKPOINT
        self.place = decorator_place(frame) or place_of(user_frame(frame))


def decorator_place(frame: FrameType | None) -> RawLocation | None:
    """The decorator of the function that a frame of PyTorch's runs for one; None where it does not."""
    if frame is None or frame.f_code.co_filename != _contextlib.__file__:
        return None
    function: Any = frame.f_locals.get("func")
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code: Any = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or _is_between(code.co_filename):
        return None
    return code, 0


def forward_of_function(frame: FrameType | None) -> FrameType | None:
    """The frame that applies an ``autograd.Function``, inside the forward of which a frame is."""
    while frame is not None:
        if frame.f_code is _APPLY:
            return frame
        frame = frame.f_back
    return None
