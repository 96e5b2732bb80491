"""Whether what a piece of code trains is trained: the modules that it calls, the optimizers that step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from stopgrad.torch.watching import Watch, watch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from stopgrad.flow.patterns import matching
from stopgrad.flow.source_lines import place
from stopgrad.flow.text import stories_of
from stopgrad.flow.words import listed, some

Module = Any
Tensor = Any

CALLS = 200
"""So many calls of ``backward()`` are asked at most, in the order in which they were made."""


class Group(NamedTuple):
    """Parameters that are trained together.

    Attributes:
        name: whose they are, as messages say it.
        keys: what they are called.
        wholly: whether each must be trained; else only if any is.
    """

    name: str
    keys: tuple[str, ...]
    wholly: bool


class Training:
    """A watch that also sees which modules are called with gradients on, and which optimizers step.

    Args:
        named: modules and optimizers, by what they are called; others are called as their classes are.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = {id(value): name for name, value in named.items()}
        self._modules: dict[int, Module] = {}
        self._optimizers: dict[int, Any] = {}
        self._hooks: list[Any] = []
        self.seen: Watch = watch()

    def __enter__(self) -> Training:
        self._hooks = [
            register_module_forward_pre_hook(self._called),
            register_optimizer_step_pre_hook(self._steps),
        ]
        try:
            self.seen.__enter__()
        except BaseException:
            self._unhook()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self.seen.__exit__(*error)
        finally:
            self._unhook()

    def _unhook(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _called(self, module: Module, args: Any) -> None:
        if torch.is_grad_enabled():
            self._modules.setdefault(id(module), module)

    def _steps(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._optimizers.setdefault(id(optimizer), optimizer)

    @property
    def calls(self) -> list[Any]:
        """The calls of ``backward()``; ``torch.autograd.grad`` trains nothing by itself."""
        return [call for call in self.seen.backward_calls if call.kind == "backward"][:CALLS]

    # ----------------------------------------------------------------------------------- the parameters

    def groups(self) -> tuple[dict[str, Tensor], list[Group]]:
        """The parameters that require grad by what they are called; and which are trained together."""
        parameters: dict[str, Tensor] = {}
        keys: dict[int, str] = {}

        def take(prefix: str, named: Iterable[tuple[str, Tensor]]) -> tuple[str, ...]:
            for name, tensor in named:
                if tensor.requires_grad and id(tensor) not in keys:
                    key = keys[id(tensor)] = f"{prefix}{name}"
                    parameters[key] = tensor
            return tuple(dict.fromkeys(keys[id(tensor)] for _, tensor in named if tensor.requires_grad))

        found = []
        outermost = list(self._outermost())
        prefixed = len(outermost) > 1
        for name, module in outermost:
            inside = list(module.named_parameters())
            found.append(Group(name, take(f"{name}." if prefixed else "", inside), False))
        for name, optimizer in self._unlike(list(self._optimizers.values())):
            held = [
                (f"{name}.group{i}.{j}", tensor)
                for i, group in enumerate(optimizer.param_groups)
                for j, tensor in enumerate(group["params"])
            ]
            found.append(Group(name, take("", held), True))
        return parameters, [group for group in found if group.keys]

    def _outermost(self) -> Iterator[tuple[str, Module]]:
        """The modules that were called, without those that are part of others."""
        called = list(self._modules.values())
        inner = {id(part) for module in called for part in module.modules() if part is not module}
        yield from self._unlike([module for module in called if id(module) not in inner])

    def _unlike(self, things: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """Things by their names: those they were given, or their classes', numbered where several have it."""
        used: Counter[str] = Counter()
        for thing in things:
            name = self._named.get(id(thing), type(thing).__name__)
            used[name] += 1
            yield (name if used[name] == 1 else f"{name}_{used[name]}"), thing

    # -------------------------------------------------------------------------------------- what is wrong

    def wrong(
        self,
        only: Sequence[str] = (),
        blocked: Sequence[str] = (),
        ignore: Sequence[str] = (),
        leaves: bool = False,
    ) -> str:
        """What is not as it should be, with the report of the call that shows it; empty where all is well.

        Args:
            only: patterns of names; gradients arrive at these and at no others.
            blocked: patterns of names; gradients arrive at none of these.
            ignore: patterns of names that are not looked at.
            leaves: whether, where no module and no optimizer is seen, the leaves of each call are looked at.

        Raises:
            ArgumentError: nothing is called as a pattern says.
        """
        parameters, groups = self.groups()
        calls = self.calls
        if not calls:
            return ""
        if parameters or not leaves:
            reports = _Reports([partial(call.explain, parameters) for call in calls] if parameters else [])
        else:
            reports = _Reports([call.explain for call in calls])
            groups = [Group("the tensors that it is made of", tuple(reports.keys()), False)]
        known = dict.fromkeys(key for group in groups for key in group.keys)
        ignored, barred = _matching(ignore, known, "ignore"), _matching(blocked, known, "blocked")
        if only:
            wanted = _matching(only, known, "only")
            groups, barred = [Group("only", tuple(wanted), True)], known.keys() - wanted
        required = [g._replace(keys=tuple(k for k in g.keys if k not in ignored | barred)) for g in groups]
        closed = [key for key in known if key in barred - ignored]
        return _missing(reports, calls, required) or _arriving(reports, calls, closed)


class _Reports:
    """The reports on the calls, made when they are asked for."""

    def __init__(self, makers: Sequence[Callable[[], Any]]) -> None:
        self._makers = makers
        self._made: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._makers)

    def __getitem__(self, i: int) -> Any:
        if i not in self._made:
            self._made[i] = self._makers[i]()
        return self._made[i]

    def keys(self) -> dict[str, None]:
        """What is asked about in any of them."""
        return {key: None for i in range(len(self)) for key in self[i]}

    def first(self, key: str) -> int | None:
        """The first report in which a gradient arrives at a key."""
        return next((i for i in range(len(self)) if key in self[i] and self[i][key].arrives), None)


def _matching(patterns: Sequence[str], keys: Iterable[str], option: str) -> set[str]:
    """The keys that patterns mean, with or without the name of the module that they begin with."""
    both = {name: key for key in keys for name in (key.partition(".")[2], key) if name}
    return {both[name] for name in matching(option, patterns, both)}


def _missing(reports: _Reports, calls: Sequence[Any], groups: Sequence[Group]) -> str:
    """What is said of parameters at which no gradient arrives, though they are trained."""
    for group in groups:
        first = {key: reports.first(key) for key in group.keys}
        missing = [key for key, i in first.items() if i is None]
        arrived = [i for i in first.values() if i is not None]
        if not missing or not (group.wholly or arrived):
            continue
        shown = arrived[0] if arrived else 0
        return (
            f"no backward() gives a gradient to {listed_some(missing)} ({group.name})\n"
            f"{_told(reports[shown], calls[shown], missing)}"
        )
    return ""


def _arriving(reports: _Reports, calls: Sequence[Any], barred: Sequence[str]) -> str:
    """What is said of parameters at which a gradient arrives and should not."""
    for i, call in enumerate(calls[: len(reports)]):
        found = [key for key in barred if key in reports[i] and reports[i][key].arrives]
        if found:
            told = _told(reports[i], call, found)
            return f"backward() gives a gradient to {listed_some(found)}, and should not\n{told}"
    return ""


def listed_some(names: Sequence[str]) -> str:
    """Names as a sentence has them, the first few of many."""
    return listed(list(names)) if len(names) <= 4 else some(list(names), 4)


def _told(flow: Any, call: Any, keys: Sequence[str]) -> str:
    """The part of a report that is about these, below the line of its call."""
    where = f"backward() at {place(call.location)}\n" if call.location is not None else ""
    return f"{where}\n{stories_of(flow[[key for key in keys if key in flow]])}"
