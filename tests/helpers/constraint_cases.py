"""For each documented constraint of elementwise operations, reductions and losses, a call that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from stopgrad.graph.immediate import evaluate
from stopgrad.graph.op import REGISTRY

BOOLS = np.ones(3, np.bool_)
INTS = np.ones(3, np.int32)
FLOATS = np.ones(3, np.float32)
COMPLEXES = np.ones(3, np.complex64)
FOUR_BOOLS, FOUR_INTS, FOUR_FLOATS = (np.ones(4, a.dtype) for a in (BOOLS, INTS, FLOATS))

CASES: dict[tuple[str, str], Callable[[], Any]] = {}


def call(type: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """A call of the operation's public function."""
    return partial(REGISTRY[type].function, *args, **kwargs)


def one_operand(types: Sequence[str], refused: Any) -> None:
    for type in types:
        CASES[type, "C1"] = call(type, refused)


def two_operands(types: Sequence[str], refused: tuple[Any, Any], unequal: tuple[Any, Any]) -> None:
    for type in types:
        CASES[type, "C1"] = call(type, *refused)
        CASES[type, "C2"] = call(type, *unequal)


one_operand(("Neg", "Abs", "Sign", "Square"), BOOLS)
one_operand(("Relu", "Relu6", "Floor", "Ceil", "Round", "Trunc"), COMPLEXES)
one_operand(
    (
        *("Sqrt", "Rsqrt", "Reciprocal", "Exp", "Expm1", "Log", "Log1p", "Log2", "Log10"),
        *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"),
        *("IsNan", "IsInf", "IsFinite"),
    ),
    INTS,
)
one_operand(
    (
        *(
            "BesselI0",
            "BesselI0e",
            "BesselI1",
            "BesselI1e",
            "Ndtri",
            "Cbrt",
            "Exp2",
            "SignBit",
            "Erf",
            "Erfc",
            "Erfinv",
            "Lgamma",
            "Digamma",
        ),
        *("LeakyRelu", "Elu", "Sigmoid", "LogSigmoid", "Softplus", "Softsign", "Silu", "Gelu"),
    ),
    COMPLEXES,
)
one_operand(("LogicalNot",), INTS)
one_operand(("Invert",), FLOATS)
# The functions hand on what is not complex; the operations, which they do not build, refuse it.
for type in ("Conj", "Real", "Imag"):
    CASES[type, "C1"] = partial(evaluate, REGISTRY[type], [INTS], ())
CASES["Polygamma", "C1"] = call("Polygamma", 1, INTS)
CASES["Polygamma", "C2"] = call("Polygamma", -1, FLOATS)

two_operands(("Equal", "NotEqual"), (INTS, FLOATS), (FLOATS, FOUR_FLOATS))
two_operands(("AddV2", "Sub", "Mul", "Pow"), (BOOLS, BOOLS), (INTS, FOUR_INTS))
two_operands(
    (
        *("Less", "LessEqual", "Greater", "GreaterEqual", "FloorDiv", "FloorMod"),
        *("Maximum", "Minimum", "SquaredDifference", "TruncateMod"),
    ),
    (COMPLEXES, COMPLEXES),
    (INTS, FOUR_INTS),
)
two_operands(
    ("RealDiv", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "TanhGrad"),
    (INTS, INTS),
    (FLOATS, FOUR_FLOATS),
)
two_operands(
    (
        *(
            "Atan2",
            "CopySign",
            "NextAfter",
            "Hypot",
            "LogAddExp",
            "Xlogy",
            "Xdivy",
            "SigmoidCrossEntropyWithLogits",
            "Complex",
        ),
        *("ReluGrad", "Relu6Grad", "EluGrad", "SigmoidGrad"),
    ),
    (COMPLEXES, COMPLEXES),
    (FLOATS, FOUR_FLOATS),
)
two_operands(("LogicalAnd", "LogicalOr", "LogicalXor"), (INTS, INTS), (BOOLS, FOUR_BOOLS))
two_operands(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), (FLOATS, FLOATS), (INTS, FOUR_INTS))
two_operands(("LeftShift", "RightShift"), (BOOLS, BOOLS), (INTS, FOUR_INTS))

for type, refused in (
    ("Mean", INTS),
    ("Max", COMPLEXES),
    ("Min", COMPLEXES),
    ("Prod", BOOLS),
    ("Any", INTS),
    ("All", INTS),
    ("LogSumExp", COMPLEXES),
    ("Variance", COMPLEXES),
    ("Softmax", COMPLEXES),
    ("LogSoftmax", COMPLEXES),
    ("LayerNorm", COMPLEXES),
    ("ArgMax", COMPLEXES),
    ("ArgMin", COMPLEXES),
    ("Cumsum", BOOLS),
    ("Cumprod", BOOLS),
):
    CASES[type, "C1"] = call(type, refused)
    CASES[type, "C2"] = call(type, BOOLS if type in ("Any", "All") else FLOATS, axis=1)
for type in ("ArgMax", "ArgMin"):
    CASES[type, "C3"] = call(type, FLOATS[:0])
    CASES[type, "C4"] = call(type, FLOATS, output_type="float32")

CASES |= {
    ("AddN", "C1"): call("AddN", []),
    ("AddN", "C2"): call("AddN", [FLOATS, INTS]),
    ("AddN", "C3"): call("AddN", [FLOATS, FLOATS[:1]]),
    ("SelectV2", "C1"): call("SelectV2", INTS, FLOATS, FLOATS),
    ("SelectV2", "C2"): call("SelectV2", BOOLS, FLOATS, FOUR_FLOATS),
    ("ClipByValue", "C1"): call("ClipByValue", FLOATS, INTS, FLOATS),
    ("ClipByValue", "C2"): call("ClipByValue", FLOATS, FOUR_FLOATS, 1.0),
    ("SoftmaxCrossEntropyWithLogits", "C1"): call("SoftmaxCrossEntropyWithLogits", INTS, INTS),
    ("SoftmaxCrossEntropyWithLogits", "C2"): call("SoftmaxCrossEntropyWithLogits", FLOATS, FOUR_FLOATS),
    ("SoftmaxCrossEntropyWithLogits", "C3"): call("SoftmaxCrossEntropyWithLogits", FLOATS, FLOATS, axis=1),
    ("SparseSoftmaxCrossEntropyWithLogits", "C1"): call(
        "SparseSoftmaxCrossEntropyWithLogits", FLOATS, np.ones((3, 2), np.float32)
    ),
    ("SparseSoftmaxCrossEntropyWithLogits", "C2"): call("SparseSoftmaxCrossEntropyWithLogits", INTS, FLOATS),
    ("SparseSoftmaxCrossEntropyWithLogits", "C3"): call(
        "SparseSoftmaxCrossEntropyWithLogits", INTS, np.ones((3, 2), np.int32)
    ),
}
