"""What the ``backward`` of a user's ``autograd.Function`` does with gradients, which its edges do not show.

It may return None for an input, which is a wall. And it may compute again what its forward did, and call
``backward`` on that, as reversible networks do: gradients then arrive at what the forward used besides its
arguments. A backward pass shows both; if none has run, the function's ``backward`` is tried with zeros.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.effects_on_gradients import Act, call_of
from stopgrad.interop.torch.recording.record import Event, Value

Node = Any  # torch.autograd.graph.Node, which PyTorch annotates with a method for its metadata, a dict.
Tensor = torch.Tensor
NOT_DIFFERENTIABLE = "not differentiable"
_Bytes: Any = torch.UntypedStorage

_AFTER = list(inspect.signature(torch.autograd.grad).parameters)[3:]
"""What ``torch.autograd.grad`` takes after the outputs, the inputs, and the gradients of the outputs."""


class Returned:
    """The event of a user's function; its first *asked* inputs are those that the node's edges lead to."""

    __slots__ = ("_inputs", "_passed", "_returned", "asked", "edges", "event", "others")

    event: Event
    edges: tuple[Value | None, ...]
    asked: int
    others: tuple[tuple[int, str, str], ...]

    def __init__(self, event: Event, edges: Sequence[Value | None], asked: int) -> None:
        self.event, self.edges, self.asked = event, tuple(edges), asked
        self._inputs, self.others = event.inputs, event.walls
        self._returned: Sequence[bool] | None = None
        self._passed: dict[Value, None] = {}

    @property
    def is_known(self) -> bool:
        """Whether it was seen what the function's backward does."""
        return self._returned is not None

    def note(self, returned: Sequence[bool]) -> None:
        """Note for which of its edges the function returned a gradient."""
        self._returned = returned
        self._settle()

    def passes(self, values: Sequence[Value]) -> None:
        """Note values to which the function sends gradients by a ``backward`` of its own."""
        self._passed |= dict.fromkeys(values)
        self._settle()

    def _settle(self) -> None:
        """Make the inputs and walls of the event those that are known now."""
        inputs, open = list(dict.fromkeys([*self._inputs, *self._passed])), set(self._passed)
        walls = [wall for wall in self.others if inputs[wall[0]] not in open]
        if self._returned is not None:
            edges = [
                (value, is_returned)
                for value, is_returned in zip(self.edges, self._returned, strict=True)
                if value
            ]
            receiving = {value for value, passes in edges if passes}
            reason = f"{self.event.call}.backward returns None for it"
            blocked = [i for i in range(self.asked) if inputs[i] not in open | receiving]
            # What was passed twice may get a gradient from one of its places, and none from the other.
            twice = dict.fromkeys([value for value, some in edges if not some and value in receiving - open])
            blocked += range(len(inputs), len(inputs) + len(twice))
            inputs += twice
            walls += [(i, NOT_DIFFERENTIABLE, reason) for i in blocked]
        self.event.inputs, self.event.walls = tuple(inputs), tuple(walls)

    def watch(self, node: Node, seen: Seen) -> None:
        """Note what the function's backward does, whenever it runs.

        Args:
            seen: is told what the function itself differentiates.
        """
        inside: Any = Backwards(seen)

        def before(_: Sequence[torch.Tensor | None]) -> None:
            inside.__enter__()  # If the backward raises, autograd itself restores the modes.

        def after(grads: Sequence[torch.Tensor | None], _: object) -> None:
            inside.__exit__(None, None, None)
            if len(grads) == len(self.edges):
                self.note([grad is not None for grad in grads])

        node.register_prehook(before)
        node.register_hook(after)


class Backwards(TorchFunctionMode):
    """Sees the calls of ``backward`` that the ``backward`` of users' functions make.

    Args:
        seen: called with the node of such a function, the tensors that it differentiates, and this object.

    Attributes:
        is_trial: whether the functions are only tried, and nothing is differentiated.
    """

    is_trial = False

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self._seen = seen
        self._leaves: dict[int, weakref.ref[Tensor]] = {}

    def made_leaf(self, leaf: Tensor) -> bool:
        """Whether a tensor was made a leaf inside of the function's backward."""
        ref = self._leaves.get(id(leaf))
        return ref is not None and ref() is leaf

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        act = call_of(func).act
        if act is Act.REQUIRE:
            self._leaves[id(args[0])] = weakref.ref(args[0])
        if act is not Act.BACKWARD:
            return func(*args, **kwargs)
        losses = self.losses(args, kwargs)
        for node in _functions_around():
            self._seen(node, losses, self)
        return self.differentiate(func, args, kwargs)

    @staticmethod
    def losses(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
        """What a call of ``backward`` differentiates."""
        losses = next(iter([*args, *kwargs.values()]), ())
        listed = losses if isinstance(losses, (list, tuple)) else [losses]
        return [x for x in listed if isinstance(x, torch.Tensor) and x.grad_fn is not None]

    def differentiate(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a call of ``backward``."""
        return function(*args, **kwargs)


Seen = Callable[[Node, Sequence[Tensor], Backwards], None]


def _functions_around() -> Iterator[Node]:
    """The nodes of the users' functions whose ``backward`` is being run, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in internals.backward_codes:
            yield frame.f_locals["self"]
        frame = frame.f_back


class _Trial(Backwards):
    """A trial of a function's ``backward``: what that would differentiate is seen, and not differentiated.

    The leaves that it would reach have gradients of zero until the trial ends. What it writes into, such as
    the tensors that its forward saved, is then what it was.
    """

    is_trial = True

    def __enter__(self) -> Self:
        self._grads: list[tuple[Tensor, Tensor | None]] = []
        self._written: list[_Memory] = []
        self._versions = ExitStack()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *failure: object) -> None:
        super().__exit__(*failure)  # type: ignore[no-untyped-call]
        for leaf, grad in reversed(self._grads):
            leaf.grad = grad
        with internals.DisableTorchFunction(), torch.no_grad(), self._versions:
            for memory in reversed(self._written):
                memory.restore()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        with internals.DisableTorchFunction():  # No watch that is running sees it.
            kwargs = kwargs or {}
            for tensor in _written_by(func, args, kwargs):
                self._versions.enter_context(internals.preserve_version(tensor))
                self._written.append(_Memory(tensor))
            if call_of(func).act is Act.GRAD:  # A graph that the forward kept is needed once more.
                args, kwargs = args[:3], {**dict(zip(_AFTER, args[3:], strict=False)), **kwargs}
                kwargs["retain_graph"] = True
            return super().__torch_function__(func, types, args, kwargs)

    def differentiate(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        for leaf in _leaves(self.losses(args, kwargs)):
            self._grads.append((leaf, leaf.grad))
            leaf.grad = torch.zeros_like(leaf)


class _Memory:
    """A tensor's memory, as it is now."""

    __slots__ = ("bytes", "content", "size", "tensor", "view")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.bytes = tensor, tensor.untyped_storage()
        self.view = tensor.storage_offset(), tensor.size(), tensor.stride()
        self.size = self.bytes.nbytes()
        self.content: Any = _Bytes(self.size).copy_(self.bytes) if self.size else None

    def restore(self) -> None:
        """Make the tensor what it was, with the same memory."""
        now = self.tensor.untyped_storage()
        if internals.memory_id(now) != internals.memory_id(self.bytes):
            self.bytes.resize_(max(self.size, now.nbytes()))  # A tensor is given no memory that is too small.
            self.tensor.set_(self.bytes, *self.view)
        self.bytes.resize_(self.size)
        if self.content is not None:
            self.bytes.copy_(self.content)


def _written_by(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that a call writes into, or whose memory it hands out."""
    call, written = call_of(function), [kwargs.get("out")]
    if (call.writes or call.apart or call.name.endswith("storage")) and args:
        written.append(args[0])
    each = [
        x for argument in written for x in (argument if isinstance(argument, (list, tuple)) else [argument])
    ]
    dense = [x for x in each if isinstance(x, torch.Tensor) and x.layout is torch.strided]
    return [x for x in dense if not x.is_inference()]


def _leaves(losses: Sequence[Tensor]) -> list[Tensor]:
    """The leaves that a backward pass would reach."""
    stack: list[Node] = [loss.grad_fn for loss in losses]
    leaves, seen = [], set(stack)
    while stack:
        node = stack.pop()
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        fresh = {to for to, _ in node.next_functions if to is not None} - seen
        seen |= fresh
        stack.extend(fresh)
    return leaves


def returned_for_zeros(node: Node, seen: Seen) -> list[bool]:
    """For which edges a node's ``backward`` returns a gradient, tried with zeros.

    Args:
        seen: is told what the function itself would differentiate.

    Raises:
        Exception: whatever the user's code raises.
    """
    cuda: Any = torch.cuda
    generators = range(cuda.device_count()) if cuda.is_initialized() else ()
    zeros = [
        torch.zeros([int(n) for n in about.shape], dtype=about.dtype, device=about.device)
        for about in internals.results_of(node)
    ]
    notes: dict[str, Any] = node.__dict__
    noted = {name: x.copy() if isinstance(x, (list, dict)) else x for name, x in notes.items()}
    try:
        with (
            torch.random.fork_rng(generators),
            internals.EnableTorchFunction(),
            _Trial(seen),
            torch.no_grad(),
        ):
            gradients = node.apply(*zeros)
    finally:
        notes.clear()
        notes.update(noted)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    needed = iter(
        [grad is not None for grad, need in zip(gradients, node.needs_input_grad, strict=True) if need]
    )
    return [to is not None and next(needed) for to, _ in node.next_functions]
