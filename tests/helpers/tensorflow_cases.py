"""Random calls of TensorFlow's operations, by family: operands and attributes, as NumPy arrays alone.

The script that writes graphs with TensorFlow and the sweep that compares with it make them from a seed.
"""

from __future__ import annotations

from tensorflow_case import Case, Family, Random
from tensorflow_cases_numbers import (
    ACTIVATIONS,
    DECOMPOSITIONS,
    ELEMENTWISE,
    LOSSES,
    PRODUCTS,
    QUANTIZED,
    REDUCTIONS,
)
from tensorflow_cases_shapes import GENERATORS, INDEXING, MOVING
from tensorflow_cases_windows import CONVOLUTIONS, IMAGES, NORMALIZATIONS, POOLING

FAMILIES: dict[str, Family] = {
    "activations": ACTIVATIONS,
    "convolutions": CONVOLUTIONS,
    "decompositions": DECOMPOSITIONS,
    "elementwise": ELEMENTWISE,
    "generators": GENERATORS,
    "images": IMAGES,
    "indexing": INDEXING,
    "losses": LOSSES,
    "moving": MOVING,
    "normalizations": NORMALIZATIONS,
    "pooling": POOLING,
    "products": PRODUCTS,
    "quantized": QUANTIZED,
    "reductions": REDUCTIONS,
}


def cases(family: str, seed: int) -> list[Case]:
    """One case for each operation of a family."""
    return [make(Random([seed, *op.encode()])) for op, make in FAMILIES[family].items()]
