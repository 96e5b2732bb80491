"""For PyTorch: which line of eager code cuts the gradient of a loss, and PyTorch programs as graphs of ours.

:func:`watch` watches eager code and :func:`explain` a single call of a function; :func:`assert_flows` and
:func:`assert_blocked` are for tests. The watched code needs no change.
:func:`load` imports a program through ``torch.export``.
"""

try:
    import torch  # noqa: F401 - it is asked for here, so that its absence is told in words.
except ImportError as _error:
    raise ImportError("stopgrad.torch needs PyTorch: pip install 'stopgrad[torch]'") from _error

from stopgrad.interop.torch.asking import assert_blocked, assert_flows, assert_held, explain
from stopgrad.interop.torch.checking.ablating import ablate
from stopgrad.interop.torch.checking.differences import check_gradients
from stopgrad.interop.torch.importing.loading import load
from stopgrad.interop.torch.monitoring.monitors import monitor
from stopgrad.interop.torch.nans import trace_nan
from stopgrad.interop.torch.watching import BackwardCall, Watch, watch

__all__ = [
    "BackwardCall",
    "Watch",
    "ablate",
    "assert_blocked",
    "assert_flows",
    "assert_held",
    "check_gradients",
    "explain",
    "load",
    "monitor",
    "trace_nan",
    "watch",
]
