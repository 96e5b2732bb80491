"""The options of ``check_gradients``, which are the same in every world, and what follows from dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stopgrad.base.coercion import flag, is_whole, real, whole
from stopgrad.base.errors import ArgumentError
from stopgrad.base.types import DType
from stopgrad.flow.checking.frozen import Holding
from stopgrad.flow.checking.numeric import ELEMENTWISE, Settings
from stopgrad.graph.public import reads_arguments

RTOL = {"float64": 1e-6, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
"""The default relative tolerance, by precision.

It allows for the rounding of the generated gradient: some 10⁴ roundings of float32, 20 of float16 and 10 of
bfloat16. In float64 it is wider than rounding needs: small enough to see every mistake that matters, and
large enough for ill-conditioned steps. The error of the differences themselves is allowed in addition.
"""

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
MODES = ("reverse", "forward")


class Options(NamedTuple):
    """What a user asked for; see :func:`stopgrad.check_gradients`."""

    order: int
    modes: tuple[str, ...]
    stops: str
    rtol: float | None
    atol: float | None
    directions: int | None
    seed: int
    raises: bool

    def settings(
        self,
        precision: str,
        holding: Holding | None = None,
        elementwise: int = ELEMENTWISE,
        only_proven: bool = False,
    ) -> Settings:
        """The settings of a comparison in a precision, the name of a dtype."""
        relative = RTOL[precision] if self.rtol is None else self.rtol
        epsilon = EPSILON[precision]
        return Settings(
            self.modes,
            holding,
            relative,
            self.atol,
            self.directions,
            self.seed,
            epsilon,
            elementwise,
            only_proven,
        )


def options(
    order: object,
    modes: str | Sequence[str],
    stops: object,
    rtol: object,
    atol: object,
    directions: object,
    seed: object,
    raises: object,
) -> Options:
    """The options that a user gave.

    Raises:
        ArgumentError: one of them is none of the possible values.
    """
    return Options(
        _order(order),
        _modes(modes),
        _stops(stops),
        _number(rtol, "rtol"),
        _number(atol, "atol"),
        None if directions is None else _count(directions, "directions", 1),
        _count(seed, "seed", 0),
        flag(raises, "check_gradients: raises"),
    )


def coarsest(dtypes: Iterable[DType]) -> str:
    """The name of the coarsest of some dtypes: of complex numbers that of their parts."""
    names = [_PARTS.get(dtype.name, dtype.name) for dtype in dtypes if dtype.is_differentiable]
    return max(names, key=lambda name: EPSILON[name])


_PARTS = {"complex64": "float32", "complex128": "float64"}


@reads_arguments
def _order(order: object) -> int:
    if not is_whole(order) or whole(order) not in (1, 2):
        raise ArgumentError(f"check_gradients: order is 1 or 2, not {order!r:.60}")
    return whole(order)


@reads_arguments
def _modes(modes: str | Sequence[str]) -> tuple[str, ...]:
    chosen = (modes,) if isinstance(modes, str) else tuple(modes)
    if not chosen or any(not isinstance(m, str) or m not in MODES for m in chosen):
        raise ArgumentError(f"check_gradients: modes are 'reverse' and 'forward', not {modes!r:.60}")
    return tuple(m for m in MODES if m in chosen)


def _stops(stops: object) -> str:
    if not isinstance(stops, str) or stops not in ("hold", "program", "ignore"):
        raise ArgumentError(f"check_gradients: stops is 'hold', 'program' or 'ignore', not {stops!r:.60}")
    return stops


@reads_arguments
def _number(value: object, name: str) -> float | None:
    if value is None:
        return None
    number = real(value)
    if not 0.0 <= number < float("inf"):
        raise ArgumentError(f"check_gradients: {name} is a number from 0 on, not {value!r:.60}")
    return number


@reads_arguments
def _count(value: object, name: str, least: int) -> int:
    if not is_whole(value) or whole(value) < least:
        raise ArgumentError(f"check_gradients: {name} is a whole number from {least} on, not {value!r:.60}")
    return whole(value)
