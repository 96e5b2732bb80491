"""Warnings at the lines where plain Python gives them, and not at those of ours that made a call again."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType
from typing import Any

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_HANDS_OVER = "handle_torch_function"
"""PyTorch's function that hands a call to us."""


class Warned:
    """Shows warnings at the user's lines, by whatever showed them before."""

    def __init__(self) -> None:
        self._before: Any = None

    def begin(self) -> None:
        """Begin to look at where warnings are shown."""
        self._before = warnings.showwarning
        warnings.showwarning = self._show

    def end(self) -> None:
        """Look no more, unless the script has put something else in our place."""
        if warnings.showwarning == self._show:
            warnings.showwarning = self._before

    def _show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: object = None,
        line: str | None = None,
    ) -> None:
        if filename.startswith(_OURS):
            frame = _caller(sys._getframe(1), filename)
            if frame is not None:
                filename, lineno = frame.f_code.co_filename, frame.f_lineno
        self._before(message, category, filename, lineno, file, line)


def _caller(frame: FrameType | None, filename: str) -> FrameType | None:
    """The frame from which a call was made that we made again in a file of ours."""
    while frame is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    while frame is not None:
        if frame.f_code.co_name == _HANDS_OVER:
            frame = frame.f_back  # The function that asked whether somebody wants to see its call.
        elif not frame.f_code.co_filename.startswith(_OURS):
            return frame
        frame = None if frame is None else frame.f_back
    return None
