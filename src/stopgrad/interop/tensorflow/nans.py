"""``trace_nan``: which line of live TensorFlow code makes the first NaN or infinity."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from stopgrad.base.source import decode
from stopgrad.flow.nans.nan_trace import NanTrace
from stopgrad.flow.source_lines import in_short
from stopgrad.graph.public import call, guarded
from stopgrad.interop.shared.nan_cures import UNUSED, choice_says, cure_of, meets_zero, words
from stopgrad.interop.shared.nans import Made, Result, reported
from stopgrad.interop.tensorflow.asking import arguments_of, variables_of
from stopgrad.interop.tensorflow.following import Followed, kind_of
from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.record import Event, Value, above
from stopgrad.interop.tensorflow.watching import Watch, losses_in

WORDS = words(
    "tf",
    log="tf.math.log",
    sum="tf.reduce_sum",
    var="tf.math.reduce_variance",
    bounded="tf.clip_by_value",
    clip="maximum(x, 0.0)",
    logits="tf.nn.sigmoid_cross_entropy_with_logits, from_logits=True",
    softmax="tf.nn.softmax, tf.math.reduce_logsumexp, tf.nn.softplus",
)


@guarded("trace_nan")
def trace_nan(f: Callable[..., object], *args: object, gradient: bool = True, **kwargs: object) -> NanTrace:
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
    arguments = arguments_of(f, args, kwargs)
    was_eager = bool(tf.config.functions_run_eagerly())
    watch = Watch()
    recorder = watch._recorder
    following = Followed(recorder)
    for name, x in arguments.items():
        following.held(x, name)
    recorder.look = following.looked
    try:
        tf.config.run_functions_eagerly(True)
        with watch, tf.GradientTape(persistent=True) as tape:
            tape.watch(list(arguments.values()))
            losses = losses_in("trace_nan", call(f, *args, **kwargs))
        sources = {**variables_of(recorder), **arguments}
        following.differentiate()
        with watch, internals.looked_up(following.differentiating):
            gradients = tape.gradient(losses, list(sources.values())) if gradient else [None] * len(sources)
    finally:
        tf.config.run_functions_eagerly(was_eager)
    single = len(losses) == 1
    results = [
        Result("the result" if single else f"result {i}", following.marks(y), False)
        for i, y in enumerate(losses)
    ]
    results += [
        Result(f"the gradient of {name}", following.marks(getattr(g, "values", g)), True)
        for name, g in zip(sources, gradients, strict=True)
        if g is not None
    ]
    return reported(following.events, results, _cure, following.ran)


# ------------------------------------------------------------------------------------------- cures

_DIVIDE = frozenset({"RealDiv", "Div", "Xdivy"})


def _cure(event: Made) -> tuple[str, str] | None:
    if event.source is not None:
        return None
    kind = kind_of(str((event.key if event.forward is None else event.forward.key)[-1]))
    divides = event.key[-1] in _DIVIDE
    if (
        event.forward is not None
        and kind not in ("selfadjointeig", "svd", "eigh")
        and meets_zero(event, divides)
    ):
        if event.more is not None:
            return "branch not taken", choice_says(kind, f" ({in_short(decode(event.more))})", WORDS)
        return "0 times an infinity", UNUSED.format_map(WORDS)
    return cure_of(event, _written_out(event, kind), WORDS)


_SQUARES = frozenset({"Square", "SquaredDifference"})


def _written_out(event: Made, kind: str) -> str:
    """The kind of an operation; of a root, what it is the last part of: a norm or a standard deviation."""
    if kind != "sqrt" or event.forward is None or event.forward.more is None:
        return kind
    mean = _maker_of(event.forward.more.inputs[0])
    squares = None if mean is None or mean.call not in ("Sum", "Mean") else _maker_of(mean.inputs[0])
    if squares is None or not (squares.call in _SQUARES or (squares.call == "Mul" and _is_square(squares))):
        return kind
    led_to = {event.call for event in above(list(squares.inputs))}
    return "std" if mean is not None and mean.call == "Mean" and {"Mean", "Sub"} & led_to else "norm"


def _maker_of(value: Value) -> Event | None:
    """The operation that made a value, behind what only changes its form."""
    event = value.event
    while event.call in ("Reshape", "Squeeze", "Identity", "tape.watch") and event.inputs:
        event = event.inputs[0].event
    return event if event.inputs else None


def _is_square(event: Event) -> bool:
    a, b = event.inputs[0], event.inputs[1]
    return a == b or any(
        operand.event.call == "Conj" and operand.event.inputs[0] in (a, b) for operand in (a, b)
    )
