"""BYOL: a network learns to predict what a slowly following copy of itself says of another view.

    loss = ‖unit(predict(online(v₁))) - sg(unit(target(v₂)))‖² + the same with the views exchanged,
    target ← τ · target + (1 - τ) · online

There are no negative examples. What keeps the network from saying the same of everything is that the target
is given, not learnt: no gradient enters it (sg), it only follows the online weights as a moving average.

Grill et al. 2020, "Bootstrap your own latent" (arXiv 2006.07733), eq. 1 and 2.
"""

import numpy as np

import stopgrad as sg

TAU = 0.98


def init(rng, inputs=16, hidden=64, points=8):
    """Weights of the online network: an encoder and a predictor."""
    sizes = {"W1": (inputs, hidden), "W2": (hidden, points), "W3": (points, hidden), "W4": (hidden, points)}
    return {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}


def encode(params, x):
    h = x @ params["W1"]
    return sg.relu((h - h.mean(axis=0)) / (h.std(axis=0) + 1e-5)) @ params["W2"]


def predict(params, z):
    return sg.relu(z @ params["W3"]) @ params["W4"]


def unit(z):
    return z / sg.norm(z, axis=-1, keepdims=True)


def regression(online, target, view1, view2):
    """The squared distance of two points of the sphere: 2 - 2 cos."""
    p = unit(predict(online, encode(online, view1)))
    z = unit(encode(target, view2))
    return ((p - sg.stop_gradient(z)) ** 2).sum(axis=-1).mean()


def loss(online, target, view1, view2):
    return regression(online, target, view1, view2) + regression(online, target, view2, view1)


def data(rng, count, prototypes):
    """Vectors whose class shows in half of their numbers; the others are noise. And the classes."""
    labels = rng.integers(len(prototypes), size=count)
    noise = rng.normal(size=(count, prototypes.shape[1]))
    return np.concatenate([prototypes[labels], noise], axis=1), labels


def view(rng, x):
    """The same thing seen once more: with other noise."""
    kept = np.arange(x.shape[1]) < x.shape[1] // 2
    return np.where(kept, x + 0.6 * rng.normal(size=x.shape), rng.normal(size=x.shape)).astype(np.float32)


def loss_example():
    rng = np.random.default_rng(0)
    x, _ = data(rng, 16, rng.normal(size=(4, 8)))
    return init(rng), init(rng), view(rng, x), view(rng, x)


def train(steps=200, seed=0, engine="auto"):
    """Gradient descent on pairs of views: the online and the target weights, and the losses on the way."""
    rng = np.random.default_rng(seed)
    online = init(rng)
    target = dict(online)
    prototypes = np.random.default_rng(99).normal(size=(4, 8))

    @sg.function(engine=engine)
    def step(online, target, view1, view2):
        value, gradient = sg.value_and_grad(loss)(online, target, view1, view2)
        online = {k: p - 0.1 * gradient[k] for k, p in online.items()}
        target = {k: TAU * p + (1.0 - TAU) * online[k] for k, p in target.items()}
        return online, target, value

    losses = []
    for _ in range(steps):
        x, _ = data(rng, 128, prototypes)
        online, target, value = step(online, target, view(rng, x), view(rng, x))
        losses.append(float(value))
    return online, target, losses


def agreement(params, seed=1):
    """How often the nearest other point has the same class, by the cosine."""
    rng = np.random.default_rng(seed)
    x, labels = data(rng, 400, np.random.default_rng(99).normal(size=(4, 8)))
    z = unit(encode(params, view(rng, x)))
    likeness = z @ z.T - 2.0 * np.eye(len(z))
    return float((labels[likeness.argmax(axis=1)] == labels).mean())


if __name__ == "__main__":
    before = init(np.random.default_rng(0))
    online, target, losses = train(2000)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"nearest neighbours of one class: {agreement(before):.1%} -> {agreement(target):.1%}")
