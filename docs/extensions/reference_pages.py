"""Writes the pages of the reference into docs/api: one for each family, and one for each public name.

A family is a package of stopgrad; its page begins with the docstring of the package. What is public, the
tests' list of public names knows.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.inspect import stringify_signature
from sphinx.util.typing import stringify_annotation

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from public_names import is_listed  # noqa: E402

FAMILIES = {
    "gates": ("Gates", "ops.gates"),
    "gradients": ("Gradients", "transforms.gradients"),
    "see-and-check": ("See and check", "flow"),
    "graphs": ("Graphs", "graph"),
    "running": ("Sessions and functions", "run"),
    "control": ("Loops and branches", "transforms.control"),
    "batching": ("Batches and Jacobians", "transforms.batching"),
    "elementwise": ("Elementwise", "ops.elementwise"),
    "reductions": ("Reductions", "ops.reductions"),
    "shapes": ("Shapes", "ops.shapes"),
    "indexing": ("Indexing", "ops.indexing"),
    "order": ("Sorting, searching, sets", "ops.order"),
    "linalg": ("Linear algebra", "ops.linalg"),
    "neural": ("Neural networks", "ops.neural"),
    "losses": ("Losses", "ops.losses"),
    "random": ("Random numbers", "ops.random"),
    "special": ("Special functions", "ops.special"),
    "sources": ("Constants, parameters, assignments", "ops.structural"),
    "array-api": ("More of the array API", "ops.xp"),
    "training": ("Adapters and checkpoints", "train"),
    "devices": ("Devices", "scale"),
    "types": ("Dtypes and sizes", "base.types"),
    "errors": ("Errors", "base.errors"),
}
"""The pages for the names of ``stopgrad`` itself: title, and the package that defines them."""

DOORS = {
    "torch": ("PyTorch", "torch"),
    "jax": ("JAX", "jax"),
    "onnx": ("ONNX", "onnx"),
    "tensorflow": ("TensorFlow", "tensorflow"),
    "optimizers": ("Optimisers", "optimizers"),
    "data": ("Batches of examples", "data"),
    "distributed": ("Several processes", "distributed"),
    "engines": ("Engines", "engines"),
    "pytest": ("The pytest plugin", "pytest_plugin"),
    "xp": ("The array API", "xp"),
    "xp-linalg": ("The array API: linalg", "xp.linalg"),
    "xp-fft": ("The array API: fft", "xp.fft"),
}
"""The pages for modules that users import by themselves."""

NAMESPACES = ("random", "nn", "losses", "linalg", "fft", "tree")
"""Namespaces of functions that stand elsewhere, under the names that other libraries have for them."""


@functools.cache
def public(module: ModuleType) -> list[str]:
    """The public names of a module, without its modules and the hooks of pytest."""
    found = sorted({*dir(module), *getattr(module, "__all__", ())}, key=str.lower)
    values = {name: getattr(module, name) for name in found if not name.startswith(("_", "pytest_"))}
    return [
        name
        for name, value in values.items()
        if not isinstance(value, ModuleType) and is_listed(name, value, module)
    ]


def generated() -> dict[str, type]:
    """The operations whose functions were made from them, by the names of these functions."""
    sg = importlib.import_module("stopgrad")
    by_function = {
        id(inspect.unwrap(definition.function)): definition
        for definition in importlib.import_module("stopgrad.graph.op").REGISTRY.values()
        if hasattr(definition, "function")
    }
    functions = {name: getattr(sg, name) for name in public(sg)}
    return {
        name: by_function[id(inspect.unwrap(value))]
        for name, value in functions.items()
        if getattr(value, "__module__", "") == "stopgrad.graph.families"
    }


def family_of(name: str, value: Any, made: dict[str, type]) -> str:
    """The page on which a name of ``stopgrad`` stands."""
    home = str(getattr(made.get(name, value), "__module__", "")).removeprefix("stopgrad.")
    home = home.replace("interop.worlds", "flow")  # Where the functions of several worlds come together.
    if home == "errors" or home.startswith("base."):
        return "errors" if home.endswith("errors") else "types"
    for page, (_, package) in FAMILIES.items():
        if f"{home}.".startswith(f"{package}."):
            return page
    raise LookupError(f"{name} of {home} belongs to no family of the reference: add one to FAMILIES")


def kind_of(value: Any) -> str:
    if isinstance(value, type):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if inspect.isroutine(value) or callable(value) else "data"


def titled(title: str, line: str = "=") -> str:
    return f"{title}\n{line * len(title)}\n"


def summary(text: str) -> str:
    """The first sentence of a docstring, on one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split())


def same_as(module: str, value: Any) -> str:
    """The name of ``stopgrad`` for what another module offers, too."""
    first = importlib.import_module("stopgrad")
    name = getattr(value, "__name__", "")
    found = module != "stopgrad" and name in public(first) and getattr(first, name) is value
    return f"stopgrad.{name}" if found else ""


def name_page(module: str, name: str, value: Any) -> str:
    kind = kind_of(value)
    told = [titled(f"{module}.{name}"), f".. currentmodule:: {module}\n"]
    if first := same_as(module, value):
        told.append(f"This is :obj:`{first}`.\n")
    told.append(f".. auto{kind}:: {name}")
    if kind == "class":
        told += ["   :members:", "   :show-inheritance:"]
    return "\n".join(told) + "\n"


def family_page(title: str, module: str, about: str, folder: str, names: list[str]) -> str:
    rows = "\n".join(f"   {name}" for name in names)
    table = f".. autosummary::\n   :toctree: {folder}\n   :nosignatures:\n\n{rows}\n"
    return "\n".join([titled(title), about, "", f".. currentmodule:: {module}\n", table])


def namespaces_page(title: str, sg: ModuleType) -> str:
    """What stands in ``sg.random`` and its like; functions of ``sg`` itself are linked."""
    told = [titled(title)]
    for name in NAMESPACES:
        space = getattr(sg, name)
        heading = f"stopgrad.{name}"
        names = [one for one in space.__all__ if not one.startswith("_")]
        links = [
            f":obj:`{one} <{first}>`" if (first := same_as(heading, getattr(space, one))) else f"``{one}``"
            for one in names
        ]
        told += [titled(heading, "-"), summary(space.__doc__ or ""), "", ", ".join(links) + ".\n"]
    return "\n".join(told) + "\n"


BAR = re.compile(r"(``.*?``)|\|")
"""A bar, which means a substitution in a page; as a group, code, where it is one."""


def operations_page(title: str) -> str:
    """The class of each operation by family, with the function that makes it."""
    sg = importlib.import_module("stopgrad")
    functions = {id(inspect.unwrap(getattr(sg, name))): name for name in public(sg)}
    told = [
        titled(title),
        "``sg.ops.Exp.create(scope, x)`` adds an operation to a scope's graph; so does the function\n"
        "of its row, which takes what can be read as a tensor. ``help(sg.ops.Exp)`` has the constraints.\n",
    ]
    definitions = importlib.import_module("stopgrad.graph.op").REGISTRY
    left = len(definitions)
    for heading, package in [*FAMILIES.values(), ("Fourier transforms", "ops.fourier")]:
        rows = []
        for name, definition in sorted(definitions.items()):
            if not f"{definition.__module__}.".startswith(f"stopgrad.{package}."):
                continue
            function = functions.get(id(inspect.unwrap(getattr(definition, "function", definition))))
            link = f":obj:`sg.{function} <stopgrad.{function}>`" if function else ""
            told_of_it = BAR.sub(lambda found: found[1] or r"\|", summary(definition.__doc__))
            rows.append(f"   * - ``{name}``\n     - {link}\n     - {told_of_it}")
        if rows:
            told += [titled(heading, "-"), ".. list-table::\n   :widths: 25 25 50\n", *rows, ""]
            left -= len(rows)
    if left:
        raise LookupError(f"{left} operations belong to no family of the reference: add one to FAMILIES")
    return "\n".join(told) + "\n"


def file_of(full: str, value: Any) -> str:
    """The name of a page's file; ``SGD`` and ``sgd`` have two, also where the case of letters is ignored."""
    return f"{full}-class" if isinstance(value, type) else full


def pages(files: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The path and the text of each page; the names of their files are put into *files*."""
    sg = importlib.import_module("stopgrad")
    made = generated()
    grouped: dict[str, list[str]] = {page: [] for page in FAMILIES}
    for name in public(sg):
        grouped[family_of(name, getattr(sg, name), made)].append(name)
    entries = []
    for page, (title, package) in [*FAMILIES.items(), *DOORS.items()]:
        module = importlib.import_module(f"stopgrad.{package}")
        spoken, owner = ("stopgrad", sg) if page in FAMILIES else (f"stopgrad.{package}", module)
        names = grouped[page] if page in FAMILIES else public(module)
        for name in names:
            value = getattr(owner, name)
            files[f"{spoken}.{name}"] = file_of(f"{spoken}.{name}", value)
            yield f"{page}/{files[f'{spoken}.{name}']}", name_page(spoken, name, value)
        about = summary(module.__doc__ or "")
        yield page, family_page(title, spoken, about, page, names)
        entries.append((page, title, len(names), about))
    title = "Namespaces under other libraries' names"
    yield "namespaces", namespaces_page(title, sg)
    entries.append(("namespaces", title, len(NAMESPACES), "Which functions they have."))
    title = "Classes of operations"
    yield "operations", operations_page(title)
    count = len(importlib.import_module("stopgrad.graph.op").REGISTRY)
    entries.append(("operations", title, count, "What ``sg.ops`` holds, by family."))
    told = [titled("Every public name"), ".. toctree::\n   :hidden:\n"]
    told += [f"   {page}" for page, *_ in entries]
    told += ["", ".. list-table::\n   :widths: 25 8 67\n"]
    for page, title, count, about in entries:
        told.append(f"   * - :doc:`{title} <{page}>`\n     - {count}\n     - {about}")
    yield "index", "\n".join(told) + "\n"


def write(app: Sphinx) -> None:
    """Write what is not there yet or has changed, and remove what is no more."""
    folder = Path(app.srcdir) / "api"
    files: dict[str, str] = {}
    written = {folder / f"{path}.rst": text for path, text in pages(files)}
    app.config.autosummary_filename_map = files
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for old in set(folder.glob("*/*.rst")) - set(written):
        old.unlink()


# ------------------------------------------------------------------------------- signatures and source


def signature(
    _app: Sphinx, what: str, _name: str, value: Any, _options: Any, shown: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """The signature with annotations as they are written: ``ArrayLike``, and not what it stands for."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return shown, returns
    parameters = [one for one in found.parameters.values() if one.name not in ("self", "cls")]
    found = found.replace(parameters=parameters)
    written = found.return_annotation
    arrow = None if written is found.empty or what == "class" else stringify_annotation(written, "smart")
    return stringify_signature(found, show_return_annotation=False), arrow


def source_module(_app: Sphinx, module: str, name: str) -> str | None:
    """The module of the operation from which a function was made."""
    definition = generated_now().get(name) if module == "stopgrad" else None
    return definition.__module__ if definition else None


def source_of(_app: Sphinx, module: str) -> tuple[str, dict[str, Any]] | None:
    return source_with_places(module)


@functools.cache
def source_with_places(module: str) -> tuple[str, dict[str, Any]] | None:
    """The source of a module, with the places of functions that no ``def`` of their name makes."""
    sg = importlib.import_module("stopgrad")
    places = {name: one for name, one in generated_now().items() if one.__module__ == module}
    functions = {name: inspect.unwrap(getattr(sg, name)) for name in public(sg) if name not in places}
    places |= {name: one for name, one in functions.items() if getattr(one, "__module__", "") == module}
    if not places:
        return None
    analyzer = ModuleAnalyzer.for_module(module)
    analyzer.find_tags()
    tags = dict(analyzer.tags)
    for name, one in places.items():
        if name not in tags and (isinstance(one, type) or inspect.isfunction(one)):
            lines, first = inspect.getsourcelines(one)
            tags[name] = ("def", first, first + len(lines) - 1)
    return analyzer.code, tags


BACK = re.compile(r'(<a class="viewcode-back" href="[^"]*/(stopgrad[\w.]*)\.\w+(?:-class)?\.html#)([\w.]+)')


def back_links(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """A page of source leads back to the name that the page of the reference has."""
    if page.startswith("_modules/"):
        modules = sorted(["stopgrad", *(f"stopgrad.{door}" for _, door in DOORS.values())], key=len)

        def right(found: re.Match[str]) -> str:
            old = [one for one in modules if found[3].startswith(f"{one}.")][-1]
            return f"{found[1]}{found[2]}{found[3].removeprefix(old)}"

        context["body"] = BACK.sub(right, context["body"])


generated_now = functools.cache(generated)


class BuiltinsAreNotOurs(SphinxPostTransform):
    """``bool`` in an annotation is Python's: no link to ``stopgrad.bool``."""

    default_priority = 5

    def run(self, **_: Any) -> None:
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node.get("reftype") == "class" and node.get("reftarget") in vars(builtins):
                node.replace_self(nodes.Text(node["reftarget"]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write, priority=100)
    app.connect("autodoc-process-signature", signature)
    app.connect("viewcode-follow-imported", source_module)
    app.connect("viewcode-find-source", source_of)
    app.connect("html-page-context", back_links)
    app.add_post_transform(BuiltinsAreNotOurs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
