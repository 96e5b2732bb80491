"""Arrays in folders, through orbax: each process writes its own part, while the program goes on.

A folder appears complete or not at all. In it, ``arrays`` is written by orbax; :data:`NOTES` holds the names
and types of the arrays, the caller's notes, and the checksum of every file. Orbax writes and reads arrays
that are divided among devices and processes, and redistributes them. Only its handler is used, not its
managers: here an error in one process is raised in all of them at once, where orbax's checkpointers wait for
a time-out; and orbax does not notice a flipped bit in an array.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import math
import os
import shutil
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import numpy as np

from stopgrad.base.errors import CheckpointError, DistributedError, StopgradError
from stopgrad.base.locks import Moment
from stopgrad.base.namespaces import require
from stopgrad.base.types import DTYPES, TensorType, dtype_of, tensor_type
from stopgrad.graph.files import CURES, flush_folder, locked, shortened
from stopgrad.graph.operands import show_shape
from stopgrad.scale.distributed import agree
from stopgrad.scale.processes import process_count, process_index

NOTES = "stopgrad.json"
_ARRAYS = "arrays"
_PARTS = "parts"
_PART = ".part"
_VERSION = 1
PATIENCE = 3600.0
"""Seconds that processes wait for each other: one may have far more to write than another."""

T = TypeVar("T")


class BrokenError(CheckpointError):
    """The files of a checkpoint are not as they were written."""


# ------------------------------------------------------------------------------------- all processes


def together(what: str, path: str, step: Callable[[], T]) -> T:
    """Take a step in every process of the run. If it fails in one, all raise an error."""
    result, failed = None, None
    try:
        result = step()
    except Exception as error:  # The others are told, and it is raised below.
        failed = error
    if process_count() > 1:
        folder, name = os.path.split(path)
        try:
            why = failed.message if isinstance(failed, StopgradError) else str(failed)
            line = f"{name}: done" if failed is None else why.replace(path, name)  # Errors shorten it.
            agree(f"{what} in {folder}", [line], timeout=PATIENCE)
        except DistributedError as error:
            if failed is None:
                reason = error.message.partition("\nAll run the same")[0]  # What follows speaks of graphs.
                raise CheckpointError(f"{what} {path} failed in another process: {reason}") from None
    if failed is not None:
        raise failed
    return result  # type: ignore[return-value]


def _leads() -> bool:
    """Whether this process is the one that does what must be done once."""
    return process_index() == 0


def refuse(error: BaseException, path: str, done: str) -> NoReturn:
    """Raise an error of writing or reading *path* as one of ours, with a cure if there is one."""
    if isinstance(error, StopgradError) or not isinstance(error, Exception):
        raise error
    raise CheckpointError(f"{path} cannot be {done}: {_why(error)}") from error


def _why(error: BaseException) -> str:
    """The cure for an error. The system's own error may be nested in it, or appear in its text only."""
    seen: BaseException | None = error
    text = str(error)
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in CURES:
            return CURES[seen.errno]
        text += f" {seen}"
        seen = seen.__cause__ or seen.__context__
    for number, cure in CURES.items():
        if os.strerror(number) in text:
            return cure
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


# -------------------------------------------------------------------------------------------- writing


class Writing:
    """Writes arrays into a folder, in a thread of its own, once :meth:`begin` is called.

    Args:
        path: the path of the folder, which must not exist; its parent need not exist either.
        arrays: by name: NumPy's, or JAX's on any devices, of any dtype of ours. They must not change before
            :meth:`begin` returns.
        notes: data for JSON that belongs to them, the same in all processes.
        own: likewise, for this process alone.
        then: called in the first process when the folder is complete.
    """

    def __init__(
        self,
        path: str,
        arrays: Mapping[str, Any],
        notes: Mapping[str, Any],
        own: object = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self.path: str = os.path.abspath(path)
        self._arrays: Mapping[str, Any] = dict(arrays)
        self._types = {name: tensor_type(dtype_of(x.dtype), tuple(x.shape)) for name, x in arrays.items()}
        self._notes = {"version": _VERSION, "processes": process_count(), "notes": dict(notes)}
        self._own = own
        self._then = then
        self._failed: BaseException | None = None
        self._copied = Moment()
        self._done = Moment()
        self._to_do = [self._write]  # The thread takes it out, or an interrupt before that.
        self._orbax = _orbax(self.path, "written")
        self._jax = require("jax", "saving into a folder", "scale")

    def begin(self) -> None:
        """Begin to write. Returns when the arrays have been copied and may change.

        After an interrupt this holds as well: either nothing is written, or all that was to be copied is.
        """
        folder = os.path.dirname(self.path)
        for other in list(_UNDER_WAY):  # Such as one whose save was interrupted.
            if os.path.dirname(other.path) == folder:
                other._done.wait()
        try:
            # One call of C, where an interrupt in Thread.start may leave a thread that waits for ever.
            _thread.start_new_thread(self._run, ())
            self._copied.wait()
        except BaseException:
            self._give_up()
            self._copied.wait()
            raise

    def wait(self) -> None:
        """Wait until the folder is complete.

        Raises:
            CheckpointError: it could not be written, for instance because the disk is full. Raised once.
        """
        self._give_up()
        self._done.wait()
        failed = self._failed
        if isinstance(failed, StopgradError):
            failed.point_here()
        self._failed = None
        _UNDER_WAY.discard(self)
        if failed is not None:
            raise failed

    def _give_up(self) -> None:
        """Write nothing, if the thread has not begun."""
        with contextlib.suppress(IndexError):
            self._to_do.pop()
            self._copied.set()
            self._done.set()

    def _run(self) -> None:
        try:
            write = self._to_do.pop()
        except IndexError:  # An interrupt was first.
            return
        _UNDER_WAY.add(self)
        try:
            with self._jax.enable_x64(True):  # Else JAX would narrow 64-bit numbers.
                write()
        except BaseException as error:
            self._failed = error
        finally:
            self._arrays = {}
            if self._failed is None:
                _UNDER_WAY.discard(self)
            self._copied.set()
            self._done.set()

    def _write(self) -> None:
        shown = ("saving", self.path)
        with contextlib.ExitStack() as stack:
            part = together(*shown, lambda: self._begin(stack))
            try:
                futures = together(*shown, lambda: self._copy(part))
                self._copied.set()
                together(*shown, lambda: self._finish_own(part, futures))
                together(*shown, lambda: self._finish(part) if _leads() else None)
            except BaseException:
                if _leads():
                    _clear(part)
                raise
        then = self._then
        if then is not None:  # All wait for it, so that all see the same folder.
            together("tidying up after", self.path, lambda: then() if _leads() else None)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            refuse(error, self.path, "written")

    def _begin(self, stack: contextlib.ExitStack) -> str:
        """Make an empty folder to write into, and remove those of processes that died."""
        folder, name = os.path.split(self.path)
        part = os.path.join(folder, f".{name}{_PART}")
        if _leads():
            with self._explained():
                os.makedirs(folder, exist_ok=True)
                stack.enter_context(_only_one(folder))
                for leftover in os.listdir(folder):
                    if leftover.startswith(".") and leftover.endswith(_PART):
                        _clear(os.path.join(folder, leftover))
                os.makedirs(os.path.join(part, _ARRAYS))
                os.makedirs(os.path.join(part, _PARTS))
        return part

    def _copy(self, part: str) -> Sequence[Any]:
        """Have orbax copy the arrays and begin to write them."""
        arrays = {name: self._as_saved(x) for name, x in self._arrays.items() if math.prod(x.shape)}
        if not arrays:  # Orbax refuses to write no arrays.
            return []
        # Compression saves a tenth of trained weights, and takes longer than writing that.
        self._handler = self._orbax.PyTreeCheckpointHandler(use_compression=False)
        folder = _orbax_path(os.path.join(part, _ARRAYS))
        with self._explained():
            save = self._handler.async_save(folder, args=self._orbax.args.PyTreeSave(arrays))
            loop = require("asyncio", "saving").new_event_loop()  # Its import takes 10 ms.
            try:
                return loop.run_until_complete(save) or []
            finally:
                loop.close()

    def _as_saved(self, x: object) -> object:
        # Orbax writes an array of a single process only from the first process, as NumPy's.
        alone = not isinstance(x, self._jax.Array) or (process_count() > 1 and x.is_fully_addressable)
        return np.asarray(x) if alone else x

    def _finish_own(self, part: str, futures: Sequence[Any]) -> None:
        """Wait until this process's part is written, and write its notes and checksums."""
        with self._explained():
            with contextlib.ExitStack() as every:  # So that none writes on after a failure.
                _ = [every.callback(future.result) for future in reversed(futures)]
            index = process_index()
            sums = _sums(part, lambda path: f"process_{index}" in path.replace(".", os.sep).split(os.sep))
            note = os.path.join(part, _PARTS, f"{index}.json")
            _write_note(note, {"files": sums, "own": self._own})

    def _finish(self, part: str) -> None:
        """Put the parts of all processes together, and give the folder its final name."""
        with self._explained():
            if os.listdir(os.path.join(part, _ARRAYS)):
                self._handler.finalize(_orbax_path(os.path.join(part, _ARRAYS)))
                self._handler.close()
            parts = os.path.join(part, _PARTS)
            notes = [_read_note(os.path.join(parts, f"{i}.json")) for i in range(process_count())]
            shutil.rmtree(parts)
            files: dict[str, Any] = {}
            for note in notes:
                files |= note["files"]
            files |= _sums(part, lambda path: path not in files)
            types = {name: [kind.dtype.name, list(kind.shape)] for name, kind in self._types.items()}
            own = [note["own"] for note in notes]
            _write_note(
                os.path.join(part, NOTES), {**self._notes, "own": own, "arrays": types, "files": files}
            )
            for folder, _, _ in os.walk(part):
                flush_folder(folder)
            os.rename(part, self.path)
            flush_folder(os.path.dirname(self.path))


_UNDER_WAY: set[Writing] = set()


def _finish_all() -> None:
    """At the end of the program, wait for checkpoints that are still being written."""
    for writing in list(_UNDER_WAY):
        try:
            writing.wait()
        except StopgradError as error:
            warnings.warn(error.message, stacklevel=1)


# A callback of atexit would come too late: by then Python has stopped the threads that orbax uses, because
# concurrent.futures registers its own end in this same way.
getattr(threading, "_register_atexit", lambda _: None)(_finish_all)


def write_folder(
    path: str, arrays: Mapping[str, Any], notes: Mapping[str, Any], wait: bool = True
) -> Writing:
    """Write arrays by name into a new folder; see :class:`Writing`.

    Returns when the folder is complete; without *wait*, as soon as the arrays may change.
    """
    writing = Writing(path, arrays, notes)
    writing.begin()
    if wait:
        writing.wait()
    return writing


@contextmanager
def _only_one(folder: str) -> Iterator[None]:
    """Refuse to write where another program is writing. The lock of a killed program is released."""
    if sys.platform == "win32":  # Folders cannot be opened there.
        yield
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        if locked(file, wait=False) is False:
            raise CheckpointError(
                f"{folder} cannot be written: another program saves there; take another folder"
            )
        yield
    finally:
        os.close(file)


class _Used:
    """Whether orbax has read or written here; and whether that was before a fork."""

    ever = before_fork = False


def _orbax(path: str, done: str) -> Any:
    """The library. Tensorstore, on which it stands, would end a process that was forked after its use."""
    if _Used.before_fork:
        raise CheckpointError(
            f"{path} cannot be {done}: this process was forked from one that had used checkpoints, and the "
            "threads for that do not come along; start it with multiprocessing.get_context('spawn')"
        )
    orbax = require("orbax.checkpoint", "folders of arrays", "scale")
    _Used.ever = True
    return orbax


def _after_fork() -> None:
    _Used.before_fork = _Used.ever
    for writing in _UNDER_WAY:  # The process that was forked goes on with it.
        writing._copied.set()
        writing._done.set()
    _UNDER_WAY.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _orbax_path(path: str) -> os.PathLike[str]:
    """A path as orbax takes it."""
    return require("etils.epath", "orbax").Path(path)


def _clear(path: str) -> None:
    """Remove a folder. After a failure, threads of orbax may still write into it for a moment."""
    for _ in range(50):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.exists(path):
            return
        time.sleep(0.02)


def remove_folder(path: str) -> None:
    """Remove an entry. If the process is killed meanwhile, what is left does not look like an entry."""
    folder, name = os.path.split(path)
    gone = os.path.join(folder, f".{name}{_PART}")
    with contextlib.suppress(OSError):  # The next save tries again.
        os.rename(path, gone)
        shutil.rmtree(gone)


def _sums(part: str, includes: Callable[[str], bool]) -> dict[str, list[int]]:
    """Size and CRC-32 of the files in a folder. When this returns, they have been flushed to the disk."""
    sums = {}
    for folder, _, names in os.walk(part):
        for name in names:
            whole = os.path.join(folder, name)
            path = os.path.relpath(whole, part)
            if includes(path) and not path.startswith(_PARTS + os.sep):
                sums[path.replace(os.sep, "/")] = _sum(whole, flush=True)
    return sums


def _sum(path: str, flush: bool = False) -> list[int]:
    size = crc = 0
    with open(path, "rb" if not flush or sys.platform != "win32" else "r+b", buffering=0) as file:
        buffer = memoryview(bytearray(1 << 20))
        while count := file.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
            size += count
        if flush:
            os.fsync(file.fileno())
    return [size, crc]


def _write_note(path: str, value: object) -> None:
    """Write the CRC-32 of a JSON text, and the text."""
    text = json.dumps(value, separators=(",", ":")).encode()
    with open(path, "wb") as file:
        file.write(b"%08x " % zlib.crc32(text) + text)
        file.flush()
        os.fsync(file.fileno())


def _read_note(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        crc, _, text = file.read().partition(b" ")
    if crc != b"%08x" % zlib.crc32(text):
        raise BrokenError(f"{path} is not as it was written")
    return json.loads(text)


# -------------------------------------------------------------------------------------------- reading


class FolderReader:
    """A folder of arrays, open for reading. Its notes are read at once.

    Attributes:
        path: the path of the folder.
        types: the types of its arrays, by name.
        notes: those that were given when it was written.
        own: those of each process alone, in the order of processes.

    Raises:
        BrokenError: it is not as it was written.
        CheckpointError: it cannot be read, or was not written here.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            note = _read_note(os.path.join(path, NOTES))
        except FileNotFoundError:
            what = "it has no notes" if os.path.isdir(path) else "there is no such folder"
            raise BrokenError(f"{path} is no checkpoint: {what}") from None
        except ValueError:
            raise BrokenError(f"{os.path.join(path, NOTES)} is not as it was written") from None
        except OSError as error:
            refuse(error, path, "read")
        if note["version"] > _VERSION:
            raise CheckpointError(
                f"{path} was written by a newer stopgrad, in form {note['version']}; this one reads form "
                f"{_VERSION}"
            )
        self.notes: dict[str, Any] = note["notes"]
        self.own: list[Any] = note["own"]
        self.types: dict[Any, TensorType] = {
            n: tensor_type(DTYPES[kind], tuple(shape)) for n, (kind, shape) in note["arrays"].items()
        }
        self._files: dict[str, list[int]] = note["files"]

    def compare(self, types: Mapping[str, TensorType]) -> None:
        """Raise if its arrays have other names or types, for instance because they are another graph's."""
        lines = differences(self.types, types)
        if lines:
            raise CheckpointError(f"{self.path} was saved from another graph:\n  " + "\n  ".join(lines))

    def check(self) -> None:
        """Check the checksum of every file; each process reads its share of them.

        Raises:
            BrokenError: a file is not as it was written.
        """
        largest_first = sorted(self._files, key=lambda name: (-self._files[name][0], name))
        for name in largest_first[process_index() :: process_count()]:
            whole = os.path.join(self.path, *name.split("/"))
            try:
                actual = _sum(whole)
            except FileNotFoundError:
                raise BrokenError(f"{self.path} is broken: {name} is missing") from None
            except OSError as error:
                raise BrokenError(f"{self.path} is broken: {name} cannot be read: {_why(error)}") from error
            if actual != self._files[name]:
                raise BrokenError(f"{self.path} is broken: {name} is not as it was written")

    def read(self, shardings: Mapping[str, Any]) -> dict[str, Any]:
        """Read the arrays of these names: as JAX's, divided as given, or for None as NumPy's."""
        arrays = together("reading", self.path, lambda: self._read(shardings))
        for name, x in arrays.items():
            kind = self.types[name]
            if x.dtype != kind.dtype.numpy or x.shape != kind.shape:
                shown = f"{x.dtype}{show_shape(x.shape)}, not {kind!r}"
                raise BrokenError(f"{self.path} is broken: {name} is read as {shown}")
        return arrays

    def _read(self, shardings: Mapping[str, Any]) -> dict[str, Any]:
        try:
            orbax = _orbax(self.path, "read")
            # Orbax runs an event loop, and a thread can have only one.
            with ThreadPoolExecutor(1, "stopgrad-restore") as thread:
                return thread.submit(self._read_here, orbax, shardings).result()
        except Exception as error:
            refuse(error, self.path, "read")

    def _read_here(self, orbax: Any, shardings: Mapping[str, Any]) -> dict[str, Any]:
        jax = require("jax", "reading checkpoints", "scale")
        arrays: dict[str, Any] = {}
        restore_args: dict[str, Any] = {}
        with jax.enable_x64(True):  # Else JAX would narrow 64-bit numbers.
            for name, sharding in shardings.items():
                kind = self.types[name]
                if not math.prod(kind.shape):  # Orbax stores nothing for these.
                    empty = np.empty(kind.shape, kind.dtype.numpy)
                    arrays[name] = empty if sharding is None else jax.device_put(empty, sharding)
                elif sharding is None:
                    restore_args[name] = orbax.RestoreArgs(restore_type=np.ndarray)
                else:
                    restore_args[name] = orbax.ArrayRestoreArgs(
                        sharding=sharding, global_shape=kind.shape, dtype=kind.dtype.numpy
                    )
            if restore_args:
                handler = orbax.PyTreeCheckpointHandler()
                item = dict.fromkeys(restore_args, 0)
                args = orbax.args.PyTreeRestore(item=item, restore_args=restore_args, partial_restore=True)
                arrays |= handler.restore(_orbax_path(os.path.join(self.path, _ARRAYS)), args=args)
                handler.close()
        return arrays


def open_folder(path: str, types: Mapping[str, TensorType]) -> FolderReader:
    """Open and check a folder of these arrays. All processes succeed, or all raise.

    Raises:
        BrokenError: for one of them it is not as it was written.
        CheckpointError: it holds other arrays, or cannot be read.
    """

    def open_here() -> FolderReader | BrokenError:
        try:
            return FolderReader(path)
        except BrokenError as error:
            return error

    reader = together("opening", path, open_here)

    def check() -> CheckpointError | FolderReader:
        if isinstance(reader, BrokenError):
            raise reader
        try:
            reader.compare(types)
        except CheckpointError as error:
            return error
        reader.check()
        return reader

    try:
        checked = together("checking", path, check)
    except CheckpointError as error:
        raise BrokenError(error.message) from error.__cause__
    if isinstance(checked, CheckpointError):
        raise checked
    return checked


def differences(stored: Mapping[str, TensorType], wanted: Mapping[str, TensorType]) -> list[str]:
    """The first few arrays in which a checkpoint and a graph differ, a line for each, and how many more.

    Examples:
        >>> old, new = [tensor_type(DTYPES["float32"], (n,)) for n in (2, 3)]
        >>> differences({"w": old}, {"w": new})
        ['w: float32[2] in the checkpoint, float32[3] in the graph']
    """
    lines = [
        f"{n}: {kind!r} in the graph, not in the checkpoint" for n, kind in wanted.items() if n not in stored
    ]
    lines += [
        f"{n}: {kind!r} in the checkpoint, not in the graph" for n, kind in stored.items() if n not in wanted
    ]
    lines += [
        f"{n}: {stored[n]!r} in the checkpoint, {kind!r} in the graph"
        for n, kind in wanted.items()
        if n in stored and stored[n] != kind
    ]
    return shortened(lines)
