"""Products of float32 matrices by the kernel of ``products.cc``, with what follows, where that is faster.

XLA computes the rest. CPU time of XLA's product over the kernel's (Zen 5, AVX-512): 1.05 for m, k, n = 128,
784, 512; 1.22 for 512, 128, 512 and 1.8 for 1024, 512, 256 with a transposed; 1.07 for 128, 512, 512 with b
transposed; 1.5 for 64, 64, 64. What follows costs the kernel little, and memory is passed over once less.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.namespaces import require
from stopgrad.base.types import float32
from stopgrad.engines.xla.native.windows import attributes_of, sole_readers
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import Region
from stopgrad.ops.elementwise.arithmetic import AddV2, Mul, Sub
from stopgrad.ops.linalg.contractions import MatMul
from stopgrad.ops.neural.activations import Relu, ReluGrad

_TARGET = "stopgrad_product"

_FEWEST_ROWS, _FEWEST = 16, 10
"""Fewer rows and columns: vectors times 1024 × 1024 take twice as long as XLA's, 256 × 784 × 4 1.5 times."""
_SHALLOWEST = 64
"""Of fewer products sums take no longer than it takes to write them: 1024 × 16 × 1024 is 1.5 times slower."""
_LARGEST = 1 << 27
"""More products take 1.08 times as long as XLA's, unless a is transposed, which XLA is slower at."""


class _Sizes(NamedTuple):
    """Of [batch, m, k] x [batch, k, n], either of them transposed; a batch of 1 goes with any."""

    first: tuple[int, int, int]
    second: tuple[int, int, int]
    result: tuple[int, int, int]


class _Tail(NamedTuple):
    """What follows a product and is computed with it: operations, and what they take besides."""

    operations: tuple[Operation, ...] = ()
    bias: Output | None = None
    relu: bool = False
    other: Output | None = None
    scale: Output | None = None


def regions(operations: Sequence[Operation], wanted: Sequence[Output]) -> list[Region]:
    """What is computed by the kernel: products, with what follows where nothing else reads the product.

    That is a bias with relu behind it, the gate of a relu, or a step of gradient descent.
    """
    readers = sole_readers(operations, wanted)
    found = []
    for op in operations:
        if op.definition is MatMul:
            tail, sizes = _tail(op, readers), _sizes(op)
            if sizes is not None and _pays(op, sizes):
                found.append(_region(op, sizes, tail))
    return found


def _sizes(op: Operation) -> _Sizes | None:
    """The sizes as the kernel takes them, if it can."""
    a: Any = op.inputs[0].shape
    b: Any = op.inputs[1].shape
    y: Any = op.outputs[0].shape
    if op.outputs[0].dtype is not float32 or 0 in (*a, *b):
        return None
    first, second = math.prod(a[:-2]), math.prod(b[:-2])
    if second == 1 and not attributes_of(op)["transpose_a"]:
        # One matrix for all: all their rows are one matrix.
        rows = first * a[-2]
        return _Sizes((1, rows, a[-1]), (1, *b[-2:]), (1, rows, y[-1]))
    batch = math.prod(y[:-2])
    if first not in (1, batch) or second not in (1, batch):
        return None
    return _Sizes((first, *a[-2:]), (second, *b[-2:]), (batch, *y[-2:]))


def _pays(op: Operation, sizes: _Sizes) -> bool:
    """Whether the kernel is faster than XLA."""
    (_, m, n), transposed = sizes.result, attributes_of(op)["transpose_a"]
    k = sizes.first[-2] if transposed else sizes.first[-1]
    return m >= _FEWEST_ROWS and n >= _FEWEST and k >= _SHALLOWEST and (transposed or m * k * n <= _LARGEST)


# ------------------------------------------------------------------------------------------ what follows


def _tail(op: Operation, readers: Mapping[Output, Operation]) -> _Tail:
    product = op.outputs[0]
    after = readers.get(product)
    if after is None:
        return _Tail()
    if after.definition is AddV2:
        bias = _other(after, product)
        if bias is None or not _is_bias(bias, product) or after.outputs[0].shape != product.shape:
            return _Tail()
        last = readers.get(after.outputs[0])
        if last is not None and last.definition is Relu:
            return _Tail((after, last), bias, relu=True)
        return _Tail((after,), bias)
    if after.definition is Relu:
        return _Tail((after,), relu=True)
    if after.definition is ReluGrad and after.inputs[1] is product and after.inputs[0].shape == product.shape:
        return _Tail((after,), other=after.inputs[0])
    return _step(after, product, readers)


def _step(after: Operation, product: Output, readers: Mapping[Output, Operation]) -> _Tail:
    """A product that is scaled and taken from something, as a gradient from weights."""
    if after.definition is not Mul or after.outputs[0].shape != product.shape:
        return _Tail()
    scale, scaled = _other(after, product), after.outputs[0]
    last = readers.get(scaled)
    if scale is None or math.prod(scale.shape) != 1 or last is None or last.definition is not Sub:
        return _Tail()
    if last.inputs[1] is not scaled or last.inputs[0].shape != product.shape:
        return _Tail()
    return _Tail((after, last), other=last.inputs[0], scale=scale)


def _other(op: Operation, x: Output) -> Output | None:
    """The other operand of an operation with two."""
    first, second = op.inputs
    return (second if first is x else first) if first is not second else None


def _is_bias(x: Output, y: Output) -> bool:
    """Whether it is a number for each column."""
    return x.shape[-1:] == y.shape[-1:] and math.prod(x.shape) == y.shape[-1]


# ---------------------------------------------------------------------------------------------- the kernel


def _region(op: Operation, sizes: _Sizes, tail: _Tail) -> Region:
    together = [op, *tail.operations]
    more = (tail.bias, tail.other, tail.scale)
    inputs = [*op.inputs, *(x for x in more if x is not None)]
    return Region(together, inputs, together[-1].outputs, _kernel(op, sizes, tail))


def _kernel(op: Operation, sizes: _Sizes, tail: _Tail) -> Callable[..., Sequence[Any]]:
    """The operations as a function of arrays."""
    attributes = {name: np.int64(value) for name, value in attributes_of(op).items()}
    attributes["relu"] = np.int64(tail.relu)
    given = tuple(x is not None for x in (tail.bias, tail.other, tail.scale))
    return functools.partial(_call, sizes, op.outputs[0].shape, given, attributes)


def _call(
    sizes: _Sizes, shape: Any, given: Sequence[bool], attributes: Any, a: Any, b: Any, *more: Any
) -> Sequence[Any]:
    jax = require("jax", "the xla engine", "xla")
    call = jax.ffi.ffi_call(_TARGET, jax.ShapeDtypeStruct(sizes.result, np.float32), vmap_method="sequential")
    rest = iter(more)
    tail = [next(rest).reshape(-1) if there else np.zeros(0, np.float32) for there in given]
    return [call(a.reshape(sizes.first), b.reshape(sizes.second), *tail, **attributes).reshape(shape)]
