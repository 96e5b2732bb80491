"""Asks why gradients do not arrive: the function is traced once more, and examined as a graph of ours."""

from __future__ import annotations

import contextlib
import functools
import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stopgrad.base.garbage import without_gc
from stopgrad.flow.explain import flow_of
from stopgrad.flow.flow import Flow
from stopgrad.interop.jax.loading import question
from stopgrad.interop.jax.training.arrays import abstract
from stopgrad.interop.jax.training.calls import Call


def flow_for(call: Call) -> Flow:
    """The report on a call of a gradient, by the paths of its arguments.

    The function's Python code runs once more, with traced values: random states of Python and NumPy are as
    before afterwards, and what it prints is not shown.

    Raises:
        StopgradError: JAX cannot trace it, or it cannot be imported.
    """
    function = _first_result(call.function) if call.has_aux else call.function
    args, kwargs = abstract((call.args, dict(call.kwargs)))
    with _unseen():
        found = question("jax.explain", function, args, kwargs, call.positions, within=True)
    return without_gc(flow_of, found.asked, (), found.findings, None)


def _first_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function without its auxiliary result."""

    @functools.wraps(function, updated=())
    def first(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)[0]

    return first


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """What runs in here prints nothing, and leaves random states as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
