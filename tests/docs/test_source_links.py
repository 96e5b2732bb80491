"""Links to lines of source lead to what they name, and the walks of "The source in an hour" are true."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, pages
from places import ROOT
from source_links import LINK, StaleLinkError, defined, renewed

HOUR = DOCS / "inside" / "an-hour.md"
WALKS = re.split(r"^## ", HOUR.read_text(), flags=re.MULTILINE)[1:]
MODULES = [("jax",), ("torch",), ("onnx",)]
LINKING = [page for page in pages() if ".py#L" in page.read_text()]

RECORDER = """
import json, sys
calls, numbers = [], {}

def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and "stopgrad" in code.co_filename:  # No bodies of classes.
        calls.append(numbers.setdefault((code.co_filename, code.co_firstlineno), len(numbers)))

program, out = sys.argv[1:]
code = compile(open(program).read(), program, "exec")
sys.setprofile(note)
exec(code, {"__name__": "__main__"})
sys.setprofile(None)
json.dump([list(numbers), calls], open(out, "w"))
"""


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.stem)
def test_the_lines_of_each_link_are_those_of_the_definition_that_it_names(page: Path) -> None:
    text = page.read_text()
    links = LINK.findall(text)
    assert len(links) == text.count(".py#L"), "a link to lines is [`name`](file.py#L1-L9)"
    assert renewed(text, page.parent) == text, "run python tests/helpers/source_links.py"
    for name, path, begin, end, _ in links:
        definition = defined(page.parent / path, name)
        assert definition.first <= int(begin) <= int(end) <= definition.last, name
        assert 5 <= int(end) - int(begin) + 1 <= 20, name


def test_links_follow_their_lines_and_say_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import b\n\n\nclass A:\n    @b\n    def f(self):\n        x = 1\n        return x\n"
    )
    short, titled = "[`A.f`](a.py#L1-L9)", '[`f`](a.py#L1-L2 "x = 1")'
    assert renewed(short, tmp_path) == "[`A.f`](a.py#L5-L8)"
    assert renewed(titled, tmp_path) == '[`f`](a.py#L7-L8 "x = 1")'
    for stale in ("[`g`](a.py#L1-L9)", '[`f`](a.py#L1-L9 "x = 2")'):
        with pytest.raises(StaleLinkError):
            renewed(stale, tmp_path)


@pytest.mark.parametrize("walk", WALKS, ids=[walk.split("\n")[0] for walk in WALKS])
def test_each_step_is_numbered_and_has_one_link(walk: str) -> None:
    steps = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", walk, re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert 8 <= len(steps) <= 14
    for _, step in steps:
        assert len(LINK.findall(step)) == 1
        assert step.rstrip().endswith(")"), "the site shows the lines after a link that ends its paragraph"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("walk", "needs"), list(zip(WALKS, MODULES, strict=True)), ids=[needs[0] for needs in MODULES]
)
def test_the_program_of_a_walk_calls_its_steps_in_order(
    walk: str, needs: tuple[str, ...], tmp_path: Path
) -> None:
    if not all(map(importlib.util.find_spec, needs)):
        pytest.skip(f"needs {needs}")
    (tmp_path / "record.py").write_text(RECORDER)
    (tmp_path / "program.py").write_text(re.findall(r"```python\n(.*?)```", walk, re.DOTALL)[0])
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "STOPGRAD_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "record.py", "program.py", "calls.json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    codes, calls = json.loads((tmp_path / "calls.json").read_text())
    at = 0
    for name, path, *_ in LINK.findall(walk):
        file = (HOUR.parent / path).resolve()
        definition = defined(file, name)
        wanted = {
            number
            for number, (other, line) in enumerate(codes)
            if definition.first <= line <= definition.last and Path(other).resolve() == file
        }
        at = next((i for i in range(at, len(calls)) if calls[i] in wanted), -1) + 1
        assert at, f"{name} is not called after the step before it"
