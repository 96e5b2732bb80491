"""The nodes of a training graph in the order in which they run, with the bytes of what they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from onnx import TensorProto

from stopgrad.interop.onnx.nodes import graphs_in, read_in, text
from stopgrad.interop.onnx.training.budget.computed_sizes import Tensor, tensors_of

_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten"})
"""Operators whose result is in the memory of their first input."""
_OVER = frozenset(
    {"Add", "Sub", "Mul", "Div", "Relu", "Tanh", "Sigmoid", "Exp", "Neg", "Sqrt", "Erf", "Clip", "Where"}
)
"""Operators that runtimes compute in the memory of an input which nothing else reads."""
_DRAWS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
) | {"Dropout"}
"""Operators that may draw other numbers when they are computed again."""
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})
_PRODUCTS_PER_SECOND, _BYTES_PER_SECOND = 2.5e10, 8e9
"""What a core does, roughly: products of two numbers, and the bytes that other operators read and write."""
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
"""The dtypes of floating-point numbers, as ``TensorProto.DataType`` numbers them."""


class Step(NamedTuple):
    """A node.

    Attributes:
        inputs: what it reads, with what graphs inside of it read.
        outputs: what it makes.
        seconds: roughly, on one core.
        view: whether its result is in the memory of its first input.
        over: whether its result may be in the memory of any input.
        again: whether it can be computed again, with the same result.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    seconds: float
    view: bool
    over: bool
    again: bool


class Stored(NamedTuple):
    """A tensor of the forward pass, as a step reads it.

    Attributes:
        maker: the number of the step that makes it.
        root: the tensor in whose memory it is.
        own: the number of this memory; -1 if that is a result, whose memory is the caller's.
        copy: the number of the memory of what is computed again.
    """

    maker: int
    root: str
    own: int
    copy: int


class Memory(NamedTuple):
    """The memory that a step reads and takes, by numbers.

    Attributes:
        reads: where nothing that it reads is computed again.
        others: what it reads besides tensors of the forward pass.
        stored: the tensors of the forward pass that it reads, as they were made.
        writes: what it takes, with the bytes.
        writes_again: what it takes where it is computed again.
    """

    reads: tuple[int, ...]
    others: tuple[int, ...]
    stored: tuple[Stored, ...]
    writes: dict[int, int]
    writes_again: dict[int, int]


@dataclass
class Tape:
    """The nodes of a graph that has the gradients of a loss.

    Attributes:
        steps: in order.
        tensors: by name.
        loss: the name of the loss.
        results: the outputs of the graph, whose memory is the caller's.
        unsized: tensors of which neither the graph nor the caller says the size. They count as nothing.
    """

    steps: list[Step]
    tensors: dict[str, Tensor]
    loss: str
    results: frozenset[str]
    unsized: tuple[str, ...] = ()

    @cached_property
    def makers(self) -> dict[str, int]:
        """The number of the step that makes a tensor, by the tensor's name."""
        return {y: i for i, step in enumerate(self.steps) for y in step.outputs}

    @cached_property
    def forward(self) -> frozenset[int]:
        """The numbers of the steps that the loss needs."""
        waiting = [self.makers[self.loss]]
        numbers: set[int] = set()
        while waiting:
            i = waiting.pop()
            if i not in numbers:
                numbers.add(i)
                waiting += [self.makers[x] for x in self.steps[i].inputs if x in self.makers]
        return frozenset(numbers)

    @cached_property
    def stored(self) -> dict[str, str]:
        """Of what the forward pass makes from its inputs: the tensor in whose memory it is, by name."""
        owners: dict[str, str] = {}
        for i in sorted(self.forward):
            step = self.steps[i]
            if step.view and step.inputs[0] not in owners:
                continue  # A view of a parameter takes no memory.
            if step.inputs:
                owners |= {y: owners[step.inputs[0]] if step.view else y for y in step.outputs}
        return owners

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The numbers of memory by the tensors that it is taken for; the next number is that of the copy."""
        names = dict.fromkeys(y for step in self.steps for y in step.outputs)
        return {y: 2 * i for i, y in enumerate(names)}

    @cached_property
    def memory(self) -> list[Memory]:
        """The memory that each step reads and takes."""
        owned: dict[str, int] = {}
        memory = []
        for step in self.steps:
            inputs, takes = dict.fromkeys(step.inputs), bool(step.inputs) and not step.view
            stored = [
                Stored(self.makers[x], root, owned.get(x, -1), self.numbers[root] + 1)
                for x in inputs
                for root in [self.stored.get(x)]
                if root is not None
            ]
            others = dict.fromkeys(owned[x] for x in inputs if x in owned and x not in self.stored)
            reads = dict.fromkeys(owned[x] for x in inputs if x in owned)
            sizes = {self.numbers[y]: self._bytes(y) for y in step.outputs} if takes else {}
            if step.view:
                owned |= {y: owned[step.inputs[0]] for y in step.outputs if step.inputs[0] in owned}
            elif takes:
                owned |= {y: self.numbers[y] for y in step.outputs if y not in self.results}
            writes = {owned[y]: sizes[owned[y]] for y in step.outputs if y in owned} if takes else {}
            again = {number + 1: size for number, size in sizes.items()}
            memory.append(Memory(tuple(reads), tuple(others), tuple(sorted(stored)), writes, again))
        return memory

    def _bytes(self, name: str) -> int:
        return self.tensors[name].bytes if name in self.tensors else 0

    @cached_property
    def fixed(self) -> frozenset[str]:
        """What the forward pass makes and cannot make again, or what graphs inside of nodes read."""
        inner = {x for step in self.steps if not step.again for x in step.inputs}
        return frozenset(
            root for y, root in self.stored.items() if not self.steps[self.makers[y]].again or y in inner
        )

    @cached_property
    def kept(self) -> frozenset[str]:
        """What the backward pass reads of the forward pass."""
        backward = (step for i, step in enumerate(self.steps) if i not in self.forward)
        return frozenset(self.stored[x] for step in backward for x in step.inputs if x in self.stored)


def tape_of(model: Any, sizes: Mapping[str, int], loss: str) -> Tape:
    """The nodes of a model.

    Args:
        model: an ``onnx.ModelProto``, whose nodes are in order.
        sizes: of the axes that the model leaves open, by name, and of tensors whose shape it does not say.
        loss: the name of the output that the forward pass ends with.
    """
    tensors = tensors_of(model, sizes)
    steps = [step_of(node, tensors) for node in model.graph.node]
    results = frozenset(text(y.name) for y in model.graph.output)
    named = [y for step in steps if step.inputs and not step.view for y in step.outputs if y not in results]
    unsized = [y for y in named if y not in tensors or tensors[y].shape is None]
    return Tape(steps, tensors, loss, results, tuple(unsized))


def step_of(node: Any, tensors: Mapping[str, Tensor]) -> Step:
    """A node as a step; without the sizes of tensors it is said to take no time."""
    kind = text(node.op_type)
    captured = {
        x for graph in graphs_in(node) for x in [*read_in(graph), *(text(y.name) for y in graph.output)]
    }
    inputs = tuple(filter(None, [*map(text, node.input), *sorted(captured)]))
    outputs = tuple(filter(None, map(text, node.output)))
    view = kind in _VIEWS and bool(inputs)
    again = not captured and kind not in _DRAWS
    return Step(
        inputs, outputs, 0.0 if view else _seconds(node, inputs, outputs, tensors), view, kind in _OVER, again
    )


def _seconds(
    node: Any, inputs: Sequence[str], outputs: Sequence[str], tensors: Mapping[str, Tensor]
) -> float:
    """What a node takes, roughly, on one core."""
    moved = sum(tensors[x].bytes for x in (*inputs, *outputs) if x in tensors) / _BYTES_PER_SECOND
    kind = text(node.op_type)
    if kind not in _PRODUCTS or len(inputs) < 2:
        return moved
    first, second = ((tensors[x].shape if x in tensors else None) or (1,) for x in inputs[:2])
    out = tensors[outputs[0]].size if outputs[0] in tensors else 0
    inner = first[-1]
    if kind in ("Conv", "ConvTranspose"):
        inner = math.prod(second[1:])
    elif kind == "Gemm" and any(text(a.name) == "transA" and a.i for a in node.attribute):
        inner = first[0]
    return moved + out * inner / _PRODUCTS_PER_SECOND
