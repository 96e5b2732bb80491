"""Training with rounded weights and activations: straight-through, LSQ and PACT.

    straight-through:  q(x) = s · round(x / s),          dq/dx = 1 inside the range, 0 outside
    LSQ:               the step s is learnt:             dq/ds = round(x/s) - x/s inside, the bound outside
    PACT:              y = clip(x, 0, α), then rounded;  dy/dα = 1 where x ≥ α

Rounding is constant almost everywhere, so that its own gradient is nothing. Each of these says what to use in
its place, with one gate: ``straight_through(hard, soft)`` has the value of *hard*, bit for bit, and the
gradient of *soft*.

Bengio et al. 2013 (arXiv 1308.3432); Esser et al. 2020, "Learned step size quantization" (arXiv 1902.08153),
eq. 1 to 3; Choi et al. 2018, "PACT" (arXiv 1805.06085), eq. 1 to 3.
"""

import numpy as np

import stopgrad as sg


def rounded(x):
    """Rounds, and hands every gradient on."""
    return sg.straight_through(sg.round(x), x)


def fixed_step(x, step, bits=4):
    """Signed numbers of some bits, a step apart. Outside of their range nothing is learnt."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return step * rounded(sg.clip_by_value(x / step, low, high))


def lsq(x, step, bits=4):
    """The same with a step that is learnt, its gradient scaled down by √(count · high)."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    step = sg.scale_gradient(step, 1.0 / float(np.sqrt(x.size * high)))
    return step * rounded(sg.clip_by_value(x / step, low, high))


def pact(x, alpha, bits=4):
    """Activations between 0 and a bound that is learnt, rounded to some bits."""
    levels = 2**bits - 1
    y = sg.where(x < 0.0, 0.0, sg.where(x < alpha, x, alpha))
    scale = levels / sg.stop_gradient(alpha)
    return rounded(y * scale) / scale


def init(rng, inputs=2, hidden=24):
    return {
        "W1": rng.normal(size=(inputs, hidden)),
        "b1": np.zeros(hidden),
        "W2": rng.normal(size=(hidden, 1)) / np.sqrt(hidden),
        "step1": np.array(0.3),
        "step2": np.array(0.1),
        "alpha": np.array(3.0),
    }


def network(params, x):
    """Weights of four bits by LSQ, activations of four bits by PACT."""
    hidden = pact(x @ lsq(params["W1"], params["step1"]) + params["b1"], params["alpha"])
    return (hidden @ lsq(params["W2"], params["step2"]))[:, 0]


def loss(params, x, y):
    return sg.sigmoid_cross_entropy_with_logits(y, network(params, x)).mean() + 0.001 * params["alpha"] ** 2


def data(rng, count=400):
    """Points inside and outside of a ring."""
    x = rng.normal(size=(count, 2))
    return x, (np.abs(np.linalg.norm(x, axis=1) - 1.2) < 0.5).astype(np.float64)


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), *data(rng, 16)


def train(steps=150, seed=0, engine="auto"):
    """Gradient descent: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    x, y = data(rng)

    @sg.function(engine=engine)
    def step(params):
        value, gradient = sg.value_and_grad(loss)(params, x, y)
        return {k: p - 0.3 * gradient[k] for k, p in params.items()}, value

    losses = []
    for _ in range(steps):
        params, value = step(params)
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    params, losses = train(2000)
    x, y = data(np.random.default_rng(1))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"right on new points: {((network(params, x) > 0) == (y > 0)).mean():.1%}")
    print(f"steps {params['step1']:.3f} and {params['step2']:.3f}, bound {params['alpha']:.3f}")
