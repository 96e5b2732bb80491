"""What makes a function public: it is documented, its errors name it, and none leaves half a build."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any, TypeVar, cast

from stopgrad.builder import default_graph
from stopgrad.errors import ArgumentError, StopgradError
from stopgrad.graph import Graph, Operation, Output
from stopgrad.op import Op
from stopgrad.source import is_internal
from stopgrad.structure import flatten

F = TypeVar("F", bound=Callable[..., Any])


def builds(definition: type[Op]) -> Callable[[F], F]:
    """Decorator: this is the public function of an operation.

    A function without a docstring takes over the operation's; one whose arguments differ has its own.
    """

    def decorate(function: F) -> F:
        return publish(definition, guarded(definition.type)(function))

    return decorate


def publish(definition: type[Op], function: F) -> F:
    """Make this the public function of an operation."""
    definition.function = staticmethod(function)
    if function.__doc__ is None:
        function.__doc__ = definition.__doc__
    return function


_ARGUMENTS = (TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What Python and NumPy raise for an argument of the wrong kind."""


def guarded(what: str) -> Callable[[F], F]:
    """Decorator of public functions that do more than :func:`apply`.

    Errors name *what* was called, and leave no operation behind.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def public(*args: Any, **kwargs: Any) -> Any:
            graph = args[0].op.graph if args and type(args[0]) is Output else _graph_among((args, kwargs))
            length = len(graph._operations) if graph is not None else 0
            try:
                return function(*args, **kwargs)
            except BaseException as error:  # KeyboardInterrupt, too, leaves nothing behind.
                if graph is not None:
                    graph.truncate(length)
                if isinstance(error, StopgradError):
                    error.name_after(what)
                    raise
                if not isinstance(error, _ARGUMENTS) or not _is_ours(error):
                    raise
                refused = ArgumentError(f"{error}; help(sg.{function.__name__}) says what it takes")
                refused.name_after(what)
                raise refused from error

        return cast("F", public)

    return decorate


def _graph_among(tree: Any) -> Graph | None:
    """The graph of the outputs among arguments, or the default."""
    symbolic = next((x.as_output() for x in flatten(tree)[0] if isinstance(x, (Output, Operation))), None)
    return symbolic.op.graph if symbolic is not None else default_graph()


def _is_ours(error: BaseException) -> bool:
    """Whether an error comes from below our own code, not from a function that a user passed in."""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [is_internal(file) for file in frames]
    last = len(ours) - 1 - ours[::-1].index(True)
    return all(ours[:last])
