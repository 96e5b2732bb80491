"""The engines that tests compare: all of the package's."""

from __future__ import annotations

import pytest

ENGINES = ("numpy", "xla", "onnxruntime")
"""By name; the first is the reference."""

STYLES = ("immediate", *ENGINES)
"""The ways in which one and the same code is computed."""

each_engine = pytest.mark.parametrize("engine", ENGINES)
each_style = pytest.mark.parametrize("engine", STYLES)


def form_for(engine: str) -> str:
    """The name under which a definition has its form for an engine."""
    return "onnx" if engine == "onnxruntime" else engine
