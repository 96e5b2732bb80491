"""``trace_nan``: which line of JAX makes the first NaN or infinity, in values or in JAX's own gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from stopgrad.base.coercion import flag
from stopgrad.base.errors import ArgumentError, GradientError
from stopgrad.base.source import RawLocation, decode
from stopgrad.flow.nans.nan_trace import NanTrace
from stopgrad.flow.source_lines import in_short
from stopgrad.graph.public import guarded
from stopgrad.interop.jax.gradients import array_for, differentiated, is_float, losses_of
from stopgrad.interop.jax.loading import definition_of
from stopgrad.interop.jax.stepping import Node, Stepping
from stopgrad.interop.jax.tracing import Program, chosen, positions_of, program_of
from stopgrad.interop.shared import keras
from stopgrad.interop.shared.nan_cures import UNUSED, choice_says, cure_of, meets_zero, subject_values, words
from stopgrad.interop.shared.nans import Made, Result, reported

WORDS = words(
    "jnp",
    clip="maximum(x, 0.0)",
    logits="optax.sigmoid_binary_cross_entropy, jax.nn.log_softmax",
    softmax="jax.nn.softmax, jax.nn.logsumexp, jax.nn.softplus",
)


@guarded("jax.trace_nan")
def trace_nan(
    f: Callable[..., object],
    *args: object,
    argnums: int | Sequence[int] | None = None,
    gradient: bool = True,
    has_aux: bool | None = None,
    **kwargs: object,
) -> NanTrace:
    """Find the operation that makes the first NaN or infinity in what a function returns or its gradient.

    JAX traces the function and differentiates it, as ``jax.grad`` does; the equations are then run one by
    one, also those in jitted functions, loops, branches and custom rules. So the gradient is JAX's own.

    Args:
        f: a function that returns an array, or a structure with arrays. A model of Keras with two arguments,
            x and y, stands for the loss that its ``fit`` differentiates.
        args: its arguments.
        argnums: those with respect to which it is differentiated; all, and all weights of Keras models,
            unless given.
        gradient: whether the gradient is looked at, too.
        has_aux: whether only the first of what the function returns is differentiated, as in ``jax.grad``;
            unless given, that is what is called loss, or the scalars that come first, or all.
        kwargs: its keyword arguments.

    Returns:
        A :class:`stopgrad.flow.nans.nan_trace.NanTrace`, which is true if a NaN or infinity arrives.

    Raises:
        ArgumentError: JAX cannot trace the function, or an argument is only a shape.
        GradientError: it returns no array.

    Examples:
        >>> import jax.numpy as jnp, stopgrad.jax as sgj
        >>> trace = sgj.trace_nan(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0).sum(), jnp.array([0.0, 4.0]))
        >>> trace.first.where, trace.first.origin_name, trace.first.pattern
        ('gradient', 'jax.lax.sqrt', 'branch not taken')
    """
    flag(gradient, "jax.trace_nan: gradient")
    if keras.is_model(f) and len(args) == 2 and not kwargs and argnums is None:
        f, args, argnums = keras.fit_loss("jax.trace_nan", f), (f, *args), 0
    positions = positions_of("jax.trace_nan", f, len(args), argnums)
    program = program_of("jax.trace_nan", f, args, kwargs, positions, weights=True)
    asked = chosen(program, positions, argnums)
    values = program.leaves(args, kwargs)
    for path, value in zip(program.paths, values, strict=True):
        if isinstance(value, jax.ShapeDtypeStruct):
            raise ArgumentError(
                f"jax.trace_nan: {path} is only a shape; NaNs are those of values: give an array"
            )
    if not program.closed.jaxpr.outvars:
        raise GradientError(f"jax.trace_nan: {program.name} returned no array; let it return the loss")
    wrt = [i for i in asked if is_float(program.closed.in_avals[i])] if gradient else []
    losses = losses_of("jax.trace_nan", program, has_aux)
    return _traced(program, values, wrt, losses, definition_of(f))


def _traced(
    program: Program,
    values: Sequence[Any],
    wrt: Sequence[int],
    losses: Sequence[bool],
    place: RawLocation | None,
) -> NanTrace:
    """Differentiate a program, run it equation by equation, and report."""
    arrays = [array_for(x, aval) for x, aval in zip(values, program.closed.in_avals, strict=True)]
    whole = differentiated(program.closed, arrays, wrt, losses)
    stepping = Stepping(_written(program.closed.jaxpr))
    arguments = [stepping.initial(x, "argument", path) for x, path in zip(arrays, program.paths, strict=True)]
    count = len(program.closed.jaxpr.outvars)
    live = [i < count for i in range(len(whole.jaxpr.outvars))]
    outputs = stepping.run(whole.jaxpr, whole.consts, arguments, place, live)
    results = [Result(name, y.marks, False) for name, y in zip(_names(program), outputs, strict=False)]
    for i, y in zip(wrt, outputs[count:], strict=False):
        results.append(Result(f"the gradient of {program.paths[i]}", y.marks, True))
    return reported(stepping.events, results, _cure, len(stepping.ran))


def _names(program: Program) -> list[str]:
    if len(program.out_paths) == 1:
        return ["the result"]
    return [f"result {path}" for path in program.out_paths]


def _written(jaxpr: Any) -> dict[int, list[Any]]:
    """The user's equations, nested ones included, by the tracebacks at which they were written."""
    by_traceback: dict[int, list[Any]] = {}
    stack = [jaxpr]
    while stack:
        for eqn in stack.pop().eqns:
            if eqn.source_info.traceback is not None:
                by_traceback.setdefault(id(eqn.source_info.traceback), []).append(eqn)
            for value in eqn.params.values():
                for part in value if isinstance(value, (tuple, list)) else (value,):
                    inner = getattr(part, "jaxpr", part)
                    if hasattr(inner, "eqns"):
                        stack.append(inner)
    return by_traceback


# ------------------------------------------------------------------------------------------- cures


def _cure(event: Made) -> tuple[str, str] | None:
    call = event.call if event.forward is None else event.forward.call
    kind = call.rsplit(".", 1)[-1]
    if event.source is not None:
        return None
    if meets_zero(event):
        choice = _choice(event.more)
        if choice is not None:
            return "branch not taken", choice_says(kind, choice, WORDS)
        if event.forward is not None and kind not in ("eigh", "svd", "eig"):
            return "0 times an infinity", UNUSED.format_map(WORDS)
    return cure_of(event, _written_out(event, kind), WORDS)


def _written_out(event: Made, kind: str) -> str:
    """The kind of an operation; of a root, what it is the last part of: a norm or a standard deviation."""
    if kind != "sqrt" or event.forward is None or 0 not in subject_values(event):
        return kind
    ancestors = event.forward.more.behind()
    squares = [x for x in ancestors if _is_square(x)]
    if not squares or not any(x.kind == "reduce_sum" for x in ancestors):
        return kind
    differs = any(x.kind == "sub" and any(y.kind == "reduce_sum" for y in x.behind()) for x in ancestors)
    return "std" if differs else "norm"


def _is_square(x: Node) -> bool:
    if x.kind == "mul":
        a, b = x.inputs
        return a is b or a in b.behind(2) or b in a.behind(2)  # Of complex numbers, x * conj(x).
    return x.kind == "square" or (x.kind == "integer_pow" and x.eqn.params["y"] == 2)


def _choice(node: Node | None) -> str | None:
    """The line of the ``where`` from which a gradient of 0 came; None if there is none near."""
    for ancestor in [] if node is None else node.behind():
        if ancestor.kind == "select_n":
            return "" if ancestor.place is None else f" ({in_short(decode(ancestor.place))})"
    return None
