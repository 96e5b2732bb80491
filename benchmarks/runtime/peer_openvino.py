"""The rows in OpenVINO, from the ONNX graphs written by hand.

Its own arrays are tensors bound to a request, which then finds its inputs without being given them again:
all rows but the calls with NumPy arrays are measured so. Outputs are shared, the quickest way that its
Python interface has: the next call overwrites the results.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import openvino

from runtime.onnx_graphs import KINDS, UNWRITTEN, written
from runtime.problems import Data


class Library:
    """OpenVINO on the CPU, in float32, with its own settings otherwise."""

    unwritten = UNWRITTEN

    def __init__(self, variant: str, device: str) -> None:
        self.version = openvino.__version__.split("-")[0]
        self.core = openvino.Core()

    def touch(self) -> None:
        self.session({"x": np.ones(8, np.float32)})()

    to_numpy = staticmethod(np.asarray)

    def __getattr__(self, kind: str) -> Callable[[Data], Callable[[], Any]]:
        if kind not in KINDS:
            raise AttributeError(kind)
        return lambda data: self._call(*written(kind, data), kind == "session" or data.get("kind") == "NumPy")

    def _call(self, model: bytes, feeds: dict[str, Any], fed: bool) -> Callable[[], Any]:
        hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        compiled = self.core.compile_model(self.core.read_model(BytesIO(model)), "CPU", hints)
        request, arrays = compiled.create_infer_request(), list(feeds.values())
        if fed:
            by_place = dict(enumerate(arrays))
            return lambda: list(request.infer(by_place, share_inputs=True, share_outputs=True).values())
        for i, x in enumerate(arrays):
            request.set_input_tensor(i, openvino.Tensor(x))  # A copy, which the request keeps.
        return lambda: list(request.infer(share_outputs=True).values())
