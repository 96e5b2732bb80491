"""For JAX: which line cuts a gradient, JAX functions as graphs of ours, and functions of ours for JAX.

Examples:
    >>> import jax, stopgrad.jax as sgj
    >>> sgj.explain(lambda a, b: a * jax.lax.stop_gradient(b), 1.0, 2.0)["b"].status
    'stopped'
"""

from __future__ import annotations

try:
    import jax  # noqa: F401 - it is asked for here, so that its absence is told in words.
except ImportError as _error:
    raise ImportError("stopgrad.jax needs JAX: pip install 'stopgrad[jax]'") from _error

from stopgrad.interop.jax.callable import callable
from stopgrad.interop.jax.checking.ablating import ablate as ablate
from stopgrad.interop.jax.checking.differences import check_gradients as check_gradients
from stopgrad.interop.jax.loading import (
    assert_blocked as assert_blocked,
    assert_flows as assert_flows,
    assert_held as assert_held,
    explain as explain,
    load as load,
)
from stopgrad.interop.jax.monitoring import monitor as monitor
from stopgrad.interop.jax.nans import trace_nan as trace_nan

__all__ = [
    "ablate",
    "assert_blocked",
    "assert_flows",
    "assert_held",
    "callable",
    "check_gradients",
    "explain",
    "load",
    "monitor",
    "trace_nan",
]
