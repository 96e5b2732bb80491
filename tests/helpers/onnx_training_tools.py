"""Models for tests of training graphs, and the same in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

import stopgrad as sg
from stopgrad.interop.imported import Model

FLOAT = onnx.TensorProto.FLOAT


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray[Any, Any]:
    """Numbers from a normal distribution."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def scaled(shape: list[Any], dtype: Any = np.float32, act: Any = None) -> Model:
    """A model that multiplies what it is given, [batch, *shape], by a weight; with an activation behind."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(np.dtype(dtype).name, ["batch", *shape], name="x")
        w = sg.parameter(np.random.default_rng(1).uniform(0.5, 1.5, shape).astype(dtype), name="w")
        y = x * w if act is None else act(x * w)
    return model_of(graph, {"x": x}, {"y": y}, {"w": w})


def model_of(graph: Any, inputs: Any, outputs: Any, parameters: Any) -> Model:
    """An imported program, without an importer."""
    return Model(
        graph, inputs, outputs, parameters, leaves=lambda args, kwargs: args, rebuild=lambda values: values[0]
    )


WEIGHTS = {"enc.weight": (4, 8), "enc.bias": (8,), "mid.weight": (8, 8), "mid.bias": (8,)} | {
    "head.weight": (8, 3),
    "head.bias": (3,),
}


def mlp(path: Path, last: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """Write a network of three layers as ONNX; returns its weights.

    Its parameters are ``enc.weight`` ... ``head.bias``, its nodes ``/enc/MatMul`` ... ``/head/Add``.
    """
    weights = {name: normal(*shape, seed=i, scale=0.4) for i, (name, shape) in enumerate(WEIGHTS.items())}
    nodes, x = [], "x"
    for layer in ("enc", "mid", "head"):
        nodes.append(node("MatMul", [x, f"{layer}.weight"], f"{layer}_m", f"/{layer}/MatMul"))
        out = f"{layer}_a" if layer != "head" or last else "logits"
        nodes.append(node("Add", [f"{layer}_m", f"{layer}.bias"], out, f"/{layer}/Add"))
        x = f"{layer}_r"
        if layer != "head":
            nodes.append(node("Relu", [out], x, f"/{layer}/Relu"))
    if last:
        nodes.append(node(last, ["head_a"], "logits", f"/{last}"))
    write(path, nodes, {"x": ["batch", 4]}, {"logits": ["batch", 3]}, weights)
    return weights


def node(op_type: str, inputs: list[str], output: str | list[str], name: str = "", **attributes: Any) -> Any:
    """A node of ONNX."""
    return helper.make_node(
        op_type, inputs, [output] if isinstance(output, str) else output, name, **attributes
    )


def write(
    path: Path,
    nodes: list[Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    weights: Mapping[str, Any],
    opset: int = 18,
    dtype: int = FLOAT,
) -> Any:
    """Write a model whose inputs and outputs are floats, or of another dtype."""

    def infos(named: Mapping[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(name, dtype, shape) for name, shape in named.items()]

    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "model", infos(inputs), infos(outputs), stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return model


class Twin(torch.nn.Module):
    """The network of :func:`mlp` in PyTorch, with the same names."""

    def __init__(self, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
        super().__init__()
        self.weights = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.weights
        for layer in ("enc", "mid", "head"):
            x = x @ w[f"{layer}.weight"] + w[f"{layer}.bias"]
            x = torch.relu(x) if layer != "head" else x
        return x


def batches(count: int, seed: int = 7) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Batches of examples and labels for :func:`mlp`; not all of one size."""
    random = np.random.default_rng(seed)
    sizes = [6 if i % 5 else 3 for i in range(count)]
    return [(random.normal(size=(n, 4)).astype(np.float32), random.integers(0, 3, n)) for n in sizes]
