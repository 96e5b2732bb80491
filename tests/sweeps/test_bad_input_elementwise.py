"""Bad input of elementwise functions, reductions, shapes, values and gates: refused alike in every style.

Each row is tried in a graph, on tensors of :class:`test_bad_input.Setting`, and immediately, on arrays of the
same names: the same kind of error, which names the function, says what is wrong, and gives the user's line.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from bad_input import Setting
from together import together

import stopgrad as sg

HERE = __file__


class Arrays:
    """What a Setting has as placeholders, as arrays."""

    v = np.ones(3, np.float32)
    u = np.ones(4, np.float32)
    m = np.ones((2, 3), np.float32)
    d = np.ones(3)
    i = np.ones(3, np.int32)
    small = np.ones(2, np.int8)
    b = np.ones(3, np.bool_)
    z = np.ones(3, np.complex64)
    s = np.ones((), np.float32)
    half = np.ones(3, np.float16)
    none = np.ones(0, np.float32)


@dataclass(frozen=True)
class Row:
    name: str
    wrong: Callable[[Any], Any]
    error: type[Exception]
    says: tuple[str, ...]
    immediately: bool = True

    def __repr__(self) -> str:
        return self.name


def row(name: str, wrong: Callable[[Any], Any], error: type[Exception], *says: str) -> Row:
    return Row(name, wrong, error, says)


def in_graph(name: str, wrong: Callable[[Any], Any], error: type[Exception], *says: str) -> Row:
    """A row that has no meaning outside of a graph."""
    return Row(name, wrong, error, says, immediately=False)


SHAPE, DTYPE, ARGUMENT, GRAPH = sg.ShapeError, sg.DTypeError, sg.ArgumentError, sg.GraphError

TWO = {
    "AddV2": sg.add,
    "Sub": sg.subtract,
    "Mul": sg.multiply,
    "RealDiv": sg.divide,
    "FloorDiv": sg.floordiv,
    "FloorMod": sg.mod,
    "TruncateMod": sg.truncatemod,
    "Maximum": sg.maximum,
    "Minimum": sg.minimum,
    "SquaredDifference": sg.squared_difference,
    "Pow": sg.pow,
    "Atan2": sg.atan2,
    "Hypot": sg.hypot,
    "CopySign": sg.copysign,
    "NextAfter": sg.nextafter,
    "Less": sg.less,
    "GreaterEqual": sg.greater_equal,
    "Equal": sg.equal,
    "Complex": sg.complex,
}
REAL = {
    "Floor": sg.floor,
    "Ceil": sg.ceil,
    "Round": sg.rint,
    "Trunc": sg.trunc,
    "Cbrt": sg.cbrt,
    "Exp2": sg.exp2,
    "Erf": sg.erf,
    "Erfinv": sg.erfinv,
    "Lgamma": sg.lgamma,
    "Digamma": sg.digamma,
    "SignBit": sg.signbit,
    "Max": sg.reduce_max,
    "Min": sg.reduce_min,
    "ArgMax": sg.argmax,
    "LogSumExp": sg.reduce_logsumexp,
}
REDUCTIONS = {
    "Sum": sg.reduce_sum,
    "Mean": sg.reduce_mean,
    "Prod": sg.reduce_prod,
    "Max": sg.reduce_max,
    "Variance": sg.reduce_variance,
    "reduce_std": sg.reduce_std,
    "reduce_euclidean_norm": sg.reduce_euclidean_norm,
}
NO_TENSORS: dict[str, tuple[Any, str]] = {
    "text": ("three", "text"),
    "None": (None, "Python objects"),
    "a dict": ({"x": 1.0}, "Python objects"),
    "a ragged list": ([[1.0], [1.0, 2.0]], "differ in length"),
    "a date": (np.datetime64(datetime.date(2026, 1, 1)), "dates"),
    "a masked array": (np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]), "filled"),
}

ROWS = [
    # every function with two operands, every one that takes real numbers, whatever is no tensor
    *[
        row(f"{name} of two shapes", lambda s, f=f: f(s.v, s.u), SHAPE, name, "(C2)", "[3]", "[4]")
        for name, f in TWO.items()
    ],
    *[
        row(f"{name} of complex numbers", lambda s, f=f: f(s.z), DTYPE, name, "complex64")
        for name, f in REAL.items()
    ],
    *[
        row(f"exp of {what}", lambda s, x=x: sg.exp(x), DTYPE, "Exp", says)
        for what, (x, says) in NO_TENSORS.items()
    ],
    *[
        row(f"add of {what}", lambda s, x=x: sg.add(s.v, x), DTYPE, "AddV2", says)
        for what, (x, says) in NO_TENSORS.items()
    ],
    # arithmetic
    row("add_n without a list", lambda s: sg.add_n(), ARGUMENT, "AddN", "missing", "'inputs'"),
    row(
        "add_n of three", lambda s: sg.add_n([s.v], None, 1), ARGUMENT, "AddN", "positional", "help(sg.add_n)"
    ),
    row("add_n by another name", lambda s: sg.add_n([s.v], other=1), ARGUMENT, "AddN", "other"),
    row(
        "add named by a number",
        lambda s: sg.add(s.v, s.v, name=3),
        GRAPH,
        "AddV2",
        "cannot name",
        "3",
    ),
    row("add named by a tensor", lambda s: sg.add(s.v, s.v, s.v), GRAPH, "AddV2", "cannot name"),
    row("sum of booleans", lambda s: sg.add(s.b, s.b), DTYPE, "AddV2", "numbers", "bool", "sg.cast"),
    row("difference of booleans", lambda s: sg.subtract(s.b, s.b), DTYPE, "Sub", "numbers", "bool"),
    row("negative of booleans", lambda s: sg.negative(s.b), DTYPE, "Neg", "numbers", "bool"),
    row("modulus of booleans", lambda s: sg.abs(s.b), DTYPE, "Abs", "numbers", "bool"),
    row("sign of booleans", lambda s: sg.sign(s.b), DTYPE, "Sign", "numbers", "bool"),
    row("quotient of complex numbers, rounded", lambda s: sg.floordiv(s.z, s.z), DTYPE, "FloorDiv", "real"),
    row("remainder of complex numbers", lambda s: sg.floormod(s.z, 2.0), DTYPE, "FloorMod", "real"),
    row("truncated division of complex numbers", lambda s: sg.truncatediv(s.z, 2.0), DTYPE, "Trunc", "real"),
    row("larger of complex numbers", lambda s: sg.maximum(s.z, s.z), DTYPE, "Maximum", "real"),
    row("add_n of nothing", lambda s: sg.add_n(inputs=[]), ARGUMENT, "AddN", "at least one"),
    row("add_n of no list", lambda s: sg.add_n(s.v), ARGUMENT, "AddN", "list", "[x, y]"),
    row("add_n of shapes", lambda s: sg.add_n([s.v, s.u]), SHAPE, "AddN", "[3]", "[4]"),
    row("add_n of booleans", lambda s: sg.add_n([s.b, s.b]), DTYPE, "AddN", "numbers"),
    row("add_n of text", lambda s: sg.add_n([s.v, "x"]), DTYPE, "AddN", "text"),
    row("polygamma of order -1", lambda s: sg.polygamma(-1, s.v), ARGUMENT, "Polygamma", "at least 0"),
    row("polygamma of a tensor's order", lambda s: sg.polygamma(s.v, s.v), ARGUMENT, "Polygamma", "integer"),
    row("polygamma by n", lambda s: sg.polygamma(n=1, x=s.v), ARGUMENT, "Polygamma", "'n'"),
    row(
        "scalar_mul of a vector",
        lambda s: sg.scalar_mul(s.v, s.v),
        ARGUMENT,
        "scalar_mul",
        "scalar",
        "sg.multiply",
    ),
    row("polyval of no list", lambda s: sg.polyval(2.0, s.v), ARGUMENT, "polyval", "list"),
    row("polyval of text", lambda s: sg.polyval(["a"], s.v), DTYPE, "text"),
    row("order of complex numbers", lambda s: sg.is_non_decreasing(s.z), DTYPE, "real"),
    row("an unordered order", lambda s: sg.is_strictly_increasing(s.b), DTYPE, "real"),
    row("angle of text", lambda s: sg.angle("x"), DTYPE, "text"),
    # comparisons and bits
    row("less of complex numbers", lambda s: sg.less(s.z, s.z), DTYPE, "Less", "real"),
    row("and of numbers", lambda s: sg.logical_and(s.v, s.b), DTYPE, "LogicalAnd", "booleans"),
    row("not of integers", lambda s: sg.logical_not(s.i), DTYPE, "LogicalNot", "booleans"),
    row("bits of floats", lambda s: sg.bitwise_and(s.v, 1), DTYPE, "BitwiseAnd", "integers or booleans"),
    row("complement of floats", lambda s: sg.invert(s.v), DTYPE, "Invert", "integers or booleans"),
    row("shift of booleans", lambda s: sg.left_shift(s.b, s.b), DTYPE, "LeftShift", "integers"),
    row("shift by a float", lambda s: sg.right_shift(s.i, 1.5), DTYPE, "RightShift", "integers"),
    row("is_nan of text", lambda s: sg.is_nan("nan"), DTYPE, "IsNan", "text"),
    # conversion and choice
    row("where of numbers", lambda s: sg.where(s.v, s.v, s.v), DTYPE, "SelectV2", "condition must be bool"),
    in_graph("where alone", lambda s: sg.where(s.b), SHAPE, "size="),
    row("where with half", lambda s: sg.where(s.b, s.v), ARGUMENT, "SelectV2", "x and y"),
    row("where of shapes", lambda s: sg.where(s.b, s.u, 0.0), SHAPE, "SelectV2", "[3]", "[4]"),
    row("where of text", lambda s: sg.where(s.b, "a", s.v), DTYPE, "SelectV2", "text"),
    row("cast to an unknown dtype", lambda s: sg.cast(s.v, "float31"), DTYPE, "Cast", "float31", "float32"),
    row("cast to nothing", lambda s: sg.cast(s.v, None), DTYPE, "Cast", "None"),
    row("cast without a dtype", lambda s: sg.cast(s.v), ARGUMENT, "Cast", "dtype"),
    row("cast to text", lambda s: sg.cast(s.v, str), DTYPE, "Cast", "str"),
    row("cast of text", lambda s: sg.cast("1.0", sg.float32), DTYPE, "Cast", "text"),
    row(
        "cast named by a number",
        lambda s: sg.cast(s.v, "float32", name=1),
        GRAPH,
        "Cast",
        "cannot name",
    ),
    row("conj named by a number", lambda s: sg.conj(s.v, name=1), GRAPH, "Conj", "cannot name"),
    row(
        "complex of half floats", lambda s: sg.complex(s.half, s.half), DTYPE, "Complex", "float32 or float64"
    ),
    row("complex of complex", lambda s: sg.complex(s.z, s.v), DTYPE, "Complex"),
    row("real by x", lambda s: sg.real(x=s.z), ARGUMENT, "Real", "'x'"),
    # reductions
    *[
        row(f"{name} over axis 1 of a vector", lambda s, f=f: f(s.v, 1), SHAPE, "axis 1", "1 dimension")
        for name, f in REDUCTIONS.items()
    ],
    row("reduction over a word", lambda s: sg.reduce_sum(s.m, "rows"), SHAPE, "Sum", "is no axis"),
    row("reduction over half an axis", lambda s: sg.reduce_mean(s.m, 0.5), SHAPE, "Mean", "0.5 is no axis"),
    row("reduction over a flag", lambda s: sg.reduce_max(s.m, True), SHAPE, "Max", "True is no axis"),
    row("reduction over an axis twice", lambda s: sg.reduce_sum(s.m, (0, -2)), SHAPE, "Sum", "twice"),
    row(
        "reduction that may keep",
        lambda s: sg.reduce_sum(s.m, 0, "yes"),
        ARGUMENT,
        "Sum",
        "True or False",
        "yes",
    ),
    row("reduction that keeps 2", lambda s: sg.reduce_mean(s.m, 0, 2), ARGUMENT, "Mean", "True or False"),
    row("reduction of nothing", lambda s: sg.reduce_sum(), ARGUMENT, "Sum", "input_tensor"),
    row(
        "reduction by TensorFlow 1's name",
        lambda s: sg.reduce_sum(s.m, keep_dims=True),
        ARGUMENT,
        "Sum",
        "keep_dims",
    ),
    row(
        "reduction named by a number",
        lambda s: sg.reduce_sum(s.m, name=1),
        GRAPH,
        "Sum",
        "cannot name",
    ),
    row("sum over booleans", lambda s: sg.reduce_sum(s.b), DTYPE, "Sum", "numbers", "sg.cast"),
    row("product over booleans", lambda s: sg.reduce_prod(s.b), DTYPE, "Prod", "numbers"),
    row("maximum of booleans", lambda s: sg.reduce_max(s.b), DTYPE, "Max", "real"),
    row("any of numbers", lambda s: sg.reduce_any(s.v), DTYPE, "Any", "booleans"),
    row("all of integers", lambda s: sg.reduce_all(s.i), DTYPE, "All", "booleans"),
    row("argmax along no axis", lambda s: sg.argmax(s.m, 2), SHAPE, "ArgMax", "axis 2", "2 dimensions"),
    row("argmax along two axes", lambda s: sg.argmax(s.m, (0, 1)), SHAPE, "ArgMax", "no axis"),
    row("argmax of a scalar", lambda s: sg.argmax(s.s), SHAPE, "ArgMax", "axis 0"),
    row("argmax of nothing", lambda s: sg.argmax(s.none), SHAPE, "ArgMax", "no elements"),
    row(
        "argmin as floats", lambda s: sg.argmin(s.m, output_type="float32"), DTYPE, "ArgMin", "int32 or int64"
    ),
    row("argmax by dtype", lambda s: sg.argmax(s.m, dtype="int32"), ARGUMENT, "ArgMax", "dtype"),
    # shapes
    row("reshape to another count", lambda s: sg.reshape(s.m, [4]), SHAPE, "Reshape", "6", "4"),
    row("reshape to two unknowns", lambda s: sg.reshape(s.m, [-1, -1]), SHAPE, "Reshape", "-1 once"),
    row("reshape to -2", lambda s: sg.reshape(s.m, [-2, 3]), SHAPE, "Reshape", "negative"),
    row("reshape to halves", lambda s: sg.reshape(s.m, [1.5, 4]), SHAPE, "Reshape", "1.5", "no size"),
    row("reshape to thirds of rows", lambda s: sg.reshape(s.m, [4, -1]), SHAPE, "Reshape", "do not fit"),
    row("reshape without a shape", lambda s: sg.reshape(s.m), ARGUMENT, "Reshape", "shape"),
    row("transpose by one axis", lambda s: sg.transpose(s.m, [0]), SHAPE, "Transpose", "2 axes"),
    row("transpose by words", lambda s: sg.transpose(s.m, "ab"), ARGUMENT, "Transpose", "integer"),
    row("transpose by a number", lambda s: sg.transpose(s.m, 1), ARGUMENT, "Transpose", "help(sg.transpose)"),
    row(
        "transpose that may conjugate",
        lambda s: sg.transpose(s.m, None, "yes"),
        ARGUMENT,
        "Transpose",
        "conjugate",
    ),
    row("broadcast to fewer axes", lambda s: sg.broadcast_to(s.m, [3]), SHAPE, "BroadcastTo", "[3]"),
    row("broadcast to -1", lambda s: sg.broadcast_to(s.v, [-1, 3]), SHAPE, "BroadcastTo", "negative"),
    row("broadcast to a float", lambda s: sg.broadcast_to(s.v, [2.0, 3]), SHAPE, "BroadcastTo", "no size"),
    row("an axis too far", lambda s: sg.expand_dims(s.v, 3), SHAPE, "expand_dims", "axis 3"),
    row("an axis twice", lambda s: sg.expand_dims(s.v, (0, 0)), SHAPE, "expand_dims", "twice"),
    row("an axis of a word", lambda s: sg.expand_dims(s.v, "a"), SHAPE, "expand_dims", "no axis"),
    row("expand_dims without an axis", lambda s: sg.expand_dims(s.v), ARGUMENT, "expand_dims", "axis"),
    row("squeeze of size 3", lambda s: sg.squeeze(s.v, 0), SHAPE, "Reshape", "size 1"),
    row("squeeze of no axis", lambda s: sg.squeeze(s.v, 4), SHAPE, "squeeze", "axis 4"),
    row("squeeze of None in a list", lambda s: sg.squeeze(s.v, [None]), SHAPE, "squeeze", "no axis"),
    # values
    row("zeros of -1", lambda s: sg.zeros([-1]), SHAPE, "negative"),
    row("zeros of halves", lambda s: sg.zeros([0.5]), SHAPE, "no size"),
    row("zeros of an unknown dtype", lambda s: sg.zeros([2], "float31"), DTYPE, "float31"),
    row("ones named by a number", lambda s: sg.ones([2], name=1), GRAPH, "cannot name"),
    row("ones of a dtype as its shape", lambda s: sg.ones(sg.float32), SHAPE, "float32", "no size"),
    row("zeros like another dtype", lambda s: sg.zeros_like(s.v, "float31"), DTYPE, "float31"),
    row("zeros like text", lambda s: sg.zeros_like("abc"), DTYPE, "text"),
    row("zeros like, named by a number", lambda s: sg.zeros_like(s.v, name=1), GRAPH, "cannot name"),
    row("ones like a name", lambda s: sg.ones_like(s.v, "made"), DTYPE, "made"),
    row("fill with a vector", lambda s: sg.fill([2], s.v), SHAPE, "Fill", "scalar"),
    row("fill by shape", lambda s: sg.fill(shape=[2], value=1.0), ARGUMENT, "Fill", "shape"),
    row("fill with text", lambda s: sg.fill([2], "a"), DTYPE, "Fill", "text"),
    row("full of text", lambda s: sg.full([2], "a"), DTYPE, "text"),
    row("range by 0", lambda s: sg.range(0, 5, 0), SHAPE, "Range", "other than 0"),
    row("range to a word", lambda s: sg.range("n"), SHAPE, "Range", "numbers and sizes"),
    row("range to a vector", lambda s: sg.range(s.v), SHAPE, "Range", "numbers and sizes"),
    row("range of booleans", lambda s: sg.range(3, dtype="bool"), DTYPE, "Range", "numbers"),
    row("constant of text", lambda s: sg.constant("a"), DTYPE, "Const", "text"),
    row("constant that is ragged", lambda s: sg.constant([[1], [1, 2]]), DTYPE, "Const", "differ in length"),
    row(
        "constant of another count", lambda s: sg.constant([1, 2, 3], shape=[2, 2]), SHAPE, "Const", "[2, 2]"
    ),
    row("constant of an unknown dtype", lambda s: sg.constant(1, "int31"), DTYPE, "Const", "int31"),
    row(
        "constant of a float as an integer's list",
        lambda s: sg.constant({1: 2}),
        DTYPE,
        "Const",
        "Python objects",
    ),
    row("size along no axis", lambda s: sg.size(s.m, axis=2), SHAPE, "Size", "axis 2"),
    row("size of an unknown dtype", lambda s: sg.size(s.m, "rows"), DTYPE, "Size", "rows"),
    row("size by dtype", lambda s: sg.size(s.m, dtype="int64"), ARGUMENT, "Size", "dtype"),
    row("identity of nothing", lambda s: sg.identity(None), DTYPE, "Identity", "Python objects"),
    in_graph(
        "placeholder of unknown rank",
        lambda s: sg.placeholder("float32", None),
        SHAPE,
        "[None]",
        "dimensions",
    ),
    in_graph("placeholder of -1", lambda s: sg.placeholder("float32", [-1]), SHAPE, "negative", "None"),
    in_graph("placeholder of an unknown dtype", lambda s: sg.placeholder("real"), DTYPE, "real"),
    in_graph("parameter of a placeholder", lambda s: sg.parameter(s.v), GRAPH, "Parameter", "no value yet"),
    in_graph("parameter of a parameter", lambda s: sg.parameter(s.w), GRAPH, "Parameter", "no value yet"),
    in_graph("parameter of text", lambda s: sg.parameter("w"), DTYPE, "Parameter", "text"),
    in_graph("assign to a placeholder", lambda s: sg.assign(s.v, s.v), GRAPH, "Assign", "sg.parameter"),
    in_graph("assign of another shape", lambda s: sg.assign(s.w, s.u), SHAPE, "Assign", "[3]", "[4]"),
    in_graph("constant of a tensor", lambda s: sg.constant(s.v), GRAPH, "Const", "use it as it is"),
    # gates
    row(
        "a gate named by a number",
        lambda s: sg.stop_gradient(s.v, name=1),
        GRAPH,
        "StopGradient",
        "cannot name",
    ),
    row("a gate of nothing", lambda s: sg.stop_gradient(), ARGUMENT, "StopGradient", "input"),
    row("a gate by x", lambda s: sg.stop_gradient(x=s.v), ARGUMENT, "StopGradient", "'x'"),
    row("a stop when a float says so", lambda s: sg.stop_gradient(s.v, when=0.5), DTYPE, "when="),
    row("a stop when a vector says so", lambda s: sg.stop_gradient(s.v, when=s.b), DTYPE, "when=", "scalar"),
    in_graph("a stop towards a number", lambda s: sg.stop_gradient(s.v, wrt=3.0), GRAPH, "wrt=", "3.0"),
    in_graph("a stop towards a name", lambda s: sg.stop_gradient(s.v, wrt="v"), GRAPH, "wrt=", "'v'"),
    row("scaled by a vector", lambda s: sg.scale_gradient(s.v, s.v), SHAPE, "ScaleGradient", "scalar"),
    row("scaled by text", lambda s: sg.scale_gradient(s.v, "2"), DTYPE, "ScaleGradient", "text"),
    row("reversed by text", lambda s: sg.reverse_gradient(s.v, "2"), DTYPE, "reverse_gradient", "text"),
    row("clipped without an end", lambda s: sg.clip_gradient(s.v, -1.0), ARGUMENT, "ClipGradient", "high"),
    row("clipped complex", lambda s: sg.clip_gradient(s.z, -1.0, 1.0), DTYPE, "ClipGradient", "order"),
    row("clipped by a vector", lambda s: sg.clip_gradient(s.v, s.v, 1.0), SHAPE, "ClipGradient", "scalar"),
    row(
        "clipped to a norm of text",
        lambda s: sg.clip_gradient_norm(s.v, "1"),
        DTYPE,
        "ClipGradientByNorm",
        "text",
    ),
    row(
        "through two shapes", lambda s: sg.straight_through(s.v, s.u), SHAPE, "StraightThrough", "[3]", "[4]"
    ),
    row(
        "through two structures",
        lambda s: sg.straight_through([s.v], s.v),
        ARGUMENT,
        "straight_through",
        "structure",
    ),
    row("a probe without a name", lambda s: sg.probe(s.v), ARGUMENT, "Probe", "name"),
    row("a probe named by a number", lambda s: sg.probe(s.v, 3), ARGUMENT, "probe", "word", "3"),
    row(
        "a gradient of no function",
        lambda s: sg.custom_gradient(3.0),
        ARGUMENT,
        "custom_gradient",
        "function",
    ),
    # control flow
    row(
        "map_fn of other dtypes",
        lambda s: sg.map_fn(lambda x: x, s.v, fn_output_signature="int32"),
        DTYPE,
        "map_fn",
        "float32",
        "int32",
        "sg.cast",
    ),
    row(
        "map_fn without gradients",
        lambda s: sg.map_fn(lambda x: x, s.v, back_prop=False),
        ARGUMENT,
        "map_fn",
        "back_prop",
        "sg.stop_gradient",
    ),
    row(
        "map_fn without steps",
        lambda s: sg.map_fn(lambda x: x, s.v, parallel_iterations=0),
        ARGUMENT,
        "map_fn",
        "parallel_iterations",
    ),
    row(
        "while_loop that swaps",
        lambda s: sg.while_loop(lambda x: x < 3.0, lambda x: x + 1.0, [s.s], swap_memory=True),
        ARGUMENT,
        "while_loop",
        "swap_memory",
        "sg.checkpoint",
    ),
    row(
        "while_loop of shapes",
        lambda s: sg.while_loop(lambda x: x < 3.0, lambda x: x + 1.0, [s.s], [[None]]),
        ARGUMENT,
        "while_loop",
        "shape_invariants",
        "mask",
    ),
    row("cond without functions", lambda s: sg.cond(np.array(True)), ARGUMENT, "cond", "function"),
]


def lines_of(f: Any) -> set[int]:
    code = f.__code__
    return {line for *_, line in code.co_lines() if line} | {code.co_firstlineno}


def check_message(case: Row, message: str) -> None:
    missing = [part for part in case.says if part not in message]
    assert not missing, message
    named = {int(line) for line in re.findall(re.escape(HERE) + r":(\d+)", message)}
    assert named & lines_of(case.wrong), message
    assert f"{sg.__path__[0]}" not in message, message


def test_there_are_many_rows() -> None:
    assert len(ROWS) > 180
    assert len({case.name for case in ROWS}) == len(ROWS)


@together("case", ROWS, ids=repr)
def test_bad_input_is_refused_in_a_graph(case: Row) -> None:
    s = Setting()
    with s.graph.as_default(), pytest.raises(case.error) as caught:
        case.wrong(s)
    assert not isinstance(caught.value, sg.InternalError)
    check_message(case, str(caught.value))
    s.check_unharmed()


@together("case", [case for case in ROWS if case.immediately], ids=repr)
def test_bad_input_is_refused_immediately(case: Row) -> None:
    with pytest.raises(case.error) as caught:
        case.wrong(Arrays())
    assert not isinstance(caught.value, sg.InternalError)
    check_message(case, str(caught.value))
