"""What sessions and functions do alike: choose an engine, compile for it, keep what was compiled."""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from stopgrad.base.coercion import flag, is_whole, whole
from stopgrad.base.errors import ArgumentError
from stopgrad.engines import Compiled, Engine, able, engine as engine_named, fail
from stopgrad.graph.body import Body
from stopgrad.graph.build import emit
from stopgrad.graph.fingerprint import fingerprint
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.sharding import Spec
from stopgrad.ops.structural.sharding import Shard, declared_sharding
from stopgrad.ops.structural.sources import Placeholder
from stopgrad.rewrite import Rewritten, check_sizes, formed, needed, prepare
from stopgrad.run.tuning import Report, Sample, Tried, Way, budget, fastest, remember, remembered
from stopgrad.scale.meshes import Mesh

CACHE_SIZE = 128
"""How many compiled computations a session or a function keeps, where nothing else is asked for."""


class How(NamedTuple):
    """How computations are to be compiled.

    Attributes:
        auto: whether any engine may run them.
        strict: whether operations are computed as their definitions say, in no form of an engine's own.
        tune: ``"off"``, or how thoroughly several ways are measured: ``"quick"`` or ``"full"``.
        reports: where it is told what was done.
        what: what is compiled, for notes.
    """

    auto: bool
    strict: bool
    tune: str
    reports: deque[Report]
    what: str = "Session"

    @classmethod
    def of(
        cls, engine: str, strict: Any, tune: Any, size: int, mesh: Mesh | None, what: str = "Session"
    ) -> How:
        """From the arguments of a session or a function."""
        budget(tune)
        if mesh is not None and tune != "off":
            raise ArgumentError(
                f"{what}: tune={tune!r} measures engines on one device; leave it out on a mesh"
            )
        return cls(engine == "auto" and mesh is None, flag(strict, "strict"), tune, deque(maxlen=size), what)


class Ready(NamedTuple):
    """A compiled computation, and the engine that runs it."""

    engine: Engine
    run: Compiled


def compile_for(
    engine: Engine,
    prepared: Rewritten,
    how: How,
    donated: Sequence[int] = (),
    assigned: Sequence[Output] = (),
    sample: Sample | None = None,
    shardings: Sequence[Spec] = (),
) -> Ready:
    """Compile a prepared graph; whatever goes wrong in the engine is an error of ours.

    Args:
        engine: to run it. Where it cannot, and any may, the best that can does.
        prepared: the graph.
        how: the rest.
        donated: positions of inputs that may be overwritten.
        assigned: parameters like which there are further inputs, which nothing reads, for engines that reuse
            memory: results are written there.
        sample: values of the inputs, for measuring.
        shardings: how results are to be divided, on a mesh.
    """
    operations = Body(prepared.graph, prepared.inputs, prepared.outputs).operations()
    if how.auto and engine.unsupported(operations) is not None:
        engine = engine_named("auto", operations)
    anywhere = how.auto and how.tune == "full" and sample is not None and sample.anywhere
    ways, start = _ways(engine, operations, how.strict, anywhere), time.perf_counter()
    tried: list[Tried] = []
    known = None
    notes: dict[Way, Sequence[str]] = {}
    compile = partial(
        _compile, prepared, donated, assigned, shardings, f"{how.what}: {len(operations):,} operations", notes
    )
    if len(ways) == 1 or sample is None:
        way = ways[0]
        run = compile(way)
    else:
        graph = fingerprint(prepared.inputs, prepared.outputs)
        known = remembered(graph, ways, how.tune) if graph else None
        if known:
            way, tried = known
            run = compile(way)
        else:
            way, run, tried = fastest(ways, compile, sample.take(), assigned, budget(how.tune))
            if graph:
                remember(graph, ways, how.tune, way, tried)
    took = time.perf_counter() - start
    shown, measured = _shown(prepared), (tuple(tried), known is not None)
    how.reports.append(
        Report(shown, way.engine.name, way.variant.name, took, *measured, tuple(notes.get(way, ())))
    )
    return Ready(way.engine, run)


def compile_sized(
    engine: Engine,
    outputs: Sequence[Output],
    inputs: Sequence[Output],
    binding: dict[str, int],
    kept: dict[Engine, Ready],
    compile: Callable[[Rewritten], Ready],
) -> Ready:
    """Compile a graph for sizes that are known now; for engines that keep them symbolic, once for all.

    Args:
        engine: that is to run it.
        outputs: what is computed.
        inputs: from what.
        binding: the sizes, by name.
        kept: what such engines have compiled; one is added.
        compile: compiles the prepared graph.
    """
    known: dict[str, int] | None = binding
    if engine.keeps_sizes:
        check_sizes(needed(outputs, set(inputs)), binding)
        if engine in kept:
            return kept[engine]
        known = None
    ready = compile(prepare(outputs, inputs, known, engine.mesh is not None))
    if ready.engine.keeps_sizes:
        kept[ready.engine] = ready
    return ready


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


def has_hash(x: Any) -> bool:
    """Whether *x* may be part of what a cache knows calls by."""
    try:
        hash(x)
    except TypeError:
        return False
    return True
