"""LoRA: a trained network is adapted by a product of two thin matrices, and stays itself.

    y = x (sg(W) + s · A B),   A: n × r at random, B: r × m zero at first

W is kept as it was: the stop says so where it is used, so that an optimiser that is handed all parameters has
nothing to change in it. As B is zero, the adapted network begins as the old one; as only A B is learnt, what
is stored for a task is r (n + m) numbers instead of n m.

Hu et al. 2021, "LoRA: Low-rank adaptation of large language models" (arXiv 2106.09685), eq. 3.
"""

import numpy as np

import stopgrad as sg

SCALE = 2.0


def init(rng, inputs=20, outputs=20, rank=2):
    """A trained matrix, and the adapter beside it."""
    return {
        "W": rng.normal(size=(inputs, outputs)) / np.sqrt(inputs),
        "A": rng.normal(size=(inputs, rank)) / np.sqrt(inputs),
        "B": np.zeros((rank, outputs)),
    }


def adapted(params, x):
    return x @ sg.stop_gradient(params["W"]) + SCALE * (x @ params["A"]) @ params["B"]


def merged(params):
    """One matrix that does the same, for use."""
    return params["W"] + SCALE * params["A"] @ params["B"]


def loss(params, x, y):
    return ((adapted(params, x) - y) ** 2).sum(axis=-1).mean()


def data(rng, params, count=256):
    """A task whose matrix differs from the trained one by a matrix of rank two."""
    inputs, outputs = params["W"].shape
    change = rng.normal(size=(inputs, 2)) @ rng.normal(size=(2, outputs)) / inputs
    x = rng.normal(size=(count, inputs))
    return x, x @ (params["W"] + change)


def loss_example():
    rng = np.random.default_rng(0)
    params = init(rng)
    return params, *data(rng, params, 16)


def train(steps=300, seed=0, engine="auto"):
    """Gradient descent on all parameters, W too: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    x, y = data(rng, params)

    @sg.function(engine=engine)
    def step(params):
        value, gradient = sg.value_and_grad(loss)(params, x, y)
        return {k: p - 0.05 * gradient[k] for k, p in params.items()}, value

    losses = []
    for _ in range(steps):
        params, value = step(params)
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    before = init(np.random.default_rng(0))
    params, losses = train(2000)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.2e}")
    print("the trained matrix is as it was:", np.array_equal(params["W"], before["W"]))
    print(sg.explain(lambda params: loss(params, np.ones((1, 20)), np.ones((1, 20))), params))
