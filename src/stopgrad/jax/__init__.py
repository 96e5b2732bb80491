"""JAX: its functions explained and loaded, and functions of ours for its users."""

from __future__ import annotations

from stopgrad.jax.callable import callable

__all__ = ["callable"]
