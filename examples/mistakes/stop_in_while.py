"""A solver whose loop stops its iterate, so that its start gets no gradient.

Symptom: inert
Seen in: jax-ml/jax #13710 again, whose second program is a `while_loop`.

Inside the loop only the last step is differentiated, and a network that proposes the starting point never
learns. The report says "partly stopped", for a loop that ends at once would pass the gradient.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("start",)


def broken(start, a):
    def body(i, z):
        z = sg.stop_gradient(z)  # <- here
        return i + 1, 0.5 * (z + a / z)

    _, root = sg.while_loop(lambda i, z: i < 3, body, (0, start), maximum_iterations=3)
    return (root - 1.0) ** 2


def cured(start, a):
    def body(i, z):
        return i + 1, 0.5 * (z + a / z)

    _, root = sg.while_loop(lambda i, z: i < 3, body, (0, start), maximum_iterations=3)
    return (root - 1.0) ** 2


def example():
    return np.float64(3.0), np.float64(2.0)
