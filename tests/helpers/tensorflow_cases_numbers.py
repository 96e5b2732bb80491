"""Random calls of TensorFlow's elementwise operations, activations, reductions, products and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow_case import (
    F32,
    F64,
    I32,
    I64,
    Array,
    Case,
    Family,
    Maker,
    Random,
    const,
    fed,
    ints,
)

# ----------------------------------------------------------------------------------------- elementwise


def unary(op: str, low: float = -2.0, high: float = 2.0, dtypes: Sequence[Any] = (F32, F64)) -> Maker:
    return lambda r: Case(op, [fed(r.array(r.shape(), r.one(*dtypes), low, high))])


def _binary(
    op: str, dtypes: Sequence[Any] = (F32, F64), low: float = -2.0, high: float = 2.0, second: Any = None
) -> Maker:
    def make(r: Random) -> Case:
        a, b = r.pair()
        dtype = r.one(*dtypes)
        x, y = r.array(a, dtype, low, high), r.array(b, dtype, *(second or (low, high)))
        return Case(op, [fed(x), fed(y)])

    return make


def _nonzero(op: str, dtypes: Sequence[Any] = (F32, F64)) -> Maker:
    """A quotient or remainder, whose divisor is not 0."""

    def make(r: Random) -> Case:
        a, b = r.pair()
        dtype = r.one(*dtypes)
        y = r.array(b, dtype, 0.5, 3.0) if np.issubdtype(dtype, np.floating) else r.array(b, dtype, 1, 3)
        y = y * np.asarray(r.one(-1, 1), dtype)
        return Case(op, [fed(r.array(a, dtype, -4, 4)), fed(np.asarray(y, dtype))])

    return make


def _power(r: Random) -> Case:
    a, b = r.pair()
    dtype = r.one(F32, F64)
    if r.flag():
        exponents = np.round(r.array(b, dtype, 0, 3))
        return Case("Pow", [fed(r.array(a, dtype)), fed(np.asarray(exponents, dtype))])
    return Case("Pow", [fed(r.array(a, dtype, 0.1, 3.0)), fed(r.array(b, dtype))])


def _cast(r: Random) -> Case:
    source, target = (r.one(F32, F64, I32, I64, np.bool_, np.float16) for _ in range(2))
    return Case("Cast", [fed(r.array(r.shape(), source, -5, 5))], {"DstT": target})


def _select(op: str) -> Maker:
    def make(r: Random) -> Case:
        dtype, shape = r.kind(), r.shape(1, 3)
        condition = shape[:1] if op == "Select" and r.flag() else shape
        x, y = shape, shape
        if op == "SelectV2":
            x, y = r._part(shape), r._part(shape)
        return Case(op, [fed(r.array(condition, np.bool_)), fed(r.array(x, dtype)), fed(r.array(y, dtype))])

    return make


def _clip(r: Random) -> Case:
    dtype = r.kind()
    low, high = r.array((), dtype, -1, 0), r.array((), dtype, 0, 1)
    return Case("ClipByValue", [fed(r.array(r.shape(), dtype)), fed(low), fed(high)])


def _add_n(r: Random) -> Case:
    shape, dtype = r.shape(), r.one(F32, F64, I32)
    return Case("AddN", [fed([r.array(shape, dtype) for _ in range(1 + r.below(3))])])


def _accumulated(r: Random) -> Case:
    shape, dtype = r.shape(1, 3), r.kind()
    return Case("AccumulateNV2", [fed([r.array(shape, dtype) for _ in range(2)])], {"shape": shape})


def _approximately(r: Random) -> Case:
    x = r.array((2, 3), r.kind())
    y = x + np.asarray(r.array((2, 3), F64) * 0.1, x.dtype)
    return Case("ApproximateEqual", [fed(x), fed(y)], {"tolerance": 0.05})


def _incomplete_beta(r: Random) -> Case:
    shape, dtype = r.shape(), r.kind()
    a, b, x = (
        r.array(shape, dtype, 0.5, 3.0),
        r.array(shape, dtype, 0.5, 3.0),
        r.array(shape, dtype, 0.1, 0.9),
    )
    return Case("Betainc", [fed(a), fed(b), fed(x)], differentiated=False)


def _polygamma(r: Random) -> Case:
    dtype = r.kind()
    return Case("Polygamma", [const(1 + r.below(2), dtype), fed(r.array(r.shape(), dtype, 0.5, 3.0))])


def _bitcast(r: Random) -> Case:
    if r.flag():
        return Case("Bitcast", [fed(r.array(r.shape(), I32, -5, 5))], {"type": np.uint32})
    special = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, 65504.0, 6e-8, 6.2e-5, 1 / 3]
    x = np.asarray([*special, *(r.array((9,), F64) * 10.0 ** r.rng.integers(-4, 4, 9))])
    dtype, bits = r.one((F32, I32), (np.float16, np.int16))
    return Case("Bitcast", [fed(x.astype(dtype))], {"type": bits})


def _of_y(op: str, low: float, high: float) -> Maker:
    def make(r: Random) -> Case:
        shape, dtype = r.shape(), r.kind()
        return Case(op, [fed(r.array(shape, dtype, low, high)), fed(r.array(shape, dtype))])

    return make


_REAL = (F32, F64)
_NUMBERS = (F32, F64, I32, I64)

_CURVES = (
    *("Neg", "Abs", "Sign", "Ceil", "Floor", "Round", "Rint", "Square", "Exp", "Expm1", "Sin", "Cos", "Sinh"),
    *("Cosh", "Tanh", "Asinh", "Atan", "Sigmoid", "Erf", "Erfc", "IsNan", "IsInf", "IsFinite", "BesselI0e"),
    "BesselI1e",
)
_ABOVE_ZERO = ("Sqrt", "Rsqrt", "Log", "Log1p", "Reciprocal", "Inv", "Lgamma", "Digamma")

ELEMENTWISE: Family = {
    **{op: _binary(op, _NUMBERS) for op in ("Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum")},
    **{op: _binary(op, _REAL) for op in ("SquaredDifference", "DivNoNan", "Atan2", "MulNoNan")},
    **{op: _nonzero(op, _NUMBERS) for op in ("FloorDiv", "FloorMod", "Div")},
    **{op: _nonzero(op, _REAL) for op in ("RealDiv", "Xdivy")},
    "TruncateDiv": _nonzero("TruncateDiv", (I32, I64)),
    "TruncateMod": _nonzero("TruncateMod", (I32, I64)),
    "Xlogy": _binary("Xlogy", _REAL, 0.0, 2.0, (0.5, 2.0)),
    "Xlog1py": _binary("Xlog1py", _REAL, 0.0, 2.0, (0.5, 2.0)),
    "Pow": _power,
    **{
        op: unary(op)
        for op in [
            "Neg",
            "Abs",
            "Sign",
            "Ceil",
            "Floor",
            "Round",
            "Rint",
            "Square",
            "Exp",
            "Expm1",
            "Sin",
            "Cos",
            "Sinh",
            "Cosh",
            "Tanh",
            "Asinh",
            "Atan",
            "Sigmoid",
            "Erf",
            "Erfc",
            "IsNan",
            "IsInf",
            "IsFinite",
            "BesselI0e",
            "BesselI1e",
        ]
    },
    **{op: unary(op, 0.2, 4.0) for op in _ABOVE_ZERO},
    **{op: unary(op, -0.9, 0.9) for op in ["Asin", "Acos", "Atanh", "Erfinv", "Tan"]},
    "Acosh": unary("Acosh", 1.2, 4.0),
    "Ndtri": unary("Ndtri", 0.1, 0.9),
    "Igamma": _binary("Igamma", _REAL, 0.5, 3.0),
    "Igammac": _binary("Igammac", _REAL, 0.5, 3.0),
    "LogicalNot": unary("LogicalNot", dtypes=(np.bool_,)),
    **{op: _binary(op, (np.bool_,)) for op in ("LogicalAnd", "LogicalOr")},
    **{
        op: _binary(op, _NUMBERS)
        for op in ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual")
    },
    **{op: _binary(op, (I32, I64, np.uint8), 0, 9) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: _binary(op, (I32, I64), 0, 6) for op in ("LeftShift", "RightShift")},
    "Invert": unary("Invert", 0, 9, (I32, np.uint8)),
    "Cast": _cast,
    "Select": _select("Select"),
    "SelectV2": _select("SelectV2"),
    "ClipByValue": _clip,
    "AddN": _add_n,
    "AccumulateNV2": _accumulated,
    "ApproximateEqual": _approximately,
    "Mod": _nonzero("Mod", (I32, I64)),
    "NextAfter": _binary("NextAfter", _REAL),
    "BesselI0": unary("BesselI0"),
    "BesselI1": unary("BesselI1", 0.2),
    "Betainc": _incomplete_beta,
    "Polygamma": _polygamma,
    "Bitcast": _bitcast,
    **{op: _of_y(op, -0.9, 0.9) for op in ("TanhGrad",)},
    **{
        op: _of_y(op, 0.1, 0.9)
        for op in ("SigmoidGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")
    },
}


# ----------------------------------------------------------------------------------------- activations


def _activation_grad(op: str) -> Maker:
    def make(r: Random) -> Case:
        shape, dtype = r.shape(), r.kind()
        low, high = (-0.9, 3.0) if op in ("EluGrad", "SeluGrad") else (-3.0, 8.0)
        attributes = {"alpha": r.one(0.1, 0.3)} if op == "LeakyReluGrad" else {}
        operands = [fed(r.array(shape, dtype)), fed(r.array(shape, dtype, low, high))]
        return Case(op, operands, attributes, differentiated=op != "SoftsignGrad")

    return make


def _leaky(r: Random) -> Case:
    return Case("LeakyRelu", [fed(r.array(r.shape(), r.kind()))], {"alpha": r.one(0.1, 0.3)})


def _softmax(op: str) -> Maker:
    return lambda r: Case(op, [fed(r.array(r.shape(1, 3), r.kind()))])


_ACTIVATION_GRADS = (
    *("ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad", "SoftplusGrad"),
    "SoftsignGrad",
)

ACTIVATIONS: Family = {
    **{op: unary(op, -3.0, 8.0) for op in ("Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign")},
    "LeakyRelu": _leaky,
    "Softmax": _softmax("Softmax"),
    "LogSoftmax": _softmax("LogSoftmax"),
    **{op: _activation_grad(op) for op in _ACTIVATION_GRADS},
}


# ------------------------------------------------------------------------------------------ reductions


def _reduction(op: str, dtypes: Sequence[Any] = (F32, F64)) -> Maker:
    def make(r: Random) -> Case:
        x = r.array(r.shape(0, 4, 3), r.one(*dtypes))
        axes = r.axes(x.ndim)
        if axes.size == 1 and r.flag():
            axes = axes[0]
        return Case(op, [fed(x), const(axes, I32)], {"keep_dims": r.flag()})

    return make


def _place(op: str) -> Maker:
    def make(r: Random) -> Case:
        x = r.array(r.shape(1, 3), r.one(F32, F64, I32))
        return Case(op, [fed(x), const(r.axis(x.ndim), I32)], {"output_type": r.one(I32, I64)})

    return make


def _top_k(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    return Case("TopKV2", [fed(x), const(1 + r.below(x.shape[-1]), I32)], {"sorted": True})


def _running(op: str) -> Maker:
    def make(r: Random) -> Case:
        low = 0.3 if op == "Cumprod" else -2.0
        x = r.array(r.shape(1, 3), r.kind(), low)
        return Case(op, [fed(x), const(r.axis(x.ndim), I32)], {"exclusive": r.flag(), "reverse": r.flag()})

    return make


def _segment(op: str) -> Maker:
    def make(r: Random) -> Case:
        x = r.array((3 + r.below(4), *r.shape(0, 2)), r.kind())
        ids = np.sort(r.rng.integers(0, 3, len(x))).astype(r.one(I32, I64))
        ids = np.unique(ids, return_inverse=True)[1].astype(ids.dtype)  # None is left out.
        return Case(op, [fed(x), const(ids)])

    return make


def _unsorted(op: str) -> Maker:
    def make(r: Random) -> Case:
        x = r.array((3 + r.below(4), *r.shape(0, 2)), r.kind())
        ids = r.rng.integers(-1, 4, len(x)).astype(r.one(I32, I64))
        ids[:4] = np.arange(4)[: len(x)]  # Each is there: of none, maxima are the least number there is.
        return Case(op, [fed(x), fed(ids), const(4 if len(x) > 3 else len(x), I32)])

    return make


def _sparse_segment(op: str, counted: bool = False) -> Maker:
    def make(r: Random) -> Case:
        x = r.array((4, *r.shape(0, 2)), r.kind())
        rows = r.array((5,), I32, 0, 3)
        count = [const(3 + r.below(2), I32)] if counted else []
        return Case(op, [fed(x), fed(rows), const([0, 0, 1, 1, 2], I32), *count])

    return make


def _in_top_k(r: Random) -> Case:
    x = r.apart((3, 4))
    return Case("InTopKV2", [fed(x), fed(r.array((3,), I32, 0, 3)), const(1 + r.below(3), I32)])


def _bincount(r: Random) -> Case:
    weights = r.array((6,), F32) if r.flag() else np.zeros(0, F32)
    return Case(
        "Bincount", [fed(r.array((6,), I32, 0, 5)), const(5, I32), fed(weights)], differentiated=False
    )


def _dense_bincount(r: Random) -> Case:
    operands = [fed(r.array((6,), I32, 0, 4)), const(5, I32), fed(r.array((6,), F32))]
    return Case("DenseBincount", operands, {"binary_output": False}, differentiated=False)


REDUCTIONS: Family = {
    **{op: _reduction(op, _NUMBERS) for op in ("Sum", "Max", "Min", "Prod")},
    "Mean": _reduction("Mean"),
    "EuclideanNorm": _reduction("EuclideanNorm"),
    "All": _reduction("All", (np.bool_,)),
    "Any": _reduction("Any", (np.bool_,)),
    "ArgMax": _place("ArgMax"),
    "ArgMin": _place("ArgMin"),
    "TopKV2": _top_k,
    "InTopKV2": _in_top_k,
    "Bincount": _bincount,
    "DenseBincount": _dense_bincount,
    "L2Loss": unary("L2Loss"),
    **{op: _running(op) for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp")},
    **{op: _segment(op) for op in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd")},
    **{op: _unsorted(op) for op in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin")},
    "UnsortedSegmentProd": _unsorted("UnsortedSegmentProd"),
    **{
        op: _sparse_segment(op, counted=True)
        for op in ("SparseSegmentSumWithNumSegments", "SparseSegmentMeanWithNumSegments")
    },
    **{op: _sparse_segment(op) for op in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")},
}


# -------------------------------------------------------------------------------------------- products


def _mat_mul(r: Random) -> Case:
    n, k, m = r.shape(3, 3)
    dtype, first, second = r.kind(), r.flag(), r.flag()
    a, b = r.array((k, n) if first else (n, k), dtype), r.array((m, k) if second else (k, m), dtype)
    return Case("MatMul", [fed(a), fed(b)], {"transpose_a": first, "transpose_b": second})


def _batch_mat_mul(op: str, *dtypes: Any) -> Maker:
    def make(r: Random) -> Case:
        n, k, m = r.shape(3, 3)
        dtype, first, second = r.one(*dtypes), r.flag(), r.flag()
        left, right = r.pair() if op != "BatchMatMul" else [r.shape(0, 2)] * 2
        a = r.array((*left, *((k, n) if first else (n, k))), dtype)
        b = r.array((*right, *((m, k) if second else (k, m))), dtype)
        return Case(op, [fed(a), fed(b)], {"adj_x": first, "adj_y": second})

    return make


def _einsum(r: Random) -> Case:
    equation = r.one(
        "ij,jk->ik", "abc,abd->acd", "bij,bjk->bik", "...ij,...jk->...ik", "bhqd,bhkd->bhqk", "ij->ji"
    )
    sizes = {label: 1 + r.below(3) for label in "abcdhijkq"}
    left = equation.split("->")[0].split(",")
    operands = []
    extra = r.shape(1, 1)
    for term in left:
        shape = tuple(sizes[label] for label in term.replace("...", ""))
        operands.append(r.array((*extra, *shape) if "..." in term else shape, F32))
    return Case("Einsum", [fed(operands)], {"equation": equation})


def _positive(r: Random, n: int, dtype: Any) -> Array:
    a = r.apart((n, n), F64)
    return np.asarray(a @ a.T + np.eye(n), dtype)


def _square(op: str, **attributes: Any) -> Maker:
    def make(r: Random) -> Case:
        x = _positive(r, 1 + r.below(3), F64)
        if op != "Cholesky":
            x = x + 0.3 * np.triu(r.array(x.shape, F64), 1)
        return Case(op, [fed(x)], {name: r.one(*options) for name, options in attributes.items()})

    return make


def _solve(op: str) -> Maker:
    def make(r: Random) -> Case:
        n = 1 + r.below(3)
        a, b = _positive(r, n, F64), r.array((n, 2), F64)
        attributes = {"adjoint": r.flag()}
        if op == "MatrixTriangularSolve":
            attributes["lower"] = r.flag()
        return Case(op, [fed(a), fed(b)], attributes)

    return make


def _band(r: Random) -> Case:
    x = r.array((*r.shape(0, 1), *r.shape(2, 2)), r.kind())
    return Case(
        "MatrixBandPart",
        [fed(x), const(r.below(x.shape[-2]) - 1, I64), const(r.below(x.shape[-1]) - 1, I64)],
    )


def _diagonal(r: Random) -> Case:
    x = r.array(r.shape(1, 2), r.kind())
    k = r.below(3) - 1
    operands = [fed(x), const(k, I32), const(-1, I32), const(-1, I32), fed(r.array((), x.dtype))]
    return Case("MatrixDiagV3", operands, {"align": r.one("RIGHT_LEFT", "LEFT_RIGHT")})


def _diagonal_part(r: Random) -> Case:
    x = r.array((*r.shape(0, 1), 2 + r.below(2), 2 + r.below(2)), r.kind())
    k = r.one(0, 1, -1, [0, 1], [-1, 1])
    operands = [fed(x), const(k, I32), fed(r.array((), x.dtype))]
    return Case("MatrixDiagPartV3", operands, {"align": r.one("RIGHT_LEFT", "LEFT_LEFT")})


def _diagonal_set(r: Random) -> Case:
    n = 2 + r.below(3)
    dtype = r.kind()
    return Case(
        "MatrixSetDiagV3", [fed(r.array((2, n, n), dtype)), fed(r.array((2, n), dtype)), const(0, I32)]
    )


def _diagonal_set_v1(r: Random) -> Case:
    dtype = r.kind()
    return Case("MatrixSetDiag", [fed(r.array((2, 3, 3), dtype)), fed(r.array((2, 3), dtype))])


def _mixed_mat_mul(r: Random) -> Case:
    dtype = r.kind()
    return Case(
        "BatchMatMulV3",
        [fed(r.array((2, 2, 3), dtype)), fed(r.array((3, 4), dtype))],
        {"Tout": dtype, "adj_x": False, "adj_y": False},
    )


def _fused_mat_mul(r: Random) -> Case:
    """What TensorFlow's optimiser makes; it has no gradient there."""
    a, b, bias = r.array((2, 3), F32), r.array((3, 4), F32), r.array((4,), F32)
    last = r.one([], ["Relu"], ["Relu6"], ["Elu"], ["LeakyRelu"], ["Tanh"], ["Sigmoid"])
    attributes = {"fused_ops": ["BiasAdd", *last], "leakyrelu_alpha": 0.3}
    return Case("_FusedMatMul", [fed(a), fed(b), fed([bias])], attributes, differentiated=False)


def _cross(r: Random) -> Case:
    shape, dtype = (*r.shape(0, 2), 3), r.kind()
    return Case("Cross", [fed(r.array(shape, dtype)), fed(r.array(shape, dtype))])


def _eigen(r: Random) -> Case:
    x = _positive(r, 3, F64)
    return Case("SelfAdjointEigV2", [fed(x)], {"compute_v": True}, results=1)


def _factors(op: str, results: int | None = None) -> Maker:
    """A decomposition, of which the results that are unique but for signs are compared."""

    def make(r: Random) -> Case:
        x = _positive(r, 3, F64) + 0.3 * np.triu(r.array((3, 3), F64), 1)
        attributes = {"Svd": {"compute_uv": True, "full_matrices": False}, "Qr": {"full_matrices": False}}
        return Case(op, [fed(x)], attributes[op], results)

    return make


def _of_complex(op: str) -> Maker:
    return lambda r: Case(op, [fed(r.array(r.shape(), r.one(np.complex64, np.complex128), 0.5))])


def _complex(r: Random) -> Case:
    a, b = r.pair()
    dtype = r.kind()
    return Case("Complex", [fed(r.array(a, dtype)), fed(r.array(b, dtype))], {"Tout": _WIDE[dtype]})


_WIDE = {F32: np.complex64, F64: np.complex128}
_NARROW = {np.complex64: F32, np.complex128: F64}


def _part(op: str) -> Maker:
    def make(r: Random) -> Case:
        dtype = r.one(np.complex64, np.complex128)
        return Case(op, [fed(r.array(r.shape(), dtype, 0.5))], {"Tout": _NARROW[dtype]})

    return make


def _fourier(op: str, axes: int) -> Maker:
    return lambda r: Case(op, [fed(r.array(r.shape(axes, 3, 5), np.complex64))])


def _real_fourier(r: Random) -> Case:
    length = 2 + r.below(5)
    return Case("RFFT", [fed(r.array((*r.shape(0, 1), length), F32)), ints(length)])


def _inverse_real_fourier(r: Random) -> Case:
    length = 2 + r.below(5)
    return Case("IRFFT", [fed(r.array((2, length // 2 + 1), np.complex64)), ints(length)])


def _conjugate(r: Random) -> Case:
    x = r.array(r.shape(1, 3), np.complex64)
    return Case("ConjugateTranspose", [fed(x), const(r.rng.permutation(x.ndim), I32)])


DECOMPOSITIONS: Family = {
    "Svd": _factors("Svd", 1),
    "Qr": _factors("Qr"),
    "Complex": _complex,
    "Conj": _of_complex("Conj"),
    **{op: _part(op) for op in ("Real", "Imag", "Angle", "ComplexAbs")},
    "ConjugateTranspose": _conjugate,
    **{
        op: _fourier(op, axes)
        for op, axes in (("FFT", 1), ("FFT2D", 2), ("IFFT", 1), ("IFFT2D", 2), ("FFT3D", 3))
    },
    "RFFT": _real_fourier,
    "IRFFT": _inverse_real_fourier,
    "BatchMatMulV2": _batch_mat_mul("BatchMatMulV2", np.complex64),
    "SelfAdjointEigV2": _eigen,
}
"""What ONNX has no form for: decompositions, and complex numbers."""

PRODUCTS: Family = {
    "MatMul": _mat_mul,
    **{op: _batch_mat_mul(op, F32, F64) for op in ("BatchMatMul", "BatchMatMulV2")},
    "Einsum": _einsum,
    "Cholesky": _square("Cholesky"),
    "MatrixInverse": _square("MatrixInverse", adjoint=(True, False)),
    "MatrixDeterminant": _square("MatrixDeterminant"),
    "LogMatrixDeterminant": _square("LogMatrixDeterminant"),
    "MatrixSolve": _solve("MatrixSolve"),
    "MatrixTriangularSolve": _solve("MatrixTriangularSolve"),
    "BatchMatMulV3": _mixed_mat_mul,
    "_FusedMatMul": _fused_mat_mul,
    "MatrixBandPart": _band,
    "MatrixDiag": lambda r: Case("MatrixDiag", [fed(r.array(r.shape(1, 2), r.kind()))]),
    "MatrixDiagPart": lambda r: Case("MatrixDiagPart", [fed(r.array((2, 3, r.one(2, 3)), r.kind()))]),
    "MatrixSetDiag": _diagonal_set_v1,
    "MatrixDiagV3": _diagonal,
    "MatrixDiagPartV3": _diagonal_part,
    "MatrixSetDiagV3": _diagonal_set,
    "Cross": _cross,
    "Diag": lambda r: Case("Diag", [fed(r.array(r.shape(1, 2, 3), r.kind()))]),
    "DiagPart": lambda r: Case("DiagPart", [fed(r.array((2, 3, 2, 3), r.kind()))]),
}


# ---------------------------------------------------------------------------------------------- losses


def _cross_entropy(r: Random) -> Case:
    shape, dtype = r.shape(2, 2), r.kind()
    labels = r.array(shape, dtype, 0.1, 1.0)
    labels = labels / labels.sum(1, keepdims=True)
    return Case("SoftmaxCrossEntropyWithLogits", [fed(r.array(shape, dtype)), const(labels)])


def _sparse_cross_entropy(r: Random) -> Case:
    shape, dtype = r.shape(2, 2), r.kind()
    labels = r.rng.integers(0, shape[1], shape[0]).astype(r.one(I32, I64))
    return Case("SparseSoftmaxCrossEntropyWithLogits", [fed(r.array(shape, dtype)), fed(labels)])


LOSSES: Family = {
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
}


# ------------------------------------------------------------------------------------------ quantized


def _quantized(op: str) -> Maker:
    def make(r: Random) -> Case:
        x = r.array((3, 4), F32, -4, 4) + np.float32(0.0137)  # Not halfway between two steps.
        attributes = {"num_bits": r.one(4, 8), "narrow_range": r.flag()}
        if op.endswith("Args"):
            return Case(op, [fed(x)], attributes | {"min": -1.5, "max": r.one(1.0, 2.5)})
        shape = (4,) if op.endswith("PerChannel") else ()
        low, high = r.array(shape, F32, -3, -0.5), r.array(shape, F32, 0.5, 3)
        return Case(op, [fed(x), fed(low), fed(high)], attributes)

    return make


QUANTIZED: Family = {
    "FakeQuantWithMinMaxArgs": _quantized("FakeQuantWithMinMaxArgs"),
    "FakeQuantWithMinMaxVars": _quantized("FakeQuantWithMinMaxVars"),
    "FakeQuantWithMinMaxVarsPerChannel": _quantized("FakeQuantWithMinMaxVarsPerChannel"),
}
