"""Layers of ONNX models: values equal to onnxruntime's, gradients to finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_layers import LAYERS, Layer, fed, is_float, model_of

import stopgrad as sg
import stopgrad.onnx as sgo


def _found(layer: Layer, dtype: Any) -> list[Any]:
    found = sgo.load(model_of(layer, dtype))(**fed(layer, dtype))
    return list(found.values()) if isinstance(found, dict) else [found]


def _wanted(layer: Layer, dtype: Any) -> list[Any]:
    model, values = model_of(layer, dtype), fed(layer, dtype)
    if layer.reference == "onnx":
        return list(ReferenceEvaluator(model).run(None, values))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, values))


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@pytest.mark.parametrize("name", [name for name, layer in LAYERS.items() if layer.reference])
def test_values_are_those_of_the_reference(name: str) -> None:
    layer = LAYERS[name]
    reference = onnx if layer.reference == "onnx" else onnxruntime
    if layer.since and _release(reference.__version__) < _release(layer.since):
        pytest.skip(f"{reference.__name__} computes it otherwise before {layer.since}")
    found, wanted = _found(layer, np.float32), _wanted(layer, np.float32)
    assert len(found) == len(wanted)
    for y, expected in zip(found, wanted, strict=True):
        assert y.dtype == expected.dtype
        np.testing.assert_allclose(y, expected, layer.rtol, 2e-5)


def _weights(shape: Any, dtype: Any) -> Any:
    """Some numbers, so that no result counts as another."""
    return np.cos(np.arange(int(np.prod(shape)))).reshape(shape).astype(dtype)


def _checked(layer: Layer) -> list[int]:
    given = range(len(layer.inputs)) if layer.smooth is None else layer.smooth
    return [i for i in given if is_float(layer.inputs[i]) and i not in layer.known]


SMOOTH = [name for name, layer in LAYERS.items() if _checked(layer)]


# A quarter of them: differences take a third of a second each.
@pytest.mark.parametrize(
    "name",
    [name if i % 4 == 0 else pytest.param(name, marks=pytest.mark.slow) for i, name in enumerate(SMOOTH)],
)
def test_gradients_are_those_of_differences(name: str) -> None:
    layer = LAYERS[name]
    dtype = np.float64 if layer.double else np.float32
    model, values = sgo.load(model_of(layer, dtype)), fed(layer, dtype)
    names = [f"x{i}" for i in _checked(layer)]

    def loss(*xs: Any) -> Any:
        found = model(**(values | dict(zip(names, xs, strict=True))))
        ys = list(found.values()) if isinstance(found, dict) else [found]
        parts = [y for y in ys if y.dtype in (sg.float64, sg.float32, np.float64, np.float32)]
        return sg.add_n([sg.reduce_sum(y * _weights(y.shape, dtype)) for y in parts])

    sg.check_gradients(loss, *(values[x] for x in names), argnums=tuple(range(len(names))), modes="reverse")


@pytest.mark.nightly
@pytest.mark.parametrize("name", LAYERS)
def test_xla_computes_the_same(name: str) -> None:
    layer = LAYERS[name]
    model, values = sgo.load(model_of(layer, np.float32)), fed(layer, np.float32)
    made = sg.function(lambda given: model(**given), engine="xla")(values)
    made = list(made.values()) if isinstance(made, dict) else [made]
    for y, expected in zip(made, _found(layer, np.float32), strict=True):
        np.testing.assert_allclose(y, expected, 1e-4, 2e-5)
