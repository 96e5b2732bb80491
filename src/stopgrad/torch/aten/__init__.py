"""PyTorch's operators in terms of ours, by families: tables from an operator's name to a function."""

from __future__ import annotations

from stopgrad.torch.aten.calling import Table
from stopgrad.torch.aten.drawing import DRAWING
from stopgrad.torch.aten.elementwise import ELEMENTWISE
from stopgrad.torch.aten.indexing import INDEXING
from stopgrad.torch.aten.normalizations import NORMALIZATIONS
from stopgrad.torch.aten.products import PRODUCTS
from stopgrad.torch.aten.reductions import REDUCTIONS
from stopgrad.torch.aten.shapes import SHAPES
from stopgrad.torch.aten.spectra import SPECTRA
from stopgrad.torch.aten.windows import WINDOWS

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
    "aten.sym_is_contiguous.default": "it asks for the layout in memory, which a graph does not have",
}
"""Core operators without a translation, and why."""
