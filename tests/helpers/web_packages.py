"""onnxruntime-web of the npm registry, for tests in a browser."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from examples_references import example

UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "E50")

USED = (
    *("package.json", "dist/ort.wasm.min.mjs", "dist/ort.webgpu.min.mjs"),
    *(f"dist/ort-wasm-simd-threaded{kind}" for kind in (".mjs", ".wasm", ".asyncify.mjs", ".asyncify.wasm")),
)


def package(what: str) -> Path:
    """The package; the tests are skipped, and say what is not tested, where npm cannot be reached."""
    try:
        return example("onnx/digits/serve").fetched(Path(os.environ["STOPGRAD_CACHE_DIR"]) / "npm")
    except FileNotFoundError:
        pytest.skip(f"{what} IS NOT TESTED: there is no npm")
    except subprocess.CalledProcessError as error:
        if not any(word in error.stderr for word in UNREACHABLE):
            raise
        pytest.skip(f"{what} IS NOT TESTED: npm cannot be reached: {error.stderr[-200:]}")


def unpacked(what: str, folder: Path) -> Path:
    """A folder that holds ``node_modules``, as npm installs the package."""
    with tarfile.open(package(what)) as archive:
        for name in USED:
            source = archive.extractfile(f"package/{name}")
            assert source is not None
            path = folder / "node_modules/onnxruntime-web" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.read())
    return folder
