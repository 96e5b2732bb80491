"""Follows the calls of ``jax.grad`` and ``jax.value_and_grad``: what is differentiated, what arrives."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

import jax
import numpy as np

from stopgrad.base.source import OURS, OWN, RawLocation, kind_of
from stopgrad.graph.arguments import argument_names
from stopgrad.interop.jax.places import is_between
from stopgrad.interop.jax.tracing import path_of
from stopgrad.interop.jax.training.traced_values import (
    abstract,
    has_slope,
    is_differentiated,
    is_traced,
    zeros_among,
)
from stopgrad.interop.shared import keras

POINTS = 200
"""The most program points that are followed."""
LEAVES = 100_000
"""The most leaves of arguments that are looked at, at one point."""
CALL = "__stopgrad_call__"
"""The attribute of an exception that holds the call of a gradient that it ended."""
WRAPPED = ("grad", "value_and_grad")
_BETWEEN = re.compile(r"^([^.]+)\.states\.\d+\.")
"""What Flax's nnx puts between an argument's name and a path in the module."""


class Call(NamedTuple):
    """A call of a function that ``jax.grad`` has made.

    Attributes:
        function: what is differentiated.
        argnums: with respect to which arguments.
        has_aux: whether the function returns a pair.
        args, kwargs: its arguments.
    """

    function: Callable[..., Any]
    argnums: int | Sequence[int]
    has_aux: bool
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def positions(self) -> list[int]:
        """The positions of the arguments that are differentiated."""
        argnums: Any = self.argnums
        return [
            int(n) % len(self.args) for n in (argnums if isinstance(argnums, (list, tuple)) else [argnums])
        ]

    def leaves(self) -> list[tuple[str, Any]]:
        """The leaves of these arguments with their paths, in JAX's order."""
        names = argument_names(self.function, len(self.args))
        pairs = []
        for n in self.positions:
            located, _ = jax.tree_util.tree_flatten_with_path(self.args[n])
            pairs += [(path_of(names[n], path), leaf) for path, leaf in located]
        return pairs


class Leaf(NamedTuple):
    """A leaf of a differentiated argument.

    Attributes:
        path: such as ``"params.w"``.
        name: the same for readers, without what libraries put in between.
        shape: of its array.
        is_zero: whether its gradient is zero for certain.
        tail: its path in the argument.
        outside: the variable by which the function reads the same array from outside; empty if it does not.
    """

    path: str
    name: str
    shape: tuple[int, ...]
    is_zero: bool
    tail: str
    outside: str = ""


class Point(NamedTuple):
    """A place of a program where a function is differentiated.

    Attributes:
        place: the line that asks for the gradient.
        name: of the function.
        leaves: those that could have a gradient.
        call: the first call, with shapes in place of arrays; None once it was looked at.
        is_traced: whether that was a part of a trace.
        code: of the function, if it is the user's.
        span: the numbers of its first and its last call among all calls.
    """

    place: RawLocation | None
    name: str
    leaves: list[Leaf]
    call: Call | None
    is_traced: bool
    code: CodeType | None
    span: list[int]


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The user's frame that led to one."""
    while frame is not None and kind_of(frame.f_code.co_filename) != OWN:
        frame = frame.f_back
    return frame


def own_code(function: Any) -> CodeType | None:
    """The code of a function, behind wrappers."""
    for _ in range(10):
        inner = getattr(function, "func", None) or getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None


class Calls:
    """Lets gradients be looked at once at each program point, and changes none of them.

    Args:
        met: is told of each new point, as long as its trace lasts.
        called: is told of each call outside of traces.
    """

    def __init__(self, met: Callable[[Point], None], called: Callable[[], None]) -> None:
        self.points: dict[Any, Point | None] = {}
        self.unknown: dict[str, None] = {}
        self.latest: list[weakref.ref[Any]] = []
        self._met, self._called = met, called
        self._thread = threading.get_ident()
        self._depth = self._count = 0
        self.last: Any = None
        self._is_open = True
        self._originals = {name: getattr(jax, name) for name in WRAPPED}
        self._ours = {name: self._replacing(name, function) for name, function in self._originals.items()}
        for name, function in self._ours.items():
            setattr(jax, name, function)

    def close(self) -> None:
        """Put JAX's functions back; those that were handed out do what JAX's do."""
        self._is_open = False
        for name, function in self._originals.items():
            if getattr(jax, name) is self._ours[name]:
                setattr(jax, name, function)

    def _replacing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def differentiate(*args: Any, **kwargs: Any) -> Any:
            gradient = original(*args, **kwargs)
            if not self._is_open or threading.get_ident() != self._thread:
                return gradient
            frame = user_frame(sys._getframe(1))
            if frame is None or kind_of(sys._getframe(1).f_code.co_filename) == OURS:
                return gradient
            return self._followed(name, gradient, (frame.f_code, frame.f_lasti), args, kwargs)

        return differentiate

    def _followed(
        self,
        name: str,
        gradient: Callable[..., Any],
        place: RawLocation,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> Callable[..., Any]:
        function = args[0] if args else options["fun"]
        argnums = args[1] if len(args) > 1 else options.get("argnums", 0)
        has_aux = bool(args[2] if len(args) > 2 else options.get("has_aux", False))
        key = place, own_code(function) or id(function)

        @functools.wraps(gradient)
        def followed(*args: Any, **kwargs: Any) -> Any:
            if not self._is_open or threading.get_ident() != self._thread:
                return gradient(*args, **kwargs)
            spare = _spare(function) if key not in self.points else function
            self._depth += 1
            try:
                result = gradient(*args, **kwargs)
            except Exception as error:
                if not hasattr(error, CALL):
                    with contextlib.suppress(Exception):
                        setattr(error, CALL, Call(function, argnums, has_aux, args, kwargs))
                raise
            finally:
                self._depth -= 1
            if self._depth == 0:
                with self._quietly():
                    call = Call(spare, argnums, has_aux, args, kwargs)
                    gradients = (result[0] if has_aux else result) if name == "grad" else result[1]
                    self._note(key, place, call, gradients)
            return result

        return followed

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """Whatever fails in here, the training goes on; and what JAX does in here is not followed."""
        self._depth += 1
        try:
            yield
        except Exception as error:
            self.unknown[f"a gradient could not be looked at ({type(error).__name__}: {_line(error)})"] = None
        finally:
            self._depth -= 1

    def _note(self, key: Any, place: RawLocation, call: Call, gradients: Any) -> None:
        arrived = jax.tree_util.tree_leaves(gradients)
        self.latest = [weakref.ref(x) for x in arrived if isinstance(x, jax.Array)]
        self._count += 1
        self.last = key
        earlier = self.points.get(key)
        if earlier is not None:
            earlier.span[1] = self._count
        if key not in self.points and len(self.points) < POINTS:
            self.points[key] = None
            point = self._point(place, call, arrived)
            if point is not None:
                self.points[key] = point
                self._met(point)
                if point.is_traced:  # What the function closes over belongs to a trace that will end.
                    self.points[key] = point._replace(call=None)
        if not any(map(is_traced, arrived)):
            self._called()

    def _point(self, place: RawLocation, call: Call, arrived: Sequence[Any]) -> Point | None:
        everything = jax.tree_util.tree_leaves((call.args, dict(call.kwargs)))
        if any(map(is_differentiated, everything)):
            return None
        leaves = call.leaves()
        if len(leaves) != len(arrived) or len(leaves) > LEAVES:
            return None
        chosen = [i for i, (_, leaf) in enumerate(leaves) if has_slope(leaf) and has_slope(arrived[i])]
        zeros = zeros_among([arrived[i] for i in chosen])
        own = own_code(call.function)
        is_own = own is not None and not is_between(own.co_filename) and kind_of(own.co_filename) == OWN
        weights = _weights_of_keras(call, [leaf for _, leaf in leaves])
        observed = []
        for i, is_zero in zip(chosen, zeros, strict=True):
            path, leaf = leaves[i]
            name = _BETWEEN.sub(r"\1.", path)
            tail = name.partition(".")[2]
            outside = _outside(call, leaf) if is_zero else ""
            label = weights[i] if weights else name if is_own or not tail else tail
            observed.append(Leaf(path, label, np.shape(leaf), is_zero, tail, outside))
        title = "" if own is None else own.co_name
        span = [self._count, self._count]
        traced = any(map(is_traced, [*everything, *arrived]))
        args, kwargs = abstract((call.args, dict(call.kwargs)))
        abstract_call = call._replace(args=args, kwargs=kwargs)
        return Point(place, title, observed, abstract_call, traced, own if is_own else None, span)


def _spare(function: Any) -> Any:
    """A function to be called once more; a copy, if calls take something out of its queues."""
    queues = {
        name: queue
        for name, queue in getattr(function, "__dict__", {}).items()
        if isinstance(queue, collections.deque)
    }
    if not queues:
        return function
    spare = copy.copy(function)
    for name, queue in queues.items():
        object.__setattr__(spare, name, queue.copy())
    return spare


def _weights_of_keras(call: Call, leaves: Sequence[Any]) -> list[str]:
    """The paths of the weights by which a model of Keras is differentiated; none if it is something else."""
    model: Any = getattr(call.function, "__self__", None)
    weights = model.trainable_variables if keras.is_model(model) else []
    shapes = [tuple(variable.shape) for variable in weights]
    return (
        [str(variable.path) for variable in weights] if shapes == [np.shape(leaf) for leaf in leaves] else []
    )


def _outside(call: Call, leaf: Any) -> str:
    """The variable by which a function reads the very value that it is also given as an argument."""
    function: Any = call.function
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    variables = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # It may be empty.
            variables[name] = cell.cell_contents
    arguments = [leaf, *[call.args[n] for n in call.positions]]
    return next(
        (name for name, value in variables.items() if any(value is argument for argument in arguments)), ""
    )


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
