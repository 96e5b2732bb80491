"""Where branches of a function meet: derivatives of orders 1 to 3 there are the limits from both sides.

At each point, the orders below the first one with a jump are compared: what a kink of the function, or of
a derivative, makes of the next order is a convention, and not a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

ORDERS = 3
STEP = 1e-5

ACTIVATIONS = [
    "relu",
    "relu6",
    "elu",
    "selu",
    "celu",
    "gelu",
    "leaky_relu",
    "silu",
    "softplus",
    "softsign",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "mish",
    "log_sigmoid",
    "squareplus",
    "hardshrink",
    "softshrink",
    "tanhshrink",
    "sinc",
    "abs",
    "sign",
    "erf",
    "erfc",
    "dawsn",
    "i0",
    "i1",
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "sparse_plus",
    "expm1",
    "log1p",
    "asinh",
    "sqrt",
    "square",
]
LOSSES = [
    "huber",
    "mean_absolute_error",
    "log_cosh",
    "hinge",
    "squared_hinge",
    "poisson_loss",
    "kl_divergence",
]


def at_label(loss: Callable[..., Any], label: float) -> Callable[[Any], Any]:
    return lambda x: sg.reduce_sum(loss(np.array([label]), sg.reshape(x, [1])))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(sg, name) for name in ACTIVATIONS if hasattr(sg, name)},
    **{
        f"{name} {label:g}": at_label(getattr(sg, name), label)
        for name in LOSSES
        if hasattr(sg, name)
        for label in (0.0, 1.0)
    },
    **{f"pow {p:g}": lambda x, p=p: sg.pow(x, p) for p in (0.0, 1.0, 2.0, 3.0, 4.0)},
    **{f"pow of a tensor {p:g}": lambda x, p=p: sg.pow(x, x * 0 + p) for p in (1.0, 2.0, 3.0)},
    "integer power": lambda x: x**2,
    "clip": lambda x: sg.clip(x, -1.0, 1.0),
    "clip times x": lambda x: sg.clip(x, -1.0, 1.0) * x,
    "maximum": lambda x: sg.maximum(x * x, x),
    "equal maximum": lambda x: sg.square(sg.reduce_max(sg.stack([x, x * 1.0]))),
    "xlogy(x, 2)": lambda x: sg.xlogy(x, 2.0),
    "xlogy(x, x + 1)": lambda x: sg.xlogy(x, x + 1.0),
    "xlogy(2, x + 1)": lambda x: sg.xlogy(2.0, x + 1.0),
    "xlog1py(x, x)": lambda x: sg.xlog1py(x, x),
    "xdivy(x, x + 1)": lambda x: sg.xdivy(x, x + 1.0),
    "square of relu": lambda x: sg.square(sg.relu(x)),
    "product": lambda x: sg.reduce_prod(sg.stack([x, x + 1.0, x * 2.0])),
    "running product": lambda x: sg.reduce_sum(sg.cumprod(sg.stack([x, x + 1.0, x * 2.0]))),
    "variance": lambda x: sg.reduce_variance(sg.stack([x, 2.0 * x])),
    "norm away from 0": lambda x: sg.norm(sg.stack([x, x * 0 + 1.0])),
    "l2_normalize away from 0": lambda x: sg.l2_normalize(sg.stack([x, x * 0 + 1.0]))[0],
    "logsumexp": lambda x: sg.reduce_logsumexp(sg.stack([x, 2.0 * x, x * x])),
    "softmax": lambda x: sg.softmax(sg.stack([x, 2.0 * x, x * x]))[0],
    "log_softmax": lambda x: sg.log_softmax(sg.stack([x, 2.0 * x, x * x]))[0],
    "logaddexp": lambda x: sg.logaddexp(x, x * x),
    "cumulative_logsumexp": lambda x: sg.reduce_sum(sg.cumulative_logsumexp(sg.stack([x, 2.0 * x, x * x]))),
    "linear_recurrence": lambda x: sg.reduce_sum(sg.linear_recurrence(x, sg.stack([x, 1.0 + x, x * x]))),
    "standard deviation away from 0": lambda x: sg.reduce_std(sg.stack([x, x * 0 + 7.0])),
    "layer_norm": lambda x: sg.layer_norm(sg.stack([x, 2.0 * x, x * 0 + 1.0]))[0],
    "rms_norm": lambda x: sg.rms_norm(sg.stack([x, x * 0]), epsilon=0.1)[0],
    "local_response_normalization": lambda x: sg.local_response_normalization(sg.stack([x, 1.0 + x]), 1)[0],
    "weighted cross entropy": lambda x: sg.weighted_cross_entropy_with_logits(1.0, x, 2.0),
    **{
        f"{name} {label:g}": lambda x, name=name, label=label: getattr(sg, name)(label, x)
        for name in ("sigmoid_cross_entropy_with_logits", "log_poisson_loss", "sigmoid_focal_loss")
        for label in (0.0, 1.0)
    },
    "softmax_focal_loss": lambda x: sg.softmax_focal_loss(np.array([1.0, 0.0]), sg.stack([x, 2.0 * x])),
    "largest singular value": lambda x: sg.matrix_norm(sg.stack([[x, 2.0 + x], [x * x, 4.0]]), ord=2),
    "hypot": lambda x: sg.hypot(x, 1.0),
    "atan2": lambda x: sg.atan2(x, 1.0 + x * x),
}
POINTS = (0.0, 0.5, -0.5, 1.0, -1.0, 2.0, 3.0, -3.0, 6.0)


def derivatives(f: Callable[[Any], Any]) -> Callable[[float], np.ndarray[Any, Any]]:
    """The function and its derivatives at a point."""
    orders = [f]
    for _ in range(ORDERS):
        orders.append(sg.grad(orders[-1]))
    every = sg.function(lambda x: [order(x) for order in orders], engine="numpy")
    return lambda x: np.array(every(np.float64(x)), np.float64)


def limit(d: Callable[[float], np.ndarray[Any, Any]], point: float, step: float) -> np.ndarray[Any, Any]:
    """From one side, extrapolated from two points there."""
    return 2 * d(point + step) - d(point + 2 * step)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_derivatives_at_seams_are_the_limits_from_both_sides(name: str) -> None:
    d = derivatives(FUNCTIONS[name])
    compared, wrong = 0, []
    for point in POINTS:
        here, below, above = d(point), limit(d, point, -STEP), limit(d, point, STEP)
        for order in range(ORDERS + 1):
            sides = np.array([below[order], above[order]])
            allowed = 2e-3 * (1 + np.abs(sides).max())
            if not np.abs(sides).max() < 1e6 or abs(sides[0] - sides[1]) > allowed:
                break  # A pole or a jump: from here on there is no limit.
            compared += 1
            if not abs(here[order] - sides.mean()) <= allowed:
                wrong.append(f"order {order} at {point}: {here[order]:g}, limits {sides[0]:g}, {sides[1]:g}")
    assert compared > len(POINTS)
    assert not wrong, "\n".join(wrong)


def test_derivatives_at_seams_by_hand() -> None:
    huber = lambda x: sg.huber(np.zeros(4), x, axis=None)
    np.testing.assert_allclose(sg.hessian(huber)(np.zeros(4)), np.eye(4) / 4)
    np.testing.assert_allclose(derivatives(sg.bessel_i1)(0.0), [0, 1 / 2, 0, 3 / 8])
    np.testing.assert_array_equal(derivatives(lambda x: x**2.0)(0.0), [0, 0, 2, 0])
    np.testing.assert_array_equal(derivatives(lambda x: x**0.0)(0.0), [1, 0, 0, 0])
    np.testing.assert_allclose(derivatives(lambda x: sg.xlogy(x, x + 1.0))(0.0), [0, 0, 2, -3])
    # 0 log 0: the value and both gradients are 0.
    np.testing.assert_array_equal(sg.grad(sg.xlogy, argnums=(0, 1))(0.0, 0.0), [0, 0])
    np.testing.assert_array_equal(sg.grad(sg.xdivy, argnums=(0, 1))(0.0, 0.0), [0, 0])


def test_a_power_has_mixed_derivatives_where_its_exponent_is_0() -> None:
    """d/dy (y xʸ⁻¹) at y = 0 is 1 / x."""
    slope = sg.grad(sg.pow)
    np.testing.assert_allclose(sg.grad(slope, argnums=1)(np.float64(4.0), np.float64(0.0)), 0.25)
    np.testing.assert_array_equal(slope(np.array(np.inf), np.float64(0.0)), 0)


@pytest.mark.parametrize(
    ("reduce", "mean", "least"),
    [
        (sg.reduce_logsumexp, 1000.0, 3e-6),
        (sg.reduce_variance, 1000.0, 1e-6),
    ],
)
def test_gradients_of_reductions_are_as_precise_as_their_operand(
    reduce: Callable[[Any], Any], mean: float, least: float
) -> None:
    """The rounding of a result, or of a mean, is no error of each element's gradient."""
    x = (mean + np.random.default_rng(0).normal(size=100_000)).astype(np.float32)
    found, exact = sg.grad(reduce)(x), sg.grad(reduce)(x.astype(np.float64))
    assert np.abs(found - exact).max() < least * np.abs(exact).max()
