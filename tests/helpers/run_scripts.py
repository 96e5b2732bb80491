"""Runs scripts by ``stopgrad run``, each in a fork of a process that has imported the frameworks already.

``python run_scripts.py OUT PACKAGE... -- SCRIPT...`` writes what was found in each to OUT, as JSON by script.
In place of a script, a list in JSON gives options, the script and its arguments; if the first option is
``--plain``, it is run as by Python. With this one, or ``--apart``, ``stdout`` has the standard output alone.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any


def main(out: str, packages: list[str], scripts: list[str]) -> None:
    """Run the scripts one after the other."""
    for package in packages:
        importlib.import_module(package)
        if package == "torch":
            torch = sys.modules["torch"]
            torch.set_num_threads(1)
            torch.optim.Adam([torch.ones(1, requires_grad=True)])  # It imports more when the first is made.
        if package == "tensorflow":  # It starts its threads with the first operation, not before.
            importlib.import_module("keras")
    for module in ("rich.console", "stopgrad.tools.cli.run"):
        importlib.import_module(module)
    for package in packages:
        importlib.import_module(f"stopgrad.interop.{package}.training.session")
    found = {script: ran(script) for script in scripts}
    Path(out).write_text(json.dumps(found), encoding="utf-8")


def ran(script: str) -> dict[str, Any]:
    """What ``stopgrad run`` says of a script: its findings, its exit status, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        words = json.loads(script) if script.startswith("[") else [script]
        ways = {"--plain": False, "--apart": True}
        apart = words[0] in ways
        follows = ways.get(words[0], True)
        printed = [Path(folder) / name for name in ("stdout", "stderr" if apart else "stdout")]
        child = os.fork()
        if child == 0:
            status = 70
            try:
                for number, file in enumerate(printed, 1):
                    with open(file, "a") as stream:  # At its end, where it is the same for both.
                        os.dup2(stream.fileno(), number)
                with contextlib.chdir(folder):
                    if follows:
                        status = _command(["run", "--json", str(path), *words[apart:]])
                    else:
                        runpy.run_path(words[1], run_name="__main__")
                        status = 0
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        told = json.loads(path.read_text()) if path.exists() else {"findings": [], "unknown": ["no report"]}
        out = printed[0].read_text()
        whole = out + printed[1].read_text() if apart else out
        return {**told, "status": os.waitstatus_to_exitcode(ended), "printed": whole, "stdout": out}


def _command(arguments: list[str]) -> int:
    main = importlib.import_module("stopgrad.tools.cli").main
    return int(main(arguments))


def in_forks(*jobs: str | list[str], packages: tuple[str, ...] = ("torch",)) -> dict[str, Any]:
    """Run scripts, or lists of options, a script and its arguments; what was found, by job."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        given = [job if isinstance(job, str) else json.dumps(job) for job in jobs]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        subprocess.run(
            [sys.executable, __file__, str(out), *packages, "--", *given], check=True, env=environment
        )
        found: dict[str, Any] = json.loads(out.read_text())
        return found


if __name__ == "__main__":
    split = sys.argv.index("--")
    main(sys.argv[1], sys.argv[2:split], sys.argv[split + 1 :])
    with contextlib.suppress(io.UnsupportedOperation):
        sys.stdout.flush()
