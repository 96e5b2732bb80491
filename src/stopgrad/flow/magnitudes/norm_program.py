"""Measures the gradients of a graph on values: a program of their norms alone, which an engine runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stopgrad.base.errors import ArgumentError, FeedError
from stopgrad.base.types import float64, int64
from stopgrad.engines import engine as engine_named
from stopgrad.flow.ablation.without import written_out
from stopgrad.flow.ablation.zero_arrivals import arrivals
from stopgrad.flow.asked import Asked, label
from stopgrad.flow.fed import fed_to
from stopgrad.flow.magnitudes.magnitude import Magnitude, Measured
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Output
from stopgrad.ops.elementwise.arithmetic import abs, square
from stopgrad.ops.elementwise.compare import equal, is_inf, is_nan
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.reductions.reduce import reduce_max
from stopgrad.ops.shapes.reshape import reduce_sum
from stopgrad.ops.structural.sources import ones_like
from stopgrad.rewrite import prepare, rewrite
from stopgrad.run.compiling import Compiler, Options
from stopgrad.run.feeds import sizes_of
from stopgrad.run.session import Session


class Measuring:
    """A program that measures the gradients of a question, for values of known shapes.

    The graph is copied; the user's stays as it is. In the copy, loops of a known number of steps are written
    out, so that what happens inside is seen.

    Args:
        question: what is differentiated with respect to what.
        inputs: the placeholders and parameters whose values are given.
        binding: the sizes, by name.
        stops: tensors that are constants for the gradient.
        engine: the name of the engine that runs it; unless given NumPy or, for what NumPy cannot compute, the
            best that can.
    """

    def __init__(
        self,
        question: Asked,
        inputs: Sequence[Output],
        binding: Mapping[str, int],
        stops: Sequence[Output] = (),
        engine: str | None = None,
    ) -> None:
        xs = {label(key): x for key, x in question.xs.items() if x.type.differentiable}
        wanted = [*question.ys, *xs.values(), *inputs, *stops]
        copies: dict[Output, list[Output]] = {}
        copied = rewrite(wanted, (), [written_out(copies)], binding)
        place = copied.mapping
        self._owners = {new.op: x.op for x, some in copies.items() for new in some}
        self._owners |= {new.op: old.op for old, new in place.items()}
        self._ys = [place[y] for y in question.ys]
        self._xs = {name: place[x] for name, x in xs.items()}
        self._stops = frozenset([place[x] for x in stops])
        arriving = arrivals(self._ys, list(dict.fromkeys(self._xs.values())), (), stops=self._stops)
        self._at, self._of = arriving.cotangents, arriving.gradients
        self._ones = {y: math.sqrt(math.prod(y.shape)) for y in arriving.ys}
        self._programs: dict[Output, int] = {}
        self._results: list[Output] = []
        with copied.graph.as_default():
            for g in dict.fromkeys([g for some in self._at.values() for g in some]):
                self._want(_norm(g), g)
            self._counted = {name: self._counts(x) for name, x in self._xs.items() if x in self._of}
        arguments = [place[x] for x in inputs]
        prepared = prepare(self._results, arguments)
        operations = Body(prepared.graph, prepared.inputs, prepared.outputs).operations()
        name = "numpy" if engine is None else engine
        if engine is None and engine_named(name).unsupported(operations) is not None:
            name = "auto"
        self._program = Compiler(Options(name), "explain").compile(engine_named(name), prepared)

    def _want(self, results: Sequence[Output], tensor: Output) -> None:
        self._programs[tensor] = len(self._results)
        self._results.extend(results)

    def _counts(self, x: Output) -> int:
        """The position of the results that count the elements of a gradient, and of its tensor's norm."""
        start, g = len(self._results), self._of[x]
        self._results += [_number(equal(g, 0)), _number(is_nan(g)), _number(is_inf(g)), *_norm(x)]
        return start

    def __call__(self, values: Sequence[Any]) -> Measured:
        """What is measured on values of the inputs."""
        engine = self._program.backend
        arguments = [value if engine.is_native(value) else engine.hold(value) for value in values]
        results = self._program.run(arguments)
        numbers = [float(engine.fetched(one)) for one in results]

        def norm(start: int) -> float:
            scale, squares = numbers[start : start + 2]
            return scale * math.sqrt(squares) if math.isfinite(scale) else scale

        norms = {g: norm(start) for g, start in self._programs.items()}
        magnitudes = {}
        for name, start in self._counted.items():
            x = self._xs[name]
            zeros, nans, infs = map(int, numbers[start : start + 3])
            elements = math.prod(map(int, x.shape))
            magnitudes[name] = Magnitude(norms[self._of[x]], elements, zeros, nans, infs, norm(start + 3))
        # With selective gates, one tensor has several gradients.
        arriving = {x: max([norms[g] for g in some]) for x, some in self._at.items()}
        sizes = self._ones | arriving
        return Measured(self._ys, self._xs, magnitudes, sizes, stops=self._stops, owners=self._owners)


def measured_on(
    what: str,
    question: Asked,
    feed_dict: Mapping[Any, Any] | None = None,
    session: Session | None = None,
    stops: Sequence[Output] = (),
) -> Measured:
    """How large the gradients of a question are, on values that are fed, by the public function *what*.

    Raises:
        FeedError, GraphError, GradientError: something is not fed, or the gradient is an error.
    """
    if session is not None and not isinstance(session, Session):
        raise ArgumentError(f"{what}: session is a Session, not {session!r:.60}")
    if feed_dict is not None and question.is_function:
        raise FeedError(f"{what}: feed_dict is for graphs; the arguments of a function are its values")
    feeds = fed_to(what, question, feed_dict, stops, session)
    binding = sizes_of(list(feeds), [array.shape for array in feeds.values()])
    return Measuring(question, list(feeds), binding, stops)(list(feeds.values()))


def _number(where: Output) -> Output:
    count: Output = reduce_sum(cast(where, int64))
    return count


def _norm(x: Output) -> list[Output]:
    """Two scalars: a scale, and the sum of the squares of what is left of a tensor, divided by it.

    float64 holds the squares of all shorter numbers; the scale is 1 for these.
    """
    size = abs(x)
    if size.dtype is not float64:
        size = cast(size, float64)
        scale = ones_like(reduce_sum(size))
    elif x.type.size:
        largest = reduce_max(size)
        scale = where(equal(largest, 0.0), ones_like(largest), largest)
    else:
        scale = ones_like(reduce_sum(size))
    return [scale, reduce_sum(square(size / scale))]
