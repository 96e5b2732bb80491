"""All facts of a training together: parameters, the optimizers that hold them, and who recorded what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from stopgrad.flow.flow_report import Flow
from stopgrad.flow.problems.problem import Site
from stopgrad.interop.torch.explaining.context import sites
from stopgrad.interop.torch.recording.record import Backward
from stopgrad.interop.torch.recording.recorder import Recorder
from stopgrad.interop.torch.training.audit import Audit
from stopgrad.interop.torch.training.certain import flow_of
from stopgrad.interop.torch.training.facts import Optimizer, Parameter
from stopgrad.interop.torch.training.measures import fingerprints, is_far

Tensor = torch.Tensor


class Facts:
    """The facts, and who recorded what.

    Attributes:
        audit: what was collected.
        parameters: those that live.
        stepping: the optimizers that have stepped, by their keys.
    """

    audit: Audit
    parameters: list[Parameter]
    stepping: dict[int, Optimizer]

    def __init__(self, audit: Audit, recorders: Sequence[Recorder]) -> None:
        self.audit, self._recorders = audit, recorders
        self.parameters = [p for p in audit.parameters.values() if p.tensor is not None]
        self.stepping = {key: optimizer for key, optimizer in audit.optimizers.items() if optimizer.steps}

    def trained(self) -> list[Parameter]:
        """The parameters that an optimizer holds which stepped after a backward pass."""
        return [p for p in self.parameters if p.steps and p.passes and p.holders & self.stepping.keys()]

    def by_optimizer(self, parameters: Iterable[Parameter]) -> Iterator[tuple[Optimizer, list[Parameter]]]:
        """Parameters with the optimizer that holds them."""
        groups: dict[int, list[Parameter]] = {}
        for p in parameters:
            key = next((key for key in self.stepping if key in p.holders), None)
            if key is not None:
                groups.setdefault(key, []).append(p)
        for key, members in groups.items():
            yield self.stepping[key], members

    def flow(self, call: Backward | None, parameters: Sequence[Parameter]) -> Flow | None:
        """The report on a backward pass and some parameters; None if it is not known any more."""
        if call is None:
            return None
        for p in self.parameters:
            if p.reached_by is call or p.call is call:
                recorder = p.reached_in if p.reached_by is call else p.call_in
                return flow_of(recorder, call, tensors_of(parameters))
        return None

    def pass_of(self, p: Parameter) -> Backward | None:
        """The backward pass that should have reached it: one that reached others of its optimizer."""
        for other in self.parameters:
            if other.holders & p.holders and other.reached_by is not None:
                return other.reached_by
        return p.call

    def made_at(self, p: Parameter) -> list[Site]:
        """The line that made a parameter, if that was recorded."""
        tensor = p.tensor
        for recorder in self._recorders:
            noted = None if tensor is None else recorder.memory.held(tensor)
            if noted is not None and noted.root is not None and noted.root.event.place is not None:
                return sites("made", "made here", noted.root.event.place)
        return []

    def has_moved_far(self, p: Parameter) -> bool:
        """Whether a parameter has moved by more than rounding would hide in a loss."""
        return is_far(p.start, p.samples[1])

    def name_of_module(self, part: torch.nn.Module) -> str:
        """The path of a module in the one that was called."""
        for title, root in self.audit.roots().items():
            for path, module in root.named_modules():
                if module is part:
                    return ".".join(filter(None, [title, path]))
        return ""

    def root_of(self, p: Parameter) -> str:
        """The module that holds a parameter and is part of no other, by name."""
        return next(
            (
                title
                for title, root in self.audit.roots().items()
                if any(tensor is p.tensor for tensor in root.parameters())
            ),
            p.name,
        )

    def cancels(self, p: Parameter) -> bool:
        """Whether a gradient is zero as a sum only: that of a bias beside a weight whose gradient is not."""
        owner = None if p.owner is None else p.owner()
        if owner is None or getattr(owner, "bias", None) is not p.tensor:
            return False
        beside = [self.audit.parameters.get(id(tensor)) for tensor in owner.parameters()]
        return any(other is not None and other.arrived > 0 and not other.dead for other in beside)

    def has_changed(self, p: Parameter) -> bool:
        """Whether a parameter's values are others than at the beginning."""
        tensor = p.tensor
        if tensor is None or p.first is None:
            return p.moved > 0
        return fingerprints([tensor])[0] != p.first


def tensors_of(parameters: Iterable[Parameter]) -> dict[str, Tensor]:
    """Parameters by name."""
    return {p.name: tensor for p in parameters if (tensor := p.tensor) is not None}
