"""Graphs as text and as files read back as what they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.build import emit
from stopgrad.op import REGISTRY
from stopgrad.operands import Literal
from stopgrad.samples import Sample, Values
from stopgrad.types import dim
from stopgrad.verify import verify


def small_graph() -> tuple[sg.Graph, sg.Output, sg.Output, sg.Output]:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n", 3], name="x")
        w = sg.parameter(np.arange(3, dtype=np.float32), name="w")
        loss = sg.reduce_sum(sg.exp(x * w)[1:], name="loss")
        (dw,) = sg.gradients(loss, [w])
    assert dw is not None
    return graph, x, loss, dw


def test_the_text_shows_operations_operands_attributes_and_origins() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n"], name="x")
        sg.gradients(sg.stop_gradient(x, name="gate") * sg.exp(x), [x])
    assert graph.to_text() == (
        "x: float32[n] = Placeholder(dtype=float32, shape=(n,))\n"
        "gate: float32[n] = StopGradient(x)\n"
        "Exp: float32[n] = Exp(x)\n"
        "Mul: float32[n] = Mul(gate, Exp)\n"
        "gradients/Const: float32[] = Const(value=array(1.0)) for Mul\n"
        "gradients/Fill: float32[n] = Fill(gradients/Const, shape=(n,)) for Mul\n"
        "gradients/Mul: float32[n] = Mul(gradients/Fill, gate) for Mul\n"
        "gradients/Mul_1: float32[n] = Mul(gradients/Mul, Exp) for Exp\n"
    )


def definitions_with_samples() -> list[tuple[str, Sample]]:
    return [(name, sample) for name, definition in REGISTRY.items() for sample in definition.samples]


@pytest.mark.parametrize(
    ("name", "sample"), definitions_with_samples(), ids=lambda p: p if isinstance(p, str) else repr(p)
)
def test_every_operation_reads_back(name: str, sample: Sample) -> None:
    definition = REGISTRY[name]
    graph = sg.Graph()
    with graph.as_default():
        inputs = []
        for i, operand in enumerate(sample.operands):
            shape = [dim(s) if isinstance(s, str) else s for s in operand.shape]
            dtype = operand.dtype if isinstance(operand, Values) else str(operand.dtype)
            inputs.append(sg.placeholder(dtype, shape, name=f"operand{i}"))
        values = tuple(sample.attributes[a] for a in definition.attributes)
        emit(definition, tuple(inputs), values, "made")
    text = graph.to_text()
    read = sg.Graph.from_text(
        text,
        {
            f"made.{a}": v.array
            for a, v in zip(definition.attributes, values, strict=True)
            if isinstance(v, Literal)
        },
    )
    assert read.to_text() == text
    verify(read)
    made, again = graph.operation_or_raise("made"), read.operation_or_raise("made")
    assert made.attributes == again.attributes
    assert [y.type for y in made.outputs] == [y.type for y in again.outputs]


def test_a_file_keeps_values_names_types_and_lines(tmp_path: Path) -> None:
    graph, _, loss, dw = small_graph()
    graph.save(tmp_path / "graph")
    again = sg.Graph.load(tmp_path / "graph")
    assert again.to_text() == graph.to_text()
    for old, new in zip(graph.operations, again.operations, strict=True):
        assert repr(old.location) == repr(new.location)
        assert (old.origin and old.origin.name) == (new.origin and new.origin.name)
    batch = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    with sg.Session(graph) as one, sg.Session(again) as other:
        np.testing.assert_array_equal(
            one.run([loss, dw], {"x": batch})[1], other.run([loss.name, dw.name], {"x": batch})[1]
        )


def test_large_constants_and_unusual_values_are_kept_bit_for_bit(tmp_path: Path) -> None:
    payload = np.array([0x7FC00001, 0x80000000, 0x7F800000], np.uint32).view(np.float32)
    large = np.random.default_rng(0).normal(size=(20, 30))
    graph = sg.Graph()
    with graph.as_default():
        a = sg.constant(payload, name="a")
        b = sg.constant(large, name="b")
        c = sg.cast(sg.constant(np.linspace(0, 1, 40), sg.bfloat16, name="c"), sg.float32, name="d")
    graph.save(tmp_path / "graph")
    again = sg.Graph.load(tmp_path / "graph")
    with sg.Session(graph, "numpy") as one, sg.Session(again, "numpy") as other:
        for x in (a, b, c):
            assert one.run(x).tobytes() == other.run(x.name).tobytes()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = y", "expected"),
        ("x: float32[] = Nothing()", "no operation type 'Nothing'"),
        ("x: float32[] = Exp(y)", "no earlier operation is named 'y'"),
        ("x: float32[2] = Placeholder(dtype=float32, shape=(3,))", "its type follows as float32\\[3\\]"),
        (
            "x: float32[] = Placeholder(dtype=float32, shape=())\n"
            "x: float32[] = Placeholder(dtype=float32, shape=())",
            "line 2.*stands twice",
        ),
        ('x: float32[2] = Const(value=array("x.value"))', "not in the text"),
        ("x: float32[n.__class__] = Placeholder(dtype=float32, shape=(n,))", "no part of a value"),
    ],
)
def test_text_that_does_not_read_says_which_line_and_why(text: str, reason: str) -> None:
    with pytest.raises(sg.GraphError, match=f"(?s){reason}"):
        sg.Graph.from_text(text)


def test_a_custom_gradient_is_saved_with_what_its_function_does(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    graph, *_ = small_graph()
    with graph.as_default():
        sg.custom_gradient(lambda v: (v * 2.0, lambda g: g * 7.0))(graph.output("x"))
    graph.save(path)
    read = sg.Graph.load(path)
    (dx,) = sg.gradients(read.output("CustomGradient"), [read.output("x")])
    assert "0x" not in graph.to_text()
    with sg.Session(read) as session:
        x = np.zeros([s if isinstance(s, int) else 2 for s in dx.shape], dx.dtype.numpy)
        assert (session.run(dx, {"x": x}) == 7.0).all()


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    graph, *_ = small_graph()
    graph.save(path)
    before = path.read_bytes()

    def fails(g):
        raise ValueError("no gradient today")

    with graph.as_default():
        sg.custom_gradient(lambda v: (v * 2.0, fails))(graph.output("x"))
    with pytest.raises(ValueError, match="no gradient today"):
        graph.save(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_graph_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    with pytest.raises(sg.GraphError, match="no file of arrays"):
        sg.Graph.load(tmp_path / "other.npz")
    graph, *_ = small_graph()
    with sg.Session(graph) as session:
        session.save(tmp_path / "values")
    with pytest.raises(sg.GraphError, match="holds no graph"):
        sg.Graph.load(tmp_path / "values")
