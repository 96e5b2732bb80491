"""Plant faults in the source, one by one, and say which of them the tests let live.

    python tests/mutants.py                                  # 300 faults, spread over the packages
    python tests/mutants.py --package rewrite --count 20
    python tests/mutants.py --only 3f0c9a1b22 --tier plain
    python tests/mutants.py --table before.jsonl after.jsonl

A fault is one small mistake: a sign, operands that change places, a condition dropped or turned round, one
more or less, a line removed, another comparison, another constant. The checkout stays as it is: a process
that has imported NumPy, JAX and pytest, and nothing of ours, is forked; the fork, and every process that it
starts, loads the faulty module in place of the right one and runs the tests that reach the fault, the most
telling first, until one fails.

Which test reaches which block of the source is noted once for each file of tests, in ``--cache``, with a
limit of time for each file. Results are lines of JSON; the same command, run again, goes on where it was
interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import marshal
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from mutation.faults import Fault, faults, planted
from mutation.reach import Noted, Reaching, Sources, Test, note, noted, path_of, reaching
from mutation.watching import Place, Run, Wave

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(tempfile.gettempdir()) / "stopgrad-mutants"
# What tests import beside the library itself: imported once, before the first fork.
LIBRARIES = (
    "numpy jax jax.numpy scipy.special torch onnx onnxruntime onnxscript hypothesis optax flax equinox"
)
LEAST = 8  # faults in each package
DIED = ("killed", "timeout")

Result = dict[str, Any]


# -- which faults


def package(sources: Sources, module: str) -> str:
    """The package that a module belongs to: its folder below the library, or the library's own face."""
    top, *below = sources.paths[module].relative_to(sources.place.tree / "src").parts
    return below[0] if len(below) > 1 else top


def candidates(sources: Sources, packages: Sequence[str] = ()) -> list[Fault]:
    """All faults of a checkout that cannot be taken for another."""
    found = [
        fault
        for module, path in sources.paths.items()
        if not packages or package(sources, module) in packages
        for fault in faults(module, path.read_text())
    ]
    times = Counter(fault.id for fault in found)
    return [fault for fault in found if times[fault.id] == 1]


def chosen(found: Sequence[Fault], package_of: Callable[[str], str], count: int, seed: int) -> list[Fault]:
    """A sample: packages in proportion to their size, at least some of each; in a package all kinds alike.

    Which are chosen hangs on the seed and their names alone, and hardly changes with the rest of the source.
    """
    groups: defaultdict[str, defaultdict[str, list[Fault]]] = defaultdict(lambda: defaultdict(list))
    for fault in sorted(found, key=lambda fault: sha1(f"{seed} {fault.id}".encode()).digest()):
        groups[package_of(fault.module)][fault.kind].append(fault)
    result = []
    for _, kinds in sorted(groups.items()):
        size = sum(map(len, kinds.values()))
        wanted = min(size, max(LEAST, round(count * size / len(found))))
        turns = sorted((turn, kind) for kind, those in kinds.items() for turn in range(len(those)))
        result += [kinds[kind][turn] for turn, kind in turns[:wanted]]
    return result


def again(
    found: Sequence[Fault], records: Iterable[Result]
) -> tuple[list[Fault], list[Result], dict[str, str]]:
    """The same faults in another state of the source, and those that have no place there any more.

    A fault is found by its name, or else where its statement stands once, or where a function of that name
    has the same expression once; then a result says which fault it ``was``.
    """
    by_id = {fault.id: fault for fault in found}
    alike: defaultdict[tuple[str, ...], list[Fault]] = defaultdict(list)
    marks = (("kind", "statement", "before", "after"), ("kind", "function", "before", "after"))
    for fault in found:
        for names in marks:
            alike[*names, *(getattr(fault, name) for name in names)].append(fault)
    kept, gone, was = [], [], {}
    for record in records:
        others = (alike[*names, *(record[name] for name in names)] for names in marks if record["function"])
        one = next((those[0] for those in others if len(those) == 1), None)
        if known := by_id.get(record["id"], one):
            kept.append(known)
            was[known.id] = record["id"]
        else:
            gone.append({**record, "outcome": "gone"})
    return kept, gone, was


# -- which tests


def waves(fault: Fault, near: Reaching, slow: bool, limit: float, distrusted: set[str]) -> list[Wave]:
    """The tests that reach a fault, the most telling first: 1 file, then 2, 4, 8, as far as time goes."""
    stem = fault.module.rpartition(".")[2]
    usable = {
        file: [x for x in those if x.slow == slow and not {x.name, x.file} & distrusted]
        for file, those in near.tests.items()
    }
    early = _of_each_way(near, [test for tests in usable.values() for test in tests])
    parts: list[list[tuple[float, str, list[Test]]]] = [[], [], []]
    for file, reached in usable.items():
        tests = _varied([test for test in reached if test not in early])
        begin = _quick(tests)
        cost = 0.3 + near.collecting[file] + sum(test.seconds for test in tests[:begin])
        own = 4 if stem in Path(file).stem else 1
        telling = own * (0.02 + near.share[file]) / cost
        split = [test for test in reached if test in early], tests[:begin], tests[begin:]
        for part, those in zip(parts, split, strict=True):
            part.append((-telling, file, those))
    picked: list[tuple[str, list[Test]]] = []
    left = limit
    for _, file, tests in (item for part in parts for item in sorted(part, key=_rank)):
        taken = []
        left -= near.collecting[file] if tests else 0
        for test in tests:
            if left > 0 or not picked:
                taken.append(test)
                left -= test.seconds
        if taken:
            picked.append((file, taken))
    return list(_grouped(picked, near))


def _of_each_way(near: Reaching, tests: Sequence[Test], most: int = 10) -> set[Test]:
    """One cheap test for each way through the faulty function, of the rarest ways: they see most."""
    ways: defaultdict[frozenset[str], list[Test]] = defaultdict(list)
    for test in tests:
        ways[near.ways[test.name]].append(test)
    rare = sorted(ways.values(), key=len)[:most]
    return {min(those, key=lambda test: test.seconds + near.collecting[test.file]) for those in rare}


def _rank(part: tuple[float, str, list[Test]]) -> tuple[float, str]:
    return part[:2]


def _varied(tests: Sequence[Test]) -> list[Test]:
    """The quickest case of each test, then the second quickest of each, and so on."""
    turns: Counter[str] = Counter()
    keys = {}
    for test in sorted(tests, key=lambda test: test.seconds):
        keys[test.name] = (turns[test.function], test.seconds)
        turns[test.function] += 1
    return sorted(tests, key=lambda test: keys[test.name])


def _quick(tests: Sequence[Test], most: int = 10, seconds: float = 3.0) -> int:
    """How many tests of a file are tried before those of another."""
    spent = 0.0
    for index, test in enumerate(tests[:most]):
        spent += test.seconds
        if spent > seconds:
            return index + 1
    return min(most, len(tests))


def _grouped(picked: Sequence[tuple[str, list[Test]]], near: Reaching) -> Iterator[Wave]:
    size, begin = 1, 0
    while begin < len(picked):
        parts = picked[begin : begin + size]
        tests = [test for _, those in parts for test in those]
        files = list(dict.fromkeys(file for file, _ in parts))
        expected = sum(near.collecting[file] for file in files) + sum(test.seconds for test in tests)
        yield Wave(files, [test.name for test in tests], seconds=60 + 6 * expected)
        begin, size = begin + size, 2 * size


# -- one fault


class Trial:
    """Tries faults, one after the other.

    Args:
        sources: the checkout.
        near: the tests that reach each fault.
        tiers: which tests are run, in this order: ``plain``, ``slow``.
        limit: seconds of tests for each tier.
    """

    def __init__(
        self, sources: Sources, near: dict[str, Reaching], tiers: Sequence[str], limit: float
    ) -> None:
        self._sources = sources
        self._near = near
        self._tiers = tiers
        self._limit = limit
        self._passes: dict[str, bool] = {}

    def result(self, fault: Fault) -> Result:
        """Plant a fault, run the tests, and say what became of it."""
        began = time.monotonic()
        near = self._near[fault.id]
        reaching = sum(map(len, near.tests.values()))
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            path = self._sources.paths[fault.module]
            code = planted(fault, path.read_text(), str(path))
            (Path(folder) / f"{fault.module}.code").write_bytes(marshal.dumps(code))
            outcome: Result = {"outcome": "survived", "ran": 0}
            for tier in self._tiers:
                last = self._tier(fault, near, tier, Path(folder))
                outcome = {**last, "ran": outcome["ran"] + last["ran"]}
                if last["outcome"] != "survived":
                    break
        return {
            **fault.record(),
            "package": package(self._sources, fault.module),
            **outcome,
            "reaching": reaching,
            "near": near.near,
            "seconds": round(time.monotonic() - began, 1),
        }

    def _tier(self, fault: Fault, near: Reaching, tier: str, folder: Path) -> Result:
        while True:
            distrusted = {name for name, passes in self._passes.items() if not passes}
            parts = waves(fault, near, tier == "slow", self._limit, distrusted)
            outcome = self._run(parts, folder)
            if outcome["outcome"] == "survived":
                return outcome
            if self._is_trusted(outcome["test"], parts):
                return {**outcome, "tier": tier}
            if not any(outcome["test"] in (*wave.files, *(wave.tests or ())) for wave in parts):
                raise RuntimeError(f"tests cannot be run without a fault, either: {outcome}")

    def _run(self, parts: Sequence[Wave], folder: Path) -> Result:
        ran, test = 0, ""
        if not parts:
            return {"outcome": "survived", "ran": 0}
        run = Run(self._sources.place, folder, parts)
        with closing(run.messages()) as messages:
            for message in messages:
                if "begins" in message:
                    ran, test = ran + 1, message["begins"]
                elif "failed" in message:
                    why = f"{message['when']}: {message['why']}"
                    return {"outcome": "killed", "test": message["failed"], "why": why, "ran": ran}
        if run.ended == "timeout":
            return {"outcome": "timeout", "test": test, "ran": ran}
        if run.ended == "crash":
            return {"outcome": "killed", "test": test, "why": "the process ended", "ran": ran}
        return {"outcome": "survived", "ran": ran}

    def _is_trusted(self, name: str, parts: Sequence[Wave]) -> bool:
        """Whether a test passes, or its file can be imported after those before it, without the fault."""
        if name not in self._passes:
            file, _, test = name.partition("::")
            if test:
                company = [Wave([file], [name], seconds=180)]
            else:
                last = next((index for index, wave in enumerate(parts) if file in wave.files), len(parts) - 1)
                company = [replace(wave, tests=[]) for wave in parts[: last + 1]]
            with tempfile.TemporaryDirectory(prefix="mutant-") as empty:
                self._passes[name] = self._run(company, Path(empty)).get("test") != name
        return self._passes[name]


# -- many faults


def in_processes(jobs: int, tasks: Sequence[Callable[[], None]]) -> None:
    """Do tasks in forks of this process, each as soon as one is free."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    listening, handing = os.pipe()
    os.set_blocking(listening, False)
    for index in range(len(tasks)):
        os.write(handing, index.to_bytes(4, "little"))
    workers = []
    for _ in range(min(jobs, len(tasks))):
        worker = os.fork()
        if worker == 0:
            status = 1
            try:
                with suppress(BlockingIOError):
                    while number := os.read(listening, 4):
                        tasks[int.from_bytes(number, "little")]()
                status = 0
            except KeyboardInterrupt:
                pass
            finally:
                sys.stdout.flush()
                os._exit(status)
        workers.append(worker)
    try:
        failed = [worker for worker in workers if os.waitpid(worker, 0)[1] != 0]
    except KeyboardInterrupt:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)
        raise
    os.close(listening)
    os.close(handing)
    if failed:
        raise SystemExit("A process ended early; run the same command again to go on.")


def read(path: Path) -> list[Result]:
    """Results: a line that was cut off by an interruption is none."""
    results = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            results.append(json.loads(line))
    return results


def _append(path: Path, result: Result) -> None:
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")


def _noted(sources: Sources, asked: argparse.Namespace) -> list[Noted]:
    """What the tests reach; what was not noted before is noted now."""
    files = [file for file in sources.test_files() if file.startswith(_folders(asked))]
    missing = [file for file in files if not path_of(sources, file).exists() or asked.renew]
    if missing and not asked.known:
        _ = sources.noting  # compiled once, for all forks
        print(f"noting what the tests in {len(missing)} files reach", flush=True)
        # Files of doctests are small: several share a process.
        groups = [[file] for file in missing if not file.startswith("src/")]
        doctests = [file for file in missing if file.startswith("src/")]
        groups += [doctests[at : at + 12] for at in range(0, len(doctests), 12)]

        def task(group: list[str]) -> Callable[[], None]:
            def run() -> None:
                began = time.monotonic()
                note(sources, group, asked.note_seconds)
                print(f"  {time.monotonic() - began:6.1f} s  {', '.join(group)[:90]}", flush=True)

            return run

        in_processes(asked.jobs, [task(group) for group in groups])
    return list(noted(sources, files))


def _folders(asked: argparse.Namespace) -> tuple[str, ...]:
    """Where the tests are that are run: for some packages theirs, and the sweeps over everything."""
    if asked.tests is not None:
        return tuple(asked.tests)
    own = [f"{folder}/{name}/" for name in asked.package for folder in ("tests", "src/stopgrad")]
    return ("tests/sweeps/", *own) if own else ("",)


def _planned(sources: Sources, asked: argparse.Namespace) -> tuple[list[Fault], list[Result], dict[str, str]]:
    """The faults to plant, those of another state that have no place any more, and what the others were."""
    found = candidates(sources, asked.package)
    gone: list[Result] = []
    was: dict[str, str] = {}
    if asked.like:
        found, gone, was = again(found, read(asked.like))
    elif not asked.only:
        found = chosen(found, lambda module: package(sources, module), asked.count, asked.seed)
    if asked.only:
        found = [fault for fault in found if fault.id in asked.only]
    return found, gone, was


def warm(libraries: Sequence[str]) -> None:
    """Import once what every fork needs: pytest with its plugins, then other libraries."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as empty:
        (Path(empty) / "pytest.ini").write_text("[pytest]\n")
        pytest.main([empty, "--rootdir", empty, "-p", "no:cacheprovider", "-p", "no:terminal"])
    for name in libraries:
        with suppress(ImportError):
            importlib.import_module(name)


def run(asked: argparse.Namespace) -> None:
    """Plant the faults that are asked for."""
    sources = Sources(Place(asked.tree.resolve(), asked.cache.resolve()))
    planned, gone, was = _planned(sources, asked)
    if asked.list:
        for fault in planned:
            print(fault.id, fault)
        return
    warm(asked.warm.split())
    everything = _noted(sources, asked)
    if asked.note:
        return
    if asked.resume.exists() and not asked.resume.read_bytes().endswith(b"\n"):
        with asked.resume.open("a") as file:
            file.write("\n")  # a line that was cut off stays one of its own
    done = {result["id"] for result in read(asked.resume)}
    for result in gone:
        if result["id"] not in done:
            _append(asked.resume, result)
    left = [fault for fault in planned if fault.id not in done]
    tiers = ("plain", "slow") if asked.tier == "both" else (asked.tier,)
    trial = Trial(sources, reaching(everything, left), tiers, asked.seconds)

    def task(fault: Fault) -> Callable[[], None]:
        def run() -> None:
            result = {**trial.result(fault), "was": was.get(fault.id, fault.id)}
            _append(asked.resume, result)
            by = f" by {result['test']}" if result.get("test") else ""
            print(f"{fault.id} {fault}: {result['outcome']}{by}, {result['seconds']} s", flush=True)

        return run

    print(f"{len(left)} faults to plant, {len(done)} done before; results in {asked.resume}", flush=True)
    # The packages take turns, so that an interrupted run has seen something of each.
    left.sort(key=lambda fault: sha1(f"{asked.seed} {fault.id}".encode()).digest())
    in_processes(asked.jobs, [task(fault) for fault in left])
    show([asked.resume])


# -- what came of it


def show(paths: Sequence[Path]) -> None:
    """Print results as a table; of two files also what died in the first and survives in the second."""
    for path in paths:
        results = read(path)
        print(f"\n{path}")
        print(f"{'package':20}{'planted':>9}{'plain':>8}{'slow':>8}{'timeout':>9}{'survived':>10}{'gone':>7}")
        groups = defaultdict(list)
        for result in results:
            groups[result["package"]].append(result)
        for name, those in [*sorted(groups.items()), ("all", results)]:
            plain, slow = (sum(_killed_in(x, tier) for x in those) for tier in ("plain", "slow"))
            other = [sum(x["outcome"] == kind for x in those) for kind in ("timeout", "survived", "gone")]
            print(f"{name:20}{len(those):9}{plain:8}{slow:8}{other[0]:9}{other[1]:10}{other[2]:7}")
    if len(paths) == 1:
        print("\nsurvivors")
        _list(x for x in read(paths[0]) if x["outcome"] == "survived")
    elif len(paths) == 2:
        before = {x["id"]: x for x in read(paths[0]) if x["outcome"] in DIED}
        print("\ndied before, survive now")
        _list(x for x in read(paths[1]) if x["outcome"] == "survived" and x.get("was", x["id"]) in before)


def _killed_in(result: Result, tier: str) -> bool:
    return (result["outcome"], result.get("tier")) == ("killed", tier)


def _list(results: Iterable[Result]) -> None:
    for x in sorted(results, key=lambda x: (x["module"], x["line"])):
        print(f"{x['id']} {x['module']}:{x['line']} {x['kind']} in {x['function'] or 'the module'}")
        print(f"    {x['before']} -> {x['after']}  ({x['ran']} of {x['reaching']} tests, by {x['near']})")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seed", type=int, default=0, help="which faults are chosen")
    add("--count", type=int, default=300, help="how many, about")
    add("--package", nargs="*", default=[], help="in these packages only")
    add("--only", nargs="*", metavar="ID", help="these faults only")
    add(
        "--like",
        type=Path,
        metavar="FILE",
        help="the faults of a file of results, wherever they are now",
    )
    add("--tier", choices=("plain", "slow", "both"), default="both", help="which tests are run")
    add(
        "--tests",
        nargs="*",
        metavar="PREFIX",
        help="files of tests that begin so; by default the packages' and sweeps",
    )
    add("--jobs", type=int, default=1, help="how many processes")
    add("--seconds", type=float, default=60, help="of tests for each fault and tier")
    add("--resume", type=Path, metavar="FILE", help="results; what stands there is not done again")
    add("--note", action="store_true", help="note what tests reach, and plant nothing")
    add("--renew", action="store_true", help="note it again")
    add("--known", action="store_true", help="use only tests that were noted before")
    add("--note-seconds", type=float, default=60, help="for the tests of one file")
    add("--list", action="store_true", help="only print the faults")
    add("--table", nargs="+", type=Path, metavar="FILE", help="show results; of two files also what differs")
    add("--tree", type=Path, default=ROOT, help="the checkout")
    add("--cache", type=Path, default=CACHE, help="where notes are kept")
    add("--warm", default=LIBRARIES, help="modules that are imported once for all tests")
    asked = parser.parse_args(arguments)
    asked.resume = asked.resume or asked.cache / "results.jsonl"
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")  # as the tests have it, before JAX is imported
    if asked.table:
        show(asked.table)
    else:
        asked.cache.mkdir(parents=True, exist_ok=True)
        run(asked)


if __name__ == "__main__":
    main()
