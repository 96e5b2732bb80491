"""The example programs: their losses and gradients beside JAX, what stops cut off, and that they learn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from all_engines import ENGINES, each_engine
from examples_references import EXAMPLES, Case, all_cases, example

import stopgrad as sg
from stopgrad.base.structure import flatten, unflatten

pytestmark = pytest.mark.slow

jax = pytest.importorskip("jax")

CASES = all_cases()
PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py"))
by_case = pytest.mark.parametrize("key", CASES, ids=["-".join(key) for key in CASES])


def loss_and_arguments(
    key: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Case, Callable[..., Any], tuple[Any, ...]]:
    """A case, the example's loss, and its arguments."""
    name, loss = key
    case, module = CASES[key], example(name)
    for setting, value in case.settings.items():
        monkeypatch.setattr(module, setting, value)
    f = case.call(module) if case.call is not None else getattr(module, loss)
    return case, f, case.arguments(module, np.random.default_rng(0))


@cache
def reference_of(key: tuple[str, str]) -> tuple[Any, Any]:
    """JAX's value and gradients of a case, in float64."""
    case = CASES[key]
    args = case.arguments(example(key[0]), np.random.default_rng(0))
    with jax.enable_x64(True):
        return jax.jit(jax.value_and_grad(case.reference, floating(args)))(*args)


def floating(args: tuple[Any, ...]) -> tuple[int, ...]:
    """The positions of arguments that hold floating-point numbers."""
    return tuple(i for i, arg in enumerate(args) if any(x.dtype.kind == "f" for x in flatten(arg)[0]))


# ------------------------------------------------------------------------------ values, gradients, stops


@each_engine
@by_case
def test_loss_and_every_gradient_are_those_of_jax(
    key: tuple[str, str], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, f, args = loss_and_arguments(key, monkeypatch)
    argnums = floating(args)
    ours = sg.function(sg.value_and_grad(f, argnums, unconnected="none"), engine=engine)
    value, found = ours(*args)
    expected_value, expected = reference_of(key)
    assert np.asarray(value).dtype == np.float64
    np.testing.assert_allclose(value, expected_value, rtol=case.tolerance)

    names = list(sg.explain(f, *args, argnums=argnums))
    leaves, references = flatten(found, none_is_leaf=True)[0], flatten(expected)[0]
    for name, gradient, reference in zip(names, leaves, references, strict=True):
        if name.startswith(case.blocked):
            assert gradient is None, name
            assert not np.any(reference), name
        else:
            scale = np.abs(reference).max()
            assert scale > 0, name
            np.testing.assert_allclose(gradient, reference, rtol=0, atol=case.tolerance * scale, err_msg=name)


@by_case
def test_in_a_graph_the_same_is_cut_off_and_the_rest_flows(
    key: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, f, args = loss_and_arguments(key, monkeypatch)
    names = list(sg.explain(f, *args))
    leaves, spec = flatten(args)
    with sg.Graph().as_default() as graph:
        inputs = [sg.placeholder(x.dtype, x.shape) for x in leaves]
        y = f(*unflatten(spec, inputs))
        xs = {name: x for name, x in zip(names, inputs, strict=True) if x.dtype.is_floating}
        blocked = [x for name, x in xs.items() if name.startswith(case.blocked)]
        flowing = [x for name, x in xs.items() if not name.startswith(case.blocked)]
        sg.assert_flows(y, flowing)
        assert bool(blocked) == bool(case.blocked)
        if blocked:
            sg.assert_blocked(y, blocked)
            assert sg.gradients(y, blocked) == [None] * len(blocked)
        gradients = sg.gradients(y, flowing)
    with sg.Session(graph, engine="numpy") as session:
        value, found = session.run([y, gradients], dict(zip(inputs, leaves, strict=True)))
    traced, expected = sg.value_and_grad(f, floating(args), unconnected="none")(*args)
    np.testing.assert_allclose(value, traced, rtol=1e-12)
    for g, e in zip(found, flatten(expected)[0], strict=True):
        np.testing.assert_allclose(g, e, rtol=0, atol=1e-12 * np.abs(e).max())


# --------------------------------------------------------------------------------------------- training


def vq_vae() -> None:
    _, losses = example("vq_vae").train(150)
    assert np.mean(losses[-10:]) < 0.2 * losses[0]


def byol() -> None:
    byol = example("byol")
    _, target, losses = byol.train(200)
    assert losses[-1] < 0.25 * losses[0]
    assert byol.agreement(target) >= byol.agreement(byol.init(np.random.default_rng(0))) + 0.1


def simsiam() -> None:
    """With the stop the points stay spread; without it the loss falls too, and they collapse."""
    simsiam = example("simsiam")
    x, _ = simsiam.views(np.random.default_rng(1), 500)
    params, losses = simsiam.train(200)
    assert losses[-1] < losses[0] - 0.4
    assert simsiam.spread(params, x) >= 0.7
    collapsed, losses = simsiam.train(200, stop=False)
    assert losses[-1] < losses[0] - 0.4
    assert simsiam.spread(collapsed, x) <= 0.3


def moco() -> None:
    moco = example("moco")
    params, _, losses = moco.train(300)
    assert np.mean(losses[-10:]) < np.mean(losses[moco.QUEUE // moco.BATCH :][:10]) - 0.2
    assert moco.found(params) >= moco.found(moco.init(np.random.default_rng(0))) + 0.1


def double_dqn() -> None:
    """The learnt values are those of value iteration, and so the best action is to the right everywhere."""
    dqn = example("double_dqn")
    q, _ = dqn.train(2000)
    assert np.abs(q - dqn.best_values()).max() <= 0.15
    assert (q[:, 1] > q[:, 0]).all()


def ppo() -> None:
    _, rewards = example("ppo").train(40)
    assert np.mean(rewards[:3]) < -0.5
    assert np.mean(rewards[-3:]) > -0.3


def sac() -> None:
    sac = example("sac")
    params, _ = sac.train(400)
    assert sac.distance(sac.init(np.random.default_rng(0))["policy"]) >= 0.3
    assert sac.distance(params["policy"]) <= 0.15


def gumbel_straight_through() -> None:
    _, losses = example("gumbel_straight_through").train(200)
    assert np.mean(losses[-10:]) < np.mean(losses[:5]) - 3.0


def reinforce() -> None:
    for estimator in ("reinforce", "rloo"):
        _, means = example("reinforce").train(estimator, 200)
        assert np.mean(means[:3]) <= 0.4
        assert np.mean(means[-5:]) >= 0.9


def gan() -> None:
    gan = example("gan")
    points, _ = gan.train(600)
    assert np.abs(points.mean(axis=0) - gan.CENTRE).max() <= 0.5
    assert np.abs(points.std(axis=0) - gan.SPREAD).max() <= 0.5


def gradient_reversal() -> None:
    dann = example("gradient_reversal")
    for strength, low, high in ((0.0, 0.4, 0.6), (1.0, 0.85, 1.0)):
        params, _ = dann.train(500, strength=strength)
        assert dann.accuracy(params, 0) >= 0.98
        assert low <= dann.accuracy(params, 1) <= high


def wgan_gp() -> None:
    wgan = example("wgan_gp")
    params, _ = wgan.train(150)
    assert wgan.off_circle(params["generator"]) <= 0.7 * wgan.off_circle(
        wgan.init(np.random.default_rng(0))["generator"]
    )


def maml() -> None:
    for first_order in (False, True):
        _, losses = example("maml").train(150, first_order=first_order)
        assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:5])


def deep_equilibrium() -> None:
    deq = example("deep_equilibrium")
    for solve in (deq.equilibrium, deq.one_step):
        _, losses = deq.train(150, solve=solve)
        assert np.mean(losses[-10:]) < 0.5 * losses[0]


AIMS = {
    f.__name__: f
    for f in (
        *(vq_vae, byol, simsiam, moco, double_dqn, ppo, sac, gumbel_straight_through, reinforce, gan),
        *(gradient_reversal, wgan_gp, maml, deep_equilibrium),
    )
}


@pytest.mark.parametrize("name", AIMS)
def test_a_short_training_reaches_its_aim(name: str) -> None:
    AIMS[name]()


GRAPH_STYLE = ("double_dqn", "gan")


@pytest.mark.parametrize(
    "name", [name if name in GRAPH_STYLE else pytest.param(name, marks=pytest.mark.nightly) for name in AIMS]
)
def test_engines_train_alike(name: str) -> None:
    """The few first losses; later ones drift apart by rounding. Losses themselves are compared above."""
    ours, *others = (example(name).train(steps=4, engine=engine)[-1] for engine in ENGINES)
    assert len(ours) == 4
    for other in others:
        np.testing.assert_allclose(ours, other, rtol=1e-3)


def test_each_example_is_compared() -> None:
    assert {name for name, _ in CASES} == set(PROGRAMS)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_runs_without_a_warning(name: str) -> None:
    program = [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout
    assert "nan" not in done.stdout


# -------------------------------------------------------------------- what the estimators estimate, exactly


def runs_of(steps: int, actions: int) -> np.ndarray:
    """Every run of so many choices, one a row."""
    return np.stack(np.meshgrid(*[np.arange(actions)] * steps, indexing="ij"), axis=-1).reshape(-1, steps)


def test_reinforce_is_unbiased_with_any_baseline() -> None:
    """Over all actions, weighted by their probabilities, it is the gradient of the expected reward."""
    rng = np.random.default_rng(0)
    logits, rewards = rng.normal(size=(1, 4)), rng.normal(size=4)
    p = np.exp(logits[0]) / np.exp(logits[0]).sum()
    exact = -p * (rewards - p @ rewards)
    gradient = sg.grad(example("reinforce").reinforce_loss)
    for baseline in (0.0, 3.0):
        given = [gradient(logits, np.array([a]), rewards[[a]], baseline)[0] for a in range(4)]
        np.testing.assert_allclose(p @ given, exact, atol=1e-12)


def test_rloo_is_unbiased() -> None:
    rng = np.random.default_rng(1)
    logits, payoff = rng.normal(size=(1, 3)), rng.normal(size=3)
    p = np.exp(logits[0]) / np.exp(logits[0]).sum()
    gradient = sg.grad(example("reinforce").rloo_loss)
    draws = runs_of(3, 3)
    total = sum(p[run].prod() * gradient(logits, run[None], payoff[run][None])[0] for run in draws)
    np.testing.assert_allclose(total, -p * (payoff - p @ payoff), atol=1e-12)


def test_dice_is_unbiased_at_the_second_order_and_reinforce_is_not() -> None:
    """Of two choices, with rewards at each; the exact objective is a sum over all runs."""
    rng = np.random.default_rng(2)
    logits, first, second = rng.normal(size=(2, 3)), rng.normal(size=3), rng.normal(size=(3, 3))
    module = example("reinforce")

    def expected(logits: Any) -> Any:
        p = sg.softmax(logits)
        return -(p[0] @ first + p[0] @ second @ p[1])

    def surrogate(logits: Any, runs: Any, rewards: Any) -> Any:
        return module.reinforce_loss(logits, runs[0], rewards[0][::-1].cumsum()[::-1], 0.0) * 2.0

    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    means: dict[str, Any] = {}
    for a, b in runs_of(2, 3):
        run, rewards = np.array([[a, b]]), np.array([[first[a], second[a, b]]])
        for name, loss in (("dice", module.dice_loss), ("reinforce", surrogate)):
            for order, of in (("gradient", sg.grad), ("hessian", sg.hessian)):
                found = p[0, a] * p[1, b] * of(loss)(logits, run, rewards)
                means[name, order] = means.get((name, order), 0.0) + found
    for name in ("dice", "reinforce"):
        np.testing.assert_allclose(means[name, "gradient"], sg.grad(expected)(logits), atol=1e-12)
    exact = sg.hessian(expected)(logits)
    np.testing.assert_allclose(means["dice", "hessian"], exact, atol=1e-12)
    assert np.abs(means["reinforce", "hessian"] - exact).max() > 0.1


def test_the_value_of_a_straight_through_code_is_a_word() -> None:
    logits = np.random.default_rng(3).normal(size=(50, 8)).astype(np.float32)
    code = example("gumbel_straight_through").draw(logits, sg.random_key(0))
    assert set(np.unique(code)) == {0.0, 1.0}
    np.testing.assert_array_equal(code.sum(axis=-1), 1.0)
