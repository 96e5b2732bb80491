"""The report as text: what it says, what it leaves out, and how it stands on the page."""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base.source import Location
from stopgrad.flow.source_lines import (
    character_columns,
    columns,
    excerpt,
    relative_file,
    shown_file,
    source_line,
)
from stopgrad.flow.stories import CUTS, EXCERPTS
from stopgrad.flow.words import names, number, paths_cut

Program = Callable[..., dict[str, Any]]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Run a text as a file ``user.py`` of the folder that is worked in, in a graph with x, w and b."""
    monkeypatch.chdir(tmp_path)
    count = iter(range(100))

    def run(text: str, name: str = "user") -> dict[str, Any]:
        file = tmp_path / f"{name}{next(count) or ''}.py"
        file.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        with sg.Graph().as_default():
            known: dict[str, Any] = {
                "sg": sg,
                "np": np,
                "x": sg.placeholder(sg.float32, [3], name="x"),
                "w": sg.parameter(np.ones(3, np.float32), name="w"),
                "b": sg.parameter(np.ones(3, np.float32), name="b"),
            }
            exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), known)
        return known

    return run


def told(made: dict[str, Any], *xs: str, **options: Any) -> str:
    """The report on y as it would be printed."""
    return sg.explain(made["y"], [made[x] for x in xs or ("x", "w", "b")]).to_text(**options)


# ------------------------------------------------------------------------------------- the whole report


def test_a_report_as_a_reader_finds_it(program: Program) -> None:
    made = program(
        """
        hidden = w * x + sg.stop_gradient(b)
        frozen = sg.stop_gradient(hidden)
        idle = sg.stop_gradient(sg.ones([3]))
        y = sg.reduce_sum(frozen * hidden * idle, name="loss")
        """
    )
    assert told(made) == textwrap.dedent(
        """\
        Gradients of loss reach 2 of 3 tensors (partly); 1 stopped.

        stopped: b
          both paths are cut
          user.py:1  stop_gradient
             1 | hidden = w * x + sg.stop_gradient(b)
               |                  ^^^^^^^^^^^^^^^^^^^
          user.py:2  stop_gradient
             2 | frozen = sg.stop_gradient(hidden)
               |          ^^^^^^^^^^^^^^^^^^^^^^^^
                 removing it alone opens nothing: behind it is user.py:1 (stop_gradient)

        partly stopped: x, w
          1 of 2 paths to each is cut
          cut at user.py:2, shown above

        idle: 1 stop that does nothing
          user.py:3  nothing behind it depends on what was asked about
             3 | idle = sg.stop_gradient(sg.ones([3]))
               |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"""
    )


def test_print_is_plain_and_the_same(program: Program) -> None:
    made = program("y = sg.stop_gradient(x) * w")
    flow = sg.explain(made["y"], [made["x"], made["w"]])
    assert str(flow) == flow.to_text(color=False) == flow.to_text()
    assert "\x1b" not in str(flow)


@pytest.mark.parametrize(
    ("text", "xs", "summary"),
    [
        ("y = x * w * b", "x w b", "Gradients reach all 3 tensors."),
        ("y = x * w", "x w", "Gradients reach both tensors."),
        ("y = x * w", "x w b", "Gradients reach 2 of 3 tensors; 1 disconnected."),
        (
            "y = sg.stop_gradient(x) + sg.floor(w)",
            "x w",
            "Gradients reach none of 2 tensors; 1 stopped and 1 not",
        ),
        ("y = x + sg.stop_gradient(x)", "x", "A gradient reaches x; some of the paths are cut."),
        ("y = sg.exp(x, name='loss')", "x", "A gradient of loss reaches x."),
        ("y = sg.exp(x, name='loss')", "w", "No gradient of loss reaches w: disconnected."),
        ("y = sg.prevent_gradient(x, 'no') + w", "w x", "Gradients reach 1 of 2 tensors; 1 undefined."),
    ],
)
def test_the_first_sentence(program: Program, text: str, xs: str, summary: str) -> None:
    assert told(program(text), *xs.split()).startswith(summary)


def test_nothing_was_asked_about(program: Program) -> None:
    flow = sg.explain(program("y = sg.stop_gradient(x)")["y"], [])
    assert flow.to_text() == "Gradients: nothing was asked about."


# ------------------------------------------------------------------------------------- what is left out


def test_what_lies_behind_a_cut_is_not_told() -> None:
    def loss(online: Any, target: Any, x: Any) -> Any:
        best = sg.reduce_max(sg.stop_gradient(sg.relu(x @ target["w"]) + target["b"]), axis=-1)
        goal = sg.stop_gradient(best * 0.9)
        return sg.reduce_mean((x @ online["w"] - goal[:, None]) ** 2)

    part = {"w": np.ones((3, 2)), "b": np.ones(2)}
    flow = sg.explain(loss, part, part, np.ones((4, 3)))
    stopped = str(flow["target"])
    before, idle = stopped.split("idle: ")
    assert before.count("| ") == 2  # the line and what underlines it
    assert "goal = sg.stop_gradient(best * 0.9)" in before
    assert "removing it alone opens nothing: behind it is" in " ".join(before.split())
    assert "every path to it is cut before" in idle


def test_first_order_maml_is_one_story() -> None:
    """Six weights, and a line of theirs through which the gradient of the inner step passes by many ways."""

    def error(params: Any, x: Any, y: Any) -> Any:
        h = sg.tanh(x @ params["w1"] + params["b1"])
        h = sg.tanh(h @ params["w2"] + params["b2"])
        return ((h @ params["w3"] + params["b3"] - y) ** 2).mean()

    def loss(params: Any, x: Any, y: Any) -> Any:
        inner = sg.stop_gradient(sg.grad(error)(params, x, y))
        return error({k: p - 0.1 * inner[k] for k, p in params.items()}, x, y)

    params = {"w1": np.ones((1, 4)), "w2": np.ones((4, 4)), "w3": np.ones((4, 1))}
    params |= {"b1": np.ones(4), "b2": np.ones(4), "b3": np.ones(1)}
    flow = sg.explain(loss, params, np.ones((5, 1)), np.ones((5, 1)), argnums=0)
    text = str(flow)
    assert text.count("sg.stop_gradient(sg.grad") == 1
    assert "partly stopped: params (6 tensors)" in text
    assert "(6 uses)" in text
    assert len(text.splitlines()) <= 8


def test_integers_that_were_asked_about_take_one_line() -> None:
    def f(w: Any, tokens: Any, labels: Any, flag: Any) -> Any:
        table = sg.gather(w, tokens) * sg.gather(w, labels)
        return sg.where(flag, table, 0.0).sum()

    lines = str(sg.explain(f, np.ones(3), np.arange(2), np.arange(2), np.array([True, False]))).splitlines()
    assert lines[2:] == [
        "not differentiable: tokens, labels (int64 carries no gradient)",
        "not differentiable: flag (bool carries no gradient)",
        "flows: w",
    ]


def test_ways_without_derivative_beside_an_open_one_take_a_line_each(program: Program) -> None:
    text = told(program("y = sg.where(x > 0.0, x, 0.1 * x) * sg.floor(x) + sg.stop_gradient(x)"), "x")
    assert text.splitlines()[2:] == [
        "partly stopped: x",
        "  3 of 5 paths are cut",
        "  user.py:1  stop_gradient",
        "     1 | y = sg.where(x > 0.0, x, 0.1 * x) * sg.floor(x) + sg.stop_gradient(x)".replace(
            "     1", "     1"
        ),
        f"       | {'':50}^^^^^^^^^^^^^^^^^^^",
        "  no derivative: user.py:1  x > 0.0: a comparison is constant wherever it has a",
        "    derivative",
        "  no derivative: user.py:1  sg.floor(x): rounding is constant wherever it has a",
        "    derivative",
    ]


def test_a_straight_through_is_no_idle_stop(program: Program) -> None:
    text = told(program("y = sg.straight_through(sg.round(x), x)"), "x")
    assert "straight_through sends the gradient to the soft value" in text
    assert "idle" not in text


def test_many_cuts_and_many_stories_are_told_shortly() -> None:
    def f(parts: Any) -> Any:
        made = {}
        for i in range(3 * CUTS):
            exec(
                compile(f"made[{i}] = sg.stop_gradient(p)", f"many{i}.py", "exec"),
                {"sg": sg, "made": made, "p": parts["all"]},
            )
        for i in range(100):
            exec(
                compile(f"made['p', {i}] = sg.stop_gradient(p)", f"part{i}.py", "exec"),
                {"sg": sg, "made": made, "p": parts[f"p{i}"]},
            )
        return sum(v.sum() for v in made.values())

    parts = {"all": np.ones(2)} | {f"p{i}": np.ones(2) for i in range(100)}
    text = str(sg.explain(f, parts))
    assert f"and {2 * CUTS} more lines of source" in text
    assert re.search(r"and 41 tensors more, cut at other lines; to_json\(\) has all", text)
    assert len(text.splitlines()) < 300
    assert EXCERPTS < 100


# --------------------------------------------------------------------------------------- what is special


def test_numbers_that_python_would_not_print(program: Program) -> None:
    made = program(
        """
        y = x
        for _ in range(20_000):
            y = y + y
        y = y + sg.stop_gradient(y)
        """
    )
    found = sg.explain(made["y"], [made["x"]])
    assert found[made["x"]].paths == 2**20_001
    with pytest.raises(ValueError, match="4300 digits"):
        str(found[made["x"]].paths)
    assert "  half of the paths are cut\n" in found.to_text()


@pytest.mark.parametrize(
    ("n", "says"),
    [
        (0, "0"),
        (10**6, "1,000,000"),
        (10**6 + 1, "about 1.0e6"),
        (996 * 10**57, "about 1.0e60"),
        (16 * 10**59, "about 1.6e60"),
        (10**5000 - 1, "about 1.0e5000"),
    ],
    ids=["0", "a million", "one more", "rounded up", "60 digits", "5000 digits"],
)
def test_numbers_in_words(n: int, says: str) -> None:
    assert number(n) == says


def test_two_stops_in_a_row_on_one_line(program: Program) -> None:
    text = told(program("y = sg.stop_gradient(sg.stop_gradient(x)) * w"), "x", "w")
    assert text.endswith(
        "sg.stop_gradient(sg.stop_gradient(x)) * w\n       |     " + "^" * 37 + "\n\nflows: w"
    )


def test_what_removing_a_cut_would_open_and_what_not(program: Program) -> None:
    made = program("h = w * sg.floor(b)\ny = sg.stop_gradient(h)")
    text = told(made, "w", "b")
    assert "stopped: w\n  user.py:2  stop_gradient\n     2 | y = sg.stop_gradient(h)\n" in text
    assert "not differentiable: b\n" in text


def test_each_cut_has_its_own_behind_it(program: Program) -> None:
    made = program(
        """
        a = sg.stop_gradient(x)
        c = sg.stop_gradient(x * 2.0)
        d = sg.stop_gradient(a * 3.0)
        y = d * sg.stop_gradient(c * 4.0)
        """
    )
    text = " ".join(told(made, "x").split())
    assert "behind it is user.py:1 (stop_gradient) user.py:4" in text
    assert "behind it is user.py:2 (stop_gradient) idle:" in text


def test_a_switched_cut_says_so(program: Program) -> None:
    made = program("on = sg.placeholder(sg.bool, [], name='on')\ny = sg.stop_gradient(x, when=on)")
    assert "  user.py:2  stop_gradient while its condition holds\n" in told(made, "x")
    assert "paths are cut\n  user" not in told(made, "x")


def test_a_refusal_shows_its_message(program: Program) -> None:
    made = program("y = sg.prevent_gradient(x, 'not to be trained') * w")
    assert "undefined: x\n  user.py:1  not to be trained\n" in told(made, "x")


def test_a_cut_made_for_a_gradient_shows_the_line_that_it_is_the_gradient_of(program: Program) -> None:
    made = program("z = sg.reduce_max(x * x)\n(y,) = sg.gradients(z, [x])")
    text = told(made, "x")
    assert "  no derivative: user.py:1  sg.reduce_max(x * x): " in text
    assert "in the gradient of this line" in " ".join(text.split())


@pytest.mark.parametrize("after", ["", "  # frozen: y", " # :"])
def test_a_no_gradient_block_is_shown_at_its_with(program: Program, after: str) -> None:
    made = program(f"with sg.no_gradient():{after}\n    h = sg.exp(x)\n    y = h * 2.0")
    assert "  user.py:1  no_gradient" in told(made, "x")
    head = f"     1 | with sg.no_gradient():{after}\n       |      ^^^^^^^^^^^^^^^^"
    assert told(made, "x").endswith(head)  # As Python 3.13 has it by itself.


def test_a_cut_inside_the_body_of_a_loop(program: Program) -> None:
    made = program(
        """
        def step(h, _):
            return sg.stop_gradient(h) * w.sum(), h
        y, _ = sg.scan(step, x, length=3)
        """
    )
    text = told(made, "x", "w")
    assert (
        "stopped: x\n  user.py:2  stop_gradient\n     2 | return sg.stop_gradient(h) * w.sum(), h\n" in text
    )
    assert "partly stopped: w\n" in text


def test_code_without_a_file_is_shown_by_its_place_alone() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, name="x")
        known: dict[str, Any] = {"sg": sg, "x": x}
        exec(compile("y = sg.stop_gradient(x)", "<cell>", "exec"), known)
        assert sg.explain(known["y"], [x]).to_text().endswith("stopped: x\n  <cell>:1  stop_gradient")


def test_a_graph_without_lines_names_operations() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        sg.stop_gradient(x, name="gate")
    read = sg.Graph.from_text(graph.to_text())
    text = sg.explain(read.output("gate:0"), [read.output("x:0")]).to_text()
    assert text.endswith("stopped: x\n  StopGradient 'gate'  stop_gradient")


# ---------------------------------------------------------------------------------------------- the page


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_longer_than_the_page(program: Program, width: int) -> None:
    made = program(
        """
        some_rather_long_name = sg.stop_gradient(x * 2.0) + sg.exp(w) * sg.stop_gradient(b * 3.0) + 1.0
        größe = sg.floor(sg.stop_gradient(x * w)) * len("日本語日本語日本語日本語") + sg.stop_gradient(x * w)
        y = some_rather_long_name * größe
        """
    )
    text = told(made, width=width)
    assert max(map(columns, text.splitlines())) <= width
    assert "stopped" in text


def test_colours(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    made = program("y = sg.stop_gradient(x) * w * sg.stop_gradient(sg.ones([3]))")
    plain, colored = told(made), told(made, color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" in told(made, color=True)  # Who asks gets them.
    made = program(f"y = sg.stop_gradient(x) + sg.stop_gradient(x * 2.0, name={'n' * 200!r})")
    assert re.sub(r"\x1b\[[0-9;]*m", "", told(made, color=True)) == told(made)

    class Terminal:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None: ...

        def flush(self) -> None: ...

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert "\x1b[" not in told(made)
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[" in told(made)
    assert "\x1b[" not in str(sg.explain(made["y"], [made["x"]]))


@pytest.mark.parametrize("width", [39, 0, -1, "80", 80.0, None])
def test_a_width_that_is_none_is_refused(program: Program, width: Any) -> None:
    with pytest.raises(sg.ArgumentError):
        told(program("y = x * w"), width=width)


def test_markup_of_rich_in_the_source_stays_source(program: Program) -> None:
    made = program("y = {'[bold]': sg.stop_gradient(x)}['[bold]']  # [red]")
    assert "     1 | y = {'[bold]': sg.stop_gradient(x)}['[bold]']  # [red]\n" in told(made, "x")


def test_names_of_many_tensors() -> None:
    layers = [f"params.layers.{i}.{k}" for i in range(12) for k in "bw"]
    every = [*layers, "params.scale", "x"]
    assert names(layers[:2]) == "params.layers.0.b, params.layers.0.w"
    assert names(layers, every) == "params.layers (24 tensors)"
    assert names(every, every) == "params (25 tensors), x"
    assert names(["a/w:0", "split:1"]) == "a/w, split:1"


BLOCKS = [f"net.h.{i}.{k}" for i in range(8) for k in ("norm.w", "norm.b", "attn.w", "attn.b")]
TREE = ["net.emb.w", *BLOCKS, "net.out.w", "net.out.b", "head.w", "head.b", "scale"]


@pytest.mark.parametrize(
    ("some", "room", "says"),
    [
        # As they are if there is room.
        (["net.emb.w", "scale"], 60, "net.emb.w, scale"),
        (["head.w", "head.b", "scale"], 60, "head.w, head.b, scale"),
        # By complete modules.
        (["head.w", "head.b", "scale"], 10, "head (2 tensors), scale"),
        (TREE, 60, "net (35 tensors), head (2 tensors), scale"),
        (BLOCKS, 60, "net.h (32 tensors)"),
        # By numbers in a row, of three or more.
        (BLOCKS[:12], 60, "net.h.0-2 (12 tensors)"),
        (BLOCKS[:8], 60, "net.h.0 (4 tensors), net.h.1 (4 tensors)"),
        ([one for one in BLOCKS if one.endswith("attn.w")], 60, "net.h.0-7.attn.w (8 tensors)"),
        ([one for one in BLOCKS if "norm" in one], 60, "net.h.0-7.norm (16 tensors)"),
        # By modules of which most is there, if that is shorter.
        (
            [one for one in TREE if one not in ("net.h.3.attn.w", "scale")],
            60,
            "net (34 of 35 tensors), head (2 tensors)",
        ),
        # What is scattered has the names of the modules that hold it.
        (
            [f"{one}{k}" for one in "abcd" for k in (".x.w", ".y.w")],
            30,
            "a (2 tensors), b (2 tensors), c (2 tensors), d (2 tensors)",
        ),
    ],
)
def test_many_tensors_are_named_as_a_person_would(some: list[str], room: int, says: str) -> None:
    assert names(some, TREE, room) == says


def test_tensors_that_are_all_of_many_modules_are_all() -> None:
    every = [f"layer{i}.{k}" for i in range(9) for k in "wb"]
    assert names(every, every) == "all 18 tensors"
    assert names(every[:-2], every) == "layer0 (2 tensors) ... layer7 (2 tensors) (16 tensors)"


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ([(1, 1)], ""),
        ([(2, 2)], "both paths are cut"),
        ([(5, 5)], "all 5 paths are cut"),
        ([(5, 5), (5, 5)], "all 5 paths to each are cut"),
        ([(5, 5), (6, 6)], "all paths to each are cut"),
        ([(1001, 1001)], "all paths are cut"),
        ([(10**15, 10**15)], "all paths are cut"),
        ([(1, 3)], "1 of 3 paths is cut"),
        ([(2, 3), (2, 3)], "2 of 3 paths to each are cut"),
        ([(500, 1001)], "some of the paths are cut"),
        ([(10**15, 2 * 10**15)], "half of the paths are cut"),
        ([(10**15, 10**15 + 1)], "nearly all of the paths are cut"),
        ([(1, 10**15)], "very few of the paths are cut"),
        ([(9 * 10**9, 10**10)], "most of the paths are cut"),
        ([(1, 2), (2, 4)], "half of the paths to each are cut"),
        ([(1, 2), (3, 4)], "some of the paths to each are cut"),
        ([(1, 1), (3, 4)], "some of the paths to each are cut"),
    ],
)
def test_how_many_paths_are_cut_in_words(counts: list[tuple[int, int]], says: str) -> None:
    assert paths_cut(counts) == says


def test_comparisons_of_a_graph_are_one_line_after_the_stops(program: Program) -> None:
    made = program(
        """
        low = sg.cast(x < 0.0, sg.float32)
        high = sg.cast(x > 1.0, sg.float32)
        top = sg.cast(sg.argmax(x), sg.float32)
        y = (x * low * high * top + sg.stop_gradient(x)).sum()
        """
    )
    lines = told(made, "x").splitlines()
    assert lines[2] == "partly stopped: x"
    assert lines[4] == "  user.py:4  stop_gradient"
    assert lines[7:] == ["  no derivative: 3 comparisons, indices and masks, at user.py:1, :2 and :3"]


def test_a_comparison_beside_a_stop_is_no_second_cut_of_a_stopped_tensor(program: Program) -> None:
    made = program(
        """
        h = sg.stop_gradient(w)
        y = x * h * sg.cast(w > 0.0, sg.float32)
        """
    )
    lines = told(made, "w").splitlines()
    assert lines[2:5] == ["stopped: w", "  both paths are cut", "  user.py:1  stop_gradient"]
    assert lines[7].startswith("  no derivative: user.py:2  w > 0.0: ")
    assert "removing it" not in told(made, "w")


def test_a_tensor_that_only_a_comparison_uses_is_told_at_its_line(program: Program) -> None:
    made = program("y = sg.cast(w > 0.0, sg.float32) * x")
    assert "not differentiable: w\n  user.py:1  a comparison is constant" in told(made, "w")


def test_of_many_cuts_the_first_are_shown_with_their_source(program: Program) -> None:
    text = "\n".join(["y = x", *[f"y = y + sg.stop_gradient(x * {i}.0)" for i in range(7)]])
    shown = told(program(text), "x")
    assert shown.count(" | y = y") == 3
    assert shown.endswith("  and user.py:5, :6, :7 and :8 (stop_gradient)")


def test_the_name_of_a_file_is_never_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my own project of a long name" / "with folders"
    folder.mkdir(parents=True)
    file = folder / "net.py"
    file.write_text("y = sg.stop_gradient(sg.stop_gradient(w) * x) * x\n")
    with sg.Graph().as_default():
        known: dict[str, Any] = {"sg": sg}
        known |= {k: sg.placeholder(sg.float32, [3], name=k) for k in "wx"}
        exec(compile(file.read_text(), str(file), "exec"), known)
    for width in range(40, 100, 7):
        shown = sg.explain(known["y"], [known["w"], known["x"]]).to_text(width=width)
        assert "my own project of a long name/with folders/net.py:1" in shown


def test_files_of_libraries_are_named_from_the_librarys_name_on(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / ".venv" / "lib" / "site-packages" / "helper" / "base.py"
    assert shown_file(str(inside)) == "helper/base.py"
    assert shown_file("/opt/lib/site-packages/helper/base.py") == "helper/base.py"
    # Machines find it by its whole name.
    assert relative_file(str(inside)) == ".venv/lib/site-packages/helper/base.py"


def test_the_text_of_a_thousand_stops_takes_no_time() -> None:
    def f(parts: Any, x: Any) -> Any:
        return sum((sg.stop_gradient(v * x) + v).sum() for v in parts)

    flow = sg.explain(f, [np.ones(2) for _ in range(1000)], np.ones(2))
    str(flow)
    begun = time.perf_counter()
    text = str(flow)
    assert time.perf_counter() - begun < 2.0
    assert "(1,000 uses)" in text


# ---------------------------------------------------------------------------------------- lines of source


def location(tmp_path: Path, text: str, column: int, end_column: int, end_line: int = 1) -> Location:
    file = tmp_path / f"line{abs(hash(text))}.py"
    file.write_text(text, encoding="utf-8")
    return Location(str(file), 1, end_line, column, end_column)


def test_columns_are_of_characters_and_of_the_terminal(tmp_path: Path) -> None:
    text = "日本 = f(größe) + g"
    at = location(tmp_path, text, len("日本 = ".encode()), len("日本 = f(größe)".encode()))
    assert character_columns(at) == (5, 13)
    source, underline = excerpt(at)
    assert source == "     1 | 日本 = f(größe) + g"
    assert underline == "       | " + " " * 7 + "^" * 8


def test_tabs_and_indentation(tmp_path: Path) -> None:
    at = location(tmp_path, "\t\ty =\tf(x)", 6, 10)
    assert excerpt(at) == ["     1 | y =    f(x)", "       |        ^^^^"]


def test_an_expression_of_several_lines_is_shown_by_its_first(tmp_path: Path) -> None:
    at = location(tmp_path, "y = f(\n    x)\n", 4, 6, end_line=2)
    assert excerpt(at) == ["     1 | y = f( ...", "       |     ^^"]


def test_all_expressions_of_a_line_are_underlined(tmp_path: Path) -> None:
    first = location(tmp_path, "y = f(a) + f(b)", 4, 8)
    second = Location(first.file, 1, 1, 11, 15)
    elsewhere = Location(first.file, 2, 2, 0, 1)
    assert excerpt([second, first, elsewhere, None]) == [
        "     1 | y = f(a) + f(b)",
        "       |     ^^^^   ^^^^",
    ]
    found = source_line([second, first])
    assert found is not None
    assert found.spans == ((4, 8), (11, 15))


@pytest.mark.parametrize("width", range(17, 130, 7))
def test_a_long_line_is_cut_around_its_expression(tmp_path: Path, width: int) -> None:
    text = "start = " + "a + " * 30 + "f(x)" + " + b" * 30
    at = location(tmp_path, text, 128, 132)
    source, underline = excerpt(at, width)
    assert len(source) <= width
    assert len(underline) <= len(source)
    assert source[underline.index("^") : underline.rindex("^") + 1].startswith("f(x)"[: underline.count("^")])
    assert width < 30 or underline.count("^") == 4


@pytest.mark.parametrize("text", ["", "y = f(x)\x1b[31m", "   "])
def test_what_cannot_be_shown_is_left_out(tmp_path: Path, text: str) -> None:
    assert excerpt(location(tmp_path, text, 0, 4)) == []
    assert excerpt(None) == excerpt([]) == excerpt([None]) == []


def test_a_file_that_is_another_now_is_not_underlined(tmp_path: Path) -> None:
    assert excerpt(location(tmp_path, "y = 1", 4, 30)) == ["     1 | y = 1"]


def test_files_are_named_from_the_folder_that_is_worked_in(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_file(str(tmp_path / "a" / "b.py")) == "a/b.py"
    assert shown_file("/elsewhere/b.py") == "/elsewhere/b.py"
    assert shown_file("<string>") == "<string>"
