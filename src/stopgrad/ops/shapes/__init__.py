"""Shapes: reshaping, joining, moving elements and axes, and grids of numbers."""
