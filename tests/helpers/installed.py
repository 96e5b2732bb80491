"""Libraries that look installed, for tests of what reports say of other people's code."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path
from types import ModuleType


def installed(folder: Path, file: str, text: str) -> ModuleType:
    """Import a text as a file of an installed library, such as ``"einops/layers.py"``."""
    path = folder / "site-packages" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.removesuffix(".py").replace("/", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module
