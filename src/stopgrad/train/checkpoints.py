"""Checkpoints of a training run, written in the background and found again after a crash."""

from __future__ import annotations

import json
import os
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError, CheckpointError, StopgradError
from stopgrad.base.source import to_user
from stopgrad.flow.reports.json_form import Json
from stopgrad.graph.files import checked_path
from stopgrad.graph.operands import shorten
from stopgrad.run.session import Session
from stopgrad.run.session_folders import take_in
from stopgrad.scale.array_entries import entries, new_entry, newest_good
from stopgrad.scale.array_folders import Writing, remove_folder
from stopgrad.scale.processes import process_count, process_index


@runtime_checkable
class Positioned(Protocol):
    """An object with a position to save in a checkpoint, such as batches of data."""

    def state(self) -> Json:
        """The position, as JSON values."""

    def restore(self, state: Any) -> None:
        """Continue from a position."""


class Checkpoints:
    """The checkpoints of a run: the values of a session, the position in its data, the number of the step.

    Args:
        folder: the folder of the checkpoints, which each have a folder of their own, named by the step. It is
            made when the first is saved. All processes of a run share this folder.
        session: the session whose parameters are saved; an optimiser's state consists of parameters, too.
        data: an object with ``state()``, which returns JSON values, and ``restore(state)``, such as
            :func:`stopgrad.data.batches` returns. Other state, such as a scheduler's count, belongs into
            parameters.
        keep: how many complete checkpoints are kept: the newest ones.

    A checkpoint is complete or does not exist, whenever the program is killed, and its checksums are checked
    when it is read. With several processes, each calls every method, and writes and reads its own part.

    References:
        orbax-checkpoint, https://orbax.readthedocs.io, which divides the arrays among processes.

    Examples:
        >>> import tempfile
        >>> graph = sg.Graph()
        >>> with graph.as_default():
        ...     w = sg.parameter([1.0, 2.0], name="w")
        ...     step = sg.assign(w, w * 2.0)
        >>> with tempfile.TemporaryDirectory() as folder, sg.Session(graph) as session:
        ...     with sg.Checkpoints(folder, session, keep=2) as checkpoints:
        ...         start = checkpoints.restore() or 0
        ...         for i in range(start, 3):
        ...             _ = session.run(step)
        ...             checkpoints.save(i + 1)
        ...     checkpoints.steps
        [2, 3]
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        session: Session,
        *,
        data: Positioned | None = None,
        keep: int = 3,
    ) -> None:
        if not isinstance(session, Session):
            raise ArgumentError(f"Checkpoints: a session is needed, not {shorten(session)}")
        if data is not None and not isinstance(data, Positioned):
            raise ArgumentError(
                "Checkpoints: data must have state() and restore(state), as what sg.data.batches returns; "
                f"{shorten(data)} has not"
            )
        if not is_whole(keep) or whole(keep) < 1:
            raise ArgumentError(
                f"Checkpoints: keep is how many checkpoints are kept, 1 or more, not {shorten(keep)}"
            )
        self._folder = os.path.abspath(checked_path(folder))
        self._session = session
        self._data = data
        self._keep = whole(keep)
        self._writing: Writing | None = None
        self._closed = False
        self._restored = False  # Or saved: the later checkpoints in the folder are then this run's.
        self._passed_over: set[str] = set()

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints."""
        return Path(self._folder)

    @property
    def steps(self) -> list[int]:
        """The steps of the existing checkpoints, from old to new; their files are not checked."""
        return sorted({entry.step for entry in entries(self._folder, values=False)})

    def save(self, step: int, wait: bool = False) -> None:
        """Save the current values of the session, and the position in the data.

        Args:
            step: the number of steps done, which :meth:`restore` returns. An existing checkpoint of this step
                is replaced.
            wait: whether to return only when the checkpoint is complete. Otherwise this waits for the
                previous one, copies the values and returns, and writes while the session runs on.

        Raises:
            CheckpointError: this checkpoint, or without *wait* the previous one, cannot be written, because
                the disk is full, for instance. Existing checkpoints are kept.
        """
        if self._closed:
            raise CheckpointError("Checkpoints.save: these are closed; make new ones, with the same folder")
        if not is_whole(step) or whole(step) < 0:
            raise ArgumentError(f"Checkpoints.save: step is a whole number, 0 or more, not {shorten(step)}")
        self._wait()
        step, position = whole(step), self._position()
        if not self._restored and self.steps[-1:] > [step]:
            raise CheckpointError(
                f"Checkpoints.save: {self._folder} holds later steps, up to {self.steps[-1]}, of another "
                "run; go on from there with restore(), or take another folder"
            )
        self._restored = True
        path = new_entry(self._folder, str(step))

        def begin(values: dict[str, Any]) -> None:
            self._writing = Writing(path, values, {"step": step}, position, partial(self._remove_old, step))
            self._writing.begin()

        self._session._hand_out(begin)
        if wait:
            self._wait()

    def restore(self) -> int | None:
        """Restore the newest intact checkpoint.

        Newer ones that are damaged are skipped, with a warning.

        Returns:
            Its step; None if there is no checkpoint.

        Raises:
            CheckpointError: it belongs to another graph. The session and the data do not change then.
        """
        self._wait()
        self._restored = True
        reader = newest_good(self._folder, values=False, types=self._session._parameter_types())
        newest_first = [entry.path for entry in reversed(entries(self._folder, values=False))]
        good = len(newest_first) if reader is None else newest_first.index(reader.path)
        self._passed_over = set(newest_first[:good])
        if reader is None:
            return None
        position = self._own(reader.own, reader.path)
        take_in(self._session, reader, None if self._data is None else partial(self._data.restore, position))
        return int(reader.notes["step"])

    def wait(self) -> None:
        """Wait until the last checkpoint is complete.

        Raises:
            CheckpointError: it cannot be written.
        """
        self._wait()

    def close(self) -> None:
        """Wait until the last checkpoint is complete; afterwards, no more can be saved.

        Raises:
            CheckpointError: it cannot be written.
        """
        self._closed = True
        self._wait()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except StopgradError as error:
            if kind is None:
                raise
            warnings.warn(str(error), stacklevel=to_user())  # The earlier error must not be hidden.

    # ------------------------------------------------------------------------------------- inside

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.wait()
            self._writing = None  # Only now: an interrupt before leaves it to be waited for.

    def _position(self) -> Json:
        """The position that *data* returns, after a check that it can be written as JSON."""
        if self._data is None:
            return None
        state = self._data.state()
        try:
            json.dumps(state)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                "Checkpoints.save: the state of data must be numbers, texts, lists and dicts, "
                f"for JSON: {error}"
            ) from None
        return state

    def _own(self, positions: list[Any], path: str) -> Json:
        """This process's position in the data, from the saved positions of all processes."""
        if self._data is None:
            return None
        if any(position != positions[0] for position in positions):
            if process_count() != len(positions):
                raise CheckpointError(
                    f"{path} was saved by {len(positions)} processes, each at another position in its data; "
                    "restore it with as many"
                )
            return positions[process_index()]
        if positions[0] is None:
            raise CheckpointError(f"{path} was saved without data; leave data out, or begin anew")
        return positions[0]

    def _remove_old(self, step: int) -> None:
        """Once a checkpoint is complete, remove replaced, damaged and surplus ones."""
        checkpoints = entries(self._folder, values=False)
        for path in self._passed_over.intersection(entry.path for entry in checkpoints):
            remove_folder(path)
        checkpoints = [entry for entry in checkpoints if entry.path not in self._passed_over]
        self._passed_over = set()
        newest = {entry.step: entry for entry in checkpoints}
        steps_to_keep = sorted(newest, reverse=True)[: self._keep]
        for entry in checkpoints:
            if entry is not newest[entry.step] or (entry.step not in steps_to_keep and entry.step != step):
                remove_folder(entry.path)
