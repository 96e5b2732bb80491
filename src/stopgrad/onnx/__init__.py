"""Models of ONNX in and out: ``import stopgrad.onnx as sgo``."""

from __future__ import annotations

from stopgrad.onnx.saving import save, to_model

__all__ = ["save", "to_model"]
