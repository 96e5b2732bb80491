"""``check_gradients`` of live TensorFlow: its own gradient beside differences of the function's values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from stopgrad.base.errors import ArgumentError
from stopgrad.base.source import Location, decode
from stopgrad.flow.checking.gradient_check import Checked, GradientCheck, Held, Kink, Worst
from stopgrad.graph.arguments import operation_name
from stopgrad.graph.build import named
from stopgrad.graph.graph import Operation
from stopgrad.graph.public import call, guarded
from stopgrad.interop.tensorflow.asking import arguments_of, variables_of
from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.making import Maker
from stopgrad.interop.tensorflow.recording.record import Event, Kind
from stopgrad.interop.tensorflow.watching import Watch, losses_in
from stopgrad.ops.structural.foreign import ForeignStop

STEP = {"float64": 1e-5, "float32": 1e-2, "bfloat16": 0.25, "float16": 0.1}
"""The step of a difference for numbers up to 1, by dtype; for larger ones it is so much larger."""
TOLERANCE = {"float64": 1e-6, "float32": 1e-2, "bfloat16": 0.3, "float16": 0.1}
"""The difference that is allowed, relative to the largest derivative, beside what rounding makes."""
ROUNDINGS = 16.0
"""So many roundings of the summed results may be in a difference."""


class _Slope(NamedTuple):
    """The numeric derivative at an element: central, from both sides, and what rounding may add."""

    central: float
    low: float
    high: float
    error: float


class _Stops:
    """``tf.stop_gradient`` while a function is checked: what it returned first, it returns again.

    So stopped values stay those of the base point, as the gradient takes them.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._next = 0
        self._is_first = True

    def again(self) -> None:
        """From here on, the values of the first run are returned, from the first on."""
        self._is_first, self._next = False, 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """TensorFlow's function is replaced while this lasts."""
        original = tf.stop_gradient

        def stop_gradient(input: Any, name: Any = None) -> Any:
            if self._is_first:
                self.values.append(original(input, name))
                return self.values[-1]
            self._next += 1
            return self.values[self._next - 1]

        try:
            for home in (
                tf,
                internals.array_ops,
            ):  # TensorFlow's own functions, such as moments, have the other.
                home.stop_gradient = stop_gradient
            yield
        finally:
            for home in (tf, internals.array_ops):
                home.stop_gradient = original


class _Function:
    """A function of TensorFlow's as one of numbers: the sum of what it returns.

    Args:
        f, args, kwargs: the function and its arguments.
    """

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._f, self._args, self._kwargs = f, args, kwargs
        self.stops = _Stops()
        self.kept: list[tuple[Any, Any]] = []

    def __call__(self, changed: Mapping[int, Any]) -> tuple[float, float]:
        """The sum, and that of the magnitudes, with other values for some tensors (by ``id``)."""
        self.stops.again()
        with self.stops.held():
            args, kwargs = tf.nest.map_structure(lambda x: changed.get(id(x), x), (self._args, self._kwargs))
            made = [np.asarray(y, np.float64) for y in losses_in("check_gradients", self._f(*args, **kwargs))]
        self.restore()
        return sum(float(y.sum()) for y in made), sum(float(np.abs(y).sum()) for y in made)

    def keep(self, variable: Any) -> None:
        """Note the value of a variable, which the function may change."""
        if isinstance(variable, tf.Variable):
            self.kept.append((variable, variable.numpy()))

    def restore(self) -> None:
        """Give the variables the values that were noted."""
        for variable, value in self.kept:
            variable.assign(value)


@guarded("check_gradients")
def check_gradients(
    f: Callable[..., Any],
    *args: Any,
    samples: int = 8,
    rtol: float | None = None,
    seed: int = 0,
    raises: bool = True,
    **kwargs: Any,
) -> GradientCheck:
    """Compare TensorFlow's gradient of a function with differences of its values.

    What ``tf.stop_gradient`` stops keeps the value of the base point, as the gradient takes it. Differences
    are central ones, of two steps, from which the error of each is estimated (Richardson's extrapolation).
    The function runs eagerly, also what ``tf.function`` compiles; variables have their values again after it.

    Args:
        f: a function that returns a tensor or a structure with tensors, which are summed; it must be
            deterministic.
        args, kwargs: its arguments. The gradient is with respect to the trainable variables that are read,
            and to the tensors of floating-point numbers among the arguments.
        samples: so many elements of each are compared, drawn at random, or all if there are no more.
        rtol: the relative tolerance; unless given, 1e-6 in float64 and 0.01 in float32.
        seed: for the draws.
        raises: whether a difference is an error.

    Returns:
        A :class:`stopgrad.flow.checking.gradient_check.GradientCheck`, which is true if all agree.

    Raises:
        GradientError: they differ, and *raises*.
        ArgumentError: the function returns no tensor, or another value each time, or there is nothing to
            differentiate.

    Examples:
        >>> import tensorflow as tf
        >>> import stopgrad.tensorflow as sgtf
        >>> x = tf.constant([0.5, 2.0], tf.float64)
        >>> sgtf.check_gradients(lambda x: tf.reduce_sum(tf.sin(x) * tf.stop_gradient(x)), x).passed
        True
    """
    function, given = _Function(f, args, kwargs), arguments_of(f, args, kwargs)
    was_eager = bool(tf.config.functions_run_eagerly())
    tf.config.run_functions_eagerly(True)
    try:
        sources, gradients, custom, held = _base(function, given)
        if not sources:
            raise ArgumentError(
                "check_gradients: the function reads no trainable variable and has no tensor of "
                "floating-point numbers among its arguments"
            )
        draws = np.random.default_rng(seed)
        found = {
            name: _compared(function, x, g, samples, rtol, draws)
            for (name, x), g in zip(sources.items(), gradients, strict=True)
        }
    finally:
        function.restore()
        tf.config.run_functions_eagerly(was_eager)
    tolerance = rtol if rtol is not None else max(TOLERANCE.get(x.dtype.name, 0.01) for x in sources.values())
    checked = GradientCheck(found, 1, ("reverse",), "hold", tolerance, held, custom)
    if raises:
        checked.raise_if_failed()
    return checked


def _base(
    function: _Function, given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any], list[Held], list[Held]]:
    """The sources, their gradients, the custom gradients and the stops on the way, at the base point."""
    seen = Watch()
    recorder = seen._recorder
    recorder.meet = function.keep
    with function.stops.held(), seen, tf.GradientTape() as tape:
        tape.watch(list(given.values()))
        losses = losses_in("check_gradients", call(function._f, *function._args, **function._kwargs))
    sources = {**variables_of(recorder), **given}
    gradients = tape.gradient(losses, list(sources.values()))
    function.restore()
    first, again = function({}), function({})
    base = sum(float(np.asarray(y, np.float64).sum()) for y in losses)
    if first != again or not math.isclose(first[0], base, rel_tol=1e-6, abs_tol=1e-6 * (1 + first[1])):
        raise ArgumentError(
            "check_gradients: the function gives another value each time; give it its random numbers, or a "
            "seed, and leave dropout out (training=False)"
        )
    events = recorder.events()
    stops = [one for one in events if one.call == "StopGradient"]
    if len(stops) > len(function.stops.values):
        at = "" if stops[0].place is None else f", {decode(stops[0].place)!r}"
        raise ArgumentError(
            f"check_gradients: a stop cannot be held at its value{at}: call it as tf.stop_gradient(...), not "
            "by another name"
        )
    custom = [
        one for one in events if one.kind is Kind.CUSTOM and one.beside is None and one.call != "tape.watch"
    ]
    return (
        sources,
        gradients,
        _lines(custom, "custom_gradient"),
        _lines(stops, "tf.stop_gradient"),
    )


def _lines(events: Sequence[Event], what: str) -> list[Held]:
    """Operations by the lines that made them."""
    found: dict[Any, list[Event]] = {}
    for event in events:
        found.setdefault(event.place, []).append(event)
    held = []
    for place, same in found.items():
        at: Location | None = None if place is None else decode(place)
        marks = [_mark(event, what) for event in same]
        held.append(Held(tuple(marks), at, what))
    return held


def _mark(event: Event, what: str) -> Operation:
    """An operation that stands for an event, under its name."""
    x = Maker().leaf(("float32",))
    name = operation_name(event.call)
    return named(x.op.graph, "", name, None, ForeignStop, (x,), (what, what), (x.type,), event.place, None)


def _compared(
    function: _Function, x: Any, gradient: Any, samples: int, rtol: float | None, draws: np.random.Generator
) -> Checked:
    """The derivatives of one source at some of its elements, beside the numeric ones."""
    value = np.asarray(tf.convert_to_tensor(x))
    name = x.dtype.name
    kind = f"{name}{list(value.shape)}"
    given = (
        np.zeros(value.shape) if gradient is None else np.asarray(tf.convert_to_tensor(gradient), np.float64)
    )
    places = np.arange(value.size)
    if value.size > samples:
        places = np.sort(draws.choice(value.size, samples, replace=False))
    indices = [tuple(int(i) for i in np.unravel_index(place, value.shape)) for place in places]
    slopes = [_slope(function, x, value, index, STEP.get(name, 1e-2)) for index in indices]
    scale = max([abs(s.central) for s in slopes] + [abs(float(given[i])) for i in indices], default=0.0)
    tolerance = TOLERANCE.get(name, 1e-2) if rtol is None else rtol
    rows, kinks = [], []
    for index, slope in zip(indices, slopes, strict=True):
        generated = float(given[index])
        allowed = tolerance * scale + slope.error
        apart = abs(generated - slope.central)
        if apart > allowed and slope.low - allowed <= generated <= slope.high + allowed:
            kinks.append(Kink(index, generated, slope.low, slope.high, False, 1))
            apart = 0.0
        rows.append(
            (
                apart / allowed if allowed else float(apart > 0),
                apart,
                index,
                generated,
                slope.central,
                allowed,
            )
        )
    if not rows:
        return Checked(kind, True, 0.0, math.nan, None, "central")
    excess, _, index, generated, numeric, allowed = max(rows, key=lambda row: row[0])
    passed = not excess > 1.0 and math.isfinite(excess)
    reason = (
        ""
        if passed or gradient is not None
        else "TensorFlow gives no gradient, though the value depends on it"
    )
    error = max(row[1] for row in rows) / scale if scale else 0.0
    worst = Worst(index, generated, numeric, allowed, 1, "reverse")
    return Checked(kind, passed, error, STEP.get(name, 1e-2), worst, "central", tuple(kinks), reason)


def _slope(function: _Function, x: Any, value: Any, index: tuple[int, ...], step: float) -> _Slope:
    """The numeric derivative of a function at one element of a source."""

    def at(h: float) -> tuple[float, float]:
        moved = value.copy()
        moved[index] = value[index] + np.asarray(h, value.dtype)
        if isinstance(x, tf.Variable):
            x.assign(moved)
            return function({})
        return function({id(x): tf.constant(moved)})

    h = step * max(1.0, abs(float(value[index])))
    middle, size = function({})
    whole, half = [[at(sign * part)[0] for sign in (1, -1)] for part in (h, h / 2)]
    coarse, fine = (whole[0] - whole[1]) / (2 * h), (half[0] - half[1]) / h
    sides = sorted([(half[0] - middle) / (h / 2), (middle - half[1]) / (h / 2)])
    rounding = ROUNDINGS * float(np.finfo(np.float32 if value.dtype.itemsize < 8 else value.dtype).eps)
    error = abs(fine - coarse) / 3 + rounding * size / h
    return _Slope((4 * fine - coarse) / 3, sides[0], sides[1], error)
