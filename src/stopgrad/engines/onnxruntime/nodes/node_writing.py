"""What the parts of the namespace share: writing nodes for arrays, numbers and sizes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stopgrad.base.types import Dim, Shape
from stopgrad.engines.onnxruntime.nodes import elementary
from stopgrad.engines.onnxruntime.nodes.kernels import computed_in, data_operand
from stopgrad.engines.onnxruntime.nodes.layouts import behind, producer
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import Body, Kind, Named, Node, Nodes, NotInOnnx, is_known
from stopgrad.engines.onnxruntime.nodes.runtime_sizes import Sizes
from stopgrad.engines.onnxruntime.nodes.values import Operand, Value
from stopgrad.graph.type_rules import broadcast_shapes

SMALL = 1024
"""The most elements of an array that is computed while the graph is written, if its operands are small."""

_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
"""The neutral second operands."""

BOOL = np.dtype(bool)
INT64 = np.dtype(np.int64)


def has_value(x: object) -> bool:
    """Whether something is known only when the model runs."""
    if isinstance(x, (list, tuple)):
        return any(map(has_value, x))
    return isinstance(x, (Value, Dim))


def writes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a function that writes nodes: of known operands, NumPy's function of its name is taken."""
    numpys = getattr(np, function.__name__, None)

    @functools.wraps(function)
    def call(self: Writing, *args: Operand, **kwargs: Operand) -> Any:
        if numpys is not None and not has_value(args) and not has_value(tuple(kwargs.values())):
            result = numpys(*args, **kwargs)
            if not isinstance(result, np.ndarray) or result.size <= max(SMALL, *map(_count, args)):
                return result
        return function(self, *args, **kwargs)

    return call


def _count(x: Any) -> int:
    """The number of elements of an array, or of all arrays in a list."""
    return sum(map(_count, x)) if isinstance(x, (list, tuple)) else int(np.size(x))


class Writing:
    """Writes nodes. Numbers and NumPy's arrays become constants where they meet values.

    Attributes:
        nodes: those of the graph or body that is being written.
        opset: the version of ONNX's operators.
    """

    nodes: Nodes
    opset: int
    sizes: Sizes

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.opset = nodes.opset
        self.sizes = Sizes(nodes)

    if TYPE_CHECKING:  # NumPy's other functions, which the other parts of the namespace have.

        def __getattr__(self, name: str, /) -> Any: ...

    # ------------------------------------------------------------------------------------------ values

    def input(self, name: str, dtype: npt.DTypeLike, shape: Shape) -> Value:
        """An input of the model. Other sizes may be computed from its own."""
        value = Value(self, self.nodes.declare(name, dtype, shape), dtype, shape)
        self.sizes.read(value.name, value.shape)
        return value

    def value(self, x: Operand, dtype: npt.DTypeLike | None = None) -> Value:
        """*x* as a value of this dtype."""
        if isinstance(x, Value):
            return x if dtype is None or x.dtype == dtype else self.cast(x, dtype)
        if isinstance(x, Dim):
            size = Value(self, self.sizes.one(x), INT64, (1,))
            return self.value(self.node("Squeeze", [size], INT64, ()), dtype)
        if isinstance(x, (list, tuple)) and has_value(x):
            return self.value(self.stack(x), dtype)
        array = np.asarray(x, dtype)
        return Value(self, self.nodes.constant(array), array.dtype, array.shape)

    def cast(self, x: Value, dtype: npt.DTypeLike) -> Value:
        """One Cast. From float64 to float16 runtimes go through float32; here *x* is rounded once before."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if dtype == np.float16 and x.dtype == np.float64:
            x = elementary.to_11_bits(self, x)
        return self.node("Cast", [x], dtype, x.shape, to=dtype)

    def shape(self, sizes: Sequence[int | Dim]) -> Value:
        """Sizes as a value of shape [n]."""
        return Value(self, self.sizes.all(sizes), INT64, (len(sizes),))

    def broadcast(self, *xs: Any) -> Shape:
        """The shape to which arrays broadcast."""
        return broadcast_shapes(*[x.shape if isinstance(x, Value) else np.shape(x) for x in xs])

    # ------------------------------------------------------------------------------------------- nodes

    def write(
        self,
        op_type: str,
        inputs: Sequence[Any],
        types: Sequence[Kind],
        domain: str = "",
        **attributes: object,
    ) -> list[Value]:
        """A node with several outputs. None stands for an input that is left out.

        Where runtimes lack a kernel for the dtype, the node is written for a wider one: see :mod:`kernels`.
        """
        operands = [None if x is None else self.value(x) for x in inputs]
        kernel = None if domain else data_operand(op_type, attributes)
        data = None if kernel is None else operands[kernel[1]]
        if kernel is None or data is None or (within := computed_in(kernel[0], data.dtype)) == data.dtype:
            return self._add(op_type, operands, types, domain, attributes)
        dtype = data.dtype
        operands = [
            x if x is None or i < kernel[1] or x.dtype != dtype else self.cast(x, within)
            for i, x in enumerate(operands)
        ]
        wider = [(within, shape) if kind == dtype else (kind, shape) for kind, shape in types]
        results = self._add(op_type, operands, wider, domain, attributes)
        return [self.cast(y, kind) for y, (kind, _) in zip(results, types, strict=True)]

    def _add(
        self,
        op_type: str,
        operands: Sequence[Value | None],
        types: Sequence[Kind],
        domain: str,
        attributes: Mapping[str, Any],
    ) -> list[Value]:
        names = ["" if x is None else x.name for x in operands]
        while names and not names[-1]:
            names.pop()
        outputs = self.nodes.add(op_type, names, types, domain, **attributes)
        return [Value(self, name, *kind) for name, kind in zip(outputs, types, strict=True)]

    def node(
        self,
        op_type: str,
        inputs: Sequence[Any],
        dtype: npt.DTypeLike,
        shape: Sequence[int | Dim],
        **attributes: object,
    ) -> Value:
        """A node with one output."""
        transposed = behind(self, op_type, inputs, (np.dtype(dtype), tuple(shape)), attributes)
        if transposed is not None:
            return transposed
        return self.write(op_type, inputs, [(np.dtype(dtype), tuple(shape))], "", **attributes)[0]

    def elementwise(
        self, op_type: str, *xs: Operand, result: npt.DTypeLike | None = None, **attributes: object
    ) -> Value:
        """An elementwise operator on operands cast to one dtype; the result has it too, unless given.

        *op_type* may hold an attribute in brackets, as in :data:`kernels.KERNELS`.
        """
        dtype = self.common(*xs)
        if dtype == np.float64 and op_type in _NEUTRAL:
            other = self._not_neutral(op_type, *xs)
            if other is not None:
                return other
        within = computed_in(op_type, dtype)
        operands = [self.value(self.value(x, dtype), within) for x in xs]
        shape = broadcast_shapes(*[x.shape for x in operands])
        output = self.node(
            op_type.partition("[")[0],
            self._as_deep(self._unexpanded(operands, shape), shape),
            within if result is None else result,
            shape,
            **attributes,
        )
        return self.cast(output, dtype if result is None else result)

    def _unexpanded(self, operands: list[Value], shape: Shape) -> list[Value]:
        """The operands; those that were expanded as they were before, if another has the result's shape."""
        unexpanded = list(operands)
        for i, x in enumerate(unexpanded):
            node = producer(self, x)
            rest = (other.shape for j, other in enumerate(unexpanded) if j != i)
            if node is not None and node.op_type == "Expand" and shape in rest:
                unexpanded[i] = Value(self, node.inputs[0], *self.nodes.types[node.inputs[0]])
        return unexpanded

    def _as_deep(self, operands: list[Value], shape: Shape) -> list[Value]:
        """The operands; scalars with as many axes as the result, if that is large and ends in axes of one.

        Otherwise onnxruntime goes from element to element: 80 µs for 8,192 in [128, 64, 1, 1], and 4 so.
        """
        if len(shape) < 3 or shape[-2:] != (1, 1) or not is_known(shape) or math.prod(shape) < SMALL:
            return operands
        ones = (1,) * len(shape)
        return [self.reshape(x, ones) if x.shape in ((), (1,)) else x for x in operands]

    def _not_neutral(self, op_type: str, x: Any, y: Any) -> Value | None:
        """The same by other nodes, if a constant would be neutral once rounded to float32.

        onnxruntime removes sums with 0 and products with 1, but rounds the constant to float32 first.
        """
        y_is, x_is = (not isinstance(v, (Value, Dim)) and np.size(v) == 1 for v in (y, x))
        constant = y if y_is else x if x_is and op_type in ("Add", "Mul") else None
        if constant is None:
            return None
        number, neutral = float(np.asarray(constant).reshape(())), _NEUTRAL[op_type]
        if number == neutral or float(np.float32(number)) != neutral:
            return None
        constant, other = np.asarray(constant, np.float64), self.value(x if y_is else y, np.float64)
        if neutral == 0:
            constant = -constant if op_type == "Sub" else constant
            return self.node("Sum", [other, constant], np.float64, self.broadcast(other, constant))
        return self.elementwise(op_type, self.elementwise(op_type, other, constant * 0.5), np.float64(2.0))

    def common(self, *xs: Any) -> np.dtype[Any]:
        """The common dtype of operands by NumPy's rule, with Python's numbers being weak."""
        kinds = [INT64 if isinstance(x, Dim) else getattr(x, "dtype", x) for x in xs]
        first = next((kind for kind in kinds if isinstance(kind, np.dtype)), None)
        others = [kind for kind in kinds if kind is not first and kind != first]
        if first is not None and all(_is_weak(kind, first) for kind in others):
            return first
        return np.result_type(*kinds)

    # ------------------------------------------------------------------------------------------ bodies

    @contextmanager
    def inside(self, nodes: Nodes) -> Iterator[None]:
        """A context in which nodes are written into *nodes*."""
        before, self.nodes = self.nodes, nodes
        try:
            yield
        finally:
            self.nodes = before

    def body(self, kinds: Sequence[Kind], function: Callable[..., Sequence[Any]]) -> Body:
        """The body of a loop or branch: what a function writes for inputs of these types."""
        inner = Nodes(self.opset, self.nodes)
        with self.inside(inner):
            inputs = [Value(self, inner.declare("given", *kind), *kind) for kind in kinds]
            outputs = [self.value(y) for y in function(*inputs)]
            own = {name for node in inner.written for name in node.outputs}
            listed: set[str] = set()
            for i, y in enumerate(outputs):
                if (
                    y.name not in own or y.name in listed
                ):  # An output must be made inside, and be listed once.
                    outputs[i] = Value(self, inner.declare("same", y.dtype, y.shape), y.dtype, y.shape)
                    inner.written.append(_identity(y.name, outputs[i].name))
                listed.add(outputs[i].name)
        return Body(inner.written, [_named(x) for x in inputs], [_named(y) for y in outputs])

    # ----------------------------------------------------------------------------------------- refusals

    def missing(self, what: str) -> NotInOnnx:
        """The error for something that has no form."""
        return NotInOnnx(f"{what} has no form in ONNX")

    def unsized(self, what: str) -> NotInOnnx:
        """The error for something that has a form only if sizes are known."""
        return NotInOnnx(f"{what} must be a number for this to be written; give placeholders that size", True)

    def known(self, shape: Sequence[Any], what: str = "the shape") -> tuple[int, ...]:
        """Sizes, which must be known."""
        if not is_known(shape):
            raise self.unsized(f"{what} {list(shape)}")
        return tuple(shape)


def _is_weak(x: object, dtype: np.dtype[Any]) -> bool:
    """Whether *x* is a Python number that takes on the other operand's dtype."""
    if isinstance(x, int):
        return dtype != BOOL
    return isinstance(x, float) and dtype.kind not in "biu"


def _named(x: Value) -> Named:
    return Named(x.name, x.dtype, x.shape)


def _identity(source: str, target: str) -> Node:
    return Node("Identity", "", target, (source,), (target,), {})
