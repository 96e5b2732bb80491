"""What computes: existing, well-kept array libraries behind one small protocol."""

from __future__ import annotations

import importlib.util

from stopgrad.engines.numpy import NumPyEngine
from stopgrad.engines.protocol import Compiled, Engine
from stopgrad.engines.xla import XlaEngine
from stopgrad.errors import EngineError

__all__ = ["ENGINES", "Compiled", "Engine", "NumPyEngine", "XlaEngine", "engine"]

_MADE: dict[str, Engine] = {}
ENGINES: dict[str, type[Engine]] = {"xla": XlaEngine, "numpy": NumPyEngine}


def engine(name: str = "auto") -> Engine:
    """The engine of this name; ``"auto"`` is xla where JAX is installed, else numpy.

    Examples:
        >>> engine("numpy").name
        'numpy'
    """
    if name == "auto":
        name = "xla" if importlib.util.find_spec("jax") is not None else "numpy"
    if not isinstance(name, str) or name not in ENGINES:
        raise EngineError(f"there is no engine {name!r}; take {', '.join(map(repr, ('auto', *ENGINES)))}")
    if name not in _MADE:
        _MADE[name] = ENGINES[name]()
    return _MADE[name]
