"""Sums of products: ``dot_general`` and convolutions."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.types import DType, dtype_of
from stopgrad.graph.graph import Output
from stopgrad.interop.jax.primitives.shapes import padded
from stopgrad.interop.jax.steps import NotOurs, Step, rule


def _wide(x: Output, dtype: DType) -> Output:
    converted: Output = x if x.dtype is dtype else sg.cast(x, dtype)
    return converted


def _working(step: Step, *xs: Output) -> list[Output]:
    """The factors in the widest dtype, in which XLA adds; narrower results are rounded at the end."""
    preferred = step.params.get("preferred_element_type")
    result_dtype = step.result.dtype if preferred is None else dtype_of(preferred)
    widest = max([result_dtype, *[x.dtype for x in xs]], key=lambda dtype: (dtype.is_complex, dtype.itemsize))
    if result_dtype.is_integer and any(x.dtype.is_floating for x in xs):
        raise NotOurs("a product of floating-point numbers as integers")
    return [_wide(x, widest) for x in xs]


@rule("dot_general")
def _dot_general(step: Step, a: Output, b: Output) -> Output:
    (over_a, over_b), (batch_a, batch_b) = step["dimension_numbers"]
    truths = a.dtype.is_bool
    if truths:
        a, b = sg.cast(a, sg.int32), sg.cast(b, sg.int32)
    a, b = [a, b] if truths else _working(step, a, b)
    product: Any = _as_matrices(a, b, over_a, over_b, batch_a, batch_b)
    if product is None:
        letters = iter(string.ascii_letters)
        in_a = [next(letters) for _ in range(a.ndim)]
        in_b = [next(letters) for _ in range(b.ndim)]
        for i, j in [*zip(over_a, over_b, strict=True), *zip(batch_a, batch_b, strict=True)]:
            in_b[j] = in_a[i]
        out = [in_a[i] for i in batch_a]
        out += [in_a[i] for i in range(a.ndim) if i not in (*over_a, *batch_a)]
        out += [in_b[j] for j in range(b.ndim) if j not in (*over_b, *batch_b)]
        product = sg.einsum(f"{''.join(in_a)},{''.join(in_b)}->{''.join(out)}", a, b)
    return sg.not_equal(product, 0) if truths else _wide(product, step.result.dtype)


def _as_matrices(
    a: Output,
    b: Output,
    over_a: Sequence[int],
    over_b: Sequence[int],
    batch_a: Sequence[int],
    batch_b: Sequence[int],
) -> Output | None:
    """The ``dot_general`` as a (batched) ``matmul``, if it is one without transposes; else None."""
    first = tuple(range(len(batch_a)))
    if len(over_a) != 1 or tuple(batch_a) != first or tuple(batch_b) != first:
        return None
    if b.ndim != len(first) + 2 or a.ndim < len(first) + 2 or (first and a.ndim != len(first) + 2):
        return None
    (i,), (j,) = over_a, over_b
    turned = i != a.ndim - 1
    if turned and a.ndim != len(first) + 2:
        return None
    product: Output = sg.matmul(a, b, transpose_a=turned, transpose_b=j == b.ndim - 1)
    return product


# --------------------------------------------------------------------------------------- convolutions


@rule("conv_general_dilated")
def _conv(step: Step, x: Output, filters: Output) -> Output:
    numbers = step["dimension_numbers"]
    x, filters = _working(step, x, filters)
    if not x.dtype.is_floating:
        raise NotOurs(f"a convolution of {x.dtype}")
    batch, features, *space = numbers.lhs_spec
    out, into, *window = numbers.rhs_spec
    x = sg.transpose(x, [batch, *space, features])
    filters = sg.transpose(filters, [*window, into, out])
    rank = len(space)
    if not rank:
        raise NotOurs("a convolution without axes to move along")
    x, padding = _spread(step, x)
    groups, batches = int(step["feature_group_count"]), int(step["batch_group_count"])
    geometry = {
        "strides": tuple(step["window_strides"]),
        "padding": padding,
        "dilations": tuple(step["rhs_dilation"]),
    }
    if batches > 1:
        x, groups = _batches_as_channels(x, batches), batches
        if 0 in filters.shape:
            raise NotOurs("a convolution without elements")
    y = sg.conv(x, filters, groups=groups, **geometry)
    y = _wide(y, step.result.dtype)
    to = numbers.out_spec
    order = [0] * (rank + 2)
    for position, axis in enumerate([to[0], *to[2:], to[1]]):
        order[axis] = position
    return sg.transpose(y, order)


def _spread(step: Step, x: Output) -> tuple[Output, Any]:
    """The input, dilated, and cut if the padding is negative; and the padding that is left."""
    gaps = step["lhs_dilation"]
    config = [
        (min(low, 0), min(high, 0), gap - 1) for (low, high), gap in zip(step["padding"], gaps, strict=True)
    ]
    around = tuple((max(low, 0), max(high, 0)) for low, high in step["padding"])
    if any(any(triple) for triple in config):
        x = padded(x, [(0, 0, 0), *config, (0, 0, 0)], 0)
    return x, around


def _batches_as_channels(x: Output, batches: int) -> Output:
    """Groups of examples turned into groups of channels."""
    n, *space, channels = x.shape
    parts = sg.reshape(x, [batches, n // batches, *space, channels])
    order = [*range(1, parts.ndim - 1), 0, parts.ndim - 1]
    grouped: Output = sg.reshape(sg.transpose(parts, order), [n // batches, *space, batches * channels])
    return grouped


@rule("mulhi")
def _high_part(step: Step, x: Output, y: Output) -> Output:
    if x.dtype is not sg.uint32:
        raise NotOurs("the high part of a product of other than uint32")
    wide = sg.cast(x, sg.uint64) * sg.cast(y, sg.uint64)
    return sg.cast(sg.right_shift(wide, sg.constant(32, sg.uint64)), sg.uint32)
