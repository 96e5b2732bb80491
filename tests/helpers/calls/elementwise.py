"""Calls of elementwise functions: arithmetic, comparisons, bits, powers, angles, special functions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from calls import Call, call

RNG = np.random.default_rng(80)
INF, NAN = np.inf, np.nan

D = RNG.normal(size=(2, 3))
F = RNG.normal(size=(3,)).astype(np.float32)
H = RNG.normal(size=(2, 1)).astype(np.float16)
B16 = RNG.normal(size=(3,)).astype(ml_dtypes.bfloat16)
POSITIVE = RNG.uniform(0.1, 4.0, (2, 3))
INSIDE = RNG.uniform(-0.9, 0.9, (3,))
Z = RNG.normal(size=(3,)) + 1j * RNG.normal(size=(3,))
Z64 = Z.astype(np.complex64)
PROBABILITIES = RNG.uniform(0.05, 0.95, (2, 3))
I32 = np.array([[7, -7, 5], [-1, 0, 9]], np.int32)
I8 = np.array([3, -2, 5], np.int8)
I64 = np.array([2, 3, -4], np.int64)
U8 = np.array([1, 200, 255], np.uint8)
T = np.array([[True, False, True], [False, False, True]])
EMPTY = np.zeros((0, 3), np.float32)
SCALAR = np.float64(1.5)
SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 2.5], np.float32)

CALLS: dict[str, list[Call]] = {}


def of_one(names: str, *xs: Any) -> None:
    for name in names.split():
        CALLS[name] = [call(x) for x in xs] + [call(xs[0], name="made"), call(x=xs[0])]


def of_two(names: str, *pairs: tuple[Any, Any]) -> None:
    for name in names.split():
        CALLS[name] = [call(x, y) for x, y in pairs] + [
            call(*pairs[0], name="made"),
            call(x=pairs[0][0], y=pairs[0][1]),
        ]


of_one("abs negative sign square", D, F, H, Z, I32, I8, EMPTY, SCALAR, SPECIAL, 3, -2.5, [1, -2], [1.5, -2])
of_one("ceil floor round rint trunc", 3 * D, F, H, I32, U8, EMPTY, SPECIAL, 3, -2.5, [1.5, -2])
of_one("exp expm1 sin cos tan sinh cosh tanh asinh atan", D, F, H, Z, I32, I8, T, EMPTY, 1, 0.5, [1, 2])
of_one(
    "sqrt rsqrt log log2 log10 log1p reciprocal",
    POSITIVE,
    POSITIVE.astype(np.float32),
    Z64,
    U8,
    2,
    0.5,
    [1, 2],
    EMPTY,
)
of_one("asin acos atanh", INSIDE, INSIDE.astype(np.float32), Z64, 0.5, EMPTY)
of_one("acosh", 1 + POSITIVE, Z64, 2, 1.5)
of_one("cbrt exp2", D, F, I32, 2, EMPTY)
of_one("erf erfc", D, F, I8, 1, 0.5, EMPTY)
of_one("erfinv", INSIDE, 0.5, EMPTY)
of_one("bessel_i0 bessel_i0e bessel_i1 bessel_i1e", D, F, I32, 2, EMPTY)
of_one("ndtri", PROBABILITIES, 0.5, EMPTY)
of_one("erfcinv", 2 * PROBABILITIES, 1.5, EMPTY)
of_one("lgamma digamma", POSITIVE, POSITIVE.astype(np.float32), U8, 2, EMPTY)
of_one("is_nan is_inf is_finite", SPECIAL, D, Z, I32, 1, 2.0, EMPTY)
of_one("signbit", SPECIAL, D, 1, -2.0)
of_one("logical_not", T, True, [True, False])
of_one("invert", I32, U8, T, 5)

NUMBERS = [
    (D, F),
    (F, F),
    (D, 2),
    (2.5, F),
    (I32, I8),
    (I32, 2),
    (I32, 2.5),
    (T, I32),
    (F, T),
    (H, F),
    (1, 2),
    (1, 2.5),
]
NUMBERS += [(D, [1.0, 2.0, 3.0]), (EMPTY, F), (SCALAR, F), (I64, F), (B16, H[0])]
of_two("add subtract multiply", *NUMBERS, (Z64, D), (Z, 1j), (T, T.astype(np.int8)))
of_two(
    "divide truediv realdiv",
    *[(x, y) for x, y in NUMBERS if y is not T and y is not I8],
    (Z64, D),
    (I32, I8),
    (1, 3),
)
of_two("maximum minimum squared_difference", *NUMBERS)
of_two(
    "floordiv floor_div floormod mod truncatediv truncatemod",
    (I32, I8),
    (I32, 2),
    (U8, 7),
    (3 * D, 2.0),
    (7, 2),
    (7.5, 2),
    (-7, [2, 3]),
)
of_two(
    "pow", (POSITIVE, F), (D, 2), (2, POSITIVE), (0.9, np.array([1, 2], np.int32)), (I32.astype(float), 3.0)
)
of_two(
    "hypot copysign nextafter", (D, F), (F, 2.0), (D, 1), (SPECIAL, SPECIAL[::-1].copy()), (3, 4.0), (I8, 2.0)
)
CALLS["nextafter"][-1] = call(x1=D, x2=F)
CALLS["atan2"] = [call(D, F), call(y=D, x=F), call(1, D), call(I8, 2.0), call(0.0, -1.0)]
of_two("equal not_equal", *NUMBERS, (T, T[:1]), (Z, Z64), (SPECIAL, SPECIAL), (T, 1))
of_two("less less_equal greater greater_equal", *NUMBERS, (SPECIAL, 0.0))
of_two("logical_and logical_or logical_xor", (T, T[0]), (T, True), ([True, False], True))
of_two("bitwise_and bitwise_or bitwise_xor", (I32, I8), (I32, 3), (U8, 15), (T, T[0]), (6, 3))
of_two("left_shift right_shift", (I32, np.int32(2)), (U8, 3), (I64, [1, 2, 3]), (6, 1))

CALLS["polygamma"] = [call(1, POSITIVE), call(2, F * F + 1), call(a=3, x=POSITIVE), call(1, 2)]
CALLS["add_n"] = [call([D, D, D]), call(inputs=[F, F]), call([F, D[0]]), call([1, 2.5]), call((I32, I32))]
CALLS["where"] = [
    call(T, D, F),
    call(T, 1, 0.0),
    call(T, I32, 0.5),
    call(T[0], F, [1, 2, 3]),
    call(condition=T, x=D, y=0),
    call(True, D, F),
    call([True, False, True], I32, I8),
    call(EMPTY > 0, EMPTY, 1),
]
CALLS["cast"] = [
    call(D, "float32"),
    call(3 * D, np.int32),
    call(I32, bool),
    call(x=T, dtype=float),
    call(Z64, "float32"),
    call([1.5, 2.5], "int32"),
    call(2, "float64"),
    call(D, "float64"),
    call(F, "bfloat16"),
]
CALLS["conj"] = [call(Z), call(D), call(I32), call(x=Z64), call(1 + 2j), call([1, 2])]
CALLS["real"] = CALLS["imag"] = [call(Z), call(D), call(input=Z64), call(I32), call(1 + 2j), call(2)]
CALLS["complex"] = [call(D, F), call(real=F, imag=F), call(1.0, F), call(I8, 2.0), call(1, 2)]
CALLS["angle"] = [call(Z), call(D), call(input=Z64, name="made"), call(-2), call([1j, -1.0]), call(EMPTY)]
CALLS["reciprocal_no_nan"] = [call(D), call(SPECIAL), call(x=Z64, name="made"), call(0), call([1, 0])]
CALLS["scalar_mul"] = [call(2, D), call(scalar=0.5, x=I32, name="made"), call(SCALAR, F), call(2, 3)]
CALLS["polyval"] = [
    call([1, 2.0, 3], D),
    call(coeffs=[F, 1.0], x=D, name="made"),
    call([], F),
    call([2, 1], 3),
]
CALLS["xlog1py"] = [
    call(D, POSITIVE),
    call(x=np.zeros(3), y=-np.ones(3), name="made"),
    call(0, -1.0),
    call(I32, U8),
]
CALLS["zero_fraction"] = [call(SPECIAL), call(value=I32, name="made"), call([0, 1]), call(T), call(0.0)]
CALLS["saturate_cast"] = [
    call(300 * D, np.int8),
    call(I32, "uint8", "made"),
    call(value=1e6 * F, dtype="float16"),
    call(np.array([70_000, -1], np.int32), "float16"),
    call(U8, "int8"),
    call([300, 1], "uint8"),
    call(D, "float32"),
]
CALLS["is_non_decreasing"] = CALLS["is_strictly_increasing"] = [
    call(D),
    call(x=np.sort(F), name="made"),
    call([1, 1, 2]),
    call(EMPTY),
    call(2),
]
