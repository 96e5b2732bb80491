"""Learning from preferences: DPO against a policy that stays, and GRPO against the policy that was.

    DPO:   -log σ( β [ log π(y⁺)/sg(π_ref(y⁺)) - log π(y⁻)/sg(π_ref(y⁻)) ] )
    GRPO:  ratio = π(y) / sg(π_old(y));  A = (r - mean r) / std r  over a group of answers to one question
           -min(ratio · A, clip(ratio, 1 - ε, 1 + ε) · A) + β (ρ - log ρ - 1),   ρ = sg(π_ref(y)) / π(y)

The reference is the same network as the policy, with the weights of the beginning; the stop makes it a
yardstick. At the first step after sampling, π_old is π itself: ``π / sg(π)`` is 1, and has the gradient of
log π.

Rafailov et al. 2023, "Direct preference optimization" (arXiv 2305.18290), eq. 7; Shao et al. 2024,
"DeepSeekMath" (arXiv 2402.03300), eq. 3 and 4.
"""

import numpy as np

import stopgrad as sg


def init(rng, questions=5, answers=6):
    """A policy as a table: how likely each answer is to each question, as logits."""
    return {"logits": 0.5 * rng.normal(size=(questions, answers))}


def log_policy(params, question, answer):
    return sg.log_softmax(params["logits"])[question, answer]


def dpo_loss(params, reference, question, better, worse, beta=0.5):
    margin = 0.0
    for answer, sign in ((better, 1.0), (worse, -1.0)):
        known = sg.stop_gradient(log_policy(reference, question, answer))
        margin = margin + sign * (log_policy(params, question, answer) - known)
    return -sg.log_sigmoid(beta * margin).mean()


def grpo_loss(params, old, reference, question, answers, rewards, epsilon=0.2, beta=0.05):
    """For questions [q] and their groups of answers and rewards [q, group]."""
    spread = rewards.std(axis=1, keepdims=True) + 1e-6
    advantage = sg.stop_gradient((rewards - rewards.mean(axis=1, keepdims=True)) / spread)
    log_p = log_policy(params, question[:, None], answers)
    ratio = sg.exp(log_p - sg.stop_gradient(log_policy(old, question[:, None], answers)))
    clipped = sg.clip_by_value(ratio, 1.0 - epsilon, 1.0 + epsilon)
    log_rho = sg.stop_gradient(log_policy(reference, question[:, None], answers)) - log_p
    divergence = sg.exp(log_rho) - log_rho - 1.0
    return -(sg.minimum(ratio * advantage, clipped * advantage) - beta * divergence).mean()


def reward(question, answer):
    """The nearer to the question's number, the better."""
    return -np.abs(answer - question).astype(np.float64)


def dpo_loss_example():
    rng = np.random.default_rng(0)
    question, better = rng.integers(5, size=8), rng.integers(6, size=8)
    return init(rng), init(rng), question, better, rng.integers(6, size=8)


def grpo_loss_example():
    rng = np.random.default_rng(0)
    question, answers = np.arange(5)[:, None], rng.integers(6, size=(5, 4))
    return init(rng), init(rng), init(rng), question, answers, reward(question, answers)


def train_dpo(steps=100, seed=0, engine="auto"):
    """Gradient descent on pairs: the policy and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = reference = init(rng)

    @sg.function(engine=engine)
    def step(params, question, better, worse):
        value, gradient = sg.value_and_grad(dpo_loss)(params, reference, question, better, worse)
        return {k: p - 2.0 * gradient[k] for k, p in params.items()}, value

    losses = []
    for _ in range(steps):
        question = rng.integers(5, size=64)
        a, b = rng.integers(6, size=(2, 64))
        swap = reward(question, a) < reward(question, b)
        params, value = step(params, question, np.where(swap, b, a), np.where(swap, a, b))
        losses.append(float(value))
    return params, losses


def train_grpo(rounds=40, seed=0, inner=2, group=16, engine="auto"):
    """Rounds of sampling, each followed by some steps: the policy and the mean rewards on the way."""
    rng = np.random.default_rng(seed)
    params = reference = init(rng)
    question = np.arange(5)
    sample = sg.function(
        lambda params, key: sg.random_categorical(params["logits"], group, key, dtype=sg.int32), engine=engine
    )

    @sg.function(engine=engine)
    def step(params, old, answers, rewards):
        gradient = sg.grad(grpo_loss)(params, old, reference, question, answers, rewards)
        return {k: p - 2.0 * gradient[k] for k, p in params.items()}

    means = []
    for t in range(rounds):
        answers = sample(params, sg.random_fold_in(sg.random_key(seed), t))
        rewards = reward(question[:, None], answers)
        old = params
        for _ in range(inner):
            params = step(params, old, answers, rewards)
        means.append(float(rewards.mean()))
    return params, means


if __name__ == "__main__":
    params, losses = train_dpo(500)
    print(f"DPO: loss {losses[0]:.3f} -> {losses[-1]:.3f}, best answers {params['logits'].argmax(axis=1)}")
    params, means = train_grpo(200)
    print(f"GRPO: reward {means[0]:.3f} -> {means[-1]:.3f}, best answers {params['logits'].argmax(axis=1)}")
