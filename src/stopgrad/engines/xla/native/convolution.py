"""Convolutions and their gradients by the kernels of ``convolution.cc``, for sizes at which these are faster.

XLA computes the rest. CPU time (Zen 5, AVX-512) for 64 × 28 × 28, filters 3 × 3, 32 → 64: forward 7.9 ms
instead of 9.3, the gradient of the filters 8.3 instead of 14.5, of the input 8.1 instead of 12.1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.namespaces import require
from stopgrad.base.types import Shape, Size, float32
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import Region
from stopgrad.graph.op import Op
from stopgrad.ops.elementwise.arithmetic import AddV2
from stopgrad.ops.neural.activations import Relu, ReluGrad
from stopgrad.ops.neural.convolution import Conv, ConvBackpropFilter, ConvBackpropInput
from stopgrad.ops.neural.windows import pads

RANK = 3
"""The number of spatial axes of the kernels. Missing ones are added in front, with size 1."""

_LARGEST = 1 << 18
"""The most elements of filters. Beyond, gradients are slower: 9.0 ms, not 8.3, at 8 × 14², 3², 256 → 256."""

_FEWEST = 4
"""Fewer columns leave most lanes of a vector idle: 8 × 64 × 64, 64 → 1 channels, 3.7 ms instead of 2.1."""


def regions(operations: Sequence[Operation], wanted: Sequence[Output]) -> list[Region]:
    """The regions that kernels compute: convolutions with a following bias and relu, and their gradients.

    An operation joins the one before it if nothing else reads the result of that one.
    """
    readers = _sole_readers(operations, wanted)
    return [_region(op, readers) for op in operations if op.definition in KERNELS and _pays(op)]


def _region(op: Operation, readers: Mapping[Output, Operation]) -> Region:
    together, more, relu = [op], None, False
    after = readers.get(op.outputs[0])
    if op.definition is Conv:
        if after is not None and after.definition is AddV2:
            more = _bias(op, after)
            if more is not None:
                together.append(after)
                after = readers.get(after.outputs[0])
        if after is not None and after.definition is Relu:
            together.append(after)
            relu = True
    elif op.definition is ConvBackpropInput and after is not None and after.definition is ReluGrad:
        y, g = after.inputs
        if g is op.outputs[0] and y.shape == g.shape:
            together.append(after)
            more = y
    inputs = op.inputs if more is None else (*op.inputs, more)
    return Region(together, inputs, together[-1].outputs, _kernel(op, relu))


def _bias(op: Operation, add: Operation) -> Output | None:
    """What an addition adds to a convolution's result, if it is one number for each channel."""
    y = op.outputs[0]
    (other,) = [x for x in add.inputs if x is not y] or [y]
    channels = y.shape[-1]
    is_bias = (
        other.shape[-1:] == (channels,)
        and math.prod(other.shape) == channels
        and len(other.shape) <= len(y.shape)
    )
    return other if is_bias and other is not y else None


def _pays(op: Operation) -> bool:
    """Whether there is a kernel for the operation that is faster than XLA."""
    x, filters, y = _shapes(op)
    sizes = (*x, *filters, *y)
    if (
        op.outputs[0].dtype is not float32
        or len(x) > RANK + 2
        or _attributes_of(op)["groups"] != 1
        or 0 in sizes
    ):
        return False
    single = math.prod(filters[:-2]) == 1
    if op.definition is ConvBackpropFilter:
        return math.prod(filters) <= _LARGEST
    # With windows of one element it is a product of matrices, which XLA does as well.
    columns, rows = (filters[-1], filters[-2]) if op.definition is Conv else (filters[-2], filters[-1])
    return not single and (columns >= _FEWEST or rows <= _FEWEST)


def _shapes(op: Operation) -> tuple[Any, Any, Any]:
    """The shapes of a convolution's input, filters and result."""
    first, second, result = op.inputs[0].shape, op.inputs[1].shape, op.outputs[0].shape
    if op.definition is Conv:
        return first, second, result
    return (result, first, second) if op.definition is ConvBackpropInput else (first, result, second)


KERNELS: dict[type[Op], tuple[str, tuple[bool, bool, bool]]] = {
    Conv: ("stopgrad_conv", (False, True, False)),
    ConvBackpropInput: ("stopgrad_conv_input", (True, False, False)),
    ConvBackpropFilter: ("stopgrad_conv_filter", (False, False, True)),
}
"""For each definition its kernel, and which of its two operands and its result are filters."""


def _kernel(op: Operation, relu: bool) -> Callable[..., Sequence[Any]]:
    """The operation, with a bias and relu if they follow, as a function of arrays."""
    x, filters, _ = _shapes(op)
    target, roles = KERNELS[op.definition]
    attributes = _geometry_of(_attributes_of(op), x[1:-1], filters[:-2])
    if op.definition is Conv:
        attributes["relu"] = np.int64(relu)
    y = op.outputs[0].shape
    shapes = [
        _with_all_axes(s, filters=role)
        for s, role in zip((*(x.shape for x in op.inputs), y), roles, strict=True)
    ]
    return functools.partial(_call, target, shapes, y, attributes)


def _call(
    target: str,
    shapes: Sequence[Shape],
    shape: Shape,
    attributes: Mapping[str, Any],
    first: Array,
    second: Array,
    *more: Array,
) -> Sequence[Any]:
    jax = require("jax", "the xla engine", "xla")
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(shapes[2], np.float32), vmap_method="sequential")
    arrays = [first.reshape(shapes[0]), second.reshape(shapes[1])]
    if target != KERNELS[ConvBackpropFilter][0]:
        arrays.append(more[0].reshape(-1) if more else np.zeros(0, np.float32))
    return [call(*arrays, **attributes).reshape(shape)]


def _attributes_of(op: Operation) -> dict[str, Any]:
    """An operation's attributes by name."""
    return dict(zip(op.definition.attributes, op.values, strict=True))


def _geometry_of(
    attributes: Mapping[str, Any], spatial: Sequence[int], ksize: Sequence[int]
) -> dict[str, Any]:
    """The attributes of a kernel, made of an operation's."""
    around = pads(spatial, ksize, (attributes["strides"], attributes["padding"], attributes["dilations"]))
    return {
        "strides": _numbers(attributes["strides"], 1),
        "dilations": _numbers(attributes["dilations"], 1),
        "low": _numbers([before for before, _ in around], 0),
    }


def _numbers(some: Sequence[Size], missing: int) -> np.ndarray[Any, Any]:
    """One number for each spatial axis, with *missing* for axes that are added."""
    return np.array([missing] * (RANK - len(some)) + [*some], np.int64)


def _with_all_axes(shape: Sequence[Size], filters: bool = False) -> Shape:
    """The shape of an array [batch, spatial..., channels], or of filters, with all spatial axes."""
    missing = (1,) * (RANK + 2 - len(shape))
    return (*missing, *shape) if filters else (shape[0], *missing, *shape[1:])


def _sole_readers(operations: Sequence[Operation], wanted: Sequence[Output]) -> dict[Output, Operation]:
    """The reader of each output that is read by a single operation, once, and is no result."""
    readers: dict[Output, Operation] = {}
    several = set(wanted)
    for op in operations:
        for x in op.inputs:
            if x in readers:
                several.add(x)
            readers[x] = op
    return {x: op for x, op in readers.items() if x not in several}
