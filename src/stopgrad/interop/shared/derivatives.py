"""Checks of a framework's own derivatives: they are compared with differences of what its function computes.

A world says what its function is at a point, with what is stopped held there (:class:`Function`). How far
derivatives may differ, kinks, and infinite derivatives are the same as for graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from stopgrad.base.dtypes import dtype_of
from stopgrad.base.errors import ArgumentError, GradientError
from stopgrad.base.progress import Progress
from stopgrad.base.source import RawLocation, decode
from stopgrad.base.types import TensorType, tensor_type
from stopgrad.flow.checking.compared import Comparison, Order
from stopgrad.flow.checking.finite_differences import Slope, Steps, slope_at
from stopgrad.flow.checking.gradient_check import Checked, GradientCheck, Held
from stopgrad.flow.checking.numeric import ROUNDINGS, Settings, flat, size_of, unflat
from stopgrad.flow.checking.options import EPSILON, Options
from stopgrad.flow.checking.results import of_input, unfit
from stopgrad.graph.arguments import operation_name
from stopgrad.graph.build import named
from stopgrad.graph.graph import Graph, Operation
from stopgrad.graph.op import REGISTRY
from stopgrad.graph.operands import NumpyArray
from stopgrad.ops.structural.foreign import ForeignStop

Arrays = Sequence[NumpyArray]


class Function(Protocol):
    """A function of a framework's at a point, with its derivatives, as arrays of NumPy.

    Attributes:
        points: what moves, by name: its values at the point.
        here: the values of the results there.
        precision: the name of the coarsest dtype in which the values are computed.
        modes: how the framework can differentiate it; of those that were asked for.
        notes: notes for the reader.
    """

    @property
    def points(self) -> Mapping[str, NumpyArray]: ...
    @property
    def here(self) -> Arrays: ...
    @property
    def precision(self) -> str: ...
    @property
    def modes(self) -> Sequence[str]: ...
    @property
    def notes(self) -> Sequence[str]: ...

    def at(self, which: int, value: NumpyArray) -> Arrays:
        """The results where one of the inputs has another value, perhaps of more digits than it has."""

    def pulled(self, cotangents: Arrays) -> Sequence[NumpyArray | None]:
        """The gradient for each input; None where the framework gives none.

        Of complex numbers, it is the derivatives by the real and the imaginary part, as real and imaginary
        part.
        """

    def pushed(self, which: int, tangent: NumpyArray) -> Arrays:
        """The change of the results with one input."""

    def derivative(self, cotangents: Arrays) -> Function | None:
        """The gradient for these cotangents as a function; None where there is none that moves."""


@dataclass(frozen=True)
class Seen:
    """What was seen of a function on the way from its inputs.

    Attributes:
        held: the lines that stop gradients.
        custom: the lines with gradients of their own.
    """

    held: Sequence[Held] = ()
    custom: Sequence[Held] = ()


def check(
    world: str, function: Function, wanted: Options, seen: Seen, coarsest: str, elementwise: int
) -> GradientCheck:
    """The report on a framework's derivatives.

    Args:
        world: the framework's name.
        function: is checked.
        wanted: the user's options.
        seen: what is told of the way.
        coarsest: the name of the coarsest dtype in which the derivatives are computed.
        elementwise: the most numbers of an input that are moved one by one.

    Raises:
        ArgumentError: there is nothing to differentiate.
        GradientError: derivatives differ, and the user wants that raised; or there are none.
    """
    if not function.points or not function.here:
        what = "inputs" if not function.points else "results"
        raise ArgumentError(
            f"check_gradients: none of the function's {what} is an array of floating-point numbers"
        )
    settings = wanted.settings(coarsest, None, elementwise, only_proven=True)
    settings = replace(settings, modes=tuple([mode for mode in settings.modes if mode in function.modes]))
    broken = _not_finite(function)
    comparisons: list[list[Comparison]] = []
    notes = list(function.notes)
    if not broken:
        with Progress("checking gradients"):
            comparisons, more = _compared(function, settings, wanted.order)
        notes += more
    types = {name: type_of(value) for name, value in function.points.items()}
    results = {
        name: unfit(kind, broken) if broken else _of_input(world, kind, comparisons[which], settings)
        for which, (name, kind) in enumerate(types.items())
    }
    checked = GradientCheck(
        results,
        wanted.order,
        settings.modes,
        wanted.stops,
        settings.rtol,
        seen.held,
        seen.custom,
        notes=list(dict.fromkeys(notes)),
    )
    if wanted.raises and wanted.stops != "ignore":
        checked.raise_if_failed()
    return checked


def type_of(value: NumpyArray) -> TensorType:
    """The type of an array."""
    return tensor_type(dtype_of(value.dtype), value.shape)


def mode_is_refused(mode: str, modes: Sequence[str], error: Exception, world: str) -> str:
    """The note that a framework refuses a mode.

    Raises:
        GradientError: no other mode was asked for.
    """
    why = str(error).strip().partition("\n")[0]
    if len(modes) == 1:
        raise GradientError(f"check_gradients: {world} does not differentiate it in {mode} mode: {why}")
    return f"not compared in {mode} mode, in which {world} does not differentiate it: {why}"


def refuse_modes(world: str, modes: Sequence[str], supported: Sequence[str]) -> None:
    """Raise for a mode that a world has not."""
    for mode in modes:
        if mode not in supported:
            raise ArgumentError(
                f"check_gradients: of {world}, derivatives are compared in {' and '.join(supported)} mode, "
                f"not in {mode} mode"
            )


def _not_finite(function: Function) -> str:
    """The text about values at the point that are not finite; empty if all are."""
    named_values = [(f"the input {name}", value) for name, value in function.points.items()]
    named_values += [("the value", value) for value in function.here]
    for what, value in named_values:
        if not np.all(np.isfinite(flat([value]))):
            return f"{what} has NaN or infinite elements; trace_nan finds the operation that makes them"
    return ""


def _compared(function: Function, settings: Settings, last: int) -> tuple[list[list[Comparison]], list[str]]:
    """For each input the comparisons of all orders up to the last; and notes."""
    first = _order(1, function, settings, 0.0)
    orders = [first]
    notes: list[str] = []
    if last == 2:
        cotangents = unflat(first.weights, [type_of(y) for y in function.here])
        arrives = [g is not None for g in function.pulled(cotangents)]
        second = function.derivative(cotangents)
        if second is not None:
            orders.append(_order(2, second, settings, first.terms(first.weights, arrives)))
            notes += second.notes
    by_input = [[Comparison(order, which) for order in orders] for which in range(len(first.xs))]
    vague = [order for order in orders if not order.numeric.is_double]
    unknown = [
        name
        for name, comparisons in zip(function.points, by_input, strict=True)
        if any(rows.unsettled.any() and one.passed for one in comparisons for rows in one.rows)
    ]
    if vague and unknown:
        notes.append(
            f"of {', '.join(unknown)}, some differences are as small as rounding in {function.precision}, "
            "and prove nothing; those of float64 would"
        )
    return by_input, notes


def _order(number: int, function: Function, settings: Settings, terms: NumpyArray | float) -> Order:
    xs = [type_of(value) for value in function.points.values()]
    ys = [type_of(value) for value in function.here]
    settings = replace(settings, modes=tuple([mode for mode in settings.modes if mode in function.modes]))
    return Order(number, xs, ys, settings, _Numeric(function, settings, terms), _Derivatives(function))


def _of_input(world: str, kind: TensorType, comparisons: Sequence[Comparison], settings: Settings) -> Checked:
    """The entry for an input, which says so where the framework gives no gradient at all."""
    entry = of_input(kind, comparisons)
    derivatives = comparisons[0].order.generated
    assert isinstance(derivatives, _Derivatives)
    is_absent = comparisons[0].which in derivatives.absent and "reverse" in settings.modes
    if entry.passed or entry.reason or not is_absent:
        return entry
    return replace(entry, reason=f"{world} gives no gradient, though the value depends on it")


class _Numeric:
    """Slopes of a function by differences."""

    def __init__(self, function: Function, settings: Settings, terms: NumpyArray | float) -> None:
        self._function, self._rtol = function, settings.rtol
        self._points = list(function.points.values())
        self._steps = Steps.of(EPSILON[function.precision])
        self.is_double = self._steps.epsilon < 1e-12
        self.here = flat(function.here)
        self.terms = np.fmax(np.abs(self.here), terms)
        self._inside = min(ROUNDINGS * self._steps.epsilon, settings.rtol) * terms

    def point(self, which: int) -> NumpyArray:
        return flat([self._points[which]])

    def along(self, which: int, direction: NumpyArray, size: float) -> Slope:
        def curve(step: float) -> NumpyArray:
            return self.moved(which, step * direction)

        return slope_at(curve, self.here, size, self._steps, self._rtol / 10.0, self._inside)

    def moved(self, which: int, change: NumpyArray) -> NumpyArray:
        there, like = self.point(which) + change, self._points[which]
        there = there.view(np.complex128) if like.dtype.kind == "c" else there
        return flat(self._function.at(which, there.reshape(like.shape)))

    def by_complex_step(self, which: int, direction: NumpyArray, size: float) -> Slope | None:
        return None  # Frameworks compute with real numbers only where these were given.


class _Derivatives:
    """A framework's derivatives, as functions of vectors.

    Attributes:
        absent: the inputs for which the framework gave no gradient.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._xs = [type_of(value) for value in function.points.values()]
        self._ys = [type_of(value) for value in function.here]
        self.absent: set[int] = set()

    def pulled(self, cotangent: NumpyArray) -> list[NumpyArray]:
        gradients = self._function.pulled(unflat(cotangent, self._ys))
        self.absent = {i for i, g in enumerate(gradients) if g is None}
        return [
            np.zeros(size_of(x)) if g is None else flat([g]) for x, g in zip(self._xs, gradients, strict=True)
        ]

    def pushed(self, which: int, direction: NumpyArray) -> NumpyArray:
        return flat(self._function.pushed(which, unflat(direction, [self._xs[which]])[0]))


# --------------------------------------------------------------------------------------------------- lines


def lines(marks: Iterable[tuple[str, RawLocation | None]]) -> list[Held]:
    """What was seen at places, one entry for each line and what it is called."""
    by_line: dict[tuple[str, object], list[Operation]] = {}
    graph = Graph()
    for what, place in marks:
        op = mark(graph, what, place)
        location = op.location
        where = None if location is None else (location.file, location.line)
        by_line.setdefault((what, where), []).append(op)
    return [Held(tuple(ops), ops[0].location, what) for (what, _), ops in by_line.items()]


def mark(graph: Graph, what: str, place: RawLocation | None) -> Operation:
    """An operation that stands for something of a framework's at a line, in reports."""
    kind = tensor_type(dtype_of("float32"), ())
    leaf = Operation(graph, REGISTRY["Placeholder"], (), (kind.dtype, (), ()), (kind,), "", place)
    x = leaf.outputs[0]
    name = operation_name(what.rpartition(".")[2].partition("(")[0])
    return named(graph, "", name, None, ForeignStop, (x,), (what, what), (kind,), place, None)


def line_of(place: RawLocation | None) -> tuple[str, int] | None:
    """File and line of a place."""
    if place is None:
        return None
    location = decode(place)
    return location.file, location.line


def coarsest_of(names: Iterable[str], default: str = "float32") -> str:
    """The coarsest of the dtypes of these names, as far as they are known."""
    parts = {"complex64": "float32", "complex128": "float64"}
    dtypes = [parts.get(name, name) for name in names if parts.get(name, name) in EPSILON]
    return max(dtypes, key=lambda name: EPSILON[name], default=default)
