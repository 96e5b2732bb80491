"""Programs: what engines have compiled, to be run and read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stopgrad.base.errors import EngineError
from stopgrad.engines import Compiled, Engine


class Memory(NamedTuple):
    """The memory that a compiled program needs on one device, in bytes.

    Attributes:
        arguments: the bytes of its arguments.
        results: the bytes of its results.
        reused: the bytes of arguments into which results are written.
        temporary: the bytes of intermediate values.
    """

    arguments: int
    results: int
    reused: int
    temporary: int


class Program:
    """A computation that an engine has compiled.

    Attributes:
        engine: the name of the engine.
        backend: the engine itself.
        run: computes the values of the outputs from those of the inputs.
        small: whether NumPy computes it because it is small, and values come as NumPy arrays.
        whole: whether it is one compiled program on one device, whose results are ready, or fail, together.
    """

    backend: Engine
    run: Compiled
    small: bool
    engine: str

    def __init__(self, backend: Engine, run: Compiled, small: bool = False) -> None:
        self.backend, self.run, self.small = backend, run, small
        self.engine = backend.name
        self._executable: Any = getattr(run, "executable", None)
        self.whole: bool = getattr(run, "whole", False)

    def direct(self, arrays: Sequence[Any]) -> Callable[..., Sequence[Any]] | None:
        """A function that takes arrays like these one by one, and computes what :attr:`run` computes.

        It raises a TypeError, a ValueError or a FloatingPointError, having done nothing, where *run* might
        find another way. None if there is none.
        """
        make = getattr(self.run, "direct", None)
        if make is None:
            return lambda *arrays: self.run(arrays)
        function: Callable[..., Sequence[Any]] | None = make(arrays)
        return function

    def _present(self, what: str) -> Any:
        if self._executable is None:
            raise EngineError(
                f"{what}: the {self.engine} engine did not compile this to one program; take engine='xla'"
            )
        return self._executable

    def as_text(self) -> str:
        """The program of one device as XLA's text, after partitioning, so with communication."""
        text: str = self._present("as_text").as_text()
        return text

    def memory_analysis(self) -> Memory:
        """The memory that one device needs, according to XLA."""
        analysis = self._present("memory_analysis").memory_analysis()
        return Memory(
            analysis.argument_size_in_bytes,
            analysis.output_size_in_bytes,
            analysis.alias_size_in_bytes,
            analysis.temp_size_in_bytes,
        )
