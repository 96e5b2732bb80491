"""Whatever a file of TensorFlow's holds, loading ends with a model or one of our errors, in bounded time."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.onnx_mutants import BYTE_WISE
from tests.helpers.tensorflow_mutants import GRAPHS, mutant, outcome, saved_mutant, seeds

import stopgrad as sg
import stopgrad.tensorflow as sgtf

pytestmark = pytest.mark.slow

MODEL = GRAPHS / "two_signatures"


def tried(make: Callable[[random.Random], object], count: int, seed: int) -> Counter[str]:
    """How so many mutants were received; those that broke are told."""
    found: Counter[str] = Counter()
    for n in range(count):
        how, what = outcome(make(random.Random(f"{seed} {n}")))
        assert how != "broken", f"mutant {n} of seed {seed}: {what}"
        found[what if how == "refused" else how] += 1
    return found


def test_mutants_of_graphs() -> None:
    real = seeds()
    found = tried(lambda r: mutant(r, real), 500, 1)
    assert found["loaded"] > 20
    assert found["FileError"] > 20
    assert found["GraphError"] > 20


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 6))
def test_mutants_of_graphs_by_the_thousand(seed: int) -> None:
    real = seeds()
    tried(lambda r: mutant(r, real), 10_000, seed)


def test_mutants_of_saved_models(tmp_path: Path) -> None:
    content = (MODEL / "saved_model.pb").read_bytes()
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)

    def make(r: random.Random) -> Path:
        (folder / "saved_model.pb").write_bytes(saved_mutant(r, content))
        return folder

    found = tried(make, 100, 1)
    assert found["loaded"] > 5
    assert sum(found.values()) > found["loaded"] + 20


@pytest.mark.parametrize("name", ["variables.index", "variables.data-00000-of-00001"])
def test_a_changed_checkpoint_is_refused_or_has_the_same_numbers(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    path = folder / "variables" / name
    content = path.read_bytes()
    wanted = sgtf.load(folder).values()
    refused = 0
    for n in range(150):
        r = random.Random(f"{name} {n}")
        path.write_bytes(r.choice(BYTE_WISE)(r, content))
        try:
            found = sgtf.load(folder).values()
        except sg.FileError:
            refused += 1
        else:
            assert found.keys() == wanted.keys()
            assert all(np.array_equal(found[key], wanted[key]) for key in wanted)
    assert refused > 5
