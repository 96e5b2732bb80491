"""Writes graphs as nodes of ONNX, through an array namespace. It does not need the package ``onnx``."""

from __future__ import annotations

from stopgrad.engines.onnxruntime.nodes.onnx_nodes import NotInOnnx
from stopgrad.engines.onnxruntime.nodes.program import Program, unwritable, written
from stopgrad.engines.onnxruntime.nodes.proto import Beside, model_of

__all__ = ["Beside", "NotInOnnx", "Program", "model_of", "unwritable", "written"]
