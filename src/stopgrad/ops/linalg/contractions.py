"""Products of matrices and of tensors."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    DTypeLike,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    ShapeError,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.convert import cast, conj
from stopgrad.ops.indexing.gather import one_hot
from stopgrad.ops.shapes.ranges import range as indices
from stopgrad.ops.shapes.reshape import broadcast_to, expand_dims, reshape, squeeze

__all__ = [
    "einsum",
    "matmul",
    "tensordot",
]


class MatMul(Op):
    """Product of matrices, over broadcast batches.

    Args:
        a: [..., m, k], or [..., k, m] if transpose_a; the function also takes vectors, like NumPy's matmul.
        b: [..., k, n], or [..., n, k] if transpose_b; likewise.
        transpose_a: whether to transpose a's matrices.
        transpose_b: whether to transpose b's matrices.

    Returns:
        The product, [..., m, n].

    Constraints:
        (C1) Both hold numbers of one dtype.
        (C2) The inner sizes k agree.
        (C3) Both have at least two axes; for the function, at least one.
        (C4) The leading axes broadcast.

    Examples:
        >>> sg.matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
        array([[11.]])
    """

    @staticmethod
    def infer(a: TensorType, b: TensorType, *, transpose_a: bool, transpose_b: bool) -> TensorType:
        dtype = d.check_same_dtype(a, b)
        d.check_dtype(a, d.is_number, "numbers")
        if a.ndim < 2 or b.ndim < 2:
            raise ShapeError(f"(C3) needs at least two axes each, not {a!r} and {b!r}")
        m, k = a.shape[-2:][::-1] if transpose_a else a.shape[-2:]
        other, n = b.shape[-2:][::-1] if transpose_b else b.shape[-2:]
        if not d.same_size(k, other):
            raise ShapeError(f"(C2) the inner sizes {k} and {other} differ")
        try:
            batch = d.broadcast_c2(a.shape[:-2], b.shape[:-2])
        except ShapeError as error:
            raise ShapeError(f"(C4) {error.message.removeprefix('(C2) ')}") from None
        return d.tensor_type(dtype, (*batch, m, n))

    promotes = Promotion(d.is_number)
    gradient: d.Gradient = {"a": lambda g, op: _gradient_a(g, op), "b": lambda g, op: _gradient_b(g, op)}

    batch = d.MATMUL
    rounds_once = True
    flops = lambda op: 2 * op.result.size * op.a.shape[-2 if op.transpose_a else -1]
    magnitudes = d.Magnitudes.SCALED

    @staticmethod
    def lower(xp: Namespace, a: Array, b: Array, transpose_a: bool, transpose_b: bool) -> Array:
        a = xp.swapaxes(a, -1, -2) if transpose_a else a
        b = xp.swapaxes(b, -1, -2) if transpose_b else b
        return xp.matmul(a, b)

    @staticmethod
    def xla(
        xp: Namespace,
        a: Array,
        b: Array,
        transpose_a: bool,
        transpose_b: bool,
        accumulate: type[np.float32] | None,
    ) -> Array:
        if a.ndim > 2 or b.ndim > 2:
            a = xp.swapaxes(a, -1, -2) if transpose_a else a
            b = xp.swapaxes(b, -1, -2) if transpose_b else b
            return xp.matmul(a, b, preferred_element_type=accumulate)
        if transpose_a and not transpose_b and xp.jax.default_backend() == "cpu":
            if _swaps(a, b):
                yt = xp.lax.dot_general(b, a, (((0,), (0,)), ((), ())), preferred_element_type=accumulate)
                return xp.lax.optimization_barrier(yt).T  # Without the barrier, XLA would swap them back.
            # XLA would use another library for it, which is slower than this copy and the product together.
            a, transpose_a = xp.lax.optimization_barrier(a.T), False
        # The contracted axes are passed on without transposing: in a loop a transposed copy costs more than
        # the product.
        met = ((0 if transpose_a else 1,), (1 if transpose_b else 0,))
        return xp.lax.dot_general(a, b, (met, ((), ())), preferred_element_type=accumulate)

    samples: d.Samples = [
        d.sample(d.floats(2, 3), d.floats(3, 4), transpose_a=False, transpose_b=False),
        d.sample(d.floats(3, 2), d.floats("n", 3), transpose_a=True, transpose_b=True),
        d.sample(d.floats(5, 2, 3), d.floats(3, 4), transpose_a=False, transpose_b=False),
        d.sample(d.floats(1, 3, 2), d.floats(2, 3, 2), transpose_a=True, transpose_b=False),
        d.sample(d.complexes(2, 2), d.complexes(2, 2), transpose_a=False, transpose_b=True),
        d.sample(d.floats(2, 0), d.floats(0, 3), transpose_a=False, transpose_b=False),
    ]


@d.directly(MatMul, False, False)
@d.builds(MatMul, by_type=True)
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: DTypeLike | None = None,
    grad_a: bool = False,
    grad_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """Product of matrices, over broadcast batches.

    Args:
        a: [..., m, k], or [..., k, m] if transposed; or a vector, as for NumPy's matmul.
        b: [..., k, n], or [..., n, k] if transposed; likewise.
        transpose_a: whether to transpose a's matrices.
        transpose_b: whether to transpose b's matrices.
        adjoint_a: whether to transpose a's matrices and conjugate their elements.
        adjoint_b: whether to transpose b's matrices and conjugate their elements.
        a_is_sparse: False; there is no special form for matrices with many zeros.
        b_is_sparse: False.
        output_type: the dtype of the product and of the result; by default the common dtype of both.
        grad_a: False; TensorFlow uses it internally.
        grad_b: False.
        name: of the operation; by default none.

    Returns:
        The product, [..., m, n].

    Constraints:
        (C1) Both hold numbers.
        (C2) The inner sizes k agree.
        (C3) Both have at least one axis.
        (C4) The leading axes broadcast.

    Examples:
        >>> sg.matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
        array([[11.]])
    """
    plain = a_is_sparse is b_is_sparse is grad_a is grad_b is False
    if not plain and any(map(d.flag, (a_is_sparse, b_is_sparse, grad_a, grad_b))):
        raise ArgumentError(
            "a_is_sparse, b_is_sparse, grad_a and grad_b have no meaning here; leave them out"
        )
    transpose_a, transpose_b = d.flag(transpose_a), d.flag(transpose_b)
    if adjoint_a is not False or adjoint_b is not False or output_type is not None:
        a, transpose_a = _adjoint(a, transpose_a, adjoint_a, "a")
        b, transpose_b = _adjoint(b, transpose_b, adjoint_b, "b")
        if output_type is not None:
            a, b = cast(a, output_type), cast(b, output_type)
    p, q = [x.type.ndim if type(x) is Output else d.type_of(x).ndim for x in (a, b)]
    if p >= 2 <= q:
        return d.apply(MatMul, (a, b), (transpose_a, transpose_b), name)
    return _with_vectors(a, b, p, q, transpose_a, transpose_b, name)


def _adjoint(x: ArrayLike, transposed: bool, adjoint: bool, which: str) -> tuple[Any, bool]:
    """An operand, conjugated if its adjoint is wanted, and whether it is transposed."""
    if not d.flag(adjoint):
        return x, transposed
    if transposed:
        raise ArgumentError(f"transpose_{which} and adjoint_{which} cannot both be True; take one of them")
    return conj(x), True


def _with_vectors(a: ArrayLike, b: ArrayLike, p: int, q: int, ta: bool, tb: bool, name: str | None) -> Tensor:
    """The product if an operand is a vector: a row on the left, a column on the right."""
    if p == 1 and q >= 1:
        row = d.apply(MatMul, (expand_dims(a, 0), expand_dims(b, 1) if q == 1 else b), (False, tb and q > 1))
        return squeeze(row, (-2, -1) if q == 1 else -2, name)
    if q == 1 and p >= 2:
        return squeeze(d.apply(MatMul, (a, expand_dims(b, 1)), (ta, False)), -1, name)
    return d.apply(MatMul, (a, b), (ta, tb), name)


_WORTH = 2**15
"""The fewest numbers of a whose copy takes longer than what a swapped product costs besides."""


def _swaps(a: Array, b: Array) -> bool:
    """Whether XLA computes aᵀ b of matrices on CPUs faster as the transpose of bᵀ a.

    That moves k n + m n numbers, b and the result, instead of the k m of a. Only of float32: float64 and
    bfloat16 mostly lose by it.

    Figures: docs/performance.md, "Products on CPUs".
    """
    (k, m), n = a.shape, b.shape[1]
    is_known = all(isinstance(size, int) for size in (k, m, n))
    return is_known and a.dtype == np.float32 and k * m >= _WORTH and n * (k + m) < k * m


def _gradient_a(g: Output, op: Operation) -> Tensor:
    b = conj(op.b)
    return (
        _product(b, g, op.transpose_b, True) if op.transpose_a else _product(g, b, False, not op.transpose_b)
    )


def _gradient_b(g: Output, op: Operation) -> Tensor:
    a = conj(op.a)
    return (
        _product(g, a, True, op.transpose_a) if op.transpose_b else _product(a, g, not op.transpose_a, False)
    )


def _product(a: Output, b: Output, transpose_a: bool, transpose_b: bool) -> Output:
    return d.emit(MatMul, (a, b), (transpose_a, transpose_b)).outputs[0]


# --------------------------------------------------------------------------------------------- einsum


def _steps(op: d.Operation) -> Any:
    """The number of floating-point operations of a sum of products that is computed term by term."""
    sizes: dict[str, Any] = {}
    for labels, x in zip(op.equation.replace(" ", "").partition("->")[0].split(","), op.inputs, strict=True):
        sizes.update(zip(labels.replace("...", ""), x.shape, strict=False))
    return len(op.inputs) * math.prod(sizes.values())


class Einsum(Op):
    """Sum of products over named axes, in Einstein's notation.

    Args:
        equation: a letter for each axis of each operand, ``->``, the letters of the result, as in
            ``"ij,jk->ik"``. Letters that the result lacks are summed over; a letter twice in one operand
            takes the diagonal. Without ``->``, the result has the letters that occur once, in alphabetical
            order. ``...`` stands for the axes without a letter; they broadcast.
        xs: one or more tensors.

    Returns:
        The sum of products.

    Constraints:
        (C1) All operands hold numbers of one dtype.
        (C2) The equation has letters, ',', '->' and '...' only, and a letter for each axis of each operand.
        (C3) The sizes of all axes with one letter agree or are 1.
        (C4) Each letter of the result occurs once there and in some operand.

    Examples:
        >>> sg.einsum("ij,j->i", np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 10.0]))
        array([21., 43.])
    """

    @staticmethod
    def infer(*xs: TensorType, equation: str) -> TensorType:
        dtype = d.check_same_dtype(*xs)
        d.check_dtype(xs[0], d.is_number, "numbers")
        sizes = sizes_in(equation, [x.shape for x in xs])
        return d.tensor_type(dtype, tuple(sizes[label] for label in equation.partition("->")[2]))

    promotes = Promotion(d.is_number)
    gradient: d.Gradient = {"xs": lambda g, op, i: _einsum_gradient(g, op, i)}

    batch = d.EINSUM
    rounds_once = True
    flops = lambda op: _steps(op)

    @staticmethod
    def lower(xp: Namespace, *xs: Array, equation: str) -> Array:
        equation, xs = _without_repetition(equation, xs)
        return xp.einsum(equation, *xs, optimize=True)

    @staticmethod
    def xla(xp: Namespace, *xs: Array, equation: str, accumulate: type[np.float32] | None) -> Array:
        equation, xs = _without_repetition(equation, xs)
        return xp.einsum(equation, *xs, preferred_element_type=accumulate)

    samples: d.Samples = [
        d.sample(d.floats(2, 3), d.floats(3, 4), equation="ij,jk->ik"),
        d.sample(d.floats("n", 2, 3), d.floats("n", 3), equation="bij,bj->bi"),
        d.sample(d.floats(3, 3, 2), equation="iij->ji"),
        d.sample(d.floats(3, 3), equation="ii->"),
        d.sample(d.floats(2, 3), d.floats(4), equation="ij,k->ik"),
        d.sample(d.floats(1, 3), d.floats(2, 3), equation="ij,ij->ij"),
        d.sample(d.floats(1, 3), d.floats(2, 3), equation="ij,ij->j"),
        d.sample(d.floats(2, 3), d.floats(3, 4), d.floats(4, 2), equation="ij,jk,ki->i"),
        d.sample(d.complexes(2, 3), d.complexes(3), equation="ij,j->i"),
        d.sample(d.floats(2, 0), d.floats(0, 3), equation="ij,jk->ik"),
    ]


@d.builds(Einsum, by_type=True)
def einsum(
    equation: str | ArrayLike,
    *inputs: ArrayLike | Sequence[Any],
    optimize: bool | str | Sequence[Any] = True,
    name: str | None = None,
) -> Tensor:
    """Sum of products over named axes, in Einstein's notation.

    Args:
        equation: a letter for each axis of each operand, ``->``, the letters of the result, as in
            ``"ij,jk->ik"``; spaces are ignored. Letters that the result lacks are summed over; a letter
            twice in one operand takes the diagonal. Without ``->``, the result has the letters that occur
            once, in alphabetical order. ``...`` stands for the axes without a letter; they broadcast, come
            first in a result without ``->``, and are summed over if a result with ``->`` lacks them.
        inputs: one or more tensors. Without an equation, each tensor is followed by a list that names its
            axes by whole numbers from 0 to 51 and ``...``, and the last of these by a list for the result:
            ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.
        optimize: accepted as in NumPy and TensorFlow: True, False, the name of a strategy or a path. The
            engine chooses the order of the products.
        name: of the operation; by default none.

    Returns:
        The sum of products.

    Constraints:
        (C1) All operands hold numbers.
        (C2) The equation has letters, ',', '->' and '...' only, and a letter for each axis of each operand.
        (C3) The sizes of all axes with one letter agree or are 1.
        (C4) Each letter of the result occurs once there and in some operand.

    Examples:
        >>> sg.einsum("ij,j->i", np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 10.0]))
        array([21., 43.])
        >>> sg.einsum(np.array([[1.0, 2.0], [3.0, 4.0]]), [0, 0])
        array(5.)
    """
    if not isinstance(optimize, (bool, np.bool_, list, tuple)) and optimize not in _STRATEGIES:
        raise ArgumentError(
            f"optimize is True, False, a path or one of {', '.join(_STRATEGIES)}, not {optimize!r:.60}"
        )
    if not isinstance(equation, str):
        equation, inputs = _equation_of((equation, *inputs))
    with d.about(Einsum, *inputs):
        explicit = _explicit("".join(equation.split()), [d.type_of(x).ndim for x in inputs])
    return d.apply(Einsum, inputs, (explicit,), name)


_STRATEGIES = ("greedy", "optimal", "branch-2", "branch-all", "auto")
_LABELS = string.ascii_uppercase + string.ascii_lowercase
"""The letters for whole numbers, in sorted order."""


@d.reads_arguments
def _equation_of(parts: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The equation and the operands, from operands that are each followed by a list of numbers."""
    count = len(parts) // 2
    if not count:
        raise ArgumentError(
            f"the equation is text such as 'ij,jk->ik', or each operand is followed by a list of whole "
            f"numbers for its axes; not {d.shorten(parts[0])}"
        )
    terms = [_term(labels) for labels in parts[1 : 2 * count : 2]]
    result = f"->{_term(parts[-1])}" if len(parts) % 2 else ""
    return ",".join(terms) + result, parts[: 2 * count : 2]


@d.reads_arguments
def _term(labels: ArrayLike) -> str:
    if isinstance(labels, str) or not isinstance(labels, (Sequence, np.ndarray)):
        raise ArgumentError(
            f"axes are named by a list of whole numbers from 0 to 51, not {d.shorten(labels)}"
        )
    places = [None if label is Ellipsis else d.whole(label) for label in labels]
    if any(place is not None and not 0 <= place < len(_LABELS) for place in places):
        raise ArgumentError(f"axes are named by whole numbers from 0 to 51, not {d.shorten(labels)}")
    return "".join("..." if place is None else _LABELS[place] for place in places)


def _explicit(equation: str, ranks: Sequence[int]) -> str:
    """The equation with ``->``, and with letters for ``...``."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(f"(C2) {equation!r} has {len(terms)} operands, not {len(ranks)}")
    named = [term.replace("...", "", 1) for term in terms]
    result = right.replace("...", "", 1)
    for letters in (*named, result):
        if not ((letters.isascii() and letters.isalpha()) or not letters):
            raise ShapeError(f"(C2) {equation!r} takes letters, ',', '->' and '...' only")
    free = [c for c in string.ascii_letters[::-1] if c not in equation]
    rest = [
        rank - len(letters) if "..." in term else 0
        for term, letters, rank in zip(terms, named, ranks, strict=True)
    ]
    if any(r < 0 for r in rest) or max(rest, default=0) > len(free):
        raise ShapeError(f"(C2) {equation!r} does not fit operands of {', '.join(map(str, ranks))} axes")
    dots = "".join(free[: max(rest, default=0)])
    full = ",".join(term.replace("...", dots[len(dots) - r :]) for term, r in zip(terms, rest, strict=True))
    if not arrow:
        every = "".join(named)
        return f"{full}->{dots}{''.join(c for c in sorted(set(every)) if every.count(c) == 1)}"
    return f"{full}->{right.replace('...', dots)}"


def sizes_in(equation: str, shapes: Sequence[Any]) -> dict[str, Any]:
    """The size of each letter's axes."""
    left, _, right = equation.partition("->")
    terms = left.split(",")
    sizes: dict[str, Any] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if len(term) != len(shape):
            raise ShapeError(f"(C2) {equation!r} has {len(term)} letters for an operand of {len(shape)} axes")
        for label, size in zip(term, shape, strict=True):
            other = sizes.get(label, 1)
            if other == 1 or size == 1:
                sizes[label] = size if other == 1 else other
            elif not d.same_size(other, size):
                raise ShapeError(
                    f"(C3) in {equation!r} the sizes {other} and {size} of {label!r} differ, and neither is 1"
                )
            elif isinstance(size, int):
                sizes[label] = size
    for label in right:
        if label not in sizes or right.count(label) > 1:
            raise ShapeError(
                f"(C4) in {equation!r} the result's {label!r} must occur once there and in some operand"
            )
    return sizes


def _without_repetition(equation: str, xs: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The same sum without the axes of size 1 that would be broadcast. Sizes are numbers here."""
    left, _, right = equation.partition("->")
    sizes = sizes_in(equation, [x.shape for x in xs])
    terms, squeezed = [], []
    for term, x in zip(left.split(","), xs, strict=True):
        drop = tuple(i for i, label in enumerate(term) if x.shape[i] == 1 and sizes[label] != 1)
        terms.append("".join(label for i, label in enumerate(term) if i not in drop))
        squeezed.append(x.squeeze(drop) if drop else x)
    return f"{','.join(terms)}->{right}", tuple(squeezed)


def _einsum_gradient(g: Output, op: Operation, i: int) -> Tensor:
    """One operand's cotangent: the einsum of the result's cotangent with all other operands.

    It is broadcast along axes that only this operand has, summed along axes where the operand was broadcast,
    and put on the diagonal where the operand's diagonal was taken.
    """
    left, _, right = op.equation.partition("->")
    terms = left.split(",")
    x, term = op.inputs[i], terms[i]
    others = [(t, conj(op.inputs[k])) for k, t in enumerate(terms) if k != i]
    sizes = sizes_in(op.equation, [v.shape for v in op.inputs])
    own = dict(zip(term, x.shape, strict=True))
    reached = set(right).union(*(t for t, _ in others))
    result = "".join(
        label for label in own if label in reached and not (own[label] == 1 and sizes[label] != 1)
    )
    dx = d.apply(
        Einsum, (g, *(v for _, v in others)), (f"{','.join([right, *(t for t, _ in others)])}->{result}",)
    )
    lengths = dict(zip(result, dx.shape, strict=True))
    dx = reshape(dx, tuple(lengths.get(label, 1) for label in own))
    dx = broadcast_to(dx, tuple(own.values()))
    if len(own) == len(term):
        return dx
    free = iter(c for c in string.ascii_letters if c not in term)
    labels, inputs, target = ["".join(own)], [dx], ""
    for label in term:
        if label in target:
            fresh = next(free)
            labels.append(label + fresh)
            inputs.append(one_hot(indices(own[label]), own[label], dtype=dx.dtype))
            label = fresh
        target += label
    return d.apply(Einsum, tuple(inputs), (f"{','.join(labels)}->{target}",))


@d.guarded("tensordot", by_type=True)
def tensordot(a: ArrayLike, b: ArrayLike, axes: Any, name: str | None = None) -> Tensor:
    """Sum of products over pairs of axes.

    Args:
        a: a tensor of numbers.
        b: a tensor of numbers of the same dtype.
        axes: the number of a's last axes to pair with b's first, or a pair of lists of axes.

    Returns:
        A tensor with a's other axes, followed by b's.

    Constraints:
        (C1) Both hold numbers of one dtype.
        (C2) axes pairs different axes of a with different axes of b.
        (C3) Paired axes have one size, or one of them has size 1.

    Examples:
        >>> sg.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes=1).shape
        (2, 4)
    """
    p, q = d.type_of(a).ndim, d.type_of(b).ndim
    if d.is_whole(axes):
        count = d.whole(axes)
        if count < 0:
            raise ShapeError(f"(C2) axes={count} is no number of axes")
        axes = (list(range(p - count, p)), list(range(count)))
    met = [(v,) if d.is_whole(v) else tuple(v) for v in axes]
    with d.about(Einsum, a, b):
        if len(met) != 2:
            raise ShapeError(f"(C2) axes={axes!r} is no number of axes and no pair of lists")
        met_a, met_b = [d.normal_axis(i, p) for i in met[0]], [d.normal_axis(i, q) for i in met[1]]
        if len(met_a) != len(met_b) or len(set(met_a)) < len(met_a) or len(set(met_b)) < len(met_b):
            raise ShapeError(
                f"(C2) axes={axes!r} does not pair different axes of the one with different axes of the other"
            )
    left, right = list(string.ascii_lowercase[:p]), list(string.ascii_uppercase[:q])
    for i, k in zip(met_a, met_b, strict=True):
        right[k] = left[i]
    remaining = [c for i, c in enumerate(left) if i not in met_a] + [
        c for k, c in enumerate(right) if k not in met_b
    ]
    return d.apply(Einsum, (a, b), (f"{''.join(left)},{''.join(right)}->{''.join(remaining)}",), name)
