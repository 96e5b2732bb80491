"""The value of a tensor at each use: from the record, from autograd, and from the memory it shares."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from stopgrad.base.source import RawLocation
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.autograd_nodes import Nodes, node_of, sizes_of
from stopgrad.interop.torch.recording.leaving import Departures
from stopgrad.interop.torch.recording.places import with_caller
from stopgrad.interop.torch.recording.record import (
    ALIAS,
    FREEZES,
    REQUIRES,
    Event,
    Kind,
    Region,
    Value,
    forward_around,
    seen_from,
    stop,
)
from stopgrad.interop.torch.recording.regions import Regions
from stopgrad.interop.torch.recording.tensor_tables import Held, Memory

Tensor = torch.Tensor
_LEAF = Kind.LEAF  # Reading it from its class takes longer.
_PARAMETER = torch.nn.Parameter


class Values(Regions):
    """The tensors that a watch has met, and their values.

    Attributes:
        memory: what is noted of tensors and their memory.
        nodes: the autograd nodes that are known.
        departures: the values that left for Python.
        lost: for reports, what could not be found out.
    """

    memory: Memory
    nodes: Nodes
    departures: Departures

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.nodes = Nodes(self)
        self.departures = Departures()
        self.lost: dict[str, None] = dict.fromkeys(internals.not_known())

    def not_known(self, what: str) -> None:
        """Note for reports what could not be found out."""
        self.lost[what] = None

    def values_at(self, node: torch.autograd.graph.Node) -> Mapping[int, Value]:
        """The values of an autograd node's results, by their numbers, as they were made."""
        return self.nodes.values(node)

    def leaf(self, tensor: Tensor) -> Value:
        """The value of a leaf to which an autograd edge leads, made while the leaf required a gradient."""
        held = self.memory.held(tensor)
        if held is None:
            held = self._met(tensor, None)
        return held.value if held.root is None or held.needs else held.root

    def values_of_leaf(self, tensor: Tensor) -> Collection[Value]:
        """The value of a leaf, and that at which gradients with respect to it arrive.

        They are two if something was written into it.
        """
        held = self.memory.held(tensor)
        if held is None or held.root is None:
            return (self.leaf(tensor),)
        return (held.root,) if not held.needs or held.value is held.root else (held.value, held.root)

    def value_of(self, tensor: Tensor, place: RawLocation | None, here: Region | None) -> Value:
        """The present value of a tensor, as seen from a region."""
        node, memory = node_of(tensor), self.memory
        if node is not None:
            noted = None if memory.rewritten else self.nodes.value_at(node, tensor.output_nr)
            value = self._value_at_node(tensor, node, place) if noted is None else noted
        else:
            held = memory.held(tensor)
            if held is None and type(tensor) is _PARAMETER and tensor.requires_grad:
                held = self._met_parameter(tensor)
            # Mostly a leaf, or data, that is as it was when it was met.
            if held is None or held.needs is not tensor.requires_grad or memory.rewritten:
                value = self._known_leaf(tensor, place)
            else:
                value = held.value
        return value if value.event.region is None else seen_from(value, here)

    def _value_at_node(
        self, tensor: Tensor, node: torch.autograd.graph.Node, place: RawLocation | None
    ) -> Value:
        """The value of a tensor that has an autograd node."""
        number = tensor.output_nr
        value = self.nodes.value_at(node, number)
        if value is None:
            value = self._made_elsewhere(tensor, node, place)
        store = self.memory.store(tensor) if self.memory.rewritten else None
        if store is not None and store.serial > value.event.serial:
            value = self.nodes.write(node, number, self._written_into(value, store.value, tensor))
        return value

    def _made_elsewhere(
        self, tensor: Tensor, node: torch.autograd.graph.Node, place: RawLocation | None
    ) -> Value:
        """The value of a tensor whose making was not recorded."""
        held = self.memory.held(tensor)
        inner = None if held is None else held.value
        forward = None if inner is None else forward_around(inner.event.region)
        if forward is None:
            inner = None
        else:
            place = forward.place
        self.memory.release(tensor)
        value = self.nodes.imported(node, tensor.output_nr, place, inner)
        if forward is not None:
            forward.ended = True  # The next one at its place.
        self.memory.meet(tensor, value, value.event.serial)
        return value

    def _known_leaf(self, tensor: Tensor, place: RawLocation | None) -> Value:
        """The value of a tensor that has no autograd node."""
        held = self.memory.held(tensor)
        if held is None:
            held = self._met(tensor, place)
        store = self.memory.store(tensor) if self.memory.rewritten else None
        if store is not None and store.serial > held.serial:
            self._read_again(tensor, held, store.value, place)
        # A view made without gradients may say that it requires one, but passes it on to nothing.
        if tensor.requires_grad and held.root is None and held.value.event.region is None:
            held = self.begin_leaf(tensor, place)
        if held.root is not None and tensor.requires_grad is not held.needs:
            self._settle(tensor, held, place)
        return held.value

    def _settle(self, tensor: Tensor, held: Held, place: RawLocation | None) -> None:
        """The present value of a leaf: whether it requires a gradient, and what its memory holds."""
        assert held.root is not None
        held.needs = bool(tensor.requires_grad)
        held.value = held.root
        if not held.needs:
            # At the line that froze it, if that is known; else at its first use.
            call, where = (REQUIRES, place) if held.place is None else (FREEZES, held.place)
            frozen = Event(Kind.FROZEN, call, where, (held.root,), why="requires_grad is False")
            held.value = frozen.result(held.root.sizes, False)
        if held.content is not None:
            held.value = self._written_into(held.value, held.content, tensor)

    def _read_again(self, tensor: Tensor, held: Held, content: Value, place: RawLocation | None) -> None:
        """The value of a tensor whose memory was written into through another tensor."""
        if held.root is not None:
            held.content = content
            self._settle(tensor, held, place)
        else:
            held.value = self._seen_through_memory(content, held.value)
        held.serial = content.event.serial

    @staticmethod
    def _seen_through_memory(content: Value, before: Value) -> Value:
        """What memory holds, for a tensor that shares the memory but not the history of what was written."""
        maker = before.event
        while maker.kind is Kind.LEAF and maker.inputs:
            maker = maker.inputs[0].event
        if maker.kind is Kind.STOP:
            return stop(content, maker.call, maker.why, maker.place, maker.region)
        if not content.open or content.event.region is not None:
            return content
        return stop(content, ALIAS, "shares memory, not history", content.event.place)

    def _written_into(self, value: Value, content: Value, tensor: Tensor) -> Value:
        """A value that autograd knows, together with what was written into its memory without autograd."""
        maker = content.event
        content = self._seen_through_memory(seen_from(content, None), value)
        event = Event(Kind.WRITTEN, maker.call, maker.place, (value, content))
        return event.result(sizes_of(tensor), value.open)

    def _met(self, tensor: Tensor, place: RawLocation | None) -> Held:
        """A tensor without a node, met for the first time: data, a leaf, or a new view of known memory."""
        store = self.memory.store(tensor)
        sizes = sizes_of(tensor)
        first = None if store is None else store.first
        if store is not None and tensor.requires_grad and first is not None:
            alias = store.value
            if first.root is alias and not first.needs and not alias.event.inputs:  # Nothing was written.
                return self._met_behind_alias(tensor, alias, first)
        if store is not None:
            content = seen_from(store.value, None)
            value = stop(content, ALIAS, "shares memory, not history", place) if content.open else content
            held = self.memory.hold(tensor, value, store.serial)
            if tensor.requires_grad:
                self.begin_leaf(tensor, place)
            return held
        came_back = self._came_back(tensor, place)
        if came_back:
            value = came_back[0]
            if len(came_back) > 1:
                value = Event(Kind.OPERATION, "numpy", place, tuple(came_back)).result(sizes, False)
            self.memory.meet(tensor, value, value.event.serial)
            return self.memory.hold(tensor, value, value.event.serial)
        event = Event(_LEAF, "leaf", None)
        event.results = (sizes,)
        value = Value(event, 0, True)
        held = self.memory.hold(tensor, value, event.serial, root=value)
        self.memory.meet(tensor, value, event.serial, held)
        if not tensor.requires_grad:
            self._settle(tensor, held, place)
        return held

    def _met_parameter(self, tensor: Tensor) -> Held | None:
        """A parameter met for the first time; None if its memory was met before."""
        event = Event(_LEAF, "leaf", None)
        event.results = (sizes_of(tensor),)
        return self.memory.begin(tensor, Value(event, 0, True), event.serial)

    def _met_behind_alias(self, tensor: Tensor, alias: Value, first: Held) -> Held:
        """A leaf whose memory was met before, through a tensor that was detached from it earlier."""
        place = first.value.event.place
        value = Event(Kind.LEAF, "leaf", None).result(sizes_of(tensor), True)
        behind = stop(value, ALIAS, "shares memory, not history", place)
        behind.event.serial = alias.event.serial  # The leaf was there before its alias.
        alias.event.inputs = (behind,)
        return self.memory.hold(tensor, value, first.serial, root=value)

    def _came_back(self, tensor: Tensor, place: RawLocation | None) -> list[Value]:
        """The value that left for NumPy from which a tensor, met for the first time, may have been made."""
        if not self.departures or tensor.requires_grad or not tensor.numel():
            return []
        try:
            from_outside = not tensor.untyped_storage().resizable()
            return self.departures.of_memory(tensor.data_ptr(), place) if from_outside else []
        except (NotImplementedError, RuntimeError):
            return []

    def wrapped(self, tensor: Tensor, data: Tensor, place: RawLocation | None) -> None:
        """Note that a parameter was made from a tensor."""
        here = self.here()
        if here is None or not here.ignored:
            value = self.value_of(data, place, here)
            self.memory.hold(tensor, value, value.event.serial)
            self.begin_leaf(tensor, place, "torch.nn.Parameter", "nn.Parameter makes a new leaf")

    def begin_leaf(
        self,
        tensor: Tensor,
        place: RawLocation | None,
        call: str = "requires_grad_",
        why: str = "a new leaf",
    ) -> Held:
        """Note that a tensor is from now on a leaf that requires a gradient, whatever it was made from."""
        held = self.memory.held(tensor)
        behind = None if held is None else seen_from(held.value, None)
        if behind is not None and behind.open:
            behind, why = stop(behind, call, why, place), ""
        elif not isinstance(tensor, torch.nn.Parameter):
            why = ""  # If a gradient could pass to the value behind, this would be no leaf.
        event = Event(Kind.LEAF, call, place, () if behind is None else (behind,), why=why)
        value = event.result(sizes_of(tensor), True)
        held = self.memory.hold(tensor, value, event.serial, root=value)
        self.memory.meet(tensor, value, value.event.serial)
        if not tensor.requires_grad:  # It was made frozen.
            held.place = with_caller(place)
            self._settle(tensor, held, place)
        return held
