"""Where a monitor reports to: a terminal, a file of JSON lines, TensorBoard, Weights & Biases.

The loggers of other libraries are known by their methods, and are not imported.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.magnitudes.magnitude_parts import data_of
from stopgrad.flow.reports.json_form import json_of
from stopgrad.graph.operands import shorten
from stopgrad.train.monitoring.history import Change
from stopgrad.train.monitoring.verdicts import Sample

PREFIX = "stopgrad"


class Sink(Protocol):
    """Takes samples, with what has changed."""

    def take(self, sample: Sample, changes: Sequence[Change]) -> None: ...


class Lines:
    """Changes as lines of text, for people.

    Args:
        stream: where they are written; None for what is the standard output then.
    """

    def __init__(self, stream: Any = None) -> None:
        self._stream = stream

    def take(self, sample: Sample, changes: Sequence[Change]) -> None:
        stream = sys.stdout if self._stream is None else self._stream
        for change in changes:
            stream.write(f"stopgrad: {change}\n")
        if changes and hasattr(stream, "flush"):
            stream.flush()


class JsonLines:
    """Every sample as a line of JSON, appended to a file in one piece; docs/monitor.md has the fields."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(os.fspath(path))
        with open(self._path, "ab"):
            pass  # A path that cannot be written is an error now, and not after hours.

    def take(self, sample: Sample, changes: Sequence[Change]) -> None:
        text = json.dumps(json_of(_data(sample, changes)), ensure_ascii=False, allow_nan=False)
        whole = f"{text}\n".encode()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        file = os.open(self._path, flags, 0o666)
        try:
            if not _ends_a_line(file):  # The machine stopped while another run wrote.
                whole = b"\n" + whole
            while whole:
                whole = whole[os.write(file, whole) :]
        finally:
            os.close(file)


def _ends_a_line(file: int) -> bool:
    """Whether a file is empty or ends with a whole line."""
    size = os.fstat(file).st_size
    if not size:
        return True
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) == b"\n"


def _data(sample: Sample, changes: Sequence[Change]) -> dict[str, Any]:
    """A sample as data."""
    return {
        "format": "stopgrad.monitor",
        "version": 1,
        "step": sample.step,
        "time": time.time(),
        "changes": [
            {
                "state": change.state,
                "keys": list(change.keys),
                "cause": change.cause or None,
                "unsteady": change.unsteady,
                "text": change.text,
            }
            for change in changes
        ],
        "parameters": {
            name: {
                "state": verdict.state,
                "cause": verdict.cause or None,
                "magnitude": data_of(verdict.magnitude),
            }
            for name, verdict in sample.verdicts.items()
        },
    }


def _scalars(sample: Sample) -> dict[str, float]:
    """A sample as numbers by name, for charts."""
    scalars: dict[str, float] = {}
    for state, count in Counter(verdict.state for verdict in sample.verdicts.values()).items():
        scalars[f"{PREFIX}/{state.replace(' ', '_')}"] = count
    for name, verdict in sample.verdicts.items():
        if verdict.magnitude is not None:
            scalars[f"{PREFIX}/norm/{name}"] = verdict.magnitude.norm
            if verdict.magnitude.ratio is not None:
                scalars[f"{PREFIX}/ratio/{name}"] = verdict.magnitude.ratio
    return scalars


class TensorBoard:
    """A ``SummaryWriter``: norms and counts as scalars, changes as text."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def take(self, sample: Sample, changes: Sequence[Change]) -> None:
        for name, value in _scalars(sample).items():
            self._writer.add_scalar(name, value, sample.step)
        if changes and hasattr(self._writer, "add_text"):
            text = "\n".join([f"- {change}" for change in changes])
            self._writer.add_text(f"{PREFIX}/changes", text, sample.step)


class WeightsAndBiases:
    """A run: norms and counts are part of what the user logs next, since a run's steps are the user's."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def take(self, sample: Sample, changes: Sequence[Change]) -> None:
        entries: dict[str, Any] = {**_scalars(sample), f"{PREFIX}/step": sample.step}
        if changes:
            entries[f"{PREFIX}/changes"] = "\n".join(map(str, changes))
        self._run.log(entries, commit=False)


def sinks(to: object) -> list[Sink]:
    """The sinks that users ask for.

    Args:
        to: None for the standard output; a path, for a file of JSON lines; an object with ``write``, as a
            stream; one with ``add_scalar``, as a ``SummaryWriter`` of TensorBoard; one with ``log``, as a run
            of Weights & Biases; or a list of these.

    Raises:
        ArgumentError: it is something else.
        OSError: the file cannot be written.
    """
    return [_sink(target) for target in (to if isinstance(to, (list, tuple)) else [to])]


def _sink(to: Any) -> Sink:
    if to is None:
        return Lines()
    if isinstance(to, (str, os.PathLike)):
        return JsonLines(to)
    for method, kind in (("write", Lines), ("add_scalar", TensorBoard), ("log", WeightsAndBiases)):
        if callable(getattr(to, method, None)):
            return kind(to)
    raise ArgumentError(
        "monitor: to is None for the standard output, a path of a file, a stream, a SummaryWriter of "
        f"TensorBoard, a run of Weights & Biases, or a list of these, not {shorten(to)}"
    )
