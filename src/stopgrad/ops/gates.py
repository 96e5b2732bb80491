"""Gradient gates: forward each is the identity; they differ in what they let pass back.

Each public function takes one tensor or a nested structure of tensors, gates every floating-point or complex
leaf and returns everything else untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar

import numpy as np

from stopgrad.batch_rules import NAMES, SETTINGS, SWITCH
from stopgrad.build import apply, emit, graph_for, raise_for
from stopgrad.builder import NoGradientBlock, default_graph
from stopgrad.errors import ArgumentError, DTypeError, GraphError, ShapeError, StopgradError
from stopgrad.graph import Operation, Output
from stopgrad.op import Kind, Op, Undefined, not_differentiable, stopped, unconnected
from stopgrad.operands import Tensor, type_of
from stopgrad.ops.arithmetic import maximum, minimum, square
from stopgrad.ops.compare import greater
from stopgrad.ops.convert import cast, conj as conjugate, real, where
from stopgrad.ops.data import zeros_like
from stopgrad.ops.elementwise import rsqrt
from stopgrad.ops.inference import check_dtype, check_same_dtype, is_real
from stopgrad.ops.shape import reduce_sum, reshape
from stopgrad.public import builds
from stopgrad.samples import floats, sample
from stopgrad.scope import Scope
from stopgrad.structure import flatten, map_leaves, paths, unflatten
from stopgrad.types import TensorType, bool_, same_size

__all__ = [
    "clip_gradient",
    "clip_gradient_norm",
    "no_gradient",
    "prevent_gradient",
    "probe",
    "reverse_gradient",
    "scale_gradient",
    "stop_gradient",
    "straight_through",
    "zero_gradient",
]

T = TypeVar("T")


class Gate(Op, abstract=True):
    """Hands its first operand on unchanged, bit for bit, and is erased after the last differentiation."""

    passes = 0
    merged = False
    batch: ClassVar[Any] = SETTINGS
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


def _gate(function: Callable[[Any], Any], x: Any) -> Any:
    """Apply a gate to every leaf that carries a gradient."""
    if isinstance(x, Output):
        return function(x) if x.type.differentiable else x
    return map_leaves(lambda leaf: function(leaf) if carries_gradient(leaf) else leaf, x)


# ---------------------------------------------------------------------------------------------- stops


class StopGradient(Gate):
    """Passes its input through unchanged and hides all behind it from the gradient generator.

    What lies behind counts as a constant, in reverse and forward mode and at every order. Compiled code holds
    no trace of it.

    Args:
        x: a tensor, or a nested structure of tensors.
        wrt: tensors; the way is stopped only towards these, which may be none. None: towards all.
        when: a Python bool or a scalar boolean output, asked anew at each run. Stopped only where it holds.

    Returns:
        x.

    References:
        TensorFlow, ``tf.stop_gradient``.

    Examples:
        >>> with sg.Graph().as_default():
        ...     x = sg.placeholder(sg.float32, name="x")
        ...     sg.gradients(x * sg.stop_gradient(x), [x]), sg.gradients(sg.stop_gradient(x * x), [x])
        ([<gradients/Mul:0 float32[]>], [None])
    """

    infer = staticmethod(lambda x: x)
    gradient = {"x": stopped("stop_gradient")}
    samples = [sample(floats(3)), sample(floats("n", 2))]
    extremes = ((np.nan,), (-0.0,))


_NAMES = unconnected("names a tensor; takes no value from it")


class StopGradientTowards(Gate):
    """A stop towards chosen tensors only; for all others it is open. Made by ``stop_gradient(x, wrt=[...])``.

    Args:
        x: any tensor.
        wrt: the tensors towards which no gradient passes.

    Returns:
        x.

    Examples:
        >>> with sg.Graph().as_default():
        ...     a, b = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
        ...     da, db = sg.gradients(sg.stop_gradient(a * b, wrt=[a]), [a, b])
        >>> da is None, db is None
        (True, False)
    """

    infer = staticmethod(lambda x, *wrt: x)
    gradient = {"x": stopped("stop_gradient towards chosen tensors"), "wrt": _NAMES}
    batch = NAMES
    samples = [sample(floats(3), floats(2))]
    selective = True


class StopGradientWhen(Gate):
    """A stop that is switched when the graph runs. Made by ``stop_gradient(x, when=...)``.

    Args:
        x: any tensor.
        when: a scalar boolean (C1): whether the gradient is stopped, that is zero.
        wrt: tensors towards which alone it acts; none: towards all.

    Returns:
        x.

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
        if when.dtype is not bool_ or not _for_each(when, x):
            raise DTypeError(f"(C1) when= takes a Python bool or a scalar boolean, not {when!r}")
        return x

    gradient = {
        "x": lambda g, op: where(_beside(op.when, g), zeros_like(g), g),
        "when": not_differentiable("a condition has no derivative"),
        "wrt": _NAMES,
    }
    batch = SWITCH
    samples = [sample(floats(3), np.array(False))]
    selective = True


@builds(StopGradientTowards)
def stop_gradient_towards(x: Any, *wrt: Any, name: str | None = None) -> Tensor:
    return apply(StopGradientTowards, (x, *wrt), (), name)


@builds(StopGradientWhen)
def stop_gradient_when(x: Any, when: Any, *wrt: Any, name: str | None = None) -> Tensor:
    _one(StopGradientWhen, (x, when, *wrt), DTypeError, "(C1) when= takes a Python bool or a scalar boolean")
    return apply(StopGradientWhen, (x, when, *wrt), (), name)


@builds(StopGradient)
def stop_gradient(x: T, name: str | None = None, *, wrt: Any = None, when: Any = None) -> T:
    if isinstance(when, (bool, np.bool_)):
        if not when:
            return x
        when = None
    towards = None if wrt is None else _tensors(wrt)
    if towards == ():
        return x

    def stop(leaf: Any) -> Any:
        if when is not None:
            return stop_gradient_when(leaf, when, *(towards or ()), name=name)
        if towards is not None:
            return apply(StopGradientTowards, (leaf, *towards), (), name)
        return apply(StopGradient, (leaf,), (), name)

    found: T = _gate(stop, x)
    return found


def _tensors(tree: Any) -> tuple[Tensor, ...]:
    leaves = [leaf.as_output() if isinstance(leaf, Operation) else leaf for leaf in flatten(tree)[0]]
    for leaf in leaves:
        if not isinstance(leaf, Output) and not (default_graph() is None and carries_gradient(leaf)):
            raise GraphError(f"StopGradient: wrt= takes tensors of the graph, not {leaf!r}")
    return tuple(leaves)


def no_gradient() -> AbstractContextManager[None]:
    """Inside, operations are built as ever; what is used of them outside is stopped on its way out.

    Gradients asked for inside are unaffected.

    Examples:
        >>> with sg.Graph().as_default():
        ...     x = sg.placeholder(sg.float32)
        ...     with sg.no_gradient():
        ...         target = sg.exp(x)
        ...     sg.gradients(target * 2.0, [x])
        [None]
    """
    return NoGradientBlock()


# ------------------------------------------------------------------------------- gates that change it


class ZeroGradient(Gate):
    """Identity whose gradient is zero: connected, but nothing comes back.

    Args:
        x: a tensor, or a nested structure of tensors.

    Returns:
        x.

    Examples:
        >>> sg.grad(lambda x: sg.zero_gradient(x) * x)(3.0)
        array(3., dtype=float32)
    """

    infer = staticmethod(lambda x: x)
    gradient = {"x": lambda g, op: zeros_like(g)}
    samples = [sample(floats(3))]


@builds(ZeroGradient)
def zero_gradient(x: T, name: str | None = None) -> T:
    found: T = _gate(lambda leaf: apply(ZeroGradient, (leaf,), (), name), x)
    return found


def _scalars(x: TensorType, *others: TensorType) -> TensorType:
    check_same_dtype(x, *others)
    for other in others:
        if not _for_each(other, x):
            raise ShapeError(f"(C2) takes a scalar, not {other!r}")
    return x


def _for_each(setting: TensorType, x: TensorType) -> bool:
    """Whether a setting is a scalar, or holds one for each example along leading axes of x, as vmap makes it."""
    return setting.ndim <= x.ndim and all(map(same_size, setting.shape, x.shape[: setting.ndim]))


def _one(definition: type[Op], operands: Sequence[Any], error: type[StopgradError], rule: str) -> None:
    """Refuse settings that are no scalars, which only vmap builds."""
    for setting in operands[1:2] if definition is StopGradientWhen else operands[1:]:
        if type_of(setting).ndim:
            raise_for(definition, error(f"{rule}, not {type_of(setting)!r}"), operands)


def _set(definition: type[Op], x: Any, *settings: Any, name: str | None) -> Tensor:
    _one(definition, (x, *settings), ShapeError, "(C2) takes a scalar")
    return apply(definition, (x, *settings), (), name)


def _beside(setting: Any, g: Any) -> Tensor:
    """A setting in a shape that broadcasts with the cotangent of what it is for."""
    if not setting.ndim:
        return setting
    return reshape(setting, (*setting.shape, *(1,) * (g.ndim - setting.ndim)))


class ScaleGradient(Gate):
    """Identity whose gradient is multiplied by a number.

    Args:
        x: a tensor, or a nested structure of tensors.
        s: a number or scalar output of x's dtype (C1, C2), itself without gradient.

    Returns:
        x.

    Examples:
        >>> sg.grad(lambda x: sg.scale_gradient(x * x, 0.5))(3.0)
        array(3., dtype=float32)
    """

    infer = staticmethod(lambda x, s: _scalars(x, s))
    gradient = {
        "x": lambda g, op: g * _beside(op.s, g),
        "s": not_differentiable("a gate's setting takes no part in the value"),
    }
    samples = [sample(floats(3), floats())]


@builds(ScaleGradient)
def scale_gradient(x: T, s: Any, name: str | None = None) -> T:
    found: T = _gate(lambda leaf: _set(ScaleGradient, leaf, s, name=name), x)
    return found


def reverse_gradient(x: T, s: Any = 1.0, name: str | None = None) -> T:
    """Identity whose gradient is multiplied by -s (Ganin and Lempitsky 2015, arXiv:1409.7495).

    Args:
        x: a tensor, or a nested structure of tensors; s: a number or scalar output.

    Returns:
        x.

    Examples:
        >>> sg.grad(lambda x: sg.reverse_gradient(x * x))(3.0)
        array(-6., dtype=float32)
    """
    return scale_gradient(x, -s, name)


class ClipGradient(Gate):
    """Identity whose gradient is clipped, element by element.

    Args:
        x: a tensor, or a nested structure of tensors, real.
        low, high: numbers or scalar outputs of x's dtype (C1, C2), themselves without gradient.

    Returns:
        x.

    Examples:
        >>> sg.grad(lambda x: sg.clip_gradient(x * x, -1.0, 1.0))(3.0)
        array(6., dtype=float32)
        >>> sg.grad(lambda x: sg.clip_gradient(x, -1.0, 1.0) * 5.0)(3.0)
        array(1., dtype=float32)
    """

    @staticmethod
    def infer(x: TensorType, low: TensorType, high: TensorType) -> TensorType:
        check_dtype(x, is_real, "real numbers, which alone have an order")
        return _scalars(x, low, high)

    gradient = {
        "x": lambda g, op: minimum(maximum(g, _beside(op.low, g)), _beside(op.high, g)),
        "low": not_differentiable("a gate's setting takes no part in the value"),
        "high": not_differentiable("a gate's setting takes no part in the value"),
    }
    samples = [sample(floats(3), np.array(-10.0), np.array(10.0))]


@builds(ClipGradient)
def clip_gradient(x: T, low: Any, high: Any, name: str | None = None) -> T:
    found: T = _gate(lambda leaf: _set(ClipGradient, leaf, low, high, name=name), x)
    return found


class ClipGradientByNorm(Gate):
    """Identity whose gradient is shrunk to a Euclidean norm of at most max_norm, each tensor by itself.

    Args:
        x: a tensor, or a nested structure of tensors.
        max_norm: a positive number or scalar output of x's dtype (C1, C2), itself without gradient.

    Returns:
        x.

    References:
        Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063.

    Examples:
        >>> sg.grad(lambda x: sg.reduce_sum(sg.clip_gradient_norm(x, 1.0) * 5.0))(np.array([3.0, 4.0]))
        array([0.70710678, 0.70710678])
    """

    infer = staticmethod(lambda x, max_norm: _scalars(x, max_norm))
    gradient = {
        "x": lambda g, op: _shrunk(g, op.max_norm),
        "max_norm": not_differentiable("a gate's setting takes no part in the value"),
    }
    samples = [sample(floats(3), np.array(100.0))]


@builds(ClipGradientByNorm)
def clip_gradient_norm(x: T, max_norm: Any, name: str | None = None) -> T:
    found: T = _gate(lambda leaf: _set(ClipGradientByNorm, leaf, max_norm, name=name), x)
    return found


def _shrunk(g: Any, max_norm: Any) -> Tensor:
    count = max_norm.ndim  # Of axes along which there are examples, each with a norm of its own.
    squares = real(g * conjugate(g)) if g.dtype.is_complex else square(g)
    squared = reduce_sum(squares, tuple(range(count, g.ndim)), keepdims=count > 0)
    limit = _beside(real(max_norm) if g.dtype.is_complex else max_norm, g)
    above = greater(squared, square(limit))
    # Below the limit the factor is exactly 1, and its own derivative is exactly 0.
    factor = where(above, limit * rsqrt(where(above, squared, 1)), 1)
    return g * cast(factor, g.dtype)


class StraightThrough(Gate):
    """The value of *hard*, exactly; the gradient goes to *soft* as if its value had been returned.

    Args:
        hard, soft: tensors of one dtype (C1) and shape (C2), or nested structures of such, alike.

    Returns:
        hard.

    References:
        Bengio, Léonard and Courville 2013, arXiv:1308.3432.

    Examples:
        >>> sg.grad(lambda x: sg.straight_through(sg.round(x), x) * 2.0)(1.7)
        array(2., dtype=float32)
    """

    @staticmethod
    def infer(hard: TensorType, soft: TensorType) -> TensorType:
        check_same_dtype(hard, soft)
        if hard.ndim != soft.ndim or not all(
            same_size(a, b) for a, b in zip(hard.shape, soft.shape, strict=True)
        ):
            raise ShapeError(f"(C2) the hard value {hard!r} and the soft value {soft!r} must have one shape")
        return hard

    gradient = {
        "hard": stopped("straight_through sends the gradient to the soft value"),
        "soft": lambda g, op: g,
    }
    batch = SETTINGS
    samples = [sample(floats(3), floats(3))]


@builds(StraightThrough)
def straight_through(hard: T, soft: Any, name: str | None = None) -> T:
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
        x: a tensor, or a nested structure of tensors.
        message: why not.

    Returns:
        x.

    Examples:
        >>> sg.grad(lambda x: sg.prevent_gradient(x, "use the other loss"))(3.0)
        Traceback (most recent call last):
        ...
        stopgrad.errors.GradientError: ...
    """

    infer = staticmethod(lambda x, *, message: x)
    kinds = {"message": Kind.PLAIN}
    gradient = {"x": Undefined(lambda op: op.values[0] or "prevent_gradient forbids it")}
    samples = [sample(floats(3), message="not here")]


@builds(PreventGradient)
def prevent_gradient(x: T, message: str = "", name: str | None = None) -> T:
    found: T = _gate(lambda leaf: apply(PreventGradient, (leaf,), (str(message),), name), x)
    return found


class Probe(Gate):
    """Identity that gives the gradient at this point a name, by which it can be fetched.

    Args:
        x: a tensor, or a nested structure of tensors.
        name: the gradient, once generated, is the operation ``"<name>/gradient"``; in a structure
            ``"<name>/<path>/gradient"``, the path being such as ``layers.0``.

    Returns:
        x.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     x = sg.placeholder(sg.float32)
        ...     dx = sg.gradients(sg.square(sg.probe(3.0 * x, "hidden")), [x])
        >>> with sg.Session(graph) as session:
        ...     float(session.run("hidden/gradient", {x: 1.0}))
        6.0
    """

    infer = staticmethod(lambda x, *, label: x)
    kinds = {"label": Kind.PLAIN}
    gradient = {"x": lambda g, op: _named(g, op)}
    samples = [sample(floats(3), label="here")]


@builds(Probe)
def probe(x: T, name: str) -> T:
    leaves, spec = flatten(x)
    labels = [f"{name}/{path}" if path else name for path in paths(x)]
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
        x.

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
