"""Functions of a ``GraphDef``, whose nodes name results by the names that operations have for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from stopgrad.interop.tensorflow.messages import AttrValue

_RESULTS = """
y: Abs Acos Acosh Asin Asinh Atan Atanh BesselI0 BesselI0e BesselI1 BesselI1e Cast Ceil Cos Cosh Digamma Erf
    Erfc Erfinv Exp Expm1 Floor Invert IsFinite IsInf IsNan Lgamma Log Log1p LogicalNot Ndtri Neg Reciprocal
    Round Rsqrt Sigmoid Sign Sin Sinh Sqrt Square Tan Tanh Transpose
z: AddV2 Atan2 Betainc BitwiseAnd BitwiseOr BitwiseXor Equal FloorDiv FloorMod Greater GreaterEqual Igamma
    Igammac LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mul MulNoNan NotEqual Pow RealDiv
    ReciprocalGrad RightShift RsqrtGrad SigmoidGrad SqrtGrad SquaredDifference Sub TanhGrad TruncateMod Xdivy
    Xlogy
activations: Elu LeakyRelu Relu Relu6 Softplus Softsign
out: Complex Cumprod Cumsum
backprops: EluGrad Relu6Grad ReluGrad
sum: AddN
logsoftmax: LogSoftmax
product: MatMul
softmax: Softmax
handle: TensorListReserve
output_handle: TensorListSetItem
tensor: TensorListStack
values indices: TopKV2
"""
"""What operations call their results; those of others are called ``output``."""

_NAMES = {
    op: names.split()
    for names, ops in (line.split(": ") for line in _RESULTS.strip().replace("\n ", " ").splitlines())
    for op in ops.split()
}


def function_attribute(*names: str) -> Any:
    """An attribute that lists functions."""
    attribute = AttrValue()
    for name in names:
        attribute.list.func.add().name = name
    return attribute


def one_function(name: str) -> Any:
    """An attribute that is a function."""
    attribute = AttrValue()
    attribute.func.name = name
    return attribute


def types_attribute(numbers: Sequence[int]) -> Any:
    """An attribute that lists element types, by their numbers."""
    attribute = AttrValue()
    attribute.list.SetInParent()
    attribute.list.type.extend(numbers)
    return attribute


def rename_functions(graph: Any) -> None:
    """Add a digest of the graph to the names of its functions, which TensorFlow keeps for a whole process."""
    digest = hashlib.sha256(graph.SerializeToString(deterministic=True)).hexdigest()[:12]
    own = {function.signature.name for function in graph.library.function}
    for function in graph.library.function:
        function.signature.name += f"_{digest}"
    for node in [*graph.node, *[node for f in graph.library.function for node in f.node_def]]:
        for attribute in node.attr.values():
            calls = [attribute.func] if attribute.WhichOneof("value") == "func" else list(attribute.list.func)
            for called in calls:
                if called.name in own:
                    called.name += f"_{digest}"


def fill_function(
    function: Any,
    graph: Any,
    name: str,
    arguments: Sequence[str],
    results: Sequence[str],
    types: Sequence[int],
) -> None:
    """Make a ``FunctionDef`` of the nodes of a graph.

    Args:
        function: what is filled.
        graph: a ``GraphDef``, in which the arguments are placeholders.
        name: of the function.
        arguments: their names.
        results: as graphs name them.
        types: the element types of the results.
    """
    operations = {node.name: node.op for node in graph.node}
    numbers = {node.name: node.attr["dtype"].type for node in graph.node if node.op == "Placeholder"}

    def read(text: str) -> str:
        node, _, index = text.partition(":")
        if node in arguments:
            return node
        names = _NAMES.get(operations[node], ["output"])
        i = int(index or 0)
        return f"{node}:{names[i]}:0" if len(names) > 1 else f"{node}:{names[0]}:{i}"

    function.signature.name = name
    for argument in arguments:
        function.signature.input_arg.add(name=argument, type=numbers[argument])
    for i, (result, number) in enumerate(zip(results, types, strict=True)):
        function.signature.output_arg.add(name=f"result_{i}", type=number)
        function.ret[f"result_{i}"] = read(result)
    for node in graph.node:
        if node.name not in arguments:
            copy = function.node_def.add()
            copy.CopyFrom(node)
            del copy.input[:]
            copy.input.extend([read(text) for text in node.input])
