"""``check_gradients`` of JAX functions: JAX's own derivatives beside differences of the function's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.base.source import RawLocation
from stopgrad.flow.checking.gradient_check import GradientCheck
from stopgrad.flow.checking.numeric import ELEMENTWISE
from stopgrad.flow.checking.options import MODES, options
from stopgrad.graph.public import guarded
from stopgrad.interop.jax.checking.function_at_point import Traced, customs_in, posed
from stopgrad.interop.jax.checking.holding import Holds, stops_in
from stopgrad.interop.jax.places import is_idiom, is_ruled_by_jax
from stopgrad.interop.shared.derivatives import Seen, check, coarsest_of, lines


@guarded("check_gradients")
def check_gradients(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] | None = None,
    order: int = 1,
    modes: str | Sequence[str] = MODES,
    stops: str = "hold",
    rtol: float | None = None,
    atol: float | None = None,
    directions: int | None = None,
    seed: int = 0,
    raises: bool = True,
    **kwargs: Any,
) -> GradientCheck:
    """Compare JAX's own derivatives of a function with differences of what it computes.

    While inputs are moved, what ``stop_gradient`` stops keeps the value that it has at the given point, at
    each iteration of a loop, so that a deliberate stop passes. The rules of ``custom_vjp`` and ``custom_jvp``
    are compared with the derivative of their functions. Differences are taken in double precision, where the
    function then computes the same.

    Args:
        f: the function. All floating-point and complex arrays that it returns count, as their sum.
        args: its arguments; those that hold no floating-point or complex arrays keep their values, as in
            ``jax.grad``.
        argnums: which of them are checked; all, and all weights of Keras models, unless given.
        order, modes, stops, rtol, atol, directions, seed, raises: as for
            :func:`stopgrad.check_gradients`. A mode in which JAX does not differentiate the function, as
            ``custom_vjp`` in forward mode, is left out, with a note.
        kwargs: its keyword arguments, which are not checked.

    Returns:
        A :class:`stopgrad.flow.checking.gradient_check.GradientCheck`, by the paths of the arguments.

    Raises:
        GradientError: they differ, and *raises*; or JAX does not differentiate the function.
        ArgumentError: JAX cannot trace the function; or there is nothing to differentiate.

    Examples:
        >>> import jax, jax.numpy as jnp, stopgrad.jax as sgj
        >>> x = jnp.array([0.5, 2.0])
        >>> sgj.check_gradients(lambda x: jnp.sum(jnp.sin(x) * jax.lax.stop_gradient(x)), x).passed
        True
    """
    settings = options(order, modes, stops, rtol, atol, directions, seed, raises)
    point = posed("check_gradients", f, args, kwargs, argnums)
    stopping = list(stops_in(point.program.closed.jaxpr, None))
    function = Traced(point.function, point.points, _holding(settings.stops, stopping), settings.modes)
    reported = [(eqn, place) for eqn, place in stopping if not is_idiom(eqn)]
    custom = [
        (eqn, place) for eqn, place in customs_in(point.program.closed.jaxpr) if not is_ruled_by_jax(eqn)
    ]
    seen = Seen(
        lines(("stop_gradient", place) for _, place in reported),
        lines((eqn.primitive.name.partition("_call")[0], place) for eqn, place in custom),
    )
    return check("JAX", function, settings, seen, coarsest_of(function.names), ELEMENTWISE)


def _holding(stops: str, stopping: Sequence[tuple[Any, RawLocation | None]]) -> Holds:
    """Which stops hold what they stop; those of gradient functions are told by the expression they are in.

    JAX gives what a rule computes the place of the call of its function.
    """
    if stops == "program":
        own = {place for _, place in stopping}
        return lambda eqn, place: place in own
    return lambda eqn, place: stops == "hold"
