"""Measures gradients while a backward pass computes them: numbers are kept, and no tensors.

Hooks stand at the autograd nodes of recorded operations and at leaves for the time of the pass alone, and
change nothing. They see what arrives at the results, after the user's own hooks.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch

from stopgrad.flow.magnitudes.magnitude import Magnitude
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.autograd_nodes import LEAF_NODE, is_function, node_of
from stopgrad.interop.torch.recording.record import Sizes, Value, elements_of

Tensor = torch.Tensor
Node = Any  # torch.autograd.graph.Node, which PyTorch annotates with a method for its metadata, a dict.
Grads = Sequence[Tensor | None]
_PLAIN = (torch.Tensor, torch.nn.Parameter)
SAFE = 1e-15, 1e15
"""Norms in between are those of numbers whose squares float32 can hold."""
WIDE = frozenset([torch.float32, torch.float64, torch.complex64, torch.complex128])
"""The dtypes that need none that is wider to hold the squares of elements."""
TOGETHER, KEPT = 32, 2**20
"""Of at most so many nodes, or elements, gradients are kept before they are measured."""


class Arrival:
    """A gradient that arrived at a leaf: its norm, and what can still be found out about it later.

    Attributes:
        norm: its Euclidean norm.
    """

    __slots__ = ("_elements", "_grad", "_magnitude", "_tensor", "_version", "norm")

    norm: float

    def __init__(self, tensor: Tensor, grad: Tensor, norm: float) -> None:
        self.norm, self._version = norm, internals.version_of(grad)
        self._elements = grad.numel()
        self._tensor, self._grad = weakref.ref(tensor), weakref.ref(grad)
        self._magnitude: Magnitude | None = None

    def magnitude(self) -> Magnitude:
        """How large it is. What a norm does not say is found out when this is first asked."""
        if self._magnitude is None:
            self._magnitude = self._examined()
        return self._magnitude

    def _examined(self) -> Magnitude:
        tensor, grad = self._tensor(), self._grad()
        if grad is not None and internals.version_of(grad) != self._version:
            grad = None
        own = None if tensor is None else measured(lambda x: (norm_of(x), x.numel()), tensor)
        counts = None if grad is None else measured(lambda x: _counts(x, self.norm), grad)
        size, elements = (None, self._elements) if own is None else own
        if counts is None:
            zeros = elements if self.norm == 0.0 else None
            return Magnitude(self.norm, elements, zeros, int(not math.isfinite(self.norm)), 0, size)
        nonzero, nans, infs = counts
        return Magnitude(self.norm, elements, elements - nonzero, nans, infs, size)


class Record(Protocol):
    """What knows the values of tensors and nodes: the recorder of a watch."""

    def values_at(self, node: Node) -> Mapping[int, Value]:
        """The values of an autograd node's results, by their numbers."""

    def values_of_leaf(self, tensor: Tensor) -> Collection[Value]:
        """The value of a leaf, and that at which gradients with respect to it arrive, if it is another."""

    def seen(self) -> dict[str, Tensor]:
        """The leaves that were seen, by name."""

    def not_known(self, what: str) -> None:
        """Notes what could not be found out."""


class Measuring:
    """The hooks of a backward pass.

    A hook at a node keeps what arrives, in C alone; every so many of them measure together what was kept. A
    leaf needs no hook if all that arrives is in its ``grad`` afterwards.

    Args:
        record: knows the values.
        sizes: is filled.
        goes_on: whether more may happen to gradients before the end.
    """

    def __init__(self, record: Record, sizes: Sizes, goes_on: bool = False) -> None:
        self._record, self._sizes, self._goes_on = record, sizes, goes_on
        self._handles: list[Any] = []
        self._fresh: list[Tensor] = []
        self._values: list[Mapping[int, Value]] = []
        self._pending: dict[int, Grads] = {}
        self._suspect = False

    @contextmanager
    def over(self, losses: Iterable[Tensor]) -> Iterator[None]:
        """A context in which losses are differentiated. It never fails itself."""
        self.begin(losses)
        try:
            yield
        finally:
            self.end()

    def begin(self, losses: Iterable[Tensor]) -> None:
        """Begin before losses are differentiated."""
        try:
            tensors = [loss for loss in losses if isinstance(loss, torch.Tensor)]
            self._place([node for loss in tensors if (node := node_of(loss)) is not None])
        except Exception as error:
            self._record.not_known(
                f"it is not known how large gradients are ({type(error).__name__}: {error})"
            )

    def end(self) -> None:
        """Take all hooks away, and look at the leaves."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        arrived = [(tensor, grad) for tensor in self._fresh if (grad := tensor.grad) is not None]
        self._fresh.clear()
        norms = self._measure([grad for _, grad in arrived])
        for (tensor, grad), norm in zip(arrived, norms, strict=True):
            if norm is not None:
                self._note(tensor, Arrival(tensor, grad, norm))
        if self._suspect:  # What else there is to be known may be gone when the report is made.
            for arrival in self._sizes.of.values():
                arrival.magnitude()

    def at_leaf(self, tensor: Tensor, grad: Tensor) -> None:
        """Note how large the gradient is that arrived at a leaf."""
        norm = measured(norm_of, grad)
        if norm is not None:
            arrival = Arrival(tensor, grad, norm)
            arrival.magnitude()
            self._note(tensor, arrival)

    def _note(self, tensor: Tensor, arrival: Arrival) -> None:
        try:
            values = self._record.values_of_leaf(tensor)
        except Exception:  # As for all that is recorded: the backward pass goes on.
            return
        for value in values:
            self._sizes.of[value] = arrival
            self._sizes.at[value] = arrival.norm
        self._suspect = self._suspect or not 0.0 < arrival.norm < math.inf

    def _place(self, nodes: Sequence[Node]) -> None:
        """Put hooks at the nodes that a backward pass may run."""
        stack, seen = list(nodes), set(nodes)
        leaves: dict[int, Node] = {}
        recorded: list[tuple[int, Node, Mapping[int, Value]]] = []
        differentiates = False
        while stack:
            node = stack.pop()
            if type(node) is LEAF_NODE:
                leaves[id(node.variable)] = node
                continue
            values = self._record.values_at(node)
            if values:
                recorded.append((internals.number_of(node), node, values))
            differentiates = differentiates or is_function(node)
            for to, _ in node.next_functions:
                if to is not None and to not in seen:
                    seen.add(to)
                    stack.append(to)
        self._keep(recorded)
        self._at_leaves(leaves.values())
        if differentiates:
            self._among_others(leaves)

    def _keep(self, recorded: list[tuple[int, Node, Mapping[int, Value]]]) -> None:
        """Put hooks at nodes, in the order in which a backward pass runs them."""
        recorded.sort(key=lambda entry: -entry[0])
        elements = 0
        for i, (_, node, values) in enumerate(recorded):
            self._values.append(values)
            keep = partial(self._pending.__setitem__, i)
            for value in values.values():
                elements += elements_of(value.event.results[value.index])
            if elements >= KEPT or i % TOGETHER == TOGETHER - 1:
                elements = 0
                keep = partial(self._keep_and_measure, i)
            self._handles.append(node.register_prehook(keep))

    def _keep_and_measure(self, i: int, grads: Grads) -> None:
        self._pending[i] = grads
        self._measure()

    def _measure(self, more: Sequence[Tensor] = ()) -> Sequence[float | None]:
        """Measure the gradients that were kept, and let go of them; the norms of *more* tensors."""
        values: list[Value] = []
        grads: list[Tensor] = []
        for i, arrived in self._pending.items():
            for number, value in self._values[i].items():
                grad = arrived[number] if number < len(arrived) else None
                if grad is not None:
                    values.append(value)
                    grads.append(grad)
        self._pending.clear()
        at, norms = self._sizes.at, norms_of([*grads, *more])
        for value, norm in zip(values, norms, strict=False):
            if norm is not None:
                at[value] = norm
                if not 0.0 < norm < math.inf:
                    self._suspect = True
        return norms[len(values) :]

    def _at_leaves(self, nodes: Iterable[Node]) -> None:
        """Measure at leaves: afterwards, where all that arrives is in ``grad`` then; else as it arrives."""
        shared = torch.distributed.is_available() and torch.distributed.is_initialized()
        for node in nodes:
            tensor = node.variable
            if tensor.grad is None and not (shared or self._goes_on or internals.takes_at_once(tensor)):
                self._fresh.append(tensor)
            else:
                self._handles.append(node.register_prehook(partial(self._arrives, tensor)))

    def _arrives(self, tensor: Tensor, grads: Grads) -> None:
        if grads[0] is not None:
            self.at_leaf(tensor, grads[0])

    def _among_others(self, hooked: Collection[int]) -> None:
        """Measure at leaves that a function reaches which differentiates by itself, as a checkpoint does.

        It may bring several parts of a gradient to one leaf. Their sum is in its ``grad``, if that was empty.
        """
        leaves: list[Any] = [x for x in self._record.seen().values() if x.requires_grad]
        others = [x for x in leaves if id(x) not in hooked]
        self._handles += [x.register_hook(partial(self.at_leaf, x)) for x in others]
        if not self._goes_on:
            self._fresh = [x for x in leaves if x.grad is None]


def run_measured(
    record: Record, sizes: Sizes, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Call ``backward``, or ``torch.autograd.grad``, and measure the gradients."""
    if internals.peek_interpreter_stack() is not None:
        return function(*args, **kwargs)  # The tensors of torch.func have no numbers to be looked at.
    measuring = Measuring(record, sizes)
    measuring.begin(_tensors(args[:1] or [kwargs.get("tensors", kwargs.get("outputs"))]))
    try:
        result = function(*args, **kwargs)
    finally:
        measuring.end()
    if result is not None:  # Of torch.autograd.grad.
        inputs = _tensors(args[1:2] or [kwargs.get("inputs")])
        for tensor, grad in zip(inputs, _tensors([result]), strict=False):
            if isinstance(grad, torch.Tensor) and node_of(tensor) is None:
                measuring.at_leaf(tensor, grad)
    return result


def _tensors(parts: Sequence[Any]) -> list[Any]:
    """The tensors in an argument or result, one or several of them; others, such as None, in their places."""
    (tree,) = parts
    return list(
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else [tree]
    )


# ------------------------------------------------------------------------------------------- one tensor


def measured(function: Callable[[Tensor], Any], grad: Tensor) -> Any:
    """What a function finds of a gradient; None if that has no numbers to be looked at.

    No mode of the user's or of a watch sees it, and it leaves nothing in autograd's graph.
    """
    try:
        if type(grad) is torch.Tensor and not (
            torch.is_grad_enabled() or internals.count_function_modes() or internals.count_dispatch_modes()
        ):
            plain = _plain(grad)
            return None if plain is None else function(plain)
        with internals.DisableTorchFunction():
            plain = _plain(grad)
            if plain is None:
                return None
            with internals.DisableTorchDispatch(), torch.no_grad():
                return function(plain.detach())
    except Exception:  # A kind of tensor that lacks what is needed. The backward pass goes on.
        return None


def _plain(x: Tensor) -> Tensor | None:
    """A tensor's numbers, or those that this process has of it; None if there are none to be read."""
    if type(x) not in _PLAIN:
        x = internals.local_part(x)
    if x.layout is not torch.strided or x.is_nested:
        x = x.coalesce().values() if x.layout is torch.sparse_coo else x.values()
    if type(x) not in _PLAIN or internals.is_functorch_wrapped_tensor(x) or x.is_meta:
        return None
    if x.numel() and not x.untyped_storage().nbytes():  # Given back, as ``fully_shard`` does with parameters.
        return None
    return None if x.is_cuda and torch.cuda.is_current_stream_capturing() else x


def norm_of(x: Tensor) -> float:
    """The Euclidean norm, also where the squares of elements are no numbers of their dtype."""
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else None
    norm = float(torch.linalg.vector_norm(x, dtype=wide))
    if SAFE[0] < norm < SAFE[1] or math.isnan(norm) or not x.numel():
        return norm
    sizes = x.abs().to(wide) if wide else x.abs()
    largest = float(sizes.max())
    return largest * float(torch.linalg.vector_norm(sizes / largest)) if 0 < largest < math.inf else largest


def _counts(grad: Tensor, norm: float) -> tuple[int, int, int]:
    """How many elements of a gradient are not 0, NaN and infinite."""
    nans = infs = 0
    if not math.isfinite(norm):
        nans, infs = int(torch.isnan(grad).sum()), int(torch.isinf(grad).sum())
    return int(torch.count_nonzero(grad)), nans, infs


def norms_of(grads: Sequence[Tensor]) -> Sequence[float | None]:
    """The norms of gradients, measured together where they can be; None for what has no numbers."""
    together = _together(grads) if grads else ()
    if together and SAFE[0] < min(together) and max(together) < SAFE[1] and not math.isnan(sum(together)):
        return together
    known_norms: list[float | None] = [None] * len(grads)
    for i, norm in enumerate(together):
        known_norms[i] = norm if SAFE[0] < norm < SAFE[1] or math.isnan(norm) else None
    return [
        measured(norm_of, x) if norm is None else norm for x, norm in zip(grads, known_norms, strict=True)
    ]


_KIND = operator.attrgetter("dtype", "layout", "is_nested", "requires_grad")


def _together(grads: Sequence[Tensor]) -> Sequence[float]:
    """The norms of dense tensors of one dtype on one device; nothing if any is of another kind."""
    if set(map(type, grads)) != {Tensor}:
        return ()
    kinds = set(map(_KIND, grads))
    first, differentiable = grads[0], len(kinds) > 1
    for dtype, layout, is_nested, requires_grad in kinds:
        if dtype is not first.dtype or layout is not torch.strided or is_nested:
            return ()
        differentiable = differentiable or requires_grad
    if first.dtype not in WIDE or (first.is_cuda and torch.cuda.is_current_stream_capturing()):
        return ()
    try:
        if not (internals.count_function_modes() or internals.count_dispatch_modes() or differentiable):
            return _norms(grads)
        with internals.DisableTorchFunction(), internals.DisableTorchDispatch(), torch.no_grad():
            return _norms(grads)
    except Exception:  # A kind of tensor that lacks what is needed, or one of another device.
        return ()


def _norms(grads: Sequence[Tensor]) -> Sequence[float]:
    norms: list[float] = torch.stack(internals.foreach_norm(list(grads))).tolist()
    return norms
