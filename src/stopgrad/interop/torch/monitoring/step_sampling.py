"""How a step of PyTorch is sampled: watched as a whole; in its forward alone; or only where gradients arrive.

Each way is begun and ended, and then gives the verdicts of the backward passes in between. Whatever happens,
an end, or the end of the forward, leaves nothing of it behind.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch

from stopgrad.flow.magnitudes.magnitude import Magnitude
from stopgrad.flow.magnitudes.troubles import NOT_FINITE, ZERO
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.autograd_nodes import node_of
from stopgrad.interop.torch.recording.call_tensors import tensors_in
from stopgrad.interop.torch.recording.measuring import Arrival, Measuring, measured, norm_of
from stopgrad.interop.torch.recording.record import Backward, Sizes
from stopgrad.interop.torch.watching import Watch, explained
from stopgrad.train.monitoring.verdicts import ARRIVES, NOTHING, Verdict, Verdicts, verdicts_of

Tensor = torch.Tensor
Parameters = Mapping[str, Tensor]

EXPLAINED = 8
"""The most backward passes of a step that are explained; of further ones, only the numbers count."""


class Sampling(Protocol):
    """A way to sample a step."""

    def begin(self) -> None:
        """Begin before the step."""

    def end(self) -> None:
        """End after the step, or after its failure."""

    def verdicts(self, parameters: Parameters) -> Iterator[Verdicts]:
        """The verdicts on parameters that require gradients, for each backward pass that was seen."""


def by_numbers(magnitudes: Mapping[str, Magnitude], names: Iterator[str]) -> dict[str, Verdict]:
    """Verdicts of which only the numbers that arrived are known."""
    return {name: _verdict(magnitudes.get(name)) for name in names}


def _verdict(magnitude: Magnitude | None) -> Verdict:
    if magnitude is None:
        return Verdict(NOTHING)
    state = NOT_FINITE if not magnitude.is_finite else ZERO if magnitude.is_zero else ARRIVES
    return Verdict(state, "", magnitude)


class WholeStep:
    """A watch around the step."""

    def __init__(self) -> None:
        self._seen = Watch()

    def begin(self) -> None:
        self._seen.__enter__()

    def end(self) -> None:
        self._seen.__exit__(None, None, None)

    def verdicts(self, parameters: Parameters) -> Iterator[Verdicts]:
        calls = self._seen.backward_calls
        calls = [call for call in calls if call.kind == "backward"] or calls
        for call in calls[:EXPLAINED]:
            yield verdicts_of(call.explain(parameters))
        for call in calls[EXPLAINED:]:
            yield by_numbers(call.magnitudes(parameters), iter(parameters))


class ArrivalsOnly:
    """Hooks at the parameters for the time of the step: for compiled code, which a watch would run otherwise.

    Args:
        parameters: those that require gradients.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._of: dict[str, Magnitude] = {}
        self._handles: list[Any] = []

    def begin(self) -> None:
        for name, tensor in self._parameters.items():
            leaf: Any = tensor
            self._handles.append(leaf.register_hook(self._hook(name, tensor)))

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _hook(self, name: str, tensor: Tensor) -> Callable[[Tensor], None]:
        magnitudes = self._of

        def measure(grad: Tensor) -> None:
            norm = measured(norm_of, grad)
            if norm is None:
                return
            magnitude, largest = Arrival(tensor, grad, norm).magnitude(), magnitudes.get(name)
            if largest is None or magnitude.norm > largest.norm or not magnitude.is_finite:
                magnitudes[name] = magnitude

        return measure

    def verdicts(self, parameters: Parameters) -> Iterator[Verdicts]:
        if self._of:
            yield by_numbers(self._of, iter(parameters))


class ForwardAlone:
    """A watch in the next forward of a module, and hooks in the graph that it leaves.

    For trainers that call no one when they fail: nothing global is changed outside of the forward, and the
    hooks are gone when the graph is.

    Args:
        model: the module that is called.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._seen: Watch | None = None
        self._sizes = Sizes()
        self._measuring: Measuring | None = None
        self._outputs: list[Any] = []

    def begin(self) -> None:
        model: Any = self._model
        original = model.forward
        own = model.__dict__.get("forward")

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._restore()
            with Watch() as seen:
                result = original(*args, **kwargs)
            self._follow(seen, result)
            return result

        self._forward, self._own = forward, own
        model.forward = forward

    def _restore(self) -> None:
        """Let the module be as it was."""
        model: Any = self._model
        if model.__dict__.get("forward") is self._forward:
            if self._own is None:
                del model.forward
            else:
                model.forward = self._own

    def _follow(self, seen: Watch, result: object) -> None:
        """Put hooks where gradients will arrive, if the results lead there."""
        tensors = [x for x in tensors_in(result) if node_of(x) is not None]
        if tensors:
            self._seen = seen
            self._outputs = [seen._recorder.loss(tensor) for tensor in tensors]
            self._measuring = Measuring(seen._recorder, self._sizes, goes_on=True)
            self._measuring.begin(tensors)

    def end(self) -> None:
        self._restore()
        if self._measuring is not None:
            self._measuring.end()

    def verdicts(self, parameters: Parameters) -> Iterator[Verdicts]:
        if self._seen is None:
            return
        reached = [value for value in self._outputs if value in self._sizes.at]
        if not reached:  # What the module returned has no part in what was differentiated.
            yield by_numbers({}, iter(parameters))
            return
        call = Backward("backward", tuple(reached), None, self._sizes)
        with internals.DisableTorchFunction():
            yield verdicts_of(
                explained("monitor", self._seen._recorder, reached, dict(parameters), None, call)
            )


def is_compiled(model: Any) -> bool:
    """Whether a module, or a part of it, is compiled by ``torch.compile``."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    return any(internals.is_compiled_itself(part) for part in modules)
