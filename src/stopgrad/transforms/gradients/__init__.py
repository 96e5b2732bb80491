"""Gradients: what lies between (reach), the generator (reverse), forward mode, transforms of functions."""
