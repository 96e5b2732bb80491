"""Whatever the bytes, reading answers with a graph or one of our errors, in bounded time and memory."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from fuzz import mutants, seeds
from fuzz.mutants import CORPUS, BrokenError, check_file, check_text, file_mutant, text_mutant, watched
from tiers import some

import stopgrad as sg

pytestmark = pytest.mark.slow

TEXTS, FILES, PARTS = 15_000, 5_000, 10


@pytest.mark.parametrize("part", some(range(PARTS), 3, pytest.mark.nightly))
def test_mutants_of_texts(part: int) -> None:
    found: Counter[bool] = Counter()
    for seed in range(part, TEXTS, PARTS):
        try:
            found[isinstance(check_text(text_mutant(seed)), sg.Graph)] += 1
        except Exception as error:
            raise AssertionError(f"check_text(text_mutant({seed})): {error!r}") from error
    assert min(found.values()) > TEXTS / PARTS / 50  # Some are graphs still, most are not.


@pytest.mark.parametrize("part", some(range(PARTS), 3, pytest.mark.nightly))
def test_mutants_of_files(part: int, tmp_path: Path) -> None:
    found: Counter[bool] = Counter()
    for seed in range(part, FILES, PARTS):
        try:
            found[isinstance(check_file(file_mutant(seed), tmp_path / "file"), sg.Graph)] += 1
        except Exception as error:
            raise AssertionError(f"check_file(file_mutant({seed})): {error!r}") from error
    assert min(found.values()) > FILES / PARTS / 50


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_once_broke_the_readers(path: Path, tmp_path: Path) -> None:
    if path.suffix == ".txt":
        check_text(path.read_text(encoding="utf-8", errors="surrogatepass"))
    else:
        check_file(path.read_bytes(), tmp_path / "file")


def test_the_fuzzer_sees_what_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "SECONDS", 0.3)

    def slow() -> sg.Graph:
        until = time.thread_time() + 0.4
        while time.thread_time() < until:
            pass
        return sg.Graph()

    def large() -> sg.Graph:
        np.ones(90_000_000)
        return sg.Graph()

    def other() -> sg.Graph:
        raise KeyError("x")

    with pytest.raises(BrokenError, match=r"it took 0\.\d s"):
        watched(slow)
    monkeypatch.setattr(mutants, "SECONDS", 60.0)
    with pytest.raises(BrokenError, match=r"it took \d+ MB"):
        watched(large)
    with pytest.raises(KeyError):
        watched(other)


def test_the_seeds_hold_everything_that_a_text_can_say() -> None:
    text = "\n".join(seeds.texts())
    for part in (
        "inside no_gradient 1/2",
        "program='W1",
        "for 1:",
        "body(",
        "nan",
        "complex(",
        "inf",
        "-0.0",
        'array("',
        "\\u",
    ):
        assert part in text
    assert len(seeds.texts()) > 400


@pytest.mark.nightly
def test_mutants_without_end(tmp_path: Path) -> None:
    """For an hour, or STOPGRAD_FUZZ_SECONDS. What breaks goes to the corpus."""
    until = time.monotonic() + float(os.environ.get("STOPGRAD_FUZZ_SECONDS", "3600"))
    r = random.Random()
    count, broken = 0, []
    while time.monotonic() < until:
        seed = r.randrange(2**62)
        count += 1
        text, data = None, None
        try:
            if count % 4:
                text = text_mutant(seed)
                check_text(text)
            else:
                data = file_mutant(seed)
                check_file(data, tmp_path / "file")
        except Exception as error:
            broken.append(f"{seed}: {error!r}"[:300])
            if text is not None:
                (CORPUS / f"{seed}.txt").write_text(text, encoding="utf-8", errors="surrogatepass")
            elif data is not None:
                (CORPUS / f"{seed}.safetensors").write_bytes(data)
    print(f"{count} mutants")
    assert not broken
