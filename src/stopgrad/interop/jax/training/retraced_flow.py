"""Asks why gradients do not arrive: the function is traced once more, and examined as a graph of ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stopgrad.base.garbage import without_gc
from stopgrad.flow.explain import flow_of
from stopgrad.flow.flow_report import Flow
from stopgrad.interop.jax.loading import question
from stopgrad.interop.jax.training.gradient_calls import Call
from stopgrad.interop.jax.training.traced_values import abstract
from stopgrad.interop.shared.unseen import unseen


def flow_for(call: Call) -> Flow:
    """The report on a call of a gradient, by the paths of its arguments.

    The function's Python code runs once more, with traced values: random states of Python and NumPy are as
    before afterwards, and what it prints is not shown.

    Raises:
        StopgradError: JAX cannot trace it, or it cannot be imported.
    """
    function = _first_result(call.function) if call.has_aux else call.function
    args, kwargs = abstract((call.args, dict(call.kwargs)))
    with unseen():
        posed = question("jax.explain", function, args, kwargs, call.positions, within=True)
    return without_gc(flow_of, posed.asked, (), posed.findings, None)


def _first_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function without its auxiliary result."""

    @functools.wraps(function, updated=())
    def first(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)[0]

    return first
