"""What a release of PyTorch lacks of its undocumented parts is left out of reports, which say so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("stopgrad.torch")

from stopgrad.interop.torch import internals

HELPER = Path(__file__).parents[2] / "helpers" / "without_internals.py"
PACKAGE = Path(internals.__file__).parent


@pytest.mark.slow
def test_without_each_of_them_a_watch_runs_and_says_what_it_does_not_know() -> None:
    ran = subprocess.run([sys.executable, str(HELPER)], capture_output=True, text=True, timeout=300)
    found = {row["missing"]: row for row in map(json.loads, ran.stdout.splitlines())}
    assert found.keys() == {"", *internals.NEEDS}, ran.stderr
    whole = found[""]
    assert whole["statuses"]["net.weight"] == "stopped"
    assert whole["statuses"]["head.weight"] == "flows"
    assert whole["cuts"] == ["torch.tanh(net(torch.ones(3, 2))).detach()"]
    assert not whole["told"]
    for path, need in internals.NEEDS.items():
        row = found[path]
        assert "error" not in row, row
        assert (row["statuses"], row["cuts"]) == (whole["statuses"], whole["cuts"]), path
        assert row["norm"] == pytest.approx(row["grad"]), path
        assert len(row["told"]) == bool(need.without), path
        assert all(line.endswith(need.without) for line in row["told"]), path


def test_each_says_what_it_is_for_and_since_when() -> None:
    assert all(
        need.purpose and need.since and path.startswith("torch.") for path, need in internals.NEEDS.items()
    )


def test_undocumented_names_stand_in_one_module() -> None:
    undocumented = re.compile(r"\btorch\._[A-Za-z]|\b_C\._|\._functorch|torch\.\w+(\.\w+)* import _")
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "internals.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if undocumented.search(line)
    ]
    assert found == []
