"""Why gradients do not arrive, from a report on a loss: the lines that cut, as places of a finding."""

from __future__ import annotations

from collections.abc import Iterable

from stopgrad.flow.flow_report import Flow
from stopgrad.flow.problems.cutting import MOST, cutting
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.reaches import FROZEN
from stopgrad.interop.torch.explaining.context import UNRECORDED, Context, sites
from stopgrad.interop.torch.recording.graphs import report_of
from stopgrad.interop.torch.recording.record import Kind, Region


def no_graph(context: Context) -> Problem | None:
    """The finding about a loss that has no graph: what cut it off, or which mode was on."""
    recorder = context.recorder
    if not context.is_recorded:
        message = "the loss depends on nothing that requires a gradient"
        return Problem("no-graph", message, context.here("second", "no graph here"), cure=UNRECORDED)
    tensors = [x for x in context.tensors[:1] if x.grad_fn is None and not x.requires_grad]
    if not tensors:
        return None
    loss = recorder.value_of_loss(tensors[0])
    asked = recorder.seen()
    targets = {name: recorder.target(x) for name, x in asked.items()}
    flow = report_of([loss], targets, recorder.departures.remembered())
    trained = [name for name, x in asked.items() if x.requires_grad]
    places = cutting(flow, trained or list(asked))
    region = loss.event.region
    if region is not None and not places:
        places = mode_of(region)
    if not trained and asked:
        return Problem(
            "no-graph",
            "the loss depends on nothing that requires a gradient: all that was used is frozen",
            [*freezing(flow, list(asked)), *context.here("second", "this backward finds no graph")],
            list(asked),
            {},
            "let what is to be trained require a gradient: p.requires_grad_(True)",
        )
    place = loss.event.place
    if not places and loss.event.kind is not Kind.STOP:
        places += sites("made", f"the loss is made here, by {loss.event.call}", place)
    places += context.here("second", "this backward finds no graph")
    return Problem(
        "no-graph",
        "the loss depends on nothing that requires a gradient",
        places,
        trained,
        {},
        "let the loss be made of tensors, outside of torch.no_grad(), without .item(), .detach() or "
        "torch.tensor(...) between the parameters and it",
    )


def freezing(flow: Flow, names: Iterable[str]) -> list[Site]:
    """The lines that froze tensors."""
    frozen: dict[tuple[str, int], Site] = {}
    for name in names:
        for cut in flow[name].cuts if name in flow else ():
            location = flow.location(cut.operation)
            if location is not None and (
                cut.reason == "requires_grad is False" or flow[name].status == FROZEN
            ):
                frozen.setdefault(
                    (location.own.file, location.own.line), Site("frozen", "frozen here", location.own)
                )
    return list(frozen.values())[:MOST]


def mode_of(region: Region) -> list[Site]:
    """The line at which gradients were switched off."""
    return sites("cut", f"gradients are off from here: {region.why}", region.place)
