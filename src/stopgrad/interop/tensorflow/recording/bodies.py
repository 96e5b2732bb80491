"""Reads the graphs of functions, branches and loops into a graph of ours, one inside the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stopgrad.graph.graph import Output
from stopgrad.interop.tensorflow.recording import internals, passing
from stopgrad.interop.tensorflow.recording.closures import CLOSED, closed_over
from stopgrad.interop.tensorflow.recording.places import in_layer, of_operation
from stopgrad.interop.tensorflow.recording.record import READS, Symbol, Tape, Value
from stopgrad.interop.tensorflow.recording.recorder import ASSIGNS, CALLS, Recorder, sizes_of
from stopgrad.interop.tensorflow.recording.stand_ins import Maker

BRANCHES = {"If": ("then_branch", "else_branch"), "StatelessIf": ("then_branch", "else_branch")}
CASES = frozenset({"Case", "StatelessCase"})
LOOPS = frozenset({"While", "StatelessWhile"})
UNTAPED = "computed while the tape did not record"
ROUNDS = 8
"""The most rounds of a loop that are written out."""


class Reading:
    """One graph of TensorFlow's while it is read.

    Attributes:
        graph: the graph.
        outputs: what stands for its tensors, by operation and position.
        is_inside: whether it is a function's, branch's or loop's that is called; then tapes do not count.
    """

    graph: Any
    is_inside: bool

    def __init__(self, graph: Any, is_inside: bool) -> None:
        self.graph, self.is_inside = graph, is_inside
        self.outputs: dict[tuple[str, int], Output] = {}
        self._outside = {inner.op.name: outer for outer, inner in getattr(graph, "captures", ())}

    def captured(self, op: Any) -> Any:
        """The tensor outside of the graph for which an operation stands; None if it stands for none."""
        return self._outside.get(op.name)

    def missing(self, tensors: Sequence[Any]) -> list[Any]:
        """The operations that led to tensors and are not read yet, each after those that it takes.

        The order in which they were added is another: to differentiate a loop gives it more inputs.
        """
        stack = [(tensor.op, False) for tensor in reversed(tensors)]
        ops: dict[str, Any] = {}
        seen: set[str] = set()
        while stack:
            op, are_read = stack.pop()
            if are_read:
                ops[op.name] = op
            if op.name in seen or (op.name, 0) in self.outputs:
                continue
            seen.add(op.name)
            before = [*op.inputs, *[x for write in _written_before(op) for x in write.inputs]]
            stack += [(op, True), *[(x.op, False) for x in reversed(before)]]
        return list(ops.values())


def _written_before(op: Any) -> Iterator[Any]:
    """The operations that wrote into a variable before one reads it."""
    if op.type == "ReadVariableOp":
        for write in op.control_inputs:
            if write.type in ASSIGNS and write.inputs[0] is op.inputs[0]:
                yield write


class Bodies:
    """Reads graphs of TensorFlow's.

    Args:
        make: makes the operations.
        recorder: what was recorded.
        tape: the tape that differentiates; None if every operation counts as recorded.
        outer: finds what stands for a tensor outside of a graph.

    Attributes:
        filled: what branches and loops took, and what functions returned: where TensorFlow has no gradient
            for one of these and has one for another, it goes on with zeros.
    """

    def __init__(
        self,
        make: Maker,
        recorder: Recorder,
        tape: Tape | None,
        outer: Callable[[Value | Symbol], Output],
    ) -> None:
        self._make, self._recorder, self._tape, self._outer = make, recorder, tape, outer
        self._readings: dict[int, Reading] = {}
        self._outside: dict[Output, Output] = {}
        self.filled: dict[Output, None] = {}

    def symbol(self, symbol: Symbol) -> Output:
        """What stands for a tensor of a graph that is not called, but traced."""
        reading = self._readings.get(id(symbol.graph))
        if reading is None:
            reading = self._readings[id(symbol.graph)] = Reading(symbol.graph, is_inside=False)
        self._read(reading, [symbol.tensor])
        return reading.outputs[symbol.name, symbol.index]

    def loss(self, symbol: Symbol) -> Output:
        """What stands for a loss in such a graph: behind a stop if the tape does not know it."""
        output = self.symbol(symbol)
        if self._tape is None:
            return output
        return self._recorded(self._readings[id(symbol.graph)], symbol.tensor)

    def inline(self, graph: Any, inputs: Sequence[Output]) -> list[Output]:
        """The results of a function of TensorFlow's for some arguments."""
        reading = Reading(graph, is_inside=True)
        for inner, x in zip(graph.inputs, inputs, strict=False):
            reading.outputs[inner.op.name, 0] = x
        self._read(reading, graph.outputs)
        results = [reading.outputs[y.op.name, y.value_index] for y in graph.outputs]
        self.filled.update(dict.fromkeys(results))
        return results

    def _read(self, reading: Reading, tensors: Sequence[Any]) -> None:
        for op in reading.missing(tensors):
            inputs = [self._operand(reading, op, x) for x in op.inputs]
            for i, output in enumerate(self._operation(reading, op, inputs)):
                reading.outputs[op.name, i] = output

    def _operand(self, reading: Reading, op: Any, x: Any) -> Output:
        """What stands for a tensor where an operation takes it."""
        tape = self._tape
        if reading.is_inside or tape is None or tape not in self._recorder.tapes_at(reading.graph, op.name):
            return reading.outputs[x.op.name, x.value_index]
        return self._recorded(reading, x)

    def _recorded(self, reading: Reading, x: Any) -> Output:
        """What stands for a tensor where the tape records: behind a stop if the tape does not know it.

        Tapes never record a stop: what it took is used in its place.
        """
        output = reading.outputs[x.op.name, x.value_index]
        if not x.op.inputs or self._tape in self._recorder.tapes_at(reading.graph, x.op.name):
            return output
        if output not in self._outside:
            if x.op.type == "StopGradient":
                inner = self._recorded(reading, x.op.inputs[0])
                self._outside[output] = (
                    output if inner is output.op.inputs[0] else self._make.again(output, inner)
                )
            else:
                self._outside[output] = self._make.stop(output, UNTAPED, UNTAPED, of_operation(x.op))
        return self._outside[output]

    def _operation(self, reading: Reading, op: Any, inputs: list[Output]) -> list[Output]:
        """What stands for the results of an operation."""
        kind = op.type
        if not op.inputs:
            return self._source(reading, op)
        if kind in CALLS:
            return self._called(reading, op, op.get_attr("f").name, inputs)
        if kind in BRANCHES or kind in CASES or kind in LOOPS:
            self.filled.update(dict.fromkeys(inputs))
        if kind in BRANCHES:
            names = [op.get_attr(name).name for name in BRANCHES[kind]]
            return self._branches(reading, op, names, inputs)
        if kind in CASES:
            names = [branch.name for branch in op.get_attr("branches")]
            return self._branches(reading, op, names, inputs)
        if kind in LOOPS:
            return self._loop(reading, op, inputs)
        if kind == "ReadVariableOp":
            return self._variable(reading, op, inputs)
        answer = passing.of_graph(op, [_sizes(x) for x in op.inputs], [_sizes(y) for y in op.outputs])
        if internals.custom_gradient_of(op):
            return self._custom(reading, op, inputs, answer)
        sizes = [_sizes(y) for y in op.outputs]
        return self._make.operation(kind, inputs, sizes, answer, of_operation(op), layer_of(op))

    def _source(self, reading: Reading, op: Any) -> list[Output]:
        """What stands for an operation without inputs: a constant, or what comes from outside."""
        outer = reading.captured(op)
        if outer is None or reading.is_inside:
            return [self._make.leaf(_sizes(y)) for y in op.outputs]
        return [self._outer(self._recorder.place_in_record(outer))]

    def _variable(self, reading: Reading, op: Any, inputs: list[Output]) -> list[Output]:
        """What stands for a variable that is read, perhaps after something was written into it."""
        written = list(_written_before(op))
        if not written:
            return inputs
        why = "a variable holds what is assigned to it, not what that was made of"
        assigned = [
            self._make.stop(
                self._operand(reading, op, write.inputs[1]),
                "tf.Variable.assign",
                why,
                of_operation(write),
            )
            for write in written
            if (write.inputs[1].op.name, write.inputs[1].value_index) in reading.outputs
        ]
        sizes = [_sizes(y) for y in op.outputs]
        return self._make.operation(
            op.type, [*inputs, *assigned], sizes, passing.Answer(()), of_operation(op)
        )

    def _called(self, reading: Reading, op: Any, name: str, inputs: list[Output]) -> list[Output]:
        graph = internals.function_named(reading.graph, name)
        if graph is None:
            sizes = [_sizes(y) for y in op.outputs]
            return self._make.operation(op.type, inputs, sizes, passing.Answer(()), of_operation(op))
        return self.inline(graph, inputs)

    def _branches(
        self, reading: Reading, op: Any, names: Sequence[str], inputs: list[Output]
    ) -> list[Output]:
        """What stands for the results of branches: each may be any branch's."""
        results = [self._called(reading, op, name, inputs[1:]) for name in names]
        outputs = []
        for i, y in enumerate(op.outputs):  # What chooses a branch is no part of the value.
            outputs += self._joined("tf.cond", op, y, [result[i] for result in results])
        return outputs

    def _loop(self, reading: Reading, op: Any, inputs: list[Output]) -> list[Output]:
        """What stands for the results of a loop: what came in, or what any round of it made."""
        body = internals.function_named(reading.graph, op.get_attr("body").name)
        if body is None:
            sizes = [_sizes(y) for y in op.outputs]
            return self._make.operation(op.type, inputs, sizes, passing.Answer(()), of_operation(op))
        rounds = [inputs]
        for _ in range(rounds_of(body)):
            rounds.append(self.inline(body, rounds[-1]))
        outputs = []
        for i, y in enumerate(op.outputs):
            candidates = list(dict.fromkeys(states[i] for states in rounds))
            if len(candidates) > 1:
                candidates = self._joined("tf.while_loop", op, y, candidates)
            outputs += candidates
        return outputs

    def _joined(self, call: str, op: Any, y: Any, candidates: list[Output]) -> list[Output]:
        """A result that is one of several."""
        walls: tuple[tuple[int, str, str], ...] = ()
        if not passing.has_gradients(_sizes(y)[0]):
            walls = tuple((i, passing.NOT_DIFFERENTIABLE, passing.NONE) for i in range(len(candidates)))
        return self._make.operation(call, candidates, [_sizes(y)], passing.Answer(walls), of_operation(op))

    def _closed_over(self, reading: Reading, op: Any, own: int) -> list[Output]:
        """What the results of a custom gradient were made of beside what it was given."""

        def takes(node: tuple[str, int]) -> list[tuple[str, int]]:
            maker = reading.graph.get_operation_by_name(node[0])
            return [] if maker.name in inside else [(x.op.name, x.value_index) for x in maker.inputs]

        inside = {x.op.name for x in op.inputs if not x.op.inputs}
        handles = [handle for x in op.inputs[own:] if x.op.type in READS for handle in x.op.inputs[:1]]
        arguments = {(x.op.name, x.value_index) for x in (*op.inputs[own:], *handles)}
        results = [(x.op.name, x.value_index) for x in op.inputs[:own]]
        closed = [node for node in closed_over(results, arguments, takes) if node in reading.outputs]
        return [reading.outputs[node] for node in closed if reading.outputs[node].type.differentiable]

    def _custom(
        self, reading: Reading, op: Any, inputs: list[Output], answer: passing.Answer
    ) -> list[Output]:
        """What stands for a custom gradient: its results depend on what it took in its own way alone.

        TensorFlow has the results among the inputs, in front of what it took, and hands both on.
        """
        try:
            own = internals.results_of_custom(op)
        except (AttributeError, KeyError, LookupError, TypeError, ValueError):
            refused = {i for i, _, _ in answer.walls}
            own = next((i for i in range(len(inputs)) if i not in refused), 1)
        why = "the custom gradient returns None for it"
        walls = tuple(
            (i - own, status, why if status == passing.NOT_DIFFERENTIABLE else reason)
            for i, status, reason in answer.walls
            if i >= own
        )
        sizes = [_sizes(y) for y in op.outputs[:own]]
        closed = self._closed_over(reading, op, own)
        walls += tuple((len(inputs) - own + i, passing.STOPPED, CLOSED) for i in range(len(closed)))
        results = self._make.operation(
            "tf.custom_gradient",
            [*inputs[own:], *closed],
            sizes,
            passing.Answer(walls, unknown=answer.unknown),
            of_operation(op),
        )
        return [*results, *inputs[own:]]


def layer_of(op: Any) -> str:
    """The names of Keras' layers in which an operation was made; empty if it was not in one."""
    return str(op.name).rpartition("/")[0] if in_layer(op) else ""


def _sizes(tensor: Any) -> tuple[Any, ...]:
    about = internals.attributes_of(tensor)
    return sizes_of(about["dtype"], about["shape"]) if about else sizes_of(tensor.dtype, tensor.shape)


def rounds_of(body: Any) -> int:
    """How many rounds of a loop show every step from what came into it to what comes out.

    A step is what one round makes of one thing that it took: from what it comes and into what it goes
    takes the rounds before and behind it.
    """
    inputs_of = _inputs_by_result(body)
    steps = [(i, o) for o, inputs in enumerate(inputs_of) for i in inputs]
    before = _farthest(len(inputs_of), steps)
    behind = _farthest(len(inputs_of), [(o, i) for i, o in steps])
    return min(ROUNDS, max([before[i] + 1 + behind[o] for i, o in steps], default=1))


def _inputs_by_result(body: Any) -> list[list[int]]:
    """By the results of a loop, of which inputs each is made; of none where one is only handed on."""
    places = {x.op.name: i for i, x in enumerate(body.inputs)}
    inputs_of: list[list[int]] = []
    for result in body.outputs:
        stack = [] if places.get(result.op.name) == len(inputs_of) else [result.op]
        seen = {op.name for op in stack}
        while stack:
            inputs = [x.op for x in stack.pop().inputs if x.op.name not in seen]
            stack += inputs
            seen.update([op.name for op in inputs])
        inputs_of.append([i for name, i in places.items() if name in seen])
    return inputs_of


def _farthest(count: int, steps: Sequence[tuple[int, int]]) -> list[int]:
    """How many steps the shortest way to each of some places takes from the farthest one that leads to it."""
    onward: list[list[int]] = [[] for _ in range(count)]
    for start, end in steps:
        onward[start].append(end)
    farthest = [0] * count
    for start in range(count):
        reached, ring, distance = {start}, [start], 0
        while ring:
            for place in ring:
                farthest[place] = max(farthest[place], distance)
            ring = list(dict.fromkeys([end for place in ring for end in onward[place] if end not in reached]))
            reached.update(ring)
            distance += 1
    return farthest
