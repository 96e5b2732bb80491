"""How operations of ours are written: each as a node of TensorFlow's, or as operations that are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.dtypes import DType
from stopgrad.base.errors import EngineError
from stopgrad.graph.graph import Operation, describe
from stopgrad.interop.shared.conversions import brought
from stopgrad.interop.tensorflow.writing.graph_def_nodes import Nodes

Writer = Callable[[Nodes, Operation, list[str]], "str | list[str]"]
"""Writes an operation, given the names of its operands; the names of its results."""


def refused(op: Operation, why: str) -> EngineError:
    """The error about an operation that cannot be written."""
    return EngineError(f"{describe(op)} cannot be written as a node of TensorFlow's: {why}")


# ----------------------------------------------------------------------------------------- one node each


def _plain(name: str = "", **settings: Any) -> Writer:
    """The node of the same name, with the type of the first operand."""

    def write(nodes: Nodes, op: Operation, xs: list[str]) -> str:
        return nodes.add(name or op.type, xs, T=op.inputs[0].dtype, **settings)

    return write


def _turned(name: str = "") -> Writer:
    """As :func:`_plain`, with the two operands in the other order."""
    return lambda nodes, op, xs: _plain(name)(nodes, op, xs[::-1])


def _untyped(name: str = "") -> Writer:
    return lambda nodes, op, xs: nodes.add(name or op.type, xs)


def _reduced(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    axes = nodes.constant(np.array(op.axis, np.int32).reshape(-1))
    typed: dict[str, Any] = {} if op.type in ("All", "Any") else {"T": op.inputs[0].dtype}
    return nodes.add(op.type, [*xs, axes], keep_dims=bool(op.keepdims), Tidx=sg.int32, **typed)


def _best(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    axis = nodes.constant(np.array(op.axis, np.int32))
    kind = op.outputs[0].dtype
    narrow = kind if kind in (sg.int32, sg.int64) else sg.int64
    index = nodes.add(op.type, [*xs, axis], T=op.inputs[0].dtype, Tidx=sg.int32, output_type=narrow)
    return index if narrow is kind else nodes.add("Cast", [index], SrcT=narrow, DstT=kind)


def _running(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    axis = nodes.constant(np.array(op.axis, np.int32))
    settings: dict[str, Any] = {key: bool(getattr(op, key)) for key in ("exclusive", "reverse")}
    return nodes.add(op.type, [*xs, axis], T=op.inputs[0].dtype, Tidx=sg.int32, **settings)


def _cast(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return nodes.add("Cast", xs, SrcT=op.inputs[0].dtype, DstT=op.outputs[0].dtype)


def _shaped(key: str) -> Writer:
    """What takes the sizes of its result."""

    def write(nodes: Nodes, op: Operation, xs: list[str]) -> str:
        sizes = nodes.shape(op.outputs[0].shape)
        kinds: dict[str, Any] = {"T": op.inputs[0].dtype, key: sg.int64}
        return nodes.add(op.type, [*xs, sizes], **kinds)

    return write


def _filled(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    sizes = nodes.shape(op.outputs[0].shape)
    return nodes.add("Fill", [sizes, *xs], T=op.outputs[0].dtype, index_type=sg.int64)


def _tiled(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return nodes.add("Tile", [*xs, nodes.shape(op.multiples)], T=op.inputs[0].dtype, Tmultiples=sg.int64)


def _transposed(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    perm = nodes.constant(np.array(op.perm, np.int32))
    return nodes.add("Transpose", [*xs, perm], T=op.inputs[0].dtype, Tperm=sg.int32)


def _reversed(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    axis = nodes.constant(np.array(op.axis, np.int32).reshape(-1))
    return nodes.add("ReverseV2", [*xs, axis], T=op.inputs[0].dtype, Tidx=sg.int32)


def _joined(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    axis = nodes.constant(np.array(op.axis, np.int32))
    return nodes.add("ConcatV2", [*xs, axis], N=len(xs), T=op.inputs[0].dtype, Tidx=sg.int32)


def _packed(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return nodes.add("Pack", xs, N=len(xs), T=op.inputs[0].dtype, axis=int(op.axis))


def _split(nodes: Nodes, op: Operation, xs: list[str]) -> list[str]:
    axis = nodes.constant(np.array(op.axis, np.int32))
    inputs = [*xs, nodes.shape(op.sizes), axis]
    node = nodes.add("SplitV", inputs, T=op.inputs[0].dtype, Tlen=sg.int64, num_split=len(op.sizes))
    return [node if not i else f"{node}:{i}" for i in range(len(op.sizes))]


def _padded(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    flat = nodes.shape([size for pair in op.paddings for size in pair])
    pair = nodes.constant(np.array([-1, 2], np.int64))
    paddings = nodes.add("Reshape", [flat, pair], T=sg.int64, Tshape=sg.int64)
    return nodes.add("PadV2", [xs[0], paddings, xs[1]], T=op.inputs[0].dtype, Tpaddings=sg.int64)


def _bounds(nodes: Nodes, op: Operation, spans: Sequence[Any]) -> tuple[list[str], int]:
    """The begin, end and strides of spans, and the mask of ends that lie before the first element."""
    begins, ends, steps, mask = [], [], [], 0
    for axis, (first, count, step) in enumerate(spans):
        last = first + count * step if step > 0 else first + (count - 1) * step - 1
        if step < 0 and not isinstance(last, int):
            raise refused(op, "a slice goes backwards over an open size; reverse before")
        if step < 0 and last < 0:
            mask |= 1 << axis
            last = 0
        begins.append(first)
        ends.append(last)
        steps.append(step)
    return [nodes.shape(begins), nodes.shape(ends), nodes.constant(np.array(steps, np.int64))], mask


def _sliced(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    bounds, mask = _bounds(nodes, op, op.spans)
    return nodes.add("StridedSlice", [*xs, *bounds], T=op.inputs[0].dtype, Index=sg.int64, end_mask=mask)


def _slice_gradient(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    bounds, mask = _bounds(nodes, op, op.spans)
    inputs = [nodes.shape(op.outputs[0].shape), *bounds, *xs]
    return nodes.add("StridedSliceGrad", inputs, T=op.inputs[0].dtype, Index=sg.int64, end_mask=mask)


def _gathered(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    axis = nodes.constant(np.array(op.axis, np.int32))
    kinds: dict[str, Any] = {"Tparams": op.inputs[0].dtype, "Tindices": op.inputs[1].dtype, "Taxis": sg.int32}
    return nodes.add("GatherV2", [*xs, axis], batch_dims=int(op.batch_dims), **kinds)


def _scattered(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    if op.axis != 0 or op.batch_dims:
        raise refused(op, "it writes along an axis that is not the first; move the axis before")
    kind = op.inputs[1].dtype
    last = nodes.constant(np.array(-1, np.int32))
    places = nodes.add("ExpandDims", [xs[1], last], T=kind, Tdim=sg.int32)
    return nodes.add(op.type, [xs[0], places, xs[2]], T=op.inputs[0].dtype, Tindices=kind)


def _range(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    kind = op.outputs[0].dtype
    if not kind.is_integer:
        raise refused(op, "a range of floats; make it of integers, and cast")
    ends = [op.start, op.start + op.size * op.delta, op.delta]
    inputs = [scalar(nodes, end, kind) for end in ends]
    return nodes.add("Range", inputs, Tidx=kind)


def scalar(nodes: Nodes, size: Any, kind: DType) -> str:
    """A size as a scalar."""
    if not isinstance(size, sg.Dim):
        return nodes.constant(np.asarray(size, kind.numpy))
    empty = nodes.constant(np.zeros(0, np.int64))
    reshaped = nodes.add("Reshape", [nodes.shape([size]), empty], T=sg.int64, Tshape=sg.int64)
    return reshaped if kind is sg.int64 else nodes.add("Cast", [reshaped], SrcT=sg.int64, DstT=kind)


def _one_hot(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    depth = scalar(nodes, op.depth, sg.int32)
    kinds: dict[str, Any] = {"T": op.inputs[1].dtype, "TI": op.inputs[0].dtype}
    return nodes.add("OneHot", [xs[0], depth, *xs[1:]], axis=int(op.axis), **kinds)


def _top(nodes: Nodes, op: Operation, xs: list[str]) -> list[str]:
    kind = op.outputs[1].dtype
    count = nodes.constant(np.array(op.k, np.int32))
    node = nodes.add("TopKV2", [*xs, count], T=op.inputs[0].dtype)
    places = f"{node}:1"
    return [node, places if kind is sg.int32 else nodes.add("Cast", [places], SrcT=sg.int32, DstT=kind)]


def _added(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return nodes.add("AddN", xs, N=len(xs), T=op.inputs[0].dtype)


def _product(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    kind = op.inputs[0].dtype
    sides = bool(op.transpose_a), bool(op.transpose_b)
    if all(x.ndim == 2 for x in op.inputs):
        return nodes.add("MatMul", xs, T=kind, transpose_a=sides[0], transpose_b=sides[1])
    if kind.is_complex and any(sides):
        raise refused(op, "TensorFlow conjugates where it transposes batches; transpose before")
    return nodes.add("BatchMatMulV2", xs, T=kind, adj_x=sides[0], adj_y=sides[1])


def _einsum(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return nodes.add("Einsum", xs, N=len(xs), T=op.inputs[0].dtype, equation=op.equation)


def _complex(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return nodes.add(op.type, xs, T=op.inputs[0].dtype, Tout=op.outputs[0].dtype)


# ----------------------------------------------------------------------------------------------- windows


def _geometry(op: Operation, rank: int) -> dict[str, Any]:
    """The attributes of a convolution or pooling over the two or three spatial axes."""
    if rank not in (2, 3):
        raise refused(op, "only windows over two or three spatial axes have a node; add an axis of size 1")
    attributes: dict[str, Any] = {
        "strides": [1, *op.strides, 1],
        "data_format": "NHWC" if rank == 2 else "NDHWC",
    }
    if isinstance(op.padding, str):
        return {**attributes, "padding": op.padding}
    if not any(size for pair in op.padding for size in pair):
        return {**attributes, "padding": "VALID"}
    if rank == 3 or not op.type.startswith("Conv"):
        raise refused(op, "padding by numbers; pad before, with sg.pad")
    flat = [0, 0, *[size for pair in op.padding for size in pair], 0, 0]
    return {**attributes, "padding": "EXPLICIT", "explicit_paddings": flat}


def _convolution(name: str) -> Writer:
    def write(nodes: Nodes, op: Operation, xs: list[str]) -> str:
        rank = op.outputs[0].ndim - 2
        settings = {**_geometry(op, rank), "dilations": [1, *op.dilations, 1]}
        kind = op.inputs[0].dtype
        if name == "Filter":
            sizes = nodes.add("Cast", [nodes.shape(op.outputs[0].shape)], SrcT=sg.int64, DstT=sg.int32)
            op_type = "Conv2DBackpropFilter" if rank == 2 else "Conv3DBackpropFilterV2"
            return nodes.add(op_type, [xs[0], sizes, xs[1]], T=kind, **settings)
        if name == "Input":
            sizes = nodes.add("Cast", [nodes.shape(op.outputs[0].shape)], SrcT=sg.int64, DstT=sg.int32)
            op_type = "Conv2DBackpropInput" if rank == 2 else "Conv3DBackpropInputV2"
            return nodes.add(op_type, [sizes, *xs], T=kind, **settings)
        return nodes.add(f"Conv{rank}D", xs, T=kind, **settings)

    return write


def _pooling(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return nodes.add(_pool(op), xs, T=op.inputs[0].dtype, **_windows(op))


def _pool(op: Operation) -> str:
    return op.type.removesuffix("Grad") + ("3D" if op.inputs[0].ndim == 5 else "")


def _windows(op: Operation) -> dict[str, Any]:
    if any(size != 1 for size in op.dilations):
        raise refused(op, "dilated pooling")
    return {**_geometry(op, op.inputs[0].ndim - 2), "ksize": [1, *op.ksize, 1]}


def _max_pool_gradient(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    settings = {"T": op.inputs[0].dtype, **_windows(op)}
    pooled = nodes.add(_pool(op), xs[:1], **settings)
    return nodes.add(f"{_pool(op)}Grad", [xs[0], pooled, xs[1]], **settings)


def _average_pool_gradient(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    sizes = nodes.add("Cast", [nodes.shape(op.outputs[0].shape)], SrcT=sg.int64, DstT=sg.int32)
    return nodes.add(f"{_pool(op)}Grad", [sizes, *xs], T=op.inputs[0].dtype, **_windows(op))


def _along_last(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    """Softmax, which TensorFlow has along the last axis."""
    x, kind = op.inputs[0], op.inputs[0].dtype
    axes = [op.axis] if isinstance(op.axis, int) else list(op.axis)
    if len(axes) != 1:
        raise refused(op, "it goes over several axes; reshape them into one before")
    axis = axes[0] % x.ndim
    if axis == x.ndim - 1:
        return nodes.add(op.type, xs, T=kind)
    perm = [i for i in range(x.ndim) if i != axis] + [axis]
    back = nodes.constant(np.argsort(perm).astype(np.int32))
    to = nodes.constant(np.array(perm, np.int32))
    turned = nodes.add("Transpose", [*xs, to], T=kind, Tperm=sg.int32)
    softmax = nodes.add(op.type, [turned], T=kind)
    return nodes.add("Transpose", [softmax, back], T=kind, Tperm=sg.int32)


def _size(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return scalar(nodes, op.size, op.outputs[0].dtype)


def _prevented(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return nodes.add("PreventGradient", xs, T=op.inputs[0].dtype, message=op.message)


def _constant(nodes: Nodes, op: Operation, xs: list[str]) -> str:
    return nodes.constant(op.value.array)


_SAME_TYPE = """
Abs Acos Acosh AddV2 Asin Asinh Atan Atan2 Atanh BesselI0 BesselI0e BesselI1 BesselI1e Betainc BitwiseAnd
BitwiseOr BitwiseXor Ceil Cholesky ClipByValue Conj Cos Cosh Digamma Elu Equal Erf Erfc Erfinv Exp Expm1 Floor
FloorDiv FloorMod Greater GreaterEqual Identity Igamma Igammac Invert IsFinite IsInf IsNan LeftShift Less
LessEqual Lgamma Log Log1p MatrixDeterminant MatrixInverse Maximum Minimum Mul MulNoNan Ndtri Neg NextAfter
NotEqual Pow RealDiv Reciprocal ReciprocalGrad Relu Relu6 RightShift Round Rsqrt RsqrtGrad Sigmoid SigmoidGrad
Sign Sin Sinh Softplus Softsign Sqrt SqrtGrad Square SquaredDifference StopGradient Sub Tan Tanh TanhGrad
TruncateMod Xdivy Xlogy
"""

WRITERS: dict[str, Writer] = {
    **dict.fromkeys(_SAME_TYPE.split(), _plain()),
    **dict.fromkeys(("EluGrad", "ReluGrad", "Relu6Grad"), _turned()),
    **dict.fromkeys(("LogicalAnd", "LogicalNot", "LogicalOr"), _untyped()),
    **dict.fromkeys(("Sum", "Mean", "Max", "Min", "Prod", "All", "Any"), _reduced),
    **dict.fromkeys(("ArgMax", "ArgMin"), _best),
    **dict.fromkeys(("Cumsum", "Cumprod"), _running),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _along_last),
    **dict.fromkeys(("MaxPool", "AvgPool"), _pooling),
    **dict.fromkeys(("Complex", "Real", "Imag"), _complex),
    "Named": _plain("Identity"),
    "Ensure": _plain("Identity"),  # What asks for it makes it visible in the result, as on XLA.
    "AddN": _added,
    "Cast": _cast,
    "Const": _constant,
    "Reshape": _shaped("Tshape"),
    "BroadcastTo": _shaped("Tidx"),
    "Fill": _filled,
    "Tile": _tiled,
    "Transpose": _transposed,
    "ReverseV2": _reversed,
    "ConcatV2": _joined,
    "Pack": _packed,
    "Split": _split,
    "PadV2": _padded,
    "StridedSlice": _sliced,
    "StridedSliceGrad": _slice_gradient,
    "GatherV2": _gathered,
    **dict.fromkeys((f"TensorScatter{x}" for x in ("Add", "Max", "Min", "Update")), _scattered),
    "Range": _range,
    "Size": _size,
    "OneHot": _one_hot,
    "TopKV2": _top,
    "SelectV2": lambda nodes, op, xs: nodes.add("SelectV2", xs, T=op.inputs[1].dtype),
    "LeakyRelu": lambda nodes, op, xs: _plain(alpha=float(op.alpha))(nodes, op, xs),
    "MatMul": _product,
    "Einsum": _einsum,
    "Conv": _convolution(""),
    "ConvBackpropInput": _convolution("Input"),
    "ConvBackpropFilter": _convolution("Filter"),
    "MaxPoolGrad": _max_pool_gradient,
    "AvgPoolGrad": _average_pool_gradient,
    "PreventGradient": _prevented,
}


# ------------------------------------------------------------------------------------- of other operations


def _cross_entropy(labels: Any, logits: Any, axis: Any) -> Any:
    return sg.negative(sg.reduce_sum(labels * sg.nn.log_softmax(logits, axis), axis))


def _raveled(*indices: Any, sizes: Sequence[Any], dtype: Any) -> Any:
    number: Any = sg.constant(0, dtype)
    inside: Any = sg.constant(True)
    for index, size in zip(indices, sizes, strict=True):
        whole = brought(size, dtype, index)
        i = sg.cast(index, dtype)
        i = sg.where(i < 0, i + whole, i)
        number = number * whole + i
        inside = sg.logical_and(inside, sg.logical_and(i >= 0, i < whole))
    return sg.where(inside, number, sg.constant(-1, dtype))


OTHERS: dict[str, Callable[..., Any]] = {
    "RavelMultiIndex": _raveled,
    "Silu": lambda x: x * sg.sigmoid(x),
    "Exp2": lambda x: sg.exp(x * float(np.log(2.0))),
    "Log2": lambda x: sg.log(x) / float(np.log(2.0)),
    "Log10": lambda x: sg.log(x) / float(np.log(10.0)),
    "LogSigmoid": lambda x: sg.negative(sg.softplus(sg.negative(x))),
    "LogicalXor": lambda x, y: sg.not_equal(sg.cast(x, sg.int32), sg.cast(y, sg.int32)),
    "Trunc": lambda x: sg.sign(x) * sg.floor(sg.abs(x)),
    "LogAddExp": lambda x, y: sg.maximum(x, y) + sg.log1p(sg.exp(sg.negative(sg.abs(x - y)))),
    "Hypot": lambda x, y: sg.sqrt(x * x + y * y),
    "Gelu": lambda x, approximate: (
        0.5 * x * (1.0 + sg.tanh(float(np.sqrt(2.0 / np.pi)) * (x + 0.044715 * x * x * x)))
        if approximate
        else 0.5 * x * sg.erfc(x * float(-np.sqrt(0.5)))
    ),
    "Variance": lambda x, axis, keepdims: sg.reduce_mean(
        sg.square(x - sg.reduce_mean(x, axis, keepdims=True)), axis, keepdims=keepdims
    ),
}
"""Operations that TensorFlow has no node for, as others."""

CURES = {
    "StraightThrough": "write soft + sg.stop_gradient(hard - soft)",
    "ScaleGradient": "write s * x + sg.stop_gradient(x - s * x)",
    "ZeroGradient": "write sg.stop_gradient(x)",
    "StopGradientWhen": "write sg.where(when, sg.stop_gradient(x), x)",
    "StopGradientTowards": "save the gradient itself, sg.gradients(...), or a graph for each parameter",
    "ClipGradient": "save the gradient itself, sg.gradients(...), in which the gate has acted",
    "ClipGradientByNorm": "save the gradient itself, sg.gradients(...), in which the gate has acted",
    "CustomGradient": "save the gradient itself, sg.gradients(...), in which the gate has acted",
    "Probe": "leave the probe out",
    "ForeignStop": "write sg.stop_gradient(x)",
}
"""Gates that a ``GraphDef`` cannot express, and what to do instead."""
