"""The logarithm of a softmax that underflows.

Symptom: nan
Seen in: pytorch/pytorch #1620, NVIDIA/apex #379 (sooner in half precision), deeplearning4j/deeplearning4j
#785.

The softmax of a logit that is 800 below the largest is 0, its logarithm is -∞. `log_softmax` never forms it.
"""

import numpy as np

import stopgrad as sg


def broken(logits, targets):
    p = sg.softmax(logits, axis=-1)
    return -(targets * sg.log(p)).sum()  # <- here


def cured(logits, targets):
    return -(targets * sg.log_softmax(logits, axis=-1)).sum()


def example():
    return np.array([[0.0, 800.0, 3.0]]), np.array([[1.0, 0.0, 0.0]])


def ask(program):
    return sg.trace_nan(program, *example())
