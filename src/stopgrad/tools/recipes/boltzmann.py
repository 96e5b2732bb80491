"""Contrastive divergence for a restricted Boltzmann machine.

    F(v) = -a·v - Σⱼ log(1 + exp(bⱼ + (v W)ⱼ)),    p(v) ∝ exp(-F(v))
    loss = mean F(v) - mean F(stop(vₖ)),           vₖ: v after k steps of Gibbs sampling

The sample vₖ is drawn with the current parameters, but the derivative of the likelihood takes it as given:
the stop says so, and the gradient is the classical update -(⟨v h⟩data - ⟨v h⟩model). With drawn samples the
comparison that makes each draw cuts the gradient as well; with "mean-field" samples, which are probabilities,
only the stop does.

CD-k starts the chain at the data; the persistent form (PCD) goes on with chains of its own.

Sources: Hinton 2002, "Training products of experts by minimizing contrastive divergence"; Tieleman 2008,
"Training restricted Boltzmann machines using approximations to the likelihood gradient"; for mean-field,
Welling & Hinton 2002.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import stopgrad as sg
from stopgrad.base.namespaces import require
from stopgrad.tools.recipes import plots
from stopgrad.tools.recipes.result import (
    Check,
    LossGraph,
    Picture,
    Progress,
    Result,
    Table,
    differentiate,
    silent,
)

Array: TypeAlias = sg.Output | np.ndarray[Any, Any]
Numbers = np.ndarray[Any, Any]
Machine = dict[str, Any]
"""Parameters: "W" [visible, hidden], "a" [visible], "b" [hidden]."""


def free_energy(v: Array, rbm: Machine) -> Array:
    """F of each row of v."""
    return -sg.reduce_sum(v * rbm["a"], axis=-1) - sg.reduce_sum(
        sg.softplus(v @ rbm["W"] + rbm["b"]), axis=-1
    )


def hidden_given(v: Array, rbm: Machine) -> Array:
    """p(h=1 | v)."""
    return sg.sigmoid(v @ rbm["W"] + rbm["b"])


def visible_given(h: Array, rbm: Machine) -> Array:
    """p(v=1 | h)."""
    return sg.sigmoid(sg.matmul(h, rbm["W"], transpose_b=True) + rbm["a"])


def gibbs(v: Array, rbm: Machine, key: Array, k: int) -> Array:
    """k steps of Gibbs sampling from v."""
    for i in range(k):
        keys = sg.random_split(sg.random_fold_in(key, i))
        h = sg.cast(sg.random_bernoulli(None, keys[0], hidden_given(v, rbm)), v.dtype)
        v = sg.cast(sg.random_bernoulli(None, keys[1], visible_given(h, rbm)), v.dtype)
    return v


def mean_field(v: Array, rbm: Machine, k: int) -> Array:
    """The same with probabilities in place of draws."""
    for _ in range(k):
        v = visible_given(hidden_given(v, rbm), rbm)
    return v


def contrastive_divergence_loss(v: Array, sample: Array, rbm: Machine) -> Array:
    """Its gradient is the update of contrastive divergence; its value says little."""
    return sg.reduce_mean(free_energy(v, rbm)) - sg.reduce_mean(free_energy(sg.stop_gradient(sample), rbm))


def classical_update(v: Numbers, sample: Numbers, rbm: Machine) -> Machine:
    """-(⟨v h⟩data - ⟨v h⟩model), by hand in NumPy."""

    def statistics(x: Numbers) -> Machine:
        h = 1.0 / (1.0 + np.exp(-(x @ rbm["W"] + rbm["b"])))
        return {"W": x.T @ h / len(x), "a": x.mean(axis=0), "b": h.mean(axis=0)}

    data, model = statistics(v), statistics(sample)
    return {name: model[name] - data[name] for name in data}


def pseudo_likelihood(v: Array, rbm: Machine) -> Array:
    """The mean over rows of Σᵢ log p(vᵢ | all others), with every pixel flipped in turn."""
    pixel = np.eye(rbm["a"].shape[0], dtype=np.float32)
    flipped = sg.expand_dims(v, 1) + pixel * sg.expand_dims(1.0 - 2.0 * v, 1)
    gain = free_energy(flipped, rbm) - sg.expand_dims(free_energy(v, rbm), 1)
    return sg.reduce_mean(sg.reduce_sum(-sg.softplus(-gain), axis=-1))


# ------------------------------------------------------------------------------------------- training

HIDDEN, BATCH, EPOCHS, RATE = 100, 10, 15, 0.1


class Trainer:
    """A training step in graph style: parameters, their update and, for PCD, the chains live in a session."""

    rbm: dict[str, sg.Output]
    v: sg.Output
    key: sg.Output
    rate: sg.Output
    step: list[sg.Output]
    session: sg.Session

    def __init__(self, visible: int, persistent: bool, seed: int, engine: str, k: int = 1) -> None:
        rng = np.random.default_rng(seed)
        with sg.Graph().as_default() as graph:
            self.rbm = {
                "W": sg.parameter(rng.normal(size=(visible, HIDDEN)).astype(np.float32) * 0.01, name="W"),
                "a": sg.parameter(np.zeros(visible, np.float32), name="a"),
                "b": sg.parameter(np.zeros(HIDDEN, np.float32), name="b"),
            }
            self.v = sg.placeholder(sg.float32, [BATCH, visible], name="v")
            self.key = sg.placeholder(sg.uint32, [2], name="key")
            self.rate = sg.placeholder(sg.float32, [], name="rate")
            chains = (
                sg.parameter(rng.integers(0, 2, (BATCH, visible)).astype(np.float32), name="chains")
                if persistent
                else self.v
            )
            sample = gibbs(chains, self.rbm, self.key, k)
            loss = contrastive_divergence_loss(self.v, sample, self.rbm)
            gradients = sg.gradients(loss, list(self.rbm.values()))
            self.step = [
                sg.assign(p, p - self.rate * g) for p, g in zip(self.rbm.values(), gradients, strict=True)
            ]
            if persistent:
                self.step.append(sg.assign(chains, sample))
        self.session = sg.Session(graph, engine)

    def epoch(self, x: Numbers, number: int, rng: np.random.Generator) -> None:
        """One pass over the data, in random order.

        The rate falls from twice RATE to zero over the epochs: on average it is RATE.
        """
        keys = rng.integers(0, 2**32, (len(x) // BATCH, 2), dtype=np.uint32)
        order = rng.permutation(len(x))
        for i, key in enumerate(keys):
            batch = x[order[i * BATCH : (i + 1) * BATCH]]
            self.session.run(
                self.step, {self.v: batch, self.key: key, self.rate: 2.0 * RATE * (1.0 - number / EPOCHS)}
            )

    def values(self) -> Machine:
        """The parameters as they are now."""
        return {name: self.session.value(p) for name, p in self.rbm.items()}


def load(seed: int) -> tuple[Numbers, Numbers]:
    """Digits as black and white pixels: 1,500 to train on, the others to test."""
    digits = require("sklearn.datasets", "the boltzmann recipe", "tour").load_digits().data
    x = (digits[np.random.default_rng(seed).permutation(len(digits))] >= 8.0).astype(np.float32)
    return x[:1500], x[1500:]


def train_peer(x: Numbers, seed: int, epochs: int) -> list[Machine]:
    """The parameters of scikit-learn's BernoulliRBM after each epoch.

    It is trained by PCD at the constant rate RATE, its default.
    """
    library = require("sklearn.neural_network", "the boltzmann recipe", "tour")
    peer = library.BernoulliRBM(
        HIDDEN, learning_rate=RATE, batch_size=BATCH, random_state=np.random.RandomState(seed)
    )
    rng = np.random.default_rng(seed)
    machines = []
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for i in range(0, len(x), BATCH):
            peer.partial_fit(x[order[i : i + BATCH]])
        machines.append(
            {
                "W": peer.components_.T.copy(),
                "a": peer.intercept_visible_.copy(),
                "b": peer.intercept_hidden_.copy(),
            }
        )
    return [{name: value.astype(np.float32) for name, value in m.items()} for m in machines]


# ----------------------------------------------------------------------------------------- experiment


def run(seed: int = 0, engine: str = "auto", progress: Progress = silent) -> Result:
    """Train by CD-1 and by PCD, beside scikit-learn's BernoulliRBM of the same size, in as many epochs."""
    progress(0.0, "loading digits")
    x, test = load(seed)
    score = sg.function(pseudo_likelihood, engine=engine)
    machines, curves = _train(x, lambda rbm: float(score(test, rbm)), seed, engine, progress)
    progress(2 / 3.5, "scikit-learn's BernoulliRBM")
    peers = train_peer(x, seed, EPOCHS)
    curves["scikit-learn"] = [float(score(test, m)) for m in peers]
    error = update_error(x[:100], machines["CD-1"], seed, engine)
    with_stop, without = mean_field_graph(True), mean_field_graph(False)
    progress(3.2 / 3.5, "drawing samples")
    growth = plots.curves(
        "Pseudo-likelihood of test digits during training.",
        curves,
        "epoch",
        "log pseudo-likelihood per image",
        xs=range(1, EPOCHS + 1),
    )
    return Result(
        "boltzmann",
        "Boltzmann machine",
        "With the sample stopped, the gradient of a difference of free energies is the classical update of "
        "contrastive divergence.",
        _checks(error, curves, with_stop, without),
        [_table(machines | {"scikit-learn": peers[-1]}, x, test, score)],
        [growth, _picture(test, machines, seed, engine)],
        [with_stop, without],
        [free_energy, gibbs, contrastive_divergence_loss],
    )


def _train(
    x: Numbers, score: Callable[[Machine], float], seed: int, engine: str, progress: Progress
) -> tuple[dict[str, Machine], dict[str, list[float]]]:
    """The machines trained by CD-1 and by PCD, and the score of each after every epoch."""
    machines: dict[str, Machine] = {}
    curves: dict[str, list[float]] = {}
    for i, (name, persistent) in enumerate({"CD-1": False, "PCD": True}.items()):
        trainer = Trainer(x.shape[1], persistent, seed, engine)
        rng = np.random.default_rng(seed)
        curves[name] = []
        for epoch in range(EPOCHS):
            trainer.epoch(x, epoch, rng)
            curves[name].append(score(trainer.values()))
            progress((i + (epoch + 1) / EPOCHS) / 3.5, f"{name}, epoch {epoch + 1}")
        machines[name] = trainer.values()
    return machines, curves


def _checks(
    error: float, curves: dict[str, list[float]], with_stop: LossGraph, without: LossGraph
) -> list[Check]:
    ahead = {name: curves[name][-1] - curves["scikit-learn"][-1] for name in ("CD-1", "PCD")}
    entering = "mean-field sample with the stop: gradient operations inside its construction"
    return [
        Check("gradient minus the classical update, largest difference", error, "≤", 1e-5),
        *(
            Check(f"{name}: pseudo-likelihood minus scikit-learn's, on test digits", by, "≥", 0.0)
            for name, by in ahead.items()
        ),
        Check(entering, len(with_stop.passing()), "=", 0),
        Check("... without the stop", len(without.passing()), "≥", 1),
    ]


def update_error(v: Numbers, rbm: Machine, seed: int = 0, engine: str = "auto", k: int = 3) -> float:
    """The largest difference of the loss's gradient from the classical update, for a sample of k steps."""
    key = np.asarray(sg.random_key(seed))

    @sg.function(engine=engine)
    def gradient(rbm: Machine, v: Array, key: Array) -> Any:
        sample = gibbs(v, rbm, key, k)
        return sg.grad(lambda rbm: contrastive_divergence_loss(v, gibbs(v, rbm, key, k), rbm))(rbm), sample

    update, sample = gradient(rbm, v, key)
    expected = classical_update(v, sample, rbm)
    return max(float(np.abs(update[name] - expected[name]).max()) for name in expected)


def mean_field_graph(stopped: bool) -> LossGraph:
    """The loss with a mean-field sample, which names its construction: does the gradient enter it?"""
    example = {"W": np.zeros((4, 3), np.float32), "a": np.zeros(4, np.float32), "b": np.zeros(3, np.float32)}

    def loss(rbm: Machine, v: sg.Output) -> tuple[Array, list[sg.Operation]]:
        before = len(v.graph)
        sample = mean_field(v, rbm, 1)
        construction = list(v.graph.operations[before:])
        if stopped:
            return contrastive_divergence_loss(v, sample, rbm), construction
        return sg.reduce_mean(free_energy(v, rbm)) - sg.reduce_mean(free_energy(sample, rbm)), construction

    title = "Mean-field contrastive divergence, " + ("with the stop" if stopped else "without it")
    note = (
        "The sample is made of probabilities: only the stop keeps the gradient out of it."
        if stopped
        else "The gradient enters the making of the sample."
    )
    return differentiate(title, note, loss, example, v=np.zeros((5, 4), np.float32))


def _table(machines: dict[str, Machine], x: Numbers, test: Numbers, score: Any) -> Table:
    rows = [
        [name, f"{float(score(x, m)):.2f}", f"{float(score(test, m)):.2f}", str(EPOCHS)]
        for name, m in machines.items()
    ]
    title = (
        f"{HIDDEN} hidden units, batches of {BATCH}, rate {RATE}: "
        "constant for scikit-learn, the average of a falling one for ours"
    )
    return Table(title, ["trained by", "pseudo-likelihood, training digits", "test digits", "epochs"], rows)


def _picture(test: Numbers, machines: dict[str, Machine], seed: int, engine: str, count: int = 12) -> Picture:
    step: Callable[..., Any] = sg.function(lambda v, rbm, key: gibbs(v, rbm, key, 1), engine=engine)
    reconstruct: Callable[..., Any] = sg.function(lambda v, rbm: mean_field(v, rbm, 1), engine=engine)
    rows = {"test digits": test[:count], "reconstructed": reconstruct(test[:count], machines["PCD"])}
    for name, rbm in machines.items():
        v = np.random.default_rng(seed).integers(0, 2, (count, test.shape[1])).astype(np.float32)
        for i in range(1000):
            v = step(v, rbm, np.array([seed, i], np.uint32))
        rows[f"samples, {name}"] = reconstruct(v, rbm)
    strongest = np.argsort(-np.abs(machines["PCD"]["W"]).sum(axis=0))[:count]
    rows["weights of units"] = machines["PCD"]["W"].T[strongest]
    caption = (
        "Above: test digits and what one step there and back makes of them. "
        "Middle: 1,000 Gibbs steps from noise. Below: what single hidden units look for."
    )
    return plots.images(caption, rows, symmetric=["weights of units"])
