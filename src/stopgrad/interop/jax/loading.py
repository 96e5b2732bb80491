"""Loads JAX functions as graphs of ours, and explains which gradients arrive."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

import stopgrad as sg
from stopgrad.base.coercion import flag
from stopgrad.base.errors import ArgumentError, GradientError, GraphError
from stopgrad.base.garbage import without_gc
from stopgrad.base.source import OURS, RawLocation, capture, is_users, kind_of
from stopgrad.base.structure import flatten
from stopgrad.base.types import DType
from stopgrad.flow.asked import Asked
from stopgrad.flow.assertions import blocked_or_raise, flows_or_raise, held_or_raise
from stopgrad.flow.explain import flow_of
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.norm_program import Measuring
from stopgrad.flow.parts import Finding
from stopgrad.flow.patterns import SHOWN, called
from stopgrad.flow.words import some
from stopgrad.graph.arguments import operation_name
from stopgrad.graph.builder import Inside
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.public import guarded
from stopgrad.interop.imported import Model
from stopgrad.interop.jax.avals import type_of
from stopgrad.interop.jax.gradients import Gradients, losses_of, of_results
from stopgrad.interop.jax.primitives import (  # noqa: F401 - they fill the table of rules
    control,
    draws,
    elementwise,
    indexing,
    matrices,
    order,
    products,
    shapes,
    windows,
)
from stopgrad.interop.jax.steps import mapped, refused, run
from stopgrad.interop.jax.tracing import Program, canonical, chosen, narrower, positions_of, program_of
from stopgrad.interop.jax.unused import unused
from stopgrad.interop.jax.updating import Training, updated
from stopgrad.interop.jax.updating.keras_models import keras_steps
from stopgrad.interop.shared import keras


@guarded("jax.load")
def load(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Model:
    """A JAX function as a graph of our operations.

    JAX traces the function on arguments like these; their values are not used. Each primitive becomes
    operations of the catalogue at the user's line, ``lax.stop_gradient`` a :func:`stopgrad.stop_gradient`;
    a primitive that the catalogue lacks becomes a foreign operation that JAX runs. Loops, branches and
    functions with custom gradients stay what they are.

    Args:
        f: any function that ``jax.jit`` takes, of nested structures that JAX knows (dicts, Flax's and Haiku's
            parameters, Equinox modules).
        args: arrays, numbers, ``jax.ShapeDtypeStruct``; functions and strings among them become part of the
            program.
        kwargs: the same, by name.

    Returns:
        The program: its ``inputs`` by the paths of the arguments, such as ``"params.w"``; called on such
        arguments, it returns what f returns.

    Raises:
        ArgumentError: JAX cannot trace the function; the message has the line, and what to do.
        GraphError: it has operations that cannot be imported; all are listed.

    Examples:
        >>> import jax.numpy as jnp, stopgrad.jax as sgj
        >>> model = sgj.load(lambda x: jnp.sin(x) * x, 1.0)
        >>> float(sg.grad(model)(0.0))
        0.0
    """
    program = program_of("jax.load", f, args, kwargs)
    graph, inputs, outputs = _built("jax.load", f, program)
    kinds = [x.type for x in inputs]

    def leaves(positional: tuple[Any, ...], by_name: dict[str, Any]) -> list[Any]:
        values = program.leaves(positional, by_name)
        return [_fed(x, kind.dtype) for x, kind in zip(values, kinds, strict=True)]

    return Model(
        graph,
        dict(zip(program.paths, inputs, strict=True)),
        dict(zip(program.out_paths, outputs, strict=True)),
        leaves=leaves,
        rebuild=program.rebuild,
        name=program.name,
    )


def _fed(x: object, dtype: DType) -> Any:
    """An argument as it is fed: narrowed to 32 bits if the function was traced without 64-bit types."""
    if isinstance(x, sg.Operation):
        x = x.as_output()
    if not isinstance(x, Output):
        return canonical(x, dtype.numpy)
    return sg.cast(x, dtype) if narrower(x.dtype.numpy, dtype.numpy) else x


@guarded("jax.explain")
def explain(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] | None = None,
    magnitudes: bool = False,
    grad: Callable[..., Any] | None = None,
    wrt: Any = None,
    optimizer: Any = None,
    has_aux: bool | None = None,
    **kwargs: Any,
) -> Flow:
    """Whether gradients of what a JAX function returns arrive at its arguments, and if not, why not.

    JAX traces the function, as for :func:`load`; without *magnitudes* and what follows it, nothing is
    computed. With *grad*, *wrt* or *optimizer*, the gradient is taken as you take it, and an update is done
    with it on copies: the report says for each parameter whether it *moves*, is *held*, *moves without a
    gradient*, or is *hidden by the filter* of the gradient function.

    The weights of Keras models that the function uses, or has as arguments, in its closure or by names of
    global variables, are asked about like arguments, by their paths in Keras; those that Keras does not train
    are not.

    What Python decides by the value of an argument, as ``if x > 0``, is decided by the value that is given,
    as by ``jax.grad`` outside of ``jit``: the report is about the branch that is taken.

    Args:
        f: the function. A model of Keras with two arguments, x and y, stands for the loss that its ``fit``
            differentiates, and its weights are asked about.
        args: its arguments, as for :func:`load`.
        argnums: which of them are asked about; all, and all weights of Keras models, unless given.
        magnitudes: whether to compute the gradient, and tell how large it is at each argument, and where it
            vanishes or explodes. The gradients at arguments are JAX's own; where they vanish on the way is
            measured in a graph of ours, if that arrives at the same gradients.
        grad: what makes your gradient function of a loss: ``jax.grad``, ``eqx.filter_grad``,
            ``nnx.value_and_grad``, ``functools.partial(jax.grad, has_aux=True)``; or the gradient function
            itself. Of a function that returns auxiliary results, its first result is asked about.
        wrt: in place of *grad*, a filter of what is differentiated: one of nnx, such as ``nnx.Param``; a
            function of a leaf; a tree of booleans like the argument.
        optimizer: what updates the parameters: an optax transformation, whose state is then a new one; a pair
            of one and its state; a ``TrainState`` of Flax; an optimizer of nnx; or a function of parameters
            and gradients that returns new parameters. For a model of Keras with x and y: an optimizer of
            Keras, or the compiled model. Nothing of yours is changed.
        has_aux: whether only the first of what the function returns is differentiated, as in ``jax.grad``;
            False if all is. Unless given: of a tuple that begins with scalars, these are; of a dict or an
            object, what is called ``loss``; otherwise all.
        kwargs: its keyword arguments, which are not asked about.

    Returns:
        A :class:`stopgrad.Flow`, as of :func:`stopgrad.explain`, by the paths of the arguments.

    Raises:
        ArgumentError: JAX cannot trace the function, or values are needed and an argument has none; a Keras
            model with x and y is not compiled.
        GradientError: it returns no array.

    Examples:
        >>> import jax, stopgrad.jax as sgj
        >>> sgj.explain(lambda a, b: a * jax.lax.stop_gradient(b), 1.0, 2.0)["b"].status
        'stopped'
        >>> import optax
        >>> def loss(p):
        ...     return (jax.lax.stop_gradient(p["encoder"]) * p["head"]).sum()
        >>> p = {"encoder": jax.numpy.ones(3), "head": jax.numpy.ones(3)}
        >>> flow = sgj.explain(loss, p, optimizer=optax.adamw(0.1, weight_decay=0.1))
        >>> flow["p.encoder"].status, flow["p.encoder"].update.verdict
        ('stopped', 'moves without a gradient')
    """
    with_magnitudes = flag(magnitudes, "jax.explain: magnitudes")
    training = Training(grad, wrt, optimizer)
    if keras.is_model(f) and len(args) == 2 and not kwargs and argnums is None:
        loss = keras.fit_loss("jax.explain", f)
        flow = _flow("jax.explain", loss, (f, *args), {}, 0, with_magnitudes)
        return flow.with_steps(keras_steps("jax.explain", f, args, training)) if training.is_given else flow
    if training.is_given:
        return _trained("jax.explain", f, args, kwargs, argnums, training, with_magnitudes, has_aux)
    return _flow("jax.explain", f, args, kwargs, argnums, with_magnitudes, has_aux)


@guarded("jax.assert_flows")
def assert_flows(
    f: Callable[..., Any],
    *args: Any,
    to: str | Sequence[str] | None = None,
    argnums: int | Sequence[int] | None = None,
    **kwargs: Any,
) -> None:
    """Raise unless gradients of what a JAX function returns arrive at these arguments.

    Args:
        f: the function.
        args, argnums, kwargs: as for :func:`explain`.
        to: the arguments, such as ``"params.w"``, ``"params"`` for all below it, a pattern such as
            ``"params.*.w"``, or a list of these; all that hold floating-point numbers unless given.

    Raises:
        FlowError: some do not; what cuts the paths to these, and on which lines.
        GraphError: there is no such argument.

    Examples:
        >>> import jax, stopgrad.jax as sgj
        >>> sgj.assert_flows(lambda a, b: a * jax.lax.stop_gradient(b), 1.0, 2.0, to="a")
    """
    flow = _flow("jax.assert_flows", f, args, kwargs, argnums)
    flows_or_raise("jax.assert_flows", flow, _keys("jax.assert_flows", flow, to))


@guarded("jax.assert_blocked")
def assert_blocked(
    f: Callable[..., Any],
    *args: Any,
    to: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
    argnums: int | Sequence[int] | None = None,
    **kwargs: Any,
) -> None:
    """Raise if a gradient of what a JAX function returns arrives at any of these arguments.

    Args:
        f: the function.
        args, to, argnums, kwargs: as for :func:`assert_flows`.
        by: the line that must cut the paths to each of them, such as ``"model.py:14"``; by anything unless
            given.

    Raises:
        FlowError: some do, and on which lines an open path runs; or something else cuts them.
        GraphError: there is no such argument, or nothing on that line.

    Examples:
        >>> import jax, stopgrad.jax as sgj
        >>> sgj.assert_blocked(lambda a, b: a * jax.lax.stop_gradient(b), 1.0, 2.0, to="b")
    """
    flow = _flow("jax.assert_blocked", f, args, kwargs, argnums)
    blocked_or_raise("jax.assert_blocked", flow, _keys("jax.assert_blocked", flow, to), by)


@guarded("jax.assert_held")
def assert_held(
    f: Callable[..., Any],
    *args: Any,
    optimizer: Any,
    to: str | Sequence[str] | None = None,
    argnums: int | Sequence[int] | None = None,
    grad: Callable[..., Any] | None = None,
    wrt: Any = None,
    **kwargs: Any,
) -> None:
    """Raise if an update of an optimizer moves any of these arguments.

    A stop alone does not hold a parameter: weight decay and momentum move it without a gradient. So does a
    mask: ``optax.masked`` passes on the gradients of what it leaves out.

    Args:
        f: the function.
        args, argnums, kwargs: as for :func:`explain`.
        optimizer, grad, wrt: what it is trained with, as for :func:`explain`. Nothing of yours is changed.
        to: as for :func:`assert_flows`.

    Raises:
        FlowError: some move, by how much, and why, as far as it is known.
        ArgumentError: optimizer, gradient function and arguments do not fit together.
        GraphError: there is no such argument.

    Examples:
        >>> import jax, optax, stopgrad.jax as sgj
        >>> def loss(p):
        ...     return (p["encoder"] * p["head"]).sum()
        >>> p = {"encoder": jax.numpy.ones(3), "head": jax.numpy.ones(3)}
        >>> parts = {"encoder": "frozen", "head": "trained"}
        >>> tx = optax.multi_transform({"frozen": optax.set_to_zero(), "trained": optax.adamw(0.1)}, parts)
        >>> sgj.assert_held(loss, p, optimizer=tx, to="p.encoder")
    """
    training = Training(grad, wrt, optimizer)
    flow = _trained("jax.assert_held", f, args, kwargs, argnums, training)
    held_or_raise("jax.assert_held", flow, _keys("jax.assert_held", flow, to))


# -------------------------------------------------------------------------------------------- building


def _built(what: str, f: Callable[..., Any], program: Program) -> tuple[Graph, list[Output], list[Output]]:
    """The graph of a program, its inputs and its outputs."""
    graph = Graph()
    place = definition_of(f)
    problems = refused(program.closed.jaxpr, place)
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise GraphError(f"{what}: {program.name} holds what cannot be imported:{listed}")
    with graph.as_default():
        inputs = []
        for path, v in zip(program.paths, program.closed.jaxpr.invars, strict=True):
            kind = type_of(v.aval)
            inputs.append(sg.placeholder(kind.dtype, kind.shape, operation_name(path) or None))
        with Inside(place=place):
            results = without_gc(run, program.closed.jaxpr, program.closed.consts, inputs, place)
        input_ids = {id(x) for x in inputs}
        outputs = [sg.identity(y) if id(y) in input_ids else y for y in results]
    return graph, inputs, outputs


def definition_of(f: Callable[..., Any]) -> RawLocation | None:
    """The line of a function's definition, for operations that have no line; of ours, that of the call."""
    code = getattr(f, "__code__", None)
    if code is None:
        return capture() if keras.is_layer(f) else None
    return (code, 0) if kind_of(code.co_filename) != OURS else capture()


class Question(NamedTuple):
    """A question about a JAX function, as a graph of ours.

    Attributes:
        program: the function, as JAX traced it.
        inputs: the placeholders of its arguments, by their paths.
        asked: what is differentiated with respect to what.
        findings: on arguments that are not used.
        positions: of what is asked about among the inputs, by path.
        losses: which of the results are differentiated.
    """

    program: Program
    inputs: dict[str, Output]
    asked: Asked
    findings: list[Finding]
    positions: dict[str, int]
    losses: list[bool]

    def fed(self, what: str, values: Sequence[Any]) -> list[Any]:
        """The values of the arguments as arrays of their types.

        Raises:
            ArgumentError: one of them is only a shape.
        """
        arrays = []
        for (path, x), value in zip(self.inputs.items(), values, strict=True):
            if isinstance(value, jax.ShapeDtypeStruct):
                reason = "is only a shape; magnitudes are those of values: give an array"
                raise ArgumentError(f"{what}: {path} {reason}")
            fits = isinstance(value, jax.Array) and value.dtype == x.dtype.numpy
            arrays.append(value if fits else canonical(value, x.dtype.numpy))
        return arrays


def question(
    what: str,
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int] | None,
    within: bool = False,
    has_aux: bool | None = None,
) -> Question:
    """Trace a function, and ask about its arguments.

    Args:
        what: names the caller in errors.
        f, args, kwargs, argnums, has_aux: as for :func:`explain`.
        within: whether the function may use values of a trace around, which then count as constants.

    Raises:
        ArgumentError, GradientError: JAX cannot trace it, or it returns no array.
    """
    positions = positions_of(what, f, len(args), argnums)
    program = program_of(what, f, args, kwargs, positions, within, weights=not within)
    asked = chosen(program, positions, argnums)
    with jax.ensure_compile_time_eval() if within else contextlib.nullcontext():
        graph, inputs, outputs = _built(what, f, program)
    if not outputs:
        raise GradientError(f"{what}: {program.name} returned no array; let it return what is differentiated")
    xs = {program.paths[i]: inputs[i] for i in asked}
    values = program.leaves(args, kwargs)
    places = {program.paths[i]: i for i in asked}
    findings = unused(program.closed, values, graph, inputs, places)
    named = dict(zip(program.paths, inputs, strict=True))
    updated = {x for path, x in xs.items() if path in program.updated}
    losses = losses_of(what, program, has_aux)
    ys = tuple([y for y, is_loss in zip(outputs, losses, strict=True) if is_loss])
    asking = Asked(
        graph,
        ys,
        xs,
        is_function=True,
        by_library=_is_by_library,
        updated=frozenset(updated),
        is_mapped=functools.partial(_is_among, frozenset(mapped(program.closed.jaxpr, definition_of(f)))),
    )
    return Question(program, named, asking, findings, places, losses)


def _is_among(places: frozenset[tuple[int, int]], op: Operation) -> bool:
    return (id(op._place), op._instruction) in places


def _is_by_library(op: Operation) -> bool:
    """Whether a library's or JAX's own code put an operation in."""
    return op._place is not None and not is_users((op._place, op._instruction))


def _flow(
    what: str,
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int] | None,
    magnitudes: bool = False,
    has_aux: bool | None = None,
) -> Flow:
    posed = question(what, f, args, kwargs, argnums, has_aux=has_aux)
    measured = None
    if magnitudes:
        values = posed.program.leaves(args, kwargs)
        ours = Measuring(posed.asked, list(posed.inputs.values()), {})(posed.fed(what, values))
        measured = Gradients(of_results(posed.program.closed, posed.losses), posed.positions)(ours, values)
    return without_gc(flow_of, posed.asked, (), posed.findings, measured)


def _trained(
    what: str,
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int] | None,
    training: Training,
    magnitudes: bool = False,
    has_aux: bool | None = None,
) -> Flow:
    """The report on what is trained, with what an update does to it."""
    trained = updated(what, f, args, kwargs, argnums, training)
    has_aux = has_aux if trained.loss is f else None  # Else what it returns besides is gone.
    return _flow(what, trained.loss, args, kwargs, trained.argnums, magnitudes, has_aux).with_steps(
        trained.steps
    )


def _keys(what: str, flow: Flow, to: str | Sequence[str] | None) -> list[str]:
    """The arguments that an assertion names, with all below them; there are some that can have gradients."""
    every = list(flow.xs)
    differentiable = [key for key in every if flow.xs[key].type.differentiable]
    keys: dict[str, None] = {}
    if to is None:
        keys |= dict.fromkeys([key for key in differentiable if not flow.is_updated(key)])
    for name in () if to is None else flatten(to)[0]:
        below = called(str(name), every)
        if not below:
            raise GraphError(f"{what}: there is no argument {name!r}; there are {some(every, SHOWN)}")
        keys |= dict.fromkeys(below)
    if keys.keys().isdisjoint(differentiable):
        listed = f" ({some(list(keys) or every, SHOWN)})" if every else ""
        raise ArgumentError(f"{what}: nothing is asked about that can have a gradient{listed}")
    return list(keys)
