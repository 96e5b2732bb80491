"""The losses of the example programs once more, in JAX, from the equations of their papers.

Each module has ``CASES``: for each loss function of the example of the same name, what it is compared with,
on which arguments, and what its gradient must not reach.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).parents[3] / "examples"


@cache
def example(name: str) -> ModuleType:
    """The module of an example program."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Case:
    """A loss function of an example.

    Attributes:
        reference: the same in JAX, with the same arguments.
        arguments: made from the example's module and a random generator; floats are float64.
        blocked: the beginnings of the paths (``"target."``, ``"params.critic"``) no gradient may arrive at.
        settings: what stands in the example's module meanwhile, by name.
        tolerance: of value and gradients, relative to the largest number of each array.
        call: how the loss is called, given the example's module; by default under the case's name.
    """

    reference: Callable[..., Any]
    arguments: Callable[[Any, np.random.Generator], tuple[Any, ...]]
    blocked: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-10
    call: Callable[[Any], Callable[..., Any]] | None = None


def doubled(tree: Any) -> Any:
    """A structure with its float32 arrays as float64, so that rounding hides nothing."""
    if isinstance(tree, dict):
        return {key: doubled(part) for key, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(doubled(part) for part in tree)
    array = np.asarray(tree)
    return array.astype(np.float64) if array.dtype == np.float32 else array


def moved(tree: Any, rng: np.random.Generator) -> Any:
    """A structure of weights with all of them, zeros too, moved a little."""
    if isinstance(tree, dict):
        return {key: moved(part, rng) for key, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(moved(part, rng) for part in tree)
    array = np.asarray(tree, np.float64)
    return array + 0.1 * rng.normal(size=array.shape)


def all_cases() -> dict[tuple[str, str], Case]:
    """The cases of all examples, by example and loss."""
    found: dict[tuple[str, str], Case] = {}
    for module in pkgutil.iter_modules(__path__):
        cases = importlib.import_module(f"{__name__}.{module.name}").CASES
        found |= {(module.name, loss): case for loss, case in cases.items()}
    return found
