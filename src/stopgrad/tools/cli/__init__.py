"""The ``stopgrad`` command: reports on functions, graphs that train, runs of several processes, workloads."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

import stopgrad as sg
from stopgrad.tools.cli.common import ERROR, FAILED, INTERRUPTED, LEFT, OK, told
from stopgrad.tools.cli.flow import add_flow
from stopgrad.tools.cli.launch import add_launch
from stopgrad.tools.cli.ops import add_ops
from stopgrad.tools.cli.tour import add_tour
from stopgrad.tools.cli.train_graph import add_train_graph

__all__ = ["ERROR", "FAILED", "INTERRUPTED", "LEFT", "OK", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Its exit status: 0 all is well, 1 something was found or failed, 2 it could not."""
    arguments = _parser().parse_args(argv)
    try:
        status = int(arguments.run(arguments))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # Who read what is printed has left, as head does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return LEFT
    except Exception as error:
        text = told(error)
        if text is None:  # Python's own exit status, 1, would say that something was found.
            traceback.print_exc()
            text = "stopgrad: this is a defect of stopgrad, please report it"
        print(text, file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("stopgrad: interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stopgrad", description="Operation graphs whose gradients you can cut, see, check, run and ship."
    )
    parser.add_argument("--version", action="version", version=f"stopgrad {sg.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    add_flow(commands)
    add_train_graph(commands)
    add_launch(commands)
    add_tour(commands)
    add_ops(commands)
    return parser
