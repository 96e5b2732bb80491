"""Activations, softmax and normalisation: each one operation, with its own careful value and gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stopgrad.errors import ShapeError
from stopgrad.op import Op, Tensor, apply, builds, not_differentiable, refuse, type_of
from stopgrad.ops.arithmetic import square
from stopgrad.ops.compare import equal, greater, less
from stopgrad.ops.convert import where
from stopgrad.ops.elementwise import exp, log, rsqrt, tanh
from stopgrad.ops.families import INF, NAN, PAIRS, Arithmetic, RealElementwise, binary, unary
from stopgrad.ops.inference import broadcast, broadcast_c2, check_dtype, check_same_dtype, is_floating, is_real, normal_axes, same
from stopgrad.ops.reduce import reduce_mean, reduce_variance
from stopgrad.ops.shape import reduce_sum
from stopgrad.ops.special import erfc
from stopgrad.samples import Values, floats, sample
from stopgrad.samples import binary as pairs
from stopgrad.samples import unary as singles
from stopgrad.types import TensorType, float64, tensor_type

_STEP = not_differentiable("which side of the kink it is has no derivative")
_SMALL = ((0.0,), (-0.0,), (INF,), (-INF,), (NAN,), (1e4,), (-1e4,))
_KINKS = [sample(Values(shape, float64, -8.0, 8.0, True)) for shape in ((4,), ("n", 2), (0, 2))]
_ALIKE: Any = (((3,), (3,)), (("n",), ("n",)), ((0, 2), (0, 2)))


class GradientOfActivation(Op, abstract=True):
    """From a result y and a cotangent g to the cotangent of the operand, in one operation instead of several."""

    infer = staticmethod(lambda y, g: broadcast(is_floating)(y, g))
    samples = pairs(shapes=_ALIKE)
    extremes = PAIRS


# ------------------------------------------------------------------------------------ rectified units


class Relu(RealElementwise):
    """Elementwise max(x, 0); NaN for NaN.

    Inputs
        x: real numbers (C1).
    Returns
        max(x, 0). The gradient at 0 is 0, as in TensorFlow.
    >>> sg.relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """

    infer = same(is_real)
    gradient = {"x": lambda g, op: relu_grad(op.result, g)}
    numpy = xla = lambda xp, x: xp.maximum(x, xp.zeros((), x.dtype))
    samples = _KINKS
    extremes = _SMALL


class ReluGrad(GradientOfActivation):
    """The gradient of relu: g where y > 0, else 0, where y = relu x.

    Inputs
        y, g: floating-point, of one dtype (C1); shapes broadcast (C2).
    Returns
        the cotangent of x.
    >>> sg.ops.ReluGrad.function(np.array([0.0, 2.0]), np.array([5.0, 5.0]))
    array([0., 5.])
    """

    gradient = {"y": _STEP, "g": lambda g, op: relu_grad(op.y, g)}
    numpy = xla = lambda xp, y, g: xp.where(y > 0, g, xp.zeros((), g.dtype))


class Relu6(RealElementwise):
    """Elementwise min(max(x, 0), 6); NaN for NaN.

    Inputs
        x: real numbers (C1).
    Returns
        x clipped to [0, 6]. The gradient at 0 and 6 is 0, as in TensorFlow.
    >>> sg.relu6(np.array([-1.0, 2.0, 7.0]))
    array([0., 2., 6.])
    """

    infer = same(is_real)
    gradient = {"x": lambda g, op: relu6_grad(op.result, g)}
    numpy = xla = lambda xp, x: xp.minimum(xp.maximum(x, xp.zeros((), x.dtype)), xp.full((), 6, x.dtype))
    samples = _KINKS
    extremes = _SMALL


class Relu6Grad(GradientOfActivation):
    """The gradient of relu6: g where 0 < y < 6, else 0, where y = relu6 x.

    Inputs
        y, g: floating-point, of one dtype (C1); shapes broadcast (C2).
    Returns
        the cotangent of x.
    >>> sg.ops.Relu6Grad.function(np.array([0.0, 2.0, 6.0]), np.array([5.0, 5.0, 5.0]))
    array([0., 5., 0.])
    """

    gradient = {"y": _STEP, "g": lambda g, op: relu6_grad(op.y, g)}
    numpy = xla = lambda xp, y, g: xp.where((y > 0) & (y < 6), g, xp.zeros((), g.dtype))


class LeakyRelu(RealElementwise):
    """Elementwise x where x > 0, else alpha · x.

    Inputs
        x: floating-point (C1).
        alpha: a Python number, by default 0.2; to learn it, take ``sg.where(x > 0, x, alpha * x)``.
    Returns
        the values; the gradient at 0 is alpha, as in TensorFlow.
    >>> sg.leaky_relu(np.array([-1.0, 2.0]))
    array([-0.2,  2. ])
    """

    @staticmethod
    def infer(x: TensorType, *, alpha: float) -> TensorType:
        return same(is_floating)(x)

    gradient = {"x": lambda g, op: where(greater(op.x, 0), g, g * op.alpha)}
    numpy = xla = lambda xp, x, alpha: xp.where(x > 0, x, x * xp.asarray(alpha, x.dtype))
    samples = [sample(floats(4, distinct=True), alpha=0.2), sample(floats("n", 2, distinct=True), alpha=-0.5)]
    extremes = _SMALL


@builds(LeakyRelu)
def leaky_relu(x: Any, alpha: float = 0.2, name: str | None = None) -> Tensor:
    return apply(LeakyRelu, (x,), (float(alpha),), name)


class Elu(RealElementwise):
    """Elementwise exponential linear unit: x where x > 0, else eˣ - 1.

    Inputs
        x: floating-point (C1).
    Returns
        the values.
    Source
        Clevert, Unterthiner and Hochreiter 2015, arXiv:1511.07289.
    >>> sg.elu(np.array([-1.0, 2.0]))
    array([-0.63212056,  2.        ])
    """

    gradient = {"x": lambda g, op: elu_grad(op.result, g)}
    numpy = xla = lambda xp, x: xp.where(x > 0, x, xp.expm1(xp.minimum(x, xp.zeros((), x.dtype))))
    samples = singles()
    extremes = _SMALL


class EluGrad(GradientOfActivation):
    """The gradient of elu: g where y > 0, else g · (y + 1), where y = elu x.

    Inputs
        y, g: floating-point, of one dtype (C1); shapes broadcast (C2).
    Returns
        the cotangent of x.
    >>> sg.ops.EluGrad.function(np.array([-0.5, 2.0]), np.array([1.0, 1.0]))
    array([0.5, 1. ])
    """

    gradient = {"y": lambda g, op: where(less(op.y, 0), g * op.g, 0), "g": lambda g, op: elu_grad(op.y, g)}
    numpy = xla = lambda xp, y, g: xp.where(y > 0, g, g * (y + xp.ones((), y.dtype)))


# ---------------------------------------------------------------------------------------- soft steps


def _logistic(xp: Any, x: Any) -> Any:
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, xp.ones((), x.dtype), small) / (1 + small)


class Sigmoid(RealElementwise):
    """Elementwise logistic function 1 / (1 + e⁻ˣ), without overflow.

    Inputs
        x: floating-point (C1).
    Returns
        values in [0, 1].
    >>> sg.sigmoid(np.array([0.0, 1000.0]))
    array([0.5, 1. ])
    """

    gradient = {"x": lambda g, op: sigmoid_grad(op.result, g)}
    numpy = _logistic
    xla = lambda xp, x: xp.lax.logistic(x)
    samples = singles()
    extremes = _SMALL


class SigmoidGrad(GradientOfActivation):
    """The gradient of sigmoid: g · y · (1 - y), where y = sigmoid x.

    Inputs
        y, g: floating-point, of one dtype (C1); shapes broadcast (C2).
    Returns
        the cotangent of x.
    >>> sg.ops.SigmoidGrad.function(np.array([0.5]), np.array([1.0]))
    array([0.25])
    """

    gradient = {"y": lambda g, op: g * (op.g * (1 - 2 * op.y)), "g": lambda g, op: sigmoid_grad(op.y, g)}
    numpy = xla = lambda xp, y, g: g * (y * (1 - y))


class LogSigmoid(RealElementwise):
    """Elementwise log(sigmoid(x)), without overflow.

    Inputs
        x: floating-point (C1).
    Returns
        values below 0.
    >>> sg.log_sigmoid(np.array([0.0, -1000.0]))
    array([-6.93147181e-01, -1.00000000e+03])
    """

    gradient = {"x": lambda g, op: g * sigmoid(-op.x)}
    numpy = xla = lambda xp, x: xp.minimum(x, xp.zeros((), x.dtype)) - xp.log1p(xp.exp(-xp.abs(x)))
    samples = singles()
    extremes = _SMALL


class Softplus(RealElementwise):
    """Elementwise log(1 + eˣ), without overflow.

    Inputs
        x: floating-point (C1).
    Returns
        values above 0.
    >>> sg.softplus(np.array([0.0, 1000.0]))
    array([6.93147181e-01, 1.00000000e+03])
    """

    gradient = {"x": lambda g, op: g * sigmoid(op.x)}
    numpy = xla = lambda xp, x: xp.maximum(x, xp.zeros((), x.dtype)) + xp.log1p(xp.exp(-xp.abs(x)))
    samples = singles()
    extremes = _SMALL


class Silu(RealElementwise):
    """Elementwise x · sigmoid(x), also called swish.

    Inputs
        x: floating-point (C1).
    Returns
        the values; NaN at -∞.
    Source
        Elfwing, Uchibe and Doya 2017, arXiv:1702.03118.
    >>> sg.silu(np.array([0.0, 1.0]))
    array([0.        , 0.73105858])
    """

    gradient = {"x": lambda g, op: _silu_gradient(g, op)}
    numpy = lambda xp, x: x * _logistic(xp, x)
    xla = lambda xp, x: x * xp.lax.logistic(x)
    samples = singles()
    extremes = _SMALL


def _silu_gradient(g: Any, op: Any) -> Tensor:
    s = sigmoid(op.x)
    return g * (s + op.result * (1 - s))


_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


class Gelu(RealElementwise):
    """Elementwise x · Φ(x), where Φ is the normal distribution function.

    Inputs
        x: floating-point (C1).
        approximate: whether Φ is replaced by (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2. Unlike JAX's, it is not by default.
    Returns
        the values; NaN at -∞.
    Source
        Hendrycks and Gimpel 2016, arXiv:1606.08415.
    >>> sg.gelu(np.array([0.0, 1.0]))
    array([0.        , 0.84134475])
    """

    @staticmethod
    def infer(x: TensorType, *, approximate: bool) -> TensorType:
        return same(is_floating)(x)

    gradient = {"x": lambda g, op: g * (_approximate_slope(op.x) if op.approximate else _exact_slope(op.x))}

    @staticmethod
    def numpy(xp: Any, x: Any, approximate: bool) -> Any:
        if approximate:
            return x * (0.5 * (1 + xp.tanh(_TANH_SCALE * (x + _TANH_CUBE * (x * x * x)))))
        return x * (0.5 * xp.special.erfc(x * -math.sqrt(0.5)))

    xla = numpy
    samples = [sample(floats(3), approximate=False), sample(floats("n", 2), approximate=True)]
    extremes = ((0.0,), (-0.0,), (INF,), (-INF,), (NAN,), (100.0,), (-100.0,))


def _exact_slope(x: Any) -> Tensor:
    return 0.5 * erfc(x * -math.sqrt(0.5)) + x * (exp(square(x) * -0.5) * (1 / math.sqrt(2 * math.pi)))


def _approximate_slope(x: Any) -> Tensor:
    squared = square(x)
    t = tanh(x * (_TANH_SCALE + _TANH_SCALE * _TANH_CUBE * squared))
    return 0.5 * (1 + t) + (0.5 * x) * ((1 - square(t)) * (_TANH_SCALE + 3 * _TANH_SCALE * _TANH_CUBE * squared))


@builds(Gelu)
def gelu(x: Any, approximate: bool = False, name: str | None = None) -> Tensor:
    return apply(Gelu, (x,), (bool(approximate),), name)


# ------------------------------------------------------------------------------- two or more operands


class LogAddExp(Arithmetic):
    """Elementwise log(eˣ + eʸ), without overflow, with broadcasting.

    Inputs
        x, y: floating-point, of one dtype (C1); shapes broadcast (C2).
    Returns
        the logarithm of the sum; -∞ where both are -∞, with a gradient of 0 there.
    >>> sg.logaddexp(np.array([0.0, 1000.0]), np.array([0.0, 1000.0]))
    array([6.93147181e-01, 1.00069315e+03])
    """

    infer = broadcast(is_floating)
    gradient = {
        "x": lambda g, op: g * exp(op.x - where(greater(op.result, -INF), op.result, 0)),
        "y": lambda g, op: g * exp(op.y - where(greater(op.result, -INF), op.result, 0)),
    }
    numpy = xla = lambda xp, x, y: xp.logaddexp(x, y)
    samples = pairs()
    extremes = (*PAIRS, (-INF, -INF), (INF, INF), (1e4, -1e4))


class Xlogy(Arithmetic):
    """Elementwise x · log y, with broadcasting; 0 where x is 0, even if y is 0.

    Inputs
        x, y: floating-point, of one dtype (C1); shapes broadcast (C2).
    Returns
        the product. Where x is 0 both gradients are 0, as in TensorFlow.
    >>> sg.xlogy(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
    array([0., 0.])
    """

    infer = broadcast(is_floating)
    gradient = {"x": lambda g, op: where(_is_zero(op.x), 0, g * log(where(_is_zero(op.x), 1, op.y))), "y": lambda g, op: g * xdivy(op.x, op.y)}

    @staticmethod
    def numpy(xp: Any, x: Any, y: Any) -> Any:
        zero = x == 0
        return xp.where(zero, xp.zeros((), x.dtype), x * xp.log(xp.where(zero, xp.ones((), y.dtype), y)))

    xla = numpy
    samples = pairs((0.5, 2.0), (0.5, 2.0))
    extremes = ((0.0, 0.0), (0.0, -1.0), (0.0, NAN), (1.0, 0.0), (INF, 2.0), (NAN, 1.0), (2.0, INF))


class Xdivy(Arithmetic):
    """Elementwise x / y, with broadcasting; 0 where x is 0, even if y is 0.

    Inputs
        x, y: floating-point, of one dtype (C1); shapes broadcast (C2).
    Returns
        the quotient. Where x is 0 both gradients are 0, as in TensorFlow.
    >>> sg.xdivy(np.array([0.0, 2.0]), np.array([0.0, 4.0]))
    array([0. , 0.5])
    """

    infer = broadcast(is_floating)
    gradient = {"x": lambda g, op: where(_is_zero(op.x), 0, xdivy(g, where(_is_zero(op.x), 1, op.y))), "y": lambda g, op: -g * xdivy(op.result, op.y)}

    @staticmethod
    def numpy(xp: Any, x: Any, y: Any) -> Any:
        zero = x == 0
        return xp.where(zero, xp.zeros((), x.dtype), x / xp.where(zero, xp.ones((), y.dtype), y))

    xla = numpy
    samples = pairs((0.5, 2.0), (0.5, 2.0))
    extremes = ((0.0, 0.0), (0.0, NAN), (1.0, 0.0), (INF, 2.0), (NAN, 1.0), (2.0, INF))


def _is_zero(x: Any) -> Tensor:
    return equal(x, 0)


class ClipByValue(Op):
    """The operand with values below *low* raised to it and values above *high* lowered to it, with broadcasting.

    Inputs
        x, low, high: real numbers of one dtype (C1); shapes broadcast (C2). low should not exceed high; where it
            does, the result is high.
    Returns
        min(max(x, low), high); NaN for NaN. The gradient goes to x where low ≤ x ≤ high, ends included, to low
        where x is below it and to high where x is above it, as in TensorFlow.
    >>> sg.clip_by_value(np.array([-1.0, 0.5, 2.0]), 0.0, 1.0)
    array([0. , 0.5, 1. ])
    """

    @staticmethod
    def infer(x: TensorType, low: TensorType, high: TensorType) -> TensorType:
        check_dtype(x, is_real, "real numbers")
        return tensor_type(check_same_dtype(x, low, high), broadcast_c2(x.shape, low.shape, high.shape))

    gradient = {
        "x": lambda g, op: where(less(op.x, op.low), 0, where(greater(op.x, op.high), 0, g)),
        "low": lambda g, op: where(less(op.x, op.low), g, 0),
        "high": lambda g, op: where(less(op.x, op.low), 0, where(greater(op.x, op.high), g, 0)),
    }
    numpy = xla = lambda xp, x, low, high: xp.minimum(xp.maximum(x, low), high)
    samples = [
        sample(floats(9, distinct=True), floats(low=-1.0, high=-0.5), floats(low=0.5, high=1.0)),
        sample(floats("n", 2), floats(2, low=-1.0, high=-0.5), floats("n", 1, low=0.5, high=1.0)),
    ]
    extremes = ((INF, 0.0, 1.0), (-INF, 0.0, 1.0), (NAN, 0.0, 1.0), (0.0, -INF, INF))


@builds(ClipByValue)
def clip_by_value(x: Any, low: Any, high: Any, name: str | None = None) -> Tensor:
    return apply(ClipByValue, (x, low, high), (), name)


def clip(x: Any, low: Any = None, high: Any = None, name: str | None = None) -> Tensor:
    """:func:`clip_by_value`, as the Python array API calls it; None for no bound.

    >>> sg.clip(np.array([-1.0, 0.5, 2.0]), 0.0)
    array([0. , 0.5, 2. ])
    """
    return clip_by_value(x, -INF if low is None else low, INF if high is None else high, name)


# -------------------------------------------------------------------------------------------- softmax


def _along(x: TensorType, *, axis: tuple[int, ...]) -> TensorType:
    check_dtype(x, is_floating, "floating-point numbers")
    return x


class AlongAxes(Op, abstract=True):
    """One floating-point operand (C1), normalised along axes (C2)."""

    infer = staticmethod(_along)
    samples = [sample(floats(2, 3), axis=(1,)), sample(floats("n", 2, 3), axis=(0, 2)), sample(floats(0, 2), axis=(1,)), sample(floats(2, 0), axis=(1,))]
    extremes = (([[1e4, -1e4]],), ([[INF, 0.0]],), ([[-INF, 0.0]],), ([[-INF, -INF]],), ([[NAN, 0.0]],))


def _centred(xp: Any, x: Any, axis: tuple[int, ...]) -> Any:
    return x - xp.max(x, axis=axis, keepdims=True, initial=-INF)


class Softmax(AlongAxes):
    """eˣ / Σ eˣ, the sum over axes, without overflow.

    Inputs
        x: floating-point (C1).
        axis: one or several axes (C2), by default the last.
    Returns
        values in [0, 1] that sum to 1; NaN where all are -∞, or one is ∞ or NaN.
    >>> sg.softmax(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    """

    gradient = {"x": lambda g, op: op.result * (g - reduce_sum(g * op.result, op.axis, True))}

    @staticmethod
    def numpy(xp: Any, x: Any, axis: tuple[int, ...]) -> Any:
        e = xp.exp(_centred(xp, x, axis))
        return e / xp.sum(e, axis=axis, keepdims=True, dtype=x.dtype)

    xla = numpy


class LogSoftmax(AlongAxes):
    """x - log Σ eˣ, the sum over axes, without overflow.

    Inputs
        x: floating-point (C1).
        axis: one or several axes (C2), by default the last.
    Returns
        the logarithm of :func:`softmax`, precise also where that is 0.
    >>> sg.log_softmax(np.array([0.0, 1000.0]))
    array([-1000.,     0.])
    """

    gradient = {"x": lambda g, op: g - exp(op.result) * reduce_sum(g, op.axis, True)}

    @staticmethod
    def numpy(xp: Any, x: Any, axis: tuple[int, ...]) -> Any:
        centred = _centred(xp, x, axis)
        return centred - xp.log(xp.sum(xp.exp(centred), axis=axis, keepdims=True, dtype=x.dtype))

    xla = numpy


def _axes(definition: type[Op], axis: Any, x: Any) -> tuple[int, ...]:
    try:
        return normal_axes(axis, type_of(x).ndim)
    except ShapeError as error:
        refuse(definition, error, (x,))


@builds(Softmax)
def softmax(x: Any, axis: int | Sequence[int] = -1, name: str | None = None) -> Tensor:
    return apply(Softmax, (x,), (_axes(Softmax, axis, x),), name)


@builds(LogSoftmax)
def log_softmax(x: Any, axis: int | Sequence[int] = -1, name: str | None = None) -> Tensor:
    return apply(LogSoftmax, (x,), (_axes(LogSoftmax, axis, x),), name)


# -------------------------------------------------------------------------------------- normalisation


class LayerNorm(Op):
    """(x - mean) / √(variance + ε), both over axes.

    Inputs
        x: floating-point (C1).
        scale, offset: of the function only: tensors to multiply by and add after, None for none.
        axis: one or several axes (C2), by default the last; epsilon: a Python number.
    Returns
        the normalised values, of x's shape; NaN over no elements.
    Source
        Ba, Kiros and Hinton 2016, arXiv:1607.06450.
    >>> sg.layer_norm(np.array([1.0, 3.0]), epsilon=0.0)
    array([-1.,  1.])
    """

    @staticmethod
    def infer(x: TensorType, *, axis: tuple[int, ...], epsilon: float) -> TensorType:
        return _along(x, axis=axis)

    gradient = {"x": lambda g, op: _layer_norm_gradient(g, op)}

    @staticmethod
    def numpy(xp: Any, x: Any, axis: tuple[int, ...], epsilon: float) -> Any:
        count = xp.asarray(math.prod(x.shape[a] for a in axis), x.dtype)
        centred = x - xp.sum(x, axis=axis, keepdims=True, dtype=x.dtype) / count
        variance = xp.sum(xp.square(centred), axis=axis, keepdims=True, dtype=x.dtype) / count
        return centred / xp.sqrt(variance + xp.asarray(epsilon, x.dtype))

    xla = numpy
    samples = [
        sample(floats(2, 3), axis=(1,), epsilon=1e-3),
        sample(floats("n", 2, 3), axis=(0, 2), epsilon=0.1),
        sample(floats(0, 2), axis=(1,), epsilon=1e-3),
    ]
    extremes = (([[1e4, -1e4]],), ([[INF, 0.0]],), ([[1.0, 1.0]],), ([[NAN, 0.0]],))


def _layer_norm_gradient(g: Any, op: Any) -> Tensor:
    y = op.result
    centred = g - reduce_mean(g, op.axis, True) - y * reduce_mean(g * y, op.axis, True)
    return centred * rsqrt(reduce_variance(op.x, op.axis, True) + op.epsilon)


@builds(LayerNorm)
def layer_norm(x: Any, scale: Any = None, offset: Any = None, axis: int | Sequence[int] = -1, epsilon: float = 1e-5, name: str | None = None) -> Tensor:
    y = apply(LayerNorm, (x,), (_axes(LayerNorm, axis, x), float(epsilon)), name)
    y = y if scale is None else y * scale
    return y if offset is None else y + offset


relu = unary(Relu, "relu")
relu_grad = binary(ReluGrad, "relu_grad")
relu6 = unary(Relu6, "relu6")
relu6_grad = binary(Relu6Grad, "relu6_grad")
elu = unary(Elu, "elu")
elu_grad = binary(EluGrad, "elu_grad")
sigmoid = unary(Sigmoid, "sigmoid")
sigmoid_grad = binary(SigmoidGrad, "sigmoid_grad")
log_sigmoid = unary(LogSigmoid, "log_sigmoid")
softplus = unary(Softplus, "softplus")
silu = unary(Silu, "silu")
logaddexp = binary(LogAddExp, "logaddexp")
xlogy = binary(Xlogy, "xlogy")
xdivy = binary(Xdivy, "xdivy")
