"""Lowerings recorded as instructions on rows: an array namespace over symbols.

A lowering calls an array library's functions. Those of this namespace record instructions for tensors of R
rows and N columns, so no list of operations is needed. What rows cannot compute raises :class:`Refused`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, SupportsFloat, TypeAlias

import numpy as np
import numpy.typing as npt

from stopgrad.graph.graph import Output

FULL, ROW, VECTOR, NUMBER, COLUMNS = "full", "row", "vector", "number", "columns"
"""Kinds of values: [R, N]; [R]; [N], the same for all rows; a single number; [N], a sum over rows."""

_FLOAT, _BOOL = np.dtype(np.float32), np.dtype(bool)
_WHOLE = tuple(map(np.dtype, (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16)))
_Shape = tuple[int, ...]

Operand: TypeAlias = "Symbol | npt.ArrayLike"
"""A symbol, or what becomes the symbol of a constant."""


class Refused(Exception):  # noqa: N818 - it is no error
    """Rows cannot compute this."""


class Node:
    """A value of a program.

    Attributes:
        op: the instruction that computes it; or ``input``, or ``constant``.
        inputs: the operands of the instruction.
        kind: FULL, ROW, VECTOR, NUMBER or COLUMNS.
        data: of an input, the output, and how its rows are repeated, if they are; of a constant, the bytes
            of the number.
        late: whether it is known only after all rows.
    """

    __slots__ = ("data", "inputs", "kind", "late", "op")

    op: str
    inputs: tuple[Node, ...]
    kind: str
    late: bool

    def __init__(self, op: str, inputs: tuple[Node, ...], kind: str, data: object = None) -> None:
        self.op = op
        self.inputs = inputs
        self.kind = kind
        self.data: Any = data
        self.late = op == "Total" or any(x.late for x in inputs)


class Symbol:
    """An array as lowerings see it. It has no node while it is an input that has not been used."""

    __slots__ = ("dtype", "node", "recorder", "shape", "source")
    __array_priority__ = 1000

    recorder: Recorder
    shape: _Shape
    dtype: np.dtype[Any]
    node: Node | None
    source: Output | None

    def __init__(
        self,
        recorder: Recorder,
        shape: _Shape,
        dtype: np.dtype[Any],
        node: Node | None,
        source: Output | None = None,
    ) -> None:
        self.recorder = recorder
        self.shape = shape
        self.dtype = dtype
        self.node = node
        self.source = source

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def reshape(self, *shape: Any) -> Symbol:
        return self.recorder.reshape(self, shape[0] if isinstance(shape[0], tuple) else shape)

    def astype(self, dtype: npt.DTypeLike) -> Symbol:
        return self.recorder.astype(self, dtype)

    def __getitem__(self, _: object) -> NoReturn:
        raise Refused("indexing")

    def __iter__(self) -> NoReturn:
        raise Refused("iteration")

    def __bool__(self) -> bool:
        raise Refused("a value is asked for")

    __hash__: Any = object.__hash__

    def __neg__(self) -> Symbol:
        return self.recorder.negative(self)

    def __invert__(self) -> Symbol:
        return self.recorder.logical_not(self)


def _operator(name: str, swapped: bool = False) -> Callable[[Symbol, Any], Symbol]:
    def apply(x: Symbol, y: Operand) -> Symbol:
        function = getattr(x.recorder, name)
        return function(y, x) if swapped else function(x, y)

    return apply


for _method, _name in {
    **{"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "and": "logical_and"},
    "or": "logical_or",
}.items():
    setattr(Symbol, f"__{_method}__", _operator(_name))
    setattr(Symbol, f"__r{_method}__", _operator(_name, swapped=True))
for _method, _name in {
    **{"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal"},
    **{"gt": "greater", "ge": "greater_equal"},
}.items():
    setattr(Symbol, f"__{_method}__", _operator(_name))

# The instructions of a namespace's functions: from floats to floats, from floats to booleans, of booleans.
_ARITHMETIC = {
    "negative": "Negative", "abs": "Abs", "sign": "Sign", "square": "Square", "sqrt": "Sqrt",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "exp": "Exp", "expm1": "Expm1", "log": "Log",
    "log1p": "Log1p",
    "tanh": "Tanh", "logistic": "Sigmoid", "erf": "Erf", "erfc": "Erfc", "add": "Add", "subtract": "Subtract",
    "multiply": "Multiply", "divide": "Divide", "maximum": "Maximum", "minimum": "Minimum",
}  # fmt: skip
_TESTS = {"isnan": "IsNan", "isinf": "IsInf", "isfinite": "IsFinite"}
_LOGIC = {"logical_not": "Not", "logical_and": "And", "logical_or": "Or"}
# Comparisons: the instructions for floats and for integers, and whether the operands are swapped.
_COMPARISONS = {
    "equal": ("Equal", "EqualWhole", False),
    "not_equal": ("NotEqual", None, False),
    "less": ("Less", "LessWhole", False),
    "less_equal": ("LessEqual", None, False),
    "greater": ("Less", "LessWhole", True),
    "greater_equal": ("LessEqual", None, True),
}
_REDUCTIONS = {"sum": "RowSum", "max": "RowMax", "min": "RowMin", "any": "RowMax", "all": "RowMin"}


def _bare(shape: _Shape) -> _Shape:
    """A shape without leading axes of size 1."""
    first = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[first:]


def shape_of(x: Output) -> _Shape:
    """The shape of an output, whose sizes must be known."""
    return tuple([n if isinstance(n, int) else _refused("a symbolic size") for n in x.shape])


def _refused(why: str) -> NoReturn:
    raise Refused(why)


class Recorder:
    """The namespace. It also makes symbols of a graph's outputs.

    Attributes:
        rows: R.
        columns: N, at least 2.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.rows = rows
        self.columns = columns
        self.special = self.lax = self.nn = self
        self._nodes: dict[Any, Node] = {}
        self._elements: dict[tuple[Node, Node], Node | None] = {}

    def __getattr__(self, name: str) -> Any:
        if name in _ARITHMETIC:
            function: Any = functools.partial(self._same_dtype, _ARITHMETIC[name], _FLOAT)
        elif name in _TESTS:
            function = functools.partial(self._test, _TESTS[name])
        elif name in _LOGIC:
            function = functools.partial(self._same_dtype, _LOGIC[name], _BOOL)
        elif name in _COMPARISONS:
            function = functools.partial(self._compare, *_COMPARISONS[name])
        elif name in _REDUCTIONS:
            function = functools.partial(self._reduce, name)
        else:
            raise Refused(name)
        setattr(self, name, function)
        return function

    # ---- nodes

    def node(self, op: str, inputs: tuple[Node, ...], kind: str, data: object = None) -> Node:
        """The node of an instruction; equal instructions have one node."""
        key = (op, inputs, kind, data)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(op, inputs, kind, data)
        return node

    def constant(self, value: SupportsFloat) -> Node:
        # Compared by its bits: -0 is not 0, and NaN is NaN.
        return self.node("constant", (), NUMBER, np.float32(value).tobytes())

    def input(self, x: Output) -> Symbol:
        """An input of the region."""
        return Symbol(self, shape_of(x), x.dtype.numpy, None, x)

    def array(self, value: Operand, dtype: npt.DTypeLike) -> Symbol:
        """A lowering's result as a symbol."""
        return self.asarray(value, dtype)

    def number(self, value: Operand, dtype: npt.DTypeLike | None = None) -> Symbol:
        """A number as a symbol."""
        if isinstance(value, Symbol):
            return value
        array = np.asarray(value, dtype)
        if array.size != 1:
            raise Refused("a constant array")
        plain = array.reshape(()).item()
        if isinstance(plain, complex):
            raise Refused("a complex number")
        return Symbol(self, array.shape, array.dtype, self.constant(plain), None)

    def inputs_in_full(self) -> list[Output]:
        """The inputs that are used with all columns."""
        return [node.data[0] for node in self._nodes.values() if node.op == "input" and node.kind == FULL]

    # ---- kinds

    def kind_of(self, shape: _Shape) -> str:
        """The kind of a result of this shape."""
        size = math.prod(shape)
        if shape and shape[-1] == self.columns and size == self.rows * self.columns:
            return FULL
        if size == 1:
            return NUMBER
        if size == self.rows:
            return ROW
        raise Refused(f"the shape {shape}")

    def aligned(self, x: Symbol, shape: _Shape, kind: str) -> Node:
        """A symbol's node as an operand of a result of a shape."""
        node = x.node
        if node is None:
            return self._used(x, shape, kind)
        if node.kind == NUMBER:
            return node
        if node.kind == COLUMNS:
            raise Refused("a sum over rows that is used again")
        # If it has the result's shape, it is already broadcast.
        if x.shape == shape or (node.kind == ROW and kind != FULL and _bare(x.shape) == _bare(shape)):
            return node
        padded = (1,) * (len(shape) - x.ndim) + x.shape
        if kind == FULL and node.kind == ROW and padded == (*shape[:-1], 1):
            return node
        if kind == FULL and node.kind == VECTOR and _bare(padded) == (self.columns,):
            return node
        raise Refused(f"{node.kind} of shape {x.shape} in {shape}")

    def _used(self, x: Symbol, shape: _Shape, kind: str) -> Node:
        """The node of an input at its first use, which decides its kind."""
        if x.dtype not in (_FLOAT, _BOOL, *_WHOLE):
            raise Refused(str(x.dtype))
        padded = (1,) * (len(shape) - x.ndim) + x.shape
        if x.size == 1:
            if x.dtype != _FLOAT:
                raise Refused("a single number that is not float32")
            return self.node("input", (), NUMBER, (x.source, None))
        if kind == FULL:
            if padded == shape:
                return self.node("input", (), FULL, (x.source, None))
            if padded[-1] == 1:
                rows = padded[:-1]
                view = None if rows == shape[:-1] else (rows, shape[:-1])
                return self.node("input", (), ROW, (x.source, view))
            if _bare(padded) == (self.columns,) and x.dtype == _FLOAT:
                return self.node("input", (), VECTOR, (x.source, None))
            if padded[-1] == self.columns:
                return self.node("input", (), FULL, (x.source, (padded[:-1], shape[:-1])))
        if kind == ROW:
            view = None if padded == shape else (padded, shape)
            return self.node("input", (), ROW, (x.source, view))
        raise Refused(f"an input of shape {x.shape} in {shape}")

    # ---- elementwise

    def _elementwise(self, op: str, dtype: np.dtype[Any], *operands: Operand) -> Symbol:
        symbols = [self.number(x, None) for x in operands]
        try:
            shape = np.broadcast_shapes(*(x.shape for x in symbols))
        except ValueError:
            raise Refused("shapes") from None
        kind = self.kind_of(shape)
        nodes = tuple(self.aligned(x, shape, kind) for x in symbols)
        kinds = {node.kind for node in nodes}
        # If all operands are per row, the result is one number per row, to be repeated.
        result_kind = FULL if FULL in kinds or VECTOR in kinds else ROW if ROW in kinds else NUMBER
        if result_kind == FULL:
            position = self.node("Position", (), VECTOR)
            nodes = tuple(self.node("Position", (), FULL) if x is position else x for x in nodes)
        if result_kind == FULL != kind or (result_kind != NUMBER and any(node.late for node in nodes)):
            raise Refused("what is not per row")
        return Symbol(self, shape, dtype, self.node(op, nodes, result_kind))

    def _same_dtype(self, op: str, dtype: np.dtype[Any], *operands: Operand, **unknown: object) -> Symbol:
        self._check(unknown, operands, (dtype,))
        return self._elementwise(op, dtype, *operands)

    def _test(self, op: str, x: Operand) -> Symbol:
        self._check({}, (x,), (_FLOAT,))
        return self._elementwise(op, _BOOL, x)

    @staticmethod
    def _check(unknown: Mapping[str, object], operands: Sequence[Any], dtypes: Sequence[Any]) -> None:
        if unknown or any(isinstance(x, Symbol) and x.dtype not in dtypes for x in operands):
            raise Refused("a dtype or an option")

    def _compare(self, floats: str, wholes: str | None, swapped: bool, x: Operand, y: Operand) -> Symbol:
        if swapped:
            x, y = y, x
        dtypes = {z.dtype for z in (x, y) if isinstance(z, Symbol)}
        if dtypes <= {_FLOAT} or dtypes == {_BOOL}:
            return self._elementwise(floats, _BOOL, x, y)
        if wholes is None or len(dtypes) != 1 or not dtypes <= set(_WHOLE):
            raise Refused("a comparison")
        if not (isinstance(x, Symbol) and isinstance(y, Symbol)):
            raise Refused("a comparison of whole numbers with a constant")
        for label, position in ((x, y), (y, x)):
            hits = self._one_hot(label, position)
            if hits is not None:
                return hits
        return self._elementwise(wholes, _BOOL, x, y)

    def _one_hot(self, x: Symbol, y: Symbol) -> Symbol | None:
        """A comparison of one integer per row with the column numbers; None if it is none."""
        if y.node is None or y.node.op != "Position":
            return None
        shape = np.broadcast_shapes(x.shape, y.shape)
        if self.kind_of(shape) != FULL:
            return None
        label = self.aligned(x, shape, FULL)
        if label.kind != ROW:
            return None
        self.aligned(y, shape, FULL)
        return Symbol(self, shape, _BOOL, self.node("OneHot", (label,), FULL))

    def where(self, condition: Operand, x: Operand, y: Operand) -> Symbol:
        dtypes = {z.dtype for z in (x, y) if isinstance(z, Symbol)}
        if len(dtypes) > 1 or not dtypes <= {_FLOAT, _BOOL}:
            raise Refused("a choice of other dtypes")
        if isinstance(condition, Symbol) and condition.dtype != _BOOL:
            raise Refused("a condition of another dtype")
        return self._elementwise("Where", next(iter(dtypes), _FLOAT), condition, x, y)

    def power(self, x: Operand, y: Operand) -> Symbol:
        """Powers that are products, reciprocals or square roots."""
        exponent = None
        if isinstance(y, Symbol) and y.node is not None and y.node.op == "constant":
            exponent = np.frombuffer(y.node.data, np.float32)[0]
        if not isinstance(x, Symbol) or x.dtype != _FLOAT or exponent not in (1.0, 2.0, 3.0, -1.0, 0.5):
            raise Refused("a power")
        if exponent == 1.0:
            return self._elementwise("Copy", _FLOAT, x)
        if exponent == 0.5:
            # Unlike the root, the power is inf at -inf and 0 at -0.
            return self.where(self.equal(x, -math.inf), math.inf, self.add(self.sqrt(x), 0.0))
        if exponent == -1.0:
            return self.divide(1.0, x)
        return self.square(x) if exponent == 2.0 else self.multiply(self.square(x), x)

    # ---- shapes

    def reshape(self, x: Symbol, shape: _Shape) -> Symbol:
        if math.prod(shape) != x.size:
            raise Refused("a size to be found")
        node = x.node
        if node is None or node.kind == NUMBER:
            fits = True
        elif node.kind == VECTOR:
            fits = _bare(shape) == (self.columns,)
        else:
            fits = node.kind != COLUMNS and self.kind_of(shape) == self.kind_of(x.shape)
        if not fits:
            raise Refused("a reshape")
        return Symbol(self, tuple(shape), x.dtype, node, x.source)

    def expand_dims(self, x: Operand, axis: int | Sequence[int]) -> Symbol:
        x = self.number(x)
        axes = sorted(a % (x.ndim + 1) for a in ((axis,) if isinstance(axis, int) else axis))
        shape = list(x.shape)
        for a in axes:
            shape.insert(a, 1)
        return self._viewed(x, tuple(shape))

    def squeeze(self, x: Symbol, axis: int | Sequence[int] | None = None) -> Symbol:
        axes = (axis,) if isinstance(axis, int) else axis
        axes = [i for i, n in enumerate(x.shape) if n == 1] if axes is None else [a % x.ndim for a in axes]
        return self._viewed(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))

    def _viewed(self, x: Symbol, shape: _Shape) -> Symbol:
        """A symbol with other axes of size 1."""
        if x.node is not None and x.node.kind == VECTOR:
            return Symbol(self, shape, x.dtype, x.node, x.source)
        return self.reshape(x, shape)

    def broadcast_to(self, x: Operand, shape: Sequence[int]) -> Symbol:
        x, shape = self.number(x), tuple(shape)
        if x.shape == shape:
            return x
        if x.node is not None and x.node.kind == NUMBER:
            return Symbol(self, shape, x.dtype, x.node)
        kind = self.kind_of(shape)
        node = self.aligned(x, shape, kind)
        return Symbol(self, shape, x.dtype, node)

    def asarray(self, x: Operand, dtype: npt.DTypeLike | None = None) -> Symbol:
        if isinstance(x, Symbol):
            return x if dtype is None else self.astype(x, dtype)
        return self.number(x, dtype)

    def full(self, shape: _Shape, value: Operand, dtype: npt.DTypeLike | None = None) -> Symbol:
        return self.broadcast_to(self.number(value, dtype), shape)

    def zeros(self, shape: _Shape, dtype: npt.DTypeLike | None = None) -> Symbol:
        return self.full(shape, 0, dtype or _FLOAT)

    def ones(self, shape: _Shape, dtype: npt.DTypeLike | None = None) -> Symbol:
        return self.full(shape, 1, dtype or _FLOAT)

    def zeros_like(self, x: Symbol) -> Symbol:
        return self.zeros(x.shape, x.dtype)

    def arange(self, size: int, dtype: npt.DTypeLike | None = None) -> Symbol:
        if size != self.columns or np.dtype(dtype) not in _WHOLE or size > np.iinfo(dtype).max:
            raise Refused("a range")
        return Symbol(self, (size,), np.dtype(dtype), self.node("Position", (), VECTOR))

    def astype(self, x: Symbol, dtype: npt.DTypeLike) -> Symbol:
        old, new = x.dtype, np.dtype(dtype)
        if old == new:
            return x
        if x.node is not None and x.node.op == "constant":
            value = np.frombuffer(x.node.data, np.float32)[0]
            return Symbol(self, x.shape, new, self.constant(np.asarray(value).astype(new)))
        if new == _FLOAT and old == _BOOL:
            return self._elementwise("Copy", _FLOAT, x)
        if new == _FLOAT and old in _WHOLE and old.itemsize <= 4:
            return self._elementwise("ToFloat", _FLOAT, x)
        if new == _BOOL and old == _FLOAT:
            return self._elementwise("NotEqual", _BOOL, x, 0.0)
        raise Refused(f"{old} as {new}")

    # ---- reductions

    def _reduce(
        self,
        name: str,
        x: Operand,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        dtype: npt.DTypeLike | None = None,
        initial: float | None = None,
    ) -> Symbol:
        expected = _BOOL if name in ("any", "all") else _FLOAT
        if not isinstance(x, Symbol) or x.dtype != expected or dtype not in (None, _FLOAT):
            raise Refused("a reduction")
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = sorted(a % x.ndim for a in axes)
        remaining = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else remaining
        if all(x.shape[a] == 1 for a in axes):
            return self.reshape(x, shape)
        kind = self.kind_of(x.shape)
        node = self.aligned(x, x.shape, kind)
        if kind == FULL:
            node = self.spread(node)
        if kind == FULL and axes == [x.ndim - 1]:
            return Symbol(self, shape, expected, self._reduced(_REDUCTIONS[name], node))
        if name == "sum" and not _bare(remaining):
            return Symbol(self, shape, expected, self.node("Total", (node,), NUMBER))
        if name == "sum" and kind == FULL and axes == list(range(x.ndim - 1)):
            return Symbol(self, shape, expected, self.node("ColumnSum", (node,), COLUMNS))
        raise Refused("a reduction over other axes")

    def spread(self, node: Node) -> Node:
        """The node, repeated to all columns."""
        return node if node.kind == FULL else self.node("Copy", (node,), FULL)

    def _reduced(self, op: str, node: Node) -> Node:
        if op == "RowMax" and node.op == "OneHot":
            return self.node("Inside", node.inputs, ROW)
        if op == "RowSum" and node.op == "Where" and node.inputs[0].op == "OneHot":
            hit, chosen, others = node.inputs
            if others is self.constant(0.0):
                value = self.at(chosen, hit.inputs[0])
                if value is not None:
                    inside = self.node("Inside", hit.inputs, ROW)
                    return self.node("Where", (inside, value, others), ROW)
        return self.node(op, (node,), ROW)

    def at(self, node: Node, label: Node) -> Node | None:
        """The element of each row in the column that *label* names; None if it cannot be computed."""
        if node.kind in (ROW, NUMBER):
            return node
        if (node, label) not in self._elements:
            self._elements[node, label] = self._element_at(node, label)
        return self._elements[node, label]

    def _element_at(self, node: Node, label: Node) -> Node | None:
        if node.op == "input":
            return self.node("Gather", (node, label), ROW)
        if node.op in ("OneHot", "Position"):
            return None
        elements = [self.at(x, label) for x in node.inputs]
        nodes = tuple(x for x in elements if x is not None)
        return self.node(node.op, nodes, ROW) if len(nodes) == len(elements) else None
