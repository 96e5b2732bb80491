"""What is taken of JAX's private interface: asked for, and left out where a version lacks it."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np


def folding() -> contextlib.AbstractContextManager[Any] | None:
    """A context in which JAX computes at once what depends on no traced value, as it does outside of ``jit``.

    None if this JAX cannot.
    """
    try:
        config = importlib.import_module("jax._src.config")
    except ImportError:  # A later JAX may have it elsewhere.
        return None
    option = getattr(config, "eager_constant_folding", None)
    return option(True) if callable(option) else None


_TRACING = threading.RLock()


@contextlib.contextmanager
def concrete(tracer: Any, value_of: Callable[[Any], Any]) -> Iterator[None]:
    """A context in which Python reads values of traced arrays, as outside of ``jit``.

    NumPy reads those of integers and of truth values: of floats that are differentiated, JAX refuses it.
    Where this JAX lets nobody say them, nothing is changed.

    Args:
        tracer: one of those of the trace.
        value_of: the value of another one of the same trace.
    """
    kind, trace = type(tracer), getattr(tracer, "_trace", None)
    usual, as_array = getattr(kind, "to_concrete_value", None), getattr(kind, "__array__", None)
    if usual is None or as_array is None or trace is None:
        yield
        return

    def to_concrete_value(self: Any) -> object:
        return value_of(self) if self._trace is trace else usual(self)

    def array(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._trace is trace and not jnp.issubdtype(self.dtype, np.inexact):
            return np.array(value_of(self), *args, **kwargs)
        return as_array(self, *args, **kwargs)

    with _TRACING, _instead(kind, "to_concrete_value", to_concrete_value), _instead(kind, "__array__", array):
        yield


@contextlib.contextmanager
def _instead(kind: type, name: str, method: Callable[..., object]) -> Iterator[None]:
    """A context in which a class has another method of this name."""
    own = vars(kind).get(name)
    setattr(kind, name, method)
    try:
        yield
    finally:
        if own is None:
            delattr(kind, name)
        else:
            setattr(kind, name, own)
