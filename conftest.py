"""What doctests find without importing it; the tiers of tests; the user's cache folder left alone."""

from __future__ import annotations

import ast
import ctypes
import gc
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from stopgrad.errors import EngineError
from together import has_no_form, pytest_generate_tests as pytest_generate_tests

import stopgrad as sg
from stopgrad.engines.xla import stored
from stopgrad.engines.xla.compiler_options import compile_lowered

# Native code is built once for all runs of the tests; programs are compiled by each test that means to.
KEPT = Path(tempfile.gettempdir()) / "stopgrad-tests"
SOURCE = Path(__file__).parent / "src"
os.environ.setdefault("STOPGRAD_CACHE_DIR", str(KEPT))
os.environ["STOPGRAD_COMPILED"] = "0"
# All kernels, whether they pay on this machine or not.
os.environ.setdefault("STOPGRAD_NATIVE", "1")
# Meshes of devices are there in every process of the tests; what names none computes on the first.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
# For programs that are many, tiny and run once: half of the tests' time went into making them fast. Of plain
# tests, that is what JAX computes for comparison: the engine compiles as it does for users. Of slow ones, it
# is the engine's programs, too, but for tests of the last digits, with `users_compiler`. XLA_FLAGS="" asks
# for the users' compiler everywhere.
CHEAP_COMPILER = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
}
USERS_COMPILER = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
if tuple(map(int, version("jaxlib").split(".")[:3])) < (0, 11, 1):
    # Later ones do not know this flag, and end the process.
    CHEAP_COMPILER["xla_cpu_use_fusion_emitters"] = False
    USERS_COMPILER["xla_cpu_use_fusion_emitters"] = True
# Processes that tests start do not each compile the package, wherever it lies.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(KEPT / "bytecode"))


# What is no test is imported by the tests that need it; some need libraries that plain tests do not.
collect_ignore = ["tests/helpers"]
WHOLE = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)", re.MULTILINE)
"""The statement that marks all tests of a file."""
OTHER_TIERS = {"not slow": {"slow", "nightly"}, "slow": {"nightly"}}
"""By what is asked for with ``-m``: the marks of tests that are left out."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that has no test of the tier asked for is not imported: its libraries would take seconds."""
    tier = config.option.markexpr
    if collection_path.suffix != ".py" or tier not in OTHER_TIERS:
        return None
    if collection_path.is_relative_to(SOURCE):
        return True if tier == "slow" else None  # Examples are plain.
    return not OTHER_TIERS[tier].isdisjoint(marks_of_all(collection_path)) or None


def marks_of_all(file: Path) -> list[str]:
    """What all tests of a file are marked with."""
    text = file.read_text()
    line = WHOLE.search(text)
    if line is None:
        return []
    try:
        ast.parse(text[: line.end()])
    except SyntaxError:  # It stands within a text.
        return []
    return re.findall(r"\bpytest\.mark\.(\w+)", line[1])


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


def compiled_for_users(lowered: Any, options: Mapping[str, Any]) -> Any:
    """What the engine makes of a program, whatever ``XLA_FLAGS`` says."""
    return compile_lowered(lowered, {**USERS_COMPILER, **options})


@pytest.fixture
def users_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine compiles as it does for users."""
    monkeypatch.setattr(stored, "compile_lowered", compiled_for_users)


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
    if config.option.markexpr in ("slow", "not slow"):
        flags = [f"--{name}={str(value).lower()}" for name, value in CHEAP_COMPILER.items()]
        os.environ.setdefault("XLA_FLAGS", " ".join(flags))
    if config.option.markexpr == "not slow":
        stored.compile_lowered = compiled_for_users


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nightly tests run when they are asked for, whatever else they are; the longest come first."""
    if "nightly" not in config.option.markexpr:
        nightly = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Imports and tests stay: neither while they come nor afterwards is garbage sought among them.

    Tests call ``gc.collect()``, which would go through millions of objects each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
