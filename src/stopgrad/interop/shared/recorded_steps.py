"""Which steps of a training that is followed are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

FIRST = 3
"""The steps at the beginning that are recorded."""


def _nobody(*_: object) -> None:
    """For whom nothing is to be told."""


class Schedule(NamedTuple):
    """The first steps are recorded, and of the later ones one in so many.

    Attributes:
        every: one in so many.
        until: how many steps are followed; None for all.
        notify: called once, when so many have been seen.
        progress: told what is done, in a line.
    """

    every: int = 100
    until: int | None = None
    notify: Callable[[], None] = _nobody
    progress: Callable[[str], None] = _nobody

    def has_ended(self, steps: int) -> bool:
        """Whether no step after so many is followed."""
        return steps == self.until

    def records_after(self, steps: int) -> bool:
        """Whether the step after so many is recorded; says so once the first ones were."""
        if steps == FIRST:
            self.progress(f"{FIRST} steps are recorded; from now on, one in {self.every}")
        return steps < FIRST or (steps + 1) % self.every == 0


USUAL = Schedule()
"""One in a hundred, to the end, without a word."""
