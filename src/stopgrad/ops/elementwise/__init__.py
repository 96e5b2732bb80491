"""Elementwise operations: arithmetic, comparisons, powers, trigonometry, rounding, conversion."""
