"""PyTorch's operators in terms of ours, by family: tables from the name of an operator to a function."""

from __future__ import annotations

from stopgrad.interop.torch.importing.aten.calling import Table
from stopgrad.interop.torch.importing.aten.drawing import DRAWING
from stopgrad.interop.torch.importing.aten.elementwise import ELEMENTWISE
from stopgrad.interop.torch.importing.aten.indexing import INDEXING
from stopgrad.interop.torch.importing.aten.normalizations import NORMALIZATIONS
from stopgrad.interop.torch.importing.aten.products import PRODUCTS
from stopgrad.interop.torch.importing.aten.reductions import REDUCTIONS
from stopgrad.interop.torch.importing.aten.shapes import SHAPES
from stopgrad.interop.torch.importing.aten.spectra import SPECTRA
from stopgrad.interop.torch.importing.aten.windows import WINDOWS

TRANSLATIONS: Table = {
    **DRAWING,
    **ELEMENTWISE,
    **INDEXING,
    **NORMALIZATIONS,
    **PRODUCTS,
    **REDUCTIONS,
    **SHAPES,
    **SPECTRA,
    **WINDOWS,
}
"""From the name of an operator's overload, such as ``"aten.add.Tensor"``, to its translation."""

ABSENT = {
    "aten.atan2.out": "it writes into a tensor that it is given; export makes aten.atan2.default of it",
    "aten.resize_.default": "it changes the memory of a tensor; make a new one, with reshape or F.pad",
}
"""Core operators without a translation, and why."""
