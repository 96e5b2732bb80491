"""Stacks many inputs, and cuts an array into many results, outside of the compiled program.

XLA needs 18 ms to compile a kernel for each part that is cut out, and seconds for a stack of a thousand
operands. Here a kernel of ours stacks or cuts all in one call. Without kernels, a small program, compiled
once and called many times, does so for a few at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.base.types import TensorType, tensor_type
from stopgrad.engines.protocol import Compiled
from stopgrad.graph.body import bodies_in
from stopgrad.graph.graph import Graph, Operation, Output, needed
from stopgrad.ops.indexing.slices import StridedSlice
from stopgrad.ops.shapes.join import ConcatV2, Pack
from stopgrad.ops.shapes.reshape import Reshape
from stopgrad.rewrite.engine import Copying

STACKED = 50
"""The number of arrays in a stack. Fewer than twice as many are stacked in the program itself."""
CUT = 4
"""The number of parts that one call cuts out, without kernels."""
MANY = 24
"""The least number of parts that are cut out outside of the program."""


class Helpers(Protocol):
    """The helper programs that an engine compiles."""

    def hold(self, array: npt.ArrayLike) -> Array: ...

    def stacker(self, kind: TensorType, count: int) -> Compiled:
        """A program that stacks *count* arrays; the stack is its only result."""
        ...

    def cutter(self, kind: TensorType, count: int) -> Compiled:
        """A program that takes an array and a position, and returns *count* parts from there on."""
        ...

    def regrouper(self, before: Sequence[TensorType], after: Sequence[TensorType]) -> Compiled | None:
        """A program whose results hold, one after the other, the bytes of what it takes.

        None where there are no kernels.
        """
        ...

    def traces(self, arrays: Sequence[Any]) -> bool:
        """Whether JAX traces what is done with these arrays, and would not see through a kernel."""
        ...


class Kept(NamedTuple):
    """Where an old output is: the new output, the part of it, and how many old ones before are that part."""

    new: int
    part: int | None = None
    again: int = 0


class Outside(NamedTuple):
    """What is done outside of the compiled program: stacks before it, cuts after it.

    Attributes:
        direct: positions of the old inputs that are its first inputs.
        groups: positions of the old inputs that are stacked, in order, with the type of each.
        kept: where each old output is.
        cut: the types of the new outputs that are cut, by their positions.
    """

    direct: Sequence[int]
    groups: Sequence[tuple[Sequence[int], TensorType]]
    kept: Sequence[Kept]
    cut: Mapping[int, TensorType]

    def around(self, inner: Compiled, helpers: Helpers) -> Compiled:
        """The whole computation, built around the compiled smaller graph."""
        direct, groups, results, cut = self.direct, self.groups, self.kept, self.cut
        stacks = {(kind, len(positions)) for positions, kind in groups}
        stackers = {key: _Stacker(*key, helpers) for key in stacks}
        cutters = {kind: _Cutter(kind, helpers) for kind in cut.values()}
        cuts = sorted({(new, again) for new, part, again in results if part is not None})

        def run(arrays: Sequence[Any]) -> Sequence[Any]:
            xs = [arrays[i] for i in direct]
            for positions, kind in groups:
                xs += stackers[kind, len(positions)]([arrays[i] for i in positions])
            ys = inner(xs)
            if {*map(type, arrays)} == {np.ndarray}:  # All are the caller's, who gets NumPy's back.
                rows = {new: np.asarray(ys[new]) for new in cut}
                return [ys[new] if part is None else np.array(rows[new][part]) for new, part, _ in results]
            parts = {(new, again): cutters[cut[new]](ys[new]) for new, again in cuts}
            return [ys[new] if part is None else parts[new, again][part] for new, part, again in results]

        # The main program; the helpers only stack its inputs and cut its outputs.
        run.executable = getattr(inner, "executable", None)  # type: ignore[attr-defined]
        return run


class Edges(NamedTuple):
    """A graph without the stacks and cuts that are made outside of it.

    Attributes:
        inputs: of the smaller graph.
        outputs: of the smaller graph.
        outside: the stacks and cuts.
    """

    inputs: Sequence[Output]
    outputs: Sequence[Output]
    outside: Outside

    def donated(self, donate: Sequence[int]) -> list[int]:
        """Which of the new inputs may be overwritten, and have the type of an output."""
        free = [y.type for y in self.outputs]
        positions = []
        for new, old in enumerate(self.outside.direct):
            if old in donate and self.inputs[new].type in free:
                free.remove(self.inputs[new].type)
                positions.append(new)
        return positions


def edges(inputs: Sequence[Output], outputs: Sequence[Output]) -> Edges | None:
    """The graph without stacks and cuts that should be made outside; None if there are none."""
    operations = needed(outputs, set(inputs))
    positions = {x: i for i, x in enumerate(inputs)}
    packs = [op for op in operations if _stacks_inputs(op, positions)]
    parts = [_source_and_index(y) for y in outputs]
    counts: dict[Output, int] = {}
    for part in parts:
        if part is not None:
            counts[part[0]] = counts.get(part[0], 0) + 1
    sources = [x for x, count in counts.items() if count >= MANY]
    many = {x: i for i, x in enumerate(sources)}
    if not packs and not many:
        return None
    new_outputs = sources
    results: list[Kept] = []
    repeats: dict[tuple[Output, int], int] = {}
    for y, part in zip(outputs, parts, strict=True):
        if part is not None and part[0] in many:
            # A part that is asked for twice is cut out twice: results share no memory.
            repeats[part] = repeats.get(part, -1) + 1
            results.append(Kept(many[part[0]], part[1], repeats[part]))
        else:
            results.append(Kept(len(new_outputs)))
            new_outputs.append(y)
    return _without(inputs, positions, packs, new_outputs, results)


def _without(
    inputs: Sequence[Output],
    positions: dict[Output, int],
    packs: Sequence[Operation],
    new_outputs: Sequence[Output],
    results: Sequence[Kept],
) -> Edges:
    """The graph of the wanted outputs, with stacks among its inputs."""
    rest = needed(new_outputs, {*positions, *[pack.outputs[0] for pack in packs]})
    inside = {x for op in rest for x in op.inputs}.union(new_outputs)
    stacked = {x for pack in packs for x in pack.inputs}
    copying = Copying(Graph(), (), None)
    mapping: dict[Output, Output] = {}

    direct = [i for i, x in enumerate(inputs) if x in inside or x not in stacked]
    for i in direct:
        mapping[inputs[i]] = copying.input(inputs[i].type, inputs[i].op)
    new_inputs = [mapping[inputs[i]] for i in direct]
    groups = []
    for pack in packs:
        kind = pack.inputs[0].type
        whole = len(pack.inputs) // STACKED
        stacks = [copying.input(_stack_type(kind, STACKED), pack) for _ in range(whole)]
        alone = [copying.input(kind, pack) for _ in pack.inputs[whole * STACKED :]]
        groups.append(([positions[x] for x in pack.inputs], kind))
        new_inputs += [*stacks, *alone]
        if alone:
            stacks.append(copying.add(Pack, tuple(alone), (0,), pack)[0])
        mapping[pack.outputs[0]] = copying.add(ConcatV2, tuple(stacks), (0,), pack)[0]
    copying.bodies = {body: body for op in rest for body in bodies_in(op.values)}  # They are not copied.
    copying.copy(rest, mapping)
    cut = {new: new_outputs[new].type for new, part, _ in results if part is not None}
    return Edges(new_inputs, [mapping[y] for y in new_outputs], Outside(direct, groups, results, cut))


def _stack_type(kind: TensorType, count: int) -> TensorType:
    return Pack.infer(*[kind] * count, axis=0)


def _stacks_inputs(op: Operation, positions: dict[Output, int]) -> bool:
    many = op.definition is Pack and op.axis == 0 and len(op.inputs) >= 2 * STACKED
    return many and all(x in positions for x in op.inputs)


def _source_and_index(y: Output) -> tuple[Output, int] | None:
    """The tensor that an output is a part of along the first axis, and its index; None if it is none."""
    if y.op.definition is not Reshape or y.op.inputs[0].op.definition is not StridedSlice:
        return None
    cut = y.op.inputs[0].op
    whole = cut.inputs[0]
    (i, size, _), *others = cut.spans
    if (
        size != 1
        or whole.shape[1:] != y.shape
        or any(s != (0, n, 1) for s, n in zip(others, y.shape, strict=True))
    ):
        return None
    return whole, i


class _Kernel:
    """Stacks or cuts in one call. Compiled at the first."""

    def __init__(self, before: Sequence[TensorType], after: Sequence[TensorType], helpers: Helpers) -> None:
        self._before, self._after, self._helpers = before, after, helpers

    @cached_property
    def _program(self) -> Compiled | None:
        return self._helpers.regrouper(self._before, self._after)

    def __call__(self, arrays: Sequence[Any]) -> Sequence[Any] | None:
        """The results; None if it has to be done without a kernel."""
        if self._helpers.traces(arrays) or self._program is None:
            return None
        return self._program(arrays)


class _Stacker:
    """Stacks *count* arrays of a type, in stacks of a few. Compiled when it first gets arrays of JAX's."""

    def __init__(self, kind: TensorType, count: int, helpers: Helpers) -> None:
        self._kind, self._helpers, self._whole = kind, helpers, count // STACKED * STACKED
        stacks = [_stack_type(kind, STACKED)] * (count // STACKED)
        self._kernel = _Kernel([kind] * self._whole, stacks, helpers)

    @cached_property
    def _program(self) -> Compiled:
        return self._helpers.stacker(self._kind, STACKED)

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """The stacks, then the arrays that are left over."""
        stacked, alone = values[: self._whole], values[self._whole :]
        dtype, shape = self._kind.dtype.numpy, self._kind.shape
        if all(type(x) is np.ndarray and x.dtype == dtype and x.shape == shape for x in values):
            return [*np.stack(stacked).reshape(-1, STACKED, *shape), *alone]
        stacks = self._kernel(stacked)
        if stacks is None:
            starts = range(0, self._whole, STACKED)
            stacks = [self._program(stacked[i : i + STACKED])[0] for i in starts]
        return [*stacks, *alone]


class _Cutter:
    """Cuts an array along its first axis. Compiled at the first call."""

    def __init__(self, kind: TensorType, helpers: Helpers) -> None:
        self._kind, self._helpers, self._count = kind, helpers, int(kind.shape[0])
        part = tensor_type(kind.dtype, kind.shape[1:])
        self._kernel = _Kernel([kind], [part] * self._count, helpers)

    @cached_property
    def _program(self) -> Compiled:
        return self._helpers.cutter(self._kind, CUT)

    @cached_property
    def _starts(self) -> Sequence[tuple[int, Any]]:
        # The last call begins earlier if the number of parts is no multiple of CUT.
        starts = [min(i, self._count - CUT) for i in range(0, self._count, CUT)]
        return [(start, self._helpers.hold(np.asarray(start, np.int32))) for start in starts]

    def __call__(self, whole: Array) -> Sequence[Any]:
        cut = self._kernel([whole])
        if cut is not None:
            return cut
        parts: list[Any] = []
        for start, first in self._starts:
            parts += self._program([whole, first])[len(parts) - start :]
        return parts
