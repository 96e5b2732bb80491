"""A layer whose relus are off for every example.

Symptom: none
Seen in: "dying ReLU" (Lu et al. 2019, arXiv 1903.06733); here by a bias with the wrong sign, more often after
one step that was too large.

No stop is at fault and `explain` says that gradients flow: the gradient is there, and it is zero. `ablate`
looks at numbers, and names the place behind which nothing arrives.
"""

import numpy as np

import stopgrad as sg


def broken(w, b, v, x, y):
    h = sg.relu(x @ w - b)  # <- here
    return ((h @ v - y) ** 2).mean()


def cured(w, b, v, x, y):
    h = sg.leaky_relu(x @ w + b, 0.1)
    return ((h @ v - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 4)), np.full(4, 10.0), rng.normal(size=4)
    return *weights, rng.normal(size=(5, 3)), rng.normal(size=5)


def ask(program):
    return sg.ablate(program, *example(), argnums=(0, 1))
