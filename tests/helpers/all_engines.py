"""The engines that tests compare: all of the package's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from stopgrad import engines
from stopgrad.graph.graph import Output

ENGINES = ("numpy", "xla", "onnxruntime")
"""By name; the first is the reference."""

STYLES = ("immediate", *ENGINES)
"""The ways in which one and the same code is computed."""


def engines_where(plain: Sequence[str], names: Sequence[str] = ENGINES) -> list[Any]:
    """Parameters of a test: the *plain* ones in every run of the tests, the others among the slow ones."""
    return [name if name in plain else pytest.param(name, marks=pytest.mark.slow) for name in names]


each_engine = pytest.mark.parametrize("engine", engines_where(["numpy"]))
"""Of what does not depend on the engine; ``test_operations`` compares each operation's lowerings plainly."""
each_engine_plainly = pytest.mark.parametrize("engine", engines_where(["numpy", "xla"]))
"""Of what stands between users and engines."""
each_style = pytest.mark.parametrize("engine", engines_where(["immediate", "numpy"], STYLES))


def form_for(name: str) -> str:
    """The name under which a definition has its form for an engine."""
    return engines.ENGINES[name].form or name


def engines_for(outputs: Sequence[Output]) -> list[str]:
    """The engines that can compute these."""
    operations = outputs[0].op.graph.subgraph_to(outputs)
    return [name for name in ENGINES if engines.engine(name).unsupported(operations) is None]
