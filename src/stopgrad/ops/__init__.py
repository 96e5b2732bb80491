"""All operations: a class each, and its public function. One file per family."""

from __future__ import annotations

from types import ModuleType

from stopgrad.op import REGISTRY
from stopgrad.ops import arithmetic, compare, composite, convert, data, elementwise, gates, index, linalg, losses, operators, random, reduce, shape, special

FAMILIES: tuple[ModuleType, ...] = (arithmetic, elementwise, special, compare, convert, reduce, shape, linalg, data, gates, index, composite, losses, random)

globals().update(REGISTRY)
__all__ = ["FAMILIES", *REGISTRY]
