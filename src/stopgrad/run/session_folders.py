"""Sessions saved into folders, and restored from them: on meshes, and as the checkpoints of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from stopgrad.ops.structural.sharding import declared_sharding
from stopgrad.run.session import Session
from stopgrad.scale.array_entries import begin_values, reader_of
from stopgrad.scale.array_folders import FolderReader


def _save_into_folder(session: Session, path: str | os.PathLike[str]) -> None:
    session._hand_out(partial(begin_values, path)).wait()


def _restore_from_folder(session: Session, path: str | os.PathLike[str]) -> None:
    take_in(session, reader_of(path, session._parameter_types()))


def take_in(session: Session, reader: FolderReader, first: Callable[[], None] | None = None) -> None:
    """Read the values of all parameters from a folder, after calling *first*; all or nothing."""
    lock = session._lock_outside("restore")
    layout = session._present("restore").engine.layout
    arrays = reader.read({p.op.name: layout(declared_sharding(p)) for p in session._all_parameters()})
    if first is not None:
        first()
    with lock:
        # Arrays that were read onto a mesh are the engine's already.
        hold = session._present("restore").engine.hold
        read = {p: arrays[p.op.name] for p in session._all_parameters()}
        session._replace_all(read if session.mesh is not None else {p: hold(x) for p, x in read.items()})


Session._save_into_folder = _save_into_folder  # type: ignore[method-assign, assignment]
Session._restore_from_folder = _restore_from_folder  # type: ignore[method-assign, assignment]
