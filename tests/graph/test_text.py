"""Graphs as text and as files read back as what they were."""

from __future__ import annotations

import gc
import linecache
import re
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from together import together

import stopgrad as sg
from stopgrad.base import sizes
from stopgrad.base.samples import Sample, Values
from stopgrad.base.types import TensorType, dim
from stopgrad.graph.body import bodies_in
from stopgrad.graph.build import emit
from stopgrad.graph.op import REGISTRY, Op
from stopgrad.graph.operands import Literal
from stopgrad.graph.verify import verify


def small_graph() -> tuple[sg.Graph, sg.Output, sg.Output, sg.Output]:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n", 3], name="x")
        w = sg.parameter(np.arange(3, dtype=np.float32), name="w")
        loss = sg.reduce_sum(sg.exp(x * w)[1:], name="loss")
        (dw,) = sg.gradients(loss, [w])
    assert dw is not None
    return graph, x, loss, dw


def test_places_along_an_axis_are_integers_in_a_text_too() -> None:
    text = "x: float32[2] = Placeholder(dtype=float32, shape=(2,))\n"
    text += "i: float32[2] = Placeholder(dtype=float32, shape=(2,))\n"
    with pytest.raises(sg.GraphError, match="integers as indices"):
        sg.Graph.from_text(f"{text}y: float32[2] = TakeAlongAxis(x, i, axis=0)")


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


@together(
    ("name", "sample"),
    definitions_with_samples(),
    ids=lambda p: p if isinstance(p, str) else repr(p),
    parts=2,
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


# ------------------------------------------------------------------------------------- bit for bit

NANS = {
    "float16": np.array([0x7E00, 0x7C01, 0xFE00, 0x8000, 0x7C00], np.uint16),
    "bfloat16": np.array([0x7FC0, 0x7F81, 0xFFC0, 0x8000, 0xFF80], np.uint16),
    "float32": np.array([0x7FC00000, 0x7F800001, 0xFFC00001, 0x80000000, 1], np.uint32),
    "float64": np.array([0x7FF8 << 48, (0x7FF0 << 48) + 1, 0xFFF8 << 48, 1 << 63, 1], np.uint64),
    "complex64": np.array([0x7FC00000, 0x80000000, 0x80000000, 0x7F800001], np.uint32),
    "complex128": np.array([0x7FF8 << 48, 1 << 63, 1 << 63, (0x7FF0 << 48) + 1], np.uint64),
}


@pytest.mark.parametrize("form", ["text", "file"])
@pytest.mark.parametrize("dtype", NANS)
def test_unusual_values_come_back_with_their_bits(dtype: str, form: str, tmp_path: Path) -> None:
    bits = NANS[dtype].view(sg.base.types.dtype_of(dtype).numpy)
    usual = np.array([1.5, -0.0, np.inf, -np.inf, np.nan]).astype(bits.dtype)
    with sg.Graph().as_default() as graph:
        sg.constant(bits, name="bits")
        sg.constant(usual, name="usual")
        sg.constant(bits[:1].reshape(()), name="scalar")
        sg.constant(usual[:0].reshape(0, 7), name="empty")
        sg.constant(np.resize(bits, 40), name="many") if form == "file" else None
    if form == "file":
        graph.save(tmp_path / "graph")
        again = sg.Graph.load(tmp_path / "graph")
    else:
        again = sg.Graph.from_text(graph.to_text())
    assert len(again) == len(graph)
    for old, new in zip(graph.operations, again.operations, strict=True):
        assert old.value.array.tobytes() == new.value.array.tobytes()
        assert old.value.array.dtype == new.value.array.dtype
        assert old.value.array.shape == new.value.array.shape


def test_usual_values_are_written_as_numbers() -> None:
    with sg.Graph().as_default() as graph:
        sg.constant([1.0, -0.0, float("inf"), float("nan")], name="a")
        sg.constant(complex(-0.0, float("-inf")), name="b")
        sg.constant(np.array([1.5, 2.0]), sg.bfloat16, name="c")
        sg.constant([[True], [False]], name="d")
    assert graph.to_text() == (
        "a: float32[4] = Const(value=array([1.0, -0.0, inf, nan]))\n"
        "b: complex64[] = Const(value=array(complex(-0.0, -inf)))\n"
        "c: bfloat16[2] = Const(value=array([1.5, 2.0]))\n"
        "d: bool[2, 1] = Const(value=array([[True], [False]]))\n"
    )


@pytest.mark.parametrize(
    "value", [0.1, -0.0, float("inf"), float("-inf"), float("nan"), 1e-320, np.float32(0.1)]
)
def test_float_attributes_come_back_with_their_bits(value: float) -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [], name="x")
        emit(REGISTRY["LeakyRelu"], (x,), REGISTRY["LeakyRelu"].canonical((value,)), "y")
    again = sg.Graph.from_text(graph.to_text()).operation_or_raise("y")
    assert type(again.alpha) is float
    assert struct.pack("d", again.alpha) == struct.pack("d", float(value))


@pytest.mark.parametrize(
    "bits", ["7ff8000000000001", "fff8000000000000", "7ff0000000000001", "8000000000000000"]
)
def test_nans_with_a_message_are_attributes_too(bits: str) -> None:
    value = struct.unpack(">d", bytes.fromhex(bits))[0]
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [], name="x")
        emit(REGISTRY["LeakyRelu"], (x,), (value,), "y")
    again = sg.Graph.from_text(graph.to_text()).operation_or_raise("y")
    assert struct.pack(">d", again.alpha).hex() == bits


WORDS = ["", "a'b", 'a"b', "a'\"b", "\\", "\\n", "\n\r\t\x00\x1f\x7f\x85\u2028", "\ud800", "\ud83d\ude00"]
WORDS += ["\U0001f600", "), for x", "' = ", ") inside no_gradient 1", "é", "x" * 100_000]


@pytest.mark.parametrize("message", WORDS, ids=lambda word: repr(word)[:20])
def test_words_come_back_as_they_were(message: str, tmp_path: Path) -> None:
    with sg.Graph().as_default() as graph:
        sg.prevent_gradient(sg.placeholder(sg.float32, [], name="x"), message, name="y")
    graph.save(tmp_path / "graph")
    for again in (sg.Graph.from_text(graph.to_text()), sg.Graph.load(tmp_path / "graph")):
        assert again.operation_or_raise("y").message == message


def test_names_of_all_characters_come_back() -> None:
    names = [
        "a_b",
        ".a",
        "0",
        "a.b-c>d/e\\f",
        "a->b",
        "Exp",
        "Exp_1",
        "graph",
        "array",
        "x" * 65_000,
        "nan",
        "1e5",
    ]
    with sg.Graph().as_default() as graph:
        xs = [sg.placeholder(sg.float32, [], name=name) for name in names]
        sg.gradients(sg.add_n([sg.exp(x) for x in xs]), xs)
    again = sg.Graph.from_text(graph.to_text())
    assert [op.name for op in again.operations] == [op.name for op in graph.operations]
    assert again.to_text() == graph.to_text()


@pytest.mark.slow
def test_sizes_of_3000_terms_come_back(tmp_path: Path) -> None:
    with sg.Graph().as_default() as graph:
        xs = [sg.placeholder(sg.float32, [None if i % 2 else f"n{i}"], name=f"x{i}") for i in range(3000)]
        sg.concat(xs, 0, name="y")
        sg.reshape(sg.concat(xs[:200], 0), [-1, 1], name="z")
    graph.save(tmp_path / "graph")
    again = sg.Graph.load(tmp_path / "graph")
    assert again.to_text() == graph.to_text()
    assert repr(again.output("y").shape[0]).count("+") == 2999


@pytest.fixture
def doubled() -> Iterator[type[Op]]:
    class Doubled(Op):
        """A user's own operation."""

        @staticmethod
        def infer(x: TensorType, *, times: int, of: str) -> TensorType:
            return x

        gradient = {"x": lambda g, op: g}
        lower = lambda xp, x, times, of: x * times
        samples = ()

    yield Doubled
    del REGISTRY["Doubled"]


def test_an_operation_of_the_users_comes_back(doubled: type[Op], tmp_path: Path) -> None:
    with sg.Graph().as_default() as graph:
        emit(doubled, (sg.placeholder(sg.float32, ["n"], name="x"),), (10**300, "é(=)"), "y")
    graph.save(tmp_path / "graph")
    again = sg.Graph.load(tmp_path / "graph").operation_or_raise("y")
    assert again.definition is doubled
    assert again.values == (10**300, "é(=)")


# ----------------------------------------------------------------------- refused when it is written


def test_what_no_text_can_hold_is_refused_when_it_is_written_with_its_line(
    doubled: type[Op], tmp_path: Path
) -> None:
    def refused(build: Callable[[sg.Output], object], why: str) -> None:
        with sg.Graph().as_default() as graph:
            build(sg.placeholder(sg.float32, ["n"], name="x"))
        for write in (graph.to_text, lambda: graph.save(tmp_path / "graph")):
            with pytest.raises(sg.GraphError, match=f"(?s)'y'.*test_text.py.*cannot be written: .*{why}"):
                write()
        assert list(tmp_path.iterdir()) == []

    refused(lambda x: emit(doubled, (x,), (10**500, ""), "y"), "more than 400 digits")
    refused(lambda x: sg.placeholder(sg.float32, [1] * 65, name="y"), "more than 64 axes")
    refused(lambda x: emit(REGISTRY["Sum"], (x,), ((-1,), True), "y"), "axis is")


def test_deep_sizes_are_refused_when_they_are_written() -> None:
    size: sg.Dim | int = dim("n")
    for _ in range(1001):
        size = (size + 3) // 2
    with sg.Graph().as_default() as graph:
        sg.placeholder(sg.float32, [size], name="y")
    with pytest.raises(sg.GraphError, match="cannot be written: in a size, more than 1000 quotients"):
        graph.to_text()


# ----------------------------------------------------------------------------------- locations


def test_a_loaded_graph_shows_its_lines_without_opening_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text("import stopgrad as sg\nwith graph.as_default():\n    y = sg.exp(sg.sin(x))\n")
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [], name="x")
    exec(compile(script.read_text(), str(script), "exec"), {"graph": graph, "x": x})
    graph.save(tmp_path / "graph")
    script.unlink()
    linecache.clearcache()
    opened: list[str] = []
    monkeypatch.setattr(linecache, "getline", lambda file, line: opened.append(file) or "")
    monkeypatch.setattr(linecache, "getlines", lambda file, *_: opened.append(file) or [])
    again = sg.Graph.load(tmp_path / "graph")
    assert repr(again.operation_or_raise("Exp").location) == f"{script}:3"
    assert again.operation_or_raise("Exp").location.describe() == f"{script}:3: sg.exp(sg.sin(x))"  # type: ignore[union-attr]
    assert again.operation_or_raise("Sin").location.source == "sg.sin(x)"  # type: ignore[union-attr]
    assert opened == []


def test_a_location_in_a_file_is_never_opened(tmp_path: Path) -> None:
    graph, *_ = small_graph()
    path = tmp_path / "graph"
    graph.save(path)
    data = path.read_bytes()
    own = __file__.encode()
    path.write_bytes(data.replace(own, b"/dev/zero".ljust(len(own), b" ")))
    again = sg.Graph.load(path)
    for op in again.operations:
        assert op.location is not None
        assert op.location.file.startswith("/dev/zero")
        assert op.location.source == graph.operation_or_raise(op.name).location.source  # type: ignore[union-attr]


def test_the_lines_of_no_gradient_blocks_are_saved(tmp_path: Path) -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [], name="x")
        with sg.no_gradient():
            sg.exp(x, name="y")
            with sg.no_gradient():
                sg.sin(x, name="z")
    graph.save(tmp_path / "graph")
    again = sg.Graph.load(tmp_path / "graph")
    shown = []
    for g in (graph, again):
        with g.as_default():
            sg.add_n([g.output(name) for name in "xyz"])
        shown.append([repr(op.location) for op in g.operations if op.type == "StopGradient"])
    assert shown[0] == shown[1]
    assert len(set(shown[0])) == 2


def test_what_operations_of_other_graphs_were_made_for_is_kept() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [3], name="x")
        y, _ = sg.scan(lambda h, v: (sg.sin(h) * v, h), sg.constant(1.0), x)
        sg.gradients(y, [x])
    again = sg.Graph.from_text(graph.to_text())

    def origins(graph: sg.Graph) -> list[str]:
        operations = [
            op
            for outer in graph.operations
            for body in bodies_in(outer.values)
            for op in body.graph.operations
        ]
        return [f"{op.name} for {op.origin.name}" for op in operations if op.origin is not None]

    assert origins(again) == origins(graph)
    assert len(origins(graph)) > 3


# ------------------------------------------------------------------------------------- hostile texts

LONG = "+".join(f"a{i}" for i in range(3000))


def sized(size: str) -> str:
    return f"x: float32[{size}] = Placeholder(dtype=float32, shape=({size},))"


X = sized("n") + "\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (sized("9**3000000"), "a power is that of a size, with an exponent of at most 64"),
        (sized("n**1000000"), "exponent of at most 64"),
        (sized("*".join(["n"] * 100_000)), "the product of more than 64 sizes"),
        (sized(f"({LONG})*({LONG.replace('a', 'b')})"), "more than 10000 names"),
        (sized("+".join(["n"] * 10**6)), "a sum of more than 10000 terms"),
        (sized("max(" * 5000 + "n" + ", 0)" * 5000), "more than 1000 brackets"),
        (sized("n" + "//2" * 10_000), "more than 1000 quotients"),
        (sized("(" * 10**6), "more than 1000 brackets"),
        (sized("9" * 10**6), "more than 400 digits"),
        (sized(str(2**63)), "no array has a size beyond"),
        (sized("-1"), "size -1 is negative"),
        (sized("n//0"), "divided by 0"),
        (sized("6//0"), "divided by 0"),
        (sized("n % 2"), "no part of a value"),
        (sized("f(n)"), r"nothing is written f\(...\)"),
        (sized("max(n, m)"), "max takes a size and an integer"),
        (sized("n if m else k"), "expected"),
        (sized("'n'"), "only sizes are computed with"),
        (sized("1.5"), "only sizes are computed with"),
        (sized("True"), "only sizes are computed with"),
        (sized("lambda"), "cannot name a size"),
        ("x: float32[1234] = Placeholder(dtype=float32, shape=(1234.0,))", "shape is a tuple of the sizes"),
        ("x: float32[2] = Placeholder(dtype=float32)", "the attribute 'shape' is missing"),
        ("x: float32[2] = Placeholder(dtype=float32, shape=(2,), shape=(2,))", "'shape' stands twice"),
        ("x: float32[2] = Placeholder(dtype=float32, shape=(2,), size=2)", "'size' is unknown"),
        ("x: float33[2] = Placeholder(dtype=float33, shape=(2,))", "'float33' is no element type"),
        (f"x: ({'9' * 5000},)float32[2] = Exp(x)", "is no type, as"),
        ("x: " + "float32[n], " * 70_000 + "float32[n] = Exp(x)", "more than 65536 outputs"),
        (sized(", ".join(["1"] * 65)), "more than 64 axes"),
        (X + X, "(?s)line 2.*'x' stands twice"),
        (X + "y: float32[n] = Exp(y)", "no earlier operation is named 'y'"),
        (X + "y: float32[n] = Exp(x:1)", "has 1 outputs"),
        (X + "y: float32[n] = Exp(x, x)", "takes 1 operands, not 2"),
        (X + "y: float32[n] = Exp()", "takes 1 operands, not 0"),
        (X + "y: float32[n] = AddN()", "cannot take such|needs at least|at least"),
        (X + "y: float32[n] = Exp(x) for z", "no earlier operation is named 'z'"),
        (X + "y: float32[n] = Exp(x) for", "neither a no_gradient block nor an origin"),
        (X + f"y: float32[n] = Exp(x) inside no_gradient {'1/' * 300}1", "names no no_gradient block"),
        (X + "y: float32[1] = Sum(x, axis=(1,), keepdims=True)", "axis is|axis 1 does not exist"),
        (X + "y: float32[1] = Sum(x, axis=(0, 0), keepdims=True)", "axis is"),
        (X + "y: float32[1] = Max(x, axis=(-1,), keepdims=True)", "axis is"),
        (X + "y/: float32[n] = Exp(x)", "cannot name an operation"),
        (
            f"{'x' * 70_000}: float32[2] = Placeholder(dtype=float32, shape=(2,))",
            "more than 65536 characters",
        ),
        ("x: int8[1] = Const(value=array([300]))", "300 is no int8"),
        ("x: int8[1] = Const(value=array([1.0]))", "1.0 is no int8"),
        ("x: bool[1] = Const(value=array([1]))", "1 is no bool"),
        ("x: float32[] = Const(value=array(True))", "True is no float32"),
        ("x: int32[2, 2] = Const(value=array([[1, 2], [3]]))", "another shape"),
        ("x: int32[4000000000, 4000000000] = Const(value=array([]))", "another shape"),
        ("x: int32[4000000000, 4000000000] = Const(value=array(hex('00')))", "1 bytes are not those"),
        ("x: float32[n] = Const(value=array([]))", "no unknown sizes"),
        ("x: bool[1] = Const(value=array(hex('02')))", "bytes of booleans are 0 and 1"),
        ("graph 1 {\n" * 2, "graph 1 stands twice"),
        ("".join(f"graph {i} {{\n" for i in range(1000)), "more than 200 graphs"),
        ("graph 1 {", "a closing brace is missing"),
        ("}", "there is no graph to close"),
    ],
    ids=lambda p: p[:30] if len(p) < 10_000 else p[-30:],
)
def test_hostile_texts_are_refused_at_once(text: str, why: str) -> None:
    start = time.process_time()
    with pytest.raises(sg.GraphError, match=why) as caught:
        sg.Graph.from_text(text)
    assert time.process_time() - start < 2
    assert re.match(r"line \d+ of the graph's text does not read|the graph's text ends", str(caught.value))
    assert len(str(caught.value)) < 2000


H = "  h: float32[] = Placeholder(dtype=float32, shape=())\n"
OUTER = "c: int32[] = Const(value=array(0))\nx: float32[] = Placeholder(dtype=float32, shape=())\n"


@pytest.mark.parametrize(
    ("inner", "body", "why"),
    [
        (H, "body(2, ('h',), ('h',))", "graph 2 does not stand before it"),
        (H, "body(1, ('h', 'h'), ('h',))", "each one once"),
        (H + "  y: float32[] = Exp(h)\n", "body(1, ('y',), ('y',))", "parameters of a body are placeholders"),
        (H + H.replace("h:", "g:"), "body(1, ('h',), ('g',))", "'g' needs more than the body's parameters"),
        (
            H + "  w: float32[] = Parameter(value=array(1.0))\n  y: float32[] = Mul(h, w)\n",
            "body(1, ('h',), ('y',))",
            "'y' needs more than the body's parameters",
        ),
        (H, "body(1, ('h',), ('x',))", "no earlier operation is named 'x'"),
        (H, "body(1, 'h', ('h',))", "body takes the number of a graph"),
        (H, "body('1', ('h',), ('h',))", "does not stand before it"),
        (H, "body(1, (1,), ('h',))", "1 names no operation"),
        (H, "array(1.0)", "branches is a tuple of closed graphs"),
        (
            H + "  r: float32[] = Case(h, branches=(body(1, ('h',), ('h',)),))\n",
            "body(1, ('h',), ('h',))",
            "graph 1 does",
        ),
    ],
)
def test_bodies_are_closed(inner: str, body: str, why: str) -> None:
    text = f"graph 1 {{\n{inner}}}\n{OUTER}y: float32[] = Case(c, x, branches=({body},))"
    with pytest.raises(sg.GraphError, match=why):
        sg.Graph.from_text(text)


def interned() -> list[int]:
    """How many types, sizes and names there are."""
    gc.collect()
    tables = (sg.base.types._TYPES, sizes._DIMS, sizes._SYMBOLS)
    for table in tables:
        table.sweep()
    return list(map(len, tables))


def test_a_refused_text_leaves_no_trace() -> None:
    with pytest.raises(sg.GraphError):
        sg.Graph.from_text("x: float32[87654] = Placeholder(dtype=float32, shape=(87654.0,))")
    size = (
        sg.Graph.from_text("x: float32[87654] = Placeholder(dtype=float32, shape=(87654,))")
        .output("x")
        .shape[0]
    )
    assert type(size) is int
    before = interned()
    for text in (sized("q1*q2 + q3//2"), sized(LONG) + "?"):
        with pytest.raises(sg.GraphError):
            sg.Graph.from_text(text.replace("Placeholder", "Exp"))
    assert interned() == before


@pytest.mark.slow
def test_reading_and_writing_take_time_in_proportion() -> None:
    def seconds(count: int) -> float:
        with sg.Graph().as_default() as graph:
            y = sg.placeholder(sg.float32, ["n", 3], name="x")
            for _ in range(count // 2):
                y = sg.reduce_sum(sg.exp(y), axis=1, keepdims=True)
        start = time.process_time()
        sg.Graph.from_text(graph.to_text())
        return time.process_time() - start

    assert min(seconds(20_000) for _ in range(3)) < 25 * min(seconds(2_000) for _ in range(3))


@pytest.mark.parametrize(
    "geometry",
    [
        "ksize=(2,), strides=(1,), padding='SAME', dilations=(-2147483648,)",
        "ksize=(2,), strides=(1,), padding='VALID', dilations=(0,)",
        "ksize=(2,), strides=(-1,), padding='SAME', dilations=(1,)",
        "ksize=(2,), strides=(0,), padding='SAME', dilations=(1,)",
        "ksize=(-3,), strides=(1,), padding='VALID', dilations=(1,)",
        "ksize=(2,), strides=(1,), padding=((-1, 1),), dilations=(1,)",
        "ksize=(2,), strides=(1,), padding=((1, n),), dilations=(1,)",
        "ksize=(2,), strides=(1,), padding='OTHER', dilations=(1,)",
        "ksize=(2,), strides=((1,),), padding='SAME', dilations=(1,)",
    ],
)
def test_windows_that_reach_beyond_the_array_are_refused(geometry: str) -> None:
    x = "x: float64[2, 4, 3] = Placeholder(dtype=float64, shape=(2, 4, 3))\n"
    for call in (
        "AvgPool(x",
        "MaxPool(x",
        "MaxPoolGrad(x, x",
        "MaxPoolGradGrad(x, x",
        "AvgPoolGrad(x, shape=(2, 4, 3)",
    ):
        with pytest.raises(sg.GraphError, match=r"line 2 .*(\(C3\)|cannot take such)"):
            sg.Graph.from_text(f"{x}y: float64[2, 4, 3] = {call}, {geometry})")
