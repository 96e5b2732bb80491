"""What a notebook shows of graphs, reports and errors, in a real kernel."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import page_tools
import pytest
from mistaken import MISTAKES

import stopgrad as sg
from stopgrad.flow.page import html as page_html

pytestmark = pytest.mark.slow

CELLS = {
    "names": """import numpy as np
import stopgrad as sg

def loss(w, x):
    h = sg.tanh(x @ w)
    return sg.reduce_sum(sg.stop_gradient(h) * h)

args = np.ones((4, 2)), np.ones((2, 4))""",
    "flow": "sg.explain(loss, *args)",
    "graph": """with sg.Graph().as_default() as graph:
    x = sg.placeholder(sg.float32, [3], name="x")
    y = x * sg.parameter(np.ones(3, np.float32), name="scale")
graph""",
    "output": "y",
    "session": "sg.Session(graph, engine='numpy')",
    "function": "f = sg.function(loss, engine='numpy')\nf(*args)\nf",
    "check": "sg.check_gradients(loss, *args)",
    "nan": "sg.trace_nan(lambda x: sg.log(x - 1.0), np.ones(3))",
    "ablation": "sg.ablate(loss, *args)",
    "mistake": "sg.matmul(np.ones((2, 3)), np.ones((2, 3)))",
    "feed": "sg.Session(graph, engine='numpy').run(y)",
    "inside": "f(np.ones((4, 2)), np.ones((2, 5)))",
    "text": "sg.reduce_sum('a')",
    "progress": """import time
from stopgrad.base import progress
progress.AFTER = 0.1
with progress.Progress("waiting", total=5) as task:
    task.step()
    time.sleep(1.0)
    during = progress._SHOWING.locked()
during, progress._SHOWING.locked()""",
    **{name: mistake.source for name, mistake in MISTAKES.items()},
    "all frames": "import os\nos.environ['STOPGRAD_TRACEBACK'] = 'full'\nsg.reduce_sum('a')",
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The last output of each cell; for an error, its lines without colours."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, kernel_name="python3", allow_errors=True, timeout=120).execute(
        cwd=str(tmp_path_factory.mktemp("notebook"))
    )
    found: dict[str, Any] = {}
    for name, cell in zip(CELLS, notebook.cells, strict=True):
        for out in cell.outputs:
            if out.output_type == "error":
                found[name] = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(out.traceback)).splitlines()
            elif out.output_type == "execute_result":
                found[name] = out.data.get("text/html", out.data["text/plain"])
            elif out.output_type == "display_data":
                found[f"{name}, displayed"] = out.data["text/plain"]
    return found


@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        ("flow", ["Gradients reach both tensors (partly).", "cell 1, line 6", "<details><summary>the graph"]),
        ("graph", ["Graph of 3 operations", ">placeholder<", ">float32[3]<", "<iframe srcdoc="]),
        ("output", ["<b>Mul:0</b> float32[3], made by Mul", "cell 3, line 3", "<pre"]),
        ("session", ["<b>Session</b> on the engine numpy", ">scale<"]),
        ("function", ["<b>Function loss</b> traced for 1 signature", "cell 1, line 4", "def loss(w, x):"]),
        ("check", ["<table", ">w</td>", ">float64[4, 2]</td>", ">passed</td>", "cell 1, line 6"]),
        ("nan", ["infinity: made in the values, by Log", "cell 8, line 1", "<table"]),
        ("ablation", ["1 line with stops", "cell 1, line 6", "<table"]),
    ],
)
def test_what_is_displayed_names_cells_and_lines(shown: dict[str, Any], cell: str, texts: list[str]) -> None:
    text = html.unescape(shown[cell])
    assert [one for one in texts if one not in text] == []


@pytest.mark.parametrize(
    ("cell", "line", "cure"),
    [
        ("mistake", "----> 1 sg.matmul", "the inner sizes 3 and 2 differ"),
        ("feed", "----> 1 sg.Session(graph", "add it to feed_dict"),
        ("inside", "----> 5     h = sg.tanh(x @ w)", "the inner sizes 5 and 4 differ"),
        ("text", "----> 1 sg.reduce_sum", "it holds text, not numbers"),
    ],
)
def test_a_traceback_is_the_users_lines_and_the_cure(
    shown: dict[str, Any], cell: str, line: str, cure: str
) -> None:
    lines = shown[cell]
    assert any(one.startswith(line) for one in lines)
    assert any(cure in one for one in lines)
    assert not any("src/stopgrad" in one or one.startswith("File ") for one in lines)
    assert len(lines) <= 15


@pytest.mark.parametrize("name", MISTAKES)
def test_an_ordinary_mistake_is_shown_with_its_line_and_cure_in_few_lines(
    shown: dict[str, Any], name: str
) -> None:
    lines = shown[name]
    assert any(MISTAKES[name].line in line for line in lines)
    assert any(MISTAKES[name].cure in line for line in lines)
    assert not any("src/stopgrad" in line or "site-packages" in line for line in lines)
    assert len(lines) <= 15


def test_a_setting_brings_our_frames_back(shown: dict[str, Any]) -> None:
    assert any("operands.py" in line for line in shown["all frames"])


def test_progress_is_shown_and_leaves_an_empty_line(shown: dict[str, Any]) -> None:
    assert shown["progress"] == "(True, False)"
    assert shown["progress, displayed"] == ""


@pytest.fixture
def browser() -> Iterator[Any]:
    with page_tools.started() as found:
        yield found


def test_the_drawing_is_the_graph_alone_whole_and_offline(browser: Any, tmp_path: Path) -> None:
    flow = page_tools.network()
    path = tmp_path / "cell.html"
    path.write_text(f"{flow.graph._repr_html_()}{flow._repr_html_()}")
    asked: list[str] = []
    page = browser.new_context(viewport={"width": 1000, "height": 1600}).new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.locator("summary", has_text="the graph").click()
    page.wait_for_function("frames.length === 2")
    assert len(page.frames) == 3
    for frame in page.frames[1:]:
        frame.wait_for_function("document.documentElement.dataset.opened !== undefined", timeout=60_000)
        opened = page_tools.Opened(frame)
        assert not frame.locator("aside").is_visible()
        assert not frame.locator("#source").is_visible()
        assert any("Block.forward" in text for text in opened.drawn("#graph .group .first"))
        assert opened.outside("#graph .node") == 0
    assert all(url.startswith(("file:", "blob:", "data:", "about:")) for url in asked)


def test_a_large_graph_says_what_draws_it_and_an_empty_one_is_shown_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = page_tools.chain(1000)
    assert "<iframe" in flow._repr_html_()
    monkeypatch.setattr(page_html, "DRAWN", 500)
    for shown in (flow._repr_html_(), flow.graph._repr_html_()):
        assert "<iframe" not in shown
        assert "draws it" in shown
    assert "Mul" in flow.graph._repr_html_()
    assert "Graph of 0 operations" in sg.Graph()._repr_html_()
