"""Variants of a program on real data: copied through rules, differentiated again, run and timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from stopgrad.base.errors import FeedError
from stopgrad.base.types import DType
from stopgrad.engines import Engine, engine as engine_named
from stopgrad.flow.ablation.without import written_out
from stopgrad.flow.asked import Asked
from stopgrad.flow.checking.frozen import WIDE
from stopgrad.flow.fed import fed_to
from stopgrad.graph import rowwise
from stopgrad.graph.body import Body, walk
from stopgrad.graph.fingerprint import fingerprint
from stopgrad.graph.graph import Output
from stopgrad.graph.interpreter import Run, computation
from stopgrad.rewrite import Rewritten, Rule, prepare, rewrite
from stopgrad.rewrite.loop_fusion import unite_scans
from stopgrad.run.compiling import Compiler, Options
from stopgrad.run.feeds import sizes_of
from stopgrad.run.programs import Program
from stopgrad.transforms.gradients.reverse import gradients

Arrays = Sequence[np.ndarray[Any, Any]]
Gradient = np.ndarray[Any, Any] | None
"""None if none arrives, which counts as zero."""
Gradients = Sequence[Gradient]


@dataclass(frozen=True)
class Problem:
    """A question about gradients, with data.

    Attributes:
        question: ys and xs.
        inputs: what is fed, and the stored parameters from which ys are computed.
        values: the values of the inputs.
        binding: the sizes, by name.
        dtypes: element types that are replaced by others for the computation; empty for none.
        flat: whether loops and other bodies are unrolled, as far as possible.
    """

    question: Asked
    inputs: tuple[Output, ...]
    values: tuple[np.ndarray[Any, Any], ...]
    binding: Mapping[str, int]
    dtypes: Mapping[DType, DType] = field(default_factory=dict)
    flat: bool = False

    def to_judge(self) -> Problem:
        """The same in double precision and with bodies unrolled; itself if it is so already."""
        above = self.question.graph.subgraph_to(self.question.ys)
        flat = any(op.definition.has_bodies for op in above)
        if not flat and all(WIDE.get(y.dtype, y.dtype) is y.dtype for op in walk(above) for y in op.outputs):
            return self
        values = [
            v.astype(WIDE.get(x.dtype, x.dtype).numpy) for x, v in zip(self.inputs, self.values, strict=True)
        ]
        return replace(self, values=tuple(values), dtypes=WIDE, flat=flat)


def problem(what: str, question: Asked, feed_dict: Mapping[Any, Any] | None) -> Problem:
    """The question with the values that were fed, and those of parameters.

    Inputs without a gradient, such as integers, are left out.

    Raises:
        FeedError, GraphError: something is not fed, or with an invalid value.
    """
    if feed_dict is not None and question.is_function:
        raise FeedError(f"{what}: feed_dict is for graphs; the arguments of a function are its values")
    feeds = fed_to(what, question, feed_dict)
    binding = sizes_of(list(feeds), [array.shape for array in feeds.values()])
    xs = {key: x for key, x in question.xs.items() if x.type.differentiable}
    return Problem(replace(question, xs=xs), tuple(feeds), tuple(feeds.values()), binding)


class Variant:
    """The program, copied through rules and differentiated.

    Raises:
        GradientError: its gradient is an error.

    Attributes:
        copied: the copies of the user's tensors.
        copies: also those of tensors in bodies that were unrolled: one copy for each step.
        ys, xs, inputs: those of the problem, in the copy.
        gradients: the gradient of ys with respect to each x, in the copy; None if none arrives.
        prepared: the graph for engines: ys, and the gradients that exist.
        operations: the number of its operations; each body counts once.
    """

    ys: list[Output]
    xs: list[Output]
    inputs: list[Output]
    prepared: Rewritten
    operations: int

    def __init__(self, problem: Problem, rules: Sequence[Rule] = ()) -> None:
        question = problem.question
        xs = list(question.xs.values())
        wanted = [*question.ys, *xs, *problem.inputs]
        self.copies: dict[Output, list[Output]] = {}
        rules = (*rules, written_out(self.copies) if problem.flat else unite_scans)
        self.copied: Rewritten = rewrite(wanted, (), rules, problem.binding, problem.dtypes)
        self.copies |= {x: [new] for x, new in self.copied.mapping.items()}
        place = self.copied.mapping
        self.ys = [place[y] for y in question.ys]
        self.xs = [place[x] for x in xs]
        self.inputs = [place[x] for x in problem.inputs]
        with self.copied.graph.as_default():
            self.gradients: list[Output | None] = gradients(self.ys, self.xs)
        self.prepared = prepare([*self.ys, *[g for g in self.gradients if g is not None]], self.inputs)
        body = Body(self.prepared.graph, self.prepared.inputs, self.prepared.outputs)
        self.operations = sum(1 for _ in walk(body.operations()))

    @cached_property
    def _run(self) -> Run:
        return _computation(self.prepared)

    def run(self, values: Arrays) -> Gradients:
        """The gradients, computed with NumPy; None for those that do not arrive."""
        results = iter(self._run(values)[len(self.ys) :])
        return [None if g is None else np.asarray(next(results)) for g in self.gradients]

    def compute(self, outputs: Sequence[Output]) -> Run:
        """A function of the inputs' values that computes further tensors of the copy, with NumPy."""
        return _computation(prepare(outputs, self.inputs))


def _computation(prepared: Rewritten) -> Run:
    """A prepared graph as a function of the inputs' values, with NumPy."""
    return computation(prepared.inputs, prepared.outputs, rowwise.regions)


# ----------------------------------------------------------------------------------------------- time

SHORTEST = 2e-3
"""The least seconds of a measurement: faster computations are run several times in it."""


class Stopwatch:
    """Measures variants against each other, as an engine runs them; equal ones are compiled once.

    Args:
        name: the name of the engine that was asked for.
        repeats: the number of measurements of each; 0 for none.
        values: the data.

    Attributes:
        engine: the name of the engine that ran them; None before.
    """

    repeats: int
    values: Arrays

    def __init__(self, name: str, repeats: int, values: Arrays) -> None:
        self.repeats, self.values = repeats, values
        self.engine: str | None = None
        self._compiler = Compiler(Options(name), "ablate")
        self._engine: Engine | None = engine_named(name) if repeats or name != "auto" else None
        self._programs: dict[str, Program] = {}

    def seconds(self, *variants: Variant) -> list[float | None]:
        """The time of one run of each: medians, measured in turns."""
        if not self.repeats or self._engine is None:
            return [None] * len(variants)
        runs = [self._compiled(self._engine, variant) for variant in variants]
        counts = []
        for run in runs:
            run()  # The first run may be slower.
            start = time.perf_counter()
            run()
            counts.append(max(1, int(SHORTEST / max(time.perf_counter() - start, 1e-7))))
        timings: list[list[float]] = [[] for _ in runs]
        for _ in range(self.repeats):
            for run, count, times in zip(runs, counts, timings, strict=True):
                start = time.perf_counter()
                for _ in range(count):
                    run()
                times.append((time.perf_counter() - start) / count)
        return [statistics.median(times) for times in timings]

    def _compiled(self, engine: Engine, variant: Variant) -> Callable[[], None]:
        prepared = variant.prepared
        key = fingerprint(prepared.inputs, prepared.outputs)
        program = None if key is None else self._programs.get(key)
        if program is None:
            program = self._compiler.compile(engine, prepared)
            if key is not None:
                self._programs[key] = program
        engine, run = program.backend, program.run
        self.engine = program.engine
        arrays = [engine.hold(np.array(x)) for x in self.values]
        engine.finish(arrays if engine.reuses else ())
        return lambda: engine.finish(run(arrays))


# ----------------------------------------------------------------------------------------------- data

SCALES = (1e-3, 1e-1, 1.0)
"""The scales of the noise that is added, relative to the root mean square of an array."""
FACTOR = 0.1
"""The scale of the logarithm of factors: multiplied with these, numbers keep signs and zeros."""


def jittered(values: Arrays, seed: int) -> list[list[np.ndarray[Any, Any]]]:
    """Copies of data with noise on all floating-point and complex numbers; empty if there are none.

    In one copy, numbers are multiplied by noise, so that positive ones stay positive; in the others, noise is
    added.
    """
    if not any(_is_inexact(x) for x in values):
        return []
    generator = np.random.default_rng(seed)
    return [[_jittered(x, scale, generator) for x in values] for scale in (None, *SCALES)]


def _is_inexact(x: np.ndarray[Any, Any]) -> bool:
    return x.dtype.kind in "fcV" and x.size > 0


def _jittered(
    x: np.ndarray[Any, Any], scale: float | None, generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    if not _is_inexact(x):
        return x
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    noise = generator.standard_normal(x.shape)
    if scale is None:
        return np.asarray(wide * np.exp(FACTOR * noise)).astype(x.dtype)
    if x.dtype.kind == "c":
        noise = noise + 1j * generator.standard_normal(x.shape)
    finite = wide[np.isfinite(wide)]
    size = float(np.sqrt(np.mean(np.abs(finite) ** 2))) if finite.size else 0.0
    return np.asarray(wide + scale * (size or 1.0) * noise).astype(x.dtype)


def finite(arrays: Gradients) -> bool:
    """Whether all elements of the arrays are finite."""
    return all(x is None or bool(np.isfinite(x).all()) for x in arrays)
