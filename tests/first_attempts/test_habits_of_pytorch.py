"""Programs as PyTorch's tutorials have them, with ``sg``: they run, or the error names the cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

X = np.linspace(-1, 1, 16, dtype=np.float32)[:, None]


def test_a_training_loop_with_an_optimizer() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x, y = (
            sg.placeholder(sg.float32, [None, 1], name="x"),
            sg.placeholder(sg.float32, [None, 1], name="y"),
        )
        w = sg.parameter(sg.random_normal(sg.random_key(0), (1, 1)), name="w")
        b = sg.parameter(sg.zeros([1]), name="b")
        loss = sg.reduce_mean(sg.losses.mean_squared_error(y, x @ w + b))
        step = sg.optimizers.adam(loss, [w, b], learning_rate=0.1)
    with sg.Session(graph) as session:
        first = session.run(loss, {x: X, y: 3 * X + 1})
        for _ in range(100):
            session.run(step, {x: X, y: 3 * X + 1})
        assert session.run(loss, {x: X, y: 3 * X + 1}) < first / 50


def test_no_grad_and_detach() -> None:
    def f(x: Any) -> Any:
        with sg.no_gradient():
            target = x * 3.0
        return (x - target) ** 2.0 + sg.stop_gradient(x) * x

    assert sg.grad(f)(2.0) == 2 * (2.0 - 6.0) + 2.0


def test_a_layer_is_a_function() -> None:
    params = {"weight": np.ones((3, 2), np.float32), "bias": np.zeros(2, np.float32)}
    logits = sg.function(lambda p, x: sg.nn.relu(x @ p["weight"] + p["bias"]))(
        params, np.ones((4, 3), np.float32)
    )
    np.testing.assert_array_equal(logits, np.full((4, 2), 3))


def test_cross_entropy_and_accuracy() -> None:
    logits, labels = np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([0, 1])
    loss = sg.reduce_mean(sg.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    rows = np.log(np.exp(logits).sum(-1)) - logits[[0, 1], labels]
    np.testing.assert_allclose(loss, rows.mean())
    assert sg.reduce_mean(sg.cast(sg.equal(sg.argmax(logits, -1), labels), sg.float32)) == 1


def test_dropout_with_a_key() -> None:
    found = sg.dropout(np.ones((100, 10)), 0.5, sg.random.key(0))
    assert set(np.unique(found)) == {0.0, 2.0}


def test_results_are_arrays_that_can_be_changed_and_printed() -> None:
    y = sg.function(lambda x: x * 2.0)(np.ones(3))
    y[0] = 7.0
    y += 1
    assert f"{y[0]:.1f}" == "8.0"
    assert y.max().item() == 8.0
    assert float(sg.reduce_sum(y)) == 14.0


def test_saving_and_loading_a_state_dict(tmp_path: Any) -> None:
    state = {"encoder.weight": np.ones((2, 2)), "encoder.bias": np.zeros(2)}
    sg.save(state, tmp_path / "model.pt")
    assert sg.load(tmp_path / "model.pt").keys() == state.keys()


def test_gradients_are_checked() -> None:
    report = sg.check_gradients(lambda x: sg.reduce_sum(sg.tanh(x) ** 2.0), np.linspace(-1, 1, 5))
    assert "passed" in str(report)


def test_the_gradient_inside_is_seen_by_a_probe() -> None:
    with sg.Graph().as_default() as graph:
        w = sg.parameter(np.array([1.0, 2.0]), name="w")
        hidden = sg.probe(w * 3.0, "hidden")
        sg.gradients(sg.reduce_sum(hidden * hidden), [w])
    with sg.Session(graph, engine="numpy") as session:
        np.testing.assert_array_equal(session.run("hidden"), [6.0, 12.0])


def output() -> Any:
    return sg.placeholder(sg.float32, [2, 3], name="x")


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "tensor": (lambda: sg.tensor([1.0], requires_grad=True), "it is sg.constant"),
    "nn.Linear": (lambda: sg.nn.Linear(2, 3), r"write sg.matmul\(x, w\) \+ b"),
    "nn.Module": (lambda: sg.nn.Module, "a model is a function"),
    "nn.functional": (lambda: sg.nn.functional.relu, "sg.nn.relu"),
    "LSTM": (lambda: sg.nn.LSTM(3, 4), "it is sg.lstm"),
    "BatchNorm2d": (lambda: sg.nn.BatchNorm2d(3), "it is sg.batch_normalization"),
    "Embedding": (lambda: sg.nn.Embedding(10, 3), r"sg.gather\(table, ids\)"),
    "embedding": (lambda: sg.embedding, "it is sg.embedding_lookup"),
    "huber_loss": (lambda: sg.huber_loss, "it is sg.huber"),
    "cross_entropy": (lambda: sg.cross_entropy, "it is sg.sparse_softmax_cross_entropy_with_logits"),
    "optim": (lambda: sg.optim.Adam, "sg.optimizers"),
    "manual_seed": (lambda: sg.manual_seed(0), "it is sg.random_key"),
    "randn": (lambda: sg.randn(3), "it is sg.random_normal"),
    "no_grad": (lambda: sg.no_grad(), "it is sg.no_gradient"),
    "cat": (lambda: sg.cat([np.ones(1)] * 2), "it is sg.concat"),
    "backward": (lambda: output().backward(), r"sg.gradients\(loss, \[w\]\)"),
    "detach": (lambda: output().detach(), r"sg.stop_gradient\(x\)"),
    "requires_grad_": (lambda: output().requires_grad_(), "sg.gradients"),
    "view": (lambda: output().view(-1), r"sg.reshape\(x, shape\)"),
    "numpy": (lambda: output().numpy(), "sg.Session"),
    "item": (lambda: output().item(), "sg.print shows it"),
    "float": (lambda: float(output()), "sg.print shows it"),
    "in place": (lambda: output().add_(1.0), r"write x \+ y"),
    "cuda": (lambda: output().cuda(), "engine="),
    "a mask that chooses": (lambda: output()[output() > 0], "sg.where|sg.boolean_mask"),
    "state_dict": (lambda: sg.state_dict, "sg.save"),
    "DataLoader": (lambda: sg.DataLoader, "sg.data.batches"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_work_names_the_cure(name: str) -> None:
    wrong, says = WRONG[name]
    with sg.Graph().as_default(), pytest.raises((sg.StopgradError, AttributeError), match=says):
        wrong()
