"""Loads the user's file as Python would, and finds the function that a command is about."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from stopgrad.base.errors import ArgumentError, MissingFileError
from stopgrad.flow.source_lines import shown_file
from stopgrad.graph.graph import Operation, Output
from stopgrad.interop.value_worlds import is_module
from stopgrad.tools.cli import models

FORM = "name it as path.py:function or package.module:function"


class Program(NamedTuple):
    """The subject of a command.

    Attributes:
        target: its name in messages, such as ``"loss.py:loss"``.
        name: of the function in its file.
        value: the function; or an output of a graph, or a PyTorch module or its class.
        names: the global names of the file.
    """

    target: str
    name: str
    value: Any
    names: dict[str, Any]


@contextlib.contextmanager
def loaded(target: str) -> Iterator[Program]:
    """The program that *target* names; inside the block, imports work as they do in that file.

    Args:
        target: ``path.py:function``, ``package.module:function``; the function may be an attribute of
            something else (``model.loss``). Or a model: ``model.onnx``, ``graph.pb``, the folder of a
            SavedModel; after a colon, a node of the graph, or a signature.

    Raises:
        MissingFileError: there is no such file or module.
        ArgumentError: it holds no such function, or none was named.
    """
    named = models.named(target)
    if named is not None:
        yield Program(target, named[1], models.loaded(*named), {})
        return
    place, name = split(target)
    with contextlib.ExitStack() as after:
        after.callback(_restore, list(sys.path), list(sys.argv))
        try:
            module = _from_file(Path(place), after) if is_file(place) else _from_module(place)
            yield _program_in(module, place, name)
        except SystemExit as error:
            raise ArgumentError(
                f"{place} ends the program (exit status {error.code}); put what it does when it is run "
                'below if __name__ == "__main__":'
            ) from None


def _restore(path: list[str], arguments: list[str]) -> None:
    sys.path[:], sys.argv[:] = path, arguments


def split(target: str) -> tuple[str, str]:
    """The file or module of a target, and the name in it, which may be empty."""
    place, colon, name = target.rpartition(":")
    if not colon or (name and not all(part.isidentifier() for part in name.split("."))):
        place, name = target, ""
    if not place:
        raise ArgumentError(f"{target!r} names no file; {FORM}")
    return place, name


def is_file(place: str) -> bool:
    """Whether a place is the path of a file rather than a module's name."""
    dotted = all(part.isidentifier() for part in place.split("."))
    return not dotted or place.endswith(".py") or os.path.exists(place)


class _Script(SourceFileLoader):
    """Loads a file without writing bytecode beside it."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        pass


def _from_file(path: Path, after: contextlib.ExitStack) -> ModuleType:
    shown = shown_file(str(path))
    if path.is_dir():
        raise ArgumentError(f"{shown} is a folder; {FORM}")
    if not path.exists():
        near = _near(path)
        raise MissingFileError(
            f"there is no file {shown}{f'; there is {near}' if near else f' in {Path.cwd()}'}"
        )
    # The file's name, unless another module has it.
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_{path.parent.resolve().name}"
    loader = _Script(name, str(path.absolute()))
    spec = importlib.util.spec_from_file_location(name, path.absolute(), loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv[:] = [str(path)]
    sys.modules[name] = module
    after.callback(sys.modules.pop, name, None)
    try:
        loader.exec_module(module)
    except ImportError as error:
        if "relative import" in str(error):
            raise ArgumentError(
                f"{shown} belongs to a package ({error}); name it as package.module:function, "
                "from the folder that holds the package"
            ) from None
        raise
    except ValueError as error:  # The bytes are no text.
        if error.__traceback__ is not None and "null bytes" in str(error):
            raise ArgumentError(f"{shown} is no Python: {error}") from None
        raise
    return module


def _near(path: Path) -> str:
    """An existing Python file that may be meant in place of a missing one."""
    with contextlib.suppress(OSError):
        beside = [file.name for file in path.parent.iterdir() if file.suffix == ".py"]
        if close := difflib.get_close_matches(path.name, [*beside], 1):
            return shown_file(str(path.parent / close[0]))
    return ""


def _from_module(place: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{place}.".startswith(f"{error.name}."):
            raise MissingFileError(
                f"there is no module {error.name}, and no file {place}; {FORM}, from the folder that holds it"
            ) from None
        raise


# ----------------------------------------------------------------------------------------- the name in it


def candidates(names: dict[str, Any], module: str) -> list[str]:
    """The functions that a file defines itself, and the graph outputs in it."""
    return [
        name
        for name, value in names.items()
        if not name.startswith("_")
        and (
            isinstance(value, (Output, Operation))
            or (callable(value) and not inspect.isclass(value) and getattr(value, "__module__", "") == module)
        )
    ]


def _program_in(module: ModuleType, place: str, name: str) -> Program:
    names = vars(module)
    shown = shown_file(place) if is_file(place) else place
    functions = candidates(names, module.__name__)
    has = f"{shown} has {', '.join(functions)}" if functions else f"{shown} defines no function"
    if not name:
        cure = f": {shown}:{functions[0]}" if functions else f"; {FORM}"
        raise ArgumentError(f"which function? {has}; name one{cure}" if functions else has + cure)
    value: Any = module
    for i, part in enumerate(name.split(".")):
        owner = value
        try:
            value = names[part] if i == 0 else getattr(value, part)
        except (KeyError, AttributeError):
            near = difflib.get_close_matches(part, functions if i == 0 else dir(value), 1)
            meant = f"; did you mean {'.'.join([*name.split('.')[:i], *near])}?" if near else ""
            raise ArgumentError(f"{shown} has no {name!r}{meant}{'' if meant else f'; {has}'}") from None
    if isinstance(value, Operation):
        value = value.as_output()
    if isinstance(value, Output):
        return Program(f"{shown}:{name}", name, value, names)
    if not callable(value) or (inspect.isclass(value) and not is_module(value)):
        what = "a class" if inspect.isclass(value) else f"a {type(value).__name__}"
        raise ArgumentError(f"{shown}:{name} is {what}, and no function; {has}")
    what = next((what for test, what in _NO_FUNCTIONS if test(value)), "")
    if what:
        raise ArgumentError(f"{shown}:{name} is {what}, whose results are computed bit by bit; {has}")
    if inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, part)):
        raise ArgumentError(
            f"{shown}:{name} is a method, which needs an instance; make one in the file "
            f"(model = {owner.__name__}(...)) and name its method: {shown}:model.{part}"
        )
    return Program(f"{shown}:{name}", name, value, names)


_NO_FUNCTIONS = (
    (inspect.isgeneratorfunction, "a generator"),
    (inspect.iscoroutinefunction, "a coroutine"),
    (inspect.isasyncgenfunction, "an asynchronous generator"),
)
