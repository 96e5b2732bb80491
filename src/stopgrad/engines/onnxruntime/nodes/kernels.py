"""The dtypes that runtimes have kernels for. Nodes of other dtypes are computed in wider ones, and cast back.

Runtimes have fewer kernels than ONNX allows: stock onnxruntime cannot add bfloat16 numbers, nor sum 8-bit
integers. Integers are right modulo 2ⁿ, whatever dtype they are computed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stopgrad.base.types import bfloat16
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import NO_COMPLEX, NotInOnnx

_KERNELS = {
    "efdbhilBHIL": (
        "Abs Add Sub Mul Div Less LessOrEqual Greater GreaterOrEqual Mod[fmod] "
        "ScatterElements[max] ScatterElements[min]"
    ),
    "efdbhil": "Neg",
    "eEfdbhilBHIL": "Sign BitCast",
    "efd": (
        "Floor Ceil Round Sqrt Reciprocal Exp Log Sin Cos Tanh Sigmoid IsNaN Sum Gemm Softmax "
        "LogSoftmax RMSNormalization BatchNormalization GroupNormalization Attention DFT DFT[inverse] "
        "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss Dropout"
    ),
    "ef": (
        "Erf Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Softplus Softsign Elu Selu HardSigmoid "
        "HardSwish Mish LeakyRelu ThresholdedRelu Det Gelu PRelu Conv Conv[2] Conv[3] ConvTranspose "
        "AveragePool LpPool GlobalAveragePool GlobalMaxPool Hardmax InstanceNormalization LRN "
        "GridSample"
    ),
    "efdbi": "Relu",
    "f": "Celu",
    "eEfdbhilBHIL?": (
        "Identity Shape Concat Split Gather GatherElements GatherND ScatterElements[none] "
        "ScatterND[none] Slice Transpose Reshape Squeeze Unsqueeze Flatten ConstantOfShape "
        "TensorScatter If Loop Scan Cast[e] Cast[E] Cast[f] Cast[d] Cast[b] Cast[h] Cast[i] "
        "Cast[l] Cast[B] Cast[H] Cast[I] Cast[L] Cast[?]"
    ),
    "?": "Not And Or Xor",
    "bhilBHIL": "BitwiseNot Mod BitwiseAnd BitwiseOr BitwiseXor",
    "efilB?": "NonZero",
    "efdbhilBHIL?": "Size Equal Tile Expand Compress ReverseSequence",
    "fd": "IsInf",
    "": "Swish",
    "efdil": (
        "Pow ReduceSum ReduceProd ReduceMean ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
        "ReduceSumSquare CumSum Einsum"
    ),
    "efdbilBIL": "Min Max Clip",
    "BIL": "BitShift[LEFT] BitShift[RIGHT]",
    "efdbilB": "ReduceMax ReduceMin ArgMax ArgMin",
    "efdbilBI": "Where",
    "fdbhilBHIL?": "ScatterElements[add] ScatterND[add] ScatterElements[mul] ScatterND[mul]",
    "fdbhilBHIL": "ScatterND[max] ScatterND[min]",
    "efdbilBIL?": "Pad[constant] Pad[edge] Pad[reflect] Pad[wrap]",
    "efdbhilB": "TopK TopK[smallest]",
    "efdilIL": "CumProd MatMul",
    "efdbB": "MaxPool DepthToSpace SpaceToDepth",
    "eEfd": "LayerNormalization",
    "efl": "OneHot",
    "fdhil": "Range",
    "efdil?": "Trilu",
    "efdilL": "EyeLike",
    "efdbl": "Unique",
    "efbiB": "Resize Resize[linear]",
}
"""Operators by the dtypes for which the CPU provider of onnxruntime 1.31 has them, at the versions 18, 21 and
26 of ONNX alike. Letters are NumPy's, and E is bfloat16. Made by tests/helpers/onnx_kernels.py."""

KERNELS = {operator: letters for letters, names in _KERNELS.items() for operator in names.split()}
"""The dtypes by operator. Brackets hold the value of an attribute that matters."""

_WIDER = {
    **{"e": "fd", "E": "fd", "f": "d", "b": "hil", "h": "il", "i": "l", "l": "L"},
    **{"B": "ilIL", "H": "ilIL", "I": "lL", "L": "l", "?": "Bil"},
}
"""The dtypes to compute in instead, the best first. uint64 becomes int64, which has another order."""

_LETTERS = {bfloat16.numpy: "E"} | {np.dtype(c): c for c in "efdbhilBHIL?"}
_DTYPES = {letter: dtype for dtype, letter in _LETTERS.items()}


_TOLD_APART = {"Pad": ("mode", "constant"), "ScatterElements": ("reduction", "none")}
_TOLD_APART["ScatterND"] = _TOLD_APART["ScatterElements"]
"""Operators whose kernels depend on an attribute: its name and its default."""

_DATA = {
    **dict.fromkeys(
        ("Compress", "Einsum", "Expand", "MatMul", "MaxPool", "Pad", "Relu", "ReverseSequence"), 0
    ),
    **dict.fromkeys(("ScatterElements", "ScatterND", "Tile", "Trilu", "DepthToSpace", "SpaceToDepth"), 0),
    **dict.fromkeys(("AveragePool", "Conv", "ConvTranspose", "Gemm", "Softmax", "LogSoftmax", "Gelu"), 0),
    "Where": 1,
}
"""Operators that are written for any dtype, and the position of the operand whose dtype counts."""


def data_operand(op_type: str, attributes: Mapping[str, Any]) -> tuple[str, int] | None:
    """The name of an operator in :data:`KERNELS`, and the position of the operand whose dtype counts.

    None for those that are written with the dtype that they are computed in.
    """
    place = _DATA.get(op_type)
    if place is None:
        return None
    if op_type in _TOLD_APART:
        name, default = _TOLD_APART[op_type]
        op_type = f"{op_type}[{attributes.get(name, default)}]"
    return op_type, place


def has_kernel(operator: str, dtype: np.dtype[Any]) -> bool:
    """Whether runtimes compute an operator on operands of a dtype."""
    return _LETTERS[dtype] in KERNELS[operator]


def computed_in(operator: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which to compute an operator for operands of *dtype*."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        raise NotInOnnx(NO_COMPLEX)
    letter, kernels = _LETTERS[dtype], KERNELS[operator]
    if letter in kernels:
        return dtype
    for wider in _WIDER.get(letter, ""):
        if wider in kernels:
            return _DTYPES[wider]
    raise NotInOnnx(f"{operator} of {dtype} is computed by no runtime")
