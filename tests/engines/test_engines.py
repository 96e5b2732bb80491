"""Engines: how they become known, and which of them runs a graph."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from stopgrad.errors import InternalError

import stopgrad as sg
from stopgrad.base.namespaces import NUMPY
from stopgrad.engines import ENGINES, PLAIN, Compiled, Engine, Variant, engine, register, registry
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.interpreter import NUMPY_BACKEND, Region, program
from stopgrad.graph.op import REGISTRY, Unsupported, unsupported

Make = Callable[..., type[Engine]]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes engines through NumPy, which are gone after the test."""
    known, made, formed = dict(ENGINES), dict(registry._INSTANCES), []

    def engine_class(name: str, **attributes: Any) -> type[Engine]:
        class Made(Engine):
            namespace = NUMPY
            priority = 1000

            def array(self, value: Any, dtype: np.dtype[Any]) -> Any:
                return np.asarray(value, dtype)

            def compile(
                self,
                inputs: Sequence[Output],
                outputs: Sequence[Output],
                donate: Sequence[int] = (),
                variant: Variant = PLAIN,
            ) -> Compiled:
                return program(inputs, outputs, self)

            def hold(self, array: Any) -> Any:
                return np.array(array)

            def is_native(self, x: Any) -> bool:
                return type(x) is np.ndarray

        Made.name = name
        for attribute, value in attributes.items():
            setattr(Made, attribute, value)
        register(Made)
        formed.extend((definition, name) for definition in Made.forms)
        return Made

    yield engine_class
    for definition, name in formed:
        delattr(definition, name)
    for table, old in ((ENGINES, known), (registry._INSTANCES, made)):
        table.clear()
        table.update(old)  # type: ignore[arg-type]


Tanh, Exp = REGISTRY["Tanh"], REGISTRY["Exp"]
OURS = ["xla", "onnxruntime", "numpy"]
NO_TANH = {Tanh: unsupported("it knows no tanh")}


# ---------------------------------------------------------------------------------------- registration


def test_the_engines_of_the_package_are_found_in_its_folders() -> None:
    assert list(ENGINES) == OURS
    assert {name: inspect.getmodule(kind).__name__ for name, kind in ENGINES.items()} == {  # type: ignore[union-attr]
        "xla": "stopgrad.engines.xla",
        "onnxruntime": "stopgrad.engines.onnxruntime",
        "numpy": "stopgrad.engines.numpy",
    }


def test_a_registered_engine_is_made_once_and_computes(make: Make) -> None:
    make("mine", priority=-1)
    assert list(ENGINES) == [*OURS, "mine"]
    assert engine("mine") is engine("mine")
    assert sg.function(lambda x: x * 2.0, engine="mine")(np.ones(2)).tolist() == [2.0, 2.0]


def test_engines_are_asked_in_the_order_of_their_priority(make: Make) -> None:
    make("first")
    make("between", priority=70)
    assert list(ENGINES) == ["first", "xla", "between", "onnxruntime", "numpy"]
    assert engine().name == "first"


@pytest.mark.parametrize("name", ["auto", "two words", "", "lower", "samples", "create", "numpy"])
def test_a_name_that_stands_for_something_else_is_refused(name: str, make: Make) -> None:
    with pytest.raises(sg.EngineError, match="take another name"):
        make(name)
    assert list(ENGINES) == OURS


def test_an_engines_form_of_an_operation_is_used_by_it_alone(make: Make) -> None:
    make("mine", forms={Exp: lambda xp, x: xp.full_like(x, 7.0)})
    values = {name: sg.function(sg.exp, engine=name)(0.0) for name in ("mine", "numpy", "xla")}
    assert values == {"mine": 7.0, "numpy": 1.0, "xla": 1.0}


def test_a_second_form_for_one_engine_is_refused_and_leaves_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tanh, "mine", Tanh.lower, raising=False)
    with pytest.raises(sg.EngineError, match="Tanh has a form for the engine 'mine' already"):
        make("mine", forms={Exp: lambda xp, x: x, Tanh: lambda xp, x: x})
    assert not hasattr(Exp, "mine")
    assert "mine" not in ENGINES


# ------------------------------------------------------------------------------------------------ auto


def test_auto_passes_over_what_is_not_installed(make: Make) -> None:
    make("mine", needs=("no_such_library",))
    assert engine().name == "xla"


def test_auto_passes_over_an_engine_that_cannot_run_the_graph(make: Make) -> None:
    make("mine", forms=NO_TANH)
    graph = Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [2], name="x")
        plain, curved = x + 1.0, sg.tanh(x)
    assert engine("auto", [plain.op]).name == "mine"
    assert engine("auto", [plain.op, curved.op]).name == "xla"


def test_an_operation_inside_a_body_counts(make: Make) -> None:
    make("mine", forms=NO_TANH)
    inner = Graph()
    with inner.as_default():
        a = sg.placeholder(sg.float64, [2])
        body = Body(inner, [a], [sg.tanh(a)])

    class Holder:
        """Stands for an operation that runs a body."""

        definition = type("Runs", (), {"lower": staticmethod(lambda xp, x: x), "has_bodies": True})
        values = (body,)

    assert "it knows no tanh" in (engine("mine").unsupported([Holder()]) or "")  # type: ignore[list-item]


def test_where_no_engine_can_the_error_says_why_for_each(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    make("mine", forms=NO_TANH)
    make("absent", needs=("no_such_library",))
    for name in ("numpy", "xla", "onnx"):  # The engine onnxruntime computes what is written as ONNX.
        monkeypatch.setattr(Tanh, name, Unsupported(f"not on {name}"), raising=False)
    with Graph().as_default() as graph:
        y = sg.tanh(sg.placeholder(sg.float64, [2], name="x"), name="bend")
    with pytest.raises(sg.EngineError) as caught, sg.Session(graph) as session:
        session.run(y, {"x": np.ones(2)})
    text = str(caught.value)
    assert "no engine can run this graph" in text
    for reason in (
        "mine: cannot compute Tanh 'bend' built at",
        "it knows no tanh",
        "not on xla",
        "not on onnx",
        "not on numpy",
    ):
        assert reason in text
    assert "absent: needs no_such_library, which is not installed" in text


# -------------------------------------------------------------------------------- sessions, functions


def test_a_session_moves_to_an_engine_that_can_and_keeps_its_values(make: Make) -> None:
    make("mine", forms=NO_TANH)
    with Graph().as_default() as graph:
        w = sg.parameter(np.zeros(2), name="w")
        x = sg.placeholder(sg.float64, [2], name="x")
        step = sg.assign(w, w + x)
        y = sg.tanh(w)
    with sg.Session(graph) as session:
        session.run(step, {x: np.ones(2)})
        assert session.engine == "mine"
        np.testing.assert_allclose(session.run(y), np.tanh([1.0, 1.0]))
        assert session.engine == "xla"
        session.run(step, {x: np.ones(2)})  # Compiled anew.
        assert session.engine == "xla"
        assert session.value(w).tolist() == [2.0, 2.0]


def test_arrays_of_the_engine_that_is_left_are_fed_to_the_next(make: Make) -> None:
    make("mine", forms={Tanh: lambda xp, x: np.tanh(_own(x))}, priority=70)
    xla = ENGINES["xla"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tanh, "xla", unsupported("not today"), raising=False)
        with Graph().as_default() as graph:
            x = sg.placeholder(sg.float32, [2])
            y = sg.tanh(x)
        assert engine().name == xla.name
        with sg.Session(graph) as session:
            got = session.run(y, {x: jnp.ones(2, "float32")})
            assert session.engine == "mine"
        np.testing.assert_allclose(got, np.tanh([1.0, 1.0]), rtol=1e-6)
        np.testing.assert_allclose(
            sg.function(lambda x: sg.tanh(x))(jnp.ones(2, "float32")), np.tanh([1.0, 1.0]), rtol=1e-6
        )


def _own(x: Any) -> Any:
    assert type(x) is np.ndarray
    return x


def test_a_function_takes_the_best_engine_for_each_signature(make: Make) -> None:
    make("mine", forms={Tanh: unsupported("it knows no tanh"), Exp: lambda xp, x: xp.full_like(x, 7.0)})
    f = sg.function(lambda x, curved: sg.tanh(x) if curved else sg.exp(x))
    assert f(0.0, False) == 7.0
    np.testing.assert_allclose(f(1.0, True), np.tanh(1.0), rtol=1e-6)
    assert f(0.0, False) == 7.0


def test_an_engine_asked_for_by_name_is_not_replaced(make: Make) -> None:
    make("mine", forms=NO_TANH)
    with pytest.raises(sg.EngineError, match=r"the mine engine cannot compute Tanh.*it knows no tanh"):
        sg.function(sg.tanh, engine="mine")(1.0)


def test_nothing_fetched_needs_nothing_of_an_engine() -> None:
    with sg.Session(Graph()) as session:
        assert session.run([]) == []


def test_an_engine_that_keeps_sizes_compiles_once_for_all_of_them(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = make("keeping", keeps_sizes=True)
    compiled: list[Any] = []
    compile = kind.compile

    def counted(self: Any, inputs: Sequence[Output], *more: Any) -> Compiled:
        compiled.append([x.shape for x in inputs])
        return compile(self, inputs, *more)

    monkeypatch.setattr(kind, "compile", counted)
    with sg.Graph().as_default() as graph:
        x, y = sg.placeholder(sg.float64, ["n"]), sg.placeholder(sg.float64, ["m"])
        z = sg.exp(x) * y
    with sg.Session(graph, engine="keeping") as session:
        for n in (1, 2, 5):
            assert session.run(z, {x: np.zeros(n), y: np.ones(n)}).tolist() == [1.0] * n
        with pytest.raises(sg.ShapeError, match="fed sizes"):
            session.run(z, {x: np.zeros(3), y: np.ones(2)})
    assert len(compiled) == 1
    assert any(isinstance(size, sg.Dim) for shape in compiled[0] for size in shape)


# ------------------------------------------------------------------------------------------- regions


def pair_of_operations() -> tuple[Output, Output]:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3])
        y = sg.exp(sg.negative(x)) + sg.sin(x)
    return x, y


def test_operations_of_a_region_are_one_step() -> None:
    x, y = pair_of_operations()
    calls = []

    def together(operations: Sequence[Operation], wanted: Sequence[Output]) -> list[Region]:
        negative, exp = (op for op in operations if op.type in ("Neg", "Exp"))

        def compute(value: Any) -> list[Any]:
            calls.append(value)
            return [np.exp(-value)]

        return [Region((negative, exp), (x,), exp.outputs, compute)]

    value = np.array([1.0, 2.0, 3.0], np.float32)
    (found,) = program([x], [y], NUMPY_BACKEND, together)([value])
    np.testing.assert_array_equal(found, np.exp(-value) + np.sin(value))
    assert len(calls) == 1


def test_what_nobody_reads_any_more_is_let_go() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3])
        first, second = sg.exp(x), sg.sin(x)
        unread = sg.cos(x)
        y = sg.tanh(sg.negative(first + second))
    made: list[Any] = []
    held: list[int] = []

    def together(operations: Sequence[Operation], wanted: Sequence[Output]) -> list[Region]:
        def compute(value: Any) -> list[Any]:
            results = [np.exp(value), np.cos(value), np.sin(value)]
            made.extend(map(weakref.ref, results))
            return results

        def look(value: Any) -> list[Any]:
            held.append(sum(known() is not None for known in made))
            return [np.tanh(value)]

        several = [first.op, unread.op, second.op]
        return [
            Region(several, (x,), (first, unread, second), compute),
            Region([y.op], y.op.inputs, (y,), look),
        ]

    value = np.array([1.0, 2.0, 3.0], np.float32)
    (found,) = program([x], [y], NUMPY_BACKEND, together)([value])
    np.testing.assert_array_equal(found, np.tanh(-(np.exp(value) + np.sin(value))))
    assert held == [0]


def test_a_region_that_needs_itself_is_a_defect_and_said() -> None:
    x, y = pair_of_operations()

    def together(operations: Sequence[Operation], wanted: Sequence[Output]) -> list[Region]:
        negative, exp, sin, add = operations
        return [Region((negative, add), (x, exp.outputs[0], sin.outputs[0]), add.outputs, lambda *a: [])]

    with pytest.raises(InternalError, match="depends on itself"):
        program([x], [y], NUMPY_BACKEND, together)
