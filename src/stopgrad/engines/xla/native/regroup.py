"""The kernel that stacks arrays and cuts stacks apart, however many: XLA compiles a loop for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.base.arrays import Array
from stopgrad.base.namespaces import require
from stopgrad.base.types import TensorType


def regroup(types: Sequence[TensorType]) -> Callable[[Sequence[Array]], list[Any]]:
    """A function to arrays of the given *types* that hold, one after the other, its arguments' bytes."""
    jax, ffi = require("jax", "the xla engine", "xla"), require("jax.ffi", "the xla engine", "xla")
    kinds = [jax.ShapeDtypeStruct(kind.shape, kind.dtype.numpy) for kind in types]
    call = ffi.ffi_call("stopgrad_regroup", kinds)
    return lambda arrays: list(call(*arrays))
