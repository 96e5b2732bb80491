"""Random numbers by rejection: gamma and Poisson numbers, and distributions made from gamma numbers.

Each number is accepted or proposed anew independently of the others: each round takes its own random words
from the number's key and position. So a number depends neither on those drawn with it nor on the engine:
decisions are made in float64 whatever the dtype, so engines whose logarithms are rounded differently disagree
only once in some 10¹² numbers. The numbers themselves are equal up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    DTypeError,
    DTypeLike,
    Namespace,
    NumpyArray,
    Op,
    Shape,
    ShapeError,
    ShapeLike,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import divide, subtract
from stopgrad.ops.elementwise.compare import is_nan
from stopgrad.ops.elementwise.composite import softmax
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.elementwise.powers import exp
from stopgrad.ops.gates.stopping import Gate
from stopgrad.ops.neural.activations import sigmoid
from stopgrad.ops.random.draws import quantile
from stopgrad.ops.random.gamma_quantiles import moved_log_gamma
from stopgrad.ops.random.keys import (
    KEY,
    check_key,
    drawn_shape,
    fraction,
    halves,
    keyed,
    parameters,
    positions,
    random_split,
    threefry,
)
from stopgrad.ops.shapes.reshape import broadcast_to
from stopgrad.ops.special.incomplete import log_gamma_slope

__all__ = [
    "random_beta",
    "random_dirichlet",
    "random_gamma",
    "random_poisson",
]

ROUNDS = 128
"""A round rejects one gamma number in 20 and one Poisson number in 3: after this many, none is pending."""

Round = Callable[..., tuple[Any, Any]]
"""Called with a namespace, the round's number and arrays, it returns proposals and which are accepted."""


def _accepted(
    xp: Namespace, propose: Round, pending: NumpyArray, *arrays: NumpyArray
) -> np.ndarray[Any, Any]:
    """The first accepted proposal for each pending number, with NumPy; the other elements are arbitrary."""
    draws, arrays = np.zeros(pending.shape), np.broadcast_arrays(*arrays, pending)[:-1]
    where_open = np.nonzero(pending)
    for step in range(ROUNDS):
        if not where_open[0].size:
            break
        proposed, fits = propose(xp, np.uint32(step), *[x[where_open] for x in arrays])
        draws[where_open] = proposed
        where_open = tuple([axis[~fits] for axis in where_open])
    return draws


def _accepted_xla(xp: Namespace, propose: Round, pending: Array, *arrays: Array) -> Array:
    """The same with XLA, as one loop that runs until nothing is pending."""

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        count, open_, draws = state
        proposed, fits = propose(xp, count, *arrays)
        return count + 1, open_ & ~fits, xp.where(open_, proposed, draws)

    goes_on = lambda state: xp.any(state[1]) & (state[0] < ROUNDS)
    start = (xp.zeros((), np.uint32), pending, xp.zeros(pending.shape, np.float64))
    return xp.lax.while_loop(goes_on, step, start)[2]


def _open_fraction(xp: Namespace, k0: Array, k1: Array, stream: Array | np.uint32, counter: Array) -> Any:
    """Uniform numbers in (0, 1), as float64."""
    return fraction(*threefry(xp, k0, k1, stream, counter)) + 2.0**-53


def _two_fractions(
    xp: Namespace, k0: Array, k1: Array, step: Array | np.uint32, counter: Array
) -> tuple[Any, Any]:
    """Two such numbers for each element in a round; their words are computed together."""
    streams = (2 * step + np.arange(1, 3, dtype=np.uint32)).reshape(2, *(1,) * max(k0.ndim, counter.ndim))
    first, second = _open_fraction(xp, k0, k1, streams, counter)
    return first, second


def _sources(xp: Namespace, key: Array, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The key's two words, and the counters of a draw of a shape whose leading axes are those of the keys."""
    own = shape[key.ndim - 1 :]
    return *halves(key, len(own)), positions(xp, own)


class FromKeys(Op, abstract=True):
    """A random number for each parameter, all from one key.

    Args:
        key: the key; use it once.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The parameter is float64.
        (C3) There is one key for all parameters; under vmap, one for each example.
    """

    @staticmethod
    def infer(key: TensorType, parameter: TensorType) -> TensorType:
        check_key(key, many=True)
        d.check_dtype(parameter, lambda dtype: dtype is d.float64, "float64", "C2")
        front = parameter.shape[: key.ndim - 1]
        if len(front) < key.ndim - 1 or not all(map(d.same_size, front, key.shape)):
            raise ShapeError(f"(C3) takes a key for all parameters, not {key!r} for {parameter!r}")
        return parameter

    batch = d.KEYS


# ------------------------------------------------------------------------------------------------ gamma


def _gamma_round(
    xp: Namespace, step: Array | np.uint32, k0: Array, k1: Array, counter: Array, d: Array
) -> tuple[Any, Any]:
    """t and where it is accepted; then d (1 + t)³ has the gamma distribution of shape d + 1/3."""
    first, u = _two_fractions(xp, k0, k1, step, counter)
    normal = quantile(xp, first * 2 - 1)
    t = normal / xp.sqrt(9 * d)
    # log v + 1 - v for v = (1 + t)³, without the cancellation of large d.
    excess = 3 * (xp.log1p(t) - t) - (3 + t) * t * t
    return t, (t > -1) & (xp.log(u) < 0.5 * normal * normal + d * excess)


def _log_gamma(xp: Namespace, accepted: Callable[..., Array], key: Array, alpha: Array) -> Array:
    usual = (alpha > 0) & (alpha < math.inf)
    shape = xp.where(usual, alpha, 1.0)
    small = shape < 1
    d = xp.where(small, shape + 1, shape) - 1 / 3
    sources = _sources(xp, key, alpha.shape)
    t = accepted(xp, _gamma_round, usual, *sources, d)
    boost = xp.log(_open_fraction(xp, *sources[:2], np.uint32(0), sources[2])) / shape
    draws = xp.log(d) + 3 * xp.log1p(t) + xp.where(small, boost, 0.0)
    # For a shape of 0 the number is 0, for one of infinity it is infinite; other shapes have no distribution.
    return xp.where(usual, draws, xp.where(alpha >= 0, xp.where(alpha == 0, -math.inf, math.inf), math.nan))


class RandomLogGamma(FromKeys):
    """The logarithms of random numbers with gamma distributions.

    Args:
        parameter: the shape of each distribution, as float64.

    Returns:
        The logarithms, as float64; -∞ for a shape of 0, ∞ for one of ∞, NaN for one below 0 or NaN.

    References:
        G. Marsaglia and W. Tsang 2000, "A simple method for generating gamma variables"; for shapes below 1
        a number of shape α + 1 times u to the power 1 / α.
    """

    gradient: d.Gradient = d.not_differentiable(
        "a draw's bits carry no gradient; that of its parameter is implicit"
    )
    lower = lambda xp, key, parameter: _log_gamma(xp, _accepted, key, parameter)
    xla = lambda xp, key, parameter: _log_gamma(xp, _accepted_xla, key, parameter)
    samples: d.Samples = [
        d.sample(KEY, d.floats(2, 3, low=0.1, high=4.0)),
        d.sample(KEY, d.floats("n", low=2.0, high=900.0)),
        d.sample(KEY, d.floats(0, 2)),
    ]
    extremes = ((KEY, np.array([0.0, 1.0, math.inf, math.nan, -1.0, 1e-300, 1e300])),)


class ImplicitLogGamma(Gate):
    """The value of a draw, with the implicit gradient to the shape of its gamma distribution.

    Args:
        draw: the logarithms of numbers with gamma distributions.
        alpha: the shape parameters of these distributions.

    Returns:
        The operand *draw*.

    Constraints:
        (C1) Both have one dtype.
        (C2) Both have one shape.

    References:
        M. Figurnov, S. Mohamed and A. Mnih 2018, "Implicit reparameterization gradients", arXiv:1805.08498.
    """

    @staticmethod
    def infer(draw: TensorType, alpha: TensorType) -> TensorType:
        d.check_same_dtype(draw, alpha)
        d.check_shape(draw, alpha.shape, "the draw", "C2", of="its parameter")
        return draw

    gradient: d.Gradient = {
        "draw": d.not_differentiable("a draw's bits carry no gradient; that of its parameter is implicit"),
        "alpha": lambda g, op: g * log_gamma_slope(op.alpha, op.result),
    }
    held = lambda now, base, acts: moved_log_gamma(base[0], base[1], now[1])
    samples: d.Samples = [d.sample(d.floats(3), d.floats(3, low=0.5, high=4.0))]


@d.builds(RandomLogGamma)
def random_log_gamma(key: ArrayLike, parameter: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(RandomLogGamma, (key, parameter), (), name)


@d.builds(ImplicitLogGamma)
def implicit_log_gamma(draw: ArrayLike, alpha: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(ImplicitLogGamma, (draw, alpha), (), name)


def _log_draw(shape: Shape, key: ArrayLike, alpha: ArrayLike) -> Tensor:
    """The logarithms of gamma numbers of a shape, as float64, with their implicit gradient."""
    shapes = broadcast_to(cast(alpha, d.float64), shape)
    return implicit_log_gamma(random_log_gamma(key, shapes), shapes)


@keyed("random_gamma", "alpha shape dtype", shape=None)
def random_gamma(
    shape: ShapeLike,
    key: ArrayLike,
    alpha: ArrayLike,
    beta: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with a gamma distribution, whose density is xᵅ⁻¹ exp(-β x) βᵅ / Γ(α).

    Args:
        shape: of the result; sizes may be symbolic. None: that of alpha and beta together.
        key: the key; use it once.
        alpha: the shape parameter: a positive number or tensor. 0 gives 0, ∞ gives ∞, other numbers NaN.
        beta: one over the scale; by default 1.
        dtype: of the result; by default that of floating-point parameters, or float32. Numbers are drawn as
            float64 and rounded.

    Returns:
        A tensor of that type. Gradients flow to beta and, implicitly, to alpha: as alpha changes, a number
        moves so that its quantile stays the same. There are derivatives of all orders, with an error of about
        10⁻¹¹.

    References:
        G. Marsaglia and W. Tsang 2000, "A simple method for generating gamma variables". M. Figurnov, S.
        Mohamed and A. Mnih 2018, "Implicit reparameterization gradients", arXiv:1805.08498.

    Examples:
        >>> sg.random_gamma([10000], sg.random_key(0), 3.0, 2.0).mean().round(1)
        np.float32(1.5)
    """
    target, (a, b) = parameters(dtype, alpha=alpha, beta=1.0 if beta is None else beta)
    sizes = drawn_shape(shape, key, alpha=a, beta=b)
    drawn = exp(_log_draw(sizes, key, a))
    return cast(drawn if beta is None else divide(drawn, cast(b, d.float64)), target, name)


@keyed("random_beta", "alpha beta shape dtype", shape=None)
def random_beta(
    shape: ShapeLike,
    key: ArrayLike,
    alpha: ArrayLike,
    beta: ArrayLike,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with a beta distribution, whose density is xᵅ⁻¹ (1 - x)ᵝ⁻¹ / B(α, β).

    Args:
        shape: of the result; sizes may be symbolic. None: that of alpha and beta together.
        key: the key; use it once.
        alpha: the first parameter: a positive number or tensor.
        beta: the second, likewise.
        dtype: of the result; by default that of floating-point parameters, or float32. Numbers are drawn as
            float64 and rounded.

    Returns:
        A tensor of that type: the share of the first of two gamma numbers in their sum. Gradients flow to
        alpha and beta through the logarithms of these.

    References:
        As :func:`random_gamma`.

    Examples:
        >>> sg.random_beta([10000], sg.random_key(0), 3.0, 2.0).mean().round(1)
        np.float32(0.6)
    """
    target, (a, b) = parameters(dtype, alpha=alpha, beta=beta)
    sizes = drawn_shape(shape, key, alpha=a, beta=b)
    keys = random_split(key)
    first, second = _log_draw(sizes, keys[0], a), _log_draw(sizes, keys[1], b)
    return cast(sigmoid(subtract(first, second)), target, name)


@keyed("random_dirichlet", "alpha shape dtype", shape=None)
def random_dirichlet(
    shape: ShapeLike,
    key: ArrayLike,
    alpha: ArrayLike,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random vectors with a Dirichlet distribution: positive numbers whose sum is 1.

    Args:
        shape: of the batch of vectors; sizes may be symbolic. None: that of alpha without its last axis.
        key: the key; use it once.
        alpha: positive numbers [..., k], the parameters of the distribution of k numbers; the axes before
            the last broadcast to the shape.
        dtype: of the result; by default that of a floating-point alpha, or float32. Numbers are drawn as
            float64 and rounded.

    Returns:
        A tensor of shape (*shape, k): gamma numbers divided by their sum. Gradients flow to alpha through the
        logarithms of these.

    References:
        As :func:`random_gamma`.

    Examples:
        >>> sg.random_dirichlet([2], sg.random_key(0), [1.0, 2.0, 3.0]).sum(-1)
        array([1., 1.], dtype=float32)
    """
    target, (a,) = parameters(dtype, alpha=alpha)
    if not d.type_of(a).ndim:
        raise ShapeError("alpha holds the parameters of a distribution along its last axis; it has no axis")
    *front, last = d.type_of(a).shape
    sizes = drawn_shape(shape, key, alpha=tuple(front))
    return cast(softmax(_log_draw((*sizes, last), key, a)), target, name)


# ---------------------------------------------------------------------------------------------- Poisson

_LIMIT = 10.0
"""Below this rate, numbers are found by adding up probabilities; from it on, by rejection."""

_LOG_FACTORIALS = np.array([math.lgamma(k + 1) for k in range(128)])


def _log_probability(xp: Namespace, k: Array, rate: Array) -> Array:
    """The logarithm of the probability of k ≥ 0, without cancellation for large k."""
    below = xp.minimum(xp.maximum(k, 0), 127).astype(np.int32)
    near = k * xp.log(rate) - rate - xp.take(xp.asarray(_LOG_FACTORIALS), below)
    n = xp.maximum(k, 1)
    stirling = (1 / 12 - (1 / 360 - 1 / (1260 * n * n)) / (n * n)) / n
    far = (n - rate) - n * xp.log1p((n - rate) / rate) - 0.5 * xp.log(2 * math.pi * n) - stirling
    return xp.where(k < 128, near, far)


def _poisson_round(
    xp: Namespace, step: Array | np.uint32, k0: Array, k1: Array, counter: Array, rate: Array
) -> tuple[Any, Any]:
    """Proposed numbers, and which are accepted. The constants are those of the reference."""
    u, v = _two_fractions(xp, k0, k1, step, counter)
    u = u - 0.5
    b = 0.931 + 2.53 * xp.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    side = 0.5 - xp.abs(u)
    k = xp.floor((2 * a / side + b) * u + rate + 0.43)
    at_once = (side >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    possible = (k >= 0) & ((side >= 0.013) | (v <= side))
    likely = xp.log(v * inverse_alpha / (a / (side * side) + b)) <= _log_probability(xp, k, rate)
    return k, at_once | (possible & likely)


def _counted(xp: Namespace, u: Array, rate: Array) -> Array:
    """The quantile of u: the number of partial sums of the probabilities that are below u."""
    probability = xp.exp(-rate)
    total, count = probability, xp.zeros(probability.shape)
    for k in range(1, 64):  # Later probabilities are below 10⁻²⁷.
        count = count + (u > total)
        probability = probability * rate / k
        total = total + probability
    return count


def _poisson(xp: Namespace, accepted: Callable[..., Array], key: Array, rate: Array) -> Array:
    usual = (rate >= 0) & (rate < math.inf)
    sources = _sources(xp, key, rate.shape)
    u = _open_fraction(xp, *sources[:2], np.uint32(0), sources[2])
    few = _counted(xp, u, xp.where(usual & (rate < _LIMIT), rate, 0.0))
    many = usual & (rate >= _LIMIT)
    draws = xp.where(many, accepted(xp, _poisson_round, many, *sources, xp.where(many, rate, _LIMIT)), few)
    return xp.where(usual, draws, xp.where(rate > 0, math.inf, math.nan))


class RandomPoisson(FromKeys):
    """Random numbers with Poisson distributions.

    Args:
        parameter: the rate of each distribution, as float64.

    Returns:
        Whole numbers, as float64; ∞ for a rate of ∞, NaN for one below 0 or NaN.

    References:
        From a rate of 10 on, W. Hörmann 1993, "The transformed rejection method for generating Poisson
        random variables", algorithm PTRS; below, the quantiles of uniform numbers.
    """

    gradient: d.Gradient = d.not_differentiable(
        "a count is a whole number, which does not move as its rate does"
    )
    lower = lambda xp, key, parameter: _poisson(xp, _accepted, key, parameter)
    xla = lambda xp, key, parameter: _poisson(xp, _accepted_xla, key, parameter)
    samples: d.Samples = [
        d.sample(KEY, d.floats(2, 3, low=0.1, high=30.0)),
        d.sample(KEY, d.floats("n", low=9.0, high=900.0)),
        d.sample(KEY, d.floats(0, 2)),
    ]
    extremes = ((KEY, np.array([0.0, 1.0, math.inf, math.nan, -1.0, 1e-300, 1e9])),)


@d.builds(RandomPoisson)
def _counts(key: ArrayLike, parameter: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(RandomPoisson, (key, parameter), (), name)


@keyed("random_poisson", "lam shape dtype", shape=None)
def random_poisson(
    shape: ShapeLike, key: ArrayLike, lam: ArrayLike, dtype: DTypeLike = d.int32, name: str | None = None
) -> Tensor:
    """Random numbers with a Poisson distribution, which gives k with probability λᵏ exp(-λ) / k!.

    Args:
        shape: of the result; sizes may be symbolic. None: lam's.
        key: the key; use it once.
        lam: the rate λ, which is the mean: a number or a tensor.
        dtype: of the result: integer or floating-point.

    Returns:
        Whole numbers of that dtype, clipped to an integer dtype's limits. A rate of ∞ gives ∞, and one that
        is negative or NaN gives NaN, which becomes -1 in signed integers and 0 in unsigned ones. No gradient
        passes to lam, since a whole number does not change with small changes of lam.

    References:
        W. Hörmann 1993, "The transformed rejection method for generating Poisson random variables".

    Examples:
        >>> sg.random_poisson([10000], sg.random_key(0), 3.0).mean().round(1)
        np.float64(3.0)
    """
    target = d.dtype_of(dtype)
    if not (target.is_integer or target.is_floating):
        raise DTypeError(f"the dtype of counts is one of integers or floating-point numbers, not {target}")
    _, (rate,) = parameters(None, lam=lam)
    sizes = drawn_shape(shape, key, lam=rate)
    counts = _counts(key, broadcast_to(cast(rate, d.float64), sizes))
    if target.is_integer:
        counts = where(is_nan(counts), d.as_array(-1, d.float64), counts)
    return cast(counts, target, name)
