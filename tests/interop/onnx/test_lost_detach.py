"""Exporters drop ``detach()``: with the module at hand, a training graph that would train more is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stopgrad as sg

pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

import stopgrad.onnx as sgo  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Of the exporter.


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.enc, self.head = torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)
        if how == "frozen":
            self.enc.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        inner = torch.tanh(self.enc(x))
        if self.how == "partly":
            return self.head(inner.detach()) + inner.sum(1, keepdim=True)
        return self.head(inner.detach() if self.how == "detached" else inner)


X = torch.linspace(-1, 1, 6).reshape(3, 2)


def exported(how: str, folder: Path, ours: bool = False) -> tuple[Any, str]:
    torch.manual_seed(0)
    module, path = Net(how), str(folder / "m.onnx")
    if ours:
        sgo.export(module, X, path)
    else:
        torch.onnx.export(module.eval(), (X,), path, dynamo=True, verbose=False)
        module.train()
    return module, path


@pytest.mark.slow
@pytest.mark.parametrize("how", ["detached", "partly", "frozen"])
def test_what_the_module_does_not_train_is_refused_by_name(how: str, tmp_path: Path) -> None:
    module, path = exported(how, tmp_path)
    said = {"partly": "another norm", "frozen": "no gradient of 'enc.weight'", "detached": "test_lost_detach"}
    with pytest.raises(sg.GradientError, match=said[how]) as caught:
        sgo.training(path, loss="mse", folder=None, module=module, inputs=X)
    assert "enc." in str(caught.value)
    assert "head." not in str(caught.value)
    if how != "partly":
        sgo.training(path, loss="mse", folder=None, module=module, inputs=X, freeze="enc.*")


@pytest.mark.slow
@pytest.mark.parametrize(("how", "ours"), [("plain", False), ("plain", True), ("detached", True)])
def test_where_both_have_the_same_gradient_nothing_is_said(how: str, ours: bool, tmp_path: Path) -> None:
    module, path = exported(how, tmp_path, ours)
    made = sgo.training(path, loss="mse", folder=None, module=module, inputs=(X,))
    trained = {name for name, one in made.manifest["state"].items() if one["kind"] == "parameter"}
    assert {"head.weight", "head.bias"} <= trained
    assert all(x.grad is None for x in module.parameters()), "the module is left as it was"
    assert module.training


@pytest.mark.slow
def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    module, path = exported("plain", tmp_path)
    for wrong, inputs, said in (
        (3, X, "torch.nn.Module"),
        (module, None, "inputs="),
        (module, (X, X), "takes"),
    ):
        with pytest.raises(sg.ArgumentError, match=said):
            sgo.training(path, loss="mse", folder=None, module=wrong, inputs=inputs)


@pytest.mark.slow
def test_torch_is_not_imported_without_a_module() -> None:
    code = "import sys, stopgrad.onnx; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
