"""Arithmetic, comparisons, powers, trigonometry, rounding, conversion: each element by itself."""
