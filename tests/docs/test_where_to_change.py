"""The answers of "where to change what" name the files in which their examples stand, and no others."""

from __future__ import annotations

import re
from functools import cache

import pytest
from pages import DOCS, FILE
from places import ROOT

PAGE = DOCS / "inside" / "where-to-change.md"
ANSWERS = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
EXAMPLE = re.compile(r"[Ee]xample: ((?:`[^`]+`(?:, )?)+)([^\n]*)")
PATH = re.compile(r"`([\w./-]*/|[\w./-]+\.(?:py|md|json))`")
FOLDERS = ("src/stopgrad", "src/stopgrad_trainer", "tests", "docs")
TEXTS = {".py", ".md", ".json", ".js", ".h", ".cc", ".txt"}
APART = ("docs/_build/", "docs/api/", "docs/inside/", "tests/docs/test_where_to_change.py")
"""What is built; and pages that name examples as we do."""


def placed(path: str) -> str:
    """A path of the page from the root of the repository on."""
    first = path.split("/")[0]
    if first in ("tests", "docs", "benchmarks"):
        return path
    return f"src/{path}" if first == "stopgrad_trainer" else f"src/stopgrad/{path}"


def listed(answer: str) -> list[str]:
    return [placed(path) for path in re.findall(r"^- `([^`]+)`", answer, re.MULTILINE)]


@cache
def texts() -> dict[str, str]:
    """All of the source, the tests and the pages, by their paths."""
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.suffix in TEXTS]
    paths = {file.relative_to(ROOT).as_posix(): file for file in files if "__pycache__" not in file.parts}
    return {path: file.read_text() for path, file in paths.items() if not path.startswith(APART)}


def having(names: list[str]) -> set[str]:
    """The files in which any of these names stands as a word."""
    pattern = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in names))
    some = {path: text for path, text in texts().items() if any(name in text for name in names)}  # Quickly.
    return {path for path, text in some.items() if pattern.search(text)}


def defines(source: str, name: str) -> bool:
    """Whether a class, a function or a variable of this name is defined in a module."""
    return bool(re.search(rf"^\s*(?:class|def) {name}\b|^{name}(?:: [^=]+)? = ", source, re.MULTILINE))


def unlisted(answer: str) -> tuple[set[str], set[str]]:
    """The files that have an example's name and are not listed, and those that are listed and lack it.

    Further tests that use it are no part of the change.
    """
    names, but = EXAMPLE.findall(answer)[0]
    names = re.findall(r"`([^`]+)`", names)
    files = listed(answer)
    folders = tuple(path for path in files if path.endswith("/"))
    left_out = tuple(placed(path) for path in PATH.findall(but))
    found = {path for path in having(names) if not path.startswith((*folders, *left_out))}
    named = {path for path in files if any(name in path for name in names)}
    more = {path for path in found - set(files) if not path.startswith("tests/")}
    return more, set(files) - found - named


def test_there_are_at_least_twenty_answers_each_with_files_and_tests() -> None:
    assert len(ANSWERS) >= 20
    for title, answer in ANSWERS.items():
        assert len(listed(answer)) >= 2, title
        assert re.search(r"^Test: .*`tests/", answer, re.MULTILINE), title
    assert sum(bool(EXAMPLE.search(answer)) for answer in ANSWERS.values()) >= 15


@pytest.mark.parametrize("title", ANSWERS)
def test_what_an_answer_names_exists(title: str) -> None:
    files = listed(ANSWERS[title])
    beside = [(ROOT / path).parent for path in files]
    for path in PATH.findall(ANSWERS[title]):
        there = [ROOT / placed(path), *(folder / path for folder in beside if "/" not in path)]
        assert any(one.exists() for one in there), path
    assert all((ROOT / path).exists() for path in files)
    for path, name in FILE.findall(ANSWERS[title]):
        assert not name or defines((ROOT / placed(path)).read_text(), name), f"{path}: {name}"


@pytest.mark.parametrize("title", [title for title, answer in ANSWERS.items() if EXAMPLE.search(answer)])
def test_the_files_of_an_answer_are_those_that_name_its_example(title: str) -> None:
    more, less = unlisted(ANSWERS[title])
    assert not more, f"not listed: {sorted(more)}"
    assert not less, f"without the example: {sorted(less)}"


def test_a_file_too_few_or_too_many_is_seen() -> None:
    answer = ANSWERS["A primitive of JAX"]
    lines = [line for line in answer.splitlines() if line.startswith("- ")]
    assert unlisted(answer.replace(lines[0], "")) == ({listed(answer)[0]}, set())
    assert unlisted(f"{answer}\n- `base/errors.py`: nothing\n") == (set(), {"src/stopgrad/base/errors.py"})
    assert not defines("def other(): ...", "name")
