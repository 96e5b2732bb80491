"""``trace_nan``: which line of live TensorFlow code makes the first NaN or infinity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from stopgrad.base.source import decode
from stopgrad.flow.nans.nan_trace import NanInput, NanSite, NanTrace
from stopgrad.graph.graph import Operation
from stopgrad.graph.public import call, guarded
from stopgrad.interop.tensorflow.asking import arguments_of, variables_of
from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.making import Maker
from stopgrad.interop.tensorflow.recording.names import spelled
from stopgrad.interop.tensorflow.recording.passing import Answer
from stopgrad.interop.tensorflow.recording.record import Event, above
from stopgrad.interop.tensorflow.recording.recorder import Recorder
from stopgrad.interop.tensorflow.watching import Watch, losses_in

_GRADIENT = "the gradient of "
MOST = 50
"""The most operations that make NaNs or infinities of which all is kept."""


@dataclass(frozen=True, eq=False)
class _Made:
    """An operation that made a NaN or infinity of finite operands.

    Attributes:
        event: the operation.
        result: its result.
        operands: what it took.
        forward: for one of a gradient, the operation that is differentiated, and the gradients it got.
    """

    event: Event
    result: Any
    operands: list[Any]
    forward: tuple[str, Event | None, list[Any]] | None


class _Looking:
    """Looks at the values of operations as they run."""

    def __init__(self, recorder: Recorder) -> None:
        self.made: list[_Made] = []
        self.ran = 0
        self._recorder = recorder
        self._inside: list[tuple[str, Any, list[Any]]] = []

    def looked(self, event: Event, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """An operation has run."""
        self.ran += 1
        for y in outputs:
            if len(self.made) < MOST and _is_bad(y):
                operands = [_array(x) for x in inputs]
                if all(_is_finite(x) for x in operands):
                    self.made.append(_Made(event, _array(y), operands, self._forward()))
                return

    def differentiating(self, lookup: Callable[[str], Any]) -> Callable[[str], Any]:
        """In place of the search for a gradient function: while it runs, its operation is known."""

        def found(name: str) -> Any:
            function = lookup(name)
            if function is None:
                return None

            def gradient(op: Any, *gradients: Any) -> Any:
                self._inside.append((name, op, list(gradients)))
                try:
                    return function(op, *gradients)
                finally:
                    self._inside.pop()

            return gradient

        return found

    def _forward(self) -> tuple[str, Event | None, list[Any]] | None:
        """The operation whose gradient is computed now."""
        if not self._inside:
            return None
        name, op, gradients = self._inside[-1]
        taken = (
            *(op.outputs or ()),
            *(op.inputs or ()),
        )  # What has no use is dropped.
        tensors = [x for x in taken if isinstance(x, internals.EagerTensor)]
        known = [self._recorder.value_of(x) for x in tensors]
        events = [value.event for value in known if value.event.call == name]
        if not events:
            events = [
                one for one in self._recorder.events() if one.call == name and set(known) & {*one.inputs}
            ]
        return name, events[-1] if events else None, [_array(g) for g in gradients if g is not None]


@guarded("trace_nan")
def trace_nan(f: Callable[..., Any], *args: Any, gradient: bool = True, **kwargs: Any) -> NanTrace:
    """Find the operation that makes the first NaN or infinity in what a function returns, or in its gradient.

    The function runs once, eagerly, also what ``tf.function`` compiles; TensorFlow's tape differentiates it.

    Args:
        f: a function that returns a tensor or a structure with tensors.
        args, kwargs: its arguments. The gradient is with respect to the trainable variables that are read,
            and to the tensors of floating-point numbers among the arguments.
        gradient: whether the gradient is looked at, too.

    Returns:
        A :class:`stopgrad.flow.nans.nan_trace.NanTrace`, which is true if a NaN or infinity arrives.

    Raises:
        ArgumentError: the function returns no tensor.

    Examples:
        >>> import tensorflow as tf
        >>> import stopgrad.tensorflow as sgtf
        >>> print(sgtf.trace_nan(lambda x: tf.reduce_sum(tf.sqrt(x)), tf.constant([0.0, 4.0])))
        infinity: made in the gradient, by tf.raw_ops.SqrtGrad...
    """
    given = arguments_of(f, args, kwargs)
    was_eager = bool(tf.config.functions_run_eagerly())
    seen = Watch()
    recorder = seen._recorder
    looking = _Looking(recorder)
    recorder.look = looking.looked
    try:
        tf.config.run_functions_eagerly(True)
        with seen, tf.GradientTape(persistent=True) as tape:
            tape.watch(list(given.values()))
            losses = losses_in("trace_nan", call(f, *args, **kwargs))
        sources = {**variables_of(recorder), **given}
        with seen, internals.looked_up(looking.differentiating):
            gradients = tape.gradient(losses, list(sources.values())) if gradient else [None] * len(sources)
    finally:
        tf.config.run_functions_eagerly(was_eager)
    results = {"the result" if len(losses) == 1 else f"result {i}": y for i, y in enumerate(losses)}
    results |= {f"{_GRADIENT}{name}": g for name, g in zip(sources, gradients, strict=True) if g is not None}
    return _report(recorder, looking, {name: y for name, y in results.items() if _is_bad(y)}, given)


def _report(recorder: Recorder, looking: _Looking, bad: dict[str, Any], given: dict[str, Any]) -> NanTrace:
    """The report on what was seen, and which results it reaches."""
    arriving: dict[_Made, None] = {}
    for name, y in bad.items():
        value = recorder.value_of(getattr(y, "values", y))
        led = set(above([value]))
        reached = [one for one in looking.made if one.event in led]
        # What a gradient makes of finite values is its own; the forward's values may have been discarded.
        own = [one for one in reached if one.forward is not None] if name.startswith(_GRADIENT) else []
        arriving |= dict.fromkeys(own or reached)
    make = Maker()
    held = [_held(make, name, x) for name, x in given.items() if bad and _is_bad(x)]
    found = [*held, *[_site(make, one) for one in arriving]]
    harmless = len(looking.made) - len(arriving)
    first = found[0] if found else None
    return NanTrace(first, (), tuple(found[1:]), tuple(bad), harmless, (), looking.ran)


def _site(make: Maker, one: _Made) -> NanSite:
    """What is said of an operation."""
    index, kind, count = _first_bad(one.result)
    place = one.event.place if one.forward is None or one.forward[1] is None else one.forward[1].place
    location = None if place is None else decode(place)
    op = _mark(make, one.event)
    origin = None if one.forward is None or one.forward[1] is None else _mark(make, one.forward[1])
    return NanSite(
        operation=op,
        name=spelled(one.event.call),
        where="forward" if one.forward is None else "gradient",
        kind=kind,
        index=index,
        count=count,
        inputs=tuple([_input(i, x, index) for i, x in enumerate(one.operands)]),
        location=location,
        origin=origin,
        origin_name=None if one.forward is None else spelled(one.forward[0]),
        origin_location=location if origin is not None else None,
        order=0 if one.forward is None else 1,
        iteration=None,
        around=(),
        cure=_cure(one, index),
    )


def _held(make: Maker, name: str, x: Any) -> NanSite:
    """What is said of an argument that holds a NaN or infinity itself."""
    index, kind, count = _first_bad(_array(x))
    op = make.leaf((x.dtype.name, *x.shape), name).op
    return NanSite(
        op, name, "forward", kind, index, count, (), None, None, None, None, 0, None, (), source="argument"
    )


def _mark(make: Maker, event: Event) -> Operation:
    """An operation that stands for an event."""
    inputs = [make.leaf(value.event.results[value.number]) for value in event.inputs]
    results = event.results or (("float32",),)
    return make.operation(event.call, inputs, results, Answer(()), event.place)[0].op


def _input(i: int, x: Any, index: tuple[int, ...]) -> NanInput:
    real = np.abs(x) if np.iscomplexobj(x) else x
    numbers = np.issubdtype(real.dtype, np.number)
    kept = real[~np.isnan(real)] if numbers and real.size else real[:0] if real.ndim else real
    least, most = (float(kept.min()), float(kept.max())) if numbers and kept.size else (None, None)
    here = float(real[index]) if numbers and len(index) == real.ndim and _within(index, real.shape) else None
    return NanInput(f"x{i}", "", str(x.dtype), x.shape, least, most, False, False, here)


def _within(index: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return all(i < n for i, n in zip(index, shape, strict=True))


CURES = {
    "Sqrt": "the derivative of sqrt is infinite at 0: sqrt(x + 1e-12), or guard x by tf.where before it",
    "Rsqrt": "keep the argument away from 0: tf.math.rsqrt(x + 1e-12)",
    "Log": "keep the argument away from 0: tf.math.log(x + 1e-12), or a loss that takes logits",
    "Log1p": "keep the argument above -1",
    "RealDiv": "tf.math.divide_no_nan, or a small number added to the divisor",
    "Div": "tf.math.divide_no_nan, or a small number added to the divisor",
    "Reciprocal": "tf.math.reciprocal_no_nan, or a small number added",
    "Pow": "the derivative of x**p is infinite at 0 for p < 1: keep x away from 0",
    "Exp": "subtract the maximum first, or use tf.nn.softmax, tf.math.reduce_logsumexp, tf.nn.softplus",
    "Acos": "clip the argument inside of -1 and 1: the derivative is infinite there",
    "Asin": "clip the argument inside of -1 and 1: the derivative is infinite there",
}
"""What helps against what kinds of operations make."""
UNUSED = (
    "the result is not used there, its gradient is 0, and 0 times infinity is NaN: put a harmless argument "
    "in place of the bad one before the operation, tf.where(ok, x, 1.0), not only behind it"
)


def _cure(one: _Made, index: tuple[int, ...]) -> str | None:
    kind = one.event.call if one.forward is None else one.forward[0]
    if one.forward is not None:
        for g in one.forward[2]:
            if g.ndim == len(index) and _within(index, g.shape) and g[index] == 0:
                return UNUSED
    return CURES.get(kind)


def _first_bad(x: Any) -> tuple[tuple[int, ...], str, int]:
    """The index of the first NaN or infinity, which of both it is, and how many there are."""
    bad = ~np.isfinite(x)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), x.shape)) if x.ndim else ()
    return index, "nan" if np.isnan(x[index]) else "inf", int(bad.sum())


def _array(x: Any) -> Any:
    """The values of a tensor; of one that holds none, such as a variable's handle, an empty array."""
    if x is None or x.dtype in (tf.resource, tf.variant, tf.string):
        return np.zeros(0, np.float32)
    whole = np.asarray(tf.convert_to_tensor(x))
    return whole if whole.dtype.kind in "fciub" else whole.astype(np.float32)  # bfloat16 and smaller.


def _is_finite(x: Any) -> bool:
    return x.dtype.kind not in "fc" or bool(np.all(np.isfinite(x)))


def _is_bad(x: Any) -> bool:
    """Whether a tensor holds a NaN or infinity."""
    values = getattr(x, "values", x)
    return (values.dtype.is_floating or values.dtype.is_complex) and not _is_finite(_array(values))
