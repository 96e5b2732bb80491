"""VQ-VAE: an autoencoder whose code is a word of a learnt codebook.

    loss = ‖x - decode(z_q)‖² + ‖sg(z) - e‖² + β ‖z - sg(e)‖²,    z = encode(x),    z_q = z + sg(e - z)

where e is the codebook's entry nearest to z. Looking up the nearest entry has no gradient, so:

- the decoder's gradient goes *straight through* from z_q to z, as if nothing had been looked up. The value
  of `z + sg(e - z)` is e but for rounding; `straight_through(e, z)` is the same with exactly e as its value;
- the second term moves entries to the points they stand for, and not the points: sg(z);
- the third commits the encoder to the entry it took, and does not move the entry: sg(e).

van den Oord, Vinyals & Kavukcuoglu 2017, "Neural discrete representation learning" (arXiv 1711.00937),
eq. 3.
"""

import numpy as np

import stopgrad as sg

BETA = 0.25


def init(rng, inputs=2, hidden=32, code=2, entries=16):
    """Weights of encoder and decoder, each with one hidden layer; and the codebook."""

    def matrix(rows, columns):
        return rng.standard_normal((rows, columns), np.float32) / np.sqrt(np.float32(rows))

    return {
        "encoder": {
            "W1": matrix(inputs, hidden),
            "b1": np.zeros(hidden, np.float32),
            "W2": matrix(hidden, code),
        },
        "decoder": {
            "W1": matrix(code, hidden),
            "b1": np.zeros(hidden, np.float32),
            "W2": matrix(hidden, inputs),
        },
        "codebook": matrix(entries, code),
    }


def mlp(layer, x):
    return sg.tanh(x @ layer["W1"] + layer["b1"]) @ layer["W2"]


def nearest(codebook, z):
    """The number of the codebook's entry nearest to each row of z."""
    return ((z[:, None, :] - codebook) ** 2).sum(axis=-1).argmin(axis=-1)


def loss(params, x):
    z = mlp(params["encoder"], x)
    e = params["codebook"][nearest(params["codebook"], z)]
    z_q = sg.straight_through(e, z)
    reconstruction = ((x - mlp(params["decoder"], z_q)) ** 2).sum(axis=-1)
    codebook = ((sg.stop_gradient(z) - e) ** 2).sum(axis=-1)
    commitment = ((z - sg.stop_gradient(e)) ** 2).sum(axis=-1)
    return (reconstruction + codebook + BETA * commitment).mean()


def data(rng, count, places=8):
    """Points around *places* places on a circle."""
    angle = 2.0 * np.pi * rng.integers(places, size=count) / places
    points = np.stack([np.cos(angle), np.sin(angle)], axis=-1) + rng.normal(0.0, 0.05, (count, 2))
    return points.astype(np.float32)


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), data(rng, 16)


def train(steps=300, seed=0, engine="auto"):
    """Gradient descent; the weights and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    # Entries begin where points are: one that no point is nearest to would never move.
    params["codebook"] = np.asarray(mlp(params["encoder"], data(rng, len(params["codebook"]))))

    @sg.function(engine=engine)
    def step(params, x):
        value, gradient = sg.value_and_grad(loss)(params, x)
        return sg.map_structure(lambda p, g: p - 0.05 * g, params, gradient), value

    losses = []
    for _ in range(steps):
        params, value = step(params, data(rng, 256))
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    params, losses = train(2000)
    x = data(np.random.default_rng(1), 1000)
    z = mlp(params["encoder"], x)
    codes = nearest(params["codebook"], z)
    restored = mlp(params["decoder"], params["codebook"][codes])
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}")
    print(f"{len(np.unique(codes))} of {len(params['codebook'])} entries are in use")
    print(f"mean distance of points from their copies: {sg.norm(x - restored, axis=-1).mean():.3f}")
