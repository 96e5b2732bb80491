"""Rules for TensorFlow's operations, one file for each family; here their tables are one."""

from __future__ import annotations

from stopgrad.interop.tensorflow.operators.activations import ACTIVATIONS
from stopgrad.interop.tensorflow.operators.calling import Table
from stopgrad.interop.tensorflow.operators.checks import CHECKS
from stopgrad.interop.tensorflow.operators.control import CONTROL
from stopgrad.interop.tensorflow.operators.convolutions import CONVOLUTIONS
from stopgrad.interop.tensorflow.operators.drawing import DRAWING
from stopgrad.interop.tensorflow.operators.elementwise import ELEMENTWISE
from stopgrad.interop.tensorflow.operators.fused import FUSED
from stopgrad.interop.tensorflow.operators.generators import GENERATORS
from stopgrad.interop.tensorflow.operators.images import IMAGES
from stopgrad.interop.tensorflow.operators.indexing import INDEXING
from stopgrad.interop.tensorflow.operators.lists import LISTS
from stopgrad.interop.tensorflow.operators.losses import LOSSES
from stopgrad.interop.tensorflow.operators.moving import MOVING
from stopgrad.interop.tensorflow.operators.normalizations import NORMALIZATIONS
from stopgrad.interop.tensorflow.operators.pooling import POOLING
from stopgrad.interop.tensorflow.operators.products import PRODUCTS
from stopgrad.interop.tensorflow.operators.quantized import QUANTIZED
from stopgrad.interop.tensorflow.operators.reductions import REDUCTIONS
from stopgrad.interop.tensorflow.operators.structural import STRUCTURAL
from stopgrad.interop.tensorflow.operators.variables import VARIABLES

OPERATORS: Table = {
    **ACTIVATIONS,
    **CHECKS,
    **CONTROL,
    **CONTROL,
    **CONVOLUTIONS,
    **DRAWING,
    **ELEMENTWISE,
    **FUSED,
    **GENERATORS,
    **IMAGES,
    **INDEXING,
    **LISTS,
    **LISTS,
    **LOSSES,
    **MOVING,
    **NORMALIZATIONS,
    **POOLING,
    **PRODUCTS,
    **QUANTIZED,
    **REDUCTIONS,
    **STRUCTURAL,
    **VARIABLES,
}
