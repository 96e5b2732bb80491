"""What operations do to a gradient that they make too small or too large, in a few words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stopgrad.base.source import Location
from stopgrad.flow.words import counted
from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.gates.custom import CustomGradient


@dataclass(frozen=True)
class Cause:
    """What changes the size of a gradient: operations of one kind in one line of source.

    Attributes:
        operations: they themselves.
        reason: what they do to it.
        uses: how often they do it: an operation in a loop does it in each step.
    """

    operations: tuple[Operation, ...]
    reason: str
    uses: int

    @property
    def location(self) -> Location | None:
        """Where the first of them was built."""
        at = self.operations[0].location
        return None if at is None else at.cause

    def __str__(self) -> str:
        return self.reason if self.uses == 1 else f"{self.reason} ({counted(self.uses, 'use')})"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of ours, of PyTorch's functions and methods, and of its autograd's nodes, in small letters without
# underscores at their ends.
_SLOPES = {
    **dict.fromkeys(_words("sigmoid logistic log_sigmoid logsigmoid softmax softmin softmaxgrad"), 0.25),
    **dict.fromkeys(_words("tanh erf softsign hardsigmoid hardswish gelu silu mish softplus elu selu"), 1.0),
    **dict.fromkeys(_words("atan arctan log_softmax logsoftmax celu cross_entropy"), 1.0),
}
"""Operations that are flat far from zero, with about the largest slope that they have."""
FLAT = 0.1
"""An operation is saturated whose slope is less than this times the largest."""
_RECTIFIERS = _words("relu prelu rrelu threshold crelu")
_CLIPS = _words("clamp clip clipbyvalue clip_by_value relu6 hardtanh clamp_max clamp_min clipgradient")
_EXTREMES = _words("maximum max minimum min fmax fmin amax amin")
_CHOICES = _words(
    """where select selectv2 masked_fill masked_scatter masked_select index_select gather gatherv2 gathernd
    getitem __getitem__ slice stridedslice embedding dropout feature_dropout alpha_dropout"""
)
_SCALINGS = _words("mul multiply __mul__ __rmul__ __imul__ mul_")
_WEIGHTED = _words(
    """linear bilinear addmm addbmm baddbmm addmv conv conv1d conv2d conv3d convolution conv_transpose1d
    conv_transpose2d conv_transpose3d"""
)
_NORMALIZATIONS = _words("batch_norm layer_norm group_norm instance_norm native_layer_norm native_group_norm")
_PRODUCTS = (
    _SCALINGS
    | _WEIGHTED
    | _words(
        """matmul __matmul__ __rmatmul__ mm bmm mv dot einsum tensordot div true_divide realdiv __truediv__
        batchmatmul batchmatmulv2 scalegradient"""
    )
)


def name_of(op: Operation) -> str:
    """An operation's kind, without the modules in which a framework keeps it.

    Of a function with a gradient of its own, it is the name, if that has one.
    """
    if op.definition is CustomGradient:
        return re.sub(r"_\d+$", "", op.name.rpartition("/")[2])
    return op.definition.called(op).rpartition(".")[2]


def _kind(op: Operation) -> str:
    name = re.sub(r"Backward\d*$", "", name_of(op)).lower()
    return name if name.startswith("__") else name.strip("_")


def factors(op: Operation) -> tuple[Output, ...]:
    """The operands with which an operation multiplies others, as far as that is sure."""
    kind = _kind(op)
    if kind in _WEIGHTED:  # The bias is added.
        return tuple([x for x in op.inputs if len(x.shape) > 1])
    if kind in _NORMALIZATIONS:  # The weight comes before the bias.
        flat = [x for x in op.inputs if len(x.shape) == 1]
        return (flat[-2],) if len(flat) > 1 else ()
    return op.inputs if kind in _PRODUCTS else ()


def is_elementwise_product(op: Operation) -> bool:
    """Whether an operation multiplies each element by one of another tensor."""
    return _kind(op) in _SCALINGS


def stops_all(operations: Sequence[Operation], zeros: Mapping[Operation, str] | None = None) -> str:
    """What operations do that pass on nothing of a gradient: each element becomes exactly 0.

    Args:
        operations: of one kind.
        zeros: what is told of a factor that is 0, where one is known.
    """
    op = operations[0]
    name, kind = name_of(op), _kind(op)
    factor = (zeros or {}).get(op)
    if factor:
        return f"{name} multiplies it by {factor}"
    if kind in _RECTIFIERS:
        return f"{name} is dead: it is off wherever a gradient arrives"
    if kind in _CLIPS:
        return f"{name} passes on nothing: all is outside of its bounds"
    if kind in _EXTREMES:
        return f"{name} takes other elements wherever a gradient arrives"
    if kind in _SLOPES:
        return f"{name} is saturated: its slope is 0 everywhere"
    if kind in _CHOICES:
        return f"{name} takes none of it"
    if kind in _PRODUCTS:
        return f"{name} multiplies it by zeros"
    return f"{name} passes on nothing of it"


def scales(operations: Sequence[Operation], factor: float) -> str:
    """What operations do that change the size of a gradient by a factor, on the average."""
    name, kind, each = name_of(operations[0]), _kind(operations[0]), " each time" if operations[1:] else ""
    if factor > 1:
        return f"{name} makes it {figure(factor)} times as large{each}"
    flat = kind in _SLOPES and factor < FLAT * _SLOPES[kind]
    return f"{name} {'is saturated, and ' if flat else ''}passes on {figure(factor)} of it{each}"


def figure(x: float) -> str:
    """A number with two digits.

    Examples:
        >>> figure(0.2461), figure(3.1e-36), figure(0.0), figure(float("nan")), figure(12345.0)
        ('0.25', '3.1e-36', '0', 'NaN', '1.2e4')
    """
    if math.isnan(x):
        return "NaN"
    text = f"{x:.2g}"
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else text
