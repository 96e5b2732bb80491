"""What one update of the user's optimizer does to each parameter, and what reports tell of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stopgrad.flow.magnitudes.causes import figure
from stopgrad.flow.reports.sections import DIM, Paragraph, Part, Section
from stopgrad.flow.words import listed, names, number
from stopgrad.graph.op import Status

MOVES, HELD = "moves", "held"
WITHOUT = "moves without a gradient"
RAW = "moves by its raw gradient"
HIDDEN = "hidden by the filter"
HANDED = "handed on"
VERDICTS = (WITHOUT, RAW, HIDDEN, HELD, MOVES, HANDED)
"""What can be said of a parameter, the worst first; the last where no optimizer is known."""
STEPS = 16
"""The most updates that are done, as long as a parameter that is handed a gradient has not moved."""
_STYLES = {WITHOUT: Status.STOPPED, RAW: Status.STOPPED, HIDDEN: Status.PARTLY_STOPPED, MOVES: Status.FLOWS}
_SINGLE = 1e-4
"""How far ratios of elements may be apart to count as the same."""


class Step(NamedTuple):
    """What was compared for a parameter.

    Attributes:
        handed: whether the gradient function hands a gradient of it on.
        gradient: the largest absolute value in that gradient; None if it is not handed on.
        moved: the largest absolute change of an element; None if no optimizer is known.
        at: the update, from 1, that first changed it; 0 if none did.
        steps: how many updates were done.
        factor: what each element was multiplied by, if that is the same for all of them.
        is_raw: whether the optimizer passed its gradient on as it was, and another parameter's it did not.
        why: what else is known of it.
    """

    handed: bool
    gradient: float | None = None
    moved: float | None = None
    at: int = 0
    steps: int = 0
    factor: float | None = None
    is_raw: bool = False
    why: str = ""


@dataclass(frozen=True)
class Update:
    """What one update of the user's optimizer does to a parameter.

    Attributes:
        verdict: ``"moves"``; ``"held"``; ``"moves without a gradient"``, by decay, or by what the optimizer
            remembers; ``"moves by its raw gradient"``, which no part of the optimizer treats; ``"hidden by
            the filter"``, if a gradient arrives that the gradient function leaves out; and ``"handed on"``
            where only the gradient function is known.
        handed: whether the gradient function hands a gradient of it on.
        gradient: the largest absolute value in that gradient; None if it is not handed on.
        moved: the largest absolute change of an element; None if no optimizer is known.
        at: the update, from 1, that first changed it; 0 if none did.
        steps: how many updates were done: more than one only while a parameter with a gradient stayed.
        why: what is known of the reason, in a few words; may be empty.
    """

    verdict: str
    handed: bool
    gradient: float | None
    moved: float | None
    at: int
    steps: int
    why: str = ""

    @property
    def moves(self) -> bool | None:
        """Whether it changes; None if no optimizer is known."""
        return None if self.moved is None else self.at > 0


def update_of(step: Step, arrives: bool) -> Update:
    """The verdict on what was compared.

    Args:
        step: what was compared.
        arrives: whether the loss has a gradient there, whatever the gradient function does with it.
    """
    verdict, why = _verdict(step, arrives)
    return Update(verdict, step.handed, step.gradient, step.moved, step.at, step.steps, why)


def _verdict(step: Step, arrives: bool) -> tuple[str, str]:
    if step.at:
        later = f"from update {step.at} on" if step.at > 1 else ""
        if not step.handed or step.gradient == 0:
            return WITHOUT, _joined(_without(step, arrives), step.why, later)
        if step.is_raw:
            return RAW, _joined("no part of the optimizer treats it", step.why)
        return (MOVES, _joined(step.why, later))
    if arrives and not step.handed:
        return HIDDEN, step.why
    if step.moved is None:
        return HANDED, step.why
    has_gradient = bool(step.gradient) and not step.why  # NaN counts.
    return HELD, _joined("its gradient is not used" if has_gradient else "", step.why)


def _without(step: Step, arrives: bool) -> str:
    reasons = []
    if arrives and step.handed:
        reasons.append("its gradient is exactly 0 on these values")
    elif arrives:
        reasons.append("the gradient function leaves its gradient out")
    if step.factor is not None and 0 < step.factor < 1:
        reasons.append(f"each element becomes {step.factor:.6g} of itself, as weight decay makes it")
    return _joined(*reasons)


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


# ----------------------------------------------------------------------------------------- comparing


class Comparing:
    """Compares the values of parameters before and after updates.

    Args:
        before: the values, by name; NumPy arrays.
        gradients: the gradients that are handed on, by name; those of others are missing.
        why: what is known of some, by name, for which the optimizer does nothing.
    """

    steps: int

    def __init__(
        self, before: Mapping[str, Any], gradients: Mapping[str, Any], why: Mapping[str, str] | None = None
    ) -> None:
        self._before, self._why = before, why or {}
        self._sizes = {name: largest(g) for name, g in gradients.items()}
        self._moved: dict[str, tuple[float, int, float | None]] = {}
        self.steps = 0

    @property
    def is_settled(self) -> bool:
        """Whether no further update is needed: all that are handed a gradient moved, or enough were done."""
        waiting = [
            name for name, size in self._sizes.items() if size != 0 and name not in {*self._moved, *self._why}
        ]
        return self.steps >= STEPS or (self.steps > 0 and not waiting)

    def take(self, after: Mapping[str, Any]) -> None:
        """Note the values after a further update."""
        self.steps += 1
        for name, value in after.items():
            if name in self._before and name not in self._moved:
                change = _change(self._before[name], value)
                if change is not None:
                    self._moved[name] = (change, self.steps, _factor(self._before[name], value))

    def found(self, raw: Iterable[str] = ()) -> dict[str, Step]:
        """What was compared, by name; without an update, only what was handed on."""
        untreated = set(raw)
        steps = {}
        for name in self._before:
            size = self._sizes.get(name)
            moved, at, factor = self._moved.get(name, (0.0, 0, None))
            steps[name] = Step(
                name in self._sizes,
                size,
                moved if self.steps else None,
                at,
                self.steps,
                factor,
                name in untreated,
                self._why.get(name, ""),
            )
        return steps


def largest(x: Any) -> float:
    """The largest absolute value of an array; NaN if one is NaN, 0 if it is empty."""
    array = np.asarray(x)
    if array.dtype.kind not in "fciub":  # Such as bfloat16, which NumPy has from elsewhere.
        array = array.astype(np.float32)
    return float(np.max(np.abs(array))) if array.size else 0.0


def _change(before: Any, after: Any) -> float | None:
    """The largest change of an element; None if none changed."""
    a, b = _wide(before), _wide(after)
    if a.shape != b.shape:
        return float("inf")
    differs = (a != b) & ~((a != a) & (b != b))
    if not differs.any():
        return None
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(b[differs] - a[differs])))


def _factor(before: Any, after: Any) -> float | None:
    """What each element was multiplied by, if it is the same number for all; else None."""
    a, b = _wide(before), _wide(after)
    if a.shape != b.shape or not a.any() or b[a == 0].any():
        return None
    with np.errstate(all="ignore"):
        ratios = (b[a != 0] / a[a != 0]).real
    low, high = float(ratios.min()), float(ratios.max())
    return (low + high) / 2 if high - low <= _SINGLE else None


def _wide(x: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(x)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


# -------------------------------------------------------------------------------------------- telling


def in_short(updates: Mapping[str, Update]) -> str:
    """What is wrong, as the last part of a summary; empty if nothing is."""
    counts = {verdict: _count(updates, verdict) for verdict in (WITHOUT, RAW)}
    clauses = []
    for verdict, count in counts.items():
        if count:
            verb = verdict if count == 1 else verdict.replace("moves", "move").replace("its", "their")
            clauses.append(f"{number(count)} {verb}")
    return listed(clauses) if clauses else ""


def _count(updates: Mapping[str, Update], verdict: str) -> int:
    return sum(update.verdict == verdict for update in updates.values())


def parts_of(updates: Mapping[str, Update], every: Iterable[str], width: int) -> Iterator[Part]:
    """The section of a report, with a line for each verdict and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, update in updates.items():
        groups.setdefault((update.verdict, update.why), []).append(name)
    if not groups:
        return
    steps = max(update.steps for update in updates.values())
    every, lines = list(every), list[Part]()
    for verdict, why in sorted(groups, key=lambda group: VERDICTS.index(group[0])):
        shown = names(groups[verdict, why], every, width - len(verdict) - 6)
        reason = f" ({why})" if why else ""
        lines.append(Paragraph((f"{verdict}:", _STYLES.get(verdict, DIM)), f" {shown}{reason}", indent=2))
    title = {0: "the gradient function:", 1: "one update:"}.get(steps, f"{steps} updates:")
    yield Section(Paragraph((title, DIM)), lines)


def problems_in(
    updates: Mapping[str, Update], arrives: Callable[[str], bool]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What a reader should look at: kind, message and names.

    A parameter whose gradient happens to be zero on these values is none of it.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name, update in updates.items():
        if update.verdict == RAW or (update.verdict == WITHOUT and not (update.handed and arrives(name))):
            groups.setdefault((update.verdict, update.why), []).append(name)
    for (verdict, why), keys in groups.items():
        yield verdict, f"{verdict}: {names(keys, updates)}{f' ({why})' if why else ''}", tuple(keys)


def data_of(update: Update | None) -> dict[str, Any] | None:
    """An update as data."""
    if update is None:
        return None
    return {
        "verdict": update.verdict,
        "handed": update.handed,
        "gradient": update.gradient,
        "moved": update.moved,
        "at": update.at,
        "steps": update.steps,
        "why": update.why or None,
    }


def summary_data(updates: Mapping[str, Update]) -> dict[str, int] | None:
    """How many parameters have each verdict; None if nothing is known of updates."""
    return {verdict: _count(updates, verdict) for verdict in VERDICTS} if updates else None


def told(update: Update) -> str:
    """The verdict with its numbers, for messages."""
    moved = f" by up to {figure(update.moved)}" if update.at and update.moved is not None else ""
    return f"{update.verdict}{moved}{f' ({update.why})' if update.why else ''}"
