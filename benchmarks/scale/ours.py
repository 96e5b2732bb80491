"""The training steps in stopgrad: as a function of parameters and state, and as a session that holds them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import stopgrad as sg
from scale.models import RATE, Case, Sizes, Tensor, Words, batch, loss, parameters

WORDS = Words(
    gelu=lambda x: sg.gelu(x, approximate=True),
    norm=sg.layer_norm,
    softmax=sg.softmax,
    cross_entropy=lambda x, y: sg.reduce_mean(sg.sparse_softmax_cross_entropy_with_logits(y, x)),
    take=sg.gather,
    mean=sg.reduce_mean,
    square=sg.square,
    reshape=sg.reshape,
    transpose=sg.transpose,
    where=sg.where,
    stop=sg.stop_gradient,
)
RULES = {
    "sgd": lambda: sg.optimizers.SGD(RATE),
    "adamw": lambda: sg.optimizers.AdamW(RATE, weight_decay=1e-4),
}


def kind(one: Tensor) -> Any:
    return jax.ShapeDtypeStruct(one.shape, one.dtype)


class Step:
    """A step of a function on a mesh, its arguments donated."""

    def __init__(self, case: Case, sizes: Sizes, axes: dict[str, int], examples: int) -> None:
        tensors, data = parameters(case, sizes), batch(case, sizes, examples)
        rule = RULES[case.rule]()
        self.params = {name: kind(one) for name, one in tensors.items()}
        self.data = {name: kind(one) for name, one in data.items()}
        zero = np.zeros((), np.float32)
        self.state = rule.init({name: np.broadcast_to(zero, x.shape) for name, x in tensors.items()})
        # The state of each parameter stands in the order in which structures have them.
        specs = [one.spec for _, one in sorted(tensors.items())]
        shardings = {f"params.{name}": one.spec for name, one in tensors.items()}
        shardings |= {f"data.{name}": one.spec for name, one in data.items()}
        for i, spec in enumerate(specs):
            shardings |= {f"state.slots.{i}.{slot}": spec for slot in self.state["slots"][i]}

        def step(params: Any, state: Any, data: Any) -> Any:
            value, slope = sg.value_and_grad(lambda p: loss(WORDS, case, sizes, p, data))(params)
            params, state = rule.apply(params, slope, state)
            params = {name: sg.shard(x, tensors[name].spec) for name, x in params.items()}
            slots = [
                {slot: sg.shard(x, spec) for slot, x in each.items()}
                for spec, each in zip(specs, state["slots"], strict=True)
            ]
            return params, {**state, "slots": slots}, value

        self.function = sg.function(step, mesh=sg.Mesh(**axes), shardings=shardings, donate_argnums=(0, 1))

    def compiled(self) -> Any:
        """XLA's program of the step for these devices; nothing is placed on them."""
        return self.function.lower(self.params, self.state, self.data).compile()._executable

    def run(
        self, params: dict[str, Any], batches: list[dict[str, Any]]
    ) -> tuple[list[float], dict[str, Any]]:
        """The losses of some steps, and the parameters after them."""
        held, state, losses = {name: jax.numpy.asarray(x) for name, x in params.items()}, self.state, []
        for data in batches:
            held, state, value = self.function(held, state, data)
            losses.append(float(value))
        return losses, {name: np.asarray(x) for name, x in held.items()}


class Held:
    """The same in graph style: a session holds parameters and state."""

    def __init__(
        self,
        case: Case,
        sizes: Sizes,
        axes: dict[str, int],
        examples: int,
        first: dict[str, Any] | None = None,
    ) -> None:
        self.made = (case, sizes, axes, examples)
        with sg.Graph().as_default() as graph:
            self.params = {}
            for name, one in parameters(case, sizes).items():
                value = np.zeros(one.shape, np.float32) if first is None else first[name]
                self.params[name] = sg.parameter(value, name=name, sharding=one.spec)
            self.data = {
                name: sg.placeholder(one.dtype, one.shape, name=name, sharding=one.spec)
                for name, one in batch(case, sizes, examples).items()
            }
            value = loss(WORDS, case, sizes, self.params, self.data)
            make = sg.optimizers.sgd if case.rule == "sgd" else sg.optimizers.adamw
            more = {} if case.rule == "sgd" else {"weight_decay": 1e-4}
            update = make(value, self.params, RATE, **more)
        self.fetches = [value, update.run]
        self.session = sg.Session(graph, mesh=sg.Mesh(**axes))

    def compiled(self) -> Any:
        """XLA's program of the step for these devices; nothing is placed on them."""
        fed = {x: jax.ShapeDtypeStruct(x.shape, x.dtype.numpy) for x in self.data.values()}
        return self.session.compile(self.fetches, fed)._executable

    def run(
        self, params: dict[str, Any], batches: list[dict[str, Any]]
    ) -> tuple[list[float], dict[str, Any]]:
        """The losses of some steps, and the parameters after them."""
        same = Held(*self.made, first=params)
        losses = []
        for data in batches:
            fed = {same.data[name]: x for name, x in data.items()}
            losses.append(float(same.session.run(same.fetches, fed)[0]))
        return losses, {name: same.session.value(x) for name, x in same.params.items()}
