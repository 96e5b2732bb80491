"""What stopgrad and its peers can do with stopped gradients, found out by running it.

    python benchmarks/peers_stop.py [--libraries stopgrad,tensorflow,jax,torch,pytensor] [--json out.json]

The peers are TensorFlow (graph mode), JAX, PyTorch and PyTensor. Every answer is computed: a check returns
its verdict together with the evidence. *yes*: the library does it; *partly*: by the user's own means, or for
some cases; *no*: it does something else, refuses, or has nothing for it. Where a library has no function for
something, that is checked by its signature or its names.

What is asked and answered: stops/.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from stops.ours import Stopgrad
from stops.peer_jax import Jax
from stops.peer_pytensor import PyTensor
from stops.peer_tensorflow import TensorFlow
from stops.peer_torch import Torch
from stops.questions import QUESTIONS

LIBRARIES = {"stopgrad": Stopgrad, "tensorflow": TensorFlow, "jax": Jax, "torch": Torch, "pytensor": PyTensor}


def answer(name: str) -> dict[str, Any]:
    """All answers of one library. A check that raises has been refused: no."""
    warnings.simplefilter("ignore")
    library = LIBRARIES[name]()
    found: dict[str, Any] = {}
    for question in QUESTIONS:
        try:
            found[question] = getattr(library, question)()
        except (Exception, RecursionError) as error:
            text = " ".join(str(error).split())
            found[question] = ("no", f"{type(error).__name__}: {text}"[:110])
    return {"version": library.version, "answers": found}


def ask(name: str) -> dict[str, Any] | None:
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [sys.executable, __file__, "--answer", name], capture_output=True, text=True, env=environment
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"{name}: left out: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}", file=sys.stderr)
        return None
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.answer:
        print(json.dumps(answer(options.answer)))
        return

    asked = {name: ask(name) for name in options.libraries.split(",")}
    found = {name: result for name, result in asked.items() if result is not None}
    print("| |" + "".join(f" {name} {result['version']} |" for name, result in found.items()))
    print("|---|" + "---|" * len(found))
    for question, text in QUESTIONS.items():
        print(f"| {text} |" + "".join(f" {result['answers'][question][0]} |" for result in found.values()))
    for name, result in found.items():
        print(f"\n{name} {result['version']}\n")
        for question, text in QUESTIONS.items():
            verdict, evidence = result["answers"][question]
            print(f"- {text}: **{verdict}**. {evidence}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
