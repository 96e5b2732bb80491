"""Measures gradients while a backward pass computes them: numbers are kept, and no tensors.

Hooks stand at the autograd nodes of recorded operations and at leaves for the time of the pass alone, and
change nothing. They see what arrives at the results, after the user's own hooks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch

from stopgrad.flow.magnitudes.sizes import Magnitude
from stopgrad.interop.torch.recording.nodes import node_of
from stopgrad.interop.torch.recording.record import Sizes, Value

Tensor = torch.Tensor
Node = Any  # torch.autograd.graph.Node, which PyTorch annotates with a method for its metadata, a dict.
Grads = Sequence[Tensor | None]
_C: Any = torch._C
_functorch: Any = torch._C._functorch
_PLAIN = (torch.Tensor, torch.nn.Parameter)
SAFE = 1e-15, 1e15
"""Norms in between are those of numbers whose squares float32 can hold."""


class Record(Protocol):
    """What knows the values of tensors and nodes: the recorder of a watch."""

    def values_at(self, node: Node) -> dict[int, Value]:
        """The values of an autograd node's results, by their numbers."""

    def leaf(self, tensor: Tensor) -> Value:
        """The value of a leaf."""

    def seen(self) -> dict[str, Tensor]:
        """The leaves that were seen, by name."""

    def not_known(self, what: str) -> None:
        """Notes what could not be found out."""


class Measuring:
    """The hooks of a backward pass.

    Args:
        record: knows the values.
        sizes: is filled.
        goes_on: whether more may happen to gradients before the end.
    """

    def __init__(self, record: Record, sizes: Sizes, goes_on: bool = False) -> None:
        self._record, self._sizes, self._goes_on = record, sizes, goes_on
        self._handles: list[Any] = []
        self._fresh: list[Tensor] = []

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
        for tensor in self._fresh:
            if tensor.grad is not None:
                self.at_leaf(tensor, tensor.grad)
        self._fresh.clear()

    def at_leaf(self, tensor: Tensor, grad: Tensor) -> None:
        """Note how large the gradient is that arrived at a leaf."""
        found = measured(lambda x: magnitude_of(x, tensor), grad)
        if found is not None:
            try:
                value = self._record.leaf(tensor)
            except Exception:  # As for all that is recorded: the backward pass goes on.
                return
            self._sizes.of[value] = found
            self._sizes.at[value] = found.norm

    def _place(self, nodes: Sequence[Node]) -> None:
        """Put hooks at the nodes that a backward pass may run."""
        stack, seen = list(nodes), set(nodes)
        leaves: dict[int, Tensor] = {}
        differentiates = False
        while stack:
            node = stack.pop()
            if hasattr(node, "variable"):
                leaves[id(node.variable)] = node.variable
                self._at_end(node)
                continue
            values = self._record.values_at(node)
            if values:
                self._handles.append(node.register_prehook(self._hook(tuple(values.items()))))
            differentiates = differentiates or hasattr(node, "_forward_cls")
            for to, _ in node.next_functions:
                if to is not None and to not in seen:
                    seen.add(to)
                    stack.append(to)
        if differentiates:
            self._among_others(leaves)

    def _among_others(self, known: Mapping[int, Tensor]) -> None:
        """Measure at leaves that a function reaches which differentiates by itself, as a checkpoint does.

        It may bring several parts of a gradient to one leaf. Their sum is in its ``grad``, if that was empty.
        """
        leaves: list[Any] = [x for x in self._record.seen().values() if x.requires_grad]
        found = [x for x in leaves if id(x) not in known]
        self._handles += [x.register_hook(partial(self.at_leaf, x)) for x in found]
        if not self._goes_on:
            self._fresh = [x for x in leaves if x.grad is None]

    def _at_end(self, node: Node) -> None:
        """Measure what arrives at a leaf."""
        tensor = node.variable

        def measure(grads: Grads) -> None:
            if grads[0] is not None:
                self.at_leaf(tensor, grads[0])

        self._handles.append(node.register_prehook(measure))

    def _hook(self, values: Sequence[tuple[int, Value]]) -> Callable[[Grads], None]:
        at = self._sizes.at

        def measure(grads: Grads) -> None:
            for number, value in values:
                grad = grads[number] if number < len(grads) else None
                found = None if grad is None else measured(norm_of, grad)
                if found is not None:
                    at[value] = found

        return measure


def run_measured(
    record: Record, sizes: Sizes, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Call ``backward``, or ``torch.autograd.grad``, and measure the gradients."""
    if _functorch.peek_interpreter_stack() is not None:
        return function(*args, **kwargs)  # The tensors of torch.func have no numbers to be looked at.
    measuring = Measuring(record, sizes)
    with measuring.over(_tensors(args[:1] or [kwargs.get("tensors", kwargs.get("outputs"))])):
        result = function(*args, **kwargs)
    if result is not None:  # Of torch.autograd.grad.
        inputs = _tensors(args[1:2] or [kwargs.get("inputs")])
        for tensor, grad in zip(inputs, _tensors([result]), strict=False):
            if isinstance(grad, torch.Tensor) and node_of(tensor) is None:
                measuring.at_leaf(tensor, grad)
    return result


def _tensors(given: Sequence[Any]) -> list[Any]:
    """The tensors in an argument or result, one or several of them; others, such as None, in their places."""
    (some,) = given
    return list(
        some.values() if isinstance(some, dict) else some if isinstance(some, (list, tuple)) else [some]
    )


# ------------------------------------------------------------------------------------------- one tensor


def measured(function: Callable[[Tensor], Any], grad: Tensor) -> Any:
    """What a function finds of a gradient; None if that has no numbers to be looked at.

    No mode of the user's or of a watch sees it, and it leaves nothing in autograd's graph.
    """
    try:
        if type(grad) is torch.Tensor and not (
            torch.is_grad_enabled() or _C._len_torch_function_stack() or _C._len_torch_dispatch_stack()
        ):
            plain = _plain(grad)
            return None if plain is None else function(plain)
        with _C.DisableTorchFunction():
            plain = _plain(grad)
            if plain is None:
                return None
            with _C._DisableTorchDispatch(), torch.no_grad():
                return function(plain.detach())
    except Exception:  # A kind of tensor that lacks what is needed. The backward pass goes on.
        return None


def _plain(x: Tensor) -> Tensor | None:
    """A tensor's numbers, or those that this process has of it; None if there are none to be read."""
    if type(x) not in _PLAIN:
        x = getattr(x, "_local_tensor", x)  # Of a DTensor.
    if x.layout is not torch.strided or x.is_nested:
        x = x.coalesce().values() if x.layout is torch.sparse_coo else x.values()
    if type(x) not in _PLAIN or _functorch.is_functorch_wrapped_tensor(x) or x.is_meta:
        return None
    if x.numel() and not x.untyped_storage().nbytes():  # Given back, as ``fully_shard`` does with parameters.
        return None
    return None if x.is_cuda and torch.cuda.is_current_stream_capturing() else x


def norm_of(x: Tensor) -> float:
    """The Euclidean norm, also where the squares of elements are no numbers of their dtype."""
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else None
    found = float(torch.linalg.vector_norm(x, dtype=wide))
    if SAFE[0] < found < SAFE[1] or math.isnan(found) or not x.numel():
        return found
    sizes = x.abs().to(wide) if wide else x.abs()
    largest = float(sizes.max())
    return largest * float(torch.linalg.vector_norm(sizes / largest)) if 0 < largest < math.inf else largest


def magnitude_of(grad: Tensor, tensor: Tensor) -> Magnitude:
    """How large a gradient is that arrived at a tensor."""
    own = _plain(tensor)
    elements = grad.numel() if own is None else own.numel()
    norm = norm_of(grad)
    nans = infs = 0
    if not math.isfinite(norm):
        nans, infs = int(torch.isnan(grad).sum()), int(torch.isinf(grad).sum())
    zeros = elements - int(torch.count_nonzero(grad))
    return Magnitude(norm, elements, zeros, nans, infs, None if own is None else norm_of(own.detach()))
