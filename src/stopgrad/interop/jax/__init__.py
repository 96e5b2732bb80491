"""For JAX: which line cuts a gradient, JAX functions as graphs of ours, and functions of ours for JAX.

Examples:
    >>> import jax, stopgrad.jax as sgj
    >>> sgj.explain(lambda a, b: a * jax.lax.stop_gradient(b), 1.0, 2.0)["b"].status
    'stopped'
"""

from __future__ import annotations

try:
    import jax  # noqa: F401 - it is asked for here, so that its absence is told in words.
except ImportError as error:
    raise ImportError("stopgrad.jax needs JAX: pip install 'stopgrad[jax]'") from error

from stopgrad.interop.jax.callable import callable
from stopgrad.interop.jax.loading import (
    assert_blocked as assert_blocked,
    assert_flows as assert_flows,
    assert_held as assert_held,
    explain as explain,
    load as load,
)
from stopgrad.interop.jax.monitoring import monitor as monitor

__all__ = ["assert_blocked", "assert_flows", "assert_held", "callable", "explain", "load", "monitor"]
