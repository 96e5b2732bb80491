"""PyTorch as one of the worlds that are asked: functions with their arguments, and losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.flow_report import Flow
from stopgrad.interop.torch.asking import explain
from stopgrad.interop.torch.checking.ablating import ablate as ablate
from stopgrad.interop.torch.checking.differences import check_gradients as check_gradients
from stopgrad.interop.torch.nans import trace_nan as trace_nan
from stopgrad.interop.torch.training_checks import Training as Training, report_on


def report(ys: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Flow, str]:
    """The report on a function, a module or a loss, and a note on it."""
    if callable(ys) and not isinstance(ys, torch.Tensor):
        return explain(ys, *args, **kwargs), ""
    if len(args) != 1 or kwargs:
        raise ArgumentError("explain: of a loss of PyTorch, say in one argument what is asked about")
    return report_on(ys, args[0])
