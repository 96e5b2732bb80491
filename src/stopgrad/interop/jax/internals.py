"""What is taken of JAX's private interface: asked for, and left out where a version lacks it."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any


def folding() -> contextlib.AbstractContextManager[Any] | None:
    """A context in which JAX computes at once what depends on no traced value, as it does outside of ``jit``.

    None if this JAX cannot.
    """
    option = getattr(importlib.import_module("jax._src.config"), "eager_constant_folding", None)
    return option(True) if callable(option) else None
