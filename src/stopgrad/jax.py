"""For JAX: explain and load its functions, and call ours from it. See :mod:`stopgrad.interop.jax`."""

from stopgrad.interop.jax import *
