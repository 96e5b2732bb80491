"""Energy-based models: Langevin's walk as no part of the gradient, and Stein variational descent.

    learning:  L = E(data) - E(sg(samples)),   samples by  x ← x - λ ∇ₓE(x) + √(2λ) ε
    SVGD:      x_i ← x_i + η/n Σ_j [ k(x_j, x_i) ∇ log p(x_j) + ∇_{x_j} k(x_j, x_i) ]

The samples come from the model, by its own gradient: without the stop the parameters' gradient would run
through every step of the sampler. SVGD's kernel is a function of differences: Σ_j ∇_{x_j} k(x_j, x_i) is
minus the gradient of Σ_ij k(x_i, sg(x_j)), one gradient for all points, where without the stop each pair
would count twice.

Hinton 2002; Du and Mordatch 2019, "Implicit generation and modeling with energy-based models" (arXiv
1903.08689); Liu and Wang 2016, "Stein variational gradient descent" (arXiv 1608.04471), eq. 8.
"""

import numpy as np

import stopgrad as sg


def init(rng, hidden=32):
    return {
        "W1": rng.normal(size=(2, hidden)),
        "b1": rng.normal(size=hidden),
        "W2": rng.normal(size=(hidden, 1)) / np.sqrt(hidden),
    }


def energy(params, x):
    """Of points [count, 2]; a bowl keeps them from running away."""
    return (sg.tanh(x @ params["W1"] + params["b1"]) @ params["W2"])[:, 0] + 0.5 * (x**2).sum(axis=-1)


def langevin(params, x, key, steps=20, rate=0.05):
    """Points moved downhill by a noisy walk."""
    slope = sg.grad(lambda x: energy(params, x).sum())

    def step(x, key):
        noise = sg.random_normal(x.shape, key, dtype=x.dtype)
        return x - rate * slope(x) + float(np.sqrt(2.0 * rate)) * noise, None

    return sg.scan(step, x, sg.random_split(key, steps))[0]


def loss(params, x, start, key):
    """Energy down at the data, up at the model's own samples, which are handed on to start the next walk."""
    samples = sg.stop_gradient(langevin(params, start, key))
    return energy(params, x).mean() - energy(params, samples).mean(), samples


def stein(log_density, x, bandwidth=0.5):
    """The direction in which SVGD moves points [count, dimensions]."""

    def kernel(x, y):
        return sg.exp(-((x[:, None] - y[None]) ** 2).sum(axis=-1) / (2.0 * bandwidth**2))

    score = sg.grad(lambda x: log_density(x).sum())(x)
    apart = -sg.grad(lambda x: kernel(x, sg.stop_gradient(x)).sum())(x)
    return (kernel(x, x) @ score + apart) / len(x)


def data(rng, count=256):
    """Two clouds."""
    return rng.choice([-1.5, 1.5], size=(count, 1)) * np.array([1.0, 0.5]) + 0.3 * rng.normal(size=(count, 2))


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), data(rng, 16), rng.normal(size=(16, 2)), sg.random_key(0)


def train(steps=60, seed=0, engine="auto"):
    """Descent with persistent walks: the parameters, the samples, how far their covariance is off."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    samples = rng.normal(size=(256, 2))

    @sg.function(engine=engine)
    def step(params, samples, x, key):
        (_, samples), gradient = sg.value_and_grad(loss, has_aux=True)(params, x, samples, key)
        return {k: p - 0.03 * gradient[k] for k, p in params.items()}, samples

    errors = []
    for t in range(steps):
        x = data(rng)
        params, samples = step(params, samples, x, sg.random_key(t))
        errors.append(float(np.abs(np.cov(samples.T) - np.cov(x.T)).max()))
    return params, samples, errors


if __name__ == "__main__":
    params, samples, errors = train(600)
    print(f"covariance off by {np.mean(errors[:10]):.2f} -> {np.mean(errors[-50:]):.2f}")
    x = 3.0 * np.random.default_rng(0).normal(size=(50, 2)) + 4.0
    move = sg.function(lambda x: x + 0.5 * stein(lambda x: -0.5 * (x**2).sum(axis=-1), x))
    for _ in range(500):
        x = move(x)
    print(f"SVGD to a standard normal: mean {x.mean(axis=0).round(3)}, deviation {x.std(axis=0).round(3)}")
