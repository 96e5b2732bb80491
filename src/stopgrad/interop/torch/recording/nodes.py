"""Asks autograd which values a tensor's gradient reaches, by walking the nodes from it.

Nodes that are known carry in their ``metadata`` the values that their results are, by which they are known
again for as long as autograd keeps them. Of nodes that nobody recorded, events are made when they are met.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from stopgrad.base.dtypes import DTYPES
from stopgrad.base.source import RawLocation
from stopgrad.interop.torch.recording.calls import FLAT_EDGES, FLAT_NODES
from stopgrad.interop.torch.recording.functions import (
    NOT_DIFFERENTIABLE,
    Backwards,
    Returned,
    returned_for_zeros,
)
from stopgrad.interop.torch.recording.record import Event, Kind, Value, entering, forward_around

Node = Any  # torch.autograd.graph.Node, which PyTorch annotates with a method for its metadata, a dict.
_LEAF: Any = torch.ones((), requires_grad=True).view(1)
_LEAF_NODE: Any = type(_LEAF.grad_fn.next_functions[0][0])
FLAT = "its gradient is zero everywhere"
EARLIER = "made before the watch began"
OVERWRITTEN = "overwritten in place"
MODULES_HOOK = "BackwardHookFunctionBackward"
"""The name of the nodes at which PyTorch calls a module's backward hooks."""


def node_of(tensor: torch.Tensor) -> Node | None:
    """The autograd node of a tensor; None if there is none, or if PyTorch refuses to give it."""
    try:
        return tensor.grad_fn
    except RuntimeError:  # It is one of several views whose base was written into.
        return None


def kind_of(node: Node) -> str:
    """The name of a node's kind, without the number that PyTorch gives it."""
    name: str = node.name()
    return name.rpartition(":")[2].rstrip("0123456789")


def is_user_made(node: Node) -> bool:
    """Whether a node belongs to an ``autograd.Function`` that is not PyTorch's own."""
    function = getattr(node, "_forward_cls", None)
    return function is not None and not function.__module__.startswith("torch.")


RETURNED = "returned"
"""The key in a node's ``metadata`` for what is known of a user's function."""
_NONE: dict[Any, Any] = {}


class Owner(Protocol):
    """Keeps a record, says which value a leaf is, and is told what could not be found out."""

    def leaf(self, tensor: torch.Tensor) -> Value: ...

    def not_known(self, what: str) -> None: ...


class Key:
    """The key in a node's ``metadata`` under which a watch stores values, with the owner of the watch."""

    __slots__ = ("owner",)

    def __init__(self, owner: Owner) -> None:
        self.owner = owner


def owners_of(node: Node) -> list[Owner]:
    """The owners that have recorded a node, the last one first."""
    return [key.owner for key in reversed(node.metadata) if isinstance(key, Key)]


class Reached:
    """The result of a walk: the values that a gradient reaches, and those that it reaches as zero."""

    def __init__(self) -> None:
        self.values: dict[Value, None] = {}
        self.flat: dict[Value, None] = {}


class Nodes:
    """The autograd nodes that a watch knows.

    Attributes:
        owner: keeps the record, and says which value a leaf is. A known node keeps it alive.
        started, ended: nodes with sequence numbers in this range were made while the watch ran.
    """

    def __init__(self, owner: Owner) -> None:
        self._key = Key(owner)
        self._owner, self._leaf = owner, owner.leaf
        self.started: float = 0
        self.ended: float = 0

    def known(self, node: Node, number: int) -> Value | None:
        """The value of a node's result, if it is known."""
        tags = node.metadata.get(self._key)
        found: Value | None = None if tags is None else tags.get(number)
        return found if found is None or found.written is None else found.written

    def values(self, node: Node) -> dict[int, Value]:
        """The known values of a node's results, by their numbers, as they were made."""
        tags = node.metadata.get(self._key, _NONE)
        return {number: value for number, value in tags.items() if number != RETURNED}

    def note(self, node: Node, number: int, value: Value) -> None:
        """Note the value of a node's result."""
        node.metadata.setdefault(self._key, {})[number] = value

    def write(self, node: Node, number: int, value: Value) -> Value:
        """Note the new value of a node's result whose memory was written into."""
        node.metadata[self._key][number].written = value
        return value

    def reached(self, node: Node, place: RawLocation | None) -> Reached:
        """The values that gradients reach from a node of the current call, past other nodes of that call."""
        found = Reached()
        stack: list[tuple[Node, bool]] = [(node, True)]
        seen: dict[Node, bool] = {}
        while stack:
            at, live = stack.pop()
            if at in seen and (seen[at] or not live):
                continue
            seen[at] = live
            for next_node, number, passes in self._next(at):
                if next_node is None:
                    continue
                alive = live and passes
                if type(next_node) is _LEAF_NODE:
                    value: Value | None = self._leaf(next_node.variable)
                else:
                    value = self.known(next_node, number)
                    if value is None and (is_user_made(next_node) or kind_of(next_node) == "CopySlices"):
                        value = self.imported(next_node, number, place)
                if value is None:
                    stack.append((next_node, alive))
                elif alive:
                    found.values[value] = None
                else:
                    found.flat[value] = None
        return found

    @staticmethod
    def _next(node: Node) -> list[tuple[Node, int, bool]]:
        """The edges of a node, each with whether its gradient can be other than zero."""
        kind = kind_of(node)
        if kind in FLAT_NODES or getattr(node, "_saved_rounding_mode", None) is not None:
            return [(*edge, False) for edge in node.next_functions]
        flat = FLAT_EDGES.get(kind, -1)
        return [(*edge, i != flat) for i, edge in enumerate(node.next_functions)]

    def imported(
        self,
        node: Node,
        number: int,
        place: RawLocation | None,
        inner: Value | None = None,
    ) -> Value:
        """The value of a node's result that was made without being recorded.

        Args:
            node, number: which result of which node.
            place: the line that made it, or else where it was first met.
            inner: for an ``autograd.Function``, the value that its result has inside of its forward.
        """
        stack: list[tuple[Node, int]] = [(node, number)]
        while stack:
            at, nr = stack[-1]
            if self.known(at, nr) is not None:
                stack.pop()
                continue
            missing = [
                (n, k)
                for n, k in at.next_functions
                if n is not None and type(n) is not _LEAF_NODE and self.known(n, k) is None
            ]
            if missing and not self._is_checkpoint(at, inner if at is node else None):
                stack.extend(missing)
                continue
            known = at is node or at._sequence_nr() >= self.started
            self._import_one(at, nr, place if known else None, inner if at is node else None)
            stack.pop()
        found = self.known(node, number)
        assert found is not None
        return found

    @staticmethod
    def _is_checkpoint(node: Node, inner: Value | None) -> bool:
        return inner is not None and not is_user_made(node) and hasattr(node, "_forward_cls")

    def _import_one(self, node: Node, number: int, place: RawLocation | None, inner: Value | None) -> None:
        tags = node.metadata.setdefault(self._key, {})
        sizes = sizes_of_result(node, number)
        known = next((value for k, value in tags.items() if k != RETURNED), None)
        if known is not None:  # Another result of this node is known.
            event = known.event
            tags[number] = event.result(sizes, True)
            return
        hooks = (place,) if place is not None and node.name() == MODULES_HOOK else ()
        if self._is_checkpoint(node, inner):
            # Its backward runs the forward again, which leads to more than its edges do.
            assert inner is not None
            event = Event(Kind.OPERATION, name_of(node), place, (inner,))
            event.hooks = hooks
            tags[number] = event.result(sizes, True)
            return
        inputs: dict[Value, bool] = {}
        flat: dict[Value, None] = {}
        for next_node, k, passes in self._next(node):
            if next_node is None:
                continue
            value = self._edge(next_node, k)
            assert value is not None
            if passes:
                inputs[value] = True
            else:
                flat[value] = None
        rest = [value for value in flat if value not in inputs]
        walls = [(len(inputs) + i, NOT_DIFFERENTIABLE, FLAT) for i in range(len(rest))]
        forward = None if inner is None else forward_around(inner.event.region)
        if inner is not None and forward is not None:
            for value in entering(inner, forward, {*inputs, *flat}):
                if value.open:
                    walls.append((len(inputs) + len(rest), "stopped", forward.why))
                rest.append(value)
        event = Event(Kind.OPERATION, name_of(node), place, (*inputs, *rest), tuple(walls))
        if node._sequence_nr() < self.started:
            event.why = EARLIER
        event.hooks = hooks
        tags[number] = event.result(sizes, True)
        if is_user_made(node):
            edges = [self._edge(*edge) for edge in node.next_functions]
            returned = Returned(event, edges, len(inputs))
            tags[RETURNED] = returned
            returned.watch(node, self.differentiated)

    def made_inside(self, node: Node) -> bool:
        """Whether a node was made while the watch ran, in the same thread."""
        return bool(self.started <= node._sequence_nr() < self.ended)

    def leads_to_known(self, node: Node) -> bool:
        """Whether a node made outside of the watch depends on one made inside."""
        stack, seen = [node], {node}
        while stack:
            at = stack.pop()
            if at.metadata.get(self._key):
                return True
            for to, _ in at.next_functions:
                if to is not None and to not in seen:
                    seen.add(to)
                    stack.append(to)
        return False

    def _edge(self, node: Node, number: int) -> Value | None:
        """The value that an edge leads to; None if it leads nowhere."""
        if node is None:
            return None
        if type(node) is _LEAF_NODE:
            return self._leaf(node.variable)
        found: Value | None = node.metadata.get(self._key, _NONE).get(number)  # As it was made.
        return found

    def ask_functions(self, node: Node) -> None:
        """Find out to which values the users' functions behind a node pass gradients."""
        stack, seen = [node], {node}
        while stack:
            at = stack.pop()
            returned = self._function(at)
            if returned is not None and not returned.known:
                self._try(at, returned)
            for to, _ in at.next_functions:
                if to is not None and to not in seen:
                    seen.add(to)
                    stack.append(to)

    def _try(self, node: Node, returned: Returned) -> None:
        """Try the ``backward`` of a user's function."""
        event = returned.event
        try:
            returned.note(returned_for_zeros(node, self.differentiated))
        except Exception as error:  # The user's code may raise anything.
            if returned.others:
                self._owner.not_known(
                    f"{event.call}.backward fails on zeros ({type(error).__name__}: {error}); whether it "
                    f"differentiates what {event.call}.forward uses besides its arguments is not known"
                )

    def _function(self, node: Node) -> Returned | None:
        """What is known of the gradients of a user's function."""
        found: Returned | None = node.metadata.get(self._key, _NONE).get(RETURNED)
        return found

    def differentiated(self, function: Node, losses: Sequence[torch.Tensor], inside: Backwards) -> None:
        """Note that the ``backward`` of a user's function differentiates tensors itself.

        Where that leads to values from outside of the function, these get gradients from it.
        """
        returned = self._function(function)
        if returned is None:
            return
        event = returned.event
        stack: list[tuple[Node, int]] = [(loss.grad_fn, loss.output_nr) for loss in losses]
        seen, found = set(stack), []
        while stack:
            at, number = stack.pop()
            if type(at) is _LEAF_NODE:
                value = None if inside.made(at.variable) else self._leaf(at.variable)
            else:
                value = self.known(at, number)
            if value is not None and (value.event.serial < event.serial or not value.event.inputs):
                found.append(value)
                continue
            if is_user_made(at) and inside.is_trial:
                returned_for_zeros(at, lambda _, more, trial: self.differentiated(function, more, trial))
            elif is_user_made(at):
                self.imported(at, number, None)  # What its own backward does is seen when it runs.
            edges = {(to, k) for to, k, passes in self._next(at) if to is not None and passes} - seen
            seen |= edges
            stack.extend(edges)
        returned.passes(found)


def name_of(node: Node) -> str:
    """The name of an operation of which only the node is known."""
    function = getattr(node, "_forward_cls", None)
    if function is None:
        return str(node.name())
    return (
        str(function.__qualname__) if is_user_made(node) else f"{function.__module__}.{function.__qualname__}"
    )


def sizes_of_result(node: Node, number: int) -> tuple[Any, ...]:
    """The dtype's name and the sizes of a node's result."""
    try:
        about = node._input_metadata[number]
        return (dtype_name(about.dtype), *[int(n) for n in about.shape])
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return ("float32",)


_DTYPES: dict[Any, str] = {}
_NAMES = frozenset(dtype.name for dtype in DTYPES.values())


def dtype_name(dtype: torch.dtype) -> str:
    """Our name for a dtype of PyTorch; if we lack it, that of a dtype of the same kind."""
    found = _DTYPES.get(dtype)
    if found is None:
        name = str(dtype).removeprefix("torch.")
        if name not in _NAMES:
            name = "complex64" if dtype.is_complex else "float16" if dtype.is_floating_point else "int32"
        found = _DTYPES[dtype] = name
    return found


def sizes_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The dtype's name and the sizes of a tensor."""
    try:
        return (dtype_name(tensor.dtype), *[int(n) for n in tensor.shape])
    except (AttributeError, RuntimeError, TypeError, ValueError):  # Nested tensors have no single size.
        return (dtype_name(tensor.dtype),)
