"""What each line that stops does to a gradient that a framework computes: with and without its stops."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError, GradientError
from stopgrad.base.progress import Progress
from stopgrad.base.source import RawLocation
from stopgrad.flow.ablation.ablation import (
    CHANGES,
    ERROR,
    IDLE,
    UNCHANGED,
    Ablation,
    Change,
    Stop,
    zero_at,
)
from stopgrad.flow.ablation.distances import ROUNDINGS, compared, infinite, largest, near, nearness
from stopgrad.flow.ablation.variants import Arrays, Gradient, Gradients, finite, jittered
from stopgrad.flow.checking.options import EPSILON
from stopgrad.graph.graph import Graph
from stopgrad.graph.operands import NumpyArray
from stopgrad.interop.shared.derivatives import coarsest_of, line_of, mark, type_of


class Line(NamedTuple):
    """The stops of one line of the user's.

    Attributes:
        kind: how they are written.
        places: where; one for each.
        why_idle: why they do nothing, if that is known.
    """

    kind: str
    places: Sequence[RawLocation | None]
    why_idle: str = ""


class Differentiated(Protocol):
    """A function of a framework's, whose gradient it computes with and without the stops of a line.

    Attributes:
        points: the values of the inputs that are asked about, by name.
        lines: the lines with stops.
        sizes: how large the function's results are at these values, together.
    """

    points: dict[str, NumpyArray]
    lines: Sequence[Line]
    sizes: float

    def gradients(self, values: Arrays, without: Line | None) -> Gradients:
        """The gradients at some values, as precisely as they can be computed."""

    def run(self, without: Line | None) -> Callable[[], Gradients]:
        """A function that computes the gradients at the given values, in the user's precision."""


def by_lines(marks: Sequence[tuple[str, RawLocation | None]]) -> list[Line]:
    """The lines of stops that were seen at places, by how they are written."""
    groups: dict[object, list[tuple[str, RawLocation | None]]] = {}
    for what, place in marks:
        groups.setdefault((what, line_of(place)), []).append((what, place))
    return [Line(some[0][0], [place for _, place in some]) for some in groups.values()]


def counts(repeats: object, seed: object) -> tuple[int, int]:
    """The options of ``ablate``.

    Raises:
        ArgumentError: one is no whole number from 0 on.
    """
    for name, value in (("repeats", repeats), ("seed", seed)):
        if not is_whole(value) or whole(value) < 0:
            raise ArgumentError(f"ablate: {name} is a whole number, 0 or more, not {value!r:.60}")
    return whole(repeats), whole(seed)


def ablated(world: str, function: Differentiated, repeats: int, seed: int) -> Ablation:
    """The report on what the stops of each line do.

    Args:
        world: the framework's name.
        function: is differentiated.
        repeats: the number of measurements of which each time is the median; 0 to measure none.
        seed: of the noise on further data.

    Raises:
        ArgumentError: there is nothing to differentiate.
        GradientError: the gradient itself is an error.
    """
    names = tuple(function.points)
    if not names:
        raise ArgumentError(
            "ablate: none of the function's inputs is an array of floating-point numbers that is asked about"
        )
    plain = function.run(None)
    gradients = plain()
    values = list(function.points.values())
    points, gradients_at = [values], [function.gradients(values, None)]
    for moved in jittered(values, seed) if function.lines else ():
        moved_gradients = function.gradients(moved, None)
        if finite(moved_gradients):
            points.append(moved)
            gradients_at.append(moved_gradients)
    reporting = _Reporting(function, names, gradients, points, gradients_at, plain, repeats)
    stops = []
    with Progress("running without each stop", total=len(function.lines)) as progress:
        for line in function.lines:
            stops.append(reporting.stop(line))
            progress.step()
    engine = world if repeats and stops else None
    return Ablation(tuple(stops), (), (), names, len(points), engine)


class _Reporting(NamedTuple):
    """What is needed to make entries of the report."""

    function: Differentiated
    names: tuple[str, ...]
    gradients: Gradients
    points: Sequence[Arrays]
    gradients_at: Sequence[Gradients]
    plain: Callable[[], Gradients]
    repeats: int

    def stop(self, line: Line) -> Stop:
        """The entry for a line with stops."""
        graph = Graph()
        gates = tuple([mark(graph, line.kind, place) for place in line.places])
        location = gates[0].location
        try:
            without = self.function.run(line)
            open = without()
        except Exception as error:  # Whatever the framework raises, it does so without the stop alone.
            message = str(error).strip().partition("\n")[0] or type(error).__name__
            text = message if isinstance(error, GradientError) else f"{type(error).__name__}: {message}"
            return Stop(gates, line.kind, location, None, None, {}, None, None, None, None, ERROR, "", text)
        rows = zip(self.names, self.gradients, open, strict=True)
        changes = {name: Change(*compared([g], [h]), g is not None, h is not None) for name, g, h in rows}
        verdict, evidence = UNCHANGED, ""
        if self._differs(line):
            verdict, evidence = CHANGES, infinite(self.gradients, open)
        elif line.why_idle:
            verdict, evidence = IDLE, line.why_idle
        else:
            evidence = zero_at("what comes through without the stop", len(self.points))
        times = _seconds(self.repeats, self.plain, without)
        whole_difference = compared(self.gradients, open)
        return Stop(
            gates,
            line.kind,
            location,
            *whole_difference,
            changes,
            None,
            None,
            times[0],
            times[1],
            verdict,
            evidence,
        )

    def _differs(self, line: Line) -> bool:
        """Whether the gradients without the stops of a line differ by more than rounding at any point."""
        for values, expected in zip(self.points, self.gradients_at, strict=True):
            open = self.function.gradients(values, line)
            for x, g, h in zip(values, expected, open, strict=True):
                if not self._near(x, g, h):
                    return True
        return False

    def _near(self, x: NumpyArray, g: Gradient, h: Gradient) -> bool:
        """Whether two gradients agree, also if both consist of rounding errors of zeros."""
        precise = [gradient for gradient in (g, h) if gradient is not None]
        if not precise or near(g, h, nearness(type_of(precise[0]).dtype)):
            return True
        epsilon = EPSILON[coarsest_of([precise[0].dtype.name])]
        rounding = ROUNDINGS * epsilon * self.function.sizes / max(1.0, largest(x))
        return max(largest(g), largest(h)) <= rounding


def _seconds(repeats: int, *runs: Callable[[], Gradients]) -> list[float | None]:
    """The time of one run of each: medians, measured in turns."""
    if not repeats:
        return [None] * len(runs)
    timings: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()  # The first run may be slower.
    for _ in range(repeats):
        for run, times in zip(runs, timings, strict=True):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in timings]
