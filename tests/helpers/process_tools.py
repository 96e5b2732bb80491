"""Runs of several processes in tests: started by ``stopgrad launch``, and ended whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import stopgrad as sg


class Run(NamedTuple):
    """How a launch ended: its exit status, what the processes and it itself printed, and the seconds."""

    status: int
    lines: dict[int, list[str]]
    said: list[str]
    seconds: float
    ended: float
    """When, as the clock says."""

    def text(self, index: int) -> str:
        """What a process printed."""
        return "\n".join(self.lines.get(index, []))


def launch(script: Path, *arguments: object, count: int = 4, devices: int = 1, seconds: float = 300.0) -> Run:
    """Run a script in several processes, each with so many devices; for no longer than so many seconds."""
    options = ["-n", str(count), "--devices", str(devices)]
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "stopgrad", "launch", *options, script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={
            **os.environ,
            "PYTHONPATH": f"{Path(sg.__file__).parents[1]}{os.pathsep}{Path(__file__).parent}",
        },
    )
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # Which ends those that it started.
        printed, _ = process.communicate()
        printed += f"\nended after {seconds} s"
    finally:
        process.kill()  # After an interrupt.
    lines: dict[int, list[str]] = {}
    said = []
    for line in printed.splitlines():
        head, _, rest = line.partition("] ")
        if head.startswith("[") and head[1:].isdigit():
            lines.setdefault(int(head[1:]), []).append(rest)
        else:
            said.append(line)
    return Run(process.returncode, lines, said, time.monotonic() - began, time.time())
