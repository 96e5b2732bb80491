"""``ablate`` of JAX functions: JAX's gradient with and without the stops of each line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from stopgrad.base.errors import StopgradError
from stopgrad.base.source import decode
from stopgrad.flow.ablation.ablation import Ablation
from stopgrad.flow.ablation.variants import Arrays, Gradients
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.public import guarded
from stopgrad.interop.jax.checking.function_at_point import Traced, posed
from stopgrad.interop.jax.checking.holding import stops_in
from stopgrad.interop.jax.checking.opening import opened
from stopgrad.interop.jax.loading import explain
from stopgrad.interop.jax.places import is_idiom, is_installed
from stopgrad.interop.shared.ablating import Line, ablated, by_lines, counts
from stopgrad.interop.shared.derivatives import line_of


@guarded("ablate")
def ablate(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] | None = None,
    repeats: int = 5,
    seed: int = 0,
    **kwargs: Any,
) -> Ablation:
    """What the stops of each line do to JAX's gradient of a function.

    For each line of the user's with ``jax.lax.stop_gradient``, JAX differentiates the traced function again
    without those stops, in double precision where it then computes the same.

    Args:
        f, args, argnums, kwargs: as for :func:`check_gradients`.
        repeats: the number of measurements of which each time is the median; 0 to measure none. Gradients are
            compiled by ``jax.jit``.
        seed: the seed of noise: besides the given data, copies with noise on the arguments that are asked
            about are examined.

    Returns:
        An :class:`stopgrad.flow.ablation.ablation.Ablation`, whose verdicts are ``"changes the gradient"``,
        ``"changes nothing"``, ``"idle"`` and ``"without it, the gradient is an error"``. JAX's operations are
        not counted, and no further stops are suggested.

    Raises:
        GradientError: JAX does not differentiate the function.
        ArgumentError: JAX cannot trace the function; or there is nothing to differentiate.

    Examples:
        >>> import jax, stopgrad.jax as sgj
        >>> sgj.ablate(lambda a, b: a * jax.lax.stop_gradient(b), 1.0, 2.0, repeats=0).stops[0].verdict
        'changes the gradient'
    """
    repeated, seeded = counts(repeats, seed)
    point = posed("ablate", f, args, kwargs, argnums)
    traced = Traced(point.function, point.points, lambda eqn, place: False, ("reverse",))
    marks = [
        ("stop_gradient", place)
        for eqn, place in stops_in(traced.closed.jaxpr, None)
        if not is_idiom(eqn) and (place is None or not is_installed(decode(place).file))
    ]
    lines = by_lines(marks)
    if lines:
        idle = _idle(f, args, kwargs, argnums)
        lines = [line._replace(why_idle=idle.get(line_of(line.places[0]), "")) for line in lines]
    return ablated("JAX", _Opened(traced, lines), repeated, seeded)


def _idle(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: int | Sequence[int] | None
) -> dict[tuple[str, int] | None, str]:
    """Why the stops of lines do nothing, as far as the report on the function says it."""
    reasons: dict[tuple[str, int] | None, list[str]] = {}
    with contextlib.suppress(StopgradError):
        for use in explain(f, *args, argnums=argnums, **kwargs).gates:
            place = use.operation.location
            reasons.setdefault(None if place is None else (place.file, place.line), []).append(use.why_idle)
    return {line: why[0] for line, why in reasons.items() if all(why)}


class _Opened:
    """A traced function, differentiated with and without the stops of a line."""

    def __init__(self, traced: Traced, lines: Sequence[Line]) -> None:
        self.points, self.lines = traced.points, lines
        self.sizes = float(sum(np.abs(np.asarray(y).astype(np.complex128)).sum() for y in traced.here))
        self._closed = traced.closed
        self._wide = traced.wide
        self._values = list(traced.values.values())
        self._gradients: dict[tuple[int, bool], Any] = {}

    def gradients(self, values: Arrays, without: Line | None) -> Gradients:
        is_wide = self._wide is not None
        with _precision(is_wide):
            return _arrays(self._gradient(without, is_wide)(self._typed(values, is_wide)))

    def run(self, without: Line | None) -> Callable[[], Gradients]:
        gradient = self._gradient(without, False)

        def computed() -> Gradients:
            return _arrays(jax.block_until_ready(gradient(self._values)))

        return computed

    def _program(self, is_wide: bool) -> Any:
        return self._wide if is_wide else self._closed

    def _typed(self, values: Arrays, is_wide: bool) -> list[Any]:
        kinds = [v.aval.dtype for v in self._program(is_wide).jaxpr.invars]
        return [jnp.asarray(x, kind) for x, kind in zip(values, kinds, strict=True)]

    def _gradient(self, without: Line | None, is_wide: bool) -> Callable[[Any], Any]:
        """The compiled gradient of the sum of results."""
        key = (id(without), is_wide)
        if key not in self._gradients:
            closed = self._program(is_wide)
            if without is not None:
                line = line_of(without.places[0])
                closed = opened(closed, lambda place: line_of(place) == line)
            self._gradients[key] = jax.jit(_gradient_of(closed))
        return self._gradients[key]


def _gradient_of(closed: jex.ClosedJaxpr) -> Callable[[Any], Any]:
    function = jex.jaxpr_as_fun(closed)

    def gradient(values: Sequence[Any]) -> list[Any]:
        results, pull = jax.vjp(function, *values)
        return [g.conj() if jnp.iscomplexobj(g) else g for g in pull([jnp.ones_like(y) for y in results])]

    return gradient


def _precision(is_wide: bool) -> Any:
    return jax.enable_x64(True) if is_wide else contextlib.nullcontext()


def _arrays(gradients: Sequence[Any]) -> list[NumpyArray]:
    return [np.asarray(g) for g in gradients]
