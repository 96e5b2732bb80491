"""Loops of a known number of steps: scan, and map_fn on top of it.

The gradient of a scan is another scan, which runs in the opposite direction. It takes the intermediate values
that it needs from a second scan over the same body; rewriting merges that one with the first before anything
runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Acting,
    ArgumentError,
    Array,
    ArrayLike,
    Body,
    Dim,
    DTypeError,
    Joint,
    Namespace,
    Op,
    Operation,
    Output,
    ShapeError,
    Size,
    TensorType,
    Wire,
)
from stopgrad.graph.interpreter import Types
from stopgrad.ops.elementwise.arithmetic import add, add_n
from stopgrad.ops.elementwise.convert import wide
from stopgrad.ops.structural.sources import zeros_like
from stopgrad.transforms.control.batch_rules import SCAN
from stopgrad.transforms.control.body_tracing import (
    NOT_PROPAGATED,
    NOT_SWAPPED,
    Run,
    Traced,
    apply_traced,
    check_carry,
    check_default,
    check_function,
    check_parallel,
    graph_of,
    operands,
    same_types,
    trace_function,
    weak,
)
from stopgrad.transforms.gradients.cotangents import NOWHERE, Key, Parts, by_operand
from stopgrad.transforms.gradients.reach import between, body_masks
from stopgrad.transforms.gradients.reverse import parts_in_body

FOLLOWED = 64
"""The most steps of which each is looked at by itself, to find what takes part in the gradient of a loop."""


def _pullback(
    gs: Sequence[Output | None], op: Operation, live: Sequence[int], acting: Acting
) -> Sequence[Output | Parts | None]:
    """The gradient: a scan in the opposite direction over the pullback of one step."""
    if op.length == 0:  # What is live is a carry, which stays as it is.
        return [gs[i] for i in live]
    body: Body = op.body
    wanted, seeded = _alive(op, body_masks(body, acting), gs, live)
    if not seeded:
        return [None] * len(live)
    origin = d.current().origin
    with d.tracing("the gradient of a loop", body.graph, remakes=True, origin=origin) as trace:
        seed = {(o, NOWHERE): d.parameter_of(trace.graph, body.results[o].type, op) for o in seeded}
        cotangents = _pulled(op, wanted, seed, acting)
        pull = _Pullback(op, gs, seed, cotangents)
        pull.arrange()
        results = [*pull.next_carries(), *pull.next_sums(), *pull.slices()]
        step = d.close(trace, pull.parameters, results)
        pull.keep(dict(trace.captures))
    return pull.emit(Body(step.graph, pull.all_parameters(), step.outputs), live)


def _pulled(
    op: Operation, wanted: Sequence[int], seed: dict[Key, Output], acting: Acting
) -> dict[Key, Output]:
    """The cotangents of the wanted parameters, pulled back through one step from the seeds.

    What is held for a carry's cotangent is held in the step before, too: it gets a seed of its own.
    """
    body: Body = op.body
    parameters = {x: i for i, x in enumerate(body.inputs)}
    xs = [body.inputs[i] for i in wanted]
    cotangents: dict[Key, list[Output]] = {}
    new = list(seed)
    while new:
        ys = [body.results[o] for o, _ in new]
        path = between(ys, set(xs), (), acting)
        seeds, holds = [seed[key] for key in new], [holds for _, holds in new]
        arrived = parts_in_body(parameters, ys, xs, seeds, path, acting, holds)
        new = []
        for i, parts in zip(wanted, arrived, strict=True):
            for held, dx in parts.items():
                cotangents.setdefault((i, held), []).append(dx)
                if i < op.carries and held and (i, held) not in seed:
                    seed[i, held] = d.parameter_of(dx.op.graph, body.results[i].type, op)
                    new.append((i, held))
    return {key: some[0] if len(some) == 1 else add_n(some) for key, some in cotangents.items()}


def _alive(
    op: Operation, masks: Sequence[int], gs: Sequence[Output | None], live: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The body's parameters to differentiate with respect to, and its results that cotangents come from.

    At each step, these are parameters that depend on a wanted operand, and results on which a cotangent does.
    """
    carried = range(op.carries)
    fixed = sum(1 << i for i in live if i not in carried)
    stacked = sum(1 << o for o, g in enumerate(gs) if g is not None and o not in carried)

    def led_to(wanted: int) -> int:
        return fixed | sum(1 << j for j in carried if masks[j] & wanted)

    def read_by(seeded: int) -> int:
        read = functools.reduce(int.__or__, [mask for o, mask in enumerate(masks) if seeded >> o & 1], 0)
        return stacked | sum(1 << j for j in carried if read >> j & 1)

    steps = None if _may_be_empty(op) or op.length > FOLLOWED else op.length
    wanted = _by_steps(sum(1 << i for i in live), led_to, steps)
    seeded = _by_steps(sum(1 << o for o, g in enumerate(gs) if g is not None), read_by, steps)
    # If there may be no step at all, the cotangent of a carry's last value reaches its first value.
    ways = [mask | (1 << o if _may_be_empty(op) and o in carried else 0) for o, mask in enumerate(masks)]
    leading, reached = set[int](), 0
    for some, others in zip(reversed(seeded), wanted, strict=True):
        for o, mask in enumerate(ways):
            if some >> o & 1 and mask & others:
                leading.add(o)
                reached |= mask & others
    return [i for i in range(len(op.inputs)) if reached >> i & 1], sorted(leading)


def _by_steps(first: int, after: Callable[[int], int], steps: int | None) -> list[int]:
    """A set at each of so many steps; where their number is not known, all that it is at any of them."""
    sets = [first]
    if steps is None:
        while (wider := first | after(first)) != first:
            first = wider
        return [first]
    while len(sets) < steps:
        sets.append(after(sets[-1]))
    return sets


def _may_be_empty(op: Operation) -> bool:
    return not isinstance(op.length, int)


def _sum_type(x: TensorType) -> TensorType:
    """The type in which the cotangents of a constant are added up: float32 for 16-bit dtypes."""
    narrow = x.dtype.is_floating and x.dtype.itemsize == 2
    return d.tensor_type(d.float32, x.shape) if narrow else x


class _Pullback:
    """The parts of a scan's pullback while it is built.

    Its carries are the cotangents of the carries, then the sums of those of the constants. Its sequences are
    the cotangents of the results, then the values kept from the forward steps. Its constants are the tensors
    that are the same for every step. What is held by selective gates counts apart: so cotangents have keys.
    """

    def __init__(
        self,
        op: Operation,
        gs: Sequence[Output | None],
        seed: dict[Key, Output],
        cotangents: dict[Key, Output],
    ) -> None:
        carries, first_constant = op.carries, op.carries + op.sequences
        self.op = op
        self.gs = gs
        self.cotangents = cotangents
        self.seed = seed
        # Carries take part even if their cotangents lead to no wanted operand.
        self.carries = sorted(
            dict.fromkeys(key for key in (*seed, *cotangents) if key[0] < carries), key=lambda key: key[0]
        )
        self.constants = [key for key in cotangents if key[0] >= first_constant]
        self.sequences = [key for key in cotangents if carries <= key[0] < first_constant]
        self.results = [key for key in seed if key[0] >= carries]
        self.sums: dict[Key, Output] = {}
        self.parameters: list[Output] = []
        # Operands with their parameters: those with a value for each step, and those that are constant.
        self.kept: list[tuple[Output, Output]] = []
        self.fixed: list[tuple[Output, Output]] = []

    def arrange(self) -> None:
        """Make the parameters that are not captures, in order."""
        graph = next(iter(self.seed.values())).op.graph
        for key in self.carries:
            if key not in self.seed:
                self.seed[key] = d.parameter_of(graph, self.op.outputs[key[0]].type, self.op)
        for key in self.constants:
            self.sums[key] = d.parameter_of(graph, _sum_type(self.op.inputs[key[0]].type), self.op)
        self.parameters = [
            *(self.seed[key] for key in self.carries),
            *self.sums.values(),
            *(self.seed[key] for key in self.results),
        ]

    def next_carries(self) -> list[Output]:
        """The cotangents of the carries before the step."""
        cotangents = []
        for key in self.carries:
            part = self.cotangents.get(key)
            cotangents.append(zeros_like(self.seed[key]) if part is None else part)
        return cotangents

    def next_sums(self) -> list[Output]:
        """The sums of the constants' cotangents, with those of this step added."""
        return [add(self.sums[key], wide(self.cotangents[key])) for key in self.constants]

    def slices(self) -> list[Output]:
        """The cotangents of the sequences' slices at this step."""
        return [self.cotangents[key] for key in self.sequences]

    def keep(self, captures: dict[Output, Output]) -> None:
        """Find a source for each value of the forward step that the step uses."""
        op, body = self.op, self.op.body
        carries, first_constant = op.carries, op.carries + op.sequences
        operand = dict(zip(body.inputs, op.inputs, strict=True))
        position = {x: i for i, x in enumerate(body.inputs)}
        handed_out = {y: o for o, y in enumerate(body.outputs) if o >= carries}
        changing = body.graph.subgraph_from(body.inputs[:first_constant]) if first_constant else []
        changes = {step.id for step in changing}
        extra: list[tuple[Output, Output]] = []
        unchanging: list[tuple[Output, Output]] = []
        for x, parameter in captures.items():
            if position.get(x, -1) >= first_constant:
                self.fixed.append((operand[x], parameter))
            elif carries <= position.get(x, -1):
                self.kept.append((operand[x], parameter))
            elif x.op.id not in changes:
                unchanging.append((x, parameter))
            elif x in handed_out:
                self.kept.append((op.outputs[handed_out[x]], parameter))
            else:
                extra.append((x, parameter))
        with d.building_in(op.graph):
            if unchanging:
                values = d.inline([x for x, _ in unchanging], operand)
                self.fixed += zip(values, [parameter for _, parameter in unchanging], strict=True)
            if extra:
                wider = Body(body.graph, body.inputs, [*body.outputs, *(x for x, _ in extra)])
                again = d.emit(Scan, op.inputs, (wider, *op.values[1:]), "")
                self.kept += zip(again.outputs[len(op.outputs) :], [p for _, p in extra], strict=True)

    def all_parameters(self) -> list[Output]:
        """The step's parameters, in the order in which a scan takes them."""
        return [*self.parameters, *(p for _, p in self.kept), *(p for _, p in self.fixed)]

    def emit(self, step: Body, live: Sequence[int]) -> list[Output | Parts | None]:
        """Build the scan in the opposite direction; return the cotangents of the live operands."""
        op, gs = self.op, self.gs
        first = [
            zeros_like(op.outputs[j]) if holds or (g := gs[j]) is None else g for j, holds in self.carries
        ]
        sums = [wide(zeros_like(op.inputs[i])) for i, _ in self.constants]
        results = [g for o, _ in self.results if (g := gs[o]) is not None]
        inputs = (*first, *sums, *results, *(x for x, _ in self.kept), *(x for x, _ in self.fixed))
        count = len(first) + len(sums)
        values = (step, count, len(results) + len(self.kept), op.length, not op.reverse, op.unroll)
        dxs = d.emit(Scan, inputs, values, "").outputs
        place = {i: k for k, i in enumerate(live)}
        arrived = {
            (place[i], holds): dx
            for (i, holds), dx in zip([*self.carries, *self.constants, *self.sequences], dxs, strict=False)
            if i in place and ((i, holds) in self.cotangents or (_may_be_empty(op) and i < op.carries))
        }
        return by_operand(arrived, arrived.values(), len(live))


class Scan(Op):
    """Runs a body once for each slice of its sequences, passing a carry from one step to the next.

    Made by :func:`scan`, :func:`map_fn` and :func:`fori_loop`.

    Args:
        operands: the carry's first values, then sequences, then constants, which are the same for every step.
        body: maps the carry, a slice of each sequence and the constants to the next carry and results.
        carries: the number of operands that are the carry.
        sequences: the number of operands that are sequences.
        length: the number of steps.
        reverse: whether the last slice comes first.
        unroll: how many steps an engine may unroll into one.

    Returns:
        The last carry, then the results of all steps along a new first axis.

    Constraints:
        (C1) The body takes the carry, the slices and the constants.
        (C2) It returns the carry's types first.
        (C3) The first axis of each sequence has the loop's length.

    References:
        ``jax.lax.scan``.

    Examples:
        >>> sg.scan(lambda total, x: (total + x, total), 0.0, np.array([1.0, 2.0, 4.0]))
        (array(7.), array([0., 1., 3.]))
    """

    @staticmethod
    def infer(
        *operands: TensorType,
        body: Body,
        carries: int,
        sequences: int,
        length: Size,
        reverse: bool,
        unroll: int,
    ) -> tuple[TensorType, ...]:
        parts = list(operands)
        for i in range(carries, carries + sequences):
            if not operands[i].ndim or not d.same_size(operands[i].shape[0], length):
                raise ShapeError(
                    f"(C3) the first axis of {operands[i]!r} must have the loop's length {length}"
                )
            parts[i] = d.tensor_type(operands[i].dtype, operands[i].shape[1:])
        takes, gives = body.input_types, body.output_types
        if not same_types(takes, parts):
            raise ShapeError(f"(C1) the body takes {takes}, not {tuple(parts)}")
        if not same_types(gives[:carries], takes[:carries]):
            raise ShapeError(f"(C2) the body must return the carry {takes[:carries]} first, not {gives}")
        return (*operands[:carries], *(d.tensor_type(t.dtype, (length, *t.shape)) for t in gives[carries:]))

    gradient: Joint = Joint(_pullback)
    samples: d.Samples = ()
    cached = False

    batch = SCAN

    @staticmethod
    def lower(
        xp: Namespace,
        *operands: Array,
        body: Body,
        carries: int,
        sequences: int,
        length: int,
        reverse: bool,
        unroll: int,
        run: Run,
        types: Types,
    ) -> Array | Sequence[Array]:
        carry, rest = list(operands[:carries]), operands[carries + sequences :]
        parts = operands[carries : carries + sequences]
        stacked = [xp.empty(t.shape, t.dtype.numpy) for t in types.outputs[carries:]]
        for i in reversed(range(length)) if reverse else range(length):
            outputs = run(body, [*carry, *(x[i] for x in parts), *rest])
            carry = outputs[:carries]
            for results, y in zip(stacked, outputs[carries:], strict=True):
                results[i] = y
        outputs = [*carry, *stacked]
        return outputs[0] if len(outputs) == 1 else outputs

    @staticmethod
    def xla(
        xp: Namespace,
        *operands: Array,
        body: Body,
        carries: int,
        sequences: int,
        length: int,
        reverse: bool,
        unroll: int,
        run: Run,
    ) -> Array | Sequence[Array]:
        rest = operands[carries + sequences :]

        def step(carry: Any, parts: tuple[Array, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
            outputs = run(body, [*carry, *parts, *rest])
            return tuple(outputs[:carries]), tuple(outputs[carries:])

        first, parts = tuple(operands[:carries]), tuple(operands[carries : carries + sequences])
        carry, results = xp.lax.scan(
            step, first, parts, length, reverse=reverse, unroll=max(min(unroll, length), 1)
        )
        outputs = (*carry, *results)
        return outputs[0] if len(outputs) == 1 else outputs

    @classmethod
    def runs(cls, op: Operation) -> Any:
        return op.length

    @classmethod
    def wires(cls, op: Operation) -> Iterable[Wire]:
        carried = {j: j for j in range(op.carries)}
        runs = op.length if isinstance(op.length, int) else None
        return [Wire(op.body, range(len(op.inputs)), range(len(op.outputs)), carried, runs, runs is None)]


@d.guarded("scan")
def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | Dim | None = None,
    reverse: bool = False,
    unroll: int = 1,
    name: str | None = None,
) -> tuple[Any, Any]:
    """A loop over the first axis of its sequences that passes a carry from step to step.

    The function is traced once; it may use tensors that it closes over. Its gradient is a loop in the
    opposite direction.

    Args:
        f: takes the carry and a slice of xs (None if xs is None); returns the next carry, with the same
            structure, dtypes and shapes, and a result (a nested structure of tensors, or None).
        init: the first carry, a nested structure of tensors. Python floats take the dtype of the first
            floating-point tensor among init and xs, or the dtype in which f returns them.
        xs: a nested structure of tensors whose first axes have one size, the number of steps; or None.
        length: the number of steps; needed if xs is None.
        reverse: whether to begin with the last slice. Results have the positions of their slices.
        unroll: how many steps an engine may unroll into one, which can be faster and takes longer to compile.
        name: of the operation.

    Returns:
        The last carry, and the results of all steps along a new first axis.

    Raises:
        ArgumentError, DTypeError, ShapeError: the carry changes, the first axes differ, there is no length.

    References:
        ``jax.lax.scan``.

    Examples:
        >>> sg.scan(lambda total, x: (total + x, total * 2.0), 0.0, np.array([1.0, 2.0, 4.0]))
        (array(7.), array([0., 2., 6.]))
    """
    check_function(f, "scan", "f")
    if not d.is_whole(unroll) or unroll < 1:
        raise ArgumentError(f"scan: unroll must be a positive number of steps, not {unroll!r}")
    return run_scan("scan", f, init, xs, length, d.flag(reverse), d.whole(unroll), name)


@d.guarded("map_fn")
def map_fn(
    fn: Callable[..., Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """Apply a function to each slice along the first axis, and stack the results along a new first axis.

    The slices are computed one after another; :func:`vmap` computes them together.

    Args:
        fn: takes a slice of elems, in its structure; returns a nested structure of tensors.
        elems: a nested structure of tensors whose first axes have one size.
        dtype: the older name of *fn_output_signature*.
        parallel_iterations: a hint of TensorFlow's, without effect.
        back_prop: True; a gradient is built only where it is asked for.
        swap_memory: False.
        infer_shape: True; shapes are always inferred.
        name: of the operation.
        fn_output_signature: the dtypes that fn returns, in the structure of its result, which are checked;
            they may be left out.

    Returns:
        The results.

    Raises:
        DTypeError: fn returns other dtypes than fn_output_signature says.

    References:
        ``tf.map_fn``, ``jax.lax.map``.

    Examples:
        >>> sg.map_fn(lambda x: x * x, np.array([1.0, 2.0, 3.0]))
        array([1., 4., 9.])
    """
    check_function(fn, "map_fn", "fn")
    check_default("map_fn", "back_prop", back_prop, True, NOT_PROPAGATED)
    check_default("map_fn", "swap_memory", swap_memory, False, NOT_SWAPPED)
    check_default("map_fn", "infer_shape", infer_shape, True, "shapes are always inferred")
    if parallel_iterations is not None:
        check_parallel("map_fn", parallel_iterations)

    def step(carry: None, x: ArrayLike) -> tuple[None, Any]:
        return carry, fn(x)

    results = run_scan("map_fn", step, None, elems, None, False, 1, name)[1]
    for signature in (dtype, fn_output_signature):
        if signature is not None:
            _check_signature(signature, results)
    return results


@d.reads_arguments
def _check_signature(signature: Any, tree: Any) -> None:
    """Raise if the results have other dtypes than the signature says."""
    dtypes, spec = d.flatten(signature)
    expected = [d.dtype_of(dtype) for dtype in dtypes]
    results, results_spec = d.flatten(tree)
    actual = [d.type_of(y).dtype for y in results]
    if expected != actual or (spec != results_spec and len(actual) > 1):
        raise DTypeError(
            f"map_fn: the function returns {', '.join(map(str, actual))}, not "
            f"{', '.join(map(str, expected))} as fn_output_signature says; convert with sg.cast"
        )


def _length(parts: Sequence[Any], length: int | Dim | None, what: str) -> int | Dim:
    """The number of steps, which all sequences and *length* must agree on."""
    agreed = length
    if length is not None and not isinstance(length, Dim):
        if not d.is_whole(length):
            raise ArgumentError(f"{what}: length must be a number of steps, not {length!r}")
        agreed = d.whole(length)
        if agreed < 0:
            raise ArgumentError(f"{what}: length must not be negative, not {agreed}")
    for x in parts:
        kind = d.type_of(x)
        if not kind.ndim:
            raise ShapeError(f"{what}: a sequence needs a first axis, and {kind!r} has none")
        if agreed is None or isinstance(agreed, Dim):
            agreed = kind.shape[0] if agreed is None or d.same_size(agreed, kind.shape[0]) else agreed
        if not d.same_size(agreed, kind.shape[0]):
            sizes = d.show_shape([d.type_of(y).shape[:1] for y in parts])
            of_length = "" if length is None else f", and length={length}"
            raise ShapeError(f"{what}: the sequences' first axes must have one size, not {sizes}{of_length}")
    if agreed is None:
        raise ArgumentError(f"{what}: needs xs, or a length")
    result: int | Dim = agreed
    return result


def run_scan(
    what: str,
    f: Callable[..., Any],
    init: Any,
    xs: Any,
    length: int | Dim | None,
    reverse: bool,
    unroll: int,
    name: str | None,
) -> tuple[Any, Any]:
    """:func:`scan` for the construct *what*, which errors name."""
    (first, carry_spec), (parts, part_spec) = operands(what, init, xs)
    length = _length(parts, length, what)
    graph = graph_of(first, parts)
    slices = [d.tensor_type(d.type_of(x).dtype, d.type_of(x).shape[1:]) for x in parts]

    def arguments(parameters: list[Any]) -> tuple[Any, Any]:
        return d.unflatten(carry_spec, parameters[: len(first)]), d.unflatten(
            part_spec, parameters[len(first) :]
        )

    def called(carry: Any, part: Any) -> tuple[Any, ...]:
        pair = f(carry, part)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(
                f"{what}: the function must return a pair (carry, result), not {type(pair).__name__}"
            )
        specs[:] = [d.flatten(part)[1] for part in pair]
        return pair

    specs: list[Any] = []

    def trace() -> Traced:
        types = [*(d.type_of(x) for x in first), *slices]
        return trace_function(called, types, arguments, f"the body of {what}", graph)

    traced = trace()
    if specs[0] == carry_spec and (again := weak(d.flatten(init)[0], first, traced.results)) is not None:
        first = again
        traced = trace()
    check_carry([d.type_of(x) for x in first], carry_spec, traced, specs[0], what)
    values = (traced.body(), len(first), len(parts), length, reverse, unroll)
    results = apply_traced(Scan, traced, (*first, *parts, *traced.trace.captures), values, name)
    return d.unflatten(carry_spec, results[: len(first)]), d.unflatten(specs[1], results[len(first) :])


d.publish(Scan, scan)
