"""Types that users see: what they write passes mypy and pyright, and what the types say is what comes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np
import pytest

import stopgrad as sg
import typed.functions
import typed.reports
import typed.transforms
from helpers.public_types import SOURCE, stubs
from stopgrad.graph.builder import default_graph

TYPED = Path(__file__).parents[1] / "typed"
COMPLETE = 0.96
"""The part of the public names whose type every type checker knows; it was 0.54."""


def test_stubs_are_those_of_the_functions() -> None:
    """After a change of a public function, ``python tests/helpers/public_types.py`` writes them anew."""
    for path, text in stubs().items():
        assert (SOURCE / "stopgrad" / path).read_text() == text, f"{path}: run tests/helpers/public_types.py"


# ------------------------------------------------------------------------------- what comes when it is run


def _is(value: object, kind: Any) -> bool:
    """Whether a value is of a type, as far as one can see it."""
    if kind is Any:
        return True
    if isinstance(kind, types.UnionType):
        return any(_is(value, one) for one in get_args(kind))
    origin = get_origin(kind)
    if origin is tuple:
        parts = [one for one in get_args(kind) if one is not ...]
        even = parts * len(value) if len(parts) < len(get_args(kind)) else parts  # type: ignore[arg-type]
        return isinstance(value, tuple) and all(map(_is, value, even))
    if origin in (list, dict):
        inner = get_args(kind)[-1]
        held = value.values() if isinstance(value, dict) else value
        return isinstance(value, origin) and all(_is(one, inner) for one in held)  # type: ignore[union-attr]
    return isinstance(value, (origin or kind) if origin is not np.ndarray else (np.ndarray, np.generic))


def _checked(value: object, kind: Any) -> Any:
    assert _is(value, kind), f"{value!r} is no {kind}"
    return value


@pytest.fixture(autouse=True)
def _asserting(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (typed.functions, typed.reports, typed.transforms):
        monkeypatch.setattr(module, "assert_type", _checked)


A = np.array([[0.6, 0.7], [0.2, 0.9]])
I = np.array([0, 1])
K = np.array([0, 1], np.uint32)


def test_functions_return_what_their_types_say() -> None:
    typed.functions.of_arrays(A, A[0], I, K)
    typed.functions.of_numbers()
    typed.functions.of_namespaces(A, _placeholder(A), K)
    with sg.Graph().as_default():
        x, i, k = _placeholder(A), _placeholder(I), _placeholder(K)
        typed.functions.of_outputs(x, i, k)
        typed.functions.of_both(A, x)
        typed.functions.of_either(x)
    typed.functions.of_either(A)


def _placeholder(value: np.ndarray) -> sg.Output:
    graph = default_graph()
    with (sg.Graph() if graph is None else graph).as_default():
        return sg.placeholder(value.dtype, value.shape)


def test_transforms_return_what_their_types_say() -> None:
    params = {"w": A, "b": A[0]}
    typed.transforms.gradients(params, A, A)
    typed.transforms.of_lambdas(A)
    typed.transforms.of_any(typed.transforms.energy, A)
    typed.transforms.same_signature(A, A, params)


def test_reports_are_what_their_types_say() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, [2])
        y = sg.reduce_sum(x * sg.stop_gradient(x))
    typed.reports.of_reports(y, x)
    typed.reports.of_graphs(y)
    typed.reports.of_sessions(graph, y, x)
    typed.reports.of_functions()


# ------------------------------------------------------------------------------------------- type checkers


def _basedpyright(*arguments: str, folder: Path) -> dict[str, Any]:
    pytest.importorskip("basedpyright", reason="basedpyright, which brings 280 MB of Node, is not installed")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", *arguments]
    # It looks for packages where the first Python of the path does.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    around = {**os.environ, "PATH": path, "VIRTUAL_ENV": sys.prefix}
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=around)
    return json.loads(ran.stdout)


@pytest.mark.nightly
def test_pyright_agrees_with_mypy(tmp_path: Path) -> None:
    shutil.copytree(TYPED, tmp_path / "typed")
    # A lambda's parameters are of unknown type, and so is what is made of them.
    unknown = ("LambdaType", "MemberType", "ArgumentType", "VariableType")
    settings = {"typeCheckingMode": "strict", "include": ["typed"]}
    settings |= {f"reportUnknown{one}": "none" for one in unknown}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    found = _basedpyright("--project", str(tmp_path), folder=tmp_path)
    assert found["summary"]["filesAnalyzed"] >= 4
    wrong = [one for one in found["generalDiagnostics"] if one["severity"] == "error"]
    lines = [f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}" for one in wrong]
    assert not lines, "\n".join(lines)


@pytest.mark.nightly
def test_types_are_complete(tmp_path: Path) -> None:
    report = _basedpyright("--verifytypes", "stopgrad", "--ignoreexternal", folder=tmp_path)
    found = report["typeCompleteness"]
    assert found["exportedSymbolCounts"]["withUnknownType"] == 0
    assert found["completenessScore"] >= COMPLETE
