"""``stopgrad run``: any training script, unchanged, says why it does not train."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TextIO

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.problems.catalogue import ERROR, KINDS, NOTE, WARNING
from stopgrad.flow.problems.diagnosis import Diagnosis
from stopgrad.flow.reports.notices import github, sarif
from stopgrad.interop.shared.recorded_steps import Schedule
from stopgrad.tools.cli.common import FAILED, Commands, require_writable, write_text
from stopgrad.tools.running.ranks import is_first, of_other_ranks
from stopgrad.tools.running.run_page import write_page
from stopgrad.tools.running.script import Ending, NoScriptError, Script, module_of, run, script_of
from stopgrad.tools.running.script_following import EVERY, Following

MACHINES = {"github": github, "sarif": sarif}
WIDTH = 80


def add_run(commands: Commands) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "run",
        help="run a training script, and say why it does not train",
        description="Run a training script, unchanged, and say why it does not train: the cause of an error, "
        "at both ends, or what the steps of its optimizers show.",
        usage="stopgrad run [options] (script.py | -m module) [its arguments]",
        epilog="Exit status: the script's; with --check or --fail-on 1 if something was found.",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="report after N steps (when the script ends)")
    parser.add_argument(
        "--every",
        type=int,
        default=EVERY,
        metavar="N",
        help=f"record one step in N after the first 3 ({EVERY})",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if errors or warnings are found")
    parser.add_argument(
        "--fail-on",
        metavar="KINDS",
        help="exit with 1 if any of these is found: kinds, or error, warning, note",
    )
    parser.add_argument("--only", metavar="KINDS", help="show only these kinds of findings")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the findings as JSON")
    parser.add_argument("--html", type=Path, metavar="PATH", help="also write a page")
    parser.add_argument(
        "--baseline", type=Path, metavar="PATH", help="show what is new, and what is gone, since that JSON"
    )
    parser.add_argument(
        "--format", choices=("text", *MACHINES), default="text", help="what is printed on standard error"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours, on a terminal either")
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="a module, as 'python -m' runs it"
    )
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="script.py ...", help="the script and its arguments"
    )
    parser.set_defaults(run=run_script, parser=parser, flushes=False)


def run_script(arguments: argparse.Namespace) -> int:
    """Run the script, and report what was found; its own exit status, unless something was to be checked."""
    conditions = _kinds(arguments.fail_on, "--fail-on")
    shown = _kinds(arguments.only, "--only")
    for name in ("steps", "every"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            arguments.parser.error(f"argument --{name}: must be at least 1")
    for path in (arguments.json, arguments.html):
        if path is not None:
            require_writable(path)
    old = None if arguments.baseline is None else _read(arguments.baseline)
    try:
        script = _script(arguments)
    except NoScriptError as error:
        print(f"{sys.executable}: {error}", file=sys.stderr)
        return error.status
    reporting = _Reporting(arguments, shown, old, sys.stderr)
    schedule = Schedule(arguments.every, arguments.steps, lambda: reporting.report(following.end(None)))
    if sys.stderr.isatty():
        schedule = schedule._replace(progress=lambda line: print(f"stopgrad: {line}", file=sys.stderr))
    following = Following(schedule)
    ending, process = Ending(), os.getpid()
    following.begin()
    raised = run(script)
    diagnosis = following.end(raised) if os.getpid() == process else Diagnosis(())
    if raised is not None:
        ending.show(raised)
    status = ending.status(raised)
    if os.getpid() == process:
        reporting.report(diagnosis)
        if status == 0 and (arguments.check or conditions) and reporting.diagnosis.is_met(conditions):
            return FAILED
    return status


def _script(arguments: argparse.Namespace) -> Script:
    if arguments.module is not None:
        if not arguments.module:
            arguments.parser.error("-m needs the name of a module")
        sys.path[0] = os.getcwd()
        return module_of(arguments.module[0], arguments.module[1:])
    words = [word for i, word in enumerate(arguments.script) if i or word != "--"]
    if not words:
        arguments.parser.error("the following arguments are required: script.py, or -m module")
    return script_of(words[0], words[1:])


def _kinds(text: str | None, option: str) -> list[str]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    kinds = [*KINDS, ERROR, WARNING, NOTE]
    for word in words:
        if word not in kinds:
            raise ArgumentError(f"{option}: there is no kind {word!r}; there are {', '.join(kinds)}")
    return words


def _read(path: Path) -> dict[str, str]:
    """The findings in a file of an earlier run: their messages by identity."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {finding["id"]: f"{finding['kind']}: {finding['message']}" for finding in data["findings"]}
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"--baseline: {path} holds no findings ({type(error).__name__}: {error})"
        ) from None


class _Reporting:
    """Prints and writes what was found, once."""

    def __init__(
        self, arguments: argparse.Namespace, shown: list[str], old: dict[str, str] | None, out: TextIO
    ) -> None:
        self._arguments, self._shown, self._old, self._out = arguments, shown, old, out
        self.diagnosis = Diagnosis(())
        self._is_done = False

    def report(self, diagnosis: Diagnosis) -> None:
        """Report, unless that was done when enough steps had been seen."""
        if self._is_done:
            return
        self._is_done = True
        diagnosis = of_other_ranks(diagnosis.only(self._shown))
        gone: list[str] = []
        if self._old is not None:
            diagnosis, gone = diagnosis.since(self._old)
        self.diagnosis = diagnosis
        arguments = self._arguments
        if arguments.json is not None and is_first():
            write_text(arguments.json, diagnosis.to_json(indent=2) + "\n")
        if arguments.html is not None and is_first():
            write_page(arguments.html, diagnosis)
        with contextlib.suppress(OSError, ValueError):  # Standard error may be closed.
            self._print(diagnosis, gone)

    def _print(self, diagnosis: Diagnosis, gone: list[str]) -> None:
        if self._arguments.format != "text":
            print(MACHINES[self._arguments.format](diagnosis._notices()), file=self._out)
            return
        width = max(40, shutil.get_terminal_size((WIDTH, 24)).columns)
        color = not self._arguments.no_color and self._out.isatty() and "NO_COLOR" not in os.environ
        text = diagnosis.to_text(width, color)
        lines = [
            f"stopgrad: {diagnosis.summary}",
            *([text] if text else []),
            *[f"gone: {message}" for message in gone],
        ]
        print("\n".join(lines), file=self._out, flush=True)
