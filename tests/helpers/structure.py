"""How the source is built: lines per package, arrows between packages, names; journeys, and the import.

A *room* is what stands at the root of the package: a folder, or a single file. An *arrow* leads from a room
to one that it imports from, be it for type checkers only. *Floors* are the rooms on the longest way along
arrows.

    python tests/helpers/structure.py                 # lines, rooms, arrows, names
    python tests/helpers/structure.py --journeys      # calls that cross files and rooms
    python tests/helpers/structure.py --imports       # what the import and the command load, and how long

Each works on any tree (``--source ../other/src/stopgrad``), so that two states can be compared.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))  # For pytest, which looks into this file for examples.

from journeys import journeys, loaded

SOURCE = Path(__file__).resolve().parents[2] / "src" / "stopgrad"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
ORDER = " ".join(re.findall(r"^ *(\w+) --> \w+$", PAGE.read_text(), re.MULTILINE)[::-1])
"""The packages, from the ground up, as the page draws them."""
"""The rooms from the ground up; commas join those of one floor. Arrows lead down."""
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
LONG_MODULE, LONG_FUNCTION = 600, 60
COLUMNS = ["modules", "code", "imports", "docstrings", "comments", "blank"]
COLUMNS += ["functions", "classes", "parameters"]

# ------------------------------------------------------------------------------------------- lines


def span(node: Any) -> range:
    """The lines of a node."""
    return range(node.lineno, node.end_lineno + 1)


def is_text(node: Any) -> bool:
    """Whether a statement is a docstring, of an attribute too."""
    value = getattr(node, "value", None)
    return isinstance(node, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str)


def is_long(function: Any) -> bool:
    """Whether a function is, without its docstring."""
    documented = len(span(function.body[0])) if is_text(function.body[0]) else 0
    return len(span(function)) - documented > LONG_FUNCTION


def measure(text: str) -> Counter[str]:
    """Figures of a module. Each of its lines is one of code, imports, docstrings, comments and blank."""
    nodes = list(ast.walk(ast.parse(text)))
    functions = [node for node in nodes if isinstance(node, FUNCTION)]
    documents = {n for node in nodes if is_text(node) for n in span(node)}
    imports = {n for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for n in span(node)}
    lines = text.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {t.start[0] for t in tokens if t.type == tokenize.COMMENT and t.line.lstrip()[0] == "#"}
    found: Counter[str] = Counter(
        modules=1,
        functions=len(functions),
        classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
        long_modules=int(len(lines) > LONG_MODULE),
        long_functions=sum(map(is_long, functions)),
    )
    for n, line in enumerate(lines, 1):
        if n in documents:  # With the blank lines within.
            found["docstrings"] += 1
        elif not line.strip():
            found["blank"] += 1
        elif n in comments:
            found["comments"] += 1
        else:
            found["imports" if n in imports else "code"] += 1
    for function in functions:
        given = function.args
        for one in given.posonlyargs + given.args + given.kwonlyargs:  # Without *args and **kwargs.
            if one.annotation is None and one.arg in ("self", "cls"):
                continue
            found["parameters"] += 1
            alone = isinstance(one.annotation, ast.Name) and one.annotation.id == "Any"
            found["any"] += alone
            found["any_within"] += not alone and any(getattr(n, "id", "") == "Any" for n in ast.walk(one))
    return found


# ------------------------------------------------------------------------------------------- arrows


class Tree:
    """The modules of a package, and what they import from one another."""

    def __init__(self, source: Path) -> None:
        self.name = source.name
        self.texts: dict[str, str] = {}
        for file in sorted(source.rglob("*.py")):
            dotted = ".".join(file.relative_to(source.parent).with_suffix("").parts)
            self.texts[dotted.removesuffix(".__init__")] = file.read_text()

    def room(self, module: str) -> str:
        return module.split(".")[1] if "." in module else "__init__"

    def imported(self, module: str) -> Iterator[str]:
        """The modules of this package that one imports."""
        for node in ast.walk(ast.parse(self.texts[module])):
            found: list[str] = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                wholes = [f"{node.module}.{alias.name}" for alias in node.names]
                found = [whole if whole in self.texts else node.module for whole in wholes]
            yield from (name for name in found if name.split(".")[0] == self.name)

    def arrows(self) -> dict[tuple[str, str], list[str]]:
        """Pairs of rooms, with the imports that join them."""
        found = defaultdict(list)
        for module in self.texts:
            for name in sorted(set(self.imported(module))):
                if self.room(module) != self.room(name):
                    found[self.room(module), self.room(name)].append(f"{module} <- {name}")
        return dict(found)


def floors(arrows: Iterable[tuple[str, str]]) -> tuple[int, list[str]]:
    """How many rooms the longest way along the arrows has; and the rooms on a way that comes back."""
    out = defaultdict(set)
    for one, other in arrows:
        out[one].add(other)
    circular: set[str] = set()
    heights: dict[str, int] = {}

    def height(room: str, way: tuple[str, ...]) -> int:
        if room in way:
            circular.update(way[way.index(room) :])
            return 0
        if room not in heights:
            heights[room] = 1 + max((height(other, (*way, room)) for other in sorted(out[room])), default=0)
        return heights[room]

    return max((height(room, ()) for room in sorted(out)), default=1), sorted(circular)


def shared(modules: Iterable[str], below: Callable[[str], str]) -> dict[str, list[str]]:
    """Last names that several modules below one parent have, with their parents."""
    found = defaultdict(list)
    for module in modules:
        parent, _, name = module.rpartition(".")
        if parent and not name.startswith("__"):
            found[f"{below(module)} {name}".strip()].append(parent.partition(".")[2] or "the root")
    return {name: parents for name, parents in sorted(found.items()) if len(parents) > 1}


def structure(source: Path, order: str = ORDER) -> dict[str, Any]:
    """All figures of a tree."""
    tree = Tree(source)
    packages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for module, text in tree.texts.items():
        packages[tree.room(module)].update(measure(text))
    level = {room: n for n, floor in enumerate(order.split()) for room in floor.split(",")}
    arrows = tree.arrows()
    height, circular = floors(arrows)
    back = [p for p in arrows if p[0] in level and p[1] in level and level[p[0]] < level[p[1]]]
    return {
        "packages": {room: dict(packages[room]) for room in sorted(packages)},
        "total": dict(sum(packages.values(), Counter())),
        "entries at the root": len([path for path in source.iterdir() if path.name != "__pycache__"]),
        "rooms": len(packages),
        "floors": height,
        "arrows": len(arrows),
        "imports between rooms": sum(map(len, arrows.values())),
        "rooms in circles": circular,
        "arrows back": {f"{one} <- {other}": arrows[one, other] for one, other in back},
        "rooms not in the order": sorted(set(packages) - set(level)),
        "names shared within a room": shared(tree.texts, tree.room),
        "names shared anywhere": shared(tree.texts, lambda _: ""),
        "rooms that import from others": {
            a: sorted(b for c, b in arrows if c == a) for a, _ in sorted(arrows)
        },
    }


# ------------------------------------------------------------------------------------------- printing


def table(head: list[str], rows: Iterable[list[Any]]) -> str:
    """Rows below one another, numbers to the right."""
    cells = [head, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            f"{cell:{'<' if column == 0 else '>'}{widths[column]}}" for column, cell in enumerate(row)
        ).rstrip()
        for row in cells
    )


def as_text(found: dict[str, Any]) -> str:
    head = ["package", *COLUMNS, "Any", "within", f"modules>{LONG_MODULE}", f"functions>{LONG_FUNCTION}"]
    rows = []
    for room, one in [*found["packages"].items(), ("all", found["total"])]:
        parts = (one.get(key, 0) / max(one.get("parameters", 0), 1) for key in ("any", "any_within"))
        counts = [one.get(column, 0) for column in COLUMNS]
        long = [one.get("long_modules", 0), one.get("long_functions", 0)]
        rows.append([room, *counts, *(f"{part:.1%}" for part in parts), *long])
    lines = [table(head, rows), "", "Any: share of the parameters; within: Any as a part of a type.", ""]
    for key, value in list(found.items())[2:]:
        lines.append(f"{value if isinstance(value, int) else len(value):6}  {key}")
        if isinstance(value, dict):
            lines += [f"        {name}: {', '.join(members)}" for name, members in value.items()]
        elif isinstance(value, list) and value:
            lines.append(f"        {', '.join(value)}")
    return "\n".join(lines)


def journeys_as_text(found: dict[str, dict[str, Any]]) -> str:
    head = ["journey", "calls", "across_files", "across_rooms", "files", "rooms"]
    lines = [table(head, [[name, *(one[key] for key in head[1:])] for name, one in found.items()])]
    lines += [f"\n{name}, first entered:\n  {' '.join(one['first entered'])}" for name, one in found.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, default=SOURCE, help="the package's folder")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--order", default=ORDER, help="rooms from the ground up: 'a b,c d'")
    parser.add_argument("--journeys", action="store_true", help="count calls that cross files and rooms")
    parser.add_argument("--imports", action="store_true", help="count what the import loads")
    given = parser.parse_args()
    source = given.source.resolve()
    if given.journeys:
        found = journeys(source)
        print(journeys_as_text(found))
    elif given.imports:
        ours = loaded(source, source.name)
        found = {
            "import": ours,
            "import of the others alone": loaded(source, *ours["of others"]),
            "the command with --help": loaded(source, source.name, arguments=["--help"]),
        }
        for name, one in found.items():
            print(f"{name}:", *(f"  {key}: {value}" for key, value in one.items()), sep="\n")
    else:
        found = structure(source, given.order)
        print(as_text(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
