"""The commands that report on a function: what they print and write, and their exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stopgrad as sg
from stopgrad.tools import cli

PROGRAM = """\
import numpy as np
import stopgrad as sg

print("the file runs")


def two(online: "float32[3]", target: "float32[3]"):
    print("the function runs")
    return sg.reduce_sum((online - sg.stop_gradient(target * 0.9)) ** 2.0)


def layers(params, x: "float32[n, 3]"):
    hidden = sg.tanh(x @ params["a"]["w"]) @ sg.stop_gradient(params["b"]["w"])
    with sg.name_scope("outer"):
        unused = sg.stop_gradient(sg.constant(1.0), name="idle_one")
    return sg.reduce_mean(hidden) + unused + sg.reduce_sum(sg.prevent_gradient(params["c"], "never"))


def layers_example():
    return {"params": {"a": {"w": np.ones((3, 2))}, "b": {"w": np.ones((2, 2))}, "c": np.ones(2)}}


@sg.custom_gradient
def wrong(x):
    return sg.exp(x), lambda g: 2.0 * g * sg.exp(x)


def wrong_loss(x: "float32[3]"):
    return sg.reduce_sum(wrong(x))


def parabola(x):
    return sg.reduce_sum(x * x)


def parabola_example():
    return (np.zeros(3),)


@sg.custom_gradient
def tilted(x):
    return x * x, lambda g: g * (2.0 * x + 1e-3)


def tilted_parabola(x):
    return sg.reduce_sum(tilted(x))


tilted_parabola_example = parabola_example


def lengths(x):
    squares = sg.reduce_sum(x * x, axis=1)
    return sg.reduce_sum(sg.where(squares > 0.0, sg.sqrt(squares), 0.0))


def lengths_example():
    return (np.array([[3.0, 4.0], [0.0, 0.0]]),)


def softmax(x: "float64[n, 3]"):
    shifted = sg.exp(x - sg.stop_gradient(sg.reduce_max(x, axis=1, keepdims=True)))
    return sg.reduce_sum((shifted / sg.reduce_sum(shifted, axis=1, keepdims=True)) ** 2.0)


@sg.function(
    static_argnames="n",
)
def labelled(
    x: "float32[n, 3]", y: "int64[n]", n: int = 3
):
    return sg.reduce_sum(x[y[0], :])


def build():
    x = sg.placeholder(sg.float64, ["n", 3], name="x")
    w = sg.parameter(np.ones(3), name="w")
    v = sg.parameter(np.ones(3), name="v")
    return sg.reduce_sum(sg.exp(x * w)) + sg.reduce_sum(sg.stop_gradient(v))
"""


def at(text: str) -> str:
    """The line of the program that holds a text, as reports name it."""
    (found,) = [i for i, line in enumerate(PROGRAM.splitlines(), 1) if text in line]
    return f"program.py:{found}"


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the folder that is worked in."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(sg.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "stopgrad", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )


# ------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["explain"], "required: path.py:function"),
        (["explain", "--json"], "required: path.py:function"),
        (["explain", "program.py:two", "--argnums", "first"], "'first' is no list of numbers"),
        (["explain", "program.py:two", "--width", "wide"], "invalid int value"),
        (["explain", "program.py:two", "--width", "0"], "--width: must be at least 40"),
        (["check", "program.py:two", "--seed", "-1"], "--seed: must be at least 0"),
        (["check", "program.py:two", "--order", "3"], "invalid choice"),
        (["check", "program.py:two", "--stops", "go"], "invalid choice"),
        (["check", "program.py:two", "--rtol", "-1"], "--rtol: must be at least 0"),
        (["ablate", "program.py:two", "--repeats", "0"], "--repeats: must be at least 1"),
        (["explain", "program.py:two", "--format", "xml"], "invalid choice"),
        (["explain", "program.py:two", "--json", "--format", "sarif"], "--format names another"),
    ],
)
def test_wrong_options_are_refused_before_the_file_is_loaded(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(arguments)
    assert exit.value.code == cli.ERROR
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["explain", "--fail-on", "idel"], "--fail-on: there is no 'idel'; did you mean idle?"),
        (["explain", "--fail-on", "happy"], "take flows, partly-stopped, "),
        (["explain", "--fail-on", ","], "--fail-on: names nothing"),
        (["explain", "--html", "no/x.html"], "no/x.html cannot be written: its folder does not exist"),
        (["explain", "--html", "."], ". cannot be written: it is a folder"),
        (["explain", "--json", "no/x.json"], "no/x.json cannot be written: its folder does not exist"),
        (["check", "--json", "no/x.json"], "no/x.json cannot be written: its folder does not exist"),
        (["check", "--mode", "sideways"], "--mode: 'sideways' is none of reverse, forward"),
        (["check", "--mode", ""], "--mode: '' is none of reverse, forward"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_file_is_loaded(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = arguments
    assert cli.main([command, "program.py:two", *options]) == cli.ERROR
    out, err = capsys.readouterr()
    assert says in err
    assert err.startswith("stopgrad: ")
    assert err.count("\n") == 1
    assert out == ""
    assert [path.name for path in Path().iterdir()] == ["program.py"]


def test_a_folder_that_cannot_be_written_is_found_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("stopgrad.graph.files._part_file", refuse)
    assert cli.main(["explain", "program.py:two", "--html", "x.html"]) == cli.ERROR
    out, err = capsys.readouterr()
    assert "x.html cannot be written: this is not permitted" in err
    assert out == ""


# ----------------------------------------------------------------------------------------------- explain


def test_explain_prints_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "program.py:two"]) == cli.OK
    out = capsys.readouterr().out
    assert out.startswith("the file runs\nthe function runs\n")
    assert "target" in out
    assert "stopped" in out
    assert at("sg.stop_gradient(target") in out
    assert "sg.stop_gradient(target * 0.9)" in out


def test_a_report_is_as_wide_as_it_is_told_and_has_no_colours_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    for options, most in (((), 80), (("--width", "60"), 60), (("--no-color", "--width", "100"), 100)):
        assert cli.main(["explain", "program.py:layers", *options]) == cli.OK
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert max(map(len, out.splitlines())) <= most


@pytest.mark.parametrize("order", [["program.py:two", "--json"], ["--json", "program.py:two"]])
def test_json_on_standard_output_is_all_that_is_there(order: list[str]) -> None:
    done = run("explain", *order)
    assert done.returncode == cli.OK
    assert json.loads(done.stdout)
    assert done.stderr == "the file runs\nthe function runs\n"


def test_json_and_a_page_are_written_beside_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    written = ["--json", "report.json", "--html", "report.html"]
    assert cli.main(["explain", "program.py:two", *written]) == cli.OK
    assert "target" in capsys.readouterr().out
    assert "target" in Path("report.json").read_text()
    json.loads(Path("report.json").read_text())
    assert Path("report.html").read_text().lstrip().lower().startswith("<!doctype html>")
    assert {path.name for path in Path().iterdir()} == {"program.py", "report.json", "report.html"}


def test_nothing_is_written_where_the_text_needs_what_is_not_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    written = ["--json", "report.json", "--html", "report.html"]
    assert cli.main(["explain", "program.py:two", *written]) == cli.ERROR
    assert "needs rich" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["program.py"]
    assert cli.main(["explain", "program.py:two", "--json"]) == cli.OK


def test_nothing_is_written_where_the_function_fails(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("report.json", "report.html"):
        Path(name).write_text("old")
    Path("program.py").write_text('def two(x: "float32[3]"):\n    return x.nothing\n')
    written = ["--json", "report.json", "--html", "report.html"]
    assert cli.main(["explain", "program.py:two", *written]) == cli.ERROR
    assert "program.py:2" in capsys.readouterr().err
    assert {path.name for path in Path().iterdir()} == {"program.py", "report.json", "report.html"}
    assert Path("report.json").read_text() == Path("report.html").read_text() == "old"


FAILS = [
    # what must not be, the exit status, what standard error says
    ("program.py:two", "stopped", 1, ["stopped: target (program.py:9: sg.stop_gradient(target"]),
    ("program.py:two", "stopped:target,disconnected", 1, ["stopped: target"]),
    ("program.py:two", "stopped:online,flows:target", 0, []),
    ("program.py:two", "flows:online", 1, ["flows: online"]),
    ("program.py:two", "partly-stopped,not_differentiable,not differentiable,undefined", 0, []),
    ("program.py:two", "idle", 0, []),
    ("program.py:layers", "idle", 1, ["idle: this stop does nothing"]),
    ("program.py:layers", "idle:outer/idle_one", 1, ["idle: this stop does nothing"]),
    ("program.py:layers", "idle:outer", 1, ["idle: this stop does nothing"]),
    ("program.py:layers", "idle:StopGradient", 0, []),
    ("program.py:layers", "stopped:params.a", 0, []),
    ("program.py:layers", "stopped:params.b", 1, ["stopped: params.b.w"]),
    ("program.py:layers", "stopped:params", 1, ["stopped: params.b.w"]),
    ("program.py:layers", "undefined", 1, ["undefined: params.c"]),
    (
        "program.py:labelled",
        "not-differentiable",
        1,
        [f"not differentiable: y ({at('def labelled(')}: def labelled("],
    ),
    ("program.py:build", "stopped:v", 1, ["stopped: v:0"]),
    ("program.py:build", "stopped:w", 0, []),
]


@pytest.mark.parametrize(
    ("target", "words", "status", "says"), FAILS, ids=[f"{row[0][11:]} {row[1]}" for row in FAILS]
)
def test_what_must_not_be_decides_the_exit_status(
    target: str, words: str, status: int, says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", target, "--fail-on", words]) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(says)
    for line, beginning in zip(lines, says, strict=True):
        assert line.startswith(f"stopgrad: {beginning}")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "stopped:targot",
            "--fail-on stopped:targot: explain was not asked about targot; did you mean 'target'?",
        ),
        ("idle:nothing", "--fail-on idle:nothing: no stop is called so; there are StopGradient"),
    ],
)
def test_a_key_that_the_report_does_not_know_is_an_error(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", "program.py:two", "--fail-on", words, "--json", "x.json"]) == cli.ERROR
    assert capsys.readouterr().err.startswith(f"stopgrad: {says}")
    assert not Path("x.json").exists()


# ----------------------------------------------------------------------------------- those that compute


def test_check_passes_what_is_right_and_says_on_which_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "program.py:two", "--argnums", "0", "--seed", "3"]) == cli.OK
    out = capsys.readouterr().out
    assert "data: random at seed 3: online float32[3], target float32[3]" in out
    assert "online" in out


def test_check_fails_a_wrong_rule_in_the_modes_and_orders_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["check", "program.py:wrong_loss"]) == cli.FAILED
    assert "x" in capsys.readouterr().out
    assert cli.main(["check", "program.py:wrong_loss", "--rtol", "2", "--atol", "100"]) == cli.OK
    assert cli.main(["check", "program.py:softmax", "--order", "2", "--mode", "reverse"]) == cli.OK
    assert cli.main(["check", "program.py:build"]) == cli.OK


def test_check_at_a_minimum() -> None:
    for order in ("1", "2"):
        assert cli.main(["check", "program.py:parabola", "--order", order]) == cli.OK
        assert cli.main(["check", "program.py:tilted_parabola", "--order", order]) == cli.FAILED


def test_check_shows_what_a_stop_hides(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "program.py:two", "--stops", "ignore"]) == cli.FAILED
    assert "target" in capsys.readouterr().out


def test_trace_nan_names_the_line_of_what_it_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["trace-nan", "program.py:lengths"]) == cli.FAILED
    assert at("sg.sqrt(squares)") in capsys.readouterr().out
    assert cli.main(["trace-nan", "program.py:lengths", "--no-gradient"]) == cli.OK
    assert cli.main(["trace-nan", "program.py:softmax", "--shape", "x=4,3"]) == cli.OK
    assert cli.main(["trace-nan", "program.py:build"]) == cli.OK


def test_ablate_shows_the_stops(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ablate", "program.py:softmax", "--repeats", "1"]) == cli.OK
    out = capsys.readouterr().out
    assert "data: random at seed 0 with n = 4: x float64[4, 3]" in out
    assert at("sg.stop_gradient(sg.reduce_max") in out


@pytest.mark.parametrize(
    ("command", "target", "status"),
    [("check", "wrong_loss", 1), ("trace-nan", "lengths", 1), ("ablate", "softmax", 0)],
)
def test_reports_on_data_are_to_be_had_as_json(command: str, target: str, status: int) -> None:
    done = run(command, f"program.py:{target}", "--json")
    assert done.returncode == status
    assert json.loads(done.stdout)
    assert "the file runs" in done.stderr


# -------------------------------------------------------------------------------------- for other programs


def test_github_gets_only_annotations_and_what_failed_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["explain", "program.py:two", "--format", "github"]) == cli.OK
    line = at("stop_gradient(target").removeprefix("program.py:")
    shown = f"file=program.py,line={line},endLine={line},title=stopgrad%3A stopped::stopped: target\n"
    assert capsys.readouterr().out == f"::warning {shown}"
    arguments = ["explain", "program.py:two", "--format", "github", "--fail-on", "stopped:target"]
    assert cli.main(arguments) == cli.FAILED
    assert capsys.readouterr().out == f"::error {shown}"


def test_a_failure_replaces_what_is_said_of_its_own_line_alone(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both stops are in the fifth line of their file."""
    helper = "import stopgrad as sg\n\n\ndef held(x):\n    return sg.stop_gradient(x)\n"
    program.with_name("held_elsewhere.py").write_text(helper)
    loss = (
        "import stopgrad as sg\nfrom held_elsewhere import held\n\n"
        "def loss(a: 'float32[]', b: 'float32[]', c: 'float32[]'):\n"
        "    return a * sg.stop_gradient(b) * held(c)\n"
    )
    program.write_text(loss)
    arguments = ["explain", "program.py:loss", "--format", "github", "--fail-on", "stopped:b"]
    assert cli.main(arguments) == cli.FAILED
    shown = [line.split(",line=")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["::error file=program.py", "::warning file=held_elsewhere.py"]


def test_what_has_no_line_is_at_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    """Also what the user's file prints stays out."""
    arguments = ["explain", "program.py:two", "--format", "sarif", "--fail-on", "flows"]
    assert cli.main(arguments) == cli.FAILED
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    error, warning = run["results"]
    assert (error["level"], error["message"]["text"]) == ("error", "flows: online")
    at_function = error["locations"][0]["physicalLocation"]
    assert at_function["region"]["startLine"] == int(at("def two").removeprefix("program.py:"))
    assert warning["level"] == "warning"


@pytest.mark.parametrize(
    ("command", "level", "rule"),
    [
        (["check", "program.py:wrong_loss"], "error", "differs"),
        (["trace-nan", "program.py:lengths"], "error", "nan"),
        (["ablate", "program.py:softmax", "--shape", "x=3,3"], "note", "stop_gradient"),
    ],
)
def test_every_command_names_lines(
    command: list[str], level: str, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main([*command, "--format", "sarif"])
    found = json.loads(capsys.readouterr().out)["runs"][0]["results"][0]
    assert (found["level"], found["ruleId"]) == (level, rule)
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "program.py"


def test_json_may_be_asked_for_by_either_name(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for option in (["--json"], ["--format", "json"]):
        cli.main(["explain", "program.py:two", *option])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert json.loads(shown[0])["format"] == "stopgrad.flow"
