"""What sessions and functions share: options, compiling for an engine, and caches of what was compiled."""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from stopgrad.base.coercion import flag, is_whole, whole
from stopgrad.base.errors import ArgumentError
from stopgrad.base.progress import Progress
from stopgrad.engines import Compiled, Engine, able, engine as engine_named, fail
from stopgrad.graph.body import Body
from stopgrad.graph.build import emit
from stopgrad.graph.fingerprint import fingerprint
from stopgrad.graph.graph import Operation, Output, needed
from stopgrad.graph.sharding import Spec
from stopgrad.ops.structural.sharding import Shard
from stopgrad.rewrite import Forming, Rewritten, check_sizes, prepare
from stopgrad.run.costs import is_small
from stopgrad.run.programs import Program
from stopgrad.run.tuning import (
    REPORTS,
    Notes,
    Report,
    Sample,
    Tried,
    Way,
    budget,
    fastest,
    remember,
    remembered,
)

CACHE_SIZE = 512
"""The number of compiled computations that a session or a function keeps, unless another is given."""


class Options(NamedTuple):
    """The options of a session or a function; see :func:`stopgrad.function`."""

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
    """Compiles graphs for a session or function with its options, and reports how.

    Args:
        options: its options.
        name: its name, for reports, notes and errors.

    Attributes:
        measures: whether it measures several ways to run a graph.
    """

    options: Options
    name: str
    measures: bool

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
        outside: bool = False,
    ) -> Program:
        """Compile a prepared graph. Errors of the engine become ours.

        Args:
            engine: the engine that runs it. If it cannot and ``"auto"`` was asked for, the best that can.
            prepared: the graph.
            donated: positions of inputs that may be overwritten.
            assigned: parameters for which there are further inputs that nothing reads. Engines that reuse
                memory write results there.
            sample: values of the inputs, for measuring.
            shardings: how results should be divided on a mesh.
            outside: whether all values come as NumPy arrays and go as such. With ``"auto"``, NumPy computes
                what it has computed before a compiled program would have been called.
        """
        operations = Body(prepared.graph, prepared.inputs, prepared.outputs).operations()
        small = False
        if self._any_engine and engine.unsupported(operations) is not None:
            engine = engine_named("auto", operations)
        elif self._any_engine and outside and sample is None and engine.slow_to_call:
            numpy = engine_named("numpy")
            small = is_small(prepared, operations) and numpy.unsupported(operations) is None
            engine = numpy if small else engine
        tune = self.options.tune
        anywhere = self._any_engine and tune == "full" and sample is not None and sample.anywhere
        strict = self._strict or bool(prepared.graph.acting)  # What prints, prints in order.
        ways, start = _ways(engine, operations, strict, anywhere), time.perf_counter()
        forms: dict[Way, Forming] = {}
        what = f"{self.name}: {len(operations):,} operations"
        tell = functools.cache(lambda text: _note(f"{what}: {text}"))
        compile = partial(_compile, prepared, donated, assigned, shardings, what, tell, forms)
        tried: list[Tried] = []
        choice = None
        if len(ways) == 1 or sample is None:
            way = ways[0]
            run = compile(way)
        else:
            graph = fingerprint(prepared.inputs, prepared.outputs)
            choice = remembered(graph, ways, tune) if graph else None
            if choice:
                way, tried = choice
                run = compile(way)
            else:
                way, run, tried = fastest(ways, compile, sample.take(), assigned, budget(tune))
                if graph:
                    remember(graph, ways, tune, way, tried)
        took = time.perf_counter() - start
        shown, measured = _signature_text(prepared), (tuple(tried), choice is not None)
        notes = Notes(forms[way])
        self.reports.append(Report(shown, way.engine.name, way.variant.name, took, *measured, notes))
        return Program(way.engine, run, small)


def compile_sized(
    engine: Engine,
    outputs: Sequence[Output],
    inputs: Sequence[Output],
    binding: dict[str, int],
    unsized: dict[Engine, Program],
    compile: Callable[[Rewritten], Program],
) -> Program:
    """Compile a graph for known sizes; for engines that keep sizes symbolic, once for all sizes.

    Args:
        engine: the engine that runs it.
        outputs: the outputs of the graph.
        inputs: the inputs of the graph.
        binding: the sizes, by name.
        unsized: what engines that keep sizes symbolic have compiled; it may grow.
        compile: compiles the prepared graph.
    """
    sizes: dict[str, int] | None = binding
    if engine.keeps_sizes:
        check_sizes(needed(outputs, set(inputs)), binding)
        if engine in unsized:
            return unsized[engine]
        sizes = None
    program = compile(prepare(outputs, inputs, sizes, engine.mesh is not None))
    if program.backend.keeps_sizes:
        unsized[program.backend] = program
    return program


def _ways(engine: Engine, operations: Sequence[Operation], strict: bool, anywhere: bool) -> list[Way]:
    """The engines and variants to measure, the preferred first."""
    if strict:
        return [Way(engine, engine.variants[-1])]
    ways = [Way(engine, variant) for variant in engine.variants]
    if anywhere:
        others = [other for other in able(operations) if other is not engine]
        # Some engines take graphs with symbolic sizes, the others with known ones: they cannot be compared.
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
    tell: Callable[[str], None],
    forms: dict[Way, Forming],
    way: Way,
) -> Compiled:
    engine, variant = way
    spare = assigned if engine.reuses else ()
    grows = any(other.passes for other in engine.variants)
    form = Forming(prepared, variant.forms, variant.passes, spare, tell if grows else None)
    forms[way] = form
    count = len(prepared.inputs)
    donate = [*donated, *range(count, count + len(spare))]
    try:
        shown = f"{what} on {engine.name}"
        with noted(shown), Progress(f"compiling {shown}"):
            if engine.mesh is None or not shardings:
                return engine.compile_form(form, donate, variant)
            outputs = [_divided(y, spec) for y, spec in zip(form.outputs, shardings, strict=True)]
            return engine.compile(form.inputs, outputs, donate, variant)
    except Exception as error:
        fail(engine, prepared.outputs, error)
    finally:
        form.hush()


def _divided(y: Output, spec: Spec) -> Output:
    """A result that is divided by *spec*; unchanged if there is none."""
    return emit(Shard, (y,), (spec,), "", y.op.graph).outputs[0] if spec else y


NOTED = 3.0
"""A compilation of more seconds is logged."""

LOGGER = logging.getLogger("stopgrad")


@contextmanager
def noted(what: str) -> Iterator[None]:
    """A context in which *what* is compiled. If that takes long, it is logged once.

    The logger ``"stopgrad"`` logs it at level INFO; if that has no handler, it is written to standard error
    if that is a terminal. It is not a warning, because nothing is wrong. It is logged at the end: earlier
    would take a thread, and an interrupt while one is started can leave Python unable to start more.
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


def _signature_text(prepared: Rewritten) -> str:
    """A computation as reports show it: the types of its inputs and results."""
    return " -> ".join(
        f"({', '.join([repr(x.type) for x in tensors[:_MANY]])}{', …' if len(tensors) > _MANY else ''})"
        for tensors in (prepared.inputs, prepared.outputs)
    )


_MANY = 6
R = TypeVar("R")


def cached(
    function: Callable[..., R], size: int, what: str, owner: str = ""
) -> functools._lru_cache_wrapper[R]:
    """The function with an LRU cache.

    It is the standard library's: threads may share it, and a call that is interrupted or fails adds nothing.

    Args:
        function: its arguments must have a hash.
        size: the number of results to keep, an integer of at least 1.
        what: the name of the caller, for the error.
        owner: what keeps them, if it is to be noted, once, that a result was made again because too few are.
    """
    if not is_whole(size) or whole(size) < 1:
        raise ArgumentError(
            f"{what}: cache_size is how many compiled computations to keep, at least 1; not {size!r}"
        )
    return functools.lru_cache(whole(size))(_noting(function, whole(size), owner) if owner else function)


def _noting(function: Callable[..., R], size: int, owner: str) -> Callable[..., R]:
    """The function behind a cache of so many results; it notes, once, that it makes one again."""
    recent: dict[int, None] = {}  # Hashes of arguments, the last one last.
    warned = False

    def noting(*args: object) -> R:
        nonlocal warned
        key = hash(args)
        if not warned and key in recent and len(recent) > size:
            warned = True
            _note(
                f"{owner} is compiled again for what it was compiled for before, since only the last {size} "
                "are kept; pass a larger cache_size, or arguments of fewer kinds"
            )
        result = function(*args)
        if not warned:
            recent.pop(key, None)
            recent[key] = None
            if len(recent) > RECALLED * size:
                recent.pop(next(iter(recent)), None)
        return result

    return noting


RECALLED = 8
"""How many times as many computations are known to have been compiled as are kept."""


def has_hash(x: object) -> bool:
    """Whether *x* has a hash, so that it can be part of a cache's key."""
    try:
        hash(x)
    except TypeError:
        return False
    return True
