"""Which value each tensor has: weak tables of tensors by identity, and of the memory that they share."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from stopgrad.base.source import RawLocation
from stopgrad.interop.torch.recording.record import Value

Tensor = torch.Tensor


class Held(weakref.ref[Any]):
    """A tensor whose value is noted here, because autograd has no node for it.

    Attributes:
        key: by which it is found.
        value: its value.
        serial: of the last event that this value takes into account.
        root: of a leaf, the value that gradients with respect to it arrive at.
        content: of a leaf, what was written into its memory; None where nothing was.
        needs: of a leaf, whether its value is that of a tensor that requires a gradient.
        place: the line that last changed whether it does.
    """

    __slots__ = ("content", "key", "needs", "place", "root", "serial", "value")

    key: int
    value: Value
    serial: int
    root: Value | None
    content: Value | None
    needs: bool
    place: RawLocation | None


class Store(weakref.ref[Any]):
    """A stretch of memory.

    Attributes:
        key: by which it is found.
        value: what it holds, or held when its first tensor was met.
        serial: of the event that wrote it last.
        first: the tensor through which it was met, if that was made before the watch.
    """

    __slots__ = ("first", "key", "serial", "value")

    first: Held | None

    key: int
    value: Value
    serial: int


class Memory:
    """The tensors and the memory that a watch has met. It keeps none of them alive."""

    def __init__(self) -> None:
        held: dict[int, Held] = {}
        stores: dict[int, Store] = {}
        self._held, self._stores = held, stores

        # Between being made and being noted, an interrupt may come, and there is no key.
        def forget_tensor(gone: Held) -> None:
            if held.get(getattr(gone, "key", 0)) is gone:
                del held[gone.key]

        def forget_store(gone: Store) -> None:
            if stores.get(getattr(gone, "key", 0)) is gone:
                del stores[gone.key]

        self._forget_tensor, self._forget_store = forget_tensor, forget_store

    def held(self, tensor: Tensor) -> Held | None:
        """What is noted of a tensor itself."""
        found = self._held.get(id(tensor))
        return found if found is not None and found() is tensor else None

    def hold(self, tensor: Tensor, value: Value, serial: int, root: Value | None = None) -> Held:
        """Note that the tensor has this value from now on."""
        held = self.held(tensor)
        if held is None:
            held = self._held[id(tensor)] = Held(tensor, self._forget_tensor)
            held.key = id(tensor)
            held.root = held.content = held.place = None
        held.value, held.serial = value, serial
        if root is not None:
            held.root, held.content, held.needs = root, None, root.open
        return held

    def release(self, tensor: Tensor) -> None:
        """Forget the tensor's value: from now on autograd knows it."""
        self._held.pop(id(tensor), None)

    def all_held(self) -> list[Held]:
        """All tensors whose values are noted here."""
        return list(self._held.values())

    def store(self, tensor: Tensor) -> Store | None:
        """What is noted of a tensor's memory, if it was met before."""
        try:
            return self._stores.get(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):  # Sparse tensors, for example, have none.
            return None

    def written(self, tensor: Tensor, value: Value, serial: int) -> None:
        """Note that the memory of a tensor now holds this value."""
        try:
            memory = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        key = memory._cdata
        store = self._stores.get(key)
        if store is None:
            store = self._stores[key] = Store(memory, self._forget_store)
            store.key, store.first = key, None
        store.value, store.serial = value, serial

    def met_through(self, tensor: Tensor, held: Held) -> None:
        """Note the tensor through which its memory was met."""
        store = self.store(tensor)
        if store is not None:
            store.first = held

    @staticmethod
    def is_all(tensor: Tensor) -> bool:
        """Whether a tensor covers all of its memory."""
        try:
            size: int = tensor.untyped_storage().nbytes()
        except (NotImplementedError, RuntimeError):
            return True
        return bool(tensor.numel() * tensor.element_size() >= size)
