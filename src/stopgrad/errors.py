"""The errors a user meets. Each message names the operation, the broken rule, the user's line and the cure."""

from __future__ import annotations


class StopgradError(Exception):
    """Base of all errors raised by this package."""


class ShapeError(StopgradError, ValueError):
    """Sizes that an operation cannot take."""


class DTypeError(StopgradError, TypeError):
    """Element types that an operation cannot take."""


class GraphError(StopgradError, ValueError):
    """A graph used against its rules: two graphs mixed, an unknown name, a broken invariant."""


class FeedError(StopgradError, ValueError):
    """A placeholder left unfed, or fed a value it cannot hold."""


class GradientError(StopgradError, ValueError):
    """A gradient that does not exist, with the reason why."""


class EngineError(StopgradError, RuntimeError):
    """An engine that is unknown, not installed, or lacks an operation."""


class DefinitionError(StopgradError, TypeError):
    """An operation's class that is incomplete; raised while the class is created."""
