"""The page of ``stopgrad serve`` in a browser, and the same training on the desktop."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from language_models import pieces, training_folder
from safetensors.numpy import load_file
from web_packages import unpacked

import stopgrad.onnx as sgo
from stopgrad.tools.serving.server import Server
from stopgrad.tools.serving.site import site

BATCH, RATE = 8, 0.01
NONE = "No available adapters."
"""What Chromium itself says where a page asks for WebGPU."""


def prepared(folder: Path) -> Path:
    """The training folder and the examples, with onnxruntime-web beside them."""
    unpacked("TRAINING ON THE PAGE OF serve", folder)
    training_folder(folder)
    np.savez(folder / "pieces.npz", **pieces())
    return folder


@contextmanager
def served(training: Path, data: Path | None = None, runtime: Path | None = None) -> Iterator[Server]:
    with Server(site(training, data, runtime)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Opened:
    """The page in a browser, and what it complained about."""

    page: Any
    complaints: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    @property
    def steps(self) -> int:
        return int(self.text("#steps"))

    def settle(self, timeout: int = 120_000) -> str:
        """Wait until nothing is opened or trained."""
        self.page.wait_for_selector(
            "html[data-state=ready], html[data-state=failed]", state="attached", timeout=timeout
        )
        return str(self.page.get_attribute("html", "data-state"))

    def set(self, count: int, rate: float = RATE, batch: int = BATCH, shuffled: bool = False) -> None:
        for name, value in (("count", count), ("rate", rate), ("batch", batch)):
            self.page.fill(f"#{name}", str(value))
        self.page.set_checked("#shuffle", shuffled)

    def train(self, count: int, **settings: Any) -> None:
        self.set(count, **settings)
        self.page.click("#start")
        assert self.settle() == "ready"

    def losses(self, server: Server) -> list[float]:
        """What the browser has kept."""
        return list(
            self.page.evaluate(
                "async (key) => Array.from((await (await import('/storage.js')).read(key)).losses)",
                server.site.identity(),
            )
        )

    def download(self, button: str, path: Path) -> Path:
        with self.page.expect_download() as found:
            self.page.click(button)
        found.value.save_as(path)
        return path

    def pick(self, selector: str, path: Path) -> None:
        """Choose a file, and wait until it is read or refused."""
        with self.page.expect_event("console", lambda message: message.text == "read"):
            self.page.evaluate(
                """(selector) => {
                  const input = document.querySelector(selector);
                  const seen = () => (input.value ? setTimeout(seen, 20) : console.log("read"));
                  input.addEventListener("change", seen, { once: true });
                }""",
                selector,
            )
            self.page.set_input_files(selector, path)


@contextmanager
def opened(browser: Any, server: Server, allowed: tuple[str, ...] = (), **options: Any) -> Iterator[Opened]:
    """The page, ready, in a browser that has kept nothing; nothing may have gone wrong on it afterwards."""
    with browser.new_context(**{"viewport": {"width": 1200, "height": 850}, **options}) as context:
        found = Opened(context.new_page())
        watched(found, server)
        found.page.goto(server.address)
        found.settle()
        yield found
        assert [c for c in found.complaints if not any(one in c for one in allowed)] == []


def watched(found: Opened, server: Server) -> None:
    def said(message: Any) -> None:
        if message.text not in (NONE, "read"):
            found.complaints.append(f"console: {message.text}")

    def asked(request: Any) -> None:
        if not request.url.startswith((server.address, "data:", f"blob:{server.address}")):
            found.complaints.append(f"request: {request.url}")

    found.page.on("console", said)
    found.page.on("pageerror", lambda error: found.complaints.append(f"error: {error}"))
    found.page.on("request", asked)


def batches(count: int) -> Iterator[dict[str, Any]]:
    """Those of the page, where they are not shuffled."""
    whole = pieces()
    each = len(whole["tokens"]) // BATCH
    for i in range(count):
        yield {name: x[BATCH * (i % each) :][:BATCH] for name, x in whole.items()}


def on_the_desktop(home: Path, count: int) -> tuple[Any, list[float]]:
    trainer = sgo.Trainer(home / "training")
    return trainer, [float(trainer.step(batch, learning_rate=RATE)) for batch in batches(count)]


def assert_close(found: Path, expected: Path) -> None:
    """Files of the same arrays and notes."""
    ours, theirs = load_file(found), load_file(expected)
    assert sorted(ours) == sorted(theirs)
    assert notes(found) == notes(expected)
    for name, x in theirs.items():
        assert ours[name].dtype == x.dtype
        np.testing.assert_allclose(ours[name], x, rtol=1e-4, atol=1e-5, err_msg=name)


def notes(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
