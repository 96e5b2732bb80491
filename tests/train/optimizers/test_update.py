"""What is built: state, names, lines, what stays untouched; engines, files, and errors."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from all_engines import ENGINES
from tiers import some

import stopgrad as sg
from stopgrad import optimizers as so
from stopgrad.train.optimizers.rules import Clock

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(8, 4)), RNG.normal(size=(8, 3))
START = {"layer/w": RNG.normal(size=(4, 5)), "layer/b": RNG.normal(size=5), "head/w": RNG.normal(size=(5, 3))}

OPTIMISERS: dict[str, Any] = {
    "sgd": partial(so.sgd, learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "dampened": partial(so.sgd, learning_rate=0.1, momentum=0.9, dampening=0.5),
    "adam": partial(so.adam, learning_rate=0.1, amsgrad=True),
    "adamw": partial(so.adamw, learning_rate=0.1, clip_norm=0.5),
    "lion": partial(so.lion, learning_rate=0.01, weight_decay=0.1),
    "rmsprop": partial(so.rmsprop, centered=True, momentum=0.9),
    "adagrad": partial(so.adagrad, lr_decay=0.1),
    "adafactor": so.adafactor,
    "muon": partial(so.muon, others=so.AdamW(0.01), ns_dtype="float64"),
    "muon of matrices": partial(so.muon, groups={"*/b": so.SGD(0.1)}, ns_dtype="float32"),
    "accumulated": partial(so.adamw, learning_rate=so.linear(0.1, 0.05, 3), accumulate=2, average=0.5),
    "scheduled": partial(so.adamw, learning_rate=so.cosine(0.1, 4, restarts=True, stretch=2)),
}


def built(optimiser: Any, dtype: Any = "float64", start: Any = START) -> tuple[Any, ...]:
    """A network of two layers, and a step."""
    with sg.Graph().as_default() as graph:
        x, y = sg.placeholder(dtype, ["n", 4], name="x"), sg.placeholder(dtype, ["n", 3], name="y")
        p = {name: sg.parameter(value, dtype, name=name) for name, value in start.items()}
        hidden = sg.tanh(x @ p["layer/w"] + p["layer/b"])
        loss = sg.reduce_mean(sg.square(hidden @ p["head/w"] - y), name="loss")
        update = optimiser(loss, list(p.values()))
    return graph, {x: X, y: Y}, p, loss, update


def run(graph: Any, feeds: Any, fetches: Any, steps: int, engine: str = "numpy") -> dict[str, Any]:
    with sg.Session(graph, engine=engine) as session:
        for _ in range(steps):
            session.run(fetches, feeds)
        return {op.name: session.value(op.outputs[0]) for op in graph.operations if op.type == "Parameter"}


@pytest.mark.parametrize("name", some(OPTIMISERS, 3))
def test_engines_agree_and_the_loss_falls(name: str) -> None:
    graph, feeds, _, loss, update = built(OPTIMISERS[name])
    found = {engine: run(graph, feeds, update.run, 5, engine) for engine in ENGINES}
    assert found["numpy"].keys() == {*START, *update.state}
    for engine in ENGINES:
        for parameter, value in found["numpy"].items():
            np.testing.assert_allclose(
                found[engine][parameter], value, rtol=1e-6, atol=1e-9, err_msg=f"{engine}: {parameter}"
            )
    with sg.Session(graph, engine="numpy") as session:
        losses = [session.run([loss, update.run], feeds)[0] for _ in range(20)]
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_graph_that_was_saved_makes_the_same_steps(name: str, tmp_path: Path) -> None:
    graph, feeds, _, _, update = built(OPTIMISERS[name])
    graph.save(tmp_path / "graph")
    again = sg.Graph.load(tmp_path / "graph")
    expected = run(graph, feeds, update.run, 3)
    found = run(again, {x.op.name: value for x, value in feeds.items()}, update.run.op.name, 3)
    assert found.keys() == expected.keys()
    for parameter, value in expected.items():
        np.testing.assert_array_equal(found[parameter], value)


def test_the_text_comes_back() -> None:
    with sg.Graph().as_default() as graph:
        w = sg.parameter([1.0, 2.0], name="w")
        so.adamw(sg.reduce_sum(w * w), [w], so.warmup(0.1, 3), accumulate=2, clip_norm=1.0, average=0.9)
    again = sg.Graph.from_text(graph.to_text())
    assert again.to_text() == graph.to_text()
    assert "adamw/m/w: float32[2] = Parameter" in graph.to_text()


@pytest.mark.parametrize(
    ("name", "engine"),
    [*((n, "numpy") for n in OPTIMISERS), ("accumulated", "xla"), ("accumulated", "onnxruntime")],
)
def test_training_goes_on_bit_for_bit_where_it_was_saved(name: str, engine: str, tmp_path: Path) -> None:
    graph, feeds, _, _, update = built(OPTIMISERS[name])
    expected = run(graph, feeds, update.run, 7, engine)
    with sg.Session(graph, engine=engine) as session:
        for _ in range(3):
            session.run(update.run, feeds)
        session.save(tmp_path / "state.safetensors")
    with sg.Session(graph, engine=engine) as session:
        session.restore(tmp_path / "state.safetensors")
        for _ in range(4):
            session.run(update.run, feeds)
        for x in (*update.updates,):
            np.testing.assert_array_equal(session.value(x), expected[x.op.name])


def test_state_has_the_names_of_its_parameters_and_lines_are_the_users() -> None:
    graph, _, p, _, update = built(partial(so.adam, average=0.9, name="training"))
    names = [f"training/{slot}/{name}" for name in p for slot in "mv"]
    assert set(update.state) == {"training/step", *names, *(f"training/average/{name}" for name in p)}
    assert {x.op.name: x for x in update.state.values()} == update.state
    assert set(update.updates) == {*p.values(), *update.state.values()}
    assert set(update.gradients) == set(update.averages) == set(p.values())
    assert all(x.type is new.type for x, new in update.updates.items())
    files = {op.location.file for op in graph.operations if op.origin is None}
    assert {Path(file).name for file in files} == {Path(__file__).name}
    assert "Update of 3 parameters with 10 of state" in repr(update)


def test_a_dict_says_what_parameters_are_called() -> None:
    with sg.Graph().as_default():
        w, b = sg.parameter([1.0]), sg.parameter(2.0)
        loss = sg.reduce_sum(w * b)
        update = so.adam(loss, {"dense": {"kernel": w, "bias": b}}, no_decay="dense.bias", name="a")
        plain = so.adam(loss, w)
    assert {"a/m/dense.kernel", "a/m/dense.bias"} < set(update.state)
    assert set(plain.gradients) == {w}


def test_two_optimisers_of_one_graph_keep_apart() -> None:
    with sg.Graph().as_default() as graph:
        a, b = sg.parameter(1.0, name="a"), sg.parameter(1.0, name="b")
        first, second = so.adam(a * b, [a]), so.adam(-a * b, [b])
    assert set(first.state) == {"adam/step", "adam/m/a", "adam/v/a"}
    assert set(second.state) == {"adam_1/step", "adam_1/m/b", "adam_1/v/b"}
    with sg.Session(graph, engine="numpy") as session:
        session.run(first.run)
        assert (session.value(a) < 1.0, session.value(b) == 1.0) == (True, True)
        session.run([first.run, second.run])
        assert session.value(b) > 1.0


def test_a_rate_can_be_fed_anew_at_each_step() -> None:
    with sg.Graph().as_default() as graph:
        w, v = sg.parameter(np.zeros(2), name="w"), sg.parameter(0.0, name="v")
        rate = sg.placeholder(sg.float32, name="rate")
        loss = sg.reduce_sum(w) + sg.cast(v, sg.float64)
        update = so.sgd(loss, [w, v], rate, groups={"v": {"learning_rate": rate * 10.0}})
    with sg.Session(graph, engine="numpy") as session:
        for value in (0.5, 0.25):
            session.run(update.run, {rate: value})
        assert session.value(w).tolist() == [-0.75, -0.75]
        assert session.value(v) == -7.5
        assert session.run(update.learning_rate, {rate: 0.5}) == 0.5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_moved_in_float32(dtype: str) -> None:
    graph, feeds, p, _, update = built(partial(so.adamw, learning_rate=0.1, average=0.5), dtype)
    kept = {x.dtype for name, x in update.state.items() if name != "adamw/step"}
    assert kept == {sg.float32}
    with sg.Session(graph, engine="numpy") as session:
        gradients = session.run(list(update.gradients.values()), feeds)
        session.run(update.run, feeds)
        for x, g in zip(p.values(), gradients, strict=True):
            before = x.op.value.array.astype(np.float32)
            g = g.astype(np.float32)
            m, v = np.float32(0.1) * g, np.float32(0.001) * g * g
            way = (m / np.float32(1 - 0.9)) / (np.sqrt(v) / np.float32(np.sqrt(1 - 0.999)) + np.float32(1e-8))
            after = (before * np.float32(1 - 0.1 * 1e-2) - np.float32(0.1) * way).astype(x.dtype.numpy)
            found = session.value(x)
            assert found.dtype == after.dtype
            apart = found.astype(np.float32) - after.astype(np.float32)
            assert np.all(np.abs(apart) <= np.spacing(np.abs(after)).astype(np.float32))


def test_sizes_of_zero_and_scalars_go_through_all() -> None:
    for name in ("sgd", "adam", "adamw", "lion", "rmsprop", "adagrad", "adafactor"):
        with sg.Graph().as_default() as graph:
            p = [sg.parameter(np.zeros(shape)) for shape in ((), (0,), (0, 3), (3, 0))]
            loss = sg.add_n([sg.reduce_sum(x) for x in p])
            update = getattr(so, name)(loss, p, clip_norm=1.0, accumulate=2)
        with sg.Session(graph, engine="numpy") as session:
            for _ in range(4):
                session.run(update.run)
            assert [session.value(x).shape for x in p] == [(), (0,), (0, 3), (3, 0)]
            assert session.value(p[0]) < 0.0


def test_scaled_gradients_make_the_same_steps_and_overflows_make_none() -> None:
    def steps(**options: Any) -> list[Any]:
        with sg.Graph().as_default() as graph:
            x = sg.placeholder(sg.float32, [2], name="x")
            w = sg.parameter(np.float32([0.5, -0.5]), name="w")
            update = so.adamw(sg.reduce_sum(sg.square(w * x - 1.0)), [w], 0.1, **options)
        with sg.Session(graph, engine="numpy") as session:
            found = []
            for fed in ([1.0, 2.0], [3.0, 1.0], [np.inf, 1.0], [2.0, 2.0]):
                with np.errstate(all="ignore"):
                    session.run(update.run, {x: np.float32(fed)})
                found.append([session.value(w), *map(session.value, update.state.values())])
            return found

    plain, scaled = steps(), steps(loss_scale=1024.0)
    for ours, theirs in zip(scaled[:2], plain[:2], strict=True):
        assert ours[2:4] == [1024.0, ours[1]]
        for a, b in zip([ours[0], ours[1], *ours[4:]], theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    assert scaled[2][2:4] == [512.0, 0]
    for i in (0, 1, 4, 5):
        np.testing.assert_array_equal(scaled[2][i], scaled[1][i])
    assert scaled[3][1] == 3
    assert np.isfinite(scaled[3][0]).all()
    assert np.isnan(plain[2][0]).any()


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_bias_corrections_of_a_million_steps_are_exact_to_float32(engine: str) -> None:
    pytest.importorskip("onnxruntime") if engine == "onnxruntime" else None
    decays, steps = (0.9, 0.99, 0.999, 0.9999), np.arange(1, 1_000_001)
    with sg.Graph().as_default() as graph:
        count = sg.placeholder(sg.float32, ["n"])
        corrections = [Clock(count, 1.0).correction(decay) for decay in decays]
    with sg.Session(graph, engine=engine) as session:
        found = session.run(corrections, {count: steps.astype(np.float32)})
    for decay, values in zip(decays, found, strict=True):
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, -np.expm1(steps * np.log(decay)), rtol=2.5e-7)


# ------------------------------------------------------------------------------------------- no gradient


def test_what_no_gradient_reaches_has_no_state_and_no_operations() -> None:
    with sg.Graph().as_default() as graph:
        w, stopped, apart, whole = (
            sg.parameter([1.0, 2.0], name=n) for n in ("w", "stopped", "apart", "whole")
        )
        gate = sg.stop_gradient(stopped)
        loss = sg.reduce_sum(w * gate + sg.floor(whole))
        update = so.adamw(loss, [w, stopped, apart, whole], clip_norm=1.0, accumulate=3, average=0.5)
    assert set(update.untouched) == {"stopped", "apart", "whole"}
    assert update.untouched["stopped"].startswith("stopped: stop_gradient: StopGradient")
    assert f"{Path(__file__).name}:{gate.op.location.line}" in update.untouched["stopped"]
    assert update.untouched["apart"] == "disconnected"
    assert update.untouched["whole"].startswith("not differentiable: ")
    assert set(update.gradients) == {w}
    assert not any(name.endswith(("stopped", "apart", "whole")) for name in update.state)
    assert "3 untouched" in repr(update)
    users = {x.op.name for op in graph.operations if op.name.startswith("adamw/") for x in op.inputs}
    assert not users & {"stopped", "apart", "whole"}


def test_where_no_gradient_reaches_anything_the_stops_are_told() -> None:
    with sg.Graph().as_default() as graph:
        w, b = sg.parameter([1.0], name="w"), sg.parameter([1.0], name="b")
        loss = sg.reduce_sum(sg.stop_gradient(w * b, name="wall"))
        length = len(graph)
        with pytest.raises(sg.GradientError) as caught:
            so.adamw(loss, [w, b])
    text = str(caught.value)
    assert text.startswith("optimizers.adamw: no gradient of Sum 'Sum' float32[] built at ")
    assert "\n  w: stopped: stop_gradient: StopGradient 'wall' built at " in text
    assert "take a stop away" in text
    assert len(graph) == length


# --------------------------------------------------------------------------------------- functional form


@pytest.mark.parametrize(
    ("rule", "optimiser"),
    [
        (
            so.SGD(0.1, momentum=0.9, dampening=0.5),
            partial(so.sgd, learning_rate=0.1, momentum=0.9, dampening=0.5),
        ),
        (so.AdamW(0.1, amsgrad=True), partial(so.adamw, learning_rate=0.1, amsgrad=True)),
        (so.Lion(so.linear(0.1, 0.0, 4)), partial(so.lion, learning_rate=so.linear(0.1, 0.0, 4))),
        (so.Adafactor(0.1, maximize=True), partial(so.adafactor, learning_rate=0.1, maximize=True)),
        (so.RMSprop(), so.rmsprop),
        (so.Adagrad(lr_decay=0.5), partial(so.adagrad, lr_decay=0.5)),
    ],
)
def test_rules_of_functions_make_the_same_steps(rule: Any, optimiser: Any) -> None:
    engine = "xla" if isinstance(rule, so.AdamW) else "numpy"
    graph, feeds, _, _, update = built(optimiser)
    expected = run(graph, feeds, update.run, 4, engine)

    def loss(p: Any) -> Any:
        hidden = sg.tanh(X @ p["layer/w"] + p["layer/b"])
        return sg.reduce_mean(sg.square(hidden @ p["head/w"] - Y))

    @sg.function(engine=engine)
    def step(p: Any, state: Any) -> Any:
        return rule.apply(p, sg.grad(loss)(p), state)

    p, state = dict(START), rule.init(START)
    plain, plain_state = dict(START), rule.init(START)
    for _ in range(4):
        p, state = step(p, state)
        plain, plain_state = rule.apply(plain, sg.grad(loss)(plain), plain_state)
    assert int(state["step"]) == 4
    for name in START:
        np.testing.assert_allclose(p[name], expected[name], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(plain[name], expected[name], rtol=1e-12, atol=1e-14)


def test_without_a_graph_the_dtype_of_parameters_stays() -> None:
    rule = so.AdamW(0.1)
    p = {"w": np.ones(3, np.float32), "h": np.ones(2, np.float16)}
    state = rule.init(p)
    p, state = rule.apply(p, {"w": np.ones(3, np.float32), "h": np.ones(2, np.float16)}, state)
    assert {name: x.dtype for name, x in p.items()} == {"w": np.float32, "h": np.float16}
    assert {x.dtype for slots in state["slots"] for x in slots.values()} == {np.dtype(np.float32)}


# ------------------------------------------------------------------------------------------------ Optax


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            partial(so.lion, learning_rate=0.01, betas=(0.8, 0.95), weight_decay=0.2),
            optax.lion(0.01, 0.8, 0.95, weight_decay=0.2),
        ),
        (partial(so.lion, learning_rate=0.01), optax.lion(0.01, weight_decay=0.0)),
        (
            partial(so.adamw, learning_rate=so.cosine(0.1, 20)),
            optax.adamw(optax.cosine_decay_schedule(0.1, 20), weight_decay=1e-2),
        ),
    ],
)
def test_steps_are_those_of_optax(ours: Any, theirs: Any) -> None:
    graph, feeds, p, _, update = built(ours)

    def loss(p: Any) -> Any:
        hidden = jnp.tanh(X @ p["layer/w"] + p["layer/b"])
        return jnp.mean(jnp.square(hidden @ p["head/w"] - Y))

    with jax.enable_x64(True):
        expected = {name: jnp.asarray(value) for name, value in START.items()}
        state = theirs.init(expected)
        for _ in range(20):
            steps, state = theirs.update(jax.grad(loss)(expected), state, expected)
            expected = optax.apply_updates(expected, steps)
    found = run(graph, feeds, update.run, 20)
    for name in p:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-7)


# ------------------------------------------------------------------------------------------- all or nothing


def test_an_interrupt_leaves_nothing_behind() -> None:
    def interrupted(step: Any) -> Any:
        sg.exp(step)
        raise KeyboardInterrupt

    with sg.Graph().as_default() as graph:
        w = sg.parameter([1.0], name="w")
        loss = sg.reduce_sum(w * w)
        before = graph.to_text()
        for accumulate in (1, 3):
            with pytest.raises(KeyboardInterrupt):
                so.adamw(loss, [w], interrupted, accumulate=accumulate)
            assert graph.to_text() == before
        assert "adamw/step" in so.adamw(loss, [w]).state


def test_numbers_of_numpy_build_what_pythons_build() -> None:
    texts = []
    for real, whole, flag in ((float, int, bool), (np.float64, np.int8, np.bool_)):
        how: Any = {
            "clip_norm": real(1.0),
            "clip_value": real(2.0),
            "average": real(0.5),
            "accumulate": whole(2),
        }
        for optimiser in (
            partial(so.sgd, learning_rate=real(0.5), momentum=real(0.5), nesterov=flag(True), **how),
            partial(so.adamw, betas=(real(0.5), real(0.25)), eps=real(0.5), amsgrad=flag(True), **how),
            partial(so.adagrad, lr_decay=real(0.5), initial_accumulator_value=real(0.5)),
            partial(so.rmsprop, alpha=real(0.5), centered=flag(True), momentum=real(0.5)),
            partial(so.adafactor, beta2_decay=real(-0.5), eps=(real(0.5), real(0.5)), d=real(1.5)),
            partial(so.lion, betas=(real(0.5), real(0.25)), maximize=flag(True)),
            partial(
                so.muon,
                ns_steps=whole(2),
                ns_coefficients=(real(1), real(1), real(1)),
                others=so.SGD(real(1)),
            ),
        ):
            texts.append(built(optimiser, "float32")[0].to_text())
    half = len(texts) // 2
    assert texts[:half] == texts[half:]


# ------------------------------------------------------------------------------------------------ errors


class Setting:
    def __init__(self) -> None:
        with sg.Graph().as_default() as self.graph:
            self.w = sg.parameter([1.0, 2.0], name="w")
            self.b = sg.parameter(1.0, name="b")
            self.whole = sg.parameter([1, 2], name="whole")
            self.waves = sg.parameter([1j], name="waves")
            self.x = sg.placeholder(sg.float32, ["n"], name="x")
            self.loss = sg.reduce_sum(self.w * self.b)
            self.many = self.w * 2.0
            self.count = sg.reduce_sum(self.whole)
        with sg.Graph().as_default():
            self.other = sg.parameter([1.0], name="other")
            self.rate = sg.placeholder(sg.float32, name="rate")


def wrong(told: str, call: Any, error: Any = sg.ArgumentError) -> Any:
    return pytest.param(call, error, told, id=told)


WRONG = [
    wrong("learning_rate is a number from 0 on, not -0.1", lambda s: so.sgd(s.loss, [s.w], -0.1)),
    wrong("learning_rate is a number from 0 on, not nan", lambda s: so.sgd(s.loss, [s.w], float("nan"))),
    wrong("a number is needed, not 'fast'", lambda s: so.sgd(s.loss, [s.w], "fast")),
    wrong("the learning rate is a scalar, not", lambda s: so.sgd(s.loss, [s.w], s.many), sg.ShapeError),
    wrong("a floating-point number, not Sum", lambda s: so.sgd(s.loss, [s.w], s.count), sg.DTypeError),
    wrong("another graph than the loss", lambda s: so.sgd(s.loss, [s.w], s.rate), sg.GraphError),
    wrong(
        "the schedule's learning rate is a number from", lambda s: so.sgd(s.loss, [s.w], lambda step: -1.0)
    ),
    wrong("momentum is a number from 0 on", lambda s: so.sgd(s.loss, [s.w], momentum=-1)),
    wrong("nesterov needs a momentum", lambda s: so.sgd(s.loss, [s.w], nesterov=True)),
    wrong("nesterov is True or False", lambda s: so.sgd(s.loss, [s.w], momentum=0.9, nesterov="yes")),
    wrong("weight_decay is a number from 0 on", lambda s: so.adamw(s.loss, [s.w], weight_decay=-0.1)),
    wrong(
        "betas[1] is a number from 0 to below 1, not 1.0", lambda s: so.adam(s.loss, [s.w], betas=(0.9, 1.0))
    ),
    wrong("betas is a tuple of 2 numbers, not 0.9", lambda s: so.lion(s.loss, [s.w], betas=0.9)),
    wrong("a number is needed, not 'x'", lambda s: so.lion(s.loss, [s.w], betas=("x", 0.9))),
    wrong("eps is a number from 0 on", lambda s: so.adam(s.loss, [s.w], eps=-1e-8)),
    wrong("alpha is a number from 0 to below 1", lambda s: so.rmsprop(s.loss, [s.w], alpha=1.5)),
    wrong("lr_decay is a number from 0 on", lambda s: so.adagrad(s.loss, [s.w], lr_decay=-1)),
    wrong("beta2_decay is a number up to 0", lambda s: so.adafactor(s.loss, [s.w], beta2_decay=0.8)),
    wrong("eps are two numbers", lambda s: so.adafactor(s.loss, [s.w], eps=1e-8)),
    wrong("d is a number from 1 on", lambda s: so.adafactor(s.loss, [s.w], d=0.5)),
    wrong("it is no matrix; give a rule for all others", lambda s: so.muon(s.loss, [s.w])),
    wrong("others is a rule, such as", lambda s: so.muon(s.loss, [s.w], others=so.adamw)),
    wrong("ns_steps is a whole number from 0 to 99", lambda s: so.muon(s.loss, [s.w], ns_steps=100)),
    wrong("adjust_lr_fn is None", lambda s: so.muon(s.loss, [s.w], adjust_lr_fn="most")),
    wrong("adjust_lr_fn is None, ", lambda s: so.muon(s.loss, [s.w], adjust_lr_fn=["original"])),
    wrong(
        "ns_coefficients is a tuple of 3 numbers", lambda s: so.muon(s.loss, [s.w], ns_coefficients=(1, 2))
    ),
    wrong(
        "ns_dtype is a floating-point dtype", lambda s: so.muon(s.loss, [s.w], ns_dtype="int8"), sg.DTypeError
    ),
    wrong("accumulate is a whole number from 1 on", lambda s: so.sgd(s.loss, [s.w], accumulate=0)),
    wrong("accumulate is a whole number from 1 on, not 2.5", lambda s: so.sgd(s.loss, [s.w], accumulate=2.5)),
    wrong("clip_norm is a number above 0, or None", lambda s: so.sgd(s.loss, [s.w], clip_norm=0)),
    wrong("clip_value is a number from 0 on", lambda s: so.sgd(s.loss, [s.w], clip_value=-1.0)),
    wrong("average is a number from 0 to below 1", lambda s: so.sgd(s.loss, [s.w], average=1.0)),
    wrong("there is no argument 'clip'", lambda s: so.sgd(s.loss, [s.w], clip=1.0)),
    wrong("cannot name an operation or scope", lambda s: so.sgd(s.loss, [s.w], name="a b"), sg.GraphError),
    wrong("cannot name an operation or scope:", lambda s: so.sgd(s.loss, [s.w], name=3), sg.GraphError),
    wrong("nothing is called 'v'; there are w, b", lambda s: so.sgd(s.loss, [s.w, s.b], groups={"v": {}})),
    wrong("no_decay: nothing is called 'v'", lambda s: so.sgd(s.loss, [s.w], no_decay="v")),
    wrong("groups is a dict from patterns", lambda s: so.sgd(s.loss, [s.w], groups=["w"])),
    wrong("'w' has a dict of hyperparameters or a rule", lambda s: so.sgd(s.loss, [s.w], groups={"w": 0.1})),
    wrong("sgd has no 'betas'; it has", lambda s: so.sgd(s.loss, [s.w], groups={"w": {"betas": (0, 0)}})),
    wrong("momentum is a number", lambda s: so.sgd(s.loss, [s.w], groups={"w": {"momentum": -1}})),
    wrong("a pattern of names is text", lambda s: so.sgd(s.loss, [s.w], groups={3: {}})),
    wrong("a pattern of names is text,", lambda s: so.sgd(s.loss, [s.w], no_decay=[3])),
    wrong("unexpected keyword argument 'lr'", lambda s: so.SGD(lr=0.1)),
    wrong("optimizers.AdamW: betas[0] is", lambda s: so.AdamW(betas=(-1, 0))),
    wrong("the loss is an output of a graph, not 3.0", lambda s: so.sgd(3.0, [s.w]), sg.GraphError),
    wrong("the loss is a scalar, not Mul", lambda s: so.sgd(s.many, [s.w]), sg.ShapeError),
    wrong("the loss is a floating-point number, not Sum", lambda s: so.sgd(s.count, [s.w]), sg.DTypeError),
    wrong("there are no parameters to move", lambda s: so.sgd(s.loss, []), sg.GraphError),
    wrong(
        "parameters are outputs that sg.parameter made, not 1.0", lambda s: so.sgd(s.loss, 1.0), sg.GraphError
    ),
    wrong("can be moved; not Placeholder 'x'", lambda s: so.sgd(s.loss, [s.w, s.x]), sg.GraphError),
    wrong("belongs to another graph than the loss", lambda s: so.sgd(s.loss, [s.other]), sg.GraphError),
    wrong(
        "two parameters are called 'a.b'",
        lambda s: so.sgd(s.loss, {"a": {"b": s.w}, "a.b": s.b}),
        sg.GraphError,
    ),
    wrong("'m/a b' cannot name", lambda s: so.adam(s.loss, {"a b": s.w}), sg.GraphError),
    wrong("is among the parameters twice", lambda s: so.sgd(s.loss, [s.w, s.w]), sg.GraphError),
    wrong("no gradient reaches it; leave it out", lambda s: so.sgd(s.loss, [s.whole]), sg.DTypeError),
    wrong("one for the imaginary part", lambda s: so.sgd(s.loss, [s.waves]), sg.DTypeError),
    wrong("parameters are floating-point, not int", lambda s: so.SGD().init([np.arange(3)]), sg.DTypeError),
    wrong("muon cannot move a parameter float64[3]", lambda s: so.Muon().init([np.ones(3)])),
    wrong(
        "there are 1 parameters, and 2 gradients",
        lambda s: so.SGD().apply([np.ones(1)], [np.ones(1)] * 2, so.SGD().init([np.ones(1)])),
    ),
    wrong(
        "and its gradient float64[1]",
        lambda s: so.SGD().apply([np.ones(2)], [np.ones(1)], so.SGD().init([np.ones(2)])),
        sg.ShapeError,
    ),
    wrong(
        "the state is what init returned for these 1 parameters",
        lambda s: so.SGD().apply([np.ones(1)], [np.ones(1)], {}),
    ),
    wrong(
        "the state is what init returned, with the number",
        lambda s: so.SGD().apply([np.ones(1)], [np.ones(1)], {"slots": [{}]}),
    ),
]


@pytest.mark.parametrize(("call", "error", "told"), WRONG)
def test_wrong_arguments_are_errors_with_cures(call: Any, error: Any, told: str) -> None:
    setting = Setting()
    before = len(setting.graph)
    with pytest.raises(error) as caught:
        call(setting)
    assert told in str(caught.value)
    assert "test_update.py" in str(caught.value)
    assert not isinstance(caught.value, sg.InternalError)
    assert len(setting.graph) == before
