"""Random JAX programs, loaded: values and gradients are JAX's, and gradients arrive where it is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402 - JAX may be absent
from jax.interpreters import partial_eval  # noqa: E402
from jax_programs import Program  # noqa: E402

import stopgrad.jax as sgj  # noqa: E402

pytestmark = pytest.mark.slow

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
    """Which gradients are not all zero, for one of many draws; more are made until it is as expected.

    Where all are zero because a branch is never taken, or a position never read, what the linear function
    that JAX makes of the program depends on counts instead.
    """
    found = [False] * len(KEYS)
    for draw in range(30):
        leaves = jax.tree.leaves(gradient(*program.example(dtype, draw))[1])
        found = [old or bool(np.any(x)) for old, x in zip(found, leaves, strict=True)]
        if draw >= 2 and found == until:
            return found
    return [old or new for old, new in zip(found, depends(program, program.example(dtype)), strict=True)]


def depends(program: Program, args: Any) -> list[bool]:
    """On which arguments the linear function depends that JAX makes of a program."""
    _, linear = jax.linearize(lambda params, data: program(params, data, *args[2:]), *args[:2])
    jaxpr = jax.make_jaxpr(linear)(*args[:2]).jaxpr
    used: list[bool] = partial_eval.dce_jaxpr(jaxpr, [True])[1]
    return used


def check(program: Program, tmp_path: Path, dtype: Any, order: int, explains: bool = True) -> None:
    """All that must hold of a program.

    Args:
        program: the program.
        tmp_path: a folder.
        dtype: float32 or float64.
        order: up to which derivatives are compared.
        explains: whether it is loaded once more, by ``sgj.explain``.
    """
    doubled = dtype == np.float64
    with jax.enable_x64(doubled):
        args = program.example(dtype)
        model = sgj.load(program, *args)
        gradient = compiled(first(program, jax), args)
        found = [first(model, sg)(*args)]
        expected = [gradient(*args)]
        if order > 1:
            found.append(slope(model, sg, jax)(*args))
            expected.append(compiled(slope(program, jax, jax), args)(*args))
        flow = sgj.explain(program, *args) if explains else explained(model)
        arrives = [flow[key].arrives for key in KEYS]
        assert arrives == reached(gradient, program, dtype, arrives), dict(zip(KEYS, arrives, strict=True))
        assert_same_after_a_file(model, args, tmp_path / "program.sg")
    assert_close(found, expected, expected if doubled else in_doubles(program, order), dtype)


def in_doubles(program: Program, order: int) -> list[Any]:
    """What JAX finds with double precision."""
    with jax.enable_x64(True):
        args = program.example(np.float32)
        args = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype.kind == "f" else x, args)
        functions = [first(program, jax), slope(program, jax, jax)][:order]
        return [compiled(f, args)(*args) for f in functions]


def explained(model: Any) -> dict[str, Any]:
    """What reaches the inputs of a loaded program, by their paths."""
    flow = sg.explain(list(model.outputs.values()), list(model.inputs.values()))
    return {key: flow[x] for key, x in model.inputs.items()}


def assert_same_after_a_file(model: Any, args: Any, path: Path) -> None:
    """A loaded program computes the same after it was written and read."""
    model.graph.save(path)
    again = sg.Graph.load(path)
    fed = [again.output(x.name) for x in model.inputs.values()]
    (y,) = model.outputs.values()
    with sg.Session(again, engine="numpy") as session:
        found = session.run(again.output(y.name), dict(zip(fed, jax.tree.leaves(args), strict=True)))
    np.testing.assert_array_equal(found, np.asarray(model(*args)))


SMALL = [*range(30), *[pytest.param(seed, marks=pytest.mark.nightly) for seed in range(30, 500)]]


@pytest.mark.parametrize("seed", SMALL)
def test_small_programs(seed: int, tmp_path: Path) -> None:
    dtype = np.float32 if seed % 10 == 0 else np.float64
    order = 2 if seed % 20 == 1 else 1
    program = Program(seed, steps=2 + seed % 2, depth=1, honest=order > 1)
    check(program, tmp_path, dtype, order, explains=seed % 8 == 0)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_programs(seed: int, tmp_path: Path) -> None:
    order = 1 if seed % 3 == 0 else 2
    program = Program(seed, steps=4 + seed % 5, honest=order > 1)
    check(program, tmp_path, np.float64 if seed % 2 else np.float32, order)


def test_draws_do_not_depend_on_the_process() -> None:
    """What a seed makes is the same everywhere, so that a failure can be looked at."""
    program = Program(12)
    one, other = (str(jax.make_jaxpr(program)(*program.example())) for _ in range(2))
    assert one == other
    assert jnp.isfinite(program(*jax.tree.map(jnp.asarray, program.example())))


def test_a_sign_has_no_gradient() -> None:
    assert not sgj.explain(lambda x: jnp.sum(jnp.sign(x) * jnp.arange(3.0)), jnp.ones(3))["x"].arrives
