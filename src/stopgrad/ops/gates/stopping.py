"""Gradient gates: the identity in the forward direction, with a gradient of their own.

Here are the gates that stop, redirect, refuse or name the gradient; those that change its value are in
:mod:`stopgrad.ops.gates.scaling`.

Each public function takes one tensor or a nested structure of tensors, gates every floating-point or complex
leaf and returns everything else untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.builder import NoGradientBlock
from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    DTypeError,
    GraphError,
    Kind,
    Op,
    Operation,
    Output,
    Scope,
    Tensor,
    TensorType,
    Undefined,
)
from stopgrad.ops.elementwise.convert import where
from stopgrad.ops.shapes.reshape import beside
from stopgrad.ops.structural.sources import zeros_like

__all__ = [
    "no_gradient",
    "prevent_gradient",
    "probe",
    "stop_gradient",
    "straight_through",
]

T = TypeVar("T")


class Gate(Op, abstract=True):
    """Passes its first operand through unchanged, bit for bit, and is erased after the last differentiation.

    Args:
        x: any tensor.

    Returns:
        The tensor.
    """

    passes: ClassVar[int | None] = 0
    merged = False
    batch: ClassVar[Any] = d.ALONG
    lower: d.Lowering = staticmethod(lambda xp, x, *_, **__: x)


def carries_gradient(x: object) -> bool:
    """Whether a leaf carries a gradient: a floating-point or complex output or array."""
    if isinstance(x, (Output, Operation)):
        return d.type_of(x).differentiable
    return (
        isinstance(x, (np.ndarray, np.generic))
        and x.dtype.kind in "fcV"
        and d.type_of(np.asarray(x)).differentiable
    )


def gate_leaves(function: Callable[[Any], Tensor], x: T, name: str | None = None) -> T:
    """Apply a gate to every leaf that carries a gradient; an invalid *name* is refused."""
    if name is not None:
        d.check_name(name)
    if isinstance(x, Output):
        return function(x) if x.type.differentiable else x
    return d.map_leaves(lambda leaf: function(leaf) if carries_gradient(leaf) else leaf, x)


# ---------------------------------------------------------------------------------------------- stops


class StopGradient(Gate):
    """Passes its input through unchanged and stops the gradient.

    The input counts as a constant, in reverse and forward mode and at every order. Compiled code holds no
    trace of the gate.
    """

    infer = staticmethod(lambda x: x)
    gradient: d.Gradient = {"x": d.stopped("stop_gradient")}
    remade = True
    stops = True
    samples: d.Samples = [d.sample(d.floats(3)), d.sample(d.floats("n", 2))]
    extremes = ((np.nan,), (-0.0,))


@d.builds(StopGradient, alike=True)
def stop_gradient(
    input: T, name: str | None = None, *, wrt: object = None, when: ArrayLike | None = None
) -> T:
    """Passes its input through unchanged and stops the gradient.

    The input counts as a constant, in reverse and forward mode and at every order. Compiled code holds no
    trace of the gate.

    Args:
        input: a tensor, or a nested structure of tensors.
        name: of the gate.
        wrt: tensors, also in nested structures such as ``params["encoder"]``, whose numbers and strings are
            ignored. The gradient is stopped only with respect to these, which may be an empty list; by
            default with respect to all tensors. These are held: in derivatives with respect to others, too,
            they count as constants at every order.
        when: a Python bool or a scalar boolean output, whose value is read at each run. The gradient is
            stopped only where it is True.

    Returns:
        The operand, or the structure with its floating-point and complex leaves gated.

    References:
        TensorFlow, ``tf.stop_gradient``.

    Examples:
        >>> with sg.Graph().as_default():
        ...     x = sg.placeholder(sg.float32, name="x")
        ...     sg.gradients(x * sg.stop_gradient(x), [x]), sg.gradients(sg.stop_gradient(x * x), [x])
        ([<gradients/Mul:0 float32[]>], [None])
    """
    if name is not None:
        d.check_name(name)
    if isinstance(when, (bool, np.bool_)):
        if not when:
            return input
        when = None
    chosen = None if wrt is None else _tensors(wrt)
    if chosen == ():
        return input

    def stop(leaf: ArrayLike) -> Tensor:
        if when is not None:
            return stop_gradient_when(leaf, when, *(chosen or ()), name=name)
        if chosen is not None:
            return d.apply(StopGradientTowards, (leaf, *chosen), (), name)
        return d.apply(StopGradient, (leaf,), (), name)

    return gate_leaves(stop, input)


def _tensors(tree: object) -> tuple[Tensor, ...]:
    """The tensors that ``wrt=`` names."""
    tensors = [leaf.as_output() if isinstance(leaf, Operation) else leaf for leaf in d.tensors_among(tree)]
    for leaf in tensors:
        if not isinstance(leaf, Output) and not (d.default_graph() is None and carries_gradient(leaf)):
            raise GraphError(f"StopGradient: wrt= takes tensors of the graph, not {leaf!r}")
    return tuple(tensors)


_NAMES = d.unconnected("names a tensor; takes no value from it")


class StopGradientTowards(Gate):
    """A stop with respect to chosen tensors, open for all others. Made by ``stop_gradient(x, wrt=[...])``.

    The chosen tensors are held in what comes through for others: the second derivative of a²b with a held,
    for b and then a, is 0.

    Args:
        wrt: the tensors with respect to which no gradient passes.

    Examples:
        >>> with sg.Graph().as_default():
        ...     a, b = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
        ...     da, db = sg.gradients(sg.stop_gradient(a * b, wrt=[a]), [a, b])
        >>> da is None, db is None
        (True, False)
    """

    infer = staticmethod(lambda x, *wrt: x)
    gradient: d.Gradient = {"x": d.stopped("stop_gradient with respect to chosen tensors"), "wrt": _NAMES}
    held = lambda now, base, acts: base[0] if acts else now[0]
    batch = d.NAMES
    stops = True
    samples: d.Samples = [d.sample(d.floats(3), d.floats(2))]
    selective = True


@d.builds(StopGradientTowards)
def stop_gradient_towards(x: ArrayLike, *wrt: object, name: str | None = None) -> Tensor:
    return d.apply(StopGradientTowards, (x, *wrt), (), name)


class StopGradientWhen(Gate):
    """A stop that is switched when the graph runs. Made by ``stop_gradient(x, when=...)``.

    Args:
        when: whether the gradient is stopped, which makes it zero.
        wrt: the gate acts only with respect to these tensors; with none of them, with respect to all.

    Constraints:
        (C1) when is a scalar boolean.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     x, off = sg.placeholder(sg.float32), sg.placeholder(sg.bool)
        ...     (dx,) = sg.gradients(sg.stop_gradient(x * x, when=off), [x])
        >>> with sg.Session(graph) as session:
        ...     [float(session.run(dx, {x: 3.0, off: value})) for value in (False, True)]
        [6.0, 0.0]
    """

    @staticmethod
    def infer(x: TensorType, when: TensorType, *wrt: TensorType) -> TensorType:
        if when.dtype is not d.bool_ or not d.is_for_each(when, x):
            raise DTypeError(f"(C1) when= takes a Python bool or a scalar boolean, not {when!r}")
        return x

    gradient: d.Gradient = {
        "x": lambda g, op: where(beside(op.when, g), zeros_like(g), g),
        "when": d.unconnected("says when the gate acts; the value does not depend on it"),
        "wrt": _NAMES,
    }
    switched = d.stopped("stop_gradient, where its condition holds")
    held = lambda now, base, acts: np.where(beside(base[1], base[0]), base[0], now[0]) if acts else now[0]
    batch = d.SWITCH
    stops = True
    samples: d.Samples = [d.sample(d.floats(3), np.array(False))]
    selective = True


@d.builds(StopGradientWhen)
def stop_gradient_when(x: ArrayLike, when: ArrayLike, *wrt: object, name: str | None = None) -> Tensor:
    if d.type_of(when).ndim:  # Only vmap builds it with a condition for each example.
        wrong = DTypeError(f"(C1) when= takes a Python bool or a scalar boolean, not {d.type_of(when)!r}")
        d.raise_for(StopGradientWhen, wrong, (x, when, *wrt))
    return d.apply(StopGradientWhen, (x, when, *wrt), (), name)


def no_gradient() -> AbstractContextManager[None]:
    """Stop the gradient of tensors that are built inside the block and used outside of it.

    Gradients asked for inside the block are unaffected.

    Returns:
        A context manager.

    Examples:
        >>> with sg.Graph().as_default():
        ...     x = sg.placeholder(sg.float32)
        ...     with sg.no_gradient():
        ...         target = sg.exp(x)
        ...     sg.gradients(target * 2.0, [x])
        [None]
    """
    return NoGradientBlock()


class StraightThrough(Gate):
    """The value of *hard*, exactly; the gradient goes to *soft* as if its value had been returned.

    Args:
        hard: a tensor; the function also takes a nested structure of tensors.
        soft: a tensor like it, or a structure of such tensors.

    Returns:
        The operand *hard*.

    Constraints:
        (C1) Both have one dtype.
        (C2) Both have one shape.

    References:
        Bengio, Léonard and Courville 2013, arXiv:1308.3432.

    Examples:
        >>> sg.grad(lambda x: sg.straight_through(sg.round(x), x) * 2.0)(1.7)
        array(2., dtype=float32)
    """

    @staticmethod
    def infer(hard: TensorType, soft: TensorType) -> TensorType:
        d.check_same_dtype(hard, soft)
        d.check_shape(hard, soft.shape, "the hard value", "C2", of="the soft value")
        return hard

    gradient: d.Gradient = {
        "hard": d.stopped("straight_through sends the gradient to the soft value"),
        "soft": lambda g, op: g,
    }
    held = lambda now, base, acts: base[0] + (now[1] - base[1])
    batch = d.ALONG
    stops = True
    samples: d.Samples = [d.sample(d.floats(3), d.floats(3))]


@d.builds(StraightThrough)
def straight_through(hard: T, soft: ArrayLike, name: str | None = None) -> T:
    d.check_name(name)
    leaves, spec = d.flatten(hard)
    others, other_spec = d.flatten(soft)
    if spec != other_spec:
        raise ArgumentError("straight_through: the hard and the soft value must have one structure")
    gated = (
        d.apply(StraightThrough, (h, s), (), name) if carries_gradient(h) or carries_gradient(s) else h
        for h, s in zip(leaves, others, strict=True)
    )
    tree: T = d.unflatten(spec, list(gated))
    return tree


class PreventGradient(Gate):
    """Identity whose gradient is an error, which shows the message and the lines of the gate and the request.

    Args:
        x: a tensor; the function also takes a nested structure of tensors.
        message: why no gradient may be asked for.

    Returns:
        The operand.

    Examples:
        >>> sg.grad(lambda x: sg.prevent_gradient(x, "use the other loss"))(3.0)
        Traceback (most recent call last):
        ...
        stopgrad.errors.GradientError: ...
    """

    infer = staticmethod(lambda x, *, message: x)
    kinds = {"message": Kind.WORD}
    gradient: d.Gradient = {"x": Undefined(lambda op: op.values[0] or "prevent_gradient forbids it")}
    samples: d.Samples = [d.sample(d.floats(3), message="not here")]


@d.builds(PreventGradient)
def prevent_gradient(x: T, message: str = "", name: str | None = None) -> T:
    gated: T = gate_leaves(lambda leaf: d.apply(PreventGradient, (leaf,), (str(message),), name), x, name)
    return gated


class Probe(Gate):
    """Identity that gives the gradient at this point a name, by which it can be fetched.

    Args:
        label: the name; the gradient, once generated, is the operation ``"<label>/gradient"``.
    """

    infer = staticmethod(lambda x, *, label: x)
    kinds = {"label": Kind.WORD}
    gradient: d.Gradient = {"x": lambda g, op: _named(g, op)}
    samples: d.Samples = [d.sample(d.floats(3), label="here")]


@d.builds(Probe)
def probe(x: T, name: str) -> T:
    """Identity that gives the gradient at this point a name, by which it can be fetched.

    Args:
        x: a tensor, or a nested structure of tensors.
        name: the gradient, once generated, is the operation ``"<name>/gradient"``; in a structure
            ``"<name>/<path>/gradient"``, the path being such as ``layers.0``.

    Returns:
        The operand.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     x = sg.placeholder(sg.float32)
        ...     dx = sg.gradients(sg.square(sg.probe(3.0 * x, "hidden")), [x])
        >>> with sg.Session(graph) as session:
        ...     float(session.run("hidden", {x: 1.0}))
        6.0
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"probe: a gradient is named by a word, not by {name!r:.60}")
    leaves, spec = d.flatten(x)
    labels = [f"{name}/{path}" if path else str(name) for path in d.paths(x)]
    gated = (
        d.apply(Probe, (leaf,), (label,), label) if carries_gradient(leaf) else leaf
        for leaf, label in zip(leaves, labels, strict=True)
    )
    tree: T = d.unflatten(spec, list(gated))
    return tree


def _named(g: Output, op: Operation) -> Tensor:
    with Scope(d.graph_for(g)):
        return d.emit(Named, (g,), (), f"{op.name}/gradient").outputs[0]


class Named(Gate):
    """Identity that only carries a name; a probe puts it into the gradient.

    Examples:
        >>> sg.ops.Named.function(np.array([1.0]))
        array([1.])
    """

    infer = staticmethod(lambda x: x)
    gradient: d.Gradient = {"x": lambda g, op: g}
    samples: d.Samples = [d.sample(d.floats(3))]


@d.builds(Named)
def named(x: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(Named, (x,), (), name)
