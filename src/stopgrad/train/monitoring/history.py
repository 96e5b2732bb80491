"""What has changed since the last sample: the verdicts go in, and changes come out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from stopgrad.flow.magnitudes.troubles import EXPLODING, NOT_FINITE, VANISHING, ZERO
from stopgrad.flow.updates import RAW, WITHOUT
from stopgrad.flow.words import names
from stopgrad.train.monitoring.verdicts import ARRIVES, COMPARED, NOTHING, Sample

UNSTEADY = 4
"""After so many changes of a parameter's verdict, it is called unsteady, and only NaNs are told of it."""
_SAYS = {
    ARRIVES: "a gradient arrives again at {}",
    ZERO: "the gradient of {} is exactly 0",
    VANISHING: "the gradient of {} vanishes",
    EXPLODING: "the gradient of {} explodes",
    NOT_FINITE: "the gradient of {} is NaN or infinite",
    RAW: "the optimizer adds the gradient of {} as it is",
    WITHOUT: "the optimizer moves {} without a gradient",
    COMPARED: "the loss that trains {} compares all with all",
    NOTHING: "no gradient arrives at {}",
}
_ROOM = 60
"""The columns for names in a message."""


@dataclass(frozen=True)
class Change:
    """Parameters whose verdict has changed, in the same way and for the same cause.

    Attributes:
        step: the first step of which it is known.
        state: the new state, as of a verdict.
        keys: the parameters.
        cause: the operation and line that make it so; empty where none is known.
        unsteady: whether their verdict has changed so often that changes are no longer told.
        text: the change, in a sentence.
    """

    step: int
    state: str
    keys: tuple[str, ...]
    cause: str
    unsteady: bool
    text: str

    def __str__(self) -> str:
        return self.text


class History:
    """The last verdict on each parameter. At first, every gradient is expected to arrive."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._times: Counter[str] = Counter()

    def copied(self) -> History:
        """The same, which can take a sample while this one stays as it is."""
        other = History()
        other._states.update(self._states)
        other._times.update(self._times)
        return other

    def take(self, sample: Sample) -> tuple[Change, ...]:
        """The changes since the last sample; empty if nothing has changed."""
        groups: dict[tuple[str, str, bool], list[str]] = {}
        for name, verdict in sample.verdicts.items():
            if verdict.state == self._states.get(name, ARRIVES):
                continue
            self._states[name] = verdict.state
            self._times[name] += 1
            unsteady = self._times[name] == UNSTEADY
            if self._times[name] <= UNSTEADY or verdict.state == NOT_FINITE:
                groups.setdefault((verdict.state, verdict.cause, unsteady), []).append(name)
        all_names = list(sample.verdicts)
        changes = []
        for (state, cause, unsteady), keys in groups.items():
            listed = names(keys, all_names, _ROOM)
            text = _unsteady(listed) if unsteady else _changed(listed, state, cause)
            sentence = f"{'at' if unsteady else 'since'} step {sample.step}, {text}"
            changes.append(Change(sample.step, state, tuple(keys), cause, unsteady, sentence))
        return tuple(changes)


def _changed(listed: str, state: str, cause: str) -> str:
    what = _SAYS.get(state, f"no gradient arrives at {{}} ({state})").format(listed)
    return f"{what}: {cause}" if cause else what


def _unsteady(listed: str) -> str:
    changed = f"the verdict on the gradient of {listed} has changed {UNSTEADY} times"
    return f"{changed}; of further changes, only NaNs are told"
