"""What sessions and functions do alike: take options, compile for an engine, keep what was compiled."""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from stopgrad.base.coercion import flag, is_whole, whole
from stopgrad.base.errors import ArgumentError
from stopgrad.engines import Compiled, Engine, able, engine as engine_named, fail
from stopgrad.graph.body import Body
from stopgrad.graph.build import emit
from stopgrad.graph.fingerprint import fingerprint
from stopgrad.graph.graph import Operation, Output, needed
from stopgrad.graph.sharding import Spec
from stopgrad.ops.structural.sharding import Shard, declared_sharding
from stopgrad.ops.structural.sources import Placeholder
from stopgrad.rewrite import Rewritten, check_sizes, formed, prepare
from stopgrad.run.programs import Program
from stopgrad.run.tuning import REPORTS, Report, Sample, Tried, Way, budget, fastest, remember, remembered

CACHE_SIZE = 128
"""How many compiled computations a session or a function keeps, where nothing else is asked for."""


class Options(NamedTuple):
    """What a session or a function was asked for; :func:`stopgrad.function` says what each means."""

    engine: str = "auto"
    donate_argnums: Any = ()
    static_argnums: Any = None
    static_argnames: Any = None
    shapes: Mapping[str, Any] | None = None
    with_probes: bool = False
    cache_size: int = CACHE_SIZE
    strict: bool = False
    tune: str = "off"
    mesh: Any = None
    shardings: Mapping[str, Any] | None = None


class Compiler:
    """Compiles graphs as one session or function was asked to, and reports how.

    Args:
        options: what was asked for.
        name: of the session or function, for reports, notes and errors.

    Attributes:
        measures: whether several ways to run a graph are measured.
    """

    def __init__(self, options: Options, name: str = "Session") -> None:
        budget(options.tune)
        if options.mesh is not None and options.tune != "off":
            raise ArgumentError(
                f"{name}: tune={options.tune!r} measures engines on one device; leave it out on a mesh"
            )
        self.options, self.name = options, name
        self.measures = options.tune != "off"
        self.reports: deque[Report] = deque(maxlen=REPORTS)
        self._strict = flag(options.strict, "strict")
        self._any_engine = options.engine == "auto" and options.mesh is None

    def compile(
        self,
        engine: Engine,
        prepared: Rewritten,
        *,
        donated: Sequence[int] = (),
        assigned: Sequence[Output] = (),
        sample: Sample | None = None,
        shardings: Sequence[Spec] = (),
    ) -> Program:
        """Compile a prepared graph; whatever goes wrong in the engine is an error of ours.

        Args:
            engine: to run it. Where it cannot, and any may, the best that can does.
            prepared: the graph.
            donated: positions of inputs that may be overwritten.
            assigned: parameters like which there are further inputs, which nothing reads, for engines that
                reuse memory: results are written there.
            sample: values of the inputs, for measuring.
            shardings: how results are to be divided, on a mesh.
        """
        operations = Body(prepared.graph, prepared.inputs, prepared.outputs).operations()
        if self._any_engine and engine.unsupported(operations) is not None:
            engine = engine_named("auto", operations)
        tune = self.options.tune
        anywhere = self._any_engine and tune == "full" and sample is not None and sample.anywhere
        ways, start = _ways(engine, operations, self._strict, anywhere), time.perf_counter()
        notes: dict[Way, Sequence[str]] = {}
        what = f"{self.name}: {len(operations):,} operations"
        compile = partial(_compile, prepared, donated, assigned, shardings, what, notes)
        tried: list[Tried] = []
        known = None
        if len(ways) == 1 or sample is None:
            way = ways[0]
            run = compile(way)
        else:
            graph = fingerprint(prepared.inputs, prepared.outputs)
            known = remembered(graph, ways, tune) if graph else None
            if known:
                way, tried = known
                run = compile(way)
            else:
                way, run, tried = fastest(ways, compile, sample.take(), assigned, budget(tune))
                if graph:
                    remember(graph, ways, tune, way, tried)
        took = time.perf_counter() - start
        shown, measured = _shown(prepared), (tuple(tried), known is not None)
        self.reports.append(
            Report(shown, way.engine.name, way.variant.name, took, *measured, tuple(notes.get(way, ())))
        )
        return Program(way.engine, run)


def compile_sized(
    engine: Engine,
    outputs: Sequence[Output],
    inputs: Sequence[Output],
    binding: dict[str, int],
    unsized: dict[Engine, Program],
    compile: Callable[[Rewritten], Program],
) -> Program:
    """Compile a graph for sizes that are known now; for engines that keep them symbolic, once for all.

    Args:
        engine: that is to run it.
        outputs: what is computed.
        inputs: from what.
        binding: the sizes, by name.
        unsized: what such engines have compiled; one is added.
        compile: compiles the prepared graph.
    """
    known: dict[str, int] | None = binding
    if engine.keeps_sizes:
        check_sizes(needed(outputs, set(inputs)), binding)
        if engine in unsized:
            return unsized[engine]
        known = None
    program = compile(prepare(outputs, inputs, known, engine.mesh is not None))
    if program.backend.keeps_sizes:
        unsized[program.backend] = program
    return program


def _ways(engine: Engine, operations: Sequence[Operation], strict: bool, anywhere: bool) -> list[Way]:
    """What may be measured, the preferred first."""
    if strict:
        return [Way(engine, engine.variants[-1])]
    ways = [Way(engine, variant) for variant in engine.variants]
    if anywhere:
        others = [one for one in able(operations) if one is not engine]
        # A graph with its sizes known is not for engines that keep them, nor the other way round.
        ways += [
            Way(one, variant)
            for one in others
            if one.keeps_sizes == engine.keeps_sizes
            for variant in one.variants
        ]
    return ways


def _compile(
    prepared: Rewritten,
    donated: Sequence[int],
    assigned: Sequence[Output],
    shardings: Sequence[Spec],
    what: str,
    notes: dict[Way, Sequence[str]],
    way: Way,
) -> Compiled:
    engine, variant = way
    form = formed(prepared, variant.forms, variant.passes)
    notes[way] = form.notes
    spare = [
        emit(Placeholder, (), (x.dtype, x.shape, declared_sharding(x)), "", form.graph).outputs[0]
        for x in (assigned if engine.reuses else ())
    ]
    inputs, count, outputs = [*form.inputs, *spare], len(form.inputs), form.outputs
    if engine.mesh is not None and shardings:
        outputs = [_divided(y, spec) for y, spec in zip(outputs, shardings, strict=True)]
    try:
        with noted(f"{what} on {engine.name}"):
            donate = [*donated, *range(count, len(inputs))]
            return engine.compile(inputs, outputs, donate, variant)
    except Exception as error:
        fail(engine, prepared.outputs, error)


def _divided(y: Output, spec: Spec) -> Output:
    """A result that is to be divided so; as it is, where nothing is said."""
    return emit(Shard, (y,), (spec,), "", y.op.graph).outputs[0] if spec else y


NOTED = 3.0
"""Compiling that takes more seconds is told of."""

LOGGER = logging.getLogger("stopgrad")


@contextmanager
def noted(what: str) -> Iterator[None]:
    """Inside, *what* is being compiled. If that took long, it is said, once.

    It is logged by the logger ``"stopgrad"``, with the level INFO; where nobody listens to that, it is
    written to standard error if that is a terminal. It is no warning: nothing is wrong. It is said when
    compiling has ended: an interrupt while a thread is started, which would say it before, can leave Python
    unable to start another.
    """
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    if took > NOTED:
        _note(f"{what}, compiled for {took:.1f} s; loops made by sg.scan compile faster than Python's")


def _note(text: str) -> None:
    if LOGGER.isEnabledFor(logging.INFO) and LOGGER.hasHandlers():
        LOGGER.info(text)
    elif sys.stderr is not None and sys.stderr.isatty():
        print(f"stopgrad: {text}", file=sys.stderr)


def _shown(prepared: Rewritten) -> str:
    """A computation, in reports: the types of its inputs and results."""
    return " -> ".join(
        f"({', '.join([repr(x.type) for x in found[:_MANY]])}{', …' if len(found) > _MANY else ''})"
        for found in (prepared.inputs, prepared.outputs)
    )


_MANY = 6


def cached(function: Callable[..., Any], size: int, what: str) -> Any:
    """The function, keeping its results for the arguments used last.

    The standard library's cache: threads may share it, and a call that is interrupted or fails adds nothing.

    Args:
        function: of arguments that have a hash.
        size: how many results to keep: an integer of at least 1.
        what: who asks, for the error.
    """
    if not is_whole(size) or whole(size) < 1:
        raise ArgumentError(
            f"{what}: cache_size is how many compiled computations to keep, at least 1; not {size!r}"
        )
    return functools.lru_cache(whole(size))(function)


def has_hash(x: object) -> bool:
    """Whether *x* may be part of what a cache knows calls by."""
    try:
        hash(x)
    except TypeError:
        return False
    return True
