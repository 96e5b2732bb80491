"""Gradient gates: all are the identity in the forward direction; they differ in what they let pass back.

Here are those that stop, redirect, refuse or name it; those that change it stand in
:mod:`stopgrad.ops.gates.scaling`.

Each public function takes one tensor or a nested structure of tensors, gates every floating-point or complex
leaf and returns everything else untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar

import numpy as np

from stopgrad.base.errors import ArgumentError, DTypeError, GraphError
from stopgrad.base.samples import floats, sample
from stopgrad.base.structure import flatten, map_leaves, paths, tensors_among, unflatten
from stopgrad.base.types import TensorType, bool_
from stopgrad.graph.batch_rules import ALONG, NAMES, SWITCH
from stopgrad.graph.build import apply, check_name, emit, graph_for
from stopgrad.graph.builder import NoGradientBlock, default_graph
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.inferred import raise_for
from stopgrad.graph.op import Kind, Op, Undefined, stopped, unconnected
from stopgrad.graph.operands import Tensor, type_of
from stopgrad.graph.public import builds
from stopgrad.graph.scope import Scope
from stopgrad.graph.type_rules import check_same_dtype, check_shape, is_for_each
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
    """Hands its first operand on unchanged, bit for bit, and is erased after the last differentiation."""

    passes = 0
    merged = False
    batch: ClassVar[Any] = ALONG
    lower = staticmethod(lambda xp, x, *_, **__: x)


def carries_gradient(x: Any) -> bool:
    """Whether a leaf carries a gradient: a floating-point or complex output or array."""
    if isinstance(x, (Output, Operation)):
        return type_of(x).differentiable
    return (
        isinstance(x, (np.ndarray, np.generic))
        and x.dtype.kind in "fcV"
        and type_of(np.asarray(x)).differentiable
    )


def gate_leaves(function: Callable[[Any], Any], x: Any, name: str | None = None) -> Any:
    """Apply a gate to every leaf that carries a gradient; *name* is refused where it is none."""
    if name is not None:
        check_name(name)
    if isinstance(x, Output):
        return function(x) if x.type.differentiable else x
    return map_leaves(lambda leaf: function(leaf) if carries_gradient(leaf) else leaf, x)


# ---------------------------------------------------------------------------------------------- stops


class StopGradient(Gate):
    """Passes its input through unchanged and hides all behind it from the gradient generator.

    What lies behind counts as a constant, in reverse and forward mode and at every order. Compiled code holds
    no trace of it.

    Args:
        x: any tensor.

    Returns:
        The tensor.
    """

    infer = staticmethod(lambda x: x)
    gradient = {"x": stopped("stop_gradient")}
    samples = [sample(floats(3)), sample(floats("n", 2))]
    extremes = ((np.nan,), (-0.0,))


@builds(StopGradient)
def stop_gradient(input: T, name: str | None = None, *, wrt: Any = None, when: Any = None) -> T:
    """Passes its input through unchanged and hides all behind it from the gradient generator.

    What lies behind counts as a constant, in reverse and forward mode and at every order. Compiled code holds
    no trace of it.

    Args:
        input: a tensor, or a nested structure of tensors.
        name: of the gate.
        wrt: tensors, also in nested structures such as ``params["encoder"]``, where numbers and strings are
            passed over. The gradient is stopped only with respect to these, of which there may be none; by
            default with respect to all.
        when: a Python bool or a scalar boolean output, read anew at each run. The gradient is stopped only
            where it holds.

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
        check_name(name)
    if isinstance(when, (bool, np.bool_)):
        if not when:
            return input
        when = None
    chosen = None if wrt is None else _tensors(wrt)
    if chosen == ():
        return input

    def stop(leaf: Any) -> Any:
        if when is not None:
            return stop_gradient_when(leaf, when, *(chosen or ()), name=name)
        if chosen is not None:
            return apply(StopGradientTowards, (leaf, *chosen), (), name)
        return apply(StopGradient, (leaf,), (), name)

    found: T = gate_leaves(stop, input)
    return found


def _tensors(tree: Any) -> tuple[Tensor, ...]:
    """The tensors that ``wrt=`` names."""
    found = [leaf.as_output() if isinstance(leaf, Operation) else leaf for leaf in tensors_among(tree)]
    for leaf in found:
        if not isinstance(leaf, Output) and not (default_graph() is None and carries_gradient(leaf)):
            raise GraphError(f"StopGradient: wrt= takes tensors of the graph, not {leaf!r}")
    return tuple(found)


_NAMES = unconnected("names a tensor; takes no value from it")


class StopGradientTowards(Gate):
    """A stop with respect to chosen tensors, open for all others. Made by ``stop_gradient(x, wrt=[...])``.

    Args:
        x: any tensor.
        wrt: the tensors with respect to which no gradient passes.

    Returns:
        The tensor.

    Examples:
        >>> with sg.Graph().as_default():
        ...     a, b = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
        ...     da, db = sg.gradients(sg.stop_gradient(a * b, wrt=[a]), [a, b])
        >>> da is None, db is None
        (True, False)
    """

    infer = staticmethod(lambda x, *wrt: x)
    gradient = {"x": stopped("stop_gradient with respect to chosen tensors"), "wrt": _NAMES}
    batch = NAMES
    samples = [sample(floats(3), floats(2))]
    selective = True


@builds(StopGradientTowards)
def stop_gradient_towards(x: Any, *wrt: Any, name: str | None = None) -> Tensor:
    return apply(StopGradientTowards, (x, *wrt), (), name)


class StopGradientWhen(Gate):
    """A stop that is switched when the graph runs. Made by ``stop_gradient(x, when=...)``.

    Args:
        x: any tensor.
        when: whether the gradient is stopped, that is zero.
        wrt: the tensors with respect to which alone it acts; none for all.

    Returns:
        The tensor.

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
        if when.dtype is not bool_ or not is_for_each(when, x):
            raise DTypeError(f"(C1) when= takes a Python bool or a scalar boolean, not {when!r}")
        return x

    gradient = {
        "x": lambda g, op: where(beside(op.when, g), zeros_like(g), g),
        "when": unconnected("says when the gate acts; the value does not depend on it"),
        "wrt": _NAMES,
    }
    switched = stopped("stop_gradient, where its condition holds")
    batch = SWITCH
    samples = [sample(floats(3), np.array(False))]
    selective = True


@builds(StopGradientWhen)
def stop_gradient_when(x: Any, when: Any, *wrt: Any, name: str | None = None) -> Tensor:
    if type_of(when).ndim:  # Only vmap builds it with a condition for each example.
        wrong = DTypeError(f"(C1) when= takes a Python bool or a scalar boolean, not {type_of(when)!r}")
        raise_for(StopGradientWhen, wrong, (x, when, *wrt))
    return apply(StopGradientWhen, (x, when, *wrt), (), name)


def no_gradient() -> AbstractContextManager[None]:
    """Inside, operations are built as ever; what is used of them outside is stopped on its way out.

    Gradients asked for inside are unaffected.

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
        check_same_dtype(hard, soft)
        check_shape(hard, soft.shape, "the hard value", "C2", of="the soft value")
        return hard

    gradient = {
        "hard": stopped("straight_through sends the gradient to the soft value"),
        "soft": lambda g, op: g,
    }
    batch = ALONG
    samples = [sample(floats(3), floats(3))]


@builds(StraightThrough)
def straight_through(hard: T, soft: Any, name: str | None = None) -> T:
    check_name(name)
    leaves, spec = flatten(hard)
    others, other_spec = flatten(soft)
    if spec != other_spec:
        raise ArgumentError("straight_through: the hard and the soft value must have one structure")
    gated = (
        apply(StraightThrough, (h, s), (), name) if carries_gradient(h) or carries_gradient(s) else h
        for h, s in zip(leaves, others, strict=True)
    )
    found: T = unflatten(spec, list(gated))
    return found


class PreventGradient(Gate):
    """Identity of which no gradient may be asked: an error that shows the message and both lines.

    Args:
        x: a tensor; the function also takes a nested structure of tensors.
        message: why not.

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
    gradient = {"x": Undefined(lambda op: op.values[0] or "prevent_gradient forbids it")}
    samples = [sample(floats(3), message="not here")]


@builds(PreventGradient)
def prevent_gradient(x: T, message: str = "", name: str | None = None) -> T:
    found: T = gate_leaves(lambda leaf: apply(PreventGradient, (leaf,), (str(message),), name), x, name)
    return found


class Probe(Gate):
    """Identity that gives the gradient at this point a name, by which it can be fetched.

    Args:
        x: any tensor.
        label: the name; the gradient, once generated, is the operation ``"<label>/gradient"``.

    Returns:
        The tensor.
    """

    infer = staticmethod(lambda x, *, label: x)
    kinds = {"label": Kind.WORD}
    gradient = {"x": lambda g, op: _named(g, op)}
    samples = [sample(floats(3), label="here")]


@builds(Probe)
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
        ...     float(session.run("hidden/gradient", {x: 1.0}))
        6.0
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"probe: a gradient is named by a word, not by {name!r:.60}")
    leaves, spec = flatten(x)
    labels = [f"{name}/{path}" if path else str(name) for path in paths(x)]
    gated = (
        apply(Probe, (leaf,), (label,), label) if carries_gradient(leaf) else leaf
        for leaf, label in zip(leaves, labels, strict=True)
    )
    found: T = unflatten(spec, list(gated))
    return found


def _named(g: Output, op: Operation) -> Tensor:
    with Scope(graph_for(g)):
        return emit(Named, (g,), (), f"{op.name}/gradient").outputs[0]


class Named(Gate):
    """Identity that only carries a name; what a probe leaves in a gradient.

    Args:
        x: any tensor.

    Returns:
        The tensor.

    Examples:
        >>> sg.ops.Named.function(np.array([1.0]))
        array([1.])
    """

    infer = staticmethod(lambda x: x)
    gradient = {"x": lambda g, op: g}
    samples = [sample(floats(3))]


@builds(Named)
def named(x: Any, name: str | None = None) -> Tensor:
    return apply(Named, (x,), (), name)
