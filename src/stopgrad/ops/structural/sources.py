"""Where values come from and where they are kept: placeholders, constants, parameters, sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArrayLike,
    Dim,
    DType,
    DTypeLike,
    GraphError,
    Kind,
    Literal,
    NumpyArray,
    Op,
    Operation,
    Output,
    Shape,
    ShapeError,
    ShapeLike,
    Tensor,
    TensorType,
)
from stopgrad.graph.immediate import evaluate
from stopgrad.graph.interpreter import constant_value
from stopgrad.graph.sharding import Spec
from stopgrad.ops.structural.sharding import current_spec, divided

__all__ = [
    "assign",
    "constant",
    "fill",
    "full",
    "identity",
    "ones",
    "ones_like",
    "parameter",
    "placeholder",
    "size",
    "zeros",
    "zeros_like",
]


class Placeholder(Op):
    """A value given when the graph runs.

    Args:
        dtype: the element type.
        shape: sizes; a name or None for a size that is known only when a value is fed. By default (), for a
            scalar; unlike TensorFlow's, a placeholder always has a known number of dimensions.
        sharding: how the value is divided over a mesh of devices (:class:`stopgrad.Mesh`): for each axis the
            name of an axis of the mesh, several in a tuple, None, or ``"*"`` to leave it to the engine. By
            default every device holds the whole.

    Returns:
        The value that is fed. Running without one is an error.

    Constraints:
        (C1) The sharding has an entry for each axis, or fewer: axes behind the last are not divided.

    Examples:
        >>> with sg.Graph().as_default():
        ...     sg.placeholder(sg.float32, ["batch", 10], name="x")
        <x:0 float32[batch, 10]>
    """

    @staticmethod
    def infer(*, dtype: DType, shape: Shape, sharding: Spec) -> TensorType:
        return divided(d.tensor_type(dtype, shape), sharding)

    gradient: d.Gradient = {}
    fed = True
    lower: d.Lowering = d.unsupported("a placeholder has no value of its own; it is fed")
    samples: d.Samples = [d.sample(dtype=d.float64, shape=(2, 3), sharding=("data", None))]
    merged = False


@d.builds(Placeholder)
def placeholder(
    dtype: DTypeLike, shape: ShapeLike = (), name: str | None = None, *, sharding: object = None
) -> Output:
    if shape is None:
        raise ShapeError(
            "Placeholder: the number of dimensions must be known: () for a scalar, [None] for a vector of "
            "any size, [None, 3] for rows of 3"
        )
    graph = d.require_graph("placeholder")
    _outside_of_bodies("a placeholder", "give the function an argument for it, or make it outside")
    sizes = d.shape_of(shape)
    return d.emit(
        Placeholder, (), (d.dtype_of(dtype), sizes, current_spec(sharding, sizes)), name, graph
    ).outputs[0]


def _outside_of_bodies(what: str, cure: str) -> None:
    """Raise inside a body, which may run any number of times, for what belongs to the session."""
    trace = d.current().tracing
    if trace is not None:
        raise GraphError(f"{what} cannot be made inside {trace.what}; {cure}")


class Const(Op):
    """A value fixed when the graph is built.

    Args:
        value: the array.

    Returns:
        The array.
    """

    cached = False

    @staticmethod
    def infer(*, value: Literal) -> TensorType:
        return d.tensor_type(d.dtype_of(value.array.dtype), value.array.shape)

    gradient: d.Gradient = {}
    remade = True
    lower: d.Lowering = lambda xp, value: xp.asarray(value.array)
    samples: d.Samples = [d.sample(value=Literal(np.array([1.0, -2.0])))]


@d.builds(Const)
def constant(
    value: ArrayLike, dtype: DTypeLike | None = None, shape: ShapeLike | None = None, name: str | None = None
) -> Tensor:
    """A value fixed when the graph is built.

    Args:
        value: a number, nested list or array. Python numbers are int32, float32 or complex64.
        dtype: the element type to convert to.
        shape: a shape to which a single number is repeated, or into which the elements are reshaped.

    Returns:
        The value; outside of a graph, a copy of it as an array.

    Examples:
        >>> sg.constant([1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    if isinstance(value, Output):
        raise GraphError(f"Const: {d.describe(value)} is no constant; use it as it is")
    array = d.as_array(value, d.dtype_of(dtype) if dtype is not None else None)
    if shape is not None:
        sizes = d.shape_of(shape)
        if any(isinstance(s, Dim) for s in sizes):
            raise ShapeError(f"a constant of the symbolic shape {d.show_shape(sizes)} is made by sg.full")
        if array.ndim and array.size != d.product(sizes):
            raise ShapeError(
                f"a value of shape {d.show_shape(array.shape)} is not repeated to {d.show_shape(sizes)}; "
                "only a single number is"
            )
        plain: Any = sizes  # All sizes are numbers here.
        array = np.reshape(array, plain) if array.ndim else np.broadcast_to(array, plain)
    graph = d.default_graph()
    d.check_name(name)
    return np.array(array) if graph is None else d.constant_in(graph, array, name)


class Parameter(Op):
    """A named input with a stored value, kept by each :class:`Session` and changed by :func:`assign`.

    Args:
        value: the first value, as an array.
        sharding: how it is divided over a mesh of devices.

    Returns:
        The value that the session holds when a run begins.

    Constraints:
        (C1) The sharding has an entry for each axis, or fewer: axes behind the last are not divided.
    """

    cached = False

    @staticmethod
    def infer(*, value: Literal, sharding: Spec) -> TensorType:
        return divided(d.tensor_type(d.dtype_of(value.array.dtype), value.array.shape), sharding)

    gradient: d.Gradient = {}
    lower: d.Lowering = d.unsupported("a parameter's value is held by a session")
    samples: d.Samples = [d.sample(value=Literal(np.array([1.0, -2.0])), sharding=())]
    merged = False  # Two parameters with equal first values are still two.
    stateful = True


@d.builds(Parameter)
def parameter(
    value: ArrayLike, dtype: DTypeLike | None = None, name: str | None = None, *, sharding: object = None
) -> Output:
    """A named input with a stored value, kept by each :class:`Session` and changed by :func:`assign`.

    Args:
        value: the first value: a number, nested list or array; or an output that is computed from constants
            only, which NumPy computes at once.
        dtype: the element type to convert to.
        sharding: how the value is divided over a mesh of devices (:class:`stopgrad.Mesh`): for each axis the
            name of an axis of the mesh, several in a tuple, None, or ``"*"`` to leave it to the engine. By
            default every device holds the whole.

    Returns:
        The value that the session holds when a run begins.

    Examples:
        >>> with sg.Graph().as_default():
        ...     sg.parameter(np.zeros((10, 3), np.float32), name="w"), sg.parameter(sg.zeros([3]), name="b")
        (<w:0 float32[10, 3]>, <b:0 float32[3]>)
    """
    graph = d.require_graph("parameter")
    _outside_of_bodies("a parameter", "make it outside and use it inside")
    value = d.joined(value)
    if isinstance(value, Output):
        first_value = constant_value(value)
        if first_value is None:
            raise GraphError(
                f"Parameter: {d.describe(value)} has no value yet; give the first value as an array, or "
                "computed from constants, and change it with sg.assign"
            )
        value = first_value
    array = d.as_array(value, d.dtype_of(dtype) if dtype is not None else None)
    spec = current_spec(sharding, array.shape)
    return d.emit(Parameter, (), (Literal(np.array(array)), spec), name, graph).outputs[0]


class Assign(Op):
    """A parameter's next value, which takes effect when a run that computes it has succeeded.

    All operations of the run see the values from before it; two assignments of one parameter in one run are
    an error.

    Args:
        parameter (``ref``): an output of :func:`parameter`.
        value: the next value.

    Returns:
        The value.

    Constraints:
        (C1) The first operand is an output of :func:`parameter`.
        (C2) The value has the parameter's dtype.
        (C3) The value has the parameter's shape.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     w = sg.parameter(1.0)
        ...     step = sg.assign(w, w + 1.0)
        >>> with sg.Session(graph) as session:
        ...     float(session.run(step)), float(session.run(w))
        (2.0, 2.0)
    """

    @staticmethod
    def infer(parameter: TensorType, value: TensorType) -> TensorType:
        d.check_same_dtype(parameter, value, constraint="C2")
        d.check_shape(value, parameter.shape, "the value", "C3", of="the parameter")
        return parameter

    gradient: d.Gradient = {
        "parameter": d.not_differentiable("the old value is replaced"),
        "value": lambda g, op: g,
    }
    lower: d.Lowering = lambda xp, parameter, value: value
    samples: d.Samples = [d.sample(d.floats(3), d.floats(3))]
    merged = False
    stateful = True


@d.builds(Assign)
def assign(ref: ArrayLike, value: ArrayLike, name: str | None = None) -> Output:
    _outside_of_bodies("an assignment", "return the new value, and assign it outside")
    if not isinstance(ref, Output) or ref.op.definition is not Parameter:
        shown = d.describe(ref) if isinstance(ref, Output) else repr(ref)
        raise GraphError(f"Assign: (C1) only a parameter, made by sg.parameter, can be assigned; got {shown}")
    return d.apply(Assign, (ref, value), (), name)


class Identity(Op):
    """The operand itself, as an operation of its own.

    Args:
        x (``input``): any tensor.

    Returns:
        The operand.

    Examples:
        >>> sg.identity(np.array([1.0]))
        array([1.])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return x

    gradient: d.Gradient = {"x": lambda g, op: g}
    batch = d.ELEMENTWISE
    moves = ("x",)
    remade = True
    lower: d.Lowering = lambda xp, x: x
    samples: d.Samples = [d.sample(d.floats("n", 2)), d.sample(d.bools(3))]

    @classmethod
    def handed_on(cls, op: Operation) -> tuple[int, ...]:
        return (0,)


@d.builds(Identity)
def identity(input: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(Identity, (input,), (), name)


class Size(Op):
    """The value of a size, or of a product of sizes, as a number.

    Args:
        size: the size, which may be symbolic.
        dtype: of the result.

    Returns:
        A scalar, known at the latest when values are fed.

    Constraints:
        (C1) The function's axes exist in its tensor, and none is named twice.
    """

    kinds = {"size": Kind.SIZE}

    @staticmethod
    def infer(*, size: int | Dim, dtype: DType) -> TensorType:
        return d.tensor_type(dtype, ())

    gradient: d.Gradient = {}
    remade = True
    lower: d.Lowering = lambda xp, size, dtype: xp.asarray(size, dtype.numpy)
    samples: d.Samples = [d.sample(size=6, dtype=d.float64)]


def size_as(size: int | Dim, dtype: DType, like: Any) -> Tensor:
    """A size as a scalar of *dtype*, in the graph of *like*."""
    if isinstance(size, int):
        array: NumpyArray = np.asarray(size, dtype.numpy)
        return d.constant_in(d.graph_for(like), array) if isinstance(like, Output) else array
    return d.emit(Size, (), (size, dtype), "", d.graph_for(like)).outputs[0]


@d.builds(Size)
def size(
    input: ArrayLike,
    out_type: DTypeLike | None = None,
    name: str | None = None,
    *,
    axis: int | Sequence[int] | None = None,
) -> Tensor:
    """The number of elements of a tensor, or its size along some axes.

    Args:
        input: any tensor.
        out_type: the dtype of the result; by default int32.
        name: of the operation.
        axis: which axes to count; None for all.

    Returns:
        The number of elements along the axes: a scalar, known at the latest when values are fed.

    Constraints:
        (C1) The axes exist in input, and none is named twice.

    Examples:
        >>> sg.size(np.zeros((2, 3)))
        array(6, dtype=int32)
    """
    shape = input.shape if hasattr(input, "shape") else d.as_array(input).shape
    axes = d.normal_axes(axis, len(shape), "C1")
    count = d.product(shape[a] for a in axes)
    values = (count, d.dtype_of(d.int32 if out_type is None else out_type))
    graph = d.graph_for(input) if isinstance(input, Output) else d.default_graph()
    d.check_name(name)
    return evaluate(Size, (), values) if graph is None else d.emit(Size, (), values, name, graph).outputs[0]


def zeros(shape: ShapeLike, dtype: DTypeLike = "float32", name: str | None = None) -> Tensor:
    """A constant of zeros.

    Args:
        shape: sizes, which may be symbolic.
        dtype: the element type.

    Returns:
        A tensor of that type.

    Examples:
        >>> sg.zeros([2])
        array([0., 0.], dtype=float32)
    """
    return full(shape, 0, dtype, name)


def ones(shape: ShapeLike, dtype: DTypeLike = "float32", name: str | None = None) -> Tensor:
    """A constant of ones.

    Args:
        shape: sizes, which may be symbolic.
        dtype: the element type.

    Returns:
        A tensor of that type.

    Examples:
        >>> sg.ones([2])
        array([1., 1.], dtype=float32)
    """
    return full(shape, 1, dtype, name)


class Fill(Op):
    """One value, repeated to a shape.

    Args:
        value: the value.
        shape (``dims``): sizes, which may be symbolic.

    Returns:
        A tensor of that shape.

    Constraints:
        (C1) The value is a scalar.

    Examples:
        >>> sg.fill([2], 7.0)
        array([7., 7.], dtype=float32)
    """

    @staticmethod
    def infer(value: TensorType, *, shape: Shape) -> TensorType:
        if value.ndim:
            raise ShapeError(f"(C1) the value must be a scalar, not {value!r}")
        return d.tensor_type(value.dtype, shape)

    gradient: d.Gradient = {"value": lambda g, op: g}
    batch = d.BROADCAST
    moves = ("value",)
    views = True
    remade = True
    lower: d.Lowering = lambda xp, value, shape: xp.broadcast_to(value, shape)
    samples: d.Samples = [d.sample(d.floats(), shape=(2, 3))]


@d.builds(Fill)
def fill(dims: ShapeLike, value: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(Fill, (value,), (d.shape_of(dims),), name)


@d.guarded("full")
def full(
    shape: ShapeLike, value: ArrayLike, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """One number, repeated to a shape, as a constant.

    Args:
        shape: sizes, which may be symbolic.
        value: a number.
        dtype: the element type; by default the number's own.

    Returns:
        A tensor of that shape.

    Examples:
        >>> sg.full([2], 7, sg.float64)
        array([7., 7.])
    """
    return fill(shape, d.as_array(value, d.dtype_of(dtype) if dtype is not None else None), name)


@d.guarded("zeros_like")
def zeros_like(input: ArrayLike, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """Zeros of the shape and dtype of another tensor.

    Args:
        input: any tensor.
        dtype: the element type; by default the tensor's.

    Returns:
        A tensor of the shape of *input*.

    Examples:
        >>> sg.zeros_like(np.ones(2))
        array([0., 0.])
    """
    return _like(input, 0, dtype, name)


@d.guarded("ones_like")
def ones_like(input: ArrayLike, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """Ones of the shape and dtype of another tensor.

    Args:
        input: any tensor.
        dtype: the element type; by default the tensor's.

    Returns:
        A tensor of the shape of *input*.

    Examples:
        >>> sg.ones_like(np.zeros(2))
        array([1., 1.])
    """
    return _like(input, 1, dtype, name)


def _like(x: ArrayLike, value: int, dtype: DTypeLike | None, name: str | None) -> Tensor:
    target = None if dtype is None else d.dtype_of(dtype)
    if not isinstance(x, Output):
        with d.naming(Fill):
            array = d.as_array(x)
        return constant(
            np.full(array.shape, value, array.dtype if target is None else target.numpy), name=name
        )
    number = d.constant_in(d.graph_for(x), np.asarray(value, (target or x.dtype).numpy))
    return d.emit(Fill, (number,), (x.shape,), name).outputs[0] if x.ndim else number
