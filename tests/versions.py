"""Run the tests with other versions of what stopgrad works with, in an environment made for them.

    python tests/versions.py torch=2.15.0                # one PyTorch; the rest is the newest that fits
    python tests/versions.py jax=oldest --python 3.14    # the lower bound that pyproject.toml states
    python tests/versions.py tensorflow-cpu=newest --tier nightly
    python tests/versions.py --oldest                    # every lower bound at once
    python tests/versions.py --newest --python 3.13      # no pins: what a user gets today

Which tests run follows from the names: those of interop that are about them; for other packages, and with
``--oldest`` and ``--newest``, interop and a choice of the rest. The environment is made by uv where it is
installed, else by venv and pip; without ``--keep`` it is removed. What a machine's configuration of pip
holds back does not count. The exit status is that of pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
OLDEST, NEWEST = "oldest", "newest"
EXTRAS = ("xla", "jax", "torch", "onnx", "tensorflow", "scale", "special")
"""The extras that are about other libraries' code and data, whose bounds are tried."""
BESIDE = "beside"
"""The dependency group with what stopgrad works with and never installs."""
TENSORFLOW = ("tensorflow", "tensorflow-cpu", "keras")
TIERS = {"plain": "not slow", "slow": "slow", "nightly": "nightly"}
NEEDS = {"plain": ["test"], "slow": ["test-slow"], "nightly": ["test-slow", "libraries-nightly"]}
LINTERS = ("ruff", "mypy")
COLUMNS = ("numpy", "jax", "torch", "onnx", "onnxruntime")
"""The versions that every row of the table says, beside those that were asked for."""

INTEROP = {
    "tests/interop/torch": ("torch", "transformers", "pytorch-lightning"),
    "tests/interop/jax": ("jax", "flatbuffers", "flax", "equinox"),
    "tests/interop/onnx": ("onnx", "onnxruntime"),
    "tests/interop/tensorflow": (*TENSORFLOW, "protobuf"),
}
REST = [
    *["tests/first_attempts", "tests/base", "tests/graph", "tests/run/test_function.py"],
    *["tests/run/test_session.py", "tests/engines/test_engines.py", "tests/train/test_tree_files.py"],
    *["tests/ops/test_effects.py", "tests/ops/test_namespaces.py"],
]

# -- which versions


def requirements() -> dict[str, Any]:
    """The tables of pyproject.toml that name packages: ``dependencies``, the extras and the groups."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = table["project"]
    groups = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    return {**groups, **table.get("dependency-groups", {})}


def name_of(requirement: str) -> str:
    """The name of a package in a requirement."""
    return re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0]


def expanded(names: Sequence[str], groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The requirements of extras, with those of the extras that they ask for in turn."""
    for name in names:
        for one in groups[name]:
            inner = re.fullmatch(r"stopgrad\[([\w,-]+)\]", one)
            yield from expanded(inner[1].split(","), groups) if inner else [one]


def lower_bounds(extras: Sequence[str] = ("dependencies", *EXTRAS, BESIDE)) -> dict[str, str]:
    """The lowest version of each package that pyproject.toml states."""
    stated = expanded(extras, requirements())
    return {name_of(one): one.partition(">=")[2] for one in stated if ">=" in one}


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    versions: dict[str, str]
    """For packages that are named, the version, or ``newest``."""
    everything: str = ""
    """``oldest`` or ``newest`` if all packages are meant."""
    tier: str = "plain"

    @property
    def told(self) -> str:
        """The sets of versions, as a reader of a table knows them."""
        return " ".join([*([self.everything] * bool(self.everything)), *map(" ".join, self.versions.items())])

    @property
    def tensorflow(self) -> bool:
        """Whether the environment is TensorFlow's; it and PyTorch are never in one."""
        return any(name in TENSORFLOW for name in self.versions)

    def packages(self) -> list[str]:
        """What is installed beside the checkout."""
        groups = requirements()
        wanted = dict(self.versions)
        if self.everything == OLDEST:
            wanted = lower_bounds(("dependencies", *EXTRAS)) | wanted
        loose = bool(self.everything or self.versions)  # The pins are those of one set of versions.
        found: dict[str, str] = {}
        for one in expanded(["dependencies", *NEEDS[self.tier]], groups):
            name = name_of(one)
            unpinned = name if loose and "==" in one else one
            found[name] = self.pinned(name, wanted) if name in wanted else unpinned
        if "torch" not in self.versions and not self.everything:
            found["torch"] = next(one for one in groups["test"] if name_of(one) == "torch")
        if self.tensorflow:
            libraries = {name_of(one) for one in expanded(["libraries-nightly"], groups)}
            found = {name: one for name, one in found.items() if name not in libraries and name != "torch"}
        found |= {name: self.pinned(name, wanted) for name in wanted if name not in found}
        return [one for name, one in found.items() if name not in LINTERS]

    @staticmethod
    def pinned(name: str, wanted: Mapping[str, str]) -> str:
        """A package at the version that is wanted of it."""
        return name if wanted[name] == NEWEST else f"{name}=={wanted[name]}"

    def tests(self) -> list[str]:
        """The files and folders of tests that are about these packages."""
        if self.everything:
            return [*INTEROP, "tests/interop/test_trainer.py", *REST]
        found = [folder for folder, names in INTEROP.items() if any(one in names for one in self.versions)]
        known = {name for names in INTEROP.values() for name in names}
        return found if known.issuperset(self.versions) else [*found, *REST]


# -- an environment


def uv() -> str | None:
    """Where uv is: among the programs of this Python, or of the system."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def install(folder: Path, python: str, packages: Sequence[str], uv: str | None) -> list[list[str]]:
    """The commands that make an environment, and install the checkout and packages there."""
    inside = str(folder / "bin" / "python")
    if uv:
        make = [uv, "venv", "--quiet", "--python", python or sys.executable, str(folder)]
        pip = [uv, "pip", "install", "--quiet", "--python", inside]
    else:
        named = python if not python or os.sep in python else f"python{python}"
        make = [named or sys.executable, "-m", "venv", str(folder)]
        pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [make, [*pip, "-e", str(ROOT), *packages]]


def clean() -> dict[str, str]:
    """The variables of the processes: no other packages on the path, no versions that the machine holds."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, "PIP_CONSTRAINT": os.devnull}


LIST = """
import importlib.metadata, json, platform
found = {one.name.lower(): one.version for one in importlib.metadata.distributions()}
print(json.dumps({"python": platform.python_version(), **found}))
"""


def installed(folder: Path, packages: Sequence[str]) -> dict[str, str]:
    """The versions of Python and of packages in an environment."""
    found = subprocess.check_output([folder / "bin" / "python", "-c", LIST], text=True)
    versions = {name.replace("_", "-"): one for name, one in json.loads(found).items()}
    names = ["python", *dict.fromkeys(name_of(one).lower().replace("_", "-") for one in packages)]
    return {name: versions[name] for name in names if name in versions}


# -- the tests


def pytest_command(
    folder: Path, tests: Sequence[str], tier: str, processes: int, more: Sequence[str]
) -> list[str]:
    """How the tests are run. Their counts are read from a file of results."""
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-p", "no:cacheprovider", "-n", str(processes)]
    timeout = ["-o", "faulthandler_timeout=0"] if tier == "nightly" else []
    results = f"--junitxml={folder / 'results.xml'}"
    return [*command, "-m", TIERS[tier], *timeout, results, *more, *tests]


def counted(results: Path) -> dict[str, int]:
    """How many tests passed, failed and were skipped; none if pytest ended without a word."""
    suites = list(ElementTree.parse(results).iter("testsuite")) if results.exists() else []
    total = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "skipped")}
    failed = sum(int(suite.get(key, 0)) for suite in suites for key in ("failures", "errors"))
    passed = total["tests"] - failed - total["skipped"]
    return {"passed": passed, "failed": failed, "skipped": total["skipped"]}


def row(line: Mapping[str, Any]) -> str:
    """An outcome as a row of the table in ``docs/verdicts.md``."""
    version = line["versions"].get
    tests = ", ".join(one.removeprefix("tests/") for one in line["tests"])
    versions = [version(name, "–") for name in ("python", *COLUMNS)]
    outcome = [line[key] for key in ("tier", "passed", "failed", "skipped", "seconds")]
    return "| " + " | ".join(map(str, [line["asked"], *versions, tests, *outcome])) + " |"


def parsed(arguments: Sequence[str] | None = None) -> tuple[Asked, argparse.Namespace]:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="What follows -- goes to pytest: python tests/versions.py torch=2.6.0 -- -x -k gallery",
    )
    parser.add_argument("versions", nargs="*", metavar="NAME=VERSION", help="VERSION may be oldest or newest")
    parser.add_argument("--oldest", action="store_true", help="every lower bound of pyproject.toml")
    parser.add_argument("--newest", action="store_true", help="the newest of everything")
    parser.add_argument("--python", default="", help="a version or a path; else this one")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="instead of the names'")
    parser.add_argument("--tier", choices=TIERS, default="plain")
    parser.add_argument("--processes", type=int, default=2, help="that run tests side by side")
    parser.add_argument("--table", type=Path, metavar="FILE", help="append a line of JSON with the outcome")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="make the environment there, or use it")
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:at])
    options.more = given[at + 1 :]
    versions, bounds = {}, lower_bounds()
    for one in options.versions:
        name, _, version = one.partition("=")
        if not version or (version == OLDEST and name not in bounds):
            parser.error(f"{one}: want NAME=VERSION, or NAME=oldest of one of {', '.join(bounds)}")
        versions[name] = bounds[name] if version == OLDEST else version.lstrip("=")
    if (options.oldest and options.newest) or not (options.oldest or options.newest or versions):
        parser.error("name versions, or one of --oldest and --newest")
    everything = OLDEST if options.oldest else NEWEST if options.newest else ""
    asked = Asked(versions, everything, options.tier)
    if asked.tensorflow and ("torch" in versions or everything):
        parser.error("TensorFlow and PyTorch are tried in environments of their own: name one of them")
    return asked, options


def run(asked: Asked, options: argparse.Namespace, folder: Path) -> int:
    """Make the environment, print its versions, run the tests and note the outcome."""
    packages = asked.packages()
    if not (folder / "bin" / "python").exists():
        for command in install(folder, options.python, packages, uv()):
            print(*command, flush=True)
            subprocess.run(command, check=True, env=clean(), cwd=ROOT)
    versions = installed(folder, packages)
    print(*(f"{name} {version}" for name, version in versions.items()), sep="\n", flush=True)
    tests = options.tests or asked.tests()
    command = pytest_command(folder, tests, asked.tier, options.processes, options.more)
    print(*command, flush=True)
    (folder / "results.xml").unlink(missing_ok=True)
    begun = time.monotonic()
    status = subprocess.run(command, env=clean(), cwd=ROOT).returncode
    line = {
        "date": date.today().isoformat(),
        "asked": asked.told,
        "tier": asked.tier,
        "tests": tests,
        **counted(folder / "results.xml"),
        "seconds": round(time.monotonic() - begun),
        "status": status,
        "versions": versions,
    }
    print(json.dumps(line))
    print(row(line))
    if options.table:
        with options.table.open("a") as file:
            print(json.dumps(line), file=file)
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests that the command line asks for."""
    asked, options = parsed(arguments)
    if options.keep:
        return run(asked, options, options.keep.resolve())
    with tempfile.TemporaryDirectory() as folder:
        return run(asked, options, Path(folder) / "environment")


if __name__ == "__main__":
    sys.exit(main())
