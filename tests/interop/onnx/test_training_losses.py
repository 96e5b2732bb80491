"""The losses of training graphs: each against PyTorch's, values and gradients, on a stock ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_training_tools import model_of, node, normal, scaled, write
from torch.nn import functional

import stopgrad as sg
import stopgrad.onnx as sgo

BATCH = 5


def classes(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(0, 4, shape)


def soft(*shape: int) -> np.ndarray[Any, Any]:
    made = np.random.default_rng(3).uniform(0.1, 1.0, shape)
    return (made / made.sum(-1, keepdims=True)).astype(np.float32)


def with_ignored(*shape: int) -> np.ndarray[Any, Any]:
    made = classes(*shape)
    made[::2] = -100
    return made


Case = tuple[str, list[int], Callable[[], np.ndarray[Any, Any]], Callable[[Any, Any], Any]]

CASES: list[Case] = [
    ("cross-entropy", [4], lambda: classes(BATCH), functional.cross_entropy),
    (
        "cross-entropy",
        [3, 4],
        lambda: classes(BATCH, 3),
        lambda x, y: functional.cross_entropy(x.transpose(1, 2), y),
    ),
    ("cross-entropy:axis=1", [4, 2, 3], lambda: classes(BATCH, 2, 3), functional.cross_entropy),
    ("cross-entropy:ignore=-100", [4], lambda: with_ignored(BATCH), functional.cross_entropy),
    (
        "cross-entropy:smoothing=0.1",
        [4],
        lambda: classes(BATCH),
        lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1),
    ),
    ("cross-entropy:soft", [4], lambda: soft(BATCH, 4), functional.cross_entropy),
    (
        "cross-entropy:labels=soft,smoothing=0.2",
        [4],
        lambda: soft(BATCH, 4),
        lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.2),
    ),
    ("binary", [3], lambda: soft(BATCH, 3), functional.binary_cross_entropy_with_logits),
    ("mse", [3], lambda: normal(BATCH, 3, seed=4), functional.mse_loss),
    ("mae", [3], lambda: normal(BATCH, 3, seed=4), functional.l1_loss),
    ("huber", [3], lambda: normal(BATCH, 3, seed=4), functional.huber_loss),
    ("huber:0.3", [3], lambda: normal(BATCH, 3, seed=4), lambda x, y: functional.huber_loss(x, y, delta=0.3)),
    (
        "cosine",
        [3],
        lambda: normal(BATCH, 3, seed=4),
        lambda x, y: (1 - functional.cosine_similarity(x, y)).mean(),
    ),
    ("contrastive", [3], lambda: normal(BATCH, 3, seed=4), lambda x, y: info_nce(x, y, 0.07)),
    (
        "contrastive:temperature=0.5,symmetric=false",
        [3],
        lambda: normal(BATCH, 3, seed=4),
        lambda x, y: info_nce(x, y, 0.5, False),
    ),
]


def info_nce(x: Any, y: Any, temperature: float, symmetric: bool = True) -> Any:
    near = functional.normalize(x) @ functional.normalize(y).T / temperature
    own = torch.arange(len(x))
    one = functional.cross_entropy(near, own)
    return (one + functional.cross_entropy(near.T, own)) / 2 if symmetric else one


@pytest.mark.parametrize(
    ("loss", "shape", "labels", "theirs"), CASES, ids=[case[0] + str(case[1]) for case in CASES]
)
def test_a_loss_and_its_gradient_are_pytorchs(
    loss: str, shape: list[int], labels: Any, theirs: Any, tmp_path: Path
) -> None:
    sgo.training(scaled(shape), loss=loss, optimizer="sgd", folder=tmp_path / "out")
    trainer = sgo.Trainer(tmp_path / "out", threads=1)
    x, y = normal(BATCH, *shape), labels()
    w = torch.tensor(trainer.state["w"], requires_grad=True)
    expected = theirs(torch.tensor(x) * w, torch.tensor(y))
    expected.backward()
    assert trainer.evaluate(x=x, labels=y)["loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert w.grad is not None
    found = trainer.gradients(x=x, labels=y)["w"]
    np.testing.assert_allclose(found, w.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_two_embeddings_of_one_model_are_contrasted(tmp_path: Path) -> None:
    graph = sg.Graph()
    with graph.as_default():
        a, b = (sg.placeholder(sg.float32, ["batch", 3], name=name) for name in "ab")
        w = sg.parameter(normal(3, 4), name="w")
        outputs = {"left": a @ w, "right": b @ w}
    model = model_of(graph, {"a": a, "b": b}, outputs, {"w": w})
    sgo.training(model, loss="contrastive:0.2", optimizer="sgd", folder=tmp_path / "out")
    trainer = sgo.Trainer(tmp_path / "out", threads=1)
    x, y = normal(6, 3), normal(6, 3, seed=5)
    v = torch.tensor(normal(3, 4))
    expected = info_nce(torch.tensor(x) @ v, torch.tensor(y) @ v, 0.2)
    assert trainer.evaluate(a=x, b=y)["loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_a_function_of_the_outputs_is_a_loss(tmp_path: Path) -> None:
    def weighted(outputs: Any) -> Any:
        target = sg.placeholder(sg.float32, ["batch", 3], name="target")
        weight = sg.placeholder(sg.float32, ["batch"], name="weight")
        return sg.reduce_mean(weight * sg.reduce_sum(sg.square(outputs["y"] - target), axis=1))

    made = sgo.training(scaled([3]), loss=weighted, optimizer="sgd", folder=tmp_path / "out")
    assert [x["name"] for x in made.manifest["graphs"]["eval"]["inputs"]] == ["x", "target", "weight", "w"]
    trainer = sgo.Trainer(tmp_path / "out", threads=1)
    x, y, k = normal(4, 3), normal(4, 3, seed=1), np.arange(4, dtype=np.float32)
    expected = np.mean(k * np.sum((x * trainer.state["w"] - y) ** 2, 1))
    assert trainer.evaluate(x=x, target=y, weight=k)["loss"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("inputs", [["y", "goal"], ["guess", "goal"]], ids=["by name", "in order"])
def test_an_onnx_model_is_a_loss(inputs: list[str], tmp_path: Path) -> None:
    nodes = [
        node("Sub", inputs, "difference"),
        node("Abs", ["difference"], "size"),
        node("Mul", ["size", "factor"], "weighted"),
        node("ReduceMean", ["weighted"], "loss", keepdims=0),
    ]
    sides = {name: ["n", 3] for name in inputs}
    write(tmp_path / "own.onnx", nodes, sides, {"loss": []}, {"factor": np.array([1, 2, 3], np.float32)})
    sgo.training(scaled([3]), loss=tmp_path / "own.onnx", optimizer="sgd", folder=tmp_path / "out")
    trainer = sgo.Trainer(tmp_path / "out", threads=1)
    x, y = normal(4, 3), normal(4, 3, seed=1)
    expected = np.mean(np.abs(x * trainer.state["w"] - y) * [1, 2, 3])
    assert trainer.evaluate(x=x, goal=y)["loss"] == pytest.approx(float(expected), rel=1e-5)
    assert list(trainer.gradients(x=x, goal=y)) == ["w"]  # What the loss itself holds is not trained.


# -------------------------------------------------------------------------------- what does not fit


def refused(loss: Any, tmp_path: Path, kind: type[Exception], model: Any = None, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        sgo.training(model or scaled([3]), loss=loss, folder=tmp_path / "out", **options)
    assert not list(tmp_path.glob("*out*")), "half a folder"
    assert isinstance(caught.value, sg.StopgradError)
    return caught.value.message


def test_a_loss_that_does_not_fit_the_output_names_both(tmp_path: Path) -> None:
    said = refused("cross-entropy", tmp_path, sg.DTypeError, scaled_integers())
    assert "cross-entropy" in said
    assert "'y' is int64[batch, 3]" in said
    said = refused("contrastive", tmp_path, sg.ShapeError, scaled([2, 3]))
    assert "'y' is float32[batch, 2, 3]" in said
    said = refused("cross-entropy:axis=3", tmp_path, sg.ShapeError)
    assert "axis 3" in said


def scaled_integers() -> Any:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.int64, ["batch", 3], name="x")
        w = sg.parameter(np.ones(3, np.float32), name="w")
        y = x + sg.cast(w, sg.int64)
    return model_of(graph, {"x": x}, {"y": y}, {"w": w})


def test_an_onnx_loss_that_does_not_fit_names_both(tmp_path: Path) -> None:
    nodes = [node("Sub", ["y", "goal"], "difference"), node("ReduceMean", ["difference"], "loss", keepdims=0)]
    write(tmp_path / "own.onnx", nodes, {"y": ["n", 7], "goal": ["n", 7]}, {"loss": []}, {})
    said = refused(tmp_path / "own.onnx", tmp_path, sg.ShapeError)
    assert "'y' is float32[batch, 7]" in said
    assert "float32[batch, 3]" in said
    write(tmp_path / "flat.onnx", nodes[:1], {"y": ["n", 3], "goal": ["n", 3]}, {"difference": ["n", 3]}, {})
    said = refused(tmp_path / "flat.onnx", tmp_path, sg.ShapeError)
    assert "one number" in said


def test_losses_and_options_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    assert "did you mean 'cross-entropy'?" in refused("crossentropy", tmp_path, sg.ArgumentError)
    assert "it has delta" in refused("huber:width=2", tmp_path, sg.ArgumentError)
    assert "above 0" in refused("huber:0", tmp_path, sg.ArgumentError)
    assert "there is no file" in refused(tmp_path / "none.onnx", tmp_path, sg.FileError)
    assert "must be one number" in refused(lambda outputs: outputs["y"], tmp_path, sg.ShapeError)
    assert "no output 'z'" in refused("mse", tmp_path, sg.ArgumentError, outputs=["z"])


def test_probabilities_in_the_place_of_logits_are_a_note(tmp_path: Path) -> None:
    made = sgo.training(
        scaled([3], act=lambda x: sg.softmax(x, -1)), loss="cross-entropy", folder=tmp_path / "out"
    )
    assert any("probabilities" in note and "logits" in note for note in made.notes)


def test_of_several_outputs_the_loss_is_told_which(tmp_path: Path) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, ["batch", 3], name="x")
        w = sg.parameter(np.ones(3, np.float32), name="w")
        outputs = {"logits": x * w, "hidden": x + w}
    model = model_of(graph, {"x": x}, outputs, {"w": w})
    assert "logits, hidden" in refused("mse", tmp_path, sg.ArgumentError, model)
    sgo.training(model, loss="mse", outputs="logits", folder=tmp_path / "out")
    found = sgo.Trainer(tmp_path / "out").evaluate(x=normal(2, 3), labels=normal(2, 3))
    assert set(found) == {"loss", "logits", "hidden"}
