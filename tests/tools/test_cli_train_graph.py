"""``stopgrad train-graph``, as a shell runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from onnx_training_tools import mlp, normal

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.tools import cli


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    mlp(tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_command_is_what_the_function_does(home: Path) -> None:
    words = (
        "--loss cross-entropy --optimizer adamw --freeze enc.* --stop mid/Relu --clip 1.0 --explain -o out/"
    )
    done = subprocess.run(
        [sys.executable, "-m", "stopgrad", "train-graph", "model.onnx", *words.split()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(sg.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert "flows: head.bias, head.weight" in done.stdout
    assert "stopped: enc.bias, enc.weight, mid.bias, mid.weight" in done.stdout
    assert "a step is fed x, labels, learning_rate; opset 21" in done.stdout
    assert "note: 'mid.weight' is not trained" in done.stderr.replace("\n  ", " ")
    made = sgo.training(
        "model.onnx", loss="cross-entropy", freeze="enc.*", stop="mid/Relu", clip=1.0, folder="same"
    )
    assert json.loads((home / "out" / "manifest.json").read_text()) == json.loads(json.dumps(made.manifest))
    for file in (home / "same").iterdir():
        assert file.read_bytes() == (home / "out" / file.name).read_bytes(), file.name


def test_a_budget_of_memory_is_said_and_kept_in_the_manifest(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--loss cross-entropy --memory 1GiB --sizes batch=512 -o out"
    assert cli.main(["train-graph", "model.onnx", *words.split()]) == 0
    memory = json.loads((home / "out" / "manifest.json").read_text())["memory"]
    assert (memory["budget"], memory["sizes"], memory["again"]) == (2**30, {"batch": 512}, 0)
    assert "memory: a step is estimated at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--memory 1kB --sizes batch=512", "does not fit into 1"),
        ("--memory 1GiB", "batch"),
        ("--sizes batch=512", "--memory"),
        ("--memory 1GiB --sizes batch", "--sizes takes a name and a whole number"),
        ("--memory much --sizes batch=8", "memory"),
    ],
)
def test_a_wrong_budget_is_an_error(
    home: Path, words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main(
            ["train-graph", "model.onnx", "--loss", "cross-entropy", *words.split(), "-o", "out"]
        )
    except SystemExit as error:
        status = error.code
    assert status not in (0, None)
    assert says in capsys.readouterr().err
    assert not (home / "out").exists()


def test_all_options_arrive(home: Path) -> None:
    words = (
        "--loss mse --optimizer sgd:momentum=0.9 --lora mid.weight,enc.weight --rank 2 --alpha 6 --only head"
    )
    words += (
        " --accumulate 2 --schedule cosine:0.1,100,warmup=5 --mode eval --opset 20 -o out --outputs logits"
    )
    assert cli.main(["train-graph", "model.onnx", *words.split()]) == 0
    manifest = json.loads((home / "out" / "manifest.json").read_text())
    assert manifest["optimizer"] == {"name": "sgd", "options": {"momentum": 0.9}}
    assert manifest["learning_rate"]["schedule"] == {
        "name": "cosine",
        "options": {"start": 0.1, "steps": 100, "warmup": 5},
    }
    assert {a["weight"]: a["scale"] for a in manifest["adapters"]} == {"enc.weight": 3.0, "mid.weight": 3.0}
    assert (manifest["opset"], manifest["accumulate"], manifest["mode"]) == (20, 2, "eval")
    trainer = sgo.Trainer("out")
    assert trainer.step(x=normal(2, 4), labels=normal(2, 3)) > 0


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train-graph", "model.onnx", *["--loss", "mse", "--freeze", "enc", "--dry-run"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert [head.partition(" (")[0] for head in heads] == ["trained", "frozen"]
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line.startswith(" ")}
    assert shown["enc.weight"] == "4x8 freeze names it"
    assert shown["head.bias"] == "3 it stands where weights stand: as a bias"
    assert [f.name for f in home.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("model.onnx --loss crossentropy -o out", "did you mean 'cross-entropy'?"),
        ("model.onnx --loss mse --freeze back.* -o out", "'back.*' matches no parameter"),
        ("model.onnx --loss mse --freeze a,,b -o out", "names nothing"),
        ("none.onnx --loss mse -o out", "there is no file 'none.onnx'"),
        ("model.onnx --loss mse -o model.onnx", "is a file"),
        ("model.onnx --loss mse -o no/where", "does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    words: str, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train-graph", *words.split()]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("stopgrad: ")
    assert error.count("\n") == 1
    assert [f.name for f in home.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    "words", ["model.onnx -o out", "model.onnx --loss mse", "--rank 3 model.onnx --loss mse -o x"]
)
def test_options_that_are_missing_or_mean_nothing_show_the_usage(words: str, home: Path) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["train-graph", *words.split()])
    assert left.value.code == 2
    assert [f.name for f in home.iterdir()] == ["model.onnx"]
