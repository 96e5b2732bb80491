"""The rows in ONNX Runtime, where the gradient could be written by hand; NumPy arrays in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

from runtime.onnx_graphs import KINDS, written
from runtime.problems import Data


class Library:
    """ONNX Runtime on the CPU, with its own settings."""

    def __init__(self, variant: str, device: str) -> None:
        self.version = onnxruntime.__version__

    def touch(self) -> None:
        self.session({"x": np.ones(8, np.float32)})()

    to_numpy = staticmethod(np.asarray)

    def __getattr__(self, kind: str) -> Callable[[Data], Callable[[], Any]]:
        if kind not in KINDS:
            raise AttributeError(kind)
        return lambda data: self._call(*written(kind, data))

    @staticmethod
    def _call(model: bytes, feeds: dict[str, Any]) -> Callable[[], Any]:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, feeds)
