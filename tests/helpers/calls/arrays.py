"""Calls of functions that index, join, order, count, repeat and move."""

from __future__ import annotations

import numpy as np

from calls import Call, call

RNG = np.random.default_rng(87)
D = RNG.normal(size=(3, 4))
F = RNG.normal(size=(5,)).astype(np.float32)
B = RNG.normal(size=(2, 3, 4)).astype(np.float32)
I32 = np.array([3, -1, 0, 2], np.int32)
I64 = np.array([[0, 2], [1, -1]])
U8 = np.array([2, 0, 1, 2], np.uint8)
T = np.array([True, False, True])
Z = RNG.normal(size=(3,)) + 1j
HALF = np.array([1.5, -2.0, 0.25], np.float16)
EMPTY = np.zeros((0, 3), np.float32)
IDS = np.array([0, 0, 1, 3, 3], np.int32)
MIXED = np.array([2, 0, 7, -1, 2])
SORTED = np.array([-1.0, 0.0, 0.0, 0.5, 2.0])
TIES = np.array([3.0, 1.0, 3.0, np.nan, -np.inf])
AT = np.array(2, np.int32)

SEGMENTS = [
    call(F, [0, 0, 1, 3, 3]),
    call(B[0], np.array([0, 1, 1]), num_segments=4),
    call(data=D, segment_ids=np.array([0, 0, 2], np.int64), num_segments=3, name="made"),
    call(np.arange(5), IDS, num_segments=5),
]
UNSORTED = [
    call(F, MIXED, 3),
    call(D, np.array([[0, 1, 5, 1]] * 3), 2),
    call(data=B, segment_ids=np.array([1, 1], np.uint8), num_segments=3, name="made"),
    call(np.arange(5), MIXED, 4),
]
RUNNING = [
    call(D),
    call(F, 0),
    call(B, axis=-1, reverse=True, name="made"),
    call(EMPTY, 0),
]
SCATTER = [
    call(np.zeros(5), np.array([[1], [4], [1]]), np.array([1.0, 2.0, 3.0])),
    call(D, np.array([[0, 1], [2, -1]]), np.array([9.0, -9.0])),
    call(B, np.array([[1]], np.uint8), B[:1]),
    call(tensor=np.arange(4), indices=[[0], [7]], updates=[5, 6], name="made"),
    call(D, np.zeros((2, 0), np.int32), np.stack([D, D])),
]

CALLS: dict[str, list[Call]] = {
    # Along axes.
    "gather": [
        call(D, I64),
        call(F, I32),
        call(B, I64, axis=2),
        call(B, np.array([[0, -1], [1, 9]]), axis=1, batch_dims=1),
        call(params=D, indices=[2, 0], axis=-1, name="made"),
        call([1, 2, 3], AT),
        call(EMPTY, np.zeros((0,), np.int64)),
    ],
    "scatter_add": [
        call(np.zeros(4), I32, np.arange(4.0)),
        call(D, [0, -1], np.ones((3, 2)), axis=1),
        call(B, np.array([[0], [2]]), np.ones((2, 1, 4), np.float32), 1, 1, name="made"),
    ],
    **{
        name: [
            call(np.full(4, 1.5), np.array([2, 0, -1]), np.arange(3.0)),
            call(D, [0, -1], np.ones((3, 2)), axis=1),
            call(B, np.array([[0], [2]]), np.ones((2, 1, 4), np.float32), 1, 1, name="made"),
        ]
        for name in ("scatter_update", "scatter_max", "scatter_min", "scatter_multiply")
    },
    "take_along_axis": [
        call(D, np.array([[0], [-1], [7]])),
        call(B, np.array([[[1]]]), axis=0),
        call(I32, [0, -2], 0, "made"),
    ],
    "take": [call(D, I64), call(D, -1, 1), call(x=B, indices=[0, 0], axis=-1, name="made")],
    "one_hot": [
        call(I32, 3),
        call(I64, depth=3, on_value=None, off_value=None, axis=None, dtype=None),
        call(U8, 4, 5, 1, 0),
        call(AT, 3, on_value=np.float64(2.0), name="made"),
        call([0, 1], 2, dtype="int32"),
    ],
    "gather_nd": [
        call(D, I64),
        call(B, np.array([[1, -1], [0, 5]])),
        call(B, np.array([[[0, 1]], [[2, 2]]]), batch_dims=1, name="made"),
        call(F, np.zeros((2, 0), np.int32)),
    ],
    "scatter_nd": [
        call(np.array([[1], [4], [1]]), np.array([1.0, 2.0, 3.0]), [6]),
        call([[0, 1], [1, -1]], [1, 2], (2, 2)),
        call(np.array([[2]]), D[:1], shape=[3, 4], name="made"),
    ],
    "tensor_scatter_nd_update": SCATTER,
    "tensor_scatter_nd_add": SCATTER,
    "tensor_scatter_nd_sub": SCATTER,
    "tensor_scatter_nd_min": SCATTER,
    "tensor_scatter_nd_max": [*SCATTER, call(F, [[0]], F[:1], bad_indices_policy="IGNORE")],
    "ravel_multi_index": [call([I32, U8], [4, 3]), call([AT, I64], (3, 5), "made")],
    "unravel_index": [call(I64 % 6, [2, 3]), call(np.array(5), (2, 3), name="made")],
    # Slices.
    "slice": [call(D, [1, 0], [2, -1]), call(B, [0, 1, 2], [-1, 1, 2], "made"), call(F, AT[None], [2])],
    "strided_slice": [
        call(D, [0, 3], [3, 0], [2, -1]),
        call(B, [0, 1], [0, 3], begin_mask=1, end_mask=1, name="made"),
        call(B, [0, 1, 0], [0, 2, 1], ellipsis_mask=1),
        call(D, [1, 0, 1], [2, 0, 3], new_axis_mask=2, shrink_axis_mask=1),
    ],
    "dynamic_slice": [
        call(D, [1, 9], [2, 2]),
        call(D, np.array([-1, 0], np.int64), (1, 4), "made"),
        call(F, [AT], [2]),
    ],
    "dynamic_update_slice": [
        call(D, np.ones((2, 2)), [1, 9]),
        call(D, [[7]], np.array([-1, 0], np.int64), "made"),
        call(F, F[:2], [AT]),
    ],
    # Together and apart.
    "concat": [
        call([D, D], 0),
        call([D, B[0]], axis=-1, name="made"),
        call(([1, 2], [0.5]), 0),
        call([T, np.array([3], np.int8)], 0),
        call([EMPTY, EMPTY], 0),
    ],
    "stack": [call([D, D]), call([F, F], -1), call(values=[1, 2.5, AT], axis=0, name="made")],
    "unstack": [call(D), call(D, 4, 1), call(value=B, axis=-1, name="made")],
    "split": [
        call(D, 2, 1),
        call(F, [1, -1, 2]),
        call(value=B, num_or_size_splits=[2, 1], axis=1, num=2, name="made"),
        call([1, 2, 3], 3),
    ],
    "pad": [
        call(D, [[1, 0], [0, 2]]),
        call(F, ((2, 1),), "REFLECT"),
        call(tensor=F, paddings=[[1, 5]], mode="symmetric", name="made"),
        call(I32, [[1, 1]], constant_values=7),
        call([1, 2], [[0, 1]]),
        call(T, [[1, 0]], constant_values=True),
    ],
    "tile": [call(D, [1, 2]), call(F, [0]), call(input=[1, 2], multiples=(2,), name="made")],
    "reverse": [call(D, [0]), call(B, [0, -1]), call(tensor=I32, axis=[0], name="made")],
    "flip": [call(D), call(B, -1), call(B, (0, 2), "made")],
    "roll": [
        call(D, 1, 0),
        call(D, [1, -2], [0, 1]),
        call(F, AT, 0),
        call(input=B, shift=-7, axis=-1, name="made"),
        call(D, 5, None),
    ],
    "repeat": [
        call(D, 2),
        call(D, [1, 0, 2], 0),
        call(F, np.int64(3), axis=0, name="made"),
        call(F, np.array([1, 0, 2, 0, 1]), 0, total_repeat_length=6),
        call(D, np.array(2), 1, total_repeat_length=8),
    ],
    "moveaxis": [call(B, 0, -1), call(B, [0, 1], [2, 0]), call(x=D, source=0, destination=1, name="made")],
    "swapaxes": [call(B, 0, -1), call(D, axis1=0, axis2=1, name="made")],
    "rot90": [call(D), call(B, -1, (1, 2)), call(D, 2, name="made"), call(D, 4)],
    "diff": [
        call(D),
        call(I32, 2),
        call(D, axis=0, prepend=0, append=np.ones((2, 4)), name="made"),
        call(T),
        call(F, 0),
    ],
    "broadcast_tensors": [call([D, F[:4]]), call([AT, I32], "made")],
    "invert_permutation": [call(np.array([2, 0, 1])), call([1, 0], "made")],
    # Order.
    "sort": [call(D), call(TIES), call(values=U8, axis=0, direction="DESCENDING", name="made"), call(B, 1)],
    "argsort": [
        call(D),
        call(TIES, direction="descending"),
        call(values=U8, axis=0, direction="ASCENDING", stable=True, name="made"),
    ],
    "top_k": [
        call(D, 2),
        call(TIES),
        call(input=U8, k=3, sorted=True, index_type="int64", name="made"),
        call([3, 1, 2], 2),
    ],
    "searchsorted": [
        call(SORTED, F),
        call(SORTED, 0.0, "right"),
        call(
            np.stack([SORTED, SORTED + 1]), np.array([[0.0, 9.0], [0.0, -9.0]]), out_type="int64", name="made"
        ),
        call(np.arange(5), [1, 7]),
        call(SORTED, B, side="right"),
    ],
    "digitize": [
        call(F, SORTED),
        call(F, SORTED[::-1].copy(), True),
        call(x=[1, 2], bins=[0, 5], name="made"),
    ],
    # Running.
    "cumsum": [call(D, 0, True), call(Z), call(x=I32, axis=0, exclusive=False, reverse=True, name="made")],
    "cumprod": [call(D, 0, True), call(Z), call(x=I32, axis=0, exclusive=False, reverse=True, name="made")],
    "cummax": [*RUNNING, call(I32), call(TIES)],
    "cummin": [*RUNNING, call(U8), call(TIES)],
    "cumulative_logsumexp": [
        *RUNNING,
        call(I32),
        call(F, exclusive=True),
        call(D, 1, True, True),
        call(HALF),
    ],
    "linear_recurrence": [call(0.5, D), call(D, D, axis=-1, reverse=True, name="made"), call(1, [1, 2, 3])],
    # Segments and bins.
    **dict.fromkeys(["segment_sum", "segment_mean", "segment_max", "segment_min", "segment_prod"], SEGMENTS),
    "unsorted_segment_sum": UNSORTED,
    "unsorted_segment_mean": UNSORTED,
    "unsorted_segment_max": UNSORTED,
    "unsorted_segment_min": UNSORTED,
    "unsorted_segment_prod": UNSORTED,
    "unsorted_segment_sqrt_n": UNSORTED,
    "bincount": [
        call(IDS, size=5),
        call(arr=IDS, weights=F, minlength=4, maxlength=4, dtype="int64", name="made"),
        call([1, 1, 2]),
        call(I64 % 3, size=3, axis=-1),
        call(IDS, size=3, binary_output=True),
    ],
    "confusion_matrix": [
        call([1, 2, 2], [1, 2, 0]),
        call(U8, U8 % 2, 3, weights=F[:4], dtype="float32", name="made"),
        call(I32, I32, 4),
    ],
    "histogram_fixed_width": [
        call(F, [-1.0, 1.0]),
        call(D, np.array([-2.0, 2.0]), nbins=5, dtype="int64", name="made"),
        call([1, 2, 3], [0, 3], 3),
    ],
    "histogram_fixed_width_bins": [call(F, [-1.0, 1.0]), call(D, np.array([-2.0, 2.0]), 5, name="made")],
    # Where, and which.
    "where": [
        call(T, Z, 0),
        call(T, 1, 0.5),
        call(condition=D > 0, x=D, y=F[:4], name="made"),
        call(D > 0, size=9, fill_value=-1),
        call([True, False, True]),
    ],
    "nonzero": [call(D > 0, size=5), call(I32, size=9, fill_value=-1, name="made"), call([0, 3, 4])],
    "argwhere": [call(D > 0, size=5), call(F, size=9, fill_value=-1, name="made"), call([[0, 3], [4, 0]])],
    "boolean_mask": [
        call(D, [True, False, True]),
        call(D, T, size=2),
        call(B, T, 1, size=4, fill_value=-1, name="made"),
        call(D, D > 0, size=20),
    ],
    "unique": [
        call([3, 1, 3]),
        call(U8, size=3),
        call(x=TIES, out_idx="int64", size=5, fill_value=0, name="made"),
        call(D, size=3),
        call(T, size=3),
    ],
    "unique_with_counts": [call([3, 1, 3]), call(U8, "int64", size=4, name="made")],
    "unique_all": [call([3, 1, 3]), call(U8, size=4, fill_value=0, name="made"), call(EMPTY, size=2)],
    "unique_counts": [call([3, 1, 3]), call(U8, size=2, name="made")],
    "unique_inverse": [call([3, 1, 3]), call(I64, size=4, name="made")],
    "unique_values": [call([3, 1, 3]), call(F, size=5, name="made")],
    "isin": [
        call(I32, U8),
        call(x1=TIES, x2=TIES, assume_unique=True, invert=True, name="made"),
        call(D, []),
        call(T, [True]),
        call(2, I32),
    ],
    "setdiff1d": [
        call([3, 1, 2], [1]),
        call(I32, U8, size=4, fill_value=-5),
        call(F, F, True, "made", size=2),
    ],
    "intersect1d": [
        call([3, 1, 2], [1]),
        call(I32, U8, size=4, fill_value=-5),
        call(F, F, True, "made", size=2),
    ],
    "union1d": [call([3, 1, 2], [1.5]), call(I32, U8, size=7, fill_value=-5, name="made")],
    # Zeros.
    "count_nonzero": [
        call(D),
        call(I32, 0, True),
        call(input=B > 0, axis=[0, -1], keepdims=None, dtype="int32", name="made"),
        call(Z),
    ],
    "divide_no_nan": [call(D, np.zeros((3, 1))), call(1, I32), call(x=Z, y=Z, name="made"), call(F, 0)],
    "multiply_no_nan": [call(TIES, np.zeros(5)), call(2, F), call(x=D, y=D, name="made")],
    # Made of numbers.
    "linspace": [
        call(0.0, 1.0, 5),
        call(D, 2, 3, axis=-1),
        call(start=1, stop=F, num=2, name="made", axis=0),
        call(Z, 0.0, 1),
        call(0, 1, 0),
    ],
    "meshgrid": [call(F, I32), call(F, D[0], U8, indexing="ij", name="made"), call([1, 2])],
    "sequence_mask": [call([1, 3]), call(U8, 4), call(lengths=I64, maxlen=3, dtype="float32", name="made")],
    "full_like": [call(D, 3), call(F, AT), call(input=[1, 2], fill_value=2.5, dtype="float64", name="made")],
    "rank": [call(D), call(input=3.0, name="made")],
    "shape": [call(D), call(EMPTY, "int64"), call(input=[1, 2], out_type=None, name="made"), call(2.0)],
    "convert_to_tensor": [
        call([1, 2]),
        call(D),
        call(value=[1.0], dtype="float64", name="made"),
        call([AT, 1]),
        call([1, 2], dtype_hint="float32"),
        call([[AT, 1], [2, 3]]),
    ],
}
