"""How large gradients of JAX functions are: JAX's own numbers, and our lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiers import some

jax = pytest.importorskip("jax")
sgj = pytest.importorskip("stopgrad.jax")
sg = pytest.importorskip("stopgrad")
jnp = pytest.importorskip("jax.numpy")


def told(flow: Any) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """The troubles of a report: kind, arguments, causes."""
    return [(one.kind, one.keys, [str(cause) for cause in one.causes]) for one in flow.troubles]


def line_of(flow: Any) -> str:
    """The source of the first cause."""
    return str(flow.troubles[0].causes[0].location.source)


def layers(count: int, size: int = 4) -> Any:
    """Weights and biases as of PyTorch's linear layers."""
    rng = np.random.default_rng(0)
    scale = size**-0.5
    return [
        {"w": rng.uniform(-scale, scale, (size, size)), "b": rng.uniform(-scale, scale, size)}
        for _ in range(count)
    ]


def mlp(act: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def loss(params: Any, x: Any) -> Any:
        for layer in params:
            x = act(x @ layer["w"] + layer["b"])
        return jnp.mean(x**2)

    return loss


X = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)


def single(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda x: jnp.asarray(x, jnp.float32), tree)


@pytest.mark.parametrize("act", some(["tanh", "relu", "gelu"], 3))
def test_the_norms_are_those_of_jaxs_gradients(act: str) -> None:
    loss, params = mlp(getattr(jax.nn, act)), single(layers(3))
    flow = sgj.explain(loss, params, X, argnums=0, magnitudes=True)
    expected = jax.grad(loss)(params, X)
    for i, layer in enumerate(expected):
        for name, g in layer.items():
            one = flow[f"params.{i}.{name}"].magnitude
            assert one.norm == pytest.approx(float(jnp.linalg.norm(g)), rel=1e-4)
            assert one.parameter_norm == pytest.approx(float(jnp.linalg.norm(params[i][name])), rel=1e-5)
            assert (one.elements, one.zeros) == (g.size, int((g == 0).sum()))
    assert flow.troubles == ()


def test_a_chain_of_sigmoids_is_told_with_line_and_factor() -> None:
    flow = sgj.explain(mlp(jax.nn.sigmoid), single(layers(30)), X, argnums=0, magnitudes=True)
    (trouble,) = flow.troubles
    assert trouble.kind == "vanishing"
    assert trouble.start[0].startswith("params.29.")
    assert trouble.end[0].startswith("params.0.")
    assert str(trouble.causes[0]).startswith("Sigmoid passes on 0.2")
    assert str(trouble.causes[0]).endswith("each time (29 uses)")
    assert trouble.causes[0].location.source == 'act(x @ layer["w"] + layer["b"])'


@pytest.mark.parametrize(
    ("f", "says", "source"),
    [
        (lambda w: jax.nn.relu(w - 9.0), "relu is dead: it is off", "jax.nn.relu(w - 9.0)"),
        (lambda w: jax.nn.relu6(w + 9.0), "relu6 passes on nothing: all is outside", "jax.nn.relu6(w + 9.0)"),
        (lambda w: jnp.where(w > 9.0, w, 0.0), "SelectV2 takes none of it", "jnp.where(w > 9.0, w, 0.0)"),
        (lambda w: w * 0.0, "Mul multiplies it by zeros", "w * 0.0"),
        (lambda w: jax.nn.sigmoid(1e6 * w), "Sigmoid is saturated", "jax.nn.sigmoid(1e6 * w)"),
    ],
)
def test_what_passes_nothing_on_is_named(f: Callable[[Any], Any], says: str, source: str) -> None:
    flow = sgj.explain(lambda w: f(w).sum(), jnp.ones((2, 3)), magnitudes=True)
    ((kind, keys, (cause,)),) = told(flow)
    assert (kind, keys) == ("zero", ("w",))
    assert cause.startswith(says)
    assert line_of(flow).startswith(source)


def test_inside_of_a_scan_the_operation_in_its_body_is_named() -> None:
    def f(w: Any, h: Any) -> Any:
        h, _ = jax.lax.scan(lambda h, _: (jax.nn.sigmoid(h * w), None), h, None, length=30)
        return h.sum()

    flow = sgj.explain(f, jnp.ones(()), jnp.zeros(3), magnitudes=True)
    ((kind, keys, causes),) = told(flow)
    assert (kind, keys) == ("vanishing", ("h",))
    assert "(29 uses)" in causes[0]
    assert line_of(flow) == "jax.nn.sigmoid(h * w)"


@pytest.mark.slow
def test_what_numpy_cannot_compute_xla_does() -> None:
    """A primitive that the catalogue lacks, which JAX runs."""

    def f(w: Any) -> Any:
        return jax.lax.reduce_precision(w, 8, 10).sum() + jax.lax.igamma(2.0, w).sum()

    w = jnp.linspace(0.5, 2.0, 5)
    flow = sgj.explain(f, w, magnitudes=True)
    assert flow["w"].magnitude.norm == pytest.approx(float(jnp.linalg.norm(jax.grad(f)(w))), rel=1e-4)


def test_arguments_that_are_only_shapes_have_no_magnitudes() -> None:
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    assert sgj.explain(lambda w: w.sum(), shape)["w"].magnitude is None
    with pytest.raises(sg.ArgumentError, match="w is only a shape"):
        sgj.explain(lambda w: w.sum(), shape, magnitudes=True)


def test_keys_and_integers_may_be_among_the_arguments() -> None:
    def f(w: Any, key: Any, n: Any) -> Any:
        return (w * jax.random.normal(key, w.shape) * n).sum()

    w, key = jnp.ones(3), jax.random.key(0)
    flow = sgj.explain(f, w, key, 2, argnums=0, magnitudes=True)
    expected = jax.grad(f)(w, key, 2.0)
    assert flow["w"].magnitude.norm == pytest.approx(float(jnp.linalg.norm(expected)), rel=1e-5)


@pytest.mark.slow
def test_models_as_flax_initialises_dense_layers_are_not_accused() -> None:
    """LeCun's normal weights, biases of zeros."""
    rng = np.random.default_rng(0)
    params = [{"w": rng.standard_normal((8, 8)) * 8**-0.5, "b": np.zeros(8)} for _ in range(8)]
    x = rng.standard_normal((8, 8)).astype(np.float32)
    for act in (jax.nn.relu, jnp.tanh, jax.nn.gelu):
        flow = sgj.explain(mlp(act), single(params), x, argnums=0, magnitudes=True)
        assert flow.troubles == (), str(flow)
