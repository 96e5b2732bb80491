"""Records what TensorFlow does in one thread, and in those of the replicas that it starts."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from stopgrad.base.source import RawLocation
from stopgrad.interop.shared import keras
from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.closures import closed_over
from stopgrad.interop.tensorflow.recording.internals import identity_of, is_stopped
from stopgrad.interop.tensorflow.recording.measuring import magnitudes_of
from stopgrad.interop.tensorflow.recording.passing import has_gradients
from stopgrad.interop.tensorflow.recording.places import called_by_user, here, of_operation
from stopgrad.interop.tensorflow.recording.record import (
    READS,
    Asking,
    Departure,
    Event,
    Kind,
    Shape,
    Source,
    Symbol,
    Tape,
    Value,
    above,
    now,
)

MAKES = "VarHandleOp"
"""The operation that makes a variable's handle."""
ASSIGNS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
"""The operations that write into a variable, whose second input is what is written."""
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall"})
"""The operations of graphs that call a function."""
_FEWEST = 4096
"""So many values are kept at least before those whose tensors have been freed are dropped."""

_CALLERS = 4
"""So many callers is the function of an operation away from what looks at its arguments."""
ASKED = 256
"""The last so many gradients that were asked for are kept, with all that led to them."""

Backward = Callable[..., Any]
Looks = Callable[[Event, Sequence[Any], Sequence[Any]], None]
Explains = Callable[["Recorder", BaseException, "RawLocation | None"], None]


def _explain_nothing(recorder: Recorder, error: BaseException, place: RawLocation | None) -> None:
    """What a recorder does with an error unless something else is set."""


class Recorder:
    """What is known of the code that runs in a thread.

    Attributes:
        variables: the variables that were read or watched, by the numbers of their handles.
        askings: the last gradients that were asked for, in order.
        departures: the values that left for Python, the last one of each line.
        measures: whether it is measured how large gradients are.
        arrived: takes sources and their gradients, when these were asked for.
        look: looks at the values of an operation that has run, and at what is written into a variable.
        meet: looks at a variable that is accessed for the first time, before that happens.
        refusal: the line that made the traced tensor that was last asked for its number, in vain.
        explain: adds the cause to an error of TensorFlow's or Keras', if it is known.
        lost: what could not be recorded, in sentences.
    """

    def __init__(self) -> None:
        self._values: dict[int, tuple[Any, Value]] = {}
        self._limit = _FEWEST
        self.variables: dict[int, tuple[Any, Value]] = {}
        self._assigned: dict[int, Value] = {}
        self._recording: dict[int, tuple[Tape, ...]] = {}
        self._tapes: weakref.WeakKeyDictionary[Any, Tape] = weakref.WeakKeyDictionary()
        self._notes: weakref.WeakKeyDictionary[Any, dict[str, tuple[Tape, ...]]] = weakref.WeakKeyDictionary()
        self._functions: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.askings: deque[Asking] = deque(maxlen=ASKED)
        self.departures: dict[RawLocation, Departure] = {}
        self.measures = False
        self.arrived: Callable[[Sequence[Any], Sequence[Any]], None] | None = None
        self.explain: Explains = _explain_nothing
        self.look: Looks | None = None
        self.meet: Callable[[Any], None] | None = None
        self.refusal: RawLocation | None = None
        self.lost: dict[str, None] = dict.fromkeys(internals.not_known())

    @property
    def _active(self) -> tuple[Tape, ...]:
        """The tapes that record in this thread: each replica has its own."""
        return self._recording.get(threading.get_ident(), ())

    @_active.setter
    def _active(self, tapes: tuple[Tape, ...]) -> None:
        if tapes:
            self._recording[threading.get_ident()] = tapes
        else:
            self._recording.pop(threading.get_ident(), None)

    # -------------------------------------------------------------------------------------------- operations

    def operation(
        self,
        kind: str | bytes,
        inputs: Sequence[Any],
        attrs: tuple[Any, ...],
        outputs: Sequence[Any],
        op_name: str | None = None,
        graph: tf.Graph | None = None,
    ) -> None:
        """An operation ran eagerly, or was added to a graph; called by TensorFlow."""
        try:
            # Where TensorFlow falls back from its fast path, the kind comes in bytes.
            self._operation(tf.compat.as_str(kind), inputs, attrs, outputs, op_name, graph)
        except Exception as error:  # It would look like an error of the user's operation.
            self.lost[f"{kind!r} was not recorded ({type(error).__name__}: {error})"] = None

    def _operation(
        self,
        kind: str,
        inputs: Sequence[Any],
        attrs: tuple[Any, ...],
        outputs: Sequence[Any],
        op_name: str | None,
        graph: tf.Graph,
    ) -> None:
        tapes = () if not self._active or is_stopped() else self._active
        if graph is not None:
            if tapes and op_name is not None:
                self._notes.setdefault(graph, {})[op_name] = tapes
            return
        if kind == MAKES:  # Its sizes are known when it is read.
            creation = Event(Kind.VARIABLE, "Variable", here(), (), (shape_of(outputs[0]),))
            self.variables[identity_of(outputs[0])] = None, Value(creation, 0)
            return
        if any(identity_of(x) not in self._values for x in inputs):
            self._read_within(kind, inputs, tapes)
        values = [self.value_of(x) for x in inputs]
        if kind in ASSIGNS:
            self._write(kind, values, inputs)
            return
        if kind in READS:
            written = self._assigned.get(identity_of(inputs[0]))
            if written is not None:
                values.append(written)
        graph = self._functions.get(kind)
        if graph is not None:  # TensorFlow stops recording for the call, and records it as one afterwards.
            tapes = self._active
        event = Event(
            Kind.OPERATION if graph is None else Kind.CALL,
            kind,
            here(),
            tuple(values),
            tuple([shape_of(y) for y in outputs]),
            tapes,
            attrs,
        )
        event.graph, event.scope = graph, internals.scope()
        self._note(event, outputs)
        if self.look is not None:
            self.look(event, inputs, outputs)

    def _read_within(self, kind: str, inputs: Sequence[Any], tapes: tuple[Tape, ...]) -> None:
        """Note the variables that TensorFlow read within an operation, for which nothing calls back.

        What the operation's function was called with are variables then, in the order of the inputs.
        """
        frame = sys._getframe(_CALLERS)
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        arguments = tf.nest.flatten([frame.f_locals.get(name) for name in names])
        for x, argument in zip(inputs, arguments, strict=False):
            if identity_of(x) in self._values or not hasattr(argument, "handle") or argument.dtype != x.dtype:
                continue
            self.accessed(argument)
            variable = self.variable(argument)
            written = self._assigned.get(identity_of(argument.handle))
            values = (variable,) if written is None else (variable, written)
            event_kind = Kind.READ if kind == "StopGradient" else Kind.OPERATION
            event = Event(event_kind, "ReadVariableOp", here(), values, (shape_of(x),), tapes)
            self._note(event, [x])

    def _write(self, kind: str, values: list[Value], inputs: Sequence[Any]) -> None:
        """Note what was written into a variable, for as long as the tapes are open that were open then.

        A variable's first value is written while recording is stopped.
        """
        event = Event(
            Kind.ASSIGNED, kind, here(), tuple(values[1:]), (values[1].event.results[values[1].number],)
        )
        key = identity_of(inputs[0])
        if self._active:
            self._assigned[key] = Value(event, 0)
        else:
            self._assigned.pop(key, None)
        if self.look is not None:
            self.look(event, inputs, ())

    def _note(self, event: Event, outputs: Sequence[Any]) -> None:
        values = self._values
        for i, y in enumerate(outputs):
            values[identity_of(y)] = weakref.ref(y), Value(event, i)
        if len(values) > self._limit:
            self._sweep()

    def _sweep(self) -> None:
        """Drop the values whose tensors have been freed, and variables that are gone."""
        self.variables = {
            key: entry for key, entry in self.variables.items() if entry[0] is None or entry[0]() is not None
        }
        self._values = {key: entry for key, entry in self._values.items() if entry[0]() is not None}
        self._limit = max(_FEWEST, 2 * len(self._values))

    def value_of(self, tensor: tf.Tensor) -> Value:
        """The value of a tensor that is no graph's, or of a handle; a new one if nothing made it."""
        key = identity_of(tensor)
        entry = self._values.get(key) or self.variables.get(key)
        if entry is not None:
            return entry[1]
        is_handle = tensor.dtype == tf.resource
        kind = Kind.VARIABLE if is_handle else Kind.CONSTANT
        about = internals.attributes_of(tensor) if is_handle else {}
        sizes = sizes_of(about["dtype"], about["shape"]) if about else shape_of(tensor)
        value = Value(Event(kind, "Variable" if is_handle else "Const", None, (), (sizes,)), 0)
        if is_handle:
            self.variables[key] = None, value
        else:
            self._values[key] = weakref.ref(tensor), value
        return value

    def watched_tensors(self) -> list[tuple[Any, Value]]:
        """The tensors that tapes were told to watch, as far as they are alive."""
        watched = {key for tape in self._tapes.values() for key in tape.watched}
        entries = [self._values[key] for key in sorted(watched) if key in self._values]
        return [(ref(), value) for ref, value in entries]

    def living(self) -> list[Value]:
        """The values whose tensors are alive."""
        return [value for ref, value in self._values.values() if ref() is not None]

    def forget(self) -> None:
        """Forget the values and tapes of what has ended, as far as no question can be about them any more."""
        self._values.clear()
        self._assigned.clear()
        self._recording.clear()
        self.departures.clear()

    def events(self) -> list[Event]:
        """The events that are known still, in order."""
        return above([value for _, value in self._values.values()])

    def knows(self, tensor: tf.Tensor) -> bool:
        """Whether something that was recorded made a tensor, or it was recorded in a graph."""
        if isinstance(tensor, internals.EagerTensor):
            entry = self._values.get(identity_of(tensor))
            return entry is not None and entry[1].event.kind is not Kind.CONSTANT
        return tensor.graph in self._notes

    def tapes_at(self, graph: tf.Graph, operation: str) -> tuple[Tape, ...]:
        """The tapes that recorded an operation of a graph when it was made."""
        return self._notes.get(graph, {}).get(operation, ())

    def called(self, function: Any) -> None:
        """A function of TensorFlow is called."""
        if function.name.decode() not in self._functions:
            self._functions[function.name.decode()] = function.graph

    def recorded(
        self, name: str, outputs: Sequence[Any], inputs: Sequence[Any], backward: Backward
    ) -> Backward:
        """Something with a gradient function of its own is recorded; what to take for that function."""
        eager = internals.EagerTensor
        if not all(isinstance(x, eager) for x in (*outputs, *inputs)):
            for y in outputs:  # A graph has it as an operation: a call, which TensorFlow records afterwards.
                if not isinstance(y, eager) and y.op.type in CALLS:
                    self._notes.setdefault(y.graph, {})[y.op.name] = () if is_stopped() else self._active
            return backward
        first = self._values.get(identity_of(outputs[0])) if outputs else None
        event = Event(
            Kind.CUSTOM,
            name,
            here() if first is None else first[1].event.place,
            tuple([self.value_of(x) for x in inputs]),
            tuple([shape_of(y) for y in outputs]),
            () if is_stopped() else self._active,
        )
        if first is not None and first[1].event.kind is Kind.CALL:
            # A function is called while nothing is recorded, and recorded afterwards.
            event.beside = called = first[1].event
            called.tapes = event.tapes
            event.inputs = tuple([Value(called, i) for i in range(len(outputs))])
        else:
            closed = self._closed_over(event, outputs)
            event.inputs, event.closes = (*event.inputs, *closed), len(closed)
        self._note(event, outputs)

        @functools.wraps(backward)
        def observed(*gradients: object) -> Any:
            input_gradients = backward(*gradients)
            is_list = isinstance(input_gradients, (list, tuple))
            listed = input_gradients if is_list else [input_gradients]
            event.passes = [gradient is not None for gradient in listed]
            return input_gradients

        return observed

    def _closed_over(self, event: Event, outputs: Sequence[Any]) -> list[Value]:
        """What results were made of beside what a custom gradient was given, as far as it has gradients."""
        entries = [self._values.get(identity_of(y)) for y in outputs]
        results = [entry[1] for entry in entries if entry is not None]
        arguments = {alias for value in event.inputs for alias in _aliases(value)}
        closed = closed_over(results, arguments, lambda value: value.event.inputs)
        return [value for value in closed if has_gradients(value.event.results[value.number][0])]

    # -------------------------------------------------------------------------------------------- variables

    def accessed(self, variable: tf.Variable) -> None:
        """A variable is read. What replicas have copies of is one variable."""
        first, *others = internals.copies_of(variable)
        handle = first.handle
        if not isinstance(handle, internals.EagerTensor):
            return
        key = identity_of(handle)
        entry = self.variables.get(key)
        if entry is None or entry[0] is None:
            value = entry[1] if entry is not None else self.value_of(handle)
            value.event.call = name_of(variable)
            value.event.results = (sizes_of(tf.as_dtype(variable.dtype), tf.TensorShape(variable.shape)),)
            own = variable if first is keras.plain(variable) else first
            self.variables[key] = weakref.ref(own), value
            self.variables.update({identity_of(copy.handle): (None, value) for copy in others})
            if self.meet is not None:
                self.meet(variable)

    def variable(self, variable: tf.Variable) -> Value:
        """The value of a variable."""
        self.accessed(variable)
        return self.variables[identity_of(internals.copies_of(variable)[0].handle)][1]

    # ------------------------------------------------------------------------------------------------ tapes

    def pushed(self, tape: tf.GradientTape, place: RawLocation | None) -> None:
        """A tape begins to record, for the first time, again after a pause, or anew."""
        record = self._tapes.get(tape)
        if record is None:
            record = self._tapes[tape] = Tape(place, internals.reads_variables(tape))
        elif record.closed:
            record.pauses.append((record.closed, now(), place))
            record.closed = 0
        self._active = (*self._active, record)

    def popped(self, tape: tf.GradientTape) -> None:
        """A tape ceases to record."""
        record = self._tapes.get(tape)
        if record is not None:
            record.closed = now()
            self._active = tuple([active for active in self._active if active is not record])
        if not self._recording:
            self._assigned.clear()

    def reset(self, tape: tf.GradientTape) -> None:
        """A tape forgets what it recorded."""
        self._tapes.pop(tape, None)

    def watches(self, tape: tf.GradientTape, tensors: Sequence[tf.Tensor]) -> None:
        """A tape is told to watch tensors and variables."""
        record = self._tapes.get(tape)
        if record is None:
            return
        for x in tensors:
            if hasattr(x, "handle"):
                self.accessed(x)
                x = x.handle
            record.watched.setdefault(identity_of(x), now())
            if isinstance(x, internals.EagerTensor):
                self._begin_at(x, record)

    def _begin_at(self, tensor: tf.Tensor, tape: Tape) -> None:
        """What a tape watches is where its paths begin, even if something made it that it did not record."""
        value = self.value_of(tensor)
        if value.event.kind in (Kind.OPERATION, Kind.CALL, Kind.CUSTOM) and tape not in value.event.tapes:
            sizes = (value.event.results[value.number],)
            self._note(Event(Kind.CUSTOM, "tape.watch", here(), (value,), sizes, (tape,)), [tensor])

    def tape_with(self, inner: object) -> Tape | None:
        """The tape whose own record is *inner*."""
        for tape, record in self._tapes.items():
            if internals.record_of(tape) is inner:
                return record
        return None

    # -------------------------------------------------------------------------------- gradients, and leaving

    def asked(
        self,
        kind: str,
        targets: Sequence[Any],
        sources: Sequence[Any],
        raw: Sequence[Any],
        gradients: Sequence[tf.Tensor | None],
        zeros: bool,
        tape: Tape | None,
        place: RawLocation | None,
    ) -> Asking:
        """A gradient was asked for."""
        records = []
        for i, (source, x, gradient) in enumerate(zip(sources, raw, gradients, strict=True)):
            if hasattr(x, "handle"):
                self.accessed(x)
            name = name_of(x) if hasattr(x, "handle") else f"sources[{i}]"
            if name in ("Variable", f"sources[{i}]"):  # It has no name of its own.
                name = called_by_user(x) or name
            is_frozen = not getattr(x, "trainable", True)
            has_gradient = None if zeros else gradient is not None
            variable = x if hasattr(x, "handle") else None
            records.append(Source(name, self.place_in_record(source), has_gradient, is_frozen, variable))
        losses = tuple([self.place_in_record(target) for target in targets])
        asking = Asking(kind, losses, tuple(records), place, tape)
        if self.measures:
            asking.sizes = magnitudes_of(raw, gradients)
        if self.arrived is not None:
            self.arrived(raw, gradients)
        self.askings.append(asking)
        return asking

    def place_in_record(self, tensor: tf.Tensor) -> Value | Symbol:
        """What stands for a tensor."""
        if isinstance(tensor, internals.EagerTensor):
            return self.value_of(tensor)
        return Symbol(tensor.graph, tensor.op.name, tensor.value_index)

    def refused(self, tensor: tf.Tensor) -> None:
        """A traced tensor is asked for its number, which it does not have."""
        self.refusal = of_operation(tensor.op) if isinstance(tensor, tf.Tensor) else None

    def departed(self, tensor: tf.Tensor, call: str) -> None:
        """A tensor's value is taken for Python."""
        entry = self._values.get(identity_of(tensor))
        if entry is None or entry[1].event.kind is Kind.CONSTANT:
            return
        place = here()
        if place is not None:
            self.departures[place] = Departure(entry[1], call, place, now())


def _aliases(value: Value) -> list[Value]:
    """What an argument is known as: also before a tape watched it, and the variable it was read from."""
    aliases = [value]
    while aliases[-1].event.call == "tape.watch":
        aliases.append(aliases[-1].event.inputs[0])
    return aliases + [x for x in aliases[-1].event.inputs if x.event.kind is Kind.VARIABLE]


def name_of(variable: tf.Variable) -> str:
    """The name of a variable, for Keras its path."""
    return str(getattr(variable, "path", variable.name)).removesuffix(":0")


def shape_of(tensor: tf.Tensor) -> Shape:
    """The dtype's name and the sizes of a tensor."""
    return sizes_of(tensor.dtype, tensor.shape)


def sizes_of(dtype: tf.DType, shape: tf.TensorShape) -> Shape:
    """The dtype's name, and the sizes if all are known."""
    if not shape.is_fully_defined():
        return (dtype.name,)
    return (dtype.name, *shape.as_list())
