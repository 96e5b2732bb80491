"""Domain-adversarial training: features that tell the class and do not tell where the data come from.

    loss = CE(class(f), label) on labelled data + CE(domain(reverse(f)), domain) on all,    f = features(x)
    reverse(f) = sg((1 + λ) f) - λ f

The gate `reverse_gradient(f, λ)` is f forward and passes -λ times the gradient back: the domain classifier
learns to tell the domains, and the features learn that it cannot, in one pass. The formula with a stop,
below it, has the same gradient, but its value is f with rounding errors.

Ganin et al. 2016, "Domain-adversarial training of neural networks" (arXiv 1505.07818), section 4.2.
"""

import numpy as np

import stopgrad as sg


def init(rng, inputs=3, hidden=32, features=8):
    sizes = {
        "W1": (inputs, hidden),
        "W2": (hidden, features),
        "class": (features, 2),
        "domain": (features, 2),
    }
    return {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}


def features(params, x):
    return sg.tanh(sg.tanh(x @ params["W1"]) @ params["W2"])


def reversed_by_a_stop(f, strength):
    return sg.stop_gradient((1.0 + strength) * f) - strength * f


def cross_entropy(logits, labels):
    return sg.sparse_softmax_cross_entropy_with_logits(labels, logits).mean()


def loss(params, source, labels, target, strength, reverse=sg.reverse_gradient):
    """*source* has labels, *target* has none; *strength* is λ."""
    f = features(params, sg.concat([source, target], axis=0))
    class_loss = cross_entropy(f[: len(source)] @ params["class"], labels)
    domains = np.arange(len(source) + len(target)) >= len(source)
    return class_loss + cross_entropy(reverse(f, strength) @ params["domain"], domains.astype(np.int32))


def data(rng, count, domain):
    """Two classes that differ in the first number and, in the source alone, far more in the second.

    In the target the second number is always that of the first class: whoever trusts it, errs.
    """
    labels = rng.integers(2, size=count, dtype=np.int32)
    side = 2.0 * labels - 1.0
    shortcut = side if domain == 0 else -np.ones(count)
    means = np.stack([side, 2.0 * shortcut, np.zeros(count)], axis=-1)
    return (means + 0.5 * rng.normal(size=means.shape)).astype(np.float32), labels


def loss_example():
    rng = np.random.default_rng(0)
    (source, labels), (target, _) = data(rng, 16, 0), data(rng, 16, 1)
    return init(rng), source, labels, target, 1.0


def train(steps=300, seed=0, engine="auto", strength=1.0):
    """Gradient descent; the weights, and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)

    @sg.function(engine=engine)
    def step(params, *batch):
        value, gradient = sg.value_and_grad(loss)(params, *batch)
        return {k: p - 0.1 * gradient[k] for k, p in params.items()}, value

    losses = []
    for i in range(steps):
        (source, labels), (target, _) = data(rng, 128, 0), data(rng, 128, 1)
        params, value = step(params, source, labels, target, strength * min(1.0, 2.0 * i / steps))
        losses.append(float(value))
    return params, losses


def accuracy(params, domain, seed=1):
    x, labels = data(np.random.default_rng(seed), 2000, domain)
    return float(((features(params, x) @ params["class"]).argmax(axis=-1) == labels).mean())


if __name__ == "__main__":
    for strength in (0.0, 1.0):
        params, _ = train(3000, strength=strength)
        source, target = accuracy(params, 0), accuracy(params, 1)
        print(f"strength {strength}: accuracy in the source {source:.1%}, in the target {target:.1%}")
