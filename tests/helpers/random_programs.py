"""Random programs with loops and branches, made from seeds, and how they are evaluated."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import stopgrad as sg

WEIGHTS = np.array([1.0, -0.5, 0.75])
OFFSETS = np.array([0.3, 0.7, 1.1])


@dataclass(frozen=True)
class Expr:
    """An expression; every one is of three numbers, so that any can stand in the place of any other."""

    def parts(self) -> tuple[Expr, ...]:
        return tuple(getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Expr))

    def with_part(self, index: int, part: Expr) -> Expr:
        names = [f.name for f in fields(self) if isinstance(getattr(self, f.name), Expr)]
        return replace(self, **{names[index]: part})


@dataclass(frozen=True)
class Variable(Expr):
    """One of the variables in sight: the arguments, and the parameters of the bodies around."""

    index: int


@dataclass(frozen=True)
class Constant(Expr):
    value: float


@dataclass(frozen=True)
class Unary(Expr):
    name: str
    x: Expr


@dataclass(frozen=True)
class Binary(Expr):
    name: str
    x: Expr
    y: Expr


@dataclass(frozen=True)
class Stop(Expr):
    x: Expr


@dataclass(frozen=True)
class Block(Expr):
    """Built inside a ``no_gradient`` block."""

    x: Expr


@dataclass(frozen=True)
class Checkpoint(Expr):
    x: Expr


@dataclass(frozen=True)
class Cond(Expr):
    """Both branches take the operand, and capture what is in sight."""

    decides: Expr
    operand: Expr
    true: Expr
    false: Expr


@dataclass(frozen=True)
class Switch(Expr):
    decides: Expr
    operand: Expr
    first: Expr
    second: Expr
    third: Expr


@dataclass(frozen=True)
class Scan(Expr):
    """Carries ``{"a": ..., "b": (...,)}``, and takes rows that differ in a factor."""

    length: int
    reverse: bool
    unroll: int
    a: Expr
    b: Expr
    rows: Expr
    next_a: Expr
    next_b: Expr
    given: Expr


@dataclass(frozen=True)
class While(Expr):
    """Runs at most ``limit`` times, and while the sum of the first carry is below a bound."""

    limit: int
    bound: float
    a: Expr
    b: Expr
    next_a: Expr
    next_b: Expr


@dataclass(frozen=True)
class Fori(Expr):
    lower: int
    upper: int
    a: Expr
    next_a: Expr


@dataclass(frozen=True)
class Map(Expr):
    length: int
    rows: Expr
    x: Expr


UNARY = ("sin", "tanh", "sigmoid", "negative")
BINARY = ("mean", "damped", "difference")


class Maker:
    """Makes expressions; ``inside`` counts the loops around, which multiply the cost."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def make(self, depth: int, inside: int = 0) -> Expr:
        choose = self.random
        if depth == 0:
            return self.leaf()
        kinds: list[Callable[[int, int], Expr]] = (
            [self.plain] * 4 + [self.stop] * 2 + [self.cond, self.switch]
        )
        if inside < 2:
            kinds += [self.scan] * 3 + [self.loop] * 2 + [self.fori, self.map]
        kinds.append(self.checkpoint)
        return choose.choice(kinds)(depth - 1, inside)

    def leaf(self) -> Expr:
        choose = self.random
        if choose.random() < 0.15:
            return Constant(choose.choice((-1.5, -0.25, 0.5, 1.25)))
        return Variable(choose.randrange(6))

    def plain(self, depth: int, inside: int) -> Expr:
        if self.random.random() < 0.4:
            return Unary(self.random.choice(UNARY), self.make(depth, inside))
        return Binary(self.random.choice(BINARY), self.make(depth, inside), self.either(depth, inside))

    def either(self, depth: int, inside: int) -> Expr:
        """Mostly a leaf, so that programs stay small."""
        return self.make(depth, inside) if self.random.random() < 0.4 else self.leaf()

    def small(self, inside: int) -> Expr:
        return self.plain(0, inside) if self.random.random() < 0.6 else self.leaf()

    def stop(self, depth: int, inside: int) -> Expr:
        kind = Block if self.random.random() < 0.3 else Stop
        return kind(self.make(depth, inside))

    def checkpoint(self, depth: int, inside: int) -> Expr:
        return Checkpoint(self.make(depth, inside))

    def cond(self, depth: int, inside: int) -> Expr:
        return Cond(self.small(inside), self.leaf(), self.make(depth, inside), self.either(depth, inside))

    def switch(self, depth: int, inside: int) -> Expr:
        branches = [self.make(depth, inside), self.small(inside), self.small(inside)]
        self.random.shuffle(branches)
        return Switch(self.small(inside), self.leaf(), *branches)

    def scan(self, depth: int, inside: int) -> Expr:
        bodies = [self.make(depth, inside + 1), self.small(inside), self.small(inside)]
        self.random.shuffle(bodies)
        return Scan(
            self.random.choice((1, 2, 3)),
            self.random.random() < 0.3,
            self.random.choice((1, 1, 1, 2)),
            self.either(depth, inside),
            self.leaf(),
            self.small(inside),
            *bodies,
        )

    def loop(self, depth: int, inside: int) -> Expr:
        limit, bound = self.random.choice((1, 2, 3)), self.random.choice((-0.4137, 0.9317, 50.0))
        starts = (self.either(depth, inside), self.leaf())
        return While(limit, bound, *starts, self.make(depth, inside + 1), self.small(inside))

    def fori(self, depth: int, inside: int) -> Expr:
        lower = self.random.choice((0, 0, 1))
        upper = lower + self.random.choice((0, 1, 2, 3))
        return Fori(lower, upper, self.either(depth, inside), self.make(depth, inside + 1))

    def map(self, depth: int, inside: int) -> Expr:
        return Map(self.random.choice((1, 2, 3)), self.small(inside), self.make(depth, inside + 1))


def made(seed: int) -> Expr:
    maker = Maker(seed)
    while True:
        program = maker.make(maker.random.choice((2, 3, 3, 4)))
        if any(isinstance(e, (Cond, Switch, Scan, While, Fori, Map)) for e in everything(program)):
            return program


def everything(e: Expr) -> Iterator[Expr]:
    yield e
    for part in e.parts():
        yield from everything(part)


class Stopgrad:
    """The programs in this library."""

    sin, tanh, sigmoid, negative = sg.sin, sg.tanh, sg.sigmoid, sg.negative
    multiply, add, subtract, reduce_sum = sg.multiply, sg.add, sg.subtract, sg.reduce_sum
    stop = staticmethod(sg.stop_gradient)

    @staticmethod
    def constant(x: Any) -> Any:
        return np.asarray(x)

    @staticmethod
    def block(f: Callable[[], Any]) -> Any:
        with sg.no_gradient():
            return sg.multiply(f(), np.float64(1.0))  # Built inside, also where f only hands on a variable.

    @staticmethod
    def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
        return sg.checkpoint(f)

    @staticmethod
    def positive(x: Any) -> Any:
        return sg.greater(sg.reduce_sum(x), 0.1371)

    @staticmethod
    def index(x: Any) -> Any:
        return sg.cast(sg.floor(sg.reduce_sum(x) * 1.3 + 1.0719), sg.int32)

    @staticmethod
    def cond(p: Any, t: Any, f: Any, *operands: Any) -> Any:
        return sg.cond(p, t, f, *operands)

    @staticmethod
    def switch(i: Any, branches: Any, *operands: Any) -> Any:
        return sg.switch(i, branches, *operands)

    @staticmethod
    def scan(f: Any, init: Any, xs: Any, reverse: bool, unroll: int) -> Any:
        return sg.scan(f, init, xs, reverse=reverse, unroll=unroll)

    @staticmethod
    def loop(bound: float, body: Any, start: Any, limit: int) -> Any:
        return sg.while_loop(
            lambda state: sg.less(sg.reduce_sum(state["a"]), bound), body, start, maximum_iterations=limit
        )

    @staticmethod
    def fori(lower: int, upper: int, body: Any, start: Any) -> Any:
        return sg.fori_loop(lower, upper, body, start)

    @staticmethod
    def float(i: Any) -> Any:
        return sg.cast(i, sg.float64)

    @staticmethod
    def map(f: Any, rows: Any) -> Any:
        return sg.map_fn(f, rows)


class Jax:
    """The programs in JAX; a bounded while loop is a loop over a condition, which JAX differentiates."""

    sin, tanh, sigmoid, negative = jnp.sin, jnp.tanh, jax.nn.sigmoid, jnp.negative
    multiply, add, subtract = jnp.multiply, jnp.add, jnp.subtract
    stop = staticmethod(jax.lax.stop_gradient)

    @staticmethod
    def constant(x: Any) -> Any:
        return jnp.asarray(x)

    @staticmethod
    def reduce_sum(x: Any, axis: Any = None) -> Any:
        return jnp.sum(x, axis=axis)

    @staticmethod
    def block(f: Callable[[], Any]) -> Any:
        return jax.lax.stop_gradient(f())

    @staticmethod
    def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
        return f  # Only when things are computed differs.

    @staticmethod
    def positive(x: Any) -> Any:
        return jnp.sum(x) > 0.1371

    @staticmethod
    def index(x: Any) -> Any:
        return jnp.floor(jnp.sum(x) * 1.3 + 1.0719).astype(jnp.int32)

    cond, switch = staticmethod(jax.lax.cond), staticmethod(jax.lax.switch)

    @staticmethod
    def scan(f: Any, init: Any, xs: Any, reverse: bool, unroll: int) -> Any:
        return jax.lax.scan(f, init, xs, reverse=reverse)

    @staticmethod
    def loop(bound: float, body: Any, start: Any, limit: int) -> Any:
        def step(state: Any, _: Any) -> Any:
            return jax.lax.cond(jnp.sum(state["a"]) < bound, body, lambda same: same, state), None

        return jax.lax.scan(step, start, None, length=limit)[0]

    @staticmethod
    def fori(lower: int, upper: int, body: Any, start: Any) -> Any:
        return jax.lax.fori_loop(lower, upper, body, start)

    @staticmethod
    def float(i: Any) -> Any:
        return jnp.asarray(i, jnp.float64)

    @staticmethod
    def map(f: Any, rows: Any) -> Any:
        return jax.lax.map(f, rows)


Language = type[Stopgrad] | type[Jax]


def rows_of(x: Any, length: int, in_: Language) -> Any:
    """Rows that are *x* times factors."""
    factors = in_.constant(np.linspace(0.5, 1.5, length)[:, None])
    return in_.multiply(factors, x)


def evaluate(e: Expr, seen: Sequence[Any], in_: Language) -> Any:
    """The value of an expression where *seen* are the values of the variables in sight."""

    def of(part: Expr, *more: Any) -> Any:
        return evaluate(part, [*more, *seen], in_)

    match e:
        case Variable(index):
            return seen[index % len(seen)]
        case Constant(value):
            return in_.constant(np.full(3, value))
        case Unary(name, x):
            return getattr(in_, name)(of(x))
        case Binary("mean", x, y):
            return in_.multiply(in_.add(of(x), of(y)), in_.constant(np.float64(0.5)))
        case Binary("damped", x, y):
            return in_.multiply(in_.sin(of(x)), of(y))
        case Binary(_, x, y):
            return in_.subtract(of(x), in_.multiply(of(y), in_.constant(np.float64(0.6))))
        case Stop(x):
            return in_.stop(of(x))
        case Block(x):
            return in_.block(lambda: of(x))
        case Checkpoint(x):
            return in_.checkpoint(lambda *values: evaluate(x, values, in_))(*seen)
        case Cond(decides, operand, true, false):
            p = in_.positive(of(decides))
            return in_.cond(p, lambda v: of(true, v), lambda v: of(false, v), of(operand))
        case Switch(decides, operand, first, second, third):
            branches = [lambda v, b=b: of(b, v) for b in (first, second, third)]
            return in_.switch(in_.index(of(decides)), branches, of(operand))
    return evaluate_loop(e, of, in_)


def evaluate_loop(e: Expr, of: Callable[..., Any], in_: Language) -> Any:
    half = in_.constant(np.float64(0.5))
    if isinstance(e, Scan):

        def step(carry: Any, x: Any) -> Any:
            more = (carry["a"], carry["b"][0], x)
            return {"a": of(e.next_a, *more), "b": (of(e.next_b, *more),)}, {"y": of(e.given, *more)}

        start = {"a": of(e.a), "b": (of(e.b),)}
        end, ys = in_.scan(step, start, rows_of(of(e.rows), e.length, in_), e.reverse, e.unroll)
        factors = in_.constant(np.linspace(1.0, 0.4, e.length)[:, None])
        total = in_.reduce_sum(in_.multiply(ys["y"], factors), axis=0)
        return in_.add(in_.add(end["a"], total), in_.multiply(end["b"][0], half))
    if isinstance(e, While):

        def body(state: Any) -> Any:
            more = (state["a"], state["b"])
            return {"a": of(e.next_a, *more), "b": of(e.next_b, *more)}

        end = in_.loop(e.bound, body, {"a": of(e.a), "b": of(e.b)}, e.limit)
        return in_.add(end["a"], in_.multiply(end["b"], half))
    if isinstance(e, Fori):
        return in_.fori(
            e.lower,
            e.upper,
            lambda i, a: in_.add(of(e.next_a, a), in_.multiply(in_.float(i), in_.constant(np.full(3, 0.1)))),
            of(e.a),
        )
    assert isinstance(e, Map)
    mapped = in_.map(lambda x: of(e.x, x), rows_of(of(e.rows), e.length, in_))
    return in_.reduce_sum(mapped, axis=0)


SUMMED = np.array([0.9, -1.2, 0.4])


def point(seed: int) -> list[np.ndarray[Any, Any]]:
    """The two arguments, and a direction for each."""
    numbers = np.random.default_rng(seed)
    return [numbers.normal(size=3) for _ in range(4)]


def quantities(program: Expr, module: Any, in_: Language) -> Callable[..., dict[str, Any]]:
    """All that is compared, as one function of the arguments and directions."""

    def f(x: Any, w: Any) -> Any:
        return in_.reduce_sum(in_.multiply(evaluate(program, [x, w], in_), in_.constant(WEIGHTS)))

    def slope(x: Any, w: Any) -> Any:
        dx, dw = module.grad(f, (0, 1))(x, w)
        return in_.reduce_sum(in_.multiply(in_.add(dx, in_.multiply(dw, dw)), in_.constant(SUMMED)))

    def all_of_it(x: Any, w: Any, dx: Any, dw: Any) -> dict[str, Any]:
        value, tangent = module.jvp(f, (x, w), (dx, dw))
        return {
            "value": f(x, w),
            "value of jvp": value,
            "gradient": module.grad(f, (0, 1))(x, w),
            "derivative along a direction": tangent,
            "gradient of the gradient": module.grad(slope, (0, 1))(x, w),
            "forward over reverse": module.jvp(slope, (x, w), (dx, dw))[1],
        }

    return all_of_it
