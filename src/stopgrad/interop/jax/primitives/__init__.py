"""JAX's primitives as operations of ours: a table, filled by family."""
