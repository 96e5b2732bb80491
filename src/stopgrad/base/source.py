"""Places in the user's files: captured in well under a microsecond, decoded only when printed."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import re
import sys
import weakref
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType

import numpy as np

from stopgrad.base.notebooks import at_line, cell_of

# The recipes are written as a user would write them, so their lines count as the user's.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Code that may run between us and the user's line: the trainer, context managers, and the array libraries,
# which call back; Keras runs all of a model's layers by its own code, whichever of these computes, and maps
# over structures by optree.
_BESIDE = os.path.dirname(os.path.dirname(np.__file__))
_TRAINER = f"{_PACKAGE[:-1]}_trainer{os.sep}"
_BETWEEN_NAMES = ("numpy", "jax", "torch", "tensorflow", "keras", "optree")
_BETWEEN = (
    _TRAINER,
    contextlib.__file__,
    *[os.path.join(_BESIDE, name, "") for name in _BETWEEN_NAMES],
)
_KERAS = re.compile(r".*[/\\](?:site|dist)-packages[/\\]keras[/\\]")
_RECIPES = os.path.join(_PACKAGE, "tools", "recipes") + os.sep

OWN, INSTALLED, STANDARD, BETWEEN, OURS = range(5)
"""The kinds of files: the user's own; of an installed library; of Python's; of NumPy, JAX, PyTorch and such,
which may run between us and the user's line; the package's."""

# The kinds by file name: Python caches a string's hash, but not that of a code object.
_KINDS: dict[str, int] = {}
FILES = 4096
"""The most files in that table; cells of notebooks are files too."""
_PACKAGES = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")
_STANDARD = os.path.dirname(os.__file__) + os.sep
# Code that Python or a library writes while it runs.
_GENERATED = ("<frozen ", "<@", "<attrs ", "<eval_with_key>", "<__array_function__")


# One int object for all equal instruction numbers, since a graph holds one for each operation.
_INSTRUCTIONS: dict[int, int] = {}
INSTRUCTIONS = 2**14
"""Instruction numbers from here on are not shared."""


def kind_of(file: str) -> int:
    """The kind of a file, by its name."""
    kind = _KINDS.get(file)
    if kind is None:
        if len(_KINDS) >= FILES:
            _KINDS.clear()
        kind = _KINDS[file] = _kind(file)
    return kind


def _kind(file: str) -> int:
    if file.startswith(_PACKAGE):
        return OWN if file.startswith(_RECIPES) else OURS
    if file.startswith(_BETWEEN) or _KERAS.match(file):
        return BETWEEN
    if _PACKAGES.match(file):
        return INSTALLED
    return STANDARD if file.startswith((_STANDARD, *_GENERATED)) else OWN


def is_internal(file: str) -> bool:
    """Whether a file is the package's, but no recipe, or may run between it and the user's line."""
    return kind_of(file) >= BETWEEN


def in_library(file: str) -> str:
    """The name of a library's file from the library's name on, as ``einops/layers.py``; else empty.

    Examples:
        >>> in_library("/opt/venv/lib/python3.12/site-packages/einops/layers/torch.py")
        'einops/layers/torch.py'
        >>> in_library("/home/me/train.py")
        ''
    """
    packages = _PACKAGES.match(file)
    if packages is not None:
        return file[packages.end() :]
    return file[len(_STANDARD) :] if file.startswith(_STANDARD) else ""


def to_user() -> int:
    """The number of frames from the caller up to the user's, as ``warnings.warn`` counts them."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level


def capture(ours: int = 0) -> RawLocation | None:
    """The instruction in the first frame outside the package that led here.

    The first so many callers of the calling function are *ours*, and need not be looked at.
    """
    try:
        frame = sys._getframe(ours + 2)
    except ValueError:  # Called by no Python code at all.
        return None
    kinds = _KINDS
    while True:
        code = frame.f_code
        kind = kinds.get(code.co_filename)
        if kind is None:
            kind = kind_of(code.co_filename)
        if kind < BETWEEN:
            at = frame.f_lasti
            at = _INSTRUCTIONS.setdefault(at, at) if at < INSTRUCTIONS else at
            return (code, at) if kind == OWN else called(code, at, outward(frame.f_back))
        if frame.f_back is None:
            return None
        frame = frame.f_back


# ------------------------------------------------------------------------------------- who called it


class Called:
    """Code of a library, with the line that called it.

    Attributes:
        code: the library's.
        caller: the line that called it: of the user's, or of another library.
        asks: whether a reader looks for the caller's line: the library's is a helper's, and no model's.
    """

    __slots__ = ("__weakref__", "asks", "caller", "code")

    code: CodeType
    caller: RawLocation
    asks: bool

    def __init__(self, code: CodeType, caller: RawLocation, asks: bool) -> None:
        self.code, self.caller, self.asks = code, caller, asks


Instruction = tuple[CodeType, int]
RawLocation = tuple["CodeType | Called | Location", int]
"""A captured instruction, or a place that is decoded already."""

_CALLED: weakref.WeakValueDictionary[tuple[int, int, int, bool], Called] = weakref.WeakValueDictionary()
_FORWARD = "forward"
"""The name of what runs a module, by PyTorch's convention."""


def outward(frame: FrameType | None) -> Iterator[Instruction]:
    """What a frame and those around it are executing, innermost first."""
    while frame is not None:
        yield frame.f_code, frame.f_lasti
        frame = frame.f_back


Calls = tuple[Instruction, ...]
"""What functions of the user and of libraries were executing when something happened, outermost first."""
DEEPEST = 100
"""The most frames that are looked at for it."""


def calls_around(frame: FrameType | None, until: CodeType | None = None) -> Calls:
    """What the functions around a frame, and its own, are executing: outermost first.

    Those of Python, of this package and of the libraries that run between it and the user are left out, and
    all beyond a frame of the code *until*.
    """
    calls: list[Instruction] = []
    kinds, remaining = _KINDS, DEEPEST
    while frame is not None and remaining:
        code = frame.f_code
        if code is until:
            break
        kind = kinds.get(code.co_filename)
        if (kind_of(code.co_filename) if kind is None else kind) <= INSTALLED:
            calls.append((code, frame.f_lasti))
        frame, remaining = frame.f_back, remaining - 1
    calls.reverse()
    return tuple(calls)


def called(code: CodeType, at: int, outer: Iterable[Instruction], modules: str = "") -> RawLocation:
    """An instruction; if it is a library's, with the line that a reader of a report would call its cause.

    That is the line of the user's own code that called the library's function. Where it called a whole model
    instead, which is the library's, nobody's own code is the cause, but the library's; the user's line is
    kept beside. If in the library's model the instruction is a helper's of another library, the cause is the
    model's line.

    Args:
        code, at: the instruction.
        outer: what the frames around it execute, innermost first.
        modules: the file that calls models, and their parts.
    """
    if kind_of(code.co_filename) == OWN:
        return code, at
    around, home = iter(outer), _library(code.co_filename)
    model = home if code.co_name == _FORWARD else ""
    first: dict[str, Instruction] = {}
    bounded, own = False, None
    known_kind = _KINDS.get
    for instruction in around:
        file = instruction[0].co_filename
        kind = known_kind(file)
        if kind is None:
            kind = kind_of(file)
        if file == modules or kind == OURS:
            bounded = True
        elif kind == OWN:
            own = instruction
            break
        elif kind == INSTALLED and not bounded:
            first.setdefault(_library(file), instruction)
            model = model or (_library(file) if instruction[0].co_name == _FORWARD else "")
    if own is not None and (not bounded or any(outer.co_filename == modules for outer, _ in around)):
        return _called(code, own, asks=True), at
    helped = first.get(model) if model != home else None
    if helped is not None:
        caller = helped if own is None else (_called(helped[0], own, asks=False), helped[1])
        return _called(code, caller, asks=True), at
    return (code, at) if own is None else (_called(code, own, asks=False), at)


def is_users(place: RawLocation) -> bool:
    """Whether a place is in the user's own code, not in a library's that this calls."""
    code = place[0]
    if isinstance(code, Called):
        return False
    return kind_of(code.file if isinstance(code, Location) else code.co_filename) == OWN


def _library(file: str) -> str:
    return re.split(r"[/\\]", in_library(file), maxsplit=1)[0]


def _called(code: CodeType, caller: RawLocation, asks: bool) -> Called:
    """One object for all equal ones."""
    key = id(code), id(caller[0]), caller[1], asks
    call = _CALLED.get(key)
    if call is None:
        call = _CALLED[key] = Called(code, caller, asks)
    return call


class Location:
    """A place in a source file: ``file``, ``line`` and, if the interpreter knows it, the sub-expression.

    In a library's file it may have a ``caller``, the line that called it; see :func:`called`.
    """

    __slots__ = ("_source", "asks", "caller", "column", "end_column", "end_line", "file", "function", "line")

    file: str
    line: int
    end_line: int | None
    column: int | None
    end_column: int | None
    function: str
    caller: Location | None
    asks: bool

    def __init__(
        self,
        file: str,
        line: int,
        end_line: int | None = None,
        column: int | None = None,
        end_column: int | None = None,
        function: str = "",
        source: str | None = None,
        caller: Location | None = None,
        asks: bool = False,
    ) -> None:
        self.file = file
        self.line = line
        self.end_line = end_line
        self.column = column
        self.end_column = end_column
        self.function = function
        self._source = source  # Given for a location that was read from a saved graph.
        self.caller, self.asks = caller, asks

    @property
    def cause(self) -> Location:
        """The place that a reader looks for: the caller's, where this is only a helper's; else this."""
        return self.caller.cause if self.asks and self.caller is not None else self

    @property
    def own(self) -> Location:
        """The user's own line that led here, as far as it is known."""
        return self if self.caller is None else self.caller.own

    @property
    def source(self) -> str:
        """The source text of the sub-expression, or of the line; empty if the file cannot be read."""
        if self._source is not None:
            return self._source
        text = linecache.getline(self.file, self.line)
        if self.end_line == self.line and self.column is not None and self.end_column is not None:
            # Columns count UTF-8 bytes.
            return text.encode()[self.column : self.end_column].decode(errors="replace")
        return text.strip()

    def __repr__(self) -> str:
        return at_line(self.file, self.line, cell_of(self.file))

    def describe(self) -> str:
        """``file:line: expression``, as messages print it."""
        source = self.source
        return f"{self!r}: {source}" if source else repr(self)


class _Itself:
    """Code as the key of a cache. Python's own hash of code reads all of it, each time."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.code is other.code

    def __hash__(self) -> int:
        return id(self.code)


@functools.lru_cache(8)
def _positions(itself: _Itself) -> tuple[tuple[int | None, ...], ...]:
    """The places of all instructions; Python can only decode them one after the other, from the first."""
    return tuple(itself.code.co_positions())


def decode(raw: RawLocation) -> Location:
    """The place of a captured instruction."""
    code, instruction = raw
    if isinstance(code, Location):
        return code
    caller, asks = None, False
    if isinstance(code, Called):
        caller, asks, code = decode(code.caller), code.asks, code.code
    positions, index = _positions(_Itself(code)), instruction // 2
    line, end_line, column, end_column = positions[index] if index < len(positions) else (None,) * 4
    return Location(
        code.co_filename,
        line if line is not None else code.co_firstlineno,
        end_line,
        column,
        end_column,
        code.co_name,
        caller=caller,
        asks=asks,
    )
