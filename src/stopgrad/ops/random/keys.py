"""Keys of random numbers, and how functions that draw read their arguments.

A key is two uint32 numbers; :mod:`stopgrad.ops.random.draws` says how numbers are drawn from it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast as typed

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    Dim,
    DType,
    DTypeError,
    DTypeLike,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    Shape,
    ShapeError,
    ShapeLike,
    Size,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import add, multiply
from stopgrad.ops.elementwise.compare import less, right_shift
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.shapes.join import stack
from stopgrad.ops.structural.sources import constant

__all__ = [
    "random_fold_in",
    "random_key",
    "random_split",
]

F = TypeVar("F", bound=Callable[..., Any])
NO_GRADIENT = d.not_differentiable("random bits carry no gradient")
KEY = np.array([0x13198A2E, 0x03707344], np.uint32)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(
    xp: Namespace, k0: Array, k1: Array, x0: Array | np.uint32, x1: Array | np.uint32
) -> tuple[Any, Any]:
    """The Threefry-2x32-20 cipher: from two words of a key and two of a counter to two words.

    All are uint32 and broadcast.
    """
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(_PARITY))
    x0, x1 = x0 + k0, x1 + k1
    for step in range(5):
        for distance in _ROTATIONS[step % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(distance)) | (x1 >> np.uint32(32 - distance)))
        x0 = x0 + keys[(step + 1) % 3]
        x1 = x1 + keys[(step + 2) % 3] + np.uint32(step + 1)
    return x0, x1


def positions(xp: Namespace, shape: tuple[int, ...]) -> Array:
    """The position of each element of a shape in row-major order, as uint32: the counter of a draw."""
    counter = xp.zeros(shape, np.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        step = xp.asarray(stride if isinstance(stride, Dim) else stride % 2**32).astype(np.uint32)
        along = xp.arange(shape[axis], dtype=np.uint32) * step
        counter = counter + along.reshape((-1,) + (1,) * (len(shape) - axis - 1))
        stride *= shape[axis]
    return counter


def halves(key: Array, rank: int) -> tuple[Array, Array]:
    """The two words of each key, shaped to broadcast with draws of this rank."""
    many = (*key.shape[:-1], *(1,) * rank)
    return key[..., :1].reshape(many), key[..., 1:].reshape(many)


def words(xp: Namespace, key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Two words for each element of a shape, for each key."""
    return threefry(xp, *halves(key, len(shape)), xp.zeros(shape, np.uint32), positions(xp, shape))


def fraction(high: Array, low: Array) -> Array:
    """A multiple of 2⁻⁵² in [0, 1), as float64, from two words."""
    return (high.astype(np.float64) * 2.0**20 + (low >> np.uint32(12)).astype(np.float64)) * 2.0**-52


# ----------------------------------------------------------------------------------------------- keys


def check_key(key: TensorType, *, many: bool = False) -> None:
    """Raise unless this is a key (C1); *many* also allows a key for each example, which vmap makes."""
    if key.dtype is not d.uint32:
        raise DTypeError(
            f"(C1) a key is two uint32 numbers, made by sg.random_key(seed), not {key!r}; it comes where "
            "TensorFlow's stateless functions have their seed"
        )
    if not (key.ndim == 1 or (many and key.ndim)) or not d.same_size(key.shape[-1], 2):
        raise ShapeError(
            f"(C1) a key is two uint32 numbers, not {key!r}; of several keys take one, as in keys[0]"
        )


def keyed(what: str, order: str = "", **defaults: object) -> Callable[[F], F]:
    """Decorator of public functions that take a key: :func:`guarded`, and the key may come first, as in JAX.

    Args:
        what: the name in errors.
        order: the parameters in the order of ``jax.random``, in which arguments behind a key are read.
        defaults: of parameters that need none there.
    """
    names = order.split()

    def decorate(function: F) -> F:
        public = d.guarded(what)(function)

        @d.reads_arguments
        @functools.wraps(function)
        def function_of_a_key(*args: object, **kwargs: object) -> Tensor:
            if "seed" in kwargs:
                raise ArgumentError(f"{what}: takes a key in the place of a seed: key=sg.random_key(seed)")
            if names and args and is_key(args[0]) and "key" not in kwargs and not any(map(is_key, args[1:])):
                key, *rest = args
                named = dict(zip(names, rest, strict=False))
                if len(rest) > len(names) or not named.keys().isdisjoint(kwargs):
                    raise ArgumentError(f"{what}: behind a key come {', '.join(names)}, once each")
                return public(key=key, **defaults | named | kwargs)
            return public(*args, **kwargs)

        return typed("F", function_of_a_key)

    return decorate


def is_key(x: object) -> bool:
    """Whether this looks like a key, not like a shape or a tensor of numbers."""
    if not isinstance(x, (Output, Operation, np.ndarray)):
        return False
    kind = d.type_of(x)
    return kind.dtype is d.uint32 and kind.ndim == 1 and kind.shape[0] == 2


def checked_key(key: ArrayLike | None, what: str) -> ArrayLike:
    """The key, or an error that says where it comes: after the arguments that *what* names."""
    if key is None:
        raise ArgumentError("takes a key: key=sg.random_key(seed)")
    if not hasattr(key, "dtype") and not isinstance(key, Operation):
        raise ArgumentError(
            f"after the {what} comes a key, made by sg.random_key(seed), not {key!r:.60}; parameters "
            "come behind the key"
        )
    check_key(d.type_of(key))
    return key


@d.guarded("random_key")
def random_key(seed: int | ArrayLike, name: str | None = None) -> Tensor:
    """A key from a seed.

    Args:
        seed: an integer, taken modulo 2⁶⁴, or a scalar tensor of integers, whose dtype makes no difference.

    Returns:
        A key: two uint32 numbers.

    Examples:
        >>> sg.random_key(7)
        array([0, 7], dtype=uint32)
    """
    if d.is_whole(seed):
        number = d.whole(seed) % 2**64
        return constant(np.array([number >> 32, number % 2**32], np.uint32), name=name)
    kind = d.type_of(seed)
    if not kind.dtype.is_integer or kind.ndim:
        raise DTypeError(f"a seed is an integer or a scalar tensor of integers, not {kind!r}")
    if kind.dtype.itemsize > 4:
        above = cast(right_shift(seed, d.as_array(32, kind.dtype)), d.uint32)
    elif kind.dtype.kind == "i":  # The upper word of the number, sign-extended to 64 bits.
        above = where(less(seed, 0), d.as_array(2**32 - 1, d.uint32), d.as_array(0, d.uint32))
    else:
        above = d.as_array(0, d.uint32)
    return stack([above, cast(seed, d.uint32)], name=name)


def from_key(
    definition: type[Op], operands: tuple[Any, ...], values: tuple[Any, ...], name: str | None
) -> Tensor:
    """An operation on one key; only vmap builds operations on several."""
    with d.about(definition, *operands):
        check_key(d.type_of(operands[0]))
    return d.apply(definition, operands, values, name)


class RandomSplit(Op):
    """Several new keys from one.

    Args:
        key: the key to split; do not use it again.
        n: how many keys.

    Returns:
        A tensor uint32[n, 2]: a key in each row.

    Constraints:
        (C1) The key is two uint32 numbers.
    """

    @staticmethod
    def infer(key: TensorType, *, n: Size) -> TensorType:
        check_key(key, many=True)
        return d.tensor_type(d.uint32, (*key.shape[:-1], n, 2))

    gradient: d.Gradient = NO_GRADIENT
    batch = d.KEYS
    lower: d.Lowering = lambda xp, key, n: xp.stack(words(xp, key, (n,)), -1)
    samples: d.Samples = [d.sample(KEY, n=2), d.sample(KEY, n=0)]


@d.builds(RandomSplit)
def random_split(key: ArrayLike, num: ShapeLike = 2, name: str | None = None) -> Tensor:
    """Several new keys from one.

    Args:
        key: the key to split; do not use it again.
        num: how many keys; may be symbolic.

    Returns:
        A tensor uint32[num, 2]: a key in each row.

    Constraints:
        (C1) The key is two uint32 numbers.

    Examples:
        >>> sg.random_split(sg.random_key(0)).shape
        (2, 2)
    """
    sizes = d.shape_of(num)
    if num is None or len(sizes) != 1:
        raise ShapeError(f"takes how many keys to make, one number, not {num!r:.60}")
    return from_key(RandomSplit, (key,), sizes, name)


class RandomFoldIn(Op):
    """A new key from a key and a number, such as the number of a step.

    Args:
        key: the key.
        data: the number, taken modulo 2³².

    Returns:
        A key.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) data is a scalar integer.

    Examples:
        >>> sg.random_fold_in(sg.random_key(0), 1).shape
        (2,)
    """

    @staticmethod
    def infer(key: TensorType, data: TensorType) -> TensorType:
        check_key(key, many=True)
        d.check_dtype(data, d.is_integer, "an integer to fold in", "C2")
        if data.ndim != key.ndim - 1 or not all(map(d.same_size, data.shape, key.shape)):
            raise ShapeError(f"(C2) takes a scalar to fold in, not {data!r}")
        return key

    gradient: d.Gradient = NO_GRADIENT

    batch = d.KEYS

    @staticmethod
    def lower(xp: Namespace, key: Array, data: Array) -> Array:
        low = xp.asarray(data).astype(np.uint32)[..., None]
        return xp.concatenate(threefry(xp, key[..., :1], key[..., 1:], xp.zeros((1,), np.uint32), low), -1)

    samples: d.Samples = [d.sample(KEY, np.array(3, np.int32)), d.sample(KEY, np.array(-1, np.int64))]


@d.builds(RandomFoldIn)
def random_fold_in(key: ArrayLike, data: ArrayLike, name: str | None = None) -> Tensor:
    number = np.asarray(d.whole(data) % 2**32, np.uint32) if d.is_whole(data) else data
    return from_key(RandomFoldIn, (key, number), (), name)


# ------------------------------------------------------------------------- arguments of the public functions


def drawn(
    definition: type[Op], shape: Shape, key: ArrayLike, dtype: DType | None = None, name: str | None = None
) -> Tensor:
    """Numbers of a shape and a dtype from a key."""
    return from_key(definition, (key,), (shape,) if dtype is None else (shape, dtype), name)


_BROADCAST = "C4"
"""The constraint that parameters broadcast to the shape, in the docstrings of functions that draw."""


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether a shape broadcasts to *target* without changing it."""
    try:
        return d.same_shape(d.broadcast_shapes(target, shape), target)
    except ShapeError:
        return False


@d.reads_arguments
def drawn_shape(shape: ShapeLike, key: ArrayLike, **parameters: ArrayLike | Shape) -> Shape:
    """The shape of a draw: *shape*, or for None that of the parameters (tensors or shapes) together."""
    checked_key(key, "shape")
    if isinstance(shape, (Output, Operation)):
        raise ArgumentError(
            f"a shape is known while building, and {d.type_of(shape)!r} is not: take x.shape, whose sizes "
            "may be symbolic"
        )
    common = d.broadcast_shapes(
        *[x if isinstance(x, tuple) else d.type_of(x).shape for x in parameters.values()]
    )
    if shape is None:
        return common
    sizes = d.shape_of(shape)
    if not broadcasts_to(common, sizes):
        raise ShapeError(
            f"({_BROADCAST}) {' and '.join(parameters)} of shape {d.show_shape(common)} must broadcast to "
            f"the shape {d.show_shape(sizes)} that is drawn; draw that of the result"
        )
    return sizes


_FLOATS = Promotion(d.is_floating)


@d.reads_arguments
def parameters(dtype: DTypeLike | None, **values: ArrayLike) -> tuple[DType, list[Any]]:
    """The dtype of a draw, and its parameters as tensors of that dtype.

    By default it is the common dtype of the parameters, not counting Python's numbers.
    """
    for name, x in values.items():
        kind = d.type_of(x).dtype
        if kind.is_complex:
            raise DTypeError(f"{name} is a real number, not {kind}; take sg.real")
    if dtype is None:
        tensors = d.together(*values.values(), promotes=_FLOATS)
        return d.type_of(tensors[0]).dtype if tensors else d.float32, list(tensors)
    target = d.dtype_of(dtype)
    d.check_dtype(d.tensor_type(target, ()), d.is_floating, "a floating-point dtype", "C3")
    return target, [d.as_array(x, target) if d.is_python(x) else cast(x, target) for x in values.values()]


def located(
    draw: Callable[[str | None], Any],
    original_loc: object,
    loc: ArrayLike,
    original_scale: object,
    scale: ArrayLike,
    name: str | None,
) -> Tensor:
    """loc + scale · z for the drawn z, without the addition for Python's 0 and the product for Python's 1."""
    moves, stretches = not is_number(original_loc, 0), not is_number(original_scale, 1)
    z = draw(None if moves or stretches else name)
    if stretches:
        z = multiply(z, scale, None if moves else name)
    return add(z, loc, name) if moves else z


def is_number(x: object, value: float) -> bool:
    return isinstance(x, (int, float)) and x == value
