"""What a definition says about its operation beside how it is built and computed: the kinds of its traits.

:class:`stopgrad.graph.op.Op` has the traits themselves, each with what it is when nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from stopgrad.base.errors import DefinitionError


class Magnitudes(Enum):
    """How large a result may be, by the absolute values of the operands, which ablation adds up."""

    KEPT = "as its one operand"
    ADDED = "as the sum of its operands"
    SAME = "as what the operation itself makes of them"
    SCALED = "the same, where one operand scales the other"


@dataclass(frozen=True)
class Unsound:
    """A finite number in the place of one that does not exist, which no look at the result can find.

    Attributes:
        says: what the operation does there, as a report goes on behind its name.
        where: from the operands' arrays and the result's dtype to where, an array of booleans; None for
            nowhere.
    """

    says: str
    where: Callable[..., Any]


@dataclass(frozen=True)
class Cure:
    """What helps where the operation, or its gradient, makes a NaN or an infinity.

    Attributes:
        name: of the mistake, in a few words.
        when: from the operands' values at the bad element to whether this is the mistake. An operand that has
            none there, or a complex one, is a NaN.
        says: what to write instead.
        gradient: whether it is made in the gradient: True, False, or None for either.
    """

    name: str
    when: Callable[..., Any]
    says: str
    gradient: bool | None = None


Arrays = tuple[np.ndarray[Any, Any], ...]
Held = Callable[[Arrays, Arrays, bool], np.ndarray[Any, Any]]
"""What a gate hands on in the function whose derivative the gradient is: from the operands' arrays now, those
at the point where the derivative is taken, and whether the gate acts."""

_FLAGS = (
    "alternatives", "cached", "clips", "elementwise", "fed", "folded", "iterates", "keeps_sign", "merged",
    "never_negative", "pads", "remade", "rounds_once", "selective", "stateful", "stops", "views",
)  # fmt: skip


def check_traits(definition: Any) -> None:
    """Refuse an :class:`~stopgrad.graph.op.Op` that says of itself what its traits cannot be.

    Raises:
        DefinitionError: a trait of another kind, or one that names what is no operand.
    """

    def refuse(trait: str, rule: str) -> None:
        given = getattr(definition, trait)
        raise DefinitionError(f"operation {definition.__name__}: {trait!r} must be {rule}, not {given!r}")

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


def _are(given: Sequence[Any], kind: type[Any]) -> bool:
    return isinstance(given, tuple) and all(isinstance(one, kind) for one in given)
