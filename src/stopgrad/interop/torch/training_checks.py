"""Checks that the modules that some code calls, and the parameters of its optimizers, get gradients."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from stopgrad.interop.shared.trained import Group, Trained
from stopgrad.interop.torch import asking
from stopgrad.interop.torch.questions import Asked, Loss
from stopgrad.interop.torch.recording.call_tensors import tensors_in
from stopgrad.interop.torch.recording.places import user_frame
from stopgrad.interop.torch.watching import Watch, watch

Module = torch.nn.Module
Tensor = torch.Tensor


class Training:
    """A watch that also sees which modules are called with gradients on, and which optimizers step.

    It keeps all of these, to ask about them when the code has ended.

    Args:
        named: modules and optimizers by name; others are named after the variables that hold them at their
            first use, or after their classes.
        leaves: whether to keep the tensors that require grad, too, also those that are in no module.
    """

    def __init__(self, named: Mapping[str, Any] | None = None, leaves: bool = False) -> None:
        self._names = {id(value): name for name, value in (named or {}).items()}
        self._modules: dict[int, Module] = {}
        self._optimizers: dict[int, Any] = {}
        self._met = _Leaves() if leaves else None
        self._running = contextlib.ExitStack()
        self.seen: Watch = watch()

    def __enter__(self) -> Training:
        with contextlib.ExitStack() as begun:
            begun.callback(register_module_forward_pre_hook(self._called).remove)
            begun.callback(register_optimizer_step_pre_hook(self._steps).remove)
            if self._met is not None:
                begun.enter_context(self._met)  # Before the watch, which looks at its callers' frames.
            begun.enter_context(self.seen)
            if self._met is not None:
                self._met.holds = True
            self._running = begun.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()

    def _called(self, module: Module, args: Sequence[Any]) -> None:
        if torch.compiler.is_compiling():
            return  # Whatever is being compiled was called before.
        if torch.is_grad_enabled() and id(module) not in self._modules:
            self._modules[id(module)] = module
            self._name(module)

    def _steps(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = optimizer
            self._name(optimizer)

    def _name(self, thing: object) -> None:
        name = _variable(thing, user_frame(sys._getframe(2)))
        if name:
            self._names.setdefault(id(thing), name)

    @property
    def calls(self) -> list[Any]:
        """The calls of ``backward()``; ``torch.autograd.grad`` trains nothing by itself."""
        return [call for call in self.seen.backward_calls if call.kind == "backward"]

    # ----------------------------------------------------------------------------------- the parameters

    def groups(self) -> tuple[dict[str, Tensor], list[Group]]:
        """The parameters that require grad, by name; and the groups that are trained together."""
        parts: list[tuple[str, Iterable[tuple[str, Tensor]], bool]] = [
            (name, module.named_parameters(prefix), False) for name, prefix, module in self._with_prefixes()
        ]
        parts += [
            (name, ((f"{name}.{key}", x) for key, x in self.named(optimizer).items()), True)
            for name, optimizer in self._unlike(list(self._optimizers.values()))
        ]
        parameters: dict[str, Tensor] = {}
        keys: dict[int, str] = {}
        groups = []
        for name, named, wholly in parts:
            members: dict[str, None] = {}
            for key, tensor in named:
                if tensor.requires_grad:
                    first_key = keys.setdefault(id(tensor), key)
                    parameters.setdefault(first_key, tensor)
                    members.setdefault(first_key)
            if members:
                groups.append(Group(name, tuple(members), wholly))
        return parameters, groups

    def named(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """The parameters of an optimizer, by their names in the modules that were called."""
        names = {
            id(x): key
            for _, prefix, module in self._with_prefixes()
            for key, x in module.named_parameters(prefix)
        }
        return {
            names.get(id(x), f"group{i}.{j}"): x
            for i, group in enumerate(optimizer.param_groups)
            for j, x in enumerate(group["params"])
        }

    def _with_prefixes(self) -> Iterator[tuple[str, str, Module]]:
        """The modules that were called, with the prefix of their parameters' names if there are several."""
        modules = self.modules()
        return ((name, name if len(modules) > 1 else "", module) for name, module in modules.items())

    def leaves(self) -> dict[str, Tensor]:
        """The tensors that require grad but are in no module, by the variables that held them."""
        held = {id(p) for module in self._modules.values() for p in module.parameters()}
        met = () if self._met is None else self._met.named()
        return {name: x for name, x in met if id(x) not in held and x.requires_grad}

    def modules(self) -> dict[str, Module]:
        """The modules that were called with gradients on, by name, without those that are part of another."""
        called = {
            key: module
            for key, module in self._modules.items()
            if next(module.parameters(), None) is not None
        }
        inner = {id(part) for module in called.values() for part in module.modules() if part is not module}
        return dict(self._unlike([module for key, module in called.items() if key not in inner]))

    def _unlike(self, things: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """Things with their names: their own or their classes', numbered if several share one."""
        used: Counter[str] = Counter()
        for thing in things:
            name = self._names.get(id(thing), type(thing).__name__)
            used[name] += 1
            yield (name if used[name] == 1 else f"{name}_{used[name]}"), thing

    def trained(self) -> Trained:
        """The calls of ``backward()``, and the parameters that are trained."""
        parameters, groups = self.groups()
        if not parameters:
            parameters = self.leaves()
            groups = [Group("the tensors that require grad", tuple(parameters), False)]
        return Trained("backward()", self.calls, parameters, groups)


class _Leaves(TorchFunctionMode):
    """Keeps the leaves requiring grad that are passed to functions of PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self._held: dict[int, Tensor] = {}
        self._names: dict[int, str] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        for tensor in tensors_in(args, kwargs or {}) if self.holds else ():
            if tensor.requires_grad and tensor.grad_fn is None and id(tensor) not in self._names:
                self._held[id(tensor)] = tensor
                name = _variable(tensor, user_frame(sys._getframe(1)))
                if name:  # No variable holds a leaf while it is being made.
                    self._names[id(tensor)] = name
        return func(*args, **(kwargs or {}))

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors, by the user's variables that held them; several from one variable are numbered."""
        used: Counter[str] = Counter()
        for key, tensor in self._held.items():
            name = self._names.get(key, "leaf")
            used[name] += 1
            yield (name if used[name] == 1 else f"{name}_{used[name]}"), tensor


def _variable(thing: object, frame: FrameType | None) -> str:
    """The name of a thing among the local variables of a frame, perhaps a path in a module; or empty."""
    local = {} if frame is None else frame.f_locals
    for name, value in local.items():
        if value is thing:
            return name
    for name, value in local.items():
        if isinstance(value, torch.nn.Module) and isinstance(thing, torch.nn.Module):
            path = next((path for path, part in value.named_modules() if part is thing), "")
            if path:
                return f"{type(value).__name__ if name == 'self' else name}.{path}"
    return ""


# ------------------------------------------------------------------------------------------ a loss alone


def report_on(loss: Loss, xs: Asked) -> tuple[Any, str]:
    """The report on a loss by the watch that saw it made; and a note on it if no watch did."""
    flow, was_watched = asking._report("explain", loss, xs)
    return flow, "" if was_watched else asking.UNSEEN
