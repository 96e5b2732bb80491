"""A custom_jvp that forgets the tangent of its second argument.

Symptom: none
Seen in: jax-ml/jax #3389 (rules for some of the arguments); ml-explore/mlx #3634 (a library's own rule for
the power: "the second tangent is ignored, silently wrong tangents").

The rule was written for the input and tested on it; the slope was a constant then.
"""

import jax
import numpy as np

LEARNS = ("slope", "x")


@jax.custom_jvp
def swish(x, slope):
    return x * jax.nn.sigmoid(slope * x)


@swish.defjvp
def swish_jvp(primals, tangents):
    (x, slope), (dx, _) = primals, tangents
    s = jax.nn.sigmoid(slope * x)
    return swish(x, slope), (s + slope * x * s * (1.0 - s)) * dx


@jax.custom_jvp
def whole(x, slope):
    return x * jax.nn.sigmoid(slope * x)


@whole.defjvp
def whole_jvp(primals, tangents):
    (x, slope), (dx, dslope) = primals, tangents
    s = jax.nn.sigmoid(slope * x)
    return whole(x, slope), (s + slope * x * s * (1.0 - s)) * dx + x * x * s * (1.0 - s) * dslope


def broken(slope, x, y):
    return ((swish(x, slope) - y) ** 2).mean()  # <- here


def cured(slope, x, y):
    return ((whole(x, slope) - y) ** 2).mean()


def example():
    rng = np.random.default_rng(0)
    return np.float32(1.5), rng.normal(size=4).astype("f4"), rng.normal(size=4).astype("f4")
