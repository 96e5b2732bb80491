"""JAX as one of the worlds that are asked: functions and their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stopgrad.flow.flow_report import Flow
from stopgrad.interop.jax.checking.ablating import ablate as ablate
from stopgrad.interop.jax.checking.differences import check_gradients as check_gradients
from stopgrad.interop.jax.loading import explain
from stopgrad.interop.jax.nans import trace_nan as trace_nan


def report(ys: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Flow, str]:
    """The report on a function, and a note on it."""
    return explain(ys, *args, **kwargs), ""
