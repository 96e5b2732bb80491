"""What doctests find without importing it; and the user's cache folder left alone, by new processes too."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

# Native code is built once for all runs of the tests; programs are compiled by each test that means to.
os.environ.setdefault("STOPGRAD_CACHE_DIR", str(Path(tempfile.gettempdir()) / "stopgrad-tests"))
os.environ["STOPGRAD_COMPILED"] = "0"


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["sg"] = sg
    doctest_namespace["np"] = np
