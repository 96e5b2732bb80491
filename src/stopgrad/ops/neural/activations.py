"""Activations, each one operation whose value and gradient neither overflow nor lose precision."""

from __future__ import annotations

import math

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    GradientOfActivation,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    RealElementwise,
    Tensor,
    TensorType,
    Values,
)
from stopgrad.ops.elementwise.arithmetic import multiply, square
from stopgrad.ops.elementwise.compare import greater, less
from stopgrad.ops.elementwise.convert import where
from stopgrad.ops.elementwise.powers import exp
from stopgrad.ops.elementwise.trigonometric import tanh
from stopgrad.ops.special.gamma import erfc

__all__ = [
    "elu",
    "gelu",
    "leaky_relu",
    "log_sigmoid",
    "relu",
    "relu6",
    "sigmoid",
    "silu",
    "softplus",
    "swish",
]

_STEP = d.not_differentiable("which side of the kink it is has no derivative")
_SMALL = ((0.0,), (-0.0,), (d.INF,), (-d.INF,), (d.NAN,), (1e4,), (-1e4,))
_KINKS = [d.sample(Values(shape, d.float64, -8.3, 8.1, True)) for shape in ((4,), ("n", 2), (0, 2))]


def of_features(definition: type[Op], function_name: str) -> d.Unary:
    """The public function of an activation whose operand TensorFlow calls ``features``."""
    build = d.unary(definition, function_name)

    @d.reads_arguments
    def function(features: ArrayLike, name: str | None = None) -> Tensor:
        return build(features, name)

    function.__name__ = function.__qualname__ = function_name
    return d.publish(definition, function)


# ------------------------------------------------------------------------------------ rectified units


class Relu(RealElementwise):
    """Elementwise max(x, 0); NaN for NaN.

    Returns:
        The larger of x and 0. The gradient at 0 is 0, as in TensorFlow.

    Examples:
        >>> sg.relu(np.array([-1.0, 2.0]))
        array([0., 2.])
    """

    infer = d.same(d.is_real)
    gradient: d.Gradient = {"x": lambda g, op: relu_grad(op.result, g)}
    lower: d.Lowering = lambda xp, x: xp.maximum(x, xp.zeros((), x.dtype))
    samples: d.Samples = _KINKS
    extremes = _SMALL


relu: d.Unary = of_features(Relu, "relu")


class ReluGrad(GradientOfActivation):
    """The gradient of relu: g where y > 0, else 0, where y = relu x.

    Examples:
        >>> sg.ops.ReluGrad.function(np.array([0.0, 2.0]), np.array([5.0, 5.0]))
        array([0., 5.])
    """

    gradient: d.Gradient = {"y": _STEP, "g": lambda g, op: relu_grad(op.y, g)}
    lower: d.Lowering = lambda xp, y, g: xp.where(y > 0, g, xp.zeros((), g.dtype))


relu_grad: d.Binary = d.binary(ReluGrad, "relu_grad")


class Relu6(RealElementwise):
    """Elementwise min(max(x, 0), 6); NaN for NaN.

    Returns:
        The values of x, clipped to [0, 6]. The gradient at 0 and 6 is 0, as in TensorFlow.

    Examples:
        >>> sg.relu6(np.array([-1.0, 2.0, 7.0]))
        array([0., 2., 6.])
    """

    infer = d.same(d.is_real)
    gradient: d.Gradient = {"x": lambda g, op: relu6_grad(op.result, g)}
    lower: d.Lowering = lambda xp, x: xp.minimum(
        xp.maximum(x, xp.zeros((), x.dtype)), xp.full((), 6, x.dtype)
    )
    samples: d.Samples = _KINKS
    extremes = _SMALL


relu6: d.Unary = of_features(Relu6, "relu6")


class Relu6Grad(GradientOfActivation):
    """The gradient of relu6: g where 0 < y < 6, else 0, where y = relu6 x.

    Examples:
        >>> sg.ops.Relu6Grad.function(np.array([0.0, 2.0, 6.0]), np.array([5.0, 5.0, 5.0]))
        array([0., 5., 0.])
    """

    gradient: d.Gradient = {"y": _STEP, "g": lambda g, op: relu6_grad(op.y, g)}
    lower: d.Lowering = lambda xp, y, g: xp.where((y > 0) & (y < 6), g, xp.zeros((), g.dtype))


relu6_grad: d.Binary = d.binary(Relu6Grad, "relu6_grad")


class LeakyRelu(RealElementwise):
    """Elementwise x where x > 0, else alpha · x.

    Args:
        x: floating-point.
        alpha: the slope below 0, a Python number; to learn it, take ``sg.where(x > 0, x, alpha * x)``.

    Returns:
        The values. The gradient at 0 is alpha, as in TensorFlow.

    Constraints:
        (C1) x is floating-point.

    Examples:
        >>> sg.leaky_relu(np.array([-1.0, 2.0]))
        array([-0.2,  2. ])
    """

    @staticmethod
    def infer(x: TensorType, *, alpha: float) -> TensorType:
        return d.same(d.is_floating)(x)

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {"x": lambda g, op: where(greater(op.x, 0), g, g * op.alpha)}
    lower = lambda xp, x, alpha: xp.where(x > 0, x, x * xp.asarray(alpha, x.dtype))
    samples: d.Samples = [
        d.sample(d.floats(4, distinct=True), alpha=0.2),
        d.sample(d.floats("n", 2, distinct=True), alpha=-0.5),
    ]
    extremes = _SMALL


@d.builds(LeakyRelu)
def leaky_relu(features: ArrayLike, alpha: float = 0.2, name: str | None = None) -> Tensor:
    return d.apply(LeakyRelu, (features,), (d.real(alpha),), name)


class Elu(RealElementwise):
    """Elementwise exponential linear unit: x where x > 0, else eˣ - 1.

    Returns:
        The values.

    References:
        Clevert, Unterthiner and Hochreiter 2015, arXiv:1511.07289.

    Examples:
        >>> sg.elu(np.array([-1.0, 2.0]))
        array([-0.63212056,  2.        ])
    """

    gradient: d.Gradient = {"x": lambda g, op: elu_grad(op.result, g)}
    lower = lambda xp, x: xp.where(x > 0, x, xp.expm1(xp.minimum(x, xp.zeros((), x.dtype))))
    samples: d.Samples = d.singles()
    extremes = _SMALL


elu: d.Unary = of_features(Elu, "elu")


class EluGrad(GradientOfActivation):
    """The gradient of elu: g where y > 0, else g · (y + 1), where y = elu x.

    Examples:
        >>> sg.ops.EluGrad.function(np.array([-0.5, 2.0]), np.array([1.0, 1.0]))
        array([0.5, 1. ])
    """

    gradient: d.Gradient = {
        "y": lambda g, op: where(less(op.y, 0), g * op.g, 0),
        "g": lambda g, op: elu_grad(op.y, g),
    }
    lower: d.Lowering = lambda xp, y, g: xp.where(y > 0, g, g * (y + xp.ones((), y.dtype)))


elu_grad: d.Binary = d.binary(EluGrad, "elu_grad")


# ---------------------------------------------------------------------------------------- soft steps


def _logistic(xp: Namespace, x: Array) -> Array:
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, xp.ones((), x.dtype), small) / (1 + small)


class Sigmoid(RealElementwise):
    """Elementwise logistic function 1 / (1 + e⁻ˣ), without overflow.

    Returns:
        Values in [0, 1].

    Examples:
        >>> sg.sigmoid(np.array([0.0, 1000.0]))
        array([0.5, 1. ])
    """

    gradient: d.Gradient = {"x": lambda g, op: sigmoid_grad(op.result, g)}
    never_negative = True
    lower = _logistic
    xla = lambda xp, x: xp.lax.logistic(x)
    samples: d.Samples = d.singles()
    extremes = _SMALL


sigmoid: d.Unary = d.unary(Sigmoid, "sigmoid")


class SigmoidGrad(GradientOfActivation):
    """The gradient of sigmoid: g · y · (1 - y), where y = sigmoid x.

    Examples:
        >>> sg.ops.SigmoidGrad.function(np.array([0.5]), np.array([1.0]))
        array([0.25])
    """

    gradient: d.Gradient = {
        "y": lambda g, op: g * (op.g * (1 - 2 * op.y)),
        "g": lambda g, op: sigmoid_grad(op.y, g),
    }
    lower: d.Lowering = lambda xp, y, g: g * (y * (1 - y))


sigmoid_grad: d.Binary = d.binary(SigmoidGrad, "sigmoid_grad")


class LogSigmoid(RealElementwise):
    """Elementwise log(sigmoid(x)), without overflow.

    Returns:
        Values below 0.

    Examples:
        >>> sg.log_sigmoid(np.array([0.0, -1000.0]))
        array([-6.93147181e-01, -1.00000000e+03])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * sigmoid(-op.x)}
    lower: d.Lowering = lambda xp, x: xp.minimum(x, xp.zeros((), x.dtype)) - xp.log1p(xp.exp(-xp.abs(x)))
    samples: d.Samples = d.singles()
    extremes = _SMALL


log_sigmoid: d.Unary = d.unary(LogSigmoid, "log_sigmoid")


class Softplus(RealElementwise):
    """Elementwise log(1 + eˣ), without overflow.

    Returns:
        Values above 0.

    Examples:
        >>> sg.softplus(np.array([0.0, 1000.0]))
        array([6.93147181e-01, 1.00000000e+03])
    """

    gradient: d.Gradient = {"x": lambda g, op: g * sigmoid(op.x)}
    lower: d.Lowering = lambda xp, x: xp.maximum(x, xp.zeros((), x.dtype)) + xp.log1p(xp.exp(-xp.abs(x)))
    samples: d.Samples = d.singles()
    extremes = _SMALL


softplus: d.Unary = of_features(Softplus, "softplus")


class Silu(RealElementwise):
    """Elementwise x · sigmoid(x), also called swish.

    Returns:
        The values; NaN at -∞.

    References:
        Elfwing, Uchibe and Doya 2017, arXiv:1702.03118.

    Examples:
        >>> sg.silu(np.array([0.0, 1.0]))
        array([0.        , 0.73105858])
    """

    gradient: d.Gradient = {"x": lambda g, op: _silu_gradient(g, op)}
    lower: d.Lowering = lambda xp, x: x * _logistic(xp, x)
    xla: d.Lowering = lambda xp, x: x * xp.lax.logistic(x)
    samples: d.Samples = d.singles()
    extremes = _SMALL


@d.builds(Silu)
def silu(features: ArrayLike, beta: ArrayLike = 1.0, *, name: str | None = None) -> Tensor:
    """Elementwise x · sigmoid(β x), also called swish.

    Args:
        features: x, floating-point.
        beta: β, a number or a tensor that broadcasts with x.
        name: of the operation.

    Returns:
        The values; NaN at -∞.

    Constraints:
        (C1) x is floating-point.

    References:
        Elfwing, Uchibe and Doya 2017, arXiv:1702.03118; Ramachandran, Zoph and Le 2017, arXiv:1710.05941.

    Examples:
        >>> sg.silu(np.array([0.0, 1.0]))
        array([0.        , 0.73105858])
        >>> sg.silu(np.array([0.0, 1.0]), 0.0)
        array([0. , 0.5])
    """
    if isinstance(beta, (int, float)) and beta == 1:
        return d.apply(Silu, (features,), (), name)
    return multiply(features, sigmoid(multiply(beta, features)), name)


@d.guarded("swish")
def swish(features: ArrayLike, beta: ArrayLike = 1.0, *, name: str | None = None) -> Tensor:
    """:func:`silu`, by its other name.

    Args:
        features: x, floating-point.
        beta: β, a number or a tensor that broadcasts with x.
        name: of the operation.

    Returns:
        The values x · sigmoid(β x).

    Examples:
        >>> sg.swish(np.array([0.0, 1.0]))
        array([0.        , 0.73105858])
    """
    return silu(features, beta, name=name)


def _silu_gradient(g: Output, op: Operation) -> Tensor:
    s = sigmoid(op.x)
    return g * (s + op.result * (1 - s))


_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


class Gelu(RealElementwise):
    """Elementwise x · Φ(x), where Φ is the normal distribution function.

    Args:
        x: floating-point.
        approximate: whether Φ is replaced by (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2. By default it is not;
            JAX's is.

    Returns:
        The values; NaN at -∞.

    Constraints:
        (C1) x is floating-point.

    References:
        Hendrycks and Gimpel 2016, arXiv:1606.08415.

    Examples:
        >>> sg.gelu(np.array([0.0, 1.0]))
        array([0.        , 0.84134475])
    """

    @staticmethod
    def infer(x: TensorType, *, approximate: bool) -> TensorType:
        return d.same(d.is_floating)(x)

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {
        "x": lambda g, op: g * (_approximate_slope(op.x) if op.approximate else _exact_slope(op.x))
    }

    @staticmethod
    def lower(xp: Namespace, x: Array, approximate: bool) -> Array:
        if approximate:
            return x * (0.5 * (1 + xp.tanh(_TANH_SCALE * (x + _TANH_CUBE * (x * x * x)))))
        return x * (0.5 * xp.special.erfc(x * -math.sqrt(0.5)))

    samples: d.Samples = [
        d.sample(d.floats(3), approximate=False),
        d.sample(d.floats("n", 2), approximate=True),
    ]
    extremes = ((0.0,), (-0.0,), (d.INF,), (-d.INF,), (d.NAN,), (100.0,), (-100.0,))


def _exact_slope(x: Output) -> Tensor:
    return 0.5 * erfc(x * -math.sqrt(0.5)) + x * (exp(square(x) * -0.5) * (1 / math.sqrt(2 * math.pi)))


def _approximate_slope(x: Output) -> Tensor:
    squared = square(x)
    t = tanh(x * (_TANH_SCALE + _TANH_SCALE * _TANH_CUBE * squared))
    return 0.5 * (1 + t) + (0.5 * x) * (
        (1 - square(t)) * (_TANH_SCALE + 3 * _TANH_SCALE * _TANH_CUBE * squared)
    )


@d.builds(Gelu)
def gelu(features: ArrayLike, approximate: bool = False, name: str | None = None) -> Tensor:
    return d.apply(Gelu, (features,), (d.flag(approximate),), name)
