"""What doctests find without importing it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stopgrad as sg


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["sg"] = sg
    doctest_namespace["np"] = np
