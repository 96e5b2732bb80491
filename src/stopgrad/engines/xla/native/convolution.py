"""Convolutions and their gradients by the kernels of ``convolution.cc``, for sizes at which these are faster.

XLA computes the rest. Measured on two cores (Zen 5, AVX-512), 64 images 28 × 28, filters 3 × 3, 32 → 64: forward
4.1 ms instead of 5.2, the filters' gradient 4.4 instead of 8.1, the input's 4.2 instead of 6.5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.graph import Operation, Output
from stopgrad.interpreter import Region
from stopgrad.namespaces import require
from stopgrad.op import Op
from stopgrad.ops.activations import Relu, ReluGrad
from stopgrad.ops.arithmetic import AddV2
from stopgrad.ops.convolution import Conv, ConvBackpropFilter, ConvBackpropInput
from stopgrad.ops.windows import pads
from stopgrad.types import float32

_RANK = 3
"""Of the kernels: missing spatial axes are put in front, of size 1."""

_LARGEST = 1 << 18
"""Filters of more numbers: their gradient takes 9.0 ms instead of 8.3 at 8 × 14 × 14, 3 × 3, 256 → 256."""

_FEWEST = 4
"""Fewer columns leave most lanes of a vector idle: 64 → 1 channels at 8 × 64 × 64 take 3.7 ms instead of 2.1."""


def regions(operations: Sequence[Operation], wanted: Sequence[Output]) -> list[Region]:
    """What is computed by kernels: convolutions with a bias and relu behind them, and their gradients.

    An operation joins the one before it where nothing else reads what that computes.
    """
    readers: dict[Output, list[Operation]] = {}
    for op in operations:
        for x in op.inputs:
            readers.setdefault(x, []).append(op)
    kept = frozenset(wanted)

    def only_reader(y: Output) -> Operation | None:
        found = readers.get(y, ())
        return found[0] if len(found) == 1 and y not in kept else None

    return [_region(op, only_reader) for op in operations if op.definition in _KERNELS and _pays(op)]


def _region(op: Operation, only_reader: Callable[[Output], Operation | None]) -> Region:
    together, more, relu = [op], None, False
    after = only_reader(op.outputs[0])
    if op.definition is Conv:
        if after is not None and after.definition is AddV2:
            more = _bias(op, after)
            if more is not None:
                together.append(after)
                after = only_reader(after.outputs[0])
        relu = after is not None and after.definition is Relu
        if relu:
            together.append(after)
    elif op.definition is ConvBackpropInput and after is not None and after.definition is ReluGrad:
        y, g = after.inputs
        if g is op.outputs[0] and y.shape == g.shape:
            together.append(after)
            more = y
    inputs = op.inputs if more is None else (*op.inputs, more)
    return Region(together, inputs, together[-1].outputs, _kernel(op, relu))


def _bias(op: Operation, add: Operation) -> Output | None:
    """What an addition adds to a convolution's result, if that is a number for each channel."""
    y = op.outputs[0]
    (other,) = [x for x in add.inputs if x is not y] or [y]
    channels = y.shape[-1]
    is_bias = other.shape[-1:] == (channels,) and math.prod(other.shape) == channels and len(other.shape) <= len(y.shape)
    return other if is_bias and other is not y else None


def _pays(op: Operation) -> bool:
    """Whether a kernel is there for the operation, and faster than XLA."""
    x, filters, y = _shapes(op)
    sizes = (*x, *filters, *y)
    if op.outputs[0].dtype is not float32 or len(x) > _RANK + 2 or _attributes(op)["groups"] != 1 or 0 in sizes:
        return False
    single = math.prod(filters[:-2]) == 1
    if op.definition is ConvBackpropFilter:
        return math.prod(filters) <= _LARGEST
    # A window of one element is a product of matrices, at which XLA is as good.
    columns, rows = (filters[-1], filters[-2]) if op.definition is Conv else (filters[-2], filters[-1])
    return not single and (columns >= _FEWEST or rows <= _FEWEST)


def _attributes(op: Operation) -> dict[str, Any]:
    return dict(zip(op.definition.attributes, op.values, strict=True))


def _shapes(op: Operation) -> tuple[Any, Any, Any]:
    """Of a convolution's input, filters and result."""
    first, second, result = op.inputs[0].shape, op.inputs[1].shape, op.outputs[0].shape
    if op.definition is Conv:
        return first, second, result
    return (result, first, second) if op.definition is ConvBackpropInput else (first, result, second)


_KERNELS: dict[type[Op], tuple[str, tuple[bool, bool, bool]]] = {
    Conv: ("stopgrad_conv", (False, True, False)),
    ConvBackpropInput: ("stopgrad_conv_input", (True, False, False)),
    ConvBackpropFilter: ("stopgrad_conv_filter", (False, False, True)),
}
"""For each definition its kernel, and which of its operands and result are filters."""


def _kernel(op: Operation, relu: bool) -> Callable[..., Sequence[Any]]:
    """The operation, and what follows it, as a function of arrays."""
    x, filters, _ = _shapes(op)
    given = _attributes(op)
    geometry = (given["strides"], given["padding"], given["dilations"])
    low = [before for before, _ in pads(x[1:-1], filters[:-2], geometry)]
    target, roles = _KERNELS[op.definition]
    attributes: dict[str, Any] = {
        name: np.array([missing] * (_RANK - len(low)) + [*numbers], np.int64)
        for name, numbers, missing in (
            ("strides", given["strides"], 1),
            ("dilations", given["dilations"], 1),
            ("low", low, 0),
        )
    }
    if op.definition is Conv:
        attributes["relu"] = np.int64(relu)
    y = op.outputs[0].shape
    shapes = [_filled(s, role) for s, role in zip((*(x.shape for x in op.inputs), y), roles, strict=True)]
    return functools.partial(_call, target, shapes, y, attributes)


def _filled(shape: Any, filters: bool) -> tuple[int, ...]:
    """A shape with all spatial axes."""
    missing = (1,) * (_RANK + 2 - len(shape))
    return (*missing, *shape) if filters else (shape[0], *missing, *shape[1:])


def _call(
    target: str, shapes: Any, shape: Any, attributes: Any, first: Any, second: Any, *more: Any
) -> Sequence[Any]:
    jax = require("jax", "the xla engine", "xla")
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(shapes[2], np.float32), vmap_method="sequential")
    arrays = [first.reshape(shapes[0]), second.reshape(shapes[1])]
    if target != _KERNELS[ConvBackpropFilter][0]:
        arrays.append(more[0].reshape(-1) if more else np.zeros(0, np.float32))
    return [call(*arrays, **attributes).reshape(shape)]
