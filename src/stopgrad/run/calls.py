"""Calls of traced functions: what was given, what was compiled for it, and how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from stopgrad.base.errors import ArgumentError, FeedError, ShapeError
from stopgrad.engines import Engine, fail
from stopgrad.graph.arguments import Constant
from stopgrad.rewrite import Rewritten
from stopgrad.run.compiling import How, Ready, cached, compile_for, compile_sized
from stopgrad.run.feeds import sizes_of
from stopgrad.run.quick import handed_out
from stopgrad.run.traced import Signature, Static, Traced
from stopgrad.run.tuning import Sample


class Given(NamedTuple):
    """The arguments of one call.

    Attributes:
        leaves: all but the static ones, flat.
        spec: their structure.
        static: the static ones.
        arrays: the arrays among the leaves.
        signature: what tells the call from others, leaf by leaf.
        native: whether any array is the engine's own.
        borrowed: whether any is the caller's, who may change it after the call.
    """

    leaves: list[Any]
    spec: Any
    static: Static
    arrays: list[Any]
    signature: list[Any]
    native: bool
    borrowed: bool


@dataclass(eq=False)
class Kept:
    """A function traced for one signature, and what was compiled of it.

    Attributes:
        traced: the function.
        compile: from an engine, the graph with its sizes known, and values to measure with.
        ready: computes the results, where all sizes were known when it was traced.
        unsized: what engines that keep sizes symbolic have compiled.
        sized: from an engine and shapes to what was compiled for these.
        fresh: whether it has not been called yet.
    """

    traced: Traced
    compile: Callable[[Engine, Rewritten, Sample | None], Ready]
    cache_size: int
    ready: Ready | None = None
    unsized: dict[Engine, Ready] = field(default_factory=dict)
    sized: Any = None
    fresh: bool = True

    def for_arrays(self, engine: Engine, arrays: Sequence[Any], sample: Sample | None) -> Ready:
        """What computes the results for arrays of these shapes."""
        if self.ready is not None:
            return self.ready
        if self.sized is None:
            # Refers to nothing that refers to it: once dropped it is freed at once.
            parts = self.traced, self.compile, self.unsized
            self.sized = cached(partial(_sized, *parts), self.cache_size, "function")
        return self.sized(engine, tuple([x.shape for x in arrays]), sample)


def _sized(
    traced: Traced,
    compile: Callable[[Engine, Rewritten, Sample | None], Ready],
    unsized: dict[Engine, Ready],
    engine: Engine,
    shapes: Sequence[tuple[int, ...]],
    sample: Sample | None,
) -> Ready:
    """Compile a function for shapes of its arguments, those sizes that were left open being known now."""
    paths = dict(zip(traced.inputs, traced.paths, strict=True))
    try:
        binding = sizes_of(
            traced.inputs, shapes, lambda x: f"{traced.name}: {paths[x]} was given an array", "arguments"
        )
    except FeedError as error:
        raise ShapeError(error.message) from None
    return compile_sized(
        engine,
        traced.outputs,
        traced.inputs,
        binding,
        unsized,
        lambda prepared: compile(engine, prepared, sample),
    )


def computed(traced: Traced, ready: Ready, engine: Engine, given: Given) -> Sequence[Any]:
    """The results of one call, as the caller gets them."""
    failed = partial(failed_in, ready.engine, traced)
    # They may be the other engine's own.
    arrays = given.arrays if ready.engine is engine else [np.asarray(a) for a in given.arrays]
    try:
        found = ready.run(arrays)
    except Exception as error:
        failed(error)
    return handed_out(found, given.native, given.borrowed, ready.engine, failed)


def failed_in(engine: Engine, traced: Traced, error: Exception) -> NoReturn:
    """Raise what happened in an engine as an error of ours."""
    fail(engine, traced.outputs, error)


def compiled(
    how: How, donated: Sequence[int], engine: Engine, prepared: Rewritten, sample: Sample | None
) -> Ready:
    return compile_for(engine, prepared, how, donated, sample=sample)


def donated_arrays(name: str, argnums: Sequence[int], spec: Any, signature: Signature) -> list[int]:
    """The positions, among the arrays, of those that belong to donated arguments."""
    if not argnums:
        return []
    count = spec.child(0).num_children
    missing = next((n for n in argnums if not -count <= n < count), None)
    if missing is not None:
        raise ArgumentError(
            f"function: donate_argnums holds {missing}, but {name} was given {count} positional arguments"
        )
    wanted = {n % count for n in argnums}
    arrays = [
        not by_keyword and which in wanted
        for (by_keyword, which, *_), s in zip(spec.paths(), signature, strict=True)
        if not isinstance(s, Constant)
    ]
    return [n for n, given in enumerate(arrays) if given]
