"""PPO: a policy that is not moved far from the one that gathered the data.

    ratio = π(a|s) / sg(π_old(a|s))
    loss  = -min(ratio · Â, clip(ratio, 1-ε, 1+ε) · Â) + c₁ (V(s) - sg(Â + V_old(s)))² - c₂ entropy(π)
    Â     = sg(Σ (γλ)ᵏ δₜ₊ₖ),    δₜ = rₜ + γ (1 - doneₜ) V_old(sₜ₊₁) - V_old(sₜ)

Policy and value share their first layer, so the advantage Â (generalised advantage estimation) is a
function of weights. It is a number to the loss, as is all that the old weights say; were old and new
weights the same tensors, as in the first step of each round, the policy's term could otherwise be made
small by moving the values that say which action was good. Â is brought to mean 0 and variance 1, as most
implementations do.

Schulman et al. 2017, "Proximal policy optimization algorithms" (arXiv 1707.06347), eq. 7, 9, 11.
"""

import numpy as np

import stopgrad as sg

GAMMA, LAMBDA, EPSILON, VALUE, ENTROPY = 0.95, 0.9, 0.2, 0.5, 0.01


def init(rng, inputs=3, hidden=32, actions=3):
    sizes = {"shared": (inputs, hidden), "policy": (hidden, actions), "value": (hidden, 1)}
    return {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}


def network(params, states):
    """Log-probabilities of the actions, and the value of each state."""
    h = sg.tanh(states @ params["shared"])
    return sg.log_softmax(h @ params["policy"]), (h @ params["value"]).squeeze(-1)


def advantages(values, rewards, done):
    """Generalised advantage estimation, from the end to the beginning; *values* has one more step."""
    deltas = rewards + GAMMA * (1.0 - done) * values[1:] - values[:-1]

    def before(later, now):
        delta, done = now
        advantage = delta + GAMMA * LAMBDA * (1.0 - done) * later
        return advantage, advantage

    return sg.scan(before, sg.zeros_like(deltas[0]), (deltas, done), reverse=True)[1]


def loss(params, old, states, actions, rewards, done):
    """Of games side by side: states [steps + 1, games, inputs]; actions, rewards and done [steps, games]."""
    old_log_p, old_values = sg.stop_gradient(network(old, states))
    advantage = sg.stop_gradient(advantages(old_values, rewards, done))
    returns = advantage + old_values[:-1]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    log_p, values = network(params, states[:-1])
    taken = sg.take_along_axis(log_p, actions[..., None], axis=-1).squeeze(-1)
    old_taken = sg.take_along_axis(old_log_p[:-1], actions[..., None], axis=-1).squeeze(-1)
    ratio = sg.exp(taken - old_taken)
    clipped = sg.clip(ratio, 1.0 - EPSILON, 1.0 + EPSILON)
    policy = -sg.minimum(ratio * advantage, clipped * advantage).mean()
    entropy = -(sg.exp(log_p) * log_p).sum(axis=-1).mean()
    return policy + VALUE * ((values - returns) ** 2).mean() - ENTROPY * entropy


def play(rng, policy, games=32, steps=32):
    """A cart on a line that is pushed left, not at all, or right, and is rewarded for standing at 0."""
    x, v = rng.uniform(-1.0, 1.0, games), np.zeros(games)
    states, actions, rewards, done = [], [], [], []
    for _ in range(steps + 1):
        states.append(np.stack([x, v, np.ones(games)], axis=-1).astype(np.float32))
        chances = np.exp(policy(states[-1]))
        action = (chances.cumsum(axis=-1) < rng.random((games, 1))).sum(axis=-1).clip(0, 2)
        v = np.clip(v + 0.1 * (action - 1), -0.3, 0.3)
        x = np.clip(x + v, -2.0, 2.0)
        over = rng.random(games) < 0.05
        actions.append(action.astype(np.int32))
        rewards.append((-np.abs(x)).astype(np.float32))
        done.append(over)
        x, v = np.where(over, rng.uniform(-1.0, 1.0, games), x), np.where(over, 0.0, v)
    return np.stack(states), *(np.stack(a[:steps]) for a in (actions, rewards, done))


def loss_example():
    rng = np.random.default_rng(0)
    params, old = init(rng), init(rng)
    batch = play(rng, lambda states: np.asarray(network(params, states)[0]), games=4, steps=4)
    return params, old, *batch


def train(steps=30, seed=0, engine="auto", epochs=8):
    """Rounds of playing and learning: the weights, and the mean reward of each round."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    speed = sg.map_structure(np.zeros_like, params)
    policy = sg.function(lambda params, states: network(params, states)[0], engine=engine)

    @sg.function(engine=engine)
    def step(params, speed, old, *batch):
        gradient = sg.grad(loss)(params, old, *batch)
        speed = {k: 0.9 * v + gradient[k] for k, v in speed.items()}
        return {k: p - 0.03 * speed[k] for k, p in params.items()}, speed

    rewards = []
    for _ in range(steps):
        batch = play(rng, lambda states, params=params: np.asarray(policy(params, states)))
        rewards.append(float(batch[2].mean()))
        old = params
        for _ in range(epochs):
            params, speed = step(params, speed, old, *batch)
    return params, rewards


if __name__ == "__main__":
    params, rewards = train(150)
    for i in range(0, 150, 25):
        print(f"rounds {i:3} to {i + 24:3}: mean reward {np.mean(rewards[i : i + 25]):.3f}")
