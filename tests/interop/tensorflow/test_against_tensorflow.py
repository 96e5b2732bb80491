"""Random calls of operations, and whole networks, compared with the TensorFlow that is installed.

Where it is not, nothing is compared. ``STOPGRAD_CASES=20`` asks for so many cases of each operation.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest
from tensorflow_case import Random
from tensorflow_cases import FAMILIES
from tensorflow_compared import disagreements

pytestmark = pytest.mark.nightly

CASES = int(os.environ.get("STOPGRAD_CASES", "8"))
FIRST = 100
"""The seeds before this one are those of kept files."""


def _helper(name: str) -> Any:
    """A module of helpers that imports TensorFlow."""
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    return importlib.import_module(name)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_calls_of_operations_compute_the_numbers_and_gradients_of_tensorflow(family: str) -> None:
    written = _helper("tensorflow_runs").written
    found = []
    for op, make in FAMILIES[family].items():
        for seed in range(FIRST, FIRST + CASES):
            case = make(Random([seed, *op.encode()]))
            wrong = disagreements(written([case], seed), "numpy")
            found += [f"{op}, seed {seed}, {case.attributes}: {one}" for one in wrong]
    assert not found


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_of_random_calls_compute_them_on_onnxruntime(family: str) -> None:
    written = _helper("tensorflow_runs").written
    cases = [make(Random([seed, *op.encode()])) for op, make in FAMILIES[family].items() for seed in (50, 51)]
    assert not disagreements(written(cases), "onnxruntime")


@pytest.mark.parametrize("engine", ["numpy", "xla", "onnxruntime"])
@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50", "EfficientNetB0"])
def test_networks_of_their_real_width_compute_the_numbers_and_gradients_of_tensorflow(
    name: str, engine: str
) -> None:
    networks = _helper("tensorflow_networks")
    assert not disagreements(networks.network(networks.LARGE[name]), engine)
