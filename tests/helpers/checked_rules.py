"""A hundred right gradient rules and a hundred wrong ones: what does ``check_gradients`` say of them?

    python tests/helpers/checked_rules.py            # the table of docs/verdicts.md
    python tests/helpers/checked_rules.py --list     # each rule, and what is said of it

A rule is a ``custom_gradient`` of a few lines: the operations in it are right, and only what it returns is in
question. Wrong rules are right ones with one mistake, at the points where that mistake hides best.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import stopgrad as sg

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
HALF, BRAIN, SINGLE, DOUBLE = np.float16, ml_dtypes.bfloat16, np.float32, np.float64
COMPLEX64, COMPLEX128 = np.complex64, np.complex128


@dataclass(frozen=True)
class Rule:
    """A function with a gradient rule, and where it is checked.

    Attributes:
        kind: what is difficult about it, or what the mistake is.
        name: the function.
        f: the function with its rule.
        points: its arguments.
        order: up to which derivatives it is checked.
    """

    kind: str
    name: str
    f: Function
    points: tuple[Array, ...]
    order: int = 1

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}, {self.points[0].dtype}"

    def passes(self) -> bool:
        """What ``check_gradients`` says of it."""
        return bool(sg.check_gradients(self.f, *self.points, order=self.order, raises=False).passed)


def ruled(value: Function, *pulls: Function) -> Function:
    """A function with these gradient rules, one for each argument: of the cotangent and the arguments."""

    @sg.custom_gradient
    def f(*xs: Any) -> Any:
        return value(*xs), lambda g: tuple(pull(g, *xs) for pull in pulls)

    return f


def times(factor: float, pull: Function) -> Function:
    """A rule with a wrong factor."""
    return lambda g, *xs: pull(g, *xs) * factor


def drawn(dtype: Any, shape: Sequence[int] = (5,), seed: int = 0, positive: bool = False) -> Array:
    """A point without anything special."""
    generator = np.random.default_rng(seed)
    found = generator.uniform(0.4, 1.6, shape)
    if not positive:
        found = found * generator.choice((-1.0, 1.0), shape)
    if np.dtype(dtype).kind == "c":
        found = found + 1j * generator.uniform(-1.0, 1.0, shape)
    return np.asarray(found, dtype)


# ---------------------------------------------------------------------------------------------- the functions

SMOOTH: dict[str, tuple[Function, Function]] = {
    "sin": (sg.sin, lambda g, x: g * sg.cos(x)),
    "exp": (sg.exp, lambda g, x: g * sg.exp(x)),
    "tanh": (sg.tanh, lambda g, x: g * (1.0 - sg.tanh(x) ** 2)),
    "sigmoid": (sg.sigmoid, lambda g, x: g * sg.sigmoid(x) * (1.0 - sg.sigmoid(x))),
    "softplus": (sg.softplus, lambda g, x: g * sg.sigmoid(x)),
    "square": (sg.square, lambda g, x: g * (2.0 * x)),
    "cube": (lambda x: x * x * x, lambda g, x: g * (3.0 * x * x)),
    "reciprocal": (lambda x: 1.0 / x, lambda g, x: -g / (x * x)),
    "atan": (sg.atan, lambda g, x: g / (1.0 + x * x)),
    "x exp(-x²)": (
        lambda x: x * sg.exp(-x * x),
        lambda g, x: g * (1.0 - 2.0 * x * x) * sg.exp(-x * x),
    ),
}
POSITIVE: dict[str, tuple[Function, Function]] = {
    "log": (sg.log, lambda g, x: g / x),
    "sqrt": (sg.sqrt, lambda g, x: g * 0.5 / sg.sqrt(x)),
    "x log x": (lambda x: x * sg.log(x), lambda g, x: g * (sg.log(x) + 1.0)),
}
REDUCED: dict[str, tuple[Function, Function]] = {
    "sum of squares": (lambda x: sg.reduce_sum(x * x), lambda g, x: g * 2.0 * x),
    "mean of cubes": (lambda x: sg.reduce_mean(x * x * x), lambda g, x: g * 3.0 * x * x / 5.0),
    "logsumexp": (sg.reduce_logsumexp, lambda g, x: g * sg.softmax(x)),
    "norm": (sg.norm, lambda g, x: g * x / sg.norm(x)),
    "product": (sg.reduce_prod, lambda g, x: g * sg.reduce_prod(x) / x),
    "variance": (sg.reduce_variance, lambda g, x: g * 2.0 * (x - sg.reduce_mean(x)) / 5.0),
    "maximum": (sg.reduce_max, lambda g, x: g * sg.one_hot(sg.argmax(x), 5, dtype=x.dtype)),
}
MATRICES: dict[str, tuple[Function, tuple[Function, Function]]] = {
    "product of matrices": (
        lambda a, b: a @ b,
        (lambda g, a, b: g @ sg.transpose(b), lambda g, a, b: sg.transpose(a) @ g),
    ),
    "quadratic form": (
        lambda a, b: sg.reduce_sum(b * (a @ b)),
        (lambda g, a, b: g * (b @ sg.transpose(b)), lambda g, a, b: g * (a @ b + sg.transpose(a) @ b)),
    ),
    "solution": (
        lambda a, b: sg.solve(a, b),
        (
            lambda g, a, b: -(sg.solve(sg.transpose(a), g) @ sg.transpose(sg.solve(a, b))),
            lambda g, a, b: sg.solve(sg.transpose(a), g),
        ),
    ),
}
COMPLEX: dict[str, tuple[Function, Function]] = {
    # TensorFlow's convention: the conjugate of the derivative.
    "sin": (sg.sin, lambda g, z: g * sg.conj(sg.cos(z))),
    "exp": (sg.exp, lambda g, z: g * sg.conj(sg.exp(z))),
    "square": (sg.square, lambda g, z: g * sg.conj(2.0 * z)),
    "i z": (lambda z: 1j * z, lambda g, z: -1j * g),
    "conj": (sg.conj, lambda g, z: sg.conj(g)),
    "|z|²": (
        lambda z: sg.real(z * sg.conj(z)),
        lambda g, z: 2.0 * z * sg.cast(g, z.dtype),
    ),
}
"""Functions with their right rules."""

STATIONARY: dict[str, tuple[Function, Function, float, float]] = {
    # name: function, rule, where its slope is 0, and the slope's natural scale there
    "square": (lambda x: x * x, lambda g, x: g * 2.0 * x, 0.0, 2.0),
    "fourth power": (lambda x: x**4.0, lambda g, x: g * 4.0 * x * x * x, 0.0, 4.0),
    "cos": (sg.cos, lambda g, x: -g * sg.sin(x), 0.0, 1.0),
    "(x - 3)²": (lambda x: sg.square(x - 3.0), lambda g, x: g * 2.0 * (x - 3.0), 3.0, 2.0),
    "tanh(x²)": (
        lambda x: sg.tanh(x * x),
        lambda g, x: g * 2.0 * x * (1.0 - sg.tanh(x * x) ** 2),
        0.0,
        2.0,
    ),
    "exp(-x²)": (
        lambda x: sg.exp(-x * x),
        lambda g, x: -g * 2.0 * x * sg.exp(-x * x),
        0.0,
        2.0,
    ),
    "x - log x": (lambda x: x - sg.log(x), lambda g, x: g * (1.0 - 1.0 / x), 1.0, 1.0),
}
STEEP: dict[str, tuple[Function, Function]] = {
    "sqrt": (sg.sqrt, lambda g, x: g * 0.5 / sg.sqrt(x)),
    "cube root": (lambda x: x ** (1.0 / 3.0), lambda g, x: g / 3.0 * x ** (-2.0 / 3.0)),
    "-x log x": (lambda x: -sg.xlogy(x, x), lambda g, x: -g * (sg.log(x) + 1.0)),
}
"""Functions whose slope at 0 is infinite."""
KINKS: dict[str, tuple[Function, float, float]] = {
    # name: function, its slopes below and above 0
    "abs": (sg.abs, -1.0, 1.0),
    "relu": (sg.relu, 0.0, 1.0),
    "leaky relu": (lambda x: sg.leaky_relu(x, 0.2), 0.2, 1.0),
    "max(x, -3 x)": (lambda x: sg.maximum(x, -3.0 * x), -3.0, 1.0),
    "min(x, 2 x)": (lambda x: sg.minimum(x, 2.0 * x), 2.0, 1.0),
}


def bent(f: Function, below: float, above: float, at: float) -> Function:
    """A function that is linear on both sides of 0, with these slopes, and one at 0."""
    return ruled(f, lambda g, x: g * sg.where(x > 0.0, above, sg.where(x < 0.0, below, at)))


def smooth(dtypes: Sequence[Any], twist: Function = lambda pull: pull) -> Iterator[tuple[str, Function, Any]]:
    """Smooth functions of one argument at points of some dtypes."""
    for dtype in dtypes:
        for name, (value, pull) in {**SMOOTH, **POSITIVE}.items():
            yield name, ruled(value, twist(pull)), (drawn(dtype, positive=name in POSITIVE),)


def reduced(
    dtypes: Sequence[Any], twist: Function = lambda pull: pull
) -> Iterator[tuple[str, Function, Any]]:
    """Reductions at points of some dtypes."""
    for dtype in dtypes:
        for name, (value, pull) in REDUCED.items():
            yield name, ruled(value, twist(pull)), (drawn(dtype),)


def of_complex(twist: Function = lambda pull: pull) -> Iterator[tuple[str, Function, Any]]:
    """Functions of complex numbers."""
    for dtype in (COMPLEX64, COMPLEX128):
        for name, (value, pull) in COMPLEX.items():
            yield name, ruled(value, twist(pull)), (drawn(dtype),)


def right() -> Iterator[Rule]:
    """Right rules, at points where a check may be mistaken."""
    for name, f, points in smooth((DOUBLE, SINGLE, HALF)):
        yield Rule("generic", name, f, points, 1 if points[0].dtype == HALF else 2)
    for name, f, points in reduced((DOUBLE, SINGLE)):
        yield Rule("reductions", name, f, points)
    for dtype in (DOUBLE, SINGLE):
        a, b = drawn(dtype, (3, 3)) + 2.0 * np.eye(3, dtype=dtype), drawn(dtype, (3, 1), 1)
        for name, (value, pulls) in MATRICES.items():
            yield Rule("matrices", name, ruled(value, *pulls), (a, b))
    for name, f, points in of_complex():
        yield Rule("complex", name, f, points)
    for dtype in (DOUBLE, SINGLE, HALF):
        for name, (value, pull, where, _) in STATIONARY.items():
            order = 1 if dtype is HALF else 2
            yield Rule("stationary points", name, ruled(value, pull), (np.full(3, where, dtype),), order)
    for dtype in (DOUBLE, SINGLE):
        for name, (f, low, high) in KINKS.items():
            for slope in (low, high):
                yield Rule(
                    "kinks", f"{name}, slope {slope:g}", bent(f, low, high, slope), (np.zeros(2, dtype),)
                )
    tied = np.array([1.0, 3.0, 3.0, 0.5])
    for dtype in (DOUBLE, SINGLE):
        for name, pull in {"shared evenly": _even, "to the first": _first}.items():
            yield Rule("ties", f"maximum {name}", ruled(sg.reduce_max, pull), (tied.astype(dtype),))
    for dtype in (DOUBLE, SINGLE):
        for name, (value, pull) in STEEP.items():
            yield Rule("infinite slopes", name, ruled(value, pull), (np.array([0.0, 0.7], dtype),))
    for dtype in (DOUBLE, SINGLE):
        many = np.random.default_rng(2).normal(size=5000).astype(dtype)
        many[::7] = 0.0
        yield Rule("thousands of numbers", "sin", ruled(*SMOOTH["sin"]), (many,))
        yield Rule("thousands of numbers", "relu with kinks", bent(sg.relu, 0.0, 1.0, 0.0), (many,))
    for size in (1e-8, 1e8):
        for dtype in (DOUBLE, SINGLE):
            for name in ("square", "cube"):
                points = (drawn(dtype) * np.asarray(size, dtype),)
                yield Rule("large and small numbers", f"{name} at {size:g}", ruled(*SMOOTH[name]), points)


def _even(g: Any, x: Any) -> Any:
    top = sg.cast(sg.equal(x, sg.reduce_max(x)), x.dtype)
    return g * top / sg.reduce_sum(top)


def _first(g: Any, x: Any) -> Any:
    return g * sg.one_hot(sg.argmax(x), 4, dtype=x.dtype)


def _all(g: Any, x: Any) -> Any:
    return g * sg.cast(sg.equal(x, sg.reduce_max(x)), x.dtype)


def wrong() -> Iterator[Rule]:
    """Wrong rules."""
    for dtype, factor in ((DOUBLE, 1.00001), (SINGLE, 1.01), (HALF, 1.2)):
        for name, f, points in smooth((dtype,), partial(times, factor)):
            yield Rule(f"a factor of {factor}", name, f, points)
    for name, f, points in reduced((DOUBLE,), partial(times, 1.00001)):
        yield Rule("a factor of 1.00001", f"{name} of a vector", f, points)
    for name, f, points in reduced((SINGLE,), partial(times, -1.0)):
        yield Rule("a sign", name, f, points)
    for dtype in (DOUBLE, SINGLE):
        a, b = drawn(dtype, (3, 3)) + 2.0 * np.eye(3, dtype=dtype), drawn(dtype, (3, 1), 1)
        for name, (value, pulls) in MATRICES.items():
            for i in range(2):
                some = [(lambda g, a, b, p=p: -p(g, a, b)) if i == k else p for k, p in enumerate(pulls)]
                yield Rule("a sign", f"{name}, operand {i}", ruled(value, *some), (a, b))
    for dtype in (DOUBLE, SINGLE):
        for name in ("sin", "exp", "tanh", "cube"):
            value, pull = SMOOTH[name]
            mask = np.ones(5000, dtype)
            mask[4321] = 1.1
            many = np.random.default_rng(3).uniform(0.5, 1.0, 5000).astype(dtype)
            f = ruled(value, lambda g, x, pull=pull, mask=mask: pull(g, x) * mask)
            yield Rule("one of 5,000 numbers", name, f, (many,))
    yield from _broadcast()
    for name, f, points in of_complex(lambda pull: lambda g, z: sg.conj(pull(g, z))):
        yield Rule("a conjugate", name, f, points)
    for dtype in (DOUBLE, SINGLE):
        for name, (value, pull) in {
            "sin": SMOOTH["sin"],
            "exp": SMOOTH["exp"],
            "square": SMOOTH["square"],
        }.items():
            yield Rule("order 2 alone", name, _later(value, pull), (drawn(dtype),), 2)
    for dtype in (DOUBLE, SINGLE):
        for name, (value, pull, where, scale) in STATIONARY.items():
            f = ruled(value, lambda g, x, pull=pull, scale=scale: pull(g, x) + g * (1e-3 * scale))
            yield Rule("1e-3 at a stationary point", name, f, (np.full(3, where, dtype),))
    for dtype in (DOUBLE, SINGLE):
        for name, (f, low, high) in KINKS.items():
            least, most = min(low, high), max(low, high)
            for slope in (least - 0.1, most + 0.1):
                yield Rule(
                    "outside of a kink",
                    f"{name}, slope {slope:g}",
                    bent(f, low, high, slope),
                    (np.zeros(2, dtype),),
                )
    tied = np.array([1.0, 3.0, 3.0, 0.5])
    for dtype in (DOUBLE, SINGLE):
        for name, pull in {
            "to all": _all,
            "to none": lambda g, x: 0.0 * x,
            "to others": lambda g, x: g - _all(g, x),
        }.items():
            yield Rule("ties", f"maximum {name}", ruled(sg.reduce_max, pull), (tied.astype(dtype),))
    for dtype in (DOUBLE, SINGLE):
        for name, (value, pull) in STEEP.items():
            for what, mistake in (("finite", lambda t: sg.minimum(t, 1e3)), ("sign", lambda t: -t)):
                f = ruled(value, lambda g, x, pull=pull, mistake=mistake: mistake(pull(g, x)))
                yield Rule("infinite slopes", f"{name}, {what}", f, (np.array([0.0, 0.7], dtype),))


def _broadcast() -> Iterator[Rule]:
    """Sums over what was broadcast, forgotten or taken over too much."""
    x, row, scalar = drawn(DOUBLE, (3, 4)), drawn(DOUBLE, (4,), 1), drawn(DOUBLE, (), 2)
    for op, name, by_x, by_b in (
        (lambda x, b: x + b, "sum", lambda g, x, b: g, lambda g, x, b: g),
        (lambda x, b: x * b, "product", lambda g, x, b: g * b, lambda g, x, b: g * x),
        (lambda x, b: x / b, "quotient", lambda g, x, b: g / b, lambda g, x, b: -g * x / (b * b)),
    ):
        for what, b, mistake in (
            ("mean", row, lambda t: sg.reduce_mean(t, 0)),
            ("first row", row, lambda t: t[0]),
            ("last row missing", row, lambda t: sg.reduce_sum(t[:-1], 0)),
            ("mean of all", scalar, lambda t: sg.reduce_mean(t)),
        ):
            pull = lambda g, x, b, by_b=by_b, mistake=mistake: mistake(by_b(g, x, b))
            yield Rule("sums of broadcasting", f"{name}, {what}", ruled(op, by_x, pull), (x, b))


def _later(value: Function, pull: Function) -> Function:
    """A function whose rule has the right value and a wrong rule of its own."""
    slope = ruled(lambda g, x: pull(g, x), lambda h, g, x: pull(h, x), lambda h, g, x: h * g * 0.5)
    return ruled(value, slope)


# ------------------------------------------------------------------------------------------------ the table


def table() -> list[str]:
    """The table of docs/verdicts.md: kinds, how many were tried, and of how many the verdict was wrong."""
    rows = ["| rules | tried | wrong verdicts |", "| --- | --: | --: |"]
    for title, rules, expected in (("right", right(), True), ("wrong", wrong(), False)):
        tried, mistaken = Counter[str](), Counter[str]()
        for rule in rules:
            tried[rule.kind] += 1
            mistaken[rule.kind] += rule.passes() is not expected
        rows += [f"| {title}: {kind} | {tried[kind]} | {mistaken[kind]} |" for kind in tried]
        rows.append(f"| **{title}, all** | {tried.total()} | {mistaken.total()} |")
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print each rule, and what is said of it")
    if parser.parse_args(arguments).list:
        for title, rules in (("right", right()), ("wrong", wrong())):
            for rule in rules:
                print(title, "passes" if rule.passes() else "DIFFERS", rule, sep="  ", flush=True)
    else:
        print("\n".join(table()))


if __name__ == "__main__":
    main(sys.argv[1:])
