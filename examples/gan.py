"""A GAN: a generator and a discriminator, each with Adam, from one forward pass.

    discriminator: -log D(x) - log(1 - D(sg(G(z))))
    generator:     -log D_sg(G(z))                     (the non-saturating form)

Each has its own loss, and each stands in the other's. One sum of the two is differentiated: G(z) is stopped
where the discriminator learns to tell it, and the discriminator's weights are stopped, though not its
input, where the generator learns to pass. Without the stops the two would pull each weight to opposite
sides.

In graph style: weights and Adam's moments are parameters of a session.

Goodfellow et al. 2014, "Generative adversarial networks" (arXiv 1406.2661), section 3; Kingma & Ba 2015,
"Adam" (arXiv 1412.6980), algorithm 1.
"""

import numpy as np

import stopgrad as sg

BATCH, NOISE = 128, 4
CENTRE, SPREAD = np.array([2.0, -1.0], np.float32), np.array([0.5, 1.0], np.float32)


def mlp(rng, inputs, outputs, hidden=32):
    sizes = {"W1": (inputs, hidden), "W2": (hidden, hidden), "W3": (hidden, outputs)}
    weights = {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}
    return weights | {"b1": np.zeros(hidden, np.float32), "b3": np.zeros(outputs, np.float32)}


def init(rng):
    return {"generator": mlp(rng, NOISE, 2), "discriminator": mlp(rng, 2, 1)}


def forward(layers, x):
    h = sg.leaky_relu(x @ layers["W1"] + layers["b1"])
    return sg.leaky_relu(h @ layers["W2"]) @ layers["W3"] + layers["b3"]


def loss(params, real, noise):
    """Of the same number of real and made points."""
    generator, discriminator = params["generator"], params["discriminator"]
    made = forward(generator, noise)
    real_told = sg.softplus(-forward(discriminator, real))  # -log D(x), D being the sigmoid of the network
    made_told = sg.softplus(forward(discriminator, sg.stop_gradient(made)))
    passed = sg.softplus(-forward(sg.stop_gradient(discriminator), made))
    return (real_told + made_told + passed).mean()


def adam(params, gradients, rate, b1=0.5, b2=0.999, epsilon=1e-8):
    """The assignments of one step, for lists of parameters and gradients."""
    n = sg.parameter(np.float32(0.0), name="steps")
    updates = [sg.assign(n, n + 1.0)]
    for p, g in zip(params, gradients, strict=True):
        m, v = sg.parameter(sg.zeros_like(p), name="mean"), sg.parameter(sg.zeros_like(p), name="square")
        new_m, new_v = b1 * m + (1.0 - b1) * g, b2 * v + (1.0 - b2) * g**2
        m_hat, v_hat = new_m / (1.0 - b1 ** (n + 1.0)), new_v / (1.0 - b2 ** (n + 1.0))
        updates += [sg.assign(m, new_m), sg.assign(v, new_v)]
        updates += [sg.assign(p, p - rate * m_hat / (sg.sqrt(v_hat) + epsilon))]
    return updates


def loss_example():
    rng = np.random.default_rng(0)
    real, noise = rng.standard_normal((16, 2), np.float32), rng.standard_normal((16, NOISE), np.float32)
    return init(rng), real, noise


def train(steps=300, seed=0, engine="auto"):
    """Both at once; points that the trained generator makes, and the losses on the way."""
    rng = np.random.default_rng(seed)
    graph = sg.Graph()
    with graph.as_default():
        params = {
            who: {k: sg.parameter(v, name=f"{who}_{k}") for k, v in layers.items()}
            for who, layers in init(rng).items()
        }
        real = sg.placeholder(sg.float32, [None, 2], name="real")
        noise = sg.placeholder(sg.float32, [None, NOISE], name="noise")
        value = loss(params, real, noise)
        update = []
        for who, rate in (("generator", 5e-4), ("discriminator", 3e-3)):
            weights = list(params[who].values())
            update += adam(weights, sg.gradients(value, weights), rate)
        made = forward(params["generator"], noise)

    losses = []
    with sg.Session(graph, engine=engine) as session:
        for _ in range(steps):
            batch = {
                real: CENTRE + SPREAD * rng.standard_normal((BATCH, 2), np.float32),
                noise: rng.standard_normal((BATCH, NOISE), np.float32),
            }
            losses.append(float(session.run([value, update], batch)[0]))
        return session.run(made, {noise: rng.standard_normal((2000, NOISE), np.float32)}), losses


if __name__ == "__main__":
    points, losses = train(3000)
    print(f"loss {np.mean(losses[-20:]):.3f}; where nothing can be told: {3 * np.log(2):.3f}")
    print(f"mean of made points {points.mean(axis=0).round(2)}, of real ones {CENTRE}")
    print(f"standard deviation  {points.std(axis=0).round(2)}, of real ones {SPREAD}")
