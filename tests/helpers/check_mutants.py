"""Wrong gradient rules, as people write them: each is a real rule with one mistake.

A mutant takes a rule's place while a test runs. ``test_check_mutants.py`` shows that ``check_gradients`` sees
each of them, and that it passes the rule itself on the same operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.samples import Values
from stopgrad.graph.build import apply
from stopgrad.graph.op import REGISTRY, Joint, Op
from stopgrad.ops.shapes.reshape import spread

Rule = Callable[..., Any]
BOTH = ("reverse", "forward")


@dataclass(frozen=True)
class Mutant:
    """One wrong rule.

    Attributes:
        type: the operation's type.
        operand: which operand's rule is wrong.
        mistake: what the mistake is.
        rule: the wrong rule.
        operands: on which it is tried; by default those of the definition's first sample.
        attributes: with which attributes; those of the sample by default.
        order: up to which derivatives it must be looked for; one that is seen at 2 is not seen at 1.
        through: the type of the operation that is checked, where the rule is that of one in its gradient.
        only: the one mode that sees it; None where both do.
    """

    type: str
    operand: int
    mistake: str
    rule: Rule
    operands: Sequence[Any] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    order: int = 1
    through: str = ""
    only: str | None = None

    def __str__(self) -> str:
        within = f"-in-{self.through}" if self.through else ""
        return f"{self.type}-{self.operand}-{self.mistake.replace(' ', '-')}{within}"

    @property
    def checked(self) -> type[Op]:
        """The definition of the operation whose derivatives are checked."""
        return REGISTRY[self.through or self.type]

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The operands."""
        generator = np.random.default_rng(7)
        given = self.operands or self.checked.samples[0].operands
        return [x.draw(generator, {"n": 3}) if isinstance(x, Values) else np.asarray(x) for x in given]

    def values(self) -> tuple[Any, ...]:
        """The attributes."""
        given = self.attributes or self.checked.samples[0].attributes
        return tuple(given[name] for name in self.checked.attributes)


@contextmanager
def seeded(mutant: Mutant) -> Iterator[None]:
    """Inside, the definition has the wrong rule."""
    definition = REGISTRY[mutant.type]
    rules, joint = definition.rules, definition.joint
    try:
        if joint is None:
            wrong = list(rules)
            wrong[mutant.operand] = mutant.rule
            definition.rules = tuple(wrong)
        else:
            definition.joint = Joint(mutant.rule(joint.pull), joint.walls)
        yield
    finally:
        definition.rules, definition.joint = rules, joint


_GENERATOR = np.random.default_rng(3)
_SQUARE = _GENERATOR.normal(size=(3, 3)) + 2.0 * np.eye(3)
_OTHER = _GENERATOR.normal(size=(3, 3))
_CUBE = _GENERATOR.normal(size=(2, 2, 2))
_POSITIVE = np.array([0.3, 1.7, 2.5])
_MIXED = np.array([-1.3, 0.4, 2.1])
_COMPLEX = np.array([0.3 + 1.2j, -0.7 + 0.4j, 1.1 - 0.9j])
_IMAGE = _GENERATOR.normal(size=(1, 4, 4, 1))
_FILTERS = _GENERATOR.normal(size=(2, 2, 1, 2))
_CONV = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilations": (1, 1), "groups": 1}
_POOL = {"ksize": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilations": (1, 1)}


def _alone(rule: Callable[[Any, Any], Any]) -> Rule:
    return lambda g, op: rule(g, op.inputs[0])


def _swapped_conv(g: Any, op: Any) -> Any:
    """Filters that are turned once more: convolution taken for correlation."""
    turned = sg.reverse(op.filters, (0, 1))
    values = (op.x.shape, op.strides, op.padding, op.dilations, op.groups)
    return apply(REGISTRY["ConvBackpropInput"], (turned, g), values)


ELEMENTWISE = [
    Mutant("Sin", 0, "chain factor missing", lambda g, op: g),
    Mutant("Sin", 0, "conjugate missing", lambda g, op: g * sg.cos(op.x), (_COMPLEX,)),
    Mutant("Cos", 0, "sign", lambda g, op: g * sg.conj(sg.sin(op.x))),
    Mutant("Exp", 0, "exponential of the result", lambda g, op: g * sg.exp(op.result)),
    Mutant("Log", 0, "product for quotient", _alone(lambda g, x: g * x)),
    Mutant("Log2", 0, "natural logarithm", _alone(lambda g, x: g / x)),
    Mutant("Tanh", 0, "square missing", lambda g, op: g * (1 - op.result)),
    Mutant("Sigmoid", 0, "factor missing", lambda g, op: g * op.result),
    Mutant("Sqrt", 0, "factor of one half missing", lambda g, op: g / op.result),
    Mutant("Square", 0, "factor of two missing", lambda g, op: g * op.x),
    Mutant("Neg", 0, "sign", lambda g, op: g),
    Mutant("Abs", 0, "sign missing", lambda g, op: g, (_MIXED,)),
    Mutant("Asin", 0, "root missing", _alone(lambda g, x: g / (1 - x * x))),
    Mutant("Erf", 0, "constant missing", _alone(lambda g, x: g * sg.exp(-x * x))),
    Mutant("Lgamma", 0, "logarithm for digamma", _alone(lambda g, x: g * sg.log(x)), (_POSITIVE,)),
    Mutant("Relu", 0, "mask missing", lambda g, op: g, (_MIXED,)),
    Mutant("Relu", 0, "mask inverted", lambda g, op: sg.where(op.result > 0, 0.0, g), (_MIXED,)),
    Mutant("Elu", 0, "one missing below zero", lambda g, op: sg.where(op.x > 0, g, g * op.result), (_MIXED,)),
    Mutant("LeakyRelu", 0, "slope on the wrong side", lambda g, op: sg.where(op.x > 0, g * op.alpha, g)),
    Mutant("Softplus", 0, "tanh for sigmoid", _alone(lambda g, x: g * sg.tanh(x))),
    Mutant("Gelu", 0, "approximation by a sigmoid", _alone(lambda g, x: g * sg.sigmoid(1.702 * x))),
    Mutant("Mul", 0, "operands swapped", lambda g, op: g * op.x),
    Mutant("Mul", 1, "conjugate missing", lambda g, op: g * op.x, (_COMPLEX, _COMPLEX[::-1])),
    Mutant("Sub", 1, "sign", lambda g, op: g),
    Mutant("RealDiv", 1, "square missing", lambda g, op: -(g * op.x) / op.y, (_MIXED, _POSITIVE)),
    Mutant("Pow", 0, "exponent one too high", lambda g, op: g * op.y * op.result, (_POSITIVE, _MIXED)),
    Mutant(
        "Pow",
        1,
        "logarithm of the exponent",
        lambda g, op: g * op.result * sg.log(op.y),
        (_POSITIVE, _POSITIVE[::-1]),
    ),
    Mutant("Maximum", 0, "mask inverted", lambda g, op: sg.where(op.x >= op.y, 0.0, g)),
    Mutant("Minimum", 1, "mask missing", lambda g, op: g),
    Mutant("SquaredDifference", 1, "sign", lambda g, op: g * (2 * (op.x - op.y))),
    Mutant("Atan2", 0, "operands swapped", lambda g, op: g * op.y / (sg.square(op.x) + sg.square(op.y))),
    Mutant("SelectV2", 1, "branches swapped", lambda g, op: sg.where(op.condition, 0.0, g)),
    Mutant("Real", 0, "imaginary part", lambda g, op: sg.complex(sg.zeros_like(g), g)),
    Mutant("Conj", 0, "conjugate missing", lambda g, op: g, (_COMPLEX,)),
]

SHAPES = [
    Mutant("Sum", 0, "divided by the count", lambda g, op: spread(g, op) / 2.0),
    Mutant("Mean", 0, "not divided by the count", lambda g, op: spread(g, op)),
    Mutant("Max", 0, "to all elements", lambda g, op: spread(g, op)),
    Mutant(
        "Max", 0, "to the smallest", lambda g, op: sg.where(op.x > spread(op.result, op), 0.0, spread(g, op))
    ),
    Mutant("Prod", 0, "not divided by the element", lambda g, op: spread(g * op.result, op)),
    Mutant("LogSumExp", 0, "even shares", lambda g, op: spread(g, op) / 3.0),
    Mutant("Variance", 0, "mean not subtracted", lambda g, op: spread(g, op) * op.x),
    Mutant(
        "BroadcastTo", 0, "mean for sum", lambda g, op: sg.reduce_mean(g, 0), (_MIXED,), {"shape": (2, 3)}
    ),
    Mutant("BroadcastTo", 0, "first row alone", lambda g, op: g[0], (_MIXED,), {"shape": (2, 3)}),
    Mutant(
        "Transpose", 0, "not inverted", lambda g, op: sg.transpose(g, op.perm), (_CUBE,), {"perm": (1, 2, 0)}
    ),
    Mutant(
        "Reshape",
        0,
        "other order",
        lambda g, op: sg.reshape(sg.transpose(g), op.x.shape),
        (_SQUARE[:2],),
        {"shape": (3, 2)},
    ),
    Mutant(
        "ConcatV2", 0, "slices one too far", lambda g, op, i: sg.roll(g, 1, op.axis)[: op.inputs[i].shape[0]]
    ),
    Mutant(
        "StridedSlice",
        0,
        "one too far",
        lambda g, op: sg.roll(apply(REGISTRY["StridedSliceGrad"], (g,), (op.x.shape, op.spans)), 1, 0),
        (np.arange(5.0),),
        {"spans": ((1, 2, 2),)},
    ),
    Mutant(
        "PadV2", 0, "paddings forgotten", lambda g, op: g[:2], (np.arange(2.0), 0.0), {"paddings": ((1, 1),)}
    ),
    Mutant(
        "GatherV2",
        0,
        "last of equal indices alone",
        lambda g, op: apply(
            REGISTRY["TensorScatterUpdate"], (sg.zeros_like(op.params), op.indices, g), (0, 0)
        ),
        (np.arange(4.0), np.array([1, 1, 3], np.int32)),
        {"axis": 0, "batch_dims": 0},
    ),
    Mutant("Cumsum", 0, "not reversed", lambda g, op: sg.cumsum(g, op.axis, op.exclusive, op.reverse)),
    Mutant(
        "Sort",
        0,
        "order not inverted",
        lambda g, op: sg.take_along_axis(g, sg.argsort(op.x, op.axis), op.axis),
        (np.array([0.3, 2.0, -1.0, 0.7]),),
        {"axis": 0, "descending": False},
    ),
    Mutant("ReverseV2", 0, "not reversed", lambda g, op: g),
    Mutant(
        "OneHot",
        1,
        "other places",
        lambda g, op: g,
    ),
]

MATRICES = [
    Mutant("MatMul", 0, "not transposed", lambda g, op: g @ op.b, (_SQUARE, _OTHER)),
    Mutant("MatMul", 1, "factors swapped", lambda g, op: sg.transpose(g) @ op.a, (_SQUARE, _OTHER)),
    Mutant(
        "Einsum",
        0,
        "other operand",
        lambda g, op, i: g @ op.inputs[i],
        (_SQUARE, _OTHER),
        {"equation": "ij,jk->ik"},
    ),
    Mutant(
        "MatrixInverse",
        0,
        "sign",
        lambda g, op: sg.transpose(op.result) @ g @ sg.transpose(op.result),
        (_SQUARE,),
    ),
    Mutant(
        "MatrixDeterminant",
        0,
        "not transposed",
        lambda g, op: g * op.result * apply(REGISTRY["MatrixInverse"], (op.x,)),
        (_SQUARE,),
    ),
    Mutant(
        "MatrixSolve",
        1,
        "not transposed",
        lambda g, op: apply(REGISTRY["MatrixSolve"], (op.matrix, g), (False,)),
    ),
    Mutant(
        "MatrixDiagPart",
        0,
        "other diagonal",
        lambda g, op: apply(REGISTRY["MatrixDiag"], (g,), (0, 2, 3)),
        (_SQUARE[:2],),
        {"offset": 1},
    ),
    Mutant("Softmax", 0, "diagonal alone", lambda g, op: g * op.result * (1 - op.result)),
    Mutant("LogSoftmax", 0, "sum missing", lambda g, op: g - sg.exp(op.result) * g),
    Mutant(
        "LayerNorm",
        0,
        "mean and variance taken for constants",
        lambda g, op: g * sg.rsqrt(sg.reduce_variance(op.x, op.axis, keepdims=True) + op.epsilon),
    ),
    Mutant(
        "SoftmaxCrossEntropyWithLogits",
        1,
        "labels not subtracted",
        lambda g, op: sg.expand_dims(g, op.axis) * sg.softmax(op.logits, op.axis),
    ),
    Mutant(
        "SoftmaxCrossEntropyWithLogits",
        0,
        "sign",
        lambda g, op: sg.expand_dims(g, op.axis) * sg.log_softmax(op.logits, op.axis),
    ),
    Mutant("Conv", 0, "filters turned", _swapped_conv, (_IMAGE, _FILTERS), _CONV),
    Mutant(
        "AvgPool",
        0,
        "not divided by the count",
        lambda g, op: 4.0 * apply(REGISTRY["AvgPoolGrad"], (g,), (op.x.shape, *op.values)),
        (_IMAGE,),
        _POOL,
    ),
    Mutant(
        "MaxPool",
        0,
        "to all of a window",
        lambda g, op: 4.0 * apply(REGISTRY["AvgPoolGrad"], (g,), (op.x.shape, *op.values)),
        (_IMAGE,),
        _POOL,
    ),
    Mutant("Fft", 0, "not conjugated", lambda g, op: apply(REGISTRY["Fft"], (g,), op.values)),
    Mutant(
        "Svd",
        0,
        "singular vectors forgotten",
        lambda pull: lambda gs, op, live, acting: pull((gs[0], None, None), op, live, acting),
    ),
    Mutant(
        "Qr",
        0,
        "triangle forgotten",
        lambda pull: lambda gs, op, live, acting: pull((gs[0], None), op, live, acting),
    ),
]

LATER = [
    Mutant("ReluGrad", 1, "mask missing", lambda g, op: g, (_MIXED,), through="Relu", only="forward"),
    Mutant(
        "Relu6Grad",
        1,
        "mask inverted",
        lambda g, op: sg.where(op.y > 0, 0.0, g),
        (_MIXED,),
        through="Relu6",
        only="forward",
    ),
    Mutant("TanhGrad", 1, "square missing", lambda g, op: g * (1 - op.y), through="Tanh", only="forward"),
    Mutant("SigmoidGrad", 1, "factor missing", lambda g, op: g * op.y, through="Sigmoid", only="forward"),
    Mutant(
        "AvgPoolGrad",
        0,
        "twice",
        lambda g, op: 2.0 * apply(REGISTRY["AvgPool"], (g,), op.values[1:]),
        (_IMAGE,),
        _POOL,
        through="AvgPool",
        only="forward",
    ),
    Mutant(
        "MaxPoolGrad",
        1,
        "mean for choice",
        lambda g, op: apply(REGISTRY["AvgPool"], (g,), op.values),
        (_IMAGE,),
        _POOL,
        through="MaxPool",
        only="forward",
    ),
    Mutant(
        "ConvBackpropInput",
        1,
        "sign",
        lambda g, op: -apply(REGISTRY["Conv"], (g, op.filters), op.values[1:]),
        (_IMAGE, _FILTERS),
        _CONV,
        through="Conv",
        only="forward",
    ),
    Mutant("TanhGrad", 0, "sign", lambda g, op: g * (op.g * (2 * op.y)), through="Tanh", order=2),
    Mutant(
        "SigmoidGrad",
        0,
        "factor of two missing",
        lambda g, op: g * op.g * (1 - op.y),
        through="Sigmoid",
        order=2,
    ),
    Mutant(
        "SqrtGrad",
        0,
        "square missing",
        lambda g, op: -(g * op.g) / op.y,
        (_POSITIVE,),
        through="Sqrt",
        order=2,
    ),
    Mutant("Cosh", 0, "sign", lambda g, op: -g * sg.sinh(op.x), through="Sinh", order=2),
    Mutant("Digamma", 0, "chain factor missing", lambda g, op: g, (_POSITIVE,), through="Lgamma", order=2),
    Mutant("Sigmoid", 0, "factor missing", lambda g, op: g * op.result, through="Softplus", order=2),
    Mutant(
        "Adjugate",
        0,
        "zero",
        lambda g, op: sg.zeros_like(g),
        (_SQUARE,),
        through="MatrixDeterminant",
        order=2,
    ),
    Mutant(
        "ConvBackpropFilter",
        0,
        "zero",
        lambda g, op: sg.zeros_like(op.x),
        (_IMAGE, _FILTERS),
        _CONV,
        through="Conv",
        order=2,
    ),
    Mutant(
        "Cast",
        0,
        "twice",
        lambda g, op: 2.0 * sg.cast(g, op.x.dtype),
        (_MIXED.astype(np.float32),),
        through="Cast",
        attributes={"dtype": sg.float64},
    ),
]

MUTANTS = [*ELEMENTWISE, *SHAPES, *MATRICES, *LATER]
