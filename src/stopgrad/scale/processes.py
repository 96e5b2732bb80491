"""Which process this is, of how many that compute together: all that most need to know of a run."""

from __future__ import annotations

import sys
from typing import Any


def runtime() -> Any:
    """JAX's record of the run; None where there is none, which is so wherever JAX has not been imported.

    There is no public way to the index and the number of processes that would not start JAX's devices, nor to
    the key-value store: of what is private in JAX, this is all that is used, and a
    function that :func:`stopgrad.distributed.initialize` calls.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return state if getattr(state, "client", None) is not None else None


def process_index() -> int:
    """Which process this is: from 0; 0 where nothing was initialised. JAX's devices are not asked for.

    Examples:
        >>> sg.distributed.process_index()
        0
    """
    run = runtime()
    return 0 if run is None else int(run.process_id)


def process_count() -> int:
    """How many processes compute together: 1 where nothing was initialised. JAX's devices are not asked for.

    Examples:
        >>> sg.distributed.process_count()
        1
    """
    run = runtime()
    return 1 if run is None else int(run.num_processes)
