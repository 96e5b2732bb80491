"""What the recipes claim, in quick forms: fewer steps, the same thresholds."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from all_engines import each_engine

import stopgrad as sg
from stopgrad.tools.cli.tour import WORKLOADS
from stopgrad.tools.recipes import adversarial, boltzmann, em, softmax, targets, training
from stopgrad.tools.recipes.result import Check, LossGraph, Result, differentiate
from stopgrad.tools.tour import graph_pictures


def status(graph: LossGraph) -> set[str]:
    return {found.status for found in graph.flow.values()}


# ------------------------------------------------------------------------------------------- softmax


@pytest.mark.parametrize("case", softmax.CASES)
def test_softmax_forms_on_ties_and_large_logits(case: str) -> None:
    x = np.array([softmax.CASES[case]], np.float32)
    value, gradient = softmax.exact(x, softmax.WEIGHTS)
    naive = sg.function(softmax.naive_softmax, engine="numpy")(x)
    assert np.isfinite(naive).all() == (not case.startswith("1e4"))
    shifted, stopped = softmax.shifted_softmax(x), softmax.softmax(x)
    np.testing.assert_array_equal(shifted, stopped)
    np.testing.assert_allclose(stopped, value, atol=1e-6)
    found = sg.grad(lambda x: softmax.weighted(softmax.softmax, x, softmax.WEIGHTS))(x)
    np.testing.assert_allclose(found, gradient, atol=1e-6)


def test_softmax_without_the_stop_leaves_rounding_on_the_largest_logits_only() -> None:
    rng = np.random.default_rng(3)
    x = softmax._random_logits(rng)
    weights = rng.normal(size=x.shape).astype(np.float32)
    without, with_stop = (
        sg.function(sg.grad(lambda x, form=form: softmax.weighted(form, x, weights)), engine="numpy")(x)
        for form in (softmax.shifted_softmax, softmax.softmax)
    )
    residue = np.abs(without - with_stop)
    largest = x == x.max(axis=-1, keepdims=True)
    assert 0 < residue.max() <= 1e-5
    assert residue[~largest].max() == 0
    assert (residue[largest.sum(axis=-1) > 1] > 0).any()


@pytest.mark.slow
@each_engine
def test_softmax_passes_its_checks_on_each_engine(engine: str) -> None:
    # On xla the stop would make no difference to the numbers, if the engine's own form of softmax were taken.
    assert [str(check) for check in softmax.run(0, engine).checks if not check.passed] == []


def test_softmax_stop_saves_every_operation_of_the_maximum() -> None:
    shifted, stopped = softmax._graph(softmax.SHIFTED), softmax._graph(softmax.STOPPED)
    assert len(stopped.generated) < len(shifted.generated)
    assert any(op.origin.type == "Max" for op in shifted.generated)
    assert not any(op.origin.type in ("Max", "StopGradient") for op in stopped.generated)
    assert status(shifted) == {"flows"}
    assert status(stopped) == {"partly stopped"}


# ------------------------------------------------------------------------------------------------ EM


@pytest.fixture(scope="module")
def iris() -> np.ndarray:
    return np.asarray(pytest.importorskip("sklearn.datasets").load_iris().data)


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
def test_m_step_by_gradients_is_the_closed_form(iris: np.ndarray, full: bool) -> None:
    assert em.m_step_error(iris, em.start(iris, 3, full, 0), full) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
def test_em_climbs_to_the_likelihood_of_scikit_learn(iris: np.ndarray, full: bool) -> None:
    first = em.start(iris, 3, full, 0)
    _, trace, _ = em.fit(iris, first, 15)
    assert np.diff(trace).min() >= -1e-12
    assert trace[-1] >= em.sklearn_score(iris, first, full, 15) - 1e-3


@pytest.mark.slow
def test_em_objective_has_the_gradient_of_the_likelihood_only_with_the_stop(iris: np.ndarray) -> None:
    with_stop, without = em.fisher(iris, em.start(iris, 3, True, 0))
    assert with_stop <= 1e-10
    assert without >= 0.1


@pytest.mark.slow
def test_em_density_agrees_with_scipy(iris: np.ndarray) -> None:
    from scipy.stats import multivariate_normal

    mixture = em.start(iris, 3, True, 0)
    weights, means, covariances = em.weights_and_moments(mixture)
    expected = [
        np.log(w) + multivariate_normal(m, c).logpdf(iris)
        for w, m, c in zip(weights, means, covariances, strict=True)
    ]
    np.testing.assert_allclose(em.log_joint(iris, mixture), np.transpose(expected), rtol=1e-9)


def test_nothing_is_generated_for_the_e_step() -> None:
    graph = em._graph(em.em_objective, "", "")
    hidden = set(graph.loss.graph.subgraph_to(graph.stops()))
    assert any(op.type == "Softmax" for op in hidden)
    parameters = set(graph.parameters)
    assert not any(op.origin in hidden for op in graph.generated if op.origin.outputs[0] not in parameters)


# ------------------------------------------------------------------------------------------- boltzmann


@pytest.fixture(scope="module")
def machine() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "W": rng.normal(size=(64, 20)).astype(np.float32),
        "a": rng.normal(size=64).astype(np.float32),
        "b": rng.normal(size=20).astype(np.float32),
    }


@pytest.mark.parametrize("k", [1, 3])
def test_gradient_of_free_energies_is_the_classical_update(machine: dict[str, Any], k: int) -> None:
    x = np.random.default_rng(2).integers(0, 2, (200, 64)).astype(np.float32)
    assert boltzmann.update_error(x, machine, engine="numpy", k=k) <= 1e-5


def test_free_energy_sums_out_the_hidden_units() -> None:
    rng = np.random.default_rng(0)
    rbm = {"W": rng.normal(size=(4, 3)), "a": rng.normal(size=4), "b": rng.normal(size=3)}
    v = rng.integers(0, 2, (5, 4)).astype(np.float64)
    hidden = np.array([[i >> j & 1 for j in range(3)] for i in range(8)], np.float64)
    energy = -(v @ rbm["a"])[:, None] - hidden @ rbm["b"] - v @ rbm["W"] @ hidden.T
    np.testing.assert_allclose(
        boltzmann.free_energy(v, rbm), -np.log(np.exp(-energy).sum(axis=1)), rtol=1e-12
    )


def test_mean_field_sample_is_cut_off_by_the_stop_alone() -> None:
    with_stop, without = boltzmann.mean_field_graph(True), boltzmann.mean_field_graph(False)
    assert with_stop.construction
    assert not with_stop.passing()
    assert without.passing()
    assert status(with_stop) == {"partly stopped"}
    assert [op.type for op in with_stop.stops()] == ["StopGradient"]


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True], ids=["CD-1", "PCD"])
def test_training_beats_scikit_learn_after_as_many_epochs(
    monkeypatch: pytest.MonkeyPatch, persistent: bool
) -> None:
    monkeypatch.setattr(boltzmann, "EPOCHS", 2)
    x, test = boltzmann.load(0)
    trainer, rng = boltzmann.Trainer(64, persistent, 0, "auto"), np.random.default_rng(0)
    for epoch in range(2):
        trainer.epoch(x, epoch, rng)
    peer = boltzmann.train_peer(x, 0, 2)[-1]
    assert boltzmann.pseudo_likelihood(test, trainer.values()) >= boltzmann.pseudo_likelihood(test, peer)


# ----------------------------------------------------------------------------------------- adversarial


@pytest.mark.parametrize("kind", ["FGSM", "PGD", "VAT"])
def test_gradient_never_enters_the_making_of_an_example(kind: str) -> None:
    graph = adversarial.graph(kind, True)
    assert len(graph.construction) > 10
    assert not graph.passing()
    gate = graph.stops()[-1]
    reason = [cut for found in graph.flow.values() for cut in found.cuts if cut.operation is gate]
    assert len(reason) == len(graph.parameters)
    assert all(cut.status == "stopped" for cut in reason)


def test_virtual_adversarial_gradient_enters_it_without_the_stop() -> None:
    graph = adversarial.graph("VAT", False)
    assert graph.passing()


def test_attacks_stay_in_their_bounds_and_raise_the_loss() -> None:
    rng = np.random.default_rng(4)
    x = rng.uniform(size=(50, 64)).astype(np.float32)
    labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, 50)]
    net, key = adversarial.initial(np.random.default_rng(0)), np.array([1, 2], np.uint32)
    before = adversarial.cross_entropy(net, x, labels)
    for attacked in (adversarial.fgsm(net, x, labels), adversarial.pgd(net, x, labels, key)):
        assert np.abs(attacked - x).max() <= adversarial.EPSILON + 1e-6
        assert attacked.min() >= 0
        assert attacked.max() <= 1
        assert adversarial.cross_entropy(net, attacked, labels) > before
    r = adversarial.virtual_perturbation(net, x, sg.softmax(adversarial.logits(net, x)), key, 0.7)
    np.testing.assert_allclose(np.linalg.norm(r, axis=-1), 0.7, rtol=1e-4)


@pytest.mark.slow
def test_training_on_attacked_digits_withstands_the_attack() -> None:
    x, labels, test, test_labels = adversarial.load(0)
    judge = adversarial.Judge(test, test_labels, 0, "auto")
    robust = {}
    for name in ("plain", "FGSM"):

        def loss(net: Any, x: Any, y: Any, key: Any, name: str = name) -> Any:
            return adversarial.adversarial_loss(net, x, y, key, adversarial.TRAININGS[name])

        net = adversarial.train(adversarial.training_step(loss, "auto"), x, labels, 0, epochs=15)
        assert judge.accuracy(net, test) >= 0.93
        robust[name] = judge.accuracy(net, judge.attacked(net, "PGD, 10 steps"))
    assert robust["FGSM"] >= robust["plain"] + 0.2


# --------------------------------------------------------------------------------------------- targets


def test_the_distance_of_simsiam_is_least_where_directions_agree() -> None:
    x = np.array([[3.0, 4.0], [0.0, 2.0]])
    assert targets.distance(x, 5.0 * x) == pytest.approx(-1.0)
    assert targets.distance(x, -x) == pytest.approx(1.0)
    assert targets.distance(x, x[:, ::-1] * [1.0, -1.0]) == pytest.approx(0.0)


@pytest.mark.slow
def test_simsiam_collapses_without_the_stop() -> None:
    x, _, test, _ = targets.load(0)
    spreads = {}
    for name, loss in targets.LOSSES.items():
        net = targets.train(loss, x, 0, "auto", lambda epoch, net, value: None, epochs=8)
        spreads[name] = targets.spread(np.asarray(targets.encode(net, test)))
    assert spreads["with the stop"] >= 0.5
    assert spreads["without"] <= 0.35


def test_temporal_differences_on_the_a_split() -> None:
    np.testing.assert_allclose(
        targets.a_split(targets.td_loss, "numpy")[-1], list(targets.TRUE_VALUES.values()), atol=1e-3
    )
    np.testing.assert_allclose(
        targets.a_split(targets.td_loss_without_stop, "numpy")[-1], [0.5, 0.75, 0.25], atol=1e-3
    )


def test_each_target_is_stopped() -> None:
    with_stop, without = targets.graph(True), targets.graph(False)
    assert status(with_stop) == {"partly stopped"}
    assert status(without) == {"flows"}
    assert len(with_stop.generated) < len(without.generated)
    assert len(with_stop.stops()) == 2


# -------------------------------------------------------------------------------------------- training


def test_the_rate_falls_to_zero_and_matrices_shrink_without_a_gradient() -> None:
    net = {"W": np.full((2, 3), 4.0, np.float32), "b": np.full(3, 4.0, np.float32)}
    still = {name: np.zeros_like(value) for name, value in net.items()}
    rates = [training.cosine(0.1, done) for done in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert rates[0] == np.float32(0.1)
    assert rates[-1] == 0
    assert all(earlier > later for earlier, later in pairwise(rates))
    shrunk, _ = training.adam(net, still, training.initial_moments(net), 0.1, weight_decay=2.0)
    np.testing.assert_allclose(shrunk["W"], 4.0 * (1.0 - 0.1 * 2.0))
    np.testing.assert_array_equal(shrunk["b"], net["b"])


# ------------------------------------------------------------------------------------- all of the tour


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("recipe", WORKLOADS.values(), ids=WORKLOADS)
def test_every_check_of_the_tour_holds_whatever_the_seed(recipe: ModuleType, seed: int) -> None:
    failed = [str(check) for check in recipe.run(seed).checks if not check.passed]
    assert not failed


# ----------------------------------------------------------------------------------- results and graphs


def test_a_failed_check_fails_the_result() -> None:
    good, bad = Check("good", 1.0, "≤", 2.0), Check("bad", float("nan"), "≥", 0.0)
    assert Result("r", "", "", [good]).passed
    assert not Result("r", "", "", [good, bad]).passed


def test_listing_says_per_line_what_was_generated_and_where_it_is_stopped() -> None:
    lines = graph_pictures.listing(softmax._graph(softmax.STOPPED))
    by_operation = {line.operation: line for line in lines}
    assert by_operation["stop_gradient"].kind == "stop"
    assert by_operation["Max"].kind == "hidden"
    assert by_operation["Exp"].generated == "AddV2, Mul"
    assert "softmax.py:" in by_operation["Exp"].place
    assert by_operation["Sub"].generated == "handed on"


@pytest.mark.slow
def test_picture_puts_every_gradient_operation_beside_its_forward_operation() -> None:
    graph = differentiate(
        "product",
        "",
        lambda p: sg.reduce_sum(sg.sin(p["x"]) * sg.stop_gradient(sg.exp(p["x"]))),  # two beside each other
        {"x": np.ones(3)},
    )
    forward = [graph_pictures.Box(op, "", op.type) for op in graph.forward]
    generated = [graph_pictures.Box(op, "gradient", op.type) for op in graph.generated if op.type != "Const"]
    graph_pictures._place_forward(forward)
    graph_pictures._place_generated(generated, forward, 500.0)
    rows = {box.op: box.y for box in forward}
    assert generated
    assert all(box.y == rows[box.op.origin] for box in generated)
    ordered = [sorted((b for b in forward if b.y == row), key=lambda b: b.x) for row in set(rows.values())]
    neighbours = [pair for boxes in ordered for pair in pairwise(boxes)]
    assert neighbours
    assert all(left.x + left.width / 2 <= right.x - right.width / 2 for left, right in neighbours)
    svg = graph_pictures.to_svg(graph)
    assert svg.count('class="op stop"') == 1
    assert 'class="op hidden"' in svg
