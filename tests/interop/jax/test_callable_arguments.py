"""What functions of ours take from JAX users and give them: structures, types, and errors."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import stopgrad as sg
import stopgrad.jax as sgj
from stopgrad.interop.imported import Model

X = jnp.asarray([0.3, -0.7, 1.2], jnp.float32)
identity = sgj.callable(lambda x: x)


class Pair(NamedTuple):
    a: Any
    b: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Known:
    w: Any
    name: str = dataclasses.field(metadata={"static": True}, default="known")


@dataclasses.dataclass
class Unknown:
    w: Any
    b: Any = None


class Node:
    """A structure that only JAX knows."""

    def __init__(self, w: Any) -> None:
        self.w = w


jax.tree_util.register_pytree_node(Node, lambda n: ((n.w,), "node"), lambda _, children: Node(*children))

# ------------------------------------------------------------------------------------------- structures

TREES = {
    "array": X,
    "dict": {"b": X, "a": jnp.float32(2.0)},
    "dict in reverse order": {"z": {"y": X}, "a": X},
    "ordered dict": OrderedDict(z=X, a=X),
    "list and tuple": [X, (X, [])],
    "none": (None, {"w": None, "x": X}),
    "named tuple": Pair(X, Pair(None, X)),
    "dataclass": Known(X),
    "integers": {"n": jnp.arange(3), "b": jnp.asarray([True, False])},
    "nothing": (),
}


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", TREES)
def test_a_structure_comes_back_as_it_went_in(name: str, jit: bool) -> None:
    tree = TREES[name]
    found = (jax.jit(identity) if jit else identity)(tree)
    assert type(found) is type(tree)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        assert isinstance(a, jax.Array)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_structure_that_only_jax_knows_reaches_the_function() -> None:
    f = sgj.callable(lambda node: Node(sg.exp(node.w)))
    assert isinstance(f(Node(X)), Node)
    gradient = jax.jit(jax.grad(lambda node: f(node).w.sum()))(Node(X))
    np.testing.assert_allclose(gradient.w, jnp.exp(X), rtol=1e-6)


def test_a_dataclass_that_jax_does_not_know_is_a_structure_outside_of_jit() -> None:
    f = sgj.callable(lambda p: Unknown(p.w * 2.0, p.b))
    found = f(Unknown(X, None))
    assert isinstance(found, Unknown)
    assert found.b is None
    np.testing.assert_array_equal(found.w, 2.0 * X)


def test_the_gradient_has_the_structure_of_the_argument() -> None:
    f = sgj.callable(lambda p: sg.reduce_sum(p["z"].a * p["a"][0]))
    params = {"z": Pair(X, None), "a": [2.0 * X, X]}
    gradient = jax.grad(f)(params)
    assert jax.tree.structure(gradient) == jax.tree.structure(params)
    np.testing.assert_array_equal(gradient["z"].a, 2.0 * X)
    np.testing.assert_array_equal(gradient["a"][1], jnp.zeros(3))


def test_keyword_arguments_and_defaults() -> None:
    f = sgj.callable(lambda x, *, scale=2.0, power: sg.reduce_sum(scale * x**power))
    assert float(f(X, power=2)) == pytest.approx(float(2.0 * jnp.sum(X**2)), rel=1e-6)
    gradient = jax.jit(jax.grad(lambda s: f(X, power=2, scale=s)))(jnp.float32(1.0))
    assert float(gradient) == pytest.approx(float(jnp.sum(X**2)), rel=1e-6)


def test_what_is_no_array_is_handed_to_the_function() -> None:
    def f(x: Any, axis: int, how: str, flag: bool, function: Any) -> Any:
        assert (type(axis), type(how), type(flag)) == (int, str, bool)
        y = sg.reduce_sum(x, axis) if how == "sum" else sg.reduce_max(x, axis)
        return function(y) if flag else y

    g, x = sgj.callable(f), jnp.ones((2, 3))
    np.testing.assert_array_equal(g(x, 0, "sum", False, None), [2, 2, 2])
    np.testing.assert_allclose(g(x, 1, "max", True, sg.exp), np.exp([1.0, 1.0]), rtol=1e-6)
    jitted = jax.jit(g, static_argnames=("axis", "how", "flag", "function"))
    np.testing.assert_array_equal(jitted(x, axis=1, how="sum", flag=False, function=None), [3, 3])


def test_results_that_depend_on_no_argument_and_that_are_no_arrays() -> None:
    f = sgj.callable(lambda x: {"y": x, "n": 3, "s": "text", "c": np.arange(2, dtype=np.int32), "none": None})
    found = f(X)
    assert (found["s"], found["none"], int(found["n"])) == ("text", None, 3)
    assert isinstance(found["c"], jax.Array)
    assert sgj.callable(lambda x: "text")(X) == "text"


def test_functions_and_models_of_ours() -> None:
    compiled = sg.function(lambda x, power=2.0: sg.reduce_sum(x**power))
    np.testing.assert_allclose(jax.jit(jax.grad(sgj.callable(compiled)))(X), 2.0 * X, rtol=1e-6)
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        w = sg.parameter(np.array([1.0, 2.0, 3.0], np.float32), name="w")
        y = sg.reduce_sum(sg.stop_gradient(x) * x * w)
    model = Model(
        graph,
        {"x": x},
        {"y": y},
        {"w": w},
        leaves=lambda args, kwargs: args,
        rebuild=lambda values: values[0],
    )
    np.testing.assert_allclose(jax.grad(sgj.callable(model))(X), X * jnp.asarray([1.0, 2, 3]), rtol=1e-6)
    gradient = jax.jit(jax.grad(sgj.callable(model.apply)))({"w": X}, X)
    np.testing.assert_allclose(gradient["w"], X * X, rtol=1e-6)


def test_on_outputs_of_a_graph_it_builds_there() -> None:
    f = sgj.callable(lambda x: sg.reduce_sum(sg.stop_gradient(x) * x))
    np.testing.assert_array_equal(sg.grad(lambda x: f(x))(np.asarray(X)), X)


def test_methods() -> None:
    class Layer:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def __call__(self, x: Any) -> Any:
            return sg.scale_gradient(x, self.scale)

    f = sgj.callable(Layer(3.0))
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(f(x)))(X), jnp.full(3, 3.0))
    bound = sgj.callable(partial(sg.scale_gradient, s=2.0))
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(bound(x)))(X), jnp.full(3, 2.0))


# ------------------------------------------------------------------------------------------------ types


@pytest.mark.parametrize("wide", [False, True], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "complex128", "int64", "uint8"]
)
def test_an_array_has_the_type_that_jax_gives_it(dtype: str, wide: bool) -> None:
    with jax.enable_x64(wide):
        array = np.ones(3, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        wanted = jnp.asarray(array).dtype
        double = sgj.callable(lambda x: x + x)
        assert double(array).dtype == jax.jit(double)(array).dtype == wanted
        if jnp.issubdtype(wanted, jnp.floating):
            assert (
                jax.grad(lambda x: jnp.sum(double(x)).astype(jnp.float32))(jnp.asarray(array)).dtype == wanted
            )


def test_types_of_64_bits_are_computed_with_32_where_jax_does() -> None:
    def f(x: Any) -> Any:
        wide = sg.cast(x, sg.float64) * np.array([1.0, 2.0, 3.0])
        places = sg.argmax(wide, output_type=sg.int64)
        return (
            wide,
            places,
            sg.cast(sg.reduce_sum(wide), sg.complex128),
            sg.scan(lambda c, t: (c + t, c * t), np.float64(0.0), wide)[0],
        )

    found = jax.jit(sgj.callable(f))(X)
    assert [y.dtype.name for y in found] == ["float32", "int32", "complex64", "float32"]
    with jax.enable_x64(True):
        found = jax.jit(sgj.callable(f))(X)
    assert [y.dtype.name for y in found] == ["float64", "int64", "complex128", "float64"]


def test_what_needs_64_bits_says_so() -> None:
    f = sgj.callable(lambda rate: sg.random_poisson([3], np.array([1, 2], np.uint32), rate))
    with pytest.raises(
        sg.EngineError, match=r"needs types of 64 bits.*'jax_enable_x64', True.*RandomPoisson"
    ):
        f(jnp.ones(3))
    with jax.enable_x64(True):
        assert f(jnp.ones(3)).shape == (3,)


def test_numbers_take_the_type_of_the_arrays_beside_them() -> None:
    f = sgj.callable(lambda x, s: x * s)
    half = X.astype(jnp.bfloat16)
    assert f(half, 2.0).dtype == jax.jit(f)(half, 2.0).dtype == jnp.bfloat16
    assert f(2.0, 3.0).dtype == jax.jit(f)(2.0, 3.0).dtype == jnp.float32
    value, gradient = jax.value_and_grad(f)(2.0, 3.0)
    assert (float(value), float(gradient), gradient.dtype) == (6.0, 3.0, jnp.float32)
    assert float(jax.grad(lambda s: jnp.sum(f(half, s)).astype(jnp.float32))(2.0)) == pytest.approx(
        0.8, abs=0.02
    )


def test_a_carry_may_begin_as_a_number() -> None:
    f = sgj.callable(lambda c, x: (c * 0.5 + x, c))
    last, _ = jax.jit(lambda xs: jax.lax.scan(f, 1.0, xs))(X)
    assert last.dtype == jnp.float32


def test_integers_have_no_gradient() -> None:
    f = sgj.callable(lambda x, n: (sg.reduce_sum(x * sg.cast(n, sg.float32)), n + 1))
    n = jnp.arange(3)
    gradient = jax.grad(lambda x: f(x, n)[0])(X)
    np.testing.assert_array_equal(gradient, [0, 1, 2])
    value, pull = jax.vjp(f, X, n)
    dx, dn = pull((jnp.float32(1.0), np.zeros(3, jax.dtypes.float0)))
    assert (dx.dtype, dn.dtype) == (jnp.float32, jax.dtypes.float0)
    assert jax.grad(lambda n: f(X, n)[0], allow_int=True)(n).dtype == jax.dtypes.float0
    assert jax.jvp(lambda x: f(x, n), (X,), (X,))[1][1].dtype == jax.dtypes.float0
    del value


def test_complex_gradients_are_those_of_jax() -> None:
    def f(xp: Any, z: Any, w: Any) -> Any:
        y = xp.exp(z) * w * xp.conj(z)
        return xp.sum(xp.real(y) * xp.imag(z)), y

    ours, theirs = sgj.callable(partial(f, sg.xp)), partial(f, jnp)
    z = jnp.asarray([1.0 + 0.5j, -0.3j, 2.0], jnp.complex64)
    for transform in (
        lambda f: jax.grad(lambda z, w: f(z, w)[0], (0, 1))(z, X),
        lambda f: jax.jvp(f, (z, X), (1j * z, X)),
        lambda f: jax.vjp(f, z, X)[1]((jnp.float32(1.0), z)),
        lambda f: jax.grad(lambda x: jnp.sum(jnp.abs(jax.grad(lambda z: f(z, x)[0])(z)) ** 2))(X),
    ):
        for a, b in zip(jax.tree.leaves(transform(ours)), jax.tree.leaves(transform(theirs)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "setting", [partial(jax.numpy_rank_promotion, "raise"), partial(jax.numpy_dtype_promotion, "strict")]
)
def test_what_jax_forbids_its_users_is_no_matter_of_ours(setting: Any) -> None:
    f = sgj.callable(lambda x: sg.reduce_sum(sg.log_softmax(x) * np.ones((2, 3), np.float32)))
    with setting():
        assert jax.jit(jax.value_and_grad(f))(X)[1].shape == (3,)


def test_parts_on_several_devices() -> None:
    mesh = jax.make_mesh((1,), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    f = sgj.callable(lambda x, w: sg.tanh(x * w))

    @partial(jax.shard_map, mesh=mesh, in_specs=(spec, jax.sharding.PartitionSpec()), out_specs=spec)
    def parts(x: Any, w: Any) -> Any:
        return jax.jvp(lambda x: jax.grad(lambda x: jnp.sum(f(x, w)))(x), (x,), (x,))[1]

    whole = jax.jvp(jax.grad(lambda x: jnp.sum(jnp.tanh(x * 2.0))), (X,), (X,))[1]
    x, w = (
        jax.device_put(y, jax.sharding.NamedSharding(mesh, how))
        for y, how in ((X, spec), (jnp.full(3, 2.0), jax.sharding.PartitionSpec()))
    )
    np.testing.assert_allclose(jax.jit(parts)(x, w), whole, rtol=1e-5)


# ----------------------------------------------------------------------------------------------- errors


def test_what_is_no_function() -> None:
    with pytest.raises(sg.ArgumentError, match="callable: takes a function, not 3"):
        sgj.callable(3)


def test_a_value_that_jax_traces_must_be_an_argument() -> None:
    @jax.jit
    def f(x: Any, w: Any) -> Any:
        return sgj.callable(lambda x: sg.exp(x) * w)(x)

    with pytest.raises(sg.ArgumentError, match=r"that JAX is tracing .* pass it as one") as caught:
        f(X, X)
    assert "sg.exp(x) * w" in str(caught.value)


def test_an_argument_without_a_hash() -> None:
    f = sgj.callable(lambda x, names: x)
    with pytest.raises(sg.ArgumentError, match=r"given \{'a'\} for its argument \[1\], which has no hash"):
        f(X, {"a"})


def test_an_argument_of_a_type_of_jax_alone() -> None:
    f = sgj.callable(lambda params: params["key"])
    with pytest.raises(sg.DTypeError, match=r"params.key is of JAX's type key<fry>.*jax.random.key_data"):
        f({"key": jax.random.key(0)})
    f = sgj.callable(lambda key: sg.random_normal([2], key))
    assert f(jax.random.key_data(jax.random.key(0))).shape == (2,)


def test_an_integer_that_jax_has_made_an_array_of() -> None:
    f = jax.jit(sgj.callable(lambda x, axis: sg.reduce_sum(x, axis)))
    with pytest.raises(sg.StopgradError):
        f(X, 0)


def test_a_parameter_of_a_graph_inside() -> None:
    f = sgj.callable(lambda x: x * sg.parameter(np.ones(3, np.float32), name="w"))
    with pytest.raises(sg.GraphError, match="parameters live in a session"):
        f(X)


def test_an_error_of_an_operation_is_at_the_users_line() -> None:
    f = sgj.callable(lambda x: sg.matmul(x, np.ones((2, 2), np.float32)))
    with pytest.raises(sg.ShapeError) as caught:
        jax.jit(f)(X)
    assert "test_callable_arguments.py" in str(caught.value)


def test_an_error_of_the_users_own_is_handed_on() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        jax.jit(sgj.callable(f))(X)


def test_an_undefined_gradient_is_an_error() -> None:
    f = sgj.callable(lambda x: sg.while_loop(lambda x: sg.reduce_sum(x) < 100.0, lambda x: [x * 2.0], [x])[0])
    assert f(jnp.abs(X)).shape == (3,)
    with pytest.raises(sg.GradientError, match="maximum_iterations"):
        jax.grad(lambda x: jnp.sum(f(x)))(jnp.abs(X))
