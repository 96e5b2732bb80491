"""Calls for test_numpy_numbers.py of what neural networks are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Parameters that take tensors, by whichever function.
TENSORS = {
    "anchor",
    "attn_mask",
    "beta",
    "clip_value_max",
    "clip_value_min",
    "counts",
    "depthwise_filter",
    "distances",
    "dropout_key",
    "features",
    "filter",
    "frequency_weights",
    "gamma",
    "ids",
    "images",
    "initial_state",
    "input",
    "input1",
    "input2",
    "inputs",
    "kernel",
    "keys",
    "label_length",
    "log_input",
    "logit_length",
    "margin",
    "mean_ss",
    "negative",
    "negatives",
    "pointwise_filter",
    "pos_weight",
    "positive",
    "queries",
    "query",
    "recurrent_kernel",
    "scores",
    "sequence_length",
    "shift",
    "smoothing",
    "state",
    "t",
    "target",
    "targets",
    "temperature",
    "variance",
    "variance_epsilon",
    "variance_ss",
    "x1",
    "x2",
}
# Parameters that take tensors, whose names stand for numbers elsewhere; and one that must be left out.
ELSEWHERE = {
    *(("clip", "max"), ("clip", "min"), ("huber", "delta"), ("sigmoid_focal_loss", "alpha")),
    *((name, part) for name in ("local_response_normalization", "lrn") for part in ("alpha", "bias")),
    *((name, "bias") for name in ("bias_add", "gru", "gru_cell", "lstm", "lstm_cell")),
    *((name, "bias") for name in ("simple_rnn", "simple_rnn_cell")),
    ("ctc_loss", "unique"),
    ("scaled_dot_product_attention", "dropout_p"),
}

RECURRENT = {"reverse": True, "time_major": True}
WINDOW = {"strides": 2, "padding": "SAME", "dilations": 1}


def calls(call: Callable[..., Any], tensor: Callable[..., Any]) -> list[Any]:
    """The calls, made of the constructors of test_numpy_numbers.py."""
    x, image, first, line = tensor(4, 6), tensor(2, 8, 8, 3), tensor(2, 3, 8, 8), tensor(2, 8, 3)
    volume, numbers = tensor(2, 4, 4, 4, 3), tensor(4, dtype="int32")
    pools = [
        call(f"{kind}_pool{rank}", shaped, 2, 2, "SAME", data_format)
        for kind in ("avg", "max")
        for rank, shaped, data_format in (("", first, "NCHW"), ("1d", line, "NWC"), ("2d", first, "NCHW"))
    ]
    pools += [call(f"{kind}_pool3d", volume, 2, 1, "SAME", "NDHWC", dilations=2) for kind in ("avg", "max")]
    over_axes = ("hinge", "huber", "kl_divergence", "log_cosh", "mean_absolute_error", "poisson_loss")
    return [
        *pools,
        *[call(name, x, x, axis=0) for name in (*over_axes, "squared_hinge")],
        *[call(name, x, x, axis=0) for name in ("listmle_loss", "listnet_loss", "pairwise_logistic_loss")],
        *[call(f"adaptive_{k}_pool", image, output_size=2, data_format="NHWC") for k in ("avg", "max")],
        *[call(f"global_{k}_pool", image, keepdims=True, data_format="NHWC") for k in ("avg", "max")],
        call("atrous_conv2d", image, tensor(3, 3, 3, 5), rate=2, padding="SAME"),
        call(
            "atrous_conv2d_transpose",
            image,
            tensor(3, 3, 5, 3),
            output_shape=[2, 8, 8, 5],
            rate=2,
            padding="SAME",
        ),
        call("bias_add", image, tensor(3), "NHWC"),
        call("celu", x, alpha=2.0),
        call("conv1d", line, tensor(3, 3, 5), 1, "SAME", "NWC"),
        call("conv2d", first, tensor(3, 3, 3, 5), 1, "SAME", "NCHW"),
        call("conv3d", volume, tensor(2, 2, 2, 3, 5), data_format="NDHWC", groups=1, **WINDOW),
        call("convolution", image, tensor(2, 2, 3, 5), data_format="NHWC", groups=1, **WINDOW),
        call("conv1d_transpose", line, tensor(3, 5, 3), [2, 16, 5], data_format="NWC", groups=1, **WINDOW),
        call("conv2d_transpose", image, tensor(3, 3, 5, 3), (2, 16, 16, 5), 2, "SAME", "NHWC", 1, groups=1),
        call(
            "conv3d_transpose",
            volume,
            tensor(2, 2, 2, 5, 3),
            [2, 8, 8, 8, 5],
            data_format="NDHWC",
            groups=1,
            **WINDOW,
        ),
        call("conv_transpose", line, tensor(3, 5, 3), [16], data_format="NWC", groups=1, **WINDOW),
        call("depthwise_conv2d", image, tensor(3, 3, 3, 2), data_format="NHWC", **WINDOW),
        call("separable_conv2d", image, tensor(3, 3, 3, 2), tensor(1, 1, 6, 4), data_format="NHWC", **WINDOW),
        call("pool", image, window_shape=2, pooling_type="MAX", data_format="NHWC", **WINDOW),
        call("cosine_similarity", x, x, axis=0, epsilon=0.5),
        call("crelu", x, axis=0),
        call("glu", x, axis=0),
        call(
            "ctc_loss", tensor(4, 2, dtype="int32"), tensor(4, 5, 3), numbers, numbers, False, blank_index=-1
        ),
        call("depth_to_space", tensor(1, 2, 2, 4), block_size=2, data_format="NHWC"),
        call("space_to_depth", image, block_size=2, data_format="NHWC"),
        call("group_norm", tensor(2, 4), 2, axis=1, epsilon=0.5),
        call("instance_norm", image, axis=-1, epsilon=0.5),
        call("rms_norm", x, axis=0, epsilon=0.5),
        call("in_top_k", numbers, x, k=2),
        call("kl_div", x, x, reduction="sum", log_target=True),
        call("local_response_normalization", x, depth_radius=2),
        call("lrn", x, depth_radius=2),
        call("log_poisson_loss", x, x, compute_full_loss=True),
        call("moments", x, axes=[0, 1], keepdims=True),
        call("sufficient_statistics", x, axes=0, keepdims=True),
        call("weighted_moments", x, 0, x, keepdims=True),
        call("resize", image, [4, 6], "bicubic", preserve_aspect_ratio=True, antialias=True),
        call("scaled_dot_product_attention", x, x, x, is_causal=True, scale=0.5, enable_gqa=False),
        call("smooth_labels", x, 0.5, axis=0),
        call("softmax_focal_loss", x, x, axis=0),
        call("triplet_margin_loss", x, x, x, axis=0, epsilon=0.5),
        call("simple_rnn", line, tensor(3, 2), tensor(2, 2), activation="relu", **RECURRENT),
        call("simple_rnn_cell", x, tensor(4, 2), tensor(6, 2), tensor(2, 2), activation="relu"),
        call("lstm", line, tensor(3, 8), tensor(2, 8), **RECURRENT),
        call("gru", line, tensor(3, 6), tensor(2, 6), gates="rzn", reset_after=False, **RECURRENT),
        call("gru_cell", x, tensor(4, 2), tensor(6, 6), tensor(2, 6), gates="rzn", reset_after=False),
    ]
