"""Calls of what neural networks are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from calls import Call, call


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def part(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Numbers between 0 and 1."""
    return np.random.default_rng(seed).uniform(0.05, 0.95, shape).astype(dtype)


X, Y, WIDE = normal(3, 4), normal(3, 4, seed=1), normal(3, 4, dtype=np.float64)
HALF, INTS, FLAGS = (
    normal(3, 4, dtype=np.float16),
    np.arange(-6, 6, dtype=np.int32).reshape(3, 4),
    normal(3, 4) > 0,
)
EMPTY = np.zeros((0, 4), np.float32)
ELEMENTWISE = [call(X), call(WIDE), call(HALF), call(INTS), call(EMPTY), call(2), call(X, name="named")]

CALLS: dict[str, list[Call]] = {
    name: list(ELEMENTWISE)
    for name in (
        *("elu", "log_sigmoid", "relu", "relu6", "sigmoid", "softplus", "softsign", "selu", "mish"),
        *("hard_sigmoid", "hard_swish", "hard_tanh", "silu", "swish", "gelu", "leaky_relu", "celu"),
    )
}
for name in ("silu", "swish"):
    CALLS[name] = [
        *CALLS[name],
        call(X, 2.0),
        call(X, np.float32(0.5)),
        call(features=INTS, beta=2),
    ]
CALLS["gelu"] += [call(X, True), call(features=HALF, approximate=True)]
CALLS["leaky_relu"] += [call(X, 0.3), call(features=X, alpha=0.1)]
CALLS["celu"] += [call(X, 0.5), call(X, alpha=2.0)]
CALLS |= {
    "glu": [call(X), call(WIDE, 1), call(normal(4, 3), 0), call(INTS, -1)],
    "crelu": [call(X), call(INTS, 0), call(HALF, axis=-1)],
    "softmax": [
        call(X),
        call(X, None),
        call(INTS, 0),
        call(HALF, axis=(0, 1)),
        call(logits=WIDE, axis=-1),
        call(EMPTY),
    ],
    "log_softmax": [call(X), call(X, None), call(INTS, 0), call(HALF, axis=(0, 1)), call(logits=WIDE)],
    "clip_by_value": [
        call(X, -0.5, 0.5),
        call(INTS, -2, 3),
        call(INTS, -1.5, 2.5),
        call(t=WIDE, clip_value_min=X[0], clip_value_max=1),
    ],
    "clip": [call(X, -0.5, 0.5), call(INTS, 0), call(X, max=0.5), call(WIDE, min=np.float32(0))],
    "layer_norm": [call(X), call(X, Y[0], Y[1]), call(INTS, axis=0), call(HALF, axis=(0, 1), epsilon=0.1)],
    "logaddexp": [call(X, Y), call(X, 0.5), call(INTS, X), call(2, 3)],
    "xlogy": [call(X, part(3, 4)), call(INTS, 2), call(0, WIDE * WIDE)],
    "xdivy": [call(X, part(3, 4)), call(INTS, 2), call(0, WIDE)],
    "mean_squared_error": [call(X, Y), call(INTS, WIDE), call(X, 0.5, axis=None), call(HALF, HALF, axis=0)],
    "mean_absolute_error": [call(X, Y), call(INTS, WIDE), call(X, 0.5, axis=None), call(HALF, HALF, axis=0)],
    "huber": [call(X, Y), call(INTS, WIDE, 0.5), call(X, 0.5, axis=None), call(HALF, 0, delta=2, axis=())],
    "log_cosh": [call(X, Y), call(INTS, WIDE), call(X, 0.5, axis=None), call(HALF, HALF, axis=())],
    "l2_loss": [call(X), call(t=INTS), call(HALF), call(EMPTY)],
    "log_poisson_loss": [call(INTS * INTS, X), call(part(3, 4) * 5, X, True)],
    "poisson_loss": [call(INTS * INTS, part(3, 4)), call(part(3, 4), part(3, 4, seed=1), axis=None)],
    "hinge": [call(FLAGS, X), call(np.sign(X), Y, axis=0), call(FLAGS, WIDE, axis=())],
    "squared_hinge": [call(FLAGS, X), call(np.sign(X), Y, axis=0), call(FLAGS, WIDE, axis=())],
    "sigmoid_cross_entropy_with_logits": [
        call(part(3, 4), X),
        call(FLAGS, X),
        call(labels=1, logits=X),
        call(logits=WIDE, labels=part(3, 4)),
    ],
    "softmax_cross_entropy_with_logits": [
        call(part(3, 4), X),
        call(FLAGS, WIDE, axis=0),
        call(part(3, 4), HALF, -1),
    ],
    "sparse_softmax_cross_entropy_with_logits": [
        call(np.array([0, 3, 1]), X),
        call([0, 1, 2], WIDE),
        call(labels=np.array([0, 1, 2], np.int8), logits=INTS),
    ],
    "weighted_cross_entropy_with_logits": [
        call(part(3, 4), X, 2.0),
        call(FLAGS, WIDE, part(4)),
        call(1, HALF, 2),
    ],
    "smooth_labels": [
        call(part(3, 4), 0.1),
        call(FLAGS, 0.1, 0),
        call(part(3, 4, dtype=np.float64), np.float32(0.2)),
    ],
    "sigmoid_focal_loss": [call(FLAGS, X), call(part(3, 4), WIDE, 0.5, 0.25), call(1, HALF, gamma=1)],
    "softmax_focal_loss": [
        call(FLAGS, X),
        call(part(3, 4), WIDE, 0.5, 0),
        call(np.eye(4)[:3], HALF, gamma=1),
    ],
    "kl_divergence": [call(part(3, 4), part(3, 4, seed=1)), call(part(3, 4), 0.5, axis=None)],
    "kl_div": [
        call(X, part(3, 4)),
        call(X, part(3, 4), "sum"),
        call(X, Y, "batchmean", True),
        call(WIDE, part(3, 4), "none"),
    ],
    "cosine_similarity": [
        call(X, Y),
        call(INTS, X, 0),
        call(HALF, HALF),
        call(X, X[0], axis=-1, epsilon=1e-3),
    ],
    "contrastive_loss": [
        call(FLAGS, part(3, 4)),
        call(1, part(3, 4), 2),
        call(FLAGS, part(3, 4), margin=0.5),
    ],
    "triplet_margin_loss": [call(X, Y, X + 1), call(X, Y, WIDE, 0.5, 0), call(X, Y, -X, epsilon=0.1)],
    "info_nce": [call(X, Y), call(X, Y, normal(5, 4)), call(WIDE, Y, temperature=0.5)],
    "margin_ranking_loss": [call(X, Y, np.sign(X)), call(INTS, X, 1, 0.5)],
    "pairwise_logistic_loss": [call(INTS, X), call(INTS, WIDE, 0)],
    "listnet_loss": [call(INTS, X), call(INTS, WIDE, 0)],
    "listmle_loss": [call(INTS, X), call(INTS, WIDE, 0)],
    "embedding_lookup": [
        call(X, np.array([2, 0, 2])),
        call(X, [[1, 2], [0, 0]]),
        call(INTS, 1, 0.5),
        call(params=WIDE, ids=np.array([1, 1], np.int64), max_norm=1),
    ],
    "in_top_k": [call(np.array([0, 3, 9]), X, 2), call(targets=[1, 2, 3], predictions=INTS, k=1)],
}

# ------------------------------------------------------------------------------------------- windows

IMAGE, LINE, VOLUME = normal(2, 6, 5, 4), normal(2, 7, 4), normal(1, 4, 4, 3, 4)
FIRST = np.ascontiguousarray(np.moveaxis(IMAGE, -1, 1))
F1, F2, F3 = normal(3, 4, 6, seed=2), normal(3, 2, 4, 6, seed=3), normal(2, 2, 2, 4, 6, seed=4)
GRAY = np.arange(120, dtype=np.int32).reshape(1, 6, 5, 4)
CALLS |= {
    "conv": [call(IMAGE, F2), call(LINE, F1, 2, "SAME"), call(IMAGE, F2[:, :, :2], dilations=2, groups=2)],
    "convolution": [
        call(IMAGE, F2),
        call(LINE, F1, 2, "SAME"),
        call(FIRST, F2, None, "SAME", "NCHW", [1, 2]),
    ],
    "conv1d": [
        call(LINE, F1, 1, "SAME"),
        call(input=LINE, filters=F1, stride=[2], padding="VALID", dilations=1),
    ],
    "conv2d": [
        call(IMAGE, F2, 1, "SAME"),
        call(FIRST, F2, [1, 1, 2, 1], "VALID", "NCHW"),
        call(GRAY, F2, 2, [[0, 0], [1, 0], [0, 1], [0, 0]]),
        call(IMAGE.astype(np.float16), F2.astype(np.float16), 1, "SAME"),
        call(IMAGE, F2[:, :, :2], (2, 1), "SAME", groups=2, name="named"),
        call(normal(2, 3, 6, 5, 4), F2, 1, "SAME"),
    ],
    "conv3d": [call(VOLUME, F3, 1, "SAME"), call(VOLUME, F3, [1, 2, 2, 1, 1], "VALID")],
    "atrous_conv2d": [call(IMAGE, F2, 2, "SAME")],
    "depthwise_conv2d": [
        call(IMAGE, normal(3, 2, 4, 2), [1, 2, 2, 1], "SAME"),
        call(FIRST, normal(3, 2, 4, 1), 1, "VALID", "NCHW", 1),
    ],
    "separable_conv2d": [call(IMAGE, normal(3, 2, 4, 2), normal(1, 1, 8, 3), 1, "SAME")],
    "conv_transpose": [
        call(LINE, normal(3, 6, 4), (2, 14, 6), 2),
        call(IMAGE, normal(3, 2, 6, 4), None, 1, "VALID"),
    ],
    "conv1d_transpose": [call(LINE, normal(3, 6, 4), [2, 14, 6], 2)],
    "conv2d_transpose": [
        call(IMAGE, normal(3, 2, 6, 4), (2, 12, 10, 6), [1, 2, 2, 1]),
        call(FIRST, normal(3, 2, 6, 4), (2, 6, 6, 5), 1, "SAME", "NCHW"),
    ],
    "conv3d_transpose": [call(VOLUME, normal(2, 2, 2, 6, 4), (1, 8, 8, 6, 6), 2)],
    "atrous_conv2d_transpose": [call(IMAGE, normal(2, 2, 6, 4), (2, 8, 7, 6), 2, "VALID")],
    "conv2d_backprop_input": [call((2, 6, 5, 4), F2, normal(2, 6, 5, 6), 1, "SAME")],
    "conv2d_backprop_filter": [call(IMAGE, (3, 2, 4, 6), normal(2, 6, 5, 6), 1, "SAME")],
    "pool": [
        call(IMAGE, 2, "MAX"),
        call(FIRST, (2, 1), "AVG", 2, "SAME", "NCHW"),
        call(LINE, 2, "AVG", dilations=2),
    ],
    "global_avg_pool": [call(IMAGE), call(GRAY, True), call(FIRST, data_format="NCHW")],
    "global_max_pool": [call(IMAGE), call(GRAY, True), call(FIRST, data_format="NCHW")],
    "adaptive_avg_pool": [call(IMAGE, 3), call(FIRST, (2, None), data_format="NCHW"), call(LINE, 1)],
    "adaptive_max_pool": [call(IMAGE, 3), call(FIRST, (2, None), data_format="NCHW"), call(LINE, 1)],
    "resize": [
        call(IMAGE, (3, 8)),
        call(GRAY, (3, 8), "nearest"),
        call(GRAY, [4, 4], "bicubic", antialias=True),
        call(IMAGE[0], (9, 9), "area", True),
        call(IMAGE, (3, 8), "lanczos3"),
        call(IMAGE, (3, 8), "lanczos5"),
        call(IMAGE, (8, 3), "mitchellcubic"),
        call(IMAGE.astype(np.float16), (3, 8), "gaussian"),
    ],
    "space_to_depth": [call(normal(1, 4, 6, 2), 2), call(normal(1, 2, 4, 6), 2, "NCHW")],
    "depth_to_space": [call(normal(1, 2, 3, 8), 2), call(normal(1, 8, 2, 3), 2, "NCHW")],
}
for kind in ("max", "avg"):
    CALLS |= {
        f"{kind}_pool": [
            call(IMAGE, 2, 2, "SAME"),
            call(LINE, 3, None, "VALID"),
            call(FIRST, 2, 1, "VALID", "NCHW"),
        ],
        f"{kind}_pool1d": [
            call(LINE, 2, 2, "SAME"),
            call(input=LINE, ksize=[3], strides=[1], padding="VALID"),
        ],
        f"{kind}_pool2d": [
            call(IMAGE, [1, 2, 2, 1], [1, 1, 2, 1], "SAME"),
            call(FIRST, 2, 2, [[0, 0], [0, 0], [1, 0], [0, 1]], "NCHW"),
            call(IMAGE.astype(np.float16), 2, 2, "VALID", dilations=2),
        ],
        f"{kind}_pool3d": [call(VOLUME, 2, 1, "SAME"), call(VOLUME, 2, 1, "VALID", "NCDHW")],
    }

# ------------------------------------------------------------------------------- normalisation and layers

ROWS = normal(2, 3, 5, seed=5)
CALLS |= {
    "moments": [call(X, 0), call(INTS, [0, 1]), call(HALF, axes=-1, keepdims=True), call(x=WIDE, axes=None)],
    "weighted_moments": [call(X, 0, part(3, 4)), call(INTS, 1, part(4), True), call(X, None, 2)],
    "sufficient_statistics": [call(X, 0, 0.5), call(INTS, [0, 1], X[0, :1], True)],
    "normalize_moments": [call(3.0, X[0], Y[0] + 9, None), call(2, X[0], Y[0] + 9, 0.5)],
    "batch_normalization": [
        call(X, X[0], part(4), None, None, 1e-3),
        call(INTS, X[0], part(4), Y[0], Y[1], np.float32(1e-3)),
        call(HALF, HALF[0], np.abs(HALF[1]), HALF[0], None, variance_epsilon=0.1),
    ],
    "group_norm": [call(IMAGE, 2), call(FIRST, 4, Y[0], Y[1], 1, 1e-3), call(GRAY, groups=1)],
    "instance_norm": [call(IMAGE), call(FIRST, Y[0], Y[1], 1, 1e-3), call(GRAY)],
    "rms_norm": [call(X), call(X, Y[0]), call(INTS, axis=(0, 1)), call(HALF, epsilon=0.1)],
    "local_response_normalization": [call(X), call(INTS, 1, 2, 0.5, 0.75), call(input=HALF, depth_radius=2)],
    "lrn": [call(X), call(WIDE, 1, bias=2.0, alpha=0.5, beta=0.75)],
    "bias_add": [call(X, Y[0]), call(FIRST, Y[0], "NCHW"), call(value=INTS, bias=Y[0])],
    "scaled_dot_product_attention": [
        call(ROWS, ROWS, ROWS),
        call(ROWS, ROWS, ROWS, is_causal=True),
        call(ROWS, ROWS, ROWS, normal(3, 3) > 0),
        call(ROWS, ROWS, ROWS.astype(np.float64), normal(3, 3), scale=0.5),
        call(normal(2, 4, 3, 5), normal(2, 2, 6, 5), normal(2, 2, 6, 7), enable_gqa=True),
        call(ROWS, ROWS, ROWS, dropout_p=0.5, dropout_key=np.array([1, 2], np.uint32)),
    ],
    "simple_rnn": [
        call(ROWS, normal(5, 3), normal(3, 3)),
        call(ROWS, normal(5, 3), normal(3, 3), normal(3), normal(2, 3), activation="relu", reverse=True),
    ],
    "lstm": [
        call(ROWS, normal(5, 12), normal(3, 12)),
        call(ROWS, normal(5, 12), normal(3, 12), normal(12), (normal(2, 3), normal(2, 3)), time_major=False),
        call(ROWS, normal(5, 12), normal(3, 12), sequence_length=np.array([1, 3]), reverse=True),
    ],
    "gru": [
        call(ROWS, normal(5, 9), normal(3, 9)),
        call(ROWS, normal(5, 9), normal(3, 9), normal(2, 9), normal(3, 3), gates="rzn", time_major=True),
        call(ROWS, normal(5, 9), normal(3, 9), normal(9), reset_after=False, sequence_length=[2, 0]),
    ],
    "simple_rnn_cell": [call(ROWS[0], normal(3, 3), normal(5, 3), normal(3, 3), normal(3), "relu")],
    "lstm_cell": [call(ROWS[0], (normal(3, 3), normal(3, 3)), normal(5, 12), normal(3, 12), normal(12))],
    "gru_cell": [
        call(ROWS[0], normal(3, 3), normal(5, 9), normal(3, 9), normal(9)),
        call(ROWS[0], normal(3, 3), normal(5, 9), normal(3, 9), normal(2, 9), "rzn", True),
    ],
    "ctc_loss": [
        call(np.array([[1, 2], [3, -1]]), normal(5, 2, 4), np.array([2, 1]), np.array([5, 3])),
        call([[1, 2], [0, 0]], normal(2, 5, 4, dtype=np.float64), [2, 0], None, False, blank_index=-1),
    ],
}
