"""Programs of other libraries, written in PyTorch: autograd says where their gradients arrive.

Where a program chooses between functions, or ends a loop, the twin does all that it might have done and
selects among the results, so that autograd sees each path. The values are those of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from programs.forms import OURS
from programs.language import Statement, Writer, Written

__all__ = [
    "ask",
    "checkpoint",
    "choose",
    "clip",
    "clip_norm",
    "leave",
    "leave_block",
    "loop",
    "loop_in_jax",
    "map_of",
    "own",
    "scale",
    "scan_of",
    "torch",
    "towards",
    "when",
    "when_towards",
]

LONGEST = 9
"""How many steps an unbounded loop takes, which is enough for each carry to reach each other."""

Tensor = torch.Tensor
Values = tuple[Tensor, ...]


class Run:
    """A run of a twin: the gradient of one source, or of several, is wanted.

    Attributes:
        towards: the source for which gates that name tensors act; None where there are no such gates.
        tensors: what is asked about.
    """

    now: Run

    def __init__(self, towards: str | None = None) -> None:
        self.towards = towards
        self.tensors: dict[str, Tensor] = {}
        Run.now = self


def same(x: Tensor) -> Tensor:
    """The value as another tensor, which has no names."""
    return x.view_as(x)


def ask(name: str, x: Tensor) -> Tensor:
    """A tensor that is asked about."""
    if x.is_floating_point():
        x = same(x) if x.requires_grad else x.detach().requires_grad_()
        Run.now.tensors[name] = x
        x.known = frozenset([name])  # type: ignore[attr-defined]
    return x


def stands(x: Tensor, names: frozenset[str]) -> Tensor:
    """What stands in a body for a tensor with these names."""
    x = same(x)
    x.known = names  # type: ignore[attr-defined]
    return x


def known(x: Tensor) -> frozenset[str]:
    """The names by which a gate may name a tensor."""
    return getattr(x, "known", frozenset())


def _acts(named: Sequence[Tensor]) -> bool:
    return any(Run.now.towards in known(x) for x in named)


def towards(x: Tensor, named: Sequence[Tensor]) -> Tensor:
    return x.detach() if _acts(named) else same(x)


def when(x: Tensor, condition: Tensor) -> Tensor:
    return torch.where(condition.any(), x.detach(), x)


def when_towards(x: Tensor, condition: Tensor, named: Sequence[Tensor]) -> Tensor:
    return when(x, condition) if _acts(named) else same(x)


class _Pulled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pull: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.pull = pull
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return ctx.pull(g), None


def scale(x: Tensor, factor: Any) -> Tensor:
    """The tensor, with a gradient that is multiplied by a number."""
    number = float(torch.as_tensor(factor).detach())
    return _Pulled.apply(x, lambda g: g * number)  # type: ignore[no-any-return]


def clip(x: Tensor, low: float, high: float) -> Tensor:
    return _Pulled.apply(x, lambda g: g.clamp(low, high))  # type: ignore[no-any-return]


def clip_norm(x: Tensor, most: float) -> Tensor:
    def shrunk(g: Tensor) -> Tensor:
        size = float(g.norm())
        return g if size <= most else g * (most / size)

    return _Pulled.apply(x, shrunk)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------- functions, loops


def choose(number: Any, functions: Sequence[Callable[..., Values]], *given: Tensor) -> Values:
    """The results of one of several functions, all of which run."""
    made = [f(*given) for f in functions]
    found = made[0]
    for k in range(1, len(made)):
        found = select(int(number) >= k, made[k], found)
    return tuple(map(same, found))


def select(choice: bool, some: Values, others: Values) -> Values:
    """Some values or others; both are on the path."""
    return tuple(
        [x if x is y else torch.where(torch.tensor(choice), x, y) for x, y in zip(some, others, strict=True)]
    )


def loop(
    goes_on: Callable[..., Values], body: Callable[..., Values], state: Values, most: int | None, held: bool
) -> Values:
    """A loop that ends when its condition says so; *held*: what it returns has no gradient."""
    names = list(map(known, state))
    going = True
    for _ in range(LONGEST if most is None else most):
        state = tuple(map(stands, state, names))
        going = going and bool(goes_on(*state)[0].any())
        state = select(going, body(*state), state)
    return leave(*state) if held else tuple(map(same, state))


def loop_in_jax(
    goes_on: Callable[..., Values], body: Callable[..., Values], state: Values, most: int | None, held: bool
) -> Values:
    """The same; what the loop does not change takes no part in it, as JAX has it."""
    given = tuple(map(same, state))
    changed = body(*given)
    made = loop(goes_on, body, state, most, held)
    return tuple([x if y is g else z for x, g, y, z in zip(state, given, changed, made, strict=True)])


def scan_of(
    f: Callable[..., Values], count: int, carry: Values, rows: Values, length: int, total: int
) -> Values:
    names = list(map(known, carry))
    row = torch.stack(list(rows)) if rows else []
    given: Values = tuple([torch.zeros(3, dtype=torch.float64) for _ in range(total - count)])
    for k in range(length):
        made = f(*map(stands, carry, names), *row[k : k + 1])
        carry = made[:count]
        given = tuple([x + y for x, y in zip(given, made[count:], strict=True)])
    return (*map(same, carry), *given)


def map_of(f: Callable[..., Values], rows: Sequence[Tensor], *fixed: Tensor) -> Values:
    made = [f(row, *fixed) for row in torch.stack(list(rows))]
    return tuple([torch.stack(list(some)).sum(0) for some in zip(*made, strict=True)])


def checkpoint(f: Callable[..., Values]) -> Callable[..., Values]:
    return lambda *given: tuple(map(same, f(*given)))


def own(f: Callable[..., Values], given: Values, passes: Sequence[tuple[int, ...] | None]) -> Values:
    """The results of a function with the gradient that it is given."""
    made = []
    for r, y in enumerate(f(*[x.detach() for x in given])):
        y = y.detach()
        for x, some in zip(given, passes, strict=True):
            if some is not None and r in some:
                y = y + (r + 2.0) * (x - x.detach())
        made.append(y)
    return tuple(made)


def leave(*given: Tensor) -> Values:
    """What was made in a block, as it is used outside."""
    return tuple([x.detach() if x.is_floating_point() else x for x in given])


def leave_block(before: Values, given: Values, stops: bool) -> Values:
    """The same, of values among which some are others' names for what was there before."""
    known = {id(x) for x in before}
    changed = leave(*given) if stops else tuple(map(same, given))
    return tuple([x if id(x) in known else y for x, y in zip(given, changed, strict=True)])


class Twin(Writer):
    """Writes programs of this library as their twins."""

    module, library, forms = "programs.twin", "twin", OURS
    constructs = {
        "call": "{f0}({args})",
        "cond": "choose(not {first}.any(), [{functions}], {rest})",
        "switch": "choose({first}.max(), [{functions}], {rest})",
        "while": "loop({f0}, {f1}, ({args}), {number}, {held})",
        "fori": "scan_of({f0}, {count}, ({args}), (), {number}, {count})",
        "scan": "scan_of({f0}, {count}, ({carried}), ({beside}), {number}, {total})",
        "map": "map_of({f0}, ({carried}), {beside})",
        "vmap": "map_of({f0}, ({carried}), {beside})",
        "checkpoint": "checkpoint({f0})({args})",
        "custom": "own({f0}, ({args}), {passes})",
    }

    def begin(self) -> None:
        for name in self.inputs:
            self.line(f"{name} = ask({name!r}, {name})")

    def made(self, statement: Statement) -> None:
        for name in statement.makes:
            if name in self.program.stops and self.opened != f"named {name}":
                self.line(f"({name},) = leave({name})")
            if name in self.program.asked:
                self.line(f"{name} = ask({name!r}, {name})")

    def opening(self, statement: Statement) -> str:
        return "if True:"

    def block(self, statement: Statement) -> None:
        before = "".join([f"{name}, " for name in self.sight])
        super().block(statement)
        inside = [name for one in _in_sight(statement) for name in one.makes]
        if inside:
            names, stops = "".join([f"{name}, " for name in inside]), statement.label != self.opened
            self.line(f"{names[:-1]} = leave_block(({before}), ({names}), {stops})")


def _in_sight(block: Statement) -> Iterator[Statement]:
    """The statements of a block, and of blocks in it."""
    for statement in block.inside:
        yield statement
        yield from _in_sight(statement)


def gradients(
    written: Written, values: Mapping[str, Tensor], sources: Sequence[str], selective: bool
) -> dict[str, Any]:
    """The gradients of a twin: for each source a tensor, or None where no gradient arrives.

    Where gates name tensors (*selective*), there is a run for each source.
    """
    scope: dict[str, Any] = {}
    exec(compile(written.text, "<twin>", "exec"), scope)
    found: dict[str, Any] = {}
    for towards in sources if selective else (None,):
        run = Run(towards)
        results, _ = scope["program"](*values.values())
        total = sum([x.sum() for x in results if x.is_floating_point()])
        some = sources if towards is None else (towards,)
        if isinstance(total, Tensor) and total.requires_grad:
            tensors = [run.tensors[name] for name in some]
            found |= zip(some, torch.autograd.grad(total, tensors, allow_unused=True), strict=True)
        else:
            found |= dict.fromkeys(some)
    return found
