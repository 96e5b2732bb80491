"""Order and sets: sorting, distinct values, positions among sorted numbers."""
