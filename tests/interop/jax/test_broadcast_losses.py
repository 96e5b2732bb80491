"""Losses in JAX that compare each prediction with every target, by mistake, and those that mean it."""

from __future__ import annotations

from typing import Any

import pytest
from tiers import some

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from broadcasting import SIZES, TRAINED, WRONG, correct, loss, values  # noqa: E402

import stopgrad.jax as sgj  # noqa: E402

FUNCTIONS = {
    **{"mean": jnp.mean, "sum_": jnp.sum, "min_": jnp.min, "logsumexp": jax.nn.logsumexp, "sq": jnp.square},
    **{"abs_": jnp.abs, "softmax": jax.nn.softmax},
    **{name: getattr(jnp, name) for name in ("sqrt", "where", "maximum", "log", "exp")},
    **{name: getattr(jax.nn, name) for name in ("relu", "sigmoid", "softplus")},
}


def of(flow: Any) -> list[Any]:
    return [one for one in flow.findings if one.kind == "broadcast-loss"]


def told(text: str, n: int, compiled: bool = False) -> list[Any]:
    """What is said of a loss."""
    given = {name: jnp.asarray(x) for name, x in values(n).items()}
    names = [*TRAINED, *[name for name in given if name not in TRAINED]]

    def f(*args: Any) -> Any:
        return loss(text, FUNCTIONS, dict(zip(names, args, strict=True)))

    argnums = tuple(range(len(TRAINED)))
    return of(sgj.explain(jax.jit(f) if compiled else f, *[given[name] for name in names], argnums=argnums))


@pytest.mark.parametrize("text", WRONG)
def test_what_is_compared_with_all_by_mistake(text: str) -> None:
    assert told(text, 6)
    assert told(text, 6, compiled=True)
    assert not told(WRONG[text], 6)


@pytest.mark.parametrize("n", some(SIZES, 3))
def test_broadcasting_that_is_meant(n: int) -> None:
    assert not [text for text in correct() if told(text, n)]


def test_functions_that_are_mapped() -> None:
    w, x, y = jnp.ones((3, 1)), jnp.ones((8, 3)), jnp.ones(8)

    def each(w: Any, x: Any, y: Any) -> Any:
        return jax.vmap(lambda p, t: jnp.sum((p - t) ** 2))(x @ w, y).mean()

    def pairs(w: Any, x: Any, y: Any) -> Any:
        return jax.vmap(lambda p: jnp.sum((p - y) ** 2))(x @ w).mean()

    def several(w: Any, x: Any, y: Any) -> Any:
        return jax.vmap(lambda w: jnp.mean((x @ w - y) ** 2))(jnp.stack([w, w])).sum()

    assert not of(sgj.explain(each, w, x, y, argnums=0))
    assert not of(sgj.explain(pairs, w, x, y, argnums=0))
    (one,) = of(sgj.explain(several, w, x, y, argnums=0))
    assert "[2, 8, 1] and [8]" in one.message


def test_losses_of_optax() -> None:
    optax = pytest.importorskip("optax")
    w, x, y = jnp.ones((3, 1)), jnp.ones((8, 3)), jnp.ones(8)
    for function in (optax.huber_loss, optax.log_cosh, optax.sigmoid_binary_cross_entropy):

        def f(w: Any, x: Any, y: Any, function: Any = function) -> Any:
            return function(x @ w, y).mean()

        (one,) = of(sgj.explain(f, w, x, y, argnums=0))
        assert one.location.own.file == __file__
        assert not of(sgj.explain(f, w, x, y[:, None], argnums=0))


def test_a_monitor_tells_it() -> None:
    lines: list[str] = []

    class To:
        def write(self, text: str) -> None:
            lines.append(text)

    monitor = sgj.monitor(lambda w, x, y: ((x @ w - y) ** 2).mean(), every=1, to=To())
    monitor(jnp.ones((3, 1)), jnp.ones((8, 3)), jnp.ones(8))
    assert "since step 0, the loss that trains w compares all with all" in lines[0]
    assert "[8, 1] and [8] are broadcast to [8, 8]" in lines[0]
