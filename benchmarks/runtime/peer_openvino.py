"""The rows in OpenVINO, from the ONNX graphs written by hand; NumPy arrays in and out.

Inputs and outputs are shared, the quickest way that its Python interface has: the results are overwritten by the
next call.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import openvino

from runtime.onnx_graphs import KINDS, written
from runtime.problems import Data


class Library:
    """OpenVINO on the CPU, in float32, with its own settings otherwise."""

    def __init__(self, variant: str, device: str) -> None:
        self.version = openvino.__version__.split("-")[0]
        self.core = openvino.Core()

    def touch(self) -> None:
        self.session({"x": np.ones(8, np.float32)})()

    to_numpy = staticmethod(np.asarray)

    def __getattr__(self, kind: str) -> Callable[[Data], Callable[[], Any]]:
        if kind not in KINDS:
            raise AttributeError(kind)
        return lambda data: self._call(*written(kind, data))

    def _call(self, model: bytes, feeds: dict[str, Any]) -> Callable[[], Any]:
        hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        compiled = self.core.compile_model(self.core.read_model(BytesIO(model)), "CPU", hints)
        request, arrays = compiled.create_infer_request(), list(feeds.values())
        outputs = compiled.outputs

        def call() -> Any:
            found = request.infer(arrays, share_inputs=True, share_outputs=True)
            return [found[y] for y in outputs]

        return call
