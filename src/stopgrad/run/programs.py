"""What engines have compiled: programs, to be run and to be read."""

from __future__ import annotations

from typing import Any, NamedTuple

from stopgrad.base.errors import EngineError
from stopgrad.engines import Compiled, Engine


class Memory(NamedTuple):
    """What a compiled program needs on one device, in bytes.

    Attributes:
        arguments: of the arrays that it is given.
        results: of those that it returns.
        reused: of the arguments into which results are written.
        temporary: of what it computes on the way.
    """

    arguments: int
    results: int
    reused: int
    temporary: int


class Program:
    """What an engine has compiled: to be run, and to be read.

    Attributes:
        engine: the name of the engine.
        backend: the engine itself.
        run: from the values of the inputs to those of the outputs.
    """

    def __init__(self, backend: Engine, run: Compiled) -> None:
        self.backend, self.run = backend, run
        self.engine = backend.name
        self._executable: Any = getattr(run, "executable", None)

    def _present(self, what: str) -> Any:
        if self._executable is None:
            raise EngineError(
                f"{what}: the {self.engine} engine did not compile this to one program; take engine='xla'"
            )
        return self._executable

    def as_text(self) -> str:
        """The program of one device, as XLA's text: after partitioning, so that communication is in it."""
        text: str = self._present("as_text").as_text()
        return text

    def memory_analysis(self) -> Memory:
        """What one device needs, as XLA says."""
        found = self._present("memory_analysis").memory_analysis()
        return Memory(
            found.argument_size_in_bytes,
            found.output_size_in_bytes,
            found.alias_size_in_bytes,
            found.temp_size_in_bytes,
        )
