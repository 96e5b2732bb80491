"""Which initializers of a model are weights, which are constants, and how that is known."""

from __future__ import annotations

from stopgrad.interop.onnx.weights.weight_verdicts import Verdict, Weighing, weighing_of

__all__ = ["Verdict", "Weighing", "weighing_of"]
