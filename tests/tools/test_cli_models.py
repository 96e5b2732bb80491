"""Commands that take a model's file in place of a function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.tools import cli

GRAPHS = Path(__file__).parents[1] / "interop" / "tensorflow" / "graphs"


def printed(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> str:
    assert cli.main([str(word) for word in words]) == status
    return capsys.readouterr().out


def test_explain_names_the_node_of_a_graph_that_stops(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "explain", GRAPHS / "stopped_softmax.pb")
    assert "partly stopped: x" in found
    assert "StopGradient 'StopGradient' (Max)" in found


def test_explain_takes_one_node_of_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "explain", f"{GRAPHS / 'stopped_softmax.pb'}:StopGradient")
    assert "stopped: x" in found


def test_explain_takes_a_signature_of_a_saved_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert "flows: x, w, b" in printed(capsys, "explain", GRAPHS / "two_signatures")
    found = printed(capsys, "explain", f"{GRAPHS / 'two_signatures'}:counted")
    assert "stopped: x" in found
    assert "flows: w" in found


def test_check_computes_a_saved_model_with_random_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert "passed" in printed(capsys, "check", GRAPHS / "two_signatures")


def test_explain_takes_an_onnx_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 2], name="x")
        w = sg.parameter(np.ones(2, np.float32), name="w")
        sgo.save(tmp_path / "model.onnx", {"y": x * sg.stop_gradient(w)})
    found = printed(capsys, "explain", tmp_path / "model.onnx")
    assert "stopped: w" in found
    assert "flows: x" in found


def test_a_missing_model_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "none.pb"]) == 2
    assert "there is no file 'none.pb'" in capsys.readouterr().err
