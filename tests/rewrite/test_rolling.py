"""Repeated layers and time steps become loops: which are found, and that the numbers stay what they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stopgrad as sg
from stopgrad.base.structure import flatten, unflatten
from stopgrad.engines.numpy import NumPyEngine
from stopgrad.rewrite import Rewritten, prepare, rolling
from stopgrad.rewrite.periods import Stretch, stretches
from stopgrad.rewrite.rolling import roll

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def small_graphs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "LEAST_SAVED", 20)
    monkeypatch.setattr(rolling, "_LEAST_IN_ONE", 5)


def prepared(f: Callable[..., Any], *args: Any) -> tuple[Rewritten, list[Array]]:
    """What an engine would get of a function of arrays, and the arrays."""
    leaves, spec = flatten(args)
    with sg.Graph().as_default():
        inputs = [sg.placeholder(x.dtype, x.shape) for x in leaves]
        outputs = flatten(f(*unflatten(spec, inputs)))[0]
    return prepare(outputs, inputs, {}), leaves


def run(graph: Rewritten, values: Sequence[Array]) -> list[Array]:
    return [np.asarray(y) for y in NumPyEngine().compile(graph.inputs, graph.outputs)(values)]


def scans(graph: Rewritten) -> list[int]:
    return [op.length for op in graph.graph.operations if op.type == "Scan"]


def rolled_equal(f: Callable[..., Any], *args: Any, exact: bool = True) -> list[int]:
    """Check that the rolled graph computes the same; tells the lengths of its loops."""
    plain, values = prepared(f, *args)
    loops = roll(plain)
    for one, other in zip(run(plain, values), run(loops, values), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if exact:
            assert one.tobytes() == other.tobytes()
        else:
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
    return scans(loops)


def near(lengths: Sequence[int], counts: Sequence[int]) -> bool:
    """Whether there are loops over so many layers or steps, of which the first and the last may differ."""
    return len(lengths) == len(counts) and all(
        n - 2 <= found <= n for found, n in zip(lengths, counts, strict=True)
    )


def normal(*shape: int, dtype: Any = np.float64) -> Array:
    return np.asarray(RNG.standard_normal(shape) / np.sqrt(shape[0]), dtype)


def layers(count: int, width: int = 3, dtype: Any = np.float64) -> list[tuple[Array, Array]]:
    return [(normal(width, width, dtype=dtype), normal(width, dtype=dtype)) for _ in range(count)]


def mlp(params: Any, x: Any) -> Any:
    for w, b in params:
        x = sg.tanh(x @ w + b)
    return sg.reduce_mean(x * x)


def rnn(params: Any, x: Any) -> Any:
    h = sg.zeros((2, 3), x.dtype)
    for t in range(x.shape[1]):
        h = sg.tanh(x[:, t] @ params["in"] + h @ params["hidden"] + params["bias"])
    return sg.reduce_sum(h * h)


def rnn_params(dtype: Any = np.float64) -> dict[str, Array]:
    return {
        "in": normal(4, 3, dtype=dtype),
        "hidden": normal(3, 3, dtype=dtype),
        "bias": normal(3, dtype=dtype),
    }


# ----------------------------------------------------------------------------------------- what is found


@pytest.mark.parametrize("dtype", [np.float32, np.float64, sg.bfloat16.numpy])
def test_layers_of_a_chain(dtype: Any) -> None:
    lengths = rolled_equal(sg.value_and_grad(mlp), layers(20, dtype=dtype), normal(2, 3, dtype=dtype))
    assert lengths == [20, 19]  # The last layer's cotangent comes from the loss.


def test_a_graph_no_longer_grows_with_its_layers() -> None:
    def forward(params: Any, x: Any) -> Any:
        return mlp(params, x)

    kinds = []
    for count in (20, 40):
        graph = roll(prepared(forward, layers(count), normal(2, 3))[0]).graph
        kinds.append(Counter(op.type for op in graph.operations if op.type != "Placeholder"))
    assert kinds[0] == kinds[1]


def test_residual_blocks() -> None:
    def blocks(params: Any, x: Any) -> Any:
        for w, b in params:
            mean = sg.reduce_mean(x, axis=-1, keepdims=True)
            x = x + sg.maximum((x - mean) @ w + b, 0.0) * 0.5
        return sg.reduce_sum(x)

    assert near(rolled_equal(sg.value_and_grad(blocks), layers(12), normal(2, 3)), [12, 12])


def test_steps_over_time_with_shared_weights() -> None:
    x = normal(2, 15, 4)
    lengths = rolled_equal(sg.value_and_grad(rnn, argnums=(0, 1)), rnn_params(), x)
    assert lengths == [15, 14]
    graph = roll(prepared(sg.grad(rnn, argnums=(0, 1)), rnn_params(), x)[0]).graph
    kinds = Counter(op.type for op in graph.operations)
    # One slice for what the steps read, and one gradient of it for what arrives there: none for each step.
    assert kinds["StridedSliceGrad"] == 2
    assert kinds["Pack"] == 0


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_what_stacks_the_results_of_all_steps_takes_them_from_the_loop(axis: int) -> None:
    def states(params: Any, x: Any) -> Any:
        h, found = sg.zeros((2, 3), x.dtype), []
        for t in range(x.shape[1]):
            h = sg.tanh(x[:, t] @ params["in"] + h @ params["hidden"] + params["bias"])
            found.append(h)
        return sg.stack(found, axis), sg.stack(found[::-1], axis)

    def loss(params: Any, x: Any) -> Any:
        return sg.reduce_sum(states(params, x)[0] ** 2)

    x = normal(2, 15, 4)
    rolled_equal(states, rnn_params(), x)
    rolled_equal(sg.grad(loss), rnn_params(), x, exact=False)
    graph = roll(prepared(states, rnn_params(), x)[0]).graph
    # One operation each for the rows of the loop's results, none for each step.
    assert all(len(op.inputs) <= 4 for op in graph.operations if op.type in ("Pack", "ConcatV2"))
    assert Counter(op.type for op in graph.operations)["StridedSlice"] <= 4


def test_sums_over_steps_in_16_bits_are_rounded_once() -> None:
    dtype = sg.bfloat16.numpy
    params, x = rnn_params(dtype), normal(2, 40, 4, dtype=dtype)
    assert rolled_equal(sg.grad(rnn), params, x) == [40, 39]


def test_time_steps_from_the_last_to_the_first() -> None:
    def backwards(w: Any, x: Any) -> Any:
        h = x[:, 0] * 0.0
        for t in reversed(range(12)):
            h = sg.tanh(h @ w + x[:, 2 * t : 2 * t + 2][:, 0])
        return sg.reduce_sum(h)

    assert rolled_equal(sg.value_and_grad(backwards, argnums=(0, 1)), normal(4, 4), normal(2, 24, 4))


def test_blocks_of_several_parts() -> None:
    def split(w: Any, x: Any) -> Any:
        h = x[:, :2] * 0.0
        for t in range(12):
            h = sg.tanh(h @ w + x[:, 2 * t : 2 * t + 2])
        return sg.reduce_sum(h)

    lengths = rolled_equal(sg.value_and_grad(split, argnums=(0, 1)), normal(2, 2), normal(3, 24))
    assert near(lengths, [12, 12])


def test_several_layers_at_each_time_step() -> None:
    def deep(params: Any, x: Any) -> Any:
        hs = [x[:, 0] * 0.0 for _ in params]
        for t in range(12):
            below = x[:, t]
            for i, (w, b) in enumerate(params):
                below = hs[i] = sg.tanh(below @ w + hs[i] + b)
        return sg.reduce_sum(hs[-1])

    assert near(rolled_equal(sg.value_and_grad(deep), layers(3), normal(2, 12, 3)), [12, 12])


def test_values_of_two_steps_ago() -> None:
    def fibonacci(x: Any) -> Any:
        a, b = x, x * 2.0
        made = [a, b]
        for _ in range(20):
            made.append(sg.sin(made[-1]) + made[-2] * 0.5)
        return made[-1] + made[-2]

    assert near(rolled_equal(fibonacci, normal(3)), [20])
    assert len(rolled_equal(sg.grad(lambda x: sg.reduce_sum(fibonacci(x))), normal(3), exact=False)) == 2


def test_updates_of_many_parameters_together() -> None:
    def step(params: Any, x: Any) -> Any:
        gradients = sg.grad(mlp)(params, x)
        return [(w - 0.1 * dw, b - 0.1 * db) for (w, b), (dw, db) in zip(params, gradients, strict=True)]

    assert rolled_equal(step, layers(20), normal(2, 3)) == [20, 19, 20]


def test_stops_and_gates_are_gone_before() -> None:
    def stopped(params: Any, x: Any) -> Any:
        for i, (w, b) in enumerate(params):
            x = sg.tanh(x @ (sg.stop_gradient(w) if i % 2 else w) + b)
        return sg.reduce_sum(x)

    plain, values = prepared(sg.grad(stopped), layers(24), normal(2, 3))
    loops = roll(plain)
    assert scans(loops)[0] == 24
    for one, other in zip(run(plain, values), run(loops, values), strict=True):
        assert one.tobytes() == other.tobytes()


def test_gradients_of_gradients() -> None:
    def curvature(params: Any, x: Any) -> Any:
        return sg.grad(lambda x: sg.reduce_sum(sg.square(sg.grad(lambda x: mlp(params, x))(x))))(x)

    assert len(rolled_equal(curvature, layers(16), normal(2, 3), exact=False)) >= 3


def test_layers_inside_the_body_of_a_loop() -> None:
    def looped(params: Any, x: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            for w, b in params:
                x = sg.tanh(x @ w + b)
            return x, None

        return sg.scan(step, x, None, length=3)[0]

    plain, values = prepared(looped, layers(16), normal(2, 3))
    loops = roll(plain)
    (outer,) = [op for op in loops.graph.operations if op.type == "Scan"]
    assert [op.length for op in outer.body.graph.operations if op.type == "Scan"] == [16]
    assert run(plain, values)[0].tobytes() == run(loops, values)[0].tobytes()


def test_wiring_that_repeats_after_two_steps() -> None:
    def two_chains(x: Any, y: Any) -> Any:
        for _ in range(12):
            x = sg.sin(x) * 0.5
            y = sg.sin(y) * 0.5
        return sg.reduce_sum(x * y)

    lengths = rolled_equal(sg.value_and_grad(two_chains, argnums=(0, 1)), normal(3), normal(3))
    assert near(lengths[:1], [24])  # Each takes what was made two steps ago.


def test_slices_of_what_is_carried_stay_inside() -> None:
    def turned(x: Any) -> Any:
        for k in range(40):
            x = sg.sin(x[:, k % 2 : k % 2 + 3]) @ (np.ones((3, 4)) / 3) + x
        return sg.reduce_sum(x)

    assert near(rolled_equal(turned, normal(2, 4)), [20])
    assert rolled_equal(sg.grad(turned), normal(2, 4), exact=False)


def test_keys_and_masks_of_each_layer() -> None:
    def dropped(params: Any, x: Any) -> Any:
        keys = sg.random_split(sg.random_key(3), len(params))
        for k, (w, b) in enumerate(params):
            mask = sg.cast(sg.random_uniform((3,), keys[k]) < 0.8, x.dtype)
            x = sg.tanh(x @ w + b) * mask
        return sg.reduce_sum(x)

    assert near(rolled_equal(sg.value_and_grad(dropped), layers(16), normal(2, 3)), [16, 16])


# -------------------------------------------------------------------------------------------- near misses


def test_a_wider_layer_in_the_middle_parts_two_runs() -> None:
    middle = [(normal(3, 5), normal(5)), (normal(5, 3), normal(3))]
    params = [*layers(12), *middle, *layers(14)]
    assert rolled_equal(sg.value_and_grad(mlp), params, normal(2, 3)) in ([12, 14, 14, 11], [12, 14, 13, 12])


def test_layers_with_other_attributes_part_runs() -> None:
    def leaky(params: Any, x: Any) -> Any:
        for i, (w, b) in enumerate(params):
            x = sg.leaky_relu(x @ w + b, 0.1 if i < 12 else 0.2)
        return sg.reduce_sum(x)

    assert near(rolled_equal(leaky, layers(24), normal(2, 3)), [12, 12])


def test_a_value_in_the_middle_is_handed_out() -> None:
    def seen(params: Any, x: Any) -> Any:
        kept = []
        for w, b in params:
            x = sg.tanh(x @ w + b)
            kept.append(x)
        return kept[-1], kept[3], kept[3] * 2.0

    assert rolled_equal(seen, layers(20), normal(2, 3)) == [20]


def test_few_or_short_repetitions_are_left_alone() -> None:
    plain, _ = prepared(mlp, layers(7), normal(2, 3))
    assert scans(roll(plain)) == []


def test_graphs_as_small_as_most_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    plain, _ = prepared(sg.value_and_grad(mlp), layers(20), normal(2, 3))
    assert scans(roll(plain)) == []


def test_large_weights_are_not_copied() -> None:
    assert scans(roll(prepared(mlp, layers(10, 8), normal(2, 8))[0])) == [10]
    assert scans(roll(prepared(mlp, layers(10, 512), normal(2, 512))[0])) == []


def test_values_that_others_take_one_by_one_are_not_stacked() -> None:
    def scattered(params: Any, x: Any) -> Any:
        kept = []
        for w, b in params:
            x = sg.tanh(x @ w + b)
            kept.append(x)
        # Of each something else.
        return [sg.reshape(x, (6,))[: 1 + i % 5] * float(i) for i, x in enumerate(kept)]

    assert scans(roll(prepared(scattered, layers(20), normal(2, 3))[0])) == []


# ---------------------------------------------------------------------------------------------- everything


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_chains(data: st.DataObject) -> None:
    """Steps of random operations on what came before, shared and their own operands; some values fetched."""
    kinds = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=2, max_size=6))
    count = data.draw(st.integers(8, 20))
    fetched = data.draw(st.sets(st.integers(0, count - 1), max_size=2))
    own, shared, x = [normal(3) for _ in range(count)], normal(3), normal(2, 3)

    def chain(own: Any, shared: Any, x: Any) -> Any:
        made, seen = [x, x * 0.5], []
        for k, mine in enumerate(own):
            for kind, which in kinds:
                other = (made[-2], mine, shared, made[-1])[which]
                made.append(_STEPS[kind](made[-1], other))
            if k in fetched:
                seen.append(made[-1])
        return sg.reduce_sum(made[-1]), seen

    def loss(own: Any, shared: Any, x: Any) -> Any:
        return chain(own, shared, x)[0]

    rolled_equal(chain, own, shared, x)
    rolled_equal(sg.value_and_grad(loss, argnums=(0, 1, 2)), own, shared, x, exact=False)


_STEPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: sg.tanh(x) - y,
    lambda x, y: sg.sin(x) * 0.5 + y,
    lambda x, y: sg.maximum(x, y),
    lambda x, y: x * sg.reduce_sum(y, axis=-1, keepdims=True),
]


@pytest.mark.slow
@pytest.mark.parametrize("array", [np.asarray, "jax"])
def test_xla_computes_the_same(array: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    monkeypatch.undo()
    params, x = layers(130, dtype=np.float32), normal(2, 3, dtype=np.float32)
    expected = sg.function(sg.value_and_grad(mlp), engine="numpy")(params, x)
    given = jax.device_put((params, x)) if array == "jax" else (params, x)
    found = sg.function(sg.value_and_grad(mlp), engine="xla")(*given)
    for one, other in zip(flatten(expected)[0], flatten(found)[0], strict=True):
        assert isinstance(other, jax.Array if array == "jax" else np.ndarray)
        np.testing.assert_allclose(one, np.asarray(other), rtol=2e-4, atol=1e-6)


@pytest.mark.slow
def test_steps_of_a_recurrent_network_on_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.undo()
    params, x = rnn_params(), normal(2, 60, 4)
    f = sg.value_and_grad(rnn, argnums=(0, 1))
    expected, found = sg.function(f, engine="numpy")(params, x), sg.function(f, engine="xla")(params, x)
    for one, other in zip(flatten(expected)[0], flatten(found)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_no_recursion_and_long_graphs() -> None:
    with sg.Graph().as_default():
        x = y = sg.placeholder(sg.float64, (2,))
        for _ in range(20000):
            y = sg.sin(y) * 0.5 + x
    graph = roll(prepare([y], [x], {}))
    assert scans(graph) == [20000]
    assert len(graph.graph) < 10


# ------------------------------------------------------------------------------------------------ sequences


@given(
    st.lists(st.integers(0, 3), max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(8, 30),
    st.lists(st.integers(4, 9), max_size=6),
)
def test_repetitions_are_found(before: list[int], part: list[int], times: int, after: list[int]) -> None:
    tokens = np.asarray(before + part * times + after)
    found = stretches(tokens, 8)
    covered = sum(s.length for s in found)
    assert covered >= len(part) * (times - 1)
    for s in found:
        inside = tokens[s.start : s.start + s.length]
        assert (inside[s.period :] == inside[: -s.period]).all()


def test_nothing_repeats() -> None:
    assert stretches(np.arange(100), 4) == []
    assert stretches(np.zeros(0, np.int64), 4) == []
    assert stretches(np.zeros(4, np.int64), 4) == [Stretch(0, 1, 4)]


@pytest.mark.slow
def test_a_session_with_many_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.undo()
    values, found = layers(130, dtype=np.float32), {}
    for engine in ("numpy", "xla"):
        with sg.Graph().as_default() as graph:
            x = sg.placeholder(sg.float32, [None, 3])
            params = [(sg.parameter(w, name=f"w{i}"), sg.parameter(b)) for i, (w, b) in enumerate(values)]
            loss = mlp(params, x)
            leaves = [p for pair in params for p in pair]
            steps = [
                sg.assign(p, p - 0.1 * g) for p, g in zip(leaves, sg.gradients(loss, leaves), strict=True)
            ]
        rng = np.random.default_rng(3)
        with sg.Session(graph, engine=engine) as session:
            losses = [
                session.run([loss, *steps], {x: rng.standard_normal((4, 3)).astype(np.float32)})[0]
                for _ in range(3)
            ]
            found[engine] = [*losses, session.run(params[7][0])]
    for one, other in zip(found["numpy"], found["xla"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)
