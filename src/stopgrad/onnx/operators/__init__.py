"""Rules for ONNX's operators, one file for each family; here their tables are one.

Operators of ``ai.onnx`` are keyed by their type, those of other domains as ``"com.microsoft::Gelu"``.
"""

from __future__ import annotations

from stopgrad.onnx.operators.calling import Table
from stopgrad.onnx.operators.control import CONTROL
from stopgrad.onnx.operators.elementwise import ELEMENTWISE
from stopgrad.onnx.operators.generators import GENERATORS
from stopgrad.onnx.operators.indexing import INDEXING
from stopgrad.onnx.operators.moving import MOVING
from stopgrad.onnx.operators.products import PRODUCTS
from stopgrad.onnx.operators.reductions import REDUCTIONS
from stopgrad.onnx.operators.sequences import SEQUENCES

OPERATORS: Table = {
    **CONTROL,
    **ELEMENTWISE,
    **GENERATORS,
    **INDEXING,
    **MOVING,
    **PRODUCTS,
    **REDUCTIONS,
    **SEQUENCES,
}
