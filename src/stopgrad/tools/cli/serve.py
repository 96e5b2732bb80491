"""``stopgrad serve``: a page on this machine that trains; ``stopgrad merge``: what it trained, in a model."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from stopgrad.base.errors import ArgumentError
from stopgrad.tools.cli.common import OK, Commands, require_writable
from stopgrad.tools.serving.server import Server
from stopgrad.tools.serving.site import site
from stopgrad_trainer import Trainer

PORT = 8000


def add_serve(commands: Commands) -> None:
    """The commands and their options."""
    parser = commands.add_parser(
        "serve",
        help="train in a browser on this machine",
        description="Serve a training folder to browsers on this machine: a page trains it there, by stock "
        "onnxruntime-web.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what train-graph has written")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="examples, by the names of the inputs and labels, as .npz, .safetensors, .json or .jsonl; the "
        "page takes a file, too",
    )
    parser.add_argument(
        "--runtime",
        type=Path,
        metavar="FOLDER",
        help="where onnxruntime-web lies; by default in node_modules beside or above the training folder",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=PORT,
        metavar="N",
        help=f"the port, 0 for a free one; a browser keeps its state by it ({PORT})",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.set_defaults(run=run_serve)
    _add_merge(commands)


def _add_merge(commands: Commands) -> None:
    parser = commands.add_parser(
        "merge",
        help="put trained weights or adapters into the model",
        description="Write the model of a training folder with trained weights, or with adapters added.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what train-graph has written")
    parser.add_argument(
        "weights",
        type=Path,
        metavar="FILE.safetensors",
        help="what a page of serve let one download, or Trainer.save or Trainer.save_weights wrote",
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="MODEL.onnx", help="where to write")
    parser.set_defaults(run=run_merge)


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until it is interrupted."""
    if not 0 <= arguments.port < 1 << 16:
        raise ArgumentError(f"--port: {arguments.port} is no port; take one from 0 to {(1 << 16) - 1}")
    served = site(arguments.folder, arguments.data, arguments.runtime)
    with Server(served, arguments.port) as server:
        print(f"{server.address}  trains {arguments.folder}; Ctrl-C ends it", flush=True)
        if arguments.open:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return OK


def run_merge(arguments: argparse.Namespace) -> int:
    """Write the trained model."""
    require_writable(arguments.out)
    trainer = Trainer(arguments.folder)
    trainer.load_weights(arguments.weights)
    trainer.export(arguments.out)
    return OK
