"""Losses of JAX libraries, and what is true of them: which arguments get a gradient, and which lines cut.

Both are written by hand, from the library's source; ``jax_library_runs`` holds the reports against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from library_checks import Cases, Lines, lines


def library(name: str) -> Any:
    """A module of a library, or the reason why a test of it is skipped."""
    return pytest.importorskip(name, reason=f"{name.partition('.')[0]} is not installed")


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A loss of a library, and what is true of it.

    Attributes:
        f, args: the loss, and what it is called with.
        held: patterns of arguments that get no gradient, each with the lines that cut every path, or with a
            status that has no lines; all others get one.
        cut: patterns of arguments that get one, some of whose paths are cut at these lines of the loss's own;
            what a library stops besides is not told.
        undefined: whether JAX raises an error when it is asked for the gradient.
        vanish: patterns of arguments whose gradient JAX gives as zeros, though the program passes one on.
    """

    f: Callable[..., Any]
    args: tuple[Any, ...]
    held: Mapping[str, Lines | str] = field(default_factory=dict)
    cut: Mapping[str, Lines] = field(default_factory=dict)
    undefined: bool = False
    vanish: tuple[str, ...] = ()


CASES: Cases[Case] = Cases()
case = CASES.of
KEY = jax.random.key(0)

# -------------------------------------------------------------------------------------- numpyro, blackjax


def regression(guide: Any, loss: Any) -> Case:
    """A step of stochastic variational inference; the parameters are those of the guide, unconstrained."""
    numpyro, dist, infer = library("numpyro"), library("numpyro.distributions"), library("numpyro.infer")
    x = normal(6, 3)

    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        spread = numpyro.param("spread", 0.5, constraint=dist.constraints.positive)
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(x @ w, spread), obs=y)

    found = guide(model)
    svi = infer.SVI(model, found, numpyro.optim.Adam(0.1), loss)
    params = svi.optim.get_params(svi.init(KEY, x, normal(6)).optim_state)

    def evidence(params: Any, x: Any, y: Any) -> Any:
        return loss.loss(KEY, svi.constrain_fn(params), model, found, x, y)

    return Case(evidence, (params, x, normal(6)))


@case("numpyro")
def variational_inference() -> Case:
    infer = library("numpyro.infer")
    return regression(library("numpyro.infer.autoguide").AutoNormal, infer.Trace_ELBO())


@case("numpyro")
def variational_inference_in_closed_form() -> Case:
    infer = library("numpyro.infer")
    return regression(library("numpyro.infer.autoguide").AutoMultivariateNormal, infer.TraceMeanField_ELBO())


@case("numpyro")
def score_of_a_discrete_sample() -> Case:
    """Its sample has no derivative; the score of it is weighted by a stopped cost."""
    numpyro, dist, infer = library("numpyro"), library("numpyro.distributions"), library("numpyro.infer")

    def model(params: Any, y: Any) -> None:
        with numpyro.plate("data", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(logits=params["prior"]))
            numpyro.sample("y", dist.Normal(params["shift"][z], 1.0), obs=y)

    def guide(params: Any, y: Any) -> None:
        with numpyro.plate("data", len(y)):
            numpyro.sample("z", dist.Bernoulli(logits=params["found"]), infer={"is_auxiliary": False})

    def loss(params: Any, y: Any) -> Any:
        return infer.TraceGraph_ELBO().loss(KEY, {}, model, guide, params, y)

    params = {"prior": np.float32(0.2), "found": np.float32(-0.4), "shift": normal(2)}
    return Case(loss, (params, normal(6)), cut={"*": set()})


def density(scale: Any) -> Callable[[Any], Any]:
    return lambda x: -0.5 * jnp.sum((x / scale) ** 2)


@case("blackjax")
def hamiltonian_step() -> Case:
    blackjax = library("blackjax")

    def loss(scale: Any, x: Any) -> Any:
        kernel = blackjax.hmc(density(scale), 0.1, jnp.ones(2), num_integration_steps=3)
        state, _ = kernel.step(KEY, kernel.init(x))
        return jnp.sum(state.position**2)

    return Case(loss, (np.float32(1.0), np.ones(2, np.float32)))


@case("blackjax")
def no_u_turn_step() -> Case:
    """A loop of as many steps as it takes: JAX has no gradient, and says so."""
    blackjax = library("blackjax")
    loop = lines(library("blackjax.mcmc.trajectory").dynamic_multiplicative_expansion, "jax.lax.while_loop(")

    def loss(scale: Any, x: Any) -> Any:
        kernel = blackjax.nuts(density(scale), 0.1, jnp.ones(2))
        state, _ = kernel.step(KEY, kernel.init(x))
        return jnp.sum(state.position**2)

    return Case(loss, (np.float32(1.0), np.ones(2, np.float32)), {"*": loop}, undefined=True)


@case("blackjax")
def langevin_step() -> Case:
    blackjax = library("blackjax")

    def loss(scale: Any, x: Any) -> Any:
        kernel = blackjax.mala(density(scale), 0.1)
        state, _ = kernel.step(KEY, kernel.init(x))
        return jnp.sum(state.position**2)

    return Case(loss, (np.float32(1.0), np.ones(2, np.float32)))


# ------------------------------------------------------------------------------ diffrax, optimistix, jaxopt


def slope(t: Any, y: Any, w: Any) -> Any:
    return jnp.tanh(w @ y)


W = np.array([[0.5, 0.2], [-0.1, 0.4]], np.float32)


@case("diffrax")
def solved_by_steps() -> Case:
    diffrax = library("diffrax")

    def loss(w: Any, y: Any) -> Any:
        found = diffrax.diffeqsolve(diffrax.ODETerm(slope), diffrax.Tsit5(), 0.0, 1.0, 0.25, y, args=w)
        return jnp.sum(found.ys**2)

    return Case(loss, (W, np.ones(2, np.float32)))


@case("optimistix")
def fixed_point() -> Case:
    """By the implicit function theorem: where it begins gets no gradient."""
    optimistix = library("optimistix")
    rule = lines(library("equinox._ad"), "return self.fn(static, dynamic)")

    def loss(w: Any, y: Any) -> Any:
        solver = optimistix.FixedPointIteration(rtol=1e-4, atol=1e-4)
        return jnp.sum(
            optimistix.fixed_point(lambda y, w: jnp.tanh(w @ y) + 0.1, solver, y, args=w).value ** 2
        )

    return Case(loss, (W, np.ones(2, np.float32)), {"y": rule})


@case("jaxopt")
def fixed_point_by_iteration() -> Case:
    jaxopt = library("jaxopt")
    rule = lines(
        library("jaxopt._src.implicit_diff"), "return make_custom_vjp_solver_fun(solver_fun, keys)(*args"
    )

    def loss(w: Any, y: Any) -> Any:
        solver = jaxopt.FixedPointIteration(
            lambda y, w: jnp.tanh(w @ y) + 0.1, maxiter=20, implicit_diff=True
        )
        return jnp.sum(solver.run(y, w).params ** 2)

    return Case(loss, (W, np.ones(2, np.float32)), {"y": rule})


@case("jaxopt")
def learnt_regularisation() -> Case:
    """The loss of a fit as a function of how it is regularised."""
    jaxopt = library("jaxopt")
    x, y = normal(6, 3), normal(6)
    rule = lines(
        library("jaxopt._src.implicit_diff"), "return make_custom_vjp_solver_fun(solver_fun, keys)(*args"
    )

    def fit(w: Any, penalty: Any) -> Any:
        return jnp.mean((x @ w - y) ** 2) + penalty * jnp.sum(w**2)

    def loss(penalty: Any, w: Any) -> Any:
        return jnp.sum(
            jaxopt.GradientDescent(fit, maxiter=30, implicit_diff=True).run(w, penalty).params ** 2
        )

    return Case(loss, (np.float32(0.1), np.zeros(3, np.float32)), {"w": rule})


# ----------------------------------------------------------------------------------------- penzai, e3nn-jax


@case("penzai")
def layers_as_data() -> Case:
    """A network that is a tree of layers, with its parameters as arguments."""
    pz = library("penzai.pz")
    affine = library("penzai.pz").nn.Affine
    model = pz.nn.Sequential(
        [
            affine.from_config("first", KEY, {"in": 5}, {"mid": 4}),
            pz.nn.Elementwise(jnp.tanh),
            affine.from_config("last", KEY, {"mid": 4}, {"out": 2}),
        ]
    )
    unbound, variables = pz.unbind_params(model, freeze=True)
    x = normal(3, 5)

    def loss(variables: Any, x: Any) -> Any:
        bound = pz.bind_variables(unbound, variables)
        return jnp.mean(bound(pz.nx.wrap(x, "batch", "in")).untag("batch", "out").unwrap() ** 2)

    return Case(loss, (variables, x))


@case("e3nn-jax")
def equivariant_product() -> Case:
    """Vectors and scalars, multiplied by weights so that rotations pass through."""
    e3nn = library("e3nn_jax")
    layer = library("e3nn_jax.flax").Linear("2x0e + 1x1o")
    kinds = e3nn.Irreps("2x0e + 1x1o")

    def product(x: Any, r: Any) -> Any:
        around = e3nn.spherical_harmonics("0e + 1o", e3nn.IrrepsArray("1o", r), normalize=True)
        return e3nn.tensor_product(e3nn.IrrepsArray(kinds, x), around)

    def loss(params: Any, x: Any, r: Any) -> Any:
        return jnp.sum(e3nn.norm(layer.apply(params, product(x, r)), squared=True).array)

    x, r = normal(kinds.dim), normal(3)
    return Case(loss, (layer.init(KEY, product(x, r)), x, r))


# ------------------------------------------------------------------------------------------ pgx, brax, gymnax


@case("pgx")
def policy_of_a_game() -> Case:
    """REINFORCE through a game of tic-tac-toe, whose moves are integers."""
    pgx = library("pgx")
    env = pgx.make("tic_tac_toe")
    start = jax.jit(env.init)(KEY)

    def loss(policy: Any, critic: Any) -> Any:
        state, cost = start, 0.0
        for key in jax.random.split(KEY, 3):
            seen = state.observation.reshape(-1).astype(jnp.float32)
            logits = jnp.where(state.legal_action_mask, seen @ policy + policy[0], -1e9)
            move = jax.random.categorical(key, logits)
            state = env.step(state, move)
            value = jnp.sum(state.rewards) - (seen @ critic + critic[0])
            cost -= jax.nn.log_softmax(logits)[move] * jax.lax.stop_gradient(value) - value**2
        return cost

    stop = lines(policy_of_a_game, "cost -= jax" + ".")
    return Case(loss, (normal(18, 9), normal(18)), cut={"policy": stop, "critic": stop})


@case("brax")
def proximal_policy() -> Case:
    """The loss of its PPO, with networks of its own; advantages and targets are stopped."""
    losses, networks = (
        library("brax.training.agents.ppo.losses"),
        library("brax.training.agents.ppo.networks"),
    )
    types = library("brax.training.types")
    made = networks.make_ppo_networks(4, 2, policy_hidden_layer_sizes=(6,), value_hidden_layer_sizes=(6,))
    params = losses.PPONetworkParams(policy=made.policy_network.init(KEY), value=made.value_network.init(KEY))
    raw = normal(3, 5, 2)
    data = types.Transition(
        observation=normal(3, 5, 4),
        action=np.tanh(raw),
        reward=normal(3, 5),
        discount=np.ones((3, 5), np.float32),
        next_observation=normal(3, 5, 4, seed=1),
        extras={
            "state_extras": {"truncation": np.zeros((3, 5), np.float32)},
            "policy_extras": {
                "raw_action": raw,
                "log_prob": normal(3, 5, seed=2) - 2.0,
                "value": normal(3, 5, seed=3),
                "distribution_params": normal(3, 5, 4, seed=4),
            },
        },
    )

    def loss(params: Any) -> Any:
        return losses.compute_ppo_loss(params, None, data, KEY, made)[0]

    return Case(loss, (params,), cut={"params.value.*": set()})


@case("gymnax")
def differentiable_pendulum() -> Case:
    """A policy through the equations of a pendulum: what a step returns is stopped, but for the reward."""
    gymnax = library("gymnax")
    env, options = gymnax.make("Pendulum-v1")
    _, start = env.reset(KEY, options)

    def loss(policy: Any) -> Any:
        state, cost = start, 0.0
        seen = env.get_obs(state)
        for _ in range(3):
            seen, state, reward, *_ = env.step_env(KEY, state, jnp.tanh(seen @ policy), options)
            cost -= reward
        return jnp.sum(cost)

    return Case(loss, (normal(3, 1),), cut={"policy": set()})
