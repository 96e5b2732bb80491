"""``stopgrad train-graph``: writes graphs that train an ONNX model."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require
from stopgrad.base.progress import Progress
from stopgrad.base.source import Location
from stopgrad.graph.builder import Placed
from stopgrad.tools.cli.common import OK, Commands, wrapped

WIDTH = 100
"""The width of the output without a terminal."""


def add_train_graph(commands: Commands) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "train-graph",
        help="write graphs that train an ONNX model",
        description="Write training graphs of an ONNX model, as plain ONNX that any stock runtime executes.",
    )
    parser.add_argument("model", metavar="model.onnx", help="the model")
    parser.add_argument(
        "--loss",
        required=True,
        metavar="LOSS",
        help="cross-entropy, binary, mse, mae, huber, cosine or contrastive, with options after a colon "
        "(cross-entropy:axis=1,ignore=-100); or an ONNX model of outputs and labels",
    )
    parser.add_argument(
        "--optimizer",
        default="adamw",
        metavar="OPTIMIZER",
        help="sgd, adam, adamw, lion, rmsprop, adagrad, adafactor or muon, with options "
        "(sgd:momentum=0.9,nesterov=true); adamw unless given",
    )
    parser.add_argument("-o", "--out", type=Path, metavar="FOLDER", help="where to write; made, or replaced")
    for name, what in _PATTERNS.items():
        parser.add_argument(f"--{name}", action="append", default=[], metavar="PATTERN", help=what)
    parser.add_argument(
        "--clip", type=float, metavar="NORM", help="the greatest norm of all gradients together"
    )
    parser.add_argument("--rank", type=int, metavar="N", help="of the adapters of --lora (8)")
    parser.add_argument("--alpha", type=float, metavar="X", help="adapters count alpha/rank (the rank)")
    parser.add_argument(
        "--accumulate", type=int, default=1, metavar="N", help="steps over which gradients are averaged (1)"
    )
    parser.add_argument(
        "--learning-rate", type=float, metavar="X", help="the first; a step may be fed another"
    )
    parser.add_argument(
        "--schedule",
        metavar="SCHEDULE",
        help="of the learning rate: constant, linear, polynomial, cosine, exponential or piecewise, with "
        "options (cosine:1e-3,1000,warmup=50)",
    )
    parser.add_argument(
        "--mode",
        choices=("model", "train", "eval"),
        default="model",
        help="of batch normalisation and dropout: as the file has it, or all in one (model)",
    )
    _add_precision(parser)
    _add_gradients(parser)
    _add_memory(parser)
    parser.add_argument(
        "--opset", type=int, default=21, metavar="N", help="of what is written, 18 to 26 (21)"
    )
    for name, what in _SWITCHES.items():
        parser.add_argument(f"--{name}", action="store_true", help=what)
    parser.set_defaults(run=run, parser=parser)


_SWITCHES = {
    "dry-run": "only print what would be trained, and why; write nothing",
    "split-shared": "hold parameters apart that the exporter merged since they began with the same numbers",
    "explain": "print where gradients flow in what is shipped",
}


def _add_gradients(parser: argparse.ArgumentParser) -> None:
    """The options about gradients that a file does not have by itself."""
    parser.add_argument(
        "--max-iterations",
        type=int,
        dest="maximum_iterations",
        metavar="N",
        help="the most steps of loops that a computed condition ends; beyond it, a run ends with an error",
    )
    parser.add_argument(
        "--quantized",
        choices=("straight-through", "none"),
        default="straight-through",
        help="of gradients at the rounding of quantised numbers: they go through, or end (straight-through)",
    )


def _add_memory(parser: argparse.ArgumentParser) -> None:
    """The options about a budget of memory."""
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        help="how much a step may take, such as 2GiB: what there is no room for is computed again",
    )
    parser.add_argument(
        "--sizes",
        action="append",
        default=[],
        metavar="NAME=N",
        help="the sizes that the model leaves open, such as batch=8, for which --memory is reckoned",
    )


def _sizes(arguments: argparse.Namespace) -> dict[str, int]:
    """What --sizes says."""
    sizes = {}
    for pair in _listed(arguments.sizes):
        name, _, size = pair.rpartition("=")
        if not name or not size.isdecimal():
            arguments.parser.error(f"--sizes takes a name and a whole number, such as batch=8, not {pair!r}")
        sizes[name] = int(size)
    return sizes


def _add_precision(parser: argparse.ArgumentParser) -> None:
    """The options about numbers of 16 bits."""
    parser.add_argument(
        "--precision",
        choices=("float16", "bfloat16"),
        help="of products of matrices and convolutions in training; all else and the weights are float32",
    )
    parser.add_argument(
        "--loss-scale",
        type=float,
        metavar="X",
        help="the first factor of the gradients, which adapts (65536 with float16, else none)",
    )


_PATTERNS = {
    "freeze": "names of parameters that are not trained, such as 'backbone.*'; may be given often",
    "only": "names of those that are trained, and no others",
    "train": "names of tensors that are trained besides, though they look like constants",
    "stop": "names of scopes, nodes or values behind which no gradient goes, such as encoder/layer3",
    "outputs": "the outputs that the loss reads, where there are several",
    "lora": "names of weights that get LoRA adapters; the others are frozen unless --only names them",
}


_OPTIONS = (
    *("loss", "optimizer", "clip", "accumulate", "learning_rate", "schedule"),
    *("mode", "precision", "loss_scale", "opset", "split_shared", "maximum_iterations"),
)
"""The options that are arguments of ``training`` as they are."""


def run(arguments: argparse.Namespace) -> int:
    """Write the folder and print what is in it."""
    if not arguments.lora and (arguments.rank is not None or arguments.alpha is not None):
        arguments.parser.error("--rank and --alpha are about the adapters of --lora")
    if arguments.out is None and not arguments.dry_run:
        arguments.parser.error("-o FOLDER says where to write; or take --dry-run")
    patterns = {name: _listed(getattr(arguments, name)) for name in _PATTERNS}
    lora = None
    if patterns["lora"]:
        lora = {"weights": patterns["lora"], "rank": arguments.rank or 8, "alpha": arguments.alpha}
    sgo = require("stopgrad.onnx", "stopgrad train-graph", "onnx")
    # The operations have no line of a user's program, since this command builds them.
    with (
        Progress("making the training step"),
        Placed(
            Location("train-graph", 1, source=f"--loss {arguments.loss} --optimizer {arguments.optimizer}")
        ),
    ):
        training = sgo.training(
            arguments.model,
            folder=None if arguments.dry_run else arguments.out,
            **{name: getattr(arguments, name) for name in _OPTIONS},
            **{**patterns, "lora": lora},
            memory=arguments.memory,
            sizes=_sizes(arguments),
            quantized=None if arguments.quantized == "none" else arguments.quantized,
        )
    if arguments.explain:
        width = shutil.get_terminal_size((WIDTH, 24)).columns
        print(training.flow.to_text(width=max(40, width)))
        print()
    if not arguments.dry_run:
        for line in summary(arguments.out, training.manifest):
            print(wrapped(line, WIDTH))
        print()
    for line in tensors(training.manifest, None if arguments.dry_run else SHOWN):
        print(line)
    for note in training.notes:
        print(wrapped(f"stopgrad: note: {note}", WIDTH), file=sys.stderr)
    return OK


def _listed(texts: list[str]) -> list[str]:
    """The patterns of an option that may be given several times, each with several separated by commas."""
    patterns = [part.strip() for text in texts for part in text.split(",")]
    if not all(patterns):
        raise ArgumentError(
            f"{','.join(texts)!r} names nothing; write a pattern of names, such as 'encoder.*'"
        )
    return patterns


def summary(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """A summary of the folder, in a few lines."""
    state = manifest["state"]
    trained = [name for name, one in state.items() if one["kind"] == "parameter"]
    stateful = [name for name, one in state.items() if one["role"] == "state"]
    step = manifest["graphs"]["train_step"]
    fed = [x["name"] for x in step["inputs"] if x["role"] not in ("parameter", "state")]
    uses = Counter(one["use"] for one in manifest["tensors"].values())
    others = ", ".join(f"{_HEADS[use]}: {uses[use]}" for use in _HEADS if use != "trained" and uses[use])
    sizes = {one["file"]: (folder / one["file"]).stat().st_size for one in manifest["graphs"].values()}
    return [
        f"{folder}: {', '.join(f'{name} {_bytes(size)}' for name, size in sizes.items())}",
        f"a step is fed {', '.join(fed)}; opset {manifest['opset']}",
        f"trained: {_count(trained, state)}" + (f"; {others}" if others else ""),
        f"state of {manifest['optimizer']['name']}: {_count(stateful, state)}",
    ]


_HEADS = {
    "trained": "trained",
    "statistic": "running statistics",
    "frozen": "frozen",
    "constant": "constants",
}
"""What the uses of tensors are called."""

SHOWN = 12
"""The most tensors of one use that are listed where a folder is written."""


def tensors(manifest: Mapping[str, Any], most: int | None = None) -> list[str]:
    """What becomes of each floating-point tensor of the model, by name, with its size and the reason.

    Args:
        manifest: of the training folder.
        most: how many tensors of one use are listed; None for all.
    """
    lines = []
    for use, head in _HEADS.items():
        these = {name: one for name, one in manifest["tensors"].items() if one["use"] == use}
        if not these:
            continue
        lines.append(f"{head} ({_count(list(these), these)})")
        shown = list(these.items())[:most]
        wide = max(len(name) for name, _ in shown)
        for name, one in shown:
            size = "x".join(map(str, one["shape"])) or "1"
            lines.append(f"  {name:<{wide}}  {size:>10}  {one['why']}")
        if len(shown) < len(these):
            lines.append(f"  ... and {len(these) - len(shown)} more, which --dry-run lists")
    return lines


def _count(names: list[str], state: Mapping[str, Any]) -> str:
    total = 0
    for name in names:
        size = 1
        for side in state[name]["shape"]:
            size *= side
        total += size
    return f"{len(names)} tensor{'' if len(names) == 1 else 's'}, {total:,} number{'' if total == 1 else 's'}"


def _bytes(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000  # type: ignore[assignment]
    return f"{size:.3g} GB"
