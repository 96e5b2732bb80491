"""Everything that writes, on a full disk and in a closed folder: an error of ours, what was there stays."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import Any

import pytest
from places import HELPERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits, small disks and users as on Linux"),
]
SILENT = {"program", "kernels", "tuned"}


def check(*how: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, "-W", "ignore", HELPERS / "full_disks.py", folder, *how],
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
    assert run.returncode == 0, run.stderr
    found: dict[str, dict[str, Any]] = json.loads(run.stdout)
    assert "limit" in found
    for kind, writers in found.items():
        print(kind, sum(one["refused"] + one["silent"] for one in writers.values()))
        assert len(writers) == 12
        for name, one in writers.items():
            assert one["wrong"] == [], (kind, name)
            assert one["silent" if name in SILENT else "refused"] > 0, (kind, name)
            assert one["written"] == (0 if kind == "closed" else 2), (kind, name)


def test_whatever_cannot_be_written_is_refused_and_what_was_there_stays() -> None:
    check("limit=9000", "full=24000", "closed=1")


@pytest.mark.nightly
def test_disks_that_are_full_after_any_number_of_bytes() -> None:
    check("limit=97", "full=97")
