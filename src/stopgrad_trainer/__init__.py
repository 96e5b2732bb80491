"""Trains by training graphs on a stock ONNX Runtime: ``from stopgrad_trainer import Trainer``.

A step needs NumPy, onnxruntime and safetensors, and a process that makes one should start at once. So this
stands beside the package ``stopgrad``, whose parts are imported where they are first needed: to say what is
wrong, and to write a file (:mod:`stopgrad_trainer.needed`).
"""

from __future__ import annotations

from stopgrad_trainer.training import Trainer as Trainer

__all__ = ["Trainer"]
