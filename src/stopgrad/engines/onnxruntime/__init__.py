"""ONNX Runtime: a graph written as nodes of ONNX, run on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stopgrad.base.errors import EngineError
from stopgrad.base.namespaces import require
from stopgrad.base.types import bfloat16
from stopgrad.engines.onnxruntime.nodes import Program, model_of, unwritable, written
from stopgrad.engines.protocol import PLAIN, Compiled, Engine, Variant
from stopgrad.engines.registry import register
from stopgrad.graph.graph import Operation, Output, describe
from stopgrad.graph.interpreter import failed
from stopgrad.graph.operands import NumpyArray
from stopgrad.ops.structural.effects import DebugCallback

_INEXACT = ["MatMulScaleFusion"]
"""Optimisations that move a float64 number into an attribute, where it is rounded to float32."""


def _is_wide(program: Program) -> bool:
    return any(dtype == np.float64 for dtype, _ in program.types.values())


@register
class OnnxRuntimeEngine(Engine):
    """Runs what the ONNX exporter writes, with stock ``onnxruntime``."""

    name = "onnxruntime"
    form = "onnx"
    priority = 50
    needs: ClassVar[Sequence[str]] = ("onnx", "onnxruntime")

    def __init__(self) -> None:
        self._runtime = require("onnxruntime", "the onnxruntime engine", "onnx")
        require("onnx", "the onnxruntime engine", "onnx")

    def unsupported(self, operations: Sequence[Operation]) -> str | None:
        return unwritable([op for op in operations if op.definition is not DebugCallback])

    def compile(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        donate: Sequence[int] = (),
        variant: Variant = PLAIN,
    ) -> Compiled:
        if not outputs:
            return lambda arrays: []
        if any(y.op.definition is DebugCallback for y in outputs):
            return self._calling(inputs, outputs)
        xs = {f"x{i}": x for i, x in enumerate(inputs)}
        ys = {f"y{i}": y for i, y in enumerate(outputs)}
        program = written(xs, ys, bits=True)
        model = model_of(program)
        options = self._runtime.SessionOptions()
        options.log_severity_level = 4
        session = self._runtime.InferenceSession(
            model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=_INEXACT if _is_wide(program) else [],
        )
        names, run = list(ys), session.run
        dtypes = [x.dtype.numpy for x in inputs]

        narrow = {i for i, y in enumerate(outputs) if y.dtype is bfloat16}

        def compute(arrays: Sequence[Any]) -> list[Any]:
            fed = {name: _fed(array, dtype) for name, array, dtype in zip(xs, arrays, dtypes, strict=True)}
            results = list(map(np.asarray, run(names, fed)))
            for i in narrow:
                results[i] = results[i].view(bfloat16.numpy)
            return results

        return compute

    def _calling(self, inputs: Sequence[Output], outputs: Sequence[Output]) -> Compiled:
        """A program whose last results tell of calls of Python: these are made when it has run."""
        results = [y for y in outputs if y.op.definition is not DebugCallback]
        calls = [y.op for y in outputs if y.op.definition is DebugCallback]
        run = self.compile(inputs, [*results, *[x for op in calls for x in op.inputs]])

        def compute(arrays: Sequence[Any]) -> list[Any]:
            values = list(run(arrays))
            operands = iter(values[len(results) :])
            called = [_call(op, [next(operands) for _ in op.inputs]) for op in calls]
            return [*values[: len(results)], *called]

        return compute

    def hold(self, array: npt.ArrayLike) -> NumpyArray:
        return np.array(array)

    def is_native(self, x: object) -> bool:
        return type(x) is np.ndarray and x.dtype.isnative


def _fed(array: npt.ArrayLike, dtype: np.dtype[Any]) -> NumpyArray:
    """An array as the runtime takes it: bfloat16 is passed as int16 with the same bits."""
    array = np.asarray(array, dtype)
    return array.view(np.int16) if dtype == bfloat16.numpy else array


def _call(op: Operation, arrays: Sequence[Any]) -> NumpyArray:
    """The result of an operation that calls Python."""
    try:
        return np.asarray(DebugCallback.lower(np, *arrays, **op.attributes))
    except EngineError as error:
        raise failed(describe(op), "onnxruntime", error) from error
