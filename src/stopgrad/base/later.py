"""Methods whose module is imported when they are first used, so that importing the package stays quick.

``stopgrad/__init__.py`` has a table of such names for its ``__getattr__``; this is the same for a class.
"""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """Stands for a method that another module installs; the module is imported when the method is first used.

    Examples:
        >>> class Table:
        ...     total = Later("tables.sums")  # tables.sums sets Table.total.
    """

    __slots__ = ("_module", "_name")

    def __init__(self, module: str) -> None:
        self._module = module

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        importlib.import_module(self._module)
        return getattr(owner if instance is None else instance, self._name)
