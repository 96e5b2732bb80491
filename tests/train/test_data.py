"""Batches: their order, positions that are kept, reading ahead, and what is told of mistakes."""

from __future__ import annotations

import gc
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stopgrad as sg
from stopgrad.train.data.permutations import permuted

pytestmark = pytest.mark.slow

SRC = Path(sg.__file__).parents[1]


def order(n: int, key: Any, epoch: int) -> list[int]:
    """A permutation as the page of a textbook would have it, with Python's integers."""
    if key is None:
        return list(range(n))
    key = sg.random_key(key) if isinstance(key, int) else key
    rounds = [
        (int(a) << 32) + int(b) for a, b in np.asarray(sg.random_split(sg.random_fold_in(key, epoch), 24))
    ]
    columns = 2 * (math.isqrt(n - 1) // 2 + 1)
    rows = -(-n // columns)

    def mixed(x: int) -> int:
        x %= 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    def moved(x: int) -> int:
        row, column = divmod(x, columns)
        for first, second in zip(rounds[::2], rounds[1::2], strict=True):
            row = (row + mixed(column + first)) % rows
            column = (column + mixed(row + second)) % columns
        x = row * columns + column
        return x if x < n else moved(x)

    return [moved(i) for i in range(n)]


def expected(n: int, size: int, key: Any, epochs: int, drop: bool = True) -> list[list[int]]:
    """All global batches of a run."""
    found = []
    for epoch in range(epochs):
        whole = order(n, key, epoch)
        cut = [whole[i : i + size] for i in range(0, n, size)]
        found += [batch for batch in cut if len(batch) == size or not drop]
    return found


def taken(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def quiet() -> bool:
    """Whether the threads that read have gone."""
    for _ in range(100):
        if not any(thread.name.startswith("grain") for thread in threading.enumerate()):
            return True
        time.sleep(0.02)
    return False


class Counting:
    """A source that remembers what was read."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        self.read.append(i)
        return i


# ------------------------------------------------------------------------------------------------ order


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 60),
    size=st.integers(1, 20),
    key=st.none() | st.integers(-(2**70), 2**70),
    epochs=st.integers(1, 3),
    drop=st.booleans(),
    ahead=st.integers(0, 3),
)
def test_batches_are_cut_from_the_order_of_each_epoch(
    n: int, size: int, key: int | None, epochs: int, drop: bool, ahead: int
) -> None:
    size = min(size, n)
    with sg.data.batches(
        np.arange(n), size, key=key, epochs=epochs, drop_remainder=drop, prefetch=ahead
    ) as batches:
        wanted = expected(n, size, key, epochs, drop)
        assert taken(batches) == wanted
        assert batches.total == batches.position == len(wanted) == epochs * batches.per_epoch


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 60),
    rows=st.integers(1, 6),
    processes=st.integers(1, 5),
    key=st.none() | st.integers(0, 9),
    drop=st.booleans(),
)
def test_the_parts_of_all_processes_are_the_batches_of_one(
    n: int, rows: int, processes: int, key: int | None, drop: bool
) -> None:
    size = rows * processes
    last = n % size
    if (n < size and drop) or (not drop and last % processes):
        return
    parts = [
        taken(
            sg.data.batches(
                np.arange(n),
                size,
                key=key,
                epochs=2,
                drop_remainder=drop,
                prefetch=0,
                process_index=p,
                process_count=processes,
            )
        )
        for p in range(processes)
    ]
    joint = [list(itertools.chain(*each)) for each in zip(*parts, strict=True)]
    assert joint == expected(n, size, key, 2, drop)
    assert len({len(batch) for part in parts for batch in part}) == (1 if drop or not last or n < size else 2)


def test_the_order_is_that_of_earlier_versions() -> None:
    """A run goes on after an update: these numbers never change."""
    assert next(sg.data.batches(np.arange(10), 10, key=0)).tolist() == ORDER_OF_TEN
    far = sg.data.batches(range(10**12), 4, key=sg.random_key(2**40 + 1), process_index=0, process_count=1)
    far.restore({**far.state(), "position": 10**13})
    assert next(far).tolist() == ORDER_FAR_AWAY


ORDER_OF_TEN = [4, 0, 1, 3, 5, 6, 8, 7, 2, 9]
ORDER_FAR_AWAY = [755222937395, 644057088909, 59513908786, 535130780750]


def test_a_seed_is_its_key() -> None:
    orders = [
        next(sg.data.batches(np.arange(99), 99, key=key)).tolist()
        for key in (7, np.int64(7), sg.random_key(7), np.array([0, 7], np.uint32), 7 - 2**64)
    ]
    assert all(one == orders[0] for one in orders)


def test_epochs_and_keys_have_orders_of_their_own() -> None:
    orders = [tuple(batch) for key in range(20) for batch in expected_from_us(50, key, 20)]
    assert all(sorted(one) == list(range(50)) for one in orders)
    assert len(set(orders)) == 400  # grain's would be 39: epoch e of seed s is epoch e - 1 of seed s + 1.


def expected_from_us(n: int, key: int, epochs: int) -> list[list[int]]:
    return taken(sg.data.batches(np.arange(n), n, key=key, epochs=epochs, prefetch=0))


@pytest.mark.parametrize("n", [2, 3, 4, pytest.param(5, marks=pytest.mark.nightly)])
def test_all_orders_are_equally_frequent(n: int) -> None:
    possible = math.factorial(n)
    draws = 20 * possible
    seen: dict[tuple[int, ...], int] = {}
    for epoch in expected_from_us(n, 3, draws):
        seen[tuple(epoch)] = seen.get(tuple(epoch), 0) + 1
    chi = sum((count - 20) ** 2 / 20 for count in seen.values()) + 20 * (possible - len(seen))
    freedom = possible - 1
    assert abs(chi - freedom) < 4.5 * math.sqrt(2 * freedom) + 6


def test_neighbours_are_torn_apart() -> None:
    """In a large order: where an example lands is independent of where it and its neighbour come from."""
    n = 100_000
    where = next(sg.data.batches(np.arange(n), n, key=1))
    assert sorted(where) == list(range(n))
    assert abs(np.corrcoef(where, np.arange(n))[0, 1]) < 0.02
    assert abs(np.corrcoef(where[1:], where[:-1])[0, 1]) < 0.02
    assert abs((np.diff(where) == 1).sum() - 1) < 8  # Of a random order one in n follows its neighbour.
    table, _, _ = np.histogram2d(where, np.arange(n), bins=16)
    chi = ((table - n / 256) ** 2 / (n / 256)).sum()
    assert abs(chi - 225) < 4.5 * math.sqrt(450)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 9, 16, 17, 1000, 4095, 4096, 4097])
def test_a_permutation_reaches_everything_once(n: int) -> None:
    keys = np.random.default_rng(n).integers(0, 2**64, 24, dtype=np.uint64)
    assert sorted(permuted(np.arange(n, dtype=np.uint64), n, keys).tolist()) == list(range(n))


def test_enormous_sources_need_no_memory() -> None:
    batches = sg.data.batches(range(2**62), 1000, key=5)
    first, second = next(batches), next(batches)
    assert len({*first.tolist(), *second.tolist()}) == 2000
    assert 0 <= min(first) < 2**58
    assert 2**61 < max(first) < 2**62


# --------------------------------------------------------------------------------------------- positions


@pytest.mark.parametrize("ahead", [0, 3])
def test_every_position_can_be_come_back_to(ahead: int) -> None:
    def made(processes: int = 1, index: int = 0) -> sg.data.Batches:
        return sg.data.batches(
            np.arange(26), 8, key=1, epochs=3, prefetch=ahead, process_index=index, process_count=processes
        )

    wanted = expected(26, 8, 1, 3)
    for position in range(len(wanted) + 1):
        batches = made()
        list(itertools.islice(batches, position))
        state = json.loads(json.dumps(batches.state()))
        batches.close()
        assert state["position"] == position
        again = made()
        next(again)
        again.restore(state)
        assert taken(again) == wanted[position:]
        for processes in (2, 4):
            parts = [made(processes, index) for index in range(processes)]
            for part in parts:
                part.restore(state)
                assert part.position == position
            joint = [list(itertools.chain(*[x.tolist() for x in each])) for each in zip(*parts, strict=True)]
            assert joint == wanted[position:]
            assert {json.dumps(part.state()) for part in parts} == {json.dumps(again.state())}


def test_a_second_loop_goes_on_and_an_end_stays_one() -> None:
    batches = sg.data.batches(np.arange(12), 2, epochs=1)
    assert iter(batches) is batches
    assert [batch[0] for batch in itertools.islice(batches, 2)] == [0, 2]
    assert [batch[0] for batch in batches] == [4, 6, 8, 10]
    assert list(batches) == []
    assert repr(batches) == "Batches(position 6 of 6, 2 of 12 examples each)"


def test_more_epochs_may_follow_and_none_is_for_ever() -> None:
    state = dict(sg.data.batches(np.arange(6), 2, epochs=1).state(), position=3)
    longer = sg.data.batches(np.arange(6), 2, epochs=2)
    longer.restore(state)
    assert len(taken(longer)) == 3
    endless = sg.data.batches(np.arange(6), 2)
    endless.restore(state)
    assert [batch[0] for batch in itertools.islice(endless, 7)] == [0, 2, 4, 0, 2, 4, 0]
    assert endless.total is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"examples": 13}, r"examples 13, here 12\. Its position, 0, means nothing"),
        ({"batch_size": 4, "key": 9}, r"batch_size 4, here 3; key 9, here \[0, 5\]"),
        ({"drop_remainder": False}, "drop_remainder False, here True"),
        ({"position": 9}, "9 batches were handed out; 2 epochs have 8"),
    ],
)
def test_a_state_of_other_batches_is_refused(change: dict[str, Any], told: str) -> None:
    batches = sg.data.batches(np.arange(12), 3, key=5, epochs=2, prefetch=0)
    next(batches)
    state = {**sg.data.batches(np.arange(12), 3, key=5, epochs=2).state(), **change}
    with pytest.raises(sg.CheckpointError, match=rf"data.restore: .*{told}"):
        batches.restore(state)
    assert batches.position == 1
    assert taken(batches) == expected(12, 3, 5, 2)[1:]


@pytest.mark.parametrize("state", [None, 3, {}, {"position": 3}, [("position", 3)]])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(sg.ArgumentError, match=r"data.restore: needs what Batches.state\(\) gave"):
        sg.data.batches(np.arange(4), 2).restore(state)


@pytest.mark.parametrize("position", [-1, 1.0, "1", None, True])
def test_what_is_no_position_is_refused(position: Any) -> None:
    batches = sg.data.batches(np.arange(4), 2)
    with pytest.raises(sg.ArgumentError, match=r"data.restore: a position is a number of batches, not"):
        batches.restore({**batches.state(), "position": position})


def test_a_checkpoint_keeps_the_position(tmp_path: Path) -> None:
    def train(steps: int, key: int = 2) -> tuple[int | None, list[float]]:
        with sg.Graph().as_default():
            x = sg.placeholder(sg.float64, [4])
            mean = sg.parameter(np.zeros(()), name="mean")
            step = sg.assign(mean, 0.9 * mean + 0.1 * sg.reduce_mean(x))
            batches = sg.data.batches(np.arange(20.0), 4, key=key)
            with sg.Session() as session, sg.Checkpoints(tmp_path, session, data=batches) as checkpoints:
                first = checkpoints.restore()
                means = [float(session.run(step, {x: batch})) for batch in itertools.islice(batches, steps)]
                checkpoints.save(batches.position)
        return first, means

    found = [train(3), train(7), train(2)]
    assert [first for first, _ in found] == [None, 3, 10]
    mean, wanted = 0.0, []
    for batch in expected(20, 4, 2, 3)[:12]:
        mean = 0.9 * mean + 0.1 * np.mean(batch)
        wanted.append(mean)
    np.testing.assert_allclose([x for _, means in found for x in means], wanted, rtol=1e-14)
    with pytest.raises(sg.CheckpointError, match=r"key \[0, 2\], here \[0, 3\]"):
        train(1, key=3)


# ----------------------------------------------------------------------------------------------- sources


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Point:
    x: Any
    y: Any


class OnDisk:
    """As h5py has it: slices and single rows, no lists of them that are not in order."""

    dtype, shape = np.dtype("i8"), (10, 2)

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return 10

    def __getitem__(self, at: Any) -> Any:
        assert isinstance(at, (int, slice))
        self.asked.append(at)
        return np.arange(20).reshape(10, 2)[at]


def test_structures_of_arrays_keep_their_structure() -> None:
    rows = np.arange(20).reshape(10, 2)
    source = {"b": (rows, Pair(rows * 2, [f"word {i}" for i in range(10)])), "a": rows.astype(np.float32)}
    batch = next(sg.data.batches(source, 3, key=2))
    picked = order(10, 2, 0)[:3]
    np.testing.assert_array_equal(batch["a"], rows[picked])
    np.testing.assert_array_equal(batch["b"][0], rows[picked])
    assert isinstance(batch["b"][1], Pair)
    assert batch["b"][1].y.tolist() == [f"word {i}" for i in picked]
    assert batch["a"].dtype == np.float32


def test_examples_may_be_structures() -> None:
    examples = [{"x": np.full(3, i), "y": Point(i, [float(i), True])} for i in range(8)]
    batch = next(sg.data.batches(examples, 4))
    np.testing.assert_array_equal(batch["x"], np.repeat(np.arange(4), 3).reshape(4, 3))
    assert batch["y"].x.tolist() == [0, 1, 2, 3]
    assert [one.dtype for one in batch["y"].y] == [np.float64, bool]


def test_arrays_are_copied_and_files_stay_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(20).reshape(10, 2))
    np.savez(tmp_path / "rows.npz", x=np.arange(6), y=np.arange(6) * 2)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    batch = next(sg.data.batches(mapped, 5))
    batch += 100  # It is ours to write to, and an array, no map of a file.
    assert type(batch) is np.ndarray
    assert mapped[0, 1] == 1
    array = np.arange(4)
    next(sg.data.batches(array, 4))[:] = 7
    assert array.tolist() == [0, 1, 2, 3]
    with np.load(tmp_path / "rows.npz") as archive:
        found = next(sg.data.batches(archive, 2, key=1))
    assert (found["y"] == 2 * found["x"]).all()


def test_arrays_on_disk_are_asked_for_rows_in_a_row_at_once() -> None:
    source = OnDisk()
    found = taken(sg.data.batches(source, 4, epochs=1, process_index=1, process_count=2, prefetch=0))
    assert found == [[[4, 5], [6, 7]], [[12, 13], [14, 15]]]
    assert source.asked == [slice(2, 4), slice(6, 8)]
    shuffled = next(sg.data.batches(source, 4, key=2, prefetch=0))
    assert (shuffled[:, 0] // 2).tolist() == order(10, 2, 0)[:4] == source.asked[2:]


def test_arrays_of_jax_and_torch_are_read() -> None:
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    source = {"jax": jax.numpy.arange(6), "torch": torch.arange(6) * 2}
    batch = next(sg.data.batches(source, 3, key=1))
    assert {type(x) for x in batch.values()} == {np.ndarray}
    assert (batch["torch"] == 2 * batch["jax"]).all()
    pairs = torch.utils.data.TensorDataset(torch.arange(6), torch.arange(6) * 2)
    x, y = next(sg.data.batches(pairs, 3, key=1))
    assert x.tolist() == batch["jax"].tolist()
    assert (y == 2 * x).all()


def test_a_dataset_of_grain_goes_on_from_epoch_to_epoch() -> None:
    """Its random transforms are others each time, and the same for any number of processes."""
    grain = pytest.importorskip("grain")

    def noisy(x: int, rng: np.random.Generator) -> Any:
        return np.array([x, rng.integers(1000)])

    source = grain.MapDataset.range(8).seed(1).random_map(noisy)
    whole = taken(sg.data.batches(source, 4, key=3, epochs=2))
    parts = [
        taken(sg.data.batches(source, 4, key=3, epochs=2, process_index=p, process_count=2)) for p in (0, 1)
    ]
    assert [a + b for a, b in zip(*parts, strict=True)] == whole
    first, second = (dict(sum(whole[i : i + 2], [])) for i in (0, 2))  # noqa: RUF017
    assert first.keys() == second.keys() == set(range(8))
    assert first != second
    shuffled = grain.MapDataset.range(8).shuffle(seed=1)
    epochs = taken(sg.data.batches(shuffled, 8, epochs=2))
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != epochs[1]


def test_a_transform_sees_single_examples() -> None:
    source = {"x": np.arange(6), "name": list("abcdef")}
    batches = sg.data.batches(
        source, 3, transform=lambda one: {"x2": one["x"] ** 2, "up": one["name"].upper()}
    )
    found = next(batches)
    assert found["x2"].tolist() == [0, 1, 4]
    assert found["up"].tolist() == ["A", "B", "C"]
    numbers = sg.data.batches(np.arange(4), 2, transform=lambda x: (x, np.ones(x % 2 + 1).sum()))
    assert [part.tolist() for part in next(numbers)] == [[0, 1], [1.0, 2.0]]


# ---------------------------------------------------------------------------------------- reading ahead


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_own_rows_alone_are_read_and_no_more_than_asked_for(ahead: int) -> None:
    source = Counting(1000)
    batches = sg.data.batches(source, 10, key=1, prefetch=ahead, process_index=1, process_count=2)
    assert source.read == []
    handed = [next(batches) for _ in range(3)]
    wanted = [x for batch in expected(1000, 10, 1, 1) for x in batch[5:]]
    until = time.monotonic() + 30  # They are read meanwhile, by other threads; on a busy machine, late.
    while len(source.read) < 5 * (3 + ahead) and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.1)
    assert sorted(source.read) == sorted(wanted[: 5 * (3 + ahead)])
    assert np.concatenate(handed).tolist() == wanted[:15]
    assert batches.state()["position"] == 3
    batches.close()


def test_threads_end_when_closed_collected_or_restored() -> None:
    assert quiet()
    batches = sg.data.batches(np.arange(10), 2)
    next(batches)
    assert any(thread.name.startswith("grain") for thread in threading.enumerate())
    batches.close()
    batches.close()
    assert quiet()
    with pytest.raises(sg.GraphError, match=r"data.batches: these batches were closed"):
        next(batches)
    with sg.data.batches(np.arange(10), 2) as batches:
        next(batches)
    assert quiet()
    forgotten = sg.data.batches(np.arange(10), 2)
    next(forgotten)
    gc.disable()
    try:
        del forgotten
        assert quiet()
    finally:
        gc.enable()
    again = sg.data.batches(np.arange(10), 2)
    next(again)
    again.restore(again.state())
    assert quiet()


def test_a_thread_ends_with_the_example_it_reads() -> None:
    """It does not read the whole of a batch that nobody waits for."""

    class Slow(Counting):
        def __getitem__(self, i: int) -> int:
            time.sleep(0.01)
            return super().__getitem__(i)

    source = Slow(1000)
    batches = sg.data.batches(source, 100, prefetch=1)
    next(batches)
    batches.close()
    assert quiet()
    assert len(source.read) < 150


FORKED_AND_INTERRUPTED = """
import os, signal, sys, time
import numpy as np, stopgrad as sg

signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background processes ignore it.

class Source:
    seconds = 0
    def __len__(self): return 10**6
    def __getitem__(self, i):
        time.sleep(self.seconds)
        return i

batches = sg.data.batches(Source(), 10, prefetch=3)
next(batches)
child = os.fork()
firsts = [int(next(batches)[0]) for _ in range(3)]
os.write(1, f"{firsts}\\n".encode())  # Whole, as print is not where it is unbuffered: both write now.
if not child:
    sys.exit()
os.waitpid(child, 0)
Source.seconds = 0.05
batches = sg.data.batches(Source(), 1000, prefetch=3)
print("waiting", flush=True)
try:
    next(batches)
except KeyboardInterrupt:
    print(batches.position, flush=True)
"""


def test_forks_go_on_and_interrupted_programs_end() -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKED_AND_INTERRUPTED],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        shown = [process.stdout.readline() for _ in range(3)]
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)  # Reading all that was begun would take 150 seconds.
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    assert [*shown, out] == ["[10, 20, 30]\n", "[10, 20, 30]\n", "waiting\n", "0\n"]


def test_batches_that_nobody_has_read_begin_in_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    with sg.data.batches(np.arange(10), 5) as batches:
        monkeypatch.setattr("stopgrad.train.data.os.getpid", lambda: -1)
        assert next(batches).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.nightly
def test_other_processes_may_read(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import os
import numpy as np, stopgrad as sg

def squared(one):
    if one["x"] == 11:
        raise ValueError("eleven")
    return one["x"] ** 2, os.getpid()

if __name__ == "__main__":
    batches = sg.data.batches({"x": np.arange(10)}, 2, key=1, epochs=2, transform=squared, workers=2)
    plain = sg.data.batches({"x": np.arange(10)}, 2, key=1, epochs=2)
    batches.restore({**batches.state(), "position": 3})
    plain.restore(batches.state())
    pids = set()
    for (square, pid), one in zip(batches, plain, strict=True):
        assert (square == one["x"] ** 2).all() and type(square) is np.ndarray
        pids |= {*pid.tolist()}
    assert len(pids) == 2 and os.getpid() not in pids
    try:
        next(sg.data.batches({"x": np.arange(9, 15)}, 3, transform=squared, workers=1))
    except ValueError as error:
        print(error, error.__notes__)
"""
    )
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("eleven ['stopgrad.data: while example 2 was transformed', ")


# ------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("kind", [ValueError, IndexError, StopIteration, KeyError])
@pytest.mark.parametrize("where", ["read", "transformed"])
def test_errors_of_the_user_come_with_the_example_and_the_line(
    ahead: int, kind: type[Exception], where: str
) -> None:
    bad = {"yes"}

    def failing(i: int) -> int:
        if i == 5 and bad:
            raise kind("of the user's")  # The line that is shown.
        return i

    class Source(Counting):
        def __getitem__(self, i: int) -> int:
            return failing(i) if where == "read" else i

    transform = failing if where == "transformed" else None
    batches = sg.data.batches(Source(8), 2, transform=transform, prefetch=ahead, epochs=1)
    assert [next(batches).tolist(), next(batches).tolist()] == [[0, 1], [2, 3]]
    with pytest.raises(RuntimeError if kind is StopIteration else kind) as caught:
        next(batches)
    text = "".join(traceback.format_exception(caught.value))
    assert 'raise kind("of the user\'s")  # The line that is shown.' in text
    assert f"stopgrad.data: while example 5 was {where}" in text or "for example 5" in text
    assert "stopgrad.data: for batch 2" in text
    assert batches.position == 2
    bad.clear()  # What comes next is read anew.
    assert taken(batches) == [[4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("examples", "kind", "told"),
    [
        ([[1, 2], [3]], sg.ShapeError, r"example 1 has the structure \[tensor\], others of its batch"),
        (
            [np.ones(2), np.ones(3)],
            sg.ShapeError,
            r"example 1 has the shape \(3,\), others of its batch \(2,\)",
        ),
        ([{"a": 1}, {"b": 1}], sg.ShapeError, r"example 1 has the structure \{'b': tensor\}"),
        ([{"a": (1, 2)}, {"a": (1, 2.5)}], sg.DTypeError, r"example 1 at a\.1 is float64, others .* int64"),
        ([1, None], sg.DTypeError, "example 1 is None, a NoneType, no number and no array"),
        ([object(), object()], sg.DTypeError, "example 0 is <object"),
    ],
)
def test_examples_that_do_not_fit_are_named(examples: Any, kind: type[Exception], told: str) -> None:
    batches = sg.data.batches(examples, 2)
    with pytest.raises(kind, match=rf"data\.batches: batch 0: {told}") as caught:
        next(batches)
    assert "test_data.py" in str(caught.value)
    assert "next(batches)" in str(caught.value)


class Table:
    iloc, shape, dtype = None, (3,), np.dtype("i8")

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> int:
        raise KeyError(i)


ROWS = np.arange(12)
MISTAKES: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (ROWS, {"batch_size": 13}, sg.ShapeError, "batch_size=13 is more than the 12 examples"),
    (ROWS, {"batch_size": 0}, sg.ArgumentError, "batch_size is an integer of at least 1, not 0"),
    (ROWS, {"batch_size": -3}, sg.ArgumentError, "batch_size is an integer of at least 1, not -3"),
    (ROWS, {"batch_size": 2.0}, sg.ArgumentError, "batch_size is an integer of at least 1, not 2.0"),
    (ROWS, {"batch_size": True}, sg.ArgumentError, "batch_size is an integer"),
    (ROWS, {"epochs": 0}, sg.ArgumentError, "epochs is an integer of at least 1"),
    (ROWS, {"prefetch": -1}, sg.ArgumentError, "prefetch is an integer of at least 0"),
    (ROWS, {"workers": None}, sg.ArgumentError, "workers is an integer of at least 0"),
    (ROWS, {"drop_remainder": "no"}, sg.ArgumentError, "drop_remainder is True or False"),
    (ROWS, {"transform": 3}, sg.ArgumentError, "transform is a function of an example, not 3"),
    (ROWS, {"key": 1.5}, sg.ArgumentError, r"key is an integer, or a key's value as sg.random_key"),
    (ROWS, {"key": np.arange(2)}, sg.ArgumentError, "key is an integer, or a key's value"),
    (ROWS, {"process_index": 0}, sg.ArgumentError, "process_index and process_count come together"),
    (ROWS, {"process_index": 2, "process_count": 2}, sg.ArgumentError, "process_index=2 is none of 0 to 1"),
    (ROWS, {"process_index": 0, "process_count": 3}, sg.ShapeError, "4 is not divisible by the 3 processes"),
    (
        np.arange(11),
        {"process_index": 0, "process_count": 2, "drop_remainder": False},
        sg.ShapeError,
        "the last batch of an epoch has 3 examples .11 in batches of 4., which 2 processes cannot share",
    ),
    (np.float32(3), {}, sg.ArgumentError, "without len.. or brackets|is one number"),
    (np.array(3), {}, sg.ShapeError, "is one number, array.3., without an axis of examples"),
    (3, {}, sg.ArgumentError, "the source is 3, without len.. or brackets"),
    (iter([1]), {}, sg.ArgumentError, "can only be read from the front has no position to come back to"),
    (None, {}, sg.ArgumentError, "the source is None, without len"),
    ([], {}, sg.ShapeError, "the source has no examples"),
    ({}, {}, sg.ArgumentError, "holds nothing to read examples from"),
    (Table(), {}, sg.ArgumentError, "is a Table, whose brackets look for labels; give its columns"),
    ({"a": ROWS, "b": 3}, {}, sg.ArgumentError, "the source at b is 3"),
    ({"a": ROWS, "b": (ROWS[:3],)}, {}, sg.ShapeError, r"differ in how many examples .* \(a: 12, b.0: 3\)"),
]


@pytest.mark.parametrize(("source", "given", "kind", "told"), MISTAKES)
def test_mistakes_are_told_where_they_are_made(
    source: Any, given: dict[str, Any], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=rf"data\.batches: .*(?:{told})") as caught:
        sg.data.batches(source, **{"batch_size": 4, **given})
    assert "sg.data.batches(source" in str(caught.value)


def test_a_key_inside_of_a_graph_has_no_value() -> None:
    with sg.Graph().as_default(), pytest.raises(sg.ArgumentError, match="outside of graphs"):
        sg.data.batches(ROWS, 4, key=sg.placeholder(sg.uint32, [2]))


def test_processes_that_become_known_later_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = sg.data.batches(ROWS, 4)
    monkeypatch.setattr("stopgrad.train.data.count_processes", lambda: 2)
    monkeypatch.setattr("stopgrad.train.data.own_index", lambda: 1)
    with pytest.raises(sg.GraphError, match=r"make them after sg.distributed.initialize\(\)"):
        next(batches)
    assert next(sg.data.batches(ROWS, 4)).tolist() == [2, 3]


# ----------------------------------------------------------------------------------- parts of a mesh


def test_a_mesh_says_which_part_a_process_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(
        processes: Any, names: tuple[str, ...] = ("data",), axes: tuple[str, ...] = ("data", "model")
    ) -> Any:
        devices = np.empty(np.shape(processes), object)
        for at in np.ndindex(devices.shape):
            devices[at] = SimpleNamespace(process_index=np.asarray(processes)[at])
        mesh = sg.Mesh(SimpleNamespace(axis_names=axes, devices=devices))
        found = []
        for index in range(count):
            monkeypatch.setattr("stopgrad.scale.meshes.process_index", lambda index=index: index)
            found.append(mesh.part(*names))
        return found

    count = 4
    monkeypatch.setattr("stopgrad.scale.meshes.process_count", lambda: count)
    assert parts([[0, 1], [2, 3]]) == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert parts([[0, 1], [2, 3]], ("model",)) == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert parts([[0, 1], [2, 3]], ("data", "model")) == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert parts([[0, 1], [2, 3]], ("model", "data")) == [(0, 4), (2, 4), (1, 4), (3, 4)]
    assert parts([[0, 1, 2, 3]]) == [(0, 1)] * 4
    assert parts([[1, 1], [0, 0], [3, 3], [2, 2]]) == [(1, 4), (0, 4), (3, 4), (2, 4)]
    count = 2
    assert parts([0, 0, 1, 1], axes=("data",)) == [(0, 2), (1, 2)]
    for apart in ([0, 1, 0, 1], [0, 1, 1, 0], [0, 0, 0, 1]):
        with pytest.raises(sg.EngineError, match="not an equal part in one piece"):
            parts(apart, axes=("data",))
    with pytest.raises(sg.ArgumentError, match=r"of data=2, not \('batch',\)"):
        parts([0, 1], ("batch",), axes=("data",))
    with pytest.raises(sg.ArgumentError, match="takes the axes that divide a batch"):
        sg.Mesh(data=2).part()


def test_a_mesh_that_divides_otherwise_must_be_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stopgrad.scale.meshes.process_index", lambda: 3)
    monkeypatch.setattr("stopgrad.scale.meshes.process_count", lambda: 4)
    monkeypatch.setattr("stopgrad.train.data.own_index", lambda: 3)
    monkeypatch.setattr("stopgrad.train.data.count_processes", lambda: 4)

    def over(processes: Any, **which: int) -> Any:
        devices = np.empty(np.shape(processes), object)
        for at in np.ndindex(devices.shape):
            devices[at] = SimpleNamespace(process_index=np.asarray(processes)[at])
        with sg.Mesh(SimpleNamespace(axis_names=("data", "model"), devices=devices)):
            return next(sg.data.batches(np.arange(8), 8, **which)).tolist()

    assert over([[0, 0], [1, 1], [2, 2], [3, 3]]) == over([[0], [1], [2], [3]]) == [6, 7]
    for apart in ([[0, 1], [2, 3]], [[1, 1], [0, 0], [3, 3], [2, 2]], [[3, 3], [0, 0], [1, 1], [2, 2]]):
        with pytest.raises(sg.ArgumentError, match=r"data\.batches: over 4 processes.*mesh\.part\('data'\)"):
            over(apart)
    assert over([[0, 1], [2, 3]], process_index=1, process_count=2) == [4, 5, 6, 7]


def test_without_grain_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grain", None)
    with pytest.raises(sg.EngineError, match=r"pip install 'stopgrad\[scale\]'"):
        next(sg.data.batches(ROWS, 4))
