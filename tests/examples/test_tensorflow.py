"""The example that looks at graphs of TensorFlow's: what it says of them is so."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "examples" / "tensorflow" / "softmax.py"


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("tensorflow_softmax", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_three_graphs_have_one_gradient_which_the_stop_makes_as_small_as_the_first(example: Any) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    g = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    counts = []
    for name in example.GRAPHS:
        dx, count = example.gradient(example.load(name), x, g)
        np.testing.assert_allclose(dx, p * (g - (p * g).sum(1, keepdims=True)), atol=1e-6)
        counts.append(count)
    assert counts[2] == counts[0] < counts[1]
