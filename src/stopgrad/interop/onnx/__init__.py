"""Loads, saves and trains ONNX models: ``import stopgrad.onnx as sgo``.

Examples:
    >>> import stopgrad.onnx as sgo
    >>> sgo.load.__name__
    'load'
"""

from __future__ import annotations

from stopgrad.interop.onnx.exporting import export
from stopgrad.interop.onnx.loading import load
from stopgrad.interop.onnx.saving import save, to_model
from stopgrad.interop.onnx.training import Lora, TrainingFiles, training
from stopgrad.interop.trainer import Trainer

__all__ = ["Lora", "Trainer", "TrainingFiles", "export", "load", "save", "to_model", "training"]
