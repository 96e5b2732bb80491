"""Programs whose pages the tests open, and the browser that opens them."""

from __future__ import annotations

import json
import linecache
import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.flow.page.html import page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "STOPGRAD_CHROMIUM"


def chromium() -> str | None:
    """Where Chromium is: what the environment says, or what is found among the commands."""
    said = os.environ.get(VARIABLE)
    return said or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def started(*flags: str) -> Iterator[Any]:
    """A headless Chromium; the test is skipped, and says so, where there is none."""
    path = chromium()
    if path is None:
        pytest.skip(
            f"THE PAGE IS NOT TESTED: no Chromium; apt-get install chromium, or set {VARIABLE} to one"
        )
    api = pytest.importorskip(
        "playwright.sync_api", reason="THE PAGE IS NOT TESTED: no playwright; pip install 'stopgrad[test]'"
    )
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *flags])
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page in the browser, and what it should not have done."""

    page: Any
    complaints: list[str] = field(default_factory=list)

    def settle(self) -> None:
        """Wait until the graph is laid out and drawn."""
        self.page.wait_for_timeout(30)
        self.page.wait_for_function(
            "['ready', 'failed'].includes(document.documentElement.dataset.state)", timeout=60_000
        )
        assert self.page.evaluate("document.documentElement.dataset.state") == "ready"

    def click(self, selector: str) -> None:
        self.page.locator(selector).first.click()
        self.settle()

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.settle()

    def search(self, text: str) -> None:
        """Type into the field for searching, and wait for what is found."""
        self.page.fill("#search", text)
        self.page.wait_for_function(
            "text => document.querySelector('#found-section').dataset.searched === text", arg=text
        )

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def drawn(self, selector: str) -> list[str]:
        """The texts of elements of the graph, which are no HTML."""
        return self.page.locator(selector).all_text_contents()

    def outside(self, selector: str) -> int:
        """The number of matching elements of the graph that are not wholly in view."""
        return self.page.locator(selector).evaluate_all(
            """all => { const at = (e) => e.getBoundingClientRect();
                 const frame = at(document.getElementById('graph'));
                 return all.map((e) => at(e.querySelector('.face, .frame'))).filter((box) =>
                   box.left < frame.left || box.top < frame.top || box.right > frame.right
                   || box.bottom > frame.bottom).length; }"""
        )

    def operations(self, selector: str) -> set[str]:
        """The names of the operations whose boxes match."""
        found = self.page.locator(f"#graph {selector}").evaluate_all(
            "all => all.map((e) => e.dataset.operation)"
        )
        return {name for name in found if name is not None}


@contextmanager
def opened(browser: Any, flow: Any, folder: Path, script: str = "", **options: Any) -> Iterator[Opened]:
    """The report's page, opened from a file; afterwards nothing may have gone wrong on it."""
    path = folder / "flow.html"
    flow.to_html(path)
    with browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options}) as context:
        found = Opened(context.new_page())
        found.page.on("console", lambda message: found.complaints.append(f"console: {message.text}"))
        found.page.on("pageerror", lambda error: found.complaints.append(f"error: {error}"))
        found.page.on("request", lambda request: _allow(request.url, path, found))
        if script:
            found.page.add_init_script(script)
        found.page.goto(path.as_uri())
        found.settle()
        yield found
        assert not found.complaints


def _allow(url: str, path: Path, found: Opened) -> None:
    if url != path.as_uri() and not url.startswith(("data:", "blob:")):
        found.complaints.append(f"request: {url}")


def data_of(flow: Any) -> dict[str, Any]:
    """The data in a report's page, as its scripts read it."""
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', page(flow), re.DOTALL)
    assert inside is not None
    return json.loads(inside[1])


# ------------------------------------------------------------------------------------------- programs


def q_learning() -> Any:
    """A target behind a stop, an idle stop, an argmax behind the stop, and a gradient."""
    graph = sg.Graph()
    with graph.as_default():
        states = sg.placeholder(sg.float32, [None, 4], name="states")
        rewards = sg.placeholder(sg.float32, [None], name="rewards")
        w = sg.parameter(np.zeros((4, 2), np.float32), name="online/w")
        t = sg.parameter(np.zeros((4, 2), np.float32), name="target/w")
        with sg.name_scope("values"):
            q = sg.tanh(states @ w)
            chosen = sg.reduce_max(q, axis=1)
        with sg.name_scope("goal"):
            best = sg.one_hot(sg.argmax(states @ w, axis=1), 2)
            goal = sg.stop_gradient(rewards + 0.9 * sg.reduce_sum((states @ t) * best, axis=1))
        idle = sg.stop_gradient(rewards)
        loss = sg.reduce_mean(sg.square(chosen - goal)) + sg.reduce_mean(idle)
        sg.gradients(loss, [w])
    return sg.explain(loss, [w, t])


def attention(p: Any, x: Any) -> Any:
    """Of each row, weighted by a softmax of its products with the others."""
    scores = (x @ p["q"]) @ sg.transpose(x)
    shifted = scores - sg.stop_gradient(sg.reduce_max(scores, axis=-1, keepdims=True))
    weights = sg.exp(shifted)
    return (weights / sg.reduce_sum(weights, axis=-1, keepdims=True)) @ x @ p["o"]


def mlp(p: Any, x: Any) -> Any:
    """Two layers."""
    return sg.relu(x @ p["up"]) @ p["down"]


class Block:
    """A block of a transformer."""

    def __init__(self, p: Any) -> None:
        self.p = p

    def forward(self, x: Any) -> Any:
        x = x + attention(self.p, x)
        return x + mlp(self.p, x)


def network_loss(params: Any, tokens: Any, targets: Any) -> Any:
    x = sg.gather(params["embed"], tokens)
    for p in params["blocks"]:
        x = Block(p).forward(x)
    logits = x @ params["head"]
    return sg.reduce_mean(sg.square(sg.gather(logits, targets, axis=-1)))


def network() -> Any:
    """A transformer of four blocks, written as functions and a class."""
    rng = np.random.default_rng(0)
    sizes = {"q": (4, 4), "o": (4, 4), "up": (4, 8), "down": (8, 4)}
    blocks = [{name: rng.standard_normal(size) for name, size in sizes.items()} for _ in range(4)]
    params = {"embed": rng.standard_normal((7, 4)), "blocks": blocks, "head": rng.standard_normal((4, 7))}
    return sg.explain(network_loss, params, np.array([0, 1, 2]), np.array([1, 2, 3]))


def looping(h: Any, xs: Any) -> Any:
    """A scan in whose body a branch stops one way."""

    def step(carry: Any, x: Any) -> Any:
        made = sg.tanh(carry + x)
        taken = sg.cond(
            sg.reduce_sum(x) > 0.0, lambda a: sg.sin(a), lambda a: sg.stop_gradient(a) * 2.0, made
        )
        return taken, taken

    last, every = sg.scan(step, h, xs)
    return sg.reduce_sum(last) + sg.reduce_sum(every)


def repeating(h: Any, w: Any) -> Any:
    """A loop that ends by a condition: its gradient is a loop of loops, most of it for one operation."""
    found = sg.while_loop(
        lambda i, h: sg.reduce_sum(h) < 100.0,
        lambda i, h: (i + 1, sg.tanh(h @ w) + sg.stop_gradient(h)),
        (0, h),
        maximum_iterations=5,
    )
    return sg.reduce_sum(found[1])


def chain(length: int) -> Any:
    """Operations one after the other, without scopes, with one stop in the middle."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [None], name="x")
        w = sg.placeholder(sg.float32, [None], name="w")
        y = x
        for i in range(length // 4):
            y = sg.tanh(y)
            y = y * w
            if i == length // 8:
                y = sg.stop_gradient(y)
            y = sg.sin(y)
            y = y + w
    return sg.explain(y, [x, w])


def scoped(seed: int, length: int) -> Any:
    """A random graph whose operations stand in scopes that are left and entered again."""
    choose = random.Random(seed)
    graph = sg.Graph()
    with graph.as_default():
        scopes = [sg.Scope(graph)]
        for name in "abcabc":
            scopes.append(choose.choice(scopes).with_sub_scope(name))
        values = [sg.placeholder(sg.float32, [2], name=f"x{i}") for i in range(3)]
        for _ in range(length):
            scope = choose.choice(scopes)
            one, other = (choose.choice(values[-12:]).as_output() for _ in range(2))
            kind = choose.choice([sg.ops.AddV2, sg.ops.Mul, sg.ops.Sub])
            made = kind.create(scope, one, other).as_output()
            values.append(
                sg.ops.StopGradient.create(scope, made).as_output() if choose.random() < 0.1 else made
            )
        y = sg.add_n(values[3:])
        sg.gradients(y, values[:3])
    return sg.explain(y, values[:3])


HOSTILE = (
    "# </script><script>document.title = 'broken'</script> <!-- \u2028 ${x} {{data}} &amp;\n"
    "def f(params):\n"
    "    é = params[KEY]; return 'ünïcode 🦊' and sg.reduce_sum(sg.stop_gradient(é) * 2.0)  # <img src=x>\n"
)
KEY = "</script><img src=x onerror=\"document.title='broken'\"> ' \" & 🦊 {{scripts}}"


def hostile() -> Any:
    """Source, file and tensor with names that would end a script or make an element."""
    file = "/tmp/</script> \"a' & 🦊.py"
    linecache.cache[file] = (len(HOSTILE), None, [f"{line}\n" for line in HOSTILE.split("\n")], file)
    names = {"sg": sg, "KEY": KEY}
    exec(compile(HOSTILE, file, "exec"), names)
    return sg.explain(names["f"], {KEY: np.float32(1.0)})
