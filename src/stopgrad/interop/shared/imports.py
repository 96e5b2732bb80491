"""Calls a function once a package has been imported, by whoever imports it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

After = Callable[[], None]


class Awaited(importlib.abc.MetaPathFinder):
    """Waits for packages: they are found as without it, and afterwards functions are called.

    Args:
        after: the functions, by the names of the packages.
    """

    def __init__(self, after: Mapping[str, After]) -> None:
        self._after = dict(after)

    def begin(self) -> None:
        """Wait; for packages that are there already, call their functions at once."""
        for name in [name for name in self._after if name in sys.modules]:
            self._after.pop(name)()
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Wait no more."""
        self._after.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that others find for a package, which then calls the function once it was executed."""
        after = self._after.pop(fullname, None)
        if after is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            _call_after(spec.loader, after)
        return spec


def _call_after(loader: Any, after: After) -> None:
    """Let a loader call a function after it has executed its module. Everything else of it stays."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        execute(module)
        after()

    loader.exec_module = exec_module
