"""Operations that have gradients of their own: custom gradients, and functions with a gradient function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import stopgrad as sg
from stopgrad.interop.tensorflow.operators.activations import is_swish
from stopgrad.interop.tensorflow.operators.calling import Call, Function, Rule
from stopgrad.interop.tensorflow.operators.structural import gated
from stopgrad.ops.gates.custom import CustomGradient, given_gradient, taken_from_outside


def marked(node: Call, rule: Rule, mark: str) -> Sequence[Any]:
    """The results of a node with the attribute ``_gradient_op_type``.

    TensorFlow asks a registry for the gradient of that name, which only the program that built the graph has;
    a SavedModel may hold it as a function. Where there is none, asking for the gradient is an error, but for
    swish, whose own gradient is the derivative of what the node hands on, computed with less memory.
    """
    function = node.library.registered.get(mark)
    if function is not None:
        body = node.library.body(function)
        captured = node.captured(function)
        returned = _returned(node, function)
        if captured is None or returned is None or len(body.arguments) != len(returned) + len(captured):
            message = (
                f"{node.op_type} {node.name!r} has a custom gradient, {mark!r}, and it is not known to which "
                f"of its {len(node.operands)} operands the {len(body.outputs)} gradients of its function "
                "belong, or what that function takes"
            )
            return _all_prevented(node, rule, message)
        return _custom(node, rule, function, returned, captured)
    if is_swish(node.operands):
        return tuple(node.ruled(rule))
    why = node.library.objects.untraced.get(
        mark,
        "the file does not hold; save the model with "
        "tf.saved_model.SaveOptions(experimental_custom_gradients=True)",
    )
    message = f"{node.op_type} {node.name!r} has a custom gradient, {mark!r}, which {why}"
    return _all_prevented(node, rule, message)


def _all_prevented(node: Call, rule: Rule, message: str) -> list[Any]:
    """The results of a node, through which asking for a gradient is an error."""
    result = node.ruled(rule)
    ys = result if isinstance(result, tuple) else (result,)
    return [_prevented(node, node.tensor(y), message) for y in ys]


def _prevented(node: Call, y: Any, message: str) -> Any:
    carries = isinstance(y, sg.Output) and y.dtype.is_differentiable
    return gated(node, sg.prevent_gradient, y, message) if carries else y


def _returned(node: Call, function: str) -> list[bool] | None:
    """To which operands a gradient belongs that a function returns; None if it is not known."""
    returned: list[bool] | None = node.library.objects.returned.get(function)
    count, total = len(node.library.body(function).outputs), len(node.operands)
    if returned is None and node.read_results + count == total:
        return [False] * (total - count) + [True] * count  # None of the function's arguments lacks one.
    return returned if returned is not None and len(returned) == total and sum(returned) == count else None


def _custom(
    node: Call, rule: Rule, function: str, returned: Sequence[bool], captured: Sequence[Any]
) -> Sequence[Any]:
    """A node whose gradient a function computes from the cotangents of its results.

    The first operands are the results of the custom function, which the node hands on and others read; the
    rest are its arguments. As in TensorFlow, the function's own gradient replaces all that the results
    themselves would pass back. What the gradient function took from the one around it is *captured*.
    """
    result = rule(node, *[node.tensor(x) for x in node.operands])
    results = [node.tensor(y) for y in (result if isinstance(result, tuple) else (result,))]
    count = min([node.read_results, *[i for i, has_gradient in enumerate(returned) if has_gradient]])
    ys, arguments = results[:count], results[count:]
    floats = [x for x in arguments if x.dtype.is_differentiable]

    def gradient(*cotangents: sg.Output) -> list[Any]:
        zeros = [sg.zeros_like(x) for x in arguments]  # Nothing reads what the node hands on of these.
        with node.inside():
            pulled = iter(node.call(Function(function, {}), [*cotangents, *zeros, *captured]))
        gradients = [next(pulled) if has_gradient else None for has_gradient in returned]
        return _for_floats(arguments, gradients[count:])

    if not ys:
        return results
    closed = taken_from_outside(ys, arguments, ys[0].op.graph)
    positions = tuple(range(len(floats) + len(closed)))
    op = given_gradient(ys, [*floats, *closed], gradient, len(floats), positions)
    return [*op.outputs, *arguments]


def called(node: Call, name: str) -> Sequence[Any]:
    """The results of a function that an operation's name calls; with its gradient function, if it has one."""
    function = node.library.gradients.get(name)
    if function is None:
        return node.call_known(Function(name, node.open_attributes), node.operands)

    def forward(*xs: sg.Output) -> Any:
        ys = node.call(Function(name, node.open_attributes), xs)

        def gradient(*cotangents: sg.Output) -> list[Any]:
            with node.inside():
                pulled = node.call(Function(function, node.open_attributes), [*xs, *cotangents])
            return _for_floats(xs, pulled)

        return ys, gradient

    return _built(node, forward)


def _for_floats(xs: Sequence[sg.Output], gradients: Sequence[Any]) -> list[Any]:
    return [g for x, g in zip(xs, gradients, strict=True) if x.dtype.is_differentiable]


def _built(node: Call, forward: Callable[..., tuple[Any, Callable[..., object]]]) -> list[Any]:
    ys = list(sg.custom_gradient(forward)(*[node.tensor(x) for x in node.operands]))
    for op in dict.fromkeys(y.op for y in ys if y.op.definition is CustomGradient):
        CustomGradient.settle(op)  # At once, so that what cannot be translated is told now.
    return ys
