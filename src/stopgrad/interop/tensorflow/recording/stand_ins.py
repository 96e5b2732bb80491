"""Makes operations of ours that stand for TensorFlow's."""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.base.dtypes import dtype_of
from stopgrad.base.source import RawLocation
from stopgrad.base.types import TensorType, tensor_type
from stopgrad.graph.build import named
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.op import REGISTRY
from stopgrad.interop.tensorflow.recording import passing
from stopgrad.interop.tensorflow.recording.operation_names import spelled
from stopgrad.interop.tensorflow.recording.record import Shape
from stopgrad.ops.structural.foreign import Foreign, ForeignStop


class Maker:
    """Makes operations in a graph.

    Attributes:
        graph: the graph.
        unknown: what is not known of operations, in sentences.
    """

    graph: Graph

    def __init__(self) -> None:
        self.graph = Graph()
        self._taken: set[str] = set()
        self.unknown: dict[str, None] = {}

    def leaf(self, sizes: Shape, name: str | None = None, place: RawLocation | None = None) -> Output:
        """A tensor without inputs."""
        kind = type_of(sizes)
        values = (kind.dtype, kind.shape, ())
        definition = REGISTRY["Placeholder"]
        if name is not None and name not in self._taken:
            self._taken.add(name)
            return named(self.graph, "", name, None, definition, (), values, (kind,), place, None).outputs[0]
        return Operation(self.graph, definition, (), values, (kind,), "", place).outputs[0]

    def operation(
        self,
        kind: str,
        inputs: Sequence[Output],
        results: Sequence[Shape],
        answer: passing.Answer,
        place: RawLocation | None,
        scope: str = "",
    ) -> list[Output]:
        """An operation, and what is behind those of its results whose gradients reach nothing.

        Args:
            kind: TensorFlow's name for it.
            inputs: what it takes.
            results: dtype and sizes of what it makes.
            answer: what it does with gradients.
            place: the line.
            scope: the layers of Keras' in which it ran.
        """
        if not results:
            return []
        if kind in passing.OF_SIZES:
            return [self.leaf(sizes, None, place) for sizes in results]
        whole = tuple([known(sizes) for sizes in results])
        types = tuple([type_of(sizes) for sizes in whole])
        within = f", in {scope}" if scope else ""
        call = kind if kind.startswith("tf.") else spelled(kind)
        if len(inputs) == 1 and [status for _, status, _ in answer.walls] == [passing.STOPPED]:
            return [self.stop(inputs[0], call, f"{answer.walls[0][2]}{within}", place)]
        walls = tuple([(i, status, f"{reason}{within}") for i, status, reason in answer.walls])
        values = (call, whole, walls, (), "")
        op = Operation(self.graph, Foreign, tuple(inputs), values, types, "", place)
        outputs = list(op.outputs)
        if answer.unknown:
            self.unknown[answer.unknown] = None
        for j, reason in answer.dead:
            wall = ((0, passing.NOT_DIFFERENTIABLE, reason),)
            dead = (call, (whole[j],), wall, (), "")
            dead_end = Operation(self.graph, Foreign, (outputs[j],), dead, (types[j],), "", place)
            outputs[j] = dead_end.outputs[0]
        return outputs

    def stop(self, x: Output, call: str, why: str, place: RawLocation | None) -> Output:
        """A stop behind a tensor."""
        return Operation(self.graph, ForeignStop, (x,), (call, why), (x.type,), "", place).outputs[0]

    def again(self, stop: Output, x: Output) -> Output:
        """The same stop behind another tensor."""
        return Operation.like(stop.op, self.graph, (x,), (x.type,)).outputs[0]


def known(sizes: Shape) -> Shape:
    """A dtype of ours for one of TensorFlow's, and the sizes.

    Handles of variables, and lists of tensors, have gradients in TensorFlow, and so stand for numbers.
    """
    name = sizes[0]
    if name in ("variant", "resource") or name.startswith("float8"):
        return ("float32", *sizes[1:])
    return (name if name in _OURS else "int32", *sizes[1:])


_OURS = frozenset(
    ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)


def type_of(sizes: Shape) -> TensorType:
    """The type of a tensor."""
    name, *rest = known(sizes)
    return tensor_type(dtype_of(name), tuple(rest))
