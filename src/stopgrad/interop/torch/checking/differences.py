"""``check_gradients`` of PyTorch functions: autograd's gradients beside differences of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.flow.checking.gradient_check import GradientCheck
from stopgrad.flow.checking.options import options
from stopgrad.graph.public import guarded
from stopgrad.interop.shared.derivatives import Seen, check, coarsest_of, lines, refuse_modes
from stopgrad.interop.torch.checking.function_at_point import Called, posed
from stopgrad.interop.torch.questions import Asked, Names

ELEMENTWISE = 8
"""The most numbers of a tensor that are moved one by one: each takes several calls of the function."""


@guarded("check_gradients")
def check_gradients(
    f: Callable[..., Any],
    *args: Any,
    model: Asked | None = None,
    only: Names | None = None,
    order: int = 1,
    modes: str | Sequence[str] = "reverse",
    stops: str = "hold",
    rtol: float | None = None,
    atol: float | None = None,
    directions: int | None = None,
    seed: int = 0,
    raises: bool = True,
    **kwargs: Any,
) -> GradientCheck:
    """Compare autograd's gradients of a function with differences of what it computes.

    While tensors are moved, what autograd takes for a constant keeps the value that it has at the given
    point: what ``detach``, ``.data`` and ``no_grad`` stop, numbers that ``.item()`` reads, new tensors of old
    ones. So a deliberate stop passes. An ``autograd.Function`` is compared with the derivative of its
    forward. Differences are taken in double precision, where the function then computes the same. Afterwards
    parameters, buffers, modules and random states are as before.

    Args:
        f: a function, or a module; its floating-point and complex results count, as their sum. It is called
            many times, and must be deterministic for given random states.
        args, kwargs: its arguments.
        model, only: what is asked about, as for :func:`stopgrad.torch.explain`.
        order, stops, rtol, atol, directions, seed, raises: as for :func:`stopgrad.check_gradients`.
        modes: ``"reverse"``, by which PyTorch trains; it is the only one.

    Returns:
        A :class:`stopgrad.flow.checking.gradient_check.GradientCheck`, by the names of parameters and paths
        of arguments.

    Raises:
        GradientError: they differ, and *raises*; or PyTorch does not differentiate the function.
        ArgumentError: there is nothing to differentiate; or the function is not deterministic.

    Examples:
        >>> import torch
        >>> import stopgrad.torch as sgt
        >>> x = torch.tensor([0.5, 2.0], requires_grad=True)
        >>> sgt.check_gradients(lambda x: (x.sin() * x.detach()).sum(), x).passed
        True
    """
    settings = options(order, modes, stops, rtol, atol, directions, seed, raises)
    refuse_modes("PyTorch", settings.modes, ("reverse",))
    point = posed("check_gradients", f, args, kwargs, model, only)
    function = Called(point, settings.stops)
    seen = Seen(lines(function.calls.stops), lines(function.calls.custom))
    return check("PyTorch", function, settings, seen, coarsest_of(function.names), ELEMENTWISE)
