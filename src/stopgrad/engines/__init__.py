"""What computes: existing, well-kept array libraries behind one small protocol.

Each folder in here is an engine. It registers itself when it is imported, so there is no list of engines.
"""

from __future__ import annotations

import importlib
import pkgutil

from stopgrad.engines.protocol import PLAIN, Compiled, Engine, Variant, fail
from stopgrad.engines.registry import ENGINES, able, engine, register

__all__ = ["ENGINES", "PLAIN", "Compiled", "Engine", "Variant", "able", "engine", "fail", "register"]

for _module in pkgutil.iter_modules(__path__):
    if _module.ispkg:
        importlib.import_module(f"{__name__}.{_module.name}")
