"""Random numbers, keys as the words of JAX's keys, and conversions between numbers and bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import DType, dtype_of
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import Tensor
from stopgrad.interop.jax.avals import is_key
from stopgrad.interop.jax.primitives.elementwise import like, unsigned
from stopgrad.interop.jax.steps import NotOurs, Step, rule

_WORDS = {8: sg.uint8, 16: sg.uint16, 32: sg.uint32, 64: sg.uint64}


def _check_threefry(step: Step) -> None:
    """Refuse keys of generators other than Threefry, which is JAX's default and ours."""
    keys = [v.aval for v in (*step.eqn.invars, *step.eqn.outvars) if is_key(v.aval)]
    if any(aval.dtype._impl.name != "threefry2x32" for aval in keys):
        raise NotOurs("another generator than threefry2x32")


def _for_each(keys: Output, function: Callable[..., Tensor], *others: Output) -> Tensor:
    """Apply a function of one key to each of an array of keys."""
    many = [int(n) for n in keys.shape[:-1]]
    if not many:
        return function(keys, *others)
    count = math.prod(many)
    flat = [sg.reshape(keys, [count, keys.shape[-1]]), *[sg.reshape(x, [count]) for x in others]]
    results = sg.vmap(function)(*flat)
    return sg.reshape(results, [*many, *results.shape[1:]])


@rule("random_wrap", "random_unwrap", "random_clone", keys=True)
def _random_wrap(step: Step, key: Output) -> Output:
    return sg.identity(key)


@rule("random_seed", keys=True)
def _random_seed(step: Step, seeds: Output) -> Output:
    _check_threefry(step)
    if seeds.dtype.itemsize == 8:
        whole = sg.cast(seeds, sg.uint64)
        high = sg.cast(sg.right_shift(whole, like(whole, 32)), sg.uint32)
        return sg.stack([high, sg.cast(whole, sg.uint32)], axis=-1)
    low = sg.cast(seeds, sg.uint32)
    return sg.stack([sg.zeros_like(low), low], axis=-1)


@rule("random_fold_in", keys=True)
def _random_fold_in(step: Step, keys: Output, data: Output) -> Output:
    _check_threefry(step)
    data = sg.cast(data, sg.uint32)
    if keys.ndim > 1 or data.ndim:
        shape = step.result.shape[:-1]
        data = sg.broadcast_to(data, shape)
        keys = sg.broadcast_to(keys, [*shape, keys.shape[-1]])
    return _for_each(keys, sg.random_fold_in, data)


@rule("random_split", keys=True)
def _random_split(step: Step, keys: Output) -> Tensor:
    _check_threefry(step)
    count = math.prod(step["shape"])
    split = _for_each(keys, lambda key: sg.random_split(key, count))
    return sg.reshape(split, step.result.shape)


@rule("random_bits", keys=True)
def _random_bits(step: Step, keys: Output) -> sg.Output:
    _check_threefry(step)
    shape, dtype = tuple(step["shape"]), _WORDS[step["bit_width"]]
    return _for_each(keys, lambda key: sg.random_bits(shape, key, dtype))


# ---------------------------------------------------------------------------------------------- bits

_MANTISSAS = {sg.float64: 52, sg.float32: 23, sg.bfloat16: 7, sg.float16: 10}


@rule("bitcast_convert_type")
def _bitcast(step: Step, x: Output) -> Output:
    dtype = dtype_of(step["new_dtype"])
    if dtype.itemsize != x.dtype.itemsize or dtype.is_complex or x.dtype.is_complex:
        raise NotOurs("bits read as numbers of another size")
    if dtype is x.dtype:
        return sg.identity(x)
    if x.dtype.is_floating and dtype.is_floating:
        return _from_bits(_to_bits(x), dtype)
    if dtype.is_floating:
        return _from_bits(sg.cast(x, unsigned(x.dtype)), dtype)
    return sg.cast(_to_bits(x), dtype) if x.dtype.is_floating else sg.cast(x, dtype)


class _Layout:
    """The layout of a floating-point number's bits."""

    def __init__(self, dtype: DType) -> None:
        self.mantissa = _MANTISSAS[dtype]
        self.exponents = 2 ** (8 * dtype.itemsize - 1 - self.mantissa)
        self.bias = self.exponents // 2 - 1
        self.work = dtype if dtype.itemsize >= 4 else sg.float32

    @property
    def units(self) -> np.ndarray[Any, Any]:
        """The value of the last bit of the mantissa, by the exponent's bits."""
        powers = np.maximum(np.arange(self.exponents), 1) - self.bias - self.mantissa
        units = np.ldexp(np.ones(self.exponents), powers)
        units[-1] = np.inf
        return units.astype(self.work.numpy)


def _from_bits(bits: Output, dtype: DType) -> Output:
    """The floating-point numbers with these bits, by steps that are all exact."""
    layout = _Layout(dtype)
    exponent = sg.bitwise_and(
        sg.right_shift(bits, like(bits, layout.mantissa)), like(bits, layout.exponents - 1)
    )
    rest = sg.bitwise_and(bits, like(bits, 2**layout.mantissa - 1))
    normal = sg.not_equal(exponent, like(bits, 0))
    whole = sg.where(normal, sg.bitwise_or(rest, like(bits, 2**layout.mantissa)), rest)
    unit = sg.gather(sg.constant(layout.units), sg.cast(exponent, sg.int32))
    size = sg.cast(whole, layout.work) * unit
    last = sg.logical_and(
        sg.equal(exponent, like(bits, layout.exponents - 1)), sg.not_equal(rest, like(bits, 0))
    )
    size = sg.where(last, like(size, np.nan), size)
    negative = sg.not_equal(sg.right_shift(bits, like(bits, 8 * dtype.itemsize - 1)), like(bits, 0))
    numbers: Output = sg.cast(sg.where(negative, -size, size), dtype)
    return numbers


def _to_bits(x: Output) -> Output:
    """The bits of floating-point numbers."""
    layout, word = _Layout(x.dtype), unsigned(x.dtype)
    size = sg.abs(sg.cast(x, layout.work))
    ends = layout.units.astype(np.float64) * 2.0**layout.mantissa
    first = sg.constant(ends[2:].astype(layout.work.numpy))
    exponent = sg.searchsorted(first, sg.reshape(size, [-1]), side="right") + 1
    exponent = sg.reshape(exponent, x.shape)
    small = sg.less(size, like(size, ends[1]))
    unit = sg.gather(sg.constant(layout.units), sg.minimum(exponent, np.int32(layout.exponents - 2)))
    whole = sg.cast(sg.where(sg.is_finite(size), size, like(size, 0)) / unit, word)
    rest = sg.bitwise_and(whole, np.asarray(2**layout.mantissa - 1, word.numpy))
    exponent = sg.where(small, np.int32(0), exponent)
    last = np.int32(layout.exponents - 1)
    exponent = sg.where(sg.is_finite(size), exponent, last)
    rest = sg.where(sg.is_nan(size), np.asarray(2 ** (layout.mantissa - 1), word.numpy), rest)
    sign = sg.left_shift(sg.cast(sg.signbit(x), word), np.asarray(8 * x.dtype.itemsize - 1, word.numpy))
    middle = sg.left_shift(sg.cast(exponent, word), np.asarray(layout.mantissa, word.numpy))
    bits: Output = sg.bitwise_or(sg.bitwise_or(sign, middle), rest)
    return bits
