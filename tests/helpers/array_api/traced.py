"""``stopgrad.xp``, each call of which on NumPy arrays becomes a graph that an engine runs.

A namespace for :mod:`run`: arrays among the arguments become placeholders, and outputs among the results the
values that they have. Which engine: ``STOPGRAD_ARRAY_API_ENGINE``, by default ``numpy``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad import xp

ENGINE = os.environ.get("STOPGRAD_ARRAY_API_ENGINE", "numpy")
UNTRACED = {
    *("__array_namespace_info__", "broadcast_shapes", "can_cast", "finfo", "iinfo", "isdtype", "result_type"),
}
"""Functions whose results are no arrays."""


def _values(x: Any) -> dict[str, Any]:
    return {"size": np.unique(x, equal_nan=False).size}


def _repeated(x: Any, repeats: Any, axis: int | None = None) -> dict[str, Any]:
    if not isinstance(repeats, np.ndarray):
        return {}
    count = x.size if axis is None else x.shape[axis]
    return {"total_repeat_length": int(np.broadcast_to(repeats, count).sum())}


SIZES: dict[str, Callable[..., dict[str, Any]]] = {
    "nonzero": lambda x: {"size": int(np.count_nonzero(x))},
    "repeat": _repeated,
    **dict.fromkeys(("unique_all", "unique_counts", "unique_inverse", "unique_values"), _values),
}
"""Where the result's shape depends on data: the keyword that says it, as in a graph one has to."""


def _mapped(value: Any, kinds: type | tuple[type, ...], function: Callable[[Any], Any]) -> Any:
    """*value* with *function* applied to what is of these kinds, in lists and tuples too."""
    if isinstance(value, kinds):
        return function(value)
    if isinstance(value, (list, tuple)):
        parts = [_mapped(part, kinds, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, by way of a graph."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        graph, fed = sg.Graph(), {}
        if function.__name__ in SIZES:
            kwargs |= SIZES[function.__name__](*args, **kwargs)

        def placeholder(array: Any) -> Any:
            x = sg.placeholder(array.dtype, array.shape)
            fed[x] = array
            return x

        with graph.as_default():
            args, kwargs = (
                tuple([_mapped(x, (np.ndarray, np.generic), placeholder) for x in args]),
                {k: _mapped(x, (np.ndarray, np.generic), placeholder) for k, x in kwargs.items()},
            )
            made = function(*args, **kwargs)
        outputs: list[Any] = []
        _mapped(made, sg.Output, outputs.append)
        with sg.Session(graph, engine=ENGINE) as session:
            values = iter(session.run(outputs, fed))
        return _mapped(made, sg.Output, lambda _: np.array(next(values)))

    return called


def _namespace(module: Any) -> dict[str, Any]:
    found = {}
    for name, value in vars(module).items():
        is_function = callable(value) and not isinstance(value, type) and not name.startswith("_")
        found[name] = traced(value) if is_function and name not in UNTRACED else value
    return found


globals().update({k: v for k, v in _namespace(xp).items() if k.strip("_") == k or k.startswith("__array")})
linalg = SimpleNamespace(**_namespace(xp.linalg))
fft = SimpleNamespace(**_namespace(xp.fft))
