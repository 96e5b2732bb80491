"""Compares generated gradients with finite differences of the function that the gates leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.coercion import flag, is_whole, real, whole
from stopgrad.base.errors import ArgumentError, DTypeError
from stopgrad.base.progress import Progress
from stopgrad.base.source import Location
from stopgrad.base.types import DType
from stopgrad.flow.asked import Asked, asked, label
from stopgrad.flow.checking.compared import Comparison, Rows, compared, distance
from stopgrad.flow.checking.differences import JUMP, SMOOTH
from stopgrad.flow.checking.frozen import Holding, Posed, evaluate, holds, moving, pose
from stopgrad.flow.checking.gradient_check import Checked, GradientCheck, Held, Kink, Worst
from stopgrad.flow.checking.numeric import Settings
from stopgrad.flow.checking.suspects import suspects
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.public import guarded, reads_arguments
from stopgrad.ops.gates.custom import CustomGradient

RTOL = {"float64": 1e-6, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
"""The default relative tolerance, by precision.

It allows for the rounding of the generated gradient: some 10⁴ roundings of float32, 20 of float16 and 10 of
bfloat16. In float64 it is wider than rounding needs: small enough to see every mistake that matters, and
large enough for ill-conditioned steps. The error of the differences themselves is allowed in addition.
"""

_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_MODES = ("reverse", "forward")


@guarded("check_gradients")
def check_gradients(
    ys: object,
    *args: object,
    argnums: int | Sequence[int] | None = None,
    feed_dict: Mapping[Any, Any] | None = None,
    order: int = 1,
    modes: str | Sequence[str] = _MODES,
    stops: str = "hold",
    rtol: float | None = None,
    atol: float | None = None,
    directions: int | None = None,
    seed: int = 0,
    raises: bool = True,
    **kwargs: object,
) -> GradientCheck:
    """Compare generated gradients with finite differences of the function that the gates leave.

    While inputs are moved, stopped values keep the value that they have at the given point, at every step of
    a loop: so a deliberate stop passes and a wrong rule fails. ``straight_through`` moves with its soft
    operand, ``scale_gradient`` by its factor. A custom gradient is compared with the true derivative of its
    function. Gates that clip are treated as if they did not: no function has a clipped derivative.

    Args:
        ys: an output or nested structure of outputs, which count with the sum of their elements, as for
            :func:`gradients`; or a function.
        args: the xs, an output or structure of outputs; or the function's arguments, arrays of any shapes.
            Integers and booleans are ignored.
        argnums: which of the function's arguments are checked; all unless given.
        feed_dict: for outputs, the values of placeholders, as for :meth:`Session.run`; parameters have their
            first values unless fed.
        order: 1; or 2 to compare also the second derivatives with differences of the generated first ones.
        modes: ``"reverse"``, ``"forward"`` or both: how derivatives are generated.
        stops: ``"hold"``; ``"program"`` to hold only stops on the program's own lines, not those in gradient
            functions, which hide a wrong second derivative; or ``"ignore"`` to compare with the true total
            derivative, as if there were no gates. That shows how far a stopped gradient is from it, and never
            raises.
        rtol: relative tolerance; by default that of the coarsest dtype on the way: 10⁻⁶ for float64, 10⁻³
            for float32, 0.02 for float16, 0.1 for bfloat16.
        atol: absolute tolerance; by default a tenth of rtol times the largest derivative, and what rounding
            makes of the value and of the inputs; so it is not 0 where the gradient is.
        directions: the number of random directions in which inputs are moved. By default inputs of up to 64
            numbers are moved number by number, larger ones in random directions and at random numbers.
        seed: the seed of directions and weights.
        raises: whether a failed check raises.
        kwargs: the function's keyword arguments, which are not checked.

    Returns:
        A :class:`GradientCheck`: for each x a :class:`Checked` with the error, the step and the worst
        element. An element at a kink (a corner of relu, a tie of a maximum) passes if its gradient lies
        between the one-sided derivatives, and is reported; so is one whose derivative is infinite, and the
        gradient, too.

    Raises:
        GradientError: generated and numeric gradients differ; the message says what differs most, and which
            rule is wrong. Or a gradient is undefined.
        ArgumentError, DTypeError, GraphError, FeedError: the arguments do not fit.

    References:
        Central differences extrapolated to a step of 0: Ridders 1982, "Accurate computation of F'(x) and
        F'(x) F''(x)". Where all operations on the way are holomorphic, the complex step: Squire and Trapp
        1998, "Using complex variables to estimate derivatives of real functions".

    Examples:
        >>> check = sg.check_gradients(lambda x: sg.reduce_sum(sg.exp(x) * sg.stop_gradient(x)), np.ones(3))
        >>> check.passed, check["x"].error < 1e-6
        (True, True)
        >>> double = sg.custom_gradient(lambda x: (x * x, lambda g: g * x))
        >>> worst = sg.check_gradients(double, 3.0, raises=False)["x"].worst
        >>> worst.generated, worst.numeric
        (3.0, 6.0)
    """
    asking = asked("check_gradients", ys, args, kwargs, argnums)
    if asking.is_function and feed_dict is not None:
        raise ArgumentError(
            "check_gradients: feed_dict is for outputs of a graph; a function gets its arguments"
        )
    orders = _order(order)
    chosen, said, raising = _modes(modes), _stops(stops), flag(raises, "check_gradients: raises")
    posed = _posed(asking, feed_dict)
    gates = _gates(posed)
    settings = _settings(posed, chosen, _holding(said, gates), rtol, atol, directions, seed)
    check = _checked(posed, settings, orders, said, gates)
    if raising and said != "ignore":
        check.raise_if_failed()
    return check


# --------------------------------------------------------------------------------------------- arguments


@reads_arguments
def _order(order: object) -> int:
    if not is_whole(order) or whole(order) not in (1, 2):
        raise ArgumentError(f"check_gradients: order is 1 or 2, not {order!r:.60}")
    return whole(order)


@reads_arguments
def _modes(modes: str | Sequence[str]) -> tuple[str, ...]:
    given = (modes,) if isinstance(modes, str) else tuple(modes)
    if not given or any(not isinstance(m, str) or m not in _MODES for m in given):
        raise ArgumentError(f"check_gradients: modes are 'reverse' and 'forward', not {modes!r:.60}")
    return tuple(m for m in _MODES if m in given)


def _stops(stops: object) -> str:
    if not isinstance(stops, str) or stops not in ("hold", "program", "ignore"):
        raise ArgumentError(f"check_gradients: stops is 'hold', 'program' or 'ignore', not {stops!r:.60}")
    return stops


@reads_arguments
def _number(value: object, name: str) -> float | None:
    if value is None:
        return None
    found = real(value)
    if not 0.0 <= found < float("inf"):
        raise ArgumentError(f"check_gradients: {name} is a number from 0 on, not {value!r:.60}")
    return found


@reads_arguments
def _count(value: object, name: str, least: int) -> int:
    if not is_whole(value) or whole(value) < least:
        raise ArgumentError(f"check_gradients: {name} is a whole number from {least} on, not {value!r:.60}")
    return whole(value)


def _posed(asking: Asked, feed_dict: Mapping[Any, Any] | None) -> Posed:
    posed = pose("check_gradients", asking, feed_dict)
    for these, what, cure in (
        (posed.ys, "results", "no gradient begins at integers"),
        (posed.xs, "inputs", "convert one with sg.cast"),
    ):
        if not these:
            raise DTypeError(f"check_gradients: none of the {what} is floating-point or complex; {cure}")
    return posed


def _settings(
    posed: Posed,
    modes: tuple[str, ...],
    holding: Holding | None,
    rtol: object,
    atol: object,
    directions: object,
    seed: object,
) -> Settings:
    way = [y.dtype for op in walk(moving(posed.ys, posed.xs)) for y in op.outputs]
    coarsest = max(
        (_precision(d) for d in (*way, *(x.dtype for x in (*posed.xs, *posed.ys))) if d.is_differentiable),
        key=lambda name: _EPSILON[name],
    )
    relative = _number(rtol, "rtol")
    return Settings(
        modes,
        holding,
        RTOL[coarsest] if relative is None else relative,
        _number(atol, "atol"),
        None if directions is None else _count(directions, "directions", 1),
        _count(seed, "seed", 0),
        _EPSILON[coarsest],
    )


def _precision(dtype: DType) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)


# --------------------------------------------------------------------------------------------- comparing


def _checked(posed: Posed, settings: Settings, last: int, stops: str, gates: Sequence[Held]) -> GradientCheck:
    """Compare the derivatives of all orders, and make the report."""
    notes: list[str] = []
    broken = _not_finite(posed)
    found: list[list[Comparison]] = []
    if not broken:
        with Progress("checking gradients"):
            found, told = compared(posed, settings, last)
        notes += told
    results = {
        key: _broken(x, broken) if broken else _of_input(x, found[which])
        for which, (key, x) in enumerate(zip(posed.keys, posed.xs, strict=True))
    }
    own = _places(gates)
    way = found[0][-1].order.numeric.operations if found else []
    rules = _lines(_computed(way), lambda op: "" if _place_of(op) in own else _gate(op))
    wrong: list[Held] = []
    differs = any(not result.passed and np.isfinite(result.error) for result in results.values())
    if differs and stops != "ignore":
        wrong = _lines(suspects(posed, settings, last), _rule_of)
    custom = [h for h in gates if h.operations[0].definition is CustomGradient]
    held = [h for h in gates if h not in custom]
    return GradientCheck(
        results, last, settings.modes, stops, settings.rtol, held, custom, rules, wrong, notes
    )


def _not_finite(posed: Posed) -> str:
    """The text about values at the base point that are not finite; empty if all are."""
    values = evaluate([*posed.xs, *posed.ys], posed.feeds)
    names = [f"the input {label(key)}" for key in posed.keys]
    names += [f"the value of {y.name}" for y in posed.ys]
    for value, name in zip(values, names, strict=True):
        if not np.all(np.isfinite(np.asarray(value).astype(complex))):
            return f"{name} has NaN or infinite elements; sg.trace_nan finds the operation that makes them"
    return ""


def _broken(x: Output, why: str) -> Checked:
    return Checked(repr(x.type), False, float("inf"), float("nan"), None, "central", (), why)


def _of_input(x: Output, comparisons: Sequence[Comparison]) -> Checked:
    """The findings of all orders and modes for one input, combined."""
    pairs = [(one, rows) for one in comparisons for rows in one.rows]
    methods = {direction.method for one in comparisons for direction in one.directions}
    directional = any(not one.by_number for one in comparisons)
    method = "directional" if directional else "complex step" if methods == {"complex step"} else "central"
    kinks = {(k.index, k.order, k.jump): k for one, rows in pairs for k in _kinks(x, one, rows)}
    ranked = [(_rank(one, rows, at), one, rows, at) for one, rows in pairs for at in _worst(one, rows)]
    if not ranked:
        return Checked(repr(x.type), True, 0.0, float("nan"), None, method)
    _, one, rows, at = max(ranked, key=lambda item: item[0])
    worst = Worst(
        _place(x, one.directions[at[0]].place),
        float(rows.generated[at]),
        float(rows.numeric[at]),
        float(rows.allowed[at]),
        one.order.number,
        rows.mode,
    )
    passed = all(comparison.passed for comparison in comparisons)
    return Checked(
        repr(x.type),
        passed,
        max(_error(rows) for _, rows in pairs),
        float(np.fmin.reduce(one.directions[at[0]].slope.step, initial=np.inf)),
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


def _rank(one: Comparison, rows: Rows, at: tuple[int, int]) -> tuple[Any, ...]:
    """The rank of a row: first what differs, at a known element, of a low order, in the sum of results."""
    excess = float(rows.excess[at])
    known = one.directions[at[0]].place is not None
    plain = rows.mode == "reverse" and at[1] == 0
    return (True, known, -one.order.number, plain, excess) if excess > 1.0 else (False, excess)


def _worst(one: Comparison, rows: Rows) -> list[tuple[int, int]]:
    """The worst positions: of all, of single elements, and of these in the sum of results."""
    excess = rows.excess
    if not excess.size:
        return []
    alone = np.array([[direction.place is not None] for direction in one.directions])
    first = np.arange(excess.shape[1]) == 0
    found = []
    for chosen in (excess, np.where(alone, excess, -1.0), np.where(alone & first, excess, -1.0)):
        i, j = np.unravel_index(np.argmax(chosen), chosen.shape)
        found.append((int(i), int(j)))
    return found


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


def _kinks(x: Output, one: Comparison, rows: Rows) -> list[Kink]:
    found = []
    for i in range(len(rows.kind) if rows.kind.size else 0):
        steep = np.isinf(rows.low[i]) | np.isinf(rows.high[i])
        with np.errstate(invalid="ignore"):
            gap = np.where(steep, np.inf, np.where(rows.kind[i] == SMOOTH, 0.0, rows.high[i] - rows.low[i]))
        leap = np.nonzero(rows.kind[i] == JUMP)[0]
        j = int(leap[0]) if leap.size else int(np.argmax(gap))
        if leap.size or gap[j] > rows.allowed[i, j]:
            found.append(
                Kink(
                    _place(x, one.directions[i].place),
                    float(rows.generated[i, j]),
                    float(rows.low[i, j]),
                    float(rows.high[i, j]),
                    bool(rows.kind[i, j] == JUMP),
                    one.order.number,
                )
            )
    return found


def _place(x: Output, place: int | None) -> tuple[int, ...] | None:
    if place is None:
        return None
    index = np.unravel_index(place // (2 if x.dtype.is_complex else 1), x.shape) if x.shape else ()
    return tuple(int(i) for i in index)


# ------------------------------------------------------------------------------------------------- gates


def _gates(posed: Posed) -> list[Held]:
    """The gates and custom gradients on the way, one entry for each line."""
    return _lines([*posed.left_out, *_computed(moving(posed.ys, posed.xs))], _what)


def _computed(operations: Iterable[Operation]) -> list[Operation]:
    """Operations and those in their bodies, without those of gradient functions, which compute no value."""
    every = list(walk(operations))
    rules = [op.pullback.operations() for op in every if op.definition is CustomGradient]
    only_gradients = {step for steps in rules for step in walk(steps)}
    return [op for op in every if op not in only_gradients]


def _place_of(op: Operation) -> tuple[str, int] | None:
    return None if op.location is None else (op.location.file, op.location.line)


def _places(gates: Iterable[Held]) -> set[tuple[str, int] | None]:
    """The lines of the program's own gates, to which a gate without a line counts."""
    return {None, *(_place_of(op) for held in gates for op in held.operations)}


def _holding(stops: str, gates: Iterable[Held]) -> Holding | None:
    """Which gates hold what they stop. A gradient function's are told by their lines from the program's."""
    if stops == "program":
        own = _places(gates)
        return lambda op: _place_of(op) in own
    return (lambda op: True) if stops == "hold" else None


def _lines(operations: Iterable[Operation], what: Callable[[Operation], str]) -> list[Held]:
    """Operations with a note, one entry for each line of source."""
    lines: dict[Any, list[Operation]] = {}
    for op in operations:
        said = what(op)
        if said:
            where = op.location
            lines.setdefault((said, where.file, where.line) if where else (said, op), []).append(op)
    return [Held(tuple(ops), ops[0].location, key[0], _rule(ops[0])) for key, ops in lines.items()]


def _rule_of(op: Operation) -> str:
    return "custom_gradient" if op.definition is CustomGradient else op.type


def _rule(op: Operation) -> Location | None:
    """The first line of a custom gradient's gradient function that differs from that of the call."""
    if op.definition is not CustomGradient:
        return None
    here = op.location
    places = (step.location for step in op.pullback.operations())
    return next(
        (p for p in places if p and (here is None or (p.file, p.line) != (here.file, here.line))), None
    )


def _what(op: Operation) -> str:
    if op.definition is CustomGradient:
        arguments = [g for g, k in zip(op.pullback.outputs, op.kept, strict=True) if k < op.asked]
        cut = sum(g is None for g in arguments)
        return f"custom_gradient, {cut} of {len(arguments)} arguments held," if cut else "custom_gradient"
    if op.definition.clips:
        return f"{op.type}, compared as if it clipped nothing: no function has a clipped derivative;"
    return _gate(op)


def _gate(op: Operation) -> str:
    return op.type if op.definition.gate and holds(op) else ""
