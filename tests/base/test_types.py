"""Element types, sizes and tensor types: laws, normal form, interning, text."""

from __future__ import annotations

import copy
import operator
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stopgrad as sg
from stopgrad.base.types import (
    DTYPES,
    Dim,
    at_least,
    bind_sizes,
    checking,
    dim,
    dtype_of,
    exact_quotient,
    length_value,
    map_sizes,
    product,
    same_size,
    shape_of,
    size_value,
    tensor_type,
    total,
)
from stopgrad.graph.text.grammar import Values

NAMES = ("n", "m", "k")
N, M = dim("n"), dim("m")

# A size, and beside it the same thing as a function of the names' values, computed by Python alone.
Meaning = Callable[[dict[str, int]], int]
Sized = tuple[Any, Meaning]


def _leaf(name: str) -> Sized:
    return dim(name), lambda values: values[name]


def _number(n: int) -> Sized:
    return n, lambda _: n


def _combine(parts: tuple[Any, Sized, Sized]) -> Sized:
    op, (a, p), (b, q) = parts
    return op(a, b), lambda values: op(p(values), q(values))


def _halved(parts: tuple[Sized, int]) -> Sized:
    (a, p), n = parts
    return a // n, lambda values: p(values) // n


def _clamped(parts: tuple[Sized, int]) -> Sized:
    (a, p), low = parts
    return at_least(a, low), lambda values: max(p(values), low)


LEAVES = st.one_of(st.sampled_from(NAMES).map(_leaf), st.integers(-3, 5).map(_number))
POLYNOMIALS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from([operator.add, operator.sub, operator.mul]), inner, inner).map(
        _combine
    ),
    max_leaves=6,
)
SIZES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from([operator.add, operator.sub, operator.mul]), inner, inner).map(_combine),
        st.tuples(inner, st.integers(1, 4)).map(_halved),
        st.tuples(inner, st.integers(-2, 2)).map(_clamped),
    ),
    max_leaves=6,
)
VALUES = st.fixed_dictionaries({name: st.integers(0, 7) for name in NAMES})
quick = settings(max_examples=100, deadline=None)


# -------------------------------------------------------------------------------------------- sizes


@quick
@given(SIZES, VALUES)
def test_a_size_means_what_its_arithmetic_means(sized: Sized, values: dict[str, int]) -> None:
    size, meaning = sized
    assert size_value(size, values) == meaning(values)


@quick
@given(POLYNOMIALS, POLYNOMIALS, POLYNOMIALS)
def test_ring_laws_hold_as_identity_of_objects(x: Sized, y: Sized, z: Sized) -> None:
    a, b, c = x[0], y[0], z[0]
    for left, right in [
        (a + b, b + a),
        (a * b, b * a),
        ((a + b) + c, a + (b + c)),
        ((a * b) * c, a * (b * c)),
        (a * (b + c), a * b + a * c),
        (a - b, a + -b),
        (a + 0, a),
        (a * 1, a),
        (0 - (0 - a), a),
    ]:
        assert left == right
        assert not isinstance(left, Dim) or left is right
    assert a - a == 0
    assert a * 0 == 0


@quick
@given(POLYNOMIALS, POLYNOMIALS, st.lists(VALUES, min_size=3, max_size=3))
def test_equal_normal_forms_are_equal_everywhere_and_others_differ_somewhere(
    x: Sized, y: Sized, several: list[dict[str, int]]
) -> None:
    (a, p), (b, q) = x, y
    if a == b:
        assert all(p(values) == q(values) for values in several)
    else:
        # A polynomial of low degree that is 0 on a large enough grid is 0.
        grid = [{"n": n, "m": m, "k": k} for n in range(8) for m in range(8) for k in range(8)]
        assert any(p(values) != q(values) for values in grid)


@quick
@given(SIZES)
def test_the_text_of_a_size_reads_as_the_same_size(sized: Sized) -> None:
    size = sized[0]
    read = Values(repr(size), dim, {}).value()
    assert read == size
    assert not isinstance(size, Dim) or read is size
    assert pickle.loads(pickle.dumps(size)) == size


@quick
@given(POLYNOMIALS, st.integers(1, 4), VALUES)
def test_an_exact_quotient_is_exact(x: Sized, divisor: int, values: dict[str, int]) -> None:
    size, meaning = x
    assert exact_quotient(size * divisor, divisor) == size
    found = exact_quotient(size, divisor)
    if divisor > 1:
        assert exact_quotient(size * divisor + 1, divisor) is None
    if found is not None:
        assert size_value(found, values) * divisor == meaning(values)
    if isinstance(size, Dim):
        assert (size * divisor) // divisor is size
        assert (size * N) // N is size


@quick
@given(SIZES, st.integers(1, 4), VALUES)
def test_quotient_and_remainder_belong_together(x: Sized, divisor: int, values: dict[str, int]) -> None:
    size, meaning = x
    assert size_value(size % divisor, values) == meaning(values) % divisor


def test_normal_forms_read_well() -> None:
    assert [
        repr(s)
        for s in [
            (N + 1) * (N + 1),
            N - M,
            2 * N - 1,
            -N,
            N * M * 3,
            (N + 1) // 2,
            at_least(N - 2, 0),
            5 // N,
        ]
    ] == [
        "n**2 + 2*n + 1",
        "-1*m + n",
        "2*n - 1",
        "-1*n",
        "3*m*n",
        "(n + 1)//2",
        "max(n - 2, 0)",
        "5//n",
    ]
    assert [
        repr(s) for s in [M - N // 2, 3 * (N // 2), (N // 2) * (N // 2), (N // 2) * M, at_least(N - 1, 0) * 2]
    ] == [
        "m - 1*(n//2)",
        "3*(n//2)",
        "(n//2)**2",
        "m*(n//2)",
        "2*max(n - 1, 0)",
    ]
    assert N - N == 0
    assert type(N - N) is int


def test_at_least_is_left_out_where_it_changes_nothing() -> None:
    assert at_least(N, 0) is N
    assert at_least(N * M + 1, 0) is N * M + 1
    assert at_least(N // 2, 0) is N // 2
    assert at_least(N, 1) is not N
    assert at_least(-3, 0) == 0


def test_a_size_is_copied_as_itself() -> None:
    assert copy.copy(N) is N
    assert copy.deepcopy(N * 2 + 1) is N * 2 + 1
    assert hash(N + 1) == hash(1 + N)


def test_fresh_sizes_differ_from_all_others() -> None:
    a, b = dim(), dim()
    assert a is not b
    assert a != b
    assert same_size(a, b)  # but nothing says that they must


def test_python_numbers_of_all_kinds_of_integers_are_sizes() -> None:
    assert N + np.int64(2) is N + 2
    assert np.int64(2) * N is N * 2
    assert shape_of(np.int32(3)) == (3,)
    assert shape_of([np.int64(3), N, "m"]) == (3, N, M)
    assert all(type(s) is int for s in shape_of([np.int64(3), np.array(2)]))
    for size in (
        N + np.int64(2),
        np.uint8(2) * N,
        N // np.int64(2),
        np.int64(7) // N,
        7 % N,
        N % np.int64(2),
    ):
        assert all(type(factor) is int for _, factor in size.terms)


@pytest.mark.parametrize("flag", [True, False, np.True_])
def test_a_flag_is_no_size_as_in_numpy(flag: Any) -> None:
    with pytest.raises(sg.ShapeError, match="is no size"):
        shape_of([flag, 2])
    with pytest.raises(sg.ArgumentError, match="is no size"):
        N + flag


# -------------------------------------------------------------------------------------------- bounds


def sum_of_names(count: int, letter: str = "s") -> Any:
    return total(dim(f"{letter}{i}") for i in range(count))


@pytest.mark.parametrize(
    "build",
    [
        lambda: N * 2**63,
        lambda: N + 2**63,
        lambda: N - 2**70 - N,
        lambda: (N * 2**40) * (M * 2**40),
        lambda: N // 2**64,
        lambda: at_least(N, 2**63),
        lambda: shape_of([2**63]),
        lambda: shape_of([9**30_000]),  # Python itself would not print it
        lambda: N * 9**30_000,
        lambda: N**65,
        lambda: N**33 * N**33,
        lambda: product([N] * 65),
        lambda: sum_of_names(10_001),
        lambda: sum_of_names(101) * sum_of_names(100, "t"),
        lambda: sum_of_names(60, "a") ** 3,
    ],
)
def test_a_size_that_no_array_can_have_is_refused_before_it_is_computed(build: Callable[[], Any]) -> None:
    start = time.process_time()
    with pytest.raises(sg.ShapeError):
        build()
    assert time.process_time() - start < 1


def test_quotients_in_quotients_are_bounded_by_their_text() -> None:
    size: Any = N
    for _ in range(12):
        size = (size + 1) // (size + 2)
    with pytest.raises(sg.ShapeError, match="10000 names and quotients"):
        (size + 1) // (size * 2)
    assert len(repr(size)) < 100_000


def test_quotients_stand_in_each_other_to_any_depth() -> None:
    size: Any = N
    for _ in range(2_000):
        size = (size + 3) // 2
    assert size_value(size, {"n": 10**6}) == 3
    assert pickle.loads(pickle.dumps(size)) is size
    assert repr(size).count("//") == 2_000


def test_values_are_bounded_on_the_way_too() -> None:
    tower: Any = N
    for i in range(8):
        tower = (tower**60) // dim(f"d{i}")
    start = time.process_time()
    with pytest.raises(sg.ShapeError, match="no array has a size beyond"):
        size_value(tower, {"n": 10, **{f"d{i}": 1 for i in range(8)}})
    assert time.process_time() - start < 1


def test_sizes_of_3000_terms_are_sizes() -> None:
    many = sum_of_names(3_000)
    assert many + 1 - many == 1
    assert size_value(many * 2, {f"s{i}": i for i in range(3_000)}) == 2_999 * 3_000
    assert size_value(many // 2, {f"s{i}": i for i in range(3_000)}) == 2_999 * 3_000 // 4


# ------------------------------------------------------------------------- what has no value when it is fed


@pytest.mark.parametrize("build", [lambda: N // 0, lambda: N % 0, lambda: (N + 1) // (M - M)])
def test_dividing_by_zero_is_our_error(build: Callable[[], Any]) -> None:
    with pytest.raises(sg.ShapeError, match="cannot be divided by 0"):
        build()


@pytest.mark.parametrize("size", [N // M, N % M, 7 // M, (N + 1) // (M * 2), at_least(N // M - 1, 0)])
def test_a_divisor_that_is_fed_as_zero_is_our_error_with_what_was_fed(size: Any) -> None:
    with pytest.raises(sg.ShapeError, match=r"has no value: .*m.* is 0 where .*m = 0"):
        size_value(size, {"n": 4, "m": 0})


def test_a_length_that_comes_out_negative_is_an_error_with_what_was_fed() -> None:
    assert length_value(N - 4, {"n": 4}) == 0
    with pytest.raises(sg.ShapeError, match=r"the size n - 4 is -1 where n = 3"):
        length_value(N - 4, {"n": 3})


def test_the_product_of_sizes() -> None:
    assert product([2, N, 3, M]) is 6 * N * M
    assert product([]) == 1
    assert product([N, 0]) == 0


def test_a_size_without_a_value_says_so() -> None:
    with pytest.raises(sg.ShapeError, match="'m' is not determined"):
        size_value(N + M, {"n": 2})


# --------------------------------------------------------------------- surely equal, surely not, unknown


def test_while_building_only_what_surely_differs_is_told_apart() -> None:
    assert same_size(3, 3)
    assert not same_size(3, 4)
    assert same_size(N, N)
    assert same_size(N, M)
    assert same_size(N, 3)
    assert not same_size(N, N + 1)
    assert not same_size(N * M + 2, M * N)
    assert same_size(N * 2, N + 3)


def test_while_checking_sizes_have_their_values() -> None:
    with checking({"n": 2, "m": 3}):
        assert not same_size(N, M)
        assert same_size(N + 1, M)
        assert not same_size(N, 3)
    assert same_size(N, M)


def test_checking_ends_with_its_block_even_after_an_error() -> None:
    with pytest.raises(KeyError), checking({"n": 2, "m": 3}):
        raise KeyError
    assert same_size(N, M)


def test_sizes_are_learnt_from_a_fed_shape() -> None:
    binding: dict[str, int] = {}
    assert bind_sizes((N, 3, N * M), (2, 3, 8), binding)
    assert binding == {"n": 2}  # only plain names are learnt; products are checked later
    assert not bind_sizes((N,), (5,), binding)
    assert not bind_sizes((N, M), (2,), {})
    assert not bind_sizes((3,), (4,), {})


def test_sizes_inside_attributes_are_found() -> None:
    assert map_sizes(
        (1, N, (M + 1, "n"), slice(N, None, 2)), lambda size: size_value(size, {"n": 4, "m": 5})
    ) == (1, 4, (6, "n"), slice(4, None, 2))


# --------------------------------------------------------------------------------------------- dtypes

TABLE = {
    # name: NumPy's type, bytes, floating, complex, integer, bool, its real part
    "float16": (np.float16, 2, "f", "float16"),
    "bfloat16": (ml_dtypes.bfloat16, 2, "f", "bfloat16"),
    "float32": (np.float32, 4, "f", "float32"),
    "float64": (np.float64, 8, "f", "float64"),
    "complex64": (np.complex64, 8, "c", "float32"),
    "complex128": (np.complex128, 16, "c", "float64"),
    "int8": (np.int8, 1, "i", "int8"),
    "int16": (np.int16, 2, "i", "int16"),
    "int32": (np.int32, 4, "i", "int32"),
    "int64": (np.int64, 8, "i", "int64"),
    "uint8": (np.uint8, 1, "u", "uint8"),
    "uint16": (np.uint16, 2, "u", "uint16"),
    "uint32": (np.uint32, 4, "u", "uint32"),
    "uint64": (np.uint64, 8, "u", "uint64"),
    "bool": (np.bool_, 1, "b", "bool"),
}


def test_there_are_no_other_dtypes() -> None:
    assert set(DTYPES) == set(TABLE)
    assert all(getattr(sg, name) is DTYPES[name] for name in TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_a_dtype_is_what_the_table_says(name: str) -> None:
    numpy, size, kind, real = TABLE[name]
    d = dtype_of(name)
    assert repr(d) == d.name == name
    assert d.itemsize == size
    assert (d.is_floating, d.is_complex, d.is_integer, d.is_bool) == (
        kind == "f",
        kind == "c",
        kind in "iu",
        kind == "b",
    )
    assert d.is_differentiable == (kind in "fc")
    assert d.real is dtype_of(real)
    assert d.numpy == np.dtype(numpy)
    assert dtype_of(numpy) is dtype_of(np.dtype(numpy)) is dtype_of(d) is d
    assert dtype_of(np.zeros(1, numpy).dtype) is d
    assert pickle.loads(pickle.dumps(d)) is d
    assert copy.deepcopy(d) is d


def test_python_numbers_have_tensorflows_default_dtypes() -> None:
    assert dtype_of(float) is sg.float32
    assert dtype_of(int) is sg.int32
    assert dtype_of(complex) is sg.complex64
    assert dtype_of(bool) is sg.bool


def test_byte_order_is_no_part_of_a_dtype() -> None:
    assert dtype_of(">f4") is dtype_of("<f4") is sg.float32


@pytest.mark.parametrize(
    "x",
    [
        "string",
        "float8",
        object,
        np.dtype("O"),
        np.dtype("U3"),
        3,
        None.__class__,
        np.dtype("M8[s]"),
    ],
)
def test_what_is_no_dtype_is_refused(x: Any) -> None:
    with pytest.raises(sg.DTypeError, match="no element type") as caught:
        dtype_of(x)
    assert isinstance(caught.value, TypeError)


def test_float_is_numpys_own_name_for_float64() -> None:
    assert dtype_of("float") is sg.float64


# --------------------------------------------------------------------------------------- tensor types


def test_tensor_types_are_interned() -> None:
    a = tensor_type(sg.float32, (N, 3))
    assert a is tensor_type(sg.float32, (dim("n"), 3))
    assert a is not tensor_type(sg.float64, (N, 3))
    assert a is not tensor_type(sg.float32, (3, N))
    assert a is pickle.loads(pickle.dumps(a))
    assert repr(a) == "float32[n, 3]"
    assert (a.ndim, a.symbolic, a.differentiable, a.size) == (2, True, True, 3 * N)
    scalar = tensor_type(sg.int32, ())
    assert (scalar.ndim, scalar.symbolic, scalar.differentiable, scalar.size) == (0, False, False, 1)


def test_interning_holds_across_threads() -> None:
    found: list[tuple[Any, Any]] = []
    together = threading.Barrier(8)

    def intern() -> None:
        together.wait()
        for i in range(300):
            size = dim(f"thread_{i}") * 3 + i
            found.append((size, tensor_type(sg.float32, (size, i))))

    threads = [threading.Thread(target=intern) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(size) for size, _ in found}) == 300
    assert len({id(kind) for _, kind in found}) == 300
