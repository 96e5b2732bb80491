"""PyTorch's own samples of its operators."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as trees

pytest.importorskip("expecttest")  # What PyTorch's own samples import.

from torch.testing._internal.common_methods_invocations import op_db as op_db
from torch.testing._internal.opinfo import core

# For every sample it looks for a unittest on the stack, and reads the source of each frame to do so: three
# quarters of the time that samples take.
core.extract_test_fn = lambda: None


def samples(op: Any, dtype: Any, most: int | None = None) -> Iterator[tuple[Any, list[Any]]]:
    """Functions of tensors, with tensors to call them with, from what PyTorch tests an operator on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        for i, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
            if most is not None and i >= most:
                return
            given = (sample.input, sample.args, sample.kwargs)
            leaves, spec = trees.tree_flatten(given)
            places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
            yield functools.partial(_called, op, leaves, spec, places), [leaves[i] for i in places]


def _called(op: Any, leaves: list[Any], spec: Any, places: list[int], *tensors: Any) -> Any:
    filled = list(leaves)
    for place, x in zip(places, tensors, strict=True):
        filled[place] = x
    given, args, kwargs = trees.tree_unflatten(filled, spec)
    return op.op(given, *args, **kwargs)
