"""Nodes of layers for the importer's tests: one operator each, with operands and attributes.

Each is a model of one node. What it computes is compared with onnxruntime, or, where that has no kernel, with
the reference that onnx brings along; its gradients with finite differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, Any]


class Layer(NamedTuple):
    """One node.

    Attributes:
        op: the operator's type, with its domain in front where it has one: ``"com.microsoft::Gelu"``.
        inputs: its operands, arrays or None, in order; floats are of double precision.
        attributes: of the node.
        known: the positions of operands that are initializers.
        outputs: how many results it is asked for.
        opset: of its domain.
        smooth: the positions of operands whose gradients are checked; None for all that hold floats.
        reference: what it is compared with: "runtime", "onnx" or "" for nothing.
        since: the first release of the reference that computes it right; empty for every promised one.
        rtol: of the comparison in single precision.
        double: whether the operator takes double precision, in which gradients are then checked.
    """

    op: str
    inputs: Sequence[Array | None]
    attributes: dict[str, Any] = {}
    known: Sequence[int] = ()
    outputs: int = 1
    opset: int = 21
    smooth: Sequence[int] | None = None
    reference: str = "runtime"
    since: str = ""
    rtol: float = 1e-5
    double: bool = True


def floats(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    """Numbers that are all different, and none near the kinks of layers: 0, 1 and halves."""
    random = np.random.default_rng(seed + sum(shape))
    values = np.linspace(low + 0.013, high - 0.017, int(np.prod(shape)))
    return random.permutation(values).reshape(shape)


def sizes(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def ints(*shape: int, high: int, kind: Any = np.int64, low: int = 0) -> Array:
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(kind)


def is_float(x: Array | None) -> bool:
    """Whether an operand takes part in the model's precision; those of single precision keep it."""
    return x is not None and x.dtype == np.float64


def model_of(layer: Layer, dtype: Any) -> Any:
    """A model of one node whose floats are of this element type."""
    domain, _, op = layer.op.rpartition("::")
    names = ["" if x is None else f"x{i}" for i, x in enumerate(layer.inputs)]
    arrays = [x.astype(dtype) if x is not None and is_float(x) else x for x in layer.inputs]
    node = helper.make_node(
        op, names, [f"y{i}" for i in range(layer.outputs)], "layer", domain=domain, **layer.attributes
    )
    kinds = [None if x is None else helper.np_dtype_to_tensor_dtype(x.dtype) for x in arrays]
    inputs = [
        helper.make_tensor_value_info(name, kind, x.shape)
        for i, (name, kind, x) in enumerate(zip(names, kinds, arrays, strict=True))
        if x is not None and i not in layer.known
    ]
    stored = [
        onnx.numpy_helper.from_array(x, name)
        for i, (name, x) in enumerate(zip(names, arrays, strict=True))
        if x is not None and i in layer.known
    ]
    outputs = [onnx.ValueInfoProto(name=f"y{i}") for i in range(layer.outputs)]
    graph = helper.make_graph([node], "graph", inputs, outputs, stored)
    opsets = [helper.make_opsetid("", 21 if domain else layer.opset)]
    opsets += [helper.make_opsetid(domain, 1)] if domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def fed(layer: Layer, dtype: Any) -> dict[str, Array]:
    """The values of a model's inputs."""
    return {
        f"x{i}": x.astype(dtype) if is_float(x) else x
        for i, x in enumerate(layer.inputs)
        if x is not None and i not in layer.known
    }


X1, X2, X3 = floats(2, 4, 9), floats(2, 4, 7, 6), floats(1, 2, 5, 4, 6)


def _activations() -> dict[str, Layer]:
    x = floats(3, 5)
    plain = ["Relu", "Softplus", "Softsign", "Sigmoid", "Tanh", "HardSwish", "Mish", "Gelu"]
    made = {name: Layer(name, [x], opset=22 if name == "Mish" else 21) for name in plain}
    told: dict[str, dict[str, Any]] = {
        "LeakyRelu": {"alpha": 0.3},
        "Elu": {"alpha": 0.7},
        "Selu": {},
        "Celu": {"alpha": 0.6},
        "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
        "ThresholdedRelu": {"alpha": 0.7},
        "Shrink": {"bias": 0.3, "lambd": 0.6},
        "Softmax": {"axis": 0},
        "LogSoftmax": {},
    }
    made |= {name: Layer(name, [x], told[name]) for name in told}
    made["Celu"] = made["Celu"]._replace(double=False)
    made |= {
        "GeluTanh": Layer("Gelu", [x], {"approximate": "tanh"}),
        "PRelu": Layer("PRelu", [x, floats(5, low=0.1, high=0.9)]),
        "Swish": Layer("Swish", [x], {"alpha": 1.3}, opset=24, reference="onnx"),
        # Its body is of a later opset than the model.
        "ThresholdedReluOld": Layer("ThresholdedRelu", [x], {"alpha": 0.7}, opset=11),
        "CastLike": Layer("CastLike", [x, np.zeros(1, np.float32)]),
        "Clip": Layer("Clip", [x, np.array(-1.1), np.array(0.93)], known=(1, 2)),
        "ClipLow": Layer("Clip", [x, np.array(-1.1)]),
        "Hardmax": Layer("Hardmax", [x], {"axis": 0}, smooth=()),
    }
    return made


def _convolutions() -> dict[str, Layer]:
    w1, w2, w3 = floats(6, 4, 3), floats(6, 4, 3, 2), floats(4, 2, 2, 3, 2)
    t2 = floats(4, 3, 3, 2)
    return {
        "Conv1d": Layer("Conv", [X1, w1, floats(6)], {"pads": [2, 1], "strides": [2]}),
        "Conv2d": Layer("Conv", [X2, w2], {"pads": [1, 0, 2, 1], "dilations": [2, 1]}),
        "ConvGroups": Layer("Conv", [X2, floats(6, 2, 3, 2), floats(6)], {"group": 2, "strides": [2, 1]}),
        "ConvDepthwise": Layer("Conv", [X2, floats(4, 1, 3, 3)], {"group": 4, "auto_pad": "SAME_LOWER"}),
        "ConvSame": Layer("Conv", [X2, w2], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
        "ConvValid": Layer("Conv", [X2, w2], {"auto_pad": "VALID"}),
        "Conv3d": Layer("Conv", [X3, w3], {"pads": [1, 0, 1, 0, 2, 1], "strides": [1, 2, 1]}),
        "ConvTranspose1d": Layer("ConvTranspose", [X1, floats(4, 3, 3), floats(3)], {"strides": [2]}),
        "ConvTranspose2d": Layer(
            "ConvTranspose", [X2, t2], {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 2]}
        ),
        "ConvTransposeShape": Layer(
            "ConvTranspose", [X2, t2], {"strides": [2, 2], "output_shape": [14, 12], "auto_pad": "SAME_UPPER"}
        ),
        "ConvTransposeSame": Layer("ConvTranspose", [X2, t2], {"strides": [2, 1], "auto_pad": "SAME_LOWER"}),
        "ConvTransposeGroups": Layer(
            "ConvTranspose", [X2, floats(4, 3, 2, 2), floats(6)], {"group": 2, "dilations": [2, 1]}
        ),
        "ConvTranspose3d": Layer("ConvTranspose", [X3, floats(2, 2, 2, 1, 2)], {"strides": [2, 1, 1]}),
        "DeformConv": Layer(
            "DeformConv",
            [X2, floats(4, 2, 2, 2), floats(2, 16, 6, 5, low=-0.4, high=0.4), floats(4), floats(2, 8, 6, 5)],
            {"group": 2, "offset_group": 2},
            opset=19,
            reference="onnx",
        ),
        "Col2Im": Layer(
            "Col2Im",
            [floats(1, 8, 9), sizes(5, 6), sizes(2, 2)],
            {"pads": [0, 1, 1, 0], "strides": [2, 2], "dilations": [1, 1]},
            (1, 2),
        ),
    }


def _pooling() -> dict[str, Layer]:
    plane = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    return {
        "MaxPool": Layer("MaxPool", [X2], plane, outputs=2),
        "MaxPoolColumns": Layer("MaxPool", [X2], {**plane, "storage_order": 1}, outputs=2),
        "MaxPool1d": Layer(
            "MaxPool", [X1], {"kernel_shape": [3], "dilations": [2], "strides": [2]}, outputs=2
        ),
        "MaxPool3d": Layer("MaxPool", [X3], {"kernel_shape": [2, 2, 3], "strides": [2, 1, 2]}, outputs=2),
        "MaxPoolCeil": Layer("MaxPool", [X2], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        "MaxPoolSame": Layer("MaxPool", [X2], {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"}),
        "AveragePool": Layer("AveragePool", [X2], plane),
        "AveragePoolAll": Layer("AveragePool", [X2], {**plane, "count_include_pad": 1}),
        "AveragePoolCeil": Layer(
            "AveragePool", [X2], {**plane, "count_include_pad": 1, "ceil_mode": 1, "strides": [3, 3]}
        ),
        "AveragePoolDilated": Layer("AveragePool", [X2], {"kernel_shape": [2, 2], "dilations": [2, 3]}),
        "LpPool": Layer("LpPool", [X2], {**plane, "p": 3}),
        "LpPool2": Layer("LpPool", [X1], {"kernel_shape": [2]}),
        "GlobalAveragePool": Layer("GlobalAveragePool", [X2]),
        "GlobalMaxPool": Layer("GlobalMaxPool", [X3]),
        "GlobalLpPool": Layer("GlobalLpPool", [X2], {"p": 3}),
        "MaxUnpool": Layer(
            "MaxUnpool",
            [floats(1, 2, 2, 2), np.array([[[[0, 3], [9, 10]], [[16, 19], [24, 31]]]])],
            {"kernel_shape": [2, 2], "strides": [2, 2]},
        ),
    }


def _normalizations() -> dict[str, Layer]:
    scale, bias = floats(4), floats(4, seed=1)
    moving = [X2, scale, bias, floats(4, seed=2), floats(4, low=0.4, high=2.0)]
    return {
        "BatchNormalization": Layer("BatchNormalization", moving, {"epsilon": 1e-3}),
        "BatchNormalizationTraining": Layer(
            "BatchNormalization", moving, {"training_mode": 1, "momentum": 0.7}, outputs=3, smooth=(0, 1, 2)
        ),
        "InstanceNormalization": Layer("InstanceNormalization", [X2, scale, bias]),
        "LayerNormalization": Layer(
            "LayerNormalization", [X1, floats(4, 9), floats(4, 9, seed=1)], {"axis": 1}, outputs=3
        ),
        "GroupNormalization": Layer("GroupNormalization", [X2, scale, bias], {"num_groups": 2}),
        "GroupNormalization18": Layer(
            "GroupNormalization", [X2, floats(2), floats(2, seed=1)], {"num_groups": 2}, opset=18
        ),
        "RMSNormalization": Layer("RMSNormalization", [X1, floats(9)], opset=23),
        "LpNormalization": Layer("LpNormalization", [X1], {"axis": 1}),
        "LpNormalization1": Layer("LpNormalization", [X1], {"p": 1}),
        "MeanVarianceNormalization": Layer("MeanVarianceNormalization", [X2]),
        "LRN": Layer("LRN", [X2], {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 1.2}),
        # onnxruntime takes odd sizes alone, and the reference confuses batch and channels.
        "LRNEven": Layer("LRN", [X2], {"size": 2, "alpha": 0.3}, reference=""),
        "Dropout": Layer("Dropout", [X1, np.array(0.3), np.array(False)], known=(1, 2), outputs=2),
    }


def _recurrent() -> dict[str, Layer]:
    x, rows = floats(5, 2, 3, low=-1, high=1), 4

    def weights(gates: int, directions: int = 1) -> list[Array]:
        shapes = ((gates * rows, 3), (gates * rows, rows), (2 * gates * rows,))
        return [floats(directions, *shape, seed=i, low=-1, high=1) for i, shape in enumerate(shapes)]

    def state(directions: int = 1, seed: int = 0) -> Array:
        return floats(directions, 2, rows, seed=seed, low=-1, high=1)

    lengths = np.array([5, 3], np.int32)
    two = {"direction": "bidirectional", "hidden_size": rows}
    one = {"hidden_size": rows}
    peepholes = floats(1, 3 * rows, low=-0.5, high=0.5)
    hard = ["HardSigmoid", "ScaledTanh", "Softsign"]
    scaled = {"activation_alpha": [0.3, 1.4], "activation_beta": [0.45, 0.7]}
    return {
        "RNN": Layer("RNN", [x, *weights(1), None, state()], one, outputs=2),
        "RNNBoth": Layer(
            "RNN",
            [x, *weights(1, 2), lengths],
            {**two, "activations": ["Affine", "LeakyRelu"], "activation_alpha": [0.5, 0.2]}
            | {"activation_beta": [0.1]},
            outputs=2,
        ),
        "GRU": Layer("GRU", [x, *weights(3), None, state()], one, outputs=2),
        "GRUReset": Layer("GRU", [x, *weights(3, 2), lengths], {**two, "linear_before_reset": 1}, outputs=2),
        "GRUBack": Layer(
            "GRU", [x, *weights(3), lengths], {**one, "direction": "reverse", "clip": 0.4}, outputs=2
        ),
        "LSTM": Layer("LSTM", [x, *weights(4), None, state(), state(seed=1)], one, outputs=3),
        "LSTMBoth": Layer("LSTM", [x, *weights(4, 2), lengths, state(2), state(2, 1)], two, outputs=3),
        "LSTMPeepholes": Layer("LSTM", [x, *weights(4), lengths, None, None, peepholes], one, outputs=3),
        "LSTMCoupled": Layer("LSTM", [x, *weights(4)], {**one, "input_forget": 1}, outputs=3),
        "LSTMFunctions": Layer("LSTM", [x, *weights(4)], {**one, "activations": hard, **scaled}, outputs=3),
        "LSTMBatchFirst": Layer(
            "LSTM",
            [x.swapaxes(0, 1), *weights(4)],
            {**one, "layout": 1},
            outputs=3,
            reference="onnx",
            since="1.23",  # Before, it takes the number of times for the size of the batch.
        ),
    }


def _attention() -> dict[str, Layer]:
    q, k, v = floats(2, 4, 3, 8), floats(2, 2, 5, 8, seed=1), floats(2, 2, 5, 6, seed=2)
    flat = [floats(2, 3, 32), floats(2, 5, 16, seed=1), floats(2, 5, 12, seed=2)]
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    past = [floats(2, 2, 2, 8, seed=3), floats(2, 2, 2, 6, seed=4)]
    seen = np.random.default_rng(0).random((3, 5)) > 0.3
    told: dict[str, Any] = {"opset": 23, "reference": "onnx"}
    single = {**told, "double": False}
    mask = floats(2, 1, 3, 7, seed=5)
    cached = {"is_causal": 1, "softcap": 2.0, "qk_matmul_output_mode": 1}
    places = ints(2, 3, high=6)
    return {
        "Attention": Layer("Attention", [q, k, v], {"scale": 0.4}, **told),
        "AttentionMask": Layer("Attention", [*flat, seen], heads, **told),
        # Before 1.22, it adds the mask before the softcap.
        "AttentionCache": Layer("Attention", [q, k, v, mask, *past], cached, outputs=4, since="1.22", **told),
        "AttentionWeights": Layer("Attention", [q, k, v], {"qk_matmul_output_mode": 3}, outputs=4, **told),
        "RotaryEmbedding": Layer(
            "RotaryEmbedding", [floats(2, 4, 3, 8), floats(6, 4), floats(6, 4, seed=1), places], **single
        ),
        "RotaryEmbeddingPart": Layer(
            "RotaryEmbedding",
            [floats(2, 3, 32), floats(2, 3, 2), floats(2, 3, 2, seed=1)],
            {"num_heads": 4, "rotary_embedding_dim": 4, "interleaved": 1},
            **single,
        ),
    }


def _losses() -> dict[str, Layer]:
    scores, labels = floats(3, 5, 4), ints(3, 4, high=5)
    weights = floats(5, low=0.2, high=1.5)
    ignored = {"ignore_index": 2}
    loss, nll = "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"
    return {
        "SoftmaxCrossEntropy": Layer(loss, [floats(4, 5), ints(4, high=5)], smooth=(0,)),
        "SoftmaxCrossEntropyWeighted": Layer(
            loss, [scores, labels, weights], ignored, outputs=2, smooth=(0,)
        ),
        "SoftmaxCrossEntropyNone": Layer(loss, [scores, labels, weights], {"reduction": "none", **ignored}),
        "NegativeLogLikelihood": Layer(nll, [scores, labels], {"reduction": "sum"}, reference="onnx"),
        "NegativeLogLikelihoodWeighted": Layer(nll, [scores, labels, weights], ignored, reference="onnx"),
    }


def _images() -> dict[str, Layer]:
    def resized(mode: str, size: Sequence[int] = (2, 4, 5, 11), **attributes: Any) -> Layer:
        return Layer("Resize", [X2, None, None, sizes(*size)], {"mode": mode, **attributes}, (3,))

    def times(nearest: str, *scales: float) -> Layer:
        how = {"mode": "nearest", "nearest_mode": nearest, "coordinate_transformation_mode": "asymmetric"}
        return Layer("Resize", [X2, None, np.array([1, 1, *scales], np.float32)], how, (2,))

    grid = floats(2, 4, 3, 2, low=-1.2, high=1.2)
    cube = floats(1, 2, 3, 2, 3, low=-1.1, high=1.1)
    rois = np.array([[0.3, 0.4, 4.2, 5.1], [1.1, 0.7, 3.3, 4.9]])
    regions = np.array([[0, 0, 0, 3, 4], [1, 1, 2, 5, 6.0]])
    made = {
        "ResizeLinear": resized("linear"),
        "ResizeAlign": resized("linear", coordinate_transformation_mode="align_corners"),
        "ResizeCubic": resized("cubic", cubic_coeff_a=-0.5, exclude_outside=1),
        "ResizeSmooth": resized("linear", antialias=1, size=(2, 4, 3, 4)),
        "ResizeSmoothCubic": resized("cubic", antialias=1, size=(2, 4, 3, 4)),
        "ResizeNearest": resized("nearest", nearest_mode="ceil", coordinate_transformation_mode="asymmetric"),
        "ResizeTwice": times("floor", 2, 3),
        "ResizeTwiceCeil": times("ceil", 2, 3),
        "ResizeHalf": times("floor", 0.5, 1 / 3),
        "ResizeScales": Layer(
            "Resize", [X2, None, np.array([1, 1, 1.7, 0.6], np.float32)], {"mode": "linear"}, (2,)
        ),
        "GridSample": Layer("GridSample", [X2, grid], {"padding_mode": "zeros"}, opset=20),
        "GridSampleBorder": Layer(
            "GridSample", [X2, grid], {"padding_mode": "border", "align_corners": 1}, opset=20
        ),
        "GridSampleReflect": Layer("GridSample", [X2, grid], {"padding_mode": "reflection"}, opset=20),
        "GridSampleCubic": Layer("GridSample", [X2, grid], {"mode": "cubic"}, opset=20),
        "GridSample3d": Layer("GridSample", [X3, cube[..., [0, 1, 2]]], opset=20),
        "AffineGrid": Layer("AffineGrid", [floats(2, 2, 3), sizes(2, 1, 3, 4)], known=(1,), opset=20),
        "RoiAlign": Layer(
            "RoiAlign",
            [X2, rois, sizes(0, 1)],
            {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.8},
        ),
        "RoiAlignAdaptive": Layer(
            "RoiAlign", [X2, rois, sizes(0, 1)], {"output_height": 2, "output_width": 2}, (1,)
        ),
        "RoiAlignMax": Layer(
            "RoiAlign", [X2, rois, sizes(1, 1)], {"output_height": 2, "sampling_ratio": 2, "mode": "max"}
        ),
        "MaxRoiPool": Layer("MaxRoiPool", [X2, regions], {"pooled_shape": [2, 2]}, (1,)),
        "CenterCropPad": Layer("CenterCropPad", [X2, sizes(5, 9)], {"axes": [2, 3]}, (1,)),
        "CenterCropPadAll": Layer("CenterCropPad", [floats(4, 7), sizes(6, 0)], known=(1,)),
    }
    return made


def _signals() -> dict[str, Layer]:
    pairs = floats(2, 8, 3, 2)
    return {
        "DFT": Layer("DFT", [pairs, None, np.array(1)], known=(2,), opset=20),
        "DFTReal": Layer("DFT", [floats(2, 8, 1), sizes(6).reshape(())], {"onesided": 1}, (1,), opset=20),
        "DFTInverse": Layer("DFT", [pairs], {"inverse": 1, "axis": 1}, opset=17),
        "STFT": Layer("STFT", [floats(2, 16, 1), np.array(3), floats(6)], known=(1,), opset=17),
        "HannWindow": Layer("HannWindow", [np.array(9)], {"periodic": 0}, (0,)),
        "BlackmanWindow": Layer("BlackmanWindow", [np.array(9)], known=(0,)),
    }


def _quantized() -> dict[str, Layer]:
    x, bytes_ = floats(3, 4, low=-30, high=30), np.uint8
    small = ints(3, 4, high=255, kind=bytes_)
    scale, zero = np.array(0.37), np.array(117, bytes_)
    image, window = (
        ints(1, 2, 5, 5, high=255, kind=bytes_),
        ints(3, 2, 2, 2, high=120, low=-120, kind=np.int8),
    )
    scales, zeros = floats(3, low=0.01, high=0.04), ints(3, high=9, kind=np.int8)
    return {
        "QuantizeLinear": Layer("QuantizeLinear", [x, scale, zero], smooth=()),
        "QuantizeAxis": Layer("QuantizeLinear", [x, floats(4, low=0.2, high=1.0)], {"axis": 1}, smooth=()),
        "DequantizeLinear": Layer("DequantizeLinear", [small, scale, zero], smooth=(1,), double=False),
        "DequantizeBlocks": Layer(
            "DequantizeLinear", [small, floats(3, 2)], {"axis": 1, "block_size": 2}, smooth=(1,), double=False
        ),
        "DynamicQuantizeLinear": Layer("DynamicQuantizeLinear", [x], outputs=3, smooth=()),
        "MatMulInteger": Layer("MatMulInteger", [small, small.T, zero], smooth=()),
        "QLinearMatMul": Layer(
            "QLinearMatMul",
            [small, scale, zero, small.T.copy(), scale, zero, np.array(90.0), zero],
            smooth=(),
        ),
        "ConvInteger": Layer("ConvInteger", [image, window.astype(bytes_), zero], smooth=()),
        "QLinearConv": Layer(
            "QLinearConv",
            [
                image,
                np.array(0.02),
                zero,
                window,
                scales,
                0 * zeros,
                np.array(0.5),
                zero,
                ints(3, high=99, kind=np.int32),
            ],
            {"pads": [1, 1, 0, 0]},
            # onnxruntime saturates sums of two products on processors without VNNI.
            reference="onnx",
            smooth=(),
            known=(1, 2, 4, 5, 6, 7),
        ),
    }


def _contrib() -> dict[str, Layer]:
    x, skip, bias = floats(2, 3, 8), floats(2, 3, 8, seed=1), floats(8)
    scale, offset = floats(8, seed=3), floats(8, seed=4)
    q, wide = floats(2, 4, 8), floats(2, 5, 8, seed=1)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    packed, zeros = ints(6, 2, 8, high=255, kind=np.uint8), ints(6, high=255, kind=np.uint8)
    past = floats(2, 2, 2, 2, 4, seed=2)
    projected = [floats(2, 3, 8, low=-1, high=1), floats(8, 24, low=-1, high=1), floats(24)]
    grouped = [floats(1, 5, 64), floats(1, 5, 32), floats(1, 5, 32, seed=1), None, None]
    counts = [np.array([4], np.int32), np.array(5, np.int32)]
    words = [ints(2, 3, high=7, kind=np.int32), ints(2, 3, high=2, kind=np.int32)]
    words += [floats(7, 8), floats(5, 8), floats(2, 8), scale, offset]
    products = [ints(3, 4, high=255, kind=np.uint8), ints(4, 5, high=99, kind=np.uint8), np.array(0.2)]
    products += [floats(5), np.array(7, np.uint8), ints(5, high=9, kind=np.uint8), floats(5, seed=1)]
    table: dict[str, Layer] = {
        "Gelu": Layer("Gelu", [x]),
        "FastGelu": Layer("FastGelu", [x, bias], rtol=1e-4),
        "QuickGelu": Layer("QuickGelu", [x], {"alpha": 1.2}),
        "BiasGelu": Layer("BiasGelu", [x, bias]),
        "FusedMatMul": Layer("FusedMatMul", [x, skip], {"transB": 1, "alpha": 0.3}),
        "FusedMatMulBatch": Layer(
            "FusedMatMul",
            [floats(3, 2, 4), floats(3, 2, 4, seed=1)],
            {"transBatchA": 1, "transBatchB": 1, "transB": 1},
        ),
        "FusedConv": Layer(
            "FusedConv", [X2, floats(3, 4, 2, 2)], {"activation": "LeakyRelu", "activation_params": [0.2]}
        ),
        # Before 1.30, it gives no mean and no deviation.
        "SkipLayerNormalization": Layer(
            "SkipLayerNormalization", [x, skip, scale, offset, bias], outputs=4, since="1.30"
        ),
        "SkipSimplifiedLayerNormalization": Layer(
            "SkipSimplifiedLayerNormalization", [x, skip, scale, bias], {"epsilon": 1e-3}
        ),
        "RotaryEmbedding": Layer(
            "RotaryEmbedding", [floats(2, 3, 16), sizes(2), floats(6, 4), floats(6, 4, seed=1)]
        ),
        "MultiHeadAttention": Layer(
            "MultiHeadAttention", [q, wide, wide * 0.7, floats(24), mask], {"num_heads": 2}
        ),
        "Attention": Layer(
            "Attention",
            [*projected, None, past],
            {"num_heads": 2, "unidirectional": 1},
            outputs=2,
        ),
        "AttentionLengths": Layer(
            "Attention",
            [*projected, np.array([2, 3], np.int32)],
            {"num_heads": 2},
        ),
        "MultiHeadAttentionBias": Layer(
            "MultiHeadAttention",
            [q, wide, wide * 0.7, None, None, floats(1, 2, 4, 7, seed=5), *floats(2, 2, 2, 2, 4, seed=6)],
            {"num_heads": 2, "scale": 0.3},
            outputs=3,
        ),
        "GroupQueryAttention": Layer(
            "GroupQueryAttention",
            [*grouped, *counts, floats(6, 8), floats(6, 8, seed=1)],
            {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 3},
            outputs=3,
        ),
        "EmbedLayerNormalization": Layer(
            "EmbedLayerNormalization",
            [*words, np.array([[1, 1, 0], [1, 1, 1]], np.int32)],
            {"epsilon": 1e-6},
            outputs=3,
        ),
        "MatMulIntegerToFloat": Layer("MatMulIntegerToFloat", products, smooth=()),
        "GroupNorm": Layer(
            "GroupNorm", [floats(2, 3, 3, 8), scale, offset], {"groups": 2, "activation": 1}, reference=""
        ),
        "BiasSplitGelu": Layer("BiasSplitGelu", [x, bias], reference=""),
        "MatMulNBits": Layer(
            "MatMulNBits",
            [floats(3, 30), packed, floats(12), zeros],
            {"N": 6, "K": 30, "bits": 4, "block_size": 16},
            (1, 2, 3),
            rtol=1e-4,
        ),
    }
    table |= _fused()
    made = {name: layer._replace(op=f"com.microsoft::{layer.op}") for name, layer in table.items()}
    return made | {"Simplified": Layer("SimplifiedLayerNormalization", [x, scale])}


def _fused() -> dict[str, Layer]:
    """Layers that optimisers write in place of several; those without a reference are not for processors."""
    x, skip, bias, scale = floats(2, 3, 8), floats(2, 3, 8, seed=1), floats(8), floats(8, seed=3)
    image, kernel = floats(2, 5, 4, 3), floats(6, 2, 2, 3)
    table = floats(2, 3, 3, 8)
    fused = {"activation": "LeakyRelu", "activation_alpha": 0.3}
    return {
        "FusedGemm": Layer(
            "FusedGemm",
            [floats(3, 4), floats(5, 4), floats(5)],
            {"transB": 1, "alpha": 0.7, "beta": 1.3, **fused},
            double=False,
        ),
        "TransposeMatMul": Layer(
            "TransposeMatMul", [floats(2, 4, 3), floats(2, 4, 5)], {"transA": 1, "alpha": 0.4}
        ),
        "BiasAdd": Layer("BiasAdd", [x, bias, skip], reference=""),
        "GemmFastGelu": Layer("GemmFastGelu", [x, floats(8, 5), floats(5)], reference=""),
        "FusedMatMulActivation": Layer(
            "FusedMatMulActivation", [x, skip], {"transB": 1, "alpha": 0.3, **fused}, reference=""
        ),
        "NhwcConv": Layer(
            "NhwcConv", [image, kernel, floats(6)], {"pads": [1, 0, 0, 1], "strides": [2, 1]}, reference=""
        ),
        "SkipGroupNorm": Layer(
            "SkipGroupNorm",
            [table, scale, bias, floats(2, 8), floats(8, seed=5)],
            {"groups": 2, "activation": 1, "channels_last": 1},
            outputs=2,
            reference="",
        ),
        "LayerNormalization": Layer("LayerNormalization", [x, scale, bias], outputs=3, reference=""),
        "SimplifiedLayerNormalization": Layer(
            "SimplifiedLayerNormalization", [x, scale], outputs=2, reference=""
        ),
    }


def _microsoft_quantized() -> dict[str, Layer]:
    """Layers of ``com.microsoft`` on quantised numbers."""
    byte, small = np.uint8, np.int8
    x, y = ints(2, 3, 4, 4, high=255, kind=byte), ints(2, 3, 4, 4, high=250, kind=byte)
    last = ints(2, 4, 4, 3, high=255, kind=byte)
    one, two, zero = (
        [np.array(0.0213), np.array(120, byte)],
        [np.array(0.03), np.array(9, byte)],
        np.array(0, small),
    )
    window = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 0, 0]}
    kernel = ints(3, 3, 2, 2, high=60, low=-60, kind=small)
    convolved = [*one, kernel, np.array(0.01), zero, *two, ints(3, high=99, kind=np.int32)]
    numbers = ints(6, 32, high=255, kind=byte)
    rows, scales = ints(4, high=5), floats(6, 2, low=0.1, high=1.0)
    levels = [floats(3, 32), ints(96, high=255, kind=byte), floats(12, low=0.1, high=1.0)]
    flat = ints(2, 3, 8, high=255, kind=byte)
    projection = [ints(8, 24, high=99, low=-99, kind=small), floats(24), np.array(0.01), np.array(0.02)]
    mask, bit = np.array([[1, 1, 0], [1, 1, 1]], np.int32), np.array(3, byte)
    tables = [ints(n, 8, high=255, kind=byte) for n in (7, 5, 2)] + [ints(8, high=255, kind=byte)] * 2
    words = [ints(2, 3, high=7, kind=np.int32), ints(2, 3, high=2, kind=np.int32)]
    spread = [np.array(0.01), np.array(0.02), np.array(0.03), np.array(0.02), np.array(0.01)]
    points = [np.array(n, byte) for n in (3, 128, 99, 7, 200)]
    table: dict[str, Layer] = {
        "QLinearAveragePool": Layer("QLinearAveragePool", [x, *one, *two], window),
        "QLinearAveragePoolLast": Layer(
            "QLinearAveragePool", [last, *one, *two], {**window, "channels_last": 1, "count_include_pad": 1}
        ),
        "QLinearGlobalAveragePoolLast": Layer(
            "QLinearGlobalAveragePool", [last, *one, *two], {"channels_last": 1}
        ),
        "QLinearSoftmax": Layer(
            "QLinearSoftmax", [x, *one, np.array(1 / 256), np.array(0, byte)], {"axis": 1, "opset": 13}
        ),
        "QLinearSoftmaxOfUnevenSteps": Layer(
            "QLinearSoftmax", [x, *one, np.array(0.0075), np.array(9, byte)], {"axis": 3, "opset": 13}
        ),
        "QLinearWhere": Layer("QLinearWhere", [x > 99, x, *one, y, *two, *one]),
        "NhwcMaxPool": Layer("NhwcMaxPool", [last], window),
        "QLinearConvLast": Layer(
            "QLinearConv", [last, *convolved], {"channels_last": 1, "pads": [1, 1, 0, 0]}, known=range(1, 8)
        ),
        "QLinearConv": Layer("QLinearConv", [x, *convolved], {"strides": [2, 2]}, known=range(1, 8)),
        "GatherBlockQuantized": Layer(
            "GatherBlockQuantized", [numbers, rows, scales], {"bits": 8, "block_size": 16}
        ),
        "GatherBlockQuantized4": Layer(
            "GatherBlockQuantized",
            [numbers, rows, floats(6, 4, low=0.1, high=1.0), ints(6, 2, high=255, kind=byte)],
            {"bits": 4, "block_size": 16},
        ),
        "MatMulBnb4": Layer(
            "MatMulBnb4", levels, {"N": 6, "K": 32, "block_size": 16, "quant_type": 1}, (1, 2)
        ),
        "MatMulBnb4Fp4": Layer(
            "MatMulBnb4", levels, {"N": 6, "K": 32, "block_size": 16, "quant_type": 0}, (1, 2)
        ),
        "QAttention": Layer(
            "QAttention", [flat, *projection, mask, bit, zero], {"num_heads": 2}, known=(1, 3, 4, 6, 7)
        ),
        "QEmbedLayerNormalization": Layer(
            "QEmbedLayerNormalization", [*words, *tables, mask, *spread, *points], outputs=2, rtol=1e-4
        ),
    }
    rows_of, added = ints(5, 4, high=99, low=-99, kind=small), ints(5, high=99, kind=np.int32)
    spreads = [floats(5, low=0.01, high=0.1), ints(5, high=5, kind=small), floats(5, seed=1)]
    table |= {
        "QuantizeLinear": Layer(
            "QuantizeLinear", [floats(3, 4, low=-30, high=30), np.array(0.37), np.array(117, byte)]
        ),
        "DequantizeLinear": Layer("DequantizeLinear", [y, *two]),
        "QGemm": Layer(
            "QGemm",
            [ints(3, 4, high=255, kind=byte), *one, rows_of, np.array(0.01), zero, added, *two],
            {"transB": 1, "alpha": 0.5},
            known=range(1, 9),
        ),
        "QLinearAdd": Layer("QLinearAdd", [x, *one, y, *two, *two]),
        "QLinearMul": Layer("QLinearMul", [x, *one, y, *two, *two]),
        "QLinearSigmoid": Layer(
            "QLinearSigmoid", [x, *one, np.array(1 / 256), np.array(0, byte)], known=range(1, 5)
        ),
        "QLinearLeakyRelu": Layer("QLinearLeakyRelu", [x, *one, *two], {"alpha": 0.2}, known=range(1, 5)),
        "QLinearConcat": Layer(
            "QLinearConcat", [*two, x, *one, y, *two], {"axis": 1}, known=(0, 1, 3, 4, 6, 7)
        ),
        "DynamicQuantizeMatMul": Layer(
            "DynamicQuantizeMatMul",
            [floats(3, 4), rows_of.T.copy(), *spreads],
            rtol=1e-4,
        ),
    }
    return {
        name: layer._replace(op=f"com.microsoft::{layer.op}", smooth=(0,) if "Bnb4" in name else ())
        for name, layer in table.items()
    }


FAMILIES: dict[str, Callable[[], dict[str, Layer]]] = {
    "activations": _activations,
    "convolutions": _convolutions,
    "pooling": _pooling,
    "normalizations": _normalizations,
    "recurrent": _recurrent,
    "attention": _attention,
    "losses": _losses,
    "images": _images,
    "signals": _signals,
    "quantized": _quantized,
    "contrib": _contrib,
    "microsoft": _microsoft_quantized,
}

LAYERS = {f"{family}-{name}": layer for family, made in FAMILIES.items() for name, layer in made().items()}
