"""Random programs with nested control flow and stops agree with the same programs in JAX.

A program is a small tree of expressions over vectors of three float64 numbers, made from a seed. One
evaluator renders it in either library. Compared are the value, the gradient, the derivative along a
direction, the gradient of the gradient, and a batch. A program that fails is made smaller while it fails,
and shown as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_programs import (
    WEIGHTS,
    Binary,
    Block,
    Checkpoint,
    Cond,
    Constant,
    Expr,
    Fori,
    Jax,
    Language,
    Map,
    Scan,
    Stop,
    Stopgrad,
    Switch,
    Unary,
    Variable,
    While,
    evaluate,
    everything,
    made,
    point,
    quantities,
)

import stopgrad as sg

pytestmark = pytest.mark.slow

QUICK, NIGHTLY = 50, 2050
MADE = 200


# ------------------------------------------------------------------------------------------- programs


# ------------------------------------------------------------------------------------------ rendering


def text(e: Expr, depth: int = 0, seen: Sequence[str] = ("x", "w")) -> str:
    """The program as text that says what the variables are."""

    def of(part: Expr, *more: str) -> str:
        return text(part, depth + 1, [*more, *seen])

    a, b, v = f"a{depth}", f"b{depth}", f"v{depth}"
    match e:
        case Variable(index):
            return seen[index % len(seen)]
        case Constant(value):
            return str(value)
        case Unary(name, x):
            return f"{name}({of(x)})"
        case Binary(name, x, y):
            return f"{name}({of(x)}, {of(y)})"
        case Stop(x):
            return f"stop({of(x)})"
        case Block(x):
            return f"no_gradient({of(x)})"
        case Checkpoint(x):
            return f"checkpoint({of(x)})"
        case Cond(decides, operand, t, f):
            return f"cond({of(decides)}, {v} -> {of(t, v)}, {v} -> {of(f, v)}, {of(operand)})"
        case Switch(decides, operand):
            branches = ", ".join(f"{v} -> {of(branch, v)}" for branch in (e.first, e.second, e.third))
            return f"switch({of(decides)}, [{branches}], {of(operand)})"
        case Scan():
            given = [of(part, a, b, v) for part in (e.next_a, e.next_b, e.given)]
            how = f"n={e.length}, reverse={e.reverse}, unroll={e.unroll}"
            return f"scan({a},{b},{v} -> {', '.join(given)}; {of(e.a)}, {of(e.b)}, {of(e.rows)}; {how})"
        case While():
            given = [of(part, a, b) for part in (e.next_a, e.next_b)]
            how = f"below {e.bound}, at most {e.limit}"
            return f"while({a},{b} -> {', '.join(given)}; {of(e.a)}, {of(e.b)}; {how})"
        case Fori():
            return f"fori({e.lower}, {e.upper}, {a} -> {of(e.next_a, a)}, {of(e.a)})"
        case Map():
            return f"map({v} -> {of(e.x, v)}, {of(e.rows)}; n={e.length})"
    raise AssertionError(e)


# ------------------------------------------------------------------------------------------ comparing


def batched(program: Expr, module: Any, in_: Language) -> Callable[..., dict[str, Any]]:
    def f(x: Any, w: Any) -> Any:
        return in_.reduce_sum(in_.multiply(evaluate(program, [x, w], in_), in_.constant(WEIGHTS)))

    def all_of_it(xs: Any, w: Any) -> dict[str, Any]:
        return {
            "batch of values": module.vmap(f, (0, None))(xs, w),
            "batch of gradients": module.vmap(module.grad(f, (0, 1)), (0, None))(xs, w),
        }

    return all_of_it


def expected(program: Expr, at: Sequence[Any], compile: bool) -> dict[str, Any]:
    with jax.enable_x64(True):
        arrays = [jnp.asarray(x) for x in at]
        f = quantities(program, jax, Jax)
        if compile:
            found = jax.jit(f)(*arrays)
        else:
            with jax.disable_jit():  # Step by step in Python: nothing to compile.
                found = f(*arrays)
        return jax.tree.map(np.asarray, found)


def difference(got: Any, want: Any) -> str | None:
    """Where results differ, or None."""
    for name, wanted in want.items():
        for a, b in zip(jax.tree.leaves(got[name]), jax.tree.leaves(wanted), strict=True):
            a = np.asarray(a)
            if a.dtype != b.dtype or a.shape != b.shape:
                return f"{name}: {a.dtype}{a.shape}, JAX has {b.dtype}{b.shape}"
            if not np.allclose(a, b, rtol=1e-9, atol=1e-10):
                return f"{name}: {a}, JAX has {b}"
    return None


def failure(program: Expr, seed: int, engine: str) -> str | None:
    """What is wrong with a program on an engine, or None."""
    at = point(seed)
    want = expected(program, at, compile=engine == "xla")
    try:
        ours = quantities(program, sg, Stopgrad)
        got = ours(*at) if engine == "immediate" else sg.function(ours, engine=engine)(*at)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return difference(got, want)


def failure_of_a_batch(program: Expr, seed: int, engine: str) -> str | None:
    xs, w = np.random.default_rng(seed).normal(size=(2, 3)), point(seed)[1]
    with jax.enable_x64(True), jax.disable_jit():
        f = batched(program, jax, Jax)
        want = jax.tree.map(np.asarray, f(jnp.asarray(xs), jnp.asarray(w)))
    try:
        ours = batched(program, sg, Stopgrad)
        got = ours(xs, w) if engine == "immediate" else sg.function(ours, engine=engine)(xs, w)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return difference(got, want)


# ------------------------------------------------------------------------------------------ shrinking


def smaller(e: Expr) -> Iterator[Expr]:
    """Programs a little smaller than this one, the smallest first."""
    if not isinstance(e, Variable) or e.index:
        yield Variable(0)
    parts = e.parts()
    yield from parts
    for name, least in (("length", 1), ("limit", 1), ("unroll", 1), ("reverse", False)):
        if getattr(e, name, least) != least:
            yield replace(e, **{name: least})
    if isinstance(e, Fori) and (e.lower, e.upper) != (0, 1):
        yield replace(e, lower=0, upper=1)
    for i, part in enumerate(parts):
        for less in smaller(part):
            if not (isinstance(part, Variable) and isinstance(less, Variable)):
                yield e.with_part(i, less)


def shrunk(program: Expr, fails: Callable[[Expr], str | None], tries: int = 400) -> tuple[Expr, str | None]:
    """The smallest program found that still fails, and how it does."""
    found = fails(program)
    progress = found is not None
    while progress:
        progress = False
        for less in smaller(program):
            tries -= 1
            if tries < 0:
                return program, found
            still = fails(less)
            if still is not None:
                program, found, progress = less, still, True
                break
    return program, found


def check(seed: int, engine: str, fails: Callable[[Expr, int, str], str | None] = failure) -> None:
    program = made(seed)
    found = fails(program, seed, engine)
    if found is not None:
        least, why = shrunk(program, lambda e: fails(e, seed, engine))
        pytest.fail(
            f"seed {seed} on {engine}:\n  {text(program)}\n  {found}\nshrunk:\n  {text(least)}\n  {why}"
        )


# ---------------------------------------------------------------------------------------------- tests


def engine_of(seed: int) -> str:
    """Most run at once, on NumPy; some are traced first; a tenth is compiled."""
    return "xla" if seed % 10 == 5 else "numpy" if seed % 3 == 0 else "immediate"


@pytest.mark.parametrize("seed", range(QUICK))
def test_a_program_agrees_with_jax(seed: int) -> None:
    check(seed, engine_of(seed))


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(QUICK, NIGHTLY, 100))
def test_many_programs_agree_with_jax(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed, engine_of(seed))
        if seed % 20 == 0:
            jax.clear_caches()


WITH_VMAP = pytest.mark.skipif(not hasattr(sg, "vmap"), reason="there is no vmap yet")


@WITH_VMAP
@pytest.mark.parametrize("seed", range(0, QUICK, 4))
def test_a_batch_agrees_with_jax(seed: int) -> None:
    check(seed, "immediate", failure_of_a_batch)


@WITH_VMAP
@pytest.mark.nightly
@pytest.mark.parametrize("first", range(QUICK, NIGHTLY, 100))
def test_many_batches_agree_with_jax(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed, "xla" if seed % 10 == 5 else "immediate", failure_of_a_batch)


def test_programs_are_many_sided() -> None:
    kinds = [{type(e) for e in everything(made(seed))} for seed in range(MADE)]
    for kind in (Stop, Block, Checkpoint, Cond, Switch, Scan, While, Fori, Map):
        assert sum(kind in found for found in kinds) >= 20, kind
    nested = sum(
        any(
            isinstance(inner, (Scan, While, Fori, Map))
            for outer in everything(made(seed))
            if isinstance(outer, (Scan, While, Fori, Map))
            for part in outer.parts()
            for inner in everything(part)
        )
        for seed in range(MADE)
    )
    assert nested >= 50


def test_programs_have_gradients_to_compare() -> None:
    """Not all of them are stopped everywhere; values stay within sight of one."""
    alive = 0
    for seed in range(0, 40, 2):
        found = expected(made(seed), point(seed), compile=False)
        assert abs(found["value"]) < 1e3
        assert all(math.isfinite(x) for x in np.ravel(found["gradient"]))
        alive += any(np.any(g) for g in found["gradient"])
    assert alive >= 10


def test_shrinking_finds_the_part_that_fails() -> None:
    program = next(p for p in map(made, range(MADE)) if has_stop_in_scan(p) and len(list(everything(p))) > 12)
    least, why = shrunk(program, lambda e: "found" if has_stop_in_scan(e) else None, 2000)
    assert why == "found"
    assert len(list(everything(least))) == 8
    assert "stop(x)" in text(least) or "stop(a0)" in text(least) or "stop(b0)" in text(least)


def has_stop_in_scan(program: Expr) -> bool:
    return any(
        isinstance(outer, Scan)
        and any(isinstance(e, Stop) for part in outer.parts() for e in everything(part))
        for outer in everything(program)
    )
