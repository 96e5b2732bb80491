"""Low-rank adapters (LoRA): small trainable matrices beside frozen weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.arrays import ArrayLike
from stopgrad.base.coercion import is_whole, real, whole
from stopgrad.base.errors import ArgumentError, DTypeError, GraphError
from stopgrad.base.structure import flatten, unflatten
from stopgrad.base.types import DType, DTypeLike, dtype_of
from stopgrad.flow.patterns import matching
from stopgrad.graph.graph import Graph, Operation, Output, describe, needed
from stopgrad.graph.inferred import infer_types
from stopgrad.graph.interpreter import constant_value
from stopgrad.graph.op import Op
from stopgrad.graph.operands import Literal, NumpyArray
from stopgrad.graph.public import guarded, reads_arguments
from stopgrad.ops.elementwise.arithmetic import AddV2, Mul
from stopgrad.ops.elementwise.convert import Cast, cast
from stopgrad.ops.gates.stopping import StopGradient
from stopgrad.ops.indexing.gather import GatherV2
from stopgrad.ops.linalg.contractions import MatMul, matmul
from stopgrad.ops.linalg.matrices import matrix_transpose
from stopgrad.ops.random.draws import random_uniform
from stopgrad.ops.random.keys import random_fold_in, random_key
from stopgrad.ops.shapes.reshape import BroadcastTo, Reshape, Transpose
from stopgrad.ops.structural.sources import Const, Parameter
from stopgrad.rewrite.engine import Copying, rewrite
from stopgrad.transforms.gradients.transform_arguments import outputs_in

__all__ = ["add_lora"]


@dataclass(frozen=True, eq=False)
class Adapted:
    """A graph with adapters beside some of its weights.

    Attributes:
        graph: a new graph, with everything that the outputs need.
        outputs: the outputs in the new graph, in the structure of the given ones.
        parameters: the adapters' parameters by name: ``"w/lora_a"`` and ``"w/lora_b"`` for a weight ``"w"``.
        merged: the sum of each adapted weight and its adapter, by the weight's name: values for the graph
            without adapters.
        mapping: the new tensor for each tensor of the old graph that the outputs need.
    """

    graph: Graph
    outputs: Any
    parameters: dict[str, Output]
    merged: dict[str, Output]
    mapping: Mapping[Output, Output]

    def __getitem__(self, x: Output | Operation) -> Output:
        """The tensor of the new graph for one of the old graph, such as a placeholder."""
        (output,) = outputs_in(x, "Adapted")
        if output not in self.mapping:
            raise GraphError(f"Adapted: the outputs do not need {describe(output)}, so it was left out")
        return self.mapping[output]


@guarded("add_lora")
def add_lora(
    outputs: Any,
    weights: Any,
    rank: int = 8,
    alpha: float = 16.0,
    *,
    key: ArrayLike,
    dtype: DTypeLike | None = None,
) -> Adapted:
    """Put low-rank adapters beside weights: ``x @ W`` becomes ``x @ W + alpha / rank * x @ A @ B``.

    A is random and B zero, so that nothing changes at first. Gradients reach A and B; those of W are stopped.
    All uses of a weight share its adapter. A is on the side of the inputs, B on that of the results: if
    products use a weight transposed, ``A @ B`` is added to the transpose. Rows of a weight that
    :func:`gather` looks up, as of a table of embeddings, get the same rows of the adapter's product.

    Args:
        outputs: an output, or a nested structure of outputs of one graph.
        weights: parameters with two axes that matrix products use or whose rows are looked up, directly or
            after transpositions and casts; or patterns of the names of such parameters that products use,
            such as ``"encoder/*"``. Also matrices that are computed from constants alone, such as quantised
            weights; these are frozen, too.
        rank: the number of columns of A and rows of B.
        alpha: the adapter's product is scaled by alpha / rank.
        key: a seed, or a key, from which A is drawn.
        dtype: of A and B; by default the weight's.

    Returns:
        An :class:`Adapted` with a new graph. The given graph does not change.

    Raises:
        ArgumentError: a pattern matches nothing, or rank and alpha are no positive numbers.
        GraphError: a weight is neither a parameter nor computed from constants, or other operations than
            matrix products and lookups use it.
        DTypeError: a weight is not floating-point.

    References:
        Hu et al. 2021, "LoRA: low-rank adaptation of large language models", arXiv 2106.09685. A is drawn as
        in Hugging Face's ``peft``: uniformly, up to one over the root of the number of inputs.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     x = sg.placeholder(sg.float64, ["batch", 3], name="x")
        ...     w = sg.parameter(np.ones((3, 2)), name="w")
        ...     y = sg.matmul(x, w)
        >>> adapted = sg.add_lora(y, "w", rank=2, key=0)
        >>> with sg.Session(adapted.graph) as session:
        ...     session.run(adapted.outputs, {adapted[x]: np.ones((1, 3))})
        array([[3., 3.]])
        >>> {name: p.shape for name, p in adapted.parameters.items()}
        {'w/lora_a': (3, 2), 'w/lora_b': (2, 2)}
    """
    flat_outputs = outputs_in(outputs, "add_lora: outputs", "; a function is traced with sg.function")
    if not flat_outputs:
        raise GraphError("add_lora: there are no outputs; give at least one")
    chosen = _chosen(flat_outputs, weights)
    scale = _above_zero(alpha, "alpha") / _rank(rank)
    adapter_dtype = _adapter_dtype(dtype)
    writing = _Writing(_uses(chosen, flat_outputs), whole(rank), scale, adapter_dtype, _seed(key))
    rewritten = rewrite(flat_outputs, (), (writing.rule,))
    new = {**rewritten.mapping, **{w: a.weight for w, a in writing.adapters.items()}}
    parameters = {p.op.name: p for a in writing.adapters.values() for p in (a.a, a.b)}
    merged = {w.op.name: a.merged() for w, a in writing.adapters.items()}
    return Adapted(
        rewritten.graph, unflatten(flatten(outputs)[1], rewritten.outputs), parameters, merged, new
    )


# --------------------------------------------------------------------------------------------- arguments


@reads_arguments
def _rank(rank: int) -> int:
    if not is_whole(rank) or not 1 <= whole(rank) < 2**31:
        raise ArgumentError(f"add_lora: rank is a whole number from 1 on, not {rank!r:.60}")
    return whole(rank)


@reads_arguments
def _adapter_dtype(dtype: DTypeLike | None) -> DType | None:
    adapter_dtype = None if dtype is None else dtype_of(dtype)
    if adapter_dtype is not None and not adapter_dtype.is_floating:
        raise DTypeError(f"add_lora: adapters are floating-point, not {adapter_dtype}")
    return adapter_dtype


@reads_arguments
def _above_zero(value: float, name: str) -> float:
    number = real(value)
    if not 0.0 < number < math.inf:
        raise ArgumentError(f"add_lora: {name} is a number above 0, not {value!r:.60}")
    return number


@reads_arguments
def _seed(key: ArrayLike) -> NumpyArray:
    """The value of a key as an array, whatever graph is the default."""
    with Graph().as_default():
        full_key = random_key(key) if is_whole(key) else key
        value = constant_value(full_key) if isinstance(full_key, Output) else np.asarray(full_key)
    if value is None or value.shape != (2,) or value.dtype != np.uint32:
        raise ArgumentError(
            f"add_lora: key is a whole number or a key, as sg.random_key(7) makes it, not {key!r:.60}"
        )
    return value


def _chosen(outputs: Sequence[Output], weights: Any) -> list[Output]:
    """The weights that the user chose, as outputs or by patterns of names."""
    graph = outputs[0].op.graph
    leaves = flatten(weights)[0]
    if leaves and all(isinstance(x, str) for x in leaves):
        by_name = {w.op.name: w for w in _product_weights(outputs)}
        return [by_name[name] for name in matching("add_lora: weights", leaves, by_name)]
    if isinstance(weights, Iterable) and not leaves:
        raise ArgumentError("add_lora: there are no weights; give parameters, or patterns of their names")
    chosen = list(dict.fromkeys(outputs_in(weights, "add_lora: weights")))
    for w in chosen:
        if w.op.graph is not graph:
            raise GraphError(f"add_lora: {describe(w)} belongs to another graph than the outputs")
        if w.type.ndim != 2 or not (w.op.definition is Parameter or _is_constant(w)):
            raise GraphError(
                f"add_lora: an adapter stands beside a parameter with two axes, not {describe(w)}"
            )
        if not w.dtype.is_floating:
            raise DTypeError(f"add_lora: {describe(w)} is not floating-point, so no adapter fits beside it")
    return chosen


def _is_constant(w: Output) -> bool:
    """Whether a matrix of a known size is computed from constants alone."""
    sizes = all(isinstance(size, int) for size in w.shape) and len(w.op.outputs) == 1
    return sizes and all(op.inputs or op.definition is Const for op in needed([w], {}))


def _product_weights(outputs: Sequence[Output]) -> list[Output]:
    """The parameters with two axes that matrix products use, in the order of the graph."""
    sources: dict[Output, Output] = {}
    weights: dict[Output, None] = {}
    for op in needed(outputs, {}):
        if op.definition is Parameter:
            w = op.outputs[0]
            if w.type.ndim == 2 and w.dtype.is_floating:
                sources[w] = w
        elif op.definition is MatMul:
            weights.update(dict.fromkeys([sources[x] for x in op.inputs if x in sources]))
        else:
            for i, x in enumerate(op.inputs):
                if x in sources and _turns(op, i) is not None:
                    sources[op.outputs[0]] = sources[x]
    return list(weights)


# --------------------------------------------------------------------------------------------------- uses


class _Use(NamedTuple):
    """A matrix product of which a weight is an operand, or a lookup of its rows, which is one as well.

    Attributes:
        operand: 0 or 1; of a lookup 1, as indices stand for rows with a single 1.
        turned: whether the operand is the weight's transpose.
    """

    operand: int
    turned: bool

    @property
    def reads(self) -> int:
        """The axis of the weight that the product sums over."""
        return int(self.turned) if self.operand else 1 - int(self.turned)


def _turns(op: Operation, i: int) -> bool | None:
    """Whether an operation transposes the matrix of its operand's last two axes, or None if it changes it.

    It may repeat the matrix along leading axes, as exporters do for batches.
    """
    definition, operand_type, result_type = op.definition, op.inputs[i].type, op.outputs[0].type
    if definition is Transpose:
        last = tuple(op.perm)[-2:]
        axes = operand_type.ndim - 2, operand_type.ndim - 1
        return None if {*last} != {*axes} else last != axes
    if definition in _RESHAPING and i == 0:
        return False if result_type.shape[-2:] == operand_type.shape[-2:] else None
    if (definition is Cast and op.dtype.is_floating) or tuple(definition.handed_on(op)) == (i,):
        return False
    return None


_RESHAPING = frozenset((BroadcastTo, Reshape))
"""Operations that leave the last two axes unchanged if their sizes do not change."""


def _uses(weights: Sequence[Output], outputs: Sequence[Output]) -> dict[Output, dict[Operation, _Use]]:
    """For each weight all the matrix products that use it, and the lookups of its rows.

    Raises:
        GraphError: another operation uses one, or none does.
    """
    uses, reasons = _examined(weights, outputs)
    for reason in reasons.values():
        raise GraphError(f"add_lora: {reason}")
    return uses


def unfit(weights: Sequence[Output], outputs: Sequence[Output]) -> dict[Output, str]:
    """Those of some matrices beside which no adapter can stand, each with the reason."""
    return _examined(weights, outputs)[1]


def _examined(
    weights: Sequence[Output], outputs: Sequence[Output]
) -> tuple[dict[Output, dict[Operation, _Use]], dict[Output, str]]:
    """For each weight its uses; and for some a reason why they can have no adapter."""
    turned = {w: (w, False) for w in weights}
    uses: dict[Output, dict[Operation, _Use]] = {w: {} for w in weights}
    reasons: dict[Output, str] = {}
    for op in needed(outputs, {}):
        operands = [(i, *turned[x]) for i, x in enumerate(op.inputs) if x in turned]
        if len(operands) > 1 and op.definition is MatMul:
            one, other = (w for _, w, _ in operands)
            reasons.setdefault(
                other,
                f"both operands of {describe(op)} are weights that were chosen, {one.op.name!r} and "
                f"{other.op.name!r}; leave one out",
            )
            del operands[1:]
        for i, w, is_turned in operands:
            turns = _turns(op, i)
            if op.definition is MatMul:
                uses[w][op] = _Use(i, is_turned != bool(op.values[i]))
            elif _looks_up(op, i):
                uses[w][op] = _Use(1, is_turned)
            elif turns is not None:
                turned[op.outputs[0]] = w, is_turned != turns
            else:
                reasons.setdefault(
                    w,
                    f"{describe(op)} uses the weight {describe(w)}, and an adapter is for matrix products "
                    "and lookups of rows alone; leave this weight out",
                )
    for y in outputs:
        if y in turned:
            w = turned[y][0]
            reasons.setdefault(w, f"the weight {describe(w)} is itself an output, {y.name}")
    for w, products in uses.items():
        if not products:
            reasons.setdefault(w, f"the outputs do not need the weight {describe(w)}; leave it out")
    return uses, reasons


def _looks_up(op: Operation, i: int) -> bool:
    """Whether an operation looks up rows of its operand, a matrix."""
    if op.definition is not GatherV2 or i != 0:
        return False
    table, places = op.inputs
    return not op.axis and not op.batch_dims and table.type.ndim == 2 and places.type.ndim > 0


# ------------------------------------------------------------------------------------------------ writing


@dataclass(frozen=True, eq=False)
class _Adapter:
    """A weight in the new graph, with the parameters of its adapter.

    Attributes:
        reads: the axis of the weight on the side of the inputs: A has its size.
        scale: the factor of ``a @ b``.
    """

    weight: Output
    a: Output
    b: Output
    reads: int
    scale: float

    def factors(self, turned: bool) -> tuple[tuple[Output, bool], tuple[Output, bool]]:
        """The two factors of the product added to the weight or its transpose; whether each is transposed."""
        if turned == bool(self.reads):
            return (self.a, False), (self.b, False)
        return (self.b, True), (self.a, True)

    def merged(self) -> Output:
        """The weight plus its adapter's product."""
        product = self.scale * matmul(self.a, self.b)
        delta = matrix_transpose(product) if self.reads else product
        merged_weight: Output = self.weight + cast(delta, self.weight.dtype)
        return merged_weight


class _Writing:
    """The rule that writes adapters into a copy of a graph."""

    def __init__(
        self,
        uses: Mapping[Output, Mapping[Operation, _Use]],
        rank: int,
        scale: float,
        dtype: DType | None,
        key: NumpyArray,
    ) -> None:
        self.adapters: dict[Output, _Adapter] = {}
        self._uses, self._rank, self._scale, self._dtype, self._key = uses, rank, scale, dtype, key
        self._places = {op: w for w, products in uses.items() for op in products}

    def rule(
        self, copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        if len(op.outputs) == 1 and op.outputs[0] in self._uses:
            adapter = self._adapter(copying, op, inputs, values)
            return copying.add(StopGradient, (adapter.weight,), (), op, _below(op))
        if op in self._places:
            write = self._product if op.definition is MatMul else self._rows
            return write(copying, op, inputs, values)
        return None

    def _adapter(
        self, copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> _Adapter:
        old = op.outputs[0]
        (weight,) = copying.add(op.definition, inputs, values, op)
        products = {op: use for op, use in self._uses[old].items() if op.definition is MatMul}
        reads = next(iter((products or self._uses[old]).values())).reads
        dtype = self._dtype or weight.dtype
        shape = [int(size) for size in old.shape]
        columns = np.zeros((self._rank, shape[1 - reads]), dtype.numpy)
        a = _parameter(copying, op, "lora_a", self._initial_a(shape[reads], dtype))
        b = _parameter(copying, op, "lora_b", columns)
        self.adapters[old] = _Adapter(weight, a, b, reads, self._scale)
        return self.adapters[old]

    def _initial_a(self, inputs: int, dtype: DType) -> NumpyArray:
        """A random initial value of A."""
        bound = 1.0 / math.sqrt(max(inputs, 1))
        with Graph().as_default():
            key = random_fold_in(self._key, len(self.adapters))
            drawn = random_uniform((inputs, self._rank), key, -bound, bound, dtype)
            value = constant_value(drawn)
        assert value is not None
        return value

    def _product(
        self, copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output]:
        old = self._places[op]
        adapter, use = self.adapters[old], self._uses[old][op]
        first, second = adapter.factors(use.turned)
        other = inputs[1 - use.operand]
        add, of = _adding(copying, op, other.dtype)
        scale = add(Const, (), (Literal(np.asarray(self._scale, other.dtype.numpy)),))
        whole = add(MatMul, inputs, values)
        if use.operand:
            inner = add(MatMul, (other, of(first[0])), (values[0], first[1]))
            low = add(MatMul, (add(Mul, (inner, scale)), of(second[0])), (False, second[1]))
        else:
            inner = add(MatMul, (of(second[0]), other), (second[1], values[1]))
            low = add(MatMul, (of(first[0]), add(Mul, (inner, scale))), (first[1], False))
        return copying.add(AddV2, (whole, low), (), op)

    def _rows(
        self, copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output]:
        """Rows of a weight, plus the same rows of its adapter's product."""
        old = self._places[op]
        (first, turns), second = self.adapters[old].factors(self._uses[old][op].turned)
        table, places = inputs
        add, of = _adding(copying, op, table.dtype)
        scale = add(Const, (), (Literal(np.asarray(self._scale, table.dtype.numpy)),))
        rows = add(
            GatherV2, (add(Transpose, (of(first),), ((1, 0),)) if turns else of(first), places), values
        )
        low = add(MatMul, (add(Mul, (rows, scale)), of(second[0])), (False, second[1]))
        return copying.add(AddV2, (add(GatherV2, inputs, values), low), (), op)


def _adding(
    copying: Copying, op: Operation, dtype: DType
) -> tuple[Callable[..., Output], Callable[[Output], Output]]:
    """What adds operations below one, and what casts a factor to a dtype there."""

    def add(definition: type[Op], operands: tuple[Output, ...], attributes: tuple[Any, ...] = ()) -> Output:
        return copying.add(definition, operands, attributes, op, _below(op))[0]

    def of(factor: Output) -> Output:
        return factor if factor.dtype is dtype else add(Cast, (factor,), (dtype,))

    return add, of


def _parameter(copying: Copying, weight: Operation, name: str, value: NumpyArray) -> Output:
    """A parameter named below a weight, with the weight's line."""
    label, graph = f"{weight.name}/{name}", weight.graph
    while graph.operation(label) is not None:
        label += "_"
    place, values = (weight._place, weight._instruction), (Literal(value), ())
    types = infer_types(Parameter, (), values)
    return Operation(copying.graph, Parameter, (), values, types, label, place).outputs[0]


def _below(op: Operation) -> str:
    """The prefix of names of operations that are added for *op*."""
    label = op._label
    return f"{label}/lora/" if label and label[-1] != "/" else f"{label}lora/"
