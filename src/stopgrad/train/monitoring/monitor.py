"""The core of all monitors: which steps are sampled, and what becomes of the verdicts."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError
from stopgrad.base.source import to_user
from stopgrad.train.monitoring.history import Change, History
from stopgrad.train.monitoring.sinks import sinks
from stopgrad.train.monitoring.verdicts import Sample, Verdicts


class Monitor:
    """Samples the steps of a training, and tells when the verdict on a parameter's gradient changes.

    Args:
        every: one step in so many is sampled, beginning with the first.
        to: where it reports to; see :func:`stopgrad.train.monitoring.sinks.sinks`.

    Attributes:
        step: the number of the next step, or of the present one; it may be set, where training goes on.
        changes: all changes so far.

    Raises:
        ArgumentError: *every* is no whole number of at least 1, or it cannot report there.
    """

    def __init__(self, every: int, to: object) -> None:
        if not is_whole(every) or whole(every) < 1:
            raise ArgumentError(f"monitor: every is a number of steps, 1 or more, not {every!r:.60}")
        self.step = 0
        self.changes: tuple[Change, ...] = ()
        self._every = whole(every)
        self._last: int | None = None
        self._sinks = sinks(to)
        self._history = History()
        self._warned = False

    @property
    def due(self) -> bool:
        """Whether the present step is to be sampled."""
        last = self._last
        return last is None or not 0 <= self.step - last < self._every

    def _take(self, verdicts: Verdicts) -> None:
        """Note the verdicts on the present step, and report what has changed."""
        sample, history = Sample(self.step, verdicts), self._history.copied()
        changes = history.take(sample)
        all_changes = self.changes + changes
        # Together, with no call in between: an interrupt before loses no change, and none is noted twice.
        self._last, self._history, self.changes = self.step, history, all_changes
        for sink in self._sinks:
            self._safely(f"writing to {type(sink).__name__}", sink.take, sample, changes)

    def _safely(self, what: str, act: Callable[..., object], *args: object) -> None:
        """Do something that must not end the training if it fails: the first failure is a warning."""
        try:
            act(*args)
        except Exception as error:
            if not self._warned:
                self._warned = True
                why = f"{type(error).__name__}: {error}"
                message = f"the monitor failed at step {self.step}, {what} ({why}); the training goes on"
                warnings.warn(
                    f"{message}, and further failures are not told", RuntimeWarning, stacklevel=to_user()
                )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at step {self.step}, {len(self.changes)} changes>"
