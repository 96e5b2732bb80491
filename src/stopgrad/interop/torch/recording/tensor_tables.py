"""Which value each tensor has: weak tables of tensors by identity, and of the memory that they share.

No function runs when a tensor dies: Python swallows what a signal's handler raises in such a function, and
an interrupt would be lost. What has died is not found any more, and is swept out when a table has doubled.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from stopgrad.base.source import RawLocation
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.record import Value

Tensor = torch.Tensor
_memory_id = internals.memory_id
FEWEST = 256
"""Tables with fewer entries are not swept."""
WRITES = 16
"""The writes into one stretch of memory that are remembered."""


class Held:
    """A tensor whose value is noted here, because autograd has no node for it.

    Attributes:
        ref: the tensor, weakly.
        value: its value.
        serial: of the last event that this value takes into account.
        root: of a leaf, the value that gradients with respect to it arrive at.
        content: of a leaf, what was written into its memory; None where nothing was.
        needs: of a leaf, whether its value is that of a tensor that requires a gradient.
        place: the line that last changed whether it does.
    """

    __slots__ = ("content", "needs", "place", "ref", "root", "serial", "value")

    value: Value
    serial: int
    needs: bool

    def __init__(self, tensor: Tensor, value: Value, serial: int) -> None:
        self.ref: weakref.ref[Any] = weakref.ref(tensor)
        self.value, self.serial = value, serial
        self.root: Value | None = None
        self.content: Value | None = None
        self.needs = False
        self.place: RawLocation | None = None


class Write(NamedTuple):
    """Something that wrote into memory.

    Attributes:
        version: how often the tensor was written into then, this time included.
        call: the function that did.
        place: the line.
    """

    version: int
    call: str
    place: RawLocation | None


class Store:
    """A stretch of memory.

    Attributes:
        ref: the memory, weakly.
        value: what it holds, or held when its first tensor was met.
        serial: of the event that wrote it last.
        first: the tensor through which it was met, if that was made before the watch.
        origin: what it held when it was met.
        writes: the last that wrote into it.
    """

    __slots__ = ("first", "origin", "ref", "serial", "value", "writes")

    value: Value
    serial: int
    first: Held | None
    origin: Value

    def __init__(self, memory: Any, value: Value, serial: int, first: Held | None) -> None:
        self.ref: weakref.ref[Any] = weakref.ref(memory)
        self.value, self.serial, self.first = value, serial, first
        self.origin = value
        self.writes: tuple[Write, ...] = ()


class Memory:
    """The tensors and the memory that a watch has met. It keeps none of them alive.

    Attributes:
        rewritten: whether any memory was written into after its first value was noted.
    """

    rewritten: bool

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._stores: dict[int, Store] = {}
        self._most_held = self._most_stores = FEWEST
        self.rewritten = False

    def held(self, tensor: Tensor) -> Held | None:
        """What is noted of a tensor itself."""
        held = self._held.get(id(tensor))
        return held if held is not None and held.ref() is tensor else None

    def hold(self, tensor: Tensor, value: Value, serial: int, root: Value | None = None) -> Held:
        """Note that the tensor has this value from now on."""
        held = self.held(tensor)
        if held is None:
            held = self._held[id(tensor)] = Held(tensor, value, serial)
            if len(self._held) > self._most_held:
                self._most_held = _swept(self._held)
        else:
            held.value, held.serial = value, serial
        if root is not None:
            held.root, held.content, held.needs = root, None, root.open
        return held

    def begin(self, tensor: Tensor, value: Value, serial: int) -> Held | None:
        """Note that a leaf was met that requires a gradient; None, and nothing noted, if its memory was."""
        try:
            memory = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None
        key, held, stores = _memory_id(memory), self._held, self._stores
        store = stores.get(key)
        if store is not None and store.ref() is memory:
            return None
        noted = held[id(tensor)] = Held(tensor, value, serial)
        noted.root, noted.needs = value, True
        stores[key] = Store(memory, value, serial, noted)
        if len(held) > self._most_held:
            self._most_held = _swept(held)
        if len(stores) > self._most_stores:
            self._most_stores = _swept(stores)
        return noted

    def release(self, tensor: Tensor) -> None:
        """Forget the tensor's value: from now on autograd knows it."""
        self._held.pop(id(tensor), None)

    def all_held(self) -> list[tuple[Tensor, Held]]:
        """All tensors whose values are noted here, with what is noted."""
        pairs = [(held.ref(), held) for held in list(self._held.values())]
        return [(tensor, held) for tensor, held in pairs if tensor is not None]

    def store(self, tensor: Tensor) -> Store | None:
        """What is noted of a tensor's memory, if it was met before."""
        try:
            memory = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # Sparse tensors, for example, have none.
            return None
        store = self._stores.get(_memory_id(memory))
        return store if store is not None and store.ref() is memory else None

    def meet(self, tensor: Tensor, value: Value, serial: int, first: Held | None = None) -> None:
        """Note the value of a tensor that was just made or met as that of its memory, unless that is known.

        Args:
            first: what is noted of the tensor, if that was made before the watch.
        """
        try:
            memory = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        key, stores = _memory_id(memory), self._stores
        store = stores.get(key)
        if store is None or store.ref() is not memory:
            stores[key] = Store(memory, value, serial, first)
            if len(stores) > self._most_stores:
                self._most_stores = _swept(stores)

    def written(self, tensor: Tensor, value: Value, serial: int) -> None:
        """Note that the memory of a tensor now holds this value."""
        self.rewritten = True
        store = self.store(tensor)
        if store is None:
            self.meet(tensor, value, serial)
        else:
            store.value, store.serial = value, serial

    def note_writes(self, tensors: Iterable[Tensor], call: str, place: RawLocation | None) -> None:
        """Note that a call wrote into the memory of tensors, so that errors of autograd can be explained."""
        for tensor in tensors:
            store = self.store(tensor)
            if store is not None:
                write = Write(internals.version_of(tensor), call, place)
                store.writes = (*store.writes[1 - WRITES :], write)

    @staticmethod
    def is_all(tensor: Tensor) -> bool:
        """Whether a tensor covers all of its memory."""
        try:
            size: int = tensor.untyped_storage().nbytes()
        except (NotImplementedError, RuntimeError):
            return True
        return bool(tensor.numel() * tensor.element_size() >= size)


def _swept(table: dict[int, Any]) -> int:
    """Take out what has died; the number of entries at which that is worth doing again."""
    for key in [key for key, noted in table.items() if noted.ref() is None]:
        table.pop(key, None)
    return max(FEWEST, 2 * len(table))
