"""Runs training graphs on a stock ONNX Runtime: ``from stopgrad.trainer import Trainer``.

The class is that of ``stopgrad_trainer``, a separate package, which starts without importing this one.
"""

from __future__ import annotations

from stopgrad_trainer import Trainer as Trainer

__all__ = ["Trainer"]
