"""Gates for the gradients of a recurrent network: clipped, scaled and cut along the way through time.

    h_t = (1 - z_t) ∘ h_{t-1} + z_t ∘ tanh(W x_t + U (r_t ∘ h_{t-1}))
    backwards:  dL/dh_{t-1} is clipped to norm c where it leaves step t;
                with probability p, step t hands back nothing at all (h-detach)

Gradients that come back through many steps grow or vanish. Clipping them at every step, instead of once at the end,
bounds each step's part; cutting them at random steps favours the short ways, which the long ones would drown. Both
change the gradient alone: the network computes what it computed.

Cho et al. 2014 (arXiv 1406.1078); Pascanu et al. 2013 (arXiv 1211.5063); Arpit et al. 2018, "h-detach" (arXiv
1810.03023).
"""

import numpy as np

import stopgrad as sg


def init(rng, inputs=2, hidden=24):
    def matrix(rows, columns):
        return rng.normal(size=(rows, columns)) / np.sqrt(rows)

    cell = {name: matrix(inputs + hidden, hidden) for name in ("Wz", "Wr", "Wh")}
    return {**cell, "bz": np.full(hidden, -1.0), "v": matrix(hidden, 1)}


def cell(params, h, x):
    both = sg.concat([x, h], axis=-1)
    z = sg.sigmoid(both @ params["Wz"] + params["bz"])
    r = sg.sigmoid(both @ params["Wr"])
    return (1.0 - z) * h + z * sg.tanh(sg.concat([x, r * h], axis=-1) @ params["Wh"])


def run(params, x, max_norm=None, cut=None):
    """The last state over a sequence [steps, sequences, inputs]; *cut*: at which steps nothing goes back."""

    def step(h, given):
        x, is_cut = given
        h = sg.stop_gradient(h, when=is_cut)
        if max_norm is not None:
            h = sg.clip_gradient_norm(h, max_norm)
        return cell(params, h, x), None

    steps = np.zeros(len(x), bool) if cut is None else cut
    h = np.zeros((x.shape[1], params["bz"].shape[0]))
    return sg.scan(step, h, (x, steps))[0]


def loss(params, x, y, max_norm=None, cut=None):
    return (((run(params, x, max_norm, cut) @ params["v"])[:, 0] - y) ** 2).mean()


def data(rng, steps=20, count=64):
    """The adding problem: of two marked numbers the sum (Hochreiter and Schmidhuber 1997)."""
    numbers = rng.uniform(size=(steps, count))
    marks = np.zeros((steps, count))
    marks[rng.integers(steps // 2, size=count), np.arange(count)] = 1.0
    marks[rng.integers(steps // 2, steps, size=count), np.arange(count)] = 1.0
    return np.stack([numbers, marks], axis=-1), (numbers * marks).sum(axis=0)


def train(steps=150, seed=0, max_norm=1.0, cut_rate=0.1, engine="auto"):
    """Gradient descent with momentum: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    speed = {k: np.zeros_like(p) for k, p in params.items()}

    @sg.function(engine=engine)
    def step(params, speed, x, y, cut):
        value, gradient = sg.value_and_grad(loss)(params, x, y, max_norm, cut)
        speed = {k: 0.9 * speed[k] + gradient[k] for k in params}
        return {k: p - 0.05 * speed[k] for k, p in params.items()}, speed, value

    losses = []
    for _ in range(steps):
        x, y = data(rng)
        params, speed, value = step(params, speed, x, y, rng.uniform(size=len(x)) < cut_rate)
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    params, losses = train(3000)
    print(
        f"loss {np.mean(losses[:10]):.4f} -> {np.mean(losses[-10:]):.4f}; always saying 1 costs {1 / 6:.4f}"
    )
