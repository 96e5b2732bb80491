"""Checks that the modules that some code calls, and the parameters of its optimizers, get gradients."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from stopgrad.flow.patterns import matching
from stopgrad.flow.source_lines import place
from stopgrad.flow.stories import stories_of
from stopgrad.flow.words import listed, some
from stopgrad.interop.torch import asking
from stopgrad.interop.torch.questions import Asked, Loss
from stopgrad.interop.torch.recording.arguments import tensors_in
from stopgrad.interop.torch.recording.places import user_frame
from stopgrad.interop.torch.watching import Watch, watch

Module = torch.nn.Module
Tensor = torch.Tensor

SHOWN = 4
"""The most names in a message."""
CALLS = 200
"""The most calls of ``backward()`` that are looked at, in the order in which they were made."""


class Group(NamedTuple):
    """Parameters that are trained together.

    Attributes:
        name: whose they are, for messages.
        keys: their names.
        wholly: whether each must be trained; else only if any is.
    """

    name: str
    keys: tuple[str, ...]
    wholly: bool


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
        return [call for call in self.seen.backward_calls if call.kind == "backward"][:CALLS]

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
        found = []
        for name, named, wholly in parts:
            held: dict[str, None] = {}
            for key, tensor in named:
                if tensor.requires_grad:
                    known = keys.setdefault(id(tensor), key)
                    parameters.setdefault(known, tensor)
                    held.setdefault(known)
            if held:
                found.append(Group(name, tuple(held), wholly))
        return parameters, found

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

    # -------------------------------------------------------------------------------------- what is wrong

    def wrong(self, only: Sequence[str] = (), blocked: Sequence[str] = (), ignore: Sequence[str] = ()) -> str:
        """What is wrong, with the report of the call that shows it; empty if nothing is.

        Args:
            only: patterns of names; gradients arrive at these and at no others.
            blocked: patterns of names; gradients arrive at none of these.
            ignore: patterns of names that are not looked at.

        Raises:
            ArgumentError: nothing is called as a pattern says.
        """
        parameters, groups = self.groups()
        calls = self.calls
        if not calls:
            return ""
        if not parameters:
            parameters = self.leaves()
            groups = [Group("the tensors that require grad", tuple(parameters), False)]
        reports = _Reports(calls, parameters)
        known = dict.fromkeys(key for group in groups for key in group.keys)
        ignored, barred = _matching(ignore, known, "ignore"), _matching(blocked, known, "blocked")
        if only:
            wanted = _matching(only, known, "only")
            groups, barred = [Group("only", tuple(wanted), True)], known.keys() - wanted
        required = [g._replace(keys=tuple(k for k in g.keys if k not in ignored | barred)) for g in groups]
        closed = [key for key in known if key in barred - ignored]
        return _missing(reports, required) or _arriving(reports, closed)


class _Reports:
    """The reports on the calls, made when they are asked for."""

    def __init__(self, calls: Sequence[Any], parameters: Mapping[str, Tensor]) -> None:
        self.calls, self._parameters = calls, dict(parameters)
        self._made: dict[int, Any] = {}

    def __getitem__(self, i: int) -> Any:
        if i not in self._made:
            self._made[i] = self.calls[i].explain(self._parameters)
        return self._made[i]

    def first(self, keys: Iterable[str]) -> dict[str, int]:
        """For each key that gets a gradient, the number of the first report in which it does."""
        found: dict[str, int] = {}
        left = dict.fromkeys(keys)
        for i in range(len(self.calls)):
            if not left:
                break
            flow = self[i]
            arrived = [key for key in left if flow[key].arrives]
            found |= dict.fromkeys(arrived, i)
            for key in arrived:
                del left[key]
        return found

    def told(self, i: int, keys: Sequence[str]) -> str:
        """The part of a report about these keys, below the line of its call."""
        location = self.calls[i].location
        where = f"backward() at {place(location)}\n" if location is not None else ""
        return f"{where}\n{stories_of(self[i][list(keys)])}"


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


def _matching(patterns: Sequence[str], keys: Iterable[str], option: str) -> set[str]:
    """The keys that match patterns, with or without the module's name at their beginning."""
    both = {name: key for key in keys for name in (key.partition(".")[2], key) if name}
    return {both[name] for name in matching(option, patterns, both)}


def _missing(reports: _Reports, groups: Sequence[Group]) -> str:
    """The message about trained parameters that get no gradient."""
    for group in groups:
        first = reports.first(group.keys)
        missing = [key for key in group.keys if key not in first]
        if missing and (group.wholly or first):
            told = reports.told(min(first.values(), default=0), missing)
            return f"no backward() gives a gradient to {_some(missing)} ({group.name})\n{told}"
    return ""


def _arriving(reports: _Reports, barred: Sequence[str]) -> str:
    """The message about parameters that get a gradient but should not."""
    first = reports.first(barred)
    if not first:
        return ""
    found = [key for key, i in first.items() if i == min(first.values())]
    told = reports.told(min(first.values()), found)
    return f"backward() gives a gradient to {_some(found)}, and should not\n{told}"


def _some(names: Sequence[str]) -> str:
    """Names listed for a sentence, only the first few of many."""
    return listed(list(names)) if len(names) <= SHOWN else some(list(names), SHOWN)


# ------------------------------------------------------------------------------------------ a loss alone


def report_on(loss: Loss, xs: Asked) -> tuple[Any, str]:
    """The report on a loss by the watch that saw it made; and a note on it if no watch did."""
    flow, known = asking._asked("explain", loss, xs)
    return flow, "" if known else asking.UNSEEN
