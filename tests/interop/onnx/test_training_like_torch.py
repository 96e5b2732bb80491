"""Fifty steps of training graphs, on a stock ONNX Runtime, are those that PyTorch makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_training_tools import Twin, batches, mlp, node as onnx_node, normal, write
from torch.nn import functional

import stopgrad.onnx as sgo

STEPS, RATE, WARMUP = 50, 0.02, 10


class Lion(torch.optim.Optimizer):
    """As in algorithm 2 of Chen et al. 2023, "Symbolic discovery of optimization algorithms"."""

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            (beta1, beta2), rate = group["betas"], group["lr"]
            for w in group["params"]:
                m = self.state[w].setdefault("m", torch.zeros_like(w))
                way = (beta1 * m + (1 - beta1) * w.grad).sign()
                w.sub_(rate * (way + group["weight_decay"] * w))
                m.mul_(beta2).add_(w.grad, alpha=1 - beta2)


def cosine(step: int) -> float:
    """The factor of ``transformers.get_cosine_schedule_with_warmup(optimizer, WARMUP, STEPS)``."""
    if step < WARMUP:
        return step / WARMUP
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))


AdamW = lambda w: torch.optim.AdamW(w, lr=RATE)
ADAMW, COSINE = {"optimizer": "adamw"}, f"cosine:{RATE},{STEPS - WARMUP},warmup={WARMUP}"

CONFIGURATIONS: dict[str, tuple[dict[str, Any], Callable[[Any], Any], dict[str, Any]]] = {
    "SGD, Nesterov, weight decay": (
        {"optimizer": "sgd:momentum=0.9,nesterov=true,weight_decay=0.01"},
        lambda w: torch.optim.SGD(w, RATE, 0.9, nesterov=True, weight_decay=0.01),
        {},
    ),
    "Adam, AMSGrad": (
        {"optimizer": "adam:amsgrad=true"},
        lambda w: torch.optim.Adam(w, RATE, amsgrad=True),
        {},
    ),
    "AdamW": (ADAMW, AdamW, {}),
    "AdamW, clipped, accumulated": (ADAMW | {"clip": 0.5, "accumulate": 2}, AdamW, {"clip": 0.5, "every": 2}),
    "AdamW, cosine with a warm-up from 0": (ADAMW | {"schedule": COSINE}, AdamW, {"schedule": cosine}),
    "RMSprop, centred, momentum": (
        {"optimizer": "rmsprop:centered=true,momentum=0.5"},
        lambda w: torch.optim.RMSprop(w, RATE, centered=True, momentum=0.5),
        {},
    ),
    "Adagrad, decaying": (
        {"optimizer": "adagrad:lr_decay=0.1"},
        lambda w: torch.optim.Adagrad(w, RATE, lr_decay=0.1),
        {},
    ),
    "Adafactor": ({"optimizer": "adafactor"}, lambda w: torch.optim.Adafactor(w, RATE), {}),
    "Lion": (
        {"optimizer": "lion:weight_decay=0.1"},
        lambda w: Lion(w, RATE, (0.9, 0.99), 0.1),
        {},
    ),
    "AdamW in float16, scaled": (ADAMW | {"precision": "float16"}, AdamW, {"dtype": torch.float16}),
    "AdamW in bfloat16": (ADAMW | {"precision": "bfloat16"}, AdamW, {"dtype": torch.bfloat16}),
}
"""By name: how ours is made, PyTorch's optimiser, and what is done besides in PyTorch's loop."""

QUICK = ("AdamW, cosine with a warm-up from 0", "AdamW in float16, scaled")


def theirs(
    model: Twin,
    optimizer: Any,
    every: int = 1,
    clip: float | None = None,
    schedule: Any = None,
    dtype: Any = None,
) -> Iterator[float]:
    """The losses of a loop as PyTorch's documentation has it."""
    rates = None if schedule is None else torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype is torch.float16)
    for i, (x, labels) in enumerate(batches(STEPS)):
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = functional.cross_entropy(model(torch.tensor(x)), torch.tensor(labels))
        scaler.scale(loss / every).backward()
        if i % every == every - 1:
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(list(model.weights.values()), clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        if rates is not None:
            rates.step()
        yield loss.item()


def differences(name: str, folder: Path) -> tuple[float, float]:
    """The greatest difference of a loss in fifty steps, and of a weight after them."""
    options, make, more = CONFIGURATIONS[name]
    model = Twin(mlp(folder / "mlp.onnx"))
    made = sgo.training(folder / "mlp.onnx", loss="cross-entropy", folder=folder / "out", **options)
    trainer = sgo.Trainer(made.folder, threads=1)
    expected = list(theirs(model, make(list(model.weights.values())), **more))
    rate = {} if "schedule" in options else {"learning_rate": RATE}
    found = [trainer.step(x=x, labels=labels, **rate) for x, labels in batches(STEPS)]
    ends = {n: np.abs(trainer.state[n] - w.detach().numpy()).max() for n, w in model.weights.items()}
    return max(abs(a - b) for a, b in zip(found, expected, strict=True)), float(max(ends.values()))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGURATIONS]
)
def test_fifty_steps_are_pytorchs(name: str, tmp_path: Path) -> None:
    losses, weights = differences(name, tmp_path)
    assert losses < 1e-5
    assert weights < 1e-5


def test_a_step_that_overflows_is_left_out_and_the_scale_halved(tmp_path: Path) -> None:
    mlp(tmp_path / "mlp.onnx")
    options = {"precision": "float16", "loss_scale": 2.0**20}
    made = sgo.training(tmp_path / "mlp.onnx", loss="cross-entropy", folder=tmp_path / "out", **options)
    trainer = sgo.Trainer(made.folder, threads=1)
    ((x, labels),) = batches(1)
    scales = []
    for _ in range(8):
        before = trainer.state
        assert np.isfinite(trainer.step(x=x, labels=labels))
        after = trainer.state
        was_made = after["adamw/step"] == before["adamw/step"] + 1
        assert was_made == (after["adamw/loss_scale"] == before["adamw/loss_scale"])
        assert was_made == any((after[n] != before[n]).any() for n in ("enc.weight", "adamw/m/head.bias"))
        scales.append(float(after["adamw/loss_scale"]))
    assert scales[0] == 2.0**19
    assert scales[-1] == scales[-2]
    assert made.manifest["precision"] == "float16"
    for model in ("eval", "predict"):
        kinds = {t.elem_type for t in types(made.folder / f"{model}.onnx")}
        assert 10 not in kinds, "what is evaluated and exported is the model as it was"


def types(path: Path) -> list[Any]:
    """The types of all values of a model."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    return [x.type.tensor_type for x in [*graph.value_info, *graph.output]]


@pytest.mark.parametrize("scopes", ["names", "metadata"])
@pytest.mark.parametrize("asked", ["head.weight", "head", "tokens.weight"])
def test_a_tied_weight_is_found_by_either_of_its_names(asked: str, scopes: str, tmp_path: Path) -> None:
    nodes = [
        onnx_node("MatMul", ["x", "tokens.weight"], "h", "/tokens/MatMul"),
        onnx_node("Mul", ["h", "scale"], "s", "/Mul"),
        onnx_node("Transpose", ["tokens.weight"], "t", "/head/Transpose"),
        onnx_node("MatMul", ["s", "t"], "y", "/head/MatMul"),
    ]
    if scopes == "metadata":
        for i, node in enumerate(nodes):
            module = node.name.split("/")[1:-1]
            node.name = f"node_{i}"
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(["", *module, node.name]))
    weights = {"tokens.weight": normal(5, 4), "scale": normal(4)}
    write(tmp_path / "tied.onnx", nodes, {"x": ["batch", 5]}, {"y": ["batch", 5]}, weights)
    made = sgo.training(tmp_path / "tied.onnx", loss="mse", freeze=asked, folder=tmp_path / "out")
    assert made.manifest["frozen"] == ["tokens.weight"]
    assert [n for n, one in made.manifest["state"].items() if one["kind"] == "parameter"] == ["scale"]
