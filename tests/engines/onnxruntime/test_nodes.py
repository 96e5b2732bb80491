"""Operations as ONNX has them, where numbers are large or of a kind that is rarely met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import Nodes
from stopgrad.engines.onnxruntime.nodes.program import LATEST

LARGE = np.array([[2**53, 1], [2**40, -3]])
ENDS = np.array([3], np.uint64), np.array([2**64 - 1], np.uint64)
CHOSEN: Any = lambda index, x: sg.switch(
    index, [lambda: x + 1.0, lambda: x * 2.0, lambda: sg.square(x), lambda: -x]
)
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "a sum of integers beyond 2⁵³": (lambda x: sg.reduce_sum(x, axis=1), [LARGE]),
    "a sum of integers beyond 2⁶³": (lambda x: sg.reduce_sum(x * 2**9), [LARGE]),
    "the last of four branches": (CHOSEN, [np.array(9), np.arange(3.0)]),
    "the first of four branches": (CHOSEN, [np.array(-1), np.arange(3.0)]),
    "the third of four branches": (CHOSEN, [np.array(2), np.arange(3.0)]),
    "a block that begins at an unsigned number": (
        lambda x, at: sg.dynamic_slice(x, at, [2]),
        [np.arange(5.0), ENDS[0]],
    ),
    "a block that would begin beyond the end": (
        lambda x, at: sg.dynamic_slice(x, at, [2]),
        [np.arange(5.0), ENDS[1]],
    ),
}


@pytest.mark.parametrize(("function", "operands"), CASES.values(), ids=CASES)
def test_values_are_numpys(function: Callable[..., Any], operands: list[Any]) -> None:
    found, expected = (sg.function(function, engine=engine)(*operands) for engine in ("onnxruntime", "numpy"))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("ksize", "strides", "pads"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0)])
def test_the_gradient_of_max_pooling_is_pytorchs_without_positions(
    ksize: int, strides: int, pads: int
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (2, 3, 9, 7)).astype(np.float32)  # Many elements tie.
    x[0, 0, 0] = -np.inf
    theirs = torch.tensor(x, requires_grad=True)
    y = torch.nn.functional.max_pool2d(theirs, ksize, strides, pads)
    g = rng.integers(-9, 9, tuple(y.shape)).astype(np.float32)
    y.backward(torch.tensor(g))
    with sg.Graph().as_default() as graph:
        fed = [sg.placeholder(sg.float32, [None] * 4, name=name) for name in ("x", "g")]
        padding = "VALID" if not pads else [(pads, pads)] * 2
        pooled = sg.max_pool2d(fed[0], ksize, strides, padding, "NCHW")
        (found,) = sg.gradients(pooled, [fed[0]], grad_ys=[fed[1]])
        model = sgo.to_model({"found": found}, dict(zip("xg", fed, strict=True)))
    assert all(len(node.output) == 1 for node in model.graph.node if node.op_type == "MaxPool")
    with sg.Session(graph, engine="onnxruntime") as session:
        np.testing.assert_array_equal(session.run(found, dict(zip(fed, (x, g), strict=True))), theirs.grad)


@pytest.mark.parametrize(
    ("channels", "ksize", "strides", "pads", "dilation"),
    [(3, 3, 1, 1, 1), (9, 3, 2, 1, 1), (3, 2, 1, 0, 3), (9, 1, 2, 0, 1), (3, 7, 1, 3, 1), (9, 5, 2, 2, 1)],
)
@pytest.mark.parametrize("batch", [4, None], ids=["four", "symbolic"])
def test_the_gradient_of_filters_is_pytorchs(
    channels: int, ksize: int, strides: int, pads: int, dilation: int, batch: int | None
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, channels, 20, 18)), rng.normal(size=(5, channels, ksize, ksize))
    x, w = x.astype(np.float32), w.astype(np.float32)
    theirs = torch.tensor(w, requires_grad=True)
    y = torch.nn.functional.conv2d(torch.tensor(x), theirs, None, strides, pads, dilation)
    g = rng.normal(size=tuple(y.shape)).astype(np.float32)
    y.backward(torch.tensor(g))
    with sg.Graph().as_default() as graph:
        given = sg.placeholder(sg.float32, [batch, channels, 20, 18], name="x")
        filters = sg.parameter(w.transpose(2, 3, 1, 0), name="w")
        made = sg.conv2d(given, filters, strides, [(pads, pads)] * 2, "NCHW", dilation)
        seed = sg.placeholder(sg.float32, made.shape, name="g")
        (found,) = sg.gradients(made, [filters], grad_ys=[seed])
        types = [node.op_type for node in sgo.to_model({"found": found}, {"x": given, "g": seed}).graph.node]
    assert ("MatMul" in types) == (channels == 9 or ksize < 7), "all but large windows of few channels"
    with sg.Session(graph, engine="onnxruntime") as session:
        value = session.run(found, {given: x, seed: g})
    np.testing.assert_allclose(value.transpose(3, 2, 0, 1), theirs.grad, rtol=1e-4, atol=1e-4)


def test_what_is_expanded_only_for_an_operator_is_not() -> None:
    rng = np.random.default_rng(0)
    row, x = rng.normal(size=(1, 5)).astype(np.float32), rng.normal(size=(3, 5)).astype(np.float32)
    with sg.Graph().as_default() as graph:
        given, wide = (
            sg.placeholder(sg.float32, ["n", 5], name="x"),
            sg.placeholder(sg.float32, [1, 5], name="r"),
        )
        expanded = sg.broadcast_to(wide, given.shape)
        made = {"one": expanded - given, "both": expanded * expanded}
        counts = {}
        for name, y in made.items():
            nodes = sgo.to_model({name: y}, {"x": given, "r": wide}).graph.node
            counts[name] = [node.op_type for node in nodes].count("Expand")
    assert counts == {"one": 0, "both": 1}, "where nothing else has the size"
    with sg.Session(graph, engine="onnxruntime") as session:
        one, both = session.run(list(made.values()), {given: x, wide: row})
    np.testing.assert_array_equal(one, row - x)
    np.testing.assert_array_equal(both, np.broadcast_to(row * row, x.shape))


def test_a_scalar_has_as_many_axes_as_one_by_one_filters() -> None:
    filters = np.arange(64 * 32, dtype=np.float32).reshape(64, 32, 1, 1)
    with sg.Graph().as_default() as graph:
        w, rate = (
            sg.placeholder(sg.float32, filters.shape, name="w"),
            sg.placeholder(sg.float32, [], name="s"),
        )
        made = w - rate
        nodes = sgo.to_model({"made": made}, {"w": w, "s": rate}).graph.node
    assert [node.op_type for node in nodes] == ["Reshape", "Sub"]
    with sg.Session(graph, engine="onnxruntime") as session:
        np.testing.assert_array_equal(session.run(made, {w: filters, rate: np.float32(3)}), filters - 3)


def test_python_numbers_take_the_dtype_beside_them_unless_that_is_of_a_lesser_kind() -> None:
    common = Writing(Nodes(LATEST)).common
    kinds: list[tuple[list[Any], Any]] = [
        ([np.dtype(np.int8), True, 300], np.int8),
        ([np.dtype(bfloat16), True, 1, 1.5], bfloat16),
        ([np.dtype(np.float32), 1e300], np.float32),
        ([1.5, np.dtype(np.float16)], np.float16),
        ([np.dtype(bool), False], bool),
        ([np.dtype(bool), 1], np.int64),
        ([np.dtype(np.int32), 0.5], np.float64),
        ([np.dtype(np.uint8), 0.5], np.float64),
        ([np.dtype(np.int32), np.dtype(np.float32), 2], np.float64),
        ([True, 2], np.int64),
    ]
    for operands, expected in kinds:
        assert common(*operands) == expected, operands
