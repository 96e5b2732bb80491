"""Order and sets: sorting, what occurs, where numbers belong among sorted ones."""
