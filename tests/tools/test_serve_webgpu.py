"""The page of ``stopgrad serve`` on WebGPU: Chromium's, by SwiftShader, on no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_tools import started

pytestmark = pytest.mark.slow

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from serve_pages import Opened, assert_close, on_the_desktop, opened, prepared, served  # noqa: E402

FLAGS = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")
"""Of Chromium, so that it has WebGPU without a GPU."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started(*FLAGS) as found:
        yield found


def needs_adapter(page: Opened) -> None:
    values = page.page.eval_on_selector_all("#backend option", "all => all.map((one) => one.value)")
    if "webgpu" not in values:
        pytest.skip("THE PAGE OF serve IS NOT TESTED ON WEBGPU: this Chromium has no adapter")


def test_where_webgpu_does_not_do_it_the_page_says_why_and_goes_on(
    browser: Any, home: Path, tmp_path: Path
) -> None:
    runtime = tmp_path / "node_modules/onnxruntime-web"
    runtime.mkdir(parents=True)
    (runtime / "dist").mkdir()
    for path in (home / "node_modules/onnxruntime-web/dist").iterdir():
        if "webgpu" not in path.name and "asyncify" not in path.name:
            (runtime / "dist" / path.name).write_bytes(path.read_bytes())
    with (
        served(home / "training", home / "pieces.npz", tmp_path) as server,
        opened(browser, server, allowed=("404",)) as page,
    ):
        needs_adapter(page)
        page.page.select_option("#backend", "webgpu")
        page.page.wait_for_selector("#why:text('WebGPU does not make this training')")
        assert page.settle() == "ready"
        assert page.page.input_value("#backend").startswith("wasm:")
        page.train(2)
        assert page.steps == 2


@pytest.mark.nightly
def test_adam_on_webgpu_makes_the_steps_of_the_desktop(browser: Any, home: Path, tmp_path: Path) -> None:
    trainer, expected = on_the_desktop(home, 6)
    with served(home / "training", home / "pieces.npz") as server, opened(browser, server) as page:
        needs_adapter(page)
        page.page.select_option("#backend", "webgpu")
        assert page.settle() == "ready"
        page.train(3)
        assert "The first step is that of WebAssembly" in page.text("#why")
        page.page.reload()
        assert page.settle() == "ready"
        assert page.page.input_value("#backend") == "webgpu"
        page.train(3)
        np.testing.assert_allclose(page.losses(server), expected, rtol=1e-4)
        adapter = page.download("#adapter", tmp_path / "adapter.safetensors")
    trainer.save_weights(tmp_path / "expected.safetensors")
    assert_close(adapter, tmp_path / "expected.safetensors")
