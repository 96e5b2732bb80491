"""Steps of training graphs by onnxruntime-web, in a page of Chromium, on WebAssembly or WebGPU."""

from __future__ import annotations

import base64
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from examples_references import example

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.interop.imported import Model

FLAGS = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")
"""Of Chromium, so that it has WebGPU without a GPU."""

USED = ("ort.webgpu.min.mjs", "ort-wasm-simd-threaded.asyncify.mjs", "ort-wasm-simd-threaded.asyncify.wasm")

PAGE = """<!doctype html><link rel="icon" href="data:,"><script type="module">
const ort = await import("/ort.webgpu.min.mjs");
Object.assign(ort.env, {logLevel: "error"});
Object.assign(ort.env.wasm, {wasmPaths: "/", numThreads: 1});
const arrays = {float32: Float32Array, int64: BigInt64Array, uint32: Uint32Array};
const read = ({dtype, shape, data}) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return new ort.Tensor(dtype, new arrays[dtype](bytes.buffer), shape);
};
const written = ({type, dims, data}) => {
  const letters = Array.from(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), (byte) =>
    String.fromCharCode(byte));
  return {dtype: type, shape: dims, data: btoa(letters.join(""))};
};
const mapped = (object, change) =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value)]));
window.train = async (url, provider, batch, state, renewed, loss, count) => {
  const model = await (await fetch(url)).arrayBuffer();
  const session = await ort.InferenceSession.create(model, {executionProviders: [provider]});
  const [fed, losses] = [mapped({...batch, ...state}, read), []];
  for (let i = 0; i < count; i++) {
    const made = await session.run(fed);
    Object.assign(fed, mapped(renewed, (name) => made[name]));
    losses.push(made[loss].data[0]);
  }
  await session.release();
  const after = Object.fromEntries(Object.keys(renewed).map((name) => [name, fed[name]]));
  return {losses, state: mapped(after, written)};
};
window.adapter = async () => (await navigator.gpu?.requestAdapter())?.info.architecture ?? "none";
window.ready = true;
</script>"""

Arrays = Mapping[str, np.ndarray[Any, Any]]


@contextmanager
def page(browser: Any, package: Path, folder: Path) -> Iterator[Any]:
    """A page with onnxruntime-web, to which what is in the folder is served."""
    with tarfile.open(package) as archive:
        for name in USED:
            source = archive.extractfile(f"package/dist/{name}")
            assert source is not None
            (folder / name).write_bytes(source.read())
    (folder / "index.html").write_text(PAGE)
    with example("onnx/digits/serve").server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        opened = browser.new_page()
        try:
            opened.goto(f"http://127.0.0.1:{server.server_port}/index.html")
            opened.wait_for_function("window.ready")
            yield opened
        finally:
            opened.close()
            server.shutdown()
            thread.join()


def first_state(training: Path) -> dict[str, Any]:
    return dict(sgo.Trainer(training).state)


def in_browser(
    opened: Any, provider: str, training: Path, batch: Arrays, state: Arrays, count: int
) -> tuple[list[float], dict[str, Any]]:
    """The losses of some steps, and the state after them."""
    manifest = json.loads((training / "manifest.json").read_text())
    outputs = manifest["graphs"]["train_step"]["outputs"]
    (loss,) = (y["name"] for y in outputs if y["role"] == "loss")
    given = [f"/{training.name}/train_step.onnx", provider, _all(batch), _all(state), manifest["step"], loss]
    made = opened.evaluate("(given) => window.train(...given)", [*given, count])
    return made["losses"], {name: _array(x) for name, x in made["state"].items()}


def in_numpy(training: Path, batch: Arrays, state: Arrays, count: int) -> tuple[list[float], dict[str, Any]]:
    """The same by NumPy."""
    manifest = json.loads((training / "manifest.json").read_text())
    outputs = manifest["graphs"]["train_step"]["outputs"]
    (loss,) = (y["name"] for y in outputs if y["role"] == "loss")
    model: Model = sgo.load(training / "train_step.onnx")
    held, losses = dict(state), []
    with sg.Session(model.graph, engine="numpy") as session:
        for _ in range(count):
            fed = {model.inputs[name]: x for name, x in {**batch, **held}.items()}
            made = session.run(model.outputs, fed)
            held = {name: np.asarray(made[new]) for name, new in manifest["step"].items()}
            losses.append(float(made[loss]))
    return losses, held


def _all(arrays: Arrays) -> dict[str, Any]:
    return {
        name: {"dtype": x.dtype.name, "shape": list(x.shape), "data": base64.b64encode(x.tobytes()).decode()}
        for name, x in arrays.items()
    }


def _array(written: Mapping[str, Any]) -> Any:
    return np.frombuffer(base64.b64decode(written["data"]), written["dtype"]).reshape(written["shape"])
