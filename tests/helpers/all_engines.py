"""The engines that tests compare: all of the package's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stopgrad import engines
from stopgrad.graph.graph import Output

ENGINES = ("numpy", "xla", "onnxruntime")
"""By name; the first is the reference."""

STYLES = ("immediate", *ENGINES)
"""The ways in which one and the same code is computed."""

each_engine = pytest.mark.parametrize("engine", ENGINES)
each_style = pytest.mark.parametrize("engine", STYLES)


def form_for(name: str) -> str:
    """The name under which a definition has its form for an engine."""
    return engines.ENGINES[name].form or name


def engines_for(outputs: Sequence[Output]) -> list[str]:
    """The engines that can compute these."""
    operations = outputs[0].op.graph.subgraph_to(outputs)
    return [name for name in ENGINES if engines.engine(name).unsupported(operations) is None]
