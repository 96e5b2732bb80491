"""Rules for ONNX's operators, one file for each family; here their tables are one.

Operators of ``ai.onnx`` are keyed by their type, those of other domains as ``"com.microsoft::Gelu"``.
"""

from __future__ import annotations

from stopgrad.interop.onnx.operators.activations import ACTIVATIONS
from stopgrad.interop.onnx.operators.attention import ATTENTION
from stopgrad.interop.onnx.operators.blocked import BLOCKED
from stopgrad.interop.onnx.operators.calling import Table
from stopgrad.interop.onnx.operators.classical import CLASSICAL
from stopgrad.interop.onnx.operators.contrib import CONTRIB
from stopgrad.interop.onnx.operators.control import CONTROL
from stopgrad.interop.onnx.operators.convolutions import CONVOLUTIONS
from stopgrad.interop.onnx.operators.elementwise import ELEMENTWISE
from stopgrad.interop.onnx.operators.generators import GENERATORS
from stopgrad.interop.onnx.operators.images import IMAGES
from stopgrad.interop.onnx.operators.indexing import INDEXING
from stopgrad.interop.onnx.operators.losses import LOSSES
from stopgrad.interop.onnx.operators.moving import MOVING
from stopgrad.interop.onnx.operators.normalizations import NORMALIZATIONS
from stopgrad.interop.onnx.operators.pooling import POOLING
from stopgrad.interop.onnx.operators.preview_training import PREVIEW_TRAINING
from stopgrad.interop.onnx.operators.products import PRODUCTS
from stopgrad.interop.onnx.operators.quantized import QUANTIZED
from stopgrad.interop.onnx.operators.quantized_layers import QUANTIZED_LAYERS
from stopgrad.interop.onnx.operators.recurrent import RECURRENT
from stopgrad.interop.onnx.operators.reductions import REDUCTIONS
from stopgrad.interop.onnx.operators.resizing import RESIZING
from stopgrad.interop.onnx.operators.sequences import SEQUENCES
from stopgrad.interop.onnx.operators.signals import SIGNALS
from stopgrad.interop.onnx.operators.tree_ensembles import TREE_ENSEMBLES

OPERATORS: Table = {
    **ACTIVATIONS,
    **ATTENTION,
    **BLOCKED,
    **CLASSICAL,
    **CONVOLUTIONS,
    **IMAGES,
    **LOSSES,
    **NORMALIZATIONS,
    **POOLING,
    **QUANTIZED,
    **QUANTIZED_LAYERS,
    **RECURRENT,
    **RESIZING,
    **SIGNALS,
    **PREVIEW_TRAINING,
    **CONTRIB,
    **CONTROL,
    **ELEMENTWISE,
    **GENERATORS,
    **INDEXING,
    **MOVING,
    **PRODUCTS,
    **REDUCTIONS,
    **SEQUENCES,
    **TREE_ENSEMBLES,
}
