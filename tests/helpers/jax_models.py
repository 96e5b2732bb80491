"""Small models of JAX's libraries with losses, as their documentation has them: each trains as it should.

Each is a loss of parameters and data. Those of networks are made of architectures and of losses of optax; the
others stand for themselves, in ``jax_others``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

KEY = jax.random.key(0)


def library(name: str) -> Any:
    """A module of a library, or the reason why a test of it is skipped."""
    return pytest.importorskip(name, reason=f"{name.partition('.')[0]} is not installed")


def normal(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32))


class Model(NamedTuple):
    """A loss, its parameters, and further arguments.

    Attributes:
        loss: takes the parameters first.
        params: a structure of arrays; all but *held* are trained.
        args: further arguments.
        held: parts of paths of what gets no gradient.
    """

    loss: Callable[..., Any]
    params: Any
    args: tuple[Any, ...] = ()
    held: tuple[str, ...] = ()


MODELS: dict[str, Callable[[], Model]] = {}


def model(build: Callable[[], Model]) -> Callable[[], Model]:
    """Decorator: a model with a loss of its own, by the name of the function that builds it."""
    MODELS[build.__name__.replace("_", " ")] = build
    return build


# ------------------------------------------------------------------------------------------- networks

LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "squares": lambda out, y: library("optax").l2_loss(out, y).mean(),
    "cross entropy": lambda out, y: library("optax").softmax_cross_entropy(out, jax.nn.softmax(y)).mean(),
    "huber": lambda out, y: library("optax").huber_loss(out, y, delta=0.5).sum(),
    "cosine": lambda out, y: library("optax").cosine_distance(out, y, epsilon=1e-6).mean(),
}
X, SERIES, IMAGE, WORDS = normal(3, 4), normal(2, 5, 4), normal(2, 6, 6, 3), np.array([[0, 2, 1], [3, 1, 0]])


def _linen() -> dict[str, tuple[Callable[[], Any], Any]]:
    nn = library("flax.linen")
    two = nn.Dense(2)
    return {
        "perceptron": (lambda: nn.Sequential([nn.Dense(6), nn.relu, two]), X),
        "layer norm": (lambda: nn.Sequential([nn.Dense(6), nn.LayerNorm(), nn.gelu, two]), X),
        "convolutions": (
            lambda: nn.Sequential([nn.Conv(4, (3, 3)), nn.silu, lambda x: x.mean((1, 2)), two]),
            IMAGE,
        ),
        "group norm": (
            lambda: nn.Sequential(
                [nn.Conv(4, (3, 3)), nn.GroupNorm(2), nn.relu, lambda x: x.mean((1, 2)), two]
            ),
            IMAGE,
        ),
        "lstm": (lambda: nn.Sequential([nn.RNN(nn.LSTMCell(5)), lambda x: x[:, -1], two]), SERIES),
        "gru": (lambda: nn.Sequential([nn.RNN(nn.GRUCell(5)), lambda x: x[:, -1], two]), SERIES),
        "attention": (
            lambda: nn.Sequential([nn.MultiHeadDotProductAttention(2), lambda x: x.mean(1), two]),
            SERIES,
        ),
        "embedding": (lambda: nn.Sequential([nn.Embed(5, 4), nn.tanh, lambda x: x.mean(1), two]), WORDS),
    }


def _haiku() -> dict[str, tuple[Callable[[], Any], Any]]:
    hk = library("haiku")
    return {
        "perceptron": (lambda: hk.nets.MLP([6, 2]), X),
        "layer norm": (
            lambda: hk.Sequential([hk.Linear(6), hk.LayerNorm(-1, True, True), jax.nn.gelu, hk.Linear(2)]),
            X,
        ),
        "convolutions": (
            lambda: hk.Sequential([hk.Conv2D(4, 3), jax.nn.silu, lambda x: x.mean((1, 2)), hk.Linear(2)]),
            IMAGE,
        ),
        "lstm": (
            lambda: (
                lambda x: hk.Linear(2)(
                    hk.dynamic_unroll((core := hk.LSTM(5)), x, core.initial_state(2), time_major=False)[0][
                        :, -1
                    ]
                )
            ),
            SERIES,
        ),
        "attention": (
            lambda: (
                lambda x: hk.Linear(2)(
                    hk.MultiHeadAttention(2, 3, w_init=hk.initializers.VarianceScaling())(x, x, x).mean(1)
                )
            ),
            SERIES,
        ),
        "embedding": (lambda: hk.Sequential([hk.Embed(5, 4), lambda x: x.mean(1), hk.Linear(2)]), WORDS),
    }


def _equinox() -> dict[str, tuple[Any, Any]]:
    eqx = library("equinox")
    nn, keys = eqx.nn, jax.random.split(KEY, 4)
    act = nn.Lambda(jax.nn.gelu)
    return {
        "perceptron": (nn.MLP(4, 2, 6, 1, key=KEY), X),
        "layer norm": (
            nn.Sequential([nn.Linear(4, 6, key=keys[0]), nn.LayerNorm(6), act, nn.Linear(6, 2, key=keys[1])]),
            X,
        ),
        "rms norm": (nn.Sequential([nn.RMSNorm(4), nn.Linear(4, 2, key=keys[1])]), X),
        "convolutions": (
            nn.Sequential(
                [
                    nn.Conv2d(6, 3, (3, 2), key=keys[0]),
                    act,
                    nn.Lambda(jnp.ravel),
                    nn.Linear(24, 2, key=keys[1]),
                ]
            ),
            IMAGE,
        ),
    }


def _nnx() -> dict[str, tuple[Any, Any]]:
    nnx = library("flax.nnx")
    rngs = nnx.Rngs(0)
    two = nnx.Linear(6, 2, rngs=rngs)
    return {
        "perceptron": (nnx.Sequential(nnx.Linear(4, 6, rngs=rngs), nnx.relu, two), X),
        "layer norm": (
            nnx.Sequential(nnx.Linear(4, 6, rngs=rngs), nnx.LayerNorm(6, rngs=rngs), nnx.gelu, two),
            X,
        ),
        "convolutions": (
            nnx.Sequential(nnx.Conv(3, 6, (3, 3), rngs=rngs), nnx.silu, lambda x: x.mean((1, 2)), two),
            IMAGE,
        ),
        "embedding": (nnx.Sequential(nnx.Embed(5, 6, rngs=rngs), lambda x: x.mean(1), two), WORDS),
        "attention": (
            nnx.Sequential(
                nnx.MultiHeadAttention(2, 4, 6, decode=False, rngs=rngs),
                lambda x: x.mean(1),
                nnx.Linear(4, 2, rngs=rngs),
            ),
            SERIES,
        ),
    }


def _of_linen(net: Any, x: Any, loss: Any) -> Model:
    made = net()
    params = made.init(KEY, x)
    y = normal(len(x), 2, seed=3)
    return Model(lambda params, x: loss(made.apply(params, x), y), params, (x,))


def _of_haiku(net: Any, x: Any, loss: Any) -> Model:
    made = library("haiku").without_apply_rng(library("haiku").transform(lambda x: net()(x)))
    y = normal(len(x), 2, seed=3)
    return Model(lambda params, x: loss(made.apply(params, x), y), made.init(KEY, x), (x,))


def _of_equinox(net: Any, x: Any, loss: Any) -> Model:
    eqx = library("equinox")
    params, static = eqx.partition(net, eqx.is_inexact_array)
    y = normal(len(x), 2, seed=3)
    return Model(lambda params, x: loss(jax.vmap(eqx.combine(params, static))(x), y), params, (x,))


def _of_nnx(net: Any, x: Any, loss: Any) -> Model:
    nnx = library("flax.nnx")
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    y = normal(len(x), 2, seed=3)
    return Model(lambda params, x: loss(nnx.merge(graph, params, rest)(x), y), params, (x,))


NETWORKS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[..., Model], tuple[str, ...]]] = {
    "linen": (
        _linen,
        _of_linen,
        (
            "perceptron",
            "layer norm",
            "convolutions",
            "group norm",
            "lstm",
            "gru",
            "attention",
            "embedding",
        ),
    ),
    "haiku": (
        _haiku,
        _of_haiku,
        ("perceptron", "layer norm", "convolutions", "lstm", "attention", "embedding"),
    ),
    "equinox": (
        _equinox,
        _of_equinox,
        ("perceptron", "layer norm", "rms norm", "convolutions"),
    ),
    "nnx": (_nnx, _of_nnx, ("perceptron", "layer norm", "convolutions", "embedding", "attention")),
}


def _network(kind: str, name: str, loss: str) -> Callable[[], Model]:
    def build() -> Model:
        networks, of, _ = NETWORKS[kind]
        return of(*networks()[name], LOSSES[loss])

    return build


for _kind, (_, _, _names) in NETWORKS.items():
    for _name in _names:
        for _loss in LOSSES:
            MODELS[f"{_kind} {_name}, {_loss}"] = _network(_kind, _name, _loss)
