"""What is public, with signatures and help: written to a file, and two such files compared.

    python tests/helpers/public_names.py --write before.json     # of the package that Python finds
    python tests/helpers/public_names.py --compare before.json after.json [--diff]

The comparison says what was lost, what changed and what is new. Its exit status is 1 where a name is gone, a
call that was right would now be wrong, or a command or an option of it is gone. Where something is defined
may change: the names of modules are left out of what is compared, and told at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import importlib
import inspect
import io
import json
import os
import pydoc
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

DOORS = ["xp", "xp.linalg", "xp.fft", "optimizers", "data", "distributed", "engines", "errors", "ops"]
DOORS += ["torch", "jax", "onnx", "pytest_plugin"]
NAMESPACES = ["stopgrad", *(f"stopgrad.{door}" for door in DOORS), "stopgrad_trainer"]
OURS = ("stopgrad", "stopgrad_trainer")
TEXTS = ("signature", "doc")
UNSEEN = {
    "__init__",
    "__new__",
    "__post_init__",
    "__setattr__",
    "__delattr__",
    "__getnewargs__",
    "__reduce__",
}
"""What users do not call: the first are in the signature of the class."""

Found = tuple[str, bool, dict[str, Any]]

# ------------------------------------------------------------------------------------------- one name


def is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", None) or "").split(".")[0] in OURS


def parameters_of(value: Any) -> tuple[str, list[list[str]]]:
    """The signature as it is printed, and each parameter's name, kind and default."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "", []
    return plain(str(signature)), [
        [one.name, one.kind.name, "" if one.default is one.empty else plain(repr(one.default))]
        for one in signature.parameters.values()
    ]


def plain(text: str) -> str:
    """A text without addresses and without the modules in which things are defined."""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return re.sub(r"\bstopgrad(?:_trainer)?(?:\.[a-z_]\w*)*\.(?=\w)", "", text)


def record(value: Any) -> dict[str, Any]:
    """What is known of one public thing."""
    kind = "class" if isinstance(value, type) else "function" if inspect.isroutine(value) else "attribute"
    told = kind != "attribute" or isinstance(value, (property, functools.cached_property))
    signature, parameters = parameters_of(value) if kind != "attribute" else (plain(repr(value)), [])
    return {
        "kind": kind,
        "signature": signature,
        "parameters": parameters,
        "doc": inspect.getdoc(value) or "" if told else "",
        "help": pydoc.plain(pydoc.render_doc(value)) if told else "",
        "module": str(getattr(value, "__module__", None) or ""),
    }


# ------------------------------------------------------------------------------------------- all names


def is_listed(name: str, value: Any, module: ModuleType) -> bool:
    """Whether a module means a name to be public: by ``__all__``, or else by what the name stands for."""
    if "__all__" in vars(module):
        return name in module.__all__
    thing = isinstance(value, type) or inspect.isroutine(value)
    if module.__name__ in ("stopgrad.errors", "stopgrad.pytest_plugin"):  # They import helpers of ours, too.
        return thing and is_ours(value) and value.__module__.endswith(module.__name__.split(".")[1])
    return is_ours(value) if thing else name not in ("TYPE_CHECKING", "annotations")


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Public attributes of a class, and its operators, that are defined in this package."""
    for name in sorted(dir(owner)):
        definer = next((base for base in owner.__mro__ if name in vars(base)), None)
        if definer is None or not is_ours(definer):
            continue
        value = inspect.getattr_static(owner, name)
        if isinstance(value, (classmethod, staticmethod)):
            value = value.__func__
        operator = name.startswith("__") and inspect.isfunction(value) and name not in UNSEEN
        if operator or not name.startswith("_"):
            yield name, value


def names() -> Iterator[Found]:
    """Every name, whether it is meant to be public, and what is known of it."""
    for space in NAMESPACES:
        module = importlib.import_module(space)
        yield space, True, {"kind": "module", "doc": inspect.getdoc(module) or ""}
        for name in sorted({*dir(module), *getattr(module, "__all__", ())}):
            value = getattr(module, name)
            if (name.startswith("_") and name != "__version__") or isinstance(value, ModuleType):
                continue
            listed = is_listed(name, value, module)
            yield f"{space}.{name}", listed, record(value)
            # Of operations, the class alone: its methods are those of Op.
            if listed and isinstance(value, type) and space != "stopgrad.ops":
                yield from ((f"{space}.{name}.{one}", True, record(found)) for one, found in members(value))


# ------------------------------------------------------------------------------------------- commands, pages


def help_of(main: Callable[[list[str]], Any], arguments: list[str]) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main([*arguments, "--help"])
    return told.getvalue()


def commands(main: Callable[[list[str]], Any], words: list[str]) -> Iterator[Found]:
    """A command and its sub-commands, each with its options as parameters."""
    told = help_of(main, words[1:])
    usage = told.partition("\n\n")[0]
    found = sorted(set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", told)))
    options = [[option, "option", ""] for option in found]
    known = {"kind": "command", "signature": usage, "parameters": options, "help": told}
    yield "$ " + " ".join(words), True, known
    if "command" in usage.split():
        for name in re.findall(r"^    ([a-z][\w-]*)(?:  |$)", told, re.MULTILINE):
            yield from commands(main, [*words, name])


def entry_points(root: Path) -> Iterator[Found]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    groups = {"scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    for group, points in groups.items():
        for name, target in points.items():
            module, _, attribute = target.partition(":")
            found = importlib.import_module(module)
            main = getattr(found, attribute) if attribute else found
            yield f"entry point {group} {name}", True, {"kind": "entry point", "module": target}
            if group == "scripts":
                yield from commands(main, [name])


def pages(root: Path) -> Iterator[Found]:
    """The imports that README, docs and examples show, and whether they work."""
    found = set()
    for page in [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.py")]:
        for module, taken in re.findall(
            r"(?:^|`)\s*(?:from|import) (stopgrad[\w.]*)(?: import ([\w, ]+))?",
            page.read_text(),
            re.MULTILINE,
        ):
            found |= {(module, name.split()[0]) for name in taken.split(",") if name.strip()} or {
                (module, "")
            }
    for module, name in sorted(found):
        try:
            exec(f"from {module} import {name}" if name else f"import {module}", {})
        except ImportError as error:
            print(f"a page's import fails: {error}", file=sys.stderr)
            continue
        yield f"page: {module} {name}".strip(), True, {"kind": "import"}


# ------------------------------------------------------------------------------------------- comparing


def written() -> dict[str, dict[str, Any]]:
    """Everything, by name."""
    root = Path(importlib.import_module("stopgrad").__file__ or "").resolve().parents[2]
    empty = {"kind": "", "signature": "", "parameters": [], "doc": "", "help": "", "module": ""}
    every = [*names(), *entry_points(root), *pages(root)]
    return {name: {**empty, **found, "listed": listed} for name, listed, found in every}


def breaks(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a call that was right would now be wrong."""
    if old["kind"] != new["kind"]:
        return True
    if not old["signature"] or old["kind"] == "attribute":
        return False
    now = {name: (kind, default) for name, kind, default in new["parameters"]}
    before = {name: kind for name, kind, _ in old["parameters"]}
    for name, kind, default in old["parameters"]:
        if name not in now or now[name][0] != kind or (default and default != now[name][1]):
            return True
    positions = [[n for n, kind, _ in one["parameters"] if kind.startswith("POS")] for one in (old, new)]
    return positions[1][: len(positions[0])] != positions[0] or any(
        name not in before and not default and kind.startswith(("POS", "KEY"))
        for name, (kind, default) in now.items()
    )


def help_text(one: dict[str, Any]) -> str:
    """Without the line that names the module."""
    return plain(one["help"] if one["kind"] == "command" else one["help"].partition("\n")[2])


def compare(old: dict[str, Any], new: dict[str, Any], diff: bool = False) -> int:
    """Print what differs; 1 where something was lost."""
    public = sorted(name for name in old if old[name]["listed"])
    both = [name for name in public if name in new]
    lost = [name for name in public if name not in new and not name.startswith("page")]
    broken = [name for name in both if breaks(old[name], new[name])]
    differ = {key: [name for name in both if plain(old[name][key]) != plain(new[name][key])] for key in TEXTS}
    differ["help"] = [name for name in both if help_text(old[name]) != help_text(new[name])]
    for title, found in {
        "lost names": lost,
        "lost signatures": broken,
        "lost docstrings": [name for name in differ["doc"] if not new[name]["doc"]],
        "changed signatures": [name for name in differ["signature"] if name not in broken],
        "changed docstrings": differ["doc"],
        "changed help": differ["help"],
        "new names": sorted(name for name in set(new) - set(old) if new[name]["listed"]),
        "imports that no page shows now": [name for name in public if name not in {*new, *lost}],
    }.items():
        print(f"{len(found):6}  {title}")
        for name in found:
            print(f"        {name}")
            if "signatures" in title and (diff or found is broken):
                print(f"            {old[name]['signature']}\n            {new[name]['signature']}")
            elif diff and found is differ["help"]:
                texts = help_text(old[name]).splitlines(), help_text(new[name]).splitlines()
                changes = list(difflib.unified_diff(*texts, lineterm="", n=0))[2:]
                print(*(f"            {line}" for line in changes), sep="\n")
    moves = Counter((old[name]["module"], new[name]["module"]) for name in both)
    moved = {f"{count:4}  {a} -> {b}" for (a, b), count in moves.items() if a != b}
    print(
        f"{len(moved):6}  moves of names",
        *(f"        {move}" for move in sorted(moved, key=str.split)),
        sep="\n",
    )
    print(f"{len(both):6}  names in both")
    return int(bool(lost or broken))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", type=Path, help="write all public names here")
    parser.add_argument(
        "--compare", type=Path, nargs=2, metavar=("OLD", "NEW"), help="compare two such files"
    )
    parser.add_argument("--diff", action="store_true", help="show how help changed, line by line")
    given = parser.parse_args()
    os.environ.update(COLUMNS="100", NO_COLOR="1")
    if given.write:
        found = written()
        given.write.write_text(json.dumps(found, indent=1, ensure_ascii=False))
        public = sum(one["listed"] for one in found.values())
        print(f"{len(found)} names of {sys.modules['stopgrad'].__file__}, {public} of them public")
    if given.compare:
        return compare(*(json.loads(file.read_text()) for file in given.compare), diff=given.diff)
    return 0


if __name__ == "__main__":
    sys.exit(main())
