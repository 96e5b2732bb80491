"""Forms of operations for ONNX, where their lowering over array namespaces is slow or does not work.

Each definition is mapped to a function like its ``lower``: it takes the namespace, the operands and, by name,
the attributes; also ``types`` and ``run``, if it has parameters of these names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stopgrad.engines.onnxruntime.nodes.forms.composites import COMPOSITES
from stopgrad.engines.onnxruntime.nodes.forms.control import CONTROL
from stopgrad.engines.onnxruntime.nodes.forms.convolutions import CONVOLUTIONS
from stopgrad.engines.onnxruntime.nodes.forms.cumulative import RUNNING
from stopgrad.engines.onnxruntime.nodes.forms.indexing import INDEXING
from stopgrad.engines.onnxruntime.nodes.forms.matrices import MATRICES
from stopgrad.engines.onnxruntime.nodes.forms.numbers import NUMBERS
from stopgrad.engines.onnxruntime.nodes.forms.order import ORDER
from stopgrad.engines.onnxruntime.nodes.forms.pools import POOLS
from stopgrad.engines.onnxruntime.nodes.forms.products import PRODUCTS
from stopgrad.engines.onnxruntime.nodes.forms.refusals import REFUSALS
from stopgrad.engines.onnxruntime.nodes.forms.slices import SLICES
from stopgrad.graph.op import Op, Unsupported

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
