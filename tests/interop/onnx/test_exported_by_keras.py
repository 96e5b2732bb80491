"""Models of Keras that tf2onnx has written: TensorFlow's values, its gradients, and its steps of training.

The files are stored (tests/helpers/onnx_exports_keras.py), so that TensorFlow is not needed. A GRU is in
test_loops.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import stopgrad.onnx as sgo

FOLDER = Path(__file__).parent / "exported"
Arrays = dict[str, np.ndarray[Any, Any]]


def gates(x: Any) -> Any:
    """From Keras's order of the gates, input, forget, cell and output, to that of ONNX."""
    i, f, c, o = np.split(x.T, 4)
    return np.concatenate([i, o, f, c])


def of_lstm(g: list[Any], held: Arrays) -> dict[str, Any]:
    bias = gates(g[2])
    return {
        "W0": gates(g[0])[None],
        "R0": gates(g[1])[None],
        "B0": np.concatenate([bias, bias])[None],  # ONNX has two, and adds them.
        "sequential_1/dense_1/Cast/ReadVariableOp:0": g[3],
        "sequential_1/dense_1/BiasAdd/ReadVariableOp:0": g[4],
    }


def of_convolutions(g: list[Any], held: Arrays) -> dict[str, Any]:
    """The norm stands as a product and a sum: y = m · x + s, with m = γ / σ and s = β + m · (bias − mean)."""
    bias, beta = g[3], g[5]
    scale = g[4] / held["inverse"] + held["mean"] * beta  # Of m alone, with s unchanged.
    first = "sequential_1_1/"
    return {
        f"{first}conv2d_1/convolution/ReadVariableOp:0": g[0].transpose(3, 2, 0, 1),
        f"{first}conv2d_1/Squeeze:0": g[1],
        f"{first}depthwise_conv2d_1/Squeeze:0": bias,
        f"{first}batch_normalization_1/batchnorm/mul:0": scale.reshape(1, -1, 1, 1),
        f"{first}conv2d_transpose_1/conv_transpose/ReadVariableOp:0": g[6].transpose(3, 2, 0, 1),
        f"{first}conv2d_transpose_1/Squeeze:0": g[7],
        f"{first}dense_1_1/Cast/ReadVariableOp:0": g[8],
        f"{first}dense_1_1/BiasAdd/ReadVariableOp:0": g[9],
        "(4, 1, 3, 3)": g[2].transpose(2, 3, 0, 1),
        "(1, 4, 1, 1)": beta.reshape(1, -1, 1, 1),
    }


MODELS: dict[str, Callable[[list[Any], Arrays], dict[str, Any]]] = {
    "lstm": of_lstm,
    "convolutions": of_convolutions,
}


def stored(name: str, key: str) -> tuple[Path, Arrays, dict[str, Any]]:
    """The file, its arrays, and TensorFlow's gradients in the file's layout."""
    held = dict(np.load(FOLDER / f"keras_{name}.npz"))
    gradients = [held[f"{key}{i}"] for i in range(len(held)) if f"{key}{i}" in held]
    return FOLDER / f"keras_{name}.onnx", held, MODELS[name](gradients, held)


def the_same_as(expected: dict[str, Any], found: dict[str, Any]) -> None:
    """Names that tf2onnx counts on are those with the prefix, or of constants of the same shape."""
    assert len(found) == len(expected)
    for name, x in found.items():
        key = next((key for key in (name, name.partition("__")[0], str(x.shape)) if key in expected), "")
        np.testing.assert_allclose(x, expected[key], rtol=1e-4, atol=1e-5 * np.abs(expected[key]).max())


@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_tensorflows(name: str) -> None:
    path, held, expected = stored(name, "g")
    model = sgo.load(path)
    ((_, x),), (y,) = model.inputs.items(), model.outputs.values()
    with model.graph.as_default():
        gradients = sg.gradients(sg.reduce_sum(sg.square(y)), list(model.parameters.values()))
    with sg.Session(model.graph, engine="numpy") as session:
        value, *found = session.run([y, *gradients], {x: held["x"]})
    np.testing.assert_allclose(value, held["y"], rtol=1e-5, atol=1e-6)
    the_same_as(expected, dict(zip(model.parameters, found, strict=True)))


@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_training_is_tensorflows(name: str, tmp_path: Path) -> None:
    path, held, expected = stored(name, "h")
    sgo.training(path, loss="mse", optimizer="sgd", folder=tmp_path / "t")
    trainer = sgo.Trainer(tmp_path / "t", threads=1)
    before = trainer.state
    loss = trainer.step(x=held["x"], labels=held["t"], learning_rate=0.5)
    assert loss == pytest.approx(float(held["loss"]), rel=1e-5)
    moved = {name: (x.astype(float) - trainer.state[name]) / 0.5 for name, x in before.items()}
    the_same_as(expected, {name: x for name, x in moved.items() if x.shape})
