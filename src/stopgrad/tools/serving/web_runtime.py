"""Where onnxruntime-web lies on this machine. It is not part of stopgrad: npm fetches it, once."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stopgrad.base.errors import FileError

PACKAGE = "onnxruntime-web"
TESTED = "1.30.0"
"""The version that the page is tested with."""

SCRIPTS = ("ort.wasm.min.mjs", "ort.webgpu.min.mjs")
"""What the page imports: on WebAssembly alone, and with WebGPU."""


@dataclass(frozen=True)
class WebRuntime:
    """An onnxruntime-web.

    Attributes:
        folder: its ``dist``.
        version: as its package says; empty if there is none beside it.
        files: the names of what a browser may load.
    """

    folder: Path
    version: str
    files: tuple[str, ...]


def web_runtime(training: Path, named: Path | None = None) -> WebRuntime:
    """The onnxruntime-web that the user names, or the nearest ``node_modules`` has.

    Args:
        training: the training folder, beside and above which it is looked for; then in the current folder.
        named: ``node_modules``, the package in it, its ``dist``, or the folder that holds ``node_modules``.

    Raises:
        FileError: there is none.
    """
    if named is not None:
        runtime = next(filter(None, map(_runtime_in, _possible_folders(named))), None)
        if runtime is None:
            raise FileError(f"--runtime: {named} holds no {SCRIPTS[0]}; {_cure(training)}")
        return runtime
    for home in _homes(training):
        runtime = _runtime_in(home / "node_modules" / PACKAGE / "dist")
        if runtime is not None:
            return runtime
    raise FileError(
        f"{PACKAGE} is in no node_modules beside or above {training}, nor here; {_cure(training)}, "
        "or name its folder with --runtime"
    )


def _cure(training: Path) -> str:
    home = shlex.quote(str(training.parent))
    return f"fetch it once with: npm install --prefix {home} {PACKAGE}@{TESTED}"


def _homes(training: Path) -> Iterator[Path]:
    """The folders whose ``node_modules`` are looked into: as Node.js does, from inside to outside."""
    for start in (training.resolve().parent, Path.cwd()):
        yield from (start, *start.parents)


def _possible_folders(named: Path) -> Iterator[Path]:
    yield from (named, named / "dist", named / PACKAGE / "dist", named / "node_modules" / PACKAGE / "dist")


def _runtime_in(dist: Path) -> WebRuntime | None:
    """The runtime in a folder, if its scripts are there."""
    try:
        names = sorted(path.name for path in dist.iterdir() if path.is_file())
    except OSError:
        return None
    if SCRIPTS[0] not in names:
        return None
    served = [name for name in names if name in SCRIPTS or _is_compiled(name)]
    return WebRuntime(dist, _version(dist.parent / "package.json"), tuple(served))


def _is_compiled(name: str) -> bool:
    return name.startswith("ort-wasm") and name.endswith((".mjs", ".wasm"))


def _version(path: Path) -> str:
    try:
        package = json.loads(path.read_text(encoding="utf-8"))
        return str(package["version"]) if package.get("name") == PACKAGE else ""
    except (OSError, ValueError, KeyError, AttributeError):
        return ""
