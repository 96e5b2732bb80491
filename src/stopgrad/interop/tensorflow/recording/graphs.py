"""Makes a graph of ours from what was recorded and from TensorFlow's graphs, for reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from stopgrad.base.source import RawLocation
from stopgrad.flow.asked import Asked, Recorded
from stopgrad.flow.explain import flow_of
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.magnitude import Magnitude, Measured
from stopgrad.flow.parts import Finding
from stopgrad.flow.words import some
from stopgrad.graph.arguments import operation_name
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.op import NoGradient
from stopgrad.interop.tensorflow.recording import passing
from stopgrad.interop.tensorflow.recording.bodies import Bodies
from stopgrad.interop.tensorflow.recording.closures import CLOSED
from stopgrad.interop.tensorflow.recording.record import (
    READS,
    Departure,
    Event,
    Kind,
    Shape,
    Symbol,
    Tape,
    Value,
    above,
)
from stopgrad.interop.tensorflow.recording.recorder import Recorder
from stopgrad.interop.tensorflow.recording.stand_ins import Maker

UNRECORDED = frozenset({"tape.watch", "StopGradient"})
"""What tapes never record, since no gradient passes it."""
ASKINGS = frozenset({"tape.gradient", "tf.gradients"})
NOT_KNOWN = "TensorFlow gave None, and which line ends the gradient is not known"

NOT_TRAINED = "trainable is False"
UNWATCHED = "no tape watched it: tape.watch does"


class Subject(NamedTuple):
    """What is asked about.

    Attributes:
        value: what it is.
        held: whether it is a variable that is not trainable.
    """

    value: Value | Symbol
    held: bool = False


def report_of(
    recorder: Recorder,
    losses: Sequence[Value | Symbol],
    xs: Mapping[str, Subject],
    tape: Tape | None,
    sizes: Mapping[str, Magnitude] | None = None,
) -> tuple[Flow, frozenset[str]]:
    """The report on what was recorded, and the subjects for which TensorFlow may give zeros for no gradient.

    Args:
        losses: what is differentiated.
        xs: what is asked about.
        tape: the tape that differentiates it; None if every operation counts as recorded.
        sizes: how large the gradients are.
    """
    building = Building(recorder, tape, xs)
    ys = tuple([building.loss(loss) for loss in losses])
    asked = {key: building.subject(key) for key in xs}
    findings = _left(building, losses, xs)
    findings += [Finding("not followed", what, ()) for what in (*recorder.lost, *building.make.unknown)]
    recorded = Recorded(building.frozen, building.unwritten, set(), NOT_TRAINED)
    question = Asked(building.make.graph, ys, asked, is_function=True, recorded=recorded)
    measured = None if sizes is None else Measured(ys, asked, dict(sizes))
    return flow_of(question, (), findings, measured), building.filled(asked)


def _left(building: Building, losses: Sequence[Value | Symbol], xs: Mapping[str, Subject]) -> list[Finding]:
    """What left for Python and did not come back, where that is all that was made of a subject."""
    eager = [loss for loss in losses if isinstance(loss, Value)]
    reached = set(above(eager))
    end = max([value.event.serial for value in eager], default=0)
    missing = {
        key: x.value.event
        for key, x in xs.items()
        if isinstance(x.value, Value) and x.value.event not in reached
    }
    lines: dict[Departure, list[str]] = {}
    for departure in building.recorder.departures.values() if missing else ():
        if departure.serial < end:
            led = set(above([departure.value]))
            for key in [key for key, event in missing.items() if event in led]:
                lines.setdefault(departure, []).append(key)
                del missing[key]
    findings = []
    for departure, keys in lines.items():
        output = building.output(departure.value)
        mark = building.make.stop(output, departure.call, departure.call, departure.place).op
        message = f"{some(keys)} left for Python by {departure.call}: no gradient comes back from there"
        findings.append(Finding("left", message, (mark,), tuple(keys)))
    return findings + _unused(building, reached, end, missing)


def _unused(
    building: Building, reached: Collection[Event], end: int, missing: Mapping[str, Event]
) -> list[Finding]:
    """Where what was made of a subject ends, when nothing that was recorded leads on to the loss.

    NumPy reads a tensor without a word to anybody; so its functions end a path, too.
    """
    led: dict[Event, list[str]] = {}
    for key, event in missing.items():
        led.setdefault(event, []).append(key)
    last: dict[Event, None] = {}
    for event in building.recorder.events() if missing else ():
        if event.serial < end and event not in reached and building.is_recorded(event):
            parents = [value.event for value in event.inputs if value.event in led]
            if parents:
                led[event] = list(dict.fromkeys([key for parent in parents for key in led[parent]]))
                last[event] = None
                for parent in parents:
                    last.pop(parent, None)
    lines: dict[RawLocation, tuple[Event, list[str]]] = {}
    for event in last:
        if event.place is not None:
            keys = lines.setdefault(event.place, (event, []))[1]
            keys += [key for key in led[event] if key not in keys]
    findings = []
    for event, keys in lines.values():
        mark = building.make.stop(building.output(Value(event, 0)), event.call, event.call, event.place).op
        message = f"{some(keys)} led to this, and nothing that TensorFlow recorded leads on to the loss"
        findings.append(Finding("unused", message, (mark,), tuple(keys)))
    return findings


class Building:
    """Builds a graph from the events, and the operations of TensorFlow's graphs, that led to losses.

    Attributes:
        make: makes its operations.
        recorder: what was recorded.
        tape: the tape that differentiates; None if every operation counts as recorded.
        frozen: the stops of variables that are not trainable.
        unwritten: the stops that nobody wrote.
    """

    make: Maker
    recorder: Recorder
    tape: Tape | None

    def __init__(self, recorder: Recorder, tape: Tape | None, xs: Mapping[str, Subject]) -> None:
        self.make = Maker()
        self.recorder, self.tape, self._xs = recorder, tape, xs
        self.frozen: dict[Operation, bool] = {}
        self.unwritten: set[Operation] = set()
        self._outputs: dict[tuple[Event, int], Output] = {}
        self._names = {
            (x.value.event, x.value.number): operation_name(key)
            for key, x in reversed(list(xs.items()))
            if isinstance(x.value, Value)
        }
        self._held = {x.value.event for x in xs.values() if x.held and isinstance(x.value, Value)}
        self._outside: dict[Output, Output] = {}
        self._again: dict[tuple[Output, Output], Output] = {}
        self._guarded: dict[Output, Output] = {}
        self._since: dict[Event, int] = {}
        self._bodies = Bodies(self.make, recorder, tape, self.output)

    # ---------------------------------------------------------------------------------------- what is asked

    def output(self, value: Value | Symbol) -> Output:
        """What stands for a tensor or a variable."""
        if isinstance(value, Symbol):
            return self._bodies.symbol(value)
        if (value.event, value.number) not in self._outputs:
            for event in above([value], {event for event, _ in self._outputs}):
                self._build(event)
        return self.used(value)

    def loss(self, value: Value | Symbol) -> Output:
        """What stands for a loss: behind a stop if the tape does not know how it was made."""
        if isinstance(value, Symbol):
            return self._bodies.loss(value)
        self.output(value)
        return self._across(value, None)

    def subject(self, key: str) -> Output:
        """What stands for something that is asked about, before a stop that holds it."""
        value = self._xs[key].value
        if isinstance(value, Symbol):
            return self._bodies.symbol(value)
        self.output(value)
        return self._outputs[value.event, value.number]

    def filled(self, asked: Mapping[str, Output]) -> frozenset[str]:
        """The subjects to which a gradient of zeros passes that branches, loops or functions go on with."""
        stack = [output.op for output in self._bodies.filled]
        led = set(stack)
        while stack:
            op = stack.pop()
            for i, x in enumerate(op.inputs):
                if x.op not in led and _passes_zeros(op, i):
                    led.add(x.op)
                    stack.append(x.op)
        return frozenset([key for key, output in asked.items() if output.op in led])

    def used(self, value: Value) -> Output:
        """What stands for a value where it is used: behind a stop if no tape recorded how it was made."""
        output = self._outputs[value.event, value.number]
        return self._guarded.get(output, output)

    # --------------------------------------------------------------------------------------------- building

    def _build(self, event: Event) -> None:
        if event.kind in (Kind.VARIABLE, Kind.CONSTANT):
            self._leaf(event)
            return
        inputs = [self._operand(event, value) for value in event.inputs]
        if event.kind is Kind.ASSIGNED:
            why = "a variable holds what is assigned to it, not what that was made of"
            outputs = [
                self.make.stop(
                    inputs[0], f"tf.Variable.{_METHODS.get(event.call, 'assign')}", why, event.place
                )
            ]
        elif event.kind is Kind.CALL and event.graph is not None:
            outputs = self._bodies.inline(event.graph, inputs)
        elif event.kind is Kind.CUSTOM:
            outputs = self._custom(event, inputs)
        elif event.call == "ReadVariableOp" and len(inputs) == 1:
            outputs = inputs
        else:
            operands = event.inputs[: _READ[event.call]] if event.call in READS else event.inputs
            answer = passing.of_eager(event.call, event.attrs, _sizes(operands), event.results)
            outputs = self.make.operation(event.call, inputs, event.results, answer, event.place, event.scope)
        self._outputs.update({(event, i): y for i, y in enumerate(outputs)})

    def _leaf(self, event: Event) -> None:
        """A variable, or a tensor that nothing recorded made."""
        name = self._names.get((event, 0))
        output = self.make.leaf(event.results[0], name, event.place)
        self._outputs[event, 0] = output
        if event in self._held:
            self._guarded[output] = stop = self.make.stop(output, "tf.Variable", NOT_TRAINED, event.place)
            self.frozen[stop.op] = False
        elif name is None and event.kind is Kind.CONSTANT:
            return
        elif (since := self._watched_since(event)) is not None:
            self._since[event] = since
        elif name is not None:
            why = UNWATCHED if event.kind is Kind.CONSTANT else _UNWATCHED
            self._guarded[output] = stop = self.make.stop(output, "tf.GradientTape", why, self._tape_place())
            self.unwritten.add(stop.op)

    def _watched_since(self, event: Event) -> int | None:
        """Since when the tape watches a variable or a constant that is asked about; None if it does not."""
        tape = self.tape
        if tape is None or (event.kind is Kind.VARIABLE and tape.reads):
            return 0
        since = [
            tape.watched[key]
            for table in (self.recorder.variables, self.recorder._values)
            for key, (_, value) in table.items()
            if value.event is event and key in tape.watched
        ]
        return min(since, default=None)

    def _is_too_early(self, event: Event, value: Value) -> bool:
        """Whether the tape did not record an event since it watched what the event takes only later.

        It records an event as soon as it watches one thing that it takes.
        """
        if event.serial > self._since.get(value.event, 0) or self.tape not in event.tapes:
            return False
        others = [other.event for other in event.inputs if other != value]
        return not any(
            self._since.get(other, event.serial) < event.serial
            if other.kind in (Kind.VARIABLE, Kind.CONSTANT)
            else self.is_recorded(other)
            for other in others
        )

    def _tape_place(self) -> RawLocation | None:
        return None if self.tape is None else self.tape.place

    def _custom(self, event: Event, inputs: Sequence[Output]) -> list[Output]:
        """What has a gradient function of its own: a function that was called, or a custom gradient."""
        if event.call == "tape.watch":
            if self.tape not in event.tapes:  # Another tape's paths pass.
                return list(inputs)
            stop = self.make.stop(
                inputs[0], "tf.GradientTape.watch", "a tape's paths begin at what it watches", event.place
            )
            self.unwritten.add(stop.op)
            return [stop]
        call = event.beside
        if call is not None and call.graph is not None:
            return list(inputs)
        why = f"the gradient function of {event.call} returns None for it"
        if event.call in ASKINGS:
            why = NOT_KNOWN
        walls = [
            (i, passing.NOT_DIFFERENTIABLE, why)
            for i, passes in enumerate(event.passes or ())
            if not passes and i < len(inputs) - event.closes
        ]
        walls += [(len(inputs) - 1 - i, passing.STOPPED, CLOSED) for i in range(event.closes)]
        walls += [
            (i, passing.NOT_DIFFERENTIABLE, passing.NONE)
            for i, value in enumerate(event.inputs)
            if not passing.has_gradients(value.event.results[value.number][0])
        ]
        return self.make.operation(
            event.call, inputs, event.results, passing.Answer(tuple(walls)), event.place
        )

    def _operand(self, event: Event, value: Value) -> Output:
        """What stands for a value where an event takes it."""
        output = self.used(value)
        if self._is_passed(event):  # What it took counts where its result is used.
            return output
        if self._is_too_early(event, value):
            return self.make.stop(output, "tf.GradientTape.watch", "computed before tape.watch", event.place)
        return self._across(value, self._gap(event))

    def _across(self, value: Value, here: int | None) -> Output:
        """What stands for a value in a time: behind a stop if it was computed in another without a record.

        A stop computes nothing: it stands in front of what it took as if that were used in its place.
        """
        handed_on = []
        while self._is_passed(value.event):
            handed_on.append(value)
            value = value.event.inputs[0]
        output, before = self._computed(value, here), self.used(value)
        for step in reversed(handed_on):
            plain = self.used(step)
            if output is before:
                output = plain
            elif plain is not before:
                output = self._stopped_again(plain, output)
            before = plain
        return output

    def _stopped_again(self, stop: Output, x: Output) -> Output:
        if (stop, x) not in self._again:
            self._again[stop, x] = self.make.again(stop, x)
        return self._again[stop, x]

    def _computed(self, value: Value, here: int | None) -> Output:
        """What stands in a time for a value that something computed."""
        output, gap = self.used(value), self._gap(value.event)
        if gap is None or gap == here:
            return output
        if output not in self._outside:
            is_first = value in self._names and not self._asked_above(value)
            why, place = (UNWATCHED, self._tape_place()) if is_first else self._why_not(value.event)
            self._outside[output] = self.make.stop(output, why, why, place)
            self.unwritten.discard(self._outside[output].op)
        return self._outside[output]

    def _is_passed(self, event: Event) -> bool:
        """Whether an event only hands on what it took: as a stop, or since another tape watches that."""
        if event.call == "tape.watch":
            return self.tape not in event.tapes
        return event.kind is Kind.ASSIGNED or event.call == "StopGradient"

    def _asked_above(self, value: Value) -> bool:
        """Whether something else that is asked about led to a value."""
        led = set(above([value])) - {value.event}
        return any(event in led for event, _ in self._names)

    def is_recorded(self, event: Event) -> bool:
        """Whether the tape knows how an event made its results; what is no operation has no such question."""
        if self.tape is None or event.kind not in (Kind.OPERATION, Kind.CALL, Kind.CUSTOM):
            return True
        if event.call in UNRECORDED:
            return True
        return self.tape in event.tapes

    def _gap(self, event: Event) -> int | None:
        """The time in which an event was not recorded, by when it began; None for what was recorded."""
        if self.is_recorded(event):
            return None
        assert self.tape is not None
        ends = [began for began, ended, _ in self.tape.pauses if began < event.serial < ended]
        return ends[0] if ends else 0 if event.serial < self.tape.opened else self.tape.closed

    def _why_not(self, event: Event) -> tuple[str, RawLocation | None]:
        """Why the tape did not record an event, and the line that says so."""
        tape = self.tape
        assert tape is not None
        for began, ended, _ in tape.pauses:
            if began < event.serial < ended:
                return "tape.stop_recording()", event.place
        if event.serial < tape.opened:
            return "computed before the tape was opened", event.place
        if tape.closed and event.serial > tape.closed:
            return "computed after the tape was closed", event.place
        return "computed while recording was stopped", event.place


def _passes_zeros(op: Operation, i: int) -> bool:
    """Whether a gradient of zeros passes to an input."""
    rule = op.definition.rule(op, i)
    return op.inputs[i].type.differentiable and not (
        isinstance(rule, NoGradient) and passing.FLAT not in rule.reason
    )


_UNWATCHED = "its tape does not watch variables that are read: tape.watch does"
_READ = {"ReadVariableOp": 1, "ResourceGather": 2, "ResourceGatherNd": 2}
"""The inputs of what reads a variable; what was written into it before comes after these."""
_METHODS = {"AssignAddVariableOp": "assign_add", "AssignSubVariableOp": "assign_sub"}


def _sizes(values: Sequence[Value]) -> list[Shape]:
    return [value.event.results[value.number] for value in values]
