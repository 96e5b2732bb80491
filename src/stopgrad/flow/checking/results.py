"""What the comparisons of an input say, as an entry of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.base.types import TensorType
from stopgrad.flow.checking.compared import Comparison, Rows, distance
from stopgrad.flow.checking.finite_differences import JUMP, SMOOTH
from stopgrad.flow.checking.gradient_check import Checked, Kink, Worst


def unfit(type: TensorType, why: str) -> Checked:
    """What is said of an input whose derivatives cannot be compared."""
    return Checked(repr(type), False, float("inf"), float("nan"), None, "central", (), why)


def of_input(type: TensorType, comparisons: Sequence[Comparison]) -> Checked:
    """The findings of all orders and modes for one input, combined."""
    pairs = [(comparison, rows) for comparison in comparisons for rows in comparison.rows]
    methods = {direction.method for comparison in comparisons for direction in comparison.directions}
    directional = any(not comparison.by_number for comparison in comparisons)
    method = "directional" if directional else "complex step" if methods == {"complex step"} else "central"
    kinks = {
        (k.index, k.order, k.jump): k for comparison, rows in pairs for k in _kinks(type, comparison, rows)
    }
    ranked = [
        (_rank(comparison, rows, at), comparison, rows, at)
        for comparison, rows in pairs
        for at in _worst(comparison, rows)
    ]
    if not ranked:
        return Checked(repr(type), True, 0.0, float("nan"), None, method)
    _, comparison, rows, at = max(ranked, key=lambda item: item[0])
    worst = Worst(
        _place(type, comparison.directions[at[0]].place),
        float(rows.generated[at]),
        float(rows.numeric[at]),
        float(rows.allowed[at]),
        comparison.order.number,
        rows.mode,
    )
    passed = all(comparison.passed for comparison in comparisons)
    return Checked(
        repr(type),
        passed,
        max(_error(rows) for _, rows in pairs),
        float(np.fmin.reduce(comparison.directions[at[0]].slope.step, initial=np.inf)),
        worst,
        method,
        tuple(kinks.values()),
        "" if passed else _reason(rows, at),
    )


def _error(rows: Rows) -> float:
    """The largest difference relative to the largest derivative; at kinks from the one-sided ones."""
    if np.any(np.isnan(rows.generated) & (rows.excess > 1.0)):
        return float("inf")
    apart = distance(rows.generated, rows.numeric, rows.low, rows.high, rows.kind)
    greatest = float(np.fmax.reduce(apart, None, initial=0.0))
    return greatest / rows.scale if 0.0 < greatest < np.inf else greatest


def _rank(comparison: Comparison, rows: Rows, at: tuple[int, int]) -> tuple[Any, ...]:
    """The rank of a row: first what differs, at a known element, of a low order, in the sum of results."""
    excess = float(rows.excess[at])
    by_element = comparison.directions[at[0]].place is not None
    plain = rows.mode == "reverse" and at[1] == 0
    return (True, by_element, -comparison.order.number, plain, excess) if excess > 1.0 else (False, excess)


def _worst(comparison: Comparison, rows: Rows) -> list[tuple[int, int]]:
    """The worst positions: of all, of single elements, and of these in the sum of results."""
    excess = rows.excess
    if not excess.size:
        return []
    alone = np.array([[direction.place is not None] for direction in comparison.directions])
    first = np.arange(excess.shape[1]) == 0
    positions = []
    for chosen in (excess, np.where(alone, excess, -1.0), np.where(alone & first, excess, -1.0)):
        i, j = np.unravel_index(np.argmax(chosen), chosen.shape)
        positions.append((int(i), int(j)))
    return positions


def _reason(rows: Rows, at: tuple[int, int]) -> str:
    if not np.isfinite(rows.generated[at]):
        return "the generated gradient is NaN or infinite; sg.trace_nan finds the operation that makes it so"
    if not np.isfinite(rows.error[at]):
        return "no differences exist there: the function is not defined around the point, or not finite"
    if rows.unsettled[at]:
        return f"differences do not settle: their error is some {rows.error[at]:.1e}"
    if rows.kind[at] == SMOOTH:
        return ""
    what = "leaps" if rows.kind[at] == JUMP else "has a kink"
    return (
        f"the function {what} there; the generated gradient must lie between the one-sided derivatives, "
        f"{rows.low[at]:.6g} and {rows.high[at]:.6g}"
    )


def _kinks(type: TensorType, comparison: Comparison, rows: Rows) -> list[Kink]:
    kinks = []
    for i in range(len(rows.kind) if rows.kind.size else 0):
        steep = np.isinf(rows.low[i]) | np.isinf(rows.high[i])
        with np.errstate(invalid="ignore"):
            gap = np.where(steep, np.inf, np.where(rows.kind[i] == SMOOTH, 0.0, rows.high[i] - rows.low[i]))
        leap = np.nonzero(rows.kind[i] == JUMP)[0]
        j = int(leap[0]) if leap.size else int(np.argmax(gap))
        if leap.size or gap[j] > rows.allowed[i, j]:
            kinks.append(
                Kink(
                    _place(type, comparison.directions[i].place),
                    float(rows.generated[i, j]),
                    float(rows.low[i, j]),
                    float(rows.high[i, j]),
                    bool(rows.kind[i, j] == JUMP),
                    comparison.order.number,
                )
            )
    return kinks


def _place(type: TensorType, place: int | None) -> tuple[int, ...] | None:
    if place is None:
        return None
    index = np.unravel_index(place // (2 if type.dtype.is_complex else 1), type.shape) if type.shape else ()
    return tuple(int(i) for i in index)
