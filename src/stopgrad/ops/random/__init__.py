"""Random numbers from keys: the same key gives the same numbers on every engine."""
