"""What a sample says of the gradient of each parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.magnitude import Magnitude
from stopgrad.flow.magnitudes.troubles import EXPLODING, NOT_FINITE, VANISHING, ZERO
from stopgrad.flow.source_lines import place
from stopgrad.flow.updates import RAW, WITHOUT, Step, Update, update_of
from stopgrad.graph.op import Status

ARRIVES = "arrives"
"""The state of a gradient with which nothing is wrong."""
COMPARED = "broadcast loss"
"""The state of a gradient that arrives from a loss which compares each prediction with every target."""
NOTHING = "nothing"
"""The state of a parameter at which no gradient arrived, where it is not known why."""
_ARRIVING = (NOT_FINITE, ARRIVES, COMPARED, EXPLODING, VANISHING, ZERO)
_BEST = (*_ARRIVING, RAW, WITHOUT, *map(str, Status), NOTHING)
"""Of several backward passes in one step, the verdict that counts: any NaN, else the best."""


@dataclass(frozen=True)
class Verdict:
    """What a sample says of the gradient of a parameter.

    Attributes:
        state: ``"arrives"``; what is wrong with what arrives: ``"not finite"``, ``"zero"``, ``"vanishing"``
            or ``"exploding"``; ``"broadcast loss"``, where it is of a loss that compares each prediction with
            every target; the status by which none arrives, as ``"stopped"``; ``"moves without a
            gradient"``, where none arrives and an update moves it; or ``"nothing"``, where none arrives and
            it is not known why.
        cause: the operation and line that make it so, in a few words; empty where none is known.
        magnitude: how large the gradient is, if one arrives.
    """

    state: str
    cause: str = ""
    magnitude: Magnitude | None = None


Verdicts = Mapping[str, Verdict]


@dataclass(frozen=True)
class Sample:
    """The verdicts on a step.

    Attributes:
        step: its number.
        verdicts: by the names of the parameters.
    """

    step: int
    verdicts: Verdicts


def verdicts_of(flow: Flow) -> dict[str, Verdict]:
    """The verdicts of a report."""
    causes = {}
    for trouble in flow.troubles:
        first_cause = [(cause.location, str(cause)) for cause in trouble.causes[:1]]
        cause = "".join(
            [text if location is None else f"{place(location)} {text}" for location, text in first_cause]
        )
        causes.update(dict.fromkeys(trouble.keys, (trouble.kind, cause)))
    compared = _compared(flow)
    verdicts = {}
    for name, reach in zip(flow.xs, flow.values(), strict=True):
        if not flow.xs[name].type.differentiable:
            continue
        if reach.arrives:
            state, cause = causes.get(name, compared.get(name, (ARRIVES, "")))
            verdicts[name] = _updated(Verdict(state, cause, reach.magnitude), reach.update, True)
        else:
            first_cut = [(cut.location, cut.reason) for cut in reach.cuts[:1]]
            cause = "".join(
                [text if location is None else f"{place(location)} {text}" for location, text in first_cut]
            )
            verdicts[name] = _updated(Verdict(str(reach.status), cause), reach.update, False)
    return verdicts


def _updated(verdict: Verdict, update: Update | None, arrives: bool) -> Verdict:
    """The verdict where it is known, too, what an update does."""
    if update is None:
        return verdict
    if arrives and (update.verdict == RAW or (update.moves and not update.handed)):
        return Verdict(update.verdict, update.why, verdict.magnitude)
    return Verdict(WITHOUT, verdict.cause) if update.moves and not arrives else verdict


def with_steps(verdicts: Verdicts, steps: Mapping[str, Step]) -> dict[str, Verdict]:
    """Verdicts with what an update did to parameters, by their names."""
    updated = {}
    for name, verdict in verdicts.items():
        arrives = verdict.state in _ARRIVING
        update = update_of(steps[name], arrives) if name in steps else None
        updated[name] = _updated(verdict, update, arrives)
    return updated


def _compared(flow: Flow) -> dict[str, tuple[str, str]]:
    """The tensors that predictions are made of which a loss compares with every target, with the cause."""
    compared: dict[str, tuple[str, str]] = {}
    for finding in flow.compared:
        (op,) = finding.operations
        location = flow.location(op)
        text = finding.message if location is None else f"{place(location.own)} {finding.message}"
        above = set(flow.graph.subgraph_to([op])) if flow.graph.holds(op) else None  # None: it is in a loop.
        for name, x in flow.xs.items():
            if above is None or x.op in above:
                compared.setdefault(name, (COMPARED, text))
    return compared


def merged(passes: Iterable[Verdicts]) -> dict[str, Verdict]:
    """The verdicts on a step of several backward passes: a gradient arrives if it does in any of them."""
    best: dict[str, Verdict] = {}
    for verdicts in passes:
        for name, verdict in verdicts.items():
            before = best.get(name)
            if before is None or _BEST.index(verdict.state) < _BEST.index(before.state):
                best[name] = verdict
    return best
