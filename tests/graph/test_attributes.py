"""Attributes are held in one form, and told apart in every key: 1 from 1.0 and True, 0.0 from -0.0."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from all_engines import ENGINES, each_engine

import stopgrad as sg
from stopgrad.base.types import tensor_type
from stopgrad.graph import kinds
from stopgrad.graph.build import emit
from stopgrad.graph.inferred import infer_types
from stopgrad.graph.kinds import Kind
from stopgrad.graph.op import REGISTRY
from stopgrad.rewrite import merge, rewrite


def bits(x: float) -> bytes:
    return struct.pack("d", x)


# ------------------------------------------------------------------------- what is refused poisons nothing

MATRIX = "x: float32[2, 3] = Placeholder(dtype=float32, shape=(2, 3))\n"
VECTOR = "x: float32[2] = Placeholder(dtype=float32, shape=(2,))\n"
REFUSED = [
    "x: float32[1234] = Placeholder(dtype=float32, shape=(1234.0,))",
    "x: float32[1] = Placeholder(dtype=float32, shape=(True,))",
    "x: float32[0] = Placeholder(dtype=float32, shape=(-0.0,))",
    "x: float32[3] = Placeholder(dtype=float32, shape=3)",
    "x: float32[] = Placeholder(dtype='float32', shape=())",
    "x: float32[] = Placeholder(dtype=7, shape=())",
    "x: float32[] = Const(value=3.0)",
    MATRIX + "y: float32[2] = Sum(x, axis=(1.0,), keepdims=False)",
    MATRIX + "y: float32[2] = Sum(x, axis=(True,), keepdims=False)",
    MATRIX + "y: float32[2] = Sum(x, axis=(1,), keepdims=0.0)",
    MATRIX + "y: float32[2] = Sum(x, axis=1, keepdims=False)",
    MATRIX + "y: float32[2, 3] = Cumsum(x, axis=1.0, exclusive=False, reverse=False)",
    VECTOR + "y: float32[2] = LeakyRelu(x, alpha='0.5')",
    VECTOR + "y: float32[2] = LeakyRelu(x, alpha=True)",
    VECTOR + "y: float32[2] = Probe(x, label=7)",
]


@pytest.mark.parametrize("text", REFUSED)
def test_a_refused_text_leaves_no_trace_in_what_is_built_afterwards(text: str) -> None:
    with pytest.raises(sg.GraphError, match="does not read"):
        sg.Graph.from_text(text)
    for shape in ((1234,), (1,), (0,), (3,), ()):
        kind = tensor_type(sg.float32, shape)
        assert repr(kind) == f"float32[{', '.join(map(str, shape))}]"
        assert all(type(size) is int for size in kind.shape)
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder("float32", [2, 3])
        y = sg.cumsum(x, axis=1)
        z = sg.reduce_sum(x, axis=1)
    assert repr(y.op.axis) == "1"
    assert repr((z.op.axis, z.op.keepdims)) == "((1,), False)"
    assert sg.Graph.from_text(graph.to_text()).to_text() == graph.to_text()


def test_flags_that_a_text_writes_as_numbers_are_flags() -> None:
    text = (
        "x: float32[2, 3] = Placeholder(dtype=float32, shape=(2, 3))\n"
        "y: float32[2] = Sum(x, axis=(1,), keepdims=0)\n"
        "z: float32[2, 3] = LeakyRelu(x, alpha=2)\n"
    )
    graph = sg.Graph.from_text(text)
    assert "keepdims=False" in graph.to_text()
    assert "alpha=2.0" in graph.to_text()


@pytest.mark.parametrize(
    "size", [1234.0, 4321.5, True, np.float64(7_770_077.0), np.True_, "n", None, -1, 2**63]
)
def test_no_type_has_a_size_that_is_none(size: Any) -> None:
    with pytest.raises(sg.ShapeError):
        tensor_type(sg.float32, (770_019, size))  # No test has an equal type, which would be found.
    assert all(type(s) is int for s in tensor_type(sg.float32, (770_019, 1)).shape)


def test_a_type_asked_for_with_numpys_numbers_has_pythons() -> None:
    kind = tensor_type(sg.float32, (np.int64(770_077), np.uint8(3)))  # type: ignore[arg-type]
    assert kind is tensor_type(sg.float32, (770_077, 3))
    assert list(map(type, kind.shape)) == [int, int]


# ----------------------------------------------------------------------------------------- told apart


def slopes(graph: sg.Graph) -> list[bytes]:
    return [bits(op.alpha) for op in graph.operations if op.type == "LeakyRelu"]


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (math.nan, struct.unpack("d", b"\1\0\0\0\0\0\xf8\x7f")[0])]
)
def test_operations_whose_numbers_differ_in_a_bit_are_not_merged(one: float, other: float) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder("float32", [4])
        both = sg.leaky_relu(x, one) + sg.leaky_relu(x, other)
        twice = sg.leaky_relu(x, one) + sg.leaky_relu(x, one)
    assert slopes(rewrite([both], [x], [merge]).graph) == [bits(one), bits(other)]
    assert slopes(rewrite([twice], [x], [merge]).graph) == [bits(one)]


def test_what_is_built_for_gradients_is_not_shared_where_zeros_differ_in_sign() -> None:
    graph = sg.Graph()

    with graph.as_default():
        x = sg.placeholder("float32", [4])

        @sg.custom_gradient
        def f(x: Any) -> Any:
            return sg.exp(x), lambda g: sg.leaky_relu(g, 0.0) + sg.leaky_relu(g, -0.0)

        sg.gradients(f(x), [x])
    assert sorted(slopes(graph)) == sorted([bits(0.0), bits(-0.0)])


def test_the_sign_of_zero_reaches_the_engine() -> None:
    def f(x: Any) -> Any:
        return sg.stack([sg.leaky_relu(x, 0.0), sg.leaky_relu(x, -0.0)])

    for engine in ENGINES:
        found = sg.function(f, engine=engine)(np.array(-1.0))
        assert np.signbit(found).tolist() == [True, False]


def test_ranges_of_integers_and_floats_are_two() -> None:
    graph = sg.Graph()
    with graph.as_default():
        made = [sg.range(n, 6, dtype="float32") for n in (0, 0.0, -0.0)]
        x = sg.placeholder("float32", [6])
    found = rewrite([x, *made], [x], [merge])
    assert [repr(op.start) for op in found.graph.operations if op.type == "Range"] == ["0", "0.0", "-0.0"]


# ------------------------------------------------------------------------------------------- one form


def test_an_attribute_in_another_form_is_not_built_with() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder("float32", [11, 13])
    for axis in ((1.0,), (True,), (np.int64(1),)):
        with pytest.raises((sg.DefinitionError, sg.ArgumentError), match="axis is"):
            emit(REGISTRY["Max"], (x,), (axis, False))
    with pytest.raises((sg.DefinitionError, sg.ArgumentError), match="keepdims is"):
        infer_types(REGISTRY["Max"], (x.type,), ((1,), 0))
    assert len(graph) == 1


CASES = [
    (Kind.AXIS, np.int8(3), 3),
    (Kind.AXES, (np.int64(0), 1), (0, 1)),
    (Kind.SIZE, sg.dim("n"), sg.dim("n")),
    (Kind.SIZE, np.uint64(5), 5),
    (Kind.SHAPE, (np.int64(2), sg.dim("n")), (2, sg.dim("n"))),
    (Kind.SIZES, ((np.int64(-1), 2), np.str_("SAME")), ((-1, 2), "SAME")),
    (Kind.SCALAR, np.float32(0.5), 0.5),
    (Kind.SCALAR, np.int64(5), 5),
    (Kind.FLAG, np.True_, True),
    (Kind.FLAG, 1, True),
    (Kind.INTEGER, np.array(4), 4),
    (Kind.REAL, np.float32(0.25), 0.25),
    (Kind.REAL, 3, 3.0),
    (Kind.REAL, -0.0, -0.0),
    (Kind.WORD, np.str_("word"), "word"),
]
NOT = [
    (Kind.AXIS, 1.0),
    (Kind.AXIS, True),
    (Kind.AXES, 1),
    (Kind.AXES, [1]),
    (Kind.SIZE, 2**63),
    (Kind.SIZE, -1),
    (Kind.SIZE, 1.0),
    (Kind.SHAPE, (-1,)),
    (Kind.SHAPE, (None,)),
    (Kind.SIZES, ((1.0,),)),
    (Kind.SIZES, slice(1)),
    (Kind.SCALAR, True),
    (Kind.FLAG, 2),
    (Kind.FLAG, 1.0),
    (Kind.FLAG, None),
    (Kind.INTEGER, np.float64(4.0)),
    (Kind.INTEGER, np.True_),
    (Kind.REAL, "1.0"),
    (Kind.REAL, 1j),
    (Kind.REAL, 10**400),
    (Kind.WORD, b"word"),
    (Kind.DTYPE, "float32"),
    (Kind.ARRAY, 1.0),
    (Kind.BODY, 1),
    (Kind.BODIES, (1,)),
]


class OneAttribute(sg.graph.op.Op, abstract=True):
    """Stands for a definition with one attribute."""

    type = "OneAttribute"


def canonical(kind: Kind, value: Any) -> Any:
    definition = type("Taken", (OneAttribute,), {"kinds": {"value": kind}}, abstract=True)
    return definition.canonical([value])[0]


@pytest.mark.parametrize(("kind", "given", "plain"), CASES)
def test_an_attribute_has_one_plain_form(kind: Kind, given: Any, plain: Any) -> None:
    found = canonical(kind, given)
    assert repr(found) == repr(plain)
    assert type(found) is type(plain)
    assert repr(canonical(kind, found)) == repr(plain)


@pytest.mark.parametrize(("kind", "value"), NOT)
def test_what_is_not_of_its_kind_is_refused(kind: Kind, value: Any) -> None:
    with pytest.raises(sg.ArgumentError, match=r"value is .*, not"):
        canonical(kind, value)


def test_every_kind_has_a_form() -> None:
    assert set(kinds.CANONICAL) == set(Kind)


# ----------------------------------------------------------------------------- sizes that come out wrong


@each_engine
def test_a_size_divided_by_a_fed_zero_is_our_error(engine: str) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x, y = sg.placeholder("float32", ["n"]), sg.placeholder("float32", ["m"])
        quotient = sg.size(x) + sg.size(sg.zeros([sg.dim("n") // sg.dim("m")])) + sg.size(y)
    with sg.Session(graph, engine=engine) as session:
        assert session.run(quotient, {x: np.ones(4), y: np.ones(2)}) == 8
        with pytest.raises(sg.ShapeError, match=r"the size n//m has no value: m is 0 where m = 0, n = 4"):
            session.run(quotient, {x: np.ones(4), y: np.ones(0)})
        assert session.run(quotient, {x: np.ones(6), y: np.ones(3)}) == 11


@each_engine
def test_a_size_that_is_fed_negative_is_our_error(engine: str) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder("float32", ["n"])
        y = sg.zeros([sg.dim("n") - 3]) + sg.reduce_sum(x)
    with sg.Session(graph, engine=engine) as session:
        assert session.run(y, {x: np.ones(5)}).shape == (2,)
        with pytest.raises(sg.ShapeError, match=r"the size n - 3 is -1 where n = 2"):
            session.run(y, {x: np.ones(2)})
