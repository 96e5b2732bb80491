"""Random JAX programs, loaded: values and gradients are JAX's, and a gradient is said to arrive where it does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402 - JAX may be absent

import stopgrad.jax as sgj  # noqa: E402
from jax_programs import Program  # noqa: E402

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
KEYS = ("params.b.scale", "params.b.shift", "params.w", "data.0", "data.1")
"""The arguments that are floating-point, in JAX's order."""


def compiled(f: Callable[..., Any], args: Any) -> Callable[..., Any]:
    """A function by JAX, compiled for this once."""
    made: Callable[..., Any] = jax.jit(f).lower(*args).compile(FAST)
    return made


def first(f: Callable[..., Any], of: Any) -> Callable[..., Any]:
    """A function's value and gradient, by JAX or by us."""
    made: Callable[..., Any] = of.value_and_grad(f, argnums=(0, 1))
    return made


def slope(f: Callable[..., Any], of: Any, numbers: Any) -> Callable[..., Any]:
    """The derivative of the gradient, along a direction."""

    def along(*args: Any) -> Any:
        found = numbers.tree.leaves(of.grad(f, argnums=(0, 1))(*args))
        return sum((x * np.cos(np.arange(x.size)).reshape(x.shape).astype(x.dtype)).sum() for x in found)

    made: Callable[..., Any] = of.grad(along, argnums=(0, 1))
    return made


def assert_close(found: Any, expected: Any, exact: Any, dtype: Any) -> None:
    """Agreement to 1e-10, of single precision to 1e-5 or what JAX itself reaches there."""
    for one, other, true in zip(*map(jax.tree.leaves, (found, expected, exact)), strict=True):
        one, other, true = (np.asarray(x, np.float64) for x in (one, other, true))
        size = 1.0 + np.abs(true).max(initial=0.0)
        if dtype == np.float64:
            np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-10 * size)
        else:
            reached = np.abs(other - true).max(initial=0.0)
            np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-5 * size + 4.0 * reached)


def reached(gradient: Callable[..., Any], program: Program, dtype: Any, until: list[bool]) -> list[bool]:
    """Which gradients are not all zero, for one of many draws; more are made until it is as expected."""
    found = [False] * len(KEYS)
    for draw in range(60):
        leaves = jax.tree.leaves(gradient(*program.example(dtype, draw))[1])
        found = [old or bool(np.any(x)) for old, x in zip(found, leaves, strict=True)]
        if draw >= 2 and found == until:
            break
    return found


def check(seed: int, tmp_path: Path, order: int, **options: Any) -> None:
    program = Program(seed, **options)
    dtype = np.float64 if seed % 2 else np.float32
    with jax.enable_x64(True):
        args = program.example(np.float64)
        exact = compiled(first(program, jax), args)(*args)
        bend = compiled(slope(program, jax, jax), args)(*args) if order > 1 else None
    with jax.enable_x64(dtype == np.float64):
        args = program.example(dtype)
        model = sgj.load(program, *args)
        gradient = compiled(first(program, jax), args)
        assert_close(first(model, sg)(*args), gradient(*args), exact, dtype)
        if order > 1:
            expected = compiled(slope(program, jax, jax), args)(*args)
            assert_close(slope(model, sg, jax)(*args), expected, bend, dtype)
        flow = sgj.explain(program, *args)
        arrives = [flow[key].arrives for key in KEYS]
        assert arrives == reached(gradient, program, dtype, arrives), dict(zip(KEYS, arrives, strict=True))
        again = sg.Graph.load(saved(model.graph, tmp_path / "program.sg"))
        fed = dict(
            zip([again.output(x.name) for x in model.inputs.values()], jax.tree.leaves(args), strict=True)
        )
        (y,) = [again.output(y.name) for y in model.outputs.values()]
        with sg.Session(again, engine="numpy") as session:
            np.testing.assert_array_equal(session.run(y, fed), np.asarray(model(*args)))


def saved(graph: sg.Graph, path: Path) -> Path:
    graph.save(path)
    return path


@pytest.mark.parametrize("seed", range(60))
def test_small_programs(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path, order=2 if seed % 5 == 0 else 1, steps=4)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_programs(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path, order=2, steps=5 + seed % 4)


def test_draws_do_not_depend_on_the_process() -> None:
    """What a seed makes is the same everywhere, so that a failure can be looked at."""
    program = Program(12)
    one, other = (str(jax.make_jaxpr(program)(*program.example())) for _ in range(2))
    assert one == other
    assert jnp.isfinite(program(*jax.tree.map(jnp.asarray, program.example())))
