"""Which operation makes the first NaN or infinity."""
