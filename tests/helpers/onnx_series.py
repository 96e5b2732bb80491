"""Makes the polynomials of ``onnxruntime/nodes/series.py``: ``python tests/helpers/onnx_series.py``.

Each is a function, smooth after a change of variable, interpolated at Chebyshev nodes with 60 digits by
mpmath, and cut where its terms no longer count in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp

mp.mp.dps = 60
NEGLIGIBLE = mp.mpf(2) ** -57


def polynomial(f: Callable[[Any], Any], degree: int = 61, negligible: Any = NEGLIGIBLE) -> list[float]:
    """Coefficients, the highest first, of the polynomial that is f on [-1, 1]."""
    count = degree + 1
    angles = [mp.pi * (k + mp.mpf(1) / 2) / count for k in range(count)]
    values = [f(mp.cos(a)) for a in angles]
    terms = [
        2 * mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) / count
        for j in range(count)
    ]
    terms[0] /= 2
    scale = max(map(abs, terms))
    while abs(terms[-1]) < negligible * scale:
        terms.pop()
    if len(terms) == count:
        raise ValueError("does not converge")
    # From Chebyshev polynomials to powers, by T(n + 1) = 2 t T(n) - T(n - 1).
    found = [mp.mpf(0)] * len(terms)
    before, now = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    for term in terms:
        for k, a in enumerate(before):
            found[k] += term * a
        after = [mp.mpf(0), *(2 * a for a in now)]
        for k, a in enumerate(before):
            after[k] -= a
        before, now = now, after
    return [float(a) for a in reversed(found)]


def between(low: Any, high: Any, f: Callable[[Any], Any]) -> list[float]:
    low, high = mp.mpf(low), mp.mpf(high)
    return polynomial(lambda t: f((high + low) / 2 + t * (high - low) / 2))


def ndtri(p: Any) -> Any:
    """The quantile of the standard normal distribution, for p below a half."""
    r = mp.sqrt(-2 * mp.log(p))
    start = -(r - mp.log(r * r + 6.3) / (r + 1.0))
    return mp.findroot(lambda y: mp.log(mp.erfc(-y / mp.sqrt(2)) / 2) - mp.log(p), start)


def _atan(z: Any) -> Any:
    x = mp.sqrt(z)
    return mp.atan(x) / x if x else mp.mpf(1)


def _erf(z: Any) -> Any:
    x = mp.sqrt(z)
    return mp.erf(x) / x if x else 2 / mp.sqrt(mp.pi)


def _scaled_erfc(t: Any) -> Any:
    """(1 + 2x) exp(x²) erfc(x), where t = (x - 2) / (x + 2) runs from -1 to 1."""
    if t == 1:
        return 2 / mp.sqrt(mp.pi)
    x = 2 * (1 + t) / (1 - t)
    if x > 1e3:
        u = 1 / (2 * x * x)
        series = 1 - u + 3 * u**2 - 15 * u**3 + 105 * u**4 - 945 * u**5
        return (1 + 2 * x) / (x * mp.sqrt(mp.pi)) * series
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def _middle_quantile(z: Any) -> Any:
    y = mp.sqrt(z)
    return mp.sqrt(2) * mp.erfinv(2 * y) / y


def _lgamma(x: Any) -> Any:
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def _bessel(n: int) -> Callable[[Any], Any]:
    def far(t: Any) -> Any:
        if t == -1:
            return 1 / mp.sqrt(2 * mp.pi)
        x = 16 / (t + 1)
        return mp.sqrt(x) * mp.exp(-x) * mp.besseli(n, x)

    return far


SERIES: dict[str, tuple[str, Callable[[], list[float]]]] = {
    "ATAN": ("atan(x) / x, x² from 0 to 0.1716", lambda: between(0, "0.1716", _atan)),
    "ERF": ("erf(x) / x, x² from 0 to 1", lambda: between(0, 1, _erf)),
    "SCALED_ERFC": (
        "(1 + 2x) exp(x²) erfc(x), (x - 2) / (x + 2) from -1 to 1",
        lambda: polynomial(_scaled_erfc, 81),
    ),
    "SCALED_ERFC_IN_FLOAT32": (
        "the same, as precise as float32",
        lambda: polynomial(_scaled_erfc, 81, mp.mpf(2) ** -27),
    ),
    "MIDDLE_QUANTILE": (
        "ndtri(1/2 + y) / y, y² from 0 to 0.17",
        lambda: between(0, "0.17", _middle_quantile),
    ),
    "NEAR_QUANTILE": (
        "-ndtri(exp(-r²)), r from 1.5 to 4",
        lambda: between("1.5", 4, lambda r: -ndtri(mp.exp(-r * r))),
    ),
    "FAR_QUANTILE": (
        "-ndtri(exp(-r²)) / r, 1/r from 0.036 to 0.25",
        lambda: between("0.036", "0.25", lambda s: -ndtri(mp.exp(-1 / (s * s))) * s),
    ),
    "LGAMMA_LOW": ("log Γ(x) / ((x - 1) (x - 2)), x from 0.5 to 3", lambda: between("0.5", 3, _lgamma)),
    "LGAMMA_MIDDLE": ("log Γ(x), x from 3 to 8", lambda: between(3, 8, mp.loggamma)),
    "I0_NEAR": (
        "exp(-x) I₀(x), x from 0 to 8",
        lambda: between(0, 8, lambda x: mp.exp(-x) * mp.besseli(0, x)),
    ),
    "I0_FAR": ("√x exp(-x) I₀(x), 16/x - 1 from -1 to 1", lambda: polynomial(_bessel(0))),
    "I1_NEAR": (
        "exp(-x) I₁(x) / x, x from 0 to 8",
        lambda: between(0, 8, lambda x: mp.exp(-x) * mp.besseli(1, x) / x),
    ),
    "I1_FAR": ("√x exp(-x) I₁(x), 16/x - 1 from -1 to 1", lambda: polynomial(_bessel(1))),
}

if __name__ == "__main__":
    print('"""Polynomials on [-1, 1], the highest power first. Made by tests/helpers/onnx_series.py."""\n')
    print("from __future__ import annotations")
    for name, (what, made) in SERIES.items():
        numbers = made()
        lines = "".join(f"    {a!r},\n" for a in numbers)
        print(f'\n{name} = (\n{lines})\n"""{what}."""', flush=True)
