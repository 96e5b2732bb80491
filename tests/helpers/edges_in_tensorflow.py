"""TensorFlow's own gradients against those of loaded graphs; in a process without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import stopgrad as sg
import stopgrad.tensorflow as sgtf
from helpers.edges import LINE, MATRICES, PAIRS, PLAIN, VECTORS, Comparison, table, write

OF_ONE: dict[str, Callable[..., Any]] = {
    "Abs": tf.abs,
    "Acos": tf.acos,
    "Acosh": tf.acosh,
    "Asin": tf.asin,
    "Asinh": tf.asinh,
    "Atan": tf.atan,
    "Atanh": tf.atanh,
    "Ceil": tf.math.ceil,
    "ClipByValue": lambda x: tf.clip_by_value(x, -1.0, 1.0),
    "Cos": tf.cos,
    "Cosh": tf.cosh,
    "Digamma": tf.math.digamma,
    "Erf": tf.math.erf,
    "Erfc": tf.math.erfc,
    "Erfinv": tf.math.erfinv,
    "Exp": tf.exp,
    "Expm1": tf.math.expm1,
    "Floor": tf.floor,
    "Lgamma": tf.math.lgamma,
    "Log": tf.math.log,
    "Log1p": tf.math.log1p,
    "Ndtri": tf.math.ndtri,
    "Neg": tf.negative,
    "Pow 0": lambda x: x**0.0,
    "Pow 0.5": lambda x: x**0.5,
    "Pow 3": lambda x: x**3.0,
    "Reciprocal": tf.math.reciprocal,
    "Rint": tf.math.rint,
    "Round": tf.round,
    "Rsqrt": tf.math.rsqrt,
    "Sigmoid": tf.sigmoid,
    "Sign": tf.sign,
    "Sin": tf.sin,
    "Sinh": tf.sinh,
    "Sqrt": tf.sqrt,
    "Square": tf.square,
    "Tan": tf.tan,
    "Tanh": tf.tanh,
    "Relu": tf.nn.relu,
    "Relu6": tf.nn.relu6,
    "LeakyRelu": tf.nn.leaky_relu,
    "Elu": tf.nn.elu,
    "Selu": tf.nn.selu,
    "Softplus": tf.nn.softplus,
    "Softsign": tf.nn.softsign,
    "where and Sqrt": lambda x: tf.where(x > 0, tf.sqrt(x), 0.0),
    "BesselI0": tf.math.bessel_i0,
    "BesselI1": tf.math.bessel_i1,
    "Polygamma": lambda x: tf.math.polygamma(1.0, x),
    "BesselI0e": tf.math.bessel_i0e,
    "BesselI1e": tf.math.bessel_i1e,
}
"""Functions of one number, for each of the points of LINE."""
OF_TWO: dict[str, Callable[..., Any]] = {
    "AddV2": tf.add,
    "Atan2": tf.atan2,
    "Igamma": tf.math.igamma,
    "Igammac": tf.math.igammac,
    "DivNoNan": tf.math.divide_no_nan,
    "Maximum": tf.maximum,
    "Minimum": tf.minimum,
    "Mul": tf.multiply,
    "MulNoNan": tf.math.multiply_no_nan,
    "Pow": tf.pow,
    "RealDiv": tf.divide,
    "SelectV2": lambda x, y: tf.where(x > y, x, y),
    "FloorMod": tf.math.floormod,
    "SquaredDifference": tf.math.squared_difference,
    "Sub": tf.subtract,
    "Xdivy": tf.math.xdivy,
    "Xlog1py": tf.math.xlog1py,
    "Xlogy": tf.math.xlogy,
}
"""Functions of two numbers, for each of the points of PAIRS, with respect to both."""
OF_SEVERAL: dict[str, Callable[..., Any]] = {
    "Cumprod": tf.math.cumprod,
    "Cumsum": tf.math.cumsum,
    "CumulativeLogsumexp": tf.math.cumulative_logsumexp,
    "EuclideanNorm": tf.math.reduce_euclidean_norm,
    "L2Loss": tf.nn.l2_loss,
    "SegmentMax": lambda x: tf.math.segment_max(x, tf.range(tf.size(x)) // 2),
    "SegmentMin": lambda x: tf.math.segment_min(x, tf.range(tf.size(x)) // 2),
    "UnsortedSegmentMax": lambda x: tf.math.unsorted_segment_max(x, tf.range(tf.size(x)) % 2, 2),
    "UnsortedSegmentMin": lambda x: tf.math.unsorted_segment_min(x, tf.range(tf.size(x)) % 2, 2),
    "UnsortedSegmentProd": lambda x: tf.math.unsorted_segment_prod(x, tf.range(tf.size(x)) % 2, 2),
    "SoftmaxCrossEntropyWithLogits": lambda x: tf.nn.softmax_cross_entropy_with_logits(
        tf.one_hot([0], tf.size(x)), x[None]
    ),
    "SparseSoftmaxCrossEntropyWithLogits": lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(
        [0], x[None]
    ),
    "LRN": lambda x: tf.nn.lrn(x[None, None, None]),
    "LogSoftmax": lambda x: tf.nn.log_softmax(x)[:1],
    "Max": tf.reduce_max,
    "Mean": tf.reduce_mean,
    "Min": tf.reduce_min,
    "Prod": tf.reduce_prod,
    "Softmax": lambda x: tf.nn.softmax(x) * tf.range(tf.cast(tf.size(x), tf.float32)),
    "Sum": tf.reduce_sum,
    "logsumexp": tf.reduce_logsumexp,
    "norm": tf.norm,
    "std": tf.math.reduce_std,
    "var": tf.math.reduce_variance,
    "l2_normalize": lambda x: tf.math.l2_normalize(x)[:1],
    "TopKV2": lambda x: tf.math.top_k(x, 2)[0],
    "MaxPool": lambda x: tf.nn.max_pool1d(x[None, :, None], 2, 1, "SAME"),
}
"""Functions of a vector, at each of VECTORS."""
OF_MATRICES: dict[str, Callable[..., Any]] = {
    "Cholesky": tf.linalg.cholesky,
    "MatrixDeterminant": tf.linalg.det,
    "MatrixInverse": tf.linalg.inv,
    "LogMatrixDeterminant": lambda a: tf.linalg.slogdet(a)[1],
    "Qr": lambda a: tf.linalg.qr(a)[1],
    "MatrixTriangularSolve": lambda a: tf.linalg.triangular_solve(a, tf.ones((3, 1))),
    "MatrixSolve": lambda a: tf.linalg.solve(a, tf.ones((3, 1))),
    "SelfAdjointEigV2": lambda a: tf.linalg.eigh(a)[0],
    "SelfAdjointEigV2 vectors": lambda a: tf.linalg.eigh(a)[1] ** 2 * tf.range(3.0),
    "Svd": lambda a: tf.linalg.svd(a, compute_uv=False) * tf.range(3.0),
}
"""Functions of a symmetric matrix, at each of MATRICES."""

NO_ROW = {
    "it is a gradient itself": "EluGrad InvGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad "
    "SeluGrad SigmoidGrad SoftplusGrad SqrtGrad TanhGrad BiasAddGrad FusedBatchNormGrad FusedBatchNormGradV2 "
    "FusedBatchNormGradV3",
    "it is linear in each operand": "AccumulateNV2 Add AddN BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd "
    "BiasAddV1 Cross Diag DiagPart Einsum FFT FFT2D FFT3D IFFT IFFT2D IFFT3D IRFFT MatMul RFFT "
    "MatrixBandPart MatrixDiag "
    "MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag "
    "MatrixSetDiagV2 MatrixSetDiagV3 SegmentMean SegmentSum SparseSegmentMean "
    "SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNWithNumSegments SparseSegmentSum "
    "SparseSegmentSumWithNumSegments UnsortedSegmentSum",
    "it is of complex numbers": "Angle Complex ComplexAbs Conj Imag Real",
    "what it makes has no gradient, or one of 0 everywhere": "ArgMax ArgMin FloorDiv NextAfter TruncateDiv",
    "it is another name of one with a row": "ClipByValue Div Inv Select TopK",
    "it is made of ones with rows": "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3",
    "TensorFlow's gradient of it fails, or is of one operand alone": "Betainc SegmentProd",
}
"""Operations of the numeric families that no row calls, by the reason."""


def called() -> set[str]:
    """The operations that the rows call."""
    given = (OF_ONE, (LINE,)), (OF_TWO, PAIRS), (OF_SEVERAL, (PLAIN,)), (OF_MATRICES, (MATRICES["plain"],))
    found = set()
    for rows, args in given:
        kinds = [tf.TensorSpec(x.shape, tf.float32) for x in args]
        for f in rows.values():
            graph = tf.function(f).get_concrete_function(*kinds).graph
            found |= {op.type for op in graph.get_operations()}
    return found


def comparisons() -> Iterator[tuple[str, Comparison]]:
    """All functions, with both gradients at their points; without what TensorFlow itself refuses."""
    for name, one in _all():
        if one is not None:
            yield name, one


def _all() -> Iterator[tuple[str, Comparison | None]]:
    for name, f in OF_ONE.items():
        yield name, compared(f, (LINE,), [f"{x:g}" for x in LINE])
    for name, f in OF_TWO.items():
        yield name, compared(f, PAIRS, [f"{x:g}, {y:g}" for x, y in zip(*PAIRS, strict=True)])
    for several, places in ((OF_SEVERAL, VECTORS), (OF_MATRICES, MATRICES)):
        for name, f in several.items():
            for point, x in places.items():
                yield name, compared(f, (x,), [point])


def compared(f: Callable[..., Any], args: tuple[Any, ...], points: list[str]) -> Comparison | None:
    """Both gradients of the sum of what a function returns; None if TensorFlow computes none."""

    def loss(*xs: Any) -> Any:
        return tf.reduce_sum(f(*xs))

    tensors = [tf.constant(x) for x in args]
    try:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = loss(*tensors)
        theirs = _joined(tape.gradient(value, tensors), args)
    except (tf.errors.OpError, LookupError, ValueError):
        return None
    which = tuple(range(len(args)))
    names = (
        points
        if len(points) == 1
        else [f"{p}, of {i}" if len(args) > 1 else p for i in which for p in points]
    )
    try:
        made = sg.grad(sgtf.load(loss, inputs=tensors), list(which))(*args)
    except sg.StopgradError as error:
        return Comparison(names, theirs, None, type(error).__name__)
    return Comparison(names, theirs, _joined(made, args))


def _joined(gradients: Any, args: tuple[Any, ...]) -> Any:
    some = zip(gradients, args, strict=True)
    return np.concatenate([np.ravel(np.zeros_like(x) if g is None else np.asarray(g)) for g, x in some])


if __name__ == "__main__":
    write("TensorFlow", table(comparisons()))
