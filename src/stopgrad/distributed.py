"""Several processes that run one program: around ``jax.distributed``."""

from __future__ import annotations

from collections.abc import Sequence


def process_index() -> int:
    """The number of this process in the run."""
    return 0


def process_count() -> int:
    """The number of processes in the run."""
    return 1


def is_initialized() -> bool:
    """Whether this process is one of a run of several."""
    return False


def agree(what: str, lines: Sequence[str], timeout: float = 60.0) -> None:
    """Hold against each other what all processes are about to do."""
