"""The ``stopgrad`` command: reports on functions, graphs that train, runs of several processes, workloads."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

import stopgrad as sg
from stopgrad.tools.cli.statuses import ERROR, FAILED, INTERRUPTED, LEFT, OK

__all__ = ["ERROR", "FAILED", "INTERRUPTED", "LEFT", "OK", "main"]

COMMANDS = {
    "run": ("run", "run a training script, and say why it does not train"),
    "explain": ("flow", "show where gradients flow and which lines stop them"),
    "check": ("flow", "compare gradients with finite differences, stops held"),
    "trace-nan": ("flow", "name the first operation that makes a NaN or infinity"),
    "ablate": ("flow", "show for each stop what it changes and what it saves"),
    "train-graph": ("train_graph", "write graphs that train an ONNX model"),
    "serve": ("serve", "train in a browser on this machine"),
    "merge": ("serve", "put trained weights or adapters into the model"),
    "launch": ("launch", "run a script in several processes on this machine"),
    "tour": ("tour", "run the workloads and write a page about them"),
    "ops": ("ops", "list operations and functions"),
}
"""The commands: the module of each, imported only when the command is run, and what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Its exit status is 0 if all is well, 1 if something was found or failed, else 2."""
    words = sys.argv[1:] if argv is None else argv
    if "_ARGCOMPLETE" in os.environ:  # A shell asks what could follow; the library answers, and exits.
        complete(_parser(*COMMANDS))
    parser = _parser(next(iter(words), ""))
    if not words:
        parser.print_help()
        return OK
    if (unknown := _unknown(words[0])) is not None:
        parser.error(unknown)
    arguments = parser.parse_args(words)
    try:
        status = int(arguments.run(arguments))
        if getattr(arguments, "flushes", True):  # A script's own output ends as Python ends it.
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # The reader of the output, such as head, has left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return LEFT
    except Exception as error:
        text = importlib.import_module("stopgrad.tools.cli.common").told(error)
        if text is None:  # Python's own exit status, 1, would mean that something was found.
            traceback.print_exc()
            text = "stopgrad: this is a defect of stopgrad, please report it"
        print(text, file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("stopgrad: interrupted", file=sys.stderr)
        return INTERRUPTED


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that completes a command line, through argcomplete."""
    require = importlib.import_module("stopgrad.base.namespaces").require
    require("argcomplete", "completion in a shell", "completion").autocomplete(parser)


def _unknown(word: str) -> str | None:
    """The message for a word that is no command; None if it is one, or an option."""
    if word.startswith("-") or word in COMMANDS:
        return None
    close = difflib.get_close_matches(word, COMMANDS, 1)
    cure = f"did you mean {close[0]}?" if close else f"there are {', '.join(COMMANDS)}"
    return f"there is no command {word!r}; {cure}"


def _parser(*asked: str) -> argparse.ArgumentParser:
    """The parser, with the options of the commands that are run; for others only what they do."""
    parser = argparse.ArgumentParser(
        prog="stopgrad", description="Operation graphs whose gradients you can cut, see, check, run and ship."
    )
    parser.add_argument("--version", action="version", version=f"stopgrad {sg.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    modules = dict.fromkeys([COMMANDS[name][0] for name in asked if name in COMMANDS])
    for module in modules:
        getattr(importlib.import_module(f"stopgrad.tools.cli.{module}"), f"add_{module}")(commands)
    for name, (module, does) in COMMANDS.items():
        if module not in modules:
            commands.add_parser(name, help=does)
    return parser
