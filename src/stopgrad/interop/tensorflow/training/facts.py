"""What was seen of a training in TensorFlow: the gradients asked for, the optimizers, the variables."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from stopgrad.base.source import RawLocation
from stopgrad.interop.shared import keras
from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.internals import identity_of
from stopgrad.interop.tensorflow.recording.record import Asking
from stopgrad.interop.tensorflow.recording.recorder import name_of
from stopgrad.interop.tensorflow.watching import named_sources

POINTS = 64
"""The most lines at which gradients are asked for that are told apart."""
SAMPLES = 4096
"""The most elements of a variable that are compared."""
NORMS = 512
"""The most norms that are kept of a variable."""


@dataclass(eq=False)
class Gradients:
    """The gradients of one source at one line.

    Attributes:
        some: how often there was one.
        none: how often there was none.
        zero: how often it was seen that all of it was exactly zero.
        seen: how often its values were seen.
        nan: in which call it was first seen not to be finite; 0 if never.
    """

    some: int = 0
    none: int = 0
    zero: int = 0
    seen: int = 0
    nan: int = 0


@dataclass(eq=False)
class Point:
    """A line at which gradients are asked for.

    Attributes:
        asking: the first time.
        calls: how often that was seen.
        of: the gradients, by the names of the sources.
        variables: the variables among the sources by name; the numbers of their handles.
    """

    asking: Asking
    calls: int = 0
    of: dict[str, Gradients] = field(default_factory=dict)
    variables: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Optimizer:
    """An optimizer.

    Attributes:
        ref: the optimizer.
        made_at, stepped_at: the lines at which it was made, and at which it first stepped.
        steps: how often a step was seen, or traced.
        held: the variables that it was given gradients of, by the numbers of their handles.
    """

    ref: Any
    made_at: RawLocation | None = None
    stepped_at: RawLocation | None = None
    steps: int = 0
    held: dict[int, str] = field(default_factory=dict)


@dataclass(eq=False)
class Variable:
    """A variable that gradients were asked for, or that an optimizer was given.

    Attributes:
        ref: the variable.
        name: its name.
        start: some of its elements when it was first met; None as long as they cannot be read.
    """

    ref: Any
    name: str
    start: Any


class Facts:
    """The facts of a training."""

    def __init__(self) -> None:
        self.points: dict[Any, Point] = {}
        self.optimizers: dict[int, Optimizer] = {}
        self.variables: dict[int, Variable] = {}
        self.norms: dict[str, list[tuple[int, float]]] = {}
        self.unknown: dict[str, None] = {}
        self._unread: list[Variable] = []

    def asked(self, asking: Asking, gradients: Sequence[tf.Tensor | None]) -> None:
        """A gradient was asked for."""
        key = asking.place or asking.kind
        point = self.points.get(key)
        if point is None:
            if len(self.points) >= POINTS:
                return
            point = self.points[key] = Point(asking)
        point.calls += 1
        names = {source.value: name for name, source in named_sources(asking).items()}
        for source, gradient in zip(asking.sources, gradients, strict=True):
            name = names[source.value]  # Two may have one name of their own.
            if source.variable is not None:
                point.variables[name] = self.met(source.variable)
            tally = point.of.setdefault(name, Gradients())
            if source.some is not None:
                tally.some += source.some
                tally.none += not source.some
            self._look(name, tally, gradient, point.calls)

    def _look(self, name: str, tally: Gradients, gradient: tf.Tensor | None, call: int) -> None:
        """Look at the values of a gradient, where it has some."""
        values = getattr(gradient, "values", gradient)
        if not isinstance(values, internals.EagerTensor):
            return
        norm = internals.unseen(lambda: float(tf.norm(tf.cast(tf.abs(values), tf.float64))))
        tally.seen += 1
        tally.zero += norm == 0.0
        if not np.isfinite(norm) and not tally.nan:
            tally.nan = call
        norms = self.norms.setdefault(name, [])
        if len(norms) < NORMS:
            norms.append((call, norm))

    def met(self, variable: tf.Variable) -> int:
        """Note a variable; the number of its handle."""
        key = _key_of(variable)
        if key not in self.variables:
            record = Variable(weakref.ref(variable), name_of(variable), self.elements(variable))
            self.variables[key] = record
            if record.start is None:
                self._unread.append(record)
        return key

    def begin(self) -> None:
        """Read the variables that had no values yet, as where they were first met in a trace."""
        for record in self._unread if tf.executing_eagerly() else ():
            variable = record.ref()
            record.start = None if variable is None else self.elements(variable)
        self._unread = [
            record for record in self._unread if record.start is None and record.ref() is not None
        ]

    def elements(self, variable: tf.Variable) -> np.ndarray[Any, Any] | None:
        """Some of the elements of a variable, evenly spread; None if they cannot be read."""
        try:
            first = internals.copies_of(variable)[0]
            whole = internals.unseen(lambda: np.ravel(np.asarray(tf.convert_to_tensor(first))))
        except Exception as error:
            self.unknown[f"the values of {name_of(variable)} ({type(error).__name__})"] = None
            return None
        if whole.size != math.prod(variable.shape):  # It has no value yet.
            return None
        return whole[:: max(1, whole.size // SAMPLES)].copy()

    def made(self, optimizer: keras.Optimizer, place: RawLocation | None) -> None:
        """An optimizer was made."""
        self.optimizers[id(optimizer)] = Optimizer(weakref.ref(optimizer), made_at=place)

    def applies(
        self,
        optimizer: keras.Optimizer,
        gradients: Sequence[tf.Tensor | None],
        variables: Sequence[tf.Variable],
        place: RawLocation | None,
    ) -> None:
        """An optimizer is about to step; it leaves out what it gets None for."""
        record = self.optimizers.setdefault(id(optimizer), Optimizer(weakref.ref(optimizer)))
        record.steps += 1
        record.stepped_at = record.stepped_at or place
        for gradient, variable in zip(gradients, variables, strict=False):
            if gradient is not None:
                record.held[self.met(variable)] = name_of(variable)

    def iterations(self) -> list[int]:
        """How often each optimizer has stepped, as it says itself."""
        counts = []
        for record in self.optimizers.values():
            optimizer = record.ref()
            if optimizer is not None and record.steps:
                try:
                    counts.append(int(internals.copies_of(optimizer.iterations)[0]))
                except (AttributeError, TypeError, ValueError):
                    continue
        return counts

    def has_moved(self, key: int) -> bool | None:
        """Whether any element of a variable that is compared has changed; None if that is not known."""
        record = self.variables[key]
        variable = record.ref()
        if variable is None or record.start is None:
            return None
        now = self.elements(variable)
        return None if now is None else not np.array_equal(now, record.start, equal_nan=True)

    def dtype_of(self, key: int) -> str:
        """The name of a variable's dtype; empty if it is gone."""
        variable = self.variables[key].ref()
        return "" if variable is None else str(tf.as_dtype(variable.dtype).name)

    def is_small(self, key: int) -> bool:
        """Whether a variable has 16 bits per element."""
        return self.dtype_of(key) in ("float16", "bfloat16")

    def averages(self, key: int, optimizer: keras.Optimizer) -> list[Any]:
        """Some of the elements of what one of Keras' optimizers keeps beside a variable, such as momentum."""
        own = keras.held_by(optimizer)
        places = [i for i, variable in enumerate(own) if _key_of(variable) == key]
        beside = [slots for slots in vars(optimizer).values() if isinstance(slots, list) and slots is not own]
        averages = []
        for slots in beside:
            if places and len(slots) == len(own) and all(hasattr(slot, "handle") for slot in slots):
                values = None if slots[places[0]] is own[places[0]] else self.elements(slots[places[0]])
                averages += [] if values is None else [values]
        return averages

    def is_finite(self, key: int) -> bool | None:
        """Whether a variable that was finite at first still is; None if that is not known."""
        record = self.variables[key]
        variable = record.ref()
        if variable is None or record.start is None or not np.all(np.isfinite(record.start)):
            return None
        now = self.elements(variable)
        return None if now is None else bool(np.all(np.isfinite(now)))


def _key_of(variable: tf.Variable) -> int:
    """The number of a variable's handle."""
    return identity_of(internals.copies_of(variable)[0].handle)
