"""Public functions on live TensorFlow: ``explain``, which asks in one call, and the assertions for tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from stopgrad.base.coercion import flag
from stopgrad.base.errors import ArgumentError, GraphError
from stopgrad.flow.assertions import blocked_or_raise, flows_or_raise, held_or_raise, only_flows_or_raise
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.patterns import matching
from stopgrad.graph.arguments import argument_names
from stopgrad.graph.public import call, guarded
from stopgrad.interop.shared import keras
from stopgrad.interop.tensorflow.recording.recorder import Recorder
from stopgrad.interop.tensorflow.updating import steps_of
from stopgrad.interop.tensorflow.watching import (
    RECORDERS,
    Asked,
    Names,
    Watch,
    asked_about,
    free_name,
    losses_in,
    named_in,
)

__tracebackhide__ = True  # What pytest shows of a failure ends at the line of the test.


@guarded("explain")
def explain(
    f: Callable[..., object],
    *args: object,
    model: Asked | None = None,
    only: Names | None = None,
    magnitudes: bool = False,
    optimizer: keras.Optimizer | None = None,
    **kwargs: object,
) -> Flow:
    """Watch one call of a function under a tape: do gradients arrive, and which lines end them?

    The function runs once, eagerly or as the ``tf.function`` that it is, and TensorFlow's own tape
    differentiates what it returns.

    Args:
        f: a function, or a model, that returns a tensor or a structure with tensors. A compiled model of
            Keras with ``x`` and ``y`` stands for the loss that ``fit`` differentiates.
        args, kwargs: its arguments. The tape watches the tensors of floating-point numbers among them.
        model: what is asked about: a Keras model or layer, a ``tf.Module``, variables, tensors, or a dict or
            list of these. Unless given, the trainable variables that are read, and the tensors among the
            arguments.
        only: a pattern, or patterns, of the names that are asked about.
        magnitudes: whether to tell how large the gradients are.
        optimizer: what updates the variables: an optimizer of Keras, or a compiled model. An update is done,
            and what it changed is put back; the report says which variables it *moves*, and which *without a
            gradient*.

    Returns:
        A :class:`stopgrad.flow.flow_report.Flow`, whose keys are names: paths of Keras' weights, names of
        variables, paths of arguments.

    Raises:
        ArgumentError: *f* returns no tensor, there is nothing to ask about, or a model is not compiled.

    Examples:
        >>> import tensorflow as tf
        >>> import stopgrad.tensorflow as sgtf
        >>> w = tf.Variable([1.0, 2.0], name="w")
        >>> print(sgtf.explain(lambda x: tf.reduce_sum(w * tf.stop_gradient(x)), tf.ones(2)))
        Gradients reach 1 of 2 tensors; 1 stopped.
        <BLANKLINE>
        stopped: x
        ...
    """
    if not callable(f):
        raise ArgumentError(
            f"explain: takes a function and its arguments, not {type(f).__name__}; for a loss that is there "
            "already, compute it inside 'with sgtf.watch() as seen:' and ask seen.explain(loss, model)"
        )
    if keras.is_model(f) and len(args) == 2 and not kwargs:
        loss, network = keras.fit_loss("explain", f), f
        with keras.scope():  # In which the model stays as it was.
            asked = network if model is None else model
            fit = functools.partial(loss, network)
            flow, arrived = differentiated(fit, args, {}, asked, only, magnitudes)
    else:
        flow, arrived = differentiated(f, args, kwargs, model, only, magnitudes)
    return flow if optimizer is None else flow.with_steps(steps_of("explain", optimizer, arrived))


def differentiated(
    f: Callable[..., object],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    model: Asked | None,
    only: Names | None,
    magnitudes: bool,
) -> tuple[Flow, dict[str, tuple[Any, Any]]]:
    """The report on a call; and what was asked about, by name, with the gradient that the tape gives it."""
    arguments = arguments_of(f, args, kwargs)
    with Watch() as watch, tf.GradientTape() as tape:
        tape.watch(list(arguments.values()))
        result = call(f, *args, **kwargs)
    losses = losses_in("explain", result)
    recorder = watch._recorder
    xs = model if model is not None else {**variables_of(recorder), **arguments}
    if model is None and not xs:
        raise ArgumentError(
            "explain: the function reads no trainable variable and has no tensor of floating-point numbers "
            "among its arguments; say with model= what is asked about"
        )
    sources = {**variables_of(recorder), **arguments}
    recorder.measures = flag(magnitudes, "explain: magnitudes")
    with watch:
        gradients = tape.gradient(losses, list(sources.values()))
    flow = asked_about("explain", recorder, losses, xs, only)
    gradient_of = {id(x): g for x, g in zip(sources.values(), gradients, strict=True)}
    asked = {name: x for name, x in named_in("explain", xs).items() if name in flow.xs}
    return flow, {name: (x, gradient_of.get(id(keras.plain(x)))) for name, x in asked.items()}


def variables_of(recorder: Recorder) -> dict[str, Any]:
    """The trainable variables that were read, by name."""
    by_name: dict[str, Any] = {}
    for reference, value in recorder.variables.values():
        variable = None if reference is None else reference()
        if variable is not None and variable.trainable:
            by_name[free_name(by_name, value.event.call)] = variable
    return by_name


def arguments_of(f: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of floating-point numbers among the arguments of a call, by their paths."""
    named = {**dict(zip(argument_names(f, len(args)), args, strict=True)), **kwargs}
    tensors: dict[str, Any] = {}
    stack = list(named.items())[::-1]
    while stack:
        name, x = stack.pop()
        if isinstance(x, tf.Tensor) and (x.dtype.is_floating or x.dtype.is_complex):
            tensors[name] = x
        elif isinstance(x, Mapping):
            stack.extend([(f"{name}.{key}", part) for key, part in x.items()][::-1])
        elif isinstance(x, (list, tuple)):
            stack.extend(reversed([(f"{name}.{i}", part) for i, part in enumerate(x)]))
    return tensors


@guarded("assert_held")
def assert_held(
    f: Callable[..., Any],
    *args: object,
    optimizer: object,
    model: Asked | None = None,
    only: Names | None = None,
    **kwargs: Any,
) -> None:
    """Raise if an update of an optimizer moves any of some variables.

    Args:
        f, args, model, kwargs: as for :func:`explain`.
        optimizer: what updates the variables; what an update changes is put back.
        only: a pattern, or patterns, of the names that must be held; all that are asked about unless given.

    Raises:
        FlowError: some move, by how much, and why, as far as it is known.
        ArgumentError: as for :func:`explain`; the optimizer is none of Keras.

    Examples:
        >>> import keras, tensorflow as tf
        >>> import stopgrad.tensorflow as sgtf
        >>> net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        >>> net.layers[0].trainable = False
        >>> def loss(x):
        ...     return tf.reduce_sum(net(x))
        >>> optimizer = keras.optimizers.AdamW(0.1)
        >>> sgtf.assert_held(loss, tf.ones((3, 2)), model=net.layers[0], optimizer=optimizer)
    """
    flow = explain(f, *args, model=model, optimizer=optimizer, **kwargs)
    keys = list(flow)
    held_or_raise(
        "assert_held", flow, keys if only is None else list(matching("assert_held: only", only, keys))
    )


@guarded("assert_flows")
def assert_flows(loss: object, xs: Asked, only: Names | None = None) -> None:
    """Raise unless gradients of a loss arrive at variables or tensors.

    Args:
        loss: a tensor, or a dict or list of tensors, computed inside of ``sgtf.watch()``.
        xs: a Keras model or layer, a ``tf.Module``, variables, tensors, or a dict or list of these.
        only: a pattern, or patterns, of names: gradients arrive at exactly these, and at no other of xs.

    Raises:
        FlowError: some do not arrive; what ends the paths, and on which lines. With *only*, others do.
        GraphError: no watch saw how the loss was computed.

    Examples:
        >>> import tensorflow as tf
        >>> import stopgrad.tensorflow as sgtf
        >>> w = tf.Variable(2.0)
        >>> with sgtf.watch(), tf.GradientTape():
        ...     loss = w * w
        >>> sgtf.assert_flows(loss, w)
    """
    flow = report_on("assert_flows", loss, xs)
    keys = list(flow)
    if only is None:
        flows_or_raise("assert_flows", flow, keys)
    else:
        names = list(matching("assert_flows: only", only, keys))
        only_flows_or_raise("assert_flows", flow, keys, names)


@guarded("assert_blocked")
def assert_blocked(loss: object, xs: Asked, by: Names | None = None) -> None:
    """Raise if a gradient of a loss arrives at any of some variables or tensors.

    Args:
        loss, xs: as for :func:`assert_flows`.
        by: the line that must end paths to each of them, such as ``"model.py:14"``, or several; any unless
            given.

    Raises:
        FlowError: some do, and on which lines an open path runs; or another line ends them.
        GraphError: no watch saw how the loss was computed.

    Examples:
        >>> import tensorflow as tf
        >>> import stopgrad.tensorflow as sgtf
        >>> w = tf.Variable(2.0)
        >>> with sgtf.watch(), tf.GradientTape():
        ...     loss = tf.stop_gradient(w) * 3.0
        >>> sgtf.assert_blocked(loss, w)
    """
    flow = report_on("assert_blocked", loss, xs)
    blocked_or_raise("assert_blocked", flow, list(flow), by)


def report_on(what: str, loss: object, xs: Asked | None) -> Flow:
    """The report of the watch that saw a loss.

    Raises:
        GraphError: no watch saw how it was computed.
    """
    losses = losses_in(what, loss)
    for recorder in reversed(RECORDERS):
        if all(map(recorder.knows, losses)):
            return asked_about(what, recorder, losses, xs, None)
    raise GraphError(
        f"{what}: no watch saw how this loss was computed: compute it inside 'with sgtf.watch():'"
    )
