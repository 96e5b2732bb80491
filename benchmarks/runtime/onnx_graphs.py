"""Values and gradients written by hand in ONNX's operators, for the libraries that run it."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from runtime.problems import ATTACKS, RATE, REACH, STRIDE, Data, leaves

OPSET, IR = 18, 10
UNWRITTEN = "derives nothing itself; gradients are written by hand for S1, S2, S3 and S7"
"""Why a library that runs these models has no other rows."""


class Writer:
    """A model in the making; names stand for tensors."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[Any, Any] = {}
        self.inputs: dict[str, Any] = {}

    def __getattr__(self, operator: str) -> Any:
        """Every operator is a method that adds a node and gives the name of its result."""
        if operator.startswith("_"):
            raise AttributeError(operator)

        def add(*inputs: Any, **attributes: Any) -> str:
            result = f"t{len(self.nodes)}"
            names = [self.constant(x) if not isinstance(x, str) else x for x in inputs]
            self.nodes.append(helper.make_node(operator, names, [result], **attributes))
            return result

        return add

    def input(self, array: Any) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = array
        return name

    def constant(self, value: Any) -> str:
        array = np.asarray(value, np.float32 if isinstance(value, float) else None)
        key = (array.tobytes(), array.dtype.str, array.shape)
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, f"c{len(self.constants)}")
        return self.constants[key].name

    def model(self, outputs: list[str]) -> bytes:
        kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
        inputs = [
            helper.make_tensor_value_info(name, kinds[array.dtype], array.shape)
            for name, array in self.inputs.items()
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "row", inputs, results, [*self.constants.values()])
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR).SerializeToString()


ROWS = np.array([-1], np.int64)
FIRST = np.array([0], np.int64)


def softmax_loss(g: Writer, data: Data) -> list[str]:
    x, w = g.input(data["x"]), g.input(data["w"])
    e = g.Exp(g.Sub(x, g.ReduceMax(x, ROWS)))
    p = g.Div(e, g.ReduceSum(e, ROWS))
    expected = g.ReduceSum(g.Mul(w, p), ROWS)
    return [g.ReduceSum(expected, keepdims=0), g.Mul(p, g.Sub(w, expected))]


def entropy_and_slope(g: Writer, x: str, labels: str, batch: int) -> list[str]:
    z = g.Sub(x, g.ReduceMax(x, ROWS))
    e = g.Exp(z)
    total = g.ReduceSum(e, ROWS)
    chosen = g.Unsqueeze(labels, np.array([1], np.int64))
    losses = g.Sub(g.Log(total), g.GatherElements(z, chosen, axis=1))
    hits = np.full((batch, 1), -1.0 / batch, np.float32)
    slope = g.ScatterElements(
        g.Mul(e, g.Div(1.0 / batch, total)), chosen, g.constant(hits), axis=1, reduction="add"
    )
    return [g.ReduceMean(losses, keepdims=0), slope]


def cross_entropy(g: Writer, data: Data) -> list[str]:
    x, labels = g.input(data["x"]), g.input(data["labels"].astype(np.int64))
    return entropy_and_slope(g, x, labels, len(data["x"]))


class Network:
    """An MLP with relu, forwards and backwards."""

    def __init__(self, g: Writer, params: list[tuple[str, str]], labels: str, batch: int) -> None:
        self.g, self.params, self.labels, self.batch = g, params, labels, batch

    def forward(self, x: str) -> tuple[list[str], str, str]:
        """What goes into each layer, the loss, and the slope at the last result."""
        inputs = [x]
        for w, b in self.params[:-1]:
            inputs.append(self.g.Relu(self.g.Gemm(inputs[-1], w, b)))
        w, b = self.params[-1]
        loss, slope = entropy_and_slope(self.g, self.g.Gemm(inputs[-1], w, b), self.labels, self.batch)
        return inputs, loss, slope

    def back(self, i: int, slope: str, inputs: list[str]) -> str:
        """The slope before layer i."""
        slope = self.g.Gemm(slope, self.params[i][0], transB=1)
        return self.g.Where(self.g.Greater(inputs[i], 0.0), slope, 0.0) if i else slope

    def slope_at_input(self, x: str) -> str:
        inputs, _, slope = self.forward(x)
        for i in reversed(range(len(self.params))):
            slope = self.back(i, slope, inputs)
        return slope

    def step(self, x: str) -> list[str]:
        g = self.g
        inputs, loss, slope = self.forward(x)
        new: list[str] = []
        for i in reversed(range(len(self.params))):
            w, b = self.params[i]
            # One product subtracts the gradient as well.
            new += [
                g.Gemm(inputs[i], slope, w, transA=1, alpha=-RATE),
                g.Sub(b, g.Mul(RATE, g.ReduceSum(slope, FIRST, keepdims=0))),
            ]
            if i:
                slope = self.back(i, slope, inputs)
        return [loss, *reversed(new)]  # b before w, as sorted keys have it.


def network(g: Writer, data: Data) -> tuple[Network, str]:
    params = [(g.input(layer["w"]), g.input(layer["b"])) for layer in data["params"]]
    x, labels = g.input(data["x"]), g.input(data["labels"].astype(np.int64))
    return Network(g, params, labels, len(data["x"])), x


def mlp(g: Writer, data: Data) -> list[str]:
    net, x = network(g, data)
    return net.step(x)


def pgd(g: Writer, data: Data) -> list[str]:
    net, x = network(g, data)
    low, high = g.Max(g.Sub(x, REACH), 0.0), g.Min(g.Add(x, REACH), 1.0)
    found = x
    for _ in range(ATTACKS):
        found = g.Add(found, g.Mul(STRIDE, g.Sign(net.slope_at_input(found))))
        found = g.Min(g.Max(found, low), high)
    return net.step(found)


def call(g: Writer, data: Data) -> list[str]:
    total, *rest = [g.input(x) for x in leaves(data["arguments"])]
    for x in rest:
        total = g.Add(total, x)
    return [g.Mul(total, 2.0)]


def session(g: Writer, data: Data) -> list[str]:
    return call(g, {"arguments": [data["x"]]})


KINDS = {f.__name__: f for f in (softmax_loss, cross_entropy, mlp, pgd, call, session)}


def written(kind: str, data: Data) -> tuple[bytes, dict[str, Any]]:
    """The model of a row, and what it is fed."""
    g = Writer()
    return g.model(KINDS[kind](g, data)), g.inputs
