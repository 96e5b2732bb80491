"""Types of traits: what a definition says about its operation besides how it is built and computed.

:class:`stopgrad.graph.op.Op` has the traits themselves, with their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from stopgrad.base.errors import DefinitionError


class Magnitudes(Enum):
    """A bound of a result by the absolute values of the operands; ablation adds these up."""

    KEPT = "as its one operand"
    ADDED = "as the sum of its operands"
    SAME = "as what the operation itself makes of them"
    SCALED = "the same, where one operand scales the other"


@dataclass(frozen=True)
class Unsound:
    """A finite result where there is no right one, which cannot be seen from the result.

    Attributes:
        says: what the operation does there, as a report continues behind its name.
        where: maps the operands' arrays and the result's dtype to an array of booleans, or None for nowhere.
    """

    says: str
    where: Callable[..., np.ndarray[Any, Any] | np.generic | None]


@dataclass(frozen=True)
class Cure:
    """Advice for a NaN or an infinity that the operation or its gradient makes.

    Attributes:
        name: the mistake, in a few words.
        when: whether this is the mistake, from the operands' values at the bad element. An operand without a
            value there, or a complex one, is a NaN.
        says: what to write instead.
        gradient: whether it happens in the gradient: True, False, or None for either.
    """

    name: str
    when: Callable[..., bool | np.bool_]
    says: str
    gradient: bool | None = None


Arrays = tuple[np.ndarray[Any, Any], ...]
Held = Callable[[Arrays, Arrays, bool], np.ndarray[Any, Any]]
"""What a gate hands on in the function whose derivative the gradient is: from the operands' arrays now, those
at the point where the derivative is taken, and whether the gate acts."""

_FLAGS = (
    "acts", "alternatives", "cached", "clips", "elementwise", "fed", "folded", "iterates", "keeps_sign",
    "merged", "never_negative", "pads", "remade", "rounds_once", "selective", "stateful", "stops", "views",
)  # fmt: skip


def check_traits(definition: Any) -> None:
    """Raise for an :class:`~stopgrad.graph.op.Op` with invalid traits.

    Raises:
        DefinitionError: a trait has a wrong type, or names something that is no operand.
    """

    def refuse(trait: str, rule: str) -> None:
        value = getattr(definition, trait)
        raise DefinitionError(f"operation {definition.__name__}: {trait!r} must be {rule}, not {value!r}")

    for trait in _FLAGS:
        if not isinstance(getattr(definition, trait), bool):
            refuse(trait, "True or False")
    names = (*definition.operands, *filter(None, [definition.variadic]))
    if not isinstance(definition.moves, tuple) or not set(definition.moves) <= set(names):
        refuse("moves", f"a tuple of names out of {', '.join(names) or 'no operands'}")
    if definition.held is not None and not callable(definition.held):
        refuse("held", "a function, or None")
    if not _are(definition.cures, Cure):
        refuse("cures", "a tuple of Cure")
    for trait, kind in (("magnitudes", Magnitudes), ("unsound", Unsound), ("not_holomorphic", str)):
        if not isinstance(getattr(definition, trait), (kind, type(None))):
            refuse(trait, f"a {kind.__name__}, or None")


def _are(entries: Sequence[Any], kind: type[Any]) -> bool:
    return isinstance(entries, tuple) and all(isinstance(entry, kind) for entry in entries)
