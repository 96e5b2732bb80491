"""Asks autograd which values a tensor's gradient reaches, by walking the nodes from it.

Nodes that are known carry in their ``metadata`` the values that their results are, by which they are known
again for as long as autograd keeps them. Of nodes that nobody recorded, events are made when they are met.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from stopgrad.base.dtypes import DTYPES
from stopgrad.base.source import RawLocation
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.effects_on_gradients import FLAT_EDGES, FLAT_NODES
from stopgrad.interop.torch.recording.record import Event, Kind, Shape, Value, entering, forward_around
from stopgrad.interop.torch.recording.user_backwards import (
    NOT_DIFFERENTIABLE,
    Backwards,
    Returned,
    returned_for_zeros,
)

Node = Any  # torch.autograd.graph.Node, which PyTorch annotates with a method for its metadata, a dict.
_LEAF: Any = torch.ones((), requires_grad=True).view(1)
LEAF_NODE: Any = type(_LEAF.grad_fn.next_functions[0][0])
number_of: Callable[[Any], int] = internals.number_of
FLAT = "its gradient is zero everywhere"
EARLIER = "made before the watch began"
OVERWRITTEN = "overwritten in place"
FEW = 8
"""Calls that make at least so many nodes are looked at more thoroughly."""
MODULES_HOOK = "BackwardHookFunctionBackward"
"""The name of the nodes at which PyTorch calls a module's backward hooks."""


def node_of(tensor: torch.Tensor) -> Node | None:
    """The autograd node of a tensor; None if there is none, or if PyTorch refuses to give it."""
    try:
        return tensor.grad_fn
    except RuntimeError:  # It is one of several views whose base was written into.
        return None


def _kind_and_number(node: Node) -> str:
    """The name of a node's kind, without namespaces."""
    name: str = node.name()
    return name.rpartition(":")[2]


def kind_of(node: Node) -> str:
    """The name of a node's kind, without the number that PyTorch gives it."""
    return _kind_and_number(node).rstrip("0123456789")


def is_user_made(node: Node) -> bool:
    """Whether a node belongs to an ``autograd.Function`` that is not PyTorch's own."""
    function = internals.function_of(node)
    return function is not None and not function.__module__.startswith("torch.")


class Sort(NamedTuple):
    """What follows from the kind of a node.

    Attributes:
        flat: whether its gradient is zero everywhere.
        rounds: whether it is if the node has a rounding mode.
        flat_edge: the one of its edges whose gradient is zero everywhere; -1 if there is none.
        apart: whether it is an event of its own, also if it was made in the call of another.
        simple: whether none of this is so.
    """

    flat: bool
    rounds: bool
    flat_edge: int
    apart: bool
    simple: bool


_SORTS: dict[type, Sort] = {}


def sort_of(node: Node) -> Sort:
    """What follows from a node's kind. It is found out once for each of PyTorch's own."""
    sort = _SORTS.get(type(node))
    if sort is None:
        kind = kind_of(node)
        rounds = hasattr(node, "_saved_rounding_mode")
        apart = is_user_made(node) or kind == "CopySlices"
        flat, edge = kind in FLAT_NODES, FLAT_EDGES.get(kind, -1)
        sort = Sort(flat, rounds, edge, apart, not (flat or rounds or apart) and edge < 0)
        if type(node).__name__ == _kind_and_number(node) and internals.function_of(node) is None:
            _SORTS[type(node)] = sort  # Others may share their type with nodes of another kind.
    return sort


def is_function(node: Node) -> bool:
    """Whether a node belongs to an ``autograd.Function``, the user's or PyTorch's."""
    return type(node) not in _SORTS and internals.function_of(node) is not None


class Owner(Protocol):
    """Keeps a record, says which value a leaf is, and is told what could not be found out."""

    def leaf(self, tensor: torch.Tensor) -> Value: ...

    def not_known(self, what: str) -> None: ...


class Key:
    """A key in a node's ``metadata`` under which a watch stores something, with the owner of the watch."""

    __slots__ = ("owner",)

    owner: Owner

    def __init__(self, owner: Owner) -> None:
        self.owner = owner


def owners_of(node: Node) -> list[Owner]:
    """The owners that have recorded a node, the last one first."""
    return list(dict.fromkeys([key.owner for key in reversed(node.metadata) if isinstance(key, Key)]))


Reached = dict[Value, None]
"""Values in the order in which gradients reach them."""


class Nodes:
    """The autograd nodes that a watch knows.

    Attributes:
        owner: keeps the record, and says which value a leaf is. A known node keeps it alive.
        started, ended: nodes with sequence numbers in this range were made while the watch ran.
    """

    def __init__(self, owner: Owner) -> None:
        self._key = Key(owner)  # For the values of a node's results, by their numbers.
        self._returned = Key(owner)  # For what is known of the gradients of a user's function.
        self._owner, self._leaf = owner, owner.leaf
        self._last = -1  # The greatest sequence number of a node of which something is known.
        self.started: float = 0
        self.ended: list[float] = [0]  # Empty while the watch runs.

    def value_at(self, node: Node, number: int) -> Value | None:
        """The value of a node's result, if it is known."""
        if number_of(node) > self._last:
            return None  # To look at its metadata would make some.
        values = node.metadata.get(self._key)
        value: Value | None = None if values is None else values.get(number)
        return value if value is None or value.written is None else value.written

    def values(self, node: Node) -> Mapping[int, Value]:
        """The known values of a node's results, by their numbers, as they were made."""
        return node.metadata.get(self._key, {}) if number_of(node) <= self._last else {}

    def note(self, node: Node, number: int, value: Value) -> None:
        """Note the value of a node's result."""
        last = number_of(node)
        if last > self._last:
            self._last = last
        values = node.metadata.get(self._key)
        if values is None:
            node.metadata[self._key] = {number: value}
        else:
            values[number] = value

    def write(self, node: Node, number: int, value: Value) -> Value:
        """Note the new value of a node's result whose memory was written into."""
        node.metadata[self._key][number].written = value
        return value

    def reaches_just(self, node: Node, values: Collection[Value]) -> bool:
        """Whether gradients of a node of the current call are known to reach just these values, none as zero.

        This is so of most calls; :meth:`reached` tells all that there is to be known, and takes longer: to
        ask this first takes 5 % off a watched step of 20 layers.
        """
        key, last, count, steps_left = self._key, self._last, len(values), FEW
        reached: list[Value] = []
        stack = [node]
        while stack:
            current, steps_left = stack.pop(), steps_left - 1
            sort = _SORTS.get(type(current))
            if sort is None or not sort.simple or not steps_left:
                return False
            for next_node, number in current.next_functions:
                if next_node is None:
                    continue
                if type(next_node) is LEAF_NODE:
                    value: Value | None = self._leaf(next_node.variable)
                elif number_of(next_node) > last:
                    stack.append(next_node)
                    continue
                else:
                    noted = next_node.metadata.get(key)
                    value = None if noted is None else noted.get(number)
                if value is None or value.written is not None:
                    return False
                if value in reached:
                    continue
                if value not in values:
                    return False
                reached.append(value)
        return len(reached) == count

    def reached(self, node: Node, place: RawLocation | None) -> tuple[Reached, Reached]:
        """The values that gradients reach from a node of the current call, past other nodes of that call.

        Returns:
            Those that they reach, and those that they reach as zero.
        """
        values: Reached = {}
        zeros: Reached = {}
        stack: list[tuple[Node, bool]] = []
        seen: dict[Node, bool] = {}
        current, live = node, True
        while True:
            sort = _SORTS.get(type(current)) or sort_of(current)
            live = live and not (sort.flat or (sort.rounds and current._saved_rounding_mode is not None))
            position = -1
            for next_node, number in current.next_functions:
                position += 1
                if next_node is None:
                    continue
                if type(next_node) is LEAF_NODE:
                    value: Value | None = self._leaf(next_node.variable)
                elif number_of(next_node) > self._last:
                    value = None  # To look at its metadata would make some.
                else:
                    value = self.value_at(next_node, number)
                if value is None:
                    if not (_SORTS.get(type(next_node)) or sort_of(next_node)).apart:
                        stack.append((next_node, live and position != sort.flat_edge))
                        continue
                    value = self.imported(next_node, number, place)
                (values if live and position != sort.flat_edge else zeros)[value] = None
            while stack:
                current, live = stack.pop()
                before = seen.get(current)
                if before is None or (live and not before):
                    seen[current] = live
                    break
            else:
                return values, zeros

    @staticmethod
    def _next(node: Node) -> list[tuple[Node, int, bool]]:
        """The edges of a node, each with whether its gradient can be other than zero."""
        sort = sort_of(node)
        if sort.flat or (sort.rounds and node._saved_rounding_mode is not None):
            return [(*edge, False) for edge in node.next_functions]
        return [(*edge, i != sort.flat_edge) for i, edge in enumerate(node.next_functions)]

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
            current, nr = stack[-1]
            if self.value_at(current, nr) is not None:
                stack.pop()
                continue
            missing = [
                (n, k)
                for n, k in current.next_functions
                if n is not None and type(n) is not LEAF_NODE and self.value_at(n, k) is None
            ]
            if missing and not self._is_checkpoint(current, inner if current is node else None):
                stack.extend(missing)
                continue
            has_place = current is node or number_of(current) >= self.started
            self._import_one(current, nr, place if has_place else None, inner if current is node else None)
            stack.pop()
        value = self.value_at(node, number)
        assert value is not None
        return value

    @staticmethod
    def _is_checkpoint(node: Node, inner: Value | None) -> bool:
        return inner is not None and internals.function_of(node) is internals.CheckpointFunction

    def _import_one(self, node: Node, number: int, place: RawLocation | None, inner: Value | None) -> None:
        sizes = sizes_of_result(node, number)
        other = self._any_known(node)
        if other is not None:
            self.note(node, number, other.event.result(sizes, True))
            return
        hooks = (place,) if place is not None and node.name() == MODULES_HOOK else ()
        if self._is_checkpoint(node, inner):
            # Its backward runs the forward again, which leads to more than its edges do.
            assert inner is not None
            event = Event(Kind.OPERATION, name_of(node), place, (inner,))
            event.hooks = hooks
            self.note(node, number, event.result(sizes, True))
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
        if number_of(node) < self.started:
            event.why = EARLIER
        event.hooks = hooks
        self.note(node, number, event.result(sizes, True))
        if is_user_made(node):
            edges = [self._edge(*edge) for edge in node.next_functions]
            returned = Returned(event, edges, len(inputs))
            node.metadata[self._returned] = returned
            returned.watch(node, self.differentiated)

    def made_inside(self, node: Node) -> bool:
        """Whether a node was made while the watch ran, in the same thread."""
        number = number_of(node)
        return bool(self.started <= number and not (self.ended and self.ended[0] <= number))

    def leads_to_known(self, node: Node) -> bool:
        """Whether a node made outside of the watch depends on one made inside."""
        stack, seen = [node], {node}
        while stack:
            current = stack.pop()
            if self._any_known(current) is not None:
                return True
            for to, _ in current.next_functions:
                if to is not None and to not in seen:
                    seen.add(to)
                    stack.append(to)
        return False

    def _edge(self, node: Node, number: int) -> Value | None:
        """The value that an edge leads to; None if it leads nowhere."""
        if node is None:
            return None
        if type(node) is LEAF_NODE:
            return self._leaf(node.variable)
        return self.values(node).get(number)

    def _any_known(self, node: Node) -> Value | None:
        """The value of any result of a node that is known."""
        return next(iter(self.values(node).values()), None)

    def ask_functions(self, node: Node) -> None:
        """Find out to which values the users' functions behind a node pass gradients."""
        stack, seen = [node], {node}
        while stack:
            current = stack.pop()
            returned = self._function(current)
            if returned is not None and not returned.is_known:
                self._try(current, returned)
            for to, _ in current.next_functions:
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
        returned: Returned | None = node.metadata.get(self._returned)
        return returned

    def differentiated(self, function: Node, losses: Sequence[torch.Tensor], inside: Backwards) -> None:
        """Note that the ``backward`` of a user's function differentiates tensors itself.

        Where that leads to values from outside of the function, these get gradients from it.
        """
        returned = self._function(function)
        if returned is None:
            return
        event = returned.event
        stack: list[tuple[Node, int]] = [(loss.grad_fn, loss.output_nr) for loss in losses]
        seen, passed = set(stack), []
        while stack:
            current, number = stack.pop()
            if type(current) is LEAF_NODE:
                value = None if inside.made_leaf(current.variable) else self._leaf(current.variable)
            else:
                value = self.value_at(current, number)
            if value is not None and (value.event.serial < event.serial or not value.event.inputs):
                passed.append(value)
                continue
            if is_user_made(current) and inside.is_trial:
                returned_for_zeros(current, lambda _, more, trial: self.differentiated(function, more, trial))
            elif is_user_made(current):
                self.imported(current, number, None)  # What its own backward does is seen when it runs.
            edges = {(to, k) for to, k, passes in self._next(current) if to is not None and passes} - seen
            seen |= edges
            stack.extend(edges)
        returned.passes(passed)


def name_of(node: Node) -> str:
    """The name of an operation of which only the node is known."""
    function = internals.function_of(node)
    if function is None:
        return str(node.name())
    return (
        str(function.__qualname__) if is_user_made(node) else f"{function.__module__}.{function.__qualname__}"
    )


def sizes_of_result(node: Node, number: int) -> tuple[Any, ...]:
    """The dtype's name and the sizes of a node's result."""
    try:
        about = internals.results_of(node)[number]
        return (dtype_name(about.dtype), *[int(n) for n in about.shape])
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return ("float32",)


_DTYPES: dict[Any, str] = {}
_NAMES = frozenset(dtype.name for dtype in DTYPES.values())


def dtype_name(dtype: torch.dtype) -> str:
    """Our name for a dtype of PyTorch; if we lack it, that of a dtype of the same kind."""
    our_name = _DTYPES.get(dtype)
    if our_name is None:
        name = str(dtype).removeprefix("torch.")
        if name not in _NAMES:
            name = "complex64" if dtype.is_complex else "float16" if dtype.is_floating_point else "int32"
        our_name = _DTYPES[dtype] = name
    return our_name


def sizes_of(tensor: torch.Tensor) -> Shape:
    """The dtype's name and the sizes of a tensor."""
    name = _DTYPES.get(tensor.dtype) or dtype_name(tensor.dtype)
    try:
        return name, *tensor.shape
    except (AttributeError, RuntimeError, TypeError, ValueError):  # Nested tensors have no single size.
        return (name,)
