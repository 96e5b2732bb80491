"""Rules for ONNX's operators, one file for each family; here their tables are one.

Operators of ``ai.onnx`` are keyed by their type, those of other domains as ``"com.microsoft::Gelu"``.
"""

from __future__ import annotations

from stopgrad.onnx.operators.activations import ACTIVATIONS
from stopgrad.onnx.operators.attention import ATTENTION
from stopgrad.onnx.operators.calling import Table
from stopgrad.onnx.operators.contrib import CONTRIB
from stopgrad.onnx.operators.control import CONTROL
from stopgrad.onnx.operators.convolutions import CONVOLUTIONS
from stopgrad.onnx.operators.elementwise import ELEMENTWISE
from stopgrad.onnx.operators.generators import GENERATORS
from stopgrad.onnx.operators.images import IMAGES
from stopgrad.onnx.operators.indexing import INDEXING
from stopgrad.onnx.operators.losses import LOSSES
from stopgrad.onnx.operators.moving import MOVING
from stopgrad.onnx.operators.normalizations import NORMALIZATIONS
from stopgrad.onnx.operators.pooling import POOLING
from stopgrad.onnx.operators.products import PRODUCTS
from stopgrad.onnx.operators.quantized import QUANTIZED
from stopgrad.onnx.operators.recurrent import RECURRENT
from stopgrad.onnx.operators.reductions import REDUCTIONS
from stopgrad.onnx.operators.resizing import RESIZING
from stopgrad.onnx.operators.sequences import SEQUENCES
from stopgrad.onnx.operators.signals import SIGNALS
from stopgrad.onnx.operators.training import TRAINING

OPERATORS: Table = {
    **ACTIVATIONS,
    **ATTENTION,
    **CONVOLUTIONS,
    **IMAGES,
    **LOSSES,
    **NORMALIZATIONS,
    **POOLING,
    **QUANTIZED,
    **RECURRENT,
    **RESIZING,
    **SIGNALS,
    **TRAINING,
    **CONTRIB,
    **CONTROL,
    **ELEMENTWISE,
    **GENERATORS,
    **INDEXING,
    **MOVING,
    **PRODUCTS,
    **REDUCTIONS,
    **SEQUENCES,
}
