"""How the logarithm of a gamma number moves with the shape of its distribution while its quantile stays.

That is the function whose derivative the implicit gradient of a draw is.
"""

from __future__ import annotations

import numpy as np

from stopgrad.base.namespaces import NUMPY
from stopgrad.graph.defining import NumpyArray

_ROUNDS = 100
_FAR = -20.0
"""Below it P(a, eˣ) is eᵃˣ / Γ(a + 1) in double precision, whose logarithm does not underflow."""


def moved_log_gamma(log_draw: NumpyArray, shape: NumpyArray, other: NumpyArray) -> NumpyArray:
    """The logarithm of a gamma number of another shape with the same quantile.

    Args:
        log_draw: logarithms of gamma numbers.
        shape: the shapes of their distributions.
        other: the shapes to go to, close to these.

    Returns:
        The logarithms: by Newton's method, of the smaller of the two parts that a number divides the
        distribution into.
    """
    special = NUMPY.special
    upper = special.gammainc(shape, np.exp(log_draw)) > 0.5

    def part(a: NumpyArray, x: NumpyArray) -> NumpyArray:
        p: NumpyArray = np.where(upper, special.gammaincc(a, np.exp(x)), special.gammainc(a, np.exp(x)))
        return p

    target, x = part(shape, log_draw), np.array(log_draw, np.float64)
    for _ in range(_ROUNDS):
        density = np.exp(other * x - np.exp(x) - special.gammaln(other))
        step = (part(other, x) - target) / np.where(upper, -density, density)
        x = x - np.clip(step, -1.0, 1.0)
        if np.all(np.abs(step) <= 1e-15 * np.maximum(1.0, np.abs(x))):
            break
    far = (shape * log_draw - special.gammaln(shape + 1.0) + special.gammaln(other + 1.0)) / other
    return np.where(log_draw < _FAR, far, x)
