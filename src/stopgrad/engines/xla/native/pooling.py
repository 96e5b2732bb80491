"""Gradients of pooling by the kernels of ``pooling.cc``, for sizes at which these are faster.

XLA computes the rest. CPU time (Zen 5, AVX-512): maxima of 2 × 2 at 64 × 28 × 28 × 64 1.6 ms instead of 3.0,
of 3 × 3 with strides of 2 at 16 × 56 × 56 × 64 2.9 instead of 7.9, means there 1.1 instead of 2.0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.namespaces import require
from stopgrad.base.types import Shape, float32
from stopgrad.engines.xla.native.windows import (
    RANK,
    attributes_of,
    geometry_of,
    numbers,
    sole_readers,
    with_all_axes,
)
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import Region
from stopgrad.graph.op import Op
from stopgrad.ops.neural.activations import ReluGrad
from stopgrad.ops.neural.pooling import AvgPoolGrad, MaxPoolGrad

_FEWEST = 16
"""Fewer channels leave most lanes of a vector idle: 2 × 2 at 64 × 28 × 28 × 6 take 1.9 ms instead of 0.9."""

_TARGETS: dict[type[Op], str] = {
    MaxPoolGrad: "stopgrad_max_pool_gradient",
    AvgPoolGrad: "stopgrad_avg_pool_gradient",
}


def regions(operations: Sequence[Operation], wanted: Sequence[Output]) -> list[Region]:
    """The regions that kernels compute: gradients of pooling, with the gradient of a relu behind it."""
    readers = sole_readers(operations, wanted)
    return [_region(op, readers) for op in operations if op.definition in _TARGETS and _pays(op)]


def _region(op: Operation, readers: Mapping[Output, Operation]) -> Region:
    dx = op.outputs[0]
    after = readers.get(dx)
    if after is None or after.definition is not ReluGrad or after.inputs[1] is not dx:
        return Region([op], op.inputs, op.outputs, _kernel(op))
    return Region([op, after], (*op.inputs, after.inputs[0]), after.outputs, _kernel(op))


def _pays(op: Operation) -> bool:
    """Whether the kernel is faster than XLA for this operation."""
    shape: Any = op.outputs[0].shape
    sizes = (*shape, *(n for x in op.inputs for n in x.shape))
    is_float32 = op.outputs[0].dtype is float32
    return is_float32 and len(shape) <= RANK + 2 and 0 not in sizes and shape[-1] >= _FEWEST


def _kernel(op: Operation) -> Callable[..., Sequence[Any]]:
    """The operation as a function of arrays."""
    given = attributes_of(op)
    shape: Any = op.outputs[0].shape
    attributes = geometry_of(given, shape[1:-1], given["ksize"])
    attributes["window"] = numbers(given["ksize"], 1)
    return functools.partial(_call, _TARGETS[op.definition], shape, attributes, len(op.inputs))


def _call(
    target: str, shape: Shape, attributes: Mapping[str, Any], count: int, *arrays: Array
) -> Sequence[Any]:
    jax = require("jax", "the xla engine", "xla")
    result = jax.ShapeDtypeStruct(with_all_axes(shape), np.float32)
    given = [x.reshape(with_all_axes(x.shape)) for x in arrays[:count]]
    gate = arrays[count].reshape(-1) if len(arrays) > count else np.zeros(0, np.float32)
    call = jax.ffi.ffi_call(target, result, vmap_method="sequential")
    return [call(*given, gate, **attributes).reshape(shape)]
