"""What reads compiled programs for the benchmarks (``benchmarks/scale/hlo.py``), for tests."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
hlo = importlib.import_module("scale.hlo")
