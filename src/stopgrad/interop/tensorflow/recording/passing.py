"""Which inputs of an operation get a gradient: TensorFlow's own gradient functions are asked.

A gradient function is called in a graph of its own with placeholders for the operation's inputs and outputs,
and for the gradients of its outputs. What it returns for an input is None, or a tensor, of which TensorFlow's
graph also says whether it is always zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from stopgrad.interop.tensorflow.recording import internals
from stopgrad.interop.tensorflow.recording.record import READS, Shape

FLAT = "its gradient is zero everywhere"
NONE = "TensorFlow gives it no gradient"
_ENDS = "TensorFlow passes no gradient of result {} on"
STOPPED, NOT_DIFFERENTIABLE, UNDEFINED = "stopped", "not differentiable", "undefined"
OF_SIZES = frozenset({"BroadcastGradientArgs", "Rank", "Shape", "ShapeN", "Size", "ZerosLike", "OnesLike"})
"""The operations whose results depend on the sizes of what they take alone, whatever its values are."""
ANSWERS = 4096
"""The most answers that are kept."""


class Answer(NamedTuple):
    """What an operation does with gradients.

    Attributes:
        walls: the inputs that get none: position, status, reason.
        dead: the outputs whose gradients reach no input although their dtype has gradients: position, reason.
        unknown: why that could not be asked; then gradients pass wherever the dtypes have some.
    """

    walls: tuple[tuple[int, str, str], ...]
    dead: tuple[tuple[int, str], ...] = ()
    unknown: str = ""


def has_gradients(dtype: str) -> bool:
    """Whether tensors of a dtype may have gradients: numbers that are no integers, and lists of such."""
    return dtype in _FLOATS


_FLOATS = frozenset(
    {"float16", "bfloat16", "float32", "float64", "complex64", "complex128", "variant", "resource"}
    | {"float8_e5m2", "float8_e4m3fn"}
)


def of_eager(kind: str, attrs: tuple[Any, ...], inputs: Sequence[Shape], outputs: Sequence[Shape]) -> Answer:
    """What an operation that ran eagerly does with gradients."""
    try:
        return _of_eager(kind, attrs, tuple(inputs), tuple(outputs))
    except TypeError:  # An attribute is a list.
        return _answer_of(kind, functools.partial(internals.asked_op, kind, attrs), inputs, outputs)


@functools.lru_cache(ANSWERS)
def _of_eager(
    kind: str, attrs: tuple[Any, ...], inputs: tuple[Shape, ...], outputs: tuple[Shape, ...]
) -> Answer:
    return _answer_of(kind, functools.partial(internals.asked_op, kind, attrs), inputs, outputs)


def of_graph(op: tf.Operation, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> Answer:
    """What an operation of a graph does with gradients."""
    name = internals.custom_gradient_of(op) or op.type
    attrs = sorted((key, value.SerializeToString()) for key, value in op.node_def.attr.items())
    key = name, tuple(attrs), tuple(inputs), tuple(outputs)
    answer = _OF_GRAPHS.get(key)
    if answer is None:
        if len(_OF_GRAPHS) >= ANSWERS:
            _OF_GRAPHS.clear()
        make_op = functools.partial(internals.AskedOp, op)
        answer = _OF_GRAPHS[key] = _answer_of(name, make_op, inputs, outputs)
    return answer


_OF_GRAPHS: dict[Any, Answer] = {}
"""The answers about operations of graphs, by their names, attributes, and what they take and make."""


def _answer_of(
    name: str,
    make_op: Callable[[list[tf.Tensor], list[tf.Tensor]], tf.Operation],
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
) -> Answer:
    """What the gradient function of that name does with gradients."""
    if name in READS:  # The record has the variable, where TensorFlow takes its handle.
        inputs = [("resource",), *inputs[1:]]
    positions = range(len(inputs))
    live_inputs = [i for i in positions if has_gradients(inputs[i][0])]
    live_outputs = [j for j, sizes in enumerate(outputs) if has_gradients(sizes[0])]
    if name == "StopGradient":
        return Answer(tuple((i, STOPPED, "tf.stop_gradient") for i in positions))
    if not live_inputs or not live_outputs:  # Nobody asks for its gradient function.
        return Answer(tuple((i, NOT_DIFFERENTIABLE, NONE) for i in positions))
    try:
        function = internals.gradient_function(name)
    except LookupError:
        why = f"TensorFlow has no gradient function for {name}: to ask for it raises a LookupError"
        return Answer(tuple((i, UNDEFINED, why) for i in live_inputs))
    if function is None:
        return Answer(tuple((i, NOT_DIFFERENTIABLE, NONE) for i in positions))
    try:
        refusals = _refusals(function, make_op, inputs, outputs, live_outputs)
        by_output = {
            j: _refusals(function, make_op, inputs, outputs, [j])
            for j in live_outputs
            if len(live_outputs) > 1
        }
    except Exception as error:  # It wants values, which are not there, or is a user's own.
        why = f"the gradient function of {name} could not be asked ({type(error).__name__}: {error})"
        walls = [(i, NOT_DIFFERENTIABLE, NONE) for i in positions if i not in live_inputs]
        return Answer(tuple(walls), unknown=why)
    walls = [
        (i, NOT_DIFFERENTIABLE, reason) for i, reason in zip(positions, refusals, strict=False) if reason
    ]
    dead = [(j, FLAT if FLAT in alone else _ENDS.format(j)) for j, alone in by_output.items() if all(alone)]
    return Answer(tuple(walls), tuple(dead))


def _refusals(
    function: Any,
    make_op: Callable[[list[Any], list[Any]], Any],
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    live: Sequence[int],
) -> list[Any]:
    """What a gradient function returns for placeholders: a refusal in words, or an empty string, of each.

    Where only some of the outputs are used, TensorFlow hands zeros on for the gradients of the others.
    """

    def ask() -> list[str]:
        operands, results = [list(map(_placeholder, sizes)) for sizes in (inputs, outputs)]
        seeds: list[Any] = [
            _placeholder(sizes) if j in live else _zeros(sizes) for j, sizes in enumerate(outputs)
        ]
        returned = function(make_op(operands, results), *seeds)
        gradients = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        starts = {seeds[j].op for j in live}
        return [NONE if g is None else "" if _leads(starts, g) else FLAT for g in gradients]

    return internals.aside(ask)


def _placeholder(sizes: Shape) -> tf.Tensor:
    dtype, *rest = sizes
    has_sizes = len(sizes) > 1 or dtype in ("resource", "variant")
    return tf.compat.v1.placeholder(tf.as_dtype(dtype), rest if has_sizes else None)


def _zeros(sizes: Shape) -> tf.Tensor | None:
    """The gradient of an output that is not used; None where there are no zeros of its dtype."""
    kind = tf.as_dtype(sizes[0])
    return tf.zeros_like(_placeholder(sizes)) if kind.is_floating or kind.is_complex else None


def _leads(starts: Collection[tf.Operation], gradient: tf.Tensor | None) -> bool:
    """Whether a tensor of a graph was made of the results of some operations, and is not always zero.

    A gradient is linear in those of the outputs: what is not made of them is zero.
    """
    if _is_zero(gradient):
        return False
    stack = [getattr(gradient, "op", None)]
    seen = set(stack)
    while stack:
        op = stack.pop()
        if op is None or op in starts:  # It is no tensor of the graph: nothing is known of it.
            return True
        more = [x.op for x in op.inputs if x.op not in seen]
        seen.update(more)
        stack += more
    return False


def _is_zero(gradient: tf.Tensor | None) -> bool:
    """Whether a tensor of a graph is zero whatever its inputs are."""
    op = getattr(gradient, "op", None)
    if op is None:
        return False
    if op.type in ("ZerosLike",):
        return True
    if op.type in ("Identity", "Reshape", "Fill", "BroadcastTo", "Cast"):
        return _is_zero(op.inputs[1 if op.type == "Fill" else 0])
    if op.type == "Const":
        value = tf.get_static_value(gradient)
        return value is not None and np.issubdtype(value.dtype, np.number) and not np.any(value)
    return False
