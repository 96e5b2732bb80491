"""Which test reaches which block: noted once for each file of tests, kept outside the checkout."""

from __future__ import annotations

import ast
import hashlib
import json
import marshal
import time
import zlib
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .blocks import noting
from .faults import Fault
from .watching import Place, Run, Wave


@dataclass(frozen=True)
class Sources:
    """The modules of a checkout.

    Attributes:
        place: the checkout.
    """

    place: Place

    @cached_property
    def paths(self) -> dict[str, Path]:
        """Each module's dotted name and file."""
        root = self.place.tree / "src"
        return {
            ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
            for path in sorted(root.rglob("*.py"))
        }

    @cached_property
    def digest(self) -> str:
        """Of all source."""
        together = hashlib.sha1(usedforsecurity=False)
        for path in self.paths.values():
            together.update(path.read_bytes())
        return together.hexdigest()[:16]

    @cached_property
    def noting(self) -> tuple[Path, list[str]]:
        """A folder of compiled modules that note what they run, and the names of their blocks."""
        folder = self.place.cache / f"noting-{self.digest}"
        names: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        for module, path in self.paths.items():
            tree = ast.parse(path.read_text())
            names += noting(module, tree, len(names))
            target = folder / f"{module}.code"
            if not target.exists():
                code = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
                partial = target.with_suffix(".partial")
                partial.write_bytes(marshal.dumps(code))
                partial.rename(target)
        return folder, names

    def test_files(self) -> list[str]:
        """All files with tests: those of the tests, and modules with doctests."""
        tree = self.place.tree
        tests = [path for path in (tree / "tests").rglob("*.py") if path.name.startswith("test_")]
        written = [path for path in self.paths.values() if ">>>" in path.read_text()]
        return [str(path.relative_to(tree)) for path in (*sorted(tests), *written)]


@dataclass(frozen=True)
class Test:
    """A test that passes without a fault.

    Attributes:
        file: where it is.
        name: its pytest name.
        seconds: how long it takes.
        slow: whether it runs with ``-m slow`` only.
    """

    file: str
    name: str
    seconds: float
    slow: bool

    @property
    def function(self) -> str:
        """Its name without the case."""
        return self.name.partition("[")[0]


@dataclass(frozen=True)
class Noted:
    """What the tests of one file reach.

    Attributes:
        file: their file.
        collecting: seconds from the start until the first test runs.
        complete: whether all its tests were run.
        tests: those that pass.
        reached: for each, which blocks, as rows of bits.
        blocks: the blocks' names, in the order of the bits.
    """

    file: str
    collecting: float
    complete: bool
    tests: list[Test]
    reached: list[bytes]
    blocks: list[str]


def path_of(sources: Sources, file: str) -> Path:
    """Where the notes of a file of tests are kept: a new place when the file changes."""
    text = (sources.place.tree / file).read_bytes()
    digest = hashlib.sha1(text, usedforsecurity=False).hexdigest()[:8]
    return sources.place.cache / "reach" / f"{file.replace('/', '+')}-{digest}.json"


def note(sources: Sources, files: Sequence[str], seconds: float) -> None:
    """Run the tests of files, one after the other in one process, and keep what each test reaches.

    Args:
        sources: the checkout.
        files: the files of tests.
        seconds: when no further test of a file begins; one case of each runs before the second of any.
    """
    folder, names = sources.noting
    parts = [Wave([file], None, seconds=3 * seconds + 120, stop=seconds) for file in files]
    run = Run(sources.place, folder, parts, blocks=len(names), first_only=False)
    records: list[dict[str, Any]] = [{"collecting": 0.0, "collected": 0, "tests": []} for _ in files]
    current, began = -1, 0.0
    with closing(run.messages()) as messages:
        for message in messages:
            if "wave" in message:
                current, began = message["wave"], time.monotonic()
            elif "collected" in message:
                collecting = round(time.monotonic() - began, 2)
                records[current].update(collected=message["collected"], collecting=collecting)
            elif "test" in message:
                records[current]["tests"].append(message)
            elif "failed" in message:
                print(f"fails without any fault: {message['failed']}: {message['why']}", flush=True)
    if not any(record["collected"] for record in records):
        print(f"no test could be run in {', '.join(files)}: {run.ended}\n{run.output}")
    for file, record in zip(files, records, strict=True):
        _keep(path_of(sources, file), {**record, "ended": run.ended}, names)


def _keep(path: Path, record: dict[str, Any], names: Sequence[str]) -> None:
    """Write what was noted of one file: of all blocks only those that any of its tests reaches."""
    rows = [np.frombuffer(zlib.decompress(b64decode(test["reached"])), np.uint8) for test in record["tests"]]
    some = np.flatnonzero(np.any(rows, axis=0)) if rows else np.zeros(0, int)
    for test, row in zip(record["tests"], rows, strict=True):
        test["reached"] = np.packbits(row[some]).tobytes().hex()
    record["blocks"] = [names[index] for index in some.tolist()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def noted(sources: Sources, files: Iterable[str]) -> Iterator[Noted]:
    """What was noted of files of tests; of some nothing, where none was run."""
    for file in files:
        path = path_of(sources, file)
        if not path.exists():
            continue
        record = json.loads(path.read_text())
        good = [test for test in record["tests"] if test["good"]]
        tests = [Test(file, test["test"], test["seconds"], test["slow"]) for test in good]
        complete = len(record["tests"]) == record["collected"]
        reached = [bytes.fromhex(test["reached"]) for test in good]
        yield Noted(file, record["collecting"], complete, tests, reached, record["blocks"])


@dataclass(frozen=True)
class Reaching:
    """The tests that reach a fault.

    Attributes:
        near: how near: "block", or, where no test reaches that, "function", "class", "module".
        tests: for each file, the tests.
        share: for each file, which part of its tests they are.
        collecting: for each file, how long it takes to begin.
        ways: by which blocks of the faulty function a test goes.
    """

    near: str
    tests: dict[str, list[Test]]
    share: dict[str, float]
    collecting: dict[str, float]
    ways: dict[str, frozenset[str]]


def reaching(everything: Sequence[Noted], wanted: Sequence[Fault]) -> dict[str, Reaching]:
    """For each fault, the tests that reach it, or, where there are none, what is around it."""
    found: dict[str, dict[str, dict[str, list[Test]]]] = {
        fault.id: {near: {} for near, _ in _surroundings(fault)} for fault in wanted
    }
    ways: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for notes in everything:
        if not notes.tests:
            continue
        rows = np.frombuffer(b"".join(notes.reached), np.uint8).reshape(len(notes.tests), -1)
        bits = np.unpackbits(rows, axis=1, count=len(notes.blocks)).astype(bool)
        positions: defaultdict[str, list[int]] = defaultdict(list)
        for position, block in enumerate(notes.blocks):
            for name in _prefixes(block):
                positions[name].append(position)
        for fault in wanted:
            for near, name in _surroundings(fault):
                if at := positions.get(name):
                    hit = np.flatnonzero(bits[:, at].any(axis=1))
                    if hit.size:
                        tests = [notes.tests[index] for index in hit]
                        found[fault.id][near][notes.file] = tests
                        around = np.array(positions[_scope(fault.block)], int)
                        ways[fault.id].update(_ways(notes, bits[np.ix_(hit, around)], around, tests))
    sizes = {notes.file: len(notes.tests) for notes in everything}
    collecting = {notes.file: notes.collecting for notes in everything}
    result = {}
    for fault in wanted:
        near, tests = next(
            ((near, files) for near, files in found[fault.id].items() if files), ("nothing", {})
        )
        share = {file: len(those) / sizes[file] for file, those in tests.items()}
        result[fault.id] = Reaching(near, tests, share, collecting, ways[fault.id])
    return result


def _ways(notes: Noted, bits: Any, positions: Any, tests: Sequence[Test]) -> dict[str, frozenset[str]]:
    """Which of the blocks at positions each test reaches, one row of bits each."""
    if not positions.size:
        return {test.name: frozenset() for test in tests}
    rows, which = np.unique(bits, axis=0, return_inverse=True)
    sets = [frozenset(notes.blocks[at] for at in positions[row].tolist()) for row in rows]
    return {test.name: sets[index] for test, index in zip(tests, which.ravel(), strict=True)}


def _scope(block: str) -> str:
    return block.rpartition("#")[0]


def _surroundings(fault: Fault) -> list[tuple[str, str]]:
    """What holds a fault, from near to far: what runs at import is reached by whoever uses the module."""
    module, _, rest = fault.block.partition(":")
    scope = rest.rpartition("#")[0]
    outer = scope.partition(".")[0]
    return [
        ("block", fault.block),
        *([("function", f"{module}:{scope}")] if scope else []),
        *([("class", f"{module}:{outer}")] if outer else []),
        ("module", module),
    ]


def _prefixes(block: str) -> list[str]:
    module, _, rest = block.partition(":")
    scope = rest.rpartition("#")[0]
    outer = scope.partition(".")[0]
    return list(dict.fromkeys([block, f"{module}:{scope}", f"{module}:{outer}", module]))
