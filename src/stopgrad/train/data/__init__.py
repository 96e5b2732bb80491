"""Batches of examples for training, in an order that a key determines, with a position for checkpoints.

Threads, processes and the queues between them are grain's. Ours is the arithmetic of indices: the examples of
a batch are a function of the key, the epoch and the position only, so any position is reached at once, and
any number of processes sees the same batches.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import optree

from stopgrad.base.arrays import ArrayLike
from stopgrad.base.coercion import flag, is_whole, whole
from stopgrad.base.errors import (
    ArgumentError,
    CheckpointError,
    EngineError,
    GraphError,
    ShapeError,
    StopgradError,
)
from stopgrad.base.namespaces import require
from stopgrad.base.structure import NAMESPACE, paths_in, unflatten
from stopgrad.graph.builder import current
from stopgrad.scale.processes import process_count as count_processes, process_index as own_index
from stopgrad.train.data.data_sources import Ended, Unfit, about, column_of, joined
from stopgrad.train.data.permutations import permuted, read_key, round_keys

if TYPE_CHECKING:
    from stopgrad.scale.meshes import Mesh

__all__ = ["Batches", "batches"]

THREADS = 16
"""The maximum number of threads that read."""

_WORKER_ENDED = "terminated unexpectedly"
"""What grain says of a process that was killed, which is no error of the user's."""


class _Plan:
    """Which examples a batch holds, and how they are read: everything that threads and processes need.

    It has no reference to the :class:`Batches`, which may be garbage-collected while threads read.
    """

    columns: list[Any]
    n: int
    size: int
    key: Any
    drop_remainder: bool
    per_epoch: int
    index: int
    count: int
    spec: optree.PyTreeSpec

    def __init__(
        self,
        source: Any,
        batch_size: int,
        key: int | ArrayLike | None,
        transform: Any,
        drop_remainder: bool,
    ) -> None:
        if isinstance(source, Mapping) and not isinstance(source, dict):
            source = dict(source)  # Such as those of np.load and h5py.
        leaves, self.spec = optree.tree_flatten(
            source, is_leaf=lambda x: not isinstance(x, (dict, tuple)), none_is_leaf=True, namespace=NAMESPACE
        )
        if not leaves:
            raise ArgumentError(f"the source {source!r:.60} holds nothing to read examples from")
        paths = [".".join(map(str, path)) for path in paths_in(self.spec)]
        self.columns = [column_of(leaf, path) for leaf, path in zip(leaves, paths, strict=True)]
        lengths = [len(leaf) for leaf in leaves]
        if len(set(lengths)) > 1:
            counts = ", ".join(f"{path}: {length}" for path, length in zip(paths, lengths, strict=True))
            raise ShapeError(f"the parts of the source differ in how many examples they have ({counts})")
        self.n = lengths[0]
        self.size = _positive(batch_size, "batch_size")
        self.key = read_key(key)
        self.transform = transform
        self.drop_remainder = flag(drop_remainder, "drop_remainder")
        if transform is not None and not callable(transform):
            raise ArgumentError(f"transform is a function of an example, not {transform!r:.60}")
        if not self.n:
            raise ShapeError("the source has no examples")
        if self.n < self.size and self.drop_remainder:
            raise ShapeError(
                f"batch_size={self.size} is more than the {self.n} examples of the source; "
                "drop_remainder=False gives a smaller batch"
            )
        self.per_epoch = self.n // self.size if self.drop_remainder else -(-self.n // self.size)
        self.index, self.count = 0, 1
        self._keys: tuple[int, Any] = (-1, None)  # Of the epoch that was read last.

    def divide(self, index: int, count: int) -> None:
        """Read the rows of process *index* of *count* processes only."""
        last = self.n % self.size
        if self.size % count:
            raise ShapeError(
                f"batch_size={self.size} is not divisible by the {count} processes that share a batch"
            )
        if not self.drop_remainder and last % count:
            raise ShapeError(
                f"the last batch of an epoch has {last} examples ({self.n} in batches of {self.size}), which "
                f"{count} processes cannot share equally; drop_remainder=True leaves them out"
            )
        self.index, self.count = index, count

    def indices(self, position: int) -> tuple[int, Any]:
        """The epoch of a batch, and which examples of it this process reads."""
        epoch, batch = divmod(position, self.per_epoch)
        first = batch * self.size
        rows = min(self.size, self.n - first) // self.count
        first += self.index * rows
        examples = np.arange(first, first + rows, dtype=np.uint64)
        if self.key is not None:
            keys_epoch, keys = self._keys
            if keys_epoch != epoch:
                keys = round_keys(self.key, epoch)
                self._keys = epoch, keys
            examples = permuted(examples, self.n, keys)
        return epoch, examples.astype(np.int64)

    def batch(self, position: int, check: Callable[[], None]) -> Any:
        """This process's part of the batch at a position; *check* raises Ended once nobody wants it."""
        epoch, indices = self.indices(position)
        try:
            parts = [column.read(indices, epoch, check) for column in self.columns]
            if self.transform is None:
                joint = [
                    column.joined(part, indices) for column, part in zip(self.columns, parts, strict=True)
                ]
                return unflatten(self.spec, joint)
            examples = []
            for row, index in enumerate(indices.tolist()):
                check()
                examples.append(self.transformed([part[row] for part in parts], index))
            return joined(examples, indices)
        except Exception as error:
            if not isinstance(error, (Unfit, Ended)):
                about(error, f"for batch {position}")
            raise

    def transformed(self, parts: list[Any], index: int) -> Any:
        try:
            return self.transform(unflatten(self.spec, parts))
        except StopIteration as error:
            raise RuntimeError(f"transform raised StopIteration for example {index}") from error
        except BaseException as error:
            about(error, f"while example {index} was transformed")
            raise


class _Reader:
    """The source that grain reads from: the batches from a position on."""

    def __init__(self, plan: _Plan, start: int, total: int) -> None:
        self.plan = plan
        self.start = start
        self.total = total
        self.ended = False

    def __len__(self) -> int:
        return self.total - self.start

    def __getitem__(self, i: int) -> Any:
        return self.plan.batch(self.start + i, self.check)

    def check(self) -> None:
        if self.ended:
            raise Ended


def _end(reader: _Reader, elements: Any) -> None:
    """Stop threads and processes, without waiting for batches that are being read."""
    reader.ended = True
    elements.close()


class Batches:
    """An iterator over batches; :func:`batches` makes it.

    It is its own iterator: a second loop goes on where the first one left off. A ``with`` block closes it.

    Attributes:
        per_epoch: the number of batches of an epoch.
        total: the number of all batches; None for no end.
    """

    per_epoch: int
    total: int | None

    def __init__(
        self, plan: _Plan, epochs: int | None, prefetch: int, workers: int, ask: Callable[[], tuple[int, int]]
    ) -> None:
        self._plan = plan
        self._epochs = epochs
        self._prefetch = prefetch
        self._workers = workers
        self._ask = ask
        self._position = 0
        self._elements: Any = None
        self._finalizer: Any = None
        self._process = os.getpid()
        self._closed = False
        self.per_epoch = plan.per_epoch
        self.total = None if epochs is None else epochs * plan.per_epoch
        plan.divide(*ask())

    @property
    def position(self) -> int:
        """The number of batches returned so far, in all epochs; the same in all processes."""
        return self._position

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        if self._closed:
            raise GraphError("data.batches: these batches were closed")
        if self._process != os.getpid():  # After a fork: the threads are the parent's, and are left alone.
            if self._finalizer is not None:
                self._finalizer.detach()
            self._elements, self._finalizer, self._process = None, None, os.getpid()
        try:
            if self._elements is None:
                self._start()
            batch = next(self._elements)
        except Unfit as error:
            self._stop()
            raise error.kind(f"data.batches: batch {self._position}: {error}") from None
        except RuntimeError as error:
            self._stop()
            if not (self._workers and _WORKER_ENDED in str(error)):
                raise
            raise EngineError(
                f"data.batches: batch {self._position}: a process that reads was ended, perhaps for want of "
                f"memory; ask again, and new ones are started: {error}"
            ) from error
        except BaseException:  # KeyboardInterrupt, too: the next batch is read anew.
            self._stop()
            raise
        self._position += 1
        return batch

    def _start(self) -> None:
        """Start to read batches from the position on."""
        grain = require("grain", "sg.data", "scale")
        if (self._plan.index, self._plan.count) != self._ask():
            raise GraphError(
                "data.batches: the processes of this run have become known since these batches were made; "
                "make them after sg.distributed.initialize()"
            )
        reader = _Reader(self._plan, self._position, sys.maxsize if self.total is None else self.total)
        ahead = 0 if self._workers else self._prefetch
        reading = grain.ReadOptions(num_threads=min(ahead, THREADS), prefetch_buffer_size=ahead)
        dataset = grain.MapDataset.source(reader).to_iter_dataset(reading, allow_nones=True)
        if self._workers:
            flags = require("absl.flags", "sg.data with workers", "scale").FLAGS
            if not flags.is_parsed():  # grain reads them when it starts processes.
                flags.mark_as_parsed()
            per_worker = max(1, self._prefetch // self._workers)
            # Through pipes: containers have little shared memory, and a killed run would leak it.
            options = grain.experimental.DatasetOptions(min_shm_size=sys.maxsize)
            dataset = grain.experimental.WithOptionsIterDataset(dataset, options)
            dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(self._workers, per_worker))
        self._elements = iter(dataset)
        self._finalizer = weakref.finalize(self, _end, reader, self._elements)

    def _stop(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._elements = self._finalizer = None

    def close(self) -> None:
        """Stop its threads. Closing twice does no harm."""
        self._closed = True
        self._stop()

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self) -> dict[str, Any]:
        """The position, and a description of the batches to check it against, as JSON values.

        It is the same in all processes. Batches that were read ahead do not count.
        """
        plan = self._plan
        return {
            "position": self._position,
            "examples": plan.n,
            "batch_size": plan.size,
            "key": None if plan.key is None else plan.key.tolist(),
            "drop_remainder": plan.drop_remainder,
            "epochs": self._epochs,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of :meth:`state`, of this run or another, with any number of processes.

        Args:
            state: the state of batches of the same number of examples in the same order. The number of epochs
                may differ.

        Raises:
            CheckpointError: the state is that of other batches. Nothing changes then.
        """
        own = self.state()
        if not isinstance(state, Mapping) or not own.keys() <= state.keys():
            raise ArgumentError(f"data.restore: needs what Batches.state() gave, not {state!r:.80}")
        fixed = own.keys() - {"position", "epochs"}
        differences = [
            f"{name} {state[name]!r}, here {own[name]!r}"
            for name in own
            if name in fixed and state[name] != own[name]
        ]
        if differences:
            raise CheckpointError(
                f"data.restore: the state is that of other batches: {'; '.join(differences)}. Its position, "
                f"{state['position']}, means nothing in these"
            )
        position = state["position"]
        if not is_whole(position) or whole(position) < 0:
            raise ArgumentError(f"data.restore: a position is a number of batches, not {position!r:.60}")
        if self.total is not None and position > self.total:
            raise CheckpointError(
                f"data.restore: {position} batches were handed out; {self._epochs} epochs have {self.total}"
            )
        self._stop()
        self._position = whole(position)

    def __repr__(self) -> str:
        total = "" if self.total is None else f" of {self.total}"
        return f"Batches(position {self._position}{total}, {self._plan.size} of {self._plan.n} examples each)"


def _positive(value: int, what: str, least: int = 1) -> int:
    if not is_whole(value) or whole(value) < least:
        raise ArgumentError(f"{what} is an integer of at least {least}, not {value!r:.60}")
    return whole(value)


def _part_reader(index: int | None, count: int | None) -> Callable[[], tuple[int, int]]:
    """A function that returns this process's index and the number of processes."""
    if index is None and count is None:
        return partial(_own_part, current().mesh)
    if index is None or count is None:
        raise ArgumentError("process_index and process_count come together")
    part = _positive(index, "process_index", 0), _positive(count, "process_count")
    if part[0] >= part[1]:
        raise ArgumentError(f"process_index={part[0]} is none of 0 to {part[1] - 1}, the {part[1]} processes")
    return lambda: part


def _own_part(mesh: Mesh | None) -> tuple[int, int]:
    """This process's index and the number of processes; raises if the mesh divides batches differently."""
    place = own_index(), count_processes()
    if mesh is None or place[1] == 1 or any(_part_along(mesh, name) == place for name in mesh.axes):
        return place
    raise ArgumentError(
        f"over {place[1]} processes, {mesh!r} does not give each its own part along one axis; say which axes "
        f"divide the batch: index, count = mesh.part({next(iter(mesh.axes))!r}), and then "
        "process_index=index, process_count=count"
    )


def _part_along(mesh: Mesh, name: str) -> tuple[int, int] | None:
    try:
        part: tuple[int, int] = mesh.part(name)
        return part
    except EngineError:  # This process's part is not contiguous.
        return None


def batches(
    source: Any,
    batch_size: int,
    *,
    key: int | ArrayLike | None = None,
    epochs: int | None = None,
    transform: Callable[[Any], Any] | None = None,
    prefetch: int = 2,
    workers: int = 0,
    drop_remainder: bool = True,
    process_index: int | None = None,
    process_count: int | None = None,
) -> Batches:
    """Batches of the examples of a source, shuffled by a key, read ahead in threads.

    The examples of a batch and their order depend only on the key, the epoch and the source's length: batch i
    of an epoch is ``order[i * batch_size : (i + 1) * batch_size]``. Process p of P reads the p-th part only.

    Args:
        source: an object with ``len()`` and brackets: an array, which may be mapped from disk or be of h5py
            or zarr; a dict or tuple of arrays with the same first axis; a list of examples; a data source or
            MapDataset of grain, whose random transforms differ from epoch to epoch. An example may be a
            structure of numbers and arrays.
        batch_size: the number of examples in a batch, over all processes.
        key: None for the order of the source; an integer, or a key of :func:`random_key`, for another order
            in each epoch.
        epochs: how often the source is repeated; None for no end.
        transform: a function of one example, called before examples are joined. It does not get a batch,
            which depends on the number of processes; operations on whole batches belong into the graph.
        prefetch: how many batches are read ahead, each in a thread of its own (16 threads at most); 1 for a
            source that cannot be read by several threads at once, 0 for no thread.
        workers: how many processes read instead of threads, for a slow transform in Python. The source and
            the transform are sent to them.
        drop_remainder: whether to leave out the last examples of an epoch that do not fill a batch.
        process_index: which part of each batch to read; by default this process's.
        process_count: the number of parts; by default the number of processes.

    Returns:
        An iterator over structures of NumPy arrays.

    Raises:
        ArgumentError, ShapeError: the arguments do not fit together.
        EngineError: grain is not installed.

    Examples:
        >>> batches = sg.data.batches({"x": np.arange(10), "y": np.arange(10) ** 2}, 4)
        >>> next(batches)
        {'x': array([0, 1, 2, 3]), 'y': array([0, 1, 4, 9])}
        >>> batches.position, batches.per_epoch
        (1, 2)
    """
    try:
        ask = _part_reader(process_index, process_count)
        ahead, several = _positive(prefetch, "prefetch", 0), _positive(workers, "workers", 0)
        rounds = None if epochs is None else _positive(epochs, "epochs")
        plan = _Plan(source, batch_size, key, transform, drop_remainder)
        return Batches(plan, rounds, ahead, several, ask)
    except StopgradError as error:
        error.name_after("data.batches")
        raise
