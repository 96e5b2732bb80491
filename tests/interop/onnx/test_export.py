"""PyTorch modules written by ``sgo.export``: what is trained is what ``named_parameters`` has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
import stopgrad.onnx as sgo

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import onnxruntime
import torch
from torch import nn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # What torch.export warns of is its own.


class Model(nn.Module):
    """What makes files ambiguous: masks, equal weights, tied and frozen ones, single numbers, stops."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.first, self.second = nn.LayerNorm(6), nn.LayerNorm(6)
        self.mix = nn.Linear(6, 18)
        self.norm = nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight
        self.gain = nn.Parameter(torch.tensor(1.5))
        self.fixed = nn.Parameter(torch.randn(6), requires_grad=False)
        self.register_buffer("mask", torch.full((5, 5), -torch.inf).triu(1))
        self.register_buffer("scale", torch.tensor([0.4]))

    def forward(self, ids: Any) -> Any:
        h = self.norm(self.first(self.table(ids)) * self.fixed)
        q, k, v = self.mix(h).chunk(3, -1)
        weights = (q @ k.transpose(1, 2) * self.scale + self.mask).softmax(-1)
        return self.head(self.second(self.drop(weights.detach() @ v) + h)) * self.gain


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Any]:
    torch.manual_seed(0)
    module, ids = Model().train(), torch.randint(0, 11, (2, 5))
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    sgo.export(module, ids, path, dynamic_shapes=({0: torch.export.Dim("batch")},))
    return module, path, ids


def test_the_trained_tensors_are_the_named_parameters(made: tuple[Any, Path, Any]) -> None:
    module, path, _ = made
    assert module.training, "the module is as it was"
    tensors = sgo.training(path, loss="mse", folder=None).manifest["tensors"]
    expected = {name for name, p in module.named_parameters() if p.requires_grad}
    assert {name for name, one in tensors.items() if one["use"] == "trained"} == expected
    assert {name: tensors[name]["why"] for name in ("fixed", "mask", "scale", "norm.running_mean")} == {
        "fixed": "the file says that it is a frozen parameter",
        "mask": "the file says that it is a buffer",
        "scale": "the file says that it is a buffer",
        "norm.running_mean": "the file says that it is a buffer",
    }
    assert set(sgo.load(path).parameters) == expected


def test_values_and_gradients_are_those_of_the_module(made: tuple[Any, Path, Any]) -> None:
    module, path, ids = made
    module.eval()
    wanted = module(ids)
    factor = torch.randn(wanted.shape)
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad((wanted * factor).sum(), list(named.values()))
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: ids.numpy()})
    np.testing.assert_allclose(found, wanted.detach().numpy(), atol=1e-5)
    model = sgo.load(path)

    def loss(parameters: Any) -> Any:
        return sg.reduce_sum(model.apply(parameters, ids.numpy()) * factor.numpy())

    ours = sg.grad(loss)(model.values())
    for name, expected in zip(named, gradients, strict=True):
        np.testing.assert_allclose(ours[name], expected.numpy(), rtol=1e-3, atol=2e-5, err_msg=name)


def test_what_is_no_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sg.ArgumentError, match=r"takes a torch\.nn\.Module or an exported program, not int"):
        sgo.export(3, torch.ones(1), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
