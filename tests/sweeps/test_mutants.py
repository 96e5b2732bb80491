"""``tests/mutants.py`` plants what it says, where it says, and tells what dies from what lives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mutation.faults import Fault, faults

import mutants

EVERY_KIND = '''
def rule(x: int = 3, y: float = 0.5) -> int:
    """Of 3 and 4."""
    if x:
        raise ValueError("at most " + str(3 + 4))
    x.left = 2
    return x - y / 2.5 if x < y and not y else f"{x + 7}"
'''

NUMBERS = '''
"""Numbers."""
import sys

LIMIT = 10


def clipped(x):
    """Clip.

    >>> clipped(3)
    3
    """
    if x > LIMIT:
        return LIMIT
    return x


def difference(x, y):
    return x - y


def scaled(x):
    return x * 2


if __name__ == "__main__":
    print(difference(*map(int, sys.argv[1:])))
'''

TESTS = """
import subprocess, sys
import pytest
from tiny.inner.numbers import clipped, scaled


@pytest.mark.parametrize("x", [1, 2, 30])
def test_clipped(x):
    assert clipped(x) == min(x, 10)


def test_difference():
    command = [sys.executable, "-m", "tiny.inner.numbers", "5", "2"]
    done = subprocess.run(command, env={"PYTHONPATH": "src"}, capture_output=True, text=True)
    assert done.stdout == "3\\n"


@pytest.mark.slow
def test_scaled():
    assert scaled(3) == 6
    assert False, "fails without any fault"


@pytest.mark.slow
def test_doubled():
    assert scaled(5) == 10


@pytest.mark.nightly
def test_long():
    assert scaled(4) == 8
"""

# Cannot be imported after the other file, and is no witness of anything.
BROKEN = """
import sys
from tiny.inner.numbers import clipped

if "test_numbers" in " ".join(sys.modules):
    raise ImportError("alone only")


def test_small():
    assert clipped(0) == 0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of a tiny library."""
    tree = tmp_path / "tree"
    for name, text in {
        "src/tiny/__init__.py": "",
        "tests/test_broken.py": BROKEN,
        "src/tiny/inner/__init__.py": "",
        "src/tiny/inner/numbers.py": NUMBERS,
        "tests/test_numbers.py": TESTS,
    }.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    markers = "slow: slow\n    nightly: long"
    (tree / "pytest.ini").write_text(
        f"[pytest]\naddopts = --doctest-modules --import-mode=importlib\nmarkers =\n    {markers}\n"
    )
    return tree


def planted(checkout: Path, *options: str) -> list[dict[str, Any]]:
    """The results of a run of the command."""
    results = checkout.parent / "results.jsonl"
    folders = ["--tree", str(checkout), "--cache", str(checkout.parent / "cache"), "--resume", str(results)]
    command = [sys.executable, mutants.__file__, "--warm", "", *folders, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return mutants.read(results)


def outcomes(results: list[dict[str, Any]]) -> dict[str, str]:
    return {f"{x['before']} -> {x['after']}": f"{x['outcome']} {x.get('tier', '')}".strip() for x in results}


@pytest.mark.slow
def test_faults_die_where_a_test_sees_them_and_live_where_none_does(checkout: Path) -> None:
    before = {path: path.read_text() for path in checkout.rglob("*") if path.is_file()}
    results = planted(checkout)
    assert outcomes(results) == {
        "10 -> 11": "killed plain",
        "x > LIMIT -> x >= LIMIT": "survived",
        "x - y -> x + y": "killed plain",
        "x - y -> y - x": "killed plain",
        "x * 2 -> x / 2": "killed slow",
        "2 -> 3": "killed slow",
    }
    tests = {x["before"]: x.get("test") for x in results}
    assert tests["x - y"] == "tests/test_numbers.py::test_difference"
    assert tests["x * 2"] == "tests/test_numbers.py::test_doubled"
    assert {path: path.read_text() for path in checkout.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_was(checkout: Path) -> None:
    whole = planted(checkout, "--tier", "plain", "--count", "4")
    path = checkout.parent / "results.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-2]) + '\n{"id": "cut o')
    done = planted(checkout, "--tier", "plain", "--count", "4")
    assert done[: len(lines) - 2] == whole[:-2]
    assert outcomes(done) == outcomes(whole)
    assert len(done) == len(whole)


def test_there_are_faults_of_every_kind_and_only_in_code_that_runs() -> None:
    found = {(fault.kind, fault.before, fault.after) for fault in faults("m", EVERY_KIND)}
    assert found == {
        ("off by one", "3", "4"),
        ("constant", "0.5", "1.0"),
        ("condition", "x", "not x"),
        ("removed line", "raise ValueError('at most ' + str(3 + 4))", "pass"),
        ("removed line", "x.left = 2", "pass"),
        ("off by one", "2", "3"),
        ("sign", "x - y / 2.5", "x + y / 2.5"),
        ("swapped operands", "x - y / 2.5", "y / 2.5 - x"),
        ("operator", "y / 2.5", "y * 2.5"),
        ("swapped operands", "y / 2.5", "2.5 / y"),
        ("constant", "2.5", "5.0"),
        ("condition", "x < y and (not y)", "not (x < y and (not y))"),
        ("condition", "x < y and (not y)", "x < y"),
        ("condition", "x < y and (not y)", "not y"),
        ("comparison", "x < y", "x <= y"),
        ("condition", "not y", "y"),
    }
    idle = '''
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    limit = 3
class Add:
    """Of 1 and 2."""
    samples = [1, 2]
    extremes = [3.5]
    axis: Annotated[int, 3]
'''
    assert faults("m", idle) == []


def test_a_fault_is_found_again_where_its_function_has_moved() -> None:
    before = faults("tiny.numbers", EVERY_KIND)
    moved = faults("tiny.other.place", "# moved\n" + EVERY_KIND.replace("x.left = 2", "x.right = 3 + y"))
    kept, gone, was = mutants.again(moved, [fault.record() for fault in before])
    assert {record["statement"] for record in gone} == {"x.left = 2"}
    assert [(x.kind, x.after) for x in kept] == [
        (x.kind, x.after) for x in before if x.statement != "x.left = 2"
    ]
    assert {x.module for x in kept} == {"tiny.other.place"}
    assert was == {x.id: x.id for x in kept}
    renamed, gone, was = mutants.again(faults("m", EVERY_KIND.replace("rule", "named")), [before[2].record()])
    assert [x.function for x in renamed] == ["named"]
    assert was == {renamed[0].id: before[2].id}
    assert not gone


def test_every_package_gets_its_share() -> None:
    texts = {"large": EVERY_KIND, "small": "def f(x):\n    return x - 1\n"}
    found = [fault for name, text in texts.items() for fault in faults(name, text)]
    many = [
        Fault(**{**fault.record(), "id": f"{fault.id}{turn}"})
        for turn in range(30)
        for fault in found
        if fault.module == "large" or turn < 4
    ]
    sample = mutants.chosen(many, str, 100, seed=1)
    assert sample == mutants.chosen(list(reversed(many)), str, 100, seed=1)
    assert sample != mutants.chosen(many, str, 100, seed=2)
    of = {name: [x for x in sample if x.module == name] for name in texts}
    assert len(of["small"]) == mutants.LEAST
    assert 90 <= len(of["large"]) <= 100
    assert {x.kind for x in of["large"]} == {fault.kind for fault in found}


def test_the_table_tells_what_died_before_and_lives_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = faults("tiny.numbers", EVERY_KIND)[:2]
    common = {"package": "inner", "tier": "plain", "ran": 3, "reaching": 5, "near": "block"}
    # The first is found again under another name.
    for name, fate in (("before", {"outcome": "killed"}), ("after", {"outcome": "survived", "id": "new"})):
        lines = [
            {**first.record(), **common, "was": first.id, **fate},
            {**second.record(), **common, "outcome": "killed"},
        ]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    mutants.main(["--table", str(tmp_path / "before"), str(tmp_path / "after")])
    printed = capsys.readouterr().out
    _, found, lost = printed.partition("died before, survive now")
    assert found
    assert "new tiny.numbers" in lost
    assert second.id not in lost
    assert printed.count("inner                       2") == 2
