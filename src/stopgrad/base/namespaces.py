"""What lowerings are written against: NumPy's functions or JAX's of the same names, and special functions.

Libraries that only some operations or engines need are imported when first used, and their absence is an
error that says what to install.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy

from stopgrad.base.errors import EngineError


def require(module: str, purpose: str, extra: str = "") -> Any:
    """The module, or an :class:`EngineError` that says how to install it: with an *extra*, or by itself."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        wanted = f"'stopgrad[{extra}]'" if extra else package
        raise EngineError(
            f"{purpose} needs {package}, which is not installed ({error}); pip install {wanted}"
        ) from None


class Namespace:
    """An array library's functions, and as attributes the further modules of it that lowerings use.

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
        # Reached once per name: what is found is kept on the instance.
        module = self._modules.get(name)
        found = getattr(self._base, name) if module is None else require(module, self._purpose, self._extra)
        setattr(self, name, found)
        return found


NUMPY = Namespace(
    numpy, "the error-function and gamma families on the numpy engine", "special", special="scipy.special"
)
