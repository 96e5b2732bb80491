"""JAX's functions: explained, imported, called. See :mod:`stopgrad.interop.jax`."""

from stopgrad.interop.jax import *
