"""Compares generated gradients with finite differences of the function that the gates leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.errors import ArgumentError, DTypeError
from stopgrad.base.progress import Progress
from stopgrad.base.source import Location
from stopgrad.flow.asked import Asked, asked, label
from stopgrad.flow.checking.frozen import Holding, Posed, evaluate, holds, moving, pose
from stopgrad.flow.checking.generated import Compared, compared
from stopgrad.flow.checking.gradient_check import GradientCheck, Held
from stopgrad.flow.checking.numeric import Settings
from stopgrad.flow.checking.options import MODES, coarsest, options
from stopgrad.flow.checking.results import of_input, unfit
from stopgrad.flow.checking.suspects import suspects
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Operation
from stopgrad.graph.public import guarded
from stopgrad.ops.gates.custom import CustomGradient


@guarded("check_gradients")
def check_gradients(
    ys: object,
    *args: object,
    argnums: int | Sequence[int] | None = None,
    feed_dict: Mapping[Any, Any] | None = None,
    order: int = 1,
    modes: str | Sequence[str] = MODES,
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
    wanted = options(order, modes, stops, rtol, atol, directions, seed, raises)
    posed = _posed(asking, feed_dict)
    gates = _gates(posed)
    settings = wanted.settings(_coarsest(posed), _holding(wanted.stops, gates))
    check = _checked(posed, settings, wanted.order, wanted.stops, gates)
    if wanted.raises and wanted.stops != "ignore":
        check.raise_if_failed()
    return check


# --------------------------------------------------------------------------------------------- arguments


def _posed(asking: Asked, feed_dict: Mapping[Any, Any] | None) -> Posed:
    posed = pose("check_gradients", asking, feed_dict)
    for these, what, cure in (
        (posed.ys, "results", "no gradient begins at integers"),
        (posed.xs, "inputs", "convert one with sg.cast"),
    ):
        if not these:
            raise DTypeError(f"check_gradients: none of the {what} is floating-point or complex; {cure}")
    return posed


def _coarsest(posed: Posed) -> str:
    """The name of the coarsest dtype on the way."""
    way = [y.dtype for op in walk(moving(posed.ys, posed.xs)) for y in op.outputs]
    return coarsest([*way, *[x.dtype for x in (*posed.xs, *posed.ys)]])


# --------------------------------------------------------------------------------------------- comparing


def _checked(posed: Posed, settings: Settings, last: int, stops: str, gates: Sequence[Held]) -> GradientCheck:
    """Compare the derivatives of all orders, and make the report."""
    broken = _not_finite(posed)
    comparison: Compared | None = None
    if not broken:
        with Progress("checking gradients"):
            comparison = compared(posed, settings, last)
    results = {
        key: unfit(x.type, broken) if comparison is None else of_input(x.type, comparison.by_input[which])
        for which, (key, x) in enumerate(zip(posed.keys, posed.xs, strict=True))
    }
    own = _places(gates)
    way, notes = ([], []) if comparison is None else (comparison.operations, comparison.notes)
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
        text = what(op)
        if text:
            where = op.location
            lines.setdefault((text, where.file, where.line) if where else (text, op), []).append(op)
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
