"""The ``stopgrad`` command: ``stopgrad tour`` runs the workloads, ``stopgrad ops`` lists the operations."""

from __future__ import annotations

import argparse
import inspect
import os
import platform
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.engines import ENGINES, engine as find_engine
from stopgrad.errors import StopgradError
from stopgrad.interpreter import lowering
from stopgrad.namespaces import require
from stopgrad.op import REGISTRY, NoGradient, Op, Undefined, Unsupported
from stopgrad.recipes import adversarial, boltzmann, em, softmax, targets
from stopgrad.recipes.result import Result
from stopgrad.tour.graphs import to_text
from stopgrad.tour.page import page

WORKLOADS: dict[str, ModuleType] = {
    "softmax": softmax,
    "em": em,
    "boltzmann": boltzmann,
    "adversarial": adversarial,
    "targets": targets,
}
OK, FAILED, ERROR = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command: 0 where all went well, 1 where a check of the tour failed, 2 where it could not."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (StopgradError, OSError) as error:
        # The line that led to it is the command's own, and tells a user nothing.
        print(f"stopgrad: {error.message if isinstance(error, StopgradError) else error}", file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("stopgrad: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stopgrad", description="Operation graphs whose gradients you can cut, see, check, run and ship."
    )
    parser.add_argument("--version", action="version", version=f"stopgrad {sg.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    tour = commands.add_parser(
        "tour",
        help="run the workloads and write a page about them",
        description="Run workloads and write one page about them.",
    )
    tour.add_argument(
        "workloads", nargs="*", metavar="workload", help=f"any of {', '.join(WORKLOADS)}; without one: all"
    )
    tour.add_argument(
        "--engine",
        choices=("auto", *ENGINES),
        default="auto",
        help="what computes (auto: xla where JAX is installed)",
    )
    tour.add_argument(
        "--out", type=Path, default=Path("tour.html"), metavar="PATH", help="the page to write (tour.html)"
    )
    tour.add_argument("--seed", type=int, default=0, metavar="N", help="of all random numbers (0)")
    tour.add_argument(
        "--graphs", action="store_true", help="also print the gradient graphs, line by line of the program"
    )
    tour.set_defaults(run=run_tour, parser=tour)
    ops = commands.add_parser(
        "ops",
        help="list the operations",
        description="List the operations: functions, operands, attributes, gradients, vmap, engines.",
    )
    ops.add_argument("names", nargs="*", metavar="name", help="types or functions to show; without one: all")
    ops.set_defaults(run=list_ops, parser=ops)
    return parser


# ----------------------------------------------------------------------------------------------- tour


def run_tour(arguments: argparse.Namespace) -> int:
    """Run the chosen workloads, print their results and write the page."""
    names = list(dict.fromkeys(arguments.workloads)) or list(WORKLOADS)
    for name in names:
        if name not in WORKLOADS:
            arguments.parser.error(f"there is no workload {name!r}; take any of {', '.join(WORKLOADS)}")
    if not arguments.out.parent.is_dir():
        arguments.parser.error(f"the folder of {arguments.out} does not exist")
    if arguments.seed < 0:
        arguments.parser.error("the seed must not be negative")
    console = require("rich.console", "stopgrad tour", "tour").Console()
    for module in ("matplotlib", "sklearn", "scipy", "pygments", "igraph"):
        require(module, "stopgrad tour", "tour")
    engine = find_engine(arguments.engine).name
    results, seconds = _run_all(names, engine, arguments.seed, console)
    _print_results(results, seconds, console)
    if arguments.graphs:
        _print_graphs(results, console)
    versions = f"stopgrad {sg.__version__}, Python {platform.python_version()}, NumPy {np.__version__}"
    facts = f"{versions}, engine {engine}, seed {arguments.seed}, {os.cpu_count()} cores, "
    _write(arguments.out, page(results, seconds, facts + f"{sum(seconds):.0f} s in all."))
    console.print(
        f"[bold]{sum(seconds):.0f} s[/bold] on {engine}. The pictures, graphs and code: {arguments.out}",
        highlight=False,
        soft_wrap=True,
    )
    return _verdict(results)


def _run_all(names: Sequence[str], engine: str, seed: int, console: Any) -> tuple[list[Result], list[float]]:
    progress = require("rich.progress", "stopgrad tour", "tour")
    columns = (
        progress.TextColumn("{task.fields[title]:<12}"),
        progress.BarColumn(24),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.description}", markup=False),
    )
    results, seconds = [], []
    with progress.Progress(*columns, console=console) as bars:
        tasks = {name: bars.add_task("", total=1.0, start=False, title=name) for name in names}
        for name, task in tasks.items():
            bars.start_task(task)
            began = time.perf_counter()

            def show(done: float, doing: str, task: Any = task) -> None:
                bars.update(task, completed=done, description=doing)

            results.append(WORKLOADS[name].run(seed, engine, show))
            seconds.append(time.perf_counter() - began)
            bars.update(task, completed=1.0, description="done")
            bars.stop_task(task)
    return results, seconds


def _print_results(results: Sequence[Result], seconds: Sequence[float], console: Any) -> None:
    table_kind, box = (
        require("rich.table", "stopgrad tour", "tour").Table,
        require("rich.box", "stopgrad tour", "tour").SIMPLE_HEAD,
    )
    for result, took in zip(results, seconds, strict=True):
        table = table_kind(
            title=f"{result.title} ({took:.1f} s)",
            title_justify="left",
            title_style="bold",
            box=box,
            padding=(0, 1),
            pad_edge=False,
        )
        table.add_column("", no_wrap=True)
        table.add_column("claim", overflow="fold")
        table.add_column("measured", justify="right", no_wrap=True)
        table.add_column("must be", no_wrap=True)
        for check in result.checks:
            mark = "[green]ok[/green]" if check.passed else "[bold red]FAILED[/bold red]"
            table.add_row(mark, check.claim, f"{check.measured:.4g}", f"{check.relation} {check.threshold:g}")
        console.print()
        console.print(table)


def escape(text: str) -> str:
    """Text for rich, which takes square brackets for markup."""
    return text.replace("[", r"\[")


def _print_graphs(results: Sequence[Result], console: Any) -> None:
    for graph in (graph for result in results for graph in result.graphs):
        console.print(
            f"\n[bold]{escape(graph.title)}[/bold]  {len(graph.forward)} forward operations, "
            f"{len(graph.generated)} for the gradient",
            highlight=False,
        )
        console.print(to_text(graph), markup=False, highlight=False, soft_wrap=True)


def _verdict(results: Sequence[Result]) -> int:
    failed = [f"{result.title}: {check}" for result in results for check in result.checks if not check.passed]
    for line in failed:
        print(f"stopgrad: check failed: {line}", file=sys.stderr)
    return FAILED if failed else OK


def _write(path: Path, text: str) -> None:
    """Write a file: the old one stays until the new one is whole."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------ ops


def list_ops(arguments: argparse.Namespace) -> int:
    """Print what each operation supports."""
    functions = {id(inspect.unwrap(f)): name for name, f in reversed(vars(sg).items()) if callable(f)}
    wanted = {name.lower() for name in arguments.names}
    known = {name.lower() for name in REGISTRY} | {
        functions[_key(d)].lower() for d in REGISTRY.values() if _key(d) in functions
    }
    unknown = [name for name in arguments.names if name.lower() not in known]
    if unknown:
        arguments.parser.error(
            f"there is no operation {', '.join(map(repr, unknown))}; 'stopgrad ops' lists all"
        )
    rows = []
    for definition in REGISTRY.values():
        function = functions.get(_key(definition), "")
        if not wanted or {definition.type.lower(), function.lower()} & wanted:
            parts = (_signature, _gradients, _batching, _engines)
            rows.append((definition.type, function, *[part(definition) for part in parts]))
    # A file or a pipe has no width of its own: there, nothing is wrapped.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    headings = ("operation", "function", "operands; attributes", "gradient", "vmap", "engines")
    print(plain_table(headings, rows, width))
    print(f"{len(rows)} operations")
    return OK


def _key(definition: type[Op]) -> int:
    """What tells the public function of an operation from others, however it is wrapped."""
    return id(inspect.unwrap(definition.function)) if hasattr(definition, "function") else 0


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> str:
    """Rows as text in columns, the widest of which are wrapped where a width is given."""
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
    while width is not None and sum(widths) + 2 * len(widths) - 2 > width and max(widths) > _NARROW:
        widths[widths.index(max(widths))] -= 1
    text = []
    for row in (headings, ["-" * w for w in widths], *rows):
        cells = [
            [part for line in cell.split("\n") for part in _wrapped(line, w)]
            for cell, w in zip(row, widths, strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            text.append("  ".join(f"{part:<{w}}" for part, w in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(text)


def _wrapped(line: str, width: int) -> Sequence[str]:
    return textwrap.wrap(line, width, subsequent_indent=" ") or [""]


_NARROW = 12
"""No column is made narrower."""


def _signature(definition: type[Op]) -> str:
    operands = ", ".join(
        [*definition.operands, *([f"*{definition.variadic}"] if definition.variadic else [])]
    )
    return "; ".join(part for part in (operands, ", ".join(definition.attributes)) if part)


def _gradients(definition: type[Op]) -> str:
    """The operands that have a rule; for the others, why not."""
    names = [*definition.operands, *([definition.variadic] if definition.variadic else [])]
    if not names:
        return "no operands"
    parts: dict[str, list[str]] = {}
    for name, rule in zip(names, definition.rules, strict=True):
        if isinstance(rule, NoGradient):
            says = rule.reason if rule.status == "stopped" else f"{rule.status}: {rule.reason}"
        elif isinstance(rule, Undefined):
            says = "an error"
        else:
            says = "yes"
        parts.setdefault(says, []).append(name)
    return "\n".join(f"{', '.join(operands)}: {says}" for says, operands in parts.items())


def _batching(definition: type[Op]) -> str:
    """How vmap treats it: at once by its rule, or example by example."""
    if definition.stateful or not (definition.operands or definition.variadic):
        return ""
    return "loop" if definition.batch is None else "rule"


def _engines(definition: type[Op]) -> str:
    """The engines that compute it; for the others, why not."""
    found = {name: lowering(definition, name) for name in ENGINES}
    lacking = [f"not {name}: {why.reason}" for name, why in found.items() if isinstance(why, Unsupported)]
    reasons = {text.partition(": ")[2] for text in lacking}
    if len(lacking) == len(found) and len(reasons) == 1:
        return f"none: {reasons.pop()}"
    return ", ".join([name for name, how in found.items() if not isinstance(how, Unsupported)] + lacking)


if __name__ == "__main__":
    sys.exit(main())
