"""The rows in ONNX Runtime, where the gradient could be written by hand.

NumPy arrays go in and out; its own arrays are OrtValues in an I/O binding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

from runtime.onnx_graphs import KINDS, UNWRITTEN, written
from runtime.problems import Data


def bound(session: Any, feeds: dict[str, Any]) -> Callable[[], Any]:
    """A call of what is bound once: inputs that are already its own, outputs that it makes."""
    binding = session.io_binding()
    for name, x in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
    for y in session.get_outputs():
        binding.bind_output(y.name)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return binding.get_outputs()

    return call


class Library:
    """ONNX Runtime on the CPU, with its own settings."""

    unwritten = UNWRITTEN

    def __init__(self, variant: str, device: str) -> None:
        self.version = onnxruntime.__version__

    def touch(self) -> None:
        self.session({"x": np.ones(8, np.float32)})()

    @staticmethod
    def to_numpy(x: Any) -> Any:
        return x.numpy() if isinstance(x, onnxruntime.OrtValue) else np.asarray(x)

    def __getattr__(self, kind: str) -> Callable[[Data], Callable[[], Any]]:
        if kind not in KINDS:
            raise AttributeError(kind)
        return lambda data: self._call(*written(kind, data), data.get("kind") == "own")

    @staticmethod
    def _call(model: bytes, feeds: dict[str, Any], own: bool) -> Callable[[], Any]:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        if own:
            return bound(session, feeds)
        return lambda: session.run(None, feeds)
