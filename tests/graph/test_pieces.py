"""Large arrays computed piece by piece: bit for bit what the plain order gives, with less memory."""

from __future__ import annotations

import random
import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from operation_cases import COMPUTED, DIFFERENTIATED, Array, build, draw
from random_programs import OFFSETS, WEIGHTS, Stopgrad, evaluate, made
from sample_tools import with_dtype
from together import together

import stopgrad as sg
from stopgrad.base.samples import Sample
from stopgrad.base.types import bfloat16, float16, float32
from stopgrad.engines import engine
from stopgrad.engines.protocol import PLAIN
from stopgrad.graph import rowwise
from stopgrad.graph.graph import Output
from stopgrad.graph.interpreter import NUMPY_BACKEND, Region, program
from stopgrad.graph.op import Op
from stopgrad.rewrite import prepare
from stopgrad.transforms.gradients.reverse import gradients

N = 11


@pytest.fixture(params=[(1, 2), (150, 3), (4000, 1)], ids=lambda case: str(case[0]))
def small(request: Any, monkeypatch: Any) -> None:
    """All arrays count as large; pieces have this many bytes, or one row; so many threads compute them."""
    piece, threads = request.param
    monkeypatch.setattr(rowwise, "LARGE", 0)
    monkeypatch.setattr(rowwise, "PIECE", piece)
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))


def found_in(inputs: Sequence[Output], outputs: Sequence[Output]) -> list[Region]:
    """The regions of a graph."""
    found: list[Region] = []

    def note(*asked: Any) -> list[Region]:
        found.extend(rowwise.regions(*asked))
        return found

    program(inputs, outputs, NUMPY_BACKEND, note)
    return found


def bits(values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Shapes, dtypes and bits; NaNs count as equal."""
    known = []
    for value in map(np.asarray, values):
        if value.dtype.kind in "fcV":  # Which NaN comes of two is not said.
            value = np.where(np.isnan(value), np.asarray(np.nan, value.dtype), value)
        known.append((value.shape, value.dtype, value.tobytes()))
    return known


def assert_same(outputs: Sequence[Output], inputs: Sequence[Output], arrays: Sequence[Array]) -> None:
    ready = prepare(list(outputs), list(inputs), {"n": N})
    numpy = engine("numpy")
    plain = numpy.compile(ready.inputs, ready.outputs, variant=PLAIN)
    cut = numpy.compile(ready.inputs, ready.outputs, variant=numpy.variants[0])
    before = bits(arrays)
    expected, found = plain(arrays), cut(arrays)
    assert bits(found) == bits(expected)
    assert bits(arrays) == before
    for i, value in enumerate(found):
        assert not any(np.shares_memory(value, other) for other in (*arrays, *found[:i]))


# ---------------------------------------------------------------------------------------- every operation


@together(("definition", "sample"), COMPUTED, parts=4)
def test_operations_in_pieces(definition: type[Op], sample: Sample, small: None) -> None:
    for dtype in (None, float32, float16, bfloat16):
        (one,) = [sample] if dtype is None else with_dtype([sample], dtype)
        arrays = draw(one, N)
        try:
            graph, xs, ys = build(definition, one, arrays)
        except sg.StopgradError:
            continue  # It is not for this dtype.
        with graph.as_default():
            # Beside something that goes row by row before and after it.
            ys = (*ys, *[y + y for y in ys if y.dtype.is_floating])
        assert_same(ys, xs, arrays)


@together(("definition", "sample"), DIFFERENTIATED, parts=6)
def test_gradients_in_pieces(definition: type[Op], sample: Sample, small: None) -> None:
    for dtype in (None, float16):
        (one,) = [sample] if dtype is None else with_dtype([sample], dtype)
        arrays = draw(one, N)
        try:
            graph, xs, ys = build(definition, one, arrays)
        except sg.StopgradError:
            continue
        with graph.as_default():
            curved = [sg.tanh(y) * y for y in ys if y.type.differentiable]
            found = gradients(curved, xs, curved) if curved else []
        assert_same([*ys, *[g for g in found if g is not None]], xs, arrays)


# ---------------------------------------------------------------------------------------- random programs

ELEMENTWISE: tuple[Callable[..., Any], ...] = (
    *(sg.exp, sg.tanh, sg.sin, sg.sigmoid, sg.relu, sg.negative, sg.square, sg.gelu, sg.abs),
    *(lambda x: sg.where(x > 0.25, x, -x), lambda x: sg.cast(sg.cast(x, sg.float32), x.dtype)),
    *(lambda x: sg.cast(x > 0, x.dtype), lambda x: sg.cast(sg.cast(sg.floor(x), sg.int32) * 3, x.dtype) * x),
)
ROWS: tuple[Callable[..., Any], ...] = (
    *(sg.softmax, sg.log_softmax, sg.layer_norm, lambda x: sg.cumsum(x, -1), lambda x: sg.sort(x, -1)),
    *[
        lambda x, f=f: f(x, axis=-1, keepdims=True)
        for f in (sg.reduce_sum, sg.reduce_mean, sg.reduce_max, sg.reduce_logsumexp, sg.reduce_std)
    ],
    lambda x: sg.reduce_sum(x, axis=-1, keepdims=True),
    lambda x: sg.expand_dims(sg.reduce_sum(x, axis=-1), -1),
    lambda x: sg.one_hot(sg.argmax(x, axis=-1), x.shape[-1], dtype=x.dtype),
    lambda x: sg.expand_dims(
        sg.sparse_softmax_cross_entropy_with_logits(sg.argmax(sg.square(x), axis=-1), x), -1
    ),
    lambda x: sg.reshape(sg.tanh(sg.reshape(x, (x.shape[0], 1, -1))), x.shape),
)
ACROSS: tuple[Callable[..., Any], ...] = (
    *(sg.reduce_sum, sg.reduce_mean, lambda x: sg.reduce_max(x, axis=0)),
    *(lambda x: sg.reduce_sum(x, axis=0, keepdims=True), lambda x: sg.softmax(x, axis=0)),
    *(lambda x: x[::-1], lambda x: sg.matmul(x, sg.matmul(x, x, transpose_a=True)) * 0.01),
    *(lambda x: sg.transpose(sg.tanh(sg.transpose(x))), lambda x: sg.cumsum(x, 0) * 0.1),
)


def random_function(seed: int) -> Callable[..., Any]:
    """A function of a matrix, a row, a column and a scalar, made from a seed."""

    def function(x: Any, row: Any, column: Any, scalar: Any) -> Any:
        choose = random.Random(seed)
        seen = [x, row, column, scalar, x * row + column]
        for _ in range(choose.randrange(4, 20)):
            a, b = choose.choice(seen[4:]), choose.choice(seen)
            family = choose.choice((ELEMENTWISE, ELEMENTWISE, ROWS, ACROSS, None, None))
            if family is None:
                seen.append(choose.choice((sg.add, sg.multiply, sg.subtract, sg.maximum))(a, b))
            else:
                made = choose.choice(family)(a)
                seen.append(made if made.shape == x.shape else a * 0.5 + made)
        few = choose.sample(seen[4:], 2)
        return sg.reduce_mean(seen[-1] * 0.1) + sum(sg.reduce_sum(y * 0.01, axis=(0, 1)) for y in few), few

    return function


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_in_pieces(seed: int, small: None) -> None:
    generator = np.random.default_rng(seed)
    rows, columns = [(7, 130), (2, 300), (37, 9), (1, 50), (5, 5), (16, 1)][seed % 6]
    dtype = [np.float32, np.float64, np.float32, np.float16][seed % 4]
    shapes = [(rows, columns), (columns,), (rows, 1), ()]
    arrays = [generator.standard_normal(s).astype(dtype) for s in shapes]
    if seed % 5 == 0:
        arrays[0] = np.asfortranarray(arrays[0])
    if seed % 7 == 0:
        arrays[1] = np.broadcast_to(arrays[3], (columns,))
    f = sg.value_and_grad(random_function(seed), argnums=(0, 1, 2, 3), has_aux=True)
    expected = sg.function(f, engine="numpy", strict=True)(*arrays)
    found = sg.function(f, engine="numpy")(*arrays)
    assert bits(leaves(found)) == bits(leaves(expected))
    assert bits(leaves(f(*arrays))) == bits(leaves(at_once_as_a_whole(f, arrays)))


def leaves(tree: Any) -> list[Array]:
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, (tuple, list)) else [tree]


def at_once_as_a_whole(f: Callable[..., Any], arrays: Sequence[Array]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowwise, "LARGE", 2**60)
        return f(*arrays)


@pytest.mark.parametrize("seed", range(40))
def test_random_control_flow_in_pieces(seed: int, small: None) -> None:
    expression = made(seed)

    def f(x: Any, y: Any) -> Any:
        return sg.reduce_sum(evaluate(expression, [x, y], Stopgrad) * WEIGHTS)

    both = sg.value_and_grad(f, argnums=(0, 1))
    x, y = OFFSETS, OFFSETS[::-1].copy()
    expected = sg.function(both, engine="numpy", strict=True)(x, y)
    assert bits(leaves(sg.function(both, engine="numpy")(x, y))) == bits(leaves(expected))


@pytest.mark.parametrize("array", [np.zeros((0, 5)), np.zeros((1, 5)), np.zeros((5, 0)), np.zeros(())])
def test_no_rows_one_row_and_rows_of_nothing(array: Array, small: None) -> None:
    f = sg.function(lambda x: (sg.exp(x) + x, sg.reduce_sum(sg.tanh(x) * x)), engine="numpy")
    (first, second) = f(array)
    np.testing.assert_array_equal(first, np.exp(array) + array)
    assert second == 0


# ------------------------------------------------------------------------------------ what goes together


def regions_of(f: Callable[..., Any], *arrays: Array) -> list[list[str]]:
    """The types of the operations of each region of a function, without views of constants."""
    graph = sg.Graph()
    with graph.as_default():
        xs = [sg.placeholder(a.dtype, a.shape) for a in arrays]
        ys = leaves([f(*xs)])
    ready = prepare(ys, xs, {})
    return [[op.type for op in region.operations] for region in found_in(ready.inputs, ready.outputs)]


def test_a_softmax_with_its_gradient_is_one_region(small: None) -> None:
    def loss(x: Any, w: Any) -> Any:
        e = sg.exp(x - sg.stop_gradient(sg.reduce_max(x, axis=-1, keepdims=True)))
        return sg.reduce_sum(e / sg.reduce_sum(e, axis=-1, keepdims=True) * w)

    x = np.ones((4, 8), np.float32)
    assert len(regions_of(sg.value_and_grad(loss), x, x)) == 1


def test_what_is_needed_later_from_values_that_are_kept_is_computed_later(small: None) -> None:
    def f(x: Any, w: Any) -> Any:
        y = sg.tanh(x) * 2.0
        slope = 1.0 - y * y
        z = y @ w
        return sg.tanh(z) * sg.reduce_sum(z) * slope

    first, second = regions_of(f, np.ones((4, 4)), np.ones((4, 4)))
    assert first == ["Tanh", "Mul"]
    assert "Sub" in second


@pytest.mark.parametrize(
    ("f", "types"),
    [
        (lambda x: sg.softmax(x), ["Softmax"]),
        (lambda x: sg.exp(x), []),
        (lambda x: sg.gelu(sg.layer_norm(x)), ["LayerNorm", "Gelu"]),
        (lambda x: sg.softmax(x, axis=0), []),
        (lambda x: sg.exp(-sg.softmax(x, axis=0)), ["Neg", "Exp"]),
        (lambda x: sg.exp(x - sg.reduce_sum(x, axis=1, keepdims=True)), ["Sum", "Sub", "Exp"]),
        (lambda x: sg.exp(x - sg.reduce_sum(x, axis=0)), ["Sub", "Exp"]),
        (lambda x: sg.reduce_sum(sg.exp(x) * 2.0), ["Exp", "Mul"]),
        (lambda x: sg.exp(sg.one_hot(sg.argmax(x, axis=1), 6, dtype=x.dtype)), ["ArgMax", "OneHot", "Exp"]),
        (lambda x: sg.reshape(sg.exp(-x), (-1,)), ["Neg", "Exp"]),
        (lambda x: sg.transpose(sg.exp(-x)), ["Neg", "Exp"]),
    ],
)
def test_what_goes_row_by_row(f: Callable[..., Any], types: list[str], small: None) -> None:
    assert regions_of(f, np.ones((4, 6))) == ([types] if types else [])


def test_small_arrays_are_computed_as_a_whole() -> None:
    assert regions_of(lambda x: sg.exp(sg.tanh(x)), np.ones((64, 64))) == []
    assert regions_of(lambda x: sg.exp(sg.tanh(x)), np.ones((1024, 512))) == [["Tanh", "Exp"]]


def test_strict_computes_operation_by_operation(monkeypatch: Any, small: None) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(rowwise, "regions", lambda *given: asked.append(given) or [])
    x = np.ones((4, 4))
    sg.function(lambda x: sg.exp(sg.tanh(x)), engine="numpy", strict=True)(x)
    assert not asked
    sg.function(lambda x: sg.exp(sg.tanh(x)), engine="numpy")(x)
    assert len(asked) == 1


def test_memory_is_kept_from_the_first_large_region_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(rowwise, "_memory_is_kept", lambda: asked.append(True))
    f = sg.value_and_grad(lambda x: sg.reduce_sum(sg.tanh(x) * 2.0))
    f(np.ones((64, 64)))
    assert not asked
    f(np.ones((1024, 512)))
    assert asked


# ----------------------------------------------------------------------------------------------- threads


def several_threads(monkeypatch: pytest.MonkeyPatch, definition: type[Op]) -> set[int]:
    """Three threads compute pieces of one row. Returns those that have computed an operation."""
    monkeypatch.setattr(rowwise, "LARGE", 0)
    monkeypatch.setattr(rowwise, "PIECE", 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    seen: set[int] = set()

    def lower(xp: Any, x: Array) -> Array:
        seen.add(threading.get_ident())
        time.sleep(0.001)
        if (x == 7).any():
            raise ValueError("no seven")
        return xp.tanh(x)

    monkeypatch.setattr(definition, "lower", lower)
    return seen


def test_several_threads_compute_the_pieces_of_a_large_region(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = several_threads(monkeypatch, sg.ops.Tanh)
    x = np.linspace(-3.0, 3.0, 40).reshape(20, 2)
    value, slope = sg.value_and_grad(lambda x: sg.reduce_sum(sg.tanh(x) * 2.0))(x)
    assert len(seen) > 1
    np.testing.assert_array_equal(slope, 2.0 * (1 - np.square(np.tanh(x))))
    assert value == np.sum(np.tanh(x) * 2.0)


def test_an_error_in_a_piece_names_the_operation_and_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    several_threads(monkeypatch, sg.ops.Tanh)
    x = np.zeros((30, 2))
    x[4:] = 7
    f = sg.function(lambda x: sg.tanh(x, name="t") * 2.0, engine="numpy")
    with pytest.raises(sg.EngineError, match=r"could not compute .*'t'.*ValueError: no seven"):
        f(x)
    np.testing.assert_array_equal(f(np.ones((30, 2))), np.tanh(np.ones((30, 2))) * 2.0)


def test_numpy_warns_in_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    several_threads(monkeypatch, sg.ops.Tanh)
    with np.errstate(all="raise"):
        found = sg.value_and_grad(lambda x: sg.reduce_sum(sg.log(sg.tanh(x)) * 1.0))(np.zeros((20, 2)))
    assert found[0] == -np.inf


# ------------------------------------------------------------------------------------------------ memory

LAYERS = 50


def peak(f: Callable[..., Any], *arrays: Array) -> float:
    """How many arrays of the first one's size exist at once at most, beside the given ones."""
    f(*arrays)
    tracemalloc.start()
    try:
        f(*arrays)
        return tracemalloc.get_traced_memory()[1] / arrays[0].nbytes
    finally:
        tracemalloc.stop()


def chain(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        for _ in range(LAYERS):
            x = step(x)
        return sg.reduce_sum(x)

    return f


def test_immediate_transforms_keep_no_more_than_the_gradient_needs() -> None:
    x = np.ones((256, 256))  # As a whole.
    linear, curved = chain(lambda x: x * 1.01), chain(sg.tanh)
    assert peak(linear, x) < 3
    assert peak(sg.value_and_grad(linear), x) < 4
    assert peak(curved, x) < 3
    assert LAYERS <= peak(sg.value_and_grad(curved), x) < LAYERS + 5
    assert peak(lambda x: sg.vjp(linear, x)[1](1.0), x) < 4
    assert peak(lambda x: sg.jvp(linear, (x,), (x,)), x) < 5


@pytest.mark.slow
def test_pieces_keep_values_for_the_gradient_of_few_rows_only() -> None:
    x = np.ones((1024, 1024))
    curved = sg.value_and_grad(chain(sg.tanh))
    assert peak(curved, x) < 10
    assert peak(sg.function(curved, engine="numpy"), x) < 10
    assert peak(sg.function(curved, engine="numpy", strict=True), x) >= LAYERS
