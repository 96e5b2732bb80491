"""Finds lines of the user's source: in frames that run, and in the stacks that TensorFlow keeps in graphs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from stopgrad.base.source import INSTALLED, OWN, Location, RawLocation, capture, kind_of

if TYPE_CHECKING:
    import tensorflow as tf

_WRITTEN = "__autograph_generated_file"
"""In the names of files that AutoGraph writes."""


def here() -> RawLocation | None:
    """The line of the user's that runs now; none where AutoGraph wrote the code that runs."""
    place = capture()
    return None if place is None or _WRITTEN in decoded_file(place) else place


def decoded_file(place: RawLocation) -> str:
    """The file of a place."""
    code = place[0]
    code = getattr(code, "code", code)
    return str(getattr(code, "co_filename", None) or getattr(code, "file", ""))


def of_operation(op: tf.Operation) -> RawLocation | None:
    """The line that made an operation of a graph: the user's own, or a library's with the user's line."""
    return of_stack(op.traceback)


def of_stack(frames: Any) -> RawLocation | None:
    """The line among those of a stack of TensorFlow's, whose last is the innermost."""
    library: Location | None = None
    for frame in reversed(list(frames)):
        file = frame.filename
        kind = kind_of(file)
        if kind == OWN and _WRITTEN not in file:
            own = Location(file, frame.lineno, function=frame.name)
            if library is None:
                return own, 0
            library.caller, library.asks = own, True
            return library, 0
        if kind == INSTALLED and library is None:
            library = Location(file, frame.lineno, function=frame.name)
    return None if library is None else (library, 0)


def called_by_user(x: object) -> str:
    """The name of a variable of the user's, in the function that runs or its module, that holds an object."""
    frame = sys._getframe(1)
    while frame.f_back is not None and kind_of(frame.f_code.co_filename) != OWN:
        frame = frame.f_back
    for names in (frame.f_locals, frame.f_globals):
        for name, value in list(names.items()):
            if value is x and not name.startswith("_"):
                return name
    return ""


def in_layer(op: tf.Operation) -> bool:
    """Whether a layer of Keras' made an operation of a graph."""
    return any(_LAYERS in frame.filename for frame in op.traceback)


_LAYERS = os.path.join("keras", "src", "layers") + os.sep
