"""Attention with its masks and caches, and rotary embeddings."""

from __future__ import annotations

import math
from typing import Any

import stopgrad as sg
from stopgrad.base.types import DType, Size
from stopgrad.interop.onnx.operators.calling import Call, Table, dtype_of_code
from stopgrad.interop.shared.conversions import Refused, along, brought
from stopgrad.interop.shared.slices import padded

AXES = (0, 2, 1, 3)
"""From [batch, length, heads, features] to [batch, heads, length, features], and back."""


def by_heads(x: sg.Output, heads: int) -> sg.Output:
    """From [batch, length, heads · features] to [batch, heads, length, features]."""
    return sg.transpose(sg.reshape(x, [x.shape[0], x.shape[1], heads, -1]), AXES)


def joined_heads(x: sg.Output) -> sg.Output:
    """From [batch, heads, length, features] to [batch, length, heads · features]."""
    x = sg.transpose(x, AXES)
    return sg.reshape(x, [x.shape[0], x.shape[1], x.shape[2] * x.shape[3]])


def precision(node: Call, name: str, otherwise: DType) -> DType:
    """The element type that an attribute gives by its number, or *otherwise*."""
    number = int(node.attribute(name, 0))
    dtype = dtype_of_code(number) if number else otherwise
    if dtype is None:
        node.fail(f"there is no element type here for {name}={number}")
    return dtype


def products(q: sg.Output, k: sg.Output, scale: float | None) -> sg.Output:
    """Scaled products of queries and keys: [batch, heads of q, queries, keys]; heads of k may be shared."""
    factor = 1 / math.sqrt(int(q.shape[-1])) if scale is None else float(scale)
    if q.dtype.itemsize == 2:  # √scale for each factor, as the specification says, to avoid overflow.
        q, k = (sg.multiply(x, brought(math.sqrt(factor), x.dtype)) for x in (q, k))
    else:
        q = sg.multiply(q, brought(factor, q.dtype))
    return _shared(q, sg.swapaxes(k, -1, -2))


def capped(scores: sg.Output, cap: float) -> sg.Output:
    """Scores limited smoothly to (-cap, cap); 0 for no limit."""
    return scores if cap <= 0 else sg.multiply(sg.tanh(sg.divide(scores, cap)), cap)


def _shared(x: sg.Output, y: sg.Output) -> sg.Output:
    """x · y, where several neighbouring heads of x share one head of y."""
    group = x.shape[1] // y.shape[1]
    if group == 1:
        return sg.matmul(x, y)
    rows = sg.reshape(x, [x.shape[0], y.shape[1], group * x.shape[2], x.shape[3]])
    return sg.reshape(sg.matmul(rows, y), [*x.shape[:3], y.shape[-1]])


def shares(scores: sg.Output, masked: bool, dtype: DType) -> sg.Output:
    """The softmax over keys, computed in *dtype*; 0 for queries all of whose scores are -∞."""
    wide = brought(scores, dtype)
    if not masked:
        return brought(sg.softmax(wide), scores.dtype)
    some = sg.reduce_any(sg.not_equal(wide, brought(-math.inf, wide.dtype)), -1, True)
    zero = brought(0, wide.dtype)
    return brought(sg.where(some, sg.softmax(sg.where(some, wide, zero)), zero), scores.dtype)


def means(weights: sg.Output, v: sg.Output) -> sg.Output:
    """The weighted means of the values: [batch, heads, queries, features]."""
    return _shared(weights, v)


class Mask:
    """The keys to which each query may attend, and the bias added to the scores."""

    def __init__(self, keys: Size) -> None:
        self.allowed: sg.Output | None = None
        self.bias: sg.Output | None = None
        self.keys = keys

    def allow(self, which: sg.Output) -> None:
        """Allow only these among the keys allowed so far."""
        self.allowed = which if self.allowed is None else sg.logical_and(self.allowed, which)

    def apply(self, mask: sg.Output) -> None:
        """Apply a mask operand: booleans, or numbers to add; keys beyond its end are excluded."""
        missing = self.keys - mask.shape[-1]
        if not mask.dtype.is_bool and not mask.dtype.is_floating:
            raise Refused(f"its mask is {mask.dtype.name}, and neither bool nor floating-point")
        if mask.dtype.is_bool:
            self.allow(mask if _is_zero(missing) else _extended(mask, missing, False))
        else:
            self.bias = mask if _is_zero(missing) else _extended(mask, missing, -math.inf)

    def near(self, queries: Size, offset: Size, left: int, right: int) -> None:
        """Allow only keys in a window around each query's index plus *offset*; -1 for no bound."""
        if left < 0 and right < 0:
            return
        rows = sg.add(along(sg.range(0, queries, dtype=sg.int64), 0, 2), offset)
        columns = sg.range(0, self.keys, dtype=sg.int64)
        if right >= 0:
            self.allow(sg.less_equal(columns, sg.add(rows, right)))
        if left >= 0:
            self.allow(sg.greater_equal(columns, sg.subtract(rows, left)))

    def until(self, lengths: sg.Output) -> sg.Output:
        """Allow only keys before the end of their sequence; the lengths, as [batch, 1, 1, 1]."""
        ends = sg.reshape(sg.cast(lengths, sg.int64), [-1, 1, 1, 1])
        self.allow(sg.less(sg.range(0, self.keys, dtype=sg.int64), ends))
        return ends

    def on(self, scores: sg.Output) -> sg.Output:
        """The scores with the mask applied."""
        if self.bias is not None:
            scores = sg.add(scores, brought(self.bias, scores.dtype))
        return (
            scores
            if self.allowed is None
            else sg.where(self.allowed, scores, brought(-math.inf, scores.dtype))
        )


def _is_zero(n: int) -> bool:
    return not isinstance(n, sg.Dim) and n == 0


def _extended(mask: sg.Output, missing: int, value: float) -> sg.Output:
    if not mask.dtype.is_bool:
        return padded(mask, [*[(0, 0)] * (mask.ndim - 1), (0, missing)], value)
    numbers = padded(sg.cast(mask, sg.int8), [*[(0, 0)] * (mask.ndim - 1), (0, missing)])
    return sg.cast(numbers, sg.bool_)


def _windows(node: Call, mask: Mask, queries: Size, offset: Size, masked: bool) -> bool:
    """Apply the attributes for windows and causality; whether a query may be left without keys."""
    left, right = (int(node.attribute(f"{side}_window_size", -1)) for side in ("left", "right"))
    if node.attribute("is_causal", 0):
        right = 0 if right < 0 else min(right, 0)
    mask.near(queries, offset, left, right)
    return masked or left >= 0 or (right >= 0 and isinstance(offset, sg.Output))


def attention(
    node: Call,
    q: sg.Output,
    k: sg.Output,
    v: sg.Output,
    mask: sg.Output | None = None,
    past_key: sg.Output | None = None,
    past_value: Any = None,
    lengths: sg.Output | None = None,
) -> tuple[sg.Output, sg.Output, sg.Output, sg.Output]:
    flat = q.ndim == 3
    if flat:
        heads, shared = node.attribute("q_num_heads"), node.attribute("kv_num_heads")
        if not heads or not shared:
            node.fail("with operands of three axes it needs q_num_heads and kv_num_heads")
        q, k, v = by_heads(q, int(heads)), by_heads(k, int(shared)), by_heads(v, int(shared))
    offset: Any = 0
    if past_key is not None:
        offset = past_key.shape[2]
        k, v = sg.concat([past_key, k], 2), sg.concat([past_value, v], 2)
    masking, masked = Mask(k.shape[2]), mask is not None or lengths is not None
    if mask is not None:
        masking.apply(mask)
    if lengths is not None:
        ends = masking.until(lengths)
        if past_key is None:
            offset = sg.subtract(ends, q.shape[2])
    masked = _windows(node, masking, q.shape[2], offset, masked)
    raw = products(q, k, node.attribute("scale"))
    bounded = capped(raw, float(node.attribute("softcap", 0.0)))
    biased = masking.on(bounded)
    weights = shares(biased, masked, precision(node, "softmax_precision", biased.dtype))
    y = means(weights, v)
    qk = (raw, bounded, biased, weights)[int(node.attribute("qk_matmul_output_mode", 0))]
    return joined_heads(y) if flat else y, k, v, qk


def flex_attention(node: Call, q: sg.Output, k: sg.Output, v: sg.Output) -> sg.Output:
    """Attention with functions of the scores, and of their softmax, that are attributes of the node.

    In the operator's own body, these functions could not see the names around the node.
    """
    dtype = precision(node, "softmax_precision", q.dtype)
    scores = products(brought(q, dtype), brought(k, dtype), node.attribute("scale"))
    if node.attribute("score_mod") is not None:
        (scores,) = node.run(node.attribute("score_mod"), [scores])
    weights = shares(scores, node.attribute("score_mod") is not None, dtype)
    if node.attribute("prob_mod") is not None:
        (weights,) = node.run(node.attribute("prob_mod"), [weights])
    return brought(means(weights, brought(v, weights.dtype)), v.dtype)


def rotated(x: sg.Output, cos: sg.Output, sin: sg.Output, interleaved: bool) -> sg.Output:
    """Pairs of elements of the last axis, rotated: neighbours, or one from each half."""
    half = cos.shape[-1]
    pairs = sg.reshape(x, [*x.shape[:-1], *((half, 2) if interleaved else (2, half))])
    axis = x.ndim if interleaved else x.ndim - 1
    a, b = (sg.squeeze(part, axis) for part in sg.split(pairs, 2, axis))
    real = sg.subtract(sg.multiply(cos, a), sg.multiply(sin, b))
    imaginary = sg.add(sg.multiply(sin, a), sg.multiply(cos, b))
    return sg.reshape(sg.stack([real, imaginary], axis), list(x.shape))


def turned(node: Call, x: sg.Output, cos: sg.Output, sin: sg.Output) -> sg.Output:
    """:func:`turned_by` with the node's attributes."""
    width = int(node.attribute("rotary_embedding_dim", 0)) or x.shape[-1]
    return turned_by(x, cos, sin, width, bool(node.attribute("interleaved", 0)))


def turned_by(x: sg.Output, cos: sg.Output, sin: sg.Output, width: Size, interleaved: bool) -> sg.Output:
    """x [batch, heads, length, features] with its first features rotated, by [batch, length, angles]."""
    cos, sin = (sg.expand_dims(t, 1) for t in (cos, sin))
    y = rotated(x[..., :width], cos, sin, interleaved)
    return y if width == x.shape[-1] else sg.concat([y, x[..., width:]], -1)


def rotary_embedding(
    node: Call, x: sg.Output, cos: sg.Output, sin: sg.Output, places: sg.Output | None = None
) -> sg.Output:
    """In place of the operator's body, whose slices take up to 1.7 times as long."""
    flat = x.ndim == 3
    if flat:
        heads = int(node.attribute("num_heads", 0))
        if not heads:
            node.fail("with an input of three axes it needs num_heads")
        x = by_heads(x, heads)
    if places is not None:
        cos, sin = sg.gather(cos, places), sg.gather(sin, places)
    y = turned(node, x, cos, sin)
    return joined_heads(y) if flat else y


ATTENTION: Table = {
    "Attention": attention,
    "RotaryEmbedding": rotary_embedding,
    "ai.onnx.preview::FlexAttention": flex_attention,
}
