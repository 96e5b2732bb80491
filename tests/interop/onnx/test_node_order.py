"""Files whose nodes are out of order, which ONNX Runtime runs and converters write."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

import stopgrad.onnx as sgo

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


def info(name: str, kind: int = T.FLOAT, shape: Any = ("n", 2)) -> Any:
    return h.make_tensor_value_info(name, kind, list(shape))


def model(nodes: list[Any], functions: tuple[Any, ...] = (), more: tuple[Any, ...] = ()) -> Any:
    stored = [numpy_helper.from_array(np.array([[1, 2], [3, 4]], np.float32), "w")]
    graph = h.make_graph(nodes, "g", [info("x"), *more], [info("y")], stored)
    imports = [h.make_opsetid("", 18), h.make_opsetid("own", 1)]
    return h.make_model(graph, opset_imports=imports, ir_version=9, functions=list(functions))


def chain() -> list[Any]:
    return [
        h.make_node("MatMul", ["x", "w"], ["a"]),
        h.make_node("Exp", ["a"], ["b"]),
        h.make_node("Add", ["a", "b"], ["c"]),
        h.make_node("Tanh", ["c"], ["d"]),
        h.make_node("Mul", ["d", "b"], ["y"]),
    ]


def value_and_gradient(proto: Any) -> list[Any]:
    found = sgo.load(proto)
    with found.graph.as_default():
        loss = sg.reduce_sum(found.outputs["y"])
        gradient = sg.gradients(loss, found.parameters["w"])[0]
    with sg.Session(found.graph, engine="numpy") as session:
        return [session.run(y, {found.inputs["x"]: X}) for y in (found.outputs["y"], gradient)]


def test_any_order_gives_the_same_values_and_gradients() -> None:
    right = value_and_gradient(model(chain()))
    for seed in range(20):
        nodes = chain()
        random.Random(seed).shuffle(nodes)
        for a, b in zip(right, value_and_gradient(model(nodes)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_runtime_runs_them_with_the_same_values() -> None:
    ort = pytest.importorskip("onnxruntime")
    proto = model(chain()[::-1])
    (theirs,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": X})
    np.testing.assert_allclose(sgo.load(proto)(X), theirs, rtol=1e-6)


def test_what_the_float16_converter_writes() -> None:
    ort = pytest.importorskip("onnxruntime")
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    proto = float16.convert_float_to_float16(model(chain()), keep_io_types=True)
    (theirs,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": X})
    np.testing.assert_allclose(sgo.load(proto)(X), theirs, rtol=1e-2, atol=1e-2)


def test_the_model_that_was_given_is_not_changed() -> None:
    proto = model(chain()[::-1])
    before = proto.SerializeToString()
    sgo.load(proto)
    assert proto.SerializeToString() == before


def test_nodes_in_graphs_inside_of_nodes_and_what_these_read_from_around() -> None:
    def branch() -> Any:
        nodes = [h.make_node("Mul", ["t", "late"], ["o"]), h.make_node("Exp", ["x"], ["t"])]
        return h.make_graph(nodes, "b", [], [info("o")])

    choice = h.make_node("If", ["on"], ["y"], then_branch=branch(), else_branch=branch())
    late = h.make_node("MatMul", ["x", "w"], ["late"])
    proto = model([choice, late], more=(info("on", T.BOOL, ()),))
    found = sgo.load(proto)(X, np.array(True))
    np.testing.assert_allclose(found, np.exp(X) * (X @ [[1, 2], [3, 4]]), rtol=1e-6)


def test_a_name_that_a_branch_defines_itself_makes_no_cycle() -> None:
    branch = h.make_graph([h.make_node("Exp", ["x"], ["inner"])], "b", [], [info("inner")])
    other = h.make_graph([h.make_node("Exp", ["x"], ["own"])], "b", [], [info("own")])
    nodes = [
        h.make_node("If", ["on"], ["a"], then_branch=branch, else_branch=other),
        h.make_node("Identity", ["a"], ["inner"]),
        h.make_node("Identity", ["inner"], ["y"]),
    ]
    proto = model(nodes, more=(info("on", T.BOOL, ()),))
    np.testing.assert_allclose(sgo.load(proto)(X, np.array(True)), np.exp(X), rtol=1e-6)


def test_nodes_of_functions() -> None:
    nodes = [h.make_node("Exp", ["t"], ["o"]), h.make_node("Add", ["i", "i"], ["t"])]
    function = h.make_function("own", "F", ["i"], ["o"], nodes, [h.make_opsetid("", 18)])
    proto = model([h.make_node("F", ["x"], ["y"], domain="own")], (function,))
    np.testing.assert_allclose(sgo.load(proto)(X), np.exp(2 * X), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_cycles_are_named(count: int) -> None:
    nodes = [h.make_node("Add", ["x", f"v{(i + 1) % count}"], [f"v{i}"], f"n{i}") for i in range(count)]
    nodes.append(h.make_node("Identity", ["v0"], ["y"]))
    with pytest.raises(sg.FileError, match="nodes form a cycle: Add 'n0' reads from Add 'n") as caught:
        sgo.load(model(nodes))
    assert len(str(caught.value)) < 400


def test_a_cycle_through_a_branch_is_named() -> None:
    branch = h.make_graph([h.make_node("Exp", ["later"], ["o"])], "b", [], [info("o")])
    nodes = [
        h.make_node("If", ["on"], ["a"], "choice", then_branch=branch, else_branch=branch),
        h.make_node("Neg", ["a"], ["later"], "last"),
        h.make_node("Identity", ["a"], ["y"]),
    ]
    with pytest.raises(sg.FileError, match="cycle: If 'choice' reads from Neg 'last' reads from If 'choice'"):
        sgo.load(model(nodes, more=(info("on", T.BOOL, ()),)))


def test_a_long_chain_in_reverse_is_sorted_quickly() -> None:
    nodes = [h.make_node("Neg", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(4000)]
    nodes.append(h.make_node("Identity", ["v4000"], ["y"]))
    from_bytes = onnx.load_from_string(model(nodes[::-1]).SerializeToString())
    np.testing.assert_array_equal(sgo.load(from_bytes)(X), X)
