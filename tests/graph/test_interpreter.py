"""The interpreter with an observer, which sees, replaces and skips operations, in bodies too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.graph.body import Body, walk
from stopgrad.graph.build import emit
from stopgrad.graph.graph import Operation
from stopgrad.graph.interpreter import (
    NUMPY_BACKEND,
    WRITTEN,
    Observer,
    Run,
    Step,
    compiled,
    computation,
    interpret,
    observed,
    program,
)

F = np.float32


class Watching(Observer):
    """Keeps what goes in and comes out, and the bodies around it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[Any], list[Any], tuple[str, ...]]] = []
        self.within: list[str] = []
        self.ready: list[str] = []

    def around(self, op: Operation, plain: Callable[[], Step]) -> Step:
        compute = plain()
        self.ready.append(op.type)

        def step(*arrays: Any) -> Sequence[Any]:
            made = list(compute(*arrays))
            self.seen.append((op.type, list(arrays), made, tuple(self.within)))
            return made

        return step

    def inside(self, op: Operation, body: Body, run: Run) -> Run:
        def entered(arrays: Sequence[Any]) -> list[Any]:
            self.within.append(op.type)
            made = run(arrays)
            self.within.pop()
            return made

        return entered


class Replacing(Observer):
    """Puts another function in the place of the operations of one type."""

    def __init__(self, type: str, step: Step) -> None:
        self.type, self.step = type, step

    def around(self, op: Operation, plain: Callable[[], Step]) -> Step | None:
        return self.step if op.type == self.type else None


def summed_in_a_scan() -> tuple[sg.Output, sg.Output, list[sg.Output]]:
    """x, the parts, and the results of a scan: c becomes sin(c) + part, and 2c is handed out."""
    x = sg.placeholder(sg.float32, (), name="x")
    parts = sg.placeholder(sg.float32, [3], name="parts")
    last, each = sg.scan(lambda c, part: (sg.sin(c) + part, c * 2.0), x, parts)
    return x, parts, [last, each]


def test_it_sees_operands_and_results_in_order() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [2])
        y = sg.exp(sg.sin(x))
    watching = Watching()
    (found,) = computation([x], [y], observer=watching)([np.array([0.5, 1.0], F)])
    np.testing.assert_array_equal(found, np.exp(np.sin(np.array([0.5, 1.0], F))))
    (first, second) = watching.seen
    assert (first[0], second[0], first[3]) == ("Sin", "Exp", ())
    np.testing.assert_array_equal(first[1][0], [0.5, 1.0])
    np.testing.assert_array_equal(second[1][0], first[2][0])


def test_it_enters_bodies_once_for_each_step_and_makes_them_ready_once() -> None:
    with sg.Graph().as_default():
        x, parts, ys = summed_in_a_scan()
        z = sg.cond(ys[0] > 0.0, lambda: sg.cos(ys[0]), lambda: sg.tanh(ys[0]))
    watching = Watching()
    given = [np.array(0.5, F), np.array([1.0, 2.0, 3.0], F)]
    found = computation([x, parts], [*ys, z], observer=watching)(given)
    for one, plain in zip(found, interpret([*ys, z], dict(zip([x, parts], given, strict=True))), strict=True):
        np.testing.assert_array_equal(one, plain)
    sines = [seen for seen in watching.seen if seen[0] == "Sin"]
    assert [around for *_, around in sines] == [("Scan",)] * 3
    np.testing.assert_array_equal(sines[0][1][0], 0.5)
    assert [seen[3] for seen in watching.seen if seen[0] == "Cos"] == [("Case",)]
    # A branch that is not taken is not run.
    assert "Tanh" not in [seen[0] for seen in watching.seen]
    assert watching.ready.count("Sin") == 1
    assert watching.within == []


def test_loops_in_loops() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ())

        def outer(c: Any) -> Any:
            inner = sg.while_loop(lambda d: d < 3.0, lambda d: sg.sqrt(d) + 2.0, c)
            return inner * 2.0

        y = sg.while_loop(lambda c: c < 20.0, outer, x)
    watching = Watching()
    computation([x], [y], observer=watching)([np.array(1.0, F)])
    assert {around for kind, _, _, around in watching.seen if kind == "Sqrt"} == {("While", "While")}


def test_it_replaces_results_also_in_bodies_and_of_several_outputs() -> None:
    with sg.Graph().as_default():
        x, parts, ys = summed_in_a_scan()
    given = [np.array(0.5, F), np.array([1.0, 2.0, 3.0], F)]
    # In float64, as NumPy might return it: what is handed on has the inferred dtype.
    more = Replacing("Sin", lambda c: [np.asarray(c, float) + 1.0])
    found = computation([x, parts], ys, observer=more)(given)
    assert [y.dtype for y in found] == [F, F]
    np.testing.assert_array_equal(found[0], 9.5)
    np.testing.assert_array_equal(found[1], [1.0, 5.0, 11.0])
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [4])
        low, high = sg.split(x, 2)
        y = low - high
    swapped = Replacing("Split", lambda v: [v[2:], v[:2]])
    (found,) = computation([x], [y], observer=swapped)([np.arange(4, dtype=F)])
    np.testing.assert_array_equal(found, [2.0, 2.0])


def test_what_is_replaced_is_never_made() -> None:
    asked: list[Any] = []

    class Instead(Observer):
        def around(self, op: Operation, plain: Callable[[], Step]) -> Step | None:
            asked.append(plain)
            return lambda x: [x + 1]

    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [2])
        y = sg.sin(x)
    (found,) = computation([x], [y], observer=Instead())([np.zeros(2, F)])
    np.testing.assert_array_equal(found, [1.0, 1.0])
    assert len(asked) == 1


def test_of_equal_operations_each_has_its_own() -> None:
    """Without an observer they share one function, which must not be so where they are told apart."""

    class Numbered(Observer):
        def __init__(self) -> None:
            self.count = 0

        def around(self, op: Operation, plain: Callable[[], Step]) -> Step | None:
            if op.type != "Sin":
                return None
            self.count += 1
            return lambda x, number=self.count: [x + F(number)]

        def inside(self, op: Operation, body: Body, run: Run) -> Run:
            return lambda arrays: [y * (2 if op.name == "second" else 1) for y in run(arrays)]

    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2])
        once = sg.checkpoint(sg.cos)(x)
        body = once.op.body
        twice = emit(once.op.definition, (x,), once.op.values, "second", graph).outputs[0]
        ys = [sg.sin(x), sg.sin(x), once, twice]
    assert ys[3].op.body is body
    found = computation([x], ys, observer=Numbered())([np.zeros(2, F)])
    assert [float(y[0]) for y in found] == [1.0, 2.0, 1.0, 2.0]


def test_loops_hand_on_whatever_stands_in_the_place_of_arrays() -> None:
    class Carried:
        def __init__(self, value: Any, steps: int) -> None:
            self.value, self.steps = value, steps

    class Counting(Observer):
        def around(self, op: Operation, plain: Callable[[], Step]) -> Step | None:
            if op.type != "Sin":
                return None
            compute = plain()

            def step(x: Any) -> list[Any]:
                value, steps = (x.value, x.steps) if isinstance(x, Carried) else (x, 0)
                return [Carried(compute(value)[0], steps + 1)]

            return step

    class Backend:
        name, namespace = NUMPY_BACKEND.name, NUMPY_BACKEND.namespace

        def array(self, value: Any, dtype: Any) -> Any:
            return value if isinstance(value, Carried) else np.asarray(value, dtype)

    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ())
        count = sg.constant(0)
        _, y = sg.while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, sg.sin(v)), (count, x))
    (found,) = program([x], [y], Backend(), observer=Counting())([np.array(0.5, F)])
    assert found.steps == 4
    np.testing.assert_array_equal(found.value, interpret([y], {x: np.array(0.5, F)})[0])


def test_sizes_by_name_for_a_graph_as_it_was_built() -> None:
    class Sized(Observer):
        sizes = {"n": 3}

    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["n", 2])
        flat = sg.reshape(x, [-1])
        ys = [flat, sg.scan(lambda c, row: (c + row, row * 2.0), sg.zeros([2]), x)[1]]
    assert any(y.type.symbolic for op in walk([y.op for y in ys]) for y in op.outputs)
    array = np.arange(6, dtype=F).reshape(3, 2)
    found = computation([x], ys, observer=Sized())([array])
    np.testing.assert_array_equal(found[0], array.reshape(-1))
    np.testing.assert_array_equal(found[1], array * 2.0)


def test_what_fails_in_an_observer_names_the_operation() -> None:
    def fails(x: Any) -> Any:
        raise FloatingPointError("too much")

    with sg.Graph().as_default():
        x, parts, ys = summed_in_a_scan()
    run = computation([x, parts], ys, observer=Replacing("Sin", fails))
    with pytest.raises(sg.EngineError, match=r"Sin .*test_interpreter\.py.*too much"):
        run([np.array(0.5, F), np.ones(3, F)])


def test_one_operation_alone() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [4])
        low = sg.split(x, 2)[0]
        y = sg.sin(x)
    array = np.arange(4, dtype=F)
    np.testing.assert_array_equal(observed(y.op, NUMPY_BACKEND, Observer())(array), np.sin(array))
    watching = Watching()
    np.testing.assert_array_equal(observed(y.op, NUMPY_BACKEND, watching)(array), np.sin(array))
    assert len(observed(low.op, NUMPY_BACKEND, watching)(array)) == 2
    assert [kind for kind, *_ in watching.seen] == ["Sin", "Split"]


# --------------------------------------------------------------------------------------- written out


def test_written_out_it_computes_the_same() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [4])
        n = sg.placeholder(sg.int32, [])
        low, high = sg.split(sg.sin(x), 2)
        ys = [low * high, x, sg.cast(n, sg.float64) / 0.0, low, low, sg.argmax(x)]
    arrays = [np.arange(4, dtype=F), np.array(3, np.int32)]
    found, expected = compiled([x, n], ys)(*arrays), computation([x, n], ys)(arrays)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert compiled([], [])() == []


def test_written_out_its_errors_name_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Exception] = []

    def fail(xp: Any, x: Any) -> Any:
        raise raised[0]

    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [2])
        y = sg.tan(sg.sin(x) * 2.0, name="bend") + 1.0
    monkeypatch.setattr(sg.ops.Tan, "lower", staticmethod(fail))
    run = compiled([x], [y])
    for error, kind in ((ValueError("odd"), sg.EngineError), (KeyError("odd"), sg.InternalError)):
        raised[:] = [error]
        with pytest.raises(
            kind, match=r"(?s)could not compute Tan 'bend' built at .*test_interpreter.*odd"
        ) as e:
            run(np.ones(2, F))
        assert e.value.__cause__ is error
    with pytest.raises(TypeError):  # Not an operation's.
        run()


def test_written_out_where_a_signal_comes_in_between() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [2])
        y = x
        for _ in range(20):
            y = sg.sin(y)
    run = compiled([x], [y])
    left = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename.endswith(":written"):
            left -= 1
            if not left:
                raise TimeoutError
        return trace

    before = sys.gettrace()
    for line in range(1, 24):  # Where the function begins, its operations, and where it returns.
        left = line
        sys.settrace(trace)
        try:
            with pytest.raises((TimeoutError, sg.EngineError)) as caught:
                run(np.ones(2, F))
        finally:
            sys.settrace(before)
        assert TimeoutError in (type(caught.value), type(caught.value.__cause__))
    np.testing.assert_array_equal(run(np.ones(2, F))[0], interpret([y], {x: np.ones(2, F)})[0])


def test_long_programs_and_those_with_bodies_are_run_step_by_step() -> None:
    with sg.Graph().as_default():
        x, parts, ys = summed_in_a_scan()
        z = x
        for _ in range(WRITTEN + 1):
            z = sg.negative(z)
    arrays = [np.array(0.5, F), np.ones(3, F)]
    for outputs in (ys, [z]):
        found = compiled([x, parts], outputs)(*arrays)
        np.testing.assert_array_equal(found[0], computation([x, parts], outputs)(arrays)[0])
