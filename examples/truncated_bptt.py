"""Truncated backpropagation through time: a state goes on, its gradient does not.

    h_t = f(h_{t-1}, x_t);  at the end of each window of k steps  h ← sg(h)

A network that reads a long sequence is trained on windows. Its state goes from one to the next, so that it
may remember more than k steps; gradients end at the window's edge, so that work and memory for them do not
grow with the sequence. In one graph for the whole sequence that is one stop for each window; over windows
that are run one by one it is what feeding the state's value does.

Williams and Peng 1990, "An efficient gradient-based algorithm for on-line training of recurrent network
trajectories".
"""

import numpy as np

import stopgrad as sg


def init(rng, hidden=16):
    return {
        "U": rng.normal(size=(1, hidden)),
        "W": 0.9 * np.linalg.qr(rng.normal(size=(hidden, hidden)))[0],
        "b": np.zeros(hidden),
        "v": rng.normal(size=(hidden, 1)) / np.sqrt(hidden),
    }


def window(params, h, x):
    """What the network says at each step of a window [steps, sequences], and its last state."""

    def step(h, x):
        h = sg.tanh(x[:, None] @ params["U"] + h @ params["W"] + params["b"])
        return h, (h @ params["v"])[:, 0]

    return sg.scan(step, h, x)


def loss(params, h, x, y):
    """The error over one window, and the state for the next, which is cut off from this one."""
    h, said = window(params, h, x)
    return ((said - y) ** 2).mean(), sg.stop_gradient(h)


def whole_loss(params, x, y, size):
    """The same over a whole sequence in windows of this size, in one graph."""
    h = sg.zeros((x.shape[1], params["b"].shape[0]), x.dtype)
    total = 0.0
    for start in range(0, len(x), size):
        steps = slice(start, start + size)
        value, h = loss(params, h, x[steps], y[steps])
        total = total + value * len(x[steps])
    return total / len(x)


def data(rng, steps=60, sequences=16, delay=3):
    """Noise, to be said again some steps later."""
    x = rng.normal(size=(steps, sequences))
    return x, np.concatenate([np.zeros((delay, sequences)), x[:-delay]])


def loss_example():
    rng = np.random.default_rng(0)
    x, y = data(rng, steps=6, sequences=4)
    return init(rng), np.zeros((4, 16)), x, y


def train(rounds=40, seed=0, size=10, engine="auto"):
    """Gradient descent, a step for each window: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)

    @sg.function(engine=engine)
    def step(params, h, x, y):
        (value, h), gradient = sg.value_and_grad(loss, has_aux=True)(params, h, x, y)
        gradient = sg.clip_by_global_norm(gradient, 1.0)[0]
        return {k: p - 0.1 * gradient[k] for k, p in params.items()}, h, value

    losses = []
    for _ in range(rounds):
        x, y = data(rng)
        h = np.zeros((x.shape[1], params["b"].shape[0]))
        for start in range(0, len(x), size):
            params, h, value = step(params, h, x[start : start + size], y[start : start + size])
            losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    params, losses = train(600)
    print(f"loss {np.mean(losses[:6]):.3f} -> {np.mean(losses[-6:]):.3f}")
