"""What looks odd but must work, and what is not installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from all_engines import each_engine, form_for
from bad_input import Setting

import stopgrad as sg
from stopgrad.base.namespaces import NUMPY
from stopgrad.engines import registry

HERE = __file__
ARRAY = np.ones(3, np.float32)

NAN, INF = np.nan, np.inf
F32, F64 = np.float32, np.float64


@dataclass(frozen=True)
class Good:
    """An odd but right use: a function of placeholders, what they are fed, and the result by hand."""

    name: str
    f: Callable[..., Any]
    feeds: tuple[tuple[Any, Any, Any], ...]
    expected: Any

    def __repr__(self) -> str:
        return self.name


def good(name: str, f: Callable[..., Any], *feeds: tuple[Any, Any, Any], gives: Any) -> Good:
    return Good(name, f, feeds, np.asarray(gives))


class Stubborn(np.ndarray):  # type: ignore[type-arg]
    """A kind of array that computes in its own way, as matrices and masked arrays do."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("computed in its own way")


def _frozen(values: Any) -> np.ndarray[Any, Any]:
    array = np.array(values, F32)
    array.flags.writeable = False
    return array


GOOD = [
    good("NaN fed", lambda x: x * 2.0, (sg.float32, [2], [NAN, 1.0]), gives=np.array([NAN, 2.0], F32)),
    good("NaN in a maximum", lambda x: sg.reduce_max(x), (sg.float32, [3], [1.0, NAN, 2.0]), gives=F32(NAN)),
    good("infinities fed", lambda x: x + x, (sg.float32, [2], [INF, -INF]), gives=np.array([INF, -INF], F32)),
    good("infinity less infinity", lambda x: x - x, (sg.float32, [1], [INF]), gives=np.array([NAN], F32)),
    good(
        "division by zero",
        lambda x: 1.0 / x,
        (sg.float32, [2], [0.0, -0.0]),
        gives=np.array([INF, -INF], F32),
    ),
    good(
        "a negative zero stays",
        lambda x: 1.0 / (x * 1.0),
        (sg.float32, [1], [-0.0]),
        gives=np.array([-INF], F32),
    ),
    good(
        "log of nothing good",
        lambda x: sg.log(x),
        (sg.float32, [2], [0.0, -1.0]),
        gives=np.array([-INF, NAN], F32),
    ),
    good("an empty array", lambda x: x * 2.0, (sg.float32, ["n"], np.zeros(0, F32)), gives=np.zeros(0, F32)),
    good("an empty list", lambda x: x * 2, (sg.int32, ["n"], []), gives=np.zeros(0, np.int32)),
    good("the sum of nothing", lambda x: sg.reduce_sum(x), (sg.float32, ["n"], []), gives=F32(0)),
    good("the product of nothing", lambda x: sg.reduce_prod(x), (sg.float32, ["n"], []), gives=F32(1)),
    good("the mean of nothing", lambda x: sg.reduce_mean(x), (sg.float32, ["n"], []), gives=F32(NAN)),
    good("the maximum of nothing", lambda x: sg.reduce_max(x), (sg.float32, ["n"], []), gives=F32(-INF)),
    good(
        "all of nothing",
        lambda x: sg.reduce_all(x),
        (sg.bool, ["n"], np.zeros(0, bool)),
        gives=np.bool_(True),
    ),
    good(
        "a zero-size axis",
        lambda x: sg.reduce_sum(x, axis=0),
        (sg.float32, ["n", 3], np.zeros((0, 3))),
        gives=np.zeros(3, F32),
    ),
    good(
        "a zero inner size",
        lambda x, y: x @ y,
        (sg.float32, [2, "k"], np.zeros((2, 0))),
        (sg.float32, ["k", 2], np.zeros((0, 2))),
        gives=np.zeros((2, 2), F32),
    ),
    good(
        "nothing joined to something",
        lambda x: sg.concat([x, [7.0]], 0),
        (sg.float32, ["n"], []),
        gives=np.array([7.0], F32),
    ),
    good(
        "a slice beyond the end",
        lambda x: x[2:9],
        (sg.float32, [3], [1.0, 2.0, 3.0]),
        gives=np.array([3.0], F32),
    ),
    good("a slice of nothing", lambda x: x[3:], (sg.float32, [3], [1.0, 2.0, 3.0]), gives=np.zeros(0, F32)),
    good("a 0-d array", lambda x: x + 1.0, (sg.float32, [], np.array(2.0, F32)), gives=F32(3)),
    good("a Python float", lambda x: x + 1.0, (sg.float32, [], 2.0), gives=F32(3)),
    good("a Python int for a float", lambda x: x + 1.0, (sg.float32, [], 2), gives=F32(3)),
    good("a Python bool", lambda x: ~x, (sg.bool, [], True), gives=np.bool_(False)),
    good("a Python complex number", lambda x: x * x, (sg.complex64, [], 1j), gives=np.complex64(-1)),
    good("a float for a complex number", lambda x: x * 1j, (sg.complex64, [], 2.0), gives=np.complex64(2j)),
    good("a NumPy scalar", lambda x: x * 2, (sg.int32, [], np.int32(4)), gives=np.int32(8)),
    good("float64 for float32", lambda x: x, (sg.float32, [1], np.array([0.1])), gives=np.array([0.1], F32)),
    good(
        "int64 for int8, where it fits",
        lambda x: x,
        (sg.int8, [2], np.array([-128, 127])),
        gives=np.array([-128, 127], np.int8),
    ),
    good(
        "floats for bfloat16",
        lambda x: sg.cast(x, sg.float32),
        (sg.bfloat16, [2], [1.0, 1.0078125]),
        gives=np.array([1.0, 1.0078125], F32),
    ),
    good("floats for float16", lambda x: x, (sg.float16, [1], [1e6]), gives=np.array([INF], np.float16)),
    good(
        "a nested list",
        lambda x: sg.transpose(x),
        (sg.float32, [2, 2], [[1.0, 2.0], [3.0, 4.0]]),
        gives=np.array([[1.0, 3.0], [2.0, 4.0]], F32),
    ),
    good("a tuple", lambda x: x, (sg.float32, [2], (1.0, 2.0)), gives=np.array([1.0, 2.0], F32)),
    good(
        "every other element",
        lambda x: x * 2.0,
        (sg.float32, [2], np.arange(4, dtype=F32)[::2]),
        gives=np.array([0.0, 4.0], F32),
    ),
    good(
        "a reversed array",
        lambda x: x * 2.0,
        (sg.float32, [3], np.arange(3, dtype=F32)[::-1]),
        gives=np.array([4.0, 2.0, 0.0], F32),
    ),
    good(
        "a repeated row",
        lambda x: x + 1.0,
        (sg.float32, [2, 2], np.broadcast_to(F32(1), (2, 2))),
        gives=np.full((2, 2), 2.0, F32),
    ),
    good(
        "Fortran order",
        lambda x: sg.reshape(x, [4]),
        (sg.float32, [2, 2], np.asfortranarray([[1, 2], [3, 4]], F32)),
        gives=np.array([1.0, 2.0, 3.0, 4.0], F32),
    ),
    good(
        "a read-only array",
        lambda x: x + 1.0,
        (sg.float32, [2], _frozen([1.0, 2.0])),
        gives=np.array([2.0, 3.0], F32),
    ),
    good(
        "a read-only array handed through",
        lambda x: sg.stop_gradient(x),
        (sg.float32, [2], _frozen([1.0, 2.0])),
        gives=np.array([1.0, 2.0], F32),
    ),
    good(
        "a big-endian array",
        lambda x: x + 1.0,
        (sg.float32, [2], np.array([1.0, 2.0], ">f4")),
        gives=np.array([2.0, 3.0], F32),
    ),
    good(
        "a big-endian constant",
        lambda x: x + np.array([1, 2], ">i4"),
        (sg.int32, [2], [1, 1]),
        gives=np.array([2, 3], np.int32),
    ),
    good(
        "an array with a will of its own",
        lambda x: x * x,
        (sg.float32, [2], np.array([2.0, 3.0], F32).view(Stubborn)),
        gives=np.array([4.0, 9.0], F32),
    ),
    good(
        "an array on the left",
        lambda x: np.array([1.0, 2.0], F32) - x,
        (sg.float32, [2], [1.0, 1.0]),
        gives=np.array([0.0, 1.0], F32),
    ),
    good(
        "a list on the right",
        lambda x: sg.add(x, [1, 2]),
        (sg.float32, [2], [1.0, 1.0]),
        gives=np.array([2.0, 3.0], F32),
    ),
    good(
        "sizes that agree",
        lambda x, y: x + y,
        (sg.float32, ["n"], [1.0, 2.0]),
        (sg.float32, ["m"], [3.0, 4.0]),
        gives=np.array([4.0, 6.0], F32),
    ),
    good(
        "a size of one",
        lambda x, y: x + y,
        (sg.float32, ["n"], [1.0]),
        (sg.float32, ["m"], [3.0]),
        gives=np.array([4.0], F32),
    ),
    good(
        "a literal one broadcasts",
        lambda x, y: x + y,
        (sg.float32, ["n"], [1.0, 2.0]),
        (sg.float32, [1], [3.0]),
        gives=np.array([4.0, 5.0], F32),
    ),
    good(
        "an index outside",
        lambda x: sg.gather([1.0, 2.0], x),
        (sg.int32, [4], [1, 5, -1, -3]),
        gives=np.array([2.0, 0.0, 2.0, 0.0], F32),
    ),
    good("integers wrap around", lambda x: x + 1, (sg.int8, [], 127), gives=np.int8(-128)),
]


@each_engine
@pytest.mark.parametrize("case", GOOD, ids=repr)
def test_odd_input_works(case: Good, engine: str) -> None:
    graph = sg.Graph()
    with graph.as_default():
        inputs = [sg.placeholder(dtype, shape) for dtype, shape, _ in case.feeds]
        y = case.f(*inputs)
    values = [value for *_, value in case.feeds]
    kept = [np.array(value) for value in values]
    with sg.Session(graph, engine=engine) as session:
        got = session.run(y, dict(zip(inputs, values, strict=True)))
    assert type(got) is np.ndarray
    assert got.dtype == case.expected.dtype
    assert got.shape == case.expected.shape
    np.testing.assert_array_equal(got, case.expected)
    assert got.dtype.isnative
    for value, before in zip(values, kept, strict=True):
        np.testing.assert_array_equal(np.array(value), before)


@each_engine
def test_any_tensor_can_be_fed(engine: str) -> None:
    s = Setting(engine)
    np.testing.assert_array_equal(
        s.run(s.loss, doubled=[9.0, 9.0, 9.0], v=[1.0, 2.0, 3.0]), F32(14)
    )  # not on the way: without effect
    with s.graph.as_default():
        z = sg.exp(s.doubled) + s.w
    np.testing.assert_array_equal(
        s.run(z, doubled=[0.0, 0.0, 0.0]), np.array([2.0, 3.0, 4.0], F32)
    )  # v need not be fed then
    np.testing.assert_array_equal(
        s.run(z, doubled=np.zeros(3), w=[5.0, 5.0, 5.0]), np.array([6.0, 6.0, 6.0], F32)
    )
    assert s.session.value(s.w).tolist() == [1.0, 2.0, 3.0]  # feeding a parameter does not assign it
    np.testing.assert_array_equal(s.run(s.v, v=[1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0], F32))
    np.testing.assert_array_equal(
        s.session.run("doubled:0", {"v": [1.0, 2.0, 3.0]}), np.array([2.0, 4.0, 6.0], F32)
    )


@each_engine
def test_a_fetched_array_is_the_callers_own(engine: str) -> None:
    s = Setting(engine)
    fed = np.array([1.0, 2.0, 3.0], F32)
    got = s.run(s.v, v=fed)
    assert not np.shares_memory(got, fed)
    value = s.session.value(s.w)
    value[:] = 7.0
    np.testing.assert_array_equal(s.session.run(s.w), np.array([1.0, 2.0, 3.0], F32))


@each_engine
def test_jax_arrays_can_be_fed(engine: str) -> None:
    s = Setting(engine)
    got = s.run(s.doubled, v=jnp.arange(3.0))
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, np.array([0.0, 2.0, 4.0], F32))
    with pytest.raises(sg.FeedError, match=r"shape \[2\]"):
        s.run(s.doubled, v=jnp.arange(2.0))
    with pytest.raises(sg.FeedError, match="int32"):
        s.run(s.i, i=jnp.arange(3.0))


@pytest.mark.parametrize(
    "array",
    [np.array([1.0, 2.0], ">f8"), np.asfortranarray([1.0, 2.0]), np.arange(1.0, 5.0)[::2] * 0 + [1.0, 2.0]],
    ids=["endian", "fortran", "strided"],
)
def test_functions_take_odd_arrays(array: Any) -> None:
    np.testing.assert_array_equal(sg.function(lambda x: x * 2.0, engine="numpy")(array), [2.0, 4.0])
    np.testing.assert_array_equal(sg.grad(lambda x: sg.reduce_sum(x * x))(array), [2.0, 4.0])
    np.testing.assert_array_equal(sg.multiply(array, 2.0), [2.0, 4.0])


def test_a_gradient_of_a_vector_is_that_of_its_sum() -> None:
    s = Setting()
    with s.graph.as_default():
        (slope,) = sg.gradients(s.v * s.v, [s.v])
    np.testing.assert_array_equal(s.run(slope, v=[1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0], F32))
    assert "sum of its elements" in (sg.gradients.__doc__ or "")


# ------------------------------------------------------------------------------- what is not installed


def test_without_jax_the_xla_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Setting()
    monkeypatch.delitem(registry._INSTANCES, "xla", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(
        sg.EngineError, match=r"(?s)xla engine needs jax.*pip install 'stopgrad\[xla\]'.*test_odd_input.py"
    ) as caught:
        sg.Session(s.graph, engine="xla")
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(sg.EngineError, match=r"pip install 'stopgrad\[xla\]'"):
        sg.function(lambda x: x, engine="xla")(1.0)
    with sg.Session(s.graph) as session:
        assert session.engine == "onnxruntime"
    s.check_unharmed()


def test_without_onnxruntime_its_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Setting()
    monkeypatch.delitem(registry._INSTANCES, "onnxruntime", raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(sg.EngineError, match=r"onnxruntime engine needs onnxruntime.*'stopgrad\[onnx\]'"):
        sg.Session(s.graph, engine="onnxruntime")
    s.check_unharmed()


def test_without_scipy_the_numpy_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Setting()
    with s.graph.as_default():
        y = sg.erf(s.v)
    monkeypatch.delitem(NUMPY.__dict__, "special", raising=False)
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(sg.EngineError, match=r"Erf.*stopgrad\[special\]") as caught:
        s.session.run([y, s.step], {s.v: ARRAY})
    assert f"{HERE}:{y.op.location.line}" in str(caught.value)
    assert s.session.value(s.w).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(sg.EngineError, match=r"Erf: .*stopgrad\[special\]"):
        sg.erf(1.0)


@each_engine
def test_a_failure_inside_an_engine_names_the_operation_and_leaves_the_parameters(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no memory left")

    s = Setting(engine)
    with s.graph.as_default():
        y = sg.tan(s.v)
    monkeypatch.setattr(sg.ops.Tan, form_for(engine), staticmethod(fails), raising=False)
    with pytest.raises(sg.EngineError, match=r"Tan 'Tan'.*no memory left") as caught:
        s.session.run([s.step, y], {s.v: ARRAY})
    assert f"{HERE}:{y.op.location.line}" in str(caught.value)
    assert s.session.value(s.w).tolist() == [1.0, 2.0, 3.0]
    assert sg.__path__[0] not in str(caught.value)
    assert "site-packages" not in str(caught.value)
    s.session.run(s.step)
    assert s.session.value(s.w).tolist() == [2.0, 4.0, 6.0]
