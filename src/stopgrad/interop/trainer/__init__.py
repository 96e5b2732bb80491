"""Runs training graphs on a stock ONNX Runtime: ``from stopgrad.trainer import Trainer``.

It is the class of ``stopgrad_trainer``, a package of its own, which starts without this one.
"""

from __future__ import annotations

from stopgrad_trainer import Trainer as Trainer

__all__ = ["Trainer"]
