"""A deep equilibrium model: a layer applied until nothing changes, and its gradient without the steps.

    z* = f(θ, z*, x)
    implicit gradient:  uᵀ = gᵀ (I - ∂f/∂z)⁻¹, by iterating u ← g + (∂f/∂z)ᵀ u;   dθ = (∂f/∂θ)ᵀ u
    one step (JFB):     z* = sg(solve(θ, x));   y = f(θ, z*, x)

The equilibrium does not depend on how it was found, so neither does its gradient: `custom_gradient` gives
the solver the implicit function theorem's, and nothing of the iteration is kept. JFB stops the solution and
differentiates a single further step: (I - ∂f/∂z)⁻¹ taken for I. It is cheaper, and still a direction of
descent where f contracts.

Bai, Kolter & Koltun 2019, "Deep equilibrium models" (arXiv 1909.01377), theorem 1; Fung et al. 2022, "JFB:
Jacobian-free backpropagation for implicit networks" (arXiv 2103.12803).
"""

import numpy as np

import stopgrad as sg

TOLERANCE, LIMIT = 1e-6, 200


def init(rng, inputs=2, hidden=32, classes=2):
    def matrix(rows, columns, scale=1.0):
        return rng.standard_normal((rows, columns), np.float32) * scale / np.sqrt(np.float32(rows))

    return {
        "layer": {
            "A": matrix(hidden, hidden, 0.4),
            "B": matrix(inputs, hidden, 2.0),
            "c": np.zeros(hidden, np.float32),
        },
        "output": matrix(hidden, classes),
    }


def f(layer, z, x):
    """The layer. Its columns are kept so small that it contracts, and so has one equilibrium."""
    A = layer["A"] * sg.minimum(1.0, 0.9 / abs(layer["A"]).sum(axis=0))
    return sg.tanh(z @ A + x @ layer["B"] + layer["c"])


def fixed_point(step, start):
    """Where step(z) = z: iterated until the largest change is small."""

    def moving(i, z, before):
        return (i < LIMIT) & (abs(z - before).max() > TOLERANCE)

    return sg.while_loop(moving, lambda i, z, _: (i + 1, step(z), z), (1, step(start), start))[1]


@sg.custom_gradient
def equilibrium(layer, x):
    z = fixed_point(lambda z: f(layer, z, x), sg.zeros_like(x @ layer["B"]))

    def pullback(g):
        _, pull = sg.vjp(f, layer, z, x)
        u = fixed_point(lambda u: g + pull(u)[1], g)
        d_layer, _, d_x = pull(u)
        return d_layer, d_x

    return z, pullback


def one_step(layer, x):
    """The same value; the gradient of the last step alone."""
    return f(layer, sg.stop_gradient(equilibrium(layer, x)), x)


def loss(params, x, labels, solve=equilibrium):
    logits = solve(params["layer"], x) @ params["output"]
    return sg.sparse_softmax_cross_entropy_with_logits(labels, logits).mean()


def data(rng, count):
    """Two spirals, one in the other."""
    labels = rng.integers(2, size=count, dtype=np.int32)
    t = np.sqrt(rng.uniform(0.02, 1.0, count))
    angle = 8.0 * t + np.pi * labels
    points = np.stack([t * np.cos(angle), t * np.sin(angle)], axis=-1)
    return (points + rng.normal(0.0, 0.02, points.shape)).astype(np.float32), labels


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), *data(rng, 16)


def train(steps=200, seed=0, engine="auto", solve=equilibrium):
    """Descent with momentum; the weights, and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    speed = sg.map_structure(np.zeros_like, params)

    @sg.function(engine=engine)
    def step(params, speed, x, labels):
        value, gradient = sg.value_and_grad(loss)(params, x, labels, solve)
        gradient, _ = sg.clip_by_global_norm(gradient, 1.0)
        speed = sg.map_structure(lambda v, g: 0.9 * v + g, speed, gradient)
        return sg.map_structure(lambda p, v: p - 0.1 * v, params, speed), speed, value

    losses = []
    for _ in range(steps):
        params, speed, value = step(params, speed, *data(rng, 128))
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    x, labels = data(np.random.default_rng(1), 1000)
    for solve in (equilibrium, one_step):
        params, losses = train(1500, solve=solve)
        accuracy = ((equilibrium(params["layer"], x) @ params["output"]).argmax(axis=-1) == labels).mean()
        print(f"{solve.__name__:12} loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {accuracy:.1%}")
