"""Base names of modules: folders share one only where they are parallel by design.

A line of a traceback, a tab of an editor and a failing test show ``memory.py``: whoever reads it should not
have to ask which. ``stopgrad_trainer`` stands alone, and is not looked at.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path

import pytest

import stopgrad

ROOT = Path(stopgrad.__file__).parent

OPERATIONS = {
    "definition": r"ops/(?!xp$|namespaces$)\w+|transforms/control",
    "array API": "ops/xp",
    "namespace": "ops/namespaces",
    "rewriting": "rewrite/forms",
    "ONNX Runtime": "engines/onnxruntime/nodes(/forms)?",
    "XLA's kernels": "engines/xla/native",
    "JAX": "interop/jax/primitives",
    "ONNX": "interop/onnx/operators",
    "PyTorch": "interop/torch/importing/aten",
    "TensorFlow": "interop/tensorflow/operators",
    "TensorFlow, written": "interop/tensorflow/writing",
    "several formats": "interop/shared",
}
"""Where the operations of a family are, such as ``pooling``: it has one name in each of these places."""

WORLD = re.compile(
    r"(interop/(?:jax|onnx|tensorflow|torch|shared))(?:/(?!primitives|operators|writing|importing/aten)(.+))?"
)
"""What is done for one framework is done for others: in a folder of the same name, or at the root."""

MEANT = {
    "graph/batch_rules.py": "how operations are batched; in transforms/control, how control flow is",
    "graph/sharding.py": "what a sharding is; in ops/structural, what operations declare of it",
    "engines/meshes.py": "six lines that hand scale/meshes.py to the engines",
    "interop/jax/checking/holding.py": "for jaxprs what transforms/gradients/holding.py is for graphs",
    "interop/jax/foreign.py": "JAX's primitives as the operation that ops/structural/foreign.py defines",
    "interop/onnx/patterns.py": "of names, as in flow/patterns.py; a model's scopes match, too",
    "interop/onnx/training/adapters.py": "the adapters of train/adapters.py, in a model's graph",
    "interop/onnx/training/budget/schedules.py": "of nodes; in train/optimizers, of learning rates",
    "interop/tensorflow/recording/internals.py": "the one door to a private interface, as in torch and jax",
    "run/session.py": "sg.Session; in interop, a Session follows the training of a script",
}
"""Files that share their names all the same, and why."""


def in_operations(folder: str) -> str | None:
    """The place of a family's operations that a folder is."""
    return next((place for place, those in OPERATIONS.items() if re.fullmatch(those, folder)), None)


def are_parallel(one: str, other: str) -> bool:
    """Whether two folders have modules of the same names by design.

    What one framework has in a folder may be at the root of another that has no such folder.
    """
    place, counterpart = in_operations(one), in_operations(other)
    if place and counterpart:
        return place != counterpart
    pair = WORLD.fullmatch(one), WORLD.fullmatch(other)
    if not pair[0] or not pair[1] or pair[0][1] == pair[1][1]:
        return False
    (home, part), (away, same) = pair[0].groups(), pair[1].groups()
    if part == same:
        return True
    if part and same:
        return False
    at_root, folder = (away, part) if part else (home, same)
    return not (ROOT / at_root / str(folder)).is_dir()


def is_door(file: str, text: str) -> bool:
    """Whether a file at the root is only the public name of the module that has its name in a package."""
    name = Path(file).stem
    imported = re.search(rf"^from stopgrad\.\w+\.{name} import", text, re.MULTILINE)
    return "/" not in file and imported is not None


def accidental(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The pairs of files that share their base names, though their folders are not parallel."""
    named = defaultdict(list)
    for file in files:
        folder, _, name = file.rpartition("/")
        if not name.startswith("__"):  # Python's own.
            named[name].append(folder)
    for name, folders in named.items():
        for one, other in combinations(sorted(folders), 2):
            if not are_parallel(one, other):
                yield f"{one}/{name}".lstrip("/"), f"{other}/{name}".lstrip("/")


def test_folders_share_names_only_where_they_are_parallel() -> None:
    files = {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*.py")}
    inside = [file for file, path in files.items() if not is_door(file, path.read_text("utf-8"))]
    pairs = set(accidental(inside))
    assert not {pair for pair in pairs if MEANT.keys().isdisjoint(pair)}
    assert {file for pair in pairs for file in pair} >= MEANT.keys(), "no longer shared"


@pytest.mark.parametrize(
    "files",
    [
        ["run/calls.py", "tools/cli/calls.py"],
        ["base/memory.py", "interop/torch/recording/memory.py"],
        ["flow/flow.py", "tools/cli/flow.py"],
        ["interop/jax/training/calls.py", "interop/torch/recording/calls.py"],
        ["interop/jax/training/asking.py", "interop/torch/asking.py"],
        ["interop/onnx/operators/losses.py", "interop/onnx/training/losses.py"],
        ["interop/tensorflow/functions.py", "interop/tensorflow/writing/functions.py"],
        ["interop/tensorflow/operators/structure.py", "base/structure.py"],
        ["interop/torch/recording/values.py", "engines/onnxruntime/nodes/values.py"],
        ["engines/onnxruntime/nodes/running.py", "engines/onnxruntime/nodes/forms/running.py"],
        ["ops/linalg/windows.py", "ops/neural/windows.py"],
        ["ops/xp/fft.py", "train/fft.py"],
    ],
)
def test_an_accident_is_seen(files: list[str]) -> None:
    assert [set(pair) for pair in accidental(files)] == [set(files)]


@pytest.mark.parametrize(
    "files",
    [
        ["ops/neural/pooling.py", "interop/shared/pooling.py", "interop/tensorflow/operators/pooling.py"],
        ["ops/fourier/fft.py", "ops/xp/fft.py", "ops/namespaces/fft.py"],
        ["transforms/control/scans.py", "rewrite/forms/scans.py"],
        ["interop/jax/checking/ablating.py", "interop/shared/ablating.py", "interop/tensorflow/ablating.py"],
        ["interop/jax/training/findings.py", "interop/torch/training/findings.py"],
        ["tools/__init__.py", "flow/__init__.py"],
        ["run/calls.py", "tools/cli/call_arguments.py"],
    ],
)
def test_parallel_folders_share_names(files: list[str]) -> None:
    assert not list(accidental(files))
    assert not list(accidental(reversed(files)))


def test_a_door_is_told_by_what_it_imports() -> None:
    assert is_door("distributed.py", "from stopgrad.scale.distributed import *\n")
    assert not is_door("distributed.py", "from stopgrad.scale.meshes import *\n")
    assert not is_door("run/distributed.py", "from stopgrad.scale.distributed import *\n")
