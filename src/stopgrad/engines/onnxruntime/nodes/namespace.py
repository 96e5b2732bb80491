"""The namespace that lowerings get: NumPy's functions, which write nodes for operands that are values."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np

from stopgrad.engines.onnxruntime.nodes import special
from stopgrad.engines.onnxruntime.nodes.algebra import Algebra
from stopgrad.engines.onnxruntime.nodes.elementwise import Elementwise
from stopgrad.engines.onnxruntime.nodes.forms.matrices import solved
from stopgrad.engines.onnxruntime.nodes.loops import Loops
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing, has_value
from stopgrad.engines.onnxruntime.nodes.reducing import Reducing
from stopgrad.engines.onnxruntime.nodes.shaping import Shaping
from stopgrad.engines.onnxruntime.nodes.slicing import Slicing
from stopgrad.engines.onnxruntime.nodes.values import Operand, Value


class Xp(Elementwise, Shaping, Slicing, Reducing, Algebra):
    """The whole namespace."""

    def __getattr__(self, name: str) -> Any:
        return _otherwise(self, np, name)

    @functools.cached_property
    def linalg(self) -> Any:
        return Linalg(self, "numpy.linalg")

    @functools.cached_property
    def fft(self) -> Any:
        return Part(self, "numpy.fft")

    @functools.cached_property
    def lax(self) -> Any:
        return Loops(self)

    @functools.cached_property
    def special(self) -> Any:
        return Special(self, "scipy.special")


class Part:
    """A module of NumPy's or SciPy's, whose functions take known operands only."""

    xp: Writing

    def __init__(self, xp: Writing, module: str) -> None:
        self.xp, self._module = xp, module

    def __getattr__(self, name: str) -> Any:
        return _otherwise(self.xp, importlib.import_module(self._module), name)


class Linalg(Part):
    """NumPy's linear algebra, as far as elimination computes it."""

    def solve(self, matrix: Operand, rhs: Operand) -> Any:
        return solved(self.xp, self.xp.value(matrix), self.xp.value(rhs), adjoint=False)


class Special(Part):
    """SciPy's special functions, by float64 formulas, which are precise enough for all dtypes."""

    def erf(self, x: Operand) -> Any:
        if isinstance(x, Value) and x.dtype != np.float64:
            return self.xp.elementwise("Erf", x)
        return self._formula("erf", x)

    def erfc(self, x: Operand) -> Any:
        if isinstance(x, Value) and x.dtype != np.float64:
            return self.xp.cast(special.erfc_in_float32(self.xp, self.xp.value(x, np.float32)), x.dtype)
        return self._formula("erfc", x)

    def zeta(self, s: Value | float, q: Operand) -> Any:
        if isinstance(s, Value):
            raise self.xp.missing("the zeta function of an unknown order")
        order = float(s)
        return self.xp.in_float64(lambda xp, q: special.zeta(xp, order, q), q)

    def gammainc(self, a: Operand, x: Operand) -> Any:
        return self.xp.in_float64(lambda xp, a, x: special.gammainc(xp, a, x, False), a, x)

    def gammaincc(self, a: Operand, x: Operand) -> Any:
        return self.xp.in_float64(lambda xp, a, x: special.gammainc(xp, a, x, True), a, x)

    def betainc(self, a: Operand, b: Operand, x: Operand) -> Any:
        return self.xp.in_float64(special.betainc, a, b, x)

    def _formula(self, name: str, x: Operand) -> Any:
        if not isinstance(x, Value):
            return _otherwise(self.xp, importlib.import_module("scipy.special"), name)(x)
        return self.xp.in_float64(getattr(special, name), x)


def _special(name: str) -> Any:
    return lambda self, x: self._formula(name, x)


for _name in ("erfinv", "ndtri", "gammaln", "digamma", "i0", "i0e", "i1", "i1e"):
    setattr(Special, _name, _special(_name))


def _otherwise(xp: Writing, module: ModuleType, name: str) -> Any:
    """NumPy's object of a name. Functions raise for values: they take known operands only."""
    if name.startswith("__"):
        raise AttributeError(name)
    attribute = getattr(module, name)
    if isinstance(attribute, (type, ModuleType)) or not callable(attribute):
        return attribute

    def known_only(*args: Operand, **kwargs: Operand) -> Any:
        if has_value(args) or has_value(tuple(kwargs.values())):
            raise xp.missing(f"{module.__name__}.{name}")
        return attribute(*args, **kwargs)

    return known_only
