"""Makes a graph of ours from the record, for reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import CodeType
from typing import Any

from stopgrad.base.dtypes import dtype_of
from stopgrad.base.source import Called, Calls, RawLocation
from stopgrad.base.types import TensorType, tensor_type
from stopgrad.flow.asked import Asked, Recorded
from stopgrad.flow.explain import flow_of
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.magnitude import Measured
from stopgrad.flow.parts import Finding
from stopgrad.flow.words import counted, some
from stopgrad.graph.arguments import operation_name
from stopgrad.graph.build import named
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.op import REGISTRY
from stopgrad.interop.torch.recording.autograd_nodes import EARLIER
from stopgrad.interop.torch.recording.leaving import Departure
from stopgrad.interop.torch.recording.record import (
    FREEZES,
    WRITES,
    Event,
    Kind,
    Region,
    Shape,
    Sizes,
    Target,
    Value,
    above,
    is_written,
)
from stopgrad.ops.structural.foreign import Foreign, ForeignStop


def report_of(
    losses: Sequence[Value],
    xs: Mapping[str, Target],
    departures: Sequence[Departure] = (),
    held: bool = False,
    lost: Iterable[str] = (),
    sizes: Sizes | None = None,
) -> Flow:
    """The report on recorded values, made from a graph of ours.

    Args:
        losses: what is differentiated.
        xs: what is asked about.
        departures: the values that left for Python.
        lost: what could not be found out.
        sizes: how large the gradients were in a backward pass from these losses.
        held: whether an optimizer holds the subjects; other tensors that gradients reach are then a finding.
    """
    gone = _gone(losses, xs, departures)
    building = _Building(losses, xs, [departure.value for departure in gone.values()])
    ys = tuple([building.outside(value) for value in losses])
    findings = [*building.earlier(), *building.departed(gone)]
    findings += _hooks(building, ys)
    if held:
        findings += _strays(building, ys)
    findings += [Finding("not followed", what, ()) for what in lost]
    asked = building.question(ys, building.asked)
    return flow_of(asked, (), findings, None if sizes is None else building.measured(ys, sizes))


def _gone(
    losses: Sequence[Value], xs: Mapping[str, Target], departures: Sequence[Departure]
) -> dict[str, Departure]:
    """For subjects without influence on the losses: the first value made from each that left for Python."""
    end = max([value.event.serial for value in losses], default=0)
    came = set(above(losses))
    missing = {key: x.value.event for key, x in xs.items() if x.value.event not in came}
    waiting = [departure for departure in departures if departure.serial < end] if missing else []
    gone: dict[str, Departure] = {}
    seen: set[Event] = set()
    for departure in waiting:
        fresh = set(above([departure.value], seen))
        seen |= fresh
        gone |= {key: departure for key, event in missing.items() if event in fresh and key not in gone}
    return gone


def _strays(building: _Building, ys: tuple[Output, ...]) -> list[Finding]:
    """The leaves that gradients reach but no optimizer holds, by the lines that made them."""
    leaves = {str(i): leaf for i, leaf in enumerate(building.unasked_leaves())}
    if not leaves:
        return []
    flow = flow_of(building.question(ys, leaves))
    lines: dict[Any, list[Operation]] = {}
    for key, leaf in leaves.items():
        if flow[key].arrives:
            where = leaf.op.location
            lines.setdefault(None if where is None else (where.file, where.line), []).append(leaf.op)
    return [
        Finding(
            "stray",
            f"a gradient arrives at {counted(len(ops), 'tensor')} that no optimizer has",
            tuple(ops),
        )
        for ops in lines.values()
    ]


def _hooks(building: _Building, ys: tuple[Output, ...]) -> list[Finding]:
    """The hooks on open paths, by their lines: what they make of the gradient is not known."""
    hooked = building.hooked()
    if not hooked:
        return []
    xs = building.asked | {f"hook {i}": output for i, (output, _, _) in enumerate(hooked)}
    flow = flow_of(building.question(ys, xs))
    lines: dict[RawLocation, tuple[Output, dict[str, None]]] = {}
    for i, (output, place, keys) in enumerate(hooked):
        arriving = [key for key in keys if flow[key].arrives]
        if arriving and flow[f"hook {i}"].arrives:
            lines.setdefault(place, (output, {}))[1].update(dict.fromkeys(arriving))
    findings = []
    for place, (output, changed) in lines.items():
        mark = building.mark(output, "hook", "a hook", place)
        message = f"a hook may change the gradient of {some(list(changed))}, even to zero"
        findings.append(Finding("hook", message, (mark,), tuple(changed)))
    return findings


class _Building:
    """Builds a graph from the events that led to losses."""

    def __init__(self, losses: Sequence[Value], xs: Mapping[str, Target], aside: Sequence[Value]) -> None:
        self.graph = Graph()
        self._outputs: dict[tuple[Event, int], Output] = {}
        self._guarded: dict[Output, Output] = {}
        self._outside: dict[tuple[Output, Region], Output] = {}
        self._frozen: dict[Operation, bool] = {}
        self._unwritten: set[Operation] = set()
        self._updates: set[Operation] = set()
        self._calls: dict[Operation, Calls] = {}
        self._still: set[Operation] = set()  # What frozen tensors hold, also after updates and behind stops.
        self._targets = xs
        self._xs = {(x.value.event, x.value.index): x for x in xs.values()}
        self._names = {x.value.event: operation_name(key) for key, x in reversed(list(xs.items()))}
        events = above([*losses, *[x.value for x in xs.values()], *aside])
        self._leads = self._bits(events)
        for event in events:
            self._build(event)
        self.asked = {key: self._outputs[x.value.event, x.value.index] for key, x in xs.items()}

    def question(self, ys: tuple[Output, ...], xs: Mapping[str, Output]) -> Asked:
        """The question about outputs of the graph."""
        recorded = Recorded(self._frozen, self._unwritten, self._updates)
        return Asked(self.graph, ys, xs, is_function=True, recorded=recorded, calls=self._calls)

    def _bits(self, events: Sequence[Event]) -> dict[Event, int]:
        """For each event, the events asked about that it depends on, as the bits of a number."""
        own = {event: 1 << k for k, event in enumerate(dict.fromkeys(event for event, _ in self._xs))}
        self._needed = sum({own[event] for (event, _), x in self._xs.items() if x.needs or x.argument})
        leads: dict[Event, int] = {}
        for event in events:
            bits = own.get(event, 0)
            for value in event.inputs:
                bits |= leads[value.event]
            leads[event] = bits
        return leads

    def earlier(self) -> list[Finding]:
        """Values made before the watch began, by the lines where they were first met."""
        by_place = {}
        for (event, _), output in self._outputs.items():
            if event.why is EARLIER and event.place is not None:
                message = f"{EARLIER}: of what made it, no lines are known"
                by_place[event.place] = Finding("earlier", message, (output.op,))
        return list(by_place.values())

    def departed(self, gone: Mapping[str, Departure]) -> list[Finding]:
        """Values that left for Python and did not come back, by the lines where they left."""
        lines: dict[Departure, list[str]] = {}
        for key, departure in gone.items():
            lines.setdefault(departure, []).append(key)
        findings = []
        for departure, keys in lines.items():
            output = self.output(departure.value)
            mark = self.mark(output, departure.call, departure.why, departure.place)
            message = f"{some(keys)} left for Python by {departure.why}: no gradient comes back from there"
            findings.append(Finding("left", message, (mark,), tuple(keys)))
        return findings

    def hooked(self) -> list[tuple[Output, RawLocation, list[str]]]:
        """The outputs with hooks, with the line of each, and what is asked about behind it."""
        asked = {key: self._leads[x.value.event] for key, x in self._targets.items()}
        hooked = []
        for (event, _), output in self._outputs.items():
            keys = [key for key, bits in asked.items() if event.hooks and bits & self._leads[event]]
            hooked += [(output, place, keys) for place in event.hooks]
        for key, x in self._targets.items():
            hooked += [(self.asked[key], place, [key]) for place in x.hooks]
        return hooked

    def measured(self, ys: tuple[Output, ...], sizes: Sizes) -> Measured:
        """How large the gradients were, at the outputs that stand for the values."""
        norms = {
            self._outputs[v.event, v.index]: n
            for v, n in sizes.at.items()
            if (v.event, v.index) in self._outputs
        }
        magnitudes = {
            key: sizes.of[x.value].magnitude() for key, x in self._targets.items() if x.value in sizes.of
        }
        hooks = {
            output: self.mark(output, "hook", "a hook", place)
            for output, place, _ in self.hooked()
            if output in norms or output in self.asked.values()
        }
        return Measured(ys, self.asked, magnitudes, norms, hooks)

    def mark(self, output: Output, call: str, why: str, place: RawLocation | None) -> Operation:
        """An operation that only says where something is."""
        return self._add(ForeignStop, (output,), (call, why), (output.type,), place).op

    def unasked_leaves(self) -> list[Output]:
        """The leaves that require gradients but were not asked about."""
        asked = {output.op for output in self.asked.values()}
        frozen = {event.inputs[0].event for event, _ in self._outputs if event.kind is Kind.FROZEN}
        leaves = [
            output
            for (event, _), output in self._outputs.items()
            if event.kind is Kind.LEAF and event not in frozen
        ]
        return [output for output in leaves if output.op not in asked and output.type.differentiable]

    def outside(self, value: Value) -> Output:
        """The output in the graph that stands for a value outside of all regions."""
        return self._used(value, None)

    def output(self, value: Value) -> Output:
        """The output in the graph that stands for a value where it is used."""
        output = self._outputs[value.event, value.index]
        return self._guarded.get(output, output)

    def _build(self, event: Event) -> None:
        inputs = tuple([self._used(value, event.region) for value in event.inputs])
        results = tuple([_whole(sizes) for sizes in event.results])
        types = tuple([tensor_type(dtype_of(sizes[0]), sizes[1:]) for sizes in results])
        asked = any((event, i) in self._xs for i in range(len(types)))
        if self._is_stop(event):
            output = self._add(ForeignStop, inputs, (event.call, event.why), types, event.place)
            self._outputs[event, 0] = output
            if event.kind is Kind.FROZEN:
                self._frozen[output.op] = event.call == FREEZES
            elif not is_written(event):
                self._unwritten.add(output.op)
            if event.kind is Kind.FROZEN or inputs[0].op in self._still:
                self._still.add(output.op)
        elif event.kind is Kind.FROZEN or (event.kind is Kind.WRITTEN and self._adds_nothing(event)):
            self._outputs[event, 0] = inputs[0]
        elif event.kind is Kind.LEAF and not event.inputs:
            kind = types[0]
            self._outputs[event, 0] = self._add(
                REGISTRY["Placeholder"],
                (),
                (kind.dtype, kind.shape, ()),
                types,
                event.place,
                self._names.get(event),
            )
        else:
            values = event.call, results, event.walls, (), ""
            op = self._operation(Foreign, inputs, values, types, event.place)
            code, instruction = event.place or (None, 0)
            code = code.code if isinstance(code, Called) else code
            if event.calls is not None and isinstance(code, CodeType):
                self._calls[op] = *event.calls, (code, instruction)
            if (event.kind is Kind.WRITTEN or event.why is WRITES) and inputs[0].op in self._still:
                self._updates.add(op)
                self._still.add(op)
            self._outputs.update({(event, i): y for i, y in enumerate(op.outputs)})
        if asked and event.kind is not Kind.LEAF:
            self._guard(event)

    def _used(self, value: Value, here: Region | None) -> Output:
        """The output for a value as it is used in a region: behind a stop for each region that it has left.

        The record has the first of these stops for what would require a gradient without the region. The
        forward of an ``autograd.Function`` is a region as well, but stops nothing that is an argument.
        """
        output, region = self.output(value), None if value.open_outside else value.event.region
        while region is not None and not region.holds(here) and self._is_asked_for(value):
            if region.runs is None:
                if (output, region) not in self._outside:
                    stop = ForeignStop, (output,), (region.why, region.why), (output.type,), region.place
                    self._outside[output, region] = self._add(*stop)
                output = self._outside[output, region]
            region = region.outer
        return output

    def _is_stop(self, event: Event) -> bool:
        """Whether an event ends the paths of what is asked about."""
        if event.kind is Kind.LEAF:
            return bool(event.why) and any(self._leads[value.event] for value in event.inputs)
        return event.kind is Kind.STOP or (event.kind is Kind.FROZEN and self._is_asked(event.inputs[0]))

    def _is_asked(self, value: Value) -> bool:
        """Whether a value is asked about, and is no argument of ``torch.func``."""
        x = self._xs.get((value.event, value.index))
        return x is not None and not x.argument

    def _is_asked_for(self, value: Value) -> bool:
        """Whether a value was made of what is asked about, and is no argument of ``torch.func`` itself.

        What is frozen has a stop of its own.
        """
        x = self._xs.get((value.event, value.index))
        return bool(self._leads[value.event] & self._needed) and not (x is not None and x.argument)

    def _adds_nothing(self, event: Event) -> bool:
        """Whether what was written depends on nothing asked about but what the tensor did before."""
        value, content = event.inputs
        return not self._leads[content.event] & ~self._leads[value.event]

    def _guard(self, event: Event) -> None:
        """Stop gradients behind values that are asked about but require none."""
        for i in range(len(event.results)):
            x = self._xs.get((event, i))
            if x is not None and not x.needs and not x.argument:
                output = self._outputs[event, i]
                why = "requires_grad is False"
                self._guarded[output] = self._add(
                    ForeignStop, (output,), ("requires_grad", why), (output.type,), event.place
                )

    def _add(self, *parts: object) -> Output:
        return self._operation(*parts).outputs[0]  # type: ignore[arg-type]

    def _operation(
        self,
        definition: type,
        inputs: tuple[Output, ...],
        values: tuple[object, ...],
        types: tuple[TensorType, ...],
        place: RawLocation | None,
        name: str | None = None,
    ) -> Operation:
        if name:
            return named(self.graph, "", name, None, definition, inputs, values, types, place, None)
        return Operation(self.graph, definition, inputs, values, types, "", place)  # type: ignore[arg-type]


def _whole(sizes: Shape) -> Shape:
    """The name of a dtype and sizes as numbers, if they are."""
    try:
        return sizes[0], *map(int, sizes[1:])
    except (AttributeError, RuntimeError, TypeError, ValueError):  # Nested tensors have no single size.
        return sizes[:1]
