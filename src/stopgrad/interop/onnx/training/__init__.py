"""Training graphs: a model, its loss, gradients and optimiser as plain ONNX that any runtime trains."""

from __future__ import annotations

from stopgrad.interop.onnx.training.adapters import Lora as Lora
from stopgrad.interop.onnx.training.making import TrainingFiles as TrainingFiles, training as training
