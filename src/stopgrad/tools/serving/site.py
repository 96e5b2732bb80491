"""What is served, and nothing else: the page, the runtime, the files of the training step, the examples."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from safetensors.numpy import save

from stopgrad.tools.serving.examples import Feeds, feeds_of, read_examples
from stopgrad.tools.serving.web_runtime import TESTED, WebRuntime, web_runtime
from stopgrad_trainer.contents import Contents, contents
from stopgrad_trainer.exported import open_plain

PAGE = Path(__file__).parent / "page"
EXTERNAL = "weights.bin"
"""Frozen weights beside the graphs of a large model."""

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
}
OTHER = "application/octet-stream"


@dataclass(frozen=True)
class Served:
    """One address: a plain file, or bytes that are made when they are asked for."""

    kind: str
    content: Path | Callable[[], bytes]

    @contextmanager
    def opened(self) -> Iterator[tuple[BinaryIO, int]]:
        """The content, and how many bytes it has.

        Raises:
            OSError: the file is gone, or is a link, or no file.
        """
        if isinstance(self.content, Path):
            with open_plain(self.content) as file:
                yield file, os.fstat(file.fileno()).st_size
        else:
            content = self.content()
            yield BytesIO(content), len(content)


@dataclass
class Site:
    """A training folder as a browser sees it.

    Attributes:
        folder: the training folder.
        contents: what its manifest says.
        feeds: what a step is fed.
        runtime: the onnxruntime-web.
        data_name: of the file of examples; empty if there is none.
        served: what is at which path.
    """

    folder: Path
    contents: Contents
    feeds: Feeds
    runtime: WebRuntime
    data_name: str
    served: dict[str, Served] = field(default_factory=dict)
    _known: dict[tuple[int, ...], str] = field(default_factory=dict)

    def described(self) -> bytes:
        """What the page is told besides the manifest, as JSON."""
        text: dict[str, Any] = {
            "name": "/".join(self.folder.resolve().parts[-2:]),
            "folder": shlex.quote(str(self.folder)),
            "identity": self.identity(),
            "runtime": self.runtime.version,
            "tested": TESTED,
            "external": [EXTERNAL] if f"/training/{EXTERNAL}" in self.served else [],
            "data": self.data_name,
            "fed": self.feeds.described(),
            "batch": self.feeds.batch,
        }
        return json.dumps(text).encode()

    def identity(self) -> str:
        """A digest of all that is trained and of how: what a browser has kept belongs to this alone."""
        home = self.contents
        names = [home.folder / "manifest.json", home.state_file, home.files["train_step"]]
        if f"/training/{EXTERNAL}" in self.served:
            names.append(home.folder / EXTERNAL)
        stamps = [os.stat(path) for path in names]
        key = tuple(n for stamp in stamps for n in (stamp.st_ino, stamp.st_size, stamp.st_mtime_ns))
        if key not in self._known:
            whole = hashlib.sha256()
            for path in names:
                with open_plain(path) as file:
                    whole.update(os.fstat(file.fileno()).st_size.to_bytes(8, "little"))
                    while block := file.read(1 << 20):
                        whole.update(block)
            self._known.clear()
            self._known[key] = whole.hexdigest()
        return self._known[key]


def site(folder: Path, data: Path | None = None, runtime: Path | None = None) -> Site:
    """What is served for a training folder.

    Args:
        folder: what ``stopgrad train-graph`` has written.
        data: a file of examples.
        runtime: the folder of onnxruntime-web; by default the nearest ``node_modules`` has it.

    Raises:
        FileError: the folder is none, or is damaged; the examples do not fit; there is no onnxruntime-web.
    """
    held = contents(folder)
    feeds = feeds_of(held)
    examples = save(read_examples(data, feeds)) if data is not None else None
    result = Site(folder, held, feeds, web_runtime(folder, runtime), data.name if data is not None else "")
    result.served |= {f"/{path.name}": _file(path) for path in sorted(PAGE.iterdir()) if path.suffix in TYPES}
    result.served["/"] = result.served.pop("/index.html")
    for path in (held.folder / "manifest.json", held.state_file, held.files["train_step"]):
        with open_plain(path):
            result.served[f"/training/{path.name}"] = _file(path)
    if (held.folder / EXTERNAL).exists():
        result.served[f"/training/{EXTERNAL}"] = _file(held.folder / EXTERNAL)
    result.served |= {
        f"/runtime/{name}": _file(result.runtime.folder / name) for name in result.runtime.files
    }
    if examples is not None:
        result.served["/examples.safetensors"] = Served(OTHER, lambda: examples)
    result.served["/site.json"] = Served(TYPES[".json"], result.described)
    return result


def _file(path: Path) -> Served:
    return Served(TYPES.get(path.suffix, OTHER), path)
