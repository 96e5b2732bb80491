"""Training in the browser: a folder with the page, stock onnxruntime-web and the graphs, and a small server.

    python prepare.py out        the model, the training graphs, the digits
    python serve.py out          fetches onnxruntime-web once (npm pack onnxruntime-web@1.30.0), then
                                 http://127.0.0.1:8000/

What comes out, out/site, is a folder of plain files, which any web server hands out; the page asks for
nothing else, so that it works without a network.
"""

import argparse
import base64
import hashlib
import http.server
import shutil
import subprocess
import tarfile
import tempfile
from functools import partial
from pathlib import Path

import stopgrad

RUNTIME = "onnxruntime-web@1.30.0"
INTEGRITY = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""Of the package: its sha512, as the registry says it (npm view onnxruntime-web@1.30.0 dist.integrity)."""

USED = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
PAGE = Path(__file__).parent / "page"
SHARED = ("chart.js", "safetensors.js")
"""Scripts that the page has from that of ``stopgrad serve``."""
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript"} | {
    ".wasm": "application/wasm",
    ".json": "application/json",
}


def fetched(folder: Path) -> Path:
    """The package of onnxruntime-web, from the npm registry unless it is in the folder."""
    name = f"{RUNTIME.replace('@', '-')}.tgz"
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as new:
            command = ["npm", "pack", RUNTIME, "--loglevel=error", "--fetch-retries=1"]
            subprocess.run(command, cwd=new, check=True, capture_output=True, text=True)  # noqa: S603
            found = base64.b64encode(hashlib.sha512(Path(new, name).read_bytes()).digest()).decode()
            if found != INTEGRITY:
                raise SystemExit(f"what npm gave is not {RUNTIME}: its sha512 is {found}")
            Path(new, name).replace(folder / name)
    return folder / name


def site(prepared: Path, package: Path) -> Path:
    """The folder that is served: the page, the runtime, what prepare.py made."""
    made = prepared / "site"
    shutil.copytree(PAGE, made, dirs_exist_ok=True)
    for name in SHARED:
        shutil.copy(Path(stopgrad.__file__).parent / "tools/serving/page" / name, made)
    shutil.copytree(prepared / "training", made / "training", dirs_exist_ok=True)
    shutil.copy(prepared / "digits.safetensors", made)
    (made / "ort").mkdir(exist_ok=True)
    with tarfile.open(package) as archive:
        for name in USED:
            source = archive.extractfile(f"package/dist/{name}")
            assert source is not None
            (made / "ort" / name).write_bytes(source.read())
    return made


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, **TYPES}

    def log_message(self, *args: object) -> None:
        """Say nothing of every file."""


def server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server of this machine alone."""
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prepared", type=Path, help="the folder that prepare.py made")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    with server(site(given.prepared, fetched(given.prepared)), given.port) as running:
        print(f"http://127.0.0.1:{running.server_port}/")
        running.serve_forever()


if __name__ == "__main__":
    main()
