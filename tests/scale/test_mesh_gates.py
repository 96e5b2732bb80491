"""Gates on eight devices: data parallel, tensor parallel and both, against one device and against NumPy.

Every gate stands in an MLP and in a block of attention, on what lies divided along both axes of the mesh.
Compared are losses, gradients by every parameter, what SGD and AdamW make of them, and the parameters that
two steps have assigned. Numbers are float64, so that nothing but rounding is let through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hlo_tools import hlo

import stopgrad as sg

pytestmark = pytest.mark.slow

MESHES = {
    "data": {"data": 8, "model": 1},
    "model": {"data": 1, "model": 8},
    "both": {"data": 4, "model": 2},
}
BATCH, LENGTH, WIDTH, HIDDEN, HEADS = 8, 4, 6, 16, 8

Weights = dict[str, Any]


@sg.custom_gradient
def halved(x: Any) -> Any:
    """x, with a gradient of its own."""
    return x * 1.0, lambda g: g * 0.5 + sg.reduce_mean(g)


def unrecorded(x: Any) -> Any:
    with sg.no_gradient():
        return x * 2.0


# Of a hidden layer, the weights before it, and what switches stops.
GATES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "none": lambda h, w, when: h,
    "stop_gradient": lambda h, w, when: sg.stop_gradient(h),
    "stop_gradient wrt": lambda h, w, when: sg.stop_gradient(h, wrt=[w]),
    "stop_gradient when": lambda h, w, when: sg.stop_gradient(h, when=when),
    "no_gradient": lambda h, w, when: unrecorded(h),
    "zero_gradient": lambda h, w, when: sg.zero_gradient(h),
    "scale_gradient": lambda h, w, when: sg.scale_gradient(h, -0.25),
    "reverse_gradient": lambda h, w, when: sg.reverse_gradient(h),
    "clip_gradient": lambda h, w, when: sg.clip_gradient(h, -1e-3, 1e-3),
    "clip_gradient_norm": lambda h, w, when: sg.clip_gradient_norm(h, 1e-3),
    "straight_through": lambda h, w, when: sg.straight_through(sg.round(h * 4.0) / 4.0, h),
    "probe": lambda h, w, when: sg.probe(h, "here"),
    "custom_gradient": lambda h, w, when: halved(h),
    "shard": lambda h, w, when: sg.shard(h, ("data", *[None] * (h.ndim - 2), "model")),
}
SAME_AS_NONE = {"probe", "shard"}


# ----------------------------------------------------------------------------------------- the models


def weight(name: str, *shape: int, spec: tuple[str | None, ...]) -> Any:
    rng = np.random.default_rng(sum(map(ord, name)))
    return sg.parameter(rng.standard_normal(shape) * shape[0] ** -0.5, name=name, sharding=spec)


class Mlp:
    """A hidden layer, divided by its units."""

    shape: tuple[int, ...] = (BATCH, WIDTH)

    def __init__(self) -> None:
        self.first = weight("up", WIDTH, HIDDEN, spec=(None, "model"))
        self.bias = weight("bias", HIDDEN, spec=("model",))
        self.last = weight("down", HIDDEN, WIDTH, spec=("model", None))
        self.weights = {"up": self.first, "bias": self.bias, "down": self.last}

    def hidden(self, x: Any) -> Any:
        return sg.tanh(x @ self.first + self.bias)


class Attention:
    """A block of attention, divided by its heads."""

    shape = (BATCH, LENGTH, WIDTH)

    def __init__(self) -> None:
        column = (None, "model")
        names = ("query", "key", "value")
        self.weights = {name: weight(name, WIDTH, HIDDEN, spec=column) for name in names}
        self.first = self.weights["value"]
        self.last = self.weights["out"] = weight("out", HIDDEN, WIDTH, spec=("model", None))

    def hidden(self, x: Any) -> Any:
        def heads(name: str) -> Any:
            parts = sg.reshape(x @ self.weights[name], (BATCH, LENGTH, HEADS, HIDDEN // HEADS))
            return sg.transpose(parts, (0, 2, 1, 3))

        scores = sg.matmul(heads("query"), heads("key"), transpose_b=True)
        mixed = sg.softmax(scores) @ heads("value")
        return sg.reshape(sg.transpose(mixed, (0, 2, 1, 3)), (BATCH, LENGTH, HIDDEN))


MODELS = {"mlp": Mlp, "attention": Attention}


class Gated:
    """A model behind every gate, with losses, gradients and next parameters; all losses are trained."""

    def __init__(self, model: str) -> None:
        with sg.Graph().as_default() as self.graph:
            made = MODELS[model]()
            spec = ("data", *[None] * (len(made.shape) - 1))
            self.x = sg.placeholder(sg.float64, made.shape, name="x", sharding=spec)
            self.when = sg.placeholder(sg.bool, [], name="when")
            self.weights: Weights = made.weights
            self.wanted: dict[str, Any] = {}
            losses = []
            for name, gate in GATES.items():
                h = made.hidden(self.x)
                out = gate(h, made.first, self.when) @ made.last
                # What goes round the gate arrives whatever it does.
                loss = sg.reduce_mean(sg.square(out - self.x)) + 0.1 * sg.reduce_mean(h * h * h)
                self.add(name, loss)
                losses.append(loss)
            self.train = sg.optimizers.adamw(sum(losses[1:], losses[0]), self.weights, 0.05)
        rng = np.random.default_rng(7)
        self.batches = [rng.standard_normal(made.shape) for _ in range(2)]

    def add(self, name: str, loss: Any) -> None:
        gradients = sg.gradients(loss, self.weights)
        self.wanted[f"{name}: loss"] = loss
        self.wanted |= {f"{name}: d {n}": g for n, g in gradients.items() if g is not None}
        for rule in (
            sg.optimizers.sgd(loss, self.weights, 0.1),
            sg.optimizers.adamw(loss, self.weights, 0.1),
        ):
            self.wanted |= {f"{name}: next {x.op.name}": new for x, new in rule.updates.items()}

    def run(self, engine: str, mesh: sg.Mesh | None = None) -> dict[str, Any]:
        """All that is wanted, before and after a step, with the switch on and off; and what was assigned."""
        found: dict[str, Any] = {}
        with sg.Session(self.graph, engine, mesh=mesh) as session:
            for i, batch in enumerate(self.batches):
                fed = {self.x: batch, self.when: i == 0}
                values, _ = session.run([self.wanted, self.train.run], fed)
                found |= {f"step {i}, {key}": value for key, value in values.items()}
            held = {**self.weights, **self.train.state}
            found |= {f"after: {x.op.name}": session.value(x) for x in held.values()}
        return found


@pytest.fixture(scope="module", params=MODELS)
def gated(request: pytest.FixtureRequest) -> tuple[Gated, dict[str, Any]]:
    """A model, and what NumPy makes of it."""
    made = Gated(request.param)
    return made, made.run("numpy")


def compare(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-11, err_msg=key)


# ------------------------------------------------------------------------------------------- the tests


@pytest.mark.parametrize("layout", [None, *MESHES])
def test_every_gate_is_the_same_on_many_devices(
    gated: tuple[Gated, dict[str, Any]], layout: str | None
) -> None:
    """With None on one device."""
    made, expected = gated
    compare(made.run("xla", None if layout is None else sg.Mesh(**MESHES[layout])), expected)


def test_every_gate_does_something(gated: tuple[Gated, dict[str, Any]]) -> None:
    """So that what is compared above could differ."""
    made, found = gated
    first = [f": d {name}" for name in made.weights if name not in ("down", "out")]
    for gate in GATES:
        same = all(np.allclose(found[f"step 0, {gate}{d}"], found[f"step 0, none{d}"]) for d in first)
        assert same == (gate in {"none", *SAME_AS_NONE}), gate
    for d in first:  # Switched off in the second step.
        np.testing.assert_array_equal(found[f"step 1, stop_gradient when{d}"], found[f"step 1, none{d}"])


@pytest.mark.parametrize("layout", MESHES)
def test_probed_gradients_are_fetched_whole(layout: str) -> None:
    with sg.Graph().as_default() as graph:
        model = Mlp()
        x = sg.placeholder(sg.float64, model.shape, name="x", sharding=("data", None))
        loss = sg.reduce_mean(sg.square(sg.probe(model.hidden(x), "here") @ model.last))
        sg.gradients(loss, model.weights)
    probed = [op.outputs[0] for op in graph.operations if op.name.endswith("here")]
    assert probed
    fed = {x: np.random.default_rng(0).standard_normal(model.shape)}
    with sg.Session(graph, mesh=sg.Mesh(**MESHES[layout])) as many, sg.Session(graph, "numpy") as one:
        for a, b in zip(many.run(probed, fed), one.run(probed, fed), strict=True):
            assert a.shape == (BATCH, HIDDEN)
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layout", MESHES)
def test_a_prevented_gradient_is_an_error_on_a_mesh_and_its_value_is_not(layout: str) -> None:
    mesh = sg.Mesh(**MESHES[layout])
    with mesh, sg.Graph().as_default() as graph:
        model = Mlp()
        x = sg.placeholder(sg.float64, model.shape, name="x", sharding=("data", None))
        y = sg.prevent_gradient(model.hidden(x), "not through here")
        with pytest.raises(sg.GradientError, match="not through here"):
            sg.gradients(sg.reduce_mean(y), model.first)
    fed = {x: np.random.default_rng(0).standard_normal(model.shape)}
    with sg.Session(graph, mesh=mesh) as many, sg.Session(graph, "numpy") as one:
        np.testing.assert_allclose(many.run(y, fed), one.run(y, fed), rtol=1e-12)


# ------------------------------------------------------------------------------- what devices say less


def sent(f: Callable[..., Any], layout: str, shardings: dict[str, Any], *arguments: Any) -> list[Any]:
    """What the devices say to each other in a call."""
    compiled = sg.function(f, mesh=sg.Mesh(**MESHES[layout]), shardings=shardings).lower(*arguments).compile()
    return [one for one in hlo.collectives(compiled.as_text()) if one.moved]


X, LOW, HIGH = np.ones((BATCH, WIDTH)), np.ones((WIDTH, HIDDEN)), np.ones((HIDDEN, WIDTH))


def through(stop: Callable[[Any], Any]) -> Callable[..., Any]:
    """A loss for each example of a batch, with a gate between two layers."""
    return lambda low, high, x: sg.reduce_sum(sg.square(stop(sg.tanh(x @ low)) @ high), axis=-1)


def test_a_stopped_gradient_is_not_added_up_over_the_batch() -> None:
    """By the layer behind the stop, the gradient is zero, and no device asks another one."""
    data = {"x": ("data", None)}

    def gradient(stop: Callable[[Any], Any]) -> Callable[..., Any]:
        return sg.grad(lambda low, high, x: sg.reduce_sum(through(stop)(low, high, x)))

    (open_,) = sent(gradient(lambda h: h), "data", data, LOW, HIGH, X)
    assert (open_.kind, open_.result) == ("all-reduce", LOW.nbytes)
    assert sent(gradient(sg.stop_gradient), "data", data, LOW, HIGH, X) == []


@pytest.mark.parametrize("rule", [sg.optimizers.sgd, sg.optimizers.adamw])
def test_a_step_sends_nothing_for_what_lies_behind_a_stop(rule: Any) -> None:
    """Data parallel, all parameters given to the optimiser: those behind the stop are not in the traffic."""
    traffic = {}
    for name, stop in (("open", lambda h: h), ("stopped", sg.stop_gradient)):
        with sg.Graph().as_default() as graph:
            x = sg.placeholder(sg.float64, X.shape, name="x", sharding=("data", None))
            low, high = sg.parameter(LOW, name="low"), sg.parameter(HIGH, name="high")
            step = rule(sg.reduce_mean(through(stop)(low, high, x)), [low, high])
        program = sg.Session(graph, mesh=sg.Mesh(data=8)).compile(step.run, {x: X})
        traffic[name] = sum(one.result for one in hlo.collectives(program.as_text()))
    assert traffic == {"open": LOW.nbytes + HIGH.nbytes, "stopped": HIGH.nbytes}


def test_a_stop_spares_the_sum_over_hidden_units() -> None:
    """Tensor parallel: the loss adds up hidden units once, and its gradient by the input once more."""
    model = {"low": (None, "model"), "high": ("model", None)}

    def of_input(stop: Callable[[Any], Any]) -> Callable[..., Any]:
        loss = lambda x, low, high: sg.reduce_sum(through(lambda h: h)(low, high, stop(sg.tanh(x))))
        return sg.value_and_grad(loss)

    open_ = sent(of_input(lambda x: x), "model", model, X, LOW, HIGH)
    stopped = sent(of_input(sg.stop_gradient), "model", model, X, LOW, HIGH)
    assert [one.result for one in open_] == [X.nbytes, X.nbytes]
    assert [one.result for one in stopped] == [X.nbytes]


def test_a_stop_towards_one_parameter_spares_its_sum_alone() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, X.shape, name="x", sharding=("data", None))
        low, high = sg.parameter(LOW, name="low"), sg.parameter(HIGH, name="high")
        bias = sg.parameter(np.zeros(HIDDEN), name="bias")
        h = sg.stop_gradient(sg.tanh(x @ low + bias), wrt=[low])
        step = sg.optimizers.sgd(sg.reduce_mean(sg.square(h @ high)), [low, bias, high])
    program = sg.Session(graph, mesh=sg.Mesh(data=8)).compile(step.run, {x: X})
    assert sum(one.result for one in hlo.collectives(program.as_text())) == HIGH.nbytes + HIDDEN * 8
