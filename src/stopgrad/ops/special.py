"""The error function and the gamma function, with their relatives.

DLMF is the Digital Library of Mathematical Functions: chapter 5 has the gamma function, 7 the error function.
"""

from __future__ import annotations

import math
from typing import Any

from stopgrad.batch_rules import ELEMENTWISE
from stopgrad.build import apply
from stopgrad.errors import ArgumentError
from stopgrad.op import Op
from stopgrad.operands import Tensor
from stopgrad.ops.arithmetic import square
from stopgrad.ops.families import INF, NAN, RealElementwise, unary
from stopgrad.ops.inference import is_floating, same
from stopgrad.ops.powers import exp
from stopgrad.plain import is_whole, whole
from stopgrad.public import builds
from stopgrad.samples import floats, sample, unary as singles
from stopgrad.types import TensorType

__all__ = [
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "polygamma",
]


class Erf(RealElementwise):
    """Elementwise error function (DLMF 7.2.1).

    Args:
        x: floating-point.

    Returns:
        The integral 2/√π ∫₀ˣ exp(-t²) dt.

    Constraints:
        (C1) x is floating-point.

    Examples:
        >>> sg.erf(np.array([0.0, 1.0]))
        array([0.        , 0.84270079])
    """

    gradient = {"x": lambda g, op: g * (2 / math.sqrt(math.pi) * exp(-square(op.x)))}
    lower = lambda xp, x: xp.special.erf(x)
    samples = singles()


erf = unary(Erf, "erf")


class Erfc(RealElementwise):
    """Elementwise complementary error function, 1 - erf x, precise for large x (DLMF 7.2.2).

    Args:
        x: floating-point.

    Returns:
        The complement 1 - erf x.

    Constraints:
        (C1) x is floating-point.

    Examples:
        >>> sg.erfc(np.array([0.0, 1.0]))
        array([1.        , 0.15729921])
    """

    gradient = {"x": lambda g, op: -g * (2 / math.sqrt(math.pi) * exp(-square(op.x)))}
    lower = lambda xp, x: xp.special.erfc(x)
    samples = singles()


erfc = unary(Erfc, "erfc")


class Erfinv(RealElementwise):
    """Elementwise inverse of the error function.

    Args:
        x: floating-point, in (-1, 1).

    Returns:
        The y of which erf y = x.

    Constraints:
        (C1) x is floating-point.

    Examples:
        >>> sg.erfinv(np.array([0.0, 0.5]))
        array([0.        , 0.47693628])
    """

    gradient = {"x": lambda g, op: g * (math.sqrt(math.pi) / 2 * exp(square(op.result)))}
    lower = lambda xp, x: xp.special.erfinv(x)
    samples = singles(-0.8, 0.8)


erfinv = unary(Erfinv, "erfinv")


class Lgamma(RealElementwise):
    """Elementwise logarithm of |Γ(x)| (DLMF 5.2.1).

    Args:
        x: floating-point.

    Returns:
        The logarithm log |Γ(x)|; infinite at 0, -1, -2 and so on.

    Constraints:
        (C1) x is floating-point.

    Examples:
        >>> sg.lgamma(np.array([1.0, 4.0]))
        array([0.        , 1.79175947])
    """

    gradient = {"x": lambda g, op: g * digamma(op.x)}
    lower = lambda xp, x: xp.special.gammaln(x)
    samples = singles(0.5, 4.0)
    extremes = ((0.0,), (INF,), (NAN,))


lgamma = unary(Lgamma, "lgamma")


class Digamma(RealElementwise):
    """Elementwise derivative of log Γ(x) (DLMF 5.2.2).

    Args:
        x: floating-point.

    Returns:
        The quotient Γ′(x) / Γ(x).

    Constraints:
        (C1) x is floating-point.

    Examples:
        >>> sg.digamma(np.array([1.0, 4.0]))
        array([-0.57721566,  1.25611767])
    """

    gradient = {"x": lambda g, op: g * polygamma(1, op.x)}
    lower = lambda xp, x: xp.special.digamma(x)
    # JAX gives NaN at both zeros, where there is a pole.
    xla = lambda xp, x: xp.where(x == 0, -xp.copysign(xp.full((), INF, x.dtype), x), xp.special.digamma(x))
    samples = singles(0.5, 4.0)
    extremes = ((0.0,), (-0.0,), (INF,), (NAN,))


digamma = unary(Digamma, "digamma")


class Polygamma(Op):
    """Elementwise derivative of order n ≥ 1 of the digamma function (DLMF 5.15).

    Args:
        n: the order of the derivative.
        x: floating-point.

    Returns:
        The derivative ψ⁽ⁿ⁾(x).

    Constraints:
        (C1) x is floating-point.
        (C2) n is an integer of at least 1.

    Examples:
        >>> sg.polygamma(1, np.array([1.0]))
        array([1.64493407])
    """

    @staticmethod
    def infer(x: TensorType, *, n: int) -> TensorType:
        return same(is_floating)(x)

    gradient = {"x": lambda g, op: g * polygamma(op.n + 1, op.x)}
    batch = ELEMENTWISE
    rounds_once = True
    lower = lambda xp, x, n: xp.special.polygamma(n, x)
    # JAX gives NaN at infinity, where every order is 0.
    xla = lambda xp, x, n: xp.where(x == INF, xp.zeros((), x.dtype), xp.special.polygamma(n, x))
    samples = [sample(floats(3, low=0.5, high=4.0), n=1), sample(floats("n", low=0.5, high=4.0), n=2)]
    extremes = ((INF,), (NAN,))


@builds(Polygamma)
def polygamma(n: int, x: Any, name: str | None = None) -> Tensor:
    if not is_whole(n) or n < 1:
        raise ArgumentError(f"Polygamma: (C2) the order must be an integer of at least 1, not {n!r}")
    return apply(Polygamma, (x,), (whole(n),), name)
