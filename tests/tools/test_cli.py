"""The command: its arguments, its output, its exit status."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from stopgrad.errors import EngineError

import stopgrad as sg
from stopgrad.graph.op import REGISTRY
from stopgrad.tools import cli
from stopgrad.tools.cli import ops, tour
from stopgrad.tools.recipes.result import Check, Result


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fly"], "there is no command 'fly'; there are run, explain, check"),
        (["expalin", "x.py:f"], "there is no command 'expalin'; did you mean explain?"),
        (["tour", "fly"], "there is no workload 'fly'; take any of softmax, em"),
        (["tour", "--engine", "steam"], "invalid choice: 'steam'"),
        (["tour", "--seed", "-1"], "must not be negative"),
        (["tour", "--out", "/nowhere/at/all.html"], "does not exist"),
        (["ops", "Frobnicate"], "there is no operation 'Frobnicate'"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_right(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(arguments)
    assert exit.value.code == cli.ERROR
    assert says in capsys.readouterr().err


def test_ops_lists_every_operation(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops"]) == cli.OK
    text = capsys.readouterr().out
    shown = set(re.findall(r"^ ?(\w+) ", text, re.MULTILINE))
    assert set(REGISTRY) <= shown
    assert f"{len(REGISTRY)} operations" in text
    assert re.search(r"^Exp +exp +Elementwise exponential ", text, re.MULTILINE)


def test_ops_lists_functions_that_are_made_of_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops", "dropout", "exp"]) == cli.OK
    text = capsys.readouterr().out
    assert re.search(r"^dropout +A tensor with each element set to 0", text, re.MULTILINE)
    assert "1 operation\n" in text
    assert text.endswith("1 function made of operations\n")
    assert cli.main(["ops"]) == cli.OK
    shown = set(re.findall(r"^(\w+)  ", capsys.readouterr().out, re.MULTILINE))
    assert {"grad", "fori_loop", "huber", "random_categorical", "explain"} <= shown


def test_the_bare_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == cli.OK
    text = capsys.readouterr().out
    assert text.startswith("usage: stopgrad")
    assert all(f"    {name}" in text for name in cli.COMMANDS)


def test_a_shell_can_complete_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    class AnsweredError(Exception):
        pass

    def autocomplete(parser: argparse.ArgumentParser) -> None:
        (commands,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        assert set(commands.choices) == set(cli.COMMANDS)
        assert "--fail-on" in commands.choices["explain"].format_help()
        assert "--order" in commands.choices["check"].format_help()
        raise AnsweredError

    monkeypatch.setitem(sys.modules, "argcomplete", SimpleNamespace(autocomplete=autocomplete))
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    with pytest.raises(AnsweredError):
        cli.main([])


def test_reports_of_nans_have_colours() -> None:
    found = sg.trace_nan(lambda x: sg.log(x), -1.0).to_text(color=True)
    assert found.startswith("\x1b[1;31mNaN: made in the values, by Log")
    assert sg.trace_nan(lambda x: sg.exp(x), 1.0).to_text(color=True).startswith("\x1b[1;32mEvery value")
    check = sg.check_gradients(lambda x: x * x, 3.0)
    assert "passed" in str(check)  # It is a report, which print shows.
    assert "\x1b[1;32mpassed\x1b[0m" in check.to_text(color=True)


def test_ops_says_per_operand_whether_there_is_a_gradient_or_why_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["ops", "exp", "StopGradient", "argmax", "MatMul"]) == cli.OK
    text = " ".join(capsys.readouterr().out.split())
    assert "x: yes" in text
    assert "a, b: yes" in text
    assert "transpose_a, transpose_b" in text
    assert "not differentiable:" in text
    assert "x: stop_gradient" in text
    assert "xla, onnxruntime, numpy" in text
    assert "4 operations" in text


def test_ops_needs_no_optional_library_and_is_not_wrapped_in_a_pipe() -> None:
    optional = ("rich", "matplotlib", "sklearn", "scipy", "pygments", "igraph")
    program = f"""if True:
        import sys
        sys.modules.update(dict.fromkeys({optional}))
        from stopgrad.tools import cli
        sys.exit(cli.main(["ops"]))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (cli.OK, "")
    lines = done.stdout.splitlines()
    assert re.match(r"operation +function +what it does +operands; attributes +gradient +vmap +eng", lines[0])
    for definition in REGISTRY.values():
        (row,) = [line for line in lines if re.match(rf"{definition.type}  ", line)]
        assert row.endswith(("xla, onnxruntime, numpy", "session", "fed")) or "not " in row


def test_a_reader_who_leaves_ends_the_command_quietly() -> None:
    command = f"'{sys.executable}' -m stopgrad ops | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout == f"{cli.LEFT}\n"  # The list is longer than what a pipe holds.
    assert done.stderr == ""


def test_a_table_is_as_wide_as_it_may_be() -> None:
    rows = [("Exp", "exp", "a reason of many words\nand another"), ("Log", "log", "no")]
    wide = ops.plain_table(("type", "name", "gradient"), rows, None).splitlines()
    assert wide[2:] == ["Exp   exp   a reason of many words", "            and another", "Log   log   no"]
    narrow = ops.plain_table(("type", "name", "gradient"), rows, 26).splitlines()
    assert max(map(len, narrow)) <= 26
    assert narrow[2:5] == ["Exp   exp   a reason of", "             many words", "            and another"]


class Outside(HTMLParser):
    """Finds what a page would load from elsewhere, and tags left open."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value and not value.startswith(("#", "data:")):
                self.loads.append(value)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.slow  # The tour's libraries are not among those of plain tests.
def test_tour_of_one_workload_writes_a_page_that_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "tour.html"
    assert cli.main(["tour", "softmax", "--engine", "numpy", "--out", str(target)]) == cli.OK
    out = capsys.readouterr().out
    assert "Softmax" in out
    assert "FAILED" not in out
    page = target.read_text(encoding="utf-8")
    parser = Outside()
    parser.feed(page)
    assert parser.loads == []
    assert parser.open == []
    assert "<script" not in page
    assert "@import" not in page
    assert page.count("<svg") == 4
    assert 'class="op stop"' in page
    assert [path.name for path in tmp_path.iterdir()] == ["tour.html"]


@pytest.mark.slow  # The tour's libraries are not among those of plain tests.
def test_a_failed_check_is_named_and_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result(
        "softmax", "Softmax", "", [Check("a claim", 2.0, "≤", 1.0), Check("another", 0.0, "≤", 1.0)]
    )
    monkeypatch.setattr(tour.softmax, "run", lambda seed, engine, progress: result)
    assert cli.main(["tour", "softmax", "--out", str(tmp_path / "t.html")]) == cli.FAILED
    assert capsys.readouterr().err == "stopgrad: check failed: Softmax: a claim: 2, must be ≤ 1\n"
    assert "✗" in (tmp_path / "t.html").read_text(encoding="utf-8")


def test_missing_packages_are_named_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["tour", "softmax", "--out", str(tmp_path / "t.html")]) == cli.ERROR
    assert "pip install 'stopgrad[tour]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # The tour's libraries are not among those of plain tests.
def test_a_tour_that_breaks_leaves_the_old_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "t.html"
    target.write_text("old")

    def broken(seed: int, engine: str, progress: object) -> Result:
        raise EngineError("out of steam")

    monkeypatch.setattr(tour.softmax, "run", broken)
    assert cli.main(["tour", "softmax", "--out", str(target)]) == cli.ERROR
    assert ": out of steam" in capsys.readouterr().err
    assert target.read_text() == "old"


def test_importing_the_recipes_imports_no_optional_library() -> None:
    optional = ("sklearn", "matplotlib", "rich", "pygments", "igraph", "scipy", "jax")
    program = f"import sys, stopgrad, stopgrad.tools.cli; print([m for m in {optional} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_the_help_says_of_a_command_is_what_the_command_says() -> None:
    def listed(asked: str) -> list[str]:
        return sorted(line.strip() for line in cli._parser(asked).format_help().split("\n"))

    assert [name for name in cli.COMMANDS if listed(name) != listed("")] == []
