"""The namespace that lowerings get: NumPy's functions, which write nodes where operands are values."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np

from stopgrad.onnx_nodes.algebra import Algebra
from stopgrad.onnx_nodes.elementwise import Elementwise
from stopgrad.onnx_nodes.reducing import Reducing
from stopgrad.onnx_nodes.shaping import Shaping
from stopgrad.onnx_nodes.writing import Writing, has_value


class Xp(Elementwise, Shaping, Reducing, Algebra):
    """All of it."""

    def __getattr__(self, name: str) -> Any:
        return _otherwise(self, np, name)

    @functools.cached_property
    def linalg(self) -> Any:
        return Part(self, "numpy.linalg")

    @functools.cached_property
    def fft(self) -> Any:
        return Part(self, "numpy.fft")

    @functools.cached_property
    def special(self) -> Any:
        return Part(self, "scipy.special")


class Part:
    """A module of NumPy's or SciPy's: its functions of what is known."""

    def __init__(self, xp: Writing, module: str) -> None:
        self.xp, self._module = xp, module

    def __getattr__(self, name: str) -> Any:
        return _otherwise(self.xp, importlib.import_module(self._module), name)


def _otherwise(xp: Writing, module: ModuleType, name: str) -> Any:
    """What NumPy has under a name; a function, for what is known when the graph is written."""
    if name.startswith("__"):
        raise AttributeError(name)
    found = getattr(module, name)
    if isinstance(found, (type, ModuleType)) or not callable(found):
        return found

    def known_only(*args: Any, **kwargs: Any) -> Any:
        if has_value(args) or has_value(tuple(kwargs.values())):
            raise xp.missing(f"{module.__name__}.{name}")
        return found(*args, **kwargs)

    return known_only
