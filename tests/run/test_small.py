"""Small programs: with ``"auto"``, NumPy computes them sooner than one that is compiled."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stopgrad as sg

F = np.float32


def bend(x: Any, y: Any = 1.0) -> Any:
    return sg.where(x > 0.0, sg.tanh(x) * y, sg.exp(x) - y)


def engine_of(f: Any, *arguments: Any) -> str:
    f(*arguments)
    found: str = f.report()[-1].engine
    return found


SMALL = {
    "an array": (bend, np.linspace(-1, 1, 8, dtype=F)),
    "a number": (bend, 0.5),
    "two dtypes": (lambda x, n: x * sg.cast(n, x.dtype), np.ones(3), np.arange(3)),
    "a constant": (lambda x: x * np.arange(3.0), np.ones(3)),
    "views": (lambda x: sg.reshape(x, [2, 3]) * sg.reshape(x, [2, 3]), np.ones(6, F)),
    "a sum": (lambda x: sg.reduce_sum(x * x, 1) + sg.reduce_sum(x), np.ones((3, 4), F)),
    "a product of matrices": (sg.matmul, np.eye(2, 3, dtype=F), np.ones((3, 2), F)),
    "a gradient": (sg.grad(lambda x: sg.stop_gradient(x) * x), 2.0),
    "no argument": (lambda: sg.constant(2.0) * 3.0,),
    "booleans": (lambda x: (x > 0.0) & (x < 1.0), np.array([-1.0, 0.5, 2.0])),
}
LARGE = {
    "many elements": (bend, np.ones(600, F)),
    "many operations": (
        lambda x: sg.sin(sg.sin(sg.sin(sg.sin(sg.sin(sg.sin(sg.sin(sg.sin(sg.sin(x))))))))),
        1.0,
    ),
    "a maximum": (sg.reduce_max, np.ones(3, F)),
    "a loop": (lambda x: sg.while_loop(lambda i: i < 3.0, lambda i: i + 1.0, x), 0.0),
    "random numbers": (lambda x: x + sg.random.normal(sg.random.key(0), [3]), np.ones(3, F)),
}


@pytest.mark.parametrize("case", SMALL)
def test_numpy_computes_what_is_small(case: str) -> None:
    f, *arguments = SMALL[case]
    auto, xla = sg.function(f), sg.function(f, engine="xla")
    for _ in range(4):  # The shorter way is taken from the third call on.
        found, expected = auto(*arguments), xla(*arguments)
        assert (type(found), found.dtype, found.shape) == (np.ndarray, expected.dtype, expected.shape)
        assert found.flags.writeable
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        found[...] = 0
    assert [one.engine for one in auto.report()] == ["numpy"]
    assert [one.engine for one in xla.report()] == ["xla"]


@pytest.mark.parametrize("case", LARGE)
def test_all_else_is_compiled(case: str) -> None:
    f, *arguments = LARGE[case]
    assert engine_of(sg.function(f), *arguments) == "xla"


def test_arrays_of_jax_stay_on_their_devices() -> None:
    f = sg.function(bend)
    x = np.linspace(-1, 1, 8, dtype=F)
    expected = f(x)
    for _ in range(3):
        for _ in range(3):
            found = f(jnp.asarray(x))
            assert isinstance(found, jax.Array)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        for _ in range(3):
            assert type(f(x)) is np.ndarray
    assert [one.engine for one in f.report()] == ["numpy", "xla"]
    assert f.traces == 1
    compiled = sg.function(bend, engine="xla")
    slopes = [jax.grad(lambda x, g=g: g(x).sum())(jnp.asarray(x)) for g in (f, compiled)]
    np.testing.assert_array_equal(*slopes)


def test_open_sizes() -> None:
    f = sg.function(bend, shapes={"x": ["n"]})
    assert engine_of(f, np.ones(3, F)) == "numpy"
    assert engine_of(f, np.ones(1000, F)) == "xla"
    assert isinstance(f(jnp.ones(3)), jax.Array)
    assert isinstance(f(jnp.ones(1000)), jax.Array)
    assert [one.engine for one in f.report()] == ["numpy", "xla", "xla"]  # For 3, 1000, and 3 of JAX's.
    assert f.traces == 1


def test_what_is_lowered_is_read_as_xla_has_it() -> None:
    compiled = sg.function(bend).lower(np.ones(3, F)).compile()
    assert "HloModule" in compiled.as_text()
    assert compiled(np.ones(3, F)).tolist() == sg.function(bend, engine="xla")(np.ones(3, F)).tolist()


def test_sessions() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3])
        w = sg.parameter(np.ones(3, F))
        small, read, written = bend(x), x * w, sg.assign(w, x * 2.0)
    with sg.Session(graph) as session:
        value = np.array([-1.0, 0.0, 1.0], F)
        session.run(written, {x: value})
        for fetch in (small, read, small):
            for _ in range(3):
                found = session.run(fetch, {x: value})
            assert session.engine == "xla"
        assert [one.engine for one in session.report()] == ["xla", "numpy", "xla"]
        assert session.value(w).tolist() == [-2.0, 0.0, 2.0]
        np.testing.assert_allclose(found, sg.function(bend, engine="xla")(value), rtol=1e-6)
        assert session.run(small, {x: jnp.asarray(value)}).tolist() == found.tolist()


def test_warnings_of_numpy_stay_on_for_others() -> None:
    before = np.geterr()
    f = sg.function(lambda x: sg.log(x) / x)
    for _ in range(4):
        with np.errstate(all="raise"):
            assert np.isnan(f(np.float32(0.0))) or np.isinf(f(np.float32(0.0)))
            with pytest.raises(FloatingPointError):
                np.log(np.float32(0.0))
    assert np.geterr() == before


@pytest.mark.slow
def test_jax_is_imported_when_something_is_compiled_with_it() -> None:
    text = """
        import sys, numpy as np, stopgrad as sg
        f = sg.function(lambda x: sg.tanh(x) + 1.0)
        f(np.ones(3)), f(2.0)
        print("jax" in sys.modules)
        f(np.ones(10_000))
        print("jax" in sys.modules)
    """
    lines = "\n".join(line.strip() for line in text.splitlines())
    found = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]
