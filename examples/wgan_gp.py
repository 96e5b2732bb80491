"""WGAN with gradient penalty: a critic with slopes near 1, by a gradient inside the loss.

    critic:    D(sg(G(z))) - D(x) + λ (‖∇ D(x̂)‖ - 1)²,    x̂ = ε x + (1 - ε) sg(G(z))
    generator: -D_sg(G(z))

The penalty is a function of the critic's gradient at points between real and made ones, so training
differentiates twice: `grad` inside a function under `grad`. For the critic the made points are given (sg),
within the penalty, too; for the generator the critic's weights are (sg of the dict).

Gulrajani et al. 2017, "Improved training of Wasserstein GANs" (arXiv 1704.00028), eq. 3 and algorithm 1.
"""

import numpy as np

import stopgrad as sg

LAMBDA, BATCH, NOISE = 1.0, 128, 2
"""λ is 10 in the paper, where distances are larger."""


def mlp(rng, inputs, outputs, hidden=32):
    sizes = {"W1": (inputs, hidden), "W2": (hidden, hidden), "W3": (hidden, outputs)}
    weights = {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}
    return weights | {"b1": np.zeros(hidden, np.float32), "b2": np.zeros(hidden, np.float32)}


def init(rng):
    return {"generator": mlp(rng, NOISE, 2), "critic": mlp(rng, 2, 1)}


def forward(layers, x):
    h = sg.elu(x @ layers["W1"] + layers["b1"])
    return sg.elu(h @ layers["W2"] + layers["b2"]) @ layers["W3"]


def penalty(critic, real, made, mix):
    """How far the critic's slopes are from 1, at points between the real and the made."""
    between = mix * real + (1.0 - mix) * made
    slope = sg.grad(lambda x: forward(critic, x).sum())(between)
    return ((sg.norm(slope, axis=-1) - 1.0) ** 2).mean()


def critic_loss(critic, generator, real, noise, mix):
    made = sg.stop_gradient(forward(generator, noise))
    difference = forward(critic, made).mean() - forward(critic, real).mean()
    return difference + LAMBDA * penalty(critic, real, made, mix)


def generator_loss(generator, critic, noise):
    return -forward(sg.stop_gradient(critic), forward(generator, noise)).mean()


def data(rng, count):
    """Points around a circle."""
    angle = rng.uniform(0.0, 2.0 * np.pi, count)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=-1) + rng.normal(0.0, 0.05, (count, 2))
    return points.astype(np.float32)


def adam(params, gradient, moments, n, rate=3e-3):
    mean = sg.map_structure(lambda m, g: 0.5 * m + 0.5 * g, moments[0], gradient)
    square = sg.map_structure(lambda s, g: 0.9 * s + 0.1 * g**2, moments[1], gradient)
    scale = rate * sg.sqrt(1.0 - 0.9**n) / (1.0 - 0.5**n)
    new = sg.map_structure(lambda p, m, s: p - scale * m / (sg.sqrt(s) + 1e-8), params, mean, square)
    return new, (mean, square)


def critic_loss_example():
    rng = np.random.default_rng(0)
    params = init(rng)
    noise, mix = rng.normal(size=(16, NOISE)), rng.uniform(size=(16, 1))
    return params["critic"], params["generator"], data(rng, 16), noise, mix


def generator_loss_example():
    rng = np.random.default_rng(0)
    params = init(rng)
    return params["generator"], params["critic"], rng.normal(size=(16, NOISE))


def train(steps=200, seed=0, engine="auto", critic_steps=3):
    """The weights, and the critic's losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    moments = {who: (sg.map_structure(np.zeros_like, p),) * 2 for who, p in params.items()}

    @sg.function(engine=engine)
    def improve_critic(critic, moments, n, generator, real, noise, mix):
        value, gradient = sg.value_and_grad(critic_loss)(critic, generator, real, noise, mix)
        return *adam(critic, gradient, moments, n), value

    @sg.function(engine=engine)
    def improve_generator(generator, moments, n, critic, noise):
        return adam(generator, sg.grad(generator_loss)(generator, critic, noise), moments, n)

    def noise():
        return rng.standard_normal((BATCH, NOISE), np.float32)

    losses, critic, generator = [], params["critic"], params["generator"]
    for i in range(steps):
        for k in range(critic_steps):
            n, mix = np.float32(critic_steps * i + k + 1), rng.random((BATCH, 1), np.float32)
            critic, moments["critic"], value = improve_critic(
                critic, moments["critic"], n, generator, data(rng, BATCH), noise(), mix
            )
        generator, moments["generator"] = improve_generator(
            generator, moments["generator"], np.float32(i + 1), critic, noise()
        )
        losses.append(float(value))
    return {"generator": generator, "critic": critic}, losses


def off_circle(generator, seed=1):
    """How far made points are from the circle, on average."""
    noise = np.random.default_rng(seed).standard_normal((2000, NOISE), np.float32)
    return float(abs(sg.norm(forward(generator, noise), axis=-1) - 1.0).mean())


if __name__ == "__main__":
    before = init(np.random.default_rng(0))["generator"]
    params, _ = train(1000)
    after = params["generator"]
    print(f"made points are off the circle by {off_circle(before):.3f} -> {off_circle(after):.3f}")
