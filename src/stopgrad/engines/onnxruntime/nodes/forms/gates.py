"""Gates as functions of the domain ``stopgrad``. Their body is the identity, which every runtime can run.

A custom gradient is a function of several results, beside which stands a second one: its gradient function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from stopgrad.base.arrays import Array
from stopgrad.base.errors import EngineError
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import Function, Node, NotInOnnx
from stopgrad.graph.graph import Operation, Output, describe
from stopgrad.ops.gates.stopping import Named

DOMAIN = "stopgrad"
"""The domain of the gates' functions."""


def gate(xp: Writing, op: Operation) -> Callable[..., Any]:
    """The form of a gate: a call of its type's function with its attributes. ``Named`` writes nothing."""
    definition = op.definition
    if definition is Named:
        return lambda x: xp.value(x)
    attributes = dict(zip(definition.attributes, map(_attribute_of, op.values), strict=True))

    def form(x: Array, *others: Array) -> Any:
        x = xp.value(x)
        before = xp.nodes.functions.get(op.type)
        most = max(1 + len(others), len(before.inputs) if before else 0)
        xp.nodes.functions[op.type] = _passing(most, 1, attributes)
        return xp.write(op.type, [x, *others], [(x.dtype, x.shape)], DOMAIN, **attributes)[0]

    return form


def _passing(operands: int, results: int, attributes: Mapping[str, Any]) -> Function:
    """A function whose results are its first operands."""
    xs, ys = [f"x{i}" for i in range(operands)], [f"y{i}" for i in range(results)]
    nodes = [Node("Identity", "", y, (x,), (y,), {}) for x, y in zip(xs, ys, strict=False)]
    return Function(xs, ys, nodes, sorted(attributes))


class Write(Protocol):
    """Writes a graph as a function of the model: its inputs and outputs by their names there."""

    def __call__(self, inputs: Mapping[str, Output], outputs: Mapping[str, Output], /) -> Function: ...


def own_gradient(xp: Writing, op: Operation, write: Write) -> Callable[..., Any]:
    """The form of a custom gradient: a call of a function of its own, which names its gradient function.

    That takes the cotangents, and then all operands besides the results: the arguments, which may tell sizes,
    and the tensors that it uses. It returns the gradients that there are.

    Raises:
        NotInOnnx: the gradient function has no form in ONNX.
    """
    op.definition.settle(op)
    body, count, arguments = op.pullback, op.count, len(op.kept)
    returned = [i for i, y in enumerate(body.outputs) if y is not None]
    number = sum(name.startswith(CUSTOM) for name in xp.nodes.functions)
    name, gradient = f"{CUSTOM}{number}", f"{OWN}{number}"
    # Numbers in a text, since ONNX has no empty lists.
    attributes = {
        "asked": op.asked,
        "kept": _listed(op.kept),
        "returned": _listed(returned),
        "gradient": gradient if returned else "",
    }
    xp.nodes.functions[name] = _passing(len(op.inputs), count, attributes)
    if returned:
        xs = [*op.inputs[count : count + arguments], *body.inputs[count:]]
        inputs = {f"g{i}": g for i, g in enumerate(body.inputs[:count])}
        inputs |= {f"x{i}": x for i, x in enumerate(xs)}
        try:
            if body.graph.acting:
                raise NotInOnnx(f"it runs {describe(body.graph.acting[0])}, which ONNX cannot")
            function = write(inputs, {f"dx{i}": body.outputs[i] for i in returned})
        except EngineError as error:
            raise NotInOnnx(
                f"{describe(op)}: its gradient function has no form in ONNX ({error.message}); write the "
                "gradient with other operations, or save without gates (gates=False): values stay, and the "
                "loaded model is differentiated as if neither this nor any other gate were there"
            ) from error
        xp.nodes.functions[gradient] = function

    def form(*operands: Array) -> Any:
        values = [xp.value(x) for x in operands]
        kinds = [(x.dtype, x.shape) for x in values[:count]]
        return xp.write(name, values, kinds, DOMAIN, **attributes)

    return form


CUSTOM = "CustomGradient_"
"""With a number, the name of the function of a custom gradient."""

OWN = "gradient_of_CustomGradient_"
"""With the same number, that of its gradient function."""


def _listed(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def _attribute_of(value: object) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else repr(value)
