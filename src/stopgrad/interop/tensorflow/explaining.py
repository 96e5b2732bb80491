"""Which explanation belongs to which error of TensorFlow's and Keras', and how the exception gets it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import tensorflow as tf

from stopgrad.base.source import RawLocation, decode
from stopgrad.flow.problems.cutting import cutting
from stopgrad.flow.problems.notes import note, problem_of
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.words import some
from stopgrad.interop.tensorflow.recording.places import of_operation
from stopgrad.interop.tensorflow.recording.record import Asking, Value, above
from stopgrad.interop.tensorflow.recording.recorder import Recorder
from stopgrad.interop.tensorflow.watching import explained, named_sources, subjects_asked

Explains = Callable[[Recorder, BaseException, "RawLocation | None"], "Problem | None"]


def explain(recorder: Recorder, error: BaseException, place: RawLocation | None) -> None:
    """Add a note to an error if its cause is known. Whatever fails in here, the error passes on as it was."""
    if problem_of(error) is not None:
        return
    try:
        problem = _cause(recorder, error, place)
        if problem is not None:
            note(error, problem)
    except Exception:  # The user's error is what counts.
        return


def _cause(recorder: Recorder, error: BaseException, place: RawLocation | None) -> Problem | None:
    for pattern, rule in RULES:
        if re.search(pattern, str(error)):
            return rule(recorder, error, place)
    return None


def no_gradients(recorder: Recorder, error: BaseException, place: RawLocation | None) -> Problem | None:
    """An optimizer got no gradient at all: why the last ones that were asked for are None."""
    asking = next(
        (
            asking
            for asking in reversed(recorder.askings)
            if all(source.some is False for source in asking.sources)
        ),
        None,
    )
    if asking is None or asking is not recorder.askings[-1]:
        return None
    names = list(named_sources(asking))
    return Problem(
        "no-gradients-provided",
        f"no variable receives a gradient: {asking.kind} gave None for {some(names, 3)}",
        [*why_none(recorder, asking, names), *sites("step", "the optimizer gets no gradient here", place)],
        names,
        {"gradients": 0, "variables": len(names)},
        "compute the loss inside of the tape, of the variables that are trained, by operations that have "
        "gradients",
    )


def why_none(recorder: Recorder, asking: Asking, names: Sequence[str]) -> list[Site]:
    """The lines that keep gradients from some of what was asked for, and the line that asked."""
    flow = explained("explain", recorder, asking.losses, subjects_asked(asking), None, asking)
    return [*cutting(flow, names), *sites("called", "differentiated here", asking.place)]


def used_tape(recorder: Recorder, error: BaseException, place: RawLocation | None) -> Problem | None:
    """A tape that is not persistent was asked twice."""
    first = [asking for asking in recorder.askings if asking.tape is not None]
    earlier = sites("first", "the tape was used here", first[-1].place) if first else []
    return Problem(
        "tape-used-twice",
        "a GradientTape that is not persistent is asked for a second gradient",
        [*earlier, *sites("second", "and again here", place)],
        cure="ask for all gradients at once: tape.gradient(loss, [a, b]); or use "
        "tf.GradientTape(persistent=True)",
    )


def no_function(recorder: Recorder, error: BaseException, place: RawLocation | None) -> Problem | None:
    """An operation on the way has no gradient function."""
    kind = re.search(r"(?:no entry for:?|operation '.*' \(op type:) (\w+)", str(error))
    if kind is None:
        return None
    computed = sites("computed", f"{kind[1]} is computed here", _last(recorder, kind[1]))
    return Problem(
        "no-derivative",
        f"{kind[1]} has no gradient function in TensorFlow",
        [*computed, *sites("called", "differentiated here", place)],
        cure="compute it by operations that have gradients, put tf.stop_gradient around it, or give it a "
        "gradient with tf.custom_gradient",
    )


def no_number(recorder: Recorder, error: BaseException, place: RawLocation | None) -> Problem | None:
    """A tensor of a graph was asked for its number while the graph was traced."""
    origin, recorder.refusal = recorder.refusal, None
    if origin is None:
        return None
    return Problem(
        "symbolic-value",
        "a tensor that is traced has no number yet",
        [*sites("made", "made here", origin), *sites("called", "asked for its number here", place)],
        cure="inside of tf.function and fit(), use tf.cond, tf.where, tf.print or tf.numpy_function; or run "
        "eagerly to look at numbers: compile(..., run_eagerly=True)",
    )


def _last(recorder: Recorder, kind: str) -> RawLocation | None:
    """The line of the last operation of a kind that ran, or stands in the graph that is traced."""
    if not tf.executing_eagerly():
        traced = [op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == kind]
        return of_operation(traced[-1]) if traced else None
    events = [value.event for value in recorder.living() if isinstance(value, Value)]
    matching = [event for event in above([Value(event, 0) for event in events]) if event.call == kind]
    return matching[-1].place if matching else None


RULES: tuple[tuple[str, Explains], ...] = (
    (r"No gradients provided for any variable", no_gradients),
    (r"non-persistent GradientTape can only be used", used_tape),
    (r"[Ss]ymbolic `tf.Tensor`|'SymbolicTensor' object has no attribute 'numpy'", no_number),
    (r"gradient registry has no entry for|No gradient defined for operation", no_function),
)
"""What explains an error, by what its message contains."""


def sites(role: str, text: str, place: RawLocation | None) -> list[Site]:
    """The line at a place with its part in a finding; none where it is not known."""
    location = None if place is None else decode(place).own
    return [] if location is None else [Site(role, text, location)]
