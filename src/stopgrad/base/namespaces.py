"""The namespaces that lowerings use: NumPy's functions or JAX's of the same names, and special functions.

Libraries that only some operations or engines need are imported when first used; if one is missing, the error
names the package to install.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy

from stopgrad.base import sums
from stopgrad.base.errors import EngineError


def require(module: str, purpose: str, extra: str = "") -> ModuleType:
    """Import a module, or raise an :class:`EngineError` with the package or *extra* to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        requirement = f"'stopgrad[{extra}]'" if extra else package
        raise EngineError(
            f"{purpose} needs {package}, which is not installed ({error}); pip install {requirement}"
        ) from None


def attribute_at(path: str) -> Any:
    """The object at a path of names, beginning with that of a module.

    Raises:
        ImportError, AttributeError: there is none.

    Examples:
        >>> attribute_at("os.path.sep") == __import__("os").sep
        True
    """
    target: Any = importlib.import_module(path.partition(".")[0])
    prefix = target.__name__
    for name in path.split(".")[1:]:
        prefix = f"{prefix}.{name}"
        inner = not hasattr(target, name) and isinstance(target, ModuleType)
        # A package may have deleted the name of a module in it, as TensorFlow's does.
        target = importlib.import_module(prefix) if inner else getattr(target, name)
    return target


class LazyNamespace:
    """An array library's functions, and further modules that lowerings use, as attributes.

    Examples:
        >>> float(NUMPY.add(1.0, 2.0))
        3.0
    """

    def __init__(self, base: ModuleType, purpose: str, extra: str, **modules: str) -> None:
        self._base = base
        self._purpose = purpose
        self._extra = extra
        self._modules = modules

    def __getattr__(self, name: str) -> Any:
        # Called once per name, since the result is kept on the instance.
        module = self._modules.get(name)
        value = getattr(self._base, name) if module is None else require(module, self._purpose, self._extra)
        setattr(self, name, value)
        return value


class _NumPy(LazyNamespace):
    """NumPy, with sums that are as precise along each axis."""

    sum: Callable[..., Any] = staticmethod(sums.sum)
    cumsum: Callable[..., Any] = staticmethod(sums.cumsum)


NUMPY = _NumPy(
    numpy, "the error-function and gamma families on the numpy engine", "special", special="scipy.special"
)
