"""Gradient gates: forward each is the identity; they differ in what they let pass back.

Each public function takes one tensor or a nested structure of tensors, gates every floating-point or complex
leaf and returns everything else untouched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from stopgrad.errors import ArgumentError, DTypeError, GradientError, GraphError, ShapeError
from stopgrad.graph import REGIONS, Graph, Operation, Output, Region, Scope, default_graph, describe
from stopgrad.op import NoGradient, Op, Rule, Tensor, Undefined, apply, as_array, as_output, emit, not_differentiable, stopped, type_of
from stopgrad.ops.arithmetic import maximum, minimum, square
from stopgrad.ops.compare import greater
from stopgrad.ops.convert import cast, conj as conjugate, real, where
from stopgrad.ops.data import identity, zeros_like
from stopgrad.ops.elementwise import rsqrt
from stopgrad.ops.inference import check_dtype, check_same_dtype, is_real
from stopgrad.ops.shape import reduce_sum
from stopgrad.public import builds
from stopgrad.samples import floats, sample
from stopgrad.structure import flatten, map_leaves, paths, unflatten
from stopgrad.types import TensorType, bool_, same_size

__all__ = [
    "clip_gradient",
    "clip_gradient_norm",
    "custom_gradient",
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

    gate = True
    passes = 0
    numpy = xla = staticmethod(lambda xp, x, *_, **__: x)


def _is_tensor(x: Any) -> bool:
    """Whether a leaf carries a gradient: a floating-point or complex output or array."""
    if isinstance(x, (Output, Operation)):
        return type_of(x).differentiable
    return isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "fcV" and type_of(np.asarray(x)).differentiable


def _gate(function: Callable[[Any], Any], x: Any) -> Any:
    """Apply a gate to every leaf that carries a gradient."""
    if isinstance(x, Output):
        return function(x) if x.type.differentiable else x
    return map_leaves(lambda leaf: function(leaf) if _is_tensor(leaf) else leaf, x)


# ---------------------------------------------------------------------------------------------- stops


class StopGradient(Gate):
    """Passes its input through unchanged and hides all behind it from the gradient generator.

    What lies behind counts as a constant, in reverse and forward mode and at every order. Compiled code holds
    no trace of it.

    Inputs
        x: a tensor, or a nested structure of tensors.
        wrt: tensors; the way is stopped only towards these, which may be none. None: towards all.
        when: a Python bool or a scalar boolean output, asked anew at each run. Stopped only where it holds.
    Returns
        x.
    Source
        TensorFlow, ``tf.stop_gradient``.
    >>> with sg.Graph().as_default():
    ...     x = sg.placeholder(sg.float32, name="x")
    ...     sg.gradients(x * sg.stop_gradient(x), [x]), sg.gradients(sg.stop_gradient(x * x), [x])
    ([<gradients/Mul:0 float32[]>], [None])
    """

    infer = staticmethod(lambda x: x)
    gradient = {"x": stopped("stop_gradient")}
    samples = [sample(floats(3)), sample(floats("n", 2))]
    extremes = ((np.nan,), (-0.0,))


_NAMES = NoGradient("names a tensor; takes no value from it", "no way")


class StopGradientTowards(Gate):
    """A stop towards chosen tensors only; for all others it is open. Made by ``stop_gradient(x, wrt=[...])``.

    Inputs
        x: any tensor.
        wrt: the tensors towards which no gradient passes.
    Returns
        x.
    >>> with sg.Graph().as_default():
    ...     a, b = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    ...     da, db = sg.gradients(sg.stop_gradient(a * b, wrt=[a]), [a, b])
    >>> da is None, db is None
    (True, False)
    """

    infer = staticmethod(lambda x, *wrt: x)
    gradient = {"x": stopped("stop_gradient towards chosen tensors"), "wrt": _NAMES}
    samples = [sample(floats(3), floats(2))]
    selective = True


class StopGradientWhen(Gate):
    """A stop that is switched when the graph runs. Made by ``stop_gradient(x, when=...)``.

    Inputs
        x: any tensor.
        when: a scalar boolean (C1): whether the gradient is stopped, that is zero.
        wrt: tensors towards which alone it acts; none: towards all.
    Returns
        x.
    >>> with sg.Graph().as_default() as graph:
    ...     x, off = sg.placeholder(sg.float32), sg.placeholder(sg.bool)
    ...     (dx,) = sg.gradients(sg.stop_gradient(x * x, when=off), [x])
    >>> with sg.Session(graph) as session:
    ...     [float(session.run(dx, {x: 3.0, off: value})) for value in (False, True)]
    [6.0, 0.0]
    """

    @staticmethod
    def infer(x: TensorType, when: TensorType, *wrt: TensorType) -> TensorType:
        if when.dtype is not bool_ or when.ndim:
            raise DTypeError(f"(C1) when= takes a Python bool or a scalar boolean, not {when!r}")
        return x

    gradient = {
        "x": lambda g, op: where(op.when, zeros_like(g), g),
        "when": not_differentiable("a condition has no derivative"),
        "wrt": _NAMES,
    }
    samples = [sample(floats(3), np.array(False))]
    selective = True


@builds(StopGradientTowards)
def stop_gradient_towards(x: Any, *wrt: Any, name: str | None = None) -> Tensor:
    return apply(StopGradientTowards, (x, *wrt), (), name)


@builds(StopGradientWhen)
def stop_gradient_when(x: Any, when: Any, *wrt: Any, name: str | None = None) -> Tensor:
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
            return apply(StopGradientWhen, (leaf, when, *(towards or ())), (), name)
        if towards is not None:
            return apply(StopGradientTowards, (leaf, *towards), (), name)
        return apply(StopGradient, (leaf,), (), name)

    found: T = _gate(stop, x)
    return found


def _tensors(tree: Any) -> tuple[Tensor, ...]:
    leaves = [leaf.as_output() if isinstance(leaf, Operation) else leaf for leaf in flatten(tree)[0]]
    for leaf in leaves:
        if not isinstance(leaf, Output) and not (default_graph() is None and _is_tensor(leaf)):
            raise GraphError(f"StopGradient: wrt= takes tensors of the graph, not {leaf!r}")
    return tuple(leaves)


@contextmanager
def no_gradient() -> Iterator[None]:
    """Inside, operations are built as ever; what is used of them outside is stopped on its way out.

    Gradients asked for inside are unaffected.

    >>> with sg.Graph().as_default():
    ...     x = sg.placeholder(sg.float32)
    ...     with sg.no_gradient():
    ...         target = sg.exp(x)
    ...     sg.gradients(target * 2.0, [x])
    [None]
    """
    region: Region = {}
    token = REGIONS.set((*REGIONS.get(), region))
    try:
        yield
    finally:
        REGIONS.reset(token)
        for graph, start in region.items():
            if len(graph) > start:
                while graph._closed and graph._closed[-1][0] >= start:
                    graph._closed.pop()  # A block inside of this one.
                graph._closed.append((start, len(graph)))


# ------------------------------------------------------------------------------- gates that change it


class ZeroGradient(Gate):
    """Identity whose gradient is zero: connected, but nothing comes back.

    Inputs
        x: a tensor, or a nested structure of tensors.
    Returns
        x.
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
        if other.ndim:
            raise ShapeError(f"(C2) takes a scalar, not {other!r}")
    return x


class ScaleGradient(Gate):
    """Identity whose gradient is multiplied by a number.

    Inputs
        x: a tensor, or a nested structure of tensors.
        s: a number or scalar output of x's dtype (C1, C2), itself without gradient.
    Returns
        x.
    >>> sg.grad(lambda x: sg.scale_gradient(x * x, 0.5))(3.0)
    array(3., dtype=float32)
    """

    infer = staticmethod(lambda x, s: _scalars(x, s))
    gradient = {"x": lambda g, op: g * op.s, "s": not_differentiable("a gate's setting takes no part in the value")}
    samples = [sample(floats(3), floats())]


@builds(ScaleGradient)
def scale_gradient(x: T, s: Any, name: str | None = None) -> T:
    found: T = _gate(lambda leaf: apply(ScaleGradient, (leaf, s), (), name), x)
    return found


def reverse_gradient(x: T, s: Any = 1.0, name: str | None = None) -> T:
    """Identity whose gradient is multiplied by -s (Ganin and Lempitsky 2015, arXiv:1409.7495).

    Inputs
        x: a tensor, or a nested structure of tensors; s: a number or scalar output.
    Returns
        x.
    >>> sg.grad(lambda x: sg.reverse_gradient(x * x))(3.0)
    array(-6., dtype=float32)
    """
    return scale_gradient(x, -s, name)


class ClipGradient(Gate):
    """Identity whose gradient is clipped, element by element.

    Inputs
        x: a tensor, or a nested structure of tensors, real.
        low, high: numbers or scalar outputs of x's dtype (C1, C2), themselves without gradient.
    Returns
        x.
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
        "x": lambda g, op: minimum(maximum(g, op.low), op.high),
        "low": not_differentiable("a gate's setting takes no part in the value"),
        "high": not_differentiable("a gate's setting takes no part in the value"),
    }
    samples = [sample(floats(3), np.array(-10.0), np.array(10.0))]


@builds(ClipGradient)
def clip_gradient(x: T, low: Any, high: Any, name: str | None = None) -> T:
    found: T = _gate(lambda leaf: apply(ClipGradient, (leaf, low, high), (), name), x)
    return found


class ClipGradientByNorm(Gate):
    """Identity whose gradient is shrunk to a Euclidean norm of at most max_norm, each tensor by itself.

    Inputs
        x: a tensor, or a nested structure of tensors.
        max_norm: a positive number or scalar output of x's dtype (C1, C2), itself without gradient.
    Returns
        x.
    Source
        Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063.
    >>> sg.grad(lambda x: sg.reduce_sum(sg.clip_gradient_norm(x, 1.0) * 5.0))(np.array([3.0, 4.0]))
    array([0.70710678, 0.70710678])
    """

    infer = staticmethod(lambda x, max_norm: _scalars(x, max_norm))
    gradient = {"x": lambda g, op: _shrunk(g, op.max_norm), "max_norm": not_differentiable("a gate's setting takes no part in the value")}
    samples = [sample(floats(3), np.array(100.0))]


@builds(ClipGradientByNorm)
def clip_gradient_norm(x: T, max_norm: Any, name: str | None = None) -> T:
    found: T = _gate(lambda leaf: apply(ClipGradientByNorm, (leaf, max_norm), (), name), x)
    return found


def _shrunk(g: Any, max_norm: Any) -> Tensor:
    squared = reduce_sum(real(g * conjugate(g)) if g.dtype.is_complex else square(g))
    limit = real(max_norm) if g.dtype.is_complex else max_norm
    above = greater(squared, square(limit))
    # Below the limit the factor is exactly 1, and its own derivative is exactly 0.
    factor = where(above, limit * rsqrt(where(above, squared, 1)), 1)
    return g * cast(factor, g.dtype)


class StraightThrough(Gate):
    """The value of *hard*, exactly; the gradient goes to *soft* as if its value had been returned.

    Inputs
        hard, soft: tensors of one dtype (C1) and shape (C2), or nested structures of such, alike.
    Returns
        hard.
    Source
        Bengio, Léonard and Courville 2013, arXiv:1308.3432.
    >>> sg.grad(lambda x: sg.straight_through(sg.round(x), x) * 2.0)(1.7)
    array(2., dtype=float32)
    """

    @staticmethod
    def infer(hard: TensorType, soft: TensorType) -> TensorType:
        check_same_dtype(hard, soft)
        if hard.ndim != soft.ndim or not all(same_size(a, b) for a, b in zip(hard.shape, soft.shape, strict=True)):
            raise ShapeError(f"(C2) the hard value {hard!r} and the soft value {soft!r} must have one shape")
        return hard

    gradient = {"hard": stopped("straight_through sends the gradient to the soft value"), "soft": lambda g, op: g}
    samples = [sample(floats(3), floats(3))]


@builds(StraightThrough)
def straight_through(hard: T, soft: Any, name: str | None = None) -> T:
    leaves, spec = flatten(hard)
    others, other_spec = flatten(soft)
    if spec != other_spec:
        raise ArgumentError("straight_through: the hard and the soft value must have one structure")
    gated = (apply(StraightThrough, (h, s), (), name) if _is_tensor(h) or _is_tensor(s) else h for h, s in zip(leaves, others, strict=True))
    found: T = unflatten(spec, list(gated))
    return found


class PreventGradient(Gate):
    """Identity of which no gradient may be asked: an error that shows the message and both lines.

    Inputs
        x: a tensor, or a nested structure of tensors.
        message: why not.
    Returns
        x.
    >>> sg.grad(lambda x: sg.prevent_gradient(x, "use the other loss"))(3.0)
    Traceback (most recent call last):
    ...
    stopgrad.errors.GradientError: ...
    """

    infer = staticmethod(lambda x, *, message: x)
    gradient = {"x": Undefined(lambda op: op.values[0] or "prevent_gradient forbids it")}
    samples = [sample(floats(3), message="not here")]


@builds(PreventGradient)
def prevent_gradient(x: T, message: str = "", name: str | None = None) -> T:
    found: T = _gate(lambda leaf: apply(PreventGradient, (leaf,), (str(message),), name), x)
    return found


class Probe(Gate):
    """Identity that gives the gradient at this point a name, by which it can be fetched.

    Inputs
        x: a tensor, or a nested structure of tensors.
        name: the gradient, once generated, is the operation ``"<name>/gradient"``; in a structure
            ``"<name>/<path>/gradient"``, the path being such as ``layers.0``.
    Returns
        x.
    >>> with sg.Graph().as_default() as graph:
    ...     x = sg.placeholder(sg.float32)
    ...     dx = sg.gradients(sg.square(sg.probe(3.0 * x, "hidden")), [x])
    >>> with sg.Session(graph) as session:
    ...     float(session.run("hidden/gradient", {x: 1.0}))
    6.0
    """

    infer = staticmethod(lambda x, *, label: x)
    gradient = {"x": lambda g, op: _named(g, op)}
    samples = [sample(floats(3), label="here")]


@builds(Probe)
def probe(x: T, name: str) -> T:
    leaves, spec = flatten(x)
    labels = [f"{name}/{path}" if path else name for path in paths(x)]
    gated = (apply(Probe, (leaf,), (label,), label) if _is_tensor(leaf) else leaf for leaf, label in zip(leaves, labels, strict=True))
    found: T = unflatten(spec, list(gated))
    return found


def _named(g: Output, op: Operation) -> Tensor:
    with Scope(op.graph):
        return emit(Named, (g,), (), f"{op.name}/gradient").outputs[0]


class Named(Gate):
    """Identity that only carries a name; what a probe leaves in a gradient.

    Inputs
        x: any tensor.
    Returns
        x.
    >>> sg.ops.Named.function(np.array([1.0]))
    array([1.])
    """

    infer = staticmethod(lambda x: x)
    gradient = {"x": lambda g, op: g}
    samples = [sample(floats(3))]


@builds(Named)
def named(x: Any, name: str | None = None) -> Tensor:
    return apply(Named, (x,), (), name)


# ------------------------------------------------------------------------------------- custom gradient


class _Pullback:
    """A user's gradient function, called once per cotangent however many operands ask for their part."""

    __slots__ = ("_last", "asked", "function", "kept")

    def __init__(self, function: Callable[..., Any], asked: int, kept: Sequence[int]) -> None:
        self.function = function
        self.asked = asked
        self.kept = kept
        self._last: tuple[Any, Any, Sequence[Any]] | None = None

    def __call__(self, g: Any, op: Operation, i: int) -> Output | None:
        """The cotangent of the operation's i-th input."""
        call = op.graph._merged  # Each call of gradients has its own; what an earlier one built may be gone.
        if self._last is None or self._last[0] is not g or self._last[1] is not call:
            self._last = (g, call, self._parts(g, op))
        return self._last[2][i - op.count]

    def _parts(self, g: Any, op: Operation) -> Sequence[Any]:
        made = self.function(*(g if isinstance(g, tuple) else (g,)))
        parts = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(parts) == self.asked:
            parts = [parts[k] for k in self.kept]
        if len(parts) != len(self.kept):
            raise GradientError(f"{describe(op)}: the gradient function returned {len(parts)} gradients for {self.asked} arguments")
        return [None if part is None else _cotangent(part, x, op) for part, x in zip(parts, op.inputs[op.count :], strict=True)]


def _cotangent(part: Any, x: Output, op: Operation) -> Output:
    """What a gradient function returned for x, as an output whose shape x's broadcasts to."""
    found = part.as_output() if isinstance(part, (Output, Operation)) else as_output(as_array(part, x.dtype), op.graph)
    extra = found.ndim - x.ndim
    if extra < 0 or not all(want == 1 or same_size(have, want) for have, want in zip(found.shape[extra:], x.shape, strict=True)):
        raise ShapeError(f"{describe(op)}: the gradient function returned {found.type!r} for an argument of type {x.type!r}")
    return found


class CustomGradient(Op):
    """The results of a function whose gradient is given by another. Made by :func:`custom_gradient`.

    Inputs
        tensors: the function's results and then its arguments.
        count: how many are results; pullback: the gradient function.
    Returns
        the results.
    >>> sg.grad(sg.custom_gradient(lambda x: (x * x, lambda g: g * 10.0)))(3.0)
    array(10., dtype=float32)
    """

    @staticmethod
    def infer(*tensors: TensorType, count: int, pullback: Any) -> tuple[TensorType, ...]:
        return tensors[:count]

    gradient = {"tensors": lambda g, op, i: op.pullback(g, op, i)}
    samples = ()
    gate = True

    @classmethod
    def rule(cls, op: Operation, i: int) -> Rule | NoGradient:
        return NoGradient("custom_gradient replaces what the function itself would pass back", "no way") if i < op.values[0] else cls.rules[0]

    numpy = xla = staticmethod(lambda xp, *tensors, count, pullback: tensors[0] if count == 1 else tensors[:count])


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function its own gradient, as TensorFlow's decorator does.

    Inputs
        f: returns a pair: its results (a tensor or nested structure of tensors), and a function from their
           cotangents, one positional argument each, to those of f's floating-point arguments (one, or a list; None
           where there is none). Python floats among the positional ones may be counted or left out.
    Returns
        a function that returns f's results.

    >>> @sg.custom_gradient
    ... def log1pexp(x):
    ...     e = sg.exp(x)
    ...     return sg.log(1.0 + e), lambda g: g * (1.0 - 1.0 / (1.0 + e))
    >>> float(sg.grad(log1pexp)(100.0))
    1.0
    """

    if not callable(f):
        raise ArgumentError(f"custom_gradient: takes a function, not {f!r}")

    @functools.wraps(f)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = flatten((args, kwargs))
        positional = len(flatten(args)[0])
        symbolic = [leaf for leaf in leaves if isinstance(leaf, Output)]
        if not symbolic and default_graph() is None:
            return _pair(f(*args, **kwargs))[0]
        graph = symbolic[0].op.graph if symbolic else default_graph()
        assert isinstance(graph, Graph)
        with graph.atomic():
            inner = [identity(leaf) if _is_tensor(leaf) else leaf for leaf in leaves]
            args, kwargs = unflatten(spec, inner)
            results, pullback = _pair(f(*args, **kwargs))
            ys, result_spec = flatten(results)
            ys = [y if isinstance(y, Output) else identity(as_array(y)) for y in ys]
            xs = [x for leaf, x in zip(leaves, inner, strict=True) if x is not leaf]
            asked = [leaf for i, leaf in enumerate(leaves) if _is_tensor(leaf) or (i < positional and isinstance(leaf, (float, complex)))]
            kept = [k for k, leaf in enumerate(asked) if _is_tensor(leaf)]
            op = emit(CustomGradient, (*ys, *xs), (len(ys), _Pullback(pullback, len(asked), kept)))
            return unflatten(result_spec, op.outputs)

    return with_gradient


def _pair(made: Any) -> tuple[Any, Callable[..., Any]]:
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[1]):
        raise ArgumentError(f"custom_gradient: the function must return a pair (results, gradient function), not {type(made).__name__}")
    return made


CustomGradient.function = custom_gradient
