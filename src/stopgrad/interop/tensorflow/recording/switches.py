"""Who watches in a thread, and what of TensorFlow is changed for it.

TensorFlow's functions are patched once for the process, by wrappers that do nothing while nobody watches in
their thread. What a watch adds, it takes back when its ``with`` statement drops it.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from stopgrad.interop.shared.lifetimes import Lifetime, at_once
from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.places import here, of_stack
from stopgrad.interop.tensorflow.recording.recorder import Recorder

Original = Callable[..., Any]


class _Running(threading.local):
    """The recorders that run in a thread, and whether they look away."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []


_RUNNING = _Running()
_PATCHED: set[str] = set()
_LOCK = threading.RLock()


def begin(recorder: Recorder, held: Lifetime) -> None:
    """Let a recorder run in this thread, for as long as something is held."""
    _patch_everything()
    recorders, callbacks, callback = _RUNNING.recorders, internals.callbacks(), recorder.operation
    held.do(functools.partial(recorders.append, recorder), functools.partial(recorders.remove, recorder))
    held.do(functools.partial(callbacks.append, callback), functools.partial(callbacks.remove, callback))


def _patch_everything() -> None:
    with _LOCK:
        internals.install_callbacks()
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


def _patch(owner: Any, name: str, wrapper: Callable[[Original], Original]) -> None:
    key = f"{owner.__name__}.{name}"
    if key not in _PATCHED and name in vars(owner):
        made = functools.wraps(vars(owner)[name])(wrapper(vars(owner)[name]))
        at_once([functools.partial(setattr, owner, name, made), functools.partial(_PATCHED.add, key)])


def _pushing(push: Original) -> Original:
    def _push_tape(tape: Any) -> None:
        push(tape)
        for recorder in _RUNNING.recorders:
            recorder.pushed(tape, here())

    return _push_tape


def _popping(pop: Original) -> Original:
    def _pop_tape(tape: Any) -> None:
        pop(tape)
        for recorder in _RUNNING.recorders:
            recorder.popped(tape)

    return _pop_tape


def _resetting(reset: Original) -> Original:
    def reset_(tape: Any) -> None:
        for recorder in _RUNNING.recorders:
            recorder.popped(tape)
            recorder.reset(tape)
        reset(tape)

    return reset_


def _watching(watch: Original) -> Original:
    def watch_(tape: Any, tensor: Any) -> None:
        watch(tape, tensor)
        for recorder in _RUNNING.recorders:
            recorder.watches(tape, tf.nest.flatten(tensor))

    return watch_


def _differentiating(differentiate: Original) -> Original:
    def imperative_grad(
        tape: Any,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        sources_raw: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        recorders = list(_RUNNING.recorders)
        tapes = [recorder.tape_with(tape) for recorder in recorders]
        given = differentiate(tape, target, sources, output_gradients, sources_raw, unconnected_gradients)
        zeros = tf.UnconnectedGradients(unconnected_gradients) is not tf.UnconnectedGradients.NONE
        raw = sources if sources_raw is None or len(sources_raw) != len(sources) else sources_raw
        for recorder, known in zip(recorders, tapes, strict=True):
            recorder.asked("tape.gradient", target, sources, raw, given, zeros, known, _line())
        return given

    return imperative_grad


def _differentiating_graphs(differentiate: Original) -> Original:
    def _GradientsHelper(ys: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802
        given = differentiate(ys, xs, *args, **kwargs)
        if kwargs.get("src_graph") is None and _RUNNING.recorders:
            targets, sources = tf.nest.flatten(ys), tf.nest.flatten(xs)
            tensors = [getattr(x, "handle", x) for x in sources]
            if all(isinstance(x, tf.Tensor) for x in (*targets, *tensors)):
                for recorder in _RUNNING.recorders:
                    recorder.asked("tf.gradients", targets, tensors, sources, given, False, None, _line())
        return given

    return _GradientsHelper


def _line() -> Any:
    """The user's line, also where AutoGraph wrote what runs."""
    return here() or of_stack(internals.stack())


def _recording(record: Original) -> Original:
    def record_operation(
        op_type: Any, output_tensors: Any, input_tensors: Any, backward_function: Any, *rest: Any, **more: Any
    ) -> None:
        for recorder in _RUNNING.recorders:
            backward_function = recorder.recorded(op_type, output_tensors, input_tensors, backward_function)
        record(op_type, output_tensors, input_tensors, backward_function, *rest, **more)

    return record_operation


def _accessing(access: Original) -> Original:
    def variable_accessed(variable: Any) -> None:
        for recorder in _RUNNING.recorders:
            recorder.accessed(variable)
        access(variable)

    return variable_accessed


def _leaving(convert: Original) -> Original:
    def _numpy(tensor: Any) -> Any:
        if _RUNNING.recorders:
            method = sys._getframe(1).f_code.co_name  # numpy, __float__, __int__
            call = f"{method.strip('_')}()" if method.startswith("_") else f".{method}()"
            for recorder in _RUNNING.recorders:
                recorder.departed(tensor, call)
        return convert(tensor)

    return _numpy


def _calling(call: Original) -> Original:
    def call_flat(function: Any, *args: Any) -> Any:
        for recorder in _RUNNING.recorders:
            recorder.called(function)
        return call(function, *args)

    return call_flat
