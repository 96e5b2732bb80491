"""Calls on outputs like earlier ones build what those built; nothing else of these is remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base import source
from stopgrad.graph import build, memoized


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    calls: dict[Any, Any] = {}
    monkeypatch.setattr(memoized, "_CALLS", calls)
    return calls


def network(graph: sg.Graph) -> str:
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n", 4])
        w = sg.placeholder(sg.float32, [4, 4])
        for _ in range(3):
            h = x[:, 0] * 2.0 + 1 - np.float32(0.5)
            y = sg.where(x > 0, sg.softmax(x @ w, axis=-1), 0.0) ** 2
            z = sg.reduce_sum(sg.concat([y, x], 0), axis=[0, 1], keepdims=True)
            with sg.name_scope("inner"):
                sg.multiply(z, sg.reshape(h, [-1, 1]), name="product")
    return graph.to_text()


def test_what_is_repeated_equals_what_the_functions_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memoized, "repeated", lambda *_: None)
    monkeypatch.setattr("stopgrad.graph.public.repeated", lambda *_: None)
    built = network(sg.Graph())
    monkeypatch.undo()
    assert network(sg.Graph()) == built
    assert network(sg.Graph()) == built


def test_numbers_that_are_equal_to_python_are_told_apart() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [2])
        numbers = [0.0, -0.0, 0, False, 1, 1.0, True]
        for _ in range(2):
            found = [sg.maximum(x, number).op.inputs[1].op.values[0].array for number in numbers]
            assert [(a.dtype.name, str(a.item())) for a in found] == [
                *[("float32", text) for text in ("0.0", "-0.0", "0.0", "0.0", "1.0", "1.0", "1.0")]
            ]


def test_a_number_takes_part_in_promotion_each_time() -> None:
    graph = sg.Graph()
    with graph.as_default():
        whole, real = sg.placeholder(sg.int16, [2]), sg.placeholder(sg.float64, [2])
        for _ in range(2):
            assert [(x * 2.5).dtype for x in (whole, real)] == [sg.float32, sg.float64]
            assert [(x / 2).dtype for x in (whole, real)] == [sg.float32, sg.float64]
            assert [(x * np.float64(2)).dtype for x in (whole, real)] == [sg.float64, sg.float64]


def test_one_tensor_given_twice_says_nothing_of_two() -> None:
    graph = sg.Graph()
    with graph.as_default():
        a, b = [sg.placeholder(sg.float32, [2, 2], name=name) for name in "ab"]
        for x, y in ((a, a), (a, b), (b, a), (b, b)):
            assert sg.concat([x, y], 0).op.inputs == (x, y)
            assert sg.matmul(x, y, transpose_a=True).op.inputs == (x, y)


def test_a_constant_is_no_number_that_equals_it() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [])
        sg.add(x, 1.0)
        one = x.graph.operations[1].outputs[0]
        for y in (one, x):
            assert [z.op.type for z in (y - 1.0).op.inputs] == [y.op.type, "Const"]


def test_a_size_that_nobody_knows_is_another_one_in_each_call() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n", 4])
        first, second = [sg.reshape(x, [None, 2]).shape[0] for _ in range(2)]
        assert first is not second


def test_each_operation_has_the_line_and_the_scope_of_its_own_call() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3, 3])
        made = [sg.reduce_sum(x, axis=0)]
        made.append(sg.reduce_sum(x, axis=0))
        with sg.name_scope("layer"):
            made.append(sg.reduce_sum(x, axis=0))
        lines = [y.op.location.line for y in made]
        assert lines == [lines[0], lines[0] + 1, lines[0] + 3]
        assert [y.op.name for y in made] == ["Sum", "Sum_1", "layer/Sum"]


def test_a_name_that_waits_in_a_scope_goes_to_the_operation_that_always_gets_it() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3, 3])
        names = []
        for _ in range(2):
            with sg.Scope(graph).with_name("mine"):
                names.append(x[0].op.inputs[0].op.name)  # A slice, which is reshaped.
        assert names == ["mine", "mine_1"]


def test_an_interrupt_leaves_nothing_of_a_repeated_call(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3, 3])
        for _ in range(2):
            x[0]
        before = graph.to_text()
        calls = iter(range(9))

        def interrupted(*args: Any) -> Any:
            made = build.emit(*args)
            if next(calls) == 1:
                raise KeyboardInterrupt
            return made

        monkeypatch.setattr(memoized, "emit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            x[0]
        assert graph.to_text() == before


def test_what_no_code_of_python_called_has_no_line() -> None:
    assert source.capture(10_000) is None


def test_errors_are_those_of_the_function_itself() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x, y = sg.placeholder(sg.float32, [2, 3]), sg.placeholder(sg.float32, [4, 3])
        for _ in range(2):
            with pytest.raises(sg.ShapeError, match=r"MatMul: \(C2\)"):
                sg.matmul(x, y)
            with pytest.raises(sg.ShapeError, match="out of range"):
                x[5]
        other = sg.Graph()
        with other.as_default():
            z = sg.placeholder(sg.float32, [3, 2])
        x @ sg.transpose(y)
        with pytest.raises(sg.GraphError, match="MatMul: the operands belong to two graphs"):
            x @ z


def test_so_many_calls_are_remembered(monkeypatch: pytest.MonkeyPatch, remembered: dict[Any, Any]) -> None:
    graph = sg.Graph()
    with graph.as_default():
        monkeypatch.setattr(memoized, "CALLS", 8)
        x = sg.placeholder(sg.float32, [2, 3])
        for number in range(30):
            x * number
            assert len(remembered) <= 8
        assert remembered
