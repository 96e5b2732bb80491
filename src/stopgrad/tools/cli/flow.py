"""``stopgrad explain``, ``check``, ``trace-nan`` and ``ablate``: the reports on a function of the user's."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import stopgrad as sg
from stopgrad.flow.checking.gradient_check import GradientCheck
from stopgrad.flow.nans.nan_trace import NanTrace
from stopgrad.flow.reports.base import FlowReport
from stopgrad.flow.reports.notices import Notice, at_lines, github, sarif
from stopgrad.tools.cli.annotations import shape_option
from stopgrad.tools.cli.call_arguments import Call, Wanted
from stopgrad.tools.cli.common import FAILED, OK, Commands, listed, require_writable, wrapped, write_text
from stopgrad.tools.cli.failing import Met, conditions, met, only
from stopgrad.tools.cli.function_world import computed, explained
from stopgrad.tools.cli.inputs import defined
from stopgrad.tools.cli.user_programs import Program, loaded

STDOUT = "-"
"""The path that stands for standard output."""
MACHINES = {"github": github, "sarif": sarif}
"""The formats that name lines for other programs."""
WIDTH = 80
"""The width of reports without a terminal."""

# ------------------------------------------------------------------------------------------- arguments


def add_flow(commands: Commands) -> None:
    """The commands and their options."""
    explain = _command(
        commands, "explain", run_explain, "show where gradients flow and which lines stop them"
    )
    explain.add_argument(
        "--html", type=Path, metavar="PATH", help="also write a page, the graph beside the source"
    )
    explain.add_argument(
        "--fail-on",
        metavar="WORDS",
        help="exit with 1 if any of these is found: statuses and findings, each for all or one argument, "
        "such as idle,stopped:params.w,flows:target",
    )
    explain.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERNS",
        help="show only what is called so, such as 'encoder.*' or head.weight,head.bias; may be given often",
    )
    explain.add_argument(
        "--optimizer",
        metavar="NAME",
        help="what the file calls the optimizer, or tx,state of optax: also say what an update of it moves",
    )
    explain.add_argument(
        "--grad",
        metavar="NAME",
        help="for JAX, what the file calls what makes the gradient function, such as eqx.filter_grad",
    )
    check = _command(commands, "check", run_check, "compare gradients with finite differences, stops held")
    check.add_argument("--order", type=int, choices=(1, 2), default=1, help="of the derivatives (1)")
    check.add_argument(
        "--stops",
        choices=("hold", "program", "ignore"),
        default="hold",
        help="which stopped values stay as they are: all (hold), those of the program's own stops, none",
    )
    check.add_argument("--mode", metavar="MODES", help="of reverse,forward (all that the framework has)")
    check.add_argument("--rtol", type=float, metavar="X", help="relative tolerance (of the dtype)")
    check.add_argument("--atol", type=float, metavar="X", help="absolute tolerance (of the dtype)")
    trace = _command(
        commands, "trace-nan", run_trace_nan, "name the first operation that makes a NaN or infinity"
    )
    trace.add_argument("--no-gradient", action="store_true", help="look at the forward operations only")
    ablate = _command(commands, "ablate", run_ablate, "show for each stop what it changes and what it saves")
    ablate.add_argument("--repeats", type=int, default=5, metavar="N", help="of each timing (5)")
    for parser in (check, trace, ablate):
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="of random data (0)")


STATUS = "Exit status: 0 all is well, 1 something was found or does not agree, 2 it could not be done."
MODES = ("reverse", "forward")
LEAST = {"width": 40, "seed": 0, "repeats": 1, "rtol": 0, "atol": 0}
"""The smallest value of each option."""


def _command(commands: Commands, name: str, run: Callable[..., int], does: str) -> argparse.ArgumentParser:
    """Add a command that takes a user's function."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=does, description=f"{does.capitalize()}.", epilog=STATUS
    )
    # Optional only for argparse: "--json path.py:loss" leaves it empty, which is corrected below.
    parser.add_argument(
        "target",
        nargs="?",
        metavar="path.py:function",
        help="the function, of stopgrad, PyTorch or JAX; also package.module:function; or a model: an "
        ".onnx or .pb file, or the folder of a SavedModel",
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="what an argument is, such as x=2,3 or params.w=3:float64; may be given often",
    )
    parser.add_argument(
        "--example",
        metavar="FUNCTION",
        help="what in the file returns the arguments (<function>_example, example_<function>, example or "
        "example_inputs)",
    )
    parser.add_argument("--argnums", metavar="N,N", help="which arguments are asked about, from 0 (all)")
    parser.add_argument(
        "--json",
        nargs="?",
        const=STDOUT,
        metavar="PATH",
        help="write the report as JSON; without PATH: print it",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", *MACHINES),
        default="text",
        help="what is printed: text, JSON, annotations for GitHub Actions, or SARIF for code scanning",
    )
    parser.add_argument(
        "--width", type=int, metavar="N", help="columns of the report (the terminal's, or 80)"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours, on a terminal either")
    parser.set_defaults(run=run, parser=parser)
    return parser


def _settled(arguments: argparse.Namespace) -> argparse.Namespace:
    """The arguments, after all checks that are possible before the work."""
    if arguments.target is None and arguments.json not in (None, STDOUT):
        arguments.target, arguments.json = arguments.json, STDOUT
    if arguments.target is None:
        arguments.parser.error("the following arguments are required: path.py:function")
    if arguments.json == STDOUT:
        if arguments.format not in ("text", "json"):
            arguments.parser.error("argument --json: without a path it prints JSON; --format names another")
        arguments.json, arguments.format = None, "json"
    for name, least in LEAST.items():
        value = getattr(arguments, name, None)
        if value is not None and not value >= least:  # Refuses NaN, too.
            arguments.parser.error(f"argument --{name}: must be at least {least}")
    for path in (arguments.json, getattr(arguments, "html", None)):
        if path is not None:
            require_writable(path)
    return arguments


def _wanted(arguments: argparse.Namespace) -> Wanted:
    argnums = None
    if arguments.argnums is not None:
        try:
            argnums = [int(n) for n in arguments.argnums.split(",")]
        except ValueError:
            arguments.parser.error(
                f"argument --argnums: {arguments.argnums!r} is no list of numbers, such as 0,2"
            )
    shapes = [shape_option(text) for text in arguments.shape]
    options = {name: getattr(arguments, name, None) for name in ("optimizer", "grad")}
    trained_with = {name: text for name, text in options.items() if text is not None}
    return Wanted(shapes, arguments.example, argnums, getattr(arguments, "seed", None), trained_with)


# -------------------------------------------------------------------------------------------- running


@contextlib.contextmanager
def _target(arguments: argparse.Namespace) -> Iterator[tuple[Program, Wanted]]:
    """The target. While the block lasts, what the user's file prints stays out of what machines read."""
    wanted = _wanted(_settled(arguments))
    aside = contextlib.nullcontext() if arguments.format == "text" else contextlib.redirect_stdout(sys.stderr)
    with aside, loaded(arguments.target) as program:
        yield program, wanted


def _show(
    arguments: argparse.Namespace, report: FlowReport, data: str, program: Program, failed: Sequence[Met] = ()
) -> None:
    """Write and print a report, once all of it is made; *failed* are errors, whatever the report says."""
    if arguments.format == "text":
        width = arguments.width or max(LEAST["width"], shutil.get_terminal_size((WIDTH, 24)).columns)
        shown = report.to_text(width, False if arguments.no_color else None)
    elif arguments.format == "json":
        shown = report.to_json(indent=2)
    else:
        shown = MACHINES[arguments.format](_noticed(report, program, failed))
    if isinstance(report, sg.Flow) and arguments.html is not None:
        report.to_html(arguments.html)
    if arguments.json is not None:
        write_text(arguments.json, report.to_json(indent=2) + "\n")
    if data:
        text = wrapped(f"data: {data}", WIDTH)
        print(text, file=sys.stdout if arguments.format == "text" else sys.stderr)
    print(shown)


def _noticed(report: FlowReport, program: Program, failed: Iterable[Met]) -> Iterator[Notice]:
    """What a report says of lines; what failed are errors, and what has no line is at the function's."""
    errors = [
        notice
        for failure in failed
        for notice in at_lines("error", failure.word, f"{failure.word}: {failure.message}", failure.locations)
    ]
    lines = {_line(error) for error in errors}
    others = [notice for notice in report._notices() if _line(notice) not in lines]
    for notice in (*errors, *others):
        yield notice if notice.location else notice._replace(location=defined(program))


def _line(notice: Notice) -> tuple[str, str, int]:
    """What a notice is about: its rule, and the file and the line, if it has one."""
    at = notice.location
    return (notice.rule, "", 0) if at is None else (notice.rule, at.file, at.line)


def run_explain(arguments: argparse.Namespace) -> int:
    """Print and write where gradients flow; fail if a condition of ``--fail-on`` is met."""
    wanted = conditions(arguments.fail_on) if arguments.fail_on is not None else []
    patterns = [part.strip() for text in arguments.only for part in text.split(",") if part.strip()]
    with _target(arguments) as target:
        flow, data = explained(*target)
        flow = only(flow, patterns)
    failed = met(flow, wanted)
    _show(arguments, flow, data, target[0], failed)
    for failure in failed:
        print(f"stopgrad: {failure}", file=sys.stderr)
    return FAILED if failed else OK


def run_check(arguments: argparse.Namespace) -> int:
    """Print how far generated gradients are from finite differences."""
    names = ("order", "stops", "rtol", "atol", "seed")
    options: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    if arguments.mode is not None:
        options["modes"] = tuple(listed(arguments.mode, MODES, "--mode"))

    def compute(call: Call) -> GradientCheck:
        settings = {**call.options, **options, "raises": False}
        return sg.check_gradients(*call.args, **settings)

    check = _computed(arguments, "check", compute)
    return OK if check.passed else FAILED


def run_trace_nan(arguments: argparse.Namespace) -> int:
    """Print which operation makes the first NaN or infinity."""

    def compute(call: Call) -> NanTrace:
        return sg.trace_nan(*call.args, **call.options, gradient=not arguments.no_gradient)

    return FAILED if _computed(arguments, "trace-nan", compute).found else OK


def run_ablate(arguments: argparse.Namespace) -> int:
    """Print what each stop changes and saves."""
    options: dict[str, Any] = {name: getattr(arguments, name) for name in ("repeats", "seed")}
    _computed(arguments, "ablate", lambda call: sg.ablate(*call.args, **{**call.options, **options}))
    return OK


def _computed(arguments: argparse.Namespace, command: str, compute: Callable[[Call], Any]) -> Any:
    """Show the report of a command that computes."""
    with _target(arguments) as target:
        report, data = computed(*target, command, compute)
    _show(arguments, report, data, target[0])
    return report
