"""The rules for TensorFlow's operations give its values and its gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorflow_case import Written
from tensorflow_cases import FAMILIES
from tensorflow_compared import disagreements

KEPT = Path(__file__).parent / "families"
"""Written by ``tests/helpers/tensorflow_families.py``."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_operations_computes_the_numbers_and_gradients_of_tensorflow(family: str) -> None:
    assert not disagreements(Written.load(KEPT / f"{family}.xz"), "numpy")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_operations_computes_them_on_onnxruntime(family: str) -> None:
    assert not disagreements(Written.load(KEPT / f"{family}.xz"), "onnxruntime")


QUICK = ("generators", "losses", "normalizations")
"""The families that XLA compiles in a few seconds."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.nightly if f not in QUICK else ()) for f in FAMILIES]
)
def test_a_family_of_operations_computes_them_on_xla(family: str) -> None:
    assert not disagreements(Written.load(KEPT / f"{family}.xz"), "xla")
