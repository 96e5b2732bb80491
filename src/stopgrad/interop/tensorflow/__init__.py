"""For TensorFlow and Keras: which line of live code ends a gradient, and TensorFlow's graphs, in and out.

:func:`explain` watches a single call of a function, :func:`watch` any code with tapes; :func:`assert_flows`
and :func:`assert_blocked` are for tests. These need TensorFlow, and are imported when they are first used;
:func:`load`, :func:`save` and :func:`to_graph` read and write files without it.

Examples:
    >>> import stopgrad.tensorflow as sgtf
    >>> sgtf.load.__name__
    'load'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stopgrad.base.later import imported
from stopgrad.interop.tensorflow.loading import load
from stopgrad.interop.tensorflow.saving import save, to_graph

if TYPE_CHECKING:
    from stopgrad.interop.tensorflow.ablating import ablate as ablate
    from stopgrad.interop.tensorflow.asking import (
        assert_blocked as assert_blocked,
        assert_flows as assert_flows,
        assert_held as assert_held,
        explain as explain,
    )
    from stopgrad.interop.tensorflow.differences import check_gradients as check_gradients
    from stopgrad.interop.tensorflow.monitoring import monitor as monitor
    from stopgrad.interop.tensorflow.nans import trace_nan as trace_nan
    from stopgrad.interop.tensorflow.watching import (
        GradientCall as GradientCall,
        Watch as Watch,
        watch as watch,
    )

LIVE = {
    "GradientCall": "watching",
    "Watch": "watching",
    "ablate": "ablating",
    "assert_blocked": "asking",
    "assert_flows": "asking",
    "assert_held": "asking",
    "check_gradients": "differences",
    "explain": "asking",
    "monitor": "monitoring",
    "trace_nan": "nans",
    "watch": "watching",
}
"""The names that need TensorFlow, and their modules."""

__all__ = ["load", "save", "to_graph"]


def __getattr__(name: str) -> Any:
    if name not in LIVE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    try:
        return getattr(imported(f"{__name__}.{LIVE[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tensorflow":
            raise
        raise ImportError(f"stopgrad.tensorflow.{name} needs TensorFlow: pip install tensorflow") from error


def __dir__() -> list[str]:
    return sorted([*__all__, *LIVE])
