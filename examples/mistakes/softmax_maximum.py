"""A softmax that is differentiated through its maximum, for nothing.

Symptom: idle
Seen in: TensorFlow's documentation of `tf.stop_gradient`, whose example this is.

Subtracting the largest logit changes no value of a softmax and no gradient: the two ways through the maximum
cancel. But unless it is stopped they are computed. `ablate` finds such places by trying.
"""

import numpy as np

import stopgrad as sg


def broken(logits, costs):
    z = logits - logits.max(axis=-1, keepdims=True)  # <- here
    p = sg.exp(z) / sg.exp(z).sum(axis=-1, keepdims=True)
    return (p * costs).sum()


def cured(logits, costs):
    z = logits - sg.stop_gradient(logits.max(axis=-1, keepdims=True))
    p = sg.exp(z) / sg.exp(z).sum(axis=-1, keepdims=True)
    return (p * costs).sum()


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, 3)), rng.normal(size=(4, 3))


def ask(program):
    return sg.ablate(program, *example())
