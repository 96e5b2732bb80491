"""Finds the operation that makes the first NaN or infinity."""
