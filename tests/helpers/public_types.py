"""Writes the stubs of the public functions: what each returns, by what it is given.

    python tests/helpers/public_types.py

An operation is defined once, and its function is annotated as it is written: it takes an ``ArrayLike`` and
returns a ``Tensor``, which is anything. For users, each such function gets two or more forms: of numbers and
arrays it returns an array; with an output among its operands it returns an output. The stubs stand beside
the modules from which users take the functions; a test holds that they are those that are written here.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, get_overloads

SOURCE = Path(__file__).parents[2] / "src"

DOORS = {
    "stopgrad.ops.functions": "ops/functions.pyi",
    "stopgrad.ops.namespaces.fft": "ops/namespaces/fft.pyi",
    "stopgrad.ops.namespaces.linalg": "ops/namespaces/linalg.pyi",
    "stopgrad.ops.namespaces.losses": "ops/namespaces/losses.pyi",
    "stopgrad.ops.namespaces.nn": "ops/namespaces/nn.pyi",
    "stopgrad.ops.namespaces.random": "ops/namespaces/random.pyi",
    "stopgrad.ops.xp": "ops/xp/__init__.pyi",
}
"""The modules that users read, in an order in which later ones take from earlier ones what they share."""

_HEAD = '''"""Written by tests/helpers/public_types.py: what the functions return, by what they are given.

Of numbers and arrays they return an array, and with an output among their operands an output. Where a graph
is the default one, what they make of numbers is an output, too: of that, type checkers know nothing.
"""

# A list of arrays fits the form for lists with outputs, too; the first form that fits is taken.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
'''


# ------------------------------------------------------------------------------------------ parameters


@dataclass
class Form:
    """One form of a function: its parameters as they are written, and what it returns."""

    parameters: list[tuple[inspect.Parameter, str, bool]]
    returns: str

    def written(self, name: str) -> str:
        parts: list[str] = []
        star = slash = False
        for parameter, annotation, optional in self.parameters:
            if slash and parameter.kind is not parameter.POSITIONAL_ONLY:
                parts.append("/")
                slash = False
            slash = parameter.kind is parameter.POSITIONAL_ONLY
            if parameter.kind is parameter.KEYWORD_ONLY and not star:
                parts.append("*")
                star = True
            mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
            star = star or parameter.kind is parameter.VAR_POSITIONAL
            default = f" = {_default(parameter.default)}" if optional else ""
            parts.append(f"{mark}{parameter.name}: {annotation}{default}")
        if slash:
            parts.append("/")
        return f"def {name}({', '.join(parts)}) -> {self.returns}: ..."


def _default(value: object) -> str:
    plain = value is None or isinstance(value, (bool, int, str))
    return repr(value) if plain and len(repr(value)) < 40 else "..."


def _annotations(function: Callable[..., Any]) -> tuple[inspect.Signature, list[str], str]:
    """A function's signature, and the annotations of its parameters and of its result, as written."""
    signature = inspect.signature(function)
    given = dict(inspect.unwrap(function).__annotations__)
    returns = given.pop("return")
    unnamed = [text for name, text in given.items() if name not in signature.parameters]
    texts = [
        given[name] if name in given else unnamed.pop(0) for name in signature.parameters
    ]  # A function of a family has its own names for what is annotated under the family's.
    return signature, texts, returns


def forms(function: Callable[..., Any]) -> list[Form]:
    """The forms of a function; the first that fits is taken."""
    overloads = get_overloads(inspect.unwrap(function))
    if overloads:  # Written by hand.
        return [_as_written(one) for one in overloads]
    signature, texts, returns = _annotations(function)
    parameters = list(signature.parameters.values())
    optional = [one.default is not one.empty for one in parameters]
    operands = [i for i, text in enumerate(texts) if _OPERAND.search(text)]
    if not operands or not _TENSOR.search(returns) or function.__name__ in _EITHER:
        result = "Any" if function.__name__ in _EITHER else "NumpyArray"
        return [Form(list(zip(parameters, texts, optional, strict=True)), _TENSOR.sub(result, returns))]
    numbers = [_OPERAND.sub("Numbers", text.replace("ArrayLike | Dim", "ArrayLike")) for text in texts]
    found = [Form(list(zip(parameters, numbers, optional, strict=True)), _TENSOR.sub("NumpyArray", returns))]
    for i in operands:
        found += _with_output(parameters, texts, optional, i, _TENSOR.sub("Output", returns))
        if texts[i].startswith("Sequence") or parameters[i].kind is inspect.Parameter.VAR_POSITIONAL:
            break  # That form takes whatever the first did not.
    return found


def _as_written(function: Callable[..., Any]) -> Form:
    signature, texts, returns = _annotations(function)
    parameters = list(signature.parameters.values())
    optional = [one.default is not one.empty for one in parameters]
    return Form(list(zip(parameters, texts, optional, strict=True)), returns)


def _with_output(
    parameters: list[inspect.Parameter], texts: list[str], optional: list[bool], i: int, returns: str
) -> Iterator[Form]:
    """The forms in which the i-th parameter is an output, or holds some."""
    chosen = list(texts)
    if parameters[i].kind is not inspect.Parameter.VAR_POSITIONAL and not texts[i].startswith("Sequence"):
        chosen[i] = "Tensors"
    needed = [value and k != i for k, value in enumerate(optional)]
    before = any(needed[:i]) and parameters[i].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and optional[i]
    if before:  # By position, everything before it is given, too; by name, it may stand alone.
        given = [value and k > i for k, value in enumerate(needed)]
        yield Form(list(zip(parameters, chosen, given, strict=True)), returns)
        named = [
            one.replace(kind=one.KEYWORD_ONLY) if k >= i and one.kind is one.POSITIONAL_OR_KEYWORD else one
            for k, one in enumerate(parameters)
        ]
        yield Form(list(zip(named, chosen, needed, strict=True)), returns)
    else:
        yield Form(list(zip(parameters, chosen, needed, strict=True)), returns)


_EITHER = ("constant",)
"""What is called for its output in a graph, and gives an array elsewhere: type checkers cannot know which."""

_OPERAND = re.compile(r"\bArrayLike\b")
_TENSOR = re.compile(r"\bTensor\b")


# --------------------------------------------------------------------------------------------- imports


@functools.cache
def _defined() -> dict[str, list[str]]:
    """By name, the modules in whose source it is defined at the top."""
    found: dict[str, list[str]] = {}
    for path in sorted((SOURCE / "stopgrad").rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            targets: Iterable[Any] = ()
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                found.setdefault(node.name, []).append(module)
            elif isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(module)
    return found


_ELSEWHERE = {
    **dict.fromkeys(["Any", "Literal", "overload"], "typing"),
    **dict.fromkeys(["Callable", "Iterable", "Mapping", "Sequence"], "collections.abc"),
    "AbstractContextManager": "contextlib",
    "Numbers": "stopgrad.base.arrays",
    "Tensors": "stopgrad.base.arrays",
    "NumpyArray": "stopgrad.graph.operands",
}


def home_of(name: str, space: dict[str, Any]) -> str | None:
    """The module from which a name in an annotation is imported; None for one of Python's own."""
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if name in ("None", "True", "False", "builtins") or name in dir(builtins):
        return None
    modules = _defined()[name]
    if name in space:
        same = [one for one in modules if getattr(importlib.import_module(one), name, None) is space[name]]
        modules = [one for one in same if one == space.get("__name__")] or same
    return min(modules, key=len)


@dataclass
class Stub:
    """The stub of one module."""

    module: ModuleType
    imports: dict[str, set[str]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def function(self, name: str, function: Callable[..., Any]) -> None:
        written = forms(function)
        space = dict(inspect.unwrap(function).__globals__)
        if len(written) > 1:
            self.take("overload", "typing")
        for form in written:
            text = form.written(name)
            if "bool" in public_names(self.module):  # It is an element type there.
                text = re.sub(r"\bbool\b", "builtins.bool", text)
            self.lines += ["@overload", text] if len(written) > 1 else [text]
            bare = re.sub(r"'[^']*'", "", text.replace(f"def {name}(", "(", 1))
            for parameter, _, _ in form.parameters:
                bare = re.sub(rf"(?<![\w.]){parameter.name}:", "", bare)
            for word in dict.fromkeys(re.findall(r"(?<![\w.])[A-Za-z_]\w*", bare)):
                if isinstance(space.get(word), (TypeVar, ParamSpec)):
                    self.variables[word] = type(space[word]).__name__
                    continue
                home = home_of(word, space)
                if home is not None:
                    self.take(word, home)

    def take(self, name: str, module: str) -> None:
        self.imports.setdefault(module, set()).add(name)

    def again(self, name: str, module: str, other: str) -> None:
        """Export under this name what another module has as *other*."""
        self.take(f"{other} as {name if name == other else f'_{other}'}", module)
        if name != other:
            self.lines.append(f"{name} = _{other}")

    def text(self) -> str:
        order = sorted(self.imports, key=lambda one: (one.startswith("stopgrad"), one))
        for kind in self.variables.values():
            self.take(kind, "typing")
        plain = ["import builtins"] if any("builtins." in line for line in self.lines) else []
        lines = [f"from {one} import {', '.join(sorted(self.imports[one]))}" for one in order]
        made = [f'_{name} = {kind}("_{name}")' for name, kind in sorted(self.variables.items())]
        names = "|".join(self.variables) or "(?!)"
        own = [re.sub(rf"(?<![\w.])({names})(?!\w)", r"_\1", line) for line in self.lines]
        return "\n".join([_HEAD, *plain, *lines, "", *made, "", *own, ""])


def public_names(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or dir(module)
    return [
        name
        for name in names
        if not name.startswith("_") and name != "annotations" and not inspect.ismodule(getattr(module, name))
    ]


def stubs() -> dict[str, str]:
    """The text of each stub, by its path below the package."""
    known: dict[int, tuple[str, str]] = {}
    found = {}
    for door, path in DOORS.items():
        module = importlib.import_module(door)
        stub = Stub(module)
        for name in public_names(module):
            value = getattr(module, name)
            if id(value) in known and inspect.isfunction(value):
                home, other = known[id(value)]
                if home == door:
                    stub.lines.append(f"{name} = {other}")
                else:
                    stub.again(name, home, other)
            elif inspect.isfunction(value):
                stub.function(name, value)
                known[id(value)] = door, name
            else:
                _value(stub, name, value)
        found[path] = stub.text()
    return found


def _value(stub: Stub, name: str, value: object) -> None:
    """A public name that is no function: a class or an element type, or a number or text."""
    if value is None or isinstance(value, (int, float, str, tuple)):
        kind = (
            "None"
            if value is None
            else "tuple[str, ...]"
            if isinstance(value, tuple)
            else type(value).__name__
        )
        stub.lines.append(f"{name}: {kind}")
        return
    for other in (name, f"{name}_"):
        for module in _defined().get(other, ()):
            if module == "stopgrad":
                continue
            if getattr(importlib.import_module(module), other, None) is value:
                stub.again(name, module, other)
                return
    raise LookupError(f"{stub.module.__name__}.{name} is defined nowhere at the top of a module")


def main() -> None:
    for path, text in stubs().items():
        (SOURCE / "stopgrad" / path).write_text(text)
        sys.stdout.write(f"{path}: {text.count(chr(10))} lines\n")


if __name__ == "__main__":
    main()
