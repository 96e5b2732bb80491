"""Random numbers under the names and with the parameters of ``jax.random``: the key comes first.

The functions are those of ``sg`` whose names begin with ``random_``, which have TensorFlow's order.

Examples:
    >>> key, other = sg.random.split(sg.random.key(0))
    >>> sg.random.normal(key, (2, 3)).shape
    (2, 3)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, DTypeLike, ShapeError, ShapeLike, Tensor
from stopgrad.graph.docstrings import composed
from stopgrad.ops.namespaces.contents import reads
from stopgrad.ops.random.distributions import (
    random_cauchy,
    random_exponential,
    random_gumbel,
    random_laplace,
    random_logistic,
    random_truncated_normal,
)
from stopgrad.ops.random.draws import random_bits, random_integers, random_normal, random_uniform
from stopgrad.ops.random.keys import checked_key, random_fold_in, random_key, random_split
from stopgrad.ops.random.rejection import random_beta, random_dirichlet, random_gamma, random_poisson
from stopgrad.ops.random.sampling import (
    random_bernoulli,
    random_categorical,
    random_choice,
    random_permutation,
)
from stopgrad.ops.shapes.reshape import broadcast_to

__all__ = [
    "PRNGKey",
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "laplace",
    "logistic",
    "normal",
    "permutation",
    "poisson",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]

if not TYPE_CHECKING:  # Type checkers know what is there.
    __getattr__, __dir__ = reads("random", __all__)

F = TypeVar("F", bound=Callable[..., Any])


_SHARED = """Args:
    key: the key; use it once.
    shape: of the result.
    dtype: of the result; by default float32.

Returns:
    Numbers of that shape.
"""


def _drawn(function: F) -> F:
    """A function of this namespace; its docstring says what differs from what all of them share."""
    own, parameters = inspect.cleandoc(function.__doc__ or ""), inspect.signature(function).parameters
    function.__doc__ = composed(own, [_SHARED.rstrip()], list(parameters))
    return d.guarded(f"random.{function.__name__}")(function)


# ----------------------------------------------------------------------------------------------- keys


@d.guarded("random.key")
def key(seed: int | ArrayLike) -> Tensor:
    """A key from a seed: :func:`random_key`.

    Args:
        seed: an integer, or a scalar tensor of integers.

    Returns:
        A key: two uint32 numbers, which can be fed and computed like any others.

    Examples:
        >>> sg.random.key(7)
        array([0, 7], dtype=uint32)
    """
    return random_key(seed)


PRNGKey = key


@_drawn
def split(key: ArrayLike, num: ShapeLike = 2) -> Tensor:
    """Several new keys from one: :func:`random_split`.

    Args:
        key: the key to split; do not use it again.
        num: how many keys.

    Returns:
        A tensor uint32[num, 2]: a key in each row.

    Examples:
        >>> first, second = sg.random.split(sg.random.key(0))
    """
    return random_split(key, num)


@_drawn
def fold_in(key: ArrayLike, data: ArrayLike) -> Tensor:
    """A new key from a key and a number, such as the number of a step: :func:`random_fold_in`.

    Args:
        key: the key.
        data: the number.

    Returns:
        A key.

    Examples:
        >>> sg.random.fold_in(sg.random.key(0), 1).shape
        (2,)
    """
    return random_fold_in(key, data)


# ---------------------------------------------------------------------------------------------- numbers


@_drawn
def bits(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Random bits: :func:`random_bits`.

    Args:
        dtype: uint8, uint16, uint32 or uint64; by default uint32.

    Returns:
        Numbers, all equally likely.

    Examples:
        >>> sg.random.bits(sg.random.key(0), (2,))
        array([4070199207, 4202968722], dtype=uint32)
    """
    return random_bits(shape, key, d.uint32 if dtype is None else dtype)


@_drawn
def uniform(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
) -> Tensor:
    """Random numbers with the uniform distribution on [minval, maxval): :func:`random_uniform`.

    Args:
        dtype: of the result; by default float32, or that of minval and maxval.
        minval: where the interval begins: a number or a tensor, through which gradients flow.
        maxval: where it ends, likewise.

    Examples:
        >>> sg.random.uniform(sg.random.key(0), (2,))
        array([0.947667 , 0.9785799], dtype=float32)
    """
    return random_uniform(shape, key, minval, maxval, dtype)


@_drawn
def normal(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Random numbers with the standard normal distribution: :func:`random_normal`.

    Examples:
        >>> sg.random.normal(sg.random.key(0), (2, 3)).shape
        (2, 3)
    """
    return random_normal(shape, key, dtype=dtype)


@_drawn
def truncated_normal(
    key: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: ShapeLike = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Standard normal numbers between two limits: :func:`random_truncated_normal`.

    Args:
        lower: the lower limit.
        upper: the upper one.
        shape: of the result; by default that of the limits together.
        dtype: of the result; by default that of the limits, or float32.

    Examples:
        >>> bool(abs(sg.random.truncated_normal(sg.random.key(0), -1.0, 1.0)) <= 1)
        True
    """
    return random_truncated_normal(shape, key, dtype=dtype, lower=lower, upper=upper)


@_drawn
def randint(
    key: ArrayLike, shape: ShapeLike, minval: ArrayLike, maxval: ArrayLike, dtype: DTypeLike | None = None
) -> Tensor:
    """Integers from minval to maxval - 1: :func:`random_integers`.

    Args:
        minval: the least: an integer or a tensor of integers.
        maxval: one more than the greatest, likewise.
        dtype: of the result; by default int32.

    Returns:
        Integers of that shape, computed otherwise than those of JAX.

    Examples:
        >>> sg.random.randint(sg.random.key(0), (3,), 0, 10)
        array([0, 7, 9], dtype=int32)
    """
    return random_integers(shape, key, minval, maxval, d.int32 if dtype is None else dtype)


@_drawn
def exponential(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Random numbers with an exponential distribution of mean 1: :func:`random_exponential`.

    Examples:
        >>> sg.random.exponential(sg.random.key(0), (2,)).shape
        (2,)
    """
    return random_exponential(shape, key, dtype=dtype)


@_drawn
def gumbel(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Random numbers with the standard Gumbel distribution: :func:`random_gumbel`.

    Examples:
        >>> sg.random.gumbel(sg.random.key(0), (2,)).shape
        (2,)
    """
    return random_gumbel(shape, key, dtype=dtype)


@_drawn
def laplace(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Random numbers with the standard Laplace distribution: :func:`random_laplace`.

    Examples:
        >>> sg.random.laplace(sg.random.key(0), (2,)).shape
        (2,)
    """
    return random_laplace(shape, key, dtype=dtype)


@_drawn
def logistic(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Random numbers with the standard logistic distribution: :func:`random_logistic`.

    Examples:
        >>> sg.random.logistic(sg.random.key(0), (2,)).shape
        (2,)
    """
    return random_logistic(shape, key, dtype=dtype)


@_drawn
def cauchy(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Random numbers with the standard Cauchy distribution: :func:`random_cauchy`.

    Examples:
        >>> sg.random.cauchy(sg.random.key(0), (2,)).shape
        (2,)
    """
    return random_cauchy(shape, key, dtype=dtype)


@_drawn
def gamma(key: ArrayLike, a: ArrayLike, shape: ShapeLike = None, dtype: DTypeLike | None = None) -> Tensor:
    """Random numbers with a gamma distribution of scale 1: :func:`random_gamma`.

    Args:
        a: the shape parameter: a positive number or tensor, to which gradients flow.
        shape: of the result; by default that of a.
        dtype: of the result; by default that of a floating-point a, or float32.

    Returns:
        Numbers of that shape, computed otherwise than those of JAX.

    Examples:
        >>> sg.random.gamma(sg.random.key(0), 3.0, (10000,)).mean().round(1)
        np.float32(3.0)
    """
    return random_gamma(shape, key, a, dtype=dtype)


@_drawn
def beta(
    key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: ShapeLike = None, dtype: DTypeLike | None = None
) -> Tensor:
    """Random numbers with a beta distribution: :func:`random_beta`.

    Args:
        a: the first parameter: a positive number or tensor, to which gradients flow.
        b: the second, likewise.
        shape: of the result; by default that of a and b together.
        dtype: of the result; by default that of floating-point parameters, or float32.

    Returns:
        Numbers of that shape, computed otherwise than those of JAX.

    Examples:
        >>> sg.random.beta(sg.random.key(0), 3.0, 2.0, (10000,)).mean().round(1)
        np.float32(0.6)
    """
    return random_beta(shape, key, a, b, dtype)


@_drawn
def dirichlet(
    key: ArrayLike, alpha: ArrayLike, shape: ShapeLike = None, dtype: DTypeLike | None = None
) -> Tensor:
    """Random vectors with a Dirichlet distribution: :func:`random_dirichlet`.

    Args:
        alpha: positive numbers [..., k], to which gradients flow.
        shape: of the batch of vectors; by default that of alpha without its last axis.
        dtype: of the result; by default that of a floating-point alpha, or float32.

    Returns:
        A tensor of shape (*shape, k), computed otherwise than by JAX.

    Examples:
        >>> sg.random.dirichlet(sg.random.key(0), [1.0, 2.0, 3.0], (2,)).sum(-1)
        array([1., 1.], dtype=float32)
    """
    return random_dirichlet(shape, key, alpha, dtype)


@_drawn
def poisson(
    key: ArrayLike, lam: ArrayLike, shape: ShapeLike = None, dtype: DTypeLike | None = None
) -> Tensor:
    """Random numbers with a Poisson distribution: :func:`random_poisson`.

    Args:
        lam: the rate, which is the mean.
        shape: of the result; by default that of lam.
        dtype: of the result; by default int32.

    Returns:
        Whole numbers of that shape, computed otherwise than those of JAX.

    Examples:
        >>> sg.random.poisson(sg.random.key(0), 3.0, (10000,)).mean().round(1)
        np.float64(3.0)
    """
    return random_poisson(shape, key, lam, d.int32 if dtype is None else dtype)


# ------------------------------------------------------------------------------------------- sampling


@_drawn
def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: ShapeLike = None) -> Tensor:
    """Booleans that are True with probability p: :func:`random_bernoulli`.

    Args:
        p: a number or a tensor.
        shape: of the result; by default that of p.

    Returns:
        Booleans of that shape.

    Examples:
        >>> sg.random.bernoulli(sg.random.key(0), 0.5, (4,))
        array([False, False,  True,  True])
    """
    return random_bernoulli(shape, key, p)


@_drawn
def categorical(key: ArrayLike, logits: ArrayLike, axis: int = -1, shape: ShapeLike = None) -> Tensor:
    """Class numbers, drawn with probabilities softmax(logits): :func:`random_categorical`.

    Args:
        logits: floating-point numbers, with an axis of classes.
        axis: that of the classes.
        shape: of the result; by default that of logits without the axis. Further axes come first.

    Returns:
        Integers of that shape.

    Examples:
        >>> sg.random.categorical(sg.random.key(0), np.array([[0.0, -np.inf], [-np.inf, 0.0]]), shape=(3, 2))
        array([[0, 1],
               [0, 1],
               [0, 1]])
    """
    checked_key(key, "logits")
    kind = d.type_of(logits)
    axis_from_end = d.normal_axis(axis, kind.ndim, "C1") - kind.ndim
    if shape is not None:
        sizes = d.shape_of(shape)
        batch = kind.shape[:axis_from_end] + kind.shape[kind.ndim + axis_from_end + 1 :]
        front = sizes[: len(sizes) - len(batch)]
        if len(sizes) < len(batch) or not d.same_shape(sizes[len(front) :], batch):
            shown = d.show_shape(batch)
            raise ShapeError(
                f"random.categorical: the shape {d.show_shape(sizes)} must end as that of the distributions"
                f" does, which is {shown}"
            )
        logits = broadcast_to(logits, (*front, *kind.shape))
    return random_categorical(logits, None, key, axis=axis_from_end)


@_drawn
def permutation(key: ArrayLike, x: ArrayLike, axis: int = 0, independent: bool = False) -> Tensor:
    """The slices of a tensor, or the numbers below an integer, in random order: :func:`random_permutation`.

    Args:
        x: a tensor with at least one axis, or an integer.
        axis: along which.
        independent: False; all slices have one order.

    Returns:
        A tensor of x's type; for an integer, int32 numbers, in another order than that of JAX.

    Examples:
        >>> np.sort(sg.random.permutation(sg.random.key(0), 4))
        array([0, 1, 2, 3], dtype=int32)
    """
    if independent:
        raise ArgumentError("random.permutation: independent=True is not there; argsort random_bits(x.shape)")
    return random_permutation(x, key, axis=axis)


@_drawn
def choice(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
) -> Tensor:
    """Slices of a tensor, or numbers below an integer, chosen at random: :func:`random_choice`.

    Args:
        a: a tensor with at least one axis, or an integer.
        shape: that of the choices.
        replace: whether a slice may be chosen more than once.
        p: the weight of each slice; by default all are equally likely.
        axis: along which.

    Returns:
        A tensor of a's dtype and shape, with ``shape`` in the place of the axis.

    Examples:
        >>> sg.random.choice(sg.random.key(0), np.array([5.0, 7.0]), (3,), p=[0.0, 1.0])
        array([7., 7., 7.])
    """
    return random_choice(shape, key, a, replace, p, axis)
