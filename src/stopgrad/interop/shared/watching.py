"""What watches of all frameworks share: a block within which operations are recorded, one at a time."""

from __future__ import annotations

from typing import Any, Self

from stopgrad.base.errors import GraphError
from stopgrad.graph.builder import CURRENT, Block
from stopgrad.interop.shared.lifetimes import Lifetime


class WatchBlock(Block):
    """A context manager inside which a framework's operations are recorded.

    Attributes:
        maker: what makes one, for errors: ``sgt.watch()``.
    """

    maker: str

    def __init__(self) -> None:
        super().__init__()
        self._lifetime: Lifetime | None = None

    def changes(self) -> dict[str, Any]:
        return {}  # What our own graphs are built with is as it was.

    def _start_recording(self, lifetime: Lifetime) -> None:
        """Begin to record, for as long as the block lasts."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if self._is_running:
            raise GraphError(f"watch: this watch is running already; make another with {self.maker}")
        super().__enter__()
        self._lifetime = Lifetime(CURRENT.get()())
        self._start_recording(self._lifetime)
        return self

    @property
    def _is_running(self) -> bool:
        return self._lifetime is not None and self._lifetime() is not None

    def __repr__(self) -> str:
        return "<Watch that is running>" if self._is_running else "<Watch>"
