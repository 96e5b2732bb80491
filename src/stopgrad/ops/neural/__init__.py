"""Layers: activations, attention, convolution, pooling, normalisation, resizing, embedding."""
