"""Training graphs: a model, its loss, gradients and optimiser as plain ONNX that any runtime trains."""

from __future__ import annotations

from stopgrad.onnx.training.adapters import Lora as Lora
from stopgrad.onnx.training.making import TrainingFiles as TrainingFiles, training as training
