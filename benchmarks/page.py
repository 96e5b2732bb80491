"""How long the HTML page of a report takes to be made and to open, and how large it is.

    python benchmarks/page.py [--quick] [--repetitions 5] [--screenshots folder] [--json out.json]

Made is processor time. Opened is from the start of navigation to when the graph is laid out and drawn, in a
new headless Chromium context each time, over a file; then the time to unfold a group, and to search. Medians
of the repetitions, in wall time but for made. Needs Playwright and a Chromium, which ``STOPGRAD_CHROMIUM``
may name.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

import stopgrad as sg

READY = "document.documentElement.dataset.opened !== undefined"


def chain(length: int) -> Any:
    """Operations one after the other, without scopes; a stop in the middle."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [None], name="x")
        w = sg.placeholder(sg.float32, [None], name="w")
        y = x
        for i in range(length // 4):
            y = sg.sin(sg.tanh(y) * w) + w
            if i == length // 8:
                y = sg.stop_gradient(y)
    return sg.explain(y, [x, w])


def transformer(blocks: int) -> Any:
    """Blocks of attention in scopes of their own, with a stop at the maximum of each softmax."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [None, 8, 16], name="x")
        weights = []

        def weight(*shape: int) -> Any:
            weights.append(sg.parameter(np.zeros(shape, np.float32), name="w"))
            return weights[-1]

        y = x
        for i in range(blocks):
            with sg.name_scope(f"block_{i}"):
                with sg.name_scope("attention"):
                    q, k, v = (y @ weight(16, 16) for _ in range(3))
                    scores = q @ sg.transpose(k, [0, 2, 1]) / 4.0
                    shifted = scores - sg.stop_gradient(sg.reduce_max(scores, axis=-1, keepdims=True))
                    p = sg.exp(shifted) / sg.reduce_sum(sg.exp(shifted), axis=-1, keepdims=True)
                    y = y + p @ v @ weight(16, 16)
                with sg.name_scope("mlp"):
                    y = y + sg.relu(y @ weight(16, 64)) @ weight(64, 16)
        loss = sg.reduce_mean(sg.square(y))
    return sg.explain(loss, weights)


CASES: dict[str, Callable[[], Any]] = {
    "chain, 1,000": lambda: chain(1_000),
    "chain, 5,000": lambda: chain(5_000),
    "chain, 100,000": lambda: chain(100_000),
    "12 blocks": lambda: transformer(12),
    "200 blocks": lambda: transformer(200),
}
QUICK = ("chain, 1,000", "12 blocks")


def chromium() -> str:
    """Where Chromium is."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = os.environ.get("STOPGRAD_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise SystemExit("no Chromium: install one, or set STOPGRAD_CHROMIUM")
    return found


def opening(browser: Any, path: Path, screenshots: Path | None, name: str) -> dict[str, float]:
    """One opening of a page: milliseconds until it is drawn, to unfold a group, and to search."""
    found: dict[str, float] = {}
    for scheme in ("light", "dark") if screenshots else ("light",):
        with browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=scheme) as context:
            page = context.new_page()
            page.goto(path.as_uri())
            page.wait_for_function(READY, polling=10, timeout=120_000)
            found["open_ms"] = page.evaluate("Number(document.documentElement.dataset.opened)")
            found["boxes"] = page.locator("#graph .node").count()
            if screenshots:
                page.screenshot(path=screenshots / f"{name} {scheme}.png")
            found["unfold_ms"] = page.evaluate(
                """async () => {
                  const start = performance.now();
                  const model = page.model;
                  const group = model.visible().nodes.find((n) => model.isGroup(n) && !model.isOpen(n));
                  if (group !== undefined) await page.act(group);
                  return performance.now() - start; }"""
            )
            found["search_ms"] = page.evaluate(
                "() => { const start = performance.now(); page.model.search('ta', 100); "
                "return performance.now() - start; }"
            )
    return found


def measure(browser: Any, name: str, repetitions: int, screenshots: Path | None) -> dict[str, Any]:
    """All figures of a case."""
    flow = CASES[name]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flow.html"
        start = time.process_time()
        flow.to_html(path)
        made = time.process_time() - start
        rounds = [opening(browser, path, screenshots, name) for _ in range(repetitions)]
        return {
            "case": name,
            "operations": len(flow.graph),
            "made_ms": made * 1e3,
            "megabytes": path.stat().st_size / 1e6,
            **{key: median(found[key] for found in rounds) for key in rounds[0]},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--screenshots", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    columns = ("operations", "made_ms", "megabytes", "open_ms", "boxes", "unfold_ms", "search_ms")
    print(f"{'':<16}" + "".join(f"{column:>12}" for column in columns))
    rows = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name in QUICK if options.quick else CASES:
            row = measure(browser, name, options.repetitions, options.screenshots)
            rows.append(row)
            print(f"{name:<16}" + "".join(f"{row[column]:>12,.1f}" for column in columns))
        browser.close()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
