"""JAX functions whose own rules raise errors for some operands, and primitives that libraries make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stopgrad as sg

jax = pytest.importorskip("jax")
sgj = pytest.importorskip("stopgrad.jax")
jnp = jax.numpy
core = pytest.importorskip("jax.extend.core")
ad = pytest.importorskip("jax.interpreters.ad")
X, Y = np.array([0.5, 1.0], np.float32), np.array([2.0, 3.0], np.float32)


@jax.custom_vjp
def choosy(x: Any, y: Any) -> Any:
    """Its second argument cannot be differentiated, as the later ones of ``equinox.filter_custom_vjp``."""
    return jnp.sin(x) * y


def _forward(x: Any, y: Any) -> Any:
    if y.perturbed:
        raise RuntimeError("y cannot be differentiated")
    return choosy(x.value, y.value), (x.value, y.value)


def _backward(kept: Any, g: Any) -> Any:
    x, y = kept
    return 2.0 * g * jnp.cos(x) * y, jnp.zeros_like(y)


choosy.defvjp(_forward, _backward, symbolic_zeros=True)


def loss(x: Any, y: Any) -> Any:
    return choosy(x * 2.0, y).sum()


def test_an_operand_for_which_a_rule_raises_is_undefined() -> None:
    for _ in range(2):  # JAX keeps the trace between the two, and with it what failed.
        model = sgj.load(loss, X, Y)
        np.testing.assert_allclose(model(X, Y), loss(X, Y), rtol=1e-6)
        np.testing.assert_allclose(sg.grad(model)(X, Y), jax.grad(loss)(X, Y), rtol=1e-6)
    flow = sgj.explain(loss, X, Y)
    assert [flow[key].status for key in flow] == ["flows", "undefined"]
    assert "its own rule raises RuntimeError: y cannot be differentiated" in " ".join(flow.to_text().split())
    with pytest.raises(sg.StopgradError, match="y cannot be differentiated"):
        sg.grad(model, argnums=1)(X, Y)


def barrier() -> Any:
    """A primitive that is the identity and lets no cotangent pass, such as libraries make to check uses."""
    made = core.Primitive("barrier")
    made.def_impl(lambda x: x)
    made.def_abstract_eval(lambda x: x)
    ad.primitive_jvps[made] = lambda xs, ts: (made.bind(*xs), made.bind(*ts))

    def transposed(g: Any, x: Any) -> Any:
        raise ValueError("no gradient passes here")

    ad.primitive_transposes[made] = transposed
    return made


def test_a_primitive_that_is_implemented_by_others_is_loaded_as_these() -> None:
    primitive = barrier()

    def f(x: Any, y: Any) -> Any:
        return (x * primitive.bind(y)).sum()

    model = sgj.load(f, X, Y)
    np.testing.assert_allclose(model(X, Y), (X * Y).sum())
    np.testing.assert_allclose(sg.grad(model)(X, Y), Y)
    flow = sgj.explain(f, X, Y)
    assert [flow[key].status for key in flow] == ["flows", "undefined"]


def gated(x: Any, y: Any) -> Any:
    held = sg.stop_gradient(x)  # cut
    return held * y + sg.clip_gradient(y, -1.0, 1.0)


def test_a_function_of_ours_in_a_jax_function_keeps_its_gates_and_lines() -> None:
    ours = sgj.callable(gated)

    def f(x: Any, y: Any) -> Any:
        return (ours(x * 2.0, y) * 100.0).sum()

    flow = sgj.explain(f, X, Y)
    assert [flow[key].status for key in flow] == ["stopped", "flows"]
    (cut,) = flow["x"].cuts
    assert (cut.operation.type, cut.location.line) == ("StopGradient", gated.__code__.co_firstlineno + 1)
    for k in range(2):
        made = sg.grad(sgj.load(f, X, Y), argnums=k)(X, Y)
        np.testing.assert_allclose(made, jax.grad(f, argnums=k)(X, Y), rtol=1e-6)
