"""Low-rank adapters: the function stays, gradients reach A and B alone, and merging changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stopgrad as sg
import stopgrad.torch as sgt

RNG = np.random.default_rng(5)
W, SQUARE = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 4))


def right(x: Any, w: Any) -> Any:
    return sg.matmul(x, w)


USES: dict[str, tuple[tuple[Any, ...], Any, Callable[[Any, Any], Any]]] = {
    "x @ w": (("n", 4), W, right),
    "x @ w, batches": (("n", 2, 4), W, right),
    "a vector": ((4,), W, right),
    "x transposed": ((4, "n"), W, lambda x, w: sg.matmul(x, w, transpose_a=True)),
    "w transposed by the product": (("n", 3), W, lambda x, w: sg.matmul(x, w, transpose_b=True)),
    "w transposed before": (("n", 3), W, lambda x, w: x @ sg.transpose(w)),
    "transposed twice": (("n", 4), W, lambda x, w: sg.matmul(x, sg.transpose(w), transpose_b=True)),
    "w @ x": ((3, "n"), W, lambda x, w: w @ x),
    "w @ x, batches": ((2, 3, "n"), W, lambda x, w: w @ x),
    "w transposed @ x transposed": (
        ("n", 4),
        W,
        lambda x, w: sg.matmul(w, x, transpose_a=True, transpose_b=True),
    ),
    "used twice": (("n", 4), SQUARE, lambda x, w: sg.tanh(x @ w) @ w),
    "used both ways": (("n", 4), SQUARE, lambda x, w: sg.tanh(x @ w) @ sg.transpose(w)),
    "behind a cast": (("n", 4), W.astype(np.float32), lambda x, w: x @ sg.cast(w, sg.float64)),
    "behind a cast and a transposition": (
        ("n", 3),
        W.astype(np.float32),
        lambda x, w: x @ sg.transpose(sg.cast(w, sg.float64)),
    ),
    "repeated for a batch": (
        (2, "n", 3),
        W,
        lambda x, w: sg.matmul(x, sg.broadcast_to(sg.transpose(w), [2, 3, 4])),
    ),
    "a batch of one, transposed": (
        (2, "n", 3),
        W,
        lambda x, w: x @ sg.transpose(sg.reshape(sg.expand_dims(w, 0), [1, 4, 3]), [0, 2, 1]),
    ),
    "behind gates": (("n", 4), W, lambda x, w: x @ sg.identity(sg.stop_gradient(w))),
}


def fed_for(shape: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).normal(size=[5 if size == "n" else size for size in shape])


def built(name: str) -> tuple[Any, ...]:
    shape, value, use = USES[name]
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float64, shape, name="x")
        w = sg.parameter(value, name="layer/w")
        y = sg.sin(use(x, w), name="y")
    return x, w, y, fed_for(shape)


COMPILED = ("x @ w, batches", "w @ x", "used both ways", "behind a cast and a transposition")


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *((name, "numpy") for name in USES),
        *((name, engine) for name in COMPILED for engine in ("xla", "onnxruntime")),
    ],
)
def test_nothing_changes_at_first_and_merging_gives_what_was_learned(name: str, engine: str) -> None:
    x, w, y, fed = built(name)
    before = len(y.op.graph)
    adapted = sg.add_lora({"y": y}, "layer/*", rank=2, alpha=3.0, key=1)
    assert len(y.op.graph) == before
    with sg.Session(y.op.graph, engine=engine) as session:
        expected = session.run(y, {x: fed})
    graph = adapted.graph
    a, b = adapted.parameters.values()
    with graph.as_default():
        loss = sg.reduce_sum(adapted.outputs["y"] ** 2)
        learn = [sg.assign(p, sg.sin(p + 1.0)) for p in (a, b)]
        gradients = sg.gradients(loss, [adapted[w], a, b])
    assert gradients[0] is None
    assert gradients[1] is not None
    assert gradients[2] is not None
    with sg.Session(graph, engine=engine) as session:
        found = session.run(adapted.outputs["y"], {adapted[x]: fed})
        np.testing.assert_array_equal(found, expected)
        assert np.any(session.value(a))
        assert not np.any(session.value(b))
        session.run(learn)
        learned = session.run(adapted.outputs["y"], {adapted[x]: fed})
        merged = session.run(adapted.merged["layer/w"])
        low = session.value(a) @ session.value(b) * 1.5
    added = merged - w.op.value.array
    rounding = {"float64": 1e-12, "float32": 1e-5}[w.dtype.name]
    np.testing.assert_allclose(added, low if low.shape == added.shape else low.T, atol=rounding)
    assert np.abs(learned - expected).max() > 1e-3
    with sg.Session(y.op.graph, engine=engine) as session:
        np.testing.assert_allclose(session.run(y, {x: fed, w: merged}), learned, atol=rounding)


@pytest.mark.parametrize("name", USES)
def test_gradients_are_those_of_the_merged_weights(name: str) -> None:
    """By the chain rule, through ``W + scale * A @ B`` written out."""
    x, w, y, fed = built(name)
    adapted = sg.add_lora(y, [w], rank=2, alpha=3.0, key=1)
    a, b = adapted.parameters.values()
    values = {p: np.random.default_rng(i).normal(size=p.shape) for i, p in enumerate((a, b))}
    values = {p: v.astype(p.dtype.numpy) for p, v in values.items()}
    with adapted.graph.as_default():
        found = sg.gradients(sg.reduce_sum(adapted.outputs**2), [a, b])
        merged = adapted.merged["layer/w"]
    with sg.Session(adapted.graph, engine="numpy") as session:
        da, db = session.run(found, {adapted[x]: fed, **values})
        weight = session.run(merged, values)
    shape, _, use = USES[name]
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, shape)
        w = sg.placeholder(w.dtype, w.shape)
        # What a gate hides from the weight it does not hide from the adapter.
        used = (lambda x, w: x @ w) if name == "behind gates" else use
        (dw,) = sg.gradients(sg.reduce_sum(sg.sin(used(x, w)) ** 2), [w])
    with sg.Session(graph, engine="numpy") as session:
        dw = session.run(dw, {x: fed, w: weight})
    first, second = values.values()
    dw = dw if (first @ second).shape == dw.shape and adapted_reads_rows(a, w) else dw.T
    tolerance = {"float64": 1e-10, "float32": 1e-3}[a.dtype.name]
    np.testing.assert_allclose(da, 1.5 * dw @ second.T, atol=tolerance)
    np.testing.assert_allclose(db, 1.5 * first.T @ dw, atol=tolerance)


def adapted_reads_rows(a: Any, w: Any) -> bool:
    return a.shape[0] == w.shape[0]


def test_adapters_are_trained_by_an_optimiser_and_nothing_else_moves() -> None:
    x, w, y, fed = built("x @ w")
    adapted = sg.add_lora(y, [w], rank=2, key=3)
    target = fed_for((5, 3))
    with adapted.graph.as_default():
        loss = sg.reduce_mean((adapted.outputs - target) ** 2)
        update = sg.optimizers.adamw(loss, adapted.parameters, 0.05)
    with sg.Session(adapted.graph, engine="numpy") as session:
        losses = [session.run([loss, update.run], {adapted[x]: fed})[0] for _ in range(60)]
        np.testing.assert_array_equal(session.value(adapted[w]), W)
    assert losses[-1] < 0.5 * losses[0]
    assert set(update.state) >= {"adamw/m/layer/w/lora_a", "adamw/v/layer/w/lora_b"}


def test_names_and_lines_stay_and_the_text_comes_back(tmp_path: Path) -> None:
    x, w, y, fed = built("x @ w")
    product = y.op.inputs[0]
    adapted = sg.add_lora(y, [w], key=3)
    graph = adapted.graph
    assert adapted.outputs.op.name == "y"
    assert adapted[product].op.location.line == product.op.location.line
    graph.save(tmp_path / "graph")
    again = sg.Graph.load(tmp_path / "graph")
    assert again.to_text() == graph.to_text()
    assert [op.name for op in again.operations] == [op.name for op in graph.operations]
    with sg.Session(again, engine="numpy") as session:
        y, x = again.output("y"), again.output("x")
        np.testing.assert_allclose(session.run(y, {x: fed}), np.sin(fed @ W))


def test_several_weights_of_one_graph_by_patterns_and_twice() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["n", 4], name="x")
        h = x
        for i in range(3):
            with sg.name_scope(f"layer{i}"):
                w, b = (
                    sg.parameter(SQUARE, sg.float32, name="w"),
                    sg.parameter(np.ones(4, np.float32), name="b"),
                )
                h = sg.tanh(h @ w + b)
    adapted = sg.add_lora([h], ["layer0", "layer2/*"], rank=1, key=sg.random_key(7))
    names = [f"layer{i}/w/lora_{part}" for i in (0, 2) for part in "ab"]
    assert list(adapted.parameters) == names
    a0, _, a2, _ = (p.op.value.array for p in adapted.parameters.values())
    assert not np.array_equal(a0, a2)
    assert np.abs(a0).max() <= 0.5
    same = sg.add_lora([h], ["layer0", "layer2/*"], rank=1, key=7)
    np.testing.assert_array_equal(same.parameters[names[0]].op.value.array, a0)
    twice = sg.add_lora(adapted.outputs, [adapted.graph.output("layer0/w")], rank=1, key=8)
    assert set(twice.parameters) == {"layer0/w/lora_a_", "layer0/w/lora_b_"}
    assert isinstance(twice.outputs, list)


def test_a_graph_of_another_dtype_than_the_adapters() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float16, ["n", 4])
        w = sg.parameter(W, sg.float16, name="w")
        y = x @ w
    adapted = sg.add_lora(y, "w", key=0, dtype="float32")
    assert {p.dtype for p in adapted.parameters.values()} == {sg.float32}
    assert adapted.merged["w"].dtype is sg.float16
    with sg.Session(adapted.graph, engine="numpy") as session:
        assert session.run(adapted.outputs, {adapted[x]: np.ones((2, 4))}).dtype == np.float16


class Encoder(torch.nn.Module):
    """A layer of a transformer, with packed projections of the attention, between two linear ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.last = torch.nn.Linear(16, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(torch.relu(self.first(x))))


def test_a_transformer_of_pytorchs_with_what_was_learned_is_that_with_merged_weights() -> None:
    torch.manual_seed(3)
    module, x = Encoder().eval().double(), torch.randn(2, 5, 8, dtype=torch.float64)
    model = sgt.load(module, x)
    weights = {name: p for name, p in model.parameters.items() if p.type.ndim == 2}
    assert len(weights) == 6
    adapted = sg.add_lora(model.outputs, weights, rank=2, key=0)
    assert list(adapted.merged) == [p.op.name for p in weights.values()]
    rng = np.random.default_rng(0)
    learned = {p: rng.normal(size=p.shape) * 0.1 for p in adapted.parameters.values()}
    with sg.Session(adapted.graph, engine="numpy") as session:
        feeds = {adapted[given]: x.numpy() for given in model.inputs.values()}
        (first,) = session.run(adapted.outputs, feeds).values()
        np.testing.assert_allclose(first, module(x).detach(), atol=1e-12)
        (found,) = session.run(adapted.outputs, {**feeds, **learned}).values()
        merged = session.run(adapted.merged, learned)
    assert np.abs(found - first).max() > 0.1
    state = {**module.state_dict(), **{n: torch.tensor(merged[p.op.name]) for n, p in weights.items()}}
    module.load_state_dict(state)
    np.testing.assert_allclose(found, module(x).detach(), atol=1e-12)


def test_numbers_of_numpy_count_as_pythons() -> None:
    y = built("x @ w")[2]
    plain = sg.add_lora(y, "layer/w", 2, 3.0, key=7)
    same = sg.add_lora(y, "layer/w", np.int8(2), np.float32(3.0), key=np.int64(7))
    assert same.graph.to_text() == plain.graph.to_text()
    for a, b in zip(same.parameters.values(), plain.parameters.values(), strict=True):
        np.testing.assert_array_equal(a.op.value.array, b.op.value.array)


def add(outputs: Any, weights: Any, rank: Any = 8, **rest: Any) -> Any:
    return sg.add_lora(outputs, weights, rank, **{"key": 0, **rest})


@pytest.mark.parametrize("form", ["rows alone", "tied", "turned"])
def test_rows_that_are_looked_up_are_those_of_the_merged_table(form: str) -> None:
    with sg.Graph().as_default() as graph:
        ids = sg.placeholder(sg.int64, ["n", 3], name="ids")
        table = sg.parameter(SQUARE[:, :3], name="table")
        given = sg.transpose(table) if form == "turned" else table
        y = sg.gather(given, ids)
        y = sg.tanh(y) @ sg.transpose(given) if form != "rows alone" else sg.sin(y)
    made = sg.add_lora(y, [table], 2, 3.0, key=5)
    a, b = made.parameters["table/lora_a"], made.parameters["table/lora_b"]
    assert a.shape[0] == (3 if form == "tied" else 4)
    with made.graph.as_default():
        loss = sg.reduce_sum(sg.square(made.outputs))
        gradients = sg.gradients(loss, [a, b])
    with graph.as_default():
        whole = sg.gradients(sg.reduce_sum(sg.square(y)), [table])
    places = np.array([[0, 2, 1], [1, 1, 0]])
    with sg.Session(made.graph, engine="numpy") as session:
        session.run(sg.assign(b, np.random.default_rng(2).normal(size=b.shape)))
        found = session.run([made.outputs, made.merged["table"], a, b, *gradients], {made[ids]: places})
    value, merged, first, second, da, db = found
    with sg.Session(graph, engine="numpy") as session:
        session.run(sg.assign(table, merged))
        expected, dw = session.run([y, whole[0]], {ids: places})
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    slope = 1.5 * (dw.T if form == "tied" else dw)
    np.testing.assert_allclose(da, slope @ second.T, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(db, first.T @ slope, rtol=1e-8, atol=1e-10)


def refused() -> Any:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, ["n", 4], name="x")
        w = sg.parameter(W, name="w")
        table = sg.parameter(SQUARE, name="table")
        whole = sg.parameter(np.ones((4, 4), np.int64), name="whole")
        b = sg.parameter(np.ones(3), name="b")
        y = x @ w + b
        z = sg.gather(table, [0, 1], axis=1) @ w[:2] + sg.reduce_sum(x @ table)
        g = table @ sg.transpose(table)
        both = table @ w
        loop = sg.fori_loop(0, 3, lambda i, h: h @ table, x)
    return graph, x, w, table, whole, b, y, z, g, both, loop


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda s: add(s[6], "v"), sg.ArgumentError, "nothing is called 'v'; there are w"),
        (lambda s: add(s[6], []), sg.ArgumentError, "there are no weights"),
        (lambda s: add([], [s[2]]), sg.GraphError, "there are no outputs"),
        (lambda s: add(3.0, [s[2]]), sg.GraphError, "takes outputs of a graph"),
        (
            lambda s: add(s[6], [s[5]]),
            sg.GraphError,
            "a parameter with two axes, not Parameter 'b'",
        ),
        (
            lambda s: add(s[6], [s[1]]),
            sg.GraphError,
            "a parameter with two axes, not Placeholder",
        ),
        (lambda s: add(s[6], [s[4]]), sg.DTypeError, "not floating-point"),
        (lambda s: add(s[6], [s[3]]), sg.GraphError, "the outputs do not need the weight"),
        (lambda s: add(s[7], [s[3]]), sg.GraphError, "uses the weight Parameter 'table'"),
        (lambda s: add(s[10], [s[3]]), sg.GraphError, "uses the weight Parameter 'table'"),
        (lambda s: add(s[8], [s[3]]), sg.GraphError, "both operands of MatMul"),
        (lambda s: add(s[9], [s[3], s[2]]), sg.GraphError, "both operands of MatMul"),
        (lambda s: add([s[6], s[2]], [s[2]]), sg.GraphError, "is itself an output, w:0"),
        (lambda s: add(s[6], [refused()[2]]), sg.GraphError, "belongs to another graph"),
        (lambda s: add(s[6], [s[2]], 0), sg.ArgumentError, "rank is a whole number from 1 on"),
        (
            lambda s: add(s[6], [s[2]], 2.0),
            sg.ArgumentError,
            "rank is a whole number from 1 on",
        ),
        (lambda s: add(s[6], [s[2]], alpha=0), sg.ArgumentError, "alpha is a number above 0"),
        (lambda s: add(s[6], [s[2]], alpha="1"), sg.ArgumentError, "a number is needed"),
        (lambda s: add(s[6], [s[2]], key="a"), sg.StopgradError, "key is a whole number or a key"),
        (lambda s: add(s[6], [s[2]], dtype="int8"), sg.DTypeError, "floating-point, not int8"),
        (lambda s: add(s[6], [s[2]])[s[3]], sg.GraphError, "the outputs do not need"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: Any, told: str) -> None:
    state = refused()
    length = len(state[0])
    with pytest.raises(error) as caught:
        call(state)
    assert told in str(caught.value)
    assert "test_adapters.py" in str(caught.value)
    assert len(state[0]) == length
