"""Modules that are replaced when they are imported, in this process and in every process that it starts.

``MUTANTS_FOLDER`` names a folder of compiled modules, ``<module>.code`` each: they take the place of what the
checkout has, which stays as it is. Where ``MUTANTS_REACHED`` names a folder, too, the process leaves there
which blocks it has run.
"""

from __future__ import annotations

import atexit
import builtins
import importlib.machinery
import marshal
import os
import subprocess
import sys
from types import CodeType

HERE = os.path.dirname(os.path.abspath(__file__))
PASSED_ON = ("MUTANTS_FOLDER", "MUTANTS_REACHED", "MUTANTS_BLOCKS", "PYTHONPYCACHEPREFIX")


class Replaced(importlib.machinery.SourceFileLoader):
    """Loads a module from its compiled substitute."""

    def get_code(self, fullname: str) -> CodeType:
        with open(_substitute(fullname), "rb") as file:
            return marshal.loads(file.read())


class Finder:
    """Finds modules where they are, and has those with a substitute loaded from that."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if not os.path.exists(_substitute(name)):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        if spec is not None and spec.origin is not None:
            spec.loader = Replaced(name, spec.origin)
        return spec


def _substitute(name: str) -> str:
    return os.path.join(os.environ.get("MUTANTS_FOLDER", ""), f"{name}.code")


def _reach_new_processes() -> None:
    """Processes get the hook even if whoever starts them gives an environment of its own."""
    start = subprocess.Popen.__init__

    def started(self, *arguments, **options):  # type: ignore[no-untyped-def]
        environment = options.get("env")
        if environment is not None:
            environment = dict(environment)
            for name in PASSED_ON:
                if name in os.environ:
                    environment.setdefault(name, os.environ[name])
            paths = [HERE, *environment.get("PYTHONPATH", "").split(os.pathsep)]
            environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
            options["env"] = environment
        start(self, *arguments, **options)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign]


def _leave_reached() -> None:
    with open(os.path.join(os.environ["MUTANTS_REACHED"], str(os.getpid())), "wb") as file:
        file.write(builtins.mutants_reached)  # type: ignore[attr-defined]


def install() -> None:
    """From now on, modules with a substitute are loaded from it."""
    if not os.environ.get("MUTANTS_FOLDER"):
        return
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    _reach_new_processes()
    if "MUTANTS_BLOCKS" in os.environ:
        builtins.mutants_reached = bytearray(int(os.environ["MUTANTS_BLOCKS"]))  # type: ignore[attr-defined]


if __name__ == "sitecustomize":
    install()
    if os.environ.get("MUTANTS_REACHED"):
        atexit.register(_leave_reached)
