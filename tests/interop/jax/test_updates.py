"""What one update moves, as ``explain`` has it, held against what the user's own training moves."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import some

import stopgrad.jax as sgj
from stopgrad.base.errors import ArgumentError, FlowError
from stopgrad.flow.updates import HELD, HIDDEN, MOVES, RAW, WITHOUT

optax = pytest.importorskip("optax")
eqx = pytest.importorskip("equinox")
nnx = pytest.importorskip("flax.nnx")
hk = pytest.importorskip("haiku")
linen = pytest.importorskip("flax.linen")
train_state = pytest.importorskip("flax.training.train_state")

stop = jax.lax.stop_gradient
PARTS = {"encoder": "frozen", "head": "trained"}
ONLY_HEAD = {"encoder": False, "head": True}


def params() -> dict[str, Any]:
    return {"encoder": jnp.array([1.0, 2.0, -3.0]), "head": jnp.array([0.5, 1.5, 2.5])}


def raw(p: Any) -> Any:
    return (p["encoder"] * p["head"]).sum()


def held(p: Any) -> Any:
    return (stop(p["encoder"]) * p["head"]).sum()


def frozen(rest: Any) -> Any:
    return optax.multi_transform({"frozen": optax.set_to_zero(), "trained": rest}, PARTS)


TRAININGS: dict[str, tuple[Any, Any, str]] = {
    "sgd": (raw, optax.sgd(0.1), MOVES),
    "sgd, stopped": (held, optax.sgd(0.1), HELD),
    "adam": (raw, optax.adam(0.1), MOVES),
    "adam, stopped": (held, optax.adam(0.1), HELD),
    "adamw": (raw, optax.adamw(0.1, weight_decay=0.1), MOVES),
    "adamw, stopped": (held, optax.adamw(0.1, weight_decay=0.1), WITHOUT),
    "adamw, stopped and masked": (held, optax.adamw(0.1, weight_decay=0.1, mask=ONLY_HEAD), HELD),
    "masked": (raw, optax.masked(optax.sgd(0.1), ONLY_HEAD), RAW),
    "masked, stopped": (held, optax.masked(optax.sgd(0.1), ONLY_HEAD), HELD),
    "masked, then zeros": (
        raw,
        optax.chain(
            optax.masked(optax.sgd(0.1), ONLY_HEAD),
            optax.masked(optax.set_to_zero(), {"encoder": True, "head": False}),
        ),
        HELD,
    ),
    "multi_transform": (raw, frozen(optax.adam(0.1)), HELD),
    "multi_transform, one identity": (
        raw,
        optax.multi_transform({"frozen": optax.identity(), "trained": optax.sgd(0.1)}, PARTS),
        RAW,
    ),
    "partition": (
        raw,
        optax.partition({"frozen": optax.set_to_zero(), "trained": optax.adamw(0.1)}, PARTS),
        HELD,
    ),
    "decayed weights": (held, optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.1)), WITHOUT),
    "decayed weights of the head": (
        held,
        optax.chain(optax.add_decayed_weights(0.01, mask=ONLY_HEAD), optax.sgd(0.1)),
        HELD,
    ),
    "MultiSteps": (raw, optax.MultiSteps(optax.adam(0.1), 4), MOVES),
    "MultiSteps, stopped": (held, optax.MultiSteps(optax.sgd(0.1), 4), HELD),
    "MultiSteps, decay": (held, optax.MultiSteps(optax.adamw(0.1, weight_decay=0.1), 4), WITHOUT),
    "apply_if_finite": (raw, optax.apply_if_finite(optax.sgd(0.1), 3), MOVES),
    "learning rate 0": (raw, optax.sgd(0.0), HELD),
    "warm-up from 0": (raw, optax.adam(optax.linear_schedule(0.0, 0.1, 10)), MOVES),
    "clip": (raw, optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)), MOVES),
    "clip, stopped": (held, optax.chain(optax.clip(1.0), optax.sgd(0.1)), HELD),
    "lion, stopped": (held, optax.lion(0.1, weight_decay=0.1), WITHOUT),
    "adafactor": (raw, optax.adafactor(0.1), MOVES),
    "lamb, stopped": (held, optax.lamb(0.1), HELD),
    "lbfgs": (lambda p: raw(p) ** 2, optax.lbfgs(), MOVES),
    "noisy": (held, optax.noisy_sgd(0.1, key=0), WITHOUT),
    "uphill": (raw, optax.scale(1.0), MOVES),
    "nothing": (raw, optax.set_to_zero(), HELD),
}


def moved_by(loss: Any, p: Any, tx: Any, steps: int) -> dict[str, bool]:
    """What the user's own steps move."""
    state, q = tx.init(p), p
    for _ in range(steps):
        value, gradient = jax.value_and_grad(loss)(q)
        more = {"value": value, "grad": gradient, "value_fn": loss} if "search" in repr(state).lower() else {}
        updates, state = tx.update(gradient, state, q, **more)
        q = optax.apply_updates(q, updates)
    return {key: bool((p[key] != q[key]).any()) for key in p}


@pytest.mark.parametrize("name", some(TRAININGS, 3))
def test_the_verdict_is_what_moves(name: str) -> None:
    loss, tx, verdict = TRAININGS[name]
    p = params()
    before = {key: np.array(x) for key, x in p.items()}
    flow = sgj.explain(loss, p, optimizer=(tx, tx.init(p)))
    assert flow["p.encoder"].update.verdict == verdict
    truth = moved_by(loss, p, tx, flow["p.encoder"].update.steps)
    assert {key: flow[f"p.{key}"].moves for key in p} == truth
    warned = {finding.kind for finding in flow.findings}
    assert ({WITHOUT, RAW} & warned) == ({verdict} & {WITHOUT, RAW})
    for key, x in p.items():
        np.testing.assert_array_equal(x, before[key])


def test_momentum_that_is_left_moves_what_is_stopped_since() -> None:
    p, tx = params(), optax.sgd(0.1, momentum=0.9)
    _, state = tx.update(jax.grad(raw)(p), tx.init(p), p)
    assert sgj.explain(held, p, optimizer=(tx, state))["p.encoder"].update.verdict == WITHOUT
    assert sgj.explain(held, p, optimizer=tx)["p.encoder"].update.verdict == HELD


class Net(eqx.Module):  # type: ignore[misc]
    w: jax.Array
    scale: float
    steps: int
    act: Any = jnp.tanh


def of_net(net: Any) -> Any:
    return net.act(net.scale * net.w).sum()


@pytest.mark.parametrize("make", [eqx.filter_grad, eqx.filter_value_and_grad])
def test_equinox_leaves_numbers_out(make: Any) -> None:
    net, tx = Net(jnp.ones(2), 1.5, 3), optax.adamw(0.1)
    state = tx.init(eqx.filter(net, eqx.is_inexact_array))
    flow = sgj.explain(of_net, net, grad=make, optimizer=(tx, state))
    assert flow["net.scale"].status == "flows"
    assert flow["net.scale"].update.verdict == HIDDEN
    assert flow["net.w"].update.verdict == MOVES
    as_array = Net(jnp.ones(2), jnp.array(1.5), 3)  # type: ignore[arg-type]
    assert sgj.explain(of_net, as_array, grad=make, optimizer=tx)["net.scale"].update.verdict == MOVES


def test_a_filter_of_leaves_and_one_of_booleans() -> None:
    p = params()
    by_tree = sgj.explain(raw, p, wrt=ONLY_HEAD, optimizer=optax.sgd(0.1))
    by_size = sgj.explain(raw, p, wrt=lambda x: x[0] < 1, optimizer=optax.sgd(0.1))
    for flow in (by_tree, by_size):
        assert [flow[key].update.verdict for key in ("p.encoder", "p.head")] == [HIDDEN, MOVES]


class Module(nnx.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.lin, self.norm = nnx.Linear(2, 2, rngs=rngs), nnx.BatchNorm(2, rngs=rngs)
        self.drop, self.t = nnx.Dropout(0.5, rngs=rngs), nnx.Variable(jnp.array(1.5))

    def __call__(self, x: Any) -> Any:
        return self.drop(self.norm(self.lin(x))) * self.t[...]


X = jnp.array([[1.0, 2.0], [3.0, 5.0]])


def of_module(module: Any, x: Any) -> Any:
    return (module(x) ** 2).sum()


@pytest.mark.parametrize("with_model", [False, True])
def test_nnx_differentiates_params_alone_and_stays_as_it_was(with_model: bool) -> None:
    module = Module()
    make = nnx.ModelAndOptimizer if with_model else nnx.Optimizer
    optimizer = make(module, optax.adamw(0.1), wrt=nnx.Param)
    before = jax.tree.leaves((nnx.state(module), nnx.state(optimizer)))
    attributes = list(vars(module)), list(vars(optimizer))
    flow = sgj.explain(of_module, module, X, optimizer=optimizer)
    assert flow["module.t"].update.verdict == HIDDEN
    assert flow["module.lin.kernel"].update.verdict == MOVES
    assert flow["module.norm.mean"].update.verdict == HELD
    after = jax.tree.leaves((nnx.state(module), nnx.state(optimizer)))
    assert all(a is b for a, b in zip(before, after, strict=True))
    assert attributes == (list(vars(module)), list(vars(optimizer)))


def test_nnx_is_as_it_was_after_an_error() -> None:
    module = Module()
    before = jax.tree.leaves(nnx.state(module))

    def wrong(module: Any, x: Any) -> Any:
        module.late = 1
        return of_module(module, x).oops

    with pytest.raises(AttributeError):
        sgj.explain(wrong, module, X, grad=nnx.grad)
    assert all(a is b for a, b in zip(before, jax.tree.leaves(nnx.state(module)), strict=True))
    assert not hasattr(module, "late")


def test_tied_variables_of_nnx_move_together() -> None:
    class Tied(nnx.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.a = nnx.Param(jnp.ones(2))
            self.b = self.a

    tied = Tied()
    optimizer = nnx.Optimizer(tied, optax.sgd(0.1), wrt=nnx.Param)
    flow = sgj.explain(lambda m: (m.a[...] * m.b[...]).sum(), tied, optimizer=optimizer)
    assert {update.verdict for update in flow.updates.values()} == {MOVES}


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_train_state_of_flax(decay: float) -> None:
    model = linen.Dense(2)
    weights = model.init(jax.random.key(0), X)

    def loss(params: Any, x: Any) -> Any:
        kernel = stop(params["params"]["kernel"])
        return (x @ kernel + params["params"]["bias"]).sum()

    tx = optax.adamw(0.1, weight_decay=decay)
    state = train_state.TrainState.create(apply_fn=model.apply, params=weights, tx=tx)
    flow = sgj.explain(loss, state.params, X, optimizer=state)
    own = state.apply_gradients(grads=jax.grad(loss)(state.params, X))
    moves = bool((own.params["params"]["kernel"] != weights["params"]["kernel"]).any())
    assert flow["params.params.kernel"].moves == moves == (decay > 0)
    assert flow["params.params.bias"].update.verdict == MOVES


def test_a_transformed_function_of_haiku() -> None:
    net = hk.without_apply_rng(
        hk.transform(lambda x: hk.Linear(1, name="head")(stop(hk.Linear(2, name="body")(x))).sum())
    )
    weights = net.init(jax.random.key(0), X)
    tx = optax.adamw(0.1, weight_decay=0.1)
    flow = sgj.explain(net.apply, weights, X, optimizer=(tx, tx.init(weights)), grad=jax.value_and_grad)
    found = {name.partition(".")[2]: update.verdict for name, update in flow.updates.items()}
    assert found == {"body.b": HELD, "body.w": WITHOUT, "head.b": MOVES, "head.w": MOVES}


def aux(p: Any, x: Any) -> Any:
    return raw(p) * x, {"n": x, "p": p}


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(jax.grad, has_aux=True),
        functools.partial(jax.value_and_grad, has_aux=True),
        lambda f: jax.jit(jax.grad(f, has_aux=True)),
        jax.grad(aux, has_aux=True),
        jax.jit(jax.value_and_grad(aux, has_aux=True)),
        functools.partial(jax.grad, argnums=(0,), has_aux=True),
        None,
    ],
)
def test_gradient_functions_of_any_form(make: Any) -> None:
    optimizer = optax.sgd(0.1)
    flow = sgj.explain(aux, params(), 2.0, grad=make, optimizer=optimizer)
    assert {name: update.verdict for name, update in flow.updates.items()} == {
        "p.encoder": MOVES,
        "p.head": MOVES,
    }


def test_several_arguments_and_a_function_that_updates() -> None:
    def loss(w: Any, b: Any, x: Any) -> Any:
        return (stop(w) * x + b).sum()

    def step(params: Any, gradients: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g - 0.01 * p, params, gradients)

    args = jnp.ones(2), jnp.ones(2), X
    flow = sgj.explain(loss, *args, argnums=(0, 1), optimizer=step)
    assert [flow[key].update.verdict for key in flow] == [WITHOUT, MOVES]
    donating = jax.jit(step, donate_argnums=0)
    assert list(sgj.explain(loss, *args, argnums=(0, 1), optimizer=donating).updates) == ["w", "b"]
    assert not args[0].is_deleted()
    single = functools.partial(jax.grad, argnums=1)
    assert list(sgj.explain(loss, *args, grad=single).updates) == ["b"]


def test_a_gradient_that_is_zero_on_these_values_is_no_finding() -> None:
    def dead(p: Any) -> Any:
        return (jax.nn.relu(p["encoder"] - 9.0) * p["head"]).sum() + p["head"].sum()

    flow = sgj.explain(dead, params(), optimizer=optax.adamw(0.1, weight_decay=0.1))
    assert flow["p.encoder"].update.verdict == WITHOUT
    assert "exactly 0 on these values" in flow["p.encoder"].update.why
    assert not flow.findings


def test_what_must_be_held() -> None:
    p = params()
    sgj.assert_held(raw, p, to="p.encoder", optimizer=frozen(optax.adamw(0.1)))
    with pytest.raises(FlowError, match=r"p\.encoder: moves without a gradient by up to 0\.03"):
        sgj.assert_held(held, p, to="p.encoder", optimizer=optax.adamw(0.1, weight_decay=0.1))


def test_the_monitor_tells_what_moves_without_a_gradient() -> None:
    for loss, tx, told in (
        (held, optax.adamw(0.1, weight_decay=0.1), "the optimizer moves p.encoder without a gradient"),
        (
            raw,
            optax.masked(optax.sgd(0.1), ONLY_HEAD),
            "the optimizer adds the gradient of p.encoder as it is",
        ),
        (raw, optax.adamw(0.1, weight_decay=0.1), ""),
    ):
        p = params()
        state = tx.init(p)
        monitor = sgj.monitor(loss, every=1, to=[], optimizer=lambda tx=tx, state=state: (tx, state))
        for _ in range(2):
            monitor(p)
        assert [told in change.text for change in monitor.changes] == ([True] if told else [])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"optimizer": 3}, "optimizer is an optax transformation"),
        ({"grad": 3}, "cannot be called"),
        ({"grad": jax.grad, "wrt": ONLY_HEAD}, "but not both"),
        (
            {"optimizer": (optax.adam(0.1), optax.adam(0.1).init({"b": 1.0}))},
            "an update of the optimizer failed",
        ),
        ({"wrt": {"b": True}}, "wrt is a filter"),
        ({"grad": lambda f: lambda p: "no"}, "there is no gradient"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        sgj.explain(raw, params(), **options)
