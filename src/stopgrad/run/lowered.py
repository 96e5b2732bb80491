"""Functions traced ahead of the first call: to be read, to count their cost, and to be compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from stopgrad.base.structure import flatten, paths
from stopgrad.engines import Engine
from stopgrad.graph.graph import Graph, Output
from stopgrad.rewrite import prepare
from stopgrad.run.costs import Cost, cost_of
from stopgrad.run.feeds import sizes_of
from stopgrad.run.programs import Program
from stopgrad.run.traced import Traced


class CompiledFunction(Program):
    """A function compiled ahead of its first call. It takes arguments of one signature only."""

    def __init__(self, call: Callable[..., object], program: Program) -> None:
        super().__init__(program.backend, program.run)
        self._call = call

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._call(*args, **kwargs)


class Lowered:
    """A function traced for given arguments, and not compiled. Made by :meth:`Function.lower`.

    Attributes:
        engine: the name of the engine that would run it.
        paths: the paths of its traced arguments.

    Examples:
        >>> lowered = sg.function(lambda x: sg.reduce_sum(x * x), engine="numpy").lower(np.ones(3))
        >>> print(lowered.to_text())
        x: float64[3] = Placeholder(dtype=float64, shape=(3,))
        Mul: float64[3] = Mul(x, x)
        Sum: float64[] = Sum(Mul, axis=(0,), keepdims=False)
        >>> compiled = lowered.compile()
        >>> compiled(np.array([1.0, 2.0, 3.0]))
        array(14.)
    """

    engine: str
    paths: tuple[str, ...]

    def __init__(
        self,
        traced: Traced,
        engine: Engine,
        shapes: Sequence[tuple[int, ...]],
        compile: Callable[[], CompiledFunction],
    ) -> None:
        self._traced, self._shapes, self._compile = traced, shapes, compile
        self.engine = engine.name
        self.paths = tuple(traced.paths)

    @property
    def graph(self) -> Graph:
        """The graph that the function has built, gates included, before any rewriting."""
        return self._traced.graph

    @property
    def inputs(self) -> dict[str, Output]:
        """The traced arguments, by their paths."""
        return dict(zip(self.paths, self._traced.inputs, strict=True))

    @property
    def outputs(self) -> dict[str, Output]:
        """The results, by their paths in what the function returns; a single one is called ``"output"``."""
        tree = self._traced.rebuild(self._traced.outputs)
        if isinstance(tree, Output):
            return {"output": tree}
        pairs = zip(paths(tree), flatten(tree)[0], strict=True)
        return {path: leaf for path, leaf in pairs if isinstance(leaf, Output)}

    def to_text(self) -> str:
        """The graph as text, with one operation per line."""
        return self.graph.to_text()

    as_text = to_text

    def cost_analysis(self) -> Cost:
        """The cost of one call, counted on the graph that would be compiled."""
        return self._cost

    @cached_property
    def _cost(self) -> Cost:
        traced = self._traced
        prepared = prepare(traced.outputs, traced.inputs, sizes_of(traced.inputs, self._shapes))
        return cost_of(prepared.inputs, prepared.outputs, traced.paths)

    def compile(self) -> CompiledFunction:
        """Compile now. The function that is returned takes arguments of this signature only."""
        return self._compile()

    def __repr__(self) -> str:
        return f"<Lowered {self._traced.name} for {self.engine}: {len(self.graph)} operations>"
