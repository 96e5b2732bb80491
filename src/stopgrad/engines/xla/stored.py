"""Compiled programs on disk: what one process has compiled with XLA, the next one loads.

The name of a file is a digest of the graph, the options and everything known to change the result. XLA's
executables are code, and JAX unpickles them: files are read only from a folder that no other user can write
to, and only if they are as they were written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from stopgrad.base.errors import FileError
from stopgrad.base.folders import private_folder, seal, unsealed
from stopgrad.base.machine import processor
from stopgrad.base.namespaces import require
from stopgrad.engines.xla.compiler_options import compile_lowered
from stopgrad.graph.files import replacing
from stopgrad.graph.fingerprint import fingerprint
from stopgrad.graph.graph import Output
from stopgrad.scale.processes import process_count

if TYPE_CHECKING:
    import jax

WORTH = 0.1
"""Programs that took at least so many seconds to lower and compile are stored. Loading takes about 0.03 s."""

LAPACK = b"lapack_"
"""The prefix of the functions that programs call for linear algebra on CPUs."""

ROOM = 2**30
"""The most bytes in the folder. Beyond it, the least recently used files are removed."""


class Programs:
    """The user's compiled programs, for one version of JAX on one kind of processor.

    ``STOPGRAD_COMPILED=0`` in the environment switches them off.
    """

    def __init__(self, jax: ModuleType) -> None:
        self._jax = jax
        self._serialize = require("jax.experimental.serialize_executable", "the xla engine", "xla")

    def compile(
        self,
        lower: Callable[[], Any],
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        options: Mapping[str, str | bool],
        details: object,
        devices: Sequence[Any] = (),
    ) -> Any:
        """Compile a graph, or load it if it was compiled before.

        Programs for the devices of several processes are not stored.

        Args:
            lower: has JAX lower it to a function of arrays that returns a list of arrays.
            inputs: the inputs of the graph.
            outputs: the outputs of the graph.
            options: those of the compiler.
            details: everything else that makes a difference; its ``repr`` counts.
            devices: those on which it runs; the first one unless given.
        """
        details = (details, [device.id for device in devices])
        name = None if devices and process_count() > 1 else self.name_of(inputs, outputs, options, details)
        if name is not None:
            stored = self.stored(name)
            if stored is not None:
                with contextlib.suppress(Exception):  # What JAX cannot load is made again.
                    return self.load(stored[1], len(inputs), len(outputs), devices)
        return self.make(lower, options, name)

    def name_of(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        options: Mapping[str, str | bool],
        details: object,
        blocks: bool = False,
    ) -> str | None:
        """The name under which the program of a graph is stored; None if it cannot be.

        With *blocks*, graphs that are rewritten in different ways have different names.
        """
        if os.environ.get("STOPGRAD_COMPILED") == "0" or private_folder("xla") is None:
            return None
        graph = fingerprint(inputs, outputs, blocks)
        return None if graph is None else self._key(graph, options, details)

    def stored(self, name: str) -> tuple[bytes, bytes] | None:
        """The note and the program under a name; None if there are none."""
        folder = private_folder("xla")
        content = None if folder is None else unsealed(folder / name, name)
        if folder is None or content is None:
            return None
        with contextlib.suppress(OSError):
            os.utime(folder / name)
        end = _SIZE + int.from_bytes(content[:_SIZE], "little")
        return content[_SIZE:end], content[end:]

    def make(
        self,
        lower: Callable[[], Any],
        options: Mapping[str, str | bool],
        name: str | None,
        note: Callable[[], bytes] = bytes,
    ) -> Any:
        """Compile what JAX lowers. If that took long, store it under the name, with a note."""
        start = time.perf_counter()
        compiled = compile_lowered(lower(), options)
        if name is not None and time.perf_counter() - start >= WORTH:
            # A program that cannot be stored, or a full disk, only means compiling again.
            with contextlib.suppress(FileError, OSError, ValueError, NotImplementedError, RuntimeError):
                self._save(name, note(), compiled)
        return compiled

    def _key(self, graph: str, options: Mapping[str, str | bool], details: object) -> str:
        device = self._jax.local_devices()[0]
        parts = (
            self._jax.__version__,
            device.client.platform_version,
            device.device_kind,
            len(self._jax.devices()),
            processor(),
            os.environ.get("XLA_FLAGS", ""),
            sorted(options.items()),
            details,
        )
        return hashlib.sha256(f"{graph} {parts!r}".encode()).hexdigest()

    def load(self, data: bytes, inputs: int, outputs: int, devices: Sequence[Any] = ()) -> Any:
        """A program from its bytes, with so many inputs and outputs, for devices; unless given, the first."""
        if LAPACK in data:
            self._find_lapack()
        structure = self._jax.tree_util.tree_structure
        return self._serialize.deserialize_and_load(
            data,
            structure(((0,) * inputs, {})),
            structure([0] * outputs),
            execution_devices=devices or self._jax.local_devices()[:1],  # Else it would run on all devices.
        )

    def _find_lapack(self) -> None:
        """Have JAX look up LAPACK's functions, which it does on lowering a call of one, but not on loading.

        Without this, the loaded program would call null pointers.
        """
        matrix = self._jax.ShapeDtypeStruct((1, 1), "float32")
        self._jax.jit(self._jax.numpy.linalg.cholesky).lower(matrix)

    def _save(self, name: str, note: bytes, compiled: jax.stages.Compiled) -> None:
        folder = private_folder("xla")
        if folder is None:
            return
        data, _, _ = self._serialize.serialize(compiled)
        content = len(note).to_bytes(_SIZE, "little") + note + data
        _make_room(folder, len(content))
        with replacing(folder / name) as file, open(file, "wb", closefd=False) as stream:
            stream.write(seal(name, content))
            stream.write(content)


_SIZE = 8
"""The bytes in which a file says how long its note is."""


def _make_room(folder: Path, size: int) -> None:
    """Remove the least recently used files, until there is room for *size* more bytes."""
    files = sorted(_files(folder), key=lambda file: file[1].st_mtime)
    total = size + sum(status.st_size for _, status in files)
    for path, status in files:
        if total <= ROOM:
            break
        path.unlink(missing_ok=True)
        total -= status.st_size


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # Another process removed it.
            yield path, path.stat()
