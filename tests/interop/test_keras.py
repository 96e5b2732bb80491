"""Keras 3 on PyTorch and on JAX: wrong models with the user's line, right ones in silence.

Keras has one backend for each process, so that the programs of :mod:`keras_programs` run in one for each:
all in slow tests, and in a plain one a few on PyTorch.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import stopgrad as sg

if importlib.util.find_spec("keras") is None:  # To import it would import the backend that it has by default.
    pytest.skip("Keras is not installed", allow_module_level=True)

FileLock = pytest.importorskip("filelock").FileLock
PROGRAMS = Path(__file__).parents[1] / "helpers" / "keras_programs.py"
CUT = next(i for i, line in enumerate(PROGRAMS.read_text().splitlines(), 1) if line.endswith("# the cut"))
BODY = {"body/bias", "body/kernel", "norm/beta", "norm/gamma"}


@functools.cache
def _ran(backend: str) -> Any:
    """What the programs print with a backend: once for all workers of this run of the tests."""
    pytest.importorskip(backend)
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return json.loads(_printed(backend))
    kept = Path(tempfile.gettempdir()) / f"keras-{run}-{backend}.json"
    with FileLock(f"{kept}.lock"):
        if not kept.exists():
            kept.write_text(_printed(backend))
    return json.loads(kept.read_text())


def _printed(backend: str, *programs: str) -> str:
    path = os.pathsep.join([str(Path(sg.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAMS), *programs],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=[pytest.param(backend, marks=pytest.mark.slow) for backend in ("torch", "jax")])
def found(request: pytest.FixtureRequest) -> Any:
    return _ran(request.param) | {"backend": request.param}


def ends(paths: Any) -> set[str]:
    """The last two parts of paths, without the names that Keras counts."""
    return {"/".join(path.split("/")[-2:]) for path in paths}


def stopped(one: Any) -> set[str]:
    return ends(key for key, status in one["status"].items() if status == "stopped" and "/" in key)


@pytest.mark.first
def test_a_cut_is_told_and_a_right_model_is_not() -> None:
    pytest.importorskip("torch")
    few = json.loads(_printed("torch", "few"))["few"]
    for name, one in few.items():
        assert {key: one["arrives"][key] for key in one["own"]} == one["own"], name
    assert stopped(few["cut"]) == {"body/bias", "body/kernel"}
    assert few["cut"]["changes"] == [[0, "stopped", ["body/bias", "body/kernel"]]]
    assert set(few["right"]["status"].values()) == {"flows"}
    assert few["right"]["changes"] == []


def test_fit_is_judged_as_the_backend_differentiates_it(found: Any) -> None:
    for name, one in found["fits"].items():
        trained = {key: one["arrives"][key] for key in one["own"]}
        assert trained == one["own"], name
        assert not any(one["arrives"][key] for key in one["arrives"].keys() - one["own"].keys()), name
        assert one["same"], f"explain changed the model: {name}"


def test_of_fit_the_wrong_models_are_told_with_the_users_line(found: Any) -> None:
    fits = found["fits"]
    assert stopped(fits["cut"]) == BODY
    assert f"keras_programs.py:{CUT} " in fits["cut"]["text"]
    assert stopped(fits["functional cut"]) == {"body/bias", "body/kernel"}
    assert "own.explain(model, X, Y)" in fits["functional cut"]["text"]  # Keras runs the user's cut there.
    for name in ("right", "functional", "unbuilt"):
        assert set(fits[name]["status"].values()) == {"flows"}, name
        assert len(fits[name]["status"]) == len(fits[name]["own"]), name


def test_the_losses_of_layers_count(found: Any) -> None:
    assert all(found["fits"]["added"]["arrives"].values())
    assert not all(found["fits"]["functional cut"]["arrives"].values())


def test_a_layer_that_is_frozen_is_not_cut(found: Any) -> None:
    one = found["fits"]["frozen"]
    assert one["arrives"]["head/kernel"]
    assert "stopped:" not in one["text"]
    if found["backend"] == "torch":  # A parameter that requires no gradient is reported as what it is.
        assert "body/kernel, body/bias: frozen" in one["text"]
    else:
        assert "body/kernel" not in one["arrives"]


def test_models_without_a_loss_that_is_known_are_refused(found: Any) -> None:
    told = found["refused"]
    assert "is not compiled" in told["uncompiled"]
    assert "model.compile(optimizer, loss)" in told["uncompiled"]
    assert "has a train_step of its own" in told["steps"]
    assert "loss" in told["lossless"]
    assert "compile" in told["lossless"]


def test_the_weights_of_models_are_asked_about_once_wherever_they_come_from(found: Any) -> None:
    functions = found["functions"]
    for name in (
        "argument",
        "call",
        "closure",
        "holder",
        *(["list"] if found["backend"] == "torch" else ["jit"]),
    ):
        one = functions[name]
        weights = [key for key in one["arrives"] if "/" in key]
        assert len(weights) == len(ends(weights)) == 6, name
        assert stopped(one) == BODY, name
        assert f"keras_programs.py:{CUT} " in one["text"], name
    assert stopped(functions["global"]) == {"body/bias", "body/kernel"}
    assert set(functions["right argument"]["status"].values()) == {"flows"}


@pytest.mark.slow
def test_parts_of_both_kinds_have_their_own_names() -> None:
    keys = list(_ran("torch")["functions"]["inside"]["arrives"])
    assert {"0.weight", "1.body/kernel", "1.head/bias", "2.bias"} <= set(keys)
    assert len(keys) == 8


@pytest.mark.slow
def test_models_that_jax_is_given_and_does_not_use_are_told() -> None:
    one = _ran("jax")["functions"]["unused"]
    assert {key for key, status in one["status"].items() if status == "disconnected"} == {
        "body/bias",
        "body/kernel",
        "head/bias",
        "head/kernel",
    }


@pytest.mark.slow
def test_lists_of_variables_have_their_paths_in_jax() -> None:
    one = _ran("jax")["functions"]["stateless"]
    assert stopped(one) == BODY
    assert len(one["arrives"]) == 6


def test_a_monitor_tells_while_fit_runs(found: Any) -> None:
    told = found["monitored"]
    assert told["right"]["changes"] == []
    step, state, keys = told["cut"]["changes"][0]
    assert (step, state, set(keys)) == (0, "stopped", BODY)
    assert f"keras_programs.py:{CUT} " in told["cut"]["texts"][0]
    dead = {
        key for step, state, keys in told["dies"]["changes"] if (step, state) == (2, "zero") for key in keys
    }
    assert {"body/kernel", "body/bias"} <= dead


def test_a_monitor_changes_no_training(found: Any) -> None:
    for name in ("right", "cut", "dies"):
        one = found["monitored"][name]
        assert (one["same"], one["restored"], one["steps"]) == (True, True, 4), name
    assert found["monitored"]["fails"] == {"told": True, "restored": True, "modes": 0}


def test_an_update_is_judged_by_what_fit_moves(found: Any) -> None:
    updates = dict(found["updates"])
    refused = updates.pop("refused")
    for name, one in updates.items():
        moves = {key: verdict.startswith("moves") for key, verdict in one["verdicts"].items()}
        assert moves == one["moved"], name
        assert one["same"], f"explain changed the model or its optimizer: {name}"
        unfed = [key for key, verdict in one["verdicts"].items() if verdict == "moves without a gradient"]
        told = [key for state, keys in one["changes"] if state == "moves without a gradient" for key in keys]
        assert set(told) == ends(unfed), name
        assert bool(one["changes"]) is name.endswith(" cut"), name
    for told in refused.values():
        assert told.startswith("ArgumentError")
        assert "optimizer" in told
