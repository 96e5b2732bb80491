"""Libraries of JAX, unchanged: which parameters get a gradient, and which line of theirs cuts the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Rlax .* will be deprecated:PendingDeprecationWarning"),
]

import jax.numpy as jnp  # noqa: E402 - JAX may be absent
from library_checks import Lines, check_flow, lines  # noqa: E402

import stopgrad.jax as sgj  # noqa: E402

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def library(name: str) -> Any:
    """A library, or the reason why its tests are skipped."""
    return pytest.importorskip(name, reason=f"{name} is not installed")


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def shaken(tree: Any, seed: int) -> Any:
    """A tree with other numbers near its own."""
    rng = np.random.default_rng(seed)

    def other(x: Any) -> Any:
        return jnp.asarray(x) + 0.1 * rng.normal(size=np.shape(x)).astype(x.dtype)

    return jax.tree.map(lambda x: other(x) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def gradients(f: Callable[..., Any], args: tuple[Any, ...], draws: int) -> list[bool | None]:
    """For each leaf of the arguments, whether the gradient is not zero; None where JAX has none."""
    leaves, tree = jax.tree.flatten(args)
    floats = [i for i, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.floating)]

    def of(some: list[Any]) -> Any:
        every = list(leaves)
        for i, x in zip(floats, some, strict=True):
            every[i] = x
        return f(*jax.tree.unflatten(tree, every))

    gradient = jax.jit(jax.grad(of)).lower([leaves[i] for i in floats]).compile(FAST)
    found: list[bool | None] = [None] * len(leaves)
    for draw in range(draws):
        values = shaken([leaves[i] for i in floats], draw)
        for i, dx in zip(floats, gradient(values), strict=True):
            found[i] = bool(found[i]) or bool(np.any(dx))
    return found


def check(
    f: Callable[..., Any],
    *args: Any,
    held: Mapping[str, Lines | str] | None = None,
    cut: Mapping[str, Lines] | None = None,
    draws: int = 2,
) -> None:
    """The report about a loss is right; see :func:`library_checks.check_flow`."""
    flow = sgj.explain(f, *args)
    arrives = dict(zip(flow, gradients(f, args, draws), strict=True))
    known = {key: value for key, value in arrives.items() if value is not None}
    check_flow(flow, known, held or {}, cut)


UNTOLD: Lines = set()
"""The lines that are told of where a library's own stops cut some paths to what a gradient reaches: none."""

# ------------------------------------------------------------------------------------------------------ rlax

A = np.array([0, 2, 1, 1])


def network(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def two_networks() -> tuple[Any, Any, Any, Any]:
    """Parameters of two networks, states, the states that follow, rewards."""
    return (
        {"online": normal(5, 3), "target": normal(5, 3, seed=1)},
        normal(4, 5),
        normal(4, 5, seed=2),
        normal(4),
    )


def discounts(r: Any) -> Any:
    return 0.9 * jnp.ones_like(r)


def test_rlax_q_learning_holds_the_target_network() -> None:
    rlax = library("rlax")

    def loss(params: Any, s: Any, s2: Any, r: Any) -> Any:
        q, q2 = network(params["online"], s), network(params["target"], s2)
        return jnp.mean(jax.vmap(rlax.q_learning)(q, A, r, discounts(r), q2) ** 2)

    stop = lines(rlax.q_learning, "stop_gradient(target_tm1)")
    check(loss, *two_networks(), held={"params.target": stop, "s2": stop, "r": stop})


def test_rlax_double_q_learning_holds_both_that_choose_and_that_value() -> None:
    rlax = library("rlax")

    def loss(params: Any, s: Any, s2: Any, r: Any) -> Any:
        q, value, choice = (network(params[n], x) for n, x in (("online", s), ("target", s2), ("online", s2)))
        return jnp.mean(jax.vmap(rlax.double_q_learning)(q, A, r, discounts(r), value, choice) ** 2)

    stop = lines(rlax.double_q_learning, "stop_gradient(target_tm1)")
    held = {"params.target": stop, "s2": stop, "r": stop}
    check(loss, *two_networks(), held=held, cut={"params.online": UNTOLD})


@pytest.mark.parametrize("name", ["td_learning", "td_lambda"])
def test_rlax_temporal_differences_hold_their_targets(name: str) -> None:
    rlax = library("rlax")
    function = getattr(rlax, name)

    def loss(critic: Any, s: Any, s2: Any, r: Any) -> Any:
        v, v2 = network(critic, s)[:, 0], network(critic, s2)[:, 0]
        if name == "td_lambda":
            return jnp.mean(function(v, r, discounts(r), v2, 0.8) ** 2)
        return jnp.mean(jax.vmap(function)(v, r, discounts(r), v2) ** 2)

    stop = lines(function, "stop_gradient(target_tm1)")
    check(loss, normal(5, 1), *two_networks()[1:], held={"s2": stop, "r": stop}, cut={"critic": UNTOLD})


def test_rlax_targets_learn_where_they_are_told_to() -> None:
    rlax = library("rlax")

    def loss(critic: Any, s: Any, s2: Any, r: Any) -> Any:
        v, v2 = network(critic, s)[:, 0], network(critic, s2)[:, 0]
        learning = partial(rlax.td_learning, stop_target_gradients=False)
        return jnp.mean(jax.vmap(learning)(v, r, discounts(r), v2) ** 2)

    check(loss, normal(5, 1), *two_networks()[1:])


def test_rlax_vtrace_holds_its_targets() -> None:
    rlax = library("rlax")

    def loss(critic: Any, s: Any, s2: Any, r: Any, rho: Any) -> Any:
        v, v2 = network(critic, s)[:, 0], network(critic, s2)[:, 0]
        return jnp.mean(rlax.vtrace(v, v2, r, discounts(r), jnp.abs(rho), 0.9) ** 2)

    stop = lines(rlax.vtrace, "stop_gradient(errors + v_tm1)")
    held = {"s2": stop, "r": stop, "rho": stop}
    check(loss, normal(5, 1), *two_networks()[1:], normal(4, seed=5), held=held, cut={"critic": UNTOLD})


def test_rlax_policy_gradient_holds_the_critic() -> None:
    rlax = library("rlax")

    def loss(params: Any, s: Any, returns: Any) -> Any:
        advantages = returns - network(params["critic"], s)[:, 0]
        return rlax.policy_gradient_loss(s @ params["actor"], A, advantages, jnp.ones_like(returns))

    stop = lines(rlax.policy_gradient_loss, "stop_gradient(adv_t)")
    params = {"actor": normal(5, 3), "critic": normal(5, 1)}
    check(loss, params, normal(4, 5), normal(4), held={"params.critic": stop, "returns": stop})


def test_rlax_deterministic_policy_gradient_holds_the_critic() -> None:
    rlax = library("rlax")

    def loss(params: Any, s: Any) -> Any:
        actions = network(params["actor"], s)
        slopes = jax.grad(lambda a: jnp.sum(jnp.tanh(a @ params["critic"])))(actions)
        return jnp.mean(jax.vmap(rlax.dpg_loss)(actions, slopes))

    stop = lines(rlax.dpg_loss, "stop_gradient(target_tm1)")
    params = {"actor": normal(5, 3), "critic": normal(3, 2)}
    check(loss, params, normal(4, 5), held={"params.critic": stop}, cut={"params.actor": UNTOLD})


def ratios(actor: Any, old: Any, s: Any) -> Any:
    log_pi, log_old = (jax.nn.log_softmax(s @ w)[jnp.arange(4), A] for w in (actor, old))
    return jnp.exp(log_pi - jax.lax.stop_gradient(log_old))


def test_rlax_clipped_surrogate_holds_the_advantages() -> None:
    rlax = library("rlax")

    def loss(actor: Any, old: Any, s: Any, advantages: Any) -> Any:
        return rlax.clipped_surrogate_pg_loss(ratios(actor, old, s), advantages, 0.2)

    stop = lines(rlax.clipped_surrogate_pg_loss, "stop_gradient(adv_t)")
    mine = lines(ratios, "stop_gradient(log_old)")
    args = normal(5, 3), normal(5, 3, seed=3), normal(4, 5), normal(4)
    check(loss, *args, held={"old": mine, "advantages": stop}, cut={"s": mine})


def test_rlax_losses_of_a_soft_actor_and_its_critics() -> None:
    """SAC of rlax's parts: the critics learn from a stopped target, the policy through the critics."""
    rlax = library("rlax")
    distribution = rlax.gaussian_diagonal()

    def critic_loss(params: Any, s: Any, a: Any, s2: Any, r: Any) -> Any:
        mu = network(params["policy"], s2)
        log_p = distribution.logprob(mu, mu, 0.3 * jnp.ones_like(mu))
        q2 = jnp.minimum(*[network(params[n], jnp.concatenate([s2, mu], -1))[:, 0] for n in ("t1", "t2")])
        v2 = q2 - jnp.exp(params["log_alpha"]) * log_p
        found = [network(params[n], jnp.concatenate([s, a], -1))[:, 0] for n in ("q1", "q2")]
        errors = [jax.vmap(rlax.td_learning)(q, r, discounts(r), v2) for q in found]
        return sum(jnp.mean(error**2) for error in errors)

    stop = lines(rlax.td_learning, "stop_gradient(target_tm1)")
    params = {n: normal(7, 1, seed=i) for i, n in enumerate(["q1", "q2", "t1", "t2"])}
    params |= {"policy": normal(5, 2), "log_alpha": np.float32(-1.0)}
    held = dict.fromkeys(["params.policy", "params.t?", "params.log_alpha", "s2", "r"], stop)
    check(critic_loss, params, normal(4, 5), normal(4, 2), normal(4, 5, seed=7), normal(4), held=held)


# ----------------------------------------------------------------------------------------------------- optax


def test_optax_losses_reach_predictions_and_float_targets() -> None:
    optax = library("optax")

    def loss(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        return (
            optax.l2_loss(z, y).mean()
            + optax.huber_loss(z, y).mean()
            + optax.softmax_cross_entropy_with_integer_labels(z, A).mean()
            + optax.sigmoid_binary_cross_entropy(z, jax.nn.sigmoid(y)).mean()
            + optax.cosine_distance(z, y, epsilon=1e-3).mean()
            + optax.ctc_loss(z[None], jnp.zeros((1, 4)), A[None, :2], jnp.zeros((1, 2))).mean()
        )

    check(loss, normal(5, 3), normal(4, 5), normal(4, 3))


def test_of_optax_contrastive_loss_the_stop_of_its_maximum_is_not_told() -> None:
    optax = library("optax")

    def loss(w: Any, x: Any) -> Any:
        return optax.ntxent(x @ w, jnp.array([0, 0, 1, 1]))

    check(loss, normal(5, 3), normal(4, 5), cut={"w": UNTOLD, "x": UNTOLD})


def hard(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.argmax(x @ w, axis=-1) * jnp.arange(4.0))


def test_optax_perturbed_function_has_a_gradient_where_the_function_has_none() -> None:
    optax = library("optax")

    def soft(w: Any, x: Any) -> Any:
        perturbed = optax.perturbations.make_perturbed_fun(
            lambda z: jnp.sum(jnp.argmax(z, -1) * jnp.arange(4.0)), 50, 0.5, use_baseline=False
        )
        return perturbed(jax.random.key(0), x @ w)

    mine = lines(hard, "argmax(x @ w")
    check(hard, normal(5, 3), normal(4, 5), held={"w": mine, "x": mine})
    check(soft, normal(5, 3), normal(4, 5))


def test_optax_step_of_frozen_parameters() -> None:
    """The loss after one step: what the optimizer leaves alone depends on the data no more than it did."""
    optax = library("optax")
    optimizer = optax.multi_transform(
        {"train": optax.adam(1e-2), "freeze": optax.set_to_zero()}, {"head": "train", "body": "freeze"}
    )

    def loss(params: Any, x: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ params["body"]) @ params["head"]) ** 2)

    def moved(params: Any, x: Any, state: Any) -> Any:
        updates, _ = optimizer.update(jax.grad(loss)(params, x), state, params)
        return optax.apply_updates(params, updates)

    params = {"head": normal(3, 2), "body": normal(5, 3)}
    state = optimizer.init(params)
    flow = sgj.explain(lambda params, x: moved(params, x, state)["body"], params, normal(4, 5))
    assert {key: flow[key].status for key in flow} == {
        "params.body": "flows",
        "params.head": "disconnected",
        "x": "disconnected",
    }
    flow = sgj.explain(lambda params, x: moved(params, x, state)["head"], params, normal(4, 5))
    assert all(flow[key].arrives for key in ("params.body", "params.head", "x"))


def test_optax_step_trains_what_it_should() -> None:
    """A whole step, differentiated: a learnt learning rate gets its gradient through the new parameters."""
    optax = library("optax")

    def loss(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean(optax.l2_loss(network(params["w"], x) + params["b"], y))

    def after(rate: Any, params: Any, x: Any, y: Any) -> Any:
        optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(rate, momentum=0.9))
        updates, _ = optimizer.update(jax.grad(loss)(params, x, y), optimizer.init(params), params)
        return loss(optax.apply_updates(params, updates), x, y)

    params = {"w": normal(5, 3), "b": normal(3)}
    check(after, np.float32(0.1), params, normal(4, 5), normal(4, 3))


# ------------------------------------------------------------------------------------------------------ flax


def test_flax_linen_network_with_batch_normalisation() -> None:
    nn = library("flax.linen")

    class Network(nn.Module):  # type: ignore[name-defined, misc]
        @nn.compact
        def __call__(self, x: Any, train: bool = True) -> Any:
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Dense(6)(x)))
            return nn.Dense(2)(x)

    model = Network()
    variables = jax.jit(model.init)(jax.random.key(0), normal(4, 5))

    def training(variables: Any, x: Any, y: Any) -> Any:
        out, _ = model.apply(variables, x, mutable=["batch_stats"])
        return jnp.mean((out - y) ** 2)

    def testing(variables: Any, x: Any, y: Any) -> Any:
        return jnp.mean((model.apply(variables, x, train=False) - y) ** 2)

    args = variables, normal(4, 5), normal(4, 2)
    # In front of a mean that is subtracted, a bias does nothing: JAX finds rounding errors, not zeros.
    check(training, *args, held={"variables.batch_stats.*": "disconnected"})
    check(testing, *args)


def test_flax_linen_attention() -> None:
    nn = library("flax.linen")

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(7, 8)(tokens)
            x = x + nn.MultiHeadDotProductAttention(num_heads=2)(
                nn.LayerNorm()(x), mask=nn.make_causal_mask(tokens)
            )
            x = x + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x))))
            return nn.Dense(7)(x)

    model = Block()
    tokens = np.array([[1, 4, 2, 6], [0, 3, 3, 5]])
    params = jax.jit(model.init)(jax.random.key(0), tokens)

    def loss(params: Any, tokens: Any) -> Any:
        log_p = jax.nn.log_softmax(model.apply(params, tokens)[:, :-1])
        return -jnp.mean(jnp.take_along_axis(log_p, tokens[:, 1:, None], -1))

    check(loss, params, tokens)


def test_flax_linen_spectral_normalisation_stops_its_singular_vectors() -> None:
    nn = library("flax.linen")

    class Network(nn.Module):  # type: ignore[name-defined, misc]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.SpectralNorm(nn.Dense(3))(x, update_stats=True)

    model = Network()
    variables = jax.jit(model.init)(jax.random.key(0), normal(4, 5))

    def loss(params: Any, stats: Any, x: Any) -> Any:
        out, _ = model.apply({"params": params, "batch_stats": stats}, x, mutable=["batch_stats"])
        return jnp.mean(jnp.tanh(out) ** 2)

    stops = lines(nn.SpectralNorm, "stop_gradient(u0)", "stop_gradient(v0)")
    held = {"stats.*/u": stops, "stats.*/sigma": "disconnected"}
    args = variables["params"], variables["batch_stats"], normal(4, 5)
    check(loss, *args, held=held, cut={"params.*.kernel": UNTOLD})


def test_flax_linen_recurrent_network() -> None:
    nn = library("flax.linen")
    model = nn.RNN(nn.LSTMCell(3))
    params = jax.jit(model.init)(jax.random.key(0), normal(2, 4, 5))

    def loss(params: Any, x: Any) -> Any:
        return jnp.mean(model.apply(params, x)[:, -1] ** 2)

    check(loss, params, normal(2, 4, 5))


def test_flax_nnx_network_with_batch_normalisation_and_dropout() -> None:
    nnx = library("flax.nnx")

    class Network(nnx.Module):  # type: ignore[name-defined, misc]
        def __init__(self, rngs: Any) -> None:
            self.first = nnx.Linear(5, 6, rngs=rngs)
            self.norm = nnx.BatchNorm(6, rngs=rngs)
            self.dropout = nnx.Dropout(0.3, rngs=rngs)
            self.last = nnx.Linear(6, 2, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.last(self.dropout(nnx.gelu(self.norm(self.first(x)))))

    definition, params, rest = nnx.split(Network(nnx.Rngs(0)), nnx.Param, ...)

    def loss(params: Any, rest: Any, x: Any, y: Any) -> Any:
        model = nnx.merge(definition, params, rest)
        return jnp.mean((model(x) - y) ** 2)

    check(loss, params, rest, normal(4, 5), normal(4, 2), held={"rest.norm.*": "disconnected"})


# ------------------------------------------------------------------------------------------------------ haiku


def test_haiku_vector_quantiser_stops_where_it_copies_gradients() -> None:
    hk = library("haiku")

    def forward(x: Any, part: str) -> Any:
        z = hk.Linear(3, name="encoder")(x)
        found = hk.nets.VectorQuantizer(3, 6, 0.25, name="vq")(z, is_training=True)
        out = hk.Linear(5, name="decoder")(found["quantize"])
        return {"loss": found["loss"], "reconstruction": jnp.mean((out - x) ** 2)}[part]

    model = hk.without_apply_rng(hk.transform(forward))
    params = jax.jit(partial(model.init, part="reconstruction"))(jax.random.key(0), normal(4, 5))

    def reconstruction(params: Any, x: Any) -> Any:
        return model.apply(params, x, "reconstruction")

    def whole(params: Any, x: Any) -> Any:
        return model.apply(params, x, "reconstruction") + model.apply(params, x, "loss")

    call = hk.nets.VectorQuantizer
    through = lines(call, "stop_gradient(quantized - inputs)")
    check(reconstruction, params, normal(4, 5), held={"params.vq.embeddings": through})
    check(whole, params, normal(4, 5), cut={"params.vq.embeddings": UNTOLD})


def test_haiku_recurrent_network_and_its_state() -> None:
    hk = library("haiku")

    def forward(x: Any) -> Any:
        core = hk.LSTM(3)
        out, _ = hk.dynamic_unroll(core, x, core.initial_state(2))
        return jnp.mean(hk.Linear(1)(out) ** 2)

    model = hk.without_apply_rng(hk.transform(forward))
    check(model.apply, jax.jit(model.init)(jax.random.key(0), normal(4, 2, 5)), normal(4, 2, 5))


def test_haiku_batch_normalisation_keeps_its_averages_out_of_the_loss() -> None:
    hk = library("haiku")

    def forward(x: Any) -> Any:
        norm = hk.BatchNorm(True, True, 0.9)
        return jnp.mean(jnp.tanh(hk.Linear(2)(norm(jnp.tanh(hk.Linear(4)(x)), is_training=True))) ** 2)

    model = hk.without_apply_rng(hk.transform_with_state(forward))
    params, state = jax.jit(model.init)(jax.random.key(0), normal(4, 5))

    def loss(params: Any, state: Any, x: Any) -> Any:
        return model.apply(params, state, x)[0]

    check(loss, params, state, normal(4, 5), held={"state.*": "disconnected"})


# ---------------------------------------------------------------------------------------------------- equinox


def test_equinox_network_with_dropout_holds_the_rate() -> None:
    eqx = library("equinox")

    class Network(eqx.Module):  # type: ignore[name-defined, misc]
        mlp: Any
        dropout: Any

        def __call__(self, x: Any, key: Any) -> Any:
            return self.dropout(self.mlp(x), key=key)

    model = Network(eqx.nn.MLP(5, 2, 6, 2, key=jax.random.key(0)), eqx.nn.Dropout(jnp.float32(0.4)))
    arrays, static = eqx.partition(model, eqx.is_array)

    def loss(model: Any, x: Any) -> Any:
        whole = eqx.combine(model, static)
        return jnp.mean(jax.vmap(whole)(x, jax.random.split(jax.random.key(1), len(x))) ** 2)

    stop = lines(eqx.nn.Dropout, "lax.stop_gradient(self.p)")
    check(loss, arrays, normal(4, 5), held={"model.dropout.p": stop})


def test_equinox_recurrent_cell_in_a_scan() -> None:
    eqx = library("equinox")
    cell = eqx.nn.GRUCell(5, 3, key=jax.random.key(0))

    def loss(cell: Any, xs: Any) -> Any:
        h, _ = jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(3), xs)
        return jnp.sum(h**2)

    check(loss, cell, normal(4, 5))


def test_of_equinox_spectral_normalisation_the_stop_in_its_iterations_is_not_told() -> None:
    eqx = library("equinox")
    key = jax.random.key(0)
    layer, state = eqx.nn.make_with_state(eqx.nn.SpectralNorm)(
        eqx.nn.Linear(5, 3, key=key), "weight", num_power_iterations=2, key=key
    )

    def loss(layer: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(layer(x, state)[0]) ** 2)

    flow = sgj.explain(loss, eqx.filter(layer, eqx.is_array), normal(5))
    assert flow["layer.layer.weight"].status == "flows"  # Its own stop is not the user's.
    assert not flow["layer.layer.weight"].cuts
    assert not [finding for finding in flow.findings if finding.kind == "idle"]


# ---------------------------------------------------------------------------------------------------- distrax


def test_distrax_reparameterised_samples_have_a_gradient() -> None:
    distrax = library("distrax")

    def loss(loc: Any, log_scale: Any, key: Any) -> Any:
        return jnp.mean(distrax.Normal(loc, jnp.exp(log_scale)).sample(seed=key) ** 2)

    check(loss, normal(3), normal(3, seed=1), jax.random.key(0))


def test_distrax_samples_of_a_category_have_none() -> None:
    distrax = library("distrax")

    def loss(logits: Any, costs: Any, key: Any) -> Any:
        return jnp.mean(costs[distrax.Categorical(logits).sample(seed=key, sample_shape=8)])

    flow = sgj.explain(loss, normal(3), normal(3, seed=1), jax.random.key(0))
    assert flow["logits"].status == "not differentiable"
    check(loss, normal(3), normal(3, seed=1), jax.random.key(0), held={"logits": "not differentiable"})


def test_distrax_log_probability_of_a_sample_has_one() -> None:
    distrax = library("distrax")

    def loss(logits: Any, costs: Any, key: Any) -> Any:
        chosen, log_p = distrax.Categorical(logits).sample_and_log_prob(seed=key, sample_shape=8)
        return jnp.mean(log_p * costs[chosen])

    check(loss, normal(3), normal(3, seed=1), jax.random.key(0))


def test_distrax_straight_through_samples_have_that_of_the_probabilities() -> None:
    distrax = library("distrax")
    distribution = distrax.straight_through_wrapper(distrax.OneHotCategorical)

    def loss(logits: Any, costs: Any, key: Any) -> Any:
        return jnp.mean(distribution(logits=logits).sample(seed=key) @ costs)

    check(loss, normal(3), normal(3, seed=1), jax.random.key(0), cut={"logits": UNTOLD})


def test_of_distrax_estimate_of_a_divergence_the_stop_of_its_samples_is_not_told() -> None:
    distrax = library("distrax")
    estimate = library("distrax._src.utils.monte_carlo").mc_estimate_kl

    def loss(mine: Any, yours: Any, key: Any) -> Any:
        p, q = (distrax.Normal(t[0], jnp.exp(t[1])) for t in (mine, yours))
        return estimate(p, q, key, 16)

    check(loss, normal(2), normal(2, seed=1), jax.random.key(0), cut={"mine": UNTOLD})
    assert distrax is not None


def test_distrax_variational_autoencoder() -> None:
    distrax = library("distrax")

    def loss(params: Any, x: Any, key: Any) -> Any:
        h = jnp.tanh(x @ params["encoder"])
        posterior = distrax.MultivariateNormalDiag(h @ params["mean"], jnp.exp(h @ params["log_scale"]))
        z = posterior.sample(seed=key)
        prior = distrax.MultivariateNormalDiag(jnp.zeros(2), jnp.ones(2))
        logits = jnp.tanh(z @ params["decoder"]) @ params["out"]
        likelihood = distrax.Independent(distrax.Bernoulli(logits=logits), 1)
        evidence = likelihood.log_prob((x > 0.0).astype(jnp.float32)) - posterior.kl_divergence(prior)
        return -jnp.mean(evidence)

    shapes = {"encoder": (5, 4), "mean": (4, 2), "log_scale": (4, 2), "decoder": (2, 4), "out": (4, 5)}
    params = {name: normal(*shape) for name, shape in shapes.items()}
    check(loss, params, normal(4, 5), jax.random.key(0))
