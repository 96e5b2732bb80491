"""Gradients: what lies between (reach), the generator (reverse), forward mode, and transforms of functions."""
