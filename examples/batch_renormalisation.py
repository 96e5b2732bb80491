"""Batch renormalisation: training sees what use will see, its gradient what the batch says.

    y = (x - μ_B) / σ_B · r + d,   r = sg(clip(σ_B / σ, 1/r_max, r_max))
                                   d = sg(clip((μ_B - μ) / σ, -d_max, d_max))

Without the clips y is exactly (x - μ) / σ of the running statistics. But r and d are constants to the
gradient: as far as it is concerned this is batch normalisation, whose gradient keeps the scale of the
activations in check. With a gradient through r and d that would be lost.

Ioffe 2017, "Batch renormalization" (arXiv 1702.03275), algorithm 1.
"""

import numpy as np

import stopgrad as sg

EPSILON, MOMENTUM = 1e-3, 0.9


def renormalised(x, mean, deviation, r_max=3.0, d_max=5.0):
    """Activations [batch, features], and the running statistics for the next step."""
    batch_mean = x.mean(axis=0)
    batch_deviation = sg.sqrt(x.var(axis=0) + EPSILON)
    r = sg.stop_gradient(sg.clip_by_value(batch_deviation / deviation, 1.0 / r_max, r_max))
    d = sg.stop_gradient(sg.clip_by_value((batch_mean - mean) / deviation, -d_max, d_max))
    y = (x - batch_mean) / batch_deviation * r + d
    with sg.no_gradient():
        mean = mean + (1.0 - MOMENTUM) * (batch_mean - mean)
        deviation = deviation + (1.0 - MOMENTUM) * (batch_deviation - deviation)
    return y, (mean, deviation)


def init(rng, inputs=6, hidden=24, classes=3):
    params = {
        "W1": rng.normal(size=(inputs, hidden)),
        "gamma": np.ones(hidden),
        "beta": np.zeros(hidden),
        "W2": rng.normal(size=(hidden, classes)) / np.sqrt(hidden),
    }
    return params, (np.zeros(hidden), np.ones(hidden))


def logits(params, statistics, x, training=True):
    h = x @ params["W1"]
    if training:
        h, statistics = renormalised(h, *statistics)
    else:
        h = (h - statistics[0]) / statistics[1]
    return sg.relu(params["gamma"] * h + params["beta"]) @ params["W2"], statistics


def loss(params, statistics, x, labels):
    said, statistics = logits(params, statistics, x)
    return sg.sparse_softmax_cross_entropy_with_logits(labels, said).mean(), statistics


def data(rng, count, classes=3, of_one_class=False):
    labels = rng.integers(classes, size=count)
    if of_one_class:
        labels[:] = labels[0]
    centres = np.random.default_rng(99).normal(size=(classes, 6))
    return centres[labels] + 0.6 * rng.normal(size=(count, 6)), labels


def loss_example():
    rng = np.random.default_rng(0)
    params, statistics = init(rng)
    return params, statistics, *data(rng, 8)


def train(steps=120, seed=0, engine="auto"):
    """Gradient descent on small batches: the parameters, the running statistics, and the losses."""
    rng = np.random.default_rng(seed)
    params, statistics = init(rng)

    @sg.function(engine=engine)
    def step(params, statistics, x, labels):
        (value, statistics), gradient = sg.value_and_grad(loss, has_aux=True)(params, statistics, x, labels)
        return {k: p - 0.1 * gradient[k] for k, p in params.items()}, statistics, value

    losses = []
    for _ in range(steps):
        params, statistics, value = step(params, statistics, *data(rng, 8))
        losses.append(float(value))
    return params, statistics, losses


if __name__ == "__main__":
    params, statistics, losses = train(2000)
    x, labels = data(np.random.default_rng(1), 2000)
    said, _ = logits(params, statistics, x, training=False)
    print(f"loss {np.mean(losses[:20]):.3f} -> {np.mean(losses[-20:]):.3f}")
    print(f"in use, with the running statistics, right: {(said.argmax(axis=1) == labels).mean():.1%}")
