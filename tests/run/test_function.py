"""Compiled functions: signatures and their cache, structures, arrays of either kind, donation, threads."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from all_engines import each_engine_plainly

import stopgrad as sg

F32 = np.float32


@dataclass
class Layer:
    w: Any
    b: Any
    kind: str = "dense"


Point = namedtuple("Point", ["x", "y"])


class Counted:
    """A function that counts how often its Python runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, x: Any, scale: Any = 2.0) -> Any:
        self.runs += 1
        return x * scale


# --------------------------------------------------------------------------------------- the signature


@each_engine_plainly
def test_a_signature_is_traced_once(engine: str) -> None:
    f = Counted()
    fast = sg.function(f, engine=engine)
    for i in range(5):
        np.testing.assert_array_equal(fast(np.full(3, i, F32)), np.full(3, 2.0 * i, F32))
    assert (f.runs, fast.traces) == (1, 1)
    fast(np.ones(4, F32))
    fast(np.ones(3))
    fast(np.ones((3, 1), F32))
    assert (f.runs, fast.traces) == (4, 4)
    fast(np.ones(4, F32))
    assert f.runs == 4


def test_python_floats_are_traced_and_take_the_dtype_of_their_company() -> None:
    f = Counted()
    fast = sg.function(f, engine="numpy")
    for scale in (1.0, 2.5, -3.0):
        got = fast(np.ones(2, np.float64), scale)
        assert got.dtype == np.float64
        np.testing.assert_array_equal(got, np.full(2, scale))
    assert f.runs == 1
    assert fast(2.0, 3.0).dtype == F32


def test_integers_booleans_strings_and_none_are_part_of_the_signature() -> None:
    seen: list[Any] = []

    @sg.function(engine="numpy")
    def power(x: Any, n: Any, flag: Any = None) -> Any:
        seen.append((n, flag))
        for _ in range(n):  # a Python integer
            x = x * x
        return -x if flag else x

    x = np.array([2.0, 3.0])
    np.testing.assert_array_equal(power(x, 1), [4.0, 9.0])
    np.testing.assert_array_equal(power(x, 2), [16.0, 81.0])
    np.testing.assert_array_equal(power(x, 1), [4.0, 9.0])
    np.testing.assert_array_equal(power(x, 1, flag=True), [-4.0, -9.0])
    np.testing.assert_array_equal(power(x, 1, flag="yes"), [-4.0, -9.0])
    np.testing.assert_array_equal(power(x, 1, None), [4.0, 9.0])
    assert len(seen) >= 4
    before = len(seen)
    power(x, 2)
    power(x, 1, flag=True)
    assert len(seen) == before


def test_true_and_one_are_different_signatures() -> None:
    f = sg.function(lambda x, n: x + (10.0 if n is True else 1.0), engine="numpy")
    assert f(1.0, 1) == 2.0
    assert f(1.0, True) == 11.0
    assert f(1.0, 1) == 2.0


def test_keywords_and_positions_are_told_apart_from_values() -> None:
    f = sg.function(lambda x, y=1.0, *, z=0.0: x - y + 100.0 * z, engine="numpy")
    assert f(3.0, 1.0) == f(3.0, y=1.0) == f(y=1.0, x=3.0) == f(3.0) == 2.0
    assert f(3.0, z=1.0) == 102.0
    assert f(x=1.0, y=3.0) == -2.0


def test_a_function_compiled_too_often_warns() -> None:
    f = sg.function(lambda x, step: x + float(step), engine="numpy")
    for step in range(15):
        assert f(1.0, step) == 1.0 + step
    with pytest.warns(UserWarning, match=r"compiled for 16 signatures.*np\.asarray"):
        f(1.0, 15)
    assert f(1.0, 16) == 17.0


# ------------------------------------------------------------------------------------------- structures


@each_engine_plainly
def test_arguments_and_results_are_nested_structures(engine: str) -> None:
    @sg.function(engine=engine)
    def forward(layers: list[Layer], point: Point, options: dict[str, Any]) -> Any:
        x = point.x
        for layer in layers:
            x = x @ layer.w + layer.b
        return {
            "out": x * options["scale"],
            "kinds": [layer.kind for layer in layers],
            "point": Point(point.y, None),
            "layer": layers[0],
        }

    layers = [Layer(np.eye(2), np.zeros(2)), Layer(2 * np.eye(2), np.ones(2), "wide")]
    got = forward(layers, Point(np.array([1.0, 2.0]), np.array(7.0)), {"scale": 10.0})
    np.testing.assert_array_equal(got["out"], [30.0, 50.0])
    assert got["kinds"] == ["dense", "wide"]
    assert type(got["point"]) is Point
    assert (got["point"].x, got["point"].y) == (7.0, None)
    assert type(got["layer"]) is Layer
    np.testing.assert_array_equal(got["layer"].w, np.eye(2))


def test_a_function_may_return_anything() -> None:
    assert sg.function(lambda x: None, engine="numpy")(1.0) is None
    assert sg.function(lambda x: "text", engine="numpy")(1.0) == "text"
    assert sg.function(lambda x: (x, [True, "a"]), engine="numpy")(1.0) == (1.0, [True, "a"])
    assert sg.function(lambda: 3.0, engine="numpy")() == 3.0
    got = sg.function(lambda: np.arange(3.0), engine="numpy")()
    np.testing.assert_array_equal(got, [0.0, 1.0, 2.0])


@each_engine_plainly
def test_an_argument_may_be_returned_as_it_is(engine: str) -> None:
    x = np.ones(3)
    got = sg.function(lambda x: (x, x), engine=engine)(x)
    assert len(got) == 2
    for y in got:
        np.testing.assert_array_equal(y, x)
    if engine == "numpy":
        assert not any(np.shares_memory(y, x) for y in got)


def test_unused_arguments_are_no_trouble() -> None:
    assert sg.function(lambda x, y, z: y * 2.0, engine="numpy")(np.ones(3), 4.0, np.zeros(7)) == 8.0


# ---------------------------------------------------------------------------------------------- arrays


def test_numpy_in_numpy_out() -> None:
    got = sg.function(lambda x: [x + 1.0, 5.0], engine="xla")(np.ones(2, F32))
    assert [type(y) for y in got] == [np.ndarray, np.ndarray]


def test_jax_in_jax_out() -> None:
    f = sg.function(lambda x, y: x + y, engine="xla")
    got = f(jax.numpy.ones(2), np.ones(2, F32))
    assert isinstance(got, jax.Array)
    np.testing.assert_array_equal(got, [2.0, 2.0])
    assert type(f(np.ones(2, F32), np.ones(2, F32))) is np.ndarray
    assert f.traces == 1
    on_numpy = sg.function(lambda x: x * 2.0, engine="numpy")(jax.numpy.ones(2))
    assert type(on_numpy) is np.ndarray


def test_64_bits_stay_64_bits_and_jaxs_own_setting_stays_as_it_is() -> None:
    before = jax.config.jax_enable_x64
    got = sg.function(lambda x, n: (x + 1e-12, n + 1), engine="xla")(np.ones(1), np.array(2**40))
    assert (got[0].dtype, got[1].dtype) == (np.float64, np.int64)
    assert got[0][0] - 1.0 == pytest.approx(1e-12, rel=1e-3)
    assert got[1] == 2**40 + 1
    assert jax.config.jax_enable_x64 == before


def test_a_donated_array_may_be_overwritten_and_the_others_not() -> None:
    step = sg.function(
        lambda w, g: jax.tree_util.tree_map(lambda a, b: a - 0.5 * b, w, g), engine="xla", donate_argnums=0
    )
    w = {"a": jax.numpy.ones(1024), "b": jax.numpy.zeros(1024)}
    g = {"a": jax.numpy.ones(1024), "b": jax.numpy.ones(1024)}
    new = step(w, g)
    np.testing.assert_array_equal(new["a"], np.full(1024, 0.5))
    np.testing.assert_array_equal(new["b"], np.full(1024, -0.5))
    assert all(array.is_deleted() for array in w.values())
    assert not any(array.is_deleted() for array in g.values())
    host = np.ones(1024, F32)
    sg.function(lambda w: w * 2.0, engine="xla", donate_argnums=(0,))(host)
    np.testing.assert_array_equal(host, np.ones(1024, F32))


# -------------------------------------------------------------------------------- decorators and nesting


def test_every_form_of_the_decorator() -> None:
    @sg.function
    def plain(x: Any) -> Any:
        """Doubles."""
        return x * 2.0

    @sg.function(engine="numpy", donate_argnums=(0,))
    def with_arguments(x: Any) -> Any:
        return x * 2.0

    assert plain(3.0) == with_arguments(3.0) == sg.function(lambda x: x * 2.0)(3.0) == 6.0
    assert (plain.__name__, plain.__doc__) == ("plain", "Doubles.")
    assert plain.__wrapped__(3.0) == 6.0
    assert isinstance(plain, sg.Function)


def test_inside_a_graph_it_builds_there() -> None:
    f = sg.function(lambda x: sg.exp(x) * 2.0, engine="numpy")
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        y = f(x)
        c = f(1.0)
    z = f(x)  # the operand's graph, though none is the default
    assert [y.graph, c.graph, z.graph] == [graph] * 3
    assert f.traces == 0
    assert sg.gradients(y, [x])[0] is not None


def test_transforms_and_functions_nest_in_any_order() -> None:
    cube = sg.function(lambda x: x * x * x, engine="numpy")
    assert sg.grad(cube)(2.0) == 12.0
    assert sg.function(sg.grad(cube), engine="numpy")(2.0) == 12.0
    assert sg.function(sg.grad(sg.function(sg.grad(cube))), engine="numpy")(2.0) == 12.0
    assert sg.function(lambda x: cube(x) + 1.0, engine="numpy")(2.0) == 9.0
    np.testing.assert_array_equal(
        sg.function(sg.hessian(lambda v: sg.reduce_sum(v * v * v)), engine="numpy")(np.array([1.0, 2.0])),
        np.diag([6.0, 12.0]),
    )


def test_what_a_closure_holds_is_taken_when_traced() -> None:
    offset = np.array([1.0, 2.0])
    f = sg.function(lambda x: x + offset, engine="numpy")
    np.testing.assert_array_equal(f(np.zeros(2)), [1.0, 2.0])
    offset += 10.0
    np.testing.assert_array_equal(f(np.zeros(2)), [1.0, 2.0])
    np.testing.assert_array_equal(f(np.zeros((1, 2))), [[11.0, 12.0]])


def test_immediate_operations_inside_are_traced() -> None:
    f = sg.function(lambda: sg.reduce_sum(np.arange(4.0)), engine="numpy")
    assert f() == 6.0


# --------------------------------------------------------------------------------------- errors, threads


def test_an_exception_inside_leaves_the_cache_clean() -> None:
    fails = [True]

    @sg.function(engine="numpy")
    def f(x: Any) -> Any:
        if fails[0]:
            raise RuntimeError("my own")
        return x * 2.0

    for _ in range(2):
        with pytest.raises(RuntimeError, match="my own"):
            f(1.0)
    assert f.traces == 0
    fails[0] = False
    assert f(1.0) == 2.0
    assert f.traces == 1
    with sg.Graph().as_default() as graph:  # no graph was left open
        assert sg.constant(1.0).graph is graph
    assert type(sg.exp(0.0)) is np.ndarray


def test_a_stale_tensor_does_not_leak_out_silently() -> None:
    kept: list[Any] = []
    f = sg.function(lambda x: (kept.append(x), x * 2.0)[1], engine="numpy")
    f(1.0)
    with pytest.raises(sg.GraphError, match="two graphs"):
        sg.function(lambda y: y + kept[0], engine="numpy")(1.0)


@each_engine_plainly
def test_threads_share_a_function(engine: str) -> None:
    f = sg.function(lambda x: sg.reduce_sum(x * x), engine=engine)
    wrong: list[Any] = []
    together = threading.Barrier(4)

    def use(i: int) -> None:
        together.wait()
        for n in range(1, 8):
            if f(np.full(n, i, F32)) != i * i * n:
                wrong.append((i, n))

    threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert f.traces == 7


@each_engine_plainly
def test_arrays_of_the_other_byte_order_are_taken(engine: str) -> None:
    double = sg.function(lambda x, y: x * 2.0 + y, engine=engine)
    foreign = np.array([1.0, 2.0], ">f8")
    np.testing.assert_array_equal(double(foreign, foreign), [3.0, 6.0])
    np.testing.assert_array_equal(double(np.array([1.0, 2.0]), foreign), [3.0, 6.0])


# ------------------------------------------------------------------------------------- arrays of jax


@each_engine_plainly
@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int64", "uint64", "complex128"]
)
@pytest.mark.parametrize("x64", [True, False])
def test_arrays_of_jax_are_computed_as_numpys_of_the_same_content(engine: str, dtype: str, x64: bool) -> None:
    f = sg.function(lambda x: (x * x + x, sg.reduce_sum(x)), engine=engine)
    with jax.enable_x64(True):
        native = jax.numpy.arange(5).astype(dtype)
    array = np.asarray(native)
    with jax.enable_x64(x64):
        found, expected = f(native), f(array)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype == array.dtype
        assert np.asarray(one).tobytes() == other.tobytes()


def test_a_weakly_typed_array_of_jax_has_its_dtype() -> None:
    f = sg.function(lambda x: x * np.float64(2.0), engine="xla")
    weak = jax.numpy.full(3, 1.5)
    assert weak.weak_type
    assert f(weak).dtype == f(np.full(3, 1.5, F32)).dtype
    assert f.traces == 1


def test_numpy_arrays_may_be_changed_after_a_call_beside_arrays_of_jax() -> None:
    """JAX computes later, and on a CPU reads NumPy's memory then."""
    f = sg.function(lambda x, m: (sg.reduce_sum(m @ m @ m) * 0.0 + x, x), engine="xla")
    m = jax.numpy.ones((600, 600))
    for _ in range(20):
        x = np.full(1 << 16, 1.0, F32)
        results = f(x, m)
        x[:] = -1.0
        assert all((np.asarray(y) == 1.0).all() for y in results)


def test_jax_may_trace_through_a_function() -> None:
    f = sg.function(lambda x: sg.exp(x) * 2.0, engine="xla")
    f(jax.numpy.ones(2))
    assert jax.jit(lambda x: f(x) + 1.0)(jax.numpy.zeros(2)).tolist() == [3.0, 3.0]
    assert jax.grad(lambda x: f(x))(0.0) == 2.0


# ------------------------------------------------------------------------------------------- the cache


def test_the_signatures_used_last_are_kept() -> None:
    f = Counted()
    fast = sg.function(f, engine="numpy", cache_size=3)
    fast(np.ones(1))
    fast(np.ones(2))
    with pytest.warns(UserWarning, match="compiled for 3 signatures"):
        fast(np.ones(3))
    fast(np.ones(1))
    fast(np.ones(4))  # Now 2 is the one that goes.
    assert (f.runs, fast.traces) == (4, 3)
    for n in (1, 3, 4):
        fast(np.ones(n))
    assert f.runs == 4
    fast(np.ones(2))
    assert (f.runs, fast.traces) == (5, 3)


def test_a_cache_that_is_too_small_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="stopgrad")
    f = Counted()
    fast = sg.function(f, engine="numpy", cache_size=2)
    fast(np.ones(1))
    with pytest.warns(UserWarning, match="compiled for 2 signatures"):
        fast(np.ones(2))
    for n in (1, 2, 3):
        fast(np.ones(n))
    assert not caplog.messages
    for _ in range(3):
        for n in (1, 2, 3):
            fast(np.ones(n))
    (note,) = caplog.messages
    assert "is compiled again for what it was compiled for before" in note
    assert "only the last 2 are kept; pass a larger cache_size" in note


@pytest.mark.parametrize("size", [0, -1, 2.0, None, True, "3"])
def test_a_cache_size_is_a_positive_integer(size: Any) -> None:
    with pytest.raises(sg.ArgumentError, match="cache_size is how many"):
        sg.function(lambda x: x, cache_size=size)
    with pytest.raises(sg.ArgumentError, match="cache_size is how many"):
        sg.Session(sg.Graph(), cache_size=size)


def test_a_function_that_is_dropped_is_freed_at_once() -> None:
    f = Counted()
    gone = weakref.ref(f)
    fast = sg.function(f, engine="numpy")
    fast(np.ones(2))
    gc.collect()
    gc.disable()
    try:
        del f, fast
        assert gone() is None
    finally:
        gc.enable()


def test_minus_zero_is_another_complex_constant() -> None:
    f = sg.function(lambda x, c: x + c, engine="numpy")
    minus = np.array(complex(-0.0, -0.0), np.complex64)
    assert not np.signbit(f(minus, 0j).real)
    assert np.signbit(f(minus, complex(-0.0, -0.0)).real)
    assert f.traces == 2
