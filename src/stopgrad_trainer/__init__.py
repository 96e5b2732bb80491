"""Runs training graphs on a stock ONNX Runtime: ``from stopgrad_trainer import Trainer``.

A step needs only NumPy, onnxruntime and safetensors, and a process that trains should start at once. So this
is a package beside ``stopgrad``, parts of which it imports when it first needs them: to raise errors and to
write files (:mod:`stopgrad_trainer.needed`).
"""

from __future__ import annotations

from stopgrad_trainer.training import Trainer as Trainer

__all__ = ["Trainer"]
