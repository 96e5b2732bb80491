"""Follows NaNs and infinities through the operations that run eagerly, those of gradients among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from stopgrad.base.source import RawLocation
from stopgrad.interop.shared.nan_cures import KINDS
from stopgrad.interop.shared.nans import (
    MOST,
    Array,
    Events,
    Forward,
    Made,
    apart,
    first_index,
    first_of,
    is_bad,
    least,
)
from stopgrad.interop.tensorflow.operators.activations import ACTIVATIONS
from stopgrad.interop.tensorflow.operators.elementwise import ELEMENTWISE
from stopgrad.interop.tensorflow.operators.moving import MOVING
from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.internals import identity_of
from stopgrad.interop.tensorflow.recording.operation_names import spelled
from stopgrad.interop.tensorflow.recording.passing import has_gradients
from stopgrad.interop.tensorflow.recording.places import here
from stopgrad.interop.tensorflow.recording.record import Event, Kind, Value, now
from stopgrad.interop.tensorflow.recording.recorder import Recorder

_CHOOSING = frozenset({"Select", "SelectV2"})
_POINTWISE = (frozenset(ELEMENTWISE) | frozenset(ACTIVATIONS)) - {"Softmax", "LogSoftmax"} - _CHOOSING
_MOVES = frozenset(MOVING) | _CHOOSING | {"Identity", "GatherV2", "GatherNd", "ResourceGather"}
"""Operations that move elements, and can be done to marks as well."""
_REDUCING = frozenset({"Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm"})
_CARRYING = frozenset({"Reshape", "Sum", "Identity"})
"""What TensorFlow does to a gradient where operands were broadcast."""
_SHARED = {
    "Div": "div", "EuclideanNorm": "norm", "Inv": "reciprocal", "MatrixInverse": "inverse",
    "MatrixSolve": "solve", "MatrixTriangularSolve": "triangular_solve", "RealDiv": "div",
    "SelfAdjointEigV2": "eigh",
}  # fmt: skip


def kind_of(name: str) -> str:
    """The name that worlds share for an operation."""
    return _SHARED.get(name, name.lower())


class Followed:
    """Looks at the values of operations as they run.

    Attributes:
        events: what was made.
        ran: the number of operations.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.events = Events()
        self.ran = 0
        self._began = 0
        self._recorder = recorder
        self._caller = here()
        self._names: dict[int, tuple[Any, str]] = {}
        self._marks: dict[int, Array | None] = {}
        self._variables: dict[Value, Array | None] = {}
        self._taken: dict[Event, list[Array]] = {}
        self._inside: list[tuple[str, Any]] = []
        self._chosen: dict[int, RawLocation] = {}
        self._made_forwards: set[Any] = set()

    def held(self, tensor: Any, name: str) -> None:
        """An argument, by its name, may hold NaNs and infinities itself."""
        self._names[identity_of(tensor)] = tensor, name

    @property
    def differentiates(self) -> bool:
        """Whether what runs now is a gradient."""
        return self._began > 0

    def differentiate(self) -> None:
        """What runs from now on is a gradient."""
        self._began = now()

    # -------------------------------------------------------------------------------------------- marks

    def marks(self, tensor: Any) -> Array | None:
        """The marks of a tensor; None if it is finite, or cannot be looked at."""
        key = identity_of(tensor)
        if key not in self._marks:
            values = numbers(tensor)
            self._marks[key] = self._first_met(tensor, values) if is_bad(values).any() else None
        return self._marks[key]

    def _first_met(self, tensor: Any, values: Array) -> Array | None:
        """The marks of a tensor that no operation made, or the reading of a variable."""
        source, name = "constant", str(values) if values.ndim == 0 else "a tensor made before"
        event = self._recorder.value_of(tensor).event
        if identity_of(tensor) in self._names:
            source, name = "argument", self._names[identity_of(tensor)][1]
        elif event.call == "ReadVariableOp":
            source, name = "parameter", event.inputs[0].event.call
            written = self._variables.get(event.inputs[0])
            if written is not None and written.shape == values.shape:
                return written

        def new(kind: str, mask: Array, parent: int) -> Made:
            index, count = first_index(mask), int(mask.sum())
            return Made((source, name), name, kind, index, count, None, source=source, result=values)

        nothing = np.zeros((), np.int32)
        return self.events.settled(values, nothing, nothing, new)

    # --------------------------------------------------------------------------------------- operations

    def looked(self, event: Event, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """An operation has run."""
        if event.kind is Kind.ASSIGNED:
            self._variables[self._recorder.value_of(inputs[0])] = self.marks(inputs[1])
            return
        self.ran += 1
        if event.call == "ReadVariableOp":
            return
        operands = [(x, self.marks(x)) for x in inputs]
        if not self.differentiates and kind_of(event.call) in KINDS:
            self._taken[event] = [numbers(x) for x in inputs]
        self._choose(event, inputs, outputs)
        for i, y in enumerate(outputs):
            values = numbers(y)
            if is_bad(values).any():
                nans, infs = self._incoming(event, i, inputs, operands, values)
                maker = self._maker(event, inputs, values)
                self._marks[identity_of(y)] = self.events.settled(values, nans, infs, maker)
            else:
                self._marks[identity_of(y)] = None

    def _incoming(
        self,
        event: Event,
        i: int,
        inputs: Sequence[Any],
        operands: Sequence[tuple[Any, Array | None]],
        values: Array,
    ) -> tuple[Array, Array]:
        """The marks of the NaNs and of the infinities that go into the elements of a result."""
        nothing = np.zeros((), np.int32)
        if all(marks is None for _, marks in operands):
            return nothing, nothing
        parts = [(nothing, nothing) if marks is None else apart(numbers(x), marks) for x, marks in operands]
        if event.call in _MOVES:
            moved = [_moved(event, i, inputs, [part[j] for part in parts], values.shape) for j in (0, 1)]
            if moved[0] is not None and moved[1] is not None:
                return moved[0], moved[1]
        if event.call in _POINTWISE:
            return first_of([p[0] for p in parts]), first_of([p[1] for p in parts])
        numbers_met = np.unique(np.concatenate([np.ravel(m) for p in parts for m in p]))
        for _, marks in operands:
            if marks is not None:
                self.events.together(marks, numbers_met)
        if event.call in _REDUCING and len(inputs) > 1:
            axes = tuple(np.ravel(numbers(inputs[1])).tolist())
            of_nans, of_infs = [least(m, axes).reshape(values.shape) for m in parts[0]]
            return of_nans, of_infs
        return first_of([least(p[0]) for p in parts]), first_of([least(p[1]) for p in parts])

    def _maker(self, event: Event, inputs: Sequence[Any], result: Array) -> Callable[..., Made]:
        forward = self._differentiated() if self.differentiates else None
        place = None if self.differentiates and event.place == self._caller else event.place
        key = (place, event.call) if place is not None or forward is None else (forward.key, event.call)
        again = self.differentiates and key in self._made_forwards  # It is computed once more.
        if not self.differentiates:
            self._made_forwards.add(key)

        def new(kind: str, mask: Array, parent: int) -> Made:
            has_room = len(self.events.made) < MOST
            return Made(
                key,
                spelled(event.call),
                kind,
                first_index(mask),
                int(mask.sum()),
                place if place is not None or forward is None else forward.place,
                parent,
                [self._name_of(x) for x in inputs],
                [numbers(x) for x in inputs if x.dtype.is_numeric] if has_room else (),
                result,
                gradient=self.differentiates and not again,
                forward=None if again else forward,
                more=self._choice(inputs) if self.differentiates else event,
            )

        return new

    def _name_of(self, tensor: Any) -> str:
        if identity_of(tensor) in self._names:
            return self._names[identity_of(tensor)][1]
        event = self._recorder.value_of(tensor).event
        return event.inputs[0].event.call if event.call == "ReadVariableOp" else ""

    # ----------------------------------------------------------------------------------------- gradients

    def differentiating(self, lookup: Callable[[str], Any]) -> Callable[[str], Any]:
        """In place of the search for a gradient function: while it runs, its operation is known."""

        def wrapped(name: str) -> Any:
            function = lookup(name)
            if function is None:
                return None

            def gradient(op: tf.Operation, *gradients: Any) -> Any:
                self._inside.append((name, op))
                try:
                    return function(op, *gradients)
                finally:
                    self._inside.pop()

            return gradient

        return wrapped

    def _differentiated(self) -> Forward | None:
        """The operation whose gradient is computed now."""
        if not self._inside:
            return None
        name, op = self._inside[-1]
        related = (*(op.outputs or ()), *(op.inputs or ()))  # What has no use is dropped.
        tensors = [x for x in related if isinstance(x, internals.EagerTensor)]
        values = {self._recorder.value_of(x) for x in tensors}
        makers = {value.event for value in values}
        events = [
            (len(values & {*event.inputs}) + (event in makers), event.serial, event)
            for event in self._recorder.events()
            if event.call == name
            and event.serial < self._began
            and (event in makers or values & {*event.inputs})
        ]
        if not events:
            return Forward((None, name), spelled(name), None)
        event = max(events)[-1]
        return Forward((event.place, name), spelled(name), event.place, self._taken.get(event, ()), event)

    def _choose(self, event: Event, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Note a gradient of which a ``where`` has put 0 in places, and the line of that."""
        place = None
        if self.differentiates and event.call in _CHOOSING:
            forward = self._differentiated()
            place = None if forward is None else forward.place
        elif event.call in _CARRYING:
            place = self._choice(inputs)
        if place is not None:
            self._chosen.update({identity_of(y): place for y in outputs})

    def _choice(self, inputs: Sequence[Any]) -> RawLocation | None:
        """The line of the ``where`` from which one of these comes."""
        places = [self._chosen[identity_of(x)] for x in inputs if identity_of(x) in self._chosen]
        return places[0] if places else None


def numbers(x: Any) -> Array:
    """The values of a tensor; of one that holds none, such as a variable's handle, an empty array."""
    if x.dtype in (tf.resource, tf.variant, tf.string):
        return np.zeros(0, np.float32)
    whole = np.asarray(tf.convert_to_tensor(x))
    return whole if whole.dtype.kind in "fciub" else whole.astype(np.float32)  # bfloat16 and smaller.


def _moved(
    event: Event, i: int, inputs: Sequence[Any], marks: Sequence[Array], shape: tuple[int, ...]
) -> Array | None:
    """Marks moved as an operation moves the elements of its operands; None where it does not take them."""
    operands = [
        tf.constant(np.broadcast_to(operand_marks, tuple(x.shape)), tf.int32)
        if has_gradients(x.dtype.name)
        else x
        for x, operand_marks in zip(inputs, marks, strict=True)
    ]
    try:
        results = internals.executed(event.call, operands, event.attrs, len(event.results))
    except (tf.errors.OpError, TypeError, ValueError):
        return None
    return np.asarray(results[i]).reshape(shape)
