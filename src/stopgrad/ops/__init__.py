"""All operations: each is a class with a public function. There is one file per family.

The classes are attributes of this module by type, as in ``sg.ops.MatMul``; ``dir`` lists them. Importing
this package, or any file in it, defines all operations and gives outputs their operators and methods.
"""

from __future__ import annotations

from stopgrad.graph.defining import Op
from stopgrad.graph.op import REGISTRY
from stopgrad.ops import functions as _functions  # noqa: F401 - defines all operations
from stopgrad.ops.xp import methods as _methods  # noqa: F401 - gives outputs the methods of arrays


def __getattr__(name: str) -> type[Op]:
    try:
        return REGISTRY[name]
    except KeyError:
        raise AttributeError(f"there is no operation type {name!r}") from None


def __dir__() -> list[str]:
    return list(REGISTRY)
