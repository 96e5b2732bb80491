"""Forms of operations whose definition for any array namespace is not the best for ONNX, or needs more.

From a definition to a function like its ``lower``: of the namespace, the operands, and by name the
attributes; and of ``types`` and ``run``, where it asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stopgrad.onnx_nodes.forms.composites import COMPOSITES
from stopgrad.onnx_nodes.forms.control import CONTROL
from stopgrad.onnx_nodes.forms.convolutions import CONVOLUTIONS
from stopgrad.onnx_nodes.forms.indexing import INDEXING
from stopgrad.onnx_nodes.forms.matrices import MATRICES
from stopgrad.onnx_nodes.forms.numbers import NUMBERS
from stopgrad.onnx_nodes.forms.order import ORDER
from stopgrad.onnx_nodes.forms.pools import POOLS
from stopgrad.onnx_nodes.forms.products import PRODUCTS
from stopgrad.onnx_nodes.forms.refusals import REFUSALS
from stopgrad.onnx_nodes.forms.running import RUNNING
from stopgrad.onnx_nodes.forms.slices import SLICES
from stopgrad.op import Op, Unsupported

FORMS: Mapping[type[Op], Callable[..., Any] | Unsupported] = {
    **COMPOSITES,
    **CONTROL,
    **CONVOLUTIONS,
    **INDEXING,
    **MATRICES,
    **NUMBERS,
    **ORDER,
    **POOLS,
    **PRODUCTS,
    **REFUSALS,
    **RUNNING,
    **SLICES,
}
