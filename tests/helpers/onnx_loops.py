"""Loops of ONNX: by a count, by a condition that tells the number of steps, and by one that is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def looped(count: str = "", condition: tuple[str, str, str] | None = None) -> Any:
    """A model that multiplies x by w as often as a count and a condition after each step allow."""
    op_type, *compared = condition or ("Identity", "go")
    nodes = [
        helper.make_node("Mul", ["s", "w"], ["s/new"]),
        helper.make_node("Add", ["k", "one"], ["k/new"]),
        helper.make_node(op_type, compared, ["go/new"]),
    ]
    number, state = ([], INT64), ([2], FLOAT)
    given = {"i": number, "go": ([], BOOL), "s": state, "k": number}
    made = {"go/new": ([], BOOL), "s/new": state, "k/new": number}
    infos = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in one.items()]
        for one in (given, made, {"x": state, "n": number}, {"y": state})
    ]
    body = helper.make_graph(nodes, "body", infos[0], infos[1])
    loop = helper.make_node("Loop", [count, "", "x", "zero"], ["y", "steps"], "loop", body=body)
    numbers = {"zero": 0, "one": 1, "five": 5}
    stored = [numpy_helper.from_array(np.array(value), name) for name, value in numbers.items()]
    stored.append(numpy_helper.from_array(np.float32([2, 3]), "w"))
    graph = helper.make_graph([loop], "model", infos[2], infos[3], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def doubling(counted: bool = False) -> Any:
    """s = s W until its largest element reaches a limit; or at most as often as an input says."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "W"], ["s2"]),
            helper.make_node("ReduceMax", ["s2"], ["m"], keepdims=0),
            helper.make_node("Less", ["m", "lim"], ["c2"]),
        ],
        "b",
        [info("i", INT64, []), info("c", BOOL, []), info("s", FLOAT, ["n", 2])],
        [info("c2", BOOL, []), info("s2", FLOAT, ["n", 2])],
    )
    stored = {"W": np.array([[1.1, 0.7], [0.8, 0.9]], np.float32), "lim": np.float32(9), "t": np.array(True)}
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count" if counted else "", "t", "x"], ["y"], "loop", body=body)],
        "g",
        [info("x", FLOAT, ["n", 2]), *([info("count", INT64, [])] if counted else [])],
        [info("y", FLOAT, ["n", 2])],
        [numpy_helper.from_array(np.asarray(a), k) for k, a in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def inside(what: str) -> Any:
    """The loop of :func:`doubling` in a branch of an ``If``, or in a loop that makes two steps."""
    model = doubling()
    info = helper.make_tensor_value_info
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    graph.node[0].output[0] = "inner"
    del graph.node[1:], graph.input[:], graph.output[:], graph.initializer[:]
    if what == "If":
        graph.name = "then"
        graph.output.append(info("inner", FLOAT, None))
        other = helper.make_graph(
            [helper.make_node("Neg", ["x"], ["neg"])], "else", [], [info("neg", FLOAT, None)]
        )
        node = helper.make_node("If", ["on"], ["y"], "branches", then_branch=graph, else_branch=other)
        model.graph.input.append(info("on", BOOL, []))
    else:
        graph.name = "outer"
        graph.node[0].input[2] = "state"
        graph.node.insert(0, helper.make_node("Mul", ["begin", "small"], ["state"]))
        graph.node.append(helper.make_node("Identity", ["going"], ["on"]))
        graph.input.extend([info("j", INT64, []), info("going", BOOL, []), info("begin", FLOAT, ["n", 2])])
        graph.output.extend([info("on", BOOL, []), info("inner", FLOAT, ["n", 2])])
        node = helper.make_node("Loop", ["two", "t", "x"], ["y"], "outer", body=graph)
        stored = {"two": np.array(2), "small": np.float32(0.125)}
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), k) for k, a in stored.items())
    del model.graph.node[:]
    model.graph.node.append(node)
    return model
