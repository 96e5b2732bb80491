"""Runs training graphs on a stock ONNX Runtime: ``from stopgrad.trainer import Trainer``.

It needs NumPy, onnxruntime and safetensors; neither onnx nor a framework is imported.
"""

from __future__ import annotations

from stopgrad.trainer.training import Trainer as Trainer

__all__ = ["Trainer"]
