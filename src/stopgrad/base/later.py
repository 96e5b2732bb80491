"""Names that are imported when they are first used, so that importing the package makes little.

The package's face has a table of such names, which its ``__getattr__`` reads; here is the same for a class.
"""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """In the place of a method that another module installs, which is imported when the method is asked for.

    Examples:
        >>> class Table:
        ...     total = Later("tables.sums")  # It says Table.total = ..., and is imported when that is used.
    """

    __slots__ = ("_module", "_name")

    def __init__(self, module: str) -> None:
        self._module = module

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        importlib.import_module(self._module)
        return getattr(owner if instance is None else instance, self._name)
