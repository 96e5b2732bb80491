"""Soft actor-critic: values, a policy and its temperature, learnt side by side and each from its own loss.

    critics:     (Qᵢ(s, a) - sg(y))²,    y = r + γ (1 - done) (minᵢ Qᵢ⁻(s', a') - α log π(a'|s')),  a' ~ π
    policy:      sg(α) log π(ã|s) - minᵢ Q_sg(i)(s, ã),    ã = tanh(μ(s) + σ(s) ξ)
    temperature: -α · sg(log π(ã|s) + H)

One sum of the three is differentiated, and stops keep them apart: the policy is moved *through* the
critics' input while their weights are stopped (a stop of a whole dict); the critics' target is given; and
the temperature sees the policy's entropy only as a number. One stop missing, and for instance the critics
learn to flatter the policy.

Haarnoja et al. 2018, "Soft actor-critic algorithms and applications" (arXiv 1812.05905), eq. 5, 6, 9, 18.
"""

import numpy as np

import stopgrad as sg

GAMMA, TAU, ENTROPY = 0.9, 0.02, -1.0


def mlp(rng, inputs, outputs, hidden=32):
    sizes = {"W1": (inputs, hidden), "W2": (hidden, hidden), "W3": (hidden, outputs)}
    return {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}


def init(rng):
    critics = [mlp(rng, 3, 1) for _ in range(2)]
    return {"critics": critics, "policy": mlp(rng, 2, 2), "log_alpha": np.float32(0.0)}


def forward(layers, x):
    return sg.relu(sg.relu(x @ layers["W1"]) @ layers["W2"]) @ layers["W3"]


def least_value(critics, states, actions):
    values = [forward(c, sg.concat([states, actions], axis=-1)).squeeze(-1) for c in critics]
    return sg.minimum(*values)


def act(policy, states, noise):
    """Actions in (-1, 1), and their log-density: that of a normal number, squashed."""
    mean, log_std = sg.split(forward(policy, states), 2, axis=-1)
    log_std = sg.clip(log_std, -5.0, 2.0)
    raw = mean + sg.exp(log_std) * noise
    log_p = -0.5 * (noise**2 + float(np.log(2.0 * np.pi))) - log_std
    squash = 2.0 * (float(np.log(2.0)) - raw - sg.softplus(-2.0 * raw))  # log(1 - tanh²)
    return sg.tanh(raw), (log_p - squash).sum(axis=-1)


def loss(params, target, states, actions, rewards, following, done, key):
    """The sum of the three losses; *target* are the critics' slow copies."""
    policy, alpha = params["policy"], sg.exp(params["log_alpha"])
    keys = sg.random_split(key)

    # The critics.
    noise = sg.random_normal(actions.shape, keys[0], dtype=actions.dtype)
    next_actions, next_log_p = act(policy, following, noise)
    soft_value = least_value(target, following, next_actions) - alpha * next_log_p
    y = sg.stop_gradient(rewards + GAMMA * (1.0 - done) * soft_value)
    inputs = sg.concat([states, actions], axis=-1)
    critic_loss = sum(((forward(c, inputs).squeeze(-1) - y) ** 2).mean() for c in params["critics"])

    # The policy.
    noise = sg.random_normal(actions.shape, keys[1], dtype=actions.dtype)
    new_actions, log_p = act(policy, states, noise)
    values = least_value(sg.stop_gradient(params["critics"]), states, new_actions)
    policy_loss = (sg.stop_gradient(alpha) * log_p - values).mean()

    # The temperature.
    temperature_loss = -(alpha * sg.stop_gradient(log_p + ENTROPY)).mean()
    return critic_loss + policy_loss + temperature_loss


def move(rng, states, actions):
    """A point on a line with a goal beside it: what an action brings, and where it leads."""
    place, goal = states[:, 0] + 0.3 * actions[:, 0], states[:, 1]
    following = np.stack([np.clip(place, -1.5, 1.5), goal], axis=-1).astype(np.float32)
    done = rng.random(len(states)) < 0.05
    return -np.abs(following[:, 0] - goal), following, done


def explore(rng, count=4096):
    """Steps from anywhere, in any direction: what is learnt from."""
    states = rng.uniform(-1.0, 1.0, (count, 2)).astype(np.float32)
    actions = rng.uniform(-1.0, 1.0, (count, 1)).astype(np.float32)
    rewards, following, done = move(rng, states, actions)
    return states, actions, rewards, following, done


def distance(policy, seed=1, steps=12):
    """How far from the goal the policy's mean action ends up."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1.0, 1.0, (200, 2)).astype(np.float32)
    for _ in range(steps):
        actions, _ = act(policy, states, np.zeros((200, 1), np.float32))
        rewards, states, _ = move(rng, states, actions)
    return float(-rewards.mean())


def loss_example():
    rng = np.random.default_rng(0)
    states, actions, rewards, following, done = [x[:16] for x in explore(rng, 16)]
    params = init(rng)
    return params, params["critics"], states, actions, rewards, following, done, sg.random_key(0)


def train(steps=300, seed=0, engine="auto"):
    """Adam on steps from memory: the weights, and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    target = params["critics"]
    mean = square = sg.map_structure(np.zeros_like, params)
    memory = explore(rng)

    @sg.function(engine=engine)
    def step(params, target, mean, square, n, batch, key):
        value, gradient = sg.value_and_grad(loss)(params, target, *batch, key)
        mean = sg.map_structure(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = sg.map_structure(lambda s, g: 0.999 * s + 0.001 * g**2, square, gradient)
        rate = 3e-3 * sg.sqrt(1.0 - 0.999**n) / (1.0 - 0.9**n)
        params = sg.map_structure(lambda p, m, s: p - rate * m / (sg.sqrt(s) + 1e-8), params, mean, square)
        target = sg.map_structure(lambda t, p: (1.0 - TAU) * t + TAU * p, target, params["critics"])
        return params, target, mean, square, value

    losses = []
    for i, key in enumerate(sg.random_split(sg.random_key(seed), steps)):
        some = rng.integers(len(memory[0]), size=128)
        batch = [a[some] for a in memory]
        params, target, mean, square, value = step(
            params, target, mean, square, np.float32(i + 1), batch, key
        )
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    print(f"distance from the goal, untrained: {distance(init(np.random.default_rng(0))['policy']):.3f}")
    params, _ = train(2000)
    print(f"distance from the goal, trained:   {distance(params['policy']):.3f}")
    print(f"temperature: {np.exp(params['log_alpha']):.3f}")
