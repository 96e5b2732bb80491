"""What one operation definition holds, and how an operation is built from it.

A definition is a class with everything about the operation in one block::

    class Mul(Op):
        '''Elementwise product, with broadcasting. ...'''
        infer = broadcast_same_dtype                  # positional parameters are the operands,
        gradient = {"x": lambda g, op: g * op.y,      # keyword-only ones the attributes
                    "y": lambda g, op: g * op.x}
        numpy = xla = lambda xp, x, y: xp.multiply(x, y)
        samples = binary()

It is checked when the class is created; a definition is never instantiated. :func:`emit` adds an operation
to a graph; :func:`apply` is what the public functions call: it takes outputs, arrays and Python numbers, and
where there is no graph at all it computes at once with NumPy.
"""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, cast

import numpy as np

from stopgrad.errors import ArgumentError, DefinitionError, DTypeError, EngineError, GradientError, GraphError, ShapeError, StopgradError
from stopgrad.graph import REGIONS, Graph, Operation, Output, Scope, default_graph, describe
from stopgrad.namespaces import NUMPY
from stopgrad.samples import Sample
from stopgrad.source import capture
from stopgrad.types import DType, TensorType, bool_, complex64, dtype_of, float32, int32, tensor_type

Array = np.ndarray[Any, Any]
Tensor = Any
"""What public functions take and return: an Output; or, outside of a graph, a NumPy array."""

Rule = Callable[..., Any]


@dataclass(frozen=True)
class NoGradient:
    """In place of a gradient rule: a wall. ``status`` is the absence it causes, ``reason`` says why."""

    reason: str
    status: str = "not differentiable"


def not_differentiable(reason: str) -> NoGradient:
    """The operand has no gradient, as TensorFlow's NotDifferentiable: the way ends here."""
    return NoGradient(reason)


def stopped(reason: str) -> NoGradient:
    """The operand is cut off by a gate."""
    return NoGradient(reason, "stopped")


@dataclass(frozen=True)
class Undefined:
    """A gradient rule that refuses: asking for the gradient is an error. The reason may depend on the operation."""

    reason: Callable[[Operation], str]

    def __call__(self, g: Any, op: Operation, *_: int) -> NoReturn:
        raise GradientError(f"{op.type}: the gradient of {describe(op)} is undefined: {self.reason(op)}")


@dataclass(frozen=True)
class Unsupported:
    """In place of an engine's lowering: why there is none."""

    reason: str


def unsupported(reason: str) -> Unsupported:
    return Unsupported(reason)


REGISTRY: dict[str, type[Op]] = {}
"""All definitions by type, in the order in which they were defined."""

ENGINE_FIELDS = ("numpy", "xla")


class _NotKept(dict[Any, Any]):
    """A dictionary that forgets, so that a cache keyed by attributes keeps no arrays alive."""

    def get(self, key: Any, default: Any = None) -> Any:
        return default

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class Op:
    """Base of all definitions.

    Class attributes that a definition gives:

    - ``infer``: from the operands' :class:`TensorType` (positional) and the attributes (keyword-only) to the
      type of the output, or a tuple of types; raises :class:`ShapeError` or :class:`DTypeError`.
    - ``gradient``: from operand name to rule or :func:`not_differentiable`; or one :func:`not_differentiable` for all. A rule
      takes the output's cotangent (a tuple for several outputs) and the operation, and for a variadic operand
      also the operand's position; it returns the operand's cotangent. Broadcasting and dtype are not its concern.
    - ``numpy``, ``xla``: from a namespace (``numpy``, ``jax.numpy``), the operands and the attributes to the value.
    - ``samples``: calls from which tests are made; ``extremes``: operands on which engines must agree.
    - ``cached``: whether inferred types are remembered; not where an attribute holds a whole array.
    - ``gate``: never merged, moved or erased but by the one pass made for it.
    - ``passes``: the operand that a gate hands on unchanged, and into which it is erased before running.
    - ``selective``: the gate acts only towards the tensors that are its variadic operands; for all others it is open.
    """

    type: ClassVar[str]
    operands: ClassVar[tuple[str, ...]]
    variadic: ClassVar[str | None]
    attributes: ClassVar[tuple[str, ...]]
    slots: ClassVar[dict[str, tuple[str, int]]]
    rules: ClassVar[tuple[Rule | NoGradient, ...]]
    differentiable: ClassVar[tuple[int, ...]]
    function: ClassVar[Callable[..., Any]]

    infer: ClassVar[Callable[..., Any]]
    gradient: ClassVar[Mapping[str, Rule | NoGradient] | NoGradient]
    numpy: ClassVar[Callable[..., Any] | Unsupported]
    xla: ClassVar[Callable[..., Any] | Unsupported]
    samples: ClassVar[Sequence[Sample]]
    extremes: ClassVar[Sequence[tuple[Any, ...]]] = ()
    cached: ClassVar[bool] = True
    gate: ClassVar[bool] = False
    passes: ClassVar[int | None] = None
    selective: ClassVar[bool] = False

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        for needed in ("infer", "gradient", "samples", *ENGINE_FIELDS):
            if not hasattr(cls, needed):
                raise DefinitionError(f"operation {cls.__name__} lacks {needed!r}")
        if not cls.__dict__.get("__doc__"):
            raise DefinitionError(f"operation {cls.__name__} lacks a docstring")
        if cls.__name__ in REGISTRY:
            raise DefinitionError(f"operation {cls.__name__} is defined twice")
        cls.type = cls.__name__
        cls._read_signature()
        cls._read_rules()
        cls._inferred = {} if cls.cached else _NotKept()
        REGISTRY[cls.type] = cls

    _inferred: ClassVar[dict[Any, tuple[TensorType, ...]]]

    @classmethod
    def _read_signature(cls) -> None:
        parameters = inspect.signature(cls.infer).parameters.values()
        cls.operands = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        cls.variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        cls.attributes = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        cls.slots = {name: ("operand", i) for i, name in enumerate(cls.operands)}
        cls.slots |= {name: ("value", i) for i, name in enumerate(cls.attributes)}
        cls.slots["result"] = ("result", 0)
        if cls.variadic:
            cls.slots[cls.variadic] = ("variadic", len(cls.operands))
        clash = [name for name in cls.slots if hasattr(Operation, name)]
        if clash:
            raise DefinitionError(f"operation {cls.__name__}: {clash[0]!r} is a name that every operation has already")

    @classmethod
    def _read_rules(cls) -> None:
        names = cls.operands + ((cls.variadic,) if cls.variadic else ())
        given = cls.gradient
        if isinstance(given, NoGradient):
            given = dict.fromkeys(names, given)
        if set(given) != set(names):
            raise DefinitionError(
                f"operation {cls.__name__}: gradient rules for {sorted(given)}, operands {sorted(names)}; give each a rule or not_differentiable(reason)"
            )
        cls.rules = tuple(given[name] for name in names)
        cls.differentiable = tuple(i for i, rule in enumerate(cls.rules) if not isinstance(rule, NoGradient))

    @classmethod
    def rule(cls, op: Operation, i: int) -> Rule | NoGradient:
        """The rule of the i-th input of an operation of this type."""
        return cls.rules[min(i, len(cls.rules) - 1)]

    @classmethod
    def open_inputs(cls, op: Operation) -> Sequence[int]:
        """The positions of the inputs that have a rule."""
        if cls.variadic is None:
            return cls.differentiable
        return [i for i in range(len(op.inputs)) if not isinstance(cls.rule(op, i), NoGradient)]

    @classmethod
    def create(cls, scope: Scope | Graph, *operands: Any, name: str | None = None, **attributes: Any) -> Operation:
        """A new operation of this type in a scope; the same as the function of this operation there."""
        if isinstance(scope, Graph):
            scope = Scope(scope)
        if not isinstance(scope, Scope):
            raise GraphError(f"{cls.type}.create takes a Scope first, not {scope!r}")
        with scope:
            made = cls.function(*operands, name=name, **attributes)
        while isinstance(made, (tuple, list)):
            made = made[0]
        return cast("Output", made).op


# ------------------------------------------------------------------------------------------- inference


def infer_types(definition: type[Op], types: tuple[TensorType, ...], values: tuple[Any, ...]) -> tuple[TensorType, ...]:
    """The types of the outputs, remembered per operand types and attributes."""
    key = (types, values)
    found = definition._inferred.get(key)
    if found is None:
        inferred = definition.infer(*types, **dict(zip(definition.attributes, values, strict=True)))
        found = inferred if isinstance(inferred, tuple) else (inferred,)
        if len(definition._inferred) > 4096:
            definition._inferred.clear()
        definition._inferred[key] = found
    return found


def refuse(definition: type[Op], error: StopgradError, operands: Sequence[Any]) -> NoReturn:
    """Raise *error* again with what the user needs: the operation, the operands; the error itself knows the line."""
    shown = [describe(x) if isinstance(x, Output) else repr(type_of(x)) for x in operands]
    names = definition.operands + (definition.variadic,) * (len(shown) - len(definition.operands)) if definition.variadic else definition.operands
    given = "".join(f"\n  {name} = {text}" for name, text in zip(names, shown, strict=False))
    raise type(error)(f"{definition.type}: {error.message}{given}") from None


# -------------------------------------------------------------------------------------------- building


def emit(definition: type[Op], inputs: tuple[Output, ...], values: tuple[Any, ...] = (), name: str | None = None, graph: Graph | None = None) -> Operation:
    """Add an operation to the graph of its inputs."""
    if graph is None:
        graph = inputs[0].op.graph if inputs else _default_or_raise(definition)
    for x in inputs:
        if x.op.graph is not graph:
            refuse(definition, GraphError("the operands belong to two graphs; build both in one, or feed the value of one into the other"), inputs)
    for region in REGIONS.get():
        region.setdefault(graph, len(graph._operations))
    if graph._closed:
        inputs = tuple([leave(graph, x) for x in inputs])
    count = len(inputs)
    if count == 1:
        types: tuple[TensorType, ...] = (inputs[0].type,)
    elif count == 2:
        types = (inputs[0].type, inputs[1].type)
    else:
        types = tuple([x.type for x in inputs])
    results = definition._inferred.get((types, values))
    if results is None:
        try:
            results = infer_types(definition, types, values)
        except StopgradError as error:
            refuse(definition, error, inputs)
    origin = graph._origin
    if origin is None:
        label = graph._prefix if name is None and graph._next_name is None else graph._label_for(name)
        return Operation(graph, definition, inputs, values, results, label, capture(), None)
    if definition.gate or graph._merged is None:
        return Operation(graph, definition, inputs, values, results, graph._label_for(name), None, origin)
    key = (definition, inputs, values)
    op = graph._merged.get(key)
    if op is None:
        op = graph._merged[key] = Operation(graph, definition, inputs, values, results, graph._prefix, None, origin)
    return op


def _default_or_raise(definition: type[Op]) -> Graph:
    graph = default_graph()
    if graph is None:
        raise GraphError(f"{definition.type}: needs a graph; build it inside 'with graph.as_default():'")
    return graph


def leave(graph: Graph, x: Output) -> Output:
    """*x* as it may be used here: stopped, where it was built inside a ``no_gradient`` block that has ended."""
    closed = graph._closed  # Disjoint spans of ids, in order.
    i = bisect_left(closed, (x.op.id + 1, 0)) - 1
    if i < 0 or x.op.id >= closed[i][1]:
        return x
    if x not in graph._exits:
        graph._closed = []
        try:
            graph._exits[x] = emit(REGISTRY["StopGradient"], (x,)).outputs[0]
        finally:
            graph._closed = closed
    return graph._exits[x]


def apply(definition: type[Op], operands: Sequence[Any], values: tuple[Any, ...] = (), name: str | None = None) -> Any:
    """Build the operation where there is a graph; compute it with NumPy where there is none.

    Operands are outputs, operations with one output, arrays, nested lists of numbers, or numbers; a Python
    number or list takes the dtype of the first operand that has one.
    """
    try:
        for x in operands:
            if type(x) is not Output:
                break
        else:
            if operands:
                outputs = emit(definition, tuple(operands), values, name).outputs
                return outputs[0] if len(outputs) == 1 else outputs
        operands = [x.as_output() if isinstance(x, Operation) else x for x in operands]
        symbolic = next((x for x in operands if isinstance(x, Output)), None)
        graph = symbolic.op.graph if symbolic is not None else default_graph()
        arrays = coerce(definition, operands)
        if graph is None:
            return evaluate(definition, cast("list[Array]", arrays), values)
        try:
            infer_types(definition, tuple(type_of(x) for x in arrays), values)
        except StopgradError as error:
            refuse(definition, error, arrays)
        inputs = tuple(x if isinstance(x, Output) else constant_in(graph, x) for x in arrays)
        outputs = emit(definition, inputs, values, name, graph).outputs
        return outputs[0] if len(outputs) == 1 else outputs
    except StopgradError as error:
        error.name_after(definition.type)
        raise


@contextmanager
def naming(definition: type[Op]) -> Iterator[None]:
    """Inside, an error says which operation it is about."""
    try:
        yield
    except StopgradError as error:
        error.name_after(definition.type)
        raise


def evaluate(definition: type[Op], arrays: Sequence[Array], values: tuple[Any, ...]) -> Any:
    """Compute with NumPy, at once."""
    try:
        types = infer_types(definition, tuple(type_of(x) for x in arrays), values)
    except StopgradError as error:
        refuse(definition, error, arrays)
    if any(t.symbolic for t in types):
        refuse(definition, ShapeError("outside of a graph every size must be a number; build it inside 'with graph.as_default():'"), arrays)
    lowering = definition.numpy
    if isinstance(lowering, Unsupported):
        raise EngineError(f"{definition.type} cannot be computed with NumPy: {lowering.reason}")
    with np.errstate(all="ignore"), naming(definition):
        made = lowering(NUMPY, *arrays, **dict(zip(definition.attributes, values, strict=True)))
    results = tuple(np.asarray(v, t.dtype.numpy) for v, t in zip(made if len(types) > 1 else (made,), types, strict=True))
    return results[0] if len(results) == 1 else results


def interpret(outputs: Sequence[Output], feeds: Mapping[Output, Array]) -> list[Array]:
    """Compute outputs with NumPy, operation by operation, as for arrays outside of a graph."""
    values: dict[Output, Any] = dict(feeds)
    graph = outputs[0].op.graph if outputs else None
    for op in graph.subgraph_to(outputs) if graph is not None else ():
        if all(y in values for y in op.outputs):
            continue
        results = evaluate(op.definition, [values[x] for x in op.inputs], op.values)
        values.update(zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=True))
    return [values[y] for y in outputs]


# ------------------------------------------------------------------------------------------- operands


def type_of(x: Any) -> TensorType:
    """The tensor type of an output, array or number.

    >>> type_of(np.zeros((2, 3)))
    float64[2, 3]
    """
    if isinstance(x, Output):
        return x.type
    if isinstance(x, Operation):
        return x.as_output().type
    array = x if isinstance(x, np.ndarray) else as_array(x)
    return tensor_type(dtype_of(array.dtype), array.shape)


def as_array(x: Any, dtype: DType | None = None) -> Array:
    """A NumPy array of a number, nested list or array; Python numbers are int32, float32 or complex64 as in TensorFlow."""
    if dtype is None and not hasattr(x, "dtype"):
        dtype = _python_dtype(x)
    if isinstance(x, np.ma.MaskedArray):
        raise DTypeError("a masked array cannot become a tensor: fill it first, with x.filled(0.0), and keep its mask as a tensor of its own")
    try:
        array = np.asarray(x) if dtype is None else np.asarray(x, dtype.numpy)
    except GraphError:
        raise DTypeError(f"{_short(x)} holds outputs of a graph, where an array is needed; join them with sg.stack or sg.concat") from None
    except (TypeError, ValueError, OverflowError) as error:
        why = "its parts differ in length" if "inhomogeneous" in str(error) else error
        raise DTypeError(f"{_short(x)} cannot become a tensor{f' of {dtype}' if dtype else ''}: {why}") from None
    if array.dtype.kind in _NO_NUMBERS:
        raise DTypeError(f"{_short(x)} cannot become a tensor: it holds {_NO_NUMBERS[array.dtype.kind]}, not numbers")
    dtype_of(array.dtype)
    return array.astype(array.dtype.newbyteorder("=")) if not array.dtype.isnative else array


_NO_NUMBERS = {"O": "Python objects", "U": "text", "S": "bytes", "M": "dates", "m": "durations"}


def listed(xs: Any) -> tuple[Any, ...]:
    """Several tensors, given as a list."""
    if isinstance(xs, (Output, Operation, str)) or not isinstance(xs, Iterable):
        raise ArgumentError(f"takes a list of tensors, not {describe(xs) if isinstance(xs, (Output, Operation)) else _short(xs)}; write [x, y]")
    return tuple(xs)


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."


def _python_dtype(x: Any) -> DType | None:
    """The dtype of Python numbers, however nested; None for what NumPy knows better."""
    if isinstance(x, bool):
        return bool_
    if isinstance(x, int):
        return int32 if -(2**31) <= x < 2**31 else None
    if isinstance(x, float):
        return float32
    if isinstance(x, complex):
        return complex64
    if isinstance(x, (list, tuple)):
        kinds = [_python_dtype(v) for v in x]
        order = [bool_, int32, float32, complex64]
        if not kinds:
            return float32
        if all(k in order for k in kinds):
            return max(cast("list[DType]", kinds), key=order.index)
    return None


def _is_python(x: Any) -> bool:
    """Whether *x* is a Python number or list, which takes the dtype of what it meets."""
    return isinstance(x, (bool, int, float, complex)) or (isinstance(x, (list, tuple)) and _python_dtype(x) is not None)


def coerce(definition: type[Op], operands: Sequence[Any]) -> list[Output | Array]:
    """Outputs stay, all else becomes arrays; Python numbers take the dtype of their company."""
    company = next((type_of(x).dtype for x in operands if not _is_python(x)), None)
    coerced: list[Output | Array] = []
    for x in operands:
        if isinstance(x, Output):
            coerced.append(x)
        elif not _is_python(x):
            coerced.append(as_array(x))
        elif company is not None and _fits(x, company):
            coerced.append(as_array(x, company))
        else:
            coerced.append(as_array(x))
    if company is None and len(coerced) > 1:
        # Numbers only: as NumPy would, but among TensorFlow's default dtypes.
        common = _python_dtype(list(operands))
        if common is not None and not isinstance(definition.gradient, NoGradient):
            coerced = [as_array(x, common) for x in operands]
    return coerced


def _fits(x: Any, dtype: DType) -> bool:
    kind = _python_dtype(x) or int32
    if kind.is_bool:
        return dtype.is_bool
    if kind.is_integer:
        return not dtype.is_bool
    return dtype.is_complex if kind.is_complex else dtype.is_differentiable


class Literal:
    """A constant's value as an attribute: compared by content, so that equal constants can be merged."""

    __slots__ = ("_hash", "array")

    array: Array

    def __init__(self, array: Array) -> None:
        if array.flags.writeable or not array.flags.owndata:
            array = np.array(array)
        array.flags.writeable = False
        self.array = array
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.array.dtype, self.array.shape, self.array.tobytes()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Literal) or hash(self) != hash(other):
            return False
        a, b = self.array, other.array
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

    def __repr__(self) -> str:
        return _short(self.array.tolist())


def constant_in(graph: Graph, array: Array, name: str | None = "") -> Output:
    """A constant in a graph. Unnamed scalars are built once per graph: they stand for numbers in the user's text."""
    if array.ndim == 0 and name == "":
        key = (array.dtype, array.tobytes())
        found = graph._scalars.get(key)
        if found is None:
            found = graph._scalars[key] = emit(REGISTRY["Const"], (), (Literal(array),), name, graph).outputs[0]
        return found
    return emit(REGISTRY["Const"], (), (Literal(array),), name, graph).outputs[0]


def as_output(x: Any, graph: Graph | None = None) -> Output:
    """*x* as an output: itself, its only output, or a constant."""
    if isinstance(x, Output):
        return x
    if isinstance(x, Operation):
        return x.as_output()
    return constant_in(_default_or_raise(REGISTRY["Const"]) if graph is None else graph, as_array(x))


def show_shape(shape: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, shape))}]"
