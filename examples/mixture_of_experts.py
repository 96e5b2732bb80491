"""A mixture of experts: each token goes to the two that the gate likes best, while there is room.

    p = softmax(x G);  the experts of a token: the top 2 of p, their shares renormalised
    each expert takes at most `capacity` tokens, in order; what is beyond is left out
    balance = E · Σ_e f_e P_e,   f_e = sg(share of tokens whose first choice is e),   P_e = mean of p_e

Which expert is chosen has no gradient; how much its word counts has. f counts choices and is constant, P is
what the gate can change: their product pushes down the probabilities of those that are chosen too often.

Shazeer et al. 2017 (arXiv 1701.06538); Lepikhin et al. 2020, "GShard" (arXiv 2006.16668), algorithm 1; Fedus
et al. 2021, "Switch transformers" (arXiv 2101.03961), eq. 4.
"""

import numpy as np

import stopgrad as sg

CHOICES = 2


def init(rng, width=8, hidden=16, experts=4):
    return {
        "gate": 0.1 * rng.normal(size=(width, experts)),
        "up": rng.normal(size=(experts, width, hidden)) / np.sqrt(width),
        "down": rng.normal(size=(experts, hidden, width)) / np.sqrt(hidden),
    }


def route(params, x, capacity):
    """For tokens [count, width] the weights [count, experts, places], and the loss of balance."""
    experts = params["gate"].shape[1]
    p = sg.softmax(x @ params["gate"])
    shares, chosen = sg.top_k(p, CHOICES)
    shares = shares / shares.sum(axis=-1, keepdims=True)
    # First choices of all tokens are served before second choices.
    wanted = sg.one_hot(chosen.T, experts, dtype=sg.int32)
    place = (sg.cumsum(wanted.reshape(-1, experts)) - 1).reshape(wanted.shape)
    place = (place * wanted).sum(axis=-1)
    seats = sg.one_hot(place, capacity, dtype=x.dtype)  # Nothing for a place beyond the last.
    weights = sg.einsum("kt,kte,ktc->tec", shares.T, sg.cast(wanted, x.dtype), seats)
    first = sg.stop_gradient(sg.cast(wanted[0], x.dtype).mean(axis=0))
    return weights, experts * (first * p.mean(axis=0)).sum()


def layer(params, x, capacity):
    """What the experts say of tokens [count, width], and the loss of balance."""
    weights, balance = route(params, x, capacity)
    inside = sg.cast(weights > 0.0, x.dtype)
    given = sg.einsum("tec,tw->ecw", inside, x)
    said = sg.relu(given @ params["up"]) @ params["down"]
    return sg.einsum("tec,ecw->tw", weights, said), balance


def loss(params, x, y, capacity=24, strength=0.5):
    said, balance = layer(params, x, capacity)
    return ((said - y) ** 2).sum(axis=-1).mean() + strength * balance


def data(rng, count=32, width=8):
    """Four kinds of tokens, each with a linear map of its own."""
    fixed = np.random.default_rng(99)
    centres, maps = 2.0 * fixed.normal(size=(4, width)), fixed.normal(size=(4, width, width)) / np.sqrt(width)
    kind = rng.integers(4, size=count)
    x = centres[kind] + 0.5 * rng.normal(size=(count, width))
    return x, np.einsum("tw,twv->tv", x - centres[kind], maps[kind])


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), *data(rng)


def train(steps=300, seed=0, strength=0.5, engine="auto"):
    """Gradient descent: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)

    @sg.function(engine=engine)
    def step(params, x, y):
        value, gradient = sg.value_and_grad(loss)(params, x, y, strength=strength)
        return {k: p - 0.03 * gradient[k] for k, p in params.items()}, value

    losses = []
    for _ in range(steps):
        params, value = step(params, *data(rng))
        losses.append(float(value))
    return params, losses


def first_choices(params, count=1000):
    """Which share of tokens likes each expert best."""
    x, _ = data(np.random.default_rng(1), count)
    return np.bincount((x @ params["gate"]).argmax(axis=1), minlength=params["gate"].shape[1]) / count


if __name__ == "__main__":
    for strength in (0.0, 0.5):
        params, losses = train(2000, strength=strength)
        print(
            f"balance weighs {strength}: loss {np.mean(losses[:10]):.3f} -> {np.mean(losses[-50:]):.3f},",
            end=" ",
        )
        print("first choices", first_choices(params))
