"""Gradient gates: the identity in the forward direction; they differ in what passes back."""
