"""Gradients: the paths that they take (reach), the generator (reverse), forward mode, function transforms."""
