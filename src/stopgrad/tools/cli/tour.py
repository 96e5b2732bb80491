"""``stopgrad tour``: runs the workloads and writes a page about them."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

import stopgrad as sg
from stopgrad.base.errors import StopgradError
from stopgrad.base.namespaces import require
from stopgrad.engines import ENGINES, engine as find_engine
from stopgrad.tools.cli.common import FAILED, OK, Commands, require_writable, write_text
from stopgrad.tools.recipes import adversarial, boltzmann, em, softmax, targets
from stopgrad.tools.recipes.result import Result
from stopgrad.tools.tour.graph_pictures import to_text
from stopgrad.tools.tour.page import page

if TYPE_CHECKING:
    from rich.console import Console

WORKLOADS: dict[str, ModuleType] = {
    "softmax": softmax,
    "em": em,
    "boltzmann": boltzmann,
    "adversarial": adversarial,
    "targets": targets,
}


def add_tour(commands: Commands) -> None:
    """The command and its options."""
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


def run_tour(arguments: argparse.Namespace) -> int:
    """Run the chosen workloads, print their results and write the page."""
    names = list(dict.fromkeys(arguments.workloads)) or list(WORKLOADS)
    for name in names:
        if name not in WORKLOADS:
            arguments.parser.error(f"there is no workload {name!r}; take any of {', '.join(WORKLOADS)}")
    try:
        require_writable(arguments.out)
    except StopgradError as error:
        arguments.parser.error(error.message)
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
    write_text(arguments.out, page(results, seconds, facts + f"{sum(seconds):.0f} s in all."))
    console.print(
        f"[bold]{sum(seconds):.0f} s[/bold] on {engine}. The pictures, graphs and code: {arguments.out}",
        highlight=False,
        soft_wrap=True,
    )
    return _verdict(results)


def _run_all(
    names: Sequence[str], engine: str, seed: int, console: Console
) -> tuple[list[Result], list[float]]:
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


def _print_results(results: Sequence[Result], seconds: Sequence[float], console: Console) -> None:
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
    """Text for rich, with square brackets escaped, which are markup there."""
    return text.replace("[", r"\[")


def _print_graphs(results: Sequence[Result], console: Console) -> None:
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
