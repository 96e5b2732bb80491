"""A function of TensorFlow's that is called again and again: with stops held, or without some of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from stopgrad.base.errors import ArgumentError
from stopgrad.base.source import OWN, RawLocation, kind_of
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.public import call
from stopgrad.interop.tensorflow.asking import arguments_of, variables_of
from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.places import here
from stopgrad.interop.tensorflow.recording.record import Event
from stopgrad.interop.tensorflow.watching import Watch, losses_in

Opens = Callable[[RawLocation | None], bool]
"""Whether the stops at a place pass their operand on."""


class Stops:
    """``tf.stop_gradient`` while a function runs: what it returned first, it returns again.

    So stopped values stay those of the base point, as the gradient takes them.

    Args:
        holds: whether they do.
        opens: which stops are taken out instead.

    Attributes:
        values: what was returned first.
        places: the lines of the user's own calls.
    """

    def __init__(self, holds: bool = True, opens: Opens | None = None) -> None:
        self._holds, self._opens = holds, opens
        self.values: list[Any] = []
        self.places: list[RawLocation | None] = []
        self._next = 0
        self._is_first = True

    def again(self) -> None:
        """From here on, the values of the first run are returned, from the first on."""
        self._is_first, self._next = False, 0

    @contextmanager
    def acting(self) -> Iterator[None]:
        """TensorFlow's function is replaced while this lasts."""
        original = tf.stop_gradient

        def stop_gradient(input: object, name: object = None) -> object:
            is_own = kind_of(sys._getframe(1).f_code.co_filename) == OWN
            if is_own and self._opens is not None and self._opens(here()):
                return tf.identity(input, name)
            if self._is_first:
                if is_own:
                    self.places.append(here())
                self.values.append(original(input, name))
                return self.values[-1]
            self._next += 1
            return self.values[self._next - 1] if self._holds else original(input, name)

        try:
            for home in (tf, internals.array_ops):  # TensorFlow's own functions have the other.
                home.stop_gradient = stop_gradient
            yield
        finally:
            for home in (tf, internals.array_ops):
                home.stop_gradient = original


@contextmanager
def eagerly() -> Iterator[None]:
    """What ``tf.function`` compiles runs eagerly while this lasts."""
    before = bool(tf.config.functions_run_eagerly())
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


class Posed:
    """A function of TensorFlow's at its arguments; it is called eagerly.

    Attributes:
        sources: the trainable variables that are read, and the tensors of floating-point numbers among the
            arguments, by name.
        events: what the first call did.
        stops: the stops of that call.
        results: of that call.
        tape: has recorded it.
    """

    stops: Stops
    sources: dict[str, Any]
    results: list[Any]
    tape: tf.GradientTape

    def __init__(
        self,
        what: str,
        f: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        holds: bool = True,
    ) -> None:
        self._what, self._f, self._args, self._kwargs = what, f, args, kwargs
        self._initial: list[tuple[Any, Any]] = []
        self.stops = Stops(holds)
        arguments = arguments_of(f, args, kwargs)
        watch = Watch()
        watch._recorder.meet = self._note_value
        self.tape = tf.GradientTape(persistent=True)
        with self.stops.acting(), watch, self.tape:
            self.tape.watch(list(arguments.values()))
            self.results = losses_in(what, call(f, *args, **kwargs))
        self.sources = {**variables_of(watch._recorder), **arguments}
        if not self.sources:
            raise ArgumentError(
                f"{what}: the function reads no trainable variable and has no tensor of "
                "floating-point numbers among its arguments"
            )
        self.events: list[Event] = watch._recorder.events()
        self.restore()

    def again(self, stops: Stops, changed: Mapping[int, Any]) -> list[Any]:
        """The results of another call, with other values for some tensors (by ``id``)."""
        try:
            with stops.acting():
                args, kwargs = tf.nest.map_structure(
                    lambda x: changed.get(id(x), x), (self._args, self._kwargs)
                )
                return losses_in(self._what, call(self._f, *args, **kwargs))
        finally:
            self.restore()

    def moved(self, stops: Stops, which: int, value: NumpyArray) -> list[Any]:
        """The results where one source has another value."""
        x = list(self.sources.values())[which]
        moved = tf.convert_to_tensor(value.astype(to_numpy(x).dtype))
        if not isinstance(x, tf.Variable):
            return self.again(stops, {id(x): moved})
        before = x.numpy()
        x.assign(moved)
        try:
            return self.again(stops, {})
        finally:
            x.assign(before)

    def _note_value(self, variable: tf.Variable) -> None:
        """Note the value of a variable, which the function may change."""
        if isinstance(variable, tf.Variable):
            self._initial.append((variable, variable.numpy()))

    def restore(self) -> None:
        """Give the variables that the function writes the values that were noted."""
        for variable, value in self._initial:
            if not variable.trainable:
                variable.assign(value)

    def restore_all(self) -> None:
        """Give all variables the values that were noted."""
        for variable, value in self._initial:
            variable.assign(value)


def to_numpy(x: object) -> NumpyArray:
    """The values of a tensor, a variable, or what stands for the rows of one."""
    return np.asarray(tf.convert_to_tensor(x))
