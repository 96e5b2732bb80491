"""Primitives that hold jaxprs: calls, branches, loops, recomputation, and custom gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

import stopgrad as sg
from stopgrad.base.source import decode
from stopgrad.base.structure import flatten
from stopgrad.graph.arguments import operation_name
from stopgrad.graph.build import emit
from stopgrad.graph.builder import Inside, current
from stopgrad.graph.copying import copy_operations
from stopgrad.graph.graph import Operation, Output, needed
from stopgrad.interop.jax.avals import type_of
from stopgrad.interop.jax.callable.computations import Computation
from stopgrad.interop.jax.foreign import uses_of
from stopgrad.interop.jax.places import is_idiom, is_installed
from stopgrad.interop.jax.steps import (
    ANY,
    CALLS,
    RECOMPUTED,
    NotOurs,
    Step,
    const,
    operands_of_scan,
    primitives_in,
    rule,
    run,
    unconnected,
    uniform,
)
from stopgrad.ops.gates.custom import CustomGradient
from stopgrad.ops.structural.foreign import foreign
from stopgrad.ops.structural.foreign_programs import Step as ForeignStep, written

ESCAPED = "the rule closes over a value that JAX traces, which JAX refuses; pass it as an argument"
DEEPEST = 3
"""How deep custom gradients are kept as rules, if a rule calls its own function."""


def _listed(outputs: Sequence[sg.Output]) -> list[Output]:
    return list(flatten(outputs)[0])


# --------------------------------------------------------------------------------------------- gates


@rule("stop_gradient")
def _stop_gradient(step: Step, x: Output) -> Output:
    if step.held and step.place is not None and is_installed(decode(step.place).file):
        return x  # A library may have made the gradient from the same function, in which the stop acts.
    return unconnected(x) if is_idiom(step.eqn) else sg.stop_gradient(x)


# --------------------------------------------------------------------------------------------- calls


@rule(*CALLS, keys=True)
def _call(step: Step, *inputs: Output) -> list[Output]:
    return step.run(step[CALLS[step.eqn.primitive.name]], *inputs)


@rule(*RECOMPUTED, keys=True)
def _checkpoint(step: Step, *inputs: Output) -> list[Output]:
    return _listed(sg.checkpoint(lambda *xs: step.run(step["jaxpr"], *xs))(*inputs))


# ------------------------------------------------------------------------------------ branches and loops


@rule("cond", keys=True)
def _cond(step: Step, index: Output, *inputs: Output) -> Any:
    branches = [_branch(step, closed) for closed in step["branches"]]
    if not step.results:
        return []
    constant_index = uniform(index)
    if constant_index is not None:
        return branches[min(max(int(constant_index), 0), len(branches) - 1)](*inputs)
    if index.dtype.is_bool:
        index = sg.cast(index, sg.int32)
    return _listed(sg.switch(index, branches, *inputs))


def _branch(step: Step, closed: jex.ClosedJaxpr) -> Callable[..., Any]:
    return lambda *xs: step.run(closed, *xs)


@rule("scan", keys=True)
def _scan(step: Step, *inputs: Output) -> list[Output]:
    closed, (consts, carries) = step["jaxpr"], operands_of_scan(step.params)
    fixed, first, xs = inputs[:consts], inputs[consts : consts + carries], inputs[consts + carries :]

    def body(carry: Sequence[sg.Output], parts: Sequence[sg.Output]) -> tuple[list[Output], list[Output]]:
        results = step.run(closed, *fixed, *carry, *(parts or ()))
        return results[:carries], results[carries:]

    last, ys = sg.scan(
        body,
        list(first),
        list(xs) or None,
        length=step["length"],
        reverse=step["reverse"],
        unroll=_steps_at_once(step["unroll"], step["length"]),
    )
    return [*_listed(last), *_listed(ys)]


def _steps_at_once(unroll: int, length: int) -> int:
    return max(length, 1) if unroll is True else max(int(unroll), 1)


@rule("while", keys=True)
def _while(step: Step, *inputs: Output) -> list[Output]:
    in_condition, in_body = step["cond_nconsts"], step["body_nconsts"]
    for_condition, for_body = inputs[:in_condition], inputs[in_condition : in_condition + in_body]

    batched = bool(step["cond_jaxpr"].out_avals[0].shape)

    def goes_on(state: Sequence[Output]) -> Output:
        return step.run(step["cond_jaxpr"], *for_condition, *state)[0]

    def condition(*state: Output) -> Output:
        going = goes_on(state)
        return sg.reduce_any(going) if batched else going

    def body(*state: Output) -> list[Output]:
        updated = step.run(step["body_jaxpr"], *for_body, *state)
        if not batched:
            return updated
        going = goes_on(state)
        # Of a batch, JAX goes on while any example does; the others stay as they are.
        shapes = [(*going.shape, *[1] * (x.ndim - going.ndim)) for x in state]
        return [
            sg.where(sg.reshape(going, shape), y, x)
            for shape, y, x in zip(shapes, updated, state, strict=True)
        ]

    return _listed(sg.while_loop(condition, body, list(inputs[in_condition + in_body :])))


@rule("platform_index")
def _platform(step: Step) -> Output:
    platforms = step["platforms"]
    here = next((i for i, names in enumerate(platforms) if names is None or "cpu" in names), 0)
    return const(np.asarray(here, np.int32))


# ------------------------------------------------------------------------ functions with own gradients


@rule("custom_jvp_call", "custom_vjp_call", keys=True)
def _custom(step: Step, *inputs: Output) -> list[Output]:
    ours = _computation(step.eqn)
    if ours is not None and [x.type for x in ours.inputs] == [x.type for x in inputs]:
        return _inlined(ours, inputs)
    return owned(step, lambda step, *xs: step.run(step["call_jaxpr"], *xs), inputs, step["num_consts"])


def _computation(eqn: jex.JaxprEqn) -> Computation | None:
    """The graph of ours that an equation calls: JAX sees only what it computes, not its gates."""
    for _, value in _closed_over(eqn.params.get("jvp_jaxpr_fun")):
        ours = getattr(value, "__self__", None)
        if isinstance(ours, Computation) and len(ours.outputs) == len(eqn.outvars):
            return ours
    return None


def _inlined(ours: Computation, inputs: Sequence[Output]) -> list[Output]:
    """The results of a graph of ours, built here with its gates, at its own lines."""
    copies = dict(zip(ours.inputs, inputs, strict=True))

    def build(op: Operation, operands: tuple[Output, ...]) -> Sequence[Output]:
        place = {} if op._place is None else {"place": (op._place, op._instruction)}
        with Inside(**place):
            return emit(op.definition, operands, op.values, "").outputs

    copy_operations(needed(ours.outputs, copies), copies, build)
    return [copies[y] for y in ours.outputs]


@rule(ANY)
def _by_implementation(step: Step, *inputs: Output) -> list[Output]:
    """A primitive of a library that is implemented by others."""
    primitive = step.eqn.primitive
    try:
        closed = jax.make_jaxpr(lambda *xs: primitive.impl(*xs, **step.params))(*map(_shaped, step.avals))
    except Exception as error:  # The implementation may raise anything.
        raise NotOurs(f"{step.name} is no operation of the catalogue") from error
    if primitive in primitives_in(closed.jaxpr):
        raise NotOurs(f"{step.name} is no operation of the catalogue")
    return owned(step, lambda step, *xs: step.run(closed, *xs), inputs)


@rule("call_hi_primitive", keys=True)
def _lowered(step: Step, *inputs: Output) -> list[Output]:
    """A primitive of JAX 0.11 and newer that says itself what it is made of."""
    lower = step.eqn.primitive.to_lojax
    closed = jax.make_jaxpr(lambda *xs: lower(*xs, **step.params))(*map(_shaped, step.avals))
    return owned(step, lambda step, *xs: step.run(closed, *xs), inputs)


def _shaped(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def owned(
    step: Step, function: Callable[..., list[Output]], inputs: Sequence[Output], closed: int = 0
) -> list[Output]:
    """The results of a function of the step and its operands, with JAX's own gradient of the equation.

    It has none for the first operands, so many as the function closes over: gradients stop before these. If
    the rule takes traced values from outside, too, JAX refuses gradients for what the function closes over,
    and what the rule makes for its arguments is known to it alone.
    """
    real = [i for i, aval in enumerate(step.avals) if jnp.issubdtype(aval.dtype, np.inexact)]
    wrt = [i for i in real if i >= closed]
    smooth = [i for i, v in enumerate(step.eqn.outvars) if jnp.issubdtype(v.aval.dtype, np.inexact)]
    if not real or not smooth or step.depth >= DEEPEST:
        return function(step, *inputs)
    refused = refusals(step.eqn, wrt, smooth)
    pulled = pullback_of(step.eqn, [i for i in wrt if i not in refused], smooth)
    if pulled.escapes:
        refused |= {i: ESCAPED for i in real if i < closed}
        wrt = real

    def with_gradient(*xs: Output) -> Any:
        arguments = list(inputs)
        for i, x in zip(wrt, xs, strict=True):
            arguments[i] = x
        results = function(replace(step, held=True), *arguments)

        def pullback(*gs: sg.Output) -> list[Output | None]:
            cotangents = [gs[i] for i in smooth]
            with Inside(place=step.place):
                if pulled.escapes:
                    gradients = _unknown(step, pulled, cotangents)
                else:
                    operands = [*arguments, *cotangents]
                    gradients = run(
                        pulled.jaxpr.jaxpr, pulled.jaxpr.consts, operands, step.place, step.depth + 1
                    )
            parts = iter(gradients)
            connected = iter(pulled.connected)
            # What is returned for an operand without a derivative never arrives.
            return [
                sg.zeros_like(arguments[i]) if i in refused else next(parts) if next(connected) else None
                for i in wrt
            ]

        return results, pullback

    differentiated = [sg.prevent_gradient(inputs[i], refused[i]) if i in refused else inputs[i] for i in wrt]
    graph = current().graph
    assert graph is not None
    op = CustomGradient.create(graph, with_gradient, *differentiated, name=_named(step))
    CustomGradient.settle(op)  # At once, since the operation may be copied into other graphs.
    return list(op.outputs)


def _named(step: Step) -> str | None:
    """The name of the function that an equation calls, as ``"relu"``."""
    called = step.params.get("call_jaxpr")
    name = getattr(getattr(getattr(called, "jaxpr", called), "debug_info", None), "func_name", "")
    return operation_name(str(name)) or None


def _unknown(step: Step, pulled: Pulled, cotangents: Sequence[Output]) -> list[Output]:
    """What a rule that cannot be imported makes of cotangents: of which of them, is known."""
    call = f"gradient of {step.name}"
    program = written([ForeignStep(call, reason=ESCAPED)])
    outputs: list[Output] = []
    for v, used in zip(pulled.jaxpr.jaxpr.outvars, uses_of(pulled.jaxpr), strict=True):
        kind, first = type_of(v.aval), len(pulled.jaxpr.in_avals) - len(cotangents)
        sources = [g for k, g in enumerate(cotangents, first) if k in used]
        outputs += foreign(sources, call, [(kind.dtype.name, *kind.shape)], program=program)
    return outputs


def refusals(eqn: jex.JaxprEqn, wrt: Sequence[int], smooth: Sequence[int]) -> dict[int, str]:
    """The operands for which an equation's own rule raises an error in place of a gradient, and the error."""
    try:
        pullback_of(eqn, wrt, smooth)
    except Exception:  # The rule is a user's or a library's, and may raise anything.
        errors = {}
        for i in wrt:
            _forget_traces(eqn)
            try:
                pullback_of(eqn, [i], smooth)
            except Exception as error:
                errors[i] = " ".join(f"its own rule raises {type(error).__name__}: {error}".split()).rstrip(
                    ": "
                )
        if not errors:
            raise
        _forget_traces(eqn)
        return errors
    return {}


def _forget_traces(eqn: jex.JaxprEqn) -> None:
    """Let JAX trace the rule of an equation anew.

    JAX keeps the traces of ``custom_vjp``'s forward function, but after one that failed it lacks what it
    noted beside them ("Store empty").
    """
    for function, stored in _closed_over(eqn.params.get("fwd_jaxpr_thunk")):
        if isinstance(stored, dict) and "_memoize" in function.__qualname__:
            stored.clear()


def _closed_over(thunk: Any) -> Iterator[tuple[Any, Any]]:
    """What a function of JAX's closes over, and the functions of JAX's among this: each with its function."""
    waiting, seen = [thunk], set[int]()
    while waiting:
        function = waiting.pop()
        function = getattr(function, "f", function)
        if id(function) in seen:
            continue
        seen.add(id(function))
        for cell in getattr(function, "__closure__", None) or ():
            content = cell.cell_contents
            yield function, getattr(content, "f", content)
            module = getattr(
                getattr(content, "f", content), "__module__", None
            )  # Of executed text it may be None.
            if (module or "").startswith("jax."):
                waiting.append(content)


class Pulled:
    """The gradient of an equation as a jaxpr of its operands and cotangents.

    Attributes:
        jaxpr: returns the cotangents of the operands that get one.
        connected: which of the operands asked about these are.
        escapes: whether the rule takes traced values from outside.
    """

    def __init__(self, jaxpr: jex.ClosedJaxpr, connected: Sequence[bool], escapes: bool) -> None:
        self.jaxpr = jaxpr
        self.connected = connected
        self.escapes = escapes


def pullback_of(eqn: jex.JaxprEqn, wrt: Sequence[int], smooth: Sequence[int]) -> Pulled:
    """JAX's own gradient of an equation."""
    call = as_function(eqn)

    def parted(xs: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
        def partial(*parts: jax.Array) -> list[Any]:
            operands = list(xs)
            for i, part in zip(wrt, parts, strict=True):
                operands[i] = part
            outputs = call(*operands)
            return [outputs[i] for i in smooth]

        return partial, [xs[i] for i in wrt]

    def pulled(xs: Sequence[Any], gs: Sequence[Any]) -> tuple[Any, Any]:
        function, parts = parted(xs)
        outputs, vjp = jax.vjp(function, *parts)
        return vjp(list(gs)), outputs  # What the rule returns as results tells what it takes, too.

    def pushed(xs: Sequence[Any]) -> tuple[Any, ...]:
        function, parts = parted(xs)
        return jax.jvp(function, parts, parts)

    xs = [_shaped(v.aval) for v in eqn.invars]
    gs = [_shaped(eqn.outvars[i].aval) for i in smooth]
    closed = jax.make_jaxpr(pulled)(xs, gs)
    depends = set(closed.jaxpr.invars[len(xs) :])
    for inner in closed.jaxpr.eqns:
        if not depends.isdisjoint(v for v in inner.invars if not isinstance(v, jex.Literal)):
            depends.update(inner.outvars)
    results = closed.jaxpr.outvars[: len(wrt)]
    connected = [not isinstance(v, jex.Literal) and v in depends for v in results]
    cotangents = [v for v, flag in zip(results, connected, strict=True) if flag]
    jaxpr = closed.jaxpr.replace(outvars=cotangents, debug_info=closed.jaxpr.debug_info.with_unknown_names())
    consts = list(closed.consts)
    if eqn.params.get("num_consts") and not any(isinstance(value, jax.core.Tracer) for value in consts):
        consts += jax.make_jaxpr(pushed)(xs).consts  # Also of what is left out as unused.
    escapes = any(isinstance(value, jax.core.Tracer) for value in consts)
    return Pulled(jex.ClosedJaxpr(jaxpr, closed.consts), connected, escapes)


def as_function(eqn: jex.JaxprEqn) -> Callable[..., list[Any]]:
    """An equation as a function of its operands, for JAX to trace."""

    def call(*args: jax.Array) -> list[Any]:
        bind_params = eqn.primitive.get_bind_params(eqn.params)
        functions, params = bind_params if isinstance(bind_params, tuple) else ((), bind_params)
        results = eqn.primitive.bind(*functions, *args, **params)
        return list(results) if eqn.primitive.multiple_results else [results]

    return call
