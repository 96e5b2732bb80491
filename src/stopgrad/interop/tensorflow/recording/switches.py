"""Who watches in a thread, and what of TensorFlow is changed for it.

TensorFlow's functions are patched once for the process, by wrappers that do nothing while nobody watches in
their thread. What a watch adds, it takes back when its ``with`` statement drops it.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, Protocol, TypeVar

import tensorflow as tf

from stopgrad.base.source import RawLocation
from stopgrad.interop.shared import keras
from stopgrad.interop.shared.lifetimes import Lifetime, at_once
from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.places import here, of_stack
from stopgrad.interop.tensorflow.recording.record import Asking
from stopgrad.interop.tensorflow.recording.recorder import Recorder

Original = Callable[..., object]
R = TypeVar("R")


class _Running(threading.local):
    """The recorders and observers of a thread."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []
        self.observers: list[Observer] = []


class Observer(Protocol):
    """Told what tapes and optimizers do in its thread, whether or not it is recorded.

    Attributes:
        lost: what could not be followed, in sentences.
    """

    lost: dict[str, None]

    def asked(self, asking: Asking, gradients: Sequence[tf.Tensor | None]) -> None:
        """A recorded gradient was asked for."""

    def made(self, optimizer: keras.Optimizer, place: RawLocation | None) -> None:
        """An optimizer was made."""

    def called(self) -> None:
        """A function of TensorFlow's is about to run."""

    def applies(
        self,
        optimizer: keras.Optimizer,
        gradients: Sequence[tf.Tensor | None],
        variables: Sequence[tf.Variable],
        place: RawLocation | None,
    ) -> None:
        """An optimizer is about to step."""

    def applied(self, optimizer: keras.Optimizer) -> None:
        """An optimizer has stepped, or its step was traced."""


Gradients = Sequence["tf.Tensor | None"]
"""Of each source, its gradient, or None."""

_RUNNING = _Running()


def _forget() -> None:
    """A fork of the process watches nothing."""
    _RUNNING.recorders.clear()
    _RUNNING.observers.clear()


os.register_at_fork(after_in_child=_forget)
_PATCHED: set[str] = set()
_LOCK = threading.RLock()


def begin(recorder: Recorder, lifetime: Lifetime) -> None:
    """Let a recorder run in this thread, for as long as *lifetime* lasts."""
    _patch_everything()
    recorders, callbacks, callback = _RUNNING.recorders, internals.callbacks(), _Callback(recorder)
    lifetime.do(functools.partial(recorders.append, recorder), functools.partial(recorders.remove, recorder))
    lifetime.do(functools.partial(callbacks.append, callback), functools.partial(callbacks.remove, callback))


def observe(observer: Observer) -> None:
    """Tell an observer of this thread what tapes and optimizers do, until :func:`observe_no_more`."""
    _patch_everything()
    _RUNNING.observers.append(observer)


def observe_no_more(observer: Observer) -> None:
    """Tell an observer nothing more."""
    if observer in _RUNNING.observers:
        _RUNNING.observers.remove(observer)


def is_eager() -> bool:
    """Whether code runs now, and is not only traced."""
    return bool(tf.executing_eagerly())


def _patch_everything() -> None:
    with _LOCK:
        internals.install_callbacks()
        internals.leave_out_frames(os.path.dirname(__file__))
        _patch(internals.tapes, "_push_tape", _pushing)
        _patch(internals.tapes, "_pop_tape", _popping)
        _patch(internals.tapes, "reset", _resetting)
        _patch(internals.tapes, "watch", _watching)
        _patch(internals.imperative, "imperative_grad", _differentiating)
        _patch(internals.graph_gradients, "_GradientsHelper", _differentiating_graphs)
        _patch(internals.record, "record_operation", _recording)
        _patch(internals.variables, "variable_accessed", _accessing)
        _patch(internals.EagerTensor, "_numpy", _leaving)
        _patch(internals.AtomicFunction, "call_flat", _calling)
        _patch(internals.Tensor, "_disallow", _refusing)
        _patch(internals.Tensor, "__getattr__", _lacking)
        _patch(internals.ReplicaThread, "__init__", _replicating)
        _patch(internals.tapes, "gradient", _explaining)
        _patch(internals.tapes, "jacobian", _explaining)


def patch_keras() -> None:
    """Patch Keras' optimizers, which are there."""
    optimizers = internals.keras_optimizer()
    if optimizers is not None:
        with _LOCK:
            _patch(optimizers, "__init__", _making_optimizers)
            _patch(optimizers, "apply", _stepping)


def patch_legacy_keras() -> None:
    """Patch the optimizers of tf_keras, which are there."""
    base, stepping = internals.legacy_optimizers()
    with _LOCK:
        _patch(base, "__init__", _making_optimizers)
        _patch(stepping, "apply_gradients", _stepping_pairs)


def _patch(
    owner: type | ModuleType, name: str, wrapper: Callable[[Callable[..., R]], Callable[..., R]]
) -> None:
    key = f"{owner.__name__}.{name}"
    if key not in _PATCHED and name in vars(owner):
        wrapped = functools.wraps(vars(owner)[name])(wrapper(vars(owner)[name]))
        at_once([functools.partial(setattr, owner, name, wrapped), functools.partial(_PATCHED.add, key)])


def _recorders() -> Sequence[Recorder]:
    """The recorders of this thread, unless what runs is a question of ours."""
    return () if internals.is_unseen() else _RUNNING.recorders


def _observers() -> Sequence[Observer]:
    return () if internals.is_unseen() else _RUNNING.observers


def _safely(owner: Recorder | Observer, call: Callable[..., Any], *args: object) -> Any:
    """What a recorder or an observer makes of something; where that fails, it is lost, and nothing raises."""
    try:
        return call(*args)
    except Exception as error:  # It would look like an error of the user's.
        owner.lost[f"{call.__name__} was not followed ({type(error).__name__}: {error})"] = None
        return None


def _replicating(make: Original) -> Original:
    """The threads in which a strategy runs its replicas belong to the thread that starts them.

    All replicas do the same, so that observers are told what the first one does.
    """

    def __init__(thread: Any, *args: object, **kwargs: Any) -> None:  # noqa: N807
        make(thread, *args, **kwargs)
        if _RUNNING.recorders or _RUNNING.observers:
            observers = [] if thread.replica_id else _RUNNING.observers
            thread.run = functools.partial(_run_as, _RUNNING.recorders, observers, thread.run)

    return __init__


def _run_as(recorders: list[Recorder], observers: list[Observer], run: Callable[[], None]) -> None:
    _RUNNING.recorders, _RUNNING.observers = recorders, observers
    run()


def _pushing(push: Original) -> Original:
    def _push_tape(tape: tf.GradientTape) -> None:
        for recorder in _recorders():
            _safely(recorder, recorder.pushed, tape, here())
        push(tape)  # An interrupt after it would leave the tape open.

    return _push_tape


def _popping(pop: Original) -> Original:
    def _pop_tape(tape: tf.GradientTape) -> None:
        pop(tape)
        for recorder in _recorders():
            _safely(recorder, recorder.popped, tape)

    return _pop_tape


def _resetting(reset: Original) -> Original:
    def reset_(tape: tf.GradientTape) -> None:
        for recorder in _recorders():
            _safely(recorder, recorder.popped, tape)
            _safely(recorder, recorder.reset, tape)
        reset(tape)

    return reset_


def _watching(watch: Original) -> Original:
    def watch_(tape: tf.GradientTape, tensor: tf.Tensor) -> None:
        watch(tape, tensor)
        for recorder in _recorders():
            _safely(recorder, recorder.watches, tape, tf.nest.flatten(tensor))

    return watch_


def _differentiating(differentiate: Callable[..., Gradients]) -> Callable[..., Gradients]:
    def imperative_grad(
        tape: tf.GradientTape,
        target: Sequence[tf.Tensor],
        sources: Sequence[tf.Tensor],
        output_gradients: Sequence[tf.Tensor | None] | None = None,
        sources_raw: Sequence[tf.Tensor | tf.Variable] | None = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Gradients:
        recorders = list(_recorders())
        tapes = [_safely(recorder, recorder.tape_with, tape) for recorder in recorders]
        gradients = differentiate(tape, target, sources, output_gradients, sources_raw, unconnected_gradients)
        zeros = tf.UnconnectedGradients(unconnected_gradients) is not tf.UnconnectedGradients.NONE
        raw = sources if sources_raw is None or len(sources_raw) != len(sources) else sources_raw
        for recorder, record in zip(recorders, tapes, strict=True):
            _ask(recorder, ("tape.gradient", target, sources, raw, gradients, zeros, record), gradients)
        return gradients

    return imperative_grad


def _ask(recorder: Recorder, args: tuple[Any, ...], gradients: Sequence[Any]) -> None:
    """Tell a recorder that a gradient was asked for, and observers what it made of that."""
    asking = _safely(recorder, recorder.asked, *args, _line())
    for observer in _observers() if asking is not None else ():
        _safely(observer, observer.asked, asking, gradients)


def _explaining(gradient: Original) -> Original:
    """Errors of tapes get their cause as a note."""

    def explained(tape: tf.GradientTape, *args: object, **kwargs: object) -> object:
        try:
            return gradient(tape, *args, **kwargs)
        except Exception as error:
            for recorder in _recorders():
                recorder.explain(recorder, error, _line())
            raise

    return explained


def _refusing(refuse: Original) -> Original:
    """What a traced tensor is no number for has the line that made it as a note."""

    def _disallow(tensor: tf.Tensor, task: str) -> object:
        try:
            return refuse(tensor, task)
        except Exception as error:
            _explain_traced(tensor, error)
            raise

    return _disallow


def _lacking(get: Original) -> Original:
    def __getattr__(tensor: tf.Tensor, name: str) -> object:  # noqa: N807
        try:
            return get(tensor, name)
        except AttributeError as error:
            if name == "numpy":
                _explain_traced(tensor, error)
            raise

    return __getattr__


def _explain_traced(tensor: tf.Tensor, error: Exception) -> None:
    for recorder in _recorders():
        _safely(recorder, recorder.refused, tensor)
        recorder.explain(recorder, error, _line())


def _making_optimizers(make: Original) -> Original:
    def __init__(optimizer: object, *args: object, **kwargs: Any) -> None:  # noqa: N807
        make(optimizer, *args, **kwargs)
        for observer in _observers():
            _safely(observer, observer.made, optimizer, _line())

    return __init__


def _stepping(apply: Original) -> Original:
    def applied(
        optimizer: keras.Optimizer,
        grads: Iterable[tf.Tensor | None],
        trainable_variables: Iterable[tf.Variable] | None = None,
    ) -> object:
        if keras.loaded("tensorflow") is None:  # Keras computes with another framework.
            return apply(optimizer, grads, trainable_variables)
        variables = None if trainable_variables is None else list(trainable_variables)
        grads = list(grads)
        place = _line() if _observers() or _recorders() else None
        for observer in _observers():
            stepped = variables or keras.held_by(optimizer)
            _safely(observer, observer.applies, optimizer, grads, stepped, place)
        try:
            result = apply(optimizer, grads, variables)
        except Exception as error:
            for recorder in _recorders():
                recorder.explain(recorder, error, place)
            raise
        for observer in _observers():
            _safely(observer, observer.applied, optimizer)
        return result

    return applied


def _stepping_pairs(apply: Original) -> Original:
    """As :func:`_stepping`, for optimizers that are given pairs."""

    def apply_gradients(
        optimizer: keras.Optimizer,
        grads_and_vars: Iterable[tuple[tf.Tensor | None, tf.Variable]],
        *args: object,
        **kwargs: object,
    ) -> object:
        pairs = list(grads_and_vars)
        place = _line() if _observers() or _recorders() else None
        for observer in _observers():
            grads, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
            _safely(observer, observer.applies, optimizer, grads, variables, place)
        try:
            result = apply(optimizer, pairs, *args, **kwargs)
        except Exception as error:
            for recorder in _recorders():
                recorder.explain(recorder, error, place)
            raise
        for observer in _observers():
            _safely(observer, observer.applied, optimizer)
        return result

    return apply_gradients


def _differentiating_graphs(differentiate: Callable[..., Gradients]) -> Callable[..., Gradients]:
    def _GradientsHelper(ys: object, xs: object, *args: object, **kwargs: object) -> Gradients:  # noqa: N802
        gradients = differentiate(ys, xs, *args, **kwargs)
        if kwargs.get("src_graph") is None and _recorders():
            targets, sources = tf.nest.flatten(ys), tf.nest.flatten(xs)
            tensors = [getattr(x, "handle", x) for x in sources]
            if all(isinstance(x, tf.Tensor) for x in (*targets, *tensors)):
                for recorder in _recorders():
                    _ask(
                        recorder,
                        ("tf.gradients", targets, tensors, sources, gradients, False, None),
                        gradients,
                    )
        return gradients

    return _GradientsHelper


def _line() -> RawLocation | None:
    """The user's line, also where AutoGraph wrote what runs."""
    return here() or of_stack(internals.stack())


def _recording(record: Original) -> Original:
    def record_operation(
        op_type: str,
        output_tensors: Sequence[tf.Tensor],
        input_tensors: Sequence[tf.Tensor],
        backward_function: Callable[..., object],
        *rest: object,
        **more: object,
    ) -> None:
        for recorder in _recorders():
            args = (op_type, output_tensors, input_tensors, backward_function)
            backward_function = _safely(recorder, recorder.recorded, *args) or backward_function
        record(op_type, output_tensors, input_tensors, backward_function, *rest, **more)

    return record_operation


class _Callback:
    """Shows a recorder the operations that run, until Keras is there also its optimizers."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._record = recorder, recorder.operation

    def __call__(self, *args: Any, **more: Any) -> None:
        if _KERAS not in _PATCHED and internals.KERAS in sys.modules:
            _PATCHED.add(_KERAS)
            patch_keras()
        if self._recorder in _RUNNING.recorders:  # Else this is a fork of the process that watches.
            self._record(*args, **more)


_KERAS = "keras"


def _accessing(access: Original) -> Original:
    def variable_accessed(variable: tf.Variable) -> None:
        for recorder in _recorders():
            _safely(recorder, recorder.accessed, variable)
        access(variable)

    return variable_accessed


def _leaving(convert: Original) -> Original:
    def _numpy(tensor: tf.Tensor) -> object:
        if _recorders():
            method = sys._getframe(1).f_code.co_name  # numpy, __float__, __int__
            call = f"{method.strip('_')}()" if method.startswith("_") else f".{method}()"
            for recorder in _recorders():
                _safely(recorder, recorder.departed, tensor, call)
        return convert(tensor)

    return _numpy


def _calling(call: Original) -> Original:
    def call_flat(function: tf.types.experimental.AtomicFunction, *args: object) -> object:
        for recorder in _recorders():
            _safely(recorder, recorder.called, function)
        for observer in _observers():
            _safely(observer, observer.called)
        return call(function, *args)

    return call_flat
