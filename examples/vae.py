"""Variational autoencoders: the gradient without its noise (sticking the landing), and many samples (IWAE).

    z = μ + σ ε;   ELBO = log p(x|z) + log p(z) - log q(z|x)
    sticking the landing:  log q(z; sg(μ), sg(σ)): q's parameters are constant, while z keeps its gradient
    IWAE:  log 1/K Σ_k w_k;   its encoder's gradient, doubly reparametrised:  Σ_k w̃_k² ∂log w_k/∂z_k ∂z_k/∂φ

The part that is left out has the mean zero, and noise: it is the score of q under its own samples. Without it
the variance goes to zero where q is the exact posterior.

Kingma and Welling 2013 (arXiv 1312.6114); Roeder et al. 2017, "Sticking the landing" (arXiv 1703.09194), eq.
8; Burda et al. 2015, "Importance weighted autoencoders" (arXiv 1509.00519), eq. 8; Tucker et al. 2018,
"Doubly reparameterized gradient estimators" (arXiv 1810.04152), eq. 8.
"""

import numpy as np

import stopgrad as sg


def init(rng, inputs=8, latent=2):
    return {
        "decoder": {"W": rng.normal(size=(latent, inputs)), "b": np.zeros(inputs)},
        "encoder": {
            "W": 0.1 * rng.normal(size=(inputs, latent)),
            "b": np.zeros(latent),
            "log_sigma": np.zeros(latent),
        },
    }


def log_normal(x, mean, sigma):
    return (-0.5 * ((x - mean) / sigma) ** 2 - sg.log(sigma) - 0.5 * float(np.log(2 * np.pi))).sum(axis=-1)


def log_weight(decoder, x, z, mean, sigma):
    """log p(x, z) / q(z|x), for a decoder with noise of deviation 0.5."""
    likelihood = log_normal(x, z @ decoder["W"] + decoder["b"], 0.5 * sg.ones_like(x))
    prior = log_normal(z, sg.zeros_like(z), sg.ones_like(z))
    return likelihood + prior - log_normal(z, mean, sigma)


def encode(encoder, x):
    return x @ encoder["W"] + encoder["b"], sg.exp(encoder["log_sigma"])


def elbo_loss(params, x, noise, stick=True):
    """The negative bound for a batch x, with noise [batch, latent]."""
    mean, sigma = encode(params["encoder"], x)
    z = mean + sigma * noise
    mean, sigma = sg.stop_gradient((mean, sigma), when=stick)
    return -log_weight(params["decoder"], x, z, mean, sigma).mean()


def iwae_loss(params, x, noise, doubly=True):
    """The negative bound of K samples, with noise [K, batch, latent]."""
    mean, sigma = encode(params["encoder"], x)
    z = mean + sigma * noise
    if doubly:
        mean, sigma = sg.stop_gradient((mean, sigma))
        share = sg.softmax(log_weight(params["decoder"], x, z, mean, sigma), axis=0)
        # Each sample's gradient has its share w̃ as a factor already; on the way to the encoder, once more.
        z = sg.straight_through(z, sg.stop_gradient(share)[..., None] * z)
    bound = sg.reduce_logsumexp(log_weight(params["decoder"], x, z, mean, sigma), axis=0)
    return -(bound - float(np.log(len(noise)))).mean()


def data(rng, count=200):
    """Two hidden numbers, seen eightfold with noise."""
    W = np.random.default_rng(99).normal(size=(2, 8))
    return rng.normal(size=(count, 2)) @ W + 0.5 * rng.normal(size=(count, 8))


def elbo_loss_example():
    rng = np.random.default_rng(0)
    return init(rng), data(rng, 16), rng.normal(size=(16, 2))


def iwae_loss_example():
    rng = np.random.default_rng(0)
    return init(rng), data(rng, 16), rng.normal(size=(5, 16, 2))


def train(loss=elbo_loss, samples=(), steps=150, seed=0, engine="auto"):
    """Gradient descent: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    x = data(rng)

    @sg.function(engine=engine)
    def step(params, noise):
        value, gradient = sg.value_and_grad(loss)(params, x, noise)
        return sg.map_structure(lambda p, g: p - 0.004 * g, params, gradient), value

    losses = []
    for _ in range(steps):
        params, value = step(params, rng.normal(size=(*samples, len(x), 2)))
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    params, losses = train(steps=3000)
    print(f"ELBO: loss {losses[0]:.2f} -> {np.mean(losses[-50:]):.2f}")
    _, many = train(iwae_loss, (10,), 3000)
    print(f"IWAE: loss {many[0]:.2f} -> {np.mean(many[-50:]):.2f}")
    rng, x = np.random.default_rng(1), data(np.random.default_rng(2))
    for stick in (False, True):
        spread = sg.function(sg.grad(lambda p, e: elbo_loss(p, x, e, stick)))
        found = [spread(params, rng.normal(size=(len(x), 2)))["encoder"]["W"] for _ in range(200)]
        name = "sticking" if stick else "plain"
        print(f"deviation of the encoder's gradient, {name:8}: {np.std(found, 0).mean():.2e}")
