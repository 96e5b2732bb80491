"""Rules for ONNX's operators, one file for each family; here their tables are one.

Operators of ``ai.onnx`` are keyed by their type, those of other domains as ``"com.microsoft::Gelu"``.
"""

from __future__ import annotations

from stopgrad.onnx.operators.calling import Table
from stopgrad.onnx.operators.elementwise import ELEMENTWISE

OPERATORS: Table = {
    **ELEMENTWISE,
}
