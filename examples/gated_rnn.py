"""Gates for the gradients of a recurrent network: clipped, and cut, along their way back through time.

    i, f, o, g = W x_t + U h_{t-1} + b;   c_t = σ(f) ∘ c_{t-1} + σ(i) ∘ tanh(g);   h_t = σ(o) ∘ tanh(c_t)
    clipping:  the gradients of h_{t-1} and of c_{t-1} are shrunk to the norm m where they leave step t
    h-detach:  with a probability, step t reads sg(h_{t-1}), while c goes on with its gradient

Gradients that come back through many steps grow or vanish. Clipping them at every step, instead of once at
the end, bounds each step's part. The way through the cells c is the one that remembers; the ways through the
gates grow, and drown it: cutting those at random steps lets it be heard. Both change the gradient alone: the
network computes what it computed.

Hochreiter and Schmidhuber 1997, "Long short-term memory"; Pascanu et al. 2013 (arXiv 1211.5063); Arpit et al.
2018, "h-detach: modifying the LSTM gradient towards better optimization" (arXiv 1810.03023), algorithm 1.
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
    """The last h over a sequence [steps, sequences, inputs]; *cut*: steps where nothing goes back by h."""

    def step(state, given):
        x, is_cut = given
        h, c = state if max_norm is None else sg.clip_gradient_norm(state, max_norm)
        return cell(params, sg.stop_gradient(h, when=is_cut), c, x), None

    steps = np.zeros(len(x), bool) if cut is None else cut
    zeros = sg.zeros((x.shape[1], params["v"].shape[0]), x.dtype)
    (h, _), _ = sg.scan(step, (zeros, zeros), (x, steps))
    return h


def loss(params, x, y, max_norm=None, cut=None):
    return (((run(params, x, max_norm, cut) @ params["v"])[:, 0] - y) ** 2).mean()


def data(rng, steps=50, count=64):
    """The adding problem: of two marked numbers the sum (Hochreiter and Schmidhuber 1997)."""
    numbers = rng.uniform(size=(steps, count))
    marks = np.zeros((steps, count))
    marks[rng.integers(steps // 2, size=count), np.arange(count)] = 1.0
    marks[rng.integers(steps // 2, steps, size=count), np.arange(count)] = 1.0
    return np.stack([numbers, marks], axis=-1), (numbers * marks).sum(axis=0)


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), *data(rng, steps=6, count=8)


def train(steps=300, seed=0, max_norm=0.1, cut_rate=0.5, engine="auto"):
    """Adam: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    zeros = sg.map_structure(np.zeros_like, params)

    @sg.function(engine=engine)
    def step(params, mean, square, t, x, y, cut):
        value, gradient = sg.value_and_grad(loss)(params, x, y, max_norm, cut)
        mean = {k: 0.9 * m + 0.1 * gradient[k] for k, m in mean.items()}
        square = {k: 0.99 * v + 0.01 * gradient[k] ** 2 for k, v in square.items()}
        rate = 0.01 * sg.sqrt(1.0 - 0.99**t) / (1.0 - 0.9**t)
        params = {k: p - rate * mean[k] / (sg.sqrt(square[k]) + 1e-8) for k, p in params.items()}
        return params, mean, square, value

    mean, square, losses = zeros, zeros, []
    for t in range(1, steps + 1):
        x, y = data(rng)
        cut = rng.uniform(size=len(x)) < cut_rate
        params, mean, square, value = step(params, mean, square, np.float64(t), x, y, cut)
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    print(f"always saying 1 costs {1 / 6:.4f}")
    for name, gates in (("with both gates", {}), ("without", {"max_norm": None, "cut_rate": 0.0})):
        _, losses = train(**gates)
        print(f"{name}: loss {np.mean(losses[:10]):.4f} -> {np.mean(losses[-10:]):.4f}")
