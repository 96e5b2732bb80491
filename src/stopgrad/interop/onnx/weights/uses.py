"""Where tensors of a model are used: the places of weights, and those of constants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import NamedTuple

import onnx

from stopgrad.interop.onnx.nodes import domain_of, graphs_in, text

LONGEST = 400
"""The most nodes that are followed from one tensor."""

_PLACES: dict[str, dict[int, str]] = {
    "MatMul": dict.fromkeys((0, 1), "matrix"),
    "Gemm": {0: "matrix", 1: "matrix", 2: "bias"},
    "Einsum": dict.fromkeys(range(8), "matrix"),
    "Conv": {1: "kernel", 2: "bias"},
    "ConvTranspose": {1: "kernel", 2: "bias"},
    "LSTM": {1: "matrix", 2: "matrix", 3: "bias", 5: "first state", 6: "first state", 7: "matrix"},
    "GRU": {1: "matrix", 2: "matrix", 3: "bias", 5: "first state"},
    "RNN": {1: "matrix", 2: "matrix", 3: "bias", 5: "first state"},
    "BatchNormalization": {1: "scale", 2: "bias", 3: "statistic", 4: "statistic"},
    "InstanceNormalization": {1: "scale", 2: "bias"},
    "LayerNormalization": {1: "scale", 2: "bias"},
    "GroupNormalization": {1: "scale", 2: "bias"},
    "RMSNormalization": {1: "scale"},
    "PRelu": {1: "slope"},
    "Gather": {0: "table"},
    "RotaryEmbedding": {1: "rotation", 2: "rotation"},
    "SimplifiedLayerNormalization": {1: "scale"},  # ONNX Runtime has it in this domain, too.
}
"""The place of an operand, by operator and position."""

_FUSED: dict[str, dict[int, str]] = {
    "FusedConv": _PLACES["Conv"],
    "FusedGemm": _PLACES["Gemm"],
    "FusedMatMul": _PLACES["MatMul"],
    "TransposeMatMul": _PLACES["MatMul"],
    "Attention": {1: "matrix", 2: "bias"},
    "MultiHeadAttention": {3: "bias"},
    "RotaryEmbedding": {2: "rotation", 3: "rotation"},
    "GroupQueryAttention": {7: "rotation", 8: "rotation"},
    "BiasGelu": {1: "bias"},
    "FastGelu": {1: "bias"},
    "BiasSplitGelu": {1: "bias"},
    "SkipLayerNormalization": {2: "scale", 3: "bias", 4: "bias"},
    "SkipSimplifiedLayerNormalization": {2: "scale", 3: "bias"},
    "LayerNormalization": {1: "scale", 2: "bias"},
    "SimplifiedLayerNormalization": {1: "scale"},
    "GroupNorm": {1: "scale", 2: "bias"},
    "SkipGroupNorm": {1: "scale", 2: "bias", 4: "bias"},
    "BiasAdd": {1: "bias"},
    "GemmFastGelu": {1: "matrix", 2: "bias"},
    "FusedMatMulActivation": _PLACES["MatMul"],
    "NhwcConv": _PLACES["Conv"],
    "QAttention": {2: "bias"},
    "EmbedLayerNormalization": {2: "table", 3: "table", 4: "table", 5: "scale", 6: "bias"},
    "MatMulNBits": {5: "bias"},
    "MatMulIntegerToFloat": {6: "bias"},
    "DynamicQuantizeMatMul": {4: "bias"},
}
"""The same for operators of ``com.microsoft``, which optimisers write."""

_TABLES = {"": _PLACES, "com.microsoft": _FUSED, "com.microsoft.nchwc": {"Conv": _PLACES["Conv"]}}

_BINARY = dict.fromkeys((1, 2, 4, 5, 6, 7), "quantisation")
_UNARY = dict.fromkeys((1, 2, 3, 4), "quantisation")
_QUANTISES: dict[str, dict[int, str]] = {
    "QuantizeLinear": dict.fromkeys((1, 2), "quantisation"),
    "DequantizeLinear": dict.fromkeys((1, 2), "quantisation"),
    **dict.fromkeys(("QLinearMatMul", "QLinearConv", "QLinearAdd", "QLinearMul"), _BINARY),
    **dict.fromkeys(
        ("QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearSigmoid", "QLinearLeakyRelu"), _UNARY
    ),
    "QLinearSoftmax": _UNARY,
    "QLinearWhere": dict.fromkeys((2, 3, 5, 6, 7, 8), "quantisation"),
    "QAttention": dict.fromkeys((3, 4, 6, 7), "quantisation"),
    "QEmbedLayerNormalization": dict.fromkeys(range(8, 18), "quantisation"),
    "GatherBlockQuantized": dict.fromkeys((2, 3), "quantisation"),
    "MatMulBnb4": {2: "quantisation"},
    "QLinearConcat": {i: "quantisation" for i in range(512) if i < 2 or i % 3 != 2},
    "QGemm": dict.fromkeys((1, 2, 4, 5, 7, 8), "quantisation"),
    "MatMulNBits": dict.fromkeys((2, 3), "quantisation"),
    "MatMulIntegerToFloat": dict.fromkeys((2, 3, 4, 5), "quantisation"),
    "DynamicQuantizeMatMul": dict.fromkeys((2, 3), "quantisation"),
}
"""The scales and zero points of operators of ``ai.onnx`` and ``com.microsoft`` on quantised numbers."""

_MOVES = dict.fromkeys(
    (
        "Identity",
        "Cast",
        "Reshape",
        "Transpose",
        "Unsqueeze",
        "Squeeze",
        "Expand",
        "Slice",
        "Flatten",
        "Tile",
        "Trilu",
    ),
    0,
)
"""Operators that only move the elements of the operand at a position, or leave some out."""

_COMPARES = {
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "ArgMax",
    "ArgMin",
    "Not",
    "Sign",
    "IsNaN",
    "IsInf",
    "Shape",
    "Size",
    "ConstantOfShape",
}
_COUNTS: dict[str, tuple[int, ...]] = {
    "Where": (0,),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"), (1,)),
    **dict.fromkeys(("Reshape", "Expand", "Tile", "TopK", "Squeeze", "Unsqueeze", "Split"), (1,)),
    "Slice": (1, 2, 3, 4),
    "OneHot": (0, 1),
}
"""Conditions, indices and shapes among the operands of operators, by their positions."""
_LINEAR = {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "FusedMatMul", "FusedConv", "FusedGemm"}
_LINEAR |= {"NhwcConv", "GemmFastGelu", "FusedMatMulActivation"}
NORMS = {"InstanceNormalization", "LayerNormalization", "GroupNormalization", "BatchNormalization"}
_WHOLE = {"ConvInteger", "MatMulInteger"}
_CHOOSES = {"Add", "Sub", "Where", "Max", "Min"}
_SOFTMAX = {"Softmax", "LogSoftmax"}

WEIGHTS = frozenset({"matrix", "kernel", "bias", "scale", "slope", "table"})
"""Places in which weights stand."""


class Use(NamedTuple):
    """A node that reads a tensor, and the position of the operand."""

    node: onnx.NodeProto
    position: int

    @property
    def operator(self) -> str:
        return text(self.node.op_type)

    def place(self) -> str:
        """The operand's place; "" if it is none in particular."""
        domain = domain_of(self.node)
        table = _TABLES.get(domain, {})
        place = table.get(self.operator, {}).get(self.position, "")
        if not place and domain in ("", "com.microsoft"):
            place = _QUANTISES.get(self.operator, {}).get(self.position, "")
        return place


class Uses:
    """Who reads the tensors of a model, and who makes them.

    Attributes:
        readers: by the name of a tensor.
        makers: nodes by the names of their results.
    """

    stored: set[str]

    def __init__(self, model: onnx.ModelProto) -> None:
        self.readers: dict[str, list[Use]] = defaultdict(list)
        self.makers: dict[str, onnx.NodeProto] = {}
        self.stored = {text(t.name) for t in model.graph.initializer}
        inner = [node for outer in model.graph.node for graph in graphs_in(outer) for node in graph.node]
        for node in [*model.graph.node, *inner]:
            for i, x in enumerate(node.input):
                self.readers[text(x)].append(Use(node, i))
            self.makers.update((text(y), node) for y in node.output if y)

    def of(self, name: str) -> list[Use]:
        """The nodes that use the numbers of a tensor, past those that only move them."""
        uses: list[Use] = []
        waiting, seen = [name], {name}
        while waiting and len(seen) < LONGEST:
            for use in self.readers.get(waiting.pop(), ()):
                if _MOVES.get(use.operator) == use.position:
                    new = [text(y) for y in use.node.output if text(y) not in seen]
                    seen.update(new)
                    waiting += new
                else:
                    uses.append(use)
        return uses

    def places(self, name: str) -> set[str]:
        """The places in which a tensor stands."""
        return {use.place() or self.beside(use) for use in self.of(name)} - {""}

    def beside(self, use: Use) -> str:
        """The place of an operand of a sum or product, by what the other operand is."""
        if use.operator not in ("Add", "Mul") or len(use.node.input) != 2:
            return ""
        maker = self._maker(text(use.node.input[1 - use.position]))
        if maker is None:
            return ""
        operator = text(maker.op_type)
        if use.operator == "Mul" and operator == "DynamicQuantizeLinear":
            return "quantisation"  # The product of two scales, by which a product of integers is multiplied.
        if use.operator == "Mul":
            return "scale" if operator in NORMS else ""
        scaled = operator == "Mul" and any(self._is_scaled(text(x)) for x in maker.input)
        linear = operator in _LINEAR and self._is_linear(maker)
        return "bias" if scaled or linear or operator in NORMS else ""

    def _is_scaled(self, name: str) -> bool:
        """Whether a norm makes a tensor, or a product of whole numbers, which a layer then scales."""
        maker = self._maker(name)
        if maker is None:
            return False
        operator = text(maker.op_type)
        return operator in NORMS or (operator in _WHOLE and self._is_linear(maker))

    def _maker(self, name: str) -> onnx.NodeProto | None:
        """The node that makes a tensor's numbers, before those that only move them."""
        for _ in range(LONGEST):
            node = self.makers.get(name)
            if node is None or text(node.op_type) not in _MOVES or not node.input:
                return node
            name = text(node.input[0])
        return None

    def _is_linear(self, node: onnx.NodeProto) -> bool:
        """Whether one of the operands of a product is stored: a layer, not a product of two activations."""
        return any(self._is_stored(text(x)) for x in node.input)

    def _is_stored(self, name: str) -> bool:
        for _ in range(LONGEST):
            if name in self.stored:
                return True
            node = self.makers.get(name)
            if node is None or text(node.op_type) not in _MOVES or not node.input:
                return False
            name = text(node.input[0])
        return False

    def quantises(self, name: str) -> bool:
        """Whether a tensor is only a scale or zero point of quantised numbers."""
        return self.places(name) == {"quantisation"} and all(
            use.place() or self.beside(use) for use in self.of(name)
        )

    def is_compared(self, name: str) -> bool:
        """Whether a tensor is only compared with others, or an index, a condition or a shape."""
        uses = self.of(name)
        return bool(uses) and all(
            use.operator in _COMPARES or use.position in _COUNTS.get(use.operator, ()) for use in uses
        )

    def is_masking(self, name: str) -> bool:
        """Whether a tensor is only added to, or chosen for, what goes into a softmax."""
        added, ends = False, 0
        waiting, seen = [name], {name}
        while waiting:
            for use in self.readers.get(waiting.pop(), ()):
                if use.operator in _SOFTMAX or (use.operator == "Attention" and use.position == 3):
                    ends += 1
                    added = added or use.operator == "Attention"
                    continue
                moved = _MOVES.get(use.operator) == use.position
                if not moved and use.operator not in _CHOOSES:
                    return False
                added = added or not moved
                new = [text(y) for y in use.node.output if text(y) not in seen]
                seen.update(new)
                waiting += new
                if len(seen) > LONGEST:
                    return False
        return added and ends > 0

    def normalises(self, name: str, inputs: Container[str]) -> bool:
        """Whether a tensor is only subtracted from the model's inputs, or divides them, before any weight."""
        uses = self.of(name)
        return bool(uses) and all(
            use.operator in ("Sub", "Div")
            and use.position == 1
            and self._is_raw(text(use.node.input[0]), inputs)
            for use in uses
        )

    def _is_raw(self, name: str, inputs: Container[str]) -> bool:
        for _ in range(LONGEST):
            if name in inputs:
                return True
            node = self.makers.get(name)
            if node is None or text(node.op_type) not in {*_MOVES, "Sub", "Div", "Mul"} or not node.input:
                return False
            name = text(node.input[0])
        return False
