"""Straight-through Gumbel-softmax: an autoencoder whose code is one word out of K, drawn at random.

    soft = softmax((logits + g) / τ),    hard = one_hot(argmax soft),    code = hard + soft - sg(soft)
    loss = -log p(x | code) + KL(softmax(logits) ‖ uniform)

With g from the Gumbel distribution, hard is an exact draw from softmax(logits): the decoder sees words and
never mixtures of them. Its gradient goes on as if it had seen soft. `hard + soft - sg(soft)` is hard but
for rounding, which is a bug where hard indexes or is compared; `straight_through(hard, soft)` is exactly
hard.

Jang, Gu & Poole 2017, "Categorical reparameterization with Gumbel-softmax" (arXiv 1611.01144), section 2.2.
"""

import numpy as np

import stopgrad as sg

WORDS, PIXELS, TEMPERATURE = 8, 16, 0.7


def init(rng, hidden=32):
    sizes = {"W1": (PIXELS, hidden), "W2": (hidden, WORDS), "dictionary": (WORDS, PIXELS)}
    return {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}


def encode(params, x):
    """Logits of the words for each picture."""
    return sg.tanh((x - 0.5) @ params["W1"]) @ params["W2"]


def draw(logits, key):
    """A word for each row: one-hot numbers whose gradient is that of the relaxed draw."""
    noise = sg.random_gumbel(logits.shape, key, dtype=logits.dtype)
    soft = sg.softmax((logits + noise) / TEMPERATURE)
    hard = sg.one_hot(soft.argmax(axis=-1), WORDS, dtype=soft.dtype)
    return sg.straight_through(hard, soft)


def loss(params, x, key):
    """Minus the evidence lower bound, with one draw."""
    logits = encode(params, x)
    picture = draw(logits, key) @ params["dictionary"]
    reconstruction = sg.sigmoid_cross_entropy_with_logits(labels=x, logits=picture).sum(axis=-1)
    log_p = sg.log_softmax(logits)
    divergence = (sg.exp(log_p) * (log_p + float(np.log(WORDS)))).sum(axis=-1)
    return (reconstruction + divergence).mean()


def data(rng, count):
    """Noisy copies of eight pictures of 16 pixels."""
    pictures = np.random.default_rng(99).integers(0, 2, (WORDS, PIXELS)).astype(bool)
    which = rng.integers(WORDS, size=count)
    return (pictures[which] ^ (rng.random((count, PIXELS)) < 0.05)).astype(np.float32), which


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), data(rng, 16)[0], sg.random_key(0)


def train(steps=300, seed=0, engine="auto"):
    """Adam; the weights and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    mean = square = {k: np.zeros_like(p) for k, p in params.items()}

    @sg.function(engine=engine)
    def step(params, mean, square, n, x, key):
        value, gradient = sg.value_and_grad(loss)(params, x, key)
        mean = {k: 0.9 * m + 0.1 * gradient[k] for k, m in mean.items()}
        square = {k: 0.999 * s + 0.001 * gradient[k] ** 2 for k, s in square.items()}
        rate = 0.02 * sg.sqrt(1.0 - 0.999**n) / (1.0 - 0.9**n)
        params = {k: p - rate * mean[k] / (sg.sqrt(square[k]) + 1e-8) for k, p in params.items()}
        return params, mean, square, value

    losses = []
    for i, key in enumerate(sg.random_split(sg.random_key(seed), steps)):
        x, _ = data(rng, 128)
        params, mean, square, value = step(params, mean, square, np.float32(i + 1), x, key)
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    params, losses = train(2000)
    x, which = data(np.random.default_rng(1), 2000)
    words = encode(params, x).argmax(axis=-1)
    print(f"loss {np.mean(losses[:10]):.3f} -> {np.mean(losses[-10:]):.3f} nats")
    for picture in range(WORDS):
        counts = np.bincount(words[which == picture], minlength=WORDS)
        print(f"picture {picture}: word {counts.argmax()} in {counts.max() / counts.sum():.1%} of its copies")
