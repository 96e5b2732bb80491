"""Samples of operations with other dtypes."""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.base.dtypes import DType
from stopgrad.base.samples import Sample, Values


def with_dtype(samples: Sequence[Sample], dtype: DType) -> list[Sample]:
    """The same samples with floating-point operands of another dtype."""
    return [
        Sample(
            tuple(
                o._replace(dtype=dtype) if isinstance(o, Values) and o.dtype.is_floating else o
                for o in s.operands
            ),
            s.attributes,
        )
        for s in samples
    ]
