"""Losses of further libraries of JAX, added to the table of models: each is trained one step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax_models import KEY, Model, library, model, normal

stop = jax.lax.stop_gradient
W = {"w": normal(4, 2), "b": jnp.ones(2)}
X4, Y2, LABELS = normal(3, 4), normal(3, 2, seed=1), np.array([0, 1, 1])


def head(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["w"] + p["b"])


# ------------------------------------------------------------------------------------------------- rlax


@model
def rlax_policy_gradient() -> Model:
    rlax = library("rlax")

    def loss(p: Any) -> Any:
        return rlax.policy_gradient_loss(head(p, X4), LABELS, jnp.ones(3) * 0.5, jnp.ones(3))

    return Model(loss, W)


@model
def rlax_entropy() -> Model:
    rlax = library("rlax")
    return Model(lambda p: rlax.entropy_loss(head(p, X4), jnp.ones(3)), W)


@model
def rlax_clipped_surrogate() -> Model:
    rlax = library("rlax")

    def loss(p: Any) -> Any:
        chosen = jax.nn.log_softmax(head(p, X4))[jnp.arange(3), LABELS]
        ratios = jnp.exp(chosen - jnp.log(0.5))
        return rlax.clipped_surrogate_pg_loss(ratios, jnp.array([1.0, -0.5, 0.3]), 0.2)

    return Model(loss, W)


@model
def rlax_q_learning() -> Model:
    rlax = library("rlax")

    def loss(p: Any) -> Any:
        errors = jax.vmap(rlax.q_learning)(
            head(p, X4), LABELS, jnp.ones(3), jnp.ones(3) * 0.9, head(p, X4 + 1)
        )
        return rlax.l2_loss(errors).mean()

    return Model(loss, W)


@model
def rlax_td_lambda() -> Model:
    rlax = library("rlax")

    def loss(p: Any) -> Any:
        v = head(p, X4)[:, 0]
        return jnp.sum(rlax.td_lambda(v[:-1], jnp.ones(2), jnp.ones(2) * 0.9, v[1:], 0.8) ** 2)

    return Model(loss, {"w": W["w"][:, :1], "b": W["b"][:1]})


# ---------------------------------------------------------------------------------------------- distrax


@model
def distrax_likelihood() -> Model:
    distrax = library("distrax")

    def loss(p: Any) -> Any:
        return -distrax.Normal(p["b"], jax.nn.softplus(p["w"][0])).log_prob(Y2).mean()

    return Model(loss, {"w": W["w"][:1], "b": W["b"]})


@model
def distrax_categorical() -> Model:
    distrax = library("distrax")
    return Model(lambda p: -distrax.Categorical(head(p, X4)).log_prob(LABELS).mean(), W)


@model
def distrax_flow() -> Model:
    distrax = library("distrax")

    def loss(p: Any) -> Any:
        bijector = distrax.Chain([distrax.Tanh(), distrax.ScalarAffine(p["shift"], p["scale"])])
        base = distrax.Normal(jnp.zeros(2), jnp.ones(2))
        flow = distrax.Transformed(base, bijector)
        return -flow.log_prob(jnp.tanh(Y2)).mean()

    return Model(loss, {"shift": jnp.zeros(2), "scale": jnp.ones(2)})


@model
def distrax_divergence() -> Model:
    distrax = library("distrax")

    def loss(p: Any) -> Any:
        found = distrax.MultivariateNormalDiag(p["m"], jnp.exp(p["s"]))
        z = found.sample(seed=KEY)
        return found.kl_divergence(distrax.MultivariateNormalDiag(jnp.zeros(2), jnp.ones(2))) + (z**2).sum()

    return Model(loss, {"m": jnp.ones(2), "s": jnp.zeros(2) - 0.5})


@model
def distrax_mixture() -> Model:
    distrax = library("distrax")

    def loss(p: Any) -> Any:
        mixture = distrax.MixtureSameFamily(
            distrax.Categorical(p["logits"]), distrax.Normal(p["means"], jnp.ones(3))
        )
        return -mixture.log_prob(Y2[:, 0]).mean()

    return Model(loss, {"logits": jnp.zeros(3), "means": jnp.array([-1.0, 0.0, 1.0])})


# --------------------------------------------------------------------- numpyro, blackjax, penzai, chex


@model
def numpyro_density() -> Model:
    numpyro, dist = library("numpyro"), library("numpyro.distributions")
    density = library("numpyro.infer.util").log_density

    def program(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(jnp.zeros((4, 2)), 1.0).to_event(2))
        numpyro.sample("y", dist.Normal(x @ w, 0.5).to_event(2), obs=y)

    return Model(lambda p: -density(program, (X4, Y2), {}, p)[0], {"w": normal(4, 2)})


@model
def numpyro_evidence() -> Model:
    numpyro, dist, infer = library("numpyro"), library("numpyro.distributions"), library("numpyro.infer")

    def program(y: Any) -> None:
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    def guide(y: Any) -> None:
        m = numpyro.param("m", 0.1)
        numpyro.sample("z", dist.Normal(m, numpyro.param("s", 0.5)))

    def loss(p: Any) -> Any:
        return infer.Trace_ELBO().loss(KEY, p, program, guide, Y2[0, 0])

    return Model(loss, {"m": jnp.float32(0.1), "s": jnp.float32(0.5)})


@model
def blackjax_leapfrog() -> Model:
    integrators = library("blackjax.mcmc.integrators")

    def loss(p: Any) -> Any:
        def density(x: Any) -> Any:
            return -0.5 * jnp.sum((x * p["scale"]) ** 2)

        step = integrators.velocity_verlet(density, lambda m, position=None: 0.5 * jnp.sum(m**2))
        x = p["x"]
        state = integrators.IntegratorState(x, jnp.ones(2), density(x), jax.grad(density)(x))
        return jnp.sum(step(state, 0.1).position ** 2)

    return Model(loss, {"scale": jnp.ones(2), "x": jnp.array([0.5, 1.0])})


@model
def chex_dataclass() -> Model:
    chex = library("chex")

    @chex.dataclass
    class Parts:
        w: Any
        b: Any

    def loss(p: Any) -> Any:
        chex.assert_shape(p.w, (4, 2))
        return jnp.mean((X4 @ p.w + p.b - Y2) ** 2)

    return Model(loss, Parts(**W))


# --------------------------------------------------- diffrax, lineax, optimistix, jaxopt, brax, loops


@model
def diffrax_neural_equation() -> Model:
    diffrax = library("diffrax")

    def loss(p: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, w: jnp.tanh(w @ y))
        found = diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 1.0, 0.25, p["y"], args=p["w"])
        return jnp.sum(found.ys**2)

    return Model(loss, {"w": normal(2, 2), "y": jnp.ones(2)})


@model
def diffrax_by_steps() -> Model:
    diffrax = library("diffrax")

    def loss(p: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, w: -w * y)
        saved = diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 3))
        options = {"saveat": saved, "adjoint": diffrax.DirectAdjoint(), "max_steps": 8}
        found = diffrax.diffeqsolve(
            term, diffrax.Euler(), 0.0, 1.0, 0.25, jnp.ones(2), args=p["w"], **options
        )
        return jnp.mean((found.ys - 0.5) ** 2)

    return Model(loss, {"w": jnp.array([0.5, 1.0])})


@model
def lineax_solve() -> Model:
    lineax = library("lineax")

    def loss(p: Any) -> Any:
        operator = lineax.MatrixLinearOperator(p["a"] + 3.0 * jnp.eye(2))
        return jnp.sum(lineax.linear_solve(operator, p["b"], lineax.LU()).value ** 2)

    return Model(loss, {"a": normal(2, 2), "b": jnp.ones(2)})


@model
def lineax_positive() -> Model:
    lineax = library("lineax")

    def loss(p: Any) -> Any:
        matrix = p["a"] @ p["a"].T + jnp.eye(2)
        operator = lineax.MatrixLinearOperator(matrix, lineax.positive_semidefinite_tag)
        return jnp.sum(lineax.linear_solve(operator, p["b"], lineax.Cholesky()).value)

    return Model(loss, {"a": normal(2, 2), "b": jnp.ones(2)})


@model
def optimistix_root() -> Model:
    optimistix = library("optimistix")

    def loss(p: Any) -> Any:
        solver = optimistix.Newton(rtol=1e-4, atol=1e-4)
        return (
            optimistix.root_find(lambda y, w: y**3 + y - w, solver, jnp.float32(0.5), args=p["w"]).value ** 2
        )

    return Model(loss, {"w": jnp.float32(2.0)})


@model
def jaxopt_ridge() -> Model:
    jaxopt = library("jaxopt")

    def inner(w: Any, penalty: Any) -> Any:
        return jnp.mean((X4 @ w - Y2) ** 2) + penalty * jnp.sum(w**2)

    def loss(p: Any) -> Any:
        return jnp.sum(jaxopt.GradientDescent(inner, maxiter=20).run(jnp.zeros((4, 2)), p["l"]).params ** 2)

    return Model(loss, {"l": jnp.float32(0.1)})


@model
def brax_rotation() -> Model:
    math = library("brax.math")

    def loss(p: Any) -> Any:
        return jnp.sum((math.rotate(p["v"], math.normalize(p["q"])[0]) - jnp.ones(3)) ** 2)

    return Model(loss, {"v": normal(3), "q": jnp.array([1.0, 0.2, 0.1, 0.3])})


def _language_model(p: Any, tokens: Any) -> Any:
    """One block of a decoder, as loops of levanter and maxtext have it, written small."""
    x = p["embed"][tokens]

    def block(x: Any, layer: Any) -> Any:
        q, k, v = (x @ layer[name] for name in ("q", "k", "v"))
        scores = jnp.where(jnp.tri(x.shape[0], dtype=bool), q @ k.T / 2.0, -1e9)
        x = x + jax.nn.softmax(scores) @ v
        return x + jax.nn.gelu(x @ layer["up"]) @ layer["down"], None

    x, _ = jax.lax.scan(jax.checkpoint(block), x, p["layers"])
    x = x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6)
    logits = x[:-1] @ p["embed"].T
    optax = library("optax")
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[1:]).mean()


LAYERS = {
    "q": normal(2, 4, 4), "k": normal(2, 4, 4, seed=1), "v": normal(2, 4, 4, seed=2),
    "up": normal(2, 4, 6), "down": normal(2, 6, 4),
}  # fmt: skip
TOKENS = np.array([0, 3, 1, 2, 4])


@model
def levanter_like_scanned_blocks() -> Model:
    return Model(_language_model, {"embed": normal(5, 4), "layers": LAYERS}, (TOKENS,))


@model
def maxtext_like_accumulated() -> Model:
    def loss(p: Any, batch: Any) -> Any:
        def add(total: Any, tokens: Any) -> Any:
            return total + _language_model(p, tokens), None

        return jax.lax.scan(add, 0.0, batch)[0] / len(batch)

    return Model(loss, {"embed": normal(5, 4), "layers": LAYERS}, (np.stack([TOKENS, TOKENS[::-1]]),))


# ----------------------------------------------------------------- with stops that are meant, of any library


@model
def distilled() -> Model:
    def loss(p: Any) -> Any:
        return jnp.mean((head(p["student"], X4) - stop(head(p["teacher"], X4))) ** 2)

    return Model(
        loss, {"student": W, "teacher": {"w": normal(4, 2, seed=9), "b": jnp.zeros(2)}}, held=("teacher",)
    )


@model
def low_rank_adapters() -> Model:
    def loss(p: Any) -> Any:
        return jnp.mean((X4 @ (stop(p["base"]) + p["a"] @ p["c"]) - Y2) ** 2)

    return Model(loss, {"base": normal(4, 2), "a": normal(4, 1), "c": normal(1, 2)}, held=("base",))


@model
def frozen_by_optax() -> Model:
    incremental = library("optax").incremental_update

    def loss(p: Any) -> Any:
        target = incremental(p["online"], stop(p["target"]), 0.0)
        return jnp.mean((head(p["online"], X4) - stop(head(target, X4))) ** 2)

    return Model(
        loss, {"online": W, "target": {"w": normal(4, 2, seed=9), "b": jnp.zeros(2)}}, held=("target",)
    )
