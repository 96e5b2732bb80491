"""Meshes of devices: what a graph says of its sharding, and that many devices compute what one does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import stopgrad as sg
import stopgrad.jax as sgj
from stopgrad.graph.sharding import check_spec, spec_of
from stopgrad.ops.structural.sharding import declared_sharding

COLLECTIVES = re.compile(r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
BOTH = sg.Mesh(data=4, model=2)


def collectives(program: Any) -> list[str]:
    return COLLECTIVES.findall(program.as_text())


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


# --------------------------------------------------------------------------------------------- specs


@pytest.mark.parametrize(
    ("given", "rank", "wanted"),
    [
        (None, 2, ()),
        (("data",), 2, ("data", None)),
        ("data", 1, ("data",)),
        (["data", None], 2, ("data", None)),
        ((("data", "model"), None), 2, (("data", "model"), None)),
        ((("data",), []), 2, ("data", None)),
        (("*", "model"), 2, ("*", "model")),
        ((), 2, (None, None)),
        ((), 0, ()),
        (PartitionSpec("data"), 2, ("data", None)),
        (PartitionSpec(None, ("data", "model")), 2, (None, ("data", "model"))),
        (PartitionSpec(PartitionSpec.UNCONSTRAINED), 1, ("*",)),
    ],
)
def test_what_users_write_has_one_form(given: Any, rank: int, wanted: Any) -> None:
    assert spec_of(given, rank) == wanted


def test_a_named_sharding_of_jax_is_one() -> None:
    assert spec_of(NamedSharding(BOTH.native(), PartitionSpec("model")), 2) == ("model", None)


@pytest.mark.parametrize(
    ("given", "rank", "kind", "says"),
    [
        (("data",) * 2, 2, sg.ArgumentError, "'data' twice"),
        ((("data", "data"),), 1, sg.ArgumentError, "'data' twice"),
        ((3,), 1, sg.ArgumentError, "3 in a sharding names no axis"),
        (("the data",), 1, sg.ArgumentError, "names no axis"),
        ((("data", None),), 1, sg.ArgumentError, "names no axis"),
        ((np.zeros(2),), 1, sg.ArgumentError, "names no axis"),
        (3, 1, sg.ArgumentError, "is no sharding"),
        ({"data": 1}, 1, sg.ArgumentError, "is no sharding"),
    ],
)
def test_what_is_no_sharding_is_refused(given: Any, rank: int, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=re.escape(says)):
        spec_of(given, rank)


def test_sizes_must_divide_evenly() -> None:
    check_spec((("data", "model"), "*"), (16, 3), BOTH.axes)
    check_spec(("data",), (0,), BOTH.axes)
    check_spec((), (3, 5), BOTH.axes)
    with pytest.raises(sg.ShapeError, match=r"axis 0 of .* has size 12, which the 8 devices"):
        check_spec((("data", "model"),), (12,), BOTH.axes)
    with pytest.raises(sg.ArgumentError, match="no axis 'rows'; it has data=4 × model=2"):
        check_spec(("rows",), (12,), BOTH.axes)


# -------------------------------------------------------------------------------------------- meshes


def test_a_mesh_has_names_and_sizes_in_order() -> None:
    mesh = sg.Mesh(model=2, data=-1)
    assert (list(mesh.axes.items()), mesh.size) == ([("model", 2), ("data", 4)], 8)
    assert repr(mesh) == "Mesh(model=2, data=4)"
    theirs = sg.Mesh(jax.sharding.Mesh(np.array(jax.devices()[2:6]).reshape(2, 2), ("a", "b")))
    assert repr(theirs) == "Mesh(a=2, b=2)"
    assert list(theirs.native().devices.flat) == jax.devices()[2:6]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: sg.Mesh(), "no axis"),
        (lambda: sg.Mesh(data=0), "at least 1, not 0"),
        (lambda: sg.Mesh(data=2.5), "at least 1, not 2.5"),
        (lambda: sg.Mesh(data="4"), "at least 1, not '4'"),
        (lambda: sg.Mesh(data=-1, model=-1), "data and model are -1"),
        (lambda: sg.Mesh(data=-1, model=3), "no multiple of 3"),
        (lambda: sg.Mesh(8), "not 8"),
        (lambda: sg.Mesh(BOTH.native(), data=2), "takes sizes by name"),
    ],
)
def test_what_is_no_mesh_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(sg.ArgumentError, match=re.escape(says)):
        make()


def test_a_mesh_of_too_many_devices_is_refused_with_a_cure() -> None:
    graph = sg.Graph()
    with pytest.raises(sg.EngineError, match=r"takes 16 devices, and there are 8 \(cpu\).*stopgrad launch"):
        sg.Session(graph, mesh=sg.Mesh(data=16))


def test_engines_for_one_device_refuse_a_mesh() -> None:
    for name in ("numpy", "onnxruntime"):
        with pytest.raises(sg.EngineError, match=f"the {name} engine computes on one device"):
            sg.Session(sg.Graph(), engine=name, mesh=BOTH)
    with pytest.raises(sg.ArgumentError, match="tune='quick' measures engines on one device"):
        sg.Session(sg.Graph(), tune="quick", mesh=BOTH)


def test_inside_a_mesh_is_built_and_run_for_it() -> None:
    with BOTH:
        graph = sg.Graph()
        with graph.as_default():
            x = sg.placeholder(sg.float32, ["n", 4], sharding=("data",))
            with pytest.raises(sg.ShapeError, match=r"Placeholder: axis 0 of .* has size 6"):
                sg.placeholder(sg.float32, [6], sharding=("data",))
            with pytest.raises(sg.ShapeError, match="Parameter: axis 1"):
                sg.parameter(np.zeros((2, 3)), sharding=(None, "model"))
            with pytest.raises(
                sg.ArgumentError, match=r"Shard: the mesh has no axis 'rows'[\s\S]*test_mesh.py"
            ):
                sg.shard(x, ("rows",))
            y = sg.reduce_sum(x)
        session, made = sg.Session(graph), sg.function(sg.exp)
    assert session.mesh is BOTH
    assert session.run(y, {x: np.ones((8, 4))}) == 32
    assert made(jax.numpy.ones(8)).sharding.mesh.shape == {"data": 4, "model": 2}
    assert sg.Session(graph).mesh is None


def test_a_session_holds_the_graph_against_its_mesh() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [6, 4], name="x")

        def inner(carry: Any, _: Any) -> Any:
            return sg.shard(carry, ("model", None)), None

        sg.scan(inner, x, length=2)
    with pytest.raises(sg.ShapeError, match=r"Shard.*test_mesh.py.*axis 0 of \[6, 4\] has size 6"):
        sg.Session(graph, mesh=sg.Mesh(model=4))
    with pytest.raises(sg.ArgumentError, match="no axis 'model'; it has data=2"):
        sg.Session(graph, mesh=sg.Mesh(data=2))
    sg.Session(graph, mesh=sg.Mesh(model=2))


# ------------------------------------------------------------------------------------- in the graph


def divided() -> sg.Graph:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n", 4], name="x", sharding=("data", None))
        w = sg.parameter(np.ones((4, 2), np.float32), name="w", sharding=(None, ("data", "model")))
        sg.shard(x @ w, ("data", "*"), name="y")
        sg.placeholder(sg.float32, [2], name="plain")
    return graph


def test_sharding_is_in_the_text_and_in_files(tmp_path: Any) -> None:
    graph = divided()
    graph.save(tmp_path / "graph")
    for again in (sg.Graph.load(tmp_path / "graph"), sg.Graph.load(tmp_path / "graph")):
        assert again.to_text() == graph.to_text()
        assert declared_sharding(again.output("x:0")) == ("data", None)
        assert declared_sharding(again.output("w:0")) == (None, ("data", "model"))
        assert declared_sharding(again.output("y:0")) == ("data", "*")
        assert declared_sharding(again.output("plain:0")) == ()
    assert "plain: float32[2] = Placeholder(dtype=float32, shape=(2,))" in graph.to_text()
    wrong = graph.to_text().replace("sharding=('data', None)", "sharding=('data', None, None)")
    with pytest.raises(sg.GraphError, match="3 entries"):
        sg.Graph.from_text(wrong.partition("w:")[0])


def test_a_graph_from_before_there_were_shardings_reads() -> None:
    text = "x: float32[n, 3] = Placeholder(dtype=float32, shape=(n, 3))"
    assert declared_sharding(sg.Graph.from_text(text).output("x:0")) == ()


def test_the_gradient_is_divided_alike_at_every_order() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [8], name="x")
        y = sg.shard(x, ("data",)) ** 3
        (dx,) = sg.gradients(y, [x])
        (ddx,) = sg.gradients(dx, [x])
    for g in (dx, ddx):
        assert any(op.type == "Shard" and op.sharding == ("data",) for op in graph.subgraph_to([g]))
    assert dx.op.type == "Shard"
    with sg.Session(graph, mesh=BOTH) as session:
        np.testing.assert_allclose(session.run(ddx, {x: np.arange(8.0)}), 6 * np.arange(8.0))


def test_examples_are_left_to_the_engine() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["n", 4], name="x")
        sg.vmap(lambda row: sg.shard(row, ("model",)))(x)
    (op,) = [op for op in graph.operations if op.type == "Shard"]
    assert op.sharding == ("*", "model")


@pytest.mark.parametrize("engine", ["numpy", "xla", "onnxruntime"])
def test_without_a_mesh_it_is_the_identity(engine: str) -> None:
    x = normal(3, 2)
    np.testing.assert_array_equal(sg.function(lambda x: sg.shard(x, ("data",)), engine=engine)(x), x)
    np.testing.assert_array_equal(sg.shard(x, ("data",)), x)


def test_flow_goes_through() -> None:
    flow = sg.explain(lambda x: sg.reduce_sum(sg.shard(x, ("data",)) * 2.0), np.ones(8))
    assert flow["x"].status == "flows"


# ------------------------------------------------------------------------------------------ sessions


def perceptron(batch: Any = "n") -> tuple[sg.Graph, dict[str, sg.Output], Any]:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [batch, 12], name="x", sharding=("data", None))
        t = sg.placeholder(sg.float32, [batch, 4], name="t", sharding=("data", None))
        w = sg.parameter(normal(12, 16), name="w", sharding=(None, "model"))
        v = sg.parameter(normal(16, 4), name="v", sharding=("model", None))
        b = sg.parameter(np.zeros(4, np.float32), name="b")
        loss = sg.reduce_mean(sg.square(sg.relu(x @ w) @ v + b - t))
        update = sg.optimizers.adamw(loss, [w, v, b], 1e-2)
    return graph, {"x": x, "t": t, "w": w, "v": v, "b": b, "loss": loss}, update


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [sg.Mesh(data=8, model=1), sg.Mesh(data=1, model=8), BOTH], ids=repr)
def test_many_devices_train_as_one(mesh: sg.Mesh) -> None:
    graph, named, update = perceptron()
    feeds = {named["x"]: normal(16, 12, seed=1), named["t"]: normal(16, 4, seed=2)}
    with sg.Session(graph) as one, sg.Session(graph, mesh=mesh) as many:
        for _ in range(3):
            losses = [session.run([named["loss"], update.run], feeds)[0] for session in (one, many)]
            np.testing.assert_allclose(*losses, rtol=1e-5)
        for p in ("w", "v", "b"):
            np.testing.assert_allclose(one.value(named[p]), many.value(named[p]), rtol=1e-4, atol=1e-6)
        held = {p.op.name: value for p, value in many._state.values.items()}
    for name, spec in (
        ("w", (None, "model")),
        ("adamw/m/w", (None, "model")),
        ("adamw/v/v", ("model", None)),
    ):
        assert spec_of(held[name].sharding, 2) == spec
    assert held["b"].sharding.is_fully_replicated


@pytest.mark.slow
def test_what_is_compiled_can_be_read() -> None:
    graph, named, update = perceptron(16)
    feeds = {named["x"]: np.zeros((16, 12)), named["t"]: jax.ShapeDtypeStruct((16, 4), "float32")}
    with sg.Session(graph, mesh=BOTH) as session:
        program = session.compile([named["loss"], update.run], feeds)
        assert not session._state.values
    assert "all-reduce" in collectives(program)
    # Inputs of one device: its part of x, t, w, v and the state of these, and b with its state.
    parts = 4 * (4 * 12 + 4 * 4 + 2 * 3 * (12 * 8 + 8 * 4) // 2 + 3 * 4) + 8
    assert program.memory_analysis().arguments == pytest.approx(2 * parts, rel=0.5)
    with (
        sg.Session(graph, engine="numpy") as session,
        pytest.raises(sg.EngineError, match="as_text: the numpy"),
    ):
        session.compile(named["loss"], {k: np.zeros(k.shape, np.float32) for k in feeds}).as_text()


@pytest.mark.slow
def test_values_are_saved_and_restored_whatever_the_mesh(tmp_path: Any) -> None:
    graph, named, update = perceptron()
    feeds = {named["x"]: normal(16, 12, seed=1), named["t"]: normal(16, 4, seed=2)}
    with sg.Session(graph, mesh=BOTH) as session:
        session.run(update.run, feeds)
        session.save(tmp_path / "values")
        wanted = session.run(named["loss"], feeds)
    for mesh in (None, sg.Mesh(data=2, model=4), sg.Mesh(data=8, model=1)):
        with sg.Session(graph, mesh=mesh) as session:
            session.restore(tmp_path / "values")
            np.testing.assert_allclose(session.run(named["loss"], feeds), wanted, rtol=1e-5)


def test_wrong_feeds_are_refused_and_nothing_has_changed() -> None:
    graph, named, update = perceptron()
    with sg.Session(graph, mesh=BOTH) as session:
        for rows, says in ((7, "evenly along axis 0 over 4 devices"), (8, "fed a value of shape")):
            with pytest.raises(sg.FeedError, match=says):
                session.run(update.run, {named["x"]: np.zeros((rows, 12)), named["t"]: np.zeros((16, 4))})
        with pytest.raises(sg.FeedError, match=r"shape \[16\]; it takes"):
            session.run(update.run, {named["x"]: np.zeros(16), named["t"]: np.zeros((16, 4))})
        np.testing.assert_array_equal(session.value(named["w"]), normal(12, 16))


def test_what_lies_on_devices_already_is_fed_as_it_is() -> None:
    graph, named, _ = perceptron()
    x, t = normal(16, 12, seed=1), normal(16, 4, seed=2)
    with sg.Session(graph, mesh=BOTH) as session:
        wanted = session.run(named["loss"], {named["x"]: x, named["t"]: t})
        sharding = NamedSharding(BOTH.native(), PartitionSpec("data"))
        for put in (
            jax.numpy.asarray,
            lambda v: jax.device_put(v, sharding),
            lambda v: jax.device_put(v, jax.devices()[3]),
        ):
            found = session.run(named["loss"], {named["x"]: put(x), named["t"]: put(t)})
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128", "bfloat16", "bool", "uint8", "float16"])
def test_dtypes_stay_as_they_are(dtype: str) -> None:
    graph = sg.Graph()
    value = np.asarray(np.arange(8) % 2 if dtype == "bool" else np.arange(8) * 3).astype(
        sg.function(lambda: sg.zeros([1], dtype))().dtype
    )
    with graph.as_default():
        x = sg.placeholder(dtype, [8], sharding=("data",))
        p = sg.parameter(value, sharding=("model",))
        y = sg.concat([x, p], 0)
    with sg.Session(graph, mesh=BOTH) as session:
        found = session.run(y, {x: value})
        assert found.dtype == session.value(p).dtype == value.dtype
        np.testing.assert_array_equal(found, np.concatenate([value, value]))


def test_symbolic_and_zero_sizes() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, ["n", 3], sharding=("data", None))
        y = sg.reduce_sum(sg.exp(x), axis=0)
    with sg.Session(graph, mesh=BOTH) as session:
        for n in (4, 8, 0, 4):
            given = normal(n, 3, dtype=np.float64)
            np.testing.assert_allclose(session.run(y, {x: given}), np.exp(given).sum(0), rtol=1e-12)


@pytest.mark.slow
def test_the_same_random_numbers_as_on_one_device() -> None:
    graph = sg.Graph()
    with graph.as_default():
        key = sg.placeholder(sg.uint32, [2])
        x = sg.shard(sg.random_normal([16, 4], key), ("data", "model"))
    key_value = np.array([1, 7], np.uint32)
    with sg.Session(graph) as one, sg.Session(graph, mesh=BOTH) as many:
        np.testing.assert_allclose(one.run(x, {key: key_value}), many.run(x, {key: key_value}), rtol=1e-6)


# ----------------------------------------------------------------------------------------- functions


@pytest.mark.slow
def test_functions_are_divided_as_was_said() -> None:
    def loss(params: Any, x: Any) -> Any:
        return sg.reduce_mean(sg.square(sg.relu(x @ params["w"]) @ params["v"]))

    params, x = {"w": normal(12, 16), "v": normal(16, 4)}, normal(16, 12, seed=3)
    shardings = {"params": {"w": (None, "model"), "v": ("model",)}, "x": PartitionSpec("data")}
    wanted = sg.function(sg.grad(loss))(params, x)
    step = sg.function(sg.grad(loss), mesh=BOTH, shardings=shardings)
    found = step(params, x)
    for name, value in found.items():
        assert type(value) is np.ndarray
        np.testing.assert_allclose(value, wanted[name], rtol=1e-4, atol=1e-6)
    placed = step(jax.tree.map(jax.numpy.asarray, params), x)
    assert spec_of(placed["w"].sharding, 2) == (None, "model")
    program = step.lower(params, jax.ShapeDtypeStruct((16, 12), "float32")).compile()
    assert "all-reduce" in collectives(program)
    np.testing.assert_allclose(program(params, x)["w"], wanted["w"], rtol=1e-4, atol=1e-6)
    assert step.traces == 1


def test_arguments_that_lie_on_the_mesh_stay_as_they_are() -> None:
    step = sg.function(lambda w: w * 2.0, mesh=BOTH)
    w = jax.device_put(normal(8, 4), NamedSharding(BOTH.native(), PartitionSpec("data", "model")))
    found = step(w)
    assert spec_of(found.sharding, 2) == ("data", "model")
    assert not collectives(step.lower(w).compile())
    assert spec_of(step(step(w)).sharding, 2) == ("data", "model")
    assert step.traces == 1
    step(normal(8, 4))
    assert step.traces == 2


def test_what_is_said_of_a_structure_holds_for_all_in_it() -> None:
    f = sg.function(lambda batch: batch["a"] + batch["b"][0], mesh=BOTH, shardings={"batch": ("data",)})
    made = f({"a": jax.numpy.ones((8, 2)), "b": [jax.numpy.ones((8, 2))]})
    assert spec_of(made.sharding, 2) == ("data", None)


def test_results_are_divided_as_shard_says() -> None:
    f = sg.function(lambda x: sg.shard(sg.exp(x), ("model", None)), mesh=BOTH)
    assert spec_of(f(jax.numpy.ones((8, 2))).sharding, 2) == ("model", None)


@pytest.mark.parametrize(
    ("shardings", "kind", "says"),
    [
        ({"y": ("data",)}, sg.ArgumentError, "shardings names 'y', but f has the parameters x"),
        ({"x": ("rows",)}, sg.ArgumentError, "f: x: the mesh has no axis 'rows'"),
        ({"x": ("data", None, None)}, sg.ShapeError, "f: x: the sharding"),
        ({"x": (None, "data")}, sg.ShapeError, "evenly along axis 1 over 4 devices"),
        ({"x.w": ("data",)}, sg.ArgumentError, "shardings names 'x.w', but f was given x"),
        (("data",), sg.ArgumentError, "shardings is a dict"),
    ],
)
def test_wrong_shardings_of_arguments(shardings: Any, kind: Any, says: str) -> None:
    def f(x: Any) -> Any:
        return x

    with pytest.raises(kind, match=re.escape(says)):
        sg.function(f, mesh=BOTH, shardings=shardings)(np.ones((8, 6)))


def test_shardings_need_a_mesh() -> None:
    with pytest.raises(sg.ArgumentError, match="need a mesh"):
        sg.function(lambda x: x, shardings={"x": ("data",)})


def test_a_mesh_of_jaxs_will_do() -> None:
    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[4:])
    f = sg.function(lambda x: sg.reduce_sum(x), mesh=mesh, shardings={"x": ("data",)})
    assert f(np.ones(8)) == 8.0
    assert f(jax.numpy.ones(8)).sharding.device_set == set(jax.devices()[4:])


def test_what_jax_says_of_sharding_is_ours_when_loaded() -> None:
    def f(x: Any) -> Any:
        free = NamedSharding(BOTH.native(), PartitionSpec(PartitionSpec.UNCONSTRAINED, "data"))
        return jax.vmap(lambda row: jax.lax.with_sharding_constraint(row, free))(x * 2.0)

    model = sgj.load(f, jax.numpy.ones((3, 8, 4), "float32"))
    (op,) = [op for op in model.graph.operations if op.type == "Shard"]
    assert op.sharding == ("*", "*", "data")
    x = normal(3, 8, 4)
    np.testing.assert_array_equal(sg.function(model, mesh=BOTH)(x), x * 2.0)


# ------------------------------------------------------------------------------------- communication


def test_a_stop_cuts_communication() -> None:
    def reduced(stop: bool) -> set[str]:
        """The shapes of what is summed over the devices."""
        graph = sg.Graph()
        with graph.as_default():
            x = sg.placeholder(sg.float32, [16, 12], name="x", sharding=("data", None))
            w = sg.parameter(normal(12, 8), name="w")
            v = sg.parameter(normal(8, 8), name="v")
            h = sg.tanh(x @ w)
            h = sg.stop_gradient(h) if stop else h
            gradients = [g for g in sg.gradients(sg.square(h @ v), [w, v]) if g is not None]
            assert len(gradients) == (1 if stop else 2)
        with sg.Session(graph, mesh=sg.Mesh(data=8)) as session:
            text = session.compile(gradients, {x: np.zeros((16, 12))}).as_text()
        lines = [line.partition(" all-reduce(")[0] for line in text.splitlines() if " all-reduce(" in line]
        return {shape for line in lines for shape in re.findall(r"f32\[([\d,]*)\]", line)}

    assert reduced(stop=True) == {"8,8"}
    assert reduced(stop=False) == {"8,8", "12,8"}
