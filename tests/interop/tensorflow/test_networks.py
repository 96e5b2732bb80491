"""Frozen Keras networks compute TensorFlow's values, and its gradients of inputs and weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorflow_case import Written
from tensorflow_compared import disagreements

KEPT = Path(__file__).parent / "networks"
"""Written by ``tests/helpers/tensorflow_networks.py``."""

NETWORKS = sorted(path.stem for path in KEPT.glob("*.xz"))


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_computes_the_numbers_and_gradients_of_tensorflow(network: str) -> None:
    assert not disagreements(Written.load(KEPT / f"{network}.xz"), "numpy")


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_computes_them_on_onnxruntime(network: str) -> None:
    assert not disagreements(Written.load(KEPT / f"{network}.xz"), "onnxruntime")


QUICK = ("embedding", "lstm")
"""Some that XLA compiles in a few seconds."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [pytest.param(n, marks=pytest.mark.nightly if n not in QUICK else ()) for n in NETWORKS]
)
def test_a_network_computes_them_on_xla(network: str) -> None:
    assert not disagreements(Written.load(KEPT / f"{network}.xz"), "xla")
