"""Training graphs by stock onnxruntime-web, on WebAssembly and WebGPU: their numbers are NumPy's.

Batches are of 8: onnxruntime-web 1.30 computes convolutions of 6 and of 18 input channels wrongly on WebGPU,
and a filter's gradient is a convolution whose channels are the examples of the batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples_references import example
from page_tools import started
from web_packages import package

pytestmark = pytest.mark.slow

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import browser_steps as steps  # noqa: E402
from onnx_training_tools import mlp, normal  # noqa: E402

import stopgrad.onnx as sgo  # noqa: E402

COUNT = 4
RATE = {"learning_rate": np.array(0.01, np.float32)}
DENSE = {"x": normal(8, 4, seed=3), "labels": np.random.default_rng(3).integers(0, 3, 8)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[Any]:
    """A page with WebGPU; skipped, and said, where npm cannot be reached or there is no WebGPU."""
    fetched = package("TRAINING ON WEBGPU")
    with started(*steps.FLAGS) as browser, steps.page(browser, fetched, folder) as found:
        if found.evaluate("window.adapter()") == "none":
            pytest.skip("TRAINING ON WEBGPU IS NOT TESTED: this Chromium has no adapter")
        yield found


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The model of the digits, after few steps of training, and a batch."""
    prepare = example("onnx/digits/prepare")
    path = tmp_path_factory.mktemp("digits") / "model.onnx"
    prepare.pretrain(path, steps=20)
    (images, labels), _ = prepare.digits()
    return path, {"image": images[:8], "labels": labels[:8]}


def numpys(opened: Any, training: Path, batch: dict[str, Any], tolerance: float = 1e-5) -> None:
    """Both providers make the same steps as NumPy."""
    state = steps.first_state(training)
    losses, held = steps.in_numpy(training, batch, state, COUNT)
    assert losses[-1] < losses[0]
    for provider in ("wasm", "webgpu"):
        found, after = steps.in_browser(opened, provider, training, batch, state, COUNT)
        np.testing.assert_allclose(found, losses, rtol=tolerance, err_msg=provider)
        assert after.keys() == held.keys()
        for name, x in held.items():
            scale = np.abs(x).max() if x.size else 0
            np.testing.assert_allclose(
                after[name], x, rtol=tolerance, atol=tolerance * scale, err_msg=f"{provider}: {name}"
            )


@pytest.mark.nightly
def test_the_whole_network_of_the_digits_is_trained(opened: Any, folder: Path, digits: Any) -> None:
    model, batch = digits
    sgo.training(model, loss="cross-entropy", optimizer="sgd:momentum=0.9", folder=folder / "digits")
    numpys(opened, folder / "digits", {**batch, **RATE})


HOW: dict[str, dict[str, Any]] = {
    "adamw": {},
    "adam, clipped and accumulated": {"optimizer": "adam:amsgrad=true", "clip": 1.0, "accumulate": 2},
    "adamw by a schedule": {"schedule": "cosine:0.05,10,warmup=2"},
    "sgd": {"optimizer": "sgd:momentum=0.9,dampening=0.1"},
    "lion": {"optimizer": "lion"},
    "rmsprop": {"optimizer": "rmsprop"},
    "adagrad": {"optimizer": "adagrad:lr_decay=0.1"},
    "adafactor": {"optimizer": "adafactor"},
    "muon": {"optimizer": "muon"},
    "exponential": {"optimizer": "sgd", "schedule": "exponential:0.1,0.9"},
}
QUICK = ("adamw", "adam, clipped and accumulated")


@pytest.mark.parametrize(
    "how", [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in HOW]
)
def test_the_steps_of_optimisers_are_numpys(how: str, opened: Any, folder: Path) -> None:
    mlp(folder / "mlp.onnx")
    options = {"optimizer": "adamw", **HOW[how]}
    name = f"mlp{list(HOW).index(how)}"
    sgo.training(folder / "mlp.onnx", loss="cross-entropy", folder=folder / name, **options)
    numpys(opened, folder / name, DENSE if "schedule" in options else {**DENSE, **RATE}, 3e-5)


@pytest.mark.nightly
def test_adapters_of_the_transformer_are_trained(opened: Any, folder: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    prepare = example("onnx/transformer/prepare")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's exporter uses what PyTorch has deprecated.
        prepare.export(prepare.pretrained(20), folder / "transformer.onnx")
    lora = {"weights": prepare.ADAPTED, "rank": 4, "alpha": 8}
    sgo.training(
        folder / "transformer.onnx",
        loss="cross-entropy",
        optimizer="sgd:momentum=0.9",
        lora=lora,
        folder=folder / "transformer",
    )
    tokens, following = prepare.batch(np.random.default_rng(0), prepare.FIRST)
    numpys(opened, folder / "transformer", {"tokens": tokens, "labels": following, **RATE}, 1e-4)
