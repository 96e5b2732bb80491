"""``%load_ext stopgrad``, then ``%%stopgrad`` before a cell: what ``stopgrad run`` says of a script."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require
from stopgrad.flow.problems.diagnosis import Diagnosis
from stopgrad.interop.shared.recorded_steps import Schedule
from stopgrad.tools.running.script_following import EVERY, Following


def load_ipython_extension(shell: Any) -> None:
    """Add the magic ``%%stopgrad`` to a shell of IPython's, also that of a notebook.

    Args:
        shell: the running shell, which ``%load_ext stopgrad`` gives.
    """

    def stopgrad(line: str, cell: str) -> None:
        diagnosis = followed(shell, line, cell)
        print(f"stopgrad: {diagnosis.summary}")
        if hasattr(shell, "kernel"):
            require("IPython.display", "showing findings").display(diagnosis)
        elif diagnosis:
            print(diagnosis)

    shell.register_magic_function(stopgrad, "cell", "stopgrad")


def followed(shell: Any, line: str, cell: str) -> Diagnosis:
    """Run a cell as it is run without the magic; what is known of its training.

    Args:
        shell: the shell of IPython.
        line: the options, such as ``--every 1``.
        cell: the code.

    Raises:
        ArgumentError: the options do not read.
    """
    options = _options(line)
    following = Following(Schedule(options.every, options.steps))
    following.begin()
    result = shell.run_cell(cell)
    return following.end(result.error_in_exec)


def _options(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser("%%stopgrad", add_help=False, exit_on_error=False)
    parser.add_argument("--every", type=int, default=EVERY)
    parser.add_argument("--steps", type=int)
    try:
        options, rest = parser.parse_known_args(shlex.split(line))
    except (argparse.ArgumentError, ValueError) as error:
        raise ArgumentError(f"%%stopgrad: {error}") from None
    if rest or options.every < 1 or (options.steps is not None and options.steps < 1):
        raise ArgumentError(f"%%stopgrad: takes --every N and --steps N, both at least 1, not {line!r}")
    return options
