"""Training graphs: a model, its loss, gradients and optimiser as plain ONNX that any runtime trains."""
