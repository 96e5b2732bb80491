"""What users ask of ``sg.function``: methods, static arguments, open sizes, probes, lowering; its errors."""

from __future__ import annotations

import gc
import logging
import re
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from all_engines import each_engine

import stopgrad as sg
from stopgrad.engines import engine as engine_named
from stopgrad.graph.arguments import operation_name, plain_path
from stopgrad.run import compiling

F32, F64 = np.float32, np.float64
HERE = __file__


# ------------------------------------------------------------------------------------------- methods


def make_model(engine: str) -> Any:
    """A class with every kind of compiled method, and how often each was traced."""
    runs: list[str] = []

    class Model:
        offset = 10.0

        def __init__(self, k: float) -> None:
            self.k = k

        @sg.function(engine=engine)
        def scaled(self, x: Any, *, times: Any = 1.0) -> Any:
            """Multiplies."""
            runs.append("scaled")
            return x * self.k * times

        @sg.function
        def plain(self, x: Any) -> Any:
            return x - self.k

        @sg.function(engine=engine, static_argnums=(0, 2), donate_argnums=1)
        def power(self, x: Any, n: Any) -> Any:
            runs.append("power")
            for _ in range(int(n)):
                x = x * self.k
            return x

        @staticmethod
        @sg.function(engine=engine)
        def static_above(x: Any) -> Any:
            return x + 1.0

        @sg.function(engine=engine)
        @staticmethod
        def static_below(x: Any) -> Any:
            return x + 2.0

        @classmethod
        @sg.function(engine=engine)
        def class_above(cls, x: Any) -> Any:
            return x + cls.offset

        @sg.function(engine=engine)
        @classmethod
        def class_below(cls, x: Any) -> Any:
            return x * cls.offset

    Model.runs = runs  # type: ignore[attr-defined]
    return Model


@each_engine
def test_methods_are_traced_once_for_each_instance(engine: str) -> None:
    model = make_model(engine)
    two, three = model(2.0), model(3.0)
    for _ in range(4):
        np.testing.assert_array_equal(two.scaled(np.ones(2)), [2.0, 2.0])
        np.testing.assert_array_equal(three.scaled(np.ones(2)), [3.0, 3.0])
        np.testing.assert_array_equal(model.scaled(two, np.ones(2)), [2.0, 2.0])
    assert model.runs == ["scaled"] * 2
    np.testing.assert_array_equal(two.scaled(np.ones(2), times=5.0), [10.0, 10.0])
    assert (model.scaled.traces, two.scaled.traces, three.scaled.traces) == (3, 2, 1)
    assert two.plain(1.0) == -1.0
    assert two.scaled == two.scaled != three.scaled
    assert hash(two.scaled) == hash(two.scaled)
    assert two.scaled.__self__ is two
    assert (two.scaled.__name__, two.scaled.__doc__) == ("scaled", "Multiplies.")
    assert two.scaled.report()[0].engine == engine
    assert two.scaled.lower(np.ones(2)).paths == ("x",)
    assert isinstance(model.scaled, sg.Function)


@each_engine
def test_static_and_class_methods_in_either_order(engine: str) -> None:
    model = make_model(engine)
    for whose in (model, model(2.0)):
        assert whose.static_above(1.0) == 2.0
        assert whose.static_below(1.0) == 3.0
        assert whose.class_above(1.0) == 11.0
        assert whose.class_below(2.0) == 20.0


def test_positions_of_a_method_count_the_instance_as_they_do_for_jax() -> None:
    model = make_model("numpy")
    two = model(2.0)
    assert [float(two.power(np.ones(()), n)) for n in (1.0, 3, (2).__int__(), 3)] == [2.0, 8.0, 4.0, 8.0]
    assert model.runs == ["power"] * 3


def test_an_instance_that_is_dropped_is_freed_at_once_with_what_was_compiled_for_it() -> None:
    model = make_model("numpy")
    one, other = model(2.0), model(3.0)
    one.scaled(np.ones(2))
    other.scaled(np.ones(2))
    gone = weakref.ref(one)
    gc.collect()
    gc.disable()
    try:
        del one
        assert gone() is None
        assert model.scaled.traces == 1
    finally:
        gc.enable()
    assert model(5.0).scaled(1.0) == 5.0  # Held by the call alone.


def test_instances_without_weak_references_or_hash_work_too() -> None:
    class Slotted:
        __slots__ = ("k",)

        def __init__(self, k: float) -> None:
            self.k = k

        @sg.function(engine="numpy", cache_size=2)
        def f(self, x: Any) -> Any:
            return x * self.k

    class Equal:
        def __init__(self, k: float) -> None:
            self.k = k

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

        @sg.function(engine="numpy")
        def f(self, x: Any) -> Any:
            return x * self.k

    for kind in (Slotted, Equal):
        instances = [kind(float(i)) for i in range(5)]
        assert [float(one.f(2.0)) for one in instances * 2] == [2.0 * i for i in range(5)] * 2
    assert Slotted.f.traces <= 3
    assert Equal.f.traces == 5


def test_an_instance_that_is_a_structure_is_traced_like_any_argument() -> None:
    runs: list[int] = []

    @dataclass
    class Layer:
        w: Any
        kind: str = "dense"

        @sg.function(engine="numpy", shapes={"x": [None]})
        def apply(self, x: Any) -> Any:
            runs.append(1)
            return self.w * x if self.kind == "dense" else x

    layer = Layer(np.array(2.0))
    assert layer.apply(np.ones(3)).tolist() == [2.0] * 3
    layer.w = np.array(5.0)  # No constant of what was traced.
    assert layer.apply(np.ones(2)).tolist() == [5.0] * 2
    assert Layer.apply(layer, np.ones(1)).tolist() == [5.0]
    assert (runs, Layer.apply.traces) == ([1], 1)
    assert Layer(np.array(2.0), "skip").apply(np.ones(1)).tolist() == [1.0]


def test_subclasses_share_what_they_inherit_and_super_reaches_it() -> None:
    class Base:
        k = 2.0

        @sg.function(engine="numpy")
        def f(self, x: Any) -> Any:
            return x * self.k

    class Derived(Base):
        k = 3.0

        @sg.function(engine="numpy")
        def f(self, x: Any) -> Any:
            return super().f(x) + 1.0

    assert Derived().f(1.0) == 4.0
    assert Base().f(1.0) == 2.0


# ------------------------------------------------------------------------------------ static arguments


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": 1},
        {"static_argnums": -1},
        {"static_argnums": [1]},
        {"static_argnames": "n"},
        {"static_argnames": ("n",)},
        {"static_argnums": np.int64(1), "static_argnames": ["n"]},
    ],
)
def test_static_arguments_are_static_by_position_and_by_name(options: dict[str, Any]) -> None:
    seen: list[Any] = []

    @sg.function(engine="numpy", **options)
    def repeated(x: Any, n: Any = 2.0) -> Any:
        seen.append(n)
        for _ in range(int(n)):
            x = x * 2.0
        return x

    assert [float(repeated(1.0, n)) for n in (1.0, 3.0, 1.0)] == [2.0, 8.0, 2.0]
    assert repeated(1.0, n=3.0) == 8.0
    assert repeated(1.0) == 4.0
    assert seen == [1.0, 3.0, 3.0, 2.0]
    assert all(type(n) is float for n in seen)


def test_static_values_that_are_equal_but_not_the_same_are_told_apart() -> None:
    f = sg.function(lambda x, c: x + (10.0 if type(c) is float else 1.0), engine="numpy", static_argnums=1)
    assert [float(f(0.0, c)) for c in (1, 1.0, True)] == [1.0, 10.0, 1.0]
    assert f.traces == 3
    g = sg.function(lambda x, c: x * (1.0 / c[0] if c[0] else np.copysign(1.0, c[0])), static_argnums=1)
    assert [float(g(1.0, c)) for c in ((0.0,), (-0.0,), (2.0,))] == [1.0, -1.0, 0.5]
    h = sg.function(lambda x, c: x * np.copysign(1.0, c), engine="numpy", static_argnums=1)
    assert [float(h(1.0, c)) for c in (0.0, -0.0)] == [1.0, -1.0]


def test_calls_like_the_last_one_heed_what_is_static() -> None:
    f = sg.function(lambda x, n: x * n, engine="xla", static_argnums=1)
    x = np.ones(2, np.float32)
    assert [float(f(x, n)[0]) for n in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 2.0)] == [2, 2, 2, 3, 3, 3, 2]


def test_static_structures_are_not_looked_into() -> None:
    @dataclass(frozen=True)
    class Config:
        width: float = 3.0
        act: Callable[..., Any] = sg.tanh

    f = sg.function(lambda x, config: config.act(x * config.width), engine="numpy", static_argnames="config")
    assert f(1.0, Config()) == np.tanh(F32(3.0))
    assert f(1.0, config=Config(2.0, sg.exp)) == pytest.approx(np.exp(2.0))
    f(1.0, Config())
    assert f.traces == 2


def test_arguments_are_bound_by_keyword_and_by_partial() -> None:
    f = sg.function(lambda x, *, scale, shift=1.0: x * scale + shift, engine="numpy")
    assert [float(f(2.0, scale=s, shift=t)) for s, t in ((1.0, 0.0), (3.0, 1.0))] == [2.0, 7.0]
    assert f(scale=4.0, x=1.0) == 5.0
    assert sg.function(partial(lambda n, x: x * n, 3), engine="numpy")(2.0) == 6.0
    assert sg.function(lambda *xs, **named: xs[0] + named["y"], engine="numpy")(1.0, 2.0, y=3.0) == 4.0


# ------------------------------------------------------------------------------------- names of arguments


def message(f: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(sg.StopgradError) as caught:
        f(*args, **kwargs)
    text = str(caught.value)
    assert "Placeholder_" not in text
    assert "Identity_" not in text
    return text


def loss(params: Any, x: Any, step: Any) -> Any:
    return sg.reduce_sum(sg.matmul(x, params["w"]) + params["b"]) * step


@pytest.mark.parametrize("transform", [sg.function, sg.grad, lambda f: sg.function(sg.grad(f)), sg.jacobian])
def test_errors_name_the_users_arguments(transform: Any) -> None:
    f, x = transform(loss), np.ones((4, 3))
    assert re.search(r"'x(_1)?'", text := message(f, {"w": np.ones((2, 2)), "b": np.ones(2)}, x, 1.0))
    assert re.search(r"'params\.w(_1)?'", text)
    assert re.search(r"'params\.b(_1)?'", message(f, {"w": np.ones((3, 2)), "b": np.ones(3)}, x, 1.0))
    assert re.search(
        r"'step(_1)?'", message(transform(lambda x, step: sg.reduce_sum(sg.erf(step) * x)), x, np.asarray(1j))
    )


def test_arguments_of_any_name_can_be_traced() -> None:
    f = sg.function(lambda _x, y, *rest: _x + y["a b/:0"][""] + rest[1] + y["été"], engine="numpy")
    lowered = f.lower(1.0, {"a b/:0": {"": 2.0}, "été": 5.0}, 7.0, 9.0)
    assert lowered.paths == ("_x", "y.a b/:0.", "y.été", "rest.0", "rest.1")
    assert [op.name for op in lowered.graph.operations[:5]] == ["x", "y.a_b/_0.", "y._t", "rest.0", "rest.1"]
    assert f(1.0, {"a b/:0": {"": 2.0}, "été": 5.0}, 7.0, 9.0) == 17.0


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("x", "x"),
        ("params['w']", "params.w"),
        ('params["layers"][0].w', "params.layers.0.w"),
        ("params[ 'a b' ]", "params.a b"),
        ("xs[12]", "xs.12"),
    ],
)
def test_paths_are_written_in_either_way(text: str, path: str) -> None:
    assert plain_path(text) == path


@pytest.mark.parametrize("path", ["x", "_x", "a/b/", "ä", "", "x y", "W", "a.b-c", "/", "__"])
def test_every_path_gives_a_name_that_an_operation_can_have(path: str) -> None:
    with sg.Graph().as_default():
        name = operation_name(path)
        assert not name or sg.placeholder(sg.float32, name=name).name == f"{name}:0"


# ------------------------------------------------------------------------------------------ open sizes


@each_engine
def test_a_new_batch_size_does_not_trace_again(engine: str) -> None:
    runs: list[Any] = []

    @sg.function(engine=engine, shapes={"x": ["batch", 3], "params['w']": [3, None], "y": ["batch"]})
    def f(params: Any, x: Any, y: Any = None) -> Any:
        runs.append((params["w"].shape, x.shape))
        error = sg.matmul(x, params["w"])
        total = sg.reduce_sum(error) if y is None else sg.reduce_sum(error * y[:, None])
        return total / x.shape[0], x.shape[0]

    rng = np.random.default_rng(0)
    for n, m in ((1, 2), (5, 2), (5, 4), (0, 2), (2, 1), (2, 1), (2, 1), (5, 4)):
        w, x, y = rng.normal(size=(3, m)), rng.normal(size=(n, 3)), rng.normal(size=n)
        mean, size = f({"w": w}, x, y)
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(mean, np.float64(((x @ w) * y[:, None]).sum()) / n, rtol=1e-12)
        assert (size, size.dtype) == (n, np.int32)
    assert (len(runs), f.traces) == (1, 1)
    assert f({"w": w}, x)[0] == pytest.approx((x @ w).sum() / 5)  # y was left out.
    assert len(runs) == 2
    f({"w": w.astype(F32)}, x.astype(F32))
    assert len(runs) == 3


def test_without_shapes_sizes_are_plain_integers() -> None:
    seen: list[Any] = []
    f = sg.function(lambda x: (seen.append(x.shape), sg.reduce_sum(x) / x.shape[0])[1], engine="numpy")
    f(np.ones((2, 3)))
    f(np.ones((4, 3)))
    assert seen == [(2, 3), (4, 3)]
    assert all(type(n) is int for shape in seen for n in shape)


@each_engine
def test_gradients_loops_and_donation_with_open_sizes(engine: str) -> None:
    @sg.function(engine=engine, shapes={"x": ["n"], "state": {"m": [None]}}, donate_argnums=1)
    def step(x: Any, state: Any, rate: Any) -> Any:
        mean, dx = sg.value_and_grad(lambda x: sg.reduce_sum(x * x) / x.shape[0])(x)
        total, _ = sg.scan(lambda c, v: (c + v, None), 0.0, x)
        return mean, x - rate * dx, total, {"m": state["m"] * 2.0}

    for n in (2, 3, 7):
        x = np.arange(n) + 1.0
        mean, new, total, state = step(x, {"m": np.ones(n + 1)}, 0.5)
        assert mean == pytest.approx((x * x).mean())
        np.testing.assert_allclose(new, x - 0.5 * 2.0 * x / n)
        assert (total, state["m"].shape) == (x.sum(), (n + 1,))
    assert step.traces == 1
    assert len(step.report()) == 3


@each_engine
def test_measured_ways_and_ahead_of_time_with_open_sizes(
    engine: str, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("STOPGRAD_CACHE", str(tmp_path))
    f = sg.function(lambda x: sg.reduce_mean(x), engine=engine, shapes={"x": ["n"]})
    ahead = f.lower(np.ones(2)).compile()
    assert [float(ahead(np.arange(n, dtype=F64))) for n in (2, 5)] == [0.5, 2.0]
    with pytest.raises(sg.ArgumentError, match=r"x was float64\[n\] and is float32\[n\]"):
        ahead(np.ones(2, F32))


# ---------------------------------------------------------------------------------------------- probes


def probed(x: Any) -> Any:
    h = sg.probe(x * 3.0, "hidden")
    parts = sg.probe({"a": h * 2.0, "b": x, "n": 4}, "parts")
    return sg.reduce_sum(parts["a"] ** 2) + sg.reduce_sum(parts["b"])


@each_engine
@pytest.mark.parametrize("transform", [sg.grad, sg.value_and_grad])
def test_gradients_at_probes_are_returned(engine: str, transform: Any) -> None:
    f = sg.function(transform(probed), engine=engine, with_probes=True)
    x = np.array([1.0, -2.0])
    for _ in range(3):
        value, gradients = f(x)
        assert set(gradients) == {"hidden", "parts/a", "parts/b"}
        np.testing.assert_allclose(gradients["hidden"], 24.0 * x)  # d/dh of 4 h²: 8 h, h = 3 x
        np.testing.assert_allclose(gradients["parts/a"], 12.0 * x)
        np.testing.assert_allclose(gradients["parts/b"], [1.0, 1.0])
        slope = value[1] if transform is sg.value_and_grad else value
        np.testing.assert_allclose(slope, 72.0 * x + 1.0)
    assert f.traces == 1
    with sg.Graph().as_default() as graph:
        v = sg.placeholder(sg.float64, [2])
        _, gradients = f(v)
    with sg.Session(graph, engine=engine) as session:
        np.testing.assert_allclose(session.run(gradients["hidden"], {v: x}), 24.0 * x)


def test_a_probe_that_no_gradient_passes_is_none_and_one_passed_twice_a_list() -> None:
    def f(x: Any) -> Any:
        y = sg.probe(x * x, "square")
        return sg.stop_gradient(sg.probe(x, "hidden")) * y

    assert sg.function(f, with_probes=True)(2.0) == (8.0, {"hidden": None, "square": None})
    value, gradients = sg.function(sg.grad(f), with_probes=True, engine="numpy")(2.0)
    assert (value, gradients) == (8.0, {"square": 2.0, "hidden": None})
    both = lambda x: (sg.probe(x, "x"), sg.probe(3.0 * x, "y"))

    def twice(x: Any) -> Any:
        a, b = both(x)
        return sg.gradients(a * b, [a, x])[1] + sg.gradients(b * b, [x])[0]

    _, gradients = sg.function(twice, with_probes=True, engine="numpy")(2.0)
    assert [float(g) for g in gradients["y"]] == [2.0, 12.0]
    assert sg.function(lambda x: x, with_probes=True, engine="numpy")(1.0) == (1.0, {})


def test_probes_under_vmap_have_a_gradient_for_each_example() -> None:
    f = sg.function(
        sg.vmap(sg.grad(lambda v: sg.probe(v * v, "square") ** 2.0)), with_probes=True, engine="numpy"
    )
    slopes, gradients = f(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(slopes, [4.0, 32.0, 108.0])
    np.testing.assert_allclose(gradients["square"], [2.0, 8.0, 18.0])


# ----------------------------------------------------------------------------- lowering, compiling, costs


@each_engine
def test_lowering_shows_counts_and_compiles(engine: str) -> None:
    runs: list[int] = []

    def f(w: Any, x: Any, *, kind: str = "tanh") -> Any:
        runs.append(1)
        return {"y": (sg.tanh if kind == "tanh" else sg.exp)(sg.matmul(x, w)), "kind": kind}

    fast = sg.function(f, engine=engine)
    w, x = np.ones((3, 2)), np.ones((4, 3))
    lowered = fast.lower(w, x, kind="tanh")
    assert [op.type for op in lowered.graph.operations] == ["Placeholder", "Placeholder", "MatMul", "Tanh"]
    assert lowered.to_text() == lowered.as_text() == lowered.graph.to_text()
    assert "MatMul(x, w" in lowered.as_text()
    assert (lowered.engine, lowered.paths) == (engine, ("w", "x"))
    cost = lowered.cost_analysis()
    assert cost.operations == {"MatMul": 1, "Tanh": 1}
    assert cost.by_type == {"MatMul": 48, "Tanh": 8}
    assert cost.parameters == {"w": 6, "x": 12}
    assert (cost.argument_bytes, cost.result_bytes, cost.bytes) == (144, 64, 144 + 64 + 128)
    assert "56 floating-point operations: MatMul 86 %" in str(cost)
    ahead = lowered.compile()
    got = ahead(w, x, kind="tanh")
    assert got["kind"] == "tanh"
    np.testing.assert_allclose(got["y"], np.full((4, 2), np.tanh(3.0)))
    assert (runs, fast.traces) == ([1], 0)
    native = ahead(jax.numpy.asarray(w, F64), x, kind="tanh") if jax.config.jax_enable_x64 else got
    np.testing.assert_allclose(native["y"], got["y"])


def test_what_has_a_shape_and_a_dtype_can_stand_for_an_array_when_lowering() -> None:
    f = sg.function(lambda x: sg.reduce_sum(x), engine="numpy")
    shape = jax.ShapeDtypeStruct((10**6, 10**6), np.dtype(F32))
    assert f.lower(shape).cost_analysis().flops == 10**12
    assert f.lower(jax.ShapeDtypeStruct((3,), np.dtype(F32))).compile()(np.ones(3, F32)) == 3.0


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (lambda a, b: sg.matmul(a, b), [(5, 7), (7, 3)]),
        (lambda a, b: sg.matmul(a, b, transpose_a=True), [(7, 5), (7, 3)]),
        (lambda a, b: sg.matmul(a, b), [(2, 5, 7), (7, 3)]),
        (lambda a: sg.reduce_sum(a * a + a), [(40, 50)]),
        (lambda x, w: sg.conv2d(x, w, 1, "VALID"), [(2, 9, 9, 3), (3, 3, 3, 4)]),
        (
            lambda x, w: sg.grad(lambda w: sg.reduce_sum(sg.conv2d(x, w, 1, "VALID") ** 2.0))(w),
            [(2, 9, 9, 3), (3, 3, 3, 4)],
        ),
    ],
)
def test_counts_of_floating_point_operations_are_about_those_of_xla(
    f: Callable[..., Any], shapes: list[Any]
) -> None:
    arrays = [np.ones(shape, F32) for shape in shapes]
    ours = sg.function(f, engine="numpy").lower(*arrays).cost_analysis().flops
    theirs = jax.jit(sg.function(f, engine="xla")).lower(*arrays).compile().cost_analysis()["flops"]
    assert theirs * 0.6 <= ours <= theirs * 1.6


def test_what_stands_in_a_loop_counts_as_often_as_it_runs() -> None:
    once = sg.function(lambda x, w: sg.matmul(x, w)).lower(np.ones((4, 4)), np.ones((4, 4)))
    assert once.cost_analysis().flops == 128

    def loop(x: Any, w: Any) -> Any:
        return sg.scan(lambda c, _: (sg.matmul(c, w), None), x, length=10)[0]

    cost = sg.function(loop).lower(np.ones((4, 4)), np.ones((4, 4))).cost_analysis()
    assert (cost.flops, cost.operations["MatMul"], cost.unbounded) == (1280, 1, False)
    endless = sg.function(lambda x: sg.while_loop(lambda v: v < 100.0, lambda v: v * 2.0, x))
    assert endless.lower(1.0).cost_analysis().unbounded
    branch = sg.function(lambda p, x: sg.cond(p, lambda x: sg.matmul(x, x), lambda x: x + 1.0, x)).lower(
        np.array(True), np.ones((4, 4))
    )
    assert branch.cost_analysis().flops == 128
    nothing = sg.function(lambda x: None).lower(1.0).cost_analysis()
    assert (nothing.flops, nothing.operations) == (0, {})


# ------------------------------------------------------------------------------------ notes and warnings


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numpy engine takes 0.3 s to compile, and a note comes after 0.05."""
    engine = engine_named("numpy")
    usual = type(engine).compile

    def compile(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.3)
        return usual(*args, **kwargs)

    monkeypatch.setattr(type(engine), "compile", compile)
    monkeypatch.setattr(compiling, "NOTED", 0.05)


@pytest.mark.usefixtures("slow")
def test_long_compiling_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    def long_one(x: Any) -> Any:
        return sg.exp(x) * 2.0 + x

    with caplog.at_level(logging.INFO, "stopgrad"):
        sg.function(long_one, engine="numpy")(1.0)
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("long_one: 4 operations on numpy, compiled for 0.")


@pytest.mark.usefixtures("slow")
def test_nothing_is_written_where_nobody_listens_and_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("stopgrad"), "level", logging.WARNING)
    sg.function(lambda x: x + 1.0, engine="numpy")(1.0)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("slow")
def test_on_a_terminal_it_is_written_to_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    monkeypatch.setattr(logging.getLogger("stopgrad"), "level", logging.WARNING)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    sg.function(lambda x: x + 1.0, engine="numpy")(1.0)
    assert re.fullmatch(
        r"stopgrad: <lambda>: \d operations on numpy, compiled for 0\.\d s.*\n", terminal.text
    )


def test_short_compiling_is_not_noted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stopgrad"):
        sg.function(lambda x: x + 1.0, engine="numpy")(1.0)
    assert not caplog.records


def adam(m: Any, step: Any) -> Any:
    return m / (1.0 - 0.9**step)


@each_engine
def test_the_advice_of_the_retrace_warning_works(engine: str) -> None:
    f = sg.function(adam, engine=engine)
    m = np.ones(2, F32)
    advice = r"step was 15 and is 16; .*float\(step\).*np\.asarray\(step\)"
    with pytest.warns(UserWarning, match=advice) as told:
        [f(m, step) for step in range(1, 20)]
    assert len(told) == 1
    assert told[0].filename == HERE
    before = f.traces
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(1, 40):
            want = 1.0 / (1.0 - 0.9**step)
            as_float, as_array = f(m, float(step)), f(m, np.asarray(step))
            assert as_float.dtype == F32
            np.testing.assert_allclose(as_float, [want, want], rtol=1e-6)
            np.testing.assert_allclose(as_array, [want, want], rtol=1e-6)
    assert f.traces == before + 2


def test_the_retrace_warning_says_what_changes() -> None:
    class Model:
        @sg.function(engine="numpy")
        def f(self, x: Any, params: Any) -> Any:
            return x

    model = Model()
    says = r"params\.w was float64\[15\] and is float64\[16\]; .*shapes="
    with pytest.warns(UserWarning, match=says) as told:
        [model.f(1.0, {"w": np.ones(n)}) for n in range(1, 17)]
    assert told[0].filename == HERE
    g = sg.function(lambda x, n: x, engine="numpy", static_argnums=1, cache_size=2)
    with pytest.warns(UserWarning, match=r"2 signatures; the last time because n was 1\.5 and is 2\.5"):
        [g(1.0, n) for n in (1.5, 2.5)]
    h = sg.function(lambda *xs: xs[0], engine="numpy", cache_size=2)
    with pytest.warns(UserWarning, match="another structure"):
        [h(*xs) for xs in ((1.0,), (1.0, 2.0))]


# ------------------------------------------------------------------------------------------- bad input


def ones(*shape: int) -> Any:
    return np.ones(shape, F32)


def named(x: Any, n: Any = 1, *, mode: Any = "a") -> Any:
    return x * 2.0


def tensors(params: Any, x: Any) -> Any:
    return sg.matmul(x, params["w"])


def generator(x: Any) -> Any:
    yield x


async def coroutine(x: Any) -> Any:
    return x


class Unhashable:
    __hash__ = None  # type: ignore[assignment]


def outside(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return sg.function(f, engine="numpy")(*args, **kwargs)


def within(f: Callable[..., Any], shapes: Any, *args: Any, **options: Any) -> Any:
    return sg.function(f, engine="numpy", shapes=shapes, **options)(*args)


def in_loop(x: Any) -> Any:
    return sg.scan(lambda c, _: (sg.probe(c * x, "inner"), None), 1.0, length=3)[0]


BAD: list[tuple[str, Callable[[], Any], type[Exception], tuple[str, ...]]] = [
    # what is compiled
    ("no function", lambda: sg.function(3), sg.ArgumentError, ("takes a function", "3")),
    ("a name", lambda: sg.function("tanh"), sg.ArgumentError, ("takes a function", "'tanh'")),
    ("an array", lambda: sg.function(np.ones(2)), sg.ArgumentError, ("takes a function",)),
    ("a property", lambda: sg.function(property(named)), sg.ArgumentError, ("below @property",)),
    ("a generator", lambda: sg.function(generator), sg.ArgumentError, ("generator", "is a generator")),
    ("a coroutine", lambda: sg.function(coroutine), sg.ArgumentError, ("coroutine", "instead")),
    ("not by keyword", lambda: sg.function(named, "numpy"), sg.ArgumentError, ("positional", "function")),
    ("an option of others", lambda: sg.function(named, jit_compile=True), sg.ArgumentError, ("jit_compile",)),
    ("a misspelt option", lambda: sg.function(static_argnam="n"), sg.ArgumentError, ("static_argnam",)),
    # options
    ("no such engine", lambda: sg.function(named, engine="steam")(1.0), sg.EngineError, ("'steam'", "'xla'")),
    ("an engine that is no name", lambda: sg.function(named, engine=3)(1.0), sg.EngineError, ("3", "'auto'")),
    ("tune", lambda: sg.function(named, tune="fast"), sg.ArgumentError, ("tune", "'quick'")),
    ("strict", lambda: sg.function(named, strict="yes"), sg.ArgumentError, ("strict", "True or False")),
    (
        "with_probes",
        lambda: sg.function(named, with_probes="x"),
        sg.ArgumentError,
        ("with_probes", "True or"),
    ),
    ("cache_size", lambda: sg.function(named, cache_size=0), sg.ArgumentError, ("cache_size", "at least 1")),
    # static arguments
    (
        "argnums a word",
        lambda: sg.function(named, static_argnums="n"),
        sg.ArgumentError,
        ("positions", "'n'"),
    ),
    (
        "argnums a float",
        lambda: sg.function(named, static_argnums=1.0),
        sg.ArgumentError,
        ("positions", "1.0"),
    ),
    (
        "argnums beyond",
        lambda: sg.function(named, static_argnums=5),
        sg.ArgumentError,
        ("holds 5", "named", "x,n"),
    ),
    ("argnums before", lambda: sg.function(named, static_argnums=-3), sg.ArgumentError, ("holds -3", "x,n")),
    ("argnames a number", lambda: sg.function(named, static_argnames=1), sg.ArgumentError, ("names", "1")),
    (
        "argnames mixed",
        lambda: sg.function(named, static_argnames=["n", 2]),
        sg.ArgumentError,
        ("names", "2"),
    ),
    (
        "no such name",
        lambda: sg.function(named, static_argnames="steps"),
        sg.ArgumentError,
        ("'steps'", "named", "x, n, mode"),
    ),
    (
        "a static list",
        lambda: sg.function(named, static_argnames="n")(1.0, [1, 2]),
        sg.ArgumentError,
        ("static argument n of named", "[1, 2]", "tuple"),
    ),
    (
        "a static array",
        lambda: sg.function(named, static_argnums=1)(1.0, np.ones(2)),
        sg.ArgumentError,
        ("static argument n of named", "leave it out", "traced"),
    ),
    (
        "a static dict by keyword",
        lambda: sg.function(named, static_argnames="mode")(1.0, mode={}),
        sg.ArgumentError,
        ("static argument mode", "no hash"),
    ),
    (
        "static and donated",
        lambda: sg.function(named, static_argnums=0, donate_argnums=0),
        sg.ArgumentError,
        ("argument 0", "both static and donated"),
    ),
    # donated arguments
    (
        "donated word",
        lambda: sg.function(named, donate_argnums="x"),
        sg.ArgumentError,
        ("donate_argnums", "'x'"),
    ),
    (
        "donated beyond",
        lambda: sg.function(named, donate_argnums=3)(1.0),
        sg.ArgumentError,
        ("donate_argnums holds 3", "1 positional"),
    ),
    # shapes
    (
        "shapes a list",
        lambda: sg.function(named, shapes=[["n"]]),
        sg.ArgumentError,
        ("shapes is a dict", "batch"),
    ),
    ("shapes a word", lambda: sg.function(named, shapes="n"), sg.ArgumentError, ("shapes is a dict", "'n'")),
    (
        "shapes of no parameter",
        lambda: sg.function(named, shapes={"y": ["n"]}),
        sg.ArgumentError,
        ("'y'", "named", "x, n, mode"),
    ),
    (
        "a negative size",
        lambda: sg.function(named, shapes={"x": [-1]}),
        sg.ShapeError,
        ("shapes['x'] of named", "-1", "None"),
    ),
    ("a fraction", lambda: sg.function(named, shapes={"x": [1.5]}), sg.ShapeError, ("shapes['x']", "1.5")),
    (
        "no identifier",
        lambda: sg.function(named, shapes={"x": ["a b"]}),
        sg.ShapeError,
        ("shapes['x']", "'a b'"),
    ),
    (
        "another fixed size",
        lambda: within(named, {"x": ["batch", 3]}, ones(2, 4)),
        sg.ShapeError,
        ("named: x has the shape [2, 4]", "[batch, 3]"),
    ),
    (
        "another number of axes",
        lambda: within(named, {"x": ["batch", 3]}, ones(3)),
        sg.ShapeError,
        ("named: x has the shape [3]", "[batch, 3]"),
    ),
    (
        "a number for an array",
        lambda: within(named, {"x": ["batch"]}, 2.0),
        sg.ShapeError,
        ("named: x has the shape []", "[batch]"),
    ),
    (
        "an integer for an array",
        lambda: within(named, {"x": ["batch"]}, 2),
        sg.ArgumentError,
        ("'x'", "2", "part of the signature", "pass an array"),
    ),
    (
        "two sizes of one name",
        lambda: within(tensors, {"params.w": ["n", 2], "x": [None, "n"]}, {"w": ones(3, 2)}, ones(5, 4)),
        sg.ShapeError,
        ("tensors: x was given an array of shape [5, 4]", "n = 3"),
    ),
    (
        "no such path",
        lambda: within(tensors, {"params.v": ["n", 2]}, {"w": ones(3, 2)}, ones(5, 3)),
        sg.ArgumentError,
        ("'params.v'", "was given params.w"),
    ),
    (
        "a structure for an array",
        lambda: within(tensors, {"params": ["n", 2]}, {"w": ones(3, 2)}, ones(5, 3)),
        sg.ArgumentError,
        ("'params'", "was given params.w"),
    ),
    (
        "a size that is assumed otherwise",
        lambda: within(tensors, {"params.w": ["n", 2], "x": [None, "m"]}, {"w": ones(3, 2)}, ones(5, 4)),
        sg.ShapeError,
        ("MatMul", "sizes m and n differ", "n = 3", "m = 4"),
    ),
    (
        "the truth of a comparison of an open size",
        lambda: within(lambda x: x if x.shape[0] > 1 else -x, {"x": ["n"]}, ones(2)),
        sg.ShapeError,
        ("n > 1", "shapes of sg.function", "sg.cond"),
    ),
    (
        "a loop over an open size",
        lambda: within(lambda x: [x for _ in range(x.shape[0])], {"x": ["n"]}, ones(2)),
        sg.ShapeError,
        ("the size n", "sg.scan"),
    ),
    # arguments
    (
        "no hash",
        lambda: outside(tensors, {"w": Unhashable()}, 1.0),
        sg.ArgumentError,
        ("for params.w", "no hash", "array"),
    ),
    ("words", lambda: outside(named, np.array(["a"])), sg.DTypeError, ("named: x:", "element type")),
    (
        "dates",
        lambda: outside(tensors, {"w": np.array("2026", "M8")}, 1.0),
        sg.DTypeError,
        ("params.w", "M8"),
    ),
    ("objects", lambda: outside(named, np.array([None, 1.0]), 2.0), sg.DTypeError, ("named: x:",)),
    (
        "masked",
        lambda: outside(named, np.ma.masked_array([1.0], [True])),
        sg.DTypeError,
        ("named: x:", "filled"),
    ),
    ("a long double", lambda: outside(named, np.ones(2, np.longdouble)), sg.DTypeError, ("named: x:", "128")),
    (
        "shapes that do not fit",
        lambda: outside(tensors, {"w": ones(3, 2)}, ones(5, 4)),
        sg.ShapeError,
        ("MatMul", "'x'", "'params.w'"),
    ),
    (
        "an integer differentiated",
        lambda: outside(sg.grad(lambda step: step * 2.0), np.asarray(3)),
        sg.DTypeError,
        ("grad", "int64[]", "step"),
    ),
    # results
    (
        "a parameter inside",
        lambda: outside(lambda x: x * sg.parameter(1.0), 2.0),
        sg.GraphError,
        ("inside sg.function", "session"),
    ),
    # probes
    (
        "a probe in a loop",
        lambda: sg.function(sg.grad(in_loop), with_probes=True)(2.0),
        sg.GradientError,
        ("'inner'", "Scan", "zeros there"),
    ),
    (
        "a probe in a branch",
        lambda: sg.function(
            lambda x: sg.cond(x > 0.0, lambda: sg.probe(x, "branch"), lambda: x), with_probes=True
        )(2.0),
        sg.GradientError,
        ("'branch'", "Case"),
    ),
    # ahead of time
    (
        "another shape",
        lambda: (
            sg.function(tensors).lower({"w": ones(3, 2)}, ones(5, 3)).compile()({"w": ones(3, 2)}, ones(4, 3))
        ),
        sg.ArgumentError,
        ("tensors was compiled ahead", "x was float32[5, 3] and is float32[4, 3]"),
    ),
    (
        "another structure",
        lambda: sg.function(tensors).lower({"w": ones(3, 2)}, ones(5, 3)).compile()([ones(3, 2)], ones(5, 3)),
        sg.ArgumentError,
        ("compiled ahead", "another structure"),
    ),
    (
        "another constant",
        lambda: sg.function(named).lower(1.0, 2).compile()(1.0, 3),
        sg.ArgumentError,
        ("named", "n was 2 and is 3"),
    ),
    (
        "another static argument",
        lambda: sg.function(named, static_argnames="mode").lower(1.0, mode="a").compile()(1.0, mode="b"),
        sg.ArgumentError,
        ("mode was 'a' and is 'b'",),
    ),
]


def test_there_are_many_rows() -> None:
    assert len(BAD) >= 50
    assert len({name for name, *_ in BAD}) == len(BAD)


@pytest.mark.parametrize(("name", "wrong", "error", "says"), BAD, ids=[name for name, *_ in BAD])
def test_bad_input_names_the_argument_and_the_cure(
    name: str, wrong: Callable[[], Any], error: type[Exception], says: tuple[str, ...]
) -> None:
    with pytest.raises(error) as caught:
        wrong()
    assert type(caught.value) is error
    text = str(caught.value)
    assert not [part for part in says if part not in text], text
    assert f"{HERE}:" in text
    assert f"{sg.__path__[0]}" not in text
    assert "Placeholder_" not in text
    with sg.Graph().as_default() as graph:  # No graph was left open.
        assert sg.constant(1.0).graph is graph
    assert type(sg.exp(0.0)) is np.ndarray
