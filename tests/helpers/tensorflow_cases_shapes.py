"""Random calls of TensorFlow's operations that move, find and make elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow_case import (
    F32,
    F64,
    I32,
    I64,
    Array,
    Case,
    Family,
    Maker,
    Operand,
    Random,
    const,
    fed,
    ints,
)
from tensorflow_cases_numbers import unary

# -------------------------------------------------------------------------------------------- indexing


def _gather(r: Random) -> Case:
    batch = r.below(2)
    lead = r.shape(batch, batch)
    x = r.array((*lead, *r.shape(1, 3)), r.kind())
    axis = batch + r.below(x.ndim - batch)
    indices = r.rng.integers(0, x.shape[axis], (*lead, *r.shape(0, 2))).astype(r.one(I32, I64))
    place = axis - (x.ndim if r.flag() else 0)
    return Case("GatherV2", [fed(x), fed(indices), const(place, I32)], {"batch_dims": batch})


def _rows(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    return Case("Gather", [fed(x), fed(r.rng.integers(0, len(x), r.shape(0, 2)).astype(I32))])


def _places(r: Random, shape: Sequence[int], count: Sequence[int]) -> tuple[Array, int]:
    depth = 1 + r.below(len(shape))
    parts = [r.rng.integers(0, shape[i], count) for i in range(depth)]
    return np.stack(parts, -1).astype(r.one(I32, I64)), depth


def _gather_nd(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    return Case("GatherNd", [fed(x), fed(_places(r, x.shape, r.shape(1, 2))[0])])


def _scatter_nd(r: Random) -> Case:
    shape, count = r.shape(1, 3), r.shape(1, 2)
    places, depth = _places(r, shape, count)
    updates = r.array((*count, *shape[depth:]), r.kind())
    return Case("ScatterNd", [fed(places), fed(updates), const(shape, places.dtype)])


def _written(op: str) -> Maker:
    def make(r: Random) -> Case:
        shape, dtype = (4, *r.shape(0, 2)), r.kind()
        count = 1 + r.below(4)
        places = r.rng.permutation(4)[:count] if op == "TensorScatterUpdate" else r.rng.integers(0, 4, count)
        x, updates = r.array(shape, dtype), r.array((count, *shape[1:]), dtype)
        if op in ("TensorScatterMax", "TensorScatterMin"):
            updates = updates + np.asarray(0.123, dtype)
        return Case(op, [fed(x), fed(places[:, None].astype(I32)), fed(updates)])

    return make


def _one_hot(r: Random) -> Case:
    dtype = r.one(F32, F64, I32)
    indices = r.rng.integers(-1, 4, r.shape(0, 2)).astype(r.one(I32, I64, np.uint8))
    operands = [fed(indices), const(3, I32), fed(r.array((), dtype)), fed(r.array((), dtype))]
    return Case("OneHot", operands, {"axis": r.below(indices.ndim + 2) - 1})


def _stitch(op: str) -> Maker:
    def make(r: Random) -> Case:
        order = r.rng.permutation(5).astype(I32)
        dtype, rest = r.kind(), r.shape(0, 1)
        rows = [r.array((2, *rest), dtype), r.array((3, *rest), dtype)]
        return Case(op, [Operand([order[:2], order[2:]], False), fed(rows)])

    return make


def _searched(op: str) -> Maker:
    def make(r: Random) -> Case:
        rows = np.sort(r.array((2, 4), F32), axis=1)
        return Case(op, [fed(rows), fed(r.array((2, 3), F32))], {"out_type": r.one(I32, I64)})

    return make


INDEXING: Family = {
    "GatherV2": _gather,
    "Gather": _rows,
    "GatherNd": _gather_nd,
    "ScatterNd": _scatter_nd,
    **{"TensorScatter" + op: _written("TensorScatter" + op) for op in ("Update", "Add", "Sub", "Max", "Min")},
    "OneHot": _one_hot,
    "DynamicStitch": _stitch("DynamicStitch"),
    "ParallelDynamicStitch": _stitch("ParallelDynamicStitch"),
    "UniqueV2": lambda r: Case("UniqueV2", [const(r.array((5, 2), I32, 0, 1)), ints(0)], {"out_idx": I32}),
    "UniqueWithCounts": lambda r: Case("UniqueWithCounts", [const(r.array((6,), I32))], {"out_idx": I64}),
    "UniqueWithCountsV2": lambda r: Case(
        "UniqueWithCountsV2", [const(r.array((6,), I32)), const(np.zeros(0, I32))], {"out_idx": I32}
    ),
    "InvertPermutation": lambda r: Case("InvertPermutation", [fed(r.rng.permutation(5).astype(I32))]),
    "LowerBound": _searched("LowerBound"),
    "UpperBound": _searched("UpperBound"),
    "Where": lambda r: Case("Where", [const(r.array(r.shape(1, 3), np.bool_))]),
    "Unique": lambda r: Case("Unique", [const(r.array((6,), I32))], {"out_idx": r.one(I32, I64)}),
    "ListDiff": lambda r: Case("ListDiff", [const(r.array((6,), I32)), const(r.array((2,), I32))]),
    "Bucketize": lambda r: Case(
        "Bucketize", [fed(r.array(r.shape(), F32))], {"boundaries": [-1.0, 0.0, 0.5]}
    ),
}


# ---------------------------------------------------------------------------------------------- moving


def _reshape(r: Random) -> Case:
    x = r.array((2, 3, 4), r.kind())
    return Case("Reshape", [fed(x), const(r.one([6, 4], [-1], [4, -1, 2], [2, 3, 4, 1]), I32)])


def _squeeze(r: Random) -> Case:
    shape = r.one((1, 2, 1), (2, 1, 3), (1, 1))
    ones = [i for i, n in enumerate(shape) if n == 1]
    dims = r.one([], [ones[0]], [ones[-1] - len(shape)])
    return Case("Squeeze", [fed(r.array(shape, r.kind()))], {"squeeze_dims": dims})


def _expand(r: Random) -> Case:
    x = r.array(r.shape(), r.kind())
    return Case("ExpandDims", [fed(x), const(r.axis(x.ndim + 1), I32)])


def _transpose(r: Random) -> Case:
    x = r.array(r.shape(1, 4, 3), r.kind())
    return Case("Transpose", [fed(x), const(r.rng.permutation(x.ndim), I32)])


def _broadcast(r: Random) -> Case:
    whole = r.shape(0, 3)
    return Case("BroadcastTo", [fed(r.array(r._part(whole), r.kind())), const(np.asarray(whole, I32))])


def _tile(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    return Case("Tile", [fed(x), const(1 + r.rng.integers(0, 3, x.ndim), I32)])


def _concat(r: Random) -> Case:
    shape, dtype = list(r.shape(1, 3)), r.kind()
    axis = r.axis(len(shape))
    parts = []
    for _ in range(2 + r.below(2)):
        shape[axis] = 1 + r.below(3)
        parts.append(r.array(shape, dtype))
    return Case("ConcatV2", [fed(parts), const(axis, I32)])


def _pack(r: Random) -> Case:
    shape, dtype = r.shape(0, 2), r.kind()
    parts = [r.array(shape, dtype) for _ in range(1 + r.below(3))]
    return Case("Pack", [fed(parts)], {"axis": r.axis(len(shape) + 1)})


def _unpack(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    axis = r.axis(x.ndim)
    return Case("Unpack", [fed(x)], {"axis": axis, "num": x.shape[axis]})


def _split(r: Random) -> Case:
    shape, parts = list(r.shape(1, 3)), 1 + r.below(3)
    axis = r.axis(len(shape))
    shape[axis] = parts * (1 + r.below(2))
    return Case("Split", [const(axis, I32), fed(r.array(shape, r.kind()))], {"num_split": parts})


def _split_v(r: Random) -> Case:
    shape = list(r.shape(1, 3))
    axis = r.axis(len(shape))
    lengths = [1 + r.below(2), 1 + r.below(3)]
    shape[axis] = sum(lengths)
    if r.flag():
        lengths[0] = -1
    operands = [fed(r.array(shape, r.kind())), const(lengths, I32), const(axis, I32)]
    return Case("SplitV", operands, {"num_split": 2})


def _strided(r: Random) -> tuple[Array, list[Any], dict[str, Any]]:
    x = r.array(r.shape(1, 4, 5), r.kind())
    begin, end, steps = [], [], []
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    axis, i = 0, 0
    rest = x.ndim
    while axis < x.ndim and r.below(6):
        size, kind = x.shape[axis], r.below(6)
        if kind == 0 and not masks["ellipsis_mask"]:
            masks["ellipsis_mask"] |= 1 << i
            axis += r.below(x.ndim - axis + 1)
            left = x.ndim - axis
            begin.append(0), end.append(0), steps.append(1)
            i += 1
            # What follows must name exactly the axes that are left.
            for _ in range(left):
                begin.append(0), end.append(x.shape[axis]), steps.append(1)
                axis, i = axis + 1, i + 1
            break
        if kind == 1:
            masks["new_axis_mask"] |= 1 << i
            begin.append(0), end.append(0), steps.append(1)
            i += 1
            continue
        if kind == 2:
            masks["shrink_axis_mask"] |= 1 << i
            at = r.below(size) - (size if r.flag() else 0)
            begin.append(at), end.append(at + 1), steps.append(1)
        else:
            step = r.one(1, 1, 2, -1, -2)
            a, b = sorted(r.rng.integers(0, size + 1, 2).tolist())
            a, b = (a, b) if step > 0 else (b - 1, a - 1)
            if r.flag() and 0 <= a < size:
                a -= size
            begin.append(a), end.append(b if b >= 0 else -size - 1), steps.append(step)
            masks["begin_mask"] |= r.below(2) << i
            masks["end_mask"] |= r.below(2) << i
        axis, i = axis + 1, i + 1
    assert rest == x.ndim
    if not begin:
        begin, end, steps = [0], [x.shape[0]], [1]
    return x, [const(np.asarray(v, I32)) for v in (begin, end, steps)], masks


def _strided_slice(r: Random) -> Case:
    x, bounds, masks = _strided(r)
    return Case("StridedSlice", [fed(x), *bounds], masks)


def _strided_slice_grad(r: Random) -> Case:
    x, bounds, masks = _strided(r)
    index: list[Any] = []
    for i, (a, b, c) in enumerate(zip(*[o.value.tolist() for o in bounds], strict=True)):
        bits = {name: value >> i & 1 for name, value in masks.items()}
        if bits["ellipsis_mask"]:
            index.append(Ellipsis)
        elif bits["new_axis_mask"]:
            index.append(None)
        elif bits["shrink_axis_mask"]:
            index.append(a)
        else:
            index.append(slice(None if bits["begin_mask"] else a, None if bits["end_mask"] else b, c))
    g = r.array(x[tuple(index)].shape, x.dtype)
    return Case("StridedSliceGrad", [const(np.asarray(x.shape, I32)), *bounds, fed(g)], masks)


def _mirror_grad(r: Random) -> Case:
    shape, mode = r.shape(1, 3), r.one("REFLECT", "SYMMETRIC")
    pads = _pads(r, shape)
    g = r.array([n + int(pair.sum()) for n, pair in zip(shape, pads, strict=True)], r.kind())
    return Case("MirrorPadGrad", [fed(g), const(pads)], {"mode": mode})


def _reverse_v1(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    return Case("Reverse", [fed(x), const(r.array((x.ndim,), np.bool_))])


def _concat_v1(r: Random) -> Case:
    dtype = r.kind()
    return Case("Concat", [const(1, I32), fed([r.array((2, 1 + r.below(3)), dtype) for _ in range(2)])])


def _square_blocks(op: str) -> Maker:
    def make(r: Random) -> Case:
        x = r.array((2, 4, 2, 1) if op == "SpaceToBatch" else (8, 2, 3, 1), F32)
        pads = [[0, 0], [r.one(0, 2), 0]] if op == "SpaceToBatch" else [[0, 1], [r.below(2), 0]]
        return Case(op, [fed(x), const(pads, I32)], {"block_size": 2})

    return make


def _slice(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    begin = [r.below(n) for n in x.shape]
    size = [r.one(-1, 1 + r.below(n - b)) for n, b in zip(x.shape, begin, strict=True)]
    return Case("Slice", [fed(x), const(begin, I32), const(size, I32)])


def _pads(r: Random, shape: Sequence[int], most: int = 3) -> Array:
    return np.asarray([[r.below(min(most, n)), r.below(min(most, n))] for n in shape], I32).reshape(-1, 2)


def _pad(op: str) -> Maker:
    def make(r: Random) -> Case:
        x = r.array(r.shape(1, 3), r.kind())
        more = [fed(r.array((), x.dtype))] if op == "PadV2" else []
        return Case(op, [fed(x), const(_pads(r, [3] * x.ndim)), *more])

    return make


def _mirror(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    return Case("MirrorPad", [fed(x), const(_pads(r, x.shape))], {"mode": r.one("REFLECT", "SYMMETRIC")})


def _reverse(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    return Case("ReverseV2", [fed(x), const(r.axes(x.ndim))])


def _reverse_sequence(r: Random) -> Case:
    lengths = r.rng.integers(0, 5, 3).astype(I64)
    x = r.array((3, 4, 2), r.kind())
    if r.flag():
        return Case("ReverseSequence", [fed(x), fed(lengths)], {"seq_dim": 1, "batch_dim": 0})
    return Case("ReverseSequence", [fed(x.swapaxes(0, 1)), fed(lengths)], {"seq_dim": 0, "batch_dim": 1})


def _roll(r: Random) -> Case:
    x = r.array(r.shape(1, 3), r.kind())
    count = 1 + r.below(x.ndim)
    axes = np.asarray([r.axis(x.ndim) for _ in range(count)], I32)
    return Case("Roll", [fed(x), fed(r.rng.integers(-3, 4, count).astype(I32)), const(axes)])


def _to_batch(r: Random) -> Case:
    block = [1 + r.below(2), 1 + r.below(3)]
    x = r.array((2, 2 * block[0], block[1], 2), r.kind())
    pads = [[block[0] * r.below(2), 0], [0, block[1] * r.below(2)]]
    return Case("SpaceToBatchND", [fed(x), const(block, I32), const(pads, I32)])


def _from_batch(r: Random) -> Case:
    block = [1 + r.below(2), 1 + r.below(2)]
    x = r.array((2 * block[0] * block[1], 2, 3, 1), r.kind())
    return Case("BatchToSpaceND", [fed(x), const(block, I32), const([[0, 1], [r.below(2), 0]], I32)])


def _blocks(op: str) -> Maker:
    def make(r: Random) -> Case:
        shape = (1, 4, 2, 1 + r.below(2)) if op == "SpaceToDepth" else (1, 2, 3, 4 * (1 + r.below(2)))
        return Case(op, [fed(r.array(shape, F32))], {"block_size": 2})

    return make


MOVING: Family = {
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "ExpandDims": _expand,
    "Transpose": _transpose,
    "BroadcastTo": _broadcast,
    "Tile": _tile,
    "ConcatV2": _concat,
    "Pack": _pack,
    "Unpack": _unpack,
    "Split": _split,
    "SplitV": _split_v,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_grad,
    "MirrorPadGrad": _mirror_grad,
    "Reverse": _reverse_v1,
    "Concat": _concat_v1,
    "SpaceToBatch": _square_blocks("SpaceToBatch"),
    "BatchToSpace": _square_blocks("BatchToSpace"),
    "Slice": _slice,
    "Pad": _pad("Pad"),
    "PadV2": _pad("PadV2"),
    "MirrorPad": _mirror,
    "ReverseV2": _reverse,
    "ReverseSequence": _reverse_sequence,
    "Roll": _roll,
    "SpaceToBatchND": _to_batch,
    "BatchToSpaceND": _from_batch,
    "SpaceToDepth": _blocks("SpaceToDepth"),
    "DepthToSpace": _blocks("DepthToSpace"),
}


# ------------------------------------------------------------------------------------------ generators


def _shape_of(op: str) -> Maker:
    def make(r: Random) -> Case:
        return Case(op, [fed(r.array(r.shape(), F32))], {"out_type": r.one(I32, I64)} if op != "Rank" else {})

    return make


def _range(r: Random) -> Case:
    dtype = r.one(I32, F32)
    start, step = r.array((), dtype, -3, 3), np.asarray(r.one(1, 2, -1), dtype)
    return Case("Range", [const(start), const(np.asarray(start + 5 * step, dtype)), const(step)])


def _linspace(r: Random) -> Case:
    dtype = r.kind()
    return Case("LinSpace", [fed(r.array((), dtype)), fed(r.array((), dtype)), const(1 + r.below(5), I32)])


def _broadcast_args(op: str) -> Maker:
    def make(r: Random) -> Case:
        a, b = r.pair()
        return Case(op, [const(np.asarray(a, I32)), const(np.asarray(b, I32))])

    return make


def _printed(r: Random) -> Case:
    return Case("Print", [fed(r.array((2,), F32)), fed([np.zeros(1, F32)])], {"message": "", "first_n": 0})


GENERATORS: Family = {
    **{op: _shape_of(op) for op in ("Shape", "Size", "Rank")},
    "ShapeN": lambda r: Case(
        "ShapeN", [fed([r.array(r.shape(), F32) for _ in range(2)])], {"out_type": r.one(I32, I64)}
    ),
    "ConcatOffset": lambda r: Case(
        "ConcatOffset", [const(1, I32), Operand([np.asarray([2, 1 + r.below(3)], I32) for _ in "abc"], False)]
    ),
    "Print": _printed,
    "Fill": lambda r: Case("Fill", [const(np.asarray(r.shape(), I32)), fed(r.array((), r.kind()))]),
    "Range": _range,
    "LinSpace": _linspace,
    "ZerosLike": unary("ZerosLike"),
    "OnesLike": unary("OnesLike"),
    "BroadcastArgs": _broadcast_args("BroadcastArgs"),
    "BroadcastGradientArgs": _broadcast_args("BroadcastGradientArgs"),
    "EnsureShape": lambda r: Case("EnsureShape", [fed(r.array((2, 3), r.kind()))], {"shape": (None, 3)}),
    "CheckNumerics": lambda r: Case("CheckNumerics", [fed(r.array(r.shape(), r.kind()))], {"message": "x"}),
}
