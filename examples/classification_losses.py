"""Losses of classifiers: label smoothing, the focal loss, and InfoNCE.

    label smoothing:  -Σ q log p,  q = (1 - ε) onehot + ε / K
    focal:            -(1 - p_y)^γ log p_y; or with the weight held constant, -sg((1 - p_y)^γ) log p_y
    InfoNCE:          -log exp(a·b⁺/τ) / Σ_j exp(a·b_j/τ), one side of the pairs held constant or not

Where the focal weight is held constant it only says how much each example counts. With its gradient an
example counts for (1 - p)^γ - γ (1 - p)^(γ-1) p log p: the way is the same, the weight is not. They are two
losses of one value, told apart by a stop.

Szegedy et al. 2016 (arXiv 1512.00567); Lin et al. 2017, "Focal loss" (arXiv 1708.02002), eq. 4; van den Oord
et al. 2018, "Contrastive predictive coding" (arXiv 1807.03748), eq. 4.
"""

import numpy as np

import stopgrad as sg


def smoothed(logits, labels, epsilon=0.1):
    classes = logits.shape[-1]
    target = (1.0 - epsilon) * sg.one_hot(labels, classes, dtype=logits.dtype) + epsilon / classes
    return sg.softmax_cross_entropy_with_logits(labels=target, logits=logits).mean()


def focal(logits, labels, gamma=2.0, constant_weight=False):
    log_p = sg.log_softmax(logits)[np.arange(len(labels)), labels]
    weight = (1.0 - sg.exp(log_p)) ** gamma
    return -(sg.stop_gradient(weight, when=constant_weight) * log_p).mean()


def info_nce(a, b, temperature=0.1, one_sided=False):
    """Rows of a and b are pairs; the other rows of b are what a pair must stand out from."""
    a, b = a / sg.norm(a, axis=1, keepdims=True), b / sg.norm(b, axis=1, keepdims=True)
    if one_sided:
        b = sg.stop_gradient(b)
    return sg.sparse_softmax_cross_entropy_with_logits(np.arange(len(a)), a @ b.T / temperature).mean()


def data(rng, count=300, classes=4):
    """Clouds of points, of which the first is large and the last is small."""
    labels = rng.choice(classes, p=[0.7, 0.2, 0.07, 0.03], size=count)
    centres = np.random.default_rng(99).normal(size=(classes, 5))
    return 1.2 * centres[labels] + 0.7 * rng.normal(size=(count, 5)), labels


def focal_example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 4)), rng.integers(4, size=8)


def info_nce_example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 3)), rng.normal(size=(8, 3))


def train(loss=focal, steps=100, seed=0, engine="auto"):
    """Softmax regression by gradient descent: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    x, labels = data(rng)
    params = {"W": 0.01 * rng.normal(size=(5, 4)), "b": np.zeros(4)}

    @sg.function(engine=engine)
    def step(params):
        def of(params):
            return loss(x @ params["W"] + params["b"], labels)

        value, gradient = sg.value_and_grad(of)(params)
        return {k: p - 0.5 * gradient[k] for k, p in params.items()}, value

    losses = []
    for _ in range(steps):
        params, value = step(params)
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    x, labels = data(np.random.default_rng(1), 4000)
    for name, loss in (("label smoothing", smoothed), ("focal", focal)):
        params, losses = train(loss, 1000)
        right = (x @ params["W"] + params["b"]).argmax(axis=1) == labels
        each = " ".join(f"{right[labels == c].mean():.0%}" for c in range(4))
        print(f"{name}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, right by class: {each}")
