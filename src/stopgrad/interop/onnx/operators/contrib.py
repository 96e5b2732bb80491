"""Operators of the domain ``com.microsoft`` that optimised and exported models hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.onnx.operators.activations import ACTIVATIONS, line
from stopgrad.interop.onnx.operators.attention import (
    Mask,
    by_heads,
    capped,
    joined_heads,
    means,
    products,
    shares,
    turned,
    turned_by,
)
from stopgrad.interop.onnx.operators.calling import Call, Table
from stopgrad.interop.onnx.operators.convolutions import conv
from stopgrad.interop.onnx.operators.elementwise import ELEMENTWISE
from stopgrad.interop.onnx.operators.normalizations import layer_normalization, rms_normalization
from stopgrad.interop.onnx.operators.products import PRODUCTS
from stopgrad.interop.onnx.operators.quantized import by_rows, product_by_matrix
from stopgrad.interop.shared.conversions import brought
from stopgrad.interop.shared.normalizations import layer_normalized, wide

# ------------------------------------------------------------------------------------------ activations


def gelu(node: Call, x: sg.Output, bias: sg.Output | None = None) -> sg.Output:
    return sg.gelu(x if bias is None else sg.add(x, bias))


def fast_gelu(node: Call, x: sg.Output, bias: sg.Output | None = None) -> sg.Output:
    return sg.gelu(x if bias is None else sg.add(x, bias), approximate=True)


def quick_gelu(node: Call, x: sg.Output) -> sg.Output:
    return sg.silu(x, float(node.attribute("alpha", 1.702)))


FUSED: dict[str, tuple[Callable[..., sg.Output], tuple[float, ...]]] = {
    "Relu": (sg.relu, ()),
    "Tanh": (sg.tanh, ()),
    "Sigmoid": (sg.sigmoid, ()),
    "LeakyRelu": (sg.leaky_relu, (0.01,)),
    "HardSigmoid": (line, (0.2, 0.5)),
    "Clip": (sg.clip, ()),
}
"""The activations that may follow a convolution, with the default values of their parameters."""


def _activated(node: Call, y: sg.Output) -> sg.Output:
    """y after the activation that the attributes name."""
    name = str(node.attribute("activation", ""))
    if not name:
        return y
    if name not in FUSED:
        node.fail(f"the activation {name!r} is unknown; it is one of {', '.join(FUSED)}")
    function, usual = FUSED[name]
    parameters = [float(n) for n in node.attribute("activation_params") or usual]
    return function(y, *parameters)


def fused_conv(
    node: Call, x: sg.Output, w: sg.Output, b: sg.Output | None = None, z: sg.Output | None = None
) -> sg.Output:
    y = conv(node, x, w, b)
    return _activated(node, y if z is None else sg.add(y, z))


# --------------------------------------------------------------------------------------------- products


def fused_matmul(node: Call, a: sg.Output, b: sg.Output) -> sg.Output:
    """alpha · a · b, after the transpositions that the attributes ask for."""
    parts = []
    for x, which in ((a, "A"), (b, "B")):
        if node.attribute(f"transBatch{which}", 0):  # Move the first axis to the last place but one.
            x = sg.moveaxis(x, 0, -2)
        parts.append(sg.swapaxes(x, -1, -2) if node.attribute(f"trans{which}", 0) and x.ndim > 1 else x)
    y, alpha = sg.matmul(parts[0], parts[1]), float(node.attribute("alpha", 1.0))
    return y if alpha == 1 else sg.multiply(y, brought(alpha, y.dtype))


def fused_gemm(node: Call, a: sg.Output, b: sg.Output, c: sg.Output | None = None) -> object:
    """``Gemm``, followed by the activation that the attributes name."""
    return _followed(node, PRODUCTS["Gemm"](node, a, b, c))


def fused_product(node: Call, a: sg.Output, b: sg.Output) -> object:
    """``FusedMatMul``, followed by the activation that the attributes name."""
    return _followed(node, fused_matmul(node, a, b))


def _followed(node: Call, y: object) -> object:
    """y after the activation that the attributes name, with that one's attributes."""
    name = str(node.attribute("activation", ""))
    rule = ACTIVATIONS.get(name, ELEMENTWISE.get(name))
    if rule is None and name:
        node.fail(f"the activation {name!r} is unknown")
    keys = ("alpha", "beta", "gamma", "axis")
    attributes = {
        key: node.attribute(f"activation_{key}") for key in keys if f"activation_{key}" in node.attributes
    }
    return y if rule is None else rule(node.having(attributes), y)


def gemm_fast_gelu(node: Call, x: sg.Output, w: sg.Output, bias: sg.Output | None = None) -> sg.Output:
    return fast_gelu(node, sg.matmul(x, w), bias)


def bias_add(node: Call, x: sg.Output, bias: sg.Output, skip: sg.Output) -> sg.Output:
    return sg.add(sg.add(x, bias), skip)


def matmul_of_bits(
    node: Call,
    a: sg.Output,
    b: sg.Output,
    scales: sg.Output,
    zeros: sg.Output | None = None,
    order: sg.Output | None = None,
    bias: sg.Output | None = None,
) -> sg.Output:
    """a times the transpose of weights of 4 or 8 bits, with a scale for each block of a row."""
    bits, size = int(node.attribute("bits", 4)), int(node.attribute("block_size"))
    rows, columns = int(node.attribute("N")), int(node.attribute("K"))
    if bits not in (4, 8) or order is not None:
        node.fail("weights of 4 and 8 bits are read here, in the order in which they stand")
    blocks = -(-columns // size)
    values = brought(sg.reshape(unpacked(b, bits), [rows, blocks, size]), scales.dtype)
    if zeros is None:
        points: Any = brought(2 ** (bits - 1), scales.dtype)
    elif zeros.dtype.is_floating:
        points = sg.reshape(zeros, [rows, blocks, 1])
    else:
        whole = sg.reshape(unpacked(sg.reshape(zeros, [rows, -1]), bits), [rows, -1, 1])
        points = brought(whole[:, :blocks], scales.dtype)
    weights = sg.multiply(sg.subtract(values, points), sg.reshape(scales, [rows, blocks, 1]))
    matrix = sg.reshape(weights, [rows, blocks * size])[:, :columns]
    node.dequantized(b, matrix)
    y = sg.matmul(a, brought(sg.transpose(matrix), a.dtype))
    return y if bias is None else sg.add(y, bias)


def unpacked(x: sg.Output, bits: int) -> sg.Output:
    """The 4-bit numbers in bytes, the lower half first: [..., twice as many]."""
    if bits == 8:
        return x
    low, high = sg.bitwise_and(x, brought(15, x.dtype)), sg.right_shift(x, brought(4, x.dtype))
    return sg.reshape(sg.stack([low, high], -1), [*x.shape[:-1], x.shape[-1] * 2])


# ---------------------------------------------------------------------------------------- normalisation


def skip_layer(
    node: Call,
    x: sg.Output,
    skip: sg.Output,
    scale: sg.Output,
    bias: sg.Output | None = None,
    before: sg.Output | None = None,
) -> tuple[sg.Output | None, ...]:
    total = _sum(x, skip, before)
    axes, eps = (x.ndim - 1,), float(node.attribute("epsilon", 1e-12))
    return *layer_normalized(total, axes, scale, bias, eps, node.wants(1) or node.wants(2)), total


def skip_rms(
    node: Call, x: sg.Output, skip: sg.Output, scale: sg.Output, before: sg.Output | None = None
) -> tuple[sg.Output, None, sg.Output | None, sg.Output]:
    total = _sum(x, skip, before)
    eps = float(node.attribute("epsilon", 1e-12))
    rstd = _root_mean(total, (x.ndim - 1,), eps) if node.wants(2) else None
    return sg.rms_norm(total, scale, -1, eps), None, rstd, total


def _sum(x: sg.Output, skip: sg.Output, before: sg.Output | None) -> sg.Output:
    total = sg.add(x, skip)
    return total if before is None else sg.add(total, before)


def _root_mean(x: sg.Output, axes: tuple[int, ...], eps: float) -> sg.Output:
    x = wide(x)
    return sg.rsqrt(sg.add(sg.reduce_mean(sg.square(x), axis=axes, keepdims=True), brought(eps, x.dtype)))


def simplified_layer(node: Call, x: sg.Output, scale: sg.Output) -> tuple[sg.Output, sg.Output | None]:
    axis = int(node.attribute("axis", -1))
    axes = tuple(range(axis + x.ndim if axis < 0 else axis, x.ndim))
    rstd = _root_mean(x, axes, float(node.attribute("epsilon", 1e-5))) if node.wants(1) else None
    return rms_normalization(node, x, scale), rstd


def embed_layer(
    node: Call,
    words: sg.Output,
    segments: sg.Output,
    word: sg.Output,
    position: sg.Output,
    segment: sg.Output,
    scale: sg.Output,
    bias: sg.Output,
    mask: sg.Output | None = None,
    places: sg.Output | None = None,
) -> tuple[sg.Output, Tensor, sg.Output]:
    """The normalised sum of the embeddings of words, positions and segments; and each sequence's length."""
    batch, length = words.shape
    tokens = sg.gather(word, words)
    place = position[:length] if places is None else sg.gather(position, places)
    total = sg.add(tokens, place)
    if segment is not None and segments is not None:
        total = sg.add(total, sg.gather(segment, segments))
    y, _, _ = layer_normalized(total, (2,), scale, bias, float(node.attribute("epsilon", 1e-12)))
    if mask is None:
        return y, sg.zeros([batch], sg.int32), total
    return y, sg.cast(sg.reduce_sum(sg.cast(mask, sg.int32), axis=1), sg.int32), total


# -------------------------------------------------------------------------------------------- attention


def rotary(node: Call, x: sg.Output, places: sg.Output, cos: sg.Output, sin: sg.Output) -> sg.Output:
    """Rotary embeddings; *places* is the position of the first token, or a position for each token."""
    if node.attribute("is_packed_batching", 0) or float(node.attribute("scale", 1.0)) != 1:
        node.fail("it is translated without is_packed_batching, and with scale=1")
    flat = x.ndim == 3
    if flat:
        heads = int(node.attribute("num_heads", 0))
        x = by_heads(x, heads or x.shape[-1] // (2 * cos.shape[-1]))
    if places.ndim == 1:
        steps = sg.range(0, x.shape[2], dtype=places.dtype)
        places = sg.add(sg.reshape(places, [1, 1]), steps)
    y = turned(node, x, sg.gather(cos, places), sg.gather(sin, places))
    return joined_heads(y) if flat else y


def _masked(node: Call, mask: sg.Output | None, keys: Size) -> Mask:
    """From ones and zeros, [batch, keys] or [batch, queries, keys], or from lengths, [batch]."""
    masking = Mask(keys)
    if mask is None:
        return masking
    if mask.ndim == 1:
        masking.until(mask)
    elif mask.ndim in (2, 3):
        masking.allow(
            sg.expand_dims(sg.not_equal(mask, brought(0, mask.dtype)), 1 if mask.ndim == 3 else (1, 2))
        )
    else:
        node.fail(f"a mask of {mask.ndim} axes is not translated; give one of 1, 2 or 3")
    return masking


def _attended(
    node: Call,
    q: sg.Output,
    k: sg.Output,
    v: sg.Output,
    masking: Mask,
    bias: sg.Output | None,
    offset: Size,
    masked: bool,
) -> tuple[sg.Output, sg.Output]:
    """The result of attention, with the heads joined, and the scaled products."""
    if bias is not None:
        masking.apply(bias)
    if node.attribute("unidirectional", 0):
        masking.near(q.shape[2], offset, -1, 0)
    raw = products(q, k, node.attribute("scale"))
    weights = shares(masking.on(raw), masked or bias is not None, raw.dtype)
    return joined_heads(means(weights, v)), raw


def attention(
    node: Call,
    x: sg.Output,
    weights: sg.Output,
    bias: sg.Output | None = None,
    mask: sg.Output | None = None,
    past: sg.Output | None = None,
    extra: sg.Output | None = None,
    past_length: sg.Output | None = None,
) -> tuple[sg.Output, sg.Output | None]:
    """Attention whose queries, keys and values come from one product."""
    if past_length is not None:
        node.fail("it is translated without a shared buffer for the past")
    whole = sg.matmul(x, weights)
    whole = whole if bias is None else sg.add(whole, bias)
    return attended(node, whole, mask, past, extra)


def attended(
    node: Call,
    whole: sg.Output,
    mask: sg.Output | None,
    past: sg.Output | None,
    extra: sg.Output | None = None,
) -> tuple[sg.Output, sg.Output | None]:
    """Attention to what one product has made: queries, keys and values side by side."""
    if node.attribute("do_rotary", 0):
        node.fail("it is translated without do_rotary")
    heads = int(node.attribute("num_heads"))
    sizes = [int(n) for n in node.attribute("qkv_hidden_sizes") or [whole.shape[2] // 3] * 3]
    q, k, v = (by_heads(part, heads) for part in sg.split(whole, sizes, 2))
    offset: Any = 0
    if past is not None:
        offset = past.shape[3]
        k, v = sg.concat([past[0], k], 2), sg.concat([past[1], v], 2)
    y, _ = _attended(node, q, k, v, _masked(node, mask, k.shape[2]), extra, offset, mask is not None)
    return y, sg.stack([k, v], 0) if node.wants(1) else None


def multi_head_attention(
    node: Call,
    q: sg.Output,
    k: sg.Output | None = None,
    v: Any = None,
    bias: sg.Output | None = None,
    mask: sg.Output | None = None,
    extra: sg.Output | None = None,
    past_k: sg.Output | None = None,
    past_v: Any = None,
    *rest: sg.Output | None,
) -> tuple[sg.Output, sg.Output, Any, sg.Output]:
    heads = int(node.attribute("num_heads"))
    if any(x is not None for x in rest):
        node.fail("it is translated without a shared buffer for the past")
    if k is None:  # [batch, length, heads, 3, features]
        q, k, v = (sg.transpose(q[:, :, :, i], (0, 2, 1, 3)) for i in range(3))
    elif k.ndim == 5:
        q = by_heads(q, heads)
        k, v = (sg.transpose(k[:, :, :, i], (0, 2, 1, 3)) for i in range(2))
    elif k.ndim == 4:
        q = by_heads(_biased(q, bias, 0), heads)
    else:
        starts = (0, q.shape[-1], q.shape[-1] + k.shape[-1])
        q, k, v = (
            by_heads(_biased(x, bias, start), heads) for x, start in zip((q, k, v), starts, strict=True)
        )
    offset: Any = 0
    if past_k is not None:
        offset = past_k.shape[2]
        k, v = sg.concat([past_k, k], 2), sg.concat([past_v, v], 2)
    y, raw = _attended(node, q, k, v, _masked(node, mask, k.shape[2]), extra, offset, mask is not None)
    return y, k, v, raw


def _biased(x: sg.Output, bias: sg.Output | None, start: Size) -> sg.Output:
    return x if bias is None else sg.add(x, bias[start : start + x.shape[-1]])


def group_query_attention(
    node: Call,
    q: sg.Output,
    k: sg.Output,
    v: sg.Output,
    past_k: sg.Output | None,
    past_v: sg.Output | None,
    lengths: sg.Output,
    total: sg.Output,
    cos: Any = None,
    sin: Any = None,
    places: sg.Output | None = None,
    bias: sg.Output | None = None,
    *rest: sg.Output | None,
) -> tuple[sg.Output, sg.Output, sg.Output]:
    """Grouped-query attention without a cache, as in training."""
    heads, shared = int(node.attribute("num_heads")), int(node.attribute("kv_num_heads"))
    for x in (past_k, past_v):
        if x is not None and not (isinstance(x.shape[2], int) and x.shape[2] == 0):
            node.fail(
                "it is translated without a cache; fix past_key and past_value to a length of 0, with known="
            )
    if node.attribute("smooth_softmax", 0) or any(x is not None for x in rest):
        node.fail("it is translated without smooth_softmax, head_sink and quantized caches")
    if k is None:  # q holds all three.
        width = q.shape[-1] // (heads + 2 * shared)
        q, k, v = sg.split(q, [heads * width, shared * width, shared * width], 2)
    q, k, v = by_heads(q, heads), by_heads(k, shared), by_heads(v, shared)
    if node.attribute("do_rotary", 0):
        near = bool(node.attribute("rotary_interleaved", 0))
        cos, sin = (sg.expand_dims(t[: q.shape[2]], 0) for t in (cos, sin))
        q, k = (turned_by(x, cos, sin, 2 * cos.shape[-1], near) for x in (q, k))
    mask = Mask(k.shape[2])
    if bias is not None:
        mask.apply(bias)
    window = int(node.attribute("local_window_size", -1))
    mask.near(q.shape[2], 0, max(window - 1, -1), 0 if node.attribute("causal", 1) else -1)
    raw = capped(products(q, k, node.attribute("scale") or None), float(node.attribute("softcap", 0.0)))
    weights = shares(mask.on(raw), bias is not None, raw.dtype)
    return joined_heads(means(weights, v)), k, v


def bias_split_gelu(node: Call, x: sg.Output, bias: sg.Output) -> sg.Output:
    left, right = sg.split(sg.add(x, bias), 2, -1)
    return sg.multiply(left, sg.gelu(right))


def group_norm(node: Call, x: sg.Output, scale: sg.Output, bias: sg.Output) -> sg.Output:
    """The scale and the bias may be of float32 where x, and so the result, is of float16."""
    axis = -1 if node.attribute("channels_last", 1) else 1
    how: dict[str, Any] = {"axis": axis, "epsilon": float(node.attribute("epsilon", 1e-5))}
    scale, bias = (brought(t, wide(x).dtype) for t in (scale, bias))
    y = sg.group_norm(wide(x), int(node.attribute("groups")), scale, bias, **how)
    return brought(sg.silu(y) if int(node.attribute("activation", 0)) == 1 else y, x.dtype)


def skip_group_norm(
    node: Call,
    x: sg.Output,
    scale: sg.Output,
    shift: sg.Output,
    skip: sg.Output,
    bias: sg.Output | None = None,
) -> tuple[sg.Output, sg.Output]:
    """``GroupNorm`` of a sum, channels last; and the sum."""
    skip = sg.expand_dims(skip, (1, 2)) if skip.ndim == 2 else skip
    total = _sum(x, skip, bias)
    return group_norm(node, total, scale, shift), total


def scaled_product(
    node: Call,
    a: sg.Output,
    b: sg.Output,
    a_scale: sg.Output,
    b_scale: sg.Output,
    a_zero: sg.Output | None = None,
    b_zero: sg.Output | None = None,
    bias: sg.Output | None = None,
) -> sg.Output:
    """A product of integers times its scale."""
    product, b_scale = product_by_matrix(node, a, a_zero, b, b_scale, b_zero)
    y = sg.multiply(sg.cast(product, a_scale.dtype), sg.multiply(by_rows(a_scale), b_scale))
    return y if bias is None else sg.add(y, bias)


_MICROSOFT: Table = {
    "Gelu": gelu,
    "BiasGelu": gelu,
    "FastGelu": fast_gelu,
    "QuickGelu": quick_gelu,
    "BiasSplitGelu": bias_split_gelu,
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul": fused_matmul,
    "FusedMatMulActivation": fused_product,
    "GemmFastGelu": gemm_fast_gelu,
    "BiasAdd": bias_add,
    "TransposeMatMul": fused_matmul,
    "MatMulNBits": matmul_of_bits,
    "MatMulIntegerToFloat": scaled_product,
    "LayerNormalization": layer_normalization,
    "SimplifiedLayerNormalization": simplified_layer,
    "SkipLayerNormalization": skip_layer,
    "SkipSimplifiedLayerNormalization": skip_rms,
    "EmbedLayerNormalization": embed_layer,
    "GroupNorm": group_norm,
    "SkipGroupNorm": skip_group_norm,
    "RotaryEmbedding": rotary,
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
    "GroupQueryAttention": group_query_attention,
}

CONTRIB: Table = {
    "SimplifiedLayerNormalization": simplified_layer,
    **{f"com.microsoft::{name}": rule for name, rule in _MICROSOFT.items()},
}
