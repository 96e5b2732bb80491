"""Methods whose module is imported when they are first used, so that importing the package stays quick.

``stopgrad/__init__.py`` has a table of such names for its ``__getattr__``; this is the same for a class.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from stopgrad.base.locks import IMPORTS, holding


def imported(module: str) -> ModuleType:
    """Import a module that a first use asks for, in one thread at a time.

    Threads that begin to import at different ends of the package would wait for each other. From 3.14.10 on,
    Python waits for the package around a module, too, and one of the threads would get an error.
    """
    if module in sys.modules:  # Who only waits for the import of another thread holds up nobody meanwhile.
        return importlib.import_module(module)
    return holding(IMPORTS, importlib.import_module, module)


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
        imported(self._module)
        return getattr(owner if instance is None else instance, self._name)
