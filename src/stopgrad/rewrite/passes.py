"""The rewrites between building a graph and compiling it. Each is a rule for :func:`rewrite`.

They run after the last differentiation. Only :func:`erase_gates` touches gates: it removes them, because the
forward value of a gate is its first operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from stopgrad.graph.build import emit
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.immediate import evaluate
from stopgrad.graph.operands import Literal
from stopgrad.ops.elementwise.arithmetic import AddN, Mul, Neg
from stopgrad.ops.elementwise.convert import Cast, Conj, SelectV2
from stopgrad.ops.shapes.reshape import BroadcastTo, Reshape, Transpose
from stopgrad.ops.structural.sharding import Shard, declared_sharding
from stopgrad.ops.structural.sources import Const, Fill, Placeholder
from stopgrad.rewrite.engine import Copying, Pass, Rewritten, Rule, only, rewrite, where
from stopgrad.rewrite.loop_fusion import unite_scans
from stopgrad.rewrite.written_out import written_out


def erase_gates(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Replaces gates and identities by their operands. Exact: forward they are equal, bit for bit."""
    handed_on = op.definition.handed_on(op)
    return [inputs[i] for i in handed_on] if handed_on else None


@only(Shard)
def erase_shardings(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Replaces shardings by their operands, if there is no mesh. Exact."""
    return inputs


# Without gates, what only their gradients need is dropped.
erase_gates.erases = True  # type: ignore[attr-defined]


@where(lambda definition: definition.merged)
def merge(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Merges operations that compute the same. Exact. Gates are never merged, nor what prints."""
    return None if op.acts else copying.once(op.definition, inputs, values, op)


def _const(x: Output) -> Any:
    """The array of a constant, or None."""
    return x.op.values[0].array if x.op.definition is Const else None


def is_all(x: Output, value: float) -> bool:
    """Whether a tensor is known to hold this value everywhere; 0 is not -0.0."""
    array = _const(x)
    if array is None and x.op.definition in (Fill, BroadcastTo):
        array = _const(x.op.inputs[0])
    return (
        array is not None
        and 0 < array.size <= _SMALL
        and bool((array == value).all())
        and not np.signbit(array.real).any()
    )


@only(AddN, BroadcastTo, Cast, Conj, Mul, Neg, Reshape, SelectV2, Transpose)
def simplify(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Removes operations that change nothing.

    Exact. x + 0 is left alone, because it may change the sign of a zero.
    """
    definition = op.definition
    if definition is Mul and not op.outputs[0].dtype.is_complex:  # 1 + 0i times an infinity has a NaN
        for one, other in (inputs, inputs[::-1]):
            if is_all(one, 1) and copying.concrete(op.outputs[0].type) is other.type:
                return (other,)
    if definition is AddN and len(inputs) == 1:
        return inputs
    if definition is Reshape and inputs[0].op.definition is Reshape:
        x = inputs[0].op.inputs[0]
        return (x,) if x.type.shape == values[0] else copying.once(Reshape, (x,), values, op)
    if definition in (Reshape, BroadcastTo) and inputs[0].type.shape == values[0]:
        return inputs
    if definition is Transpose and values[0] == tuple(range(len(values[0]))):
        return inputs
    if (
        definition is SelectV2
        and inputs[1] is inputs[2]
        and copying.concrete(op.outputs[0].type) is inputs[1].type
    ):
        return (inputs[1],)
    if definition is Cast and inputs[0].dtype is values[0]:
        return inputs
    inner = inputs[0].op if inputs else None
    if inner is not None and inner.definition is definition and definition in (Neg, Conj):
        return inner.inputs
    return None


_SMALL = 64


@where(lambda definition: definition.folded)
def fold(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Computes small constants once, with NumPy, which is the reference."""
    if op.outputs[0].type.symbolic:
        return None
    arrays: list[Any] = []
    for x in inputs:
        arrays.append(_const(x))
        if arrays[-1] is None or arrays[-1].size > _SMALL:
            return None
    size = copying.concrete(op.outputs[0].type).size
    if not isinstance(size, int) or size > _SMALL:
        return None
    return copying.add(Const, (), (Literal(evaluate(op.definition, arrays, values)),), op)


def prepare(
    outputs: Sequence[Output],
    inputs: Sequence[Output],
    binding: Mapping[str, int] | None = None,
    divided: bool = False,
) -> Rewritten:
    """The graph that engines get: without gates, with sizes bound, and without double or unused work.

    *divided* says whether it is for a mesh of devices, so that shardings are kept.
    """
    rules = (erase_gates, unite_scans, simplify, fold, merge)
    return rewrite(outputs, inputs, rules if divided else (erase_shardings, *rules), binding)


def formed(prepared: Rewritten, forms: Sequence[Rule], passes: Sequence[Pass] = ()) -> Rewritten:
    """A prepared graph, rewritten by an engine's forms and passes."""
    if forms:
        prepared = rewrite(prepared.outputs, prepared.inputs, (*forms, simplify, fold, merge))
    notes = [*prepared.notes]
    for step in passes:
        prepared = step(prepared)
        notes += prepared.notes
    return replace(prepared, notes=notes)


class Forming:
    """A prepared graph, and the form that it gets for an engine when somebody asks for it.

    Args:
        prepared: the graph.
        forms: the engine's rules.
        passes: its passes.
        spare: outputs for whose types and shardings there are further inputs that nothing reads.
        tell: is told when the form is made, which is before an engine compiles it, what loops of Python have
            written out in it; None for engines that take no longer for large graphs.
    """

    prepared: Rewritten
    forms: Sequence[Rule]
    passes: Sequence[Pass]
    spare: Sequence[Output]

    def __init__(
        self,
        prepared: Rewritten,
        forms: Sequence[Rule] = (),
        passes: Sequence[Pass] = (),
        spare: Sequence[Output] = (),
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.prepared, self.forms, self.passes, self.spare = prepared, forms, passes, spare
        self._tell = tell

    def hush(self) -> None:
        """Tell nothing any more: nothing is compiled when somebody reads the notes later."""
        if self._tell is not None:
            self._tell = lambda text: None

    @cached_property
    def _ends(self) -> tuple[list[Output], list[Output], Sequence[str]]:
        form = formed(self.prepared, self.forms, self.passes)
        further = [
            emit(Placeholder, (), (x.dtype, x.shape, declared_sharding(x)), "", form.graph).outputs[0]
            for x in self.spare
        ]
        warning = "" if self._tell is None else written_out(form.graph.operations)
        if warning and self._tell is not None:
            self._tell(warning)
        return [*form.inputs, *further], form.outputs, [*form.notes, warning] if warning else form.notes

    @property
    def inputs(self) -> list[Output]:
        return self._ends[0]

    @property
    def outputs(self) -> list[Output]:
        return self._ends[1]

    @property
    def notes(self) -> Sequence[str]:
        return self._ends[2]
