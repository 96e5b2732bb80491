"""Every test of a form runs with NumPy, and with XLA among the slow ones."""

from __future__ import annotations

from collections.abc import Iterator

import forms_tools
import pytest

from stopgrad.engines import engine


@pytest.fixture(autouse=True, scope="module", params=["numpy", pytest.param("xla", marks=pytest.mark.slow)])
def engines(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the test's forms are computed by."""
    before = forms_tools.ENGINES[:]
    forms_tools.ENGINES[:] = [engine(request.param)]
    yield
    forms_tools.ENGINES[:] = before
