"""Holds reports on programs in live TensorFlow against the model, and against what tapes give."""

from __future__ import annotations

import linecache
import os
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

import stopgrad.tensorflow as sgtf
from programs.comparing import ARRIVES, Complaints, Said, World, against_model
from programs.language import Program, Written, everything
from programs.reach import STATUSES, End
from programs.tensorflow_forms import LIBRARY, TENSORFLOW
from programs.tensorflows import (
    CALLED,
    Tensorflow,
    TensorflowModel,
    arguments,
    sources_of,
    tensorflow_program,
)
from stopgrad.interop.tensorflow import watching

DIFFER = watching._wrong
OUTSIDE = (
    "tape.stop_recording()",
    "computed before the tape was opened",
    "computed after the tape was closed",
    "computed while recording was stopped",
)
FOLDER = Path(tempfile.mkdtemp(prefix="stopgrad-programs-"))
"""AutoGraph reads the source of what it converts."""
FILE = str(FOLDER / "program.py")


def run_program(written: Written, given: Any) -> tuple[Any, list[Any]]:
    """The tape of a program, and its results that are numbers."""
    Path(FILE).write_text(written.text, encoding="utf-8")
    linecache.checkcache(FILE)
    scope: dict[str, Any] = {}
    exec(compile(written.text, FILE, "exec"), scope)
    CALLED[:] = [0, 0]
    tf.random.set_seed(0)
    tape, results = scope["program"](*[given[name] for name in Tensorflow.inputs])
    return tape, [tf.convert_to_tensor(x) for x in results]


def gradients_of(tape: Any, results: list[Any], sources: dict[str, Any]) -> dict[str, Any]:
    """The gradients of the sum of results: arrays, or None where TensorFlow gives none."""
    found = tape.gradient(results, list(sources.values()))
    return {
        name: None if g is None else np.asarray(tf.convert_to_tensor(g))
        for name, g in zip(sources, found, strict=True)
    }


def truth_of(program: Program, opened: str | None = None) -> dict[str, Any]:
    """The gradients of a program, without a stop that is opened, when nobody watches."""
    given = arguments(0)
    tape, results = run_program(Tensorflow(program, opened).written(), given)
    return gradients_of(tape, results, sources_of(given))


def said_of(flow: Any, program: Program, written: Written) -> Said:
    """What a report says, in the words of the model."""
    labels = {line: label for label, line in written.lines.items()}
    blocks = {
        inner.label: s.label
        for s in everything(program.statements)
        if s.form == "block"
        for inner in everything(s.inside)
    }
    found = {}
    of_blocks: dict[End, set[str]] = {}  # A block is the end of each value that leaves it.
    for name in TensorflowModel.inputs:
        ends: dict[End, frozenset[str]] = {}
        for cut in flow[name].cuts:
            place = cut.location
            label = labels.get(place.line, str(place)) if place is not None and place.file == FILE else None
            end = End(label or str(place), STATUSES.index(cut.status))
            if place is None:
                end = end._replace(why=name)
            elif label is not None and cut.reason.startswith(OUTSIDE):
                end = end._replace(label=blocks.get(label, label))
                of_blocks.setdefault(end, set()).update(cut.opens)
            ends[end] = ends.get(end, frozenset()) | frozenset(cut.opens)
        found[name] = str(flow[name].status), ends
    for _, ends in found.values():
        ends.update({end: frozenset(of_blocks[end]) for end in ends if end in of_blocks})
    return found


def complaints_of_tensorflow(program: Program) -> Complaints:
    """What is wrong with the report on a program in TensorFlow."""
    written, given = Tensorflow(program).written(), arguments(0)
    sources = sources_of(given)
    with sgtf.watch() as seen:
        tape, results = run_program(written, given)
        truth = gradients_of(tape, results, sources)
    differing = []

    def wrong(*about: Any) -> list[str]:
        differing.extend(DIFFER(*about))
        return []

    with mock.patch.object(watching, "_wrong", wrong):
        flow = seen.explain(results, sources)
    for name in differing:
        zeros = truth[name] is not None and not truth[name].any()
        gave = "zeros" if zeros else arriving(truth[name])
        yield f"{name}: {flow[name].status!r}, but TensorFlow gives {gave}: a report without lines"
    said = said_of(flow, program, written)
    yield from against_model(said, program, TENSORFLOW, TensorflowModel)
    unwatched = truth_of(program)
    for name, g in truth.items():
        if (g is None) != (unwatched[name] is None) or (
            g is not None and not np.array_equal(g, unwatched[name])
        ):
            yield f"{name}: another gradient than without a watch"
    yield from against_tape(said, truth, program)
    return said


def against_tape(said: Said, truth: dict[str, Any], program: Program) -> Iterator[str]:
    """Where a report and TensorFlow differ about the program, and about it without each end."""
    for name, (status, _) in said.items():
        yield from one_against_tape(name, status in ARRIVES, status, truth[name], "")
    labels = dict.fromkeys(
        [end.label for _, ends in said.values() for end in ends if is_removable(program, end)]
    )
    for label in labels:
        opened = truth_of(program, label)
        opens = {x for _, ends in said.values() for end, xs in ends.items() if end.label == label for x in xs}
        for name, (status, _) in said.items():
            arrives = status in ARRIVES or name in opens
            yield from one_against_tape(name, arrives, status, opened[name], f"without {label}, ")


def one_against_tape(name: str, arrives: bool, status: str, gradient: Any, when: str) -> Iterator[str]:
    if arrives and gradient is None:
        yield f"{when}{name}: {status!r}, and TensorFlow gives no gradient"
    elif not arrives and gradient is not None and gradient.any():
        yield f"{when}{name}: {status!r}, and TensorFlow gives a gradient"


def arriving(gradient: object) -> str:
    return "no gradient" if gradient is None else "a gradient"


def is_removable(program: Program, end: End) -> bool:
    for s in everything(program.statements):
        if s.label == end.label:
            return s.form == "block" or (s.form in TENSORFLOW and LIBRARY in TENSORFLOW[s.form].opened)
    return False


def drawn(seed: int) -> Program:
    """A program that TensorFlow differentiates, all of whose own gradients it asks for."""
    for attempt in range(1000):
        program = tensorflow_program(seed, attempt)
        if works(program):
            return program
    raise AssertionError(seed)


def works(program: Program) -> bool:
    try:
        truth_of(program)
    except (tf.errors.OpError, TypeError, ValueError, LookupError, AttributeError) as error:
        FAILED.append(error)
        return False
    except AssertionError as error:
        if "in user code" not in str(error) and not _is_tensorflows(error):  # Of conditionals in functions.
            raise
        FAILED.append(error)
        return False
    return CALLED[0] == CALLED[1]


def _is_tensorflows(error: BaseException) -> bool:
    """Whether TensorFlow itself raised an error."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return f"{os.sep}tensorflow{os.sep}python{os.sep}" in frame.f_code.co_filename


FAILED: list[Exception] = []
"""Why programs were not taken."""
WORLD = World(drawn, complaints_of_tensorflow, Tensorflow)
