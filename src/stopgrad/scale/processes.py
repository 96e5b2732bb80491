"""The index of this process and the number of processes of the run, without starting JAX's devices."""

from __future__ import annotations

import sys
from typing import Any


def runtime() -> Any:
    """JAX's record of the run; None if there is none, as long as JAX is not imported.

    No public function tells the index and the number of processes without starting JAX's devices, nor gives
    access to the key-value store. Of JAX's private parts, only this one is used, and a function that
    :func:`stopgrad.distributed.initialize` calls.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return state if getattr(state, "client", None) is not None else None


def process_index() -> int:
    """The index of this process; 0 if nothing was initialised. Does not start JAX's devices.

    Examples:
        >>> sg.distributed.process_index()
        0
    """
    run = runtime()
    return 0 if run is None else int(run.process_id)


def process_count() -> int:
    """The number of processes of the run; 1 if nothing was initialised. Does not start JAX's devices.

    Examples:
        >>> sg.distributed.process_count()
        1
    """
    run = runtime()
    return 1 if run is None else int(run.num_processes)
