"""Watches eager PyTorch code: which gradients it lets pass, and at which lines it cuts them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

import torch

from stopgrad.base.coercion import flag
from stopgrad.base.garbage import without_gc
from stopgrad.base.source import Location, decode
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.magnitude import Magnitude
from stopgrad.graph.public import guarded
from stopgrad.interop.shared.lifetimes import Lifetime
from stopgrad.interop.shared.watching import WatchBlock
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.differentiating import differentiated
from stopgrad.interop.torch.explaining.error_explanations import explain
from stopgrad.interop.torch.questions import (
    Asked,
    Loss,
    Names,
    chosen,
    holds_optimizer,
    losses_in,
    modules_in,
    named_tensors,
)
from stopgrad.interop.torch.recording import switches
from stopgrad.interop.torch.recording.graphs import report_of
from stopgrad.interop.torch.recording.record import Backward, Value, transformed_loss
from stopgrad.interop.torch.recording.recorder import Recorder
from stopgrad.interop.torch.recording.sharded import whole_parameters

Tensor = torch.Tensor


RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()
"""The recorders of the watches that are still held; a loss finds its own among them."""


class BackwardCall:
    """A call of ``backward`` or ``torch.autograd.grad``, or of what calls that, such as ``torch.func.grad``.

    Attributes:
        kind: ``"backward"`` or ``"grad"``.
        losses: what was differentiated, as it was recorded.
    """

    kind: str
    losses: tuple[Value, ...]

    def __init__(self, recorder: Recorder, call: Backward) -> None:
        self.kind, self.losses = call.kind, call.losses
        self._recorder, self._call = recorder, call

    @property
    def location(self) -> Location | None:
        """The line that called it."""
        return None if self._call.place is None else decode(self._call.place)

    def explain(self, xs: Asked | None = None, *, only: Names | None = None) -> Flow:
        """Whether gradients of the call's losses arrive; see :meth:`Watch.explain`.

        The arguments of a function of ``torch.func`` get a gradient whether or not they require one.
        """
        with internals.DisableTorchFunction():
            return explained("explain", self._recorder, self.losses, xs, only, self._call)

    def magnitudes(self, xs: Mapping[str, Tensor]) -> dict[str, Magnitude]:
        """How large the gradients are that arrived at leaves, by their names, as far as it was measured."""
        by_leaf = self._call.sizes.of
        with internals.DisableTorchFunction():
            values = {name: self._recorder.target(tensor).value for name, tensor in xs.items()}
        return {name: by_leaf[value].magnitude() for name, value in values.items() if value in by_leaf}

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.location}>"


class Watch(WatchBlock):
    """What :func:`watch` returns: a context manager, and afterwards what it saw.

    Attributes:
        backward_calls: the calls of ``backward``, ``torch.autograd.grad`` and the functions of ``torch.func``
            that call it, in order.
    """

    maker = "sgt.watch()"

    def __init__(self) -> None:
        super().__init__()
        self._recorder = Recorder()
        self._recorder.explain = explain

    def _start_recording(self, lifetime: Lifetime) -> None:
        self._recorder.begin()
        RECORDERS.add(self._recorder)
        switches.begin(self._recorder, lifetime)

    @property
    def backward_calls(self) -> Sequence[BackwardCall]:
        return tuple([BackwardCall(self._recorder, call) for call in self._recorder.backwards])

    @guarded("explain")
    def explain(
        self, loss: Loss, xs: Asked | None = None, *, only: Names | None = None, magnitudes: bool = False
    ) -> Flow:
        """Whether gradients of a loss made inside arrive, and if not, which lines cut them.

        If ``backward`` or ``torch.autograd.grad`` was called on it inside, the report also tells how large
        the gradients were.

        Args:
            loss: a tensor, or a dict or list of tensors, that the watched code made.
            xs: a module (its parameters, by their names), an optimizer, a tensor, or a dict or list of these;
                unless given, every leaf that requires a gradient and every parameter of the modules seen.
            only: a pattern, or patterns, of names: ``"encoder.*"``.
            magnitudes: whether to differentiate the loss, if that was not done inside, to tell how large the
                gradients are. They go through the tensors' hooks, but into no ``grad``.

        Returns:
            A :class:`stopgrad.flow.flow_report.Flow`, whose keys are names.

        Raises:
            ArgumentError: what is asked about is no tensor.
            GraphError: the loss was not made inside.
        """
        with internals.DisableTorchFunction():
            losses = losses_in("explain", loss)
            values = [self._recorder.loss(tensor) for tensor in losses]
            roots = losses if flag(magnitudes, "explain: magnitudes") else ()
            return explained("explain", self._recorder, values, xs, only, differentiate=roots)


def explained(
    what: str,
    recorder: Recorder,
    losses: Sequence[Value],
    xs: Asked | None,
    only: Names | None,
    call: Backward | None = None,
    differentiate: Sequence[Tensor] = (),
) -> Flow:
    """A recorder's report on losses, or on those of a backward pass.

    Args:
        differentiate: the losses themselves, if they are to be differentiated where they have not been.
    """
    tensors = recorder.seen() if xs is None else named_tensors(what, xs)
    whole = whole_parameters([*recorder.modules, *modules_in(xs)])
    asked = {name: whole.get(id(tensor), tensor) for name, tensor in chosen(what, tensors, only).items()}
    targets = {name: recorder.target(tensor) for name, tensor in asked.items()}
    departures, optimized = recorder.departures.remembered(), holds_optimizer(xs)
    arguments = {} if call is None else dict(call.arguments)
    targets = {name: x._replace(argument=x.value in arguments) for name, x in targets.items()}
    sizes = recorder.sizes(losses) if call is None else call.sizes
    if sizes is None and differentiate:
        sizes = differentiated(recorder, differentiate, asked.values())
    flow = without_gc(report_of, losses, targets, departures, optimized, recorder.lost, sizes)
    if call is None or all(
        flow[key].arrives is arguments[x.value] for key, x in targets.items() if x.argument
    ):
        return flow
    # Of functions of torch.func, less is recorded than their own autograd knows.
    return without_gc(report_of, [transformed_loss(call)], targets, (), optimized, recorder.lost)


@guarded("watch")
def watch() -> Watch:
    """Watch PyTorch code: inside, every operation is recorded with the line that called it.

    Values and gradients are the same as without it. The record keeps no tensor alive.

    Returns:
        A context manager for a :class:`Watch`, whose ``explain`` says afterwards which gradients arrive.

    Examples:
        >>> import torch
        >>> import stopgrad.torch as sgt
        >>> w = torch.ones(3, requires_grad=True)
        >>> with sgt.watch() as seen:
        ...     loss = (w.detach() * 2.0).sum()
        >>> seen.explain(loss, {"w": w})["w"].status
        'stopped'
    """
    return Watch()
