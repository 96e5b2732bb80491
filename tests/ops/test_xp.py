"""The array API's namespace, outputs as arrays, and NumPy's dispatch: everything against NumPy itself."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from all_engines import each_engine
from places import HELPERS
from together import together

import stopgrad as sg
from stopgrad import xp


def words(text: str) -> list[str]:
    return text.split()


# The standard's names, of its version 2025.12.
STANDARD = words(
    """
    __array_namespace_info__ abs acos acosh add all any arange argmax argmin argsort asarray asin
    asinh astype atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor bool broadcast_arrays broadcast_shapes broadcast_to can_cast
    ceil clip complex128 complex64 concat conj copysign cos cosh count_nonzero cumulative_prod
    cumulative_sum diff divide e empty empty_like equal exp expand_dims expm1 eye finfo flip float32
    float64 floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag inf
    int16 int32 int64 int8 isdtype isfinite isin isinf isnan less less_equal linspace log log10
    log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul matrix_transpose max
    maximum mean meshgrid min minimum moveaxis multiply nan negative newaxis nextafter nonzero
    not_equal ones ones_like permute_dims pi positive pow prod real reciprocal remainder repeat
    reshape result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack
    std subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc uint16 uint32
    uint64 uint8 unique_all unique_counts unique_inverse unique_values unstack var vecdot where
    zeros zeros_like
    """
)
LINALG = words(
    """
    cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm matrix_power
    matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot
    vector_norm
    """
)
FFT = words(
    """
    fft fftfreq fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftfreq rfftn
    """
)


def test_every_name_of_the_standard_is_there() -> None:
    assert xp.__array_api_version__ == "2025.12"
    assert [name for name in STANDARD if not hasattr(xp, name)] == []
    assert [name for name in LINALG if not hasattr(xp.linalg, name)] == []
    assert [name for name in FFT if not hasattr(xp.fft, name)] == []


# ------------------------------------------------------------------------------------- values, in each style

RNG = np.random.default_rng(0)
A = RNG.standard_normal((3, 4)).astype(np.float32)
B = RNG.standard_normal((3, 4)).astype(np.float32)
D = RNG.standard_normal((2, 3, 4))
I = RNG.integers(-5, 6, (3, 4)).astype(np.int32)
U = RNG.integers(0, 9, (4,)).astype(np.uint8)
M = RNG.random((3, 4)) < 0.5
C = (A + 1j * B).astype(np.complex64)
S = (A @ A.T + 3 * np.eye(3)).astype(np.float64)
P = np.abs(A) / 4 + np.float32(0.1)

UNARY = words(
    """
    abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log
    log10 log1p log2 negative positive reciprocal round sign signbit sin sinh sqrt square tan tanh
    trunc
    """
)
BINARY = words(
    """
    add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal
    logaddexp maximum minimum multiply nextafter not_equal pow remainder subtract
    """
)
CASES: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    **{name: [((P + 1 if name == "acosh" else P,), {})] for name in UNARY},
    **{name: [((P, P[0]), {}), ((2.5, P), {})] for name in BINARY},
    **{
        name: [((I, U.astype(np.int32)), {}), ((M, M[0]), {})]
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    },
    **{name: [((M, M[:1]), {})] for name in ("logical_and", "logical_or", "logical_xor")},
    "bitwise_invert": [((I,), {}), ((M,), {})],
    "bitwise_left_shift": [((I, np.int32(2)), {})],
    "bitwise_right_shift": [((I, np.int32(2)), {})],
    "logical_not": [((M,), {})],
    "conj": [((C,), {}), ((A,), {})],
    "real": [((C,), {}), ((A,), {})],
    "imag": [((C,), {}), ((A,), {})],
    "clip": [((A, -0.5, 0.5), {}), ((A,), {"max": 0.0}), ((A, B, None), {}), ((I,), {"min": 0})],
    "where": [((M, A, B), {}), ((M, A, 0.0), {})],
    "sum": [
        ((A,), {}),
        ((D,), {"axis": (0, -1)}),
        ((A,), {"axis": 1, "keepdims": True}),
        ((A,), {"dtype": np.float64}),
    ],
    "prod": [((A,), {}), ((I,), {"axis": 0}), ((A,), {"axis": (0, 1), "keepdims": True})],
    "mean": [((A,), {}), ((D,), {"axis": (0, 2), "keepdims": True})],
    "var": [
        ((A,), {}),
        ((D,), {"axis": 1, "correction": 1}),
        ((D,), {"correction": 2.5}),
        ((A[:1],), {"axis": 0, "correction": 1}),
    ],
    "std": [((A,), {}), ((D,), {"axis": (0, 1), "correction": 1, "keepdims": True})],
    "max": [((A,), {}), ((I,), {"axis": -1, "keepdims": True})],
    "min": [((A,), {}), ((I,), {"axis": (0, 1)})],
    "all": [((M,), {}), ((A,), {"axis": 0}), ((np.zeros((0, 2)),), {"axis": 0})],
    "any": [((M,), {}), ((I,), {"axis": 1, "keepdims": True})],
    "argmax": [
        ((A,), {}),
        ((A,), {"axis": 1}),
        ((A,), {"keepdims": True}),
        ((D,), {"axis": -1, "keepdims": True}),
    ],
    "argmin": [((A,), {}), ((A,), {"axis": 0, "keepdims": True})],
    "count_nonzero": [((I,), {}), ((M,), {"axis": 1}), ((I,), {"axis": 0, "keepdims": True})],
    "cumulative_sum": [((A,), {"axis": 1}), ((A[0],), {}), ((A,), {"axis": 0, "include_initial": True})],
    "cumulative_prod": [((A,), {"axis": -1}), ((A,), {"axis": 1, "include_initial": True})],
    "diff": [((A,), {}), ((A,), {"axis": 0, "n": 2}), ((A,), {"axis": 1, "prepend": B[:, :1], "append": B})],
    "sort": [((A,), {}), ((A,), {"axis": 0})],
    "argsort": [((A,), {}), ((A,), {"axis": 0}), ((np.array([1, 0, 1, 0]),), {"stable": True})],
    "searchsorted": [((np.arange(5.0), np.array([[0.5, 2.0], [9.0, -1.0]])), {"side": "right"})],
    "isin": [((I, np.array([1, 2], np.int32)), {}), ((I, np.array([1, 2], np.int32)), {"invert": True})],
    "concat": [(([A, B],), {}), (([A, B[:1]],), {"axis": None}), (([A, A],), {"axis": -1})],
    "stack": [(([A, B],), {"axis": 1})],
    "unstack": [((D,), {"axis": 1})],
    "expand_dims": [((A,), {"axis": 1}), ((A,), {"axis": (0, -1)})],
    "squeeze": [((A[:, None],), {"axis": 1})],
    "reshape": [((A, (2, 6)), {}), ((A, (-1,)), {}), ((A, (4, 3)), {"copy": True})],
    "permute_dims": [((D, (2, 0, 1)), {})],
    "matrix_transpose": [((D,), {})],
    "moveaxis": [((D, 0, -1), {}), ((D, (0, 1), (-1, 0)), {})],
    "flip": [((A,), {}), ((D,), {"axis": (0, -1)})],
    "roll": [((A, 2), {}), ((A, 1), {"axis": 0}), ((A, (1, -2)), {"axis": (0, 1)})],
    "tile": [((A, (2, 1)), {}), ((A[0], (2, 2)), {}), ((D, (2,)), {})],
    "repeat": [((A, 2), {}), ((A, 3), {"axis": 1})],
    "broadcast_to": [((A[:1], (3, 4)), {})],
    "broadcast_arrays": [((A[:1], B[:, :1]), {})],
    "take": [((A, np.array([2, -1])), {"axis": 0}), ((A[0], np.array([0, 3])), {})],
    "take_along_axis": [((A, np.array([[0], [3], [1]])), {"axis": 1})],
    "matmul": [((A, B.T), {}), ((D, B.T.astype(np.float64)), {}), ((A, B[0]), {}), ((A[0], B[0]), {})],
    "tensordot": [((A, B.T), {"axes": 1}), ((D, D), {"axes": ((0, 1), (0, 1))})],
    "vecdot": [((A, B), {}), ((C, C), {"axis": 0})],
    "tril": [((A,), {}), ((D,), {"k": 1})],
    "triu": [((A,), {"k": -1})],
    "zeros_like": [((A,), {}), ((A,), {"dtype": np.int32})],
    "ones_like": [((I,), {})],
    "full_like": [((A, 2.0), {}), ((A, 16777217.0), {"dtype": np.float64})],
    "astype": [((A, np.int32), {}), ((I, np.float64), {"copy": False})],
    "meshgrid": [((A[0], B[1, :2]), {}), ((A[0], B[1, :2]), {"indexing": "ij"})],
    "linalg.cholesky": [((S,), {}), ((S,), {"upper": True})],
    "linalg.cross": [((D[0, :, :3], D[1, :, 1:]), {}), ((A, B), {"axis": 0})],
    "linalg.det": [((S,), {})],
    "linalg.diagonal": [((D,), {}), ((A,), {"offset": 1})],
    "linalg.eigvalsh": [((S,), {})],
    "linalg.inv": [((S,), {})],
    "linalg.matrix_norm": [((A,), {}), ((A,), {"ord": 2, "keepdims": True}), ((A,), {"ord": np.inf})],
    "linalg.matrix_power": [((S, 3), {}), ((S, -2), {}), ((S, 0), {})],
    "linalg.matrix_rank": [((np.outer(A[0], A[0]),), {})],
    "linalg.outer": [((A[0], B[1]), {})],
    "linalg.pinv": [((A.astype(np.float64),), {})],
    "linalg.slogdet": [((S,), {})],
    "linalg.solve": [((S, S[:, 0]), {}), ((S, S[:, :2]), {})],
    "linalg.svdvals": [((A,), {})],
    "linalg.trace": [((D,), {}), ((A,), {"offset": 1})],
    "linalg.vector_norm": [
        ((A,), {}),
        ((A,), {"axis": 1, "ord": 3, "keepdims": True}),
        ((A,), {"ord": -np.inf}),
    ],
    "fft.fft": [((C,), {}), ((A,), {"n": 6, "axis": 0, "norm": "ortho"})],
    "fft.ifft": [((C,), {})],
    "fft.fftn": [((D.astype(np.complex128),), {"axes": (0, 2)})],
    "fft.rfft": [((D,), {})],
    "fft.irfft": [((C,), {"n": 5})],
    "fft.hfft": [((C,), {})],
    "fft.fftshift": [((A,), {"axes": 1})],
    "fft.ifftshift": [((A,), {})],
}


def at(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic))


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    if is_array(value):
        return function(value)
    return [mapped(part, function) for part in value] if isinstance(value, list) else value


def run(function: Callable[..., Any], args: Any, kwargs: Any, engine: str) -> list[Any]:
    """What a function builds of placeholders in the place of arrays, computed."""
    fed: dict[Any, Any] = {}

    def placeholder(array: Any) -> Any:
        x = sg.placeholder(array.dtype, array.shape)
        fed[x] = array
        return x

    graph = sg.Graph()
    with graph.as_default():
        made = function(
            *[mapped(x, placeholder) for x in args], **{k: mapped(x, placeholder) for k, x in kwargs.items()}
        )
        parts = list(made) if isinstance(made, (tuple, list)) else [made]
    with sg.Session(graph, engine=engine) as session:
        return list(session.run(parts, fed))


def close(found: Any, expected: Any, what: str, same_dtype: bool = True) -> None:
    expected = np.asarray(expected)
    assert found.shape == expected.shape, what
    if same_dtype:
        assert found.dtype == expected.dtype, what
    tolerance = 1e-4 if expected.dtype in (np.float32, np.complex64) else 1e-8
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=what)


INDICES = {
    "argmax",
    "argmin",
    "argsort",
    "count_nonzero",
    "searchsorted",
    "linalg.matrix_rank",
    "sum",
    "prod",
}
"""Whose integers NumPy has in a dtype of its own."""


@each_engine
@pytest.mark.parametrize("name", CASES)
def test_a_function_computes_what_numpys_does_in_every_style(engine: str, name: str) -> None:
    for args, kwargs in CASES[name]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = at(np, name)(*args, **kwargs)
        expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        found = at(xp, name)(*args, **kwargs)
        found = list(found) if isinstance(found, (tuple, list)) else [found]
        for one, other in zip(found, expected, strict=True):
            assert isinstance(one, np.ndarray)
            close(one, other, f"{name} immediately", name not in INDICES)
        for one, other in zip(run(at(xp, name), args, kwargs, engine), found, strict=True):
            close(one, other, f"{name} on {engine}")


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("zeros", ((2, 3),), {}),
        ("ones", (3,), {"dtype": sg.int32}),
        ("full", ((2,), 7.5), {}),
        ("full", ((2,), True), {}),
        ("empty", ((2, 0),), {"dtype": sg.float64}),
        ("eye", (3, 4), {"k": -1}),
        ("arange", (5,), {}),
        ("arange", (5, 1, -2), {"dtype": sg.float32}),
        ("linspace", (0.0, 1.0, 5), {}),
        ("linspace", (1, 2, 4), {"endpoint": False, "dtype": sg.float64}),
        ("linspace", (3.0, 1.0, 1), {}),
        ("fft.fftfreq", (5,), {"d": 0.5}),
        ("fft.rfftfreq", (6,), {}),
    ],
)
def test_new_arrays_are_numpys_in_the_default_dtypes(name: str, args: Any, kwargs: Any) -> None:
    found = at(xp, name)(*args, **kwargs)
    plain = {key: value.numpy if key == "dtype" else value for key, value in kwargs.items()}
    if name != "empty":
        np.testing.assert_allclose(found, at(np, name)(*args, **plain), rtol=1e-6)
    default = np.dtype(np.bool_ if args[-1] is True else np.int32 if name == "arange" else np.float32)
    assert found.dtype == kwargs.get("dtype", default)
    found[...] = 1  # It is nobody else's.
    (graph,) = run(lambda: at(xp, name)(*args, **kwargs), (), {}, "numpy")
    assert graph.dtype == found.dtype
    assert graph.shape == found.shape


def test_set_functions_take_the_size_of_their_result_in_a_graph() -> None:
    x = np.array([[3, 1], [3, 2]], np.int32)
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        now = getattr(xp, name)(x)
        want = getattr(np, name)(x)
        with sg.Graph().as_default(), pytest.raises(sg.ShapeError, match="size="):
            getattr(xp, name)(sg.placeholder(sg.int32, [2, 2]))
        pairs = [(now, want)] if name == "unique_values" else list(zip(now, want, strict=True))
        for one, other in pairs:
            np.testing.assert_array_equal(one, other)
        graph = run(lambda x, name=name: getattr(xp, name)(x, size=3), (x,), {}, "numpy")
        for one, (other, _) in zip(graph, pairs, strict=True):
            np.testing.assert_array_equal(one, other)
    (rows, columns) = run(lambda x: xp.nonzero(x, size=3), (np.eye(3),), {}, "xla")
    np.testing.assert_array_equal([rows, columns], np.nonzero(np.eye(3)))


def test_decompositions_multiply_to_what_they_are_of() -> None:
    q, r = xp.linalg.qr(A)
    close(q @ r, A, "qr")
    u, s, vh = xp.linalg.svd(A, full_matrices=False)
    close(u * s @ vh, A, "svd")
    assert xp.linalg.svd(A).Vh.shape == (4, 4)
    values, vectors = xp.linalg.eigh(S)
    close(vectors * values @ vectors.T, S, "eigh")
    found = xp.linalg.eig(A[:, :3])
    close(A[:, :3] @ found.eigenvectors, found.eigenvectors * found.eigenvalues, "eig", False)


# --------------------------------------------------------------------------------------- dtypes, inspection


def test_dtypes_and_what_is_known_of_them() -> None:
    assert xp.float32 is sg.float32
    assert np.zeros(1).dtype == xp.float64
    assert xp.isdtype(np.dtype(np.int8), "signed integer")
    assert xp.isdtype(xp.uint8, ("bool", "unsigned integer"))
    assert not xp.isdtype(xp.uint8, ("bool", xp.int8))
    assert xp.isdtype(sg.bfloat16, "real floating")
    assert xp.result_type(np.float32(1), 2.0) is sg.float32
    assert xp.result_type(np.zeros(2, np.int32), 2.0) is sg.float64
    assert xp.result_type(sg.int8, sg.uint8) is sg.int16
    assert xp.can_cast(sg.int32, sg.float64)
    assert not xp.can_cast(np.zeros(2), sg.float32)
    for dtype in (np.float32, np.float64):
        for name in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(xp.finfo(dtype), name) == float(getattr(np.finfo(dtype), name))
    assert xp.finfo(sg.complex64).dtype is sg.float32
    assert xp.finfo(sg.bfloat16).eps == 2.0**-7
    assert xp.iinfo(np.uint16(3)).max == 65535
    for refused in (lambda: xp.finfo(sg.int8), lambda: xp.iinfo(sg.float32)):
        with pytest.raises(sg.DTypeError, match=r"sg\.xp\."):
            refused()
    with pytest.raises(sg.ArgumentError, match="a kind is"):
        xp.isdtype(sg.int8, "number")


def test_what_the_namespace_says_of_itself() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities()["max dimensions"] == 64
    assert info.default_device() in info.devices()
    defaults = info.default_dtypes()
    assert [xp.asarray(x).dtype for x in (1.0, 1j, 1)] == list(defaults.values())[:3]
    assert xp.argmax(A).dtype == xp.argsort(A).dtype == xp.nonzero(A)[0].dtype == defaults["indexing"]
    assert set(info.dtypes(kind="unsigned integer")) == {"uint8", "uint16", "uint32", "uint64"}
    with pytest.raises(sg.ArgumentError, match="device is None"):
        info.dtypes(device="gpu")
    with pytest.raises(sg.ArgumentError, match="device is None"):
        xp.asarray([1.0], device="gpu")


def test_one_array_comes_back_alone_and_several_as_a_tuple() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [])
        for ndim, of in enumerate((np.atleast_1d, np.atleast_2d, np.atleast_3d), 1):
            assert of(x).shape == (1,) * ndim
            assert [y.shape for y in of(x, x)] == [(1,) * ndim] * 2


def test_arrays_of_what_is_none_yet() -> None:
    x = np.arange(3.0)
    assert xp.asarray(x) is x or np.shares_memory(xp.asarray(x), x)
    assert not np.shares_memory(xp.asarray(x, copy=True), x)
    assert xp.asarray([[1, 2.5]]).dtype == np.float32
    assert xp.asarray(16777217.0, dtype=sg.float64) == 16777217.0
    assert xp.asarray(x, dtype=sg.float32).dtype == np.float32
    for obj, dtype in (([1.0], None), (x, sg.float32), (1.0, None)):
        with pytest.raises(sg.ArgumentError, match="copy=False cannot be kept"):
            xp.asarray(obj, dtype=dtype, copy=False)
    assert np.shares_memory(xp.from_dlpack(x), x)
    assert not np.shares_memory(xp.from_dlpack(x, copy=True), x)
    with pytest.raises(sg.ArgumentError, match="no __dlpack__"):
        xp.from_dlpack([1.0])
    (found,) = run(lambda x: xp.asarray([[x[0], x[1]], [x[2], 5.0]]), (x,), {}, "numpy")
    np.testing.assert_array_equal(found, [[0.0, 1.0], [2.0, 5.0]])


def test_names_of_the_standard_stand_in_the_package_too() -> None:
    for name in (
        "isnan",
        "isinf",
        "isfinite",
        "permute_dims",
        "astype",
        "matrix_transpose",
        "floor_divide",
        "remainder",
    ):
        assert getattr(sg, name) is getattr(xp, name)


# ------------------------------------------------------------------------------------- outputs as arrays

METHODS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(
        (name, (), {})
        for name in ("sum", "mean", "prod", "max", "min", "std", "var", "any", "all", "argmax", "argmin")
    ),
    *(
        (name, (0,), {})
        for name in ("sum", "mean", "prod", "max", "min", "std", "var", "any", "all", "argmax", "argmin")
    ),
    *((name, (), {"axis": 1, "keepdims": True}) for name in ("sum", "mean", "max", "std", "argmin", "any")),
    ("sum", (0, np.float64, None, True), {}),
    ("mean", (), {"dtype": np.float64}),
    ("var", (), {"axis": 0, "ddof": 1}),
    ("max", ((0, 1),), {}),
    ("argsort", (), {}),
    ("argsort", (0,), {}),
    ("sort", (), {}),
    ("cumsum", (), {}),
    ("cumsum", (1,), {}),
    ("cumprod", (), {"axis": 0}),
    ("reshape", (2, 6), {}),
    ("reshape", ((4, -1),), {}),
    ("reshape", (-1,), {"order": "C"}),
    ("ravel", (), {}),
    ("flatten", (), {}),
    ("transpose", (), {}),
    ("transpose", (1, 0), {}),
    ("transpose", ((1, 0),), {}),
    ("swapaxes", (0, 1), {}),
    ("squeeze", (), {}),
    ("astype", (np.int32,), {}),
    ("astype", ("float64",), {"copy": False}),
    ("clip", (-0.5, 0.5), {}),
    ("clip", (), {"max": 0.0}),
    ("round", (), {}),
    ("round", (2,), {}),
    ("round", (), {"decimals": -1}),
    ("conj", (), {}),
    ("conjugate", (), {}),
    ("dot", (B.T,), {}),
    ("repeat", (2,), {}),
    ("repeat", (2, 1), {}),
    ("take", ([0, 2],), {"axis": 0}),
    ("diagonal", (), {}),
    ("diagonal", (1,), {}),
    ("trace", (), {}),
    ("copy", (), {}),
    ("__abs__", (), {}),
    ("__divmod__", (0.5,), {}),
    ("to_device", ("cpu",), {}),
]


@each_engine
@pytest.mark.parametrize(("name", "args", "kwargs"), METHODS)
def test_a_method_computes_what_an_arrays_does(engine: str, name: str, args: Any, kwargs: Any) -> None:
    array = A.copy()
    expected = getattr(array, name)(*args, **kwargs)
    expected = array if name == "sort" else expected  # NumPy's sorts in place.
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    found = run(lambda x: getattr(x, name)(*args, **kwargs), (A,), {}, engine)
    for one, other in zip(found, expected, strict=True):
        close(one, other, f"{name} on {engine}", name not in INDICES)


@pytest.mark.parametrize("name", ["T", "mT", "real", "imag"])
def test_an_attribute_is_an_arrays(name: str) -> None:
    for array in (A, C):
        close(run(lambda x: getattr(x, name), (array,), {}, "numpy")[0], getattr(array, name), name)


def test_attributes_that_are_known_at_once() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3, 4])
        n = sg.placeholder(sg.float32, ["n", 4])
    assert (x.size, x.nbytes, x.itemsize, x.ndim, x.device, len(x)) == (12, 48, 4, 2, "cpu", 3)
    assert str(n.size) == "4*n"
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2022.12") is xp
    with pytest.raises(sg.ArgumentError, match=r"2021\.12"):
        x.__array_namespace__(api_version="2021.12")
    assert [y.shape for y in x] == [(4,)] * 3
    assert np.shape(x) == (3, 4)
    assert np.ndim(x) == 2
    assert np.size(x) == 12
    assert np.size(x, 1) == 4
    assert not np.iscomplexobj(x)


def test_sizes_that_are_not_known_yet() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, ["n", 4])
        made = [
            x.sum(0),
            x.mean(),
            x.var(ddof=1),
            x.reshape(-1),
            x.std(0),
            x.T,
            x.argmax(0),
            x.size * x.mean(),
            x.clip(0),
        ]
        made += [
            np.concatenate([x, x]),
            np.cumsum(x, 1),
            xp.full_like(x, 2.0),
            np.diff(x, axis=0),
            x.flatten(),
        ]
    with sg.Session(graph, engine="numpy") as session:
        found = session.run(made, {x: A})
    want = [A.sum(0), A.mean(), A.var(ddof=1), A.reshape(-1), A.std(0), A.T, A.argmax(0), A.sum(), A.clip(0)]
    want += [np.concatenate([A, A]), np.cumsum(A, 1), np.full_like(A, 2.0), np.diff(A, axis=0), A.flatten()]
    for one, other in zip(found, want, strict=True):
        close(one, other, "symbolic")


def test_methods_have_gradients() -> None:
    def loss(x: Any) -> Any:
        return (
            (np.exp(x.reshape(-1)) * x.flatten()).sum()
            + np.linalg.norm(x)
            + x.var(ddof=1)
            + x.T.max(axis=0).mean()
        )

    dx = sg.function(sg.grad(loss))(A.astype(np.float64))
    h = 1e-6
    for i in np.ndindex(A.shape):
        step = np.zeros(A.shape)
        step[i] = h
        x = A.astype(np.float64)
        assert abs(dx[i] - (loss(x + step) - loss(x - step)) / (2 * h)) < 1e-5


# --------------------------------------------------------------------------------------- NumPy's dispatch

DISPATCHED: dict[str, Callable[..., Any]] = {
    "exp": lambda x: np.exp(x),
    "add": lambda x: np.add(np.ones((3, 4), np.float32), x),
    "scalar": lambda x: np.float32(2) * x,
    "array": lambda x: np.arange(4.0) - x,
    "array_matmul": lambda x: np.ones((2, 3), np.float32) @ x,
    "array_equal": lambda x: np.zeros((3, 4), np.float32) == x,
    "array_less": lambda x: np.zeros((3, 4), np.float32) < x,
    "power": lambda x: np.power(np.abs(x), 0.5),
    "ints": lambda x: np.sqrt(np.arange(4)) + x,
    "dtype": lambda x: np.multiply(x, 2, dtype=np.float64),
    "arctan2": lambda x: np.arctan2(x, 1 + x * x),
    "divmod": lambda x: divmod(x, np.float32(0.5))[1],
    "deg": lambda x: np.deg2rad(np.degrees(x)),
    "hypot_outer": lambda x: np.hypot.outer(x, x[0]),
    "multiply_outer": lambda x: np.multiply.outer(np.arange(2, dtype=np.float32), x),
    "reduce": lambda x: np.add.reduce(x),
    "reduce_axis": lambda x: np.maximum.reduce(x, axis=1, keepdims=True),
    "reduce_all": lambda x: np.multiply.reduce(x, axis=None),
    "logaddexp_reduce": lambda x: np.logaddexp.reduce(x, axis=1),
    "accumulate": lambda x: np.add.accumulate(x, axis=1),
    "maximum_accumulate": lambda x: np.maximum.accumulate(x),
    "sum": lambda x: np.sum(x, axis=0),
    "sum_by_name": lambda x: np.sum(a=x, axis=1, keepdims=True),
    "mean": lambda x: np.mean(x, 1),
    "std": lambda x: np.std(x, ddof=1),
    "max": lambda x: np.max(x, axis=0),
    "amin": lambda x: np.amin(x),
    "ptp": lambda x: np.ptp(x, axis=1),
    "prod": lambda x: np.prod(x, axis=-1),
    "any": lambda x: np.any(x > 1, axis=1),
    "average": lambda x: np.average(x, axis=0, weights=np.array([1, 2, 3], np.float32)),
    "nansum": lambda x: np.nansum(np.where(x > 0, x, np.float32(np.nan)), axis=0),
    "nan_to_num": lambda x: np.nan_to_num(np.where(x > 0, x, np.float32(np.inf)), posinf=3.0),
    "clip": lambda x: np.clip(x, -0.5, 0.5),
    "clip_by_name": lambda x: np.clip(x, a_min=-0.5, a_max=None),
    "round": lambda x: np.round(x, 1),
    "around": lambda x: np.around(x),
    "concatenate": lambda x: np.concatenate([x, np.ones((1, 4), np.float32)]),
    "concatenate_flat": lambda x: np.concatenate((x, x), axis=None),
    "stack": lambda x: np.stack([x, x], axis=-1),
    "vstack": lambda x: np.vstack([x, x[0]]),
    "hstack": lambda x: np.hstack([x, x]),
    "dstack": lambda x: np.dstack([x, x]),
    "column_stack": lambda x: np.column_stack([x[:, 0], x]),
    "split": lambda x: np.split(x, 2, axis=1)[1],
    "split_at": lambda x: np.split(x, [1, 2])[2],
    "array_split": lambda x: np.array_split(x, 3, axis=1)[0],
    "hsplit": lambda x: np.hsplit(x, 2)[0],
    "vsplit": lambda x: np.vsplit(x, 3)[1],
    "where": lambda x: np.where(x > 0, x, 0.0),
    "select": lambda x: np.select([x > 1, x > 0], [x, -x], np.float32(9)),
    "reshape": lambda x: np.reshape(x, (4, 3)),
    "ravel": lambda x: np.ravel(x),
    "transpose": lambda x: np.transpose(x),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1),
    "rollaxis": lambda x: np.rollaxis(x, 1),
    "squeeze": lambda x: np.squeeze(x[None]),
    "expand_dims": lambda x: np.expand_dims(x, (0, 2)),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, x[:1])[1],
    "atleast_3d": lambda x: np.atleast_3d(x[0]),
    "tile": lambda x: np.tile(x, 2),
    "repeat": lambda x: np.repeat(x, 2, axis=0),
    "flip": lambda x: np.flip(x),
    "fliplr": lambda x: np.fliplr(x),
    "flipud": lambda x: np.flipud(x),
    "roll": lambda x: np.roll(x, 1, axis=1),
    "rot90": lambda x: np.rot90(x),
    "rot90_back": lambda x: np.rot90(x, -1),
    "pad": lambda x: np.pad(x, ((1, 0), (2, 1)), constant_values=3),
    "pad_reflect": lambda x: np.pad(x, 1, mode="reflect"),
    "diff": lambda x: np.diff(x, axis=0),
    "cumsum": lambda x: np.cumsum(x),
    "cumprod": lambda x: np.cumprod(x, axis=1),
    "take": lambda x: np.take(x, [0, 2], axis=1),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[0], [1], [2]]), axis=1),
    "sort": lambda x: np.sort(x, axis=0),
    "dot": lambda x: np.dot(x, x.T),
    "dot_3d": lambda x: np.dot(np.ones((2, 2, 3), np.float32), x),
    "dot_scalar": lambda x: np.dot(x, np.float32(3)),
    "inner": lambda x: np.inner(x, x),
    "vdot": lambda x: np.vdot(x, x),
    "outer": lambda x: np.outer(x, x[0]),
    "kron": lambda x: np.kron(x, np.eye(2, dtype=np.float32)),
    "tensordot": lambda x: np.tensordot(x, x, axes=[(0, 1), (0, 1)]),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "matmul": lambda x: np.matmul(x, x.T),
    "trace": lambda x: np.trace(x),
    "diagonal": lambda x: np.diagonal(x, 1),
    "diag": lambda x: np.diag(x[0]),
    "diag_of": lambda x: np.diag(x, k=1),
    "tril": lambda x: np.tril(x),
    "triu": lambda x: np.triu(x, k=1),
    "norm": lambda x: np.linalg.norm(x),
    "norm_axis": lambda x: np.linalg.norm(x, ord=1, axis=0),
    "norm_matrix": lambda x: np.linalg.norm(x, 2),
    "inv": lambda x: np.linalg.inv(x @ x.T + 3 * np.eye(3, dtype=np.float32)),
    "solve": lambda x: np.linalg.solve(x @ x.T + 3 * np.eye(3, dtype=np.float32), x),
    "det": lambda x: np.linalg.det(x @ x.T + np.eye(3, dtype=np.float32)),
    "rfft": lambda x: np.fft.rfft(x),
    "zeros_like": lambda x: np.zeros_like(x, dtype=np.int32),
    "full_like": lambda x: np.full_like(x, 3),
    "real": lambda x: np.real(x),
    "angle": lambda x: np.angle(x),
    "isnan": lambda x: np.isnan(x),
    "isclose": lambda x: np.isclose(x, np.round(x, 3), atol=1e-3),
    "allclose": lambda x: np.allclose(x, x),
    "array_equals": lambda x: np.array_equal(x, x),
    "copy": lambda x: np.copy(x),
    "meshgrid": lambda x: np.meshgrid(x[0], x[1])[0],
}


@each_engine
@together("name", DISPATCHED)
def test_numpys_functions_build_our_operations(engine: str, name: str) -> None:
    function = DISPATCHED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = function(A)
    (found,) = run(function, (A,), {}, engine)
    close(found, expected, f"{name} on {engine}", name not in ("rfft", "average"))


def test_scipys_ufuncs_build_our_operations() -> None:
    special = pytest.importorskip("scipy.special")
    for f in (special.expit, special.erf, special.gammaln, special.psi, special.log_expit):
        close(run(f, (P,), {}, "xla")[0], f(P), f.__name__)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "out": (lambda x: np.add(x, x, out=np.zeros((3, 4))), "out= cannot be had on outputs.*take the result"),
    "in_place": (lambda x: np.zeros((3, 4)).__iadd__(x), "out= cannot be had"),
    "where": (lambda x: np.add(x, x, where=np.ones((3, 4), bool)), "where= cannot be had.*sg.where"),
    "sum_where": (lambda x: np.sum(x, where=[True]), "np.sum: where= cannot be had"),
    "initial": (lambda x: np.max(x, initial=0.0), "np.max: initial= cannot be had"),
    "positional_out": (lambda x: x.sum(0, None, np.zeros(4)), "out= cannot be had"),
    "order": (lambda x: x.reshape(-1, order="F"), "order= cannot be had"),
    "at": (lambda x: np.add.at(x, [0], 1), r"x\.at\[i\]\.add"),
    "reduceat": (lambda x: np.add.reduceat(x, [0]), "is not there for outputs"),
    "frexp": (lambda x: np.frexp(x), "np.frexp is not there for outputs"),
    "unique": (lambda x: np.unique(x), "np.unique is not there|size="),
    "interp": (lambda x: np.interp(x, [0, 1], [0, 1]), "np.interp is not there for outputs"),
    "wrong_keyword": (lambda x: x.sum(axes=0), r"unexpected keyword argument 'axes'.*; help\(np.sum\)"),
    "wrong_keyword_of_xp": (
        lambda x: xp.sum(x, axes=0),
        r"unexpected keyword argument 'axes'.*; help\(sg.xp.sum\)",
    ),
    "wrong_axis": (lambda x: x.sum(axis=5), "axis 5 does not exist"),
    "device": (lambda x: x.to_device("gpu"), "device is None or 'cpu'"),
    "item": (lambda x: x.item(), r"the number of Placeholder.*Session\.run"),
    "tolist": (lambda x: x.tolist(), r"Session\.run"),
    "index": (lambda x: [1, 2][x], r"the integer value.*Session\.run"),
    "complex": (lambda x: complex(x), r"the complex value.*Session\.run"),
    "asarray": (lambda x: np.asarray(x), r"the array.*Session\.run"),
    "dlpack": (lambda x: np.from_dlpack(x), "the memory"),
    "fill": (lambda x: x.fill(0.0), "outputs never change; sg.full_like"),
    "setitem": (lambda x: x.__setitem__(0, 1.0), r"outputs never change; x\.at\[index\]\.set"),
    "delitem": (lambda x: x.__delitem__(0), "outputs never change"),
    "copy_flag": (lambda x: xp.reshape(x, -1, copy="no"), "copy is True, False or None"),
    "cumulative_axis": (lambda x: xp.cumulative_sum(x), "an axis is needed"),
    "average": (lambda x: np.average(x, returned=True), "returned=True"),
    "pad": (lambda x: np.pad(x, 1, mode="wrap"), "mode is one of"),
    "shape": (lambda x: np.zeros_like(x, shape=(2,)), "shape= cannot be had"),
    "qr": (lambda x: xp.linalg.qr(x, mode="raw"), "mode is 'reduced' or 'complete'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_says_so(name: str) -> None:
    function, message = REFUSED[name]
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [3, 4])
        before = len(graph)
        with pytest.raises(sg.StopgradError, match=message):
            function(x)
        assert len(graph) == before


def test_an_unknown_attribute_says_what_is_written_here() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3, 4])
    with pytest.raises(AttributeError, match=r"sg\.stop_gradient"):
        x.detach()
    with pytest.raises(AttributeError, match="no attribute 'nothing_like_it'"):
        x.nothing_like_it  # noqa: B018
    assert not hasattr(x, "__cuda_array_interface__")


class Other:
    """An array of another library's, which knows what to do with ours."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> str:
        return f"{ufunc.__name__} of another"

    def __array_function__(self, func: Any, *_: Any) -> str:
        return f"{func.__name__} of another"


def test_arrays_of_other_libraries_are_asked() -> None:
    with sg.Graph().as_default():
        x: Any = sg.placeholder(sg.float32, [3, 4])
    assert np.add(x, Other()) == "add of another"
    assert np.concatenate([x, Other()]) == "concatenate of another"


def test_errors_name_the_users_line() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3, 4])
        with pytest.raises(sg.ShapeError) as found:
            np.concatenate([x, x[0]])
    assert "test_xp.py" in str(found.value)
    assert np.exp(x).op.location.file.endswith("test_xp.py")


# ------------------------------------------------------------------------------------------- the suite


def runner() -> ModuleType:
    path = HELPERS / "array_api" / "run.py"
    spec = importlib.util.spec_from_file_location("array_api_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_test_that_is_skipped_has_its_reason() -> None:
    for name in ("skips.txt", "skips_traced.txt"):
        explained = False
        for line in (HELPERS / "array_api" / name).read_text().splitlines():
            assert not line or line.startswith(("#", "array_api_tests/")), line
            explained = line.startswith("#") or (explained and bool(line))
            assert explained or not line, f"say why {line} is skipped"


@pytest.mark.nightly
@pytest.mark.skipif("STOPGRAD_ARRAY_API_TESTS" not in os.environ, reason="no checkout is named")
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("ndindex", "pytest_jsonreport"))), reason="the suite needs these"
)
@pytest.mark.parametrize("traced", [False, True])
def test_the_array_apis_suite_passes(traced: bool) -> None:
    found = runner().run(Path(os.environ["STOPGRAD_ARRAY_API_TESTS"]), [], traced)
    assert found["passed"] > 1300
    assert not found["failed"]
