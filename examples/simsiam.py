"""SimSiam: two views of one thing, each predicted from the other, and nothing but a stop against collapse.

    loss = ½ D(p₁, sg(z₂)) + ½ D(p₂, sg(z₁)),    D(p, z) = -cos(p, z),    z = encode(view),    p = predict(z)

The target z comes from the weights that are learnt. Were it not stopped, the easiest way to agree would be
to send everything to one point (`loss(..., stop=False)` does so). It is the same tensor that is stopped as
a target and flows as a prediction's input, so the encoder learns through p₁ and p₂ alone.

Chen & He 2021, "Exploring simple Siamese representation learning" (arXiv 2011.10566), eq. 4 and table 1.
"""

import numpy as np

import stopgrad as sg


def init(rng, inputs=16, hidden=64, points=16, narrow=4):
    """Weights of the encoder and of the predictor, which is narrow in the middle."""
    sizes = {"W1": (inputs, hidden), "W2": (hidden, points), "W3": (points, narrow), "W4": (narrow, points)}
    return {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}


def normalised(h):
    """Batch normalisation: every feature with mean 0 and variance 1 over the batch."""
    return (h - h.mean(axis=0)) / sg.sqrt(h.var(axis=0) + 1e-5)


def encode(params, x):
    return sg.relu(normalised(x @ params["W1"])) @ params["W2"]


def predict(params, z):
    return sg.relu(normalised(z @ params["W3"])) @ params["W4"]


def distance(p, z):
    return -sg.cosine_similarity(p, z).mean()


def loss(params, view1, view2, stop=True):
    z1, z2 = encode(params, view1), encode(params, view2)
    p1, p2 = predict(params, z1), predict(params, z2)
    if stop:
        z1, z2 = sg.stop_gradient((z1, z2))
    return distance(p1, z2) / 2.0 + distance(p2, z1) / 2.0


def views(rng, count, dimensions=16, hidden=4):
    """Two views of the same points of a flat sheet, each with its own noise beside the sheet."""
    sheet = np.random.default_rng(99).normal(size=(hidden, dimensions))
    inside = rng.normal(size=(count, hidden)) @ sheet
    return [(inside + rng.normal(size=inside.shape)).astype(np.float32) for _ in range(2)]


def spread(params, x):
    """The standard deviation of points on the sphere, times √dimensions: 1 if they fill it, 0 in collapse."""
    z = encode(params, x)
    z = z / sg.norm(z, axis=-1, keepdims=True)
    return float(z.std(axis=0).mean() * np.sqrt(z.shape[1]))


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), *views(rng, 16)


def train(steps=200, seed=0, engine="auto", stop=True):
    """Gradient descent with momentum; the weights and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    speed = sg.map_structure(np.zeros_like, params)

    @sg.function(engine=engine)
    def step(params, speed, view1, view2):
        value, gradient = sg.value_and_grad(loss)(params, view1, view2, stop)
        speed = {k: 0.9 * v + gradient[k] for k, v in speed.items()}
        return {k: p - 0.05 * speed[k] for k, p in params.items()}, speed, value

    losses = []
    for _ in range(steps):
        params, speed, value = step(params, speed, *views(rng, 128))
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    x, _ = views(np.random.default_rng(1), 500)
    for stop in (True, False):
        params, losses = train(1000, stop=stop)
        word = "with the stop" if stop else "without it   "
        print(f"{word}  loss {losses[0]:.3f} -> {losses[-1]:.3f}  spread {spread(params, x):.3f}")
