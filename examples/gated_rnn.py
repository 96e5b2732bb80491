"""Gates for the gradients of a recurrent network: clipped, and cut, along their way back through time.

    i, f, o, g = W x_t + U h_{t-1} + b;   c_t = σ(f) ∘ c_{t-1} + σ(i) ∘ tanh(g);   h_t = σ(o) ∘ tanh(c_t)
    clipping:  the gradients with respect to h_{t-1} and c_{t-1} are shrunk to the norm m where they leave step t
    h-detach:  with a probability, step t reads sg(h_{t-1}), while c goes on with its gradient

Gradients that come back through many steps grow or vanish. Clipping them at every step, instead of once at the end,
bounds each step's part. The way through the cells c is the one that remembers; the ways through the gates grow, and
drown it: cutting those at random steps lets it be heard. Both change the gradient alone: the network computes what
it computed.

Hochreiter and Schmidhuber 1997, "Long short-term memory"; Pascanu et al. 2013 (arXiv 1211.5063); Arpit et al. 2018,
"h-detach: modifying the LSTM gradient towards better optimization" (arXiv 1810.03023), algorithm 1.
"""

import numpy as np

import stopgrad as sg


def init(rng, inputs=2, hidden=24):
    def matrix(rows, columns):
        return rng.normal(size=(rows, columns)) / np.sqrt(rows)

    b = np.zeros(4 * hidden)
    b[hidden : 2 * hidden] = 2.0  # Remember, at first.
    return {
        "W": matrix(inputs, 4 * hidden),
        "U": matrix(hidden, 4 * hidden),
        "b": b,
        "v": matrix(hidden, 1),
    }


def cell(params, h, c, x):
    i, f, o, g = sg.split(x @ params["W"] + h @ params["U"] + params["b"], 4, axis=-1)
    c = sg.sigmoid(f) * c + sg.sigmoid(i) * sg.tanh(g)
    return sg.sigmoid(o) * sg.tanh(c), c


def run(params, x, max_norm=None, cut=None):
    """The last h over a sequence [steps, sequences, inputs]; *cut*: the steps at which nothing goes back by h."""

    def step(state, given):
        x, is_cut = given
        h, c = state if max_norm is None else sg.clip_gradient_norm(state, max_norm)
        return cell(params, sg.stop_gradient(h, when=is_cut), c, x), None

    steps = np.zeros(len(x), bool) if cut is None else cut
    zeros = np.zeros((x.shape[1], params["v"].shape[0]))
    (h, _), _ = sg.scan(step, (zeros, zeros), (x, steps))
    return h


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
