"""For which element types the CPU provider of the installed onnxruntime runs each operator that we write.

``python tests/helpers/onnx_kernels.py`` tries models of one node and prints the table of
``stopgrad.engines.onnxruntime.nodes.kernels``; the test of that table (test_onnx_kernels.py) runs the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

OPSETS = (18, 21, 26)
CODES: dict[str, tuple[int, Any]] = {
    "e": (TensorProto.FLOAT16, np.float16),
    "E": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "f": (TensorProto.FLOAT, np.float32),
    "d": (TensorProto.DOUBLE, np.float64),
    "b": (TensorProto.INT8, np.int8),
    "h": (TensorProto.INT16, np.int16),
    "i": (TensorProto.INT32, np.int32),
    "l": (TensorProto.INT64, np.int64),
    "B": (TensorProto.UINT8, np.uint8),
    "H": (TensorProto.UINT16, np.uint16),
    "I": (TensorProto.UINT32, np.uint32),
    "L": (TensorProto.UINT64, np.uint64),
    "?": (TensorProto.BOOL, np.bool_),
}
"""The letters of NumPy for element types; bfloat16 is E."""


@dataclass
class Trial:
    """A node to try.

    ``inputs`` are shapes of operands of the type that is tried, arrays (fed as they are) or None; ``outputs``
    are types: "T" for the one that is tried.
    """

    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ("T",)
    since: int = 18


def array(value: Any, dtype: Any = np.int64) -> Any:
    return np.asarray(value, dtype)


UNARY = (
    *("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Erf"),
    *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"),
    *("Sigmoid", "Relu", "Softplus", "Softsign", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Mish"),
    *("LeakyRelu", "ThresholdedRelu", "Identity", "Not", "BitwiseNot", "Det", "NonZero", "Size", "Shape"),
    *("IsNaN", "IsInf", "Gelu", "Swish"),
)
RESULT = {"IsNaN": "?", "IsInf": "?", "NonZero": "l", "Size": "l", "Shape": "l"}
SINCE = {"Gelu": 20, "Swish": 24}
BINARY = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "PRelu"), "T"),
    **dict.fromkeys(("And", "Or", "Xor"), "?"),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), "T"),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), "?"),
}
REDUCTIONS = ("Sum", "Prod", "Max", "Min", "Mean", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
ONES = array([[1, 1], [1, 1]])
POOL = {"kernel_shape": [2]}


def _trials() -> Iterator[tuple[str, Trial]]:
    for name in UNARY:
        yield (
            name,
            Trial([(2, 2)], outputs=[RESULT.get(name, "T")], since=SINCE.get(name, 18)),
        )
    for name, result in BINARY.items():
        yield name, Trial([(2, 2), (2, 2)], outputs=[result])
    yield "Mod[fmod]", Trial([(2, 2), (2, 2)], {"fmod": 1})
    yield "BitShift[LEFT]", Trial([(2, 2), (2, 2)], {"direction": "LEFT"})
    yield "BitShift[RIGHT]", Trial([(2, 2), (2, 2)], {"direction": "RIGHT"})
    for name in REDUCTIONS:
        yield f"Reduce{name}", Trial([(2, 2), array([1])])
    yield "Sum", Trial([(2, 2), (2, 2), (2, 2)])
    yield "Where", Trial([array([[True], [False]], bool), (2, 2), (2, 2)])
    yield "Clip", Trial([(2, 2), (), ()])
    yield "Concat", Trial([(2, 2), (2, 2)], {"axis": 0})
    yield "Split", Trial([(2, 2)], {"axis": 0, "num_outputs": 2}, ["T", "T"])
    yield "Gather", Trial([(2, 2), array([0, 1])], {"axis": 1})
    yield "GatherElements", Trial([(2, 2), array([[0, 1]])], {"axis": 0})
    yield "GatherND", Trial([(2, 2), array([[0, 1]])])
    for how in ("none", "add", "mul", "max", "min"):
        yield (
            f"ScatterElements[{how}]",
            Trial([(2, 2), array([[0, 1]]), (1, 2)], {"axis": 0, "reduction": how}),
        )
        yield f"ScatterND[{how}]", Trial([(2, 2), array([[0, 1]]), (1,)], {"reduction": how})
    yield "Slice", Trial([(2, 2), array([0]), array([1]), array([1]), array([1])])
    for how in ("constant", "edge", "reflect", "wrap"):
        since = 19 if how == "wrap" else 18
        yield f"Pad[{how}]", Trial([(2, 2), array([1, 1, 1, 1])], {"mode": how}, since=since)
    yield "Tile", Trial([(2, 2), array([2, 1])])
    yield "Expand", Trial([(1, 2), array([3, 2])])
    yield "Transpose", Trial([(2, 2)], {"perm": [1, 0]})
    yield "Reshape", Trial([(2, 2), array([4])])
    yield "Squeeze", Trial([(1, 2), array([0])])
    yield "Unsqueeze", Trial([(1, 2), array([0])])
    yield "Flatten", Trial([(2, 2)])
    for name in ("ArgMax", "ArgMin"):
        yield name, Trial([(2, 2)], {"axis": 0}, ["l"])
    yield "TopK", Trial([(2, 2), array([1])], {}, ["T", "l"])
    yield "TopK[smallest]", Trial([(2, 2), array([1])], {"largest": 0}, ["T", "l"])
    yield "CumSum", Trial([(2, 2), array(0)])
    yield "CumProd", Trial([(2, 2), array(0)], since=26)
    yield "MatMul", Trial([(2, 2), (2, 2)])
    yield "Gemm", Trial([(2, 2), (2, 2), (2,)])
    yield "Einsum", Trial([(2, 2), (2, 2)], {"equation": "ij,jk->ik"})
    yield "Conv", Trial([(1, 2, 3), (2, 2, 2)])
    yield "Conv[2]", Trial([(1, 2, 3, 3), (2, 2, 2, 2)])
    yield "Conv[3]", Trial([(1, 2, 3, 3, 3), (2, 2, 2, 2, 2)])
    yield "ConvTranspose", Trial([(1, 2, 3), (2, 2, 2)])
    yield "MaxPool", Trial([(1, 2, 3)], POOL)
    yield "AveragePool", Trial([(1, 2, 3)], POOL)
    yield "LpPool", Trial([(1, 2, 3)], POOL)
    for name in ("GlobalAveragePool", "GlobalMaxPool"):
        yield name, Trial([(1, 2, 3)])
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        yield name, Trial([(2, 2)], {"axis": -1})
    yield "LayerNormalization", Trial([(2, 2), (2,), (2,)])
    yield "RMSNormalization", Trial([(2, 2), (2,)], since=23)
    yield "BatchNormalization", Trial([(2, 2, 2), (2,), (2,), (2,), (2,)])
    yield "InstanceNormalization", Trial([(2, 2, 2), (2,), (2,)])
    yield "GroupNormalization", Trial([(2, 2, 2), (2,), (2,)], {"num_groups": 1}, since=21)
    yield "LRN", Trial([(2, 2, 2, 2)], {"size": 1})
    yield "Attention", Trial([(1, 2, 2, 2)] * 3, since=23)
    yield "OneHot", Trial([array([0, 1]), array(2), (2,)])
    yield "Range", Trial([(), (), ()])
    yield "Trilu", Trial([(2, 2)])
    yield "EyeLike", Trial([(2, 2)])
    yield "ConstantOfShape", Trial([array([2])], {"value": "T"})
    yield "Unique", Trial([(4,)], {"sorted": 1}, ["T", "l", "l", "l"])
    yield "Compress", Trial([(2, 2), array([True, False], bool)], {"axis": 0})
    yield "ReverseSequence", Trial([(2, 2), array([1, 2])], {"batch_axis": 1, "time_axis": 0})
    yield "DFT", Trial([(1, 4, 1)], {}, since=20)
    yield "DFT[inverse]", Trial([(1, 4, 2)], {"inverse": 1}, since=20)
    yield "Resize", Trial([(1, 1, 2), None, array([1, 1, 2], np.float32)], {"mode": "nearest"})
    yield "Resize[linear]", Trial([(1, 1, 2), None, array([1, 1, 2], np.float32)], {"mode": "linear"})
    yield "GridSample", Trial([(1, 1, 2, 2), array(np.zeros((1, 1, 1, 2)), np.float32)])
    yield "DepthToSpace", Trial([(1, 4, 1, 1)], {"blocksize": 2})
    yield "SpaceToDepth", Trial([(1, 1, 2, 2)], {"blocksize": 2})
    yield "NegativeLogLikelihoodLoss", Trial([(2, 2), array([0, 1])], {"reduction": "none"})
    yield "SoftmaxCrossEntropyLoss", Trial([(2, 2), array([0, 1])], {"reduction": "none"})
    yield "Dropout", Trial([(2, 2)])
    yield "TensorScatter", Trial([(1, 2, 2, 2), (1, 2, 1, 2), array([0])], since=24)
    yield "If", Trial([array(True, bool), (2, 2)])
    yield "Loop", Trial([array(2), array(True, bool), (2, 2)])
    yield "Scan", Trial([(2,), (2, 2)], {}, ["T", "T"])
    for target, (code, _) in CODES.items():
        yield f"Cast[{target}]", Trial([(2, 2)], {"to": code}, [target])
    yield "BitCast", Trial([(2, 2)], {"to": "T"}, ["T"], since=26)


TRIALS = dict(_trials())


def _body(name: str, code: int) -> dict[str, Any]:
    """The bodies of a node for control flow, which hand their values on."""
    scalar = helper.make_tensor_value_info
    same = helper.make_node("Identity", ["x"], ["y"])
    if name == "If":
        outer = helper.make_graph(
            [helper.make_node("Identity", ["i1"], ["z"])], "b", [], [scalar("z", code, None)]
        )
        return {"then_branch": outer, "else_branch": outer}
    if name == "Loop":
        keep = helper.make_node("Identity", ["c"], ["d"])
        inputs = [scalar("n", 7, []), scalar("c", 9, []), scalar("x", code, None)]
        graph = helper.make_graph([keep, same], "b", inputs, [scalar("d", 9, []), scalar("y", code, None)])
        return {"body": graph}
    second = helper.make_node("Identity", ["u"], ["v"])
    graph = helper.make_graph(
        [same, second],
        "b",
        [scalar("x", code, [2]), scalar("u", code, [2])],
        [scalar("y", code, [2]), scalar("v", code, [2])],
    )
    return {"body": graph, "num_scan_inputs": 1}


def runs(name: str, letter: str, opset: int) -> bool:
    """Whether onnxruntime runs the operator on operands of a type, the result having the declared types."""
    trial, op_type = TRIALS[name], name.partition("[")[0]
    code, dtype = CODES[letter]
    feeds: dict[str, Any] = {}
    infos, names = [], []
    for i, x in enumerate(trial.inputs):
        if x is None:
            names.append("")
            continue
        own = isinstance(x, tuple)
        kind = code if own else helper.np_dtype_to_tensor_dtype(x.dtype)
        value = np.ones(x, dtype) if own else x
        feeds[f"i{i}"] = value
        infos.append(helper.make_tensor_value_info(f"i{i}", kind, list(value.shape)))
        names.append(f"i{i}")
    if op_type == "If":
        names = names[:1]
    attributes = dict(trial.attributes)
    if attributes.get("value") == "T":
        attributes["value"] = helper.make_tensor("v", code, [1], [1])
    if attributes.get("to") == "T":
        attributes["to"] = code
    if op_type in ("If", "Loop", "Scan"):
        attributes |= _body(op_type, code)
    results = [CODES[letter if t == "T" else t] for t in trial.outputs]
    node = helper.make_node(op_type, names, [f"o{i}" for i in range(len(results))], **attributes)
    outs = [helper.make_tensor_value_info(f"o{i}", kind, None) for i, (kind, _) in enumerate(results)]
    graph = helper.make_graph([node], "g", infos, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        values = {
            name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value, kind_of(value))
            for name, value in feeds.items()
        }
        session.run_with_ort_values(None, values)
    except Exception:
        return False
    return True


def kind_of(value: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(value.dtype))


def types_of(name: str, opsets: Sequence[int] = OPSETS) -> str:
    """The letters of the types that run at all given opsets that have the operator."""
    tried = [opset for opset in opsets if opset >= TRIALS[name].since]
    return "".join(letter for letter in CODES if tried and all(runs(name, letter, o) for o in tried))


if __name__ == "__main__":
    print(f"# onnxruntime {ort.__version__}, onnx {onnx.__version__}, opsets {OPSETS}")
    for wanted in sys.argv[1:] or TRIALS:
        by_opset = {o: types_of(wanted, (o,)) for o in OPSETS if o >= TRIALS[wanted].since}
        print(
            f'    "{wanted}": "{types_of(wanted)}",',
            "" if len(set(by_opset.values())) == 1 else by_opset,
            flush=True,
        )
