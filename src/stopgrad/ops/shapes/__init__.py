"""The same elements in another arrangement: reshaped, joined, moved; numbers laid out in grids."""
