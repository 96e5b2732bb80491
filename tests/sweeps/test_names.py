"""Names of locals and parameters say what they hold: some words hold nothing in the mind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import stopgrad

ROOT = Path(stopgrad.__file__).parent
VAGUE = frozenset({"found", "made", "given", "known", "kept", "told"})
MEANT = {
    ("engines/xla/edges.py", "kept"),  # The key in stored plans.
    ("flow/checking/gradient_check.py", "found"),  # Public, as the next three.
    ("flow/problems/diagnosis.py", "known"),
    ("flow/problems/problem.py", "told"),
    ("interop/onnx/loading.py", "known"),
    ("interop/tensorflow/loading.py", "known"),
    ("interop/onnx/training/budget/choosing.py", "kept"),  # What a schedule keeps between the passes.
    ("interop/onnx/training/budget/fitting.py", "kept"),
    ("interop/onnx/training/budget/schedules.py", "kept"),
    ("interop/onnx/translating.py", "kept"),  # An attribute in saved graphs, as the next one.
    ("ops/gates/custom.py", "kept"),
    ("interop/shared/nans.py", "made"),  # The events that were made; a field of each world's.
}
"""The names that stay, by file."""


_WORD = rf"\b(?:{'|'.join(sorted(VAGUE))})\b"
_PERHAPS = re.compile(rf"{_WORD}\s*(?:[=:,)\]]|in\b)|\bas\s+{_WORD}")
"""Where a name may be given; most files are without it, and need not be parsed."""


def vague(text: str) -> Iterator[tuple[int, str]]:
    """The lines that give a vague name to something."""
    if not _PERHAPS.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in VAGUE:
            yield node.lineno, node.arg


def test_no_name_is_one_that_says_nothing() -> None:
    named = {
        (path.relative_to(ROOT).as_posix(), name): f"{path}:{line}: {name}"
        for path in sorted(ROOT.rglob("*.py"))
        for line, name in vague(path.read_text(encoding="utf-8"))
    }
    assert not [where for key, where in named.items() if key not in MEANT]
    assert named.keys() >= MEANT, "no longer there"


@pytest.mark.parametrize(
    "text",
    ["found = 1", "for made in x: pass", "def f(given): pass", "y = [told for told in x]", "lambda known: 1"],
)
def test_each_way_to_give_such_a_name_is_seen(text: str) -> None:
    assert len(list(vague(text))) == 1


def test_other_names_are_none_of_ours() -> None:
    assert not list(vague("gradient = f(found.made, given=shape, kept=None)"))
