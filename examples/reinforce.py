"""Gradients of expected rewards over random choices: REINFORCE, RLOO and DiCE.

    REINFORCE  -log π(a) · sg(r - b)                          b: the mean reward so far
    RLOO       -Σₖ log π(aₖ) · sg(rₖ - mean of the others')   of K draws for the same question
    DiCE       -Σₜ rₜ · exp(τₜ - sg(τₜ)),  τₜ = Σ log π of all choices before or at t

A choice has no gradient; that of its log-probability, weighted by the reward, is right on average. The
weights are numbers: rewards are stopped, so that a learnt baseline or reward model stays out of it. DiCE's
factor exp(τ - sg τ) is 1 and has the gradient of τ, at *every* order: differentiated twice it gives an
unbiased Hessian, where REINFORCE's surrogate, differentiated twice, gives a wrong one.

Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning";
Kool, van Hoof & Welling 2019, "Buy 4 REINFORCE samples, get a baseline for free!"; Foerster et al. 2018,
"DiCE: the infinitely differentiable Monte Carlo estimator" (arXiv 1802.05098).
"""

import numpy as np

import stopgrad as sg


def reinforce_loss(logits, actions, rewards, baseline):
    """Of one choice each: logits [batch, actions], the other three [batch], the baseline a number for all."""
    log_p = sg.log_softmax(logits)[np.arange(len(actions)), actions]
    return -(log_p * sg.stop_gradient(rewards - baseline)).mean()


def rloo_loss(logits, actions, rewards):
    """Of K choices for each question: logits [batch, actions], actions and rewards [batch, K]."""
    log_p = sg.take_along_axis(sg.log_softmax(logits), actions, axis=-1)
    k = rewards.shape[-1]
    others = (rewards.sum(axis=-1, keepdims=True) - rewards) / (k - 1)
    return -(log_p * sg.stop_gradient(rewards - others)).mean()


def magic_box(tau):
    """1, with the gradients of all orders of exp(τ)."""
    return sg.exp(tau - sg.stop_gradient(tau))


def dice_loss(logits, actions, rewards):
    """Of runs of T choices: logits [T, actions], actions and rewards [batch, T]."""
    log_p = sg.log_softmax(logits)[np.arange(actions.shape[1]), actions]
    return -(rewards * magic_box(sg.cumsum(log_p, axis=1))).sum(axis=1).mean()


LOSSES = {"reinforce": reinforce_loss, "rloo": rloo_loss, "dice": dice_loss}


def all_runs(steps, actions):
    """Every run of so many choices, one a row."""
    return np.stack(np.meshgrid(*[np.arange(actions)] * steps, indexing="ij"), axis=-1).reshape(-1, steps)


def rloo_loss_example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 5)), rng.integers(5, size=(8, 4)), rng.normal(size=(8, 4))


def train(estimator="rloo", steps=200, seed=0, engine="auto", draws=4):
    """A policy that is to name, for each of eight questions, its one right answer out of five.

    Returns the logits, and the mean reward of each step.
    """
    right = np.random.default_rng(99).integers(5, size=8)
    choose = sg.function(lambda logits, key: sg.random_categorical(logits, draws, key), engine=engine)

    @sg.function(engine=engine)
    def step(logits, actions, rewards, baseline):
        if estimator == "rloo":
            gradient = sg.grad(rloo_loss)(logits, actions, rewards)
        else:
            repeated = lambda logits: reinforce_loss(
                sg.repeat(logits, draws, axis=0), actions.reshape(-1), rewards.reshape(-1), baseline
            )
            gradient = sg.grad(repeated)(logits)
        return logits - 2.0 * gradient

    logits, baseline, means = np.zeros((8, 5), np.float32), np.float32(0.0), []
    for key in sg.random_split(sg.random_key(seed), steps):
        actions = np.asarray(choose(logits, key))
        rewards = (actions == right[:, None]).astype(np.float32)
        logits = step(logits, actions, rewards, baseline)
        baseline = 0.9 * baseline + 0.1 * rewards.mean()
        means.append(float(rewards.mean()))
    return logits, means


if __name__ == "__main__":
    for estimator in ("reinforce", "rloo"):
        _, means = train(estimator, 1000)
        print(f"{estimator:9}  right answers: {np.mean(means[:20]):.1%} -> {np.mean(means[-20:]):.1%}")
    # Rewards of the second choice depend on the first: the Hessian of the expectation, and DiCE's from draws.
    rng = np.random.default_rng(0)
    logits, payoff = rng.normal(size=(2, 3)), rng.normal(size=(3, 3))

    def expected(logits):
        p = sg.softmax(logits)
        return -(p[0] @ payoff @ p[1])

    runs = np.stack(
        [rng.choice(3, 200_000, p=sg.softmax(row)) for row in logits],
        axis=1,
    )
    rewards = np.stack([np.zeros(len(runs)), payoff[runs[:, 0], runs[:, 1]]], axis=1)
    exact, estimate = sg.hessian(expected)(logits), sg.hessian(dice_loss)(logits, runs, rewards)
    error = abs(estimate - exact).max()
    print(f"largest entry of the exact Hessian {abs(exact).max():.4f}, of the error of DiCE's {error:.4f}")
