"""A JAX function at a point: its values with stops held, and the derivatives that JAX computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from stopgrad.base.errors import ArgumentError, StopgradError
from stopgrad.graph.operands import NumpyArray
from stopgrad.interop.jax.checking.holding import RULED, Holds, acting, with_stops_held
from stopgrad.interop.jax.steps import inner_jaxprs
from stopgrad.interop.jax.tracing import Program, canonical, chosen, positions_of, program_of
from stopgrad.interop.shared.derivatives import Arrays, coarsest_of, mode_is_refused

_WIDE = {"complex64": "complex128"}


class Posed(NamedTuple):
    """A function, and the values of what its gradient is asked for.

    Attributes:
        program: the function, traced with these alone; all other arguments keep their values.
        values: these, by their paths.
        asked: which of them are asked about.
    """

    program: Program
    values: dict[str, Any]
    asked: Sequence[int]

    def function(self, *values: Any) -> list[Any]:
        """The floating-point and complex results, of the values that are asked about."""
        every = list(self.values.values())
        for i, value in zip(self.asked, values, strict=True):
            every[i] = value
        return [y for y in self.program.function(*every) if _is_inexact(y)]

    @property
    def points(self) -> dict[str, Any]:
        """The values that are asked about, by their paths."""
        listed = list(self.values.items())
        return dict([listed[i] for i in self.asked])


def posed(
    what: str,
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int] | None,
) -> Posed:
    """A function at its arguments.

    Raises:
        ArgumentError: JAX cannot trace it, or an argument is no value.
    """
    positions = positions_of(what, f, len(args), argnums)
    program = program_of(what, f, args, kwargs, positions, weights=True)
    asked = chosen(program, positions, argnums)
    values = dict(zip(program.paths, program.leaves(args, kwargs), strict=True))
    for path, value in values.items():
        if isinstance(value, jax.ShapeDtypeStruct):
            raise ArgumentError(f"{what}: {path} is only a shape; give an array")
    kinds = [v.aval.dtype for v in program.closed.jaxpr.invars]
    arrays = {
        path: _concrete(what, path, x, kind) for (path, x), kind in zip(values.items(), kinds, strict=True)
    }
    return Posed(program, arrays, [i for i in asked if _is_inexact(list(arrays.values())[i])])


def _concrete(what: str, path: str, value: Any, kind: Any) -> jax.Array:
    """An argument as JAX takes it, as an array."""
    if isinstance(value, jax.Array):  # That it was deleted was asked when it was traced.
        return value
    return jnp.asarray(canonical(value, kind))


def _is_inexact(x: Any) -> bool:
    if isinstance(x, (float, complex)):
        return True
    dtype = getattr(x, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.inexact))


class Traced:
    """A function of arrays at a point; see :class:`stopgrad.interop.shared.derivatives.Function`.

    Args:
        function: the function, which returns a list of arrays of floating-point or complex numbers.
        values: the point.
        holds: which stops hold their values.
        modes: how derivatives are asked for.

    Attributes:
        values: the point.
        closed: the traced function.
        wide: the same in double precision, if it computes the same; None if it is in double precision.
        names: the names of the dtypes in it.
    """

    values: Mapping[str, Any]
    points: dict[str, NumpyArray]
    here: Arrays
    names: set[str]
    precision: str
    modes: list[str]
    closed: jex.ClosedJaxpr

    def __init__(
        self,
        function: Callable[..., list[Any]],
        values: Mapping[str, Any],
        holds: Holds,
        modes: Sequence[str],
    ) -> None:
        self._function, self.values, self._holds = function, values, holds
        self.closed = jax.make_jaxpr(function)(*values.values())
        self.points = {path: np.asarray(x) for path, x in values.items()}
        self.wide: jex.ClosedJaxpr | None = None
        self.notes: list[str] = []
        self._push = jax.jit(lambda point, moved: jax.jvp(function, point, moved)[1])
        self._nearby = Values(self.closed, list(values.values()), holds)
        self.here = self._nearby.here
        self.names = dtypes_in(self.closed.jaxpr) | {x.dtype.name for x in self.points.values()}
        self.precision = coarsest_of(self.names)
        if self.precision != "float64":
            self._widen()
        self.modes = [mode for mode in modes if self.points and self.here and self._can(mode, modes)]

    def _widen(self) -> None:
        """Take differences in double precision, if the function computes the same then."""
        with jax.enable_x64(True), contextlib.suppress(StopgradError, TypeError, ValueError):
            wide = [jnp.asarray(x, _WIDE.get(x.dtype.name, "float64")) for x in self.points.values()]
            closed = jax.make_jaxpr(self._function)(*wide)
            if coarsest_of(dtypes_in(closed.jaxpr), "float64") != "float64":
                return
            values = Values(closed, wide, self._holds)
            rounding = {"float32": 2.0**-23, "float16": 2.0**-10}.get(self.precision, 2.0**-7)
            if all(_near(a, b, 1e3 * rounding) for a, b in zip(self.here, values.here, strict=True)):
                self.wide, self._nearby, self.precision = closed, values, "float64"
                self.here = values.here

    def _can(self, mode: str, modes: Sequence[str]) -> bool:
        """Whether JAX can differentiate it in a mode; if not, a note says so."""
        try:
            if mode == "reverse":
                self._pull = jax.vjp(self._function, *self.values.values())[1]
                self.pulled([np.ones_like(y) for y in self.here])
            else:
                self.pushed(0, next(iter(self.points.values())))
        except (TypeError, ValueError, NotImplementedError) as error:
            if not _is_refusal(error):
                raise
            self.notes.append(mode_is_refused(mode, modes, error, "JAX"))
            return False
        return True

    def at(self, which: int, value: NumpyArray) -> Arrays:
        return self._nearby.at(which, value)

    def pulled(self, cotangents: Arrays) -> Sequence[NumpyArray | None]:
        return [_conjugate(np.asarray(g)) for g in self._pull(self._as_results(cotangents))]

    def pushed(self, which: int, tangent: NumpyArray) -> Arrays:
        values = list(self.values.values())
        tangents = [jnp.zeros_like(x) for x in values]
        tangents[which] = jnp.asarray(tangent, values[which].dtype)
        return [np.asarray(y) for y in self._push(values, tangents)]

    def derivative(self, cotangents: Arrays) -> Traced | None:
        seeds = self._as_results(cotangents)

        def gradient(*values: Any) -> list[Any]:
            results, pull = jax.vjp(self._function, *values)
            fitting = [jnp.asarray(g, y.dtype) for g, y in zip(seeds, results, strict=True)]
            return [_conjugate(g) for g in pull(fitting)]

        return Traced(gradient, self.values, self._holds, self.modes)

    def _as_results(self, cotangents: Arrays) -> list[Any]:
        """Cotangents as JAX takes them: conjugated, and of the dtypes of the results."""
        kinds = [v.aval.dtype for v in self.closed.jaxpr.outvars]
        return [
            jnp.asarray(_conjugate(np.asarray(g)), kind) for g, kind in zip(cotangents, kinds, strict=True)
        ]


class Values:
    """The values of a jaxpr near a point, with stops held there.

    Attributes:
        here: those at the point.
    """

    here: Arrays

    def __init__(self, closed: jex.ClosedJaxpr, values: Sequence[Any], holds: Holds) -> None:
        self._values = values
        self._is_wide = any(x.dtype in ("float64", "complex128") for x in values)
        self._moved = jax.jit(with_stops_held(closed, holds))
        self.here = self._computed(values)

    def at(self, which: int, value: NumpyArray) -> Arrays:
        with jax.enable_x64(self._is_wide or bool(jax.config.jax_enable_x64)):
            values = list(self._values)
            values[which] = jnp.asarray(value, values[which].dtype)
            return self._computed(values)

    def _computed(self, values: Sequence[Any]) -> Arrays:
        with jax.enable_x64(self._is_wide or bool(jax.config.jax_enable_x64)):
            return [np.asarray(y) for y in self._moved(list(self._values), list(values))]


def dtypes_in(jaxpr: jex.Jaxpr) -> set[str]:
    """The names of the dtypes of all that a jaxpr computes."""
    names, stack = set(), [jaxpr]
    while stack:
        current = stack.pop()
        for eqn in current.eqns:
            names |= {v.aval.dtype.name for v in eqn.outvars if hasattr(v.aval, "dtype")}
            stack += [getattr(part, "jaxpr", part) for part in inner_jaxprs(eqn.params)]
        names |= {v.aval.dtype.name for v in current.outvars if hasattr(v.aval, "dtype")}
    return names


def customs_in(jaxpr: jex.Jaxpr) -> list[Any]:
    """The equations with rules of their own on the way to the results, with their places."""
    return list(acting(jaxpr, None, RULED))


def _conjugate(x: Any) -> Any:
    """JAX's cotangents of complex numbers are the conjugates of ours."""
    return x.conj() if x.dtype.kind == "c" else x


def _near(a: NumpyArray, b: NumpyArray, rounding: float) -> bool:
    wide = np.asarray(a).astype(np.complex128), np.asarray(b).astype(np.complex128)
    with np.errstate(invalid="ignore"):
        apart = np.abs(wide[0] - wide[1]) <= rounding * (1.0 + np.abs(wide[0]))
    return bool(np.all(apart | ~np.isfinite(wide[0])))


def _is_refusal(error: Exception) -> bool:
    """Whether JAX says that it does not differentiate something in a mode."""
    text = str(error)
    return any(
        part in text
        for part in ("forward-mode", "reverse-mode", "Reverse-mode", "Forward-mode", "ifferentiation rule")
    )
