"""The training steps in JAX and optax: ``jax.jit`` with a sharding for every array, the old ones donated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from scale.models import RATE, Case, Sizes, Tensor, Words, batch, loss, parameters


def norm(x: Any, scale: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * scale


WORDS = Words(
    gelu=lambda x: jax.nn.gelu(x, approximate=True),
    norm=norm,
    softmax=jax.nn.softmax,
    cross_entropy=lambda x, y: optax.softmax_cross_entropy_with_integer_labels(x, y).mean(),
    take=lambda rows, which: rows[which],
    mean=jnp.mean,
    square=jnp.square,
    reshape=jnp.reshape,
    transpose=jnp.transpose,
    where=jnp.where,
    stop=jax.lax.stop_gradient,
)
RULES = {"sgd": lambda: optax.sgd(RATE), "adamw": lambda: optax.adamw(RATE)}


class Step:
    """A step on a mesh: its arguments' types, lowered, or run."""

    def __init__(
        self, case: Case, sizes: Sizes, axes: dict[str, int], examples: int, donate: bool = True
    ) -> None:
        self.mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
        self.params = {name: self.kind(one) for name, one in parameters(case, sizes).items()}
        self.data = {name: self.kind(one) for name, one in batch(case, sizes, examples).items()}
        self.rule = RULES[case.rule]()
        whole = NamedSharding(self.mesh, PartitionSpec())
        by_shape = optax.tree_map_params(
            self.rule,
            lambda _, like: like,
            jax.eval_shape(self.rule.init, self.params),
            self.params,
            transform_non_params=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole),
        )
        self.state = by_shape
        kept = jax.tree.map(lambda x: x.sharding, (self.params, self.state))

        def step(params: Any, state: Any, data: Any) -> Any:
            value, slope = jax.value_and_grad(lambda p: loss(WORDS, case, sizes, p, data))(params)
            change, state = self.rule.update(slope, state, params)
            return optax.apply_updates(params, change), state, value

        self.jitted = jax.jit(step, donate_argnums=(0, 1) if donate else (), out_shardings=(*kept, whole))

    def kind(self, one: Tensor) -> Any:
        sharding = NamedSharding(self.mesh, PartitionSpec(*one.spec))
        return jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=sharding)

    def compiled(self) -> Any:
        """XLA's program of the step for these devices; nothing is placed on them."""
        return self.jitted.lower(self.params, self.state, self.data).compile()

    def run(
        self, params: dict[str, Any], batches: list[dict[str, Any]]
    ) -> tuple[list[float], dict[str, Any]]:
        """The losses of some steps, and the parameters after them."""
        placed = {name: jax.device_put(x, self.params[name].sharding) for name, x in params.items()}
        state = self.rule.init(placed)
        losses = []
        for data in batches:
            fed = {name: jax.device_put(x, self.data[name].sharding) for name, x in data.items()}
            placed, state, value = self.jitted(placed, state, fed)
            losses.append(float(value))
        return losses, {name: np.asarray(x) for name, x in placed.items()}
