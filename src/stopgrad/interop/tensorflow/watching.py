"""Watches live TensorFlow code: which gradients pass, and at which lines they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from stopgrad.base.errors import ArgumentError, GraphError
from stopgrad.base.garbage import without_gc
from stopgrad.base.source import Location, decode
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.magnitude import Magnitude
from stopgrad.flow.patterns import matching
from stopgrad.graph.public import guarded
from stopgrad.interop.shared import keras
from stopgrad.interop.shared.lifetimes import Lifetime
from stopgrad.interop.shared.watching import WatchBlock
from stopgrad.interop.tensorflow.recording import switches
from stopgrad.interop.tensorflow.recording.graphs import Subject, report_of
from stopgrad.interop.tensorflow.recording.passing import FLAT
from stopgrad.interop.tensorflow.recording.record import Asking, Event, Kind, Symbol, Tape, Value
from stopgrad.interop.tensorflow.recording.recorder import Recorder, name_of

Asked: TypeAlias = Any
"""A Keras model, a ``tf.Module``, variables, tensors; or dicts and lists of these."""
Names: TypeAlias = str | Sequence[str] | set[str] | frozenset[str]

RECORDERS: deque[Recorder] = deque(maxlen=8)
"""The recorders of the latest watches; a loss finds its own among them. They hold no tensor."""


class GradientCall:
    """A gradient that was asked for: of ``tape.gradient``, ``tape.jacobian`` or ``tf.gradients``.

    Attributes:
        kind: ``"tape.gradient"`` or ``"tf.gradients"``.
    """

    kind: str

    def __init__(self, recorder: Recorder, asking: Asking) -> None:
        self.kind = asking.kind
        self._recorder, self._asking = recorder, asking

    @property
    def location(self) -> Location | None:
        """The line that called it."""
        return None if self._asking.place is None else decode(self._asking.place)

    @property
    def given(self) -> dict[str, bool | None]:
        """By the names of sources, whether TensorFlow gave a gradient; None where it gave zeros for none."""
        return {key: source.some for key, source in named_sources(self._asking).items()}

    def explain(self, xs: Asked | None = None, *, only: Names | None = None) -> Flow:
        """Whether gradients of the call's target arrive, and if not, which lines end them.

        Args:
            xs: as for :meth:`Watch.explain`; unless given, the sources of the call.
            only: a pattern, or patterns, of names.
        """
        recorder, asking = self._recorder, self._asking
        asked = xs is not None
        subjects = subjects_of("explain", recorder, xs) if asked else subjects_asked(asking)
        return explained("explain", recorder, asking.losses, subjects, only, asking)

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.location}>"


class Watch(WatchBlock):
    """What :func:`watch` returns: a context manager, and afterwards what it saw."""

    maker = "sgtf.watch()"

    def __init__(self, measures: bool = False) -> None:
        super().__init__()
        self._recorder = Recorder()
        self._recorder.measures = measures

    def _start_recording(self, lifetime: Lifetime) -> None:
        RECORDERS.append(self._recorder)
        switches.begin(self._recorder, lifetime)

    @property
    def gradient_calls(self) -> Sequence[GradientCall]:
        """The last gradients that were asked for inside, 256 at most, in order."""
        return tuple([GradientCall(self._recorder, asking) for asking in self._recorder.askings])

    @guarded("explain")
    def explain(self, loss: Any, xs: Asked | None = None, *, only: Names | None = None) -> Flow:
        """Whether gradients of a loss made inside arrive, and if not, which lines end them.

        Args:
            loss: a tensor, or a dict or list of tensors, that the watched code made.
            xs: a Keras model, a ``tf.Module``, variables, tensors, or a dict or list of these; unless given,
                every variable that was read, and every tensor that a tape was told to watch.
            only: a pattern, or patterns, of names: ``"encoder/*"``.

        Returns:
            A :class:`stopgrad.flow.flow_report.Flow`, whose keys are names: Keras' paths of weights.

        Raises:
            ArgumentError: what is asked about is no tensor.
            GraphError: the loss was not made inside.
        """
        losses = losses_in("explain", loss)
        return asked_about("explain", self._recorder, losses, xs, only)


def asked_about(
    what: str,
    recorder: Recorder,
    losses: Sequence[Any],
    xs: Asked | None,
    only: Names | None,
) -> Flow:
    """A recorder's report on losses, as the tape that differentiated them has it, or that saw them."""
    for loss in losses:
        if not recorder.knows(loss):
            raise GraphError(
                f"{what}: the loss was not computed inside of this watch; compute it inside "
                "'with sgtf.watch() as seen:'"
            )
    values = tuple([recorder.place_in_record(loss) for loss in losses])
    subjects = _subjects_seen(recorder) if xs is None else subjects_of(what, recorder, xs)
    asking = next((call for call in reversed(recorder.askings) if call.losses == values), None)
    return explained(what, recorder, values, subjects, only, asking)


def explained(
    what: str,
    recorder: Recorder,
    losses: Sequence[Value | Symbol],
    subjects: Mapping[str, Subject],
    only: Names | None,
    asking: Asking | None,
) -> Flow:
    """A report on recorded losses; where TensorFlow gave other gradients than it has, TensorFlow is right."""
    if not subjects:
        raise ArgumentError(f"{what}: nothing was read or watched that a gradient could arrive at")
    if only is not None:
        subjects = {name: subjects[name] for name in matching(f"{what}: only", only, subjects)}
    sizes = None if asking is None else _sizes(asking, subjects)
    tape = asking.tape if asking is not None else _tape_of(losses)
    flow, filled = without_gc(report_of, recorder, losses, subjects, tape, sizes)
    wrong = [] if asking is None else _wrong(flow, subjects, asking, filled)
    if not wrong:
        return flow
    assert asking is not None
    return without_gc(report_of, recorder, [_as_one_operation(asking)], subjects, None, sizes)[0]


def _sizes(asking: Asking, subjects: Mapping[str, Subject]) -> dict[str, Magnitude] | None:
    """How large the gradients of subjects were; None if that was not measured."""
    if asking.sizes is None:
        return None
    size_of = {source.value: size for source, size in zip(asking.sources, asking.sizes, strict=True)}
    sizes = {name: size_of.get(subject.value) for name, subject in subjects.items()}
    return {name: size for name, size in sizes.items() if size is not None}


def _tape_of(losses: Sequence[Value | Symbol]) -> Tape | None:
    """The innermost tape that recorded a loss."""
    for loss in losses:
        if isinstance(loss, Value) and loss.event.tapes:
            return loss.event.tapes[-1]
    return None


def _wrong(flow: Flow, subjects: Mapping[str, Subject], asking: Asking, filled: Collection[str]) -> list[str]:
    """The subjects for which TensorFlow did something else than the report says.

    Zeros that it gives in the place of no gradient, for what went into a branch or loop, are none.
    """
    has_gradient = {source.value: source.some for source in asking.sources}
    wrong = []
    for name, subject in subjects.items():
        arrived = has_gradient.get(subject.value)
        if arrived is not None and arrived is not flow[name].arrives and not subject.held:
            is_flat = any(FLAT in cut.reason for cut in flow[name].cuts)
            if not (arrived and (is_flat or name in filled)):
                wrong.append(name)
    return wrong


def _as_one_operation(asking: Asking) -> Value:
    """The loss of a call, made of its sources in one operation."""
    eager = [source for source in asking.sources if isinstance(source.value, Value)]
    values = [source.value for source in eager if isinstance(source.value, Value)]
    event = Event(Kind.CUSTOM, asking.kind, asking.place, tuple(values), (("float32",),))
    event.passes = [source.some is not False for source in eager]
    return Value(event, 0)


def named_sources(asking: Asking) -> dict[str, Any]:
    """The sources of a call by their names, each once."""
    by_name: dict[str, Any] = {}
    for source in asking.sources:
        name, n = source.name, 1
        while name in by_name and by_name[name].value != source.value:
            n += 1
            name = f"{source.name}_{n}"
        by_name[name] = source
    return by_name


def subjects_asked(asking: Asking) -> dict[str, Subject]:
    """What a gradient was asked for, by name."""
    return {key: Subject(source.value, source.held) for key, source in named_sources(asking).items()}


def _subjects_seen(recorder: Recorder) -> dict[str, Subject]:
    """The trainable variables that were read, and the tensors that tapes were told to watch."""
    subjects: dict[str, Subject] = {}
    for reference, value in recorder.variables.values():
        variable = None if reference is None else reference()
        if variable is not None and variable.trainable:
            subjects[free_name(subjects, name_of(variable))] = Subject(value)
    for tensor, value in recorder.watched_tensors():
        if tensor is not None:
            subjects[free_name(subjects, "watched")] = Subject(value)
    return subjects


def free_name(used: Mapping[str, object], name: str) -> str:
    """A name that is not taken yet."""
    n, free = 1, name
    while free in used:
        n += 1
        free = f"{name}_{n}"
    return free


def subjects_of(what: str, recorder: Recorder, xs: Asked) -> dict[str, Subject]:
    """What is asked about, by name.

    Raises:
        ArgumentError: it is something else.
    """
    subjects: dict[str, Subject] = {}
    for name, x in named_in(what, xs).items():
        if isinstance(x, tf.Tensor):
            subjects[name] = Subject(recorder.place_in_record(x))
        else:  # Keras' is trainable or not whatever TensorFlow's variable in it is.
            subjects[name] = Subject(recorder.variable(x), not x.trainable)
    return subjects


def named_in(what: str, xs: Asked) -> dict[str, Any]:
    """The variables and tensors asked about, by name.

    Raises:
        ArgumentError: there is something else.
    """
    by_name: dict[str, Any] = {}
    stack: list[tuple[str, Any]] = [("", xs)]
    while stack:
        prefix, x = stack.pop()
        if keras.is_variable(x):
            by_name[free_name(by_name, prefix or x.path)] = x
        elif isinstance(x, tf.Variable) or (hasattr(x, "handle") and hasattr(x, "trainable")):
            by_name[free_name(by_name, prefix or name_of(x))] = x
        elif isinstance(x, tf.Tensor):
            by_name[prefix or free_name(by_name, "x")] = x
        else:
            below = _below(what, prefix, x)
            stack.extend(reversed(below))
    return by_name


def _below(what: str, prefix: str, x: Any) -> list[tuple[str, Any]]:
    """The parts of a subject, by name."""
    if isinstance(x, Mapping):
        return [(_joined(prefix, str(key)), part) for key, part in x.items()]
    if keras.is_layer(x):
        return [
            (_joined(prefix, path), weight) for path, weight in keras.by_path(keras.parameters_of(x)).items()
        ]
    if isinstance(x, tf.Module):
        return [(_joined(prefix, name_of(variable)), variable) for variable in x.trainable_variables]
    if isinstance(x, Iterable) and not isinstance(x, (str, bytes)):
        parts = list(x)
        are_named = all(hasattr(part, "name") for part in parts)
        return [("" if are_named else _joined(prefix, str(i)), part) for i, part in enumerate(parts)]
    raise ArgumentError(
        f"{what}: xs are a Keras model or layer, a tf.Module, variables, tensors, or a dict or list of "
        f"these, not {type(x).__name__} {x!r:.60}"
    )


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def losses_in(what: str, loss: Any) -> list[Any]:
    """The tensors that are differentiated.

    Raises:
        ArgumentError: there are none.
    """
    # Of what replicas return, the first one's: each has a tape of its own, and all do the same.
    parts = [
        x.values[0] if isinstance(x, tf.distribute.DistributedValues) else x for x in tf.nest.flatten(loss)
    ]
    tensors = [x for x in parts if isinstance(x, tf.Tensor)]
    if not tensors:
        raise ArgumentError(
            f"{what}: the loss is a tensor, or a dict or list of tensors, not {type(loss).__name__} "
            f"{loss!r:.60}"
        )
    floats = [x for x in tensors if x.dtype.is_floating or x.dtype.is_complex]
    return floats or tensors


@guarded("watch")
def watch() -> Watch:
    """Watch TensorFlow code: inside, every operation and every tape is recorded with the line that called it.

    Values and gradients are the same as without it. The record keeps no tensor alive.

    Returns:
        A context manager for a :class:`Watch`, whose ``explain`` says afterwards which gradients arrive, and
        whose ``gradient_calls`` do so for each gradient that was asked for inside.

    Examples:
        >>> import tensorflow as tf
        >>> import stopgrad.tensorflow as sgtf
        >>> w = tf.Variable([1.0, 2.0], name="w")
        >>> with sgtf.watch() as seen, tf.GradientTape() as tape:
        ...     loss = tf.reduce_sum(tf.stop_gradient(w) * 2.0)
        >>> seen.explain(loss)["w"].status
        'stopped'
    """
    return Watch()
