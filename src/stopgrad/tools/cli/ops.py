"""``stopgrad ops``: lists the operations, and the functions that are made of them."""

from __future__ import annotations

import argparse
import inspect
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from itertools import zip_longest

import stopgrad as sg
from stopgrad.engines import ENGINES
from stopgrad.flow.words import counted
from stopgrad.graph.op import REGISTRY, NoGradient, Op, Undefined, Unsupported
from stopgrad.tools.cli.common import OK, Commands


def add_ops(commands: Commands) -> None:
    """The command and its options."""
    ops = commands.add_parser(
        "ops",
        help="list operations and functions",
        description="List what there is: operations with their functions, operands, attributes, gradients, "
        "vmap and engines; and functions that are made of operations.",
    )
    ops.add_argument("names", nargs="*", metavar="name", help="types or functions to show; without one: all")
    ops.set_defaults(run=list_ops, parser=ops)


def list_ops(arguments: argparse.Namespace) -> int:
    """Print what each operation supports."""
    functions: dict[int, list[str]] = {}
    for name, f in inspect.getmembers(sg, callable):
        functions.setdefault(id(inspect.unwrap(f)), []).append(name)
    wanted = {name.lower() for name in arguments.names}
    names = {type: _functions(definition, functions) for type, definition in REGISTRY.items()}
    all_names = {name.lower() for type, several in names.items() for name in (type, *several)}
    composed = _made_of_operations(functions, {name for several in names.values() for name in several})
    all_names |= {name.lower() for name in composed}
    unknown = [name for name in arguments.names if name.lower() not in all_names]
    if unknown:
        arguments.parser.error(
            f"there is no operation {', '.join(map(repr, unknown))}; 'stopgrad ops' lists all"
        )
    rows = []
    for type, definition in REGISTRY.items():
        if not wanted or wanted & {name.lower() for name in (type, *names[type])}:
            parts = (_summary, _signature, _gradients, _batching, _engines)
            rows.append((type, next(iter(names[type]), ""), *[part(definition) for part in parts]))
    others = [(name, _summary(f)) for name, f in composed.items() if not wanted or name.lower() in wanted]
    # A file or pipe has no width, so nothing is wrapped.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    headings = (
        "operation",
        "function",
        "what it does",
        "operands; attributes",
        "gradient",
        "vmap",
        "engines",
    )
    if rows:
        print(plain_table(headings, rows, width))
        print(counted(len(rows), "operation"))
    if others:
        print("\n" * bool(rows) + plain_table(("function", "what it does"), others, width))
        print(counted(len(others), "function") + " made of operations")
    return OK


def _made_of_operations(
    functions: Mapping[int, Sequence[str]], named: AbstractSet[str]
) -> dict[str, Callable[..., object]]:
    """The public functions, by name, that are not one operation's."""
    composed = {}
    for names in functions.values():
        for name in names:
            f = getattr(sg, name)
            if inspect.isfunction(inspect.unwrap(f)) and name[0] != "_" and name not in named:
                composed[name] = f
    return dict(sorted(composed.items()))


def _summary(one: object) -> str:
    """The first line of the documentation."""
    return (inspect.getdoc(one) or "").partition("\n")[0].rstrip(".")


def _functions(definition: type[Op], public: Mapping[int, list[str]]) -> list[str]:
    """The public names of an operation's function, its own first."""
    if not hasattr(definition, "function"):
        return []
    function = inspect.unwrap(definition.function)
    return sorted(public.get(id(function), []), key=lambda name: name != function.__name__)


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> str:
    """Rows as text in columns; the widest columns are wrapped to fit a width, if given."""
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
"""The smallest width of a wrapped column."""


def _signature(definition: type[Op]) -> str:
    operands = ", ".join(
        [*definition.operands, *([f"*{definition.variadic}"] if definition.variadic else [])]
    )
    return "; ".join(part for part in (operands, ", ".join(definition.attributes)) if part)


def _gradients(definition: type[Op]) -> str:
    """The operands with a gradient rule; for the others, why not."""
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
    """How ``vmap`` treats the operation: by its rule, or example by example."""
    if definition.stateful or not (definition.operands or definition.variadic):
        return ""
    return "loop" if definition.batch is None else "rule"


def _engines(definition: type[Op]) -> str:
    """The engines that compute the operation; for the others, why not."""
    forms = {name: kind.form_of(definition) for name, kind in ENGINES.items()}
    lacking = [f"not {name}: {why.reason}" for name, why in forms.items() if isinstance(why, Unsupported)]
    reasons = {text.partition(": ")[2] for text in lacking}
    if len(lacking) == len(forms) and len(reasons) == 1:
        return f"none: {reasons.pop()}"
    return ", ".join([name for name, how in forms.items() if not isinstance(how, Unsupported)] + lacking)
