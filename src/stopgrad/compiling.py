"""What sessions and functions do alike: choose an engine, compile for it, keep what was compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stopgrad.body import Body
from stopgrad.build import emit
from stopgrad.engines import Compiled, Engine, engine as engine_named, fail
from stopgrad.errors import ArgumentError
from stopgrad.ops.data import Placeholder
from stopgrad.plain import is_whole, whole
from stopgrad.rewrite import Rewritten, formed
from stopgrad.types import TensorType

CACHE_SIZE = 128
"""How many compiled computations a session or a function keeps, where nothing else is asked for."""


class Ready(NamedTuple):
    """A compiled computation, the engine that runs it, and how."""

    engine: Engine
    run: Compiled
    variant: str


def choose(engine: Engine, auto: bool, prepared: Rewritten) -> Engine:
    """This engine; or where it cannot run the graph and any may, the best that can."""
    operations = Body(prepared.graph, prepared.inputs, prepared.outputs).operations()
    if auto and engine.unsupported(operations) is not None:
        return engine_named("auto", operations)
    return engine


def compile_for(
    engine: Engine,
    prepared: Rewritten,
    donate: Sequence[int],
    spare: Sequence[TensorType],
    strict: bool,
) -> Ready:
    """Compile a prepared graph; whatever goes wrong in the engine is an error of ours.

    Args:
        engine: that can run it.
        prepared: the graph.
        donate: positions of inputs that may be overwritten.
        spare: types of further inputs, which nothing reads: results are written there.
        strict: whether operations are computed as their definitions say, in no form of the engine's own.
    """
    variant = engine.variants[-1 if strict else 0]
    form = formed(prepared, variant.forms)
    given = [emit(Placeholder, (), (x.dtype, x.shape), "", form.graph).outputs[0] for x in spare]
    inputs, count = [*form.inputs, *given], len(form.inputs)
    try:
        run = engine.compile(inputs, form.outputs, [*donate, *range(count, len(inputs))], variant)
        return Ready(engine, run, variant.name)
    except Exception as error:
        fail(engine, prepared.outputs, error)


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
