"""Asking autograd: which values a tensor's gradient reaches, by walking the nodes from it.

Nodes that are known carry in their ``metadata`` the values that their results are, by which they are known
again for as long as autograd keeps them. Of nodes that nobody recorded, events are made when they are met.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from stopgrad.base.dtypes import DTYPES
from stopgrad.base.source import RawLocation
from stopgrad.interop.torch.recording.calls import FLAT_EDGES, FLAT_NODES
from stopgrad.interop.torch.recording.functions import NOT_DIFFERENTIABLE, Returned, returned_for_zeros
from stopgrad.interop.torch.recording.record import Event, Kind, Value, entering

Node = Any
_LEAF: Any = torch.ones((), requires_grad=True).view(1)
_LEAF_NODE: Any = type(_LEAF.grad_fn.next_functions[0][0])
FLAT = "its gradient is zero everywhere"
EARLIER = "made before the watch began"
OVERWRITTEN = "overwritten in place"


def node_of(tensor: torch.Tensor) -> Node | None:
    """The node of autograd that made a tensor; None where there is none, or where PyTorch refuses its use."""
    try:
        return tensor.grad_fn
    except RuntimeError:  # One of several views, and its base was written into.
        return None


def kind_of(node: Node) -> str:
    """The name of a node's kind, without the number that PyTorch gives it."""
    name: str = node.name()
    return name.rpartition(":")[2].rstrip("0123456789")


def is_user_made(node: Node) -> bool:
    """Whether it belongs to an ``autograd.Function`` that is not PyTorch's own."""
    function = getattr(node, "_forward_cls", None)
    return function is not None and not function.__module__.startswith("torch.")


RETURNED = "returned"
"""Where a node carries what is known of a user's function, beside the values of its results."""
_NONE: dict[Any, Any] = {}


class Owner(Protocol):
    """Who keeps a record."""

    def leaf(self, tensor: torch.Tensor) -> Value: ...


class Key:
    """By which the nodes that a watch knows carry their values; and who that is."""

    __slots__ = ("owner",)

    def __init__(self, owner: Owner) -> None:
        self.owner = owner


def owners_of(node: Node) -> list[Owner]:
    """Who has recorded what a node is, the last one first."""
    return [key.owner for key in reversed(node.metadata) if isinstance(key, Key)]


class Reached:
    """What a walk came to: values that a gradient reaches, and those that it reaches as zero."""

    def __init__(self) -> None:
        self.values: dict[Value, None] = {}
        self.flat: dict[Value, None] = {}


class Nodes:
    """The nodes of autograd that a watch knows.

    Attributes:
        owner: who asks, and says which value a leaf is. A node that is known keeps it alive.
        started, ended: nodes of numbers from the one up to the other were made while the watch ran.
    """

    def __init__(self, owner: Owner) -> None:
        self._key = Key(owner)
        self._leaf = owner.leaf
        self.started: float = 0
        self.ended: float = 0

    def known(self, node: Node, number: int) -> Value | None:
        """The value that a result of a node is, if that is known."""
        tags = node.metadata.get(self._key)
        found: Value | None = None if tags is None else tags.get(number)
        return found if found is None or found.written is None else found.written

    def note(self, node: Node, number: int, value: Value) -> None:
        """A result of a node is this value."""
        node.metadata.setdefault(self._key, {})[number] = value

    def write(self, node: Node, number: int, value: Value) -> Value:
        """A result of a node, the memory of which was written into, is this value now."""
        node.metadata[self._key][number].written = value
        return value

    def reached(self, node: Node, place: RawLocation | None) -> Reached:
        """The values that gradients reach from a node that a call has just made, past others that it made."""
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
        """The edges of a node, and whether a gradient other than zero goes along each."""
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
        """The value that a result of a node is, of which nobody recorded how it was made.

        Args:
            node, number: which result of which node.
            place: the line where it was made, or else where it was met.
            inner: of an ``autograd.Function``, the value of its result inside of it.
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
        if known is not None:  # Another result of it is known.
            event = known.event
            tags[number] = event.result(sizes, True)
            return
        if self._is_checkpoint(node, inner):
            # Its backward runs the forward again, and that leads further than its edges do.
            assert inner is not None
            event = Event(Kind.OPERATION, name_of(node), place, (inner,))
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
        if inner is not None:
            for value in entering(inner):
                if value not in inputs and value not in flat:
                    if value.open:
                        why = inner.event.region.why if inner.event.region is not None else name_of(node)
                        walls.append((len(inputs) + len(rest), "stopped", why))
                    rest.append(value)
        event = Event(Kind.OPERATION, name_of(node), place, (*inputs, *rest), tuple(walls))
        if node._sequence_nr() < self.started:
            event.why = EARLIER
        tags[number] = event.result(sizes, True)
        if is_user_made(node):
            edges = [self._edge(*edge) for edge in node.next_functions]
            returned = Returned(event, edges, len(inputs))
            tags[RETURNED] = returned
            node.register_hook(returned.hook())

    def made_inside(self, node: Node) -> bool:
        """Whether a node was made while the watch ran, in the thread that it ran in."""
        return bool(self.started <= node._sequence_nr() < self.ended)

    def leads_to_known(self, node: Node) -> bool:
        """Whether a node that was made outside of the watch was made of what was made inside."""
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
        """Which value an edge leads to; None of one that leads nowhere."""
        if node is None:
            return None
        if type(node) is _LEAF_NODE:
            return self._leaf(node.variable)
        found: Value | None = node.metadata.get(self._key, _NONE).get(number)  # As it was made.
        return found

    def ask_functions(self, node: Node) -> None:
        """Find out of the users' functions behind a node for which inputs they give no gradient back."""
        stack, seen = [node], {node}
        while stack:
            at = stack.pop()
            returned = at.metadata.get(self._key, _NONE).get(RETURNED) if is_user_made(at) else None
            if returned is not None and not returned.known:
                given = returned_for_zeros(at)
                if given is not None:
                    returned.note(given)
            for to, _ in at.next_functions:
                if to is not None and to not in seen:
                    seen.add(to)
                    stack.append(to)


def name_of(node: Node) -> str:
    """What an operation is called that is known by its node alone."""
    function = getattr(node, "_forward_cls", None)
    if function is None:
        return str(node.name())
    return (
        str(function.__qualname__) if is_user_made(node) else f"{function.__module__}.{function.__qualname__}"
    )


def sizes_of_result(node: Node, number: int) -> tuple[Any, ...]:
    """The dtype's name and the sizes of a result of a node."""
    try:
        about = node._input_metadata[number]
        return (dtype_name(about.dtype), *[int(n) for n in about.shape])
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return ("float32",)


_DTYPES: dict[Any, str] = {}
_NAMES = frozenset(dtype.name for dtype in DTYPES.values())


def dtype_name(dtype: torch.dtype) -> str:
    """What a dtype of PyTorch is called here; that of the same kind where we have none."""
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
    except (RuntimeError, TypeError, ValueError):  # Nested tensors have no one size.
        return (dtype_name(tensor.dtype),)
