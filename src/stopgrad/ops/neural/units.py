"""Further activations: gated, piecewise linear and self-normalising units, most of them composed."""

from __future__ import annotations

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, RealElementwise, ShapeError, Tensor
from stopgrad.ops.composing import floating
from stopgrad.ops.elementwise.arithmetic import abs, add, divide, multiply, negative, square
from stopgrad.ops.elementwise.compare import greater_equal
from stopgrad.ops.elementwise.composite import clip_by_value
from stopgrad.ops.elementwise.convert import cast, where, wide
from stopgrad.ops.elementwise.trigonometric import tanh
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.neural.activations import elu, of_features, relu, relu6, sigmoid, softplus
from stopgrad.ops.shapes.join import concat

__all__ = [
    "celu",
    "crelu",
    "glu",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "mish",
    "selu",
    "softsign",
]


class Softsign(RealElementwise):
    """Elementwise x / (1 + |x|).

    Returns:
        Values in (-1, 1); NaN at ±∞, as in TensorFlow.

    Examples:
        >>> sg.softsign(np.array([-1.0, 3.0]))
        array([-0.5 ,  0.75])
    """

    gradient: d.Gradient = {"x": lambda g, op: wide(g) / square(1.0 + abs(wide(op.x)))}
    lower = lambda xp, x: x / (1 + xp.abs(x))
    samples: d.Samples = [
        d.sample(d.floats(3, distinct=True)),
        d.sample(d.floats("n", 2, distinct=True)),
        d.sample(d.floats(0, 2)),
    ]


softsign: d.Unary = of_features(Softsign, "softsign")


@d.guarded("selu")
def selu(features: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise scaled exponential linear unit: 1.0507 · (x where x > 0, else 1.6733 · (eˣ - 1)).

    Args:
        features: x, floating-point.
        name: of the operation.

    Returns:
        The values. With these constants activations keep mean 0 and variance 1 from layer to layer. The
        gradient at 0 is 1.0507, as in TensorFlow.

    References:
        Klambauer, Unterthiner, Mayr and Hochreiter 2017, arXiv:1706.02515.

    Examples:
        >>> sg.selu(np.array([-1.0, 2.0]))
        array([-1.11133074,  2.10140197])
    """
    return _elu(features, _SELU_SCALE * _SELU_ALPHA, _SELU_SCALE, 1.0, name)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _elu(x: ArrayLike, below: float, above: float, width: float, name: str | None) -> Tensor:
    """x · above where x ≥ 0, else (exp(x / width) - 1) · below."""
    (x,) = floating(x)
    values = wide(x)
    curve = multiply(elu(divide(values, width) if width != 1 else values), below)
    return cast(where(greater_equal(values, 0), multiply(values, above), curve), d.type_of(x).dtype, name)


@d.guarded("celu")
def celu(features: ArrayLike, alpha: float = 1.0, name: str | None = None) -> Tensor:
    """Elementwise x where x > 0, else α (exp(x / α) - 1), whose slope at 0 is 1 for every α.

    Args:
        features: x, floating-point.
        alpha: α, a Python number other than 0.
        name: of the operation.

    Returns:
        The values.

    Raises:
        ArgumentError: α is 0.

    References:
        Barron 2017, arXiv:1704.07483.

    Examples:
        >>> sg.celu(np.array([-1.0, 2.0]), 0.5)
        array([-0.43233236,  2.        ])
    """
    width = d.real(alpha)
    if width == 0:
        raise ArgumentError("alpha is a number other than 0")
    return _elu(features, width, 1.0, width, name)


@d.guarded("mish")
def mish(features: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise x · tanh(log(1 + eˣ)).

    Args:
        features: x, floating-point.
        name: of the operation.

    Returns:
        The values; NaN at -∞.

    References:
        Misra 2019, arXiv:1908.08681.

    Examples:
        >>> sg.mish(np.array([0.0, 1.0]))
        array([0.        , 0.86509839])
    """
    (x,) = floating(features)
    values = wide(x)
    return cast(multiply(values, tanh(softplus(values))), d.type_of(x).dtype, name)


@d.guarded("glu")
def glu(x: ArrayLike, axis: int = -1, name: str | None = None) -> Tensor:
    """Gated linear unit: the first half along an axis, times the sigmoid of the second.

    Args:
        x: floating-point.
        axis: an axis of even size.
        name: of the operation.

    Returns:
        The values, half as many along the axis.

    Raises:
        ShapeError: the axis does not exist, or its size is odd or not known.

    References:
        Dauphin, Fan, Auli and Grangier 2016, arXiv:1612.08083.

    Examples:
        >>> sg.glu(np.array([1.0, 2.0, 0.0, 0.0]))
        array([0.5, 1. ])
    """
    (x,) = floating(x)
    kind = d.type_of(x)
    place = d.normal_axis(axis, kind.ndim)
    size = kind.shape[place]
    if not isinstance(size, int) or size % 2:
        raise ShapeError(f"axis {axis} of {kind!r} must have an even size, known when the graph is built")
    values, gates = (wide(part_of(x, place, start, size // 2)) for start in (0, size // 2))
    return cast(multiply(values, sigmoid(gates)), kind.dtype, name)


@d.guarded("crelu")
def crelu(features: ArrayLike, axis: int = -1, name: str | None = None) -> Tensor:
    """relu of x and of -x, concatenated.

    Args:
        features: x, real numbers.
        axis: along which they are concatenated.
        name: of the operation.

    Returns:
        The values, twice as many along the axis.

    Raises:
        ShapeError: the axis does not exist.

    References:
        Shang, Sohn, Almeida and Lee 2016, arXiv:1603.05201.

    Examples:
        >>> sg.crelu(np.array([-1.0, 2.0]))
        array([0., 2., 1., 0.])
    """
    return concat([relu(features), relu(negative(features))], axis, name)


@d.guarded("hard_sigmoid")
def hard_sigmoid(features: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise relu6(x + 3) / 6, a piecewise linear approximation of :func:`sigmoid`.

    Args:
        features: x, floating-point.
        name: of the operation.

    Returns:
        Values in [0, 1].

    Examples:
        >>> sg.hard_sigmoid(np.array([-4.0, 0.0, 1.5]))
        array([0.  , 0.5 , 0.75])
    """
    (x,) = floating(features)
    return cast(divide(relu6(add(wide(x), 3.0)), 6.0), d.type_of(x).dtype, name)


@d.guarded("hard_swish")
def hard_swish(features: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise x · relu6(x + 3) / 6, an approximation of :func:`silu`.

    Args:
        features: x, floating-point.
        name: of the operation.

    Returns:
        The values; NaN at -∞.

    References:
        Howard et al. 2019, arXiv:1905.02244.

    Examples:
        >>> sg.hard_swish(np.array([-4.0, 0.0, 1.5]))
        array([-0.   ,  0.   ,  1.125])
    """
    (x,) = floating(features)
    values = wide(x)
    return cast(multiply(values, divide(relu6(add(values, 3.0)), 6.0)), d.type_of(x).dtype, name)


@d.guarded("hard_tanh")
def hard_tanh(features: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise x, clipped to [-1, 1].

    Args:
        features: x, real numbers.
        name: of the operation.

    Returns:
        The values. The gradient at -1 and 1 is 1, as in :func:`clip_by_value`.

    Examples:
        >>> sg.hard_tanh(np.array([-4.0, 0.5]))
        array([-1. ,  0.5])
    """
    return clip_by_value(features, -1, 1, name)
