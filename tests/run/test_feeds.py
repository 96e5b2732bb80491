"""Fed values: arrays of JAX are taken as NumPy arrays of the same content are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from all_engines import each_engine_plainly

import stopgrad as sg
from stopgrad.base.dtypes import DTYPES

OURS = list(DTYPES.values())
OTHERS = [np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.int4)]
CONTENTS = {
    "small": [0, 1, 2, 3],
    "far": [0, 1, 100, 7],
    "none": [],
    "negative": [-1, 1, -3, 0],
}


def numpy_array(dtype: np.dtype[Any], content: str) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        array = np.array(CONTENTS[content], np.float64).astype(np.int64).astype(dtype)
        return array * array.dtype.type(1.1) if dtype.kind in "fc" and dtype.itemsize > 1 else array


def jax_array(array: np.ndarray[Any, Any]) -> jax.Array:
    with jax.enable_x64(True):
        return jnp.asarray(array)


def outcome(session: sg.Session, y: sg.Output, x: sg.Output, value: Any) -> Any:
    try:
        found = session.run(y, {x: value})
    except sg.StopgradError as error:
        return type(error), error.message
    return found.dtype, found.shape, found.tobytes()


@each_engine_plainly
@pytest.mark.parametrize("wanted", OURS, ids=str)
def test_an_array_of_jax_is_fed_as_numpys_of_the_same_content(engine: str, wanted: sg.DType) -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(wanted, ["n"])
        y = sg.logical_not(x) if wanted.is_bool else x + x
    with sg.Session(graph, engine=engine) as session:
        for content in CONTENTS:
            for dtype in [*[d.numpy for d in OURS], *OTHERS]:
                array = numpy_array(dtype, content)
                expected = outcome(session, y, x, array)
                assert outcome(session, y, x, jax_array(array)) == expected, (dtype, content)


@each_engine_plainly
def test_a_narrow_array_of_jax_is_computed_wide(engine: str) -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, [3])
        y = sg.exp(x)
    value = np.array([0.1, 1.7, 5.3], np.float32)
    with sg.Session(graph, engine=engine) as session:
        np.testing.assert_allclose(
            session.run(y, {x: jnp.asarray(value)}), np.exp(value.astype(np.float64)), rtol=1e-15
        )


def test_integers_too_wide_or_of_other_signedness_are_converted_or_refused() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.int8, [2])
        y = x * 1
    with sg.Session(graph, engine="xla") as session:
        assert session.run(y, {x: jnp.array([1, 127], "uint32")}).tolist() == [1, 127]
        with pytest.raises(sg.FeedError, match=r"uint32\[2\] from 1 to 128.*not converted to int8"):
            session.run(y, {x: jnp.array([1, 128], "uint32")})


@each_engine_plainly
def test_a_key_of_jax_is_no_array_of_numbers(engine: str) -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.uint32, [2])
        y = x + x
    with sg.Session(graph, engine=engine) as session, pytest.raises(sg.FeedError, match="no array"):
        session.run(y, {x: jax.random.key(0)})
    with pytest.raises(sg.StopgradError):
        sg.function(lambda x: x + x, engine=engine)(jax.random.key(0))


@each_engine_plainly
def test_what_stands_for_an_array_while_jax_traces_is_refused(engine: str) -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2])
        w = sg.parameter(np.zeros(2, np.float32))
        step = sg.assign(w, w + x)
    with sg.Session(graph, engine=engine) as session:
        with pytest.raises(sg.StopgradError):
            jax.jit(lambda a: session.run(step, {x: a}))(jnp.ones(2))
        assert session.run(step, {x: jnp.ones(2)}).tolist() == [1.0, 1.0]


@each_engine_plainly
def test_what_is_fed_may_be_changed_afterwards(engine: str) -> None:
    size = 1 << 16
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [size])
        w = sg.parameter(np.zeros(size, np.float32))
        step = sg.assign(w, x)
    with sg.Session(graph, engine=engine) as session:
        for i in range(5):
            value = np.full(size, i, np.float32)
            fetched, same = session.run([x, step], {x: value})
            value[:] = -1.0
            for array in (fetched, same, session.value(w)):
                assert (array == i).all()
        given = jnp.full(size, 7.0)
        fetched = session.run([x, step], {x: given})[0]
        given.delete()
        assert (fetched == 7.0).all()
        assert (session.run(w) == 7.0).all()


@pytest.mark.parametrize("wrapped", [False, True], ids=["a tensor", "a list with one"])
def test_feeding_a_tensor_of_a_graph_is_an_error_whose_three_cures_work(wrapped: bool) -> None:
    with sg.Graph().as_default() as graph:
        key = sg.placeholder(sg.uint32, [2], name="key")
        y = sg.random.normal(key, (3,))
        inside = sg.random.key(3)
        instead = sg.random.normal(inside, (3,))
    value = [inside[0], inside[1]] if wrapped else inside
    with sg.Session(graph) as session:
        with pytest.raises(sg.FeedError) as caught:
            session.run(y, {key: value})
        assert "which has no value until its graph runs" in caught.value.message
        assert "sg.where" not in caught.value.message
        outside = session.run(y, {key: sg.random.key(3)})
        np.testing.assert_array_equal(session.run(y, {key: session.run(inside)}), outside)
        np.testing.assert_array_equal(session.run(instead), outside)
