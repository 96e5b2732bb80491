"""Elements by position: brackets, slices, gathers, scatters, updates, masks."""
