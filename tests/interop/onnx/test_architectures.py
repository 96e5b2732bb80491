"""Twenty-six architectures, as PyTorch's two exporters and ``sgo.export`` write them, beside autograd.

The parameters are noise, so that no two numbers of a module are equal: exporters merge nothing, and a number
of the file is found in the module by its value, wherever an exporter has moved it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from onnx_architectures import ARCHITECTURES  # noqa: E402

import stopgrad as sg  # noqa: E402
import stopgrad.onnx as sgo  # noqa: E402

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore"),
]  # What PyTorch warns of is PyTorch's.

NO_EXPORT = {
    *(("dynamo", name) for name in ("swin", "t5_encoder")),
    *(("script", name) for name in ("gpt2", "llama", "qwen2")),
}
"""What PyTorch's exporters refuse."""


NORMED = {"normalised", "vgg", "resnet18", "mobilenet_v3", "shufflenet_v2"}
"""Those whose norms the exporters fold into the convolutions before them."""
FOLDED = {
    ("dynamo", "weight_normalised"): "the matrix of a weight norm is computed",
    ("script", "causal"): "a buffer of one number, which the file does not tell from a parameter",
}
LEFT_OUT = {("script", "swin"): "tables of relative positions become masks, which are constants"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    logging.disable(logging.NOTSET)


def module_of(name: str) -> tuple[Any, tuple[Any, ...]]:
    """The module in inference mode, with noise in every parameter, and its inputs."""
    torch.manual_seed(0)
    module, inputs = ARCHITECTURES[name]()
    module.eval()
    with torch.no_grad():
        for x in module.parameters():
            x += 0.03 * torch.randn(x.shape)
    return module, inputs


def gradients_of(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, Any, dict[str, Any]]:
    """The output, the weights of a sum of it, and autograd's gradients of that sum."""
    y = module(*inputs)
    weights = torch.randn(y.shape)
    found = dict(module.named_parameters())
    made = torch.autograd.grad((y * weights).sum(), [*found.values()], allow_unused=True)
    pairs = zip(found.items(), made, strict=True)
    zeros = {name: torch.zeros_like(x) if dx is None else dx for (name, x), dx in pairs}
    return y.detach().numpy(), weights.numpy(), {name: dx.numpy() for name, dx in zeros.items()}


def ours(path: Path, inputs: tuple[Any, ...], weights: Any) -> tuple[Any, Any, dict[str, Any]]:
    model = sgo.load(path)
    given = [x.numpy() for x in inputs]
    values = {name: x for name, x in model.values().items() if x.dtype.kind == "f"}
    dys = sg.grad(lambda p: sg.reduce_sum(model.apply(p, *given) * weights))(values)
    return np.asarray(model(*given)), values, {name: np.asarray(dx) for name, dx in dys.items()}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_export_of_ours_has_the_parameters_of_the_module(name: str, tmp_path: Path) -> None:
    module, inputs = module_of(name)
    y, weights, wanted = gradients_of(module, inputs)
    sgo.export(module, inputs, tmp_path / "model.onnx")
    got, _, found = ours(tmp_path / "model.onnx", inputs, weights)
    np.testing.assert_allclose(got, y, rtol=1e-4, atol=1e-4 * np.abs(y).max())
    assert found.keys() == wanted.keys()
    for key, dx in wanted.items():
        np.testing.assert_allclose(found[key], dx, rtol=1e-3, atol=1e-4 * max(np.abs(dx).max(), 1e-3))


@pytest.mark.parametrize("way", ["dynamo", "script"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_trained_number_has_its_gradient(name: str, way: str, tmp_path: Path) -> None:
    module, inputs = module_of(name)
    y, weights, wanted = gradients_of(module, inputs)
    path = tmp_path / "model.onnx"
    options = {"dynamo": True, "external_data": False} if way == "dynamo" else {"dynamo": False}
    if (way, name) in NO_EXPORT:
        with pytest.raises(Exception, match=r"."):
            torch.onnx.export(module, inputs, path, verbose=False, **options)
        return
    torch.onnx.export(module, inputs, path, verbose=False, **options)
    got, values, found = ours(path, inputs, weights)
    np.testing.assert_allclose(got, y, rtol=1e-4, atol=1e-4 * np.abs(y).max())
    parameters = dict(module.named_parameters())
    numbers = np.concatenate([x.detach().numpy().ravel() for x in parameters.values()])
    numbers, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    expected = np.concatenate([dx.ravel() for dx in wanted.values()])[first]
    sums, seen = np.zeros(len(numbers)), np.zeros(len(numbers), bool)
    folded = 0
    for key, value in values.items():
        places = np.minimum(np.searchsorted(numbers, value.ravel()), len(numbers) - 1)
        if (numbers[places] == value.ravel()).all():
            np.add.at(sums, places, found[key].ravel())  # Of rows of tables exporters write copies.
            seen[places] = True
        else:
            folded += 1
    print(
        f"{name} {way}: {len(values)} tensors, {folded} folded; {seen.sum()} of {len(numbers)} numbers seen"
    )
    sure, scale = seen & (counts == 1), max(np.abs(expected).max(), 1e-3)
    np.testing.assert_allclose(sums[sure], expected[sure], rtol=1e-3, atol=1e-4 * scale)
    if not folded and (way, name) not in LEFT_OUT:
        assert not expected[~seen].any()
    assert bool(folded) == (name in NORMED or (way, name) in FOLDED)
