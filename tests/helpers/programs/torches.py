"""Programs in eager PyTorch, and what their text uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch_functions import Forget, Halves, Nothing, Scale

from programs.forms import TORCH, WRITES
from programs.language import Function, Statement, Writer, is_smooth
from programs.reach import OPEN, STOPPED, Closure, End, Model, Scope, Tensor, Way, Ways

__all__ = [
    "Forget",
    "Halves",
    "Nothing",
    "Scale",
    "checkpoint",
    "functional",
    "loop_of",
    "map_of",
    "np",
    "torch",
]


class Nested(nn.Module):
    """A module with a module, a parameter and a buffer, which it changes as it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(3))
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1)
        return torch.tanh(self.inner(x)) * self.scale + self.mean


def loop_of(f: Callable[..., Any], count: int, carry: Any, rows: Any, length: int, total: int) -> Any:
    """What is carried through a loop, and the sums of what it gives."""
    given = [torch.zeros(3, dtype=torch.float64) for _ in range(total - count)]
    for k in range(length):
        made = f(*carry, *rows[k : k + 1])
        carry = made[:count]
        given = [x + y for x, y in zip(given, made[count:], strict=True)]
    return (*carry, *given)


def map_of(f: Callable[..., Any], rows: Any, *fixed: Any) -> Any:
    """The sums of what a function gives for each of some tensors."""
    made = [f(row, *fixed) for row in rows]
    return tuple([torch.stack(list(some)).sum(0) for some in zip(*made, strict=True)])


PARAMETERS = (
    "net.weight",
    "net.bias",
    "nested.scale",
    "nested.inner.weight",
    "nested.inner.bias",
    "table.weight",
)
LEAVES = ("leaf", "parameter")
"""The forms that make tensors which require a gradient, whatever they are made of."""
SAME = {"tied.weight": "net.weight"}
"""A parameter that a second module shares."""
ARGUMENTS = ("f0", "f1", "f2", "i0", "b0", "net", "tied", "nested", "table")


def arguments(seed: int) -> dict[str, Any]:
    """The arguments of a program, new ones with the same values at every call."""
    torch.default_generator.manual_seed(seed)
    made: dict[str, Any] = {
        name: torch.randn(3, dtype=torch.float64, requires_grad=True) for name in ("f0", "f1", "f2")
    }
    made |= {"i0": torch.randint(-1, 4, (3,)), "b0": torch.rand(3) < 0.5}
    net, tied = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
    tied.weight = net.weight
    modules = {"net": net, "tied": tied, "nested": Nested(), "table": nn.Embedding(3, 3)}
    return made | {name: module.double() for name, module in modules.items()}


class Torch(Writer):
    """Writes programs in PyTorch."""

    module, library, forms = "programs.torches", "torch", TORCH
    inputs = ARGUMENTS
    constructs = {
        "call": "{f0}({args})",
        "fori": "loop_of({f0}, {count}, ({args}), (), {number}, {count})",
        "scan": "loop_of({f0}, {count}, ({carried}), ({beside}), {number}, {total})",
        "map": "map_of({f0}, ({carried}), {beside})",
        "checkpoint": "checkpoint({f0}, {args} use_reentrant=False)",
    }
    openings = ("with torch.no_grad():", "with torch.set_grad_enabled(False):")

    def end(self) -> str:
        return f"return ({''.join([f'{name} * 1, ' for name in self.program.results])}), {{}}"

    def opening(self, statement: Statement) -> str:
        if statement.label == self.opened:
            return "if True:"
        return self.openings[len(statement.label) % len(self.openings)]

    def put(self, statement: Statement) -> str:
        if statement.form == "write":
            return WRITES[statement.names[0]][0].format(*statement.takes)
        if statement.form == "view":
            return f"{statement.makes[0]} = {statement.takes[0]}[:]"
        return super().put(statement)


class TorchModel(Model):
    """What PyTorch does with gradients.

    Variables hold tensors, whose values change where they, or views of them, are written into. Tensors that
    share memory without history see what is written, but no gradient passes from one to the other.

    What the backward of a user's function returns is known where autograd would call it. Behind a stop nobody
    asks; there, it is taken to pass all gradients on.

    Attributes:
        content: the present values of tensors that were written into.
        sharing: for tensors that share memory without history, all of these.
        own: for tensors with history that do so, their paths by history.
        stops: for those that were made without history, the statement, if that is a stop.
        written: the statements that made tensors whose memory was written into.
        asked: the users' functions that autograd would call, by the order in which they were applied.
        unsure: whether there are others.
        itself: whether a tensor is written into itself.
    """

    inputs = ("f0", "f1", "f2", "i0", "b0", *PARAMETERS)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.content: dict[object, Tensor] = {}
        self.sharing: dict[object, list[Tensor]] = {}
        self.own: dict[object, Ways] = {}
        self.stops: dict[object, str | None] = {}
        self.written: set[str] = set()
        self.asked: frozenset[int] | None = None
        self.unsure = self.itself = False
        self._applied = 0

    def seen(self, x: Tensor | Closure) -> Tensor:
        assert isinstance(x, Tensor)
        return super().seen(self.content.get(x.self, x))

    def inside(self, function: Function, scope: Scope, given: Any) -> list[Tensor]:
        """Functions are called as they are."""
        return self.call(Closure(function, scope), given)

    def fresh(self, *values: Tensor) -> Tensor:
        if len(values) == 1:
            return values[0]
        found = super().fresh(*values)
        return replace(found, requires=0) if self.here else found

    def row(self, rows: list[Tensor], k: int) -> list[Tensor]:
        return rows[k : k + 1]

    def _scan(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        made = super()._scan(statement, scope, taken)
        given = [replace(x, requires=0) if self.here else x for x in made[statement.count :]]
        return [*made[: statement.count], *given]

    _fori = _scan

    def _map(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        (function,) = statement.functions
        rows, fixed = taken[: statement.count], taken[statement.count :]
        made = [[self.seen(y) for y in self.inside(function, scope, [row, *fixed])] for row in rows]
        return [self.fresh(*some, some[0]) for some in zip(*made, strict=True)]

    def _source(self, name: str) -> Tensor:
        return replace(super()._source(name), requires=2 if is_smooth(name) else 0)

    def ways(self) -> Ways:
        if self.asked is None:
            first = type(self)(self.program, self.forms)
            first.asked = frozenset()
            first.ways()
            self.asked = frozenset().union(*[x.functions for x in first.results])
        return super().ways()

    def _stop(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """The result shares the memory of the operand, but not its history."""
        (x,) = taken
        ways = self.through("s", x, True, statement.label)
        return [self._sharing(x, ways, statement.label)]

    _data = _stop

    def _sharing(self, x: Tensor, ways: Ways, stop: str | None) -> Tensor:
        """A tensor that shares the memory of another, but not its history."""
        y = Tensor(True, ways, frozenset(), self.here)
        self.sharing[y.self] = self.sharing.setdefault(x.self, [x])
        self.sharing[y.self].append(y)
        self.stops[y.self] = stop
        return y

    def _made(self, statement: Statement, scope: Scope) -> list[Tensor]:
        form = self.forms.get(statement.form)
        if form is None or statement.form in ("stop", "data"):
            return super()._made(statement, scope)
        taken = [self.seen(scope[name]) for name in statement.takes]
        parts = [self.seen(scope[name]) for name in form.parts]
        own = statement.form.startswith("own_")
        self._applied += own
        made = []
        for name, ways in zip(statement.makes, form.ways, strict=True):
            found: set[Way] = set().union(*[x.ways for x in parts])
            noted = 2 if parts else 0
            functions = {self._applied} if own else set()
            for way, x in zip(ways, taken, strict=True):
                if own and not (self._applied in (self.asked or ()) and x.requires):
                    way, self.unsure = way.replace("x", "o"), True
                if own and (self.here or x.requires < 2):
                    way = way.replace("s", "o")
                found |= self.through(way, x, name[0] == "f", statement.label)
                passed = max([passing(series, x.requires) for series in way.split("|")])
                noted = max(noted, 2 if own and passed else passed)
                functions |= x.functions if passed else frozenset()
            noted = 0 if self.here else noted
            y = Tensor(name[0] == "f", frozenset(found), frozenset(), self.here)
            if statement.form in LEAVES:
                y = self._leaf(statement, self.left(y, ()))
            elif noted:
                y = replace(y, requires=noted, functions=frozenset(functions))
            elif set(ways) <= {"s", "ss", "."}:
                self.stops[y.self] = statement.label
            made.append(y)
        return made

    def _leaf(self, statement: Statement, x: Tensor) -> Tensor:
        """A new leaf: it has a gradient, also where it is made in a block without."""
        parameter = statement.form == "parameter"
        ways = self.behind(x.ways, End(statement.label, STOPPED)) if parameter else x.ways
        return replace(x, ways=ways, requires=2)

    def _view(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """A view is another name for a tensor, except where autograd does not note what is made."""
        (x,) = taken
        same = x.block == self.here and self.stops.get(x.self) is None
        return [x if same else self._sharing(x, x.ways, None)]

    def _write(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """A tensor and its views are what they were, and what is written into them."""
        _, _, ways = WRITES[statement.names[0]]
        target, *others = taken
        self.itself = self.itself or any(x.self is target.self for x in others)
        found = [
            self.through(way, x, True, statement.label) for way, x in zip(ways.split(), taken, strict=True)
        ]
        noted = 0 if self.here else max(x.requires for x in taken)
        functions = frozenset().union(*[x.functions for x in taken]) if noted else frozenset()
        new = Tensor(True, frozenset().union(*found), frozenset(), self.here, target.self, noted, functions)
        self.content[target.self] = new
        for other in self.sharing.get(target.self, ()):
            self.written.add(self.stops.get(other.self) or "")
            if other.self is not target.self:
                self._shows(self.content.get(other.self, other), new, statement.label)
        return []

    def _shows(self, x: Tensor, written: Tensor, label: str) -> None:
        """A tensor holds what was written through another one."""
        ways = written.ways
        outside, stop = self.left(written, x.block), self.stops.get(x.self)
        self.written.update([label for label, _ in self.here[len(outside.block) :]])
        if outside.block != self.here:
            ways = outside.ways
            self.written.update([way.first.label for way in ways if way.first is not None])
        elif any(way.first is None and way.worst == OPEN for way in ways) and not stop:
            ways = self.behind(ways, End(label, STOPPED))
        else:
            self.written.update([way.first.label for way in ways if way.first is not None])
        if stop:
            ways = self.behind(ways, End(stop, STOPPED))
            outside = replace(outside, block=x.block)
        if x.requires:
            own = self.own.setdefault(x.self, x.ways)
            adds_nothing = {way.source for way in ways} <= {way.source for way in own}
            ways = own if adds_nothing else own | ways
        self.content[x.self] = replace(x, ways=ways, block=outside.block)


def passing(series: str, requires: int) -> int:
    """What autograd notes of a result, by what it notes of an operand."""
    if set(series) & set("sl."):
        return 0
    return min(requires, 1) if "x" in series else requires
