"""The page of a report: what it holds, and what it does in a browser."""

from __future__ import annotations

import hashlib
import html.parser
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import page_tools
import pytest
from page_tools import Opened, data_of, opened

import stopgrad as sg
from stopgrad.flow.page import html as page_html
from stopgrad.flow.page.grouping import LIMIT
from stopgrad.flow.page.page_sources import shown_names

pytestmark = pytest.mark.slow

HOME = Path(page_html.__file__).parent


# ----------------------------------------------------------------------------------------- what it holds


class Tree:
    """The groups of a page, as its scripts read them."""

    def __init__(self, data: dict[str, Any]) -> None:
        columns = data["operations"]
        self.count = len(columns["group"])  # Those made for a gradient are in no group.
        self.groups = data["groups"]
        self.constant = [data["types"][t] == "Const" for t in columns["type"]]
        self.group_of = columns["group"]
        self.inputs: list[list[int]] = []
        deltas = iter(columns["inputs"])
        for op, count in enumerate(columns["count"][: self.count]):
            self.inputs.append([op - next(deltas) for _ in range(count)])
        order = iter(data["order"])
        self.members = [
            [next(order) for _ in range(next(order))] for _ in range(len(self.groups["kind"]) + 1)
        ]

    def seen_as(self, op: int, closed: set[int]) -> tuple[str, int]:
        """The operation, or the outermost folded group that it lies in."""
        found, group = ("op", op), self.group_of[op]
        while group >= 0:
            if group in closed:
                found = ("group", group)
            group = self.groups["parent"][group]
        return found


@pytest.fixture
def no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gradient is generated for a page."""
    monkeypatch.setattr("stopgrad.flow.page.collected.GENERATED", -1)


@pytest.mark.parametrize(
    "flow",
    [
        pytest.param(page_tools.q_learning, id="q_learning"),
        pytest.param(lambda: page_tools.chain(400), id="chain"),
        pytest.param(lambda: sg.explain(page_tools.looping, np.zeros(3), np.ones((4, 3))), id="loops"),
        *(
            pytest.param(lambda seed=seed: page_tools.scoped(seed, 150), id=f"scoped {seed}")
            for seed in range(6)
        ),
    ],
)
def test_groups_hold_each_operation_once_and_folding_makes_no_circle(flow: Any) -> None:
    tree = Tree(data_of(flow()))
    every = [m for members in tree.members for m in members]
    heads = [op for op in tree.groups["op"] if op >= 0]
    assert sorted([*(m for m in every if m >= 0), *heads]) == list(range(tree.count))
    assert sorted(-1 - m for m in every if m < 0) == list(range(len(tree.groups["kind"])))
    for op, group in enumerate(tree.group_of):
        assert op in tree.members[group + 1] or tree.groups["op"][group] == op
    for group, parent in enumerate(tree.groups["parent"]):
        assert parent < group
        assert -1 - group in tree.members[parent + 1]
    random = np.random.default_rng(0)
    for share in (1.0, 0.7, 0.4, 0.2):
        closed = {g for g in range(len(tree.groups["kind"])) if random.random() < share}
        assert not in_circles(tree, closed)


def in_circles(tree: Tree, closed: set[int]) -> set[Any]:
    """What is left of the folded graph when whatever has no input left is taken away, again and again."""
    inputs: dict[Any, set[Any]] = {}
    for op in range(tree.count):
        seen = tree.seen_as(op, closed)
        # Constants, which the page hides, are built once and used in other scopes, too.
        sources = {tree.seen_as(x, closed) for x in tree.inputs[op] if not tree.constant[x]}
        inputs.setdefault(seen, set()).update(sources - {seen})
    while ready := {node for node, sources in inputs.items() if not sources}:
        inputs = {node: sources - ready for node, sources in inputs.items() if node not in ready}
    return set(inputs)


def test_a_graph_of_any_size_opens_with_few_boxes() -> None:
    tree = Tree(data_of(page_tools.chain(5000)))
    assert max(map(len, tree.members)) <= LIMIT + 2  # The two tensors asked about stand beside the blocks.
    assert len(tree.members[0]) > 3


@pytest.mark.usefixtures("no_gradient")
def test_a_scope_is_one_group_unless_that_would_make_a_circle() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [2], name="x")
        a, b, c = (sg.Scope(graph).with_sub_scope(name) for name in "abc")
        y = x
        for scope in (a, b, a, b):
            y = sg.ops.Exp.create(scope, y).as_output()
            y = sg.ops.Sin.create(scope, y).as_output()
        one = sg.ops.Exp.create(c, x).as_output()
        other = sg.ops.Exp.create(sg.Scope(graph), x).as_output()
        two = sg.ops.Sin.create(c, x).as_output()
        z = sg.add_n([y, one, other, two])
    labels = data_of(sg.explain(z, [x]))["groups"]["label"]
    assert sorted(labels) == ["a", "a", "b", "b", "c"]


@pytest.mark.usefixtures("no_gradient")
def test_scopes_of_any_depth_are_grouped_without_recursion() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [2], name="x")
        y, scope = x, sg.Scope(graph)
        for _ in range(400):
            scope = scope.with_sub_scope("s")
            y = sg.ops.Exp.create(scope, y).as_output()
        flow = sg.explain(y, [x])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(250)
    try:
        data = data_of(flow)
    finally:
        sys.setrecursionlimit(limit)
    assert len(data["groups"]["kind"]) == 399


@pytest.mark.usefixtures("no_gradient")
def test_a_body_is_a_group_inside_its_operation() -> None:
    data = data_of(sg.explain(page_tools.looping, np.zeros(3), np.ones((4, 3))))
    groups = data["groups"]
    types = [data["types"][data["operations"]["type"][op]] if op >= 0 else "" for op in groups["op"]]
    assert [(types[g], groups["kind"][g], groups["label"][g]) for g in range(len(types))] == [
        ("Scan", "op", ""),
        ("Case", "op", ""),
        ("", "body", "branches[0]"),
        ("", "body", "branches[1]"),
    ]
    assert groups["parent"] == [-1, 0, 1, 1]


def test_marks_say_what_each_operation_is_to_the_gradient() -> None:
    data = data_of(page_tools.q_learning())
    names = [op_name(data, op) for op in range(len(data["operations"]["type"]))]
    marks = dict(zip(names, data["operations"]["mark"], strict=True))
    assert marks["values/Tanh"] == "l"
    assert marks["goal/StopGradient"] == "c"
    assert marks["goal/AddV2"] == "h"
    assert marks["StopGradient"] == "i"
    assert marks["states"] == "a"
    assert all(mark == "g" for name, mark in marks.items() if name.startswith("gradients/"))
    inside = data_of(sg.explain(page_tools.looping, np.zeros(3), np.ones((4, 3))))
    by_type: dict[str, set[str]] = {}
    for type, mark in zip(inside["operations"]["type"], inside["operations"]["mark"], strict=True):
        by_type.setdefault(inside["types"][type], set()).add(mark)
    assert by_type["Scan"] - {"g"} == {"p"}  # One way through it is cut.
    assert by_type["StopGradient"] - {"g"} == {"c"}
    assert by_type["Sin"] - {"g"} == {"l"}


def op_name(data: dict[str, Any], op: int) -> str:
    columns = data["operations"]
    type = data["types"][columns["type"][op]]
    name = columns["name"][op]
    last = name if isinstance(name, str) else type if name == 0 else f"{type}_{name}"
    prefix = data["prefixes"][columns["prefix"][op]]
    return f"{prefix}/{last}" if prefix else last


def test_a_cut_is_told_once_for_its_line_with_all_its_uses() -> None:
    def f(a: Any, b: Any) -> Any:
        return sum(sg.reduce_sum(sg.stop_gradient(x) * 2.0) for x in (a, b))

    data = data_of(sg.explain(f, np.ones(2), np.ones(3)))
    (cut,) = data["cuts"]
    assert cut["uses"] == len(cut["ops"]) == 2
    assert cut["behind"] == "a, b"
    assert [tensor["cuts"] for tensor in data["tensors"]] == [[0], [0]]


def test_a_gradient_is_generated_in_a_copy_where_nobody_has_built_one() -> None:
    flow = sg.explain(lambda a, b: sg.reduce_sum(sg.tanh(a) * sg.stop_gradient(b)), np.ones(2), np.ones(2))
    before = len(flow.graph)
    data = data_of(flow)
    assert data["generated"]
    assert len(flow.graph) == before
    forward = data["operations"]["mark"].index("g")
    names = [op_name(data, op) for op in range(len(data["operations"]["mark"]))]
    made = {names[forward + i]: names[op] for i, op in enumerate(data["operations"]["origin"])}
    assert made["gradients/TanhGrad"] == "Tanh"
    assert data["closed"] == []
    assert "g" not in data_of(sg.explain(lambda b: sg.stop_gradient(b), np.ones(2)))["operations"]["mark"]
    assert not data_of(page_tools.q_learning())["generated"]


def twice(x: Any) -> Any:
    """Two loops over the same function, and one of unknown length around a branch."""

    def step(carry: Any, row: Any) -> Any:
        carry = sg.tanh(carry * row)
        return carry, carry

    def shrink(n: Any, y: Any) -> Any:
        return n + 1, sg.cond(sg.reduce_sum(y) > 1.0, sg.sin, sg.exp, y)

    one, _ = sg.scan(step, x, sg.stack([x, x]))
    other, _ = sg.scan(step, one, sg.stack([x, x]))
    return sg.reduce_sum(sg.while_loop(lambda n, y: n < 4, shrink, [0, other], maximum_iterations=5)[1])


@pytest.mark.parametrize("built", [False, True])
def test_operations_in_bodies_of_gradients_stand_beside_those_they_were_made_for(built: bool) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [3], name="x")
        y = twice(x)
        if built:
            sg.gradients(y, [x])
        data = data_of(sg.explain(y, [x]))
    columns, types = data["operations"], data["types"]
    forward = len(columns["group"])
    assert data["generated"] is not built
    made: dict[str, set[int]] = {}
    for i, origin in enumerate(columns["origin"]):
        made.setdefault(types[columns["type"][forward + i]], set()).add(origin)
    assert {types[columns["type"][op]] for op in made["Cos"]} == {"Sin"}
    loops = [op for op in data["groups"]["op"] if op >= 0 and types[columns["type"][op]] == "Scan"]
    scans = {columns["group"][op] for op in loops}
    of_tanh = {op for op in made["TanhGrad"] if types[columns["type"][op]] == "Tanh"}
    assert {columns["group"][op] for op in of_tanh} == scans  # Each in the loop that it belongs to.
    assert len(scans) == len(of_tanh) == len(made["TanhGrad"]) == 2


def test_columns_of_the_source_count_characters_not_bytes() -> None:
    data = data_of(page_tools.hostile())
    file, line, last, start, end, _ = data["places"][data["cuts"][0]["place"]]
    (first, text) = data["files"][file]["parts"][0]
    assert line == last
    assert text.split("\n")[line - first][start:end] == "sg.stop_gradient(é)"


def test_of_a_graph_that_was_loaded_the_lines_it_knows_are_shown(tmp_path: Path) -> None:
    flow = page_tools.q_learning()
    flow.graph.save(tmp_path / "graph")
    graph = sg.Graph.load(tmp_path / "graph")
    again = sg.explain(graph.output(flow.ys[0].name), [graph.output(x.name) for x in flow.xs.values()])
    data = data_of(again)
    file, line, _, start, end, _ = data["places"][data["cuts"][0]["place"]]
    text = dict(map(tuple, data["files"][file]["parts"]))[line]
    assert text.startswith("sg.stop_gradient(rewards + 0.9")
    assert (start, end) == (-1, -1)


def test_a_report_on_nothing_has_a_page() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [2], name="x")
        n = sg.placeholder(sg.int32, [2], name="n")
    assert data_of(sg.explain(x, []))["tensors"] == []
    assert data_of(sg.explain(x, [x]))["operations"]["mark"][0] == "l"
    assert data_of(sg.explain(n, [x]))["tensors"][0]["status"] == "disconnected"


def test_only_what_surrounds_the_lines_is_taken_of_a_long_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stopgrad.flow.page.page_sources.WHOLE", 10)
    data = data_of(page_tools.q_learning())
    file = next(file for file in data["files"] if file["name"].endswith("page_tools.py"))
    shown = sum(text.count("\n") + 1 for _, text in file["parts"])
    assert shown < len(Path(page_tools.__file__).read_text().splitlines())
    assert "goal = sg.stop_gradient" in "".join(text for _, text in file["parts"])


def test_files_are_named_by_as_few_folders_as_tell_them_apart() -> None:
    assert shown_names(["/home/me/a/net.py", "/home/me/b/net.py", "/x/loss.py"]) == [
        "a/net.py",
        "b/net.py",
        "loss.py",
    ]
    assert shown_names([str(Path.cwd() / "tests" / "x.py")]) == ["tests/x.py"]


@pytest.mark.usefixtures("no_gradient")
def test_an_operation_takes_few_bytes() -> None:
    text = page_html.page(page_tools.chain(8000))
    small = page_html.page(page_tools.chain(80))
    assert (len(text) - len(small)) / 7920 < 50


def test_the_engine_is_the_one_that_its_note_names() -> None:
    known = {
        "elk-worker.min.js": "dca3a19d9ec37f5634bf5876b4ebd2455c3f43f0d32570136c13c13edaba9bfb",
        "elk-api.js": "ccca46175c05bbd280b5de6c9853103711e52c666a101f145b717e345363e24d",
    }
    for name, digest in known.items():
        assert hashlib.sha256((HOME / "elk" / name).read_bytes()).hexdigest() == digest
    assert "Eclipse Public License" in (HOME / "elk" / "LICENSE.md").read_text()


# ------------------------------------------------------------------------------------------- the file


class Elements(html.parser.HTMLParser):
    """What a page would load, and its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href") and value]


@pytest.mark.parametrize("flow", [page_tools.q_learning, page_tools.hostile])
def test_the_page_refers_to_nothing_outside_of_it(flow: Any) -> None:
    text = page_html.page(flow())
    parser = Elements()
    parser.feed(text)
    assert parser.loads == ["data:,"]
    assert parser.tags.count("script") == 2 + 1 + len(page_html.SCRIPTS)
    assert "img" not in parser.tags
    assert not re.search(r"@import|url\((?!#)", (HOME / "style.css").read_text())


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    flow = page_tools.q_learning()
    with pytest.raises(sg.FileError, match="its folder does not exist; make it first"):
        flow.to_html(tmp_path / "missing" / "flow.html")
    with pytest.raises(sg.FileError, match="it is a folder"):
        flow.to_html(tmp_path)
    with pytest.raises(sg.ArgumentError, match="no path of a file"):
        flow.to_html(3)
    assert not list(tmp_path.iterdir())
    flow.to_html(tmp_path / "flow.html")
    assert [path.name for path in tmp_path.iterdir()] == ["flow.html"]


# ------------------------------------------------------------------------------------- in the browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with page_tools.started() as found:
        yield found


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    with opened(browser, page_tools.q_learning(), tmp_path) as found:
        yield found


def test_it_opens_with_the_way_to_the_cuts_unfolded(shown: Opened) -> None:
    assert "goal/StopGradient" in shown.operations(".operation.cut")
    assert "values/Tanh" in shown.operations(".operation.live")
    assert "StopGradient" in shown.operations(".operation.idle")
    assert shown.texts("#tensors .status") == ["partly stopped", "stopped"]
    assert shown.count("#graph .edge.live") > 2
    assert shown.count("#source .under.cut") == 1
    assert shown.page.locator("#source .under.cut").is_visible()
    marks = ("live", "cut", "idle", "hidden")
    assert [shown.page.locator(f".legend .{mark}").is_visible() for mark in (*marks, "partly")] == [
        True
    ] * 4 + [False]


def test_groups_fold_and_unfold_by_mouse_and_keys(shown: Opened) -> None:
    shown.click("#fold")
    assert "goal/StopGradient" not in shown.operations(".node")
    group = shown.page.locator("#graph .node.group", has_text="goal")
    assert group.get_attribute("aria-expanded") == "false"
    assert "1 cut" in group.text_content()
    group.click()
    shown.settle()
    assert "goal/StopGradient" in shown.operations(".node")
    frame = shown.page.locator('#graph .opened[aria-label^="goal"]')
    assert frame.get_attribute("aria-expanded") == "true"
    frame.focus()
    shown.press("Enter")
    assert "goal/StopGradient" not in shown.operations(".node")
    assert shown.page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("goal")
    shown.press(" ")
    assert "goal/StopGradient" in shown.operations(".node")
    shown.click("#fold")
    shown.click("#unfold")
    assert "goal/StopGradient" in shown.operations(".node")


def test_tab_goes_from_box_to_box(shown: Opened) -> None:
    shown.page.locator("#graph").focus()
    seen = set()
    for _ in range(3):
        shown.page.keyboard.press("Tab")
        seen.add(shown.page.evaluate("document.activeElement.dataset.node"))
    assert len(seen) == 3
    assert None not in seen


def test_a_click_on_an_operation_shows_its_line(shown: Opened) -> None:
    shown.click('[data-operation="values/Tanh"]')
    assert shown.operations(".chosen") == {"values/Tanh"}
    assert shown.texts("#source .line.marked code") == ["            q = sg.tanh(states @ w)"]
    assert shown.texts("#source .under.chosen") == ["sg.tanh(states @ w)"]
    assert "values/Tanh" in shown.texts("#details h3")
    assert shown.page.locator("#source .line.marked").is_visible()
    shown.press("Escape")
    assert shown.operations(".chosen") == set()


def test_a_click_on_a_line_shows_its_operations_and_unfolds_what_hides_them(shown: Opened) -> None:
    shown.click("#fold")
    line = shown.page.locator("#source .line", has_text="sg.reduce_max(q, axis=1)")
    line.click()
    shown.settle()
    assert shown.operations(".chosen") == {"values/Max"}
    assert line.get_attribute("class").split()[-1] == "marked"
    shown.press("ArrowDown")
    assert "goal" not in shown.operations(".chosen")


def test_lines_are_reached_by_keys(shown: Opened) -> None:
    shown.page.locator("#source .linked-line").first.focus()
    for _ in range(4):
        shown.page.keyboard.press("ArrowDown")
    shown.press("Enter")
    assert shown.operations(".chosen") == {"values/MatMul", "values/Tanh"}


def test_search_finds_names_types_and_lines(shown: Opened) -> None:
    shown.click("#fold")
    shown.page.keyboard.press("/")
    assert shown.page.evaluate("document.activeElement.id") == "search"
    for text, wanted in (("goal/argm", "goal/ArgMax"), ("OneHot", "goal/OneHot"), ("nothing like it", None)):
        shown.search(text)
        labels = shown.texts("#found .label")
        assert labels[:1] == ([wanted] if wanted else [])
    line = next(
        n
        for n, text in enumerate(Path(page_tools.__file__).read_text().splitlines(), 1)
        if "q = sg.tanh" in text
    )
    shown.search(f"page_tools.py:{line}")
    assert set(shown.texts("#found .label")) >= {"values/MatMul", "values/Tanh"}
    shown.page.fill("#search", "values/Tanh")
    shown.press("Enter")
    assert shown.operations(".chosen") == {"values/Tanh"}


def test_lists_lead_to_the_graph_and_the_source(shown: Opened) -> None:
    shown.click("#fold")
    shown.click("#cuts .item")
    assert shown.operations(".chosen") == {"goal/StopGradient"}
    assert "sg.stop_gradient(rewards + 0.9" in shown.texts("#source .line.marked")[0]
    shown.click('#findings .item[data-kind="idle"]')
    assert shown.operations(".chosen") == {"StopGradient"}
    assert "idle = sg.stop_gradient(rewards)" in shown.texts("#source .line.marked")[0]
    shown.click("#tensors .item:has-text('target/w')")
    assert shown.operations(".chosen") == {"target/w", "goal/StopGradient"}


def test_gradient_operations_are_linked_to_those_they_were_made_for(shown: Opened) -> None:
    assert shown.operations(".gradient") == set()
    shown.click("#show-gradient")
    assert "gradients/TanhGrad" in shown.operations(".operation.gradient")
    shown.click("#fit")
    shown.click('[data-operation="values/Tanh"]')
    assert "gradients/TanhGrad" in shown.operations(".linked")
    shown.click('[data-operation="gradients/TanhGrad"]')
    assert shown.operations(".chosen") == {"gradients/TanhGrad"}
    assert shown.operations(".linked") == {"values/Tanh"}
    shown.page.locator("#details .link", has_text="values/Tanh").first.click()
    shown.settle()
    assert shown.operations(".chosen") == {"values/Tanh"}
    shown.click("#show-gradient")
    assert shown.operations(".gradient") == set()


COLOURS = """() => ['body', '#graph .live .face', '#graph .cut .face', '#graph .edge.live'].map((at) => {
  const style = getComputedStyle(document.querySelector(at));
  return at === 'body' ? style.backgroundColor + style.color : style.fill + style.stroke; })"""


def test_light_and_dark_follow_the_system_and_the_switch(browser: Any, tmp_path: Path) -> None:
    flow, found = page_tools.q_learning(), {}
    for system in ("light", "dark"):
        with opened(browser, flow, tmp_path, color_scheme=system) as shown:
            found[system] = shown.page.evaluate(COLOURS)
            other = "dark" if system == "light" else "light"
            shown.page.select_option("#theme", other)
            found[f"{system}, switched"] = shown.page.evaluate(COLOURS)
            shown.page.reload()
            shown.settle()
            assert shown.page.evaluate(COLOURS) == found[f"{system}, switched"]
    assert all(light != dark for light, dark in zip(found["light"], found["dark"], strict=True))
    assert found["light"] == found["dark, switched"]
    assert found["dark"] == found["light, switched"]


def test_what_users_write_is_only_ever_text(browser: Any, tmp_path: Path) -> None:
    with opened(browser, page_tools.hostile(), tmp_path) as shown:
        assert shown.page.title().startswith("stopgrad: params.</script>")
        assert shown.texts("#tensors .label") == [f"params.{page_tools.KEY}"]
        first = shown.page.locator("#source .line code").first.text_content()
        assert first == page_tools.HOSTILE.split("\n")[0]
        assert shown.texts("#source .under.cut") == ["sg.stop_gradient(é)"]
        assert shown.count("img") == 0
        shown.click("#cuts .item")
        assert shown.count(".node.chosen") == 1


FAILING = "postMessage() { this.dispatchEvent(new Event('error')); }"


@pytest.mark.parametrize(
    "script",
    [
        "window.Worker = class { constructor() { throw new Error('refused'); } };",
        f"window.Worker = class extends EventTarget {{ {FAILING} }};",
    ],
)
def test_the_graph_is_laid_out_without_a_worker_too(browser: Any, tmp_path: Path, script: str) -> None:
    with opened(browser, page_tools.q_learning(), tmp_path, script) as shown:
        assert "goal/StopGradient" in shown.operations(".operation.cut")


def test_bodies_open_inside_their_operation(browser: Any, tmp_path: Path) -> None:
    flow = sg.explain(page_tools.looping, np.zeros(3), np.ones((4, 3)))
    with opened(browser, flow, tmp_path) as shown:
        assert {"Scan", "Case"} <= shown.operations(".opened")
        outer, inner = (
            shown.page.locator(f'#graph .opened[data-operation="{name}"] .frame').bounding_box()
            for name in ("Scan", "Case")
        )
        assert outer["x"] < inner["x"]
        assert outer["y"] < inner["y"]
        assert outer["x"] + outer["width"] > inner["x"] + inner["width"]
        # The live way leads through the bodies: from the operand into a parameter, and out from the branch.
        ends = shown.page.locator("#graph .edge.live").evaluate_all(
            """all => all.map((edge) => [edge.dataset.from, edge.dataset.to].map(
                 (node) => document.querySelector(`[data-node="${node}"]`).dataset.operation))"""
        )
        assert ["h", "Placeholder"] in ends
        assert ["Sin", "Sum"] in ends
        scan = shown.page.locator("#source .line", has_text="last, every = sg.scan").locator(".sign")
        assert "cut" not in scan.get_attribute("class")  # The cut's line is another, inside.
        shown.click("#fold")
        assert "Scan" in shown.operations(".group.partly")
        assert shown.count("#graph .count") == 0


def test_a_large_graph_opens_folded_and_its_cut_is_a_click_away(browser: Any, tmp_path: Path) -> None:
    with opened(browser, page_tools.chain(5000), tmp_path) as shown:
        assert shown.count("#graph .node") < 100
        assert shown.outside("#graph .node") == 0
        assert (
            shown.count("#graph .chip") > 5
        )  # w is used all over: named where it is used, not drawn as lines.
        (cut,) = [text for text in shown.drawn("#graph .group") if "1 cut" in text]
        assert "page_tools.py" in cut
        shown.click("#cuts .item")
        assert shown.count("#graph .operation.cut.chosen") == 1
        shown.click("#fit")
        shown.click("#graph .chip")
        assert shown.operations(".chosen") == {"w"}


@pytest.fixture
def network(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    with opened(browser, page_tools.network(), tmp_path) as found:
        yield found


def test_it_opens_whole_with_the_loss_in_view_and_groups_named_after_calls(network: Opened) -> None:
    assert network.outside("#graph .node") == 0
    assert network.count("#graph .operation .root") == 1 + 4  # The loss, the head, and three arguments.
    assert [text for text in network.drawn("#graph .group .first") if "Block" in text] == [
        f"+ Block.forward · {n}/4" for n in (1, 2, 3, 4)
    ]
    assert network.texts("#summary") == ["Gradients reach all 18 tensors (14 partly); 2 of integers."]


def test_a_click_on_a_group_opens_it_and_shows_its_source(network: Opened) -> None:
    network.page.locator("#graph .group", has_text="Block.forward · 2/4").click()
    network.settle()
    assert {"+ attention", "+ mlp"} <= set(network.drawn("#graph .group .first"))
    marked = network.texts("#source .line.marked code")
    assert "        x = x + attention(self.p, x)" in marked
    assert '    return sg.relu(x @ p["up"]) @ p["down"]' in marked
    assert not any("logits" in line for line in marked)
    network.page.locator("#graph .group", has_text="mlp").click()
    network.settle()
    assert network.texts("#source .line.marked code") == ['    return sg.relu(x @ p["up"]) @ p["down"]']
    assert network.page.locator("#source .line.marked").is_visible()


ROWS = """() => [...document.querySelectorAll('#graph .operation.gradient')].map((made) => {
  const model = page.model, forward = model.nodeOf(model.origin[Number(made.dataset.node)]);
  const shape = (node) => document.querySelector(`[data-node="${node}"] :is(.face, .frame)`);
  const at = (node) => shape(node).getBoundingClientRect();
  const box = at(made.dataset.node), origin = at(forward);
  return [Math.abs(box.y - origin.y), box.x - origin.x - origin.width]; })"""


def gradient_boxes(shown: Opened) -> list[list[float]]:
    """Left, top, width and height of each box that was made for the gradient."""
    return shown.page.locator("#graph .gradient .face").evaluate_all(
        "all => all.map((e) => e.getBoundingClientRect()).map((box) => [box.x, box.y, box.width, box.height])"
    )


def apart(boxes: list[list[float]]) -> bool:
    """Whether no box lies on another."""
    return all(
        abs(y - other_y) > height or x + width < other_x or other_x + other_width < x
        for n, (x, y, width, height) in enumerate(boxes)
        for other_x, other_y, other_width, _ in boxes[n + 1 :]
    )


def test_what_is_made_for_the_gradient_lies_beside_what_it_is_made_for(
    shown: Opened, network: Opened
) -> None:
    shown.click("#show-gradient")
    rows = shown.page.evaluate(ROWS)
    assert len(rows) > 5
    assert all(off < 1 and right > 0 for off, right in rows)
    assert shown.outside("#graph .node") == 0
    assert apart(gradient_boxes(shown))
    network.click("#show-gradient")
    network.page.locator("#graph .group", has_text="gradient of Block.forward · 3/4").click()
    network.settle()
    assert network.page.locator('#graph .opened[aria-label^="Block.forward · 3/4"]').count() == 1
    assert any("gradient of attention" in text for text in network.drawn("#graph .group .first"))


def test_bodies_of_gradients_unfold_beside_the_bodies_that_they_are_made_for(
    browser: Any, tmp_path: Path
) -> None:
    flow = sg.explain(page_tools.looping, np.zeros(3), np.ones((4, 3)))
    with opened(browser, flow, tmp_path) as shown:
        shown.click("#show-gradient")
        assert {"TanhGrad", "Cos"} <= shown.operations(".operation.gradient")
        assert all(off < 1 and right > 0 for off, right in shown.page.evaluate(ROWS))
        # What arrives at the result of the loop goes into the gradient's body.
        ends = shown.page.locator("#graph .edge.gradient").evaluate_all(
            """all => all.map((edge) => [edge.dataset.from, edge.dataset.to].map(
                 (node) => document.querySelector(`[data-node="${node}"]`).dataset.operation))"""
        )
        arriving = [end for start, end in ends if start.startswith("gradients/BroadcastTo")]
        assert len(arriving) == 2
        assert all(end.startswith("Placeholder") for end in arriving)
        shown.click("#fold")
        assert any("gradient of Scan" in text for text in shown.drawn("#graph .group .first"))
        assert "TanhGrad" not in shown.operations(".operation.gradient")


def test_a_long_row_of_what_is_made_for_the_gradient_goes_on_below(browser: Any, tmp_path: Path) -> None:
    flow = sg.explain(page_tools.repeating, np.ones((4, 3)), np.ones((3, 3)))
    with opened(browser, flow, tmp_path) as shown:
        shown.click("#show-gradient")
        boxes = gradient_boxes(shown)
        assert len(boxes) > 30
        assert apart(boxes)
        wide = max(x + width for x, _, width, _ in boxes) - min(x for x, *_ in boxes)
        assert wide < 35 * boxes[0][3]  # A box is 42 high; in one line they took 88 times that.


def test_on_a_phone_it_opens_at_the_summary(browser: Any, tmp_path: Path) -> None:
    phone = {"viewport": {"width": 390, "height": 844}}
    with opened(browser, page_tools.network(), tmp_path, **phone) as shown:
        assert shown.page.evaluate("scrollY") == 0
        summary = shown.page.locator("#summary").bounding_box()
        assert summary["y"] + summary["height"] < 300
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
        shown.click("#cuts .item")
        graph = shown.page.locator("#graph").bounding_box()
        assert 0 <= graph["y"] < 200
        chosen = shown.page.locator("#graph .chosen .face").first.bounding_box()
        assert graph["y"] <= chosen["y"] <= graph["y"] + graph["height"]
