"""The errors a user meets.

Each message names the operation, the broken rule, the user's line and the cure.
"""

from __future__ import annotations

import re
from typing import Any

from stopgrad.base.printable import printable
from stopgrad.base.source import RawLocation, capture, decode
from stopgrad.base.tracebacks import rendered, take_over


class StopgradError(Exception):
    """Base class of all errors of this package. It keeps the user's line that led to it, and prints it."""

    defect = False
    """Whether it is a mistake of this package, whose frames are then shown."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
        self._place: RawLocation | str | None = capture()
        take_over()  # Again, for a shell that was started after the package was imported.

    def __reduce__(self) -> tuple[Any, ...]:
        # A code object cannot be pickled, and the file may be missing where the pickle is read.
        return _restored, (type(self), self.args, {**self.__dict__, "_place": self.where})

    def _render_traceback_(self) -> list[str]:
        """What IPython shows."""
        return rendered(self, self.__traceback__)

    @property
    def where(self) -> str:
        """The user's line as it is printed; empty if there is none."""
        return decode(self._place).describe() if isinstance(self._place, tuple) else self._place or ""

    args: tuple[Any, ...]

    @property
    def message(self) -> str:
        """The message without the user's line."""
        return str(self.args[0])

    def point_here(self) -> None:
        """Replace the user's line by the one that leads here, for an error from another thread."""
        self._place = capture()

    def name_after(self, what: str) -> None:
        """Begin the message with the operation or function that it is about, unless it does already."""
        if self.args and _NAMED.match(self.message) is None:
            self.args = (printable(f"{what}: {self.message}"),)

    def __str__(self) -> str:
        where = self.where
        return self.message if where in self.message else printable(f"{self.message}\n  at {where}")


def _restored(kind: type[StopgradError], args: tuple[Any, ...], state: dict[str, Any]) -> StopgradError:
    """Restore an error that was pickled or copied."""
    base: Any = kind
    while "__new__" not in vars(base):  # As Python finds it; attribute look-up might find another base's.
        base = base.__base__
    error: StopgradError = base.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


# "MatMul: ...", "Session.run: ...", or "Exp 'y' float32[3] built at ...".
_NAMED = re.compile(r"[A-Za-z_][\w.]*(: | '[^']*')")


class ArgumentError(StopgradError, TypeError, ValueError):
    """An argument, other than a tensor, that a function cannot take."""


class ShapeError(StopgradError, ValueError):
    """Sizes that an operation cannot take."""


class AxisError(ShapeError, IndexError):
    """An axis that a tensor does not have."""


class DTypeError(StopgradError, TypeError):
    """Element types that an operation cannot take."""


class GraphError(StopgradError, ValueError):
    """A graph used against its rules: two graphs mixed, an unknown name, a broken invariant."""


class FileError(GraphError, OSError):
    """A file that cannot be written or read: full disk, folder in its place, missing permission."""


class MissingFileError(FileError, FileNotFoundError):
    """A file that does not exist, or whose folder does not exist."""


class FeedError(StopgradError, ValueError):
    """A placeholder that was not fed, or was fed a value that it cannot hold."""


class GradientError(StopgradError, ValueError):
    """A gradient that does not exist, with the reason why."""


class FlowError(GradientError, AssertionError):
    """Gradients that do not flow as asserted; test tools see a failed assertion."""


class EngineError(StopgradError, RuntimeError):
    """An engine that is unknown, not installed, or lacks an operation."""


class DistributedError(StopgradError, RuntimeError):
    """Processes of one run that do not fit together: one is missing, or they run different graphs."""


class CheckpointError(FileError):
    """A checkpoint that cannot be written, is broken, or belongs to another graph."""


class InternalError(StopgradError, RuntimeError):
    """A defect of this package, not a mistake of its user."""

    defect = True

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}; this is a defect of stopgrad, please report it")


class DefinitionError(StopgradError, TypeError):
    """An operation's class that is incomplete; raised while the class is created."""


for _error in list(vars().values()):
    if isinstance(_error, type) and issubclass(_error, StopgradError):
        _error.__module__ = "stopgrad.errors"  # Users import them from there, and tracebacks show that name.

take_over()
