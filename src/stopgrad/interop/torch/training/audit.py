"""Collects the facts of a training while its steps are recorded, and a few between them."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from stopgrad.base.source import RawLocation
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.explaining.context import variable_of
from stopgrad.interop.torch.recording import switches
from stopgrad.interop.torch.recording.observed import STEP
from stopgrad.interop.torch.recording.places import place_of, user_frame
from stopgrad.interop.torch.recording.record import Backward
from stopgrad.interop.torch.recording.recorder import Recorder
from stopgrad.interop.torch.training import certain, measures
from stopgrad.interop.torch.training.facts import Module, Optimizer, Parameter
from stopgrad.interop.torch.training.keras_steps import Stepper
from stopgrad.interop.torch.training.loss_facts import Losses
from stopgrad.interop.torch.training.parameter_names import container_of, named, variable_in

Tensor = torch.Tensor
MOST = 100_000
"""The most parameters that are followed."""
PASSES = 100
"""Without a step of any optimizer, so many backward passes are recorded."""
KEPT = 16
"""The backward passes that a recorder keeps."""
MANY = 20
"""The most findings that are made while the training runs."""
POINTS = 1000
"""The most steps of which norms are noted."""
WATCHED = 32
"""The most parameters that are looked at between recorded steps, because they may become a finding."""
F = TypeVar("F", bound=Callable[..., None])


def _quietly(method: F) -> F:
    """Whatever fails in the audit, the training goes on."""

    @functools.wraps(method)
    def quiet(self: Audit, *args: Any) -> None:
        if self.busy:
            return
        self.busy = True
        try:
            with internals.DisableTorchFunction():
                method(self, *args)
        except Exception as error:
            self.unknown[f"{method.__name__} failed ({type(error).__name__}: {error})"] = None
        finally:
            self.busy = False

    return quiet  # type: ignore[return-value]


class Audit:
    """What is known of a training.

    Attributes:
        recorder: records the present step; None between recorded steps.
        parameters, optimizers, modules: the facts, by the identity of what they are about.
        problems: findings that were certain while the training ran.
        losses: the facts about the losses.
        unknown: what could not be found out.
    """

    losses: Losses
    passes: int
    differs: bool

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.parameters: dict[int, Parameter] = {}
        self.optimizers: dict[int, Optimizer] = {}
        self.modules: dict[int, Module] = {}
        self.problems: list[Problem] = []
        self.losses = Losses()
        self.unknown: dict[str, None] = {}
        self.busy = False
        self.passes = self.steps = 0
        self._before: dict[int, tuple[int, int] | None] = {}
        self._suspects: list[Parameter] = []
        self._broke = False
        self._alive: list[Any] = []  # What was met in the first steps, which lives until it is judged.
        self.keeps = True
        self.norms: dict[str, list[tuple[int, float]]] = {}
        self.differs = False

    # ------------------------------------------------------------------------- told by the recorder

    @_quietly
    def called(self, module: torch.nn.Module) -> None:
        """A module is called."""
        facts = self.modules.get(id(module))
        if facts is None or facts.ref() is not module:
            frame = user_frame(sys._getframe(2))
            facts = Module(module, variable_in(module, frame), place_of(frame))
            self.modules[id(module)] = facts
            self._keep(module)
        if torch.is_grad_enabled():
            facts.with_gradients += 1
        else:
            facts.without += 1

    @_quietly
    def made(self, optimizer: Stepper, place: RawLocation | None) -> None:
        """An optimizer was made."""
        self.optimizers[id(optimizer)] = Optimizer(optimizer, place)
        self._keep(optimizer)

    @_quietly
    def begins(self, call: Backward, losses: Sequence[Tensor]) -> None:
        """A backward pass begins: what is in ``grad`` already?"""
        self._meet()
        self._before = {}
        for key, parameter in self.parameters.items():
            tensor = parameter.tensor
            if tensor is None:
                continue
            grad = tensor.grad
            self._before[key] = measures.state_of(grad)
            if measures.state_of(grad) != parameter.old:  # Made zero, or made smaller by hand.
                parameter.old = None
            if parameter.since_step and not parameter.is_same_gradient(grad, parameter.arrival):
                parameter.dropped += 1
                parameter.since_step = False
        self.losses.begins(call, losses)

    @_quietly
    def ended(self, call: Backward) -> None:
        """A backward pass has ended: where did gradients arrive?"""
        if call.kind != "backward":
            return
        self.passes += 1
        for key, parameter in self.parameters.items():
            tensor = parameter.tensor
            if tensor is None or key not in self._before:
                continue
            parameter.passes += 1
            parameter.call, parameter.call_in = call, self.recorder
            parameter.required = bool(tensor.requires_grad)
            state = measures.state_of(tensor.grad)
            if state is None or state == self._before[key]:
                continue
            parameter.old = state if parameter.old is not None else None
            norm = self._norm(call, tensor)
            parameter.arrived += 1
            parameter.zeros += norm == 0.0
            parameter.dead = parameter.dead + 1 if norm == 0.0 else 0
            parameter.dead_from = parameter.dead_from if parameter.dead > 1 else self.steps + 1
            parameter.norm = norm
            if parameter.first is None and not parameter.holders:
                (parameter.first,) = measures.fingerprints([tensor])
            parameter.arrival, parameter.since_step = state, True
            parameter.reached_by, parameter.reached_in = call, self.recorder
            parameter.cleared_at = None
        self.losses.ended(call, lambda: self._explained(call))
        if self.recorder is not None:
            del self.recorder.backwards[:-KEPT]
            if self.passes == PASSES and not self.steps:
                switches.rest(self.recorder)

    def _explained(self, call: Backward) -> Flow:
        """The report on a backward pass, with respect to all parameters."""
        assert self.recorder is not None
        pairs = [(parameter.name, parameter.tensor) for parameter in self.parameters.values()]
        trained = {name: x for name, x in pairs if x is not None and x.requires_grad}
        return certain.flow_of(self.recorder, call, trained)

    def _look_for_old(self, parameter: Parameter, tensor: Tensor) -> None:
        """Whether what a step has used is still in a gradient: the same tensor, which nobody made zero."""
        if parameter.old is None or measures.state_of(tensor.grad) == parameter.old:
            return
        same = tensor.grad is not None and id(tensor.grad) == parameter.old[0]
        parameter.old = (
            measures.state_of(tensor.grad) if same and measures.gradient_norms([tensor])[0] else None
        )

    def _norm(self, call: Backward, tensor: Tensor) -> float:
        """The norm of the gradient that a pass brought to a parameter."""
        assert self.recorder is not None
        value = self.recorder.target(tensor).value
        norm = call.sizes.at.get(value)
        return norm if norm is not None else measures.gradient_norms([tensor])[0] or 0.0

    @_quietly
    def gradient(self, tensor: Tensor, sets: bool, place: RawLocation | None) -> None:
        """The ``grad`` of a tensor is set, or read."""
        facts = self.parameters.get(id(tensor))
        if sets and facts is not None:
            facts.cleared_at = place
        elif not sets and not tensor.is_leaf and not tensor.retains_grad and place is not None:
            value = None if self.recorder is None else self.recorder.target(tensor).value
            if value is not None and value.event.place is not None and len(self.problems) < MANY:
                self.problems.append(certain.read_of_non_leaf(value, place))

    @_quietly
    def classified(self, name: str, args: Sequence[Any], place: RawLocation | None) -> None:
        """A loss that leaves classes out was computed."""
        self.losses.classified(name, args, place)

    # --------------------------------------------------------------------------- told by optimizers

    @_quietly
    def before_step(self, optimizer: Stepper) -> None:
        """An optimizer is about to step: is the gradient that arrived still there?"""
        facts = self._facts_of(optimizer)
        self._meet()
        pairs = self._parameters_of(optimizer)
        norms = measures.gradient_norms([tensor for _, tensor in pairs])
        prints = measures.fingerprints([tensor for _, tensor in pairs])
        for (parameter, tensor), norm, before in zip(pairs, norms, prints, strict=True):
            parameter.first = before if parameter.first is None else parameter.first
            parameter.followed += parameter.last is not None and before is not None
            replaced = parameter.last is not None and before is not None and before != parameter.last
            sample = measures.sample_of(tensor)
            if replaced:
                parameter.written_at = self._writer(tensor)
                parameter.put_back += measures.is_undone(parameter.samples, sample)
            parameter.samples = sample, sample
            parameter.start = sample if parameter.start is None else parameter.start
            if parameter.since_step and parameter.norm > 0.0:
                changed = not parameter.is_same_gradient(tensor.grad, parameter.arrival)
                parameter.cleared += changed and (
                    norm is None or (norm == 0.0 and self._was_cleared(parameter, tensor))
                )
                parameter.clipped += changed and norm == 0.0 and not self._was_cleared(parameter, tensor)
                if changed and parameter.cleared_at is None and tensor.grad is not None:
                    parameter.cleared_at = self._writer(tensor.grad)
            parameter.before = before
            parameter.given += norm is not None and not parameter.since_step
            is_old = norm is not None and measures.state_of(tensor.grad) == parameter.old
            parameter.used_twice += is_old and not parameter.since_step and parameter.stepper != id(optimizer)
            parameter.stepped_by = norm or 0.0
            self._look_for_old(parameter, tensor)
            parameter.used += parameter.since_step and parameter.follows
            parameter.kept += parameter.since_step and parameter.old is not None
            parameter.since_step = False
            if norm is not None and not measures.is_finite(norm):
                self._breaks(parameter, tensor, optimizer)
        self._note_norms([parameter for parameter, _ in pairs], norms)
        facts.rate = max([float(group.get("lr", 1.0)) for group in optimizer.param_groups], default=1.0)
        facts.idle_steps += facts.rate == 0.0

    @_quietly
    def after_step(self, optimizer: Stepper, place: RawLocation | None) -> None:
        """An optimizer has stepped: what moved?"""
        facts = self._facts_of(optimizer)
        facts.stepped, facts.steps = place, facts.steps + 1
        facts.required = self._required(optimizer)
        pairs = self._parameters_of(optimizer)
        prints = measures.fingerprints([tensor for _, tensor in pairs])
        for (parameter, tensor), after in zip(pairs, prints, strict=True):
            parameter.steps += 1
            moved = after is not None and parameter.before is not None and after != parameter.before
            parameter.moved += moved
            parameter.frozen_moves += moved and not tensor.requires_grad
            parameter.still += not moved and parameter.stepped_by > 0.0
            parameter.last = after
            parameter.samples = parameter.samples[0], measures.sample_of(tensor)
            parameter.old, parameter.since_step = measures.state_of(tensor.grad), False
            parameter.holders.add(id(optimizer))
            parameter.stepper, parameter.follows = id(optimizer), True
        for module in list(self.modules.values()):
            self._statistics(module)

    def _note_norms(self, held: Sequence[Parameter], norms: Sequence[float | None]) -> None:
        """Note the norms of the gradients of layers, each of all its parameters."""
        squares: dict[str, float] = {}
        for parameter, norm in zip(held, norms, strict=True):
            if norm is not None and measures.is_finite(norm):
                layer = parameter.name.rpartition(".")[0] or parameter.name
                squares[layer] = squares.get(layer, 0.0) + norm**2
        for layer, square in squares.items():
            points = self.norms.setdefault(layer, [])
            if len(points) < POINTS:
                points.append((self.steps + 1, math.sqrt(square)))

    def _breaks(self, parameter: Parameter, tensor: Tensor, optimizer: Stepper) -> None:
        """An optimizer is about to step by a gradient that is no number."""
        if not self._broke and self.recorder is not None and parameter.reached_by is not None:
            self._broke = True
            bad = {
                other.name: x
                for other, x in self._parameters_of(optimizer)
                if x.grad is not None and not bool(torch.isfinite(x.grad).all())
            }
            self.problems.append(certain.not_finite(self.recorder, parameter.reached_by, bad, self.steps + 1))

    def _was_cleared(self, parameter: Parameter, tensor: Tensor) -> bool:
        """Whether a gradient was set to zero as such, rather than multiplied by it."""
        if parameter.cleared_at is not None or self.recorder is None or tensor.grad is None:
            return True
        store = self.recorder.memory.store(tensor.grad)
        writes = () if store is None else store.writes
        return not writes or "zero_" in writes[-1].call or "fill_" in writes[-1].call

    def _writer(self, tensor: Tensor) -> RawLocation | None:
        """The line that wrote last into a tensor, other than a step of an optimizer."""
        store = None if self.recorder is None else self.recorder.memory.store(tensor)
        writes = [] if store is None else [write for write in store.writes if write.call != STEP]
        return writes[-1].place if writes else None

    def _statistics(self, module: Module) -> None:
        """Whether the running statistics of a normalisation moved."""
        layer = module.ref()
        mean = getattr(layer, "running_mean", None)
        if layer is not None and isinstance(mean, Tensor) and layer.training:
            weight = getattr(layer, "weight", None)
            now, weight_print = measures.fingerprints([mean, weight if isinstance(weight, Tensor) else mean])
            module.moving += module.statistics is not None and now != module.statistics
            module.follows += (
                module.statistics is not None and weight is not None and weight_print != module.weight
            )
            module.statistics, module.weight = now, weight_print

    # -------------------------------------------------------------------------- between recorded steps

    def resume(self) -> None:
        """Steps were not recorded: what was seen before is not what the next step is compared with."""
        for parameter in self.parameters.values():
            parameter.old = parameter.arrival = parameter.last = parameter.before = None
            parameter.since_step = parameter.follows = False

    def suspect(self) -> None:
        """Note what may become a finding, to look at it until the training ends."""
        few = [
            parameter
            for parameter in self.parameters.values()
            if parameter.is_suspect and parameter.tensor is not None
        ]
        self._suspects = few[:WATCHED]

    @_quietly
    def look(self, optimizer: Stepper) -> None:
        """Look at what may become a finding before a step that is not recorded."""
        facts = self._facts_of(optimizer)
        facts.all_steps += 1
        self.differs = self.differs or facts.required != self._required(optimizer)
        self._listen(optimizer)
        if facts.steps and facts.steps == facts.idle_steps:
            facts.idle_steps -= any(group.get("lr", 1.0) != 0 for group in optimizer.param_groups)
        for parameter in self._suspects:
            grad = None if parameter.tensor is None else parameter.tensor.grad
            if grad is not None and (parameter.dead or not parameter.arrived) and bool(grad.any()):
                parameter.arrived, parameter.dead = parameter.arrived + 1, 0
        self._suspects = [parameter for parameter in self._suspects if parameter.is_suspect]

    def _listen(self, optimizer: Stepper) -> None:
        """Look at the smallest gradient: where one is no number, most become none."""
        if self._broke:
            return
        tensors = [x for group in optimizer.param_groups for x in group["params"] if x.grad is not None]
        smallest = min(tensors, key=Tensor.numel, default=None)
        if smallest is not None and not measures.is_finite(measures.gradient_norms([smallest])[0]):
            self._broke = True
            self.problems.append(certain.not_finite_unseen(self.steps + 1))

    @staticmethod
    def _required(optimizer: Stepper) -> tuple[bool, ...]:
        """Which of an optimizer's parameters require a gradient."""
        return tuple([x.requires_grad for group in optimizer.param_groups for x in group["params"]])

    # -------------------------------------------------------------------------------------- who is who

    def _keep(self, thing: object) -> None:
        """Keep alive what was met in the first steps: functions that have ended hold it no more."""
        if self.keeps:
            self._alive.append(thing)

    def _facts_of(self, optimizer: Stepper) -> Optimizer:
        facts = self.optimizers.get(id(optimizer))
        if facts is None or facts.optimizer is not optimizer:
            facts = self.optimizers[id(optimizer)] = Optimizer(optimizer, None)
            self._keep(optimizer)
        if not facts.name:
            facts.name = variable_in(optimizer, user_frame(sys._getframe(3)))
        return facts

    def _parameters_of(self, optimizer: Stepper) -> list[tuple[Parameter, Tensor]]:
        """The parameters that an optimizer holds."""
        pairs: list[tuple[Parameter, Tensor]] = []
        tensors: list[Tensor] = [x for group in optimizer.param_groups for x in group["params"]]
        for tensor in tensors:
            facts = self.parameters.get(id(tensor))
            if facts is not None and facts.ref() is tensor:
                pairs.append((facts, tensor))
        return pairs

    def _meet(self) -> None:
        """Note the parameters of the modules that were called, and of the optimizers that are there."""
        roots = self.roots()
        for name, tensor, owner in named(roots):
            self._note(tensor, name, owner)
        seen = {} if self.recorder is None else self.recorder.seen()
        for tensor in seen.values():
            if isinstance(tensor, torch.nn.Parameter) and id(tensor) not in self.parameters:
                self._note(tensor, self._loose_name(tensor), None)
        for optimizer in self.optimizers.values():
            stepper = optimizer.optimizer
            for i, group in enumerate([] if stepper is None else stepper.param_groups):
                for j, tensor in enumerate(group["params"]):
                    self._note(tensor, f"{optimizer.title} group {i}, {j}", None)
                    self.parameters[id(tensor)].holders.add(id(stepper))

    def _note(self, tensor: Tensor, name: str, owner: torch.nn.Module | None) -> None:
        facts = self.parameters.get(id(tensor))
        if facts is None or facts.tensor is not tensor:
            if len(self.parameters) >= MOST:
                self.unknown[f"more than {MOST} parameters: the others are not followed"] = None
                return
            facts = self.parameters[id(tensor)] = Parameter(tensor, name)
            self._keep(tensor)
        if owner is not None and facts.owner is None:
            facts.name, facts.owner = name, weakref.ref(owner)

    def name_of(self, tensor: Tensor) -> str:
        """The user's name for a parameter; empty if none is known."""
        with contextlib.suppress(Exception):  # Modules may do anything when they are asked.
            self._meet()
        facts = self.parameters.get(id(tensor))
        return facts.name if facts is not None and facts.tensor is tensor else ""

    def _loose_name(self, tensor: Tensor) -> str:
        """The name of a parameter that no module holds which was called."""
        held = None if self.recorder is None else self.recorder.memory.held(tensor)
        name = "" if held is None or held.root is None else variable_of(held.root)
        return name or f"a parameter of shape {list(tensor.shape)}"

    def roots(self) -> dict[str, torch.nn.Module]:
        """The modules that were called and are part of no other that was, by name."""
        called = [(module, facts) for facts in self.modules.values() if (module := facts.ref()) is not None]
        below = {id(part) for module, _ in called for part in module.modules() if part is not module}
        tops = [(module, facts) for module, facts in called if id(module) not in below]
        roots: dict[str, torch.nn.Module] = {}
        for module, facts in tops:
            title = container_of(module, called) or facts.name
            title = title or (type(module).__name__ if len(tops) > 1 else "")
            while title in roots:
                title += "_"
            roots[title] = module
        return roots
