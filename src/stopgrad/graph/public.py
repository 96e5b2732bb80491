"""Public functions: they are documented, their errors name them, and they build all or nothing.

Arguments are read in the bodies of public functions, and in functions that :func:`reads_arguments` marks. A
TypeError or ValueError there is the user's mistake. One that is raised deeper, after arguments were read, is
a defect of ours, and says so. Errors of the user's functions are passed on unchanged.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, TypeVar, cast

import numpy as np

from stopgrad.base.errors import ArgumentError, FlowError, InternalError, StopgradError
from stopgrad.base.source import is_internal
from stopgrad.base.structure import flatten
from stopgrad.base.tracebacks import CALLING
from stopgrad.base.types import DType, shape_of
from stopgrad.graph.builder import current, default_graph
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.immediate import Call
from stopgrad.graph.memoized import key_of, remember, repeated
from stopgrad.graph.op import Op
from stopgrad.graph.operands import as_array, as_list, type_of

F = TypeVar("F", bound=Callable[..., Any])


def __tracebackhide__(caught: Any) -> bool:  # noqa: N807
    """Tells pytest whether to leave this module out of a traceback."""
    return isinstance(caught.value, FlowError)


def builds(definition: type[Op], by_type: bool = False, alike: bool = False) -> Callable[[F], F]:
    """Decorator of the public function of an operation.

    A function without a docstring gets the operation's; one with other arguments has its own.
    """

    def decorate(function: F) -> F:
        return publish(definition, guarded(definition.type, by_type, alike)(function))

    return decorate


def publish(definition: type[Op], function: F) -> F:
    """Make a function the public one of an operation."""
    definition.function = staticmethod(function)
    if function.__doc__ is None:
        function.__doc__ = definition.__doc__
    return function


# -------------------------------------------------------------------------------------- all or nothing


def guarded(what: str, by_type: bool = False, alike: bool = False) -> Callable[[F], F]:
    """Decorator of public functions: they build all or nothing, and errors name *what* was called.

    With *alike*, the function reads of outputs only the types, and what it builds is remembered
    (:mod:`stopgrad.graph.memoized`). With *by_type*, also of arrays, and so are immediate calls
    (:class:`stopgrad.graph.immediate.Call`).
    """
    alike = alike or by_type

    def decorate(function: F) -> F:
        _READERS.add(function.__code__)
        shown = f"{_space(what, function.__module__)}.{function.__name__}"

        @functools.wraps(function)
        def public(*args: object, **kwargs: object) -> Any:
            graph: Any
            repeatable = key = None
            outputs: list[Output] = []
            for x in args:
                if type(x) is Output or (type(x) is list and x and type(x := x[0]) is Output):
                    graph = x.op.graph
                    if alike:
                        key = key_of(public, args, kwargs, outputs)
                        if graph.careful and not graph.is_plain(*outputs):
                            key = None
                    break
            else:
                if by_type:
                    repeatable = Call(public, args, kwargs)
                    if (cached := repeatable.repeated()) is not None:
                        return cached
                graph = _graph_among(args, kwargs)
            length = 0 if graph is None else len(graph._operations)
            others = _lengths() if graph is not None and graph.careful else ()
            try:
                try:
                    if key is not None and (result := repeated(key, outputs, graph)) is not None:
                        return result
                    result = function(*args, **kwargs)
                    if key is not None:
                        remember(key, outputs, graph, length, result)
                    elif repeatable is not None:
                        repeatable.remember(result)
                    return result
                except BaseException as error:  # A KeyboardInterrupt leaves nothing behind either.
                    _undo(graph, length, others)
                    explained = _for_user(error, what, shown, sys._getframe(1))
                    if explained is error:
                        del explained  # The error's traceback holds this frame: a cycle would keep the graph.
                        raise
                    raise explained from error
            except BaseException:  # Again, in case an interrupt came first.
                _undo(graph, length, others)
                raise

        _READERS.add(cast("Any", public).__code__)
        return cast("F", public)

    return decorate


_SPACES = {"np": "np"} | {space: f"sg.{space}" for space in ("optimizers", "random", "xp")}


def _space(what: str, module: str) -> str:
    """Where users find a public function, as ``help`` in their program takes it."""
    parts = module.split(".")
    if parts[:2] == ["stopgrad", "interop"] and len(parts) > 2:
        return f"stopgrad.{parts[2]}"  # Each has a door of its name.
    return _SPACES.get(what.rpartition(".")[0], "sg")


def _graph_among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Graph | None:
    """The graph of the first output among arguments, or the default graph."""
    nested = [x for x in (*args, *kwargs.values()) if type(x) not in _LEAVES and not _holds_leaves(x)]
    # The keys of a feed_dict are outputs, by which a structure cannot be sorted.
    nested = [list(x) if type(x) is dict and any(map(_is_built, x)) else x for x in nested]
    for x in flatten(nested)[0] if nested else ():
        if _is_built(x):
            graph: Graph = x.graph
            return graph
    return default_graph()


def _is_built(x: object) -> bool:
    return isinstance(x, (Output, Operation))


_LEAVES = frozenset((np.ndarray, float, int, bool, complex, str, type(None), DType))
"""Types that hold no outputs: by far the most arguments outside of graphs."""


def _holds_leaves(x: Any) -> bool:
    return type(x) in (list, tuple) and all([type(y) in _LEAVES for y in x])  # noqa: C419 - faster


def _lengths() -> list[tuple[Graph, int]]:
    """The lengths of the bodies that are being traced, and of the graphs around them."""
    lengths = []
    trace = current().tracing
    while trace is not None:
        lengths += [(graph, len(graph)) for graph in (trace.graph, trace.outer_graph) if graph is not None]
        trace = trace.outer
    return lengths


def _undo(graph: Graph | None, length: int, others: Iterable[tuple[Graph, int]]) -> None:
    if graph is not None:
        graph.truncate(length)
    for other, before in others:
        other.truncate(before)


# ---------------------------------------------------------------------------------------- whose mistake

_READERS: set[CodeType] = set()
"""The code objects of functions that read arguments."""

_ARGUMENTS = (TypeError, ValueError, IndexError, OverflowError)
"""The errors of Python and NumPy for arguments of a wrong type or value."""

_NO_DEFECTS = (Warning, MemoryError, OSError, RecursionError, StopIteration, StopAsyncIteration)
"""Errors that are passed on, because they do not say whose mistake they are."""


def reads_arguments(function: F) -> F:
    """Decorator: a TypeError or ValueError in this function is about an argument of the user."""
    _READERS.add(function.__code__)
    return function


def call(f: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Call a function of the user, whose errors are not ours."""
    return f(*args, **kwargs)


CALLING.add(call.__code__)

for _reader in (as_array, as_list, type_of, shape_of, flatten):
    reads_arguments(_reader)


def _for_user(error: BaseException, what: str, shown: str, caller: FrameType | None) -> BaseException:
    """The error as the user gets it: with the name of what was called, and explained where it is foreign."""
    explained = error if isinstance(error, StopgradError) else _explained(error, shown, caller)
    if explained is None:
        return error
    explained.name_after(what)
    return explained


def _explained(error: BaseException, shown: str, caller: FrameType | None) -> StopgradError | None:
    """The message for the user about a foreign error; None if it should be passed on unchanged."""
    below = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not isinstance(error, Exception) or isinstance(error, _NO_DEFECTS):
        return None
    if any(frame.f_code is call.__code__ for frame in below):
        return None
    if isinstance(error, _ARGUMENTS) and _only_read(below) and _only_read(_up_to_user(caller)):
        return ArgumentError(f"{error}; help({shown}) says what it takes")
    ours = [frame for frame in below if frame.f_code.co_filename.startswith(_HOME)]
    if ours[-1].f_code in _READERS and ours[-1] is not below[-1] and not _is_known(below[-1]):
        return None  # It comes from a method of the user's object, which was being read.
    return InternalError(f"{type(error).__name__}: {error}")


def _is_known(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return is_internal(file) or file.startswith(_PYTHON)


def _only_read(frames: Iterable[FrameType]) -> bool:
    """Whether all frames of ours are of code that reads arguments."""
    return all(
        frame.f_code in _READERS or frame.f_code.co_name in _COMPREHENSIONS
        for frame in frames
        if frame.f_code.co_filename.startswith(_HOME)
    )


def _up_to_user(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame of ours and its callers, up to the user's."""
    while frame is not None and is_internal(frame.f_code.co_filename) and frame.f_code is not call.__code__:
        yield frame
        frame = frame.f_back


_COMPREHENSIONS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
