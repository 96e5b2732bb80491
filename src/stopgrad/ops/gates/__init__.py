"""Gradient gates: the identity in the forward direction, with a gradient of their own."""
