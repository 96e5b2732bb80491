"""``check_gradients`` of live TensorFlow: its own gradient beside differences of the function's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from stopgrad.base.errors import ArgumentError
from stopgrad.base.source import decode
from stopgrad.flow.checking.gradient_check import GradientCheck
from stopgrad.flow.checking.options import EPSILON, options
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.public import guarded
from stopgrad.interop.shared.derivatives import Arrays, Seen, check, coarsest_of, lines, refuse_modes
from stopgrad.interop.tensorflow.recording.record import Kind
from stopgrad.interop.tensorflow.stops import Posed, eagerly, to_numpy

ELEMENTWISE = 8
"""The most numbers of a source that are moved one by one: each takes several calls of the function."""


@guarded("check_gradients")
def check_gradients(
    f: Callable[..., object],
    *args: object,
    order: int = 1,
    modes: str | Sequence[str] = "reverse",
    stops: str = "hold",
    rtol: float | None = None,
    atol: float | None = None,
    directions: int | None = None,
    seed: int = 0,
    raises: bool = True,
    **kwargs: object,
) -> GradientCheck:
    """Compare TensorFlow's gradient of a function with differences of its values.

    What ``tf.stop_gradient`` stops keeps the value of the base point, as the gradient takes it. The function
    runs eagerly, also what ``tf.function`` compiles; variables have their values again after it.

    Args:
        f: a function that returns a tensor or a structure with tensors, which are summed; it must be
            deterministic.
        args, kwargs: its arguments. The gradient is with respect to the trainable variables that are read,
            and to the tensors of floating-point numbers among the arguments.
        order: 1; tapes are not compared at order 2.
        modes: ``"reverse"``, as tapes differentiate; it is the only one.
        stops, rtol, atol, directions, seed, raises: as for :func:`stopgrad.check_gradients`.

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
    settings = options(order, modes, stops, rtol, atol, directions, seed, raises)
    refuse_modes("TensorFlow", settings.modes, ("reverse",))
    if settings.order != 1:
        raise ArgumentError("check_gradients: of TensorFlow, derivatives of order 1 are compared, not of 2")
    with eagerly():
        point = Posed("check_gradients", f, args, kwargs, settings.stops != "ignore")
        try:
            function = _Function(point)
            return check("TensorFlow", function, settings, _seen(point), function.precision, ELEMENTWISE)
        finally:
            point.restore_all()


class _Function:
    """A function at a point; see :class:`stopgrad.interop.shared.derivatives.Function`."""

    def __init__(self, point: Posed) -> None:
        self._point = point
        self.points = {name: to_numpy(x) for name, x in point.sources.items()}
        self.here: Arrays = [to_numpy(y) for y in point.results]
        names = [result[0] for event in point.events for result in event.results]
        own = [x.dtype.name for x in (*self.points.values(), *self.here)]
        self.precision = coarsest_of([*names, *own])
        self.modes, self.notes = ("reverse",), ()
        again = [self._again(), self._again()]
        near = 8.0 * EPSILON[self.precision]
        if not all(_near(a, b, near) for results in again for a, b in zip(self.here, results, strict=True)):
            raise ArgumentError(
                "check_gradients: the function gives another value each time; give it its random numbers, or "
                "a seed, and leave dropout out (training=False)"
            )

    def _again(self) -> Arrays:
        self._point.stops.again()
        return [to_numpy(y) for y in self._point.again(self._point.stops, {})]

    def at(self, which: int, value: NumpyArray) -> Arrays:
        self._point.stops.again()
        return [to_numpy(y) for y in self._point.moved(self._point.stops, which, value)]

    def pulled(self, cotangents: Arrays) -> Sequence[NumpyArray | None]:
        seeds = [tf.constant(g, y.dtype) for g, y in zip(cotangents, self._point.results, strict=True)]
        gradients = self._point.tape.gradient(self._point.results, list(self._point.sources.values()), seeds)
        return [None if g is None else to_numpy(g) for g in gradients]

    def pushed(self, which: int, tangent: NumpyArray) -> Arrays:
        raise NotImplementedError  # Tapes differentiate in reverse mode.

    def derivative(self, cotangents: Arrays) -> None:
        return None


def _seen(point: Posed) -> Seen:
    """The stops and custom gradients on the way.

    Raises:
        ArgumentError: a stop was called by a name that could not be replaced.
    """
    stops = [event for event in point.events if event.call == "StopGradient"]
    if len(stops) > len(point.stops.values):
        location = "" if stops[0].place is None else f", {decode(stops[0].place)!r}"
        raise ArgumentError(
            f"check_gradients: a stop cannot be held at its value{location}: call it as "
            "tf.stop_gradient(...), not by another name"
        )
    custom = [
        event
        for event in point.events
        if event.kind is Kind.CUSTOM and event.beside is None and event.call != "tape.watch"
    ]
    return Seen(
        lines(("tf.stop_gradient", stop.place) for stop in stops),
        lines((event.call, event.place) for event in custom),
    )


def _near(a: NumpyArray, b: NumpyArray, rounding: float) -> bool:
    first, second = a.astype(np.complex128), b.astype(np.complex128)
    return bool(np.allclose(first, second, rounding, rounding, equal_nan=True))
