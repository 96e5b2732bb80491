"""Numbers, flags and words of NumPy are taken wherever Python's are, and come out as Python's.

Each call below is made with Python's own and then with NumPy's: the same graph, whose attributes are plain.
Then with each whole number in turn as ``1.0`` or ``True``: not taken for 1, even where 1 was seen before.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy_numbers_arrays
import numpy_numbers_fft
import numpy_numbers_linalg
import numpy_numbers_nn
import pytest
from together import together

import stopgrad as sg
from stopgrad.graph.body import walk
from stopgrad.graph.inferred import check_canonical

N = sg.dim("n")


class Tensor(NamedTuple):
    """Stands for a placeholder."""

    dtype: str
    shape: tuple[int, ...]


def tensor(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(dtype, shape)


X, XX = tensor(4), tensor(4, 6)
IMAGE, VOLUME, FILTERS = tensor(2, 8, 8, 3), tensor(2, 8, 3), tensor(3, 3, 3, 5)
INDICES, FLAGS, KEY = tensor(2, dtype="int32"), tensor(4, dtype="bool"), tensor(2, dtype="uint32")


@dataclass
class Call:
    """A call, and what to call with what it returns. The name may have dots."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    to: tuple[Tensor, ...] | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def function(self) -> Any:
        return operator.attrgetter(self.name)(sg)


def call(name: str, /, *args: Any, **kwargs: Any) -> Call:
    return Call(name, args, kwargs)


def applied(name: str, f: Any, *, to: tuple[Tensor, ...], **kwargs: Any) -> Call:
    """A transformation of a function; what it returns is called on tensors."""
    return Call(name, (f,), kwargs, to)


def square(x: Any) -> Any:
    return sg.reduce_sum(x * x)


def product(x: Any, y: Any) -> Any:
    return sg.reduce_sum(x * y)


WINDOW = {"ksize": 2, "strides": 2, "padding": "SAME", "dilations": 1}
PADDED = {"ksize": (2, 3), "strides": [1, 2], "padding": ((1, 1), (0, 1)), "dilations": (1, 2)}
CONVOLVED = {"strides": 1, "padding": "SAME", "dilations": 2, "groups": 1}
REDUCTIONS = ("euclidean_norm", "logsumexp", "max", "mean", "min", "prod", "std", "sum", "variance")

CALLS = [
    *[call(f"reduce_{name}", XX, axis=1, keepdims=True) for name in REDUCTIONS],
    *[call(f"reduce_{name}", XX, axis=[0, -1], keepdims=False) for name in REDUCTIONS],
    *[call(name, FLAGS, axis=0, keepdims=True) for name in ("reduce_all", "reduce_any")],
    call("argmax", XX, axis=1),
    call("argmin", XX, axis=-1),
    call("argsort", XX, axis=1, direction="DESCENDING"),
    call("sort", XX, axis=-1, direction="DESCENDING"),
    call("top_k", XX, k=2),
    call("cumsum", XX, axis=1, exclusive=True, reverse=False),
    call("cumprod", XX, axis=-1, exclusive=False, reverse=True),
    call("linear_recurrence", XX, XX, axis=1, reverse=True),
    call("softmax", XX, axis=-1),
    call("softmax", XX, axis=(0, 1)),
    call("log_softmax", XX, axis=1),
    call("layer_norm", XX, axis=-1, epsilon=0.25),
    call("leaky_relu", X, alpha=0.25),
    call("gelu", X, approximate=True),
    call("polygamma", 2, X),
    call("polyval", [2.0, -1.0, 3.0], X),
    call("scalar_mul", 2.5, X),
    call("softmax_cross_entropy_with_logits", XX, XX, axis=1),
    call("mean_squared_error", XX, XX, axis=1),
    call("matmul", XX, XX, transpose_a=True, transpose_b=False),
    call("matmul", XX, XX, transpose_a=False, transpose_b=True),
    call("tensordot", XX, XX, axes=2),
    call("tensordot", XX, XX, axes=[[1], [1]]),
    call("tensordot", XX, XX, axes=(0, 0)),
    call("einsum", "ij,kj->ik", XX, XX),
    call("reshape", XX, [3, 8]),
    call("reshape", XX, [2, -1]),
    call("reshape", XX, 24),
    call("transpose", XX, perm=[1, 0]),
    call("transpose", XX, perm=(-1, 0)),
    call("transpose", XX, conjugate=True),
    call("expand_dims", XX, axis=1),
    call("expand_dims", XX, axis=(0, -1)),
    call("squeeze", tensor(1, 4, 1), axis=0),
    call("squeeze", tensor(1, 4, 1), axis=[0, 2]),
    call("broadcast_to", X, [3, 4]),
    call("reverse", XX, axis=[0, 1]),
    call("reverse", XX, axis=1),
    call("tile", XX, [2, 1]),
    call("pad", XX, [[1, 0], [2, 3]], mode="CONSTANT"),
    call("concat", [XX, XX], axis=1),
    call("stack", [X, X], axis=-1),
    call("unstack", XX, axis=1),
    call("split", XX, 2, axis=1),
    call("split", XX, [1, 3], axis=0),
    call("split", XX, [1, 5], axis=-1),
    call("gather", XX, INDICES, axis=1, batch_dims=0),
    call("gather", XX, tensor(4, 2, dtype="int32"), axis=1, batch_dims=1),
    call("scatter_add", XX, INDICES, tensor(2, 6), axis=0, batch_dims=0),
    call("take_along_axis", XX, tensor(4, 2, dtype="int32"), axis=1),
    call("one_hot", INDICES, 5, axis=-1),
    call("strided_slice", XX, [0, 1], [4, -1], [2, 1]),
    call("size", XX, axis=1),
    call("size", XX, axis=[0, 1]),
    call("placeholder", "float32", [2, 3]),
    call("placeholder", "float32", 3),
    call("placeholder", "float32", ["batch", 3]),
    call("constant", np.float32(1.0), shape=[2, 1]),
    call("fill", [2, 3], 0.5),
    call("full", [2, 3], 0.5),
    call("ones", [2, 3]),
    call("zeros", 4),
    # Without a dtype, that of NumPy's numbers is the result's.
    call("range", 2, 8, 3, dtype="int32"),
    call("range", 5, dtype="int32"),
    call("range", 0.5, 3.0, 0.25, dtype="float32"),
    call("range", 1, N, 2, dtype="int32"),
    call("avg_pool", IMAGE, **WINDOW),
    call("avg_pool2d", IMAGE, **PADDED),
    call("avg_pool1d", VOLUME, **WINDOW),
    call("max_pool", IMAGE, **PADDED),
    call("max_pool1d", VOLUME, **WINDOW),
    call("max_pool2d", IMAGE, **WINDOW),
    call("conv", IMAGE, FILTERS, **CONVOLVED),
    call(
        "conv2d",
        IMAGE,
        FILTERS,
        **CONVOLVED | {"padding": [(1, 0), (2, 1)], "strides": [2, 1], "dilations": 1},
    ),
    call("conv1d", VOLUME, tensor(3, 3, 5), stride=1, padding="SAME", dilations=2, groups=1),
    call("conv2d_backprop_filter", IMAGE, [3, 3, 3, 5], tensor(2, 8, 8, 5), **CONVOLVED),
    call("conv2d_backprop_input", [2, 8, 8, 3], FILTERS, tensor(2, 8, 8, 5), **CONVOLVED),
    call("conv2d_transpose", IMAGE, tensor(3, 3, 5, 3), [2, 16, 16, 5], strides=2, padding="SAME"),
    call("random_key", 7),
    call("random_split", KEY, num=3),
    call("random_bits", [2, 3], KEY),
    call("random_uniform", [2, 3], KEY),
    call("random_normal", [2, 3], KEY),
    call("random_truncated_normal", [2, 3], KEY),
    call("random_gumbel", [2, 3], KEY),
    call("random_laplace", [2, 3], KEY),
    call("random_logistic", [2, 3], KEY),
    call("random_cauchy", [2, 3], KEY),
    call("random_exponential", [2, 3], KEY),
    call("random_bernoulli", [2, 4], KEY, X),
    call("random_categorical", XX, 3, KEY, axis=1),
    call("random_integers", [2, 3], KEY, 1, 7),
    call("random_gamma", [2, 4], KEY, X),
    call("random_beta", [2, 4], KEY, X, X),
    call("random_dirichlet", [2], KEY, X),
    call("random_poisson", [2, 4], KEY, X),
    call("random_permutation", XX, KEY, axis=1),
    call("random_shuffle", XX, KEY),
    call("random_choice", [2], KEY, 5, replace=False),
    call("random_choice", [2], KEY, XX, axis=1),
    call("dropout", XX, 0.25, noise_shape=[4, 1], key=KEY),
    call("prevent_gradient", X, message="not here"),
    call("probe", X, name="seen"),
    call("scan", lambda s, x: (s + x, s), 0.0, X, reverse=True, unroll=2),
    call("scan", lambda s, _: (s * 2.0, s), 1.0, length=3),
    call("while_loop", lambda s: s < 3.0, lambda s: s + 1.0, 0.0, maximum_iterations=4),
    call("while_loop", lambda s: s < 3.0, lambda s: s + 1.0, 0.0, parallel_iterations=2),
    call("map_fn", lambda x: x * 2.0, X, parallel_iterations=2),
    applied("grad", product, argnums=1, to=(X, X), has_aux=False, unconnected="none"),
    applied("grad", product, argnums=[0, 1], to=(X, X)),
    applied("grad", lambda x: (square(x), x), to=(X,), has_aux=True),
    applied("value_and_grad", product, argnums=(0, -1), to=(X, X), has_aux=False, unconnected="zero"),
    applied("jacobian", product, argnums=1, to=(X, X), has_aux=False),
    applied("hessian", product, argnums=[0, 1], to=(X, X)),
    applied("vmap", product, to=(XX, XX), in_axes=(1, 1), out_axes=0),
    applied("vmap", lambda x: x * 2.0, to=(XX,), in_axes=1, out_axes=-1),
    call("explain", product, X, X, argnums=1),
    call("trace_nan", product, np.ones(3), np.ones(3), argnums=1, gradient=True),
    call("check_gradients", product, np.ones(3), np.ones(3), argnums=1, order=2, directions=2, seed=3),
    call(
        "check_gradients", product, np.ones(3), np.ones(3), rtol=0.1, atol=0.5, modes="reverse", raises=False
    ),
    call("check_gradients", product, np.ones(3), np.ones(3), stops="ignore"),
    call("assert_flows", product, X, X, argnums=1),
    call("assert_blocked", lambda x, y: sg.stop_gradient(x) + y, X, X, argnums=0),
    call("assert_only_flows", lambda x, y: sg.stop_gradient(x) + y, X, X, to="y", argnums=[0, 1]),
    Call("vjp", (square, X), {"has_aux": False}),
]

FAMILIES = (numpy_numbers_arrays, numpy_numbers_fft, numpy_numbers_linalg, numpy_numbers_nn)
CALLS += [c for family in FAMILIES for c in family.calls(call, tensor)]

# Parameters that take tensors (where a number of NumPy is an array with a dtype), functions, types or names.
NO_NUMBERS = {
    "lam",
    "alpha",
    "a",
    "args",
    "b",
    "body",
    "branches",
    "feed_dict",
    "by",
    "cond",
    "condition",
    "constant_values",
    "data",
    "dtype",
    "elems",
    "f",
    "false_fn",
    "filters",
    "fn",
    "g",
    "grad_ys",
    "graph",
    "hard",
    "high",
    "imag",
    "indices",
    "init",
    "input",
    "input_tensor",
    "inputs",
    "key",
    "kwargs",
    "labels",
    "mesh",
    "sharding",
    "shardings",
    "loc",
    "logits",
    "loop_vars",
    "low",
    "max_norm",
    "maxval",
    "mean",
    "minval",
    "name",
    "off_value",
    "offset",
    "on_value",
    "operands",
    "p",
    "parameter",
    "params",
    "out_type",
    "output_type",
    "pred",
    "predictions",
    "primals",
    "real",
    "ref",
    "rate",
    "s",
    "scale",
    "soft",
    "stddev",
    "session",
    "stop_gradients",
    "tangents",
    "tensor",
    "true_fn",
    "updates",
    "value",
    "when",
    "wrt",
    "x",
    "x1",
    "x2",
    "xs",
    "y",
    "ys",
}.union(*(family.TENSORS for family in FAMILIES))
# What takes a number for a tensor all the same, or words, or is shown elsewhere in this file.
TREES = [
    "save",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_structure",
]
ELSEWHERE = {
    # The array API's, in tests/ops/test_xp.py.
    *((name, p) for name in ("cumulative_prod", "cumulative_sum") for p in ("axis", "include_initial")),
    *(("astype", p) for p in ("copy", "device")),
    *(("from_dlpack", p) for p in ("copy", "device")),
    *(("can_cast", p) for p in ("from_", "to")),
    # Tensors, and names of arguments.
    *((f"assert_{name}", "to") for name in ("flows", "blocked", "only_flows")),
    ("assert_only_flows", "among"),
    ("broadcast_arrays", "arrays"),
    ("broadcast_shapes", "shapes"),
    ("finfo", "type"),
    ("iinfo", "type"),
    ("isdtype", "kind"),
    ("permute_dims", "axes"),
    ("result_type", "arrays_and_dtypes"),
    # In tests/train/test_adapters.py.
    *(("add_lora", p) for p in ("outputs", "rank")),
    # In tests/flow/test_ablate.py.
    *(("ablate", p) for p in ("argnums", "engine", "feed_dict", "repeats", "seed")),
    ("dim", "name"),
    ("random_truncated_normal", "lower"),
    ("random_truncated_normal", "upper"),
    ("fori_loop", "lower"),
    ("fori_loop", "upper"),
    ("switch", "index"),
    ("function", "cache_size"),
    ("function", "strict"),
    ("function", "tune"),
    ("function", "donate_argnums"),
    ("function", "engine"),
    ("function", "shapes"),
    ("function", "static_argnames"),
    ("function", "static_argnums"),
    ("function", "with_probes"),
    ("gradients", "aggregation_method"),
    ("gradients", "gate_gradients"),
    ("gradients", "unconnected_gradients"),
    ("map_fn", "fn_output_signature"),
    *(("map_fn", name) for name in ("infer_shape", "back_prop", "swap_memory")),
    *(("while_loop", name) for name in ("shape_invariants", "back_prop", "swap_memory")),
    # Structures, files, functions; flags and counts, which tests of bad input give.
    *((name, "tree") for name in TREES),
    *((name, p) for name in ("tree_map", "tree_map_with_path", "tree_reduce") for p in ("function", "rest")),
    *(("load", p) for p in ("like", "path")),
    *(("monitor", p) for p in ("every", "loss", "to")),
    *(("print", p) for p in ("fmt", "ordered")),
    ("debug_callback", "callback"),
    ("explain", "magnitudes"),
    ("save", "path"),
    ("tree_reduce", "initializer"),
    ("tree_unflatten", "leaves"),
}.union(*(family.ELSEWHERE for family in FAMILIES))


def public_functions() -> dict[str, Any]:
    return {
        name: f
        for name, f in inspect.getmembers(sg)
        if not name.startswith("_") and inspect.isfunction(f) and f.__module__.startswith("stopgrad")
    }


def test_every_parameter_that_takes_a_number_is_in_a_call() -> None:
    given = {
        (c.name, p) for c in CALLS for p in inspect.signature(c.function).bind(*c.args, **c.kwargs).arguments
    }
    taken = {
        (name, p)
        for name, f in public_functions().items()
        for p in inspect.signature(f).parameters
        if p not in NO_NUMBERS
    }
    assert taken - given - ELSEWHERE == set()


# ----------------------------------------------------------------------------------------------- calls


def converted(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Tensor):
        return sg.placeholder(value.dtype, value.shape)
    if isinstance(value, (list, tuple)):
        return type(value)(converted(v, change) for v in value)
    if isinstance(value, (bool, int, float, str)):
        return change(value)
    return value


def graph_of(c: Call, change: Callable[[Any], Any]) -> sg.Graph:
    graph = sg.Graph()
    with graph.as_default():
        args = [converted(v, change) for v in c.args]
        kwargs = {name: converted(v, change) for name, v in c.kwargs.items()}
        made = c.function(*args, **kwargs)
        if c.to is not None:
            made(*[converted(x, change) for x in c.to])
    for op in walk(graph.operations):
        check_canonical(op.definition, op.values)
    return graph


def of_numpy(integer: Callable[[int], Any]) -> Callable[[Any], Any]:
    def change(value: Any) -> Any:
        if isinstance(value, bool):
            return np.bool_(value)
        if isinstance(value, int):
            return integer(value)
        return np.str_(value) if isinstance(value, str) else np.float32(value)

    return change


@pytest.mark.parametrize("integer", [np.int64, np.int8, np.array], ids=["int64", "int8", "array"])
@together("c", CALLS, ids=repr)
def test_numbers_of_numpy_build_what_pythons_build(c: Call, integer: Callable[[int], Any]) -> None:
    if c.name in ("random_key", "random_integers") and integer is np.array:
        integer = np.int64
    assert graph_of(c, of_numpy(integer)).to_text() == graph_of(c, lambda value: value).to_text()


def places(value: Any) -> Iterator[Any]:
    """The numbers, flags and words among arguments, in the order in which they are converted."""
    if isinstance(value, (list, tuple)) and not isinstance(value, Tensor):
        for v in value:
            yield from places(v)
    elif isinstance(value, (bool, int, float, str)):
        yield value


def each_wrong(c: Call, kind: type, wrong: Callable[[Any], Any]) -> Iterator[Callable[[Any], Any]]:
    """For each number, flag or word of this kind: what changes it alone into a wrong one."""
    for place, value in enumerate(places([*c.args, *c.kwargs.values()])):
        if type(value) is kind:
            count = iter(range(1_000))
            yield lambda v, count=count, place=place: wrong(v) if next(count) == place else v


def test_what_is_not_refused_is_found() -> None:
    changes = list(each_wrong(call("reduce_sum", XX, axis=[0, 1], keepdims=True), int, float))
    assert [[change(v) for v in (0, 1, True)] for change in changes] == [[0.0, 1, True], [0, 1.0, True]]


WRONG = (float, lambda _: True, lambda _: np.True_)


# TensorFlow's polygamma takes its order as a float.
FLOATS_TOO = {"range", "polygamma"}


@pytest.mark.parametrize("wrong", WRONG, ids=["float", "True", "numpy.True"])
@together("c", [c for c in CALLS if c.name not in FLOATS_TOO], ids=repr)
def test_what_is_no_whole_number_is_not_taken_for_one(c: Call, wrong: Callable[[int], Any]) -> None:
    graph_of(c, lambda value: value)  # Caches have seen the right one.
    for change in each_wrong(c, int, wrong):
        with pytest.raises(sg.StopgradError) as caught:
            graph_of(c, change)
        assert not isinstance(caught.value, sg.DefinitionError)


# TensorFlow's default of keepdims is None in these, for False.
NONE_IS_A_FLAG = {"count_nonzero", "norm"}


@pytest.mark.parametrize("wrong", [2, 1.0, "yes", None], ids=repr)
@together("c", CALLS, ids=repr)
def test_what_is_no_flag_is_not_taken_for_one(c: Call, wrong: Any) -> None:
    if wrong is None and c.name in NONE_IS_A_FLAG:
        return
    graph_of(c, lambda value: value)
    for change in each_wrong(c, bool, lambda _: wrong):
        with pytest.raises(sg.StopgradError) as caught:
            graph_of(c, change)
        assert not isinstance(caught.value, sg.DefinitionError)


# -------------------------------------------------------------------------------------- not as arguments


@pytest.mark.parametrize("integer", [np.int64, np.uint8, np.array], ids=["int64", "uint8", "array"])
def test_indices_of_numpy_are_indices(integer: Callable[[int], Any]) -> None:
    def text(i: Callable[[int], Any]) -> str:
        graph = sg.Graph()
        with graph.as_default():
            x = sg.placeholder("float32", [4, 6, "n"])
            for index in (
                i(1),
                (slice(i(1), i(3)), i(2)),
                (Ellipsis, slice(None, None, i(2))),
                (slice(i(3), i(0), np.int64(-1)), None, slice(i(1), None)),
                (0, 0, slice(i(1), N, i(3))),
            ):
                x[index]
        for op in graph.operations:
            check_canonical(op.definition, op.values)
        return graph.to_text()

    assert text(integer) == text(int)


@pytest.mark.parametrize(
    "index", [1.0, "1", [1.0], (1, 1.0), slice(0.0, 1), slice(None, True), slice(None, None, 1.0)], ids=repr
)
def test_what_is_no_index_is_refused(index: Any) -> None:
    with sg.Graph().as_default():
        x = sg.placeholder("float32", [4])
        x[1], x[0:1], x[:1], x[::1]
        with pytest.raises((sg.ShapeError, sg.DTypeError)):
            x[index]


def test_whole_numbers_are_orders_of_norms_and_flags_are_none() -> None:
    x = np.array([[3.0, 0.0], [4.0, 5.0]])
    for norm in (sg.norm, sg.vector_norm, sg.matrix_norm, sg.normalize):
        axes = {"axis": (0, 1)} if norm is sg.normalize else {}

        def text(ord: Any, norm: Any = norm, axes: Any = axes) -> str:
            with sg.Graph().as_default() as graph:
                norm(sg.constant(x), ord=ord, **axes)
            for op in graph.operations:
                check_canonical(op.definition, op.values)
            return graph.to_text()

        assert text(1) == text(np.int8(1)) == text(np.float32(1.0)) == text(np.array(1)) == text(1.0)
        for wrong in (True, np.True_, 1j, [1]):
            with pytest.raises(sg.StopgradError):
                text(wrong)


def test_bounds_and_branches_may_be_numpys() -> None:
    def looped(lower: Any, upper: Any) -> Any:
        return sg.fori_loop(lower, upper, lambda i, s: s + i, 0)

    assert looped(np.int64(1), np.uint8(5)) == looped(1, 5) == 10
    branches = [lambda: np.float32(1.0), lambda: np.float32(2.0)]
    assert sg.switch(np.int64(1), branches) == sg.switch(1, branches) == 2.0
    assert sg.random_permutation(np.int64(5), sg.random_key(np.uint8(3))).tolist() == (
        sg.random_permutation(5, sg.random_key(3)).tolist()
    )


def test_donated_arguments_may_be_named_with_numpys_numbers() -> None:
    double = sg.function(lambda x: x * 2.0, donate_argnums=np.int64(0), engine="numpy")
    assert double(np.array([1.0]))[0] == 2.0
    both = sg.function(lambda x, y: x * y, donate_argnums=[np.int64(0), np.uint8(1)], engine="numpy")
    assert both(np.array([1.0]), np.array([3.0]))[0] == 3.0
    for wrong in (1.0, True, [0, 1.0]):
        with pytest.raises(sg.ArgumentError):
            sg.function(lambda x: x, donate_argnums=wrong)


def test_static_arguments_may_be_named_with_numpys_numbers_and_words() -> None:
    x = np.array([2.0, 3.0])
    for how in (
        {"static_argnums": np.int64(1)},
        {"static_argnums": [np.uint8(1), np.array(-1)], "with_probes": np.False_},
        {"static_argnames": np.str_("power")},
        {"static_argnames": [np.str_("power")], "shapes": {np.str_("x"): [np.int64(2)]}},
        {"shapes": {"x": [np.str_("batch")]}, "static_argnums": -np.int8(1)},
    ):
        seen = []

        def power_of(x: Any, power: Any = 2.0, seen: list[Any] = seen) -> Any:
            seen.append(type(power))
            return x**power

        found = sg.function(lambda x, power=2.0, *, f=power_of: f(x, power), engine="numpy", **how)
        np.testing.assert_array_equal(found(x, 2.0), [4.0, 9.0])
        assert seen == [float]
    for wrong in (
        {"static_argnums": 1.0},
        {"static_argnums": True},
        {"static_argnums": [np.True_]},
        {"with_probes": 2},
        {"with_probes": "yes"},
        {"shapes": {"x": [2.0]}},
        {"shapes": {"x": [True]}},
    ):
        with pytest.raises(sg.StopgradError):
            sg.function(lambda x, power=2.0: x**power, engine="numpy", **wrong)(x, 2.0)


def test_how_gradients_are_added_may_be_said_in_numpys() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder("float32", [3])
        y = sg.reduce_sum(x * x)
        sg.gradients(y, x, gate_gradients=np.False_, unconnected_gradients=np.str_("zero"))
        for wrong in (1.0, "yes", None, 2):
            with pytest.raises(sg.StopgradError):
                sg.gradients(y, x, gate_gradients=wrong)
        for wrong in (1.0, True, "sum"):
            with pytest.raises(sg.StopgradError):
                sg.gradients(y, x, aggregation_method=wrong)


def test_sizes_made_of_numpys_numbers_are_pythons() -> None:
    for size in (
        np.int64(2) * N,
        N + np.uint8(1),
        np.int32(9) - N,
        N // np.int64(2),
        N % np.int64(2),
        N ** np.int64(2),
    ):
        assert all(type(n) is int for monomial, n in size.terms)
    assert np.int64(2) * N is 2 * N
    assert N // np.int64(2) is N // 2


def test_the_size_of_a_cache_may_be_numpys() -> None:
    how = {"cache_size": np.int64(2), "strict": np.True_, "tune": np.str_("quick")}
    double = sg.function(lambda x: x * 2.0, engine="numpy", **how)
    assert double(np.array([1.0]))[0] == 2.0
    with sg.Graph().as_default() as graph:
        y = sg.constant(1.0) + 1.0
    with sg.Session(graph, engine="numpy", cache_size=np.uint8(1)) as session:
        assert session.run(y) == 2.0
    for wrong in (1.0, True, 0):
        with pytest.raises(sg.ArgumentError):
            sg.function(lambda x: x, cache_size=wrong)
        with pytest.raises(sg.ArgumentError):
            sg.Session(graph, cache_size=wrong)
