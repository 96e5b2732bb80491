"""The C++ kernels of this folder: built once per machine, or found prebuilt, and registered with XLA.

Every ``*.cc`` here becomes part of one shared library. A function that a source defines by
``XLA_FFI_DEFINE_HANDLER_SYMBOL(name, ...)`` becomes the FFI target *name*, which
``jax.ffi.ffi_call(name, ...)`` calls once :func:`library` has returned a library that is available.

Without a C++ compiler, or with ``STOPGRAD_NATIVE=0`` in the environment, there are no kernels, and XLA
computes everything itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import NamedTuple

from stopgrad.base.errors import EngineError
from stopgrad.base.folders import cache_folder, private_folder
from stopgrad.base.locks import holding
from stopgrad.base.machine import processor
from stopgrad.base.namespaces import require

HERE = Path(__file__).parent
FLAGS = ("-O3", "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
"""Options of the compiler. They keep the meaning of NaN and infinities, and the order of sums."""

# Libraries that wheels may contain, the best first: the kind of processor, and the features it must have.
_LEVELS = (
    ("x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
    ("x86-64-v3", frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})),
    ("armv8-a", frozenset({"asimd"})),
    ("armv8-a", frozenset({"arm64"})),  # As macOS calls it.
)
_HANDLER = re.compile(r"XLA_FFI_DEFINE_HANDLER_SYMBOL\(\s*(\w+)")
_SECONDS = 300


class Library(NamedTuple):
    """The kernels, or why there are none.

    Attributes:
        reason: why there are none; None where there are.
        path: the shared library's file.
        targets: what ``jax.ffi.ffi_call`` can name.
    """

    reason: str | None
    path: Path | None = None
    targets: tuple[str, ...] = ()

    @property
    def available(self) -> bool:
        return self.reason is None


class _Loaded:
    """The library that this process has found or built; None until it is asked for."""

    lock = RLock()
    library: Library | None = None


def library() -> Library:
    """The kernels. The first call in a process loads them, the first on a machine builds them (seconds)."""
    if os.environ.get("STOPGRAD_NATIVE") == "0":
        return Library("switched off by STOPGRAD_NATIVE=0")
    return _Loaded.library or holding(_Loaded.lock, _load)


def loaded() -> str | None:
    """The name of the library's file, which depends on its sources; None if it was never asked for."""
    kernels = _Loaded.library
    return None if kernels is None or kernels.path is None else kernels.path.name


def _load() -> Library:
    if _Loaded.library is None:
        try:
            _Loaded.library = _registered(_prebuilt() or _in_cache())
        except EngineError as error:
            _Loaded.library = Library(error.message)
        except (OSError, subprocess.SubprocessError, AttributeError) as error:
            _Loaded.library = Library(f"{type(error).__name__}: {error}")
    return _Loaded.library


def _registered(path: Path) -> Library:
    """Load a library and give its handlers to XLA."""
    ffi = require("jax.ffi", "the xla engine", "xla")
    loaded = ctypes.CDLL(str(path))
    targets = tuple(name for source in sources() for name in _HANDLER.findall(source.read_text()))
    capsules = [ffi.pycapsule(getattr(loaded, name)) for name in targets]
    for name, capsule in zip(targets, capsules, strict=True):
        ffi.register_ffi_target(name, capsule, platform="cpu")
    return Library(None, path, targets)


def sources() -> list[Path]:
    """The files that are compiled."""
    return sorted(HERE.glob("*.cc"))


# ------------------------------------------------------------------------------------------- found built


def prebuilt(level: str) -> Path:
    """The path of a library built from these sources for a kind of processor (``x86-64-v3``)."""
    return HERE / f"kernels-{level}-{_digest()}.so"


def _prebuilt() -> Path | None:
    has = set(processor().split())
    for level, needed in _LEVELS:
        if needed <= has and prebuilt(level).exists():
            return prebuilt(level)
    return None


def _digest(*more: str) -> str:
    """A digest of the sources, headers and whatever else the library depends on."""
    digest = hashlib.sha256()
    for source in [*sources(), *sorted(HERE.glob("*.h"))]:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update("\0".join(more).encode())
    return digest.hexdigest()[:24]


# ------------------------------------------------------------------------------------------------- built


def _in_cache() -> Path:
    """The library in the user's cache folder, which is built if it is not there."""
    command = compiler()
    jaxlib = require("jaxlib.version", "the xla engine", "xla").__version__
    # A compiler's name stays the same; its file changes with its version.
    status = os.stat(os.path.realpath(command[0]))
    made_by = f"{command} {status.st_size} {status.st_mtime_ns}"
    name = _digest(made_by, *FLAGS, jaxlib, platform.platform(), processor())
    folder = private_folder("native")
    if folder is None:
        raise EngineError(
            f"{cache_folder() / 'native'} cannot be made, or others than this user can write to it"
        )
    return _intact(folder, name) or build(folder, name, command, "native")


def _intact(folder: Path, name: str) -> Path | None:
    """The library of a name that is as it was built; those that are not are removed.

    What a library holds is hashed in its file's name, so that the hash and the library cannot come apart.
    """
    for path in sorted(folder.glob(f"{name}-*.so")):
        with contextlib.suppress(OSError):
            if path.name == _sealed(name, path) and not path.is_symlink():
                return path
            path.unlink()
    return None


def _sealed(name: str, library: Path) -> str:
    return f"{name}-{hashlib.sha256(library.read_bytes()).hexdigest()}.so"


def compiler() -> list[str]:
    """The C++ compiler's command.

    Raises:
        EngineError: there is none.
    """
    named = shlex.split(os.environ.get("CXX", ""))
    for command in [named] if named else [["g++"], ["c++"], ["clang++"]]:
        executable = shutil.which(command[0])
        if executable is not None:
            return [executable, *command[1:]]
    looked_for = named[0] if named else "g++, c++ or clang++"
    raise EngineError(f"no C++ compiler was found ({looked_for})")


def build(folder: Path, name: str, compiler: Sequence[str], level: str) -> Path:
    """Compile all sources into a library. Several processes may do so at once, without harm.

    Args:
        folder: where it is put.
        name: the beginning of its file's name.
        compiler: its command.
        level: for which processor, as the compiler's option ``-march`` calls it; ``native`` for this one.

    Returns:
        The library's file.
    """
    for leftover in folder.glob("build-*"):  # By a process that was killed.
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > 2 * _SECONDS:
                shutil.rmtree(leftover)
    ffi = require("jax.ffi", "the xla engine", "xla")
    options = [*FLAGS, f"-march={level}", "-I", ffi.include_dir()]
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as temporary:
        objects = [Path(temporary) / f"{source.stem}.o" for source in sources()]
        _run(
            [
                [*compiler, *options, "-c", str(source), "-o", str(object_file)]
                for source, object_file in zip(sources(), objects, strict=True)
            ]
        )
        whole = Path(temporary) / "kernels.so"
        _run([[*compiler, "-shared", "-o", str(whole), *map(str, objects)]])
        with whole.open("rb") as file:
            os.fsync(file)
        path = folder / _sealed(name, whole)
        os.replace(whole, path)
    return path


def _run(commands: Sequence[Sequence[str]]) -> None:
    """Run commands in parallel, and raise an error with the output of the first that failed."""
    with contextlib.ExitStack() as stack:
        running = []
        for command in commands:
            output = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(  # noqa: S603 - the user's own compiler
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output
            )
            stack.callback(_end, process)
            running.append((command, process, output))
        for command, process, output in running:
            if process.wait(_SECONDS) != 0:
                output.seek(0)
                lines = output.read().decode(errors="replace").splitlines()
                errors = [line for line in lines if "error" in line] or lines or ["it said nothing"]
                raise EngineError(
                    f"{command[0]} could not compile the kernels (exit status {process.returncode}): "
                    f"{errors[0]}"
                )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
