"""A finding about a training: a fact that the framework confirms, with the lines that explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stopgrad.base.source import Location


class Site(NamedTuple):
    """A line of the user's, and its part in a finding.

    Attributes:
        role: the part, in a word that machines can read, such as ``"written"``.
        told: the same for readers, such as ``"written into here, by relu_"``.
        location: the line.
    """

    role: str
    told: str
    location: Location


class Problem(NamedTuple):
    """A finding.

    Attributes:
        kind: which of the :data:`stopgrad.flow.problems.catalogue.KINDS` it is.
        message: the fact, in a sentence.
        sites: the lines that explain it, in the order in which a reader should look at them.
        names: the parameters, modules or values concerned, by the user's names.
        evidence: the values that were compared, by name.
        cure: what helps in this case.
        step: the step of the training in which it was found first, from 1; 0 if that plays no part.
    """

    kind: str
    message: str
    sites: Sequence[Site] = ()
    names: Sequence[str] = ()
    evidence: Mapping[str, Any] = {}
    cure: str = ""
    step: int = 0

    @property
    def location(self) -> Location | None:
        """The line at which other programs show it: the first one."""
        return self.sites[0].location if self.sites else None
