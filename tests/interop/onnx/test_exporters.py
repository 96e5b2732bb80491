"""What exporters of other frameworks write: values of the framework, its gradients, its weights.

PyTorch's two exporters have test_architectures.py, scikit-learn's converters test_classical.py, and tf2onnx,
whose files are stored, test_exported_by_keras.py and the GRU of test_loops.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytest.importorskip("onnx")

import stopgrad.onnx as sgo

RNG = np.random.default_rng(0)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def value_and_gradients(source: Any, x: Any) -> tuple[Any, dict[str, Any]]:
    """The first output, and the gradients of the sum of its squares by all weights."""
    loaded = sgo.load(source)
    (y,) = loaded.outputs.values()
    with loaded.graph.as_default():
        made = sg.gradients(sg.reduce_sum(sg.square(y)), list(loaded.parameters.values()))
    with sg.Session(loaded.graph, engine="numpy") as session:
        (place,) = loaded.inputs.values()
        value, *found = session.run([y, *made], {place: x})
    return value, dict(zip(loaded.parameters, found, strict=True))


def alike(found: dict[str, Any], expected: list[Any]) -> None:
    """Each gradient that is expected is one of those found, in its own layout or transposed."""
    assert len(found) == len(expected)
    for one in expected:
        scale = np.abs(one).max()
        assert any(
            np.allclose(np.squeeze(way), np.squeeze(one), rtol=1e-3, atol=1e-4 * scale)
            for dx in found.values()
            for way in (dx, np.transpose(dx))
            if np.squeeze(way).shape == np.squeeze(one).shape
        )


def test_jax2onnx() -> None:
    jax2onnx = pytest.importorskip("jax2onnx")
    import jax

    weights = [(RNG.normal(size=shape) * 0.5).astype(np.float32) for shape in ((4, 8), (8,), (8, 3))]
    x = RNG.normal(size=(5, 4)).astype(np.float32)

    def f(weights: Any, x: Any) -> Any:
        w, b, v = weights
        return jax.nn.softmax(jax.numpy.tanh(x @ w + b) @ v)

    value, found = value_and_gradients(jax2onnx.to_onnx(lambda x: f(weights, x), [(5, 4)]), x)
    np.testing.assert_allclose(value, f(weights, x), rtol=1e-5)
    alike(found, [np.asarray(g) for g in jax.grad(lambda w: (f(w, x) ** 2).sum())(weights)])


KERAS = """
import os, sys
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np, torch
keras.utils.set_random_seed(0)
layers = [
    keras.layers.Dense(5, activation="gelu"),
    keras.layers.LayerNormalization(),
    keras.layers.Dense(3, activation="softmax"),
]
model = keras.Sequential([keras.Input((4,)), *layers])
for w in model.weights:
    w.assign(w + 0.1 * keras.random.normal(w.shape))
x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
y = model(torch.tensor(x))
gradients = torch.autograd.grad((y * y).sum(), [w.value for w in model.trainable_variables])
np.savez(sys.argv[2], x=x, y=y.detach(), **{f"g{i}": g for i, g in enumerate(gradients)})
model.export(sys.argv[1], format="onnx", verbose=False)
"""


def test_keras_export(tmp_path: Path) -> None:
    for module in ("keras", "torch", "onnxscript"):
        pytest.importorskip(module)
    path, arrays = tmp_path / "m.onnx", tmp_path / "m.npz"
    run = subprocess.run(
        [sys.executable, "-c", KERAS, path, arrays], capture_output=True, text=True, check=False
    )
    if run.returncode and "keras/src/export" in run.stderr:
        pytest.skip("Keras's own exporter fails with this PyTorch")
    assert run.returncode == 0, run.stderr[-1000:]
    held = np.load(arrays)
    value, found = value_and_gradients(path, held["x"])
    np.testing.assert_allclose(value, held["y"], rtol=1e-4, atol=1e-5)
    alike(found, [held[f"g{i}"] for i in range(6)])
