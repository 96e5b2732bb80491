"""Training within a budget of memory: what the backward pass computes again instead of keeping."""
