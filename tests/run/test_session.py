"""Sessions: fetches, parameters, assignment, saving, several sessions, one compilation per signature."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from all_engines import each_engine_plainly
from safetensors import safe_open

import stopgrad as sg
from stopgrad import engines
from stopgrad.engines.numpy import NumPyEngine
from stopgrad.engines.xla import XlaEngine
from stopgrad.graph.files import write_arrays

F32 = np.float32


class Swap:
    """Two parameters that exchange their values, and a counter."""

    def __init__(self) -> None:
        self.graph = sg.Graph()
        with self.graph.as_default():
            self.a = sg.parameter(np.array([1.0, 2.0], F32), name="a")
            self.b = sg.parameter(np.array([3.0, 4.0], F32), name="b")
            self.count = sg.parameter(0, name="count")
            self.to_a = sg.assign(self.a, self.b, name="to_a")
            self.to_b = sg.assign(self.b, self.a, name="to_b")
            self.tick = sg.assign(self.count, self.count + 1, name="tick")
            self.x = sg.placeholder(sg.float32, ["n"], name="x")
            self.total = sg.reduce_sum(self.x, name="total") + sg.reduce_sum(self.a)


# ------------------------------------------------------------------------------------------- fetches

Pair = namedtuple("Pair", ["first", "second"])


@dataclass
class Both:
    x: Any
    y: Any


@each_engine_plainly
def test_fetches_come_back_in_their_structure(engine: str) -> None:
    s = Swap()
    with sg.Session(s.graph, engine=engine) as session:
        feed = {s.x: [1.0, 1.0]}
        assert session.run(s.total, feed) == 5.0
        assert session.run("total:0", feed) == 2.0
        assert session.run("total", feed) == 2.0
        assert session.run(s.total.op, feed) == 5.0
        assert session.run([s.total, (s.count, "count")], feed) == [5.0, (0, 0)]
        found = session.run({"t": s.total, "deep": [s.count, {"again": s.total}]}, feed)
        assert found == {"t": 5.0, "deep": [0, {"again": 5.0}]}
        assert session.run(Pair(s.count, s.total), feed) == Pair(0, 5.0)
        assert session.run(Both(s.count, [s.total]), feed) == Both(0, [5.0])
        assert session.run([], feed) == []
        assert session.run({}) == {}
        assert session.run([None, s.count]) == [None, 0]
        value = session.run(s.total, feed)
        assert type(value) is np.ndarray
        assert (value.dtype, value.shape) == (F32, ())


@each_engine_plainly
def test_feeds_are_found_by_output_operation_and_name(engine: str) -> None:
    s = Swap()
    with sg.Session(s.graph, engine=engine) as session:
        for key in (s.x, s.x.op, "x", "x:0"):
            assert session.run("total", {key: [2.0]}) == 2.0


def test_the_default_graph_is_taken() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.constant(2.0)
        with sg.Session(engine="numpy") as session:
            assert session.graph is graph
            assert session.run(x * x) == 4.0


def test_auto_is_the_best_that_is_installed() -> None:
    with sg.Session(sg.Graph()) as session:
        assert session.engine == "xla"


# ------------------------------------------------------------------------------- parameters and assign


@each_engine_plainly
def test_an_assignment_takes_effect_when_the_run_has_ended(engine: str) -> None:
    s = Swap()
    with sg.Session(s.graph, engine=engine) as session:
        assert session.run([s.tick, s.count, s.tick]) == [1, 0, 1]
        assert session.run(s.count) == 1
        assert session.value(s.count) == session.value("count") == 1
        session.run(s.total, {s.x: [0.0]})
        assert session.value(s.count) == 1


@each_engine_plainly
def test_two_parameters_exchange_their_values_in_one_run(engine: str) -> None:
    s = Swap()
    with sg.Session(s.graph, engine=engine) as session:
        for _ in range(3):
            session.run([s.to_a, s.to_b])
        np.testing.assert_array_equal(session.run([s.a, s.b]), [[3.0, 4.0], [1.0, 2.0]])


@each_engine_plainly
def test_an_assignment_behind_what_is_fetched_counts(engine: str) -> None:
    s = Swap()
    with s.graph.as_default():
        report = s.tick * 10
    with sg.Session(s.graph, engine=engine) as session:
        assert session.run(report) == 10
        assert session.value(s.count) == 1


@each_engine_plainly
def test_feeding_an_assignments_value_skips_it(engine: str) -> None:
    s = Swap()
    with s.graph.as_default():
        report = s.tick * 10
    with sg.Session(s.graph, engine=engine) as session:
        assert session.run(report, {s.tick: 5}) == 50
        assert session.value(s.count) == 0


@each_engine_plainly
def test_arrays_fetched_earlier_stay_what_they_were(engine: str) -> None:
    graph = sg.Graph()
    with graph.as_default():
        w = sg.parameter(np.zeros(1000, F32))
        step = sg.assign(w, w + 1.0)
        twice = w * 2.0
    with sg.Session(graph, engine=engine) as session:
        seen = [session.run([w, step, twice]) for _ in range(5)]
        values = [session.value(w) for _ in range(2)]
        session.run(step)
    for i, (before, after, double) in enumerate(seen):
        np.testing.assert_array_equal(before, np.full(1000, i, F32))
        np.testing.assert_array_equal(after, np.full(1000, i + 1, F32))
        np.testing.assert_array_equal(double, np.full(1000, 2 * i, F32))
    np.testing.assert_array_equal(values, np.full((2, 1000), 5, F32))


@each_engine_plainly
def test_writing_into_a_fetched_array_changes_nothing_else(engine: str) -> None:
    s = Swap()
    with sg.Session(s.graph, engine=engine) as session:
        got = session.run([s.a, s.to_a, s.a])
        for array in got:
            array[:] = -1.0
        np.testing.assert_array_equal(session.run(s.a), [3.0, 4.0])
        np.testing.assert_array_equal(session.run(s.b), [3.0, 4.0])


@each_engine_plainly
def test_several_sessions_over_one_graph_have_values_of_their_own(engine: str) -> None:
    s = Swap()
    with sg.Session(s.graph, engine=engine) as one, sg.Session(s.graph, engine=engine) as two:
        one.run(s.tick)
        one.run(s.tick)
        assert (one.run(s.count), two.run(s.count)) == (2, 0)
        with s.graph.as_default():
            later = s.count + 100  # the graph may grow while sessions are open
        assert (one.run(later), two.run(later)) == (102, 100)


def test_engines_agree_step_by_step() -> None:
    with sg.Graph().as_default() as graph:
        w = sg.parameter(np.linspace(-1.0, 1.0, 6).reshape(2, 3))
        x = sg.placeholder(sg.float64, ["n", 2])
        loss = sg.reduce_mean(sg.square(sg.tanh(x @ w)))
        (dw,) = sg.gradients(loss, [w])
        step = sg.assign(w, w - 0.5 * dw)
    batches = [np.random.default_rng(i).normal(size=(3 + i % 2, 2)) for i in range(6)]
    with sg.Session(graph, engine="numpy") as one, sg.Session(graph, engine="xla") as two:
        for batch in batches:
            np.testing.assert_allclose(
                one.run([loss, step], {x: batch})[0], two.run([loss, step], {x: batch})[0], rtol=1e-12
            )
        np.testing.assert_allclose(one.value(w), two.value(w), rtol=1e-12)


def test_threads_share_a_session() -> None:
    s = Swap()
    with sg.Session(s.graph, engine="numpy") as session:
        threads = [
            threading.Thread(target=lambda: [session.run(s.tick) for _ in range(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.value(s.count) == 200


# --------------------------------------------------------------------------------------- compilation


@pytest.mark.parametrize("kind", [NumPyEngine, XlaEngine])
def test_one_compilation_per_signature(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: Counter[str] = Counter()
    original = kind.compile
    monkeypatch.setattr(
        kind, "compile", lambda self, *args: compiled.update([self.name]) or original(self, *args)
    )
    s = Swap()
    with sg.Session(s.graph, engine=kind.name) as session:
        for size in (2, 3, 2, 3, 2):
            session.run(s.total, {s.x: np.ones(size)})
        assert compiled.total() == 2  # one for each size
        session.run([s.total], {s.x: np.ones(2)})
        assert compiled.total() <= 3
        before = compiled.total()
        for _ in range(3):
            session.run(s.tick)
        session.run(s.tick, {})
        assert compiled.total() == before + 1
        session.run(s.total, {s.x: np.ones(2, np.float64)})  # converted first, so no signature of its own
        session.run(s.total, {s.x: [1.0, 1.0]})
        assert compiled.total() == before + 1


def test_engines_are_made_once() -> None:
    assert engines.engine("numpy") is engines.engine("numpy")


# --------------------------------------------------------------------------------------------- files

EVERY = {
    "half": np.array([1.5, -2.0], np.float16),
    "brain": np.array([1.0, 1.0078125, np.nan], ml_dtypes.bfloat16),
    "single": np.array([[0.1, np.inf]], F32),
    "double": np.array(0.1),
    "complex": np.array([1 + 2j], np.complex64),
    "count": np.array(7, np.int64),
    "small": np.array([-128], np.int8),
    "flag": np.array([True, False]),
    "layer/empty": np.zeros((0, 3), F32),
}


@each_engine_plainly
def test_save_and_restore_give_back_every_bit(engine: str, tmp_path: Path) -> None:
    graph = sg.Graph()
    with graph.as_default():
        parameters = {name: sg.parameter(value, name=name) for name, value in EVERY.items()}
        spoil = [sg.assign(p, sg.zeros_like(p)) for p in parameters.values()]
    path = tmp_path / "w.safetensors"
    with sg.Session(graph, engine=engine) as session:
        session.save(path)
        session.run(spoil)
        assert session.value("count") == 0
        session.restore(path)
        session.restore(str(path))
        for name, expected in EVERY.items():
            got = session.value(parameters[name])
            assert got.dtype == expected.dtype
            assert got.shape == expected.shape
            assert got.tobytes() == expected.tobytes()
        session.run(spoil)  # what was restored may be overwritten like any other value
    with sg.Session(graph, engine=engine) as fresh:
        fresh.restore(path)
        assert fresh.value("double") == 0.1
    with safe_open(path, "numpy") as stored:
        assert set(stored.keys()) == set(EVERY)
        np.testing.assert_array_equal(stored.get_tensor("single"), EVERY["single"])


def test_restore_takes_all_or_nothing(tmp_path: Path) -> None:
    s = Swap()
    path = tmp_path / "w.safetensors"
    good = {"a": np.full(2, 9.0, F32), "b": np.full(2, 8.0, F32), "count": np.int32(5)}
    wrong = {
        "lacks": ({k: v for k, v in good.items() if k != "count"}, "no value of Parameter 'count'.*has a, b"),
        "shape": (good | {"count": np.zeros(1, np.int32)}, r"int32\[1\].*Parameter 'count'"),
        "dtype": (good | {"b": np.full(2, 8.0)}, r"float64\[2\].*Parameter 'b'"),
    }
    with sg.Session(s.graph, engine="numpy") as session:
        session.run(s.tick)
        for arrays, message in wrong.values():
            write_arrays(path, arrays)
            with pytest.raises(sg.GraphError, match=message):
                session.restore(path)
            assert session.run([s.count, s.a])[0] == 1
            np.testing.assert_array_equal(session.value(s.a), [1.0, 2.0])
        # Values for which there is no parameter are left alone.
        write_arrays(path, {**good, "more": np.zeros(1)})
        session.restore(path)
        assert session.run(s.count) == 5
        with pytest.raises(FileNotFoundError, match="nowhere"):
            session.restore(tmp_path / "nowhere.safetensors")
        with pytest.raises(FileNotFoundError):
            session.save(tmp_path / "nowhere" / "w.safetensors")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    s = Swap()
    path = tmp_path / "w.safetensors"
    with sg.Session(s.graph, engine="numpy") as session:
        session.save(path)
        session.run(s.tick)
        whole = path.read_bytes()
        for length in (0, 10, len(whole) // 2, len(whole) - 3):
            path.write_bytes(whole[:length])
            with pytest.raises(sg.GraphError, match=r"w\.safetensors is no file"):
                session.restore(path)
        assert session.value(s.count) == 1


# ---------------------------------------------------------------------------------------------- close


def test_close_is_final_and_may_be_repeated() -> None:
    s = Swap()
    session = sg.Session(s.graph, engine="numpy")
    session.run(s.tick)
    session.close()
    session.close()
    for use in (
        lambda: session.run(s.count),
        lambda: session.value(s.count),
        lambda: session.save("x"),
        lambda: session.restore("x"),
    ):
        with pytest.raises(sg.GraphError, match="closed"):
            use()
    with sg.Session(s.graph, engine="numpy") as another:
        assert another.run(s.count) == 0


def test_a_session_closes_after_an_error() -> None:
    s = Swap()
    with pytest.raises(sg.FeedError), sg.Session(s.graph, engine="numpy") as session:
        session.run(s.total)
    with pytest.raises(sg.GraphError, match="closed"):
        session.run(s.count)


@each_engine_plainly
def test_a_fetched_array_is_not_the_parameter_itself(engine: str) -> None:
    graph = sg.Graph()
    with graph.as_default():
        w = sg.parameter(np.ones(3))
        step = sg.assign(w, w * 2.0)
    with sg.Session(graph, engine) as session:
        fetched, again = session.run([step, step])
        fetched[...] = 7.0
        np.testing.assert_array_equal(again, [2.0, 2.0, 2.0])
        np.testing.assert_array_equal(session.run(w), [2.0, 2.0, 2.0])


@each_engine_plainly
def test_results_can_be_written_and_change_nothing_else(engine: str) -> None:
    given = np.ones((100, 100), np.float32)  # More than what is copied.
    both = sg.function(lambda x: (x, x, sg.transpose(x), x + 1.0, sg.zeros((100, 100))), engine=engine)
    for _ in range(2):
        found = both(given)
        for i, array in enumerate(found):
            array[...] = -i
        assert [array[0, 0] for array in found] == [0, -1, -2, -3, -4]
        assert (given == 1).all()
    with sg.Graph().as_default() as graph:
        w, v = sg.parameter(given, name="w"), sg.parameter(2 * given, name="v")
        fixed = sg.constant(5 * given)
        swap = [sg.assign(w, v), sg.assign(v, w)]
    with sg.Session(graph, engine) as session:
        for k in range(3):
            found = session.run([w, v, fixed, *swap])
            expected = [1.0, 2.0] if k % 2 == 0 else [2.0, 1.0]
            assert [array[0, 0] for array in found] == [*expected, 5.0, *expected[::-1]]
            for array in found:
                array[...] = -7.0


def test_results_of_functions_that_compute_at_once_can_be_written() -> None:
    for made in (
        sg.zeros((2, 3)),
        sg.ones([3]),
        sg.broadcast_to(np.ones(1), (3,)),
        sg.meshgrid(np.ones(2), np.ones(3))[0],
        sg.grad(lambda x: sg.reduce_sum(x))(np.ones(3)),
        sg.scan(lambda c, x: (c, x), 0.0, np.ones(3))[1],
    ):
        made += 1


@each_engine_plainly
def test_a_probe_that_is_fetched_by_its_name_is_its_gradient(engine: str) -> None:
    with sg.Graph().as_default() as graph:
        w = sg.parameter(np.array([1.0, 2.0]), name="w")
        hidden = sg.probe({"h": w * 3.0}, "hidden")["h"]
        loss = sg.reduce_sum(hidden * hidden)
        none = pytest.raises(sg.GraphError, match=r"no gradient has been generated .* 'hidden/h:0'")
        with sg.Session(graph, engine) as session, none:
            session.run("hidden/h")
        sg.gradients(loss, [w])
        with sg.Session(graph, engine) as session:
            np.testing.assert_array_equal(session.run("hidden/h"), [6.0, 12.0])
            np.testing.assert_array_equal(session.run("hidden/h:0"), [3.0, 6.0])
        sg.gradients(loss * 2.0, [w])
        with sg.Session(graph, engine) as session, pytest.raises(sg.GraphError, match="several gradients"):
            session.run("hidden/h")


# ------------------------------------------------------------------------------- what is kept


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NumPyEngine, XlaEngine])
def test_the_computations_used_last_are_kept(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    original = kind.compile

    def compile(self: Any, *args: Any) -> Any:
        compiled.append(args)
        run = original(self, *args)
        alive.add(run)
        return run

    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    monkeypatch.setattr(kind, "compile", compile)
    s = Swap()
    with sg.Session(s.graph, engine=kind.name, cache_size=3) as session:
        for n in (1, 2, 3):
            session.run(s.total, {s.x: np.ones(n)})
        session.run(s.total, {s.x: np.ones(1)})
        session.run(s.total, {s.x: np.ones(4)})  # 2 goes
        assert len(compiled) == 4
        for n in (1, 3, 4):
            session.run(s.total, {s.x: np.ones(n)})
        assert len(compiled) == 4
        gc.collect()
        assert len(alive) == 3
        for fetches in ([s.count], [s.a, s.b], [s.b, s.a], {"a": s.a}, [s.tick]):
            session.run(fetches)
        gc.collect()
        assert len(alive) == 3
        session.run(s.total, {s.x: np.ones(1)})
        assert session.value(s.count) == 1


@each_engine_plainly
def test_a_session_that_is_dropped_is_freed_at_once(engine: str) -> None:
    s = Swap()
    session = sg.Session(s.graph, engine=engine)
    session.run([s.total, s.tick, s.to_a, s.to_b], {s.x: [1.0]})
    gone = weakref.ref(session)
    gc.collect()
    gc.disable()
    try:
        del session
        assert gone() is None
    finally:
        gc.enable()


def test_xla_writes_new_values_where_old_ones_were() -> None:
    """Two sets of buffers take turns: the values, and those before them."""
    graph = sg.Graph()
    with graph.as_default():
        w = sg.parameter(np.zeros(1 << 20, F32), name="w")
        touched = sg.reduce_max(sg.assign(w, w + 1.0))
    with sg.Session(graph, engine="xla") as session:
        session.run(touched)
        places = set()
        for _ in range(20):
            session.run(touched)
            places.add(session._state.values[w].unsafe_buffer_pointer())
        assert len(places) == 2


def test_views_that_numpy_has_of_old_values_stay_what_they_were() -> None:
    """What xla hands out shares memory with it; that memory is not written to while NumPy has it."""
    graph = sg.Graph()
    with graph.as_default():
        w = sg.parameter(np.zeros(1 << 14, F32))
        step = sg.assign(w, w + 1.0)
    with sg.Session(graph, engine="xla") as session:
        seen = []
        for i in range(1, 40):
            fetched = session.run([step, w, step])
            held = np.asarray(session._state.values[w])  # As save takes them.
            seen.append((i, [fetched[0], fetched[2], held]))
            if i % 3 == 0:
                del seen[0]
        for i, arrays in seen:
            assert all((array == i).all() for array in arrays)


@each_engine_plainly
def test_values_may_change_places_any_number_of_times(engine: str) -> None:
    s = Swap()
    with s.graph.as_default():
        both = [sg.assign(s.a, s.x[:2], name="x_to_a"), sg.assign(s.b, s.x[:2], name="x_to_b")]
    with sg.Session(s.graph, engine=engine) as session:
        for i in range(7):
            session.run([s.to_a, s.to_b])
            assert session.value(s.a)[0] == (3.0 if i % 2 == 0 else 1.0)
        for i in range(5):
            session.run(both, {s.x: np.full(2, i, F32)})
            session.run(s.to_a)
            assert session.value(s.a).tolist() == session.value(s.b).tolist() == [i, i]


def test_a_run_like_the_last_one_asks_for_what_it_says_now() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x, y = (sg.placeholder(sg.float32, [2], name=name) for name in "xy")
        total, product = x + y, x * y
    a, b = np.array([1.0, 2.0], np.float32), np.array([3.0, 5.0], np.float32)
    with sg.Session(graph, engine="numpy") as session:
        asked: list[Any] = [total, product]
        inside = {"p": total}
        for _ in range(2):
            assert [v.tolist() for v in session.run(asked, {x: a, y: b})] == [[4.0, 7.0], [3.0, 10.0]]
            assert session.run([inside], {x: a, y: b})[0]["p"].tolist() == [4.0, 7.0]
        asked.reverse()
        inside["p"] = product
        assert [v.tolist() for v in session.run(asked, {x: a, y: b})] == [[3.0, 10.0], [4.0, 7.0]]
        assert session.run([inside], {x: a, y: b})[0]["p"].tolist() == [3.0, 10.0]
        assert isinstance(session.run((total, product), {x: a, y: b}), tuple)
        assert session.run(total, {x: a, y: b}).tolist() == [4.0, 7.0]
        # The same feeds in another order, with other values, and one less.
        assert session.run(total, {y: b, x: b}).tolist() == [6.0, 10.0]
        with pytest.raises(sg.FeedError, match="must be fed"):
            session.run(total, {x: a})
        assert session.run(total, {x: [1, 1], y: b}).tolist() == [4.0, 6.0]


@each_engine_plainly
def test_a_run_like_the_last_one_takes_what_the_first_took(engine: str) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [None, 2])
        n = sg.placeholder(sg.int64, [2])
        fetched = [x * 2.0, n + 1]
    a, big = np.array([[1.0, 2.0]], F32), np.array([2**40, 1])
    with sg.Session(graph, engine=engine) as session:
        for _ in range(3):
            twice, after = session.run(fetched, {x: a, n: big})
            assert (twice.tolist(), after.tolist(), after.dtype) == ([[2.0, 4.0]], [2**40 + 1, 2], np.int64)
            twice[:] = 7.0
            assert a.tolist() == [[1.0, 2.0]]
        others = [np.ones((3, 2)), np.ones((3, 2), F32), [[1, 1]], np.asfortranarray(np.ones((3, 2), F32)), a]
        for other in others:
            twice, _ = session.run(fetched, {x: other, n: np.array([1, 1], np.int32)})
            assert twice.dtype == F32
            np.testing.assert_array_equal(twice, 2.0 * np.asarray(other))
            assert session.run(fetched, {x: a, n: big})[1].tolist() == [2**40 + 1, 2]
        for wrong in (np.ones(2, F32), np.ones((1, 3), F32), np.ones((1, 2), complex), "one"):
            with pytest.raises(sg.StopgradError, match="was fed"):
                session.run(fetched, {x: wrong, n: big})
        assert session.run(fetched, {x: a, n: big})[0].tolist() == [[2.0, 4.0]]
        session.close()
        with pytest.raises(sg.GraphError, match="closed"):
            session.run(fetched, {x: a, n: big})


def test_groups_of_assignments_are_true_wherever_they_are_fetched() -> None:
    with sg.Graph().as_default() as graph:
        a, b = sg.parameter(np.zeros(2), name="a"), sg.parameter(np.zeros(2), name="b")
        both = sg.group(sg.assign(a, a + 1.0), sg.assign(b, a + 2.0))
        mixed = sg.group(both, a * 2.0)
    with sg.Session(graph) as session:
        found = session.run([both, a, both, {"mixed": mixed}, b])
        assert [np.asarray(x).tolist() for x in (*found[:3], found[3]["mixed"], found[4])] == [
            True,
            [0.0, 0.0],
            True,
            True,
            [0.0, 0.0],
        ]
        assert session.run(both) == np.array(True)
        assert session.run(both, {both: False}) == np.array(False)  # Fed, it assigns nothing.
        assert (session.value(a).tolist(), session.value(b).tolist()) == ([2.0, 2.0], [3.0, 3.0])
