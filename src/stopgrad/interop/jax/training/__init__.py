"""Follows trainings written with JAX: the causes of errors, which gradients arrive, what optax does."""
