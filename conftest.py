"""What doctests find without importing it; the tiers of tests; the user's cache folder left alone."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from stopgrad.errors import EngineError
from together import has_no_form, pytest_generate_tests as pytest_generate_tests

import stopgrad as sg

# Native code is built once for all runs of the tests; programs are compiled by each test that means to.
KEPT = Path(tempfile.gettempdir()) / "stopgrad-tests"
os.environ.setdefault("STOPGRAD_CACHE_DIR", str(KEPT))
os.environ["STOPGRAD_COMPILED"] = "0"
# Meshes of devices are there in every process of the tests; what names none computes on the first.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
# Processes that tests start do not each compile the package, wherever it lies.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(KEPT / "bytecode"))


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["sg"] = sg
    doctest_namespace["np"] = np


@pytest.fixture(autouse=True, scope="module")
def _free_memory_goes_back() -> Iterator[None]:
    """XLA's compiler leaves much freed memory with its threads: without this, 1.3 GB of 1.8 after a third."""
    yield
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip what the engine of a test cannot compute since ONNX has no form for it.

    Which operations those are, and why, ``tests/engines/onnxruntime/test_operations_as_models.py`` compares.
    """
    try:
        yield
    except EngineError as error:
        if "onnxruntime" not in item.name or not has_no_form(error):
            raise
        pytest.skip(str(error))


def pytest_configure(config: pytest.Config) -> None:
    """Plain and slow tests draw the same every time; nightly ones anew, and what they find is tried again."""
    hypothesis.settings.register_profile("same", derandomize=True, database=None)
    if "nightly" not in config.option.markexpr:
        hypothesis.settings.load_profile("same")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nightly tests run when they are asked for, whatever else they are."""
    if "nightly" not in config.option.markexpr:
        nightly = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
