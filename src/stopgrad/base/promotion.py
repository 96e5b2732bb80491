"""The common dtype of operands: NumPy 2's rule, with TensorFlow's default dtypes.

Operations are strict: their operands have one dtype. Public functions and operators convert operands to it
by casts that can be seen in the graph.

- Tensors have the dtype of NumPy's ``result_type``; bfloat16 is treated like float16.
- Python numbers, and lists of them, are weak: they take the dtype of the tensors they meet. Only if their
  kind is higher (a float that meets integers) do they have a dtype of their own: int32, float32 or
  complex64.
- If an operation takes no integers or booleans, they are converted as together with a float32: to float64
  from 32 bits on, and to float32 below, as in TensorFlow's ``truediv``. Python's numbers become float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from stopgrad.base.dtypes import DType, bfloat16, bool_, complex64, dtype_of, float16, float32, int32

DEFAULTS = (bool_, int32, float32, complex64)
"""The dtypes of Python's numbers, in the order of their kinds."""

_KIND = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def promoted(dtypes: Iterable[DType]) -> DType:
    """The common dtype of tensors of these dtypes.

    Examples:
        >>> promoted([int32, float32]), promoted([bfloat16, float32]), promoted([bool_, int32])
        (float64, float32, int32)
    """
    common, *others = dtypes
    for other in others:
        if other is not common:
            common = _pair(common, other)
    return common


def _pair(a: DType, b: DType) -> DType:
    narrow = bfloat16 in (a, b)
    if narrow and (a.is_floating and b.is_floating):
        return float32 if float16 in (a, b) else b if a is bfloat16 else a
    both = [float16.numpy if d is bfloat16 else d.numpy for d in (a, b)]
    common = dtype_of(np.promote_types(*both))
    return bfloat16 if narrow and common is float16 else common


class Promotion(NamedTuple):
    """How an operation's operands are promoted.

    Attributes:
        to: whether the operation takes a dtype.
        operands: the names of the operands that must have one dtype; empty for all.
    """

    to: Callable[[DType], bool]
    operands: tuple[str, ...] = ()

    def common(self, strong: Iterable[DType], weak: Iterable[DType]) -> DType:
        """The common dtype of tensors' dtypes (*strong*) and of Python numbers' default ones (*weak*)."""
        dtypes = list(strong)
        numbers = max(weak, key=DEFAULTS.index, default=None)
        if not dtypes:
            dtype = numbers or float32
            return float32 if _becomes_floating(dtype, self.to) else dtype
        dtype = promoted(dtypes)
        if numbers is not None and _KIND[numbers.kind] > _KIND[dtype.kind]:
            dtype = _pair(dtype, numbers)
        if _becomes_floating(dtype, self.to):
            return _pair(dtype, float32)
        return dtype


def _becomes_floating(dtype: DType, to: Callable[[DType], bool]) -> bool:
    """Whether integers or booleans become floats; booleans do not if integers are allowed."""
    if dtype.is_differentiable or to(dtype) or not to(float32):
        return False
    return not (dtype is bool_ and to(int32))
