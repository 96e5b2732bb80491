"""The scripts in ``tests/helpers`` that describe the source: on small trees, they say what is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import HELPERS

pytestmark = pytest.mark.slow

FILES = {
    "__init__.py": "",
    "base/__init__.py": '"""The ground."""\n',
    "base/text.py": "from pack.ops import add\n\n# Why.\nx = add(1, 2)\n",
    "ops/__init__.py": (
        "from typing import Any\n\n\ndef add(x: Any, y: list[Any], *more: Any) -> Any:\n"
        '    """Add.\n\n    Twice.\n    """\n    return x  # The first.\n'
    ),
    "ops/text.py": "import pack.base.text\n",
}


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HELPERS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, Any]:
    for name, text in FILES.items():
        file = tmp_path / "pack" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    written = tmp_path / "figures.json"
    done = run(
        "structure.py", "--source", str(tmp_path / "pack"), "--json", str(written), "--order", "base ops"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(written.read_text())


def test_every_line_is_of_one_kind(tree: dict[str, Any]) -> None:
    ops = tree["packages"]["ops"]
    assert {key: ops[key] for key in ("code", "imports", "docstrings", "blank")} == {
        "code": 2,
        "imports": 2,
        "docstrings": 4,
        "blank": 2,
    }
    assert tree["packages"]["base"]["comments"] == 1
    kinds = ("code", "imports", "docstrings", "comments", "blank")
    assert sum(tree["total"].get(key, 0) for key in kinds) == sum(len(t.splitlines()) for t in FILES.values())


def test_any_alone_and_within_are_told_apart(tree: dict[str, Any]) -> None:
    assert [tree["total"][key] for key in ("parameters", "any", "any_within")] == [2, 1, 1]


def test_arrows_back_circles_and_shared_names_are_seen(tree: dict[str, Any]) -> None:
    assert tree["arrows"] == 2
    assert tree["arrows back"] == {"base <- ops": ["pack.base.text <- pack.ops"]}
    assert tree["rooms in circles"] == ["base", "ops"]
    assert tree["rooms not in the order"] == ["__init__"]
    assert tree["names shared anywhere"] == {"text": ["base", "ops"]}


def entry(signature: str, *parameters: list[str], **more: Any) -> dict[str, Any]:
    known = {"kind": "function", "doc": "", "help": "", "module": "", "listed": True}
    return {**known, "signature": signature, "parameters": parameters, **more}


X, Y = ["x", "POSITIONAL_OR_KEYWORD", ""], ["y", "POSITIONAL_OR_KEYWORD", "None"]


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ({"f": entry("(x)", X)}, {"f": entry("(x)", X)}, 0),
        ({"f": entry("(x)", X)}, {"f": entry("(x, y=None)", X, Y)}, 0),
        ({"f": entry("(x)", X)}, {}, 1),
        ({"f": entry("(x, y=None)", X, Y)}, {"f": entry("(x)", X)}, 1),
        ({"f": entry("(x)", X)}, {"f": entry("(y=None, x)", Y, X)}, 1),
        ({"f": entry("(y=None)", Y)}, {"f": entry("(y)", [*Y[:2], ""])}, 1),
        ({"f": entry("()")}, {"f": entry("(x)", X)}, 1),
        ({"f": entry("(x)", X, listed=False)}, {}, 0),
    ],
)
def test_what_was_lost_fails(old: dict[str, Any], new: dict[str, Any], status: int, tmp_path: Path) -> None:
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    for file, names in zip(files, (old, new), strict=True):
        file.write_text(json.dumps(names))
    done = run("public_names.py", "--compare", *map(str, files))
    assert done.returncode == status, done.stdout + done.stderr
