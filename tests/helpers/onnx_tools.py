"""Tools that rewrite ONNX files, each as a function from one path to another."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Inputs = Mapping[str, np.ndarray[Any, Any]]
Tool = Callable[[Path, Path, Inputs, str], None]
"""From a file to a file; the inputs of the model and its kind, for the tools that ask for them."""


def _nothing(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
    target.write_bytes(source.read_bytes())


def _runtime(level: str) -> Tool:
    def run(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.optimized_model_filepath, options.log_severity_level = str(target), 4
        ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    return run


def _transformers(half: bool) -> Tool:
    def run(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
        from onnxruntime.transformers import optimizer

        made = optimizer.optimize_model(
            str(source), model_type=kind, num_heads=4, hidden_size=64, opt_level=0
        )
        if half:
            made.convert_float_to_float16(keep_io_types=True)
        made.save_model_to_file(str(target))

    return run


def _half(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def _mixed(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
    """All nodes but normalisations and softmaxes in float16, as one does where the search takes too long."""
    from onnxconverter_common import float16

    kept = ["LayerNormalization", "Softmax", "ReduceMean", "Pow", *float16.DEFAULT_OP_BLOCK_LIST]
    made = float16.convert_float_to_float16(onnx.load(source), keep_io_types=True, op_block_list=kept)
    onnx.save(made, target)


def _searched(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
    from onnxconverter_common import auto_mixed_precision

    made = auto_mixed_precision.auto_convert_mixed_precision(
        onnx.load(source), dict(inputs), rtol=1e-3, atol=1e-3, keep_io_types=True
    )
    onnx.save(made, target)


def _slim(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
    import onnxslim

    onnx.save(onnxslim.slim(onnx.load(source)), target)


def _sim(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
    import onnxsim

    made, same = onnxsim.simplify(onnx.load(source))
    if not same:
        raise ValueError("onnxsim says that its result computes something else")
    onnx.save(made, target)


def _scripted(rewrite: Callable[[Any], Any]) -> Tool:
    def run(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
        import onnx_ir

        onnx_ir.save(rewrite(onnx_ir.load(source)), target)

    return run


def _optimizer(model: Any) -> Any:
    from onnxscript import optimizer

    optimizer.optimize(model)
    return model


def _rewriter(model: Any) -> Any:
    from onnxscript import rewriter

    return rewriter.rewrite(model)


def _fusions(model: Any) -> Any:
    from onnxscript.rewriter import ort_fusions

    made, *_ = ort_fusions.optimize_for_ort(model)
    return made


def _converted(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
    onnx.save(onnx.version_converter.convert_version(onnx.load(source), 21), target)


def _prepared(source: Path, folder: str) -> Path:
    from onnxruntime.quantization import shape_inference

    made = Path(folder) / "prepared.onnx"
    shape_inference.quant_pre_process(str(source), str(made), skip_symbolic_shape=True)
    return made


def _dynamic(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        more = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # Of what fused operators make.
        prepared = _prepared(source, folder)
        quantize_dynamic(prepared, target, weight_type=QuantType.QUInt8, extra_options=more)


def _static(form: str, channels: bool) -> Tool:
    def run(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
        from onnxruntime import quantization as q

        class Reader(q.CalibrationDataReader):
            def __init__(self) -> None:
                self.left = [dict(inputs)]

            def get_next(self) -> Any:
                return self.left.pop() if self.left else None

        how = {"quant_format": getattr(q.QuantFormat, form), "per_channel": channels}
        with tempfile.TemporaryDirectory() as folder:
            q.quantize_static(_prepared(source, folder), str(target), Reader(), **how)

    return run


def _blocks(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(onnx.load(source), bits=4, block_size=32, is_symmetric=True)
    made.process()
    made.model.save_model_to_file(str(target))


def _then(first: Tool, second: Tool) -> Tool:
    def run(source: Path, target: Path, inputs: Inputs, kind: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            between = Path(folder) / "between.onnx"
            first(source, between, inputs, kind)
            second(between, target, inputs, kind)

    return run


_LEVEL = _runtime("ORT_ENABLE_EXTENDED")

TOOLS: dict[str, Tool] = {
    "as exported": _nothing,
    "onnxruntime, basic": _runtime("ORT_ENABLE_BASIC"),
    "onnxruntime, extended": _runtime("ORT_ENABLE_EXTENDED"),
    "onnxruntime, all": _runtime("ORT_ENABLE_ALL"),
    "onnxruntime.transformers": _transformers(False),
    "onnxruntime.transformers, float16": _transformers(True),
    "onnxconverter-common, float16": _half,
    "the same, norms in float32": _mixed,
    "its search for mixed precision": _searched,
    "onnxslim": _slim,
    "onnxsim": _sim,
    "onnxscript.optimizer": _scripted(_optimizer),
    "onnxscript.rewriter": _scripted(_rewriter),
    "onnxscript's fusions for onnxruntime": _scripted(_fusions),
    "onnx.version_converter": _converted,
    "quantize_dynamic": _dynamic,
    "quantize_static, QDQ": _static("QDQ", False),
    "quantize_static, QDQ by channel": _static("QDQ", True),
    "quantize_static, QOperator": _static("QOperator", False),
    "MatMulNBits": _blocks,
    "quantize_static, QDQ, then extended": _then(_static("QDQ", False), _LEVEL),
    "quantize_dynamic, then extended": _then(_dynamic, _LEVEL),
    "quantize_dynamic of onnxruntime.transformers": _then(_transformers(False), _dynamic),
}
NEEDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TOOLS, ()),
    **dict.fromkeys(list(TOOLS)[6:9], ("onnxconverter_common",)),
    "onnxslim": ("onnxslim",),
    "onnxsim": ("onnxsim",),
    **{name: ("onnxscript", "onnx_ir") for name in TOOLS if name.startswith("onnxscript")},
    **{name: ("sympy",) for name in TOOLS if name.startswith(("onnxruntime.transformers", "quantize"))},
}
"""The modules that each tool needs besides onnx and onnxruntime."""
HALF = {name for name in TOOLS if "float16" in name or "float32" in name or "mixed" in name}
"""Tools that leave numbers of 16 bits."""
QUANTISED = {name for name in TOOLS if name.startswith("quantize") or name == "MatMulNBits"}
"""Tools that leave whole numbers."""
