"""These tests run only where they are named: beside PyTorch in one process, TensorFlow may crash."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file out unless it, or a folder up to this one, was named: ``../test_live.py`` does."""
    named = [Path(str(arg).partition("::")[0]).resolve() for arg in config.args]
    return None if any(HERE in (path, *path.parents) for path in named) else True
