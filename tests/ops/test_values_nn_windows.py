"""Values of convolutions and pooling, in both data formats, against JAX and plain loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from values import Cases, normal

import stopgrad as sg

pytestmark = pytest.mark.slow

CASES = Cases()
add = CASES.add


def conv(
    strides: Any = 1, padding: Any = "VALID", dilations: Any = 1, groups: int = 1, first: bool = False
) -> Callable[..., Any]:
    """A convolution as JAX computes it."""

    def function(x: Any, f: Any, *_: Any) -> Any:
        n = f.ndim - 2
        letters = "DHW"[-n:]
        layout = f"NC{letters}" if first else f"N{letters}C"
        return jax.lax.conv_general_dilated(
            x,
            f,
            np.broadcast_to(strides, n).tolist(),
            padding,
            rhs_dilation=np.broadcast_to(dilations, n).tolist(),
            dimension_numbers=(layout, f"{letters}IO", layout),
            feature_group_count=groups,
        )

    return function


def transposed(shape: tuple[int, ...], groups: int = 1, **geometry: Any) -> Callable[..., Any]:
    """The transpose of a convolution of tensors of that shape, by JAX's differentiation."""

    def function(x: Any, f: Any, *_: Any) -> Any:
        forward = conv(groups=groups, **geometry)
        return jax.vjp(lambda z: forward(z, f), np.zeros(shape))[1](x)[0]

    return function


X1, X2, X3 = normal(2, 9, 4), normal(2, 8, 7, 4, seed=1), normal(2, 5, 6, 4, 4, seed=2)
F1, F2, F3 = normal(3, 4, 6, seed=3), normal(3, 2, 4, 6, seed=4), normal(2, 3, 2, 4, 6, seed=5)
DEPTHWISE, POINTWISE = normal(3, 2, 4, 3, seed=6), normal(1, 1, 12, 5, seed=7)


def channels_first(x: Any) -> Any:
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


add(sg.conv1d, conv(2, "SAME"), X1, F1, 2, "SAME")
add(sg.conv1d, conv(1, [(2, 1)], 2), X1, F1, [1], [(2, 1)], dilations=2)
add(sg.conv1d, conv(first=True), channels_first(X1), F1, 1, "VALID", "NCW")
add(sg.conv1d, conv(2, first=True), channels_first(X1), F1, [1, 1, 2], "VALID", "NCW")
add(sg.conv2d, conv((2, 1), "SAME"), X2, F2, [1, 2, 1, 1], "SAME")
add(
    sg.conv2d,
    conv((1, 2), [(1, 2), (0, 1)], (2, 1), first=True),
    channels_first(X2),
    F2,
    [1, 1, 1, 2],
    [[0, 0], [0, 0], [1, 2], [0, 1]],
    "NCHW",
    [1, 1, 2, 1],
)
add(sg.conv2d, conv(groups=2), X2, F2[:, :, :2], 1, "VALID")
add(
    sg.conv2d,
    lambda x, f, *_: np.reshape(conv()(x.reshape(6, 8, 7, 4), f), (2, 3, 6, 6, 6)),
    normal(2, 3, 8, 7, 4),
    F2,
    1,
    "VALID",
)
add(sg.conv3d, conv((1, 2, 1), "SAME"), X3, F3, (1, 2, 1), "SAME")
add(sg.conv3d, conv(first=True), channels_first(X3), F3, 1, "VALID", "NCDHW")
add(sg.convolution, conv(), X1, F1)
add(
    sg.convolution,
    conv(2, "SAME", first=True),
    channels_first(X2),
    F2,
    2,
    "SAME",
    "NCHW",
)
add(sg.convolution, conv(dilations=2), X2, F2, dilations=[2, 2])
add(sg.atrous_conv2d, conv(1, "SAME", 2), X2, F2, 2, "SAME")
add(
    sg.depthwise_conv2d,
    lambda x, f, *_: conv(2, "SAME", groups=4)(x, f.reshape(3, 2, 1, 12)),
    X2,
    DEPTHWISE,
    [1, 2, 2, 1],
    "SAME",
)
add(
    sg.depthwise_conv2d,
    lambda x, f, *_: conv(1, "VALID", 2, groups=4, first=True)(x, f.reshape(3, 2, 1, 12)),
    channels_first(X2),
    DEPTHWISE,
    1,
    "VALID",
    "NCHW",
    2,
)
add(
    sg.separable_conv2d,
    lambda x, f, p, *_: conv()(conv(2, "SAME", groups=4)(x, f.reshape(3, 2, 1, 12)), p),
    X2,
    DEPTHWISE,
    POINTWISE,
    2,
    "SAME",
)
add(
    sg.separable_conv2d,
    lambda x, f, p, *_: conv(first=True)(conv(1, groups=4, first=True)(x, f.reshape(3, 2, 1, 12)), p),
    channels_first(X2),
    DEPTHWISE,
    POINTWISE,
    1,
    "VALID",
    "NCHW",
)

Y1, Y2, Y3 = normal(2, 5, 6, seed=8), normal(2, 4, 3, 6, seed=9), normal(2, 2, 3, 2, 6, seed=10)
add(
    sg.conv1d_transpose,
    transposed((2, 9, 4), strides=2, padding="SAME"),
    Y1,
    F1,
    [2, 9, 4],
    2,
)
add(
    sg.conv1d_transpose,
    transposed((2, 11, 4), strides=2),
    Y1,
    F1,
    None,
    2,
    "VALID",
)
add(
    sg.conv2d_transpose,
    transposed((2, 4, 8, 6), strides=2, padding="SAME", first=True),
    channels_first(normal(2, 4, 3, 6, seed=11)),
    F2.reshape(3, 2, 4, 6),
    (2, 4, 8, 6),
    2,
    "SAME",
    "NCHW",
)
add(
    sg.conv2d_transpose,
    lambda x, f, *_: transposed((2, 8, 6, 4), strides=(2, 1), padding=[(1, 1), (2, 2)], dilations=(1, 2))(
        x, f
    ),
    normal(2, 4, 8, 6, seed=12),
    F2,
    (2, 8, 6, 4),
    (2, 1),
    [(1, 1), (2, 2)],
    "NHWC",
    (1, 2),
)
add(
    sg.conv3d_transpose,
    transposed((2, 4, 6, 4, 4), strides=2, padding="SAME"),
    Y3,
    F3,
    (2, 4, 6, 4, 4),
    2,
)
add(
    sg.conv_transpose,
    transposed((2, 10, 4), strides=2, padding="SAME"),
    Y1,
    F1,
    None,
    2,
)
add(sg.conv_transpose, transposed((2, 6, 4, 4)), Y2, F2, (6, 4), 1, "VALID")
add(
    sg.atrous_conv2d_transpose,
    transposed((2, 8, 5, 4), dilations=2),
    Y2,
    F2,
    (2, 8, 5, 4),
    2,
    "VALID",
)


def pooled(
    kind: str, ksize: Any, strides: Any, padding: Any, dilations: Any = 1, first: bool = False
) -> Callable[..., Any]:
    """Pooling as JAX computes it."""

    def function(x: Any, *_: Any) -> Any:
        n = x.ndim - 2
        window, steps, inside = (
            (1, 1, *v) if first else (1, *v, 1)
            for v in (np.broadcast_to(v, n).tolist() for v in (ksize, strides, dilations))
        )
        around = padding
        if not isinstance(padding, str):
            around = [(0, 0), (0, 0), *padding] if first else [(0, 0), *padding, (0, 0)]

        def reduce(x: Any, start: float, function: Any) -> Any:
            return jax.lax.reduce_window(
                x, np.float64(start), function, window, steps, around, window_dilation=inside
            )

        if kind == "max":
            return reduce(x, -np.inf, jax.lax.max)
        return reduce(x, 0.0, jax.lax.add) / reduce(np.ones_like(x), 0.0, jax.lax.add)

    return function


for kind, general in (("max", sg.max_pool), ("avg", sg.avg_pool)):
    add(general, pooled(kind, 3, 2, "SAME"), X1, 3, 2, "SAME")
    add(general, pooled(kind, (3, 2), (2, 1), "VALID"), X2, [1, 3, 2, 1], [1, 2, 1, 1], "VALID")
    add(general, pooled(kind, 2, 2, "VALID", first=True), channels_first(X3), 2, None, "VALID", "NCDHW")
    add(general, pooled(kind, 2, 1, "SAME", 2), X2, 2, 1, "SAME", dilations=2)
    of_rank = [getattr(sg, f"{kind}_pool{n}d") for n in (1, 2, 3)]
    for n, (function, x) in enumerate(zip(of_rank, (X1, X2, X3), strict=True), 1):
        letters = "DHW"[-n:]
        add(function, pooled(kind, 2, 2, "VALID"), x, 2, 2, "VALID")
        add(function, pooled(kind, 3, 1, "SAME"), x, 3, 1, "SAME", f"N{letters}C")
        add(
            function,
            pooled(kind, 3, 2, [(1, 1)] * n, first=True),
            channels_first(x),
            3,
            [1, 1, *[2] * n],
            [(0, 0), (0, 0), *[(1, 1)] * n],
            f"NC{letters}",
        )
    add(sg.pool, pooled(kind, 2, 1, "VALID"), X2, 2, kind.upper())
    add(
        sg.pool,
        pooled(kind, 2, 2, "SAME", first=True),
        channels_first(X2),
        2,
        kind.upper(),
        2,
        "SAME",
        "NCHW",
    )


def adapted(reduce: Callable[..., Any], wanted: tuple[int, ...]) -> Callable[..., Any]:
    """Pooling to a size, window by window, as PyTorch documents it."""

    def function(x: Any, *_: Any) -> Any:
        y = np.zeros((x.shape[0], *wanted, x.shape[-1]))
        for o in np.ndindex(*wanted):
            spans = [
                slice(i * n // m, -(-(i + 1) * n // m))
                for i, n, m in zip(o, x.shape[1:-1], wanted, strict=True)
            ]
            y[(slice(None), *o)] = reduce(x[(slice(None), *spans)], axis=tuple(range(1, x.ndim - 1)))
        return y

    return function


for reduce, adaptive, whole in (
    (np.mean, sg.adaptive_avg_pool, sg.global_avg_pool),
    (np.max, sg.adaptive_max_pool, sg.global_max_pool),
):
    add(adaptive, adapted(reduce, (4,)), X1, 4)
    add(adaptive, adapted(reduce, (4, 7)), X2, (4, None))
    add(adaptive, adapted(reduce, (3, 3, 3)), X3, 3)
    add(
        adaptive,
        lambda x, *_, reduce=reduce: np.moveaxis(adapted(reduce, (5, 2))(np.moveaxis(x, 1, -1)), -1, 1),
        channels_first(X2),
        [5, 2],
        data_format="NCHW",
    )
    add(whole, lambda x, *_, reduce=reduce: reduce(x, axis=(1, 2)), X2)
    add(whole, lambda x, *_, reduce=reduce: reduce(x, axis=(1, 2), keepdims=True), X2, True)
    add(whole, lambda x, *_, reduce=reduce: reduce(x, axis=(2,)), channels_first(X1), data_format="NCW")


@CASES.compared
def test_functions_of_windows(engine: str, name: str) -> None:
    CASES.check(engine, name)


# Computed by torch 2.13: F.conv_transpose2d(x, w, stride=2, padding=1) and F.adaptive_avg_pool2d(x, (2, 3)),
# with x = arange(12).reshape(1, 1, 3, 4) / 10 and w = arange(9).reshape(1, 1, 3, 3) / 10.
TORCH_TRANSPOSED = [
    [0.0, 0.03, 0.04, 0.11, 0.08, 0.19, 0.12],
    [0.04, 0.14, 0.12, 0.3, 0.2, 0.46, 0.28],
    [0.16, 0.35, 0.2, 0.43, 0.24, 0.51, 0.28],
    [0.36, 0.78, 0.44, 0.94, 0.52, 1.1, 0.6],
    [0.32, 0.67, 0.36, 0.75, 0.4, 0.83, 0.44],
]
TORCH_ADAPTED = [[0.25, 0.35, 0.45], [0.65, 0.75, 0.85]]


def test_against_vectors_of_torch() -> None:
    x = np.arange(12.0).reshape(1, 3, 4, 1) / 10
    w = np.arange(9.0).reshape(3, 3, 1, 1) / 10
    found = sg.conv2d_transpose(x, w, None, 2, [(1, 1), (1, 1)])
    np.testing.assert_allclose(found[0, :, :, 0], TORCH_TRANSPOSED, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(sg.adaptive_avg_pool(x, (2, 3))[0, :, :, 0], TORCH_ADAPTED, rtol=1e-6)


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("data_format='NHCW' is unknown", lambda: sg.conv2d(X2, F2, 1, "SAME", "NHCW")),
        ("data_format='NHWC' is unknown", lambda: sg.max_pool1d(X1, 2, 2, "SAME", "NHWC")),
        ("takes a filter", lambda: sg.depthwise_conv2d(X2, F1, 1, "SAME")),
        ("output_shape has 3 sizes", lambda: sg.conv2d_transpose(Y2, F2, (1, 2, 3), 1)),
        ("must have the shape", lambda: sg.conv2d_transpose(Y2, F2, (2, 9, 9, 4), 1)),
        ("pooling_type='SUM' is unknown", lambda: sg.pool(X2, 2, "SUM")),
        ("must be a number, or one for each", lambda: sg.adaptive_avg_pool(X2, (1, 2, 3))),
        ("cannot be pooled to 0", lambda: sg.adaptive_avg_pool(X2, 0)),
        ("spatial", lambda: sg.global_avg_pool(X1[0])),
    ],
)
def test_what_does_not_fit_is_refused(what: str, call: Callable[[], Any]) -> None:
    with pytest.raises(sg.StopgradError, match=what):
        call()


def test_symbolic_sizes_pass_through_every_layout() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 4, "height", 7])
        y = sg.conv2d(x, np.zeros((3, 2, 4, 6), np.float32), 1, "SAME", "NCHW")
        assert y.shape == (*x.shape[:1], 6, *x.shape[2:])
        back = sg.conv2d_transpose(y, np.zeros((3, 2, 4, 6), np.float32), x.shape, 1, "SAME", "NCHW")
        assert back.shape == x.shape
        assert (
            sg.conv2d_transpose(y, np.zeros((3, 2, 4, 6), np.float32), None, 1, "SAME", "NCHW").shape
            == x.shape
        )
        assert sg.max_pool2d(x, 2, 2, "SAME", "NCHW").shape[:2] == x.shape[:2]
