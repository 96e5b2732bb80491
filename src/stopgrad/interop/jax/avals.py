"""JAX's abstract values as types of ours. A random key becomes its words, along a last axis."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stopgrad.base.errors import DTypeError
from stopgrad.base.types import TensorType, dtype_of, tensor_type
from stopgrad.graph.graph import Output


def is_key(aval: jax.core.ShapedArray) -> bool:
    """Whether a value is an array of JAX's new-style random keys."""
    return bool(jnp.issubdtype(aval.dtype, jax.dtypes.prng_key))


def words_of(aval: jax.core.ShapedArray) -> int:
    """How many words a key has."""
    count: int = aval.dtype._impl.key_shape[0]
    return count


def type_of(aval: jax.core.ShapedArray) -> TensorType:
    """The type of an output for a value of JAX.

    Raises:
        DTypeError: there is none: the value is no array, or of a dtype that we lack.
    """
    if not hasattr(aval, "dtype") or not hasattr(aval, "shape"):
        raise DTypeError(f"{aval} is no array; only arrays and keys of random numbers can be imported")
    if is_key(aval):
        return tensor_type(dtype_of(np.uint32), (*aval.shape, words_of(aval)))
    if aval.dtype == jax.dtypes.float0:
        raise DTypeError("float0, the type of a cotangent of an integer, has no values")
    try:
        dtype = dtype_of(aval.dtype)
    except DTypeError:
        raise DTypeError(
            f"{aval.dtype} is no element type here; convert it before, with x.astype(jnp.float32)"
        ) from None
    return tensor_type(dtype, tuple(aval.shape))


def array_of(value: object) -> np.ndarray[Any, Any]:
    """A concrete value of JAX as a NumPy array; for keys, their words."""
    if hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(value))
    return np.asarray(value)


def agrees(y: Output, kind: TensorType) -> bool:
    """Whether an output has exactly this type."""
    return y.type.dtype is kind.dtype and tuple(y.type.shape) == tuple(kind.shape)
