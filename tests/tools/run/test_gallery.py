"""The gallery of mistakes in PyTorch runs as it stands: ``stopgrad run`` with the files of its programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from run_scripts import in_forks

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

PROGRAMS = sorted((Path(__file__).parents[3] / "examples" / "torch_mistakes").glob("[a-z]*.py"))
QUIET = {"embedding_frozen_by_default", "layers_in_a_list"}
"""Programs whose mistake is not seen where only what the optimizer holds is trained."""
NOTED = {"optimizer_of_the_old_head", "parameter_of_a_value"}
"""Programs of which a note is all that is certain."""


def test_mistakes_are_found_and_cures_are_not() -> None:
    broken = {path: [str(path)] for path in PROGRAMS}
    cured = {path: [str(path), "cured"] for path in PROGRAMS}
    found = in_forks(*broken.values(), *cured.values())
    for path in PROGRAMS:
        told = found[json.dumps(broken[path])]
        well = found[json.dumps(cured[path])]
        assert well["status"] == 0, path
        assert [one["kind"] for one in well["findings"] if one["severity"] != "note"] == [], path
        assert not told["unknown"]
        if re.search(r"^Symptom: (none|nan)$", path.read_text(), re.MULTILINE) and path.stem not in QUIET:
            kinds = [one["kind"] for one in told["findings"] if one["severity"] != "note"]
            assert kinds or (path.stem in NOTED and told["findings"]), path
