"""The Trainer: state that stays in the runtime, errors that change nothing, files of other trainings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_training_tools import batches, mlp, model_of, normal

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.interop.onnx.training import training_folders
from stopgrad.trainer import Trainer
from stopgrad_trainer import memory
from stopgrad_trainer.exported import fields

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("training")
    mlp(home / "mlp.onnx")
    return sgo.training(
        home / "mlp.onnx", loss="cross-entropy", folder=home / "out", freeze="enc.bias"
    ).folder


@pytest.fixture
def trainer(folder: Path) -> Trainer:
    return Trainer(folder, threads=1)


def test_it_is_the_trainer_of_the_public_module() -> None:
    assert sgo.Trainer is Trainer


def test_resuming_is_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    one, other = Trainer(folder, threads=1), Trainer(folder, threads=1)
    data = batches(12)
    straight = [one.step(x=x, labels=y) for x, y in data]
    first = [other.step(x=x, labels=y) for x, y in data[:5]]
    other.save(tmp_path / "half.safetensors")
    again = Trainer(folder, threads=1)
    again.restore(tmp_path / "half.safetensors")
    rest = [again.step(x=x, labels=y) for x, y in data[5:]]
    assert first + rest == straight
    for name, value in one.state.items():
        np.testing.assert_array_equal(again.state[name], value)
    again.reset()
    assert [again.step(x=x, labels=y) for x, y in data] == straight


def test_asking_changes_nothing(trainer: Trainer) -> None:
    ((x, y),) = batches(1)
    before = trainer.state
    found = trainer.evaluate(x=x, labels=y)
    assert found["logits"].shape == (3, 3)
    assert list(trainer.gradients(x=x, labels=y)) == [n for n in trainer.state if "adamw" not in n]
    np.testing.assert_array_equal(trainer.predict(x=x)["logits"], found["logits"])
    for name, value in trainer.state.items():
        np.testing.assert_array_equal(value, before[name])
    assert trainer.step(x=x, labels=y) == found["loss"]


def test_the_state_that_is_handed_out_is_a_copy(trainer: Trainer) -> None:
    trainer.state["head.bias"][:] = 7.0
    assert not (trainer.state["head.bias"] == 7.0).any()


def test_the_learning_rate_is_the_one_fed_or_else_the_trainers(trainer: Trainer) -> None:
    ((x, y),) = batches(1)
    assert trainer.learning_rate == 1e-3
    before = trainer.state["head.bias"]
    trainer.step(x=x, labels=y, learning_rate=0.0)
    np.testing.assert_array_equal(trainer.state["head.bias"], before)
    trainer.learning_rate = 0.25
    trainer.step(x=x, labels=y)
    assert np.abs(trainer.state["head.bias"] - before).max() > 0.1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": None}, "labels is missing"),
        ({"x": normal(6, 4).astype(np.float64)}, r"x is float32, not float64; convert it with .astype"),
        ({"x": normal(6, 5)}, r"x has the shape \[batch, 4\], not \[6, 5\]"),
        ({"x": normal(4)}, "x has the shape"),
        ({"labels": np.zeros(5, np.int64)}, "batch is 6 in x"),
        ({"z": 1}, "there is no input 'z'; it takes x, labels"),
        ({"labels": ["a"] * 6}, "labels is int64"),
        ({"learning_rate": "fast"}, "learning_rate is float32"),
        ({"learning_rate": [0.1, 0.2]}, "learning_rate has the shape"),
    ],
)
def test_what_cannot_be_fed_is_refused_and_changes_nothing(change: Any, said: str, trainer: Trainer) -> None:
    ((x, y),) = batches(2)[1:]
    trainer.step(x=x, labels=y)
    before = trainer.state
    given = {k: v for k, v in {"x": x, "labels": y, **change}.items() if v is not None}
    with pytest.raises(sg.StopgradError, match=said):
        trainer.step(**given)
    for name, value in trainer.state.items():
        np.testing.assert_array_equal(value, before[name])


def test_lists_and_numbers_are_fed_as_what_is_asked_for(trainer: Trainer) -> None:
    assert trainer.step({"x": [[1, 2, 3, 4]]}, labels=[2], learning_rate=1) > 0
    with pytest.raises(sg.ArgumentError, match="by name"):
        trainer.step([[1, 2, 3, 4]])  # type: ignore[arg-type]


@pytest.fixture
def older(folder: Path, tmp_path: Path) -> Path:
    """The folder as earlier versions wrote it: without a step in place."""
    home = tmp_path / "older"
    home.mkdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    parts = [manifest["update"]["scalars"], *[one["graph"] for one in manifest.pop("update")["functions"]]]
    left_out = [manifest["graphs"].pop(name)["file"] for name in parts]
    for file in folder.iterdir():
        if file.name not in left_out:
            (home / file.name).write_bytes(file.read_bytes())
    (home / "manifest.json").write_text(json.dumps(manifest))
    return home


class Failing:
    """A session that fails after its work is done."""

    def __init__(self, session: Any) -> None:
        self._inner = session

    def io_binding(self) -> Any:
        return self._inner.io_binding()

    def run_with_iobinding(self, binding: Any) -> None:
        self._inner.run_with_iobinding(binding)
        raise RuntimeError("the device is gone")


@pytest.mark.parametrize("graph", ["train_step", "gradients", "scalars"])
def test_a_run_that_fails_leaves_the_state(graph: str, folder: Path, older: Path) -> None:
    trainer = Trainer(older if graph == "train_step" else folder, threads=1)
    sessions, data = trainer._runtime.sessions, batches(3)
    assert trainer.step(x=data[0][0], labels=data[0][1]) > 0
    trainer.save(older / "saved")
    trainer.restore(older / "saved")  # Nothing is bound yet.
    before, session = trainer.state, trainer._runtime.session(graph)
    sessions[graph] = Failing(session)
    with pytest.raises(sg.EngineError, match="the device is gone"):
        trainer.step(x=data[1][0], labels=data[1][1])
    for name, value in trainer.state.items():
        np.testing.assert_array_equal(value, before[name])
    sessions[graph] = session
    trainer.restore(older / "saved")
    loss = trainer.evaluate(x=data[1][0], labels=data[1][1])["loss"]
    assert trainer.step(x=data[1][0], labels=data[1][1]) == loss


def test_a_run_that_fails_while_the_state_is_renewed_asks_for_another(folder: Path, tmp_path: Path) -> None:
    trainer, data = Trainer(folder, threads=1), batches(3)
    losses = [trainer.step(x=x, labels=y) for x, y in data]
    trainer.reset()
    assert trainer.step(x=data[0][0], labels=data[0][1]) == losses[0]
    trainer.save(tmp_path / "saved")
    renewing = trainer._memory._steps[2]  # type: ignore[union-attr, index]

    def fail() -> None:
        raise RuntimeError("there is no memory left")

    renewing.insert(1, (fail,))
    with pytest.raises(sg.EngineError, match=r"update_0.onnx: onnxruntime: there is no memory left"):
        trainer.step(x=data[1][0], labels=data[1][1])
    asking = [
        lambda: trainer.state,
        lambda: trainer.save(tmp_path / "torn"),
        lambda: trainer.export(tmp_path / "torn.onnx"),
        lambda: trainer.predict(x=data[0][0]),
        lambda: trainer.step(x=data[1][0], labels=data[1][1]),
    ]
    for ask in asking:
        with pytest.raises(sg.GraphError, match=r"a part is old and a part new; .* restore\(\)"):
            ask()
    assert not (tmp_path / "torn").exists()
    trainer.restore(tmp_path / "saved")
    assert [trainer.step(x=x, labels=y) for x, y in data[1:]] == losses[1:]


# ------------------------------------------------------------------------------------ a step in place


HOW: dict[str, tuple[dict[str, Any], bool]] = {
    "adamw": ({}, True),
    "adamw, decay of some": ({"optimizer": "adamw:no_decay=*.bias"}, True),
    "adamw, clipped": ({"clip": 0.1}, True),
    "adam, amsgrad, clipped elements": ({"optimizer": "adam:amsgrad=true,clip_value=0.01"}, True),
    "sgd": ({"optimizer": "sgd"}, True),
    "sgd, nesterov": ({"optimizer": "sgd:momentum=0.9,nesterov=true,weight_decay=0.1"}, True),
    "lion, which reads twice what it renews": ({"optimizer": "lion"}, True),
    "rmsprop": ({"optimizer": "rmsprop:centered=true,momentum=0.9"}, True),
    "adagrad": ({"optimizer": "adagrad:lr_decay=0.1"}, True),
    "an average": ({"optimizer": "adamw:average=0.9"}, True),
    "a schedule": ({"schedule": "cosine:0.01,10,warmup=2"}, True),
    "lora": ({"lora": {"weights": "*.weight", "rank": 2}}, True),
    "bfloat16": ({"precision": "bfloat16"}, True),
    "a loss scale": ({"precision": "float16"}, False),
    "accumulated": ({"accumulate": 2}, False),
    "adafactor": ({"optimizer": "adafactor"}, False),
    "muon": ({"optimizer": "muon"}, False),
}


@pytest.mark.parametrize("how", HOW)
def test_a_step_in_place_is_that_of_the_graph(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against ``train_step.onnx``, in blocks that are smaller than the tensors."""
    settings, divides = HOW[how]
    mlp(tmp_path / "mlp.onnx")
    sgo.training(tmp_path / "mlp.onnx", loss="cross-entropy", folder=tmp_path / "out", **settings)
    monkeypatch.setattr(memory, "BLOCK", 48)
    one = Trainer(tmp_path / "out", threads=1)
    assert isinstance(one._memory, memory.InPlace if divides else memory.Doubled)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert ("update" in manifest) == divides
    manifest.pop("update", None)
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    other = Trainer(tmp_path / "out", threads=1)
    assert isinstance(other._memory, memory.Doubled)
    for x, y in batches(12):
        assert one.step(x=x, labels=y) == pytest.approx(other.step(x=x, labels=y), rel=1e-6)
    for name, value in other.state.items():
        np.testing.assert_allclose(one.state[name], value, 1e-5, 1e-7)


def test_an_older_folder_is_trained_as_before(folder: Path, older: Path) -> None:
    one, other = Trainer(folder, threads=1), Trainer(older, threads=1)
    for x, y in batches(5):
        assert one.step(x=x, labels=y) == pytest.approx(other.step(x=x, labels=y), rel=1e-6)


def test_frozen_weights_stay_in_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlp(tmp_path / "mlp.onnx")
    monkeypatch.setattr(training_folders, "APART", 0)
    monkeypatch.setattr(training_folders, "SMALL", 64)
    lora = {"weights": "*.weight", "rank": 2}
    sgo.training(tmp_path / "mlp.onnx", loss="cross-entropy", folder=tmp_path / "out", lora=lora)
    assert (tmp_path / "out" / "weights.bin").exists()
    one, other = (Trainer(tmp_path / "out", threads=1, mapped=mapped) for mapped in (True, False))
    for x, y in batches(4):
        assert one.step(x=x, labels=y) == pytest.approx(other.step(x=x, labels=y), rel=1e-6)
        np.testing.assert_allclose(one.predict(x=x)["logits"], other.predict(x=x)["logits"], 1e-5, 1e-6)


def test_what_is_written_over_has_been_read(tmp_path: Path) -> None:
    """A new value may take the old one's place only when nothing reads the old one any more."""
    mlp(tmp_path / "mlp.onnx")
    for how in ("adamw", "sgd:momentum=0.9", "lion", "rmsprop:momentum=0.9,centered=true"):
        sgo.training(tmp_path / "mlp.onnx", loss="cross-entropy", optimizer=how, folder=tmp_path / "out")
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        for function in manifest["update"]["functions"]:
            said = manifest["graphs"][function["graph"]]
            model = onnx.load(tmp_path / "out" / said["file"]).graph
            above: dict[str, set[str]] = {}  # What is computed before, and thus read before.
            for node in model.node:
                before = {above_one for x in node.input for above_one in {x, *above.get(x, ())}}
                above |= {y: {*before, *node.output} for y in node.output}
            over = {y["updates"]: y["name"] for y in said["outputs"] if y["over"]}
            for old, new in over.items():
                readers = [node for node in model.node if old in node.input]
                assert all(node.output[0] in above[new] for node in readers), (how, old)
            assert (len(over) < len(said["outputs"])) == (how == "lion"), how


def test_parts_of_a_step_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((folder / "manifest.json").read_text())
    function = lambda m: m["update"]["functions"][0]
    for change in (
        lambda m: m["update"].pop("scalars"),
        lambda m: m["update"].update(backward="eval"),
        lambda m: function(m)["members"].pop(),
        lambda m: function(m)["members"].append(function(m)["members"][0]),
        lambda m: function(m)["members"][0].update(value_0="head.bias"),
        lambda m: function(m)["members"][0].update(gradient_0="head.bias"),
        lambda m: function(m)["members"][0].pop("gradient_0"),
        lambda m: function(m).update(graph="merge"),
        lambda m: m["graphs"]["update_0"]["inputs"][0].update(dtype="float64"),
        lambda m: m["graphs"]["update_0"]["outputs"].pop(),
        lambda m: m["graphs"]["scalars"]["outputs"].pop(0),
        lambda m: m["graphs"]["scalars"]["outputs"][0].update(shape=[3]),
        lambda m: m["graphs"]["gradients"]["outputs"][1].update(of="zz"),
        lambda m: m["graphs"]["gradients"]["inputs"][-1].update(role="input"),
        lambda m: m.update(update=None),
    ):
        changed = json.loads(json.dumps(manifest))
        change(changed)
        (tmp_path / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(sg.FileError, match="damaged"):
            Trainer(tmp_path)


def test_a_class_number_that_is_no_class_is_nan_and_no_crash(trainer: Trainer) -> None:
    ((x, _),) = batches(1)
    assert np.isnan(trainer.evaluate(x=x, labels=[0, 99, 1])["loss"])


# ----------------------------------------------------------------------------------------------- files


def test_the_state_of_another_training_is_refused(folder: Path, trainer: Trainer, tmp_path: Path) -> None:
    sgo.training(folder.parent / "mlp.onnx", loss="mse", optimizer="sgd", folder=tmp_path / "sgd")
    other = Trainer(tmp_path / "sgd")
    other.save(tmp_path / "sgd.safetensors")
    before = trainer.state
    with pytest.raises(sg.FileError, match=r"another training: it lacks .*adamw/step"):
        trainer.restore(tmp_path / "sgd.safetensors")
    arrays = dict(before)
    arrays["head.bias"] = np.zeros(4, np.float32)
    write_arrays(tmp_path / "shape.safetensors", arrays)
    with pytest.raises(sg.StopgradError, match=r"head.bias"):
        trainer.restore(tmp_path / "shape.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"\x10" + b"\0" * 30)
    with pytest.raises(sg.StopgradError):
        trainer.restore(tmp_path / "broken.safetensors")
    with pytest.raises(sg.MissingFileError):
        trainer.restore(tmp_path / "none.safetensors")
    for name, value in trainer.state.items():
        np.testing.assert_array_equal(value, before[name])


def write_arrays(path: Path, arrays: Any) -> None:
    from safetensors.numpy import save_file

    save_file(arrays, path)


def test_a_folder_that_is_none_or_damaged_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(sg.MissingFileError, match="no training folder"):
        Trainer(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    for change, said in (
        (lambda m: m.update(format="other"), "no manifest of a training folder"),
        (lambda m: m.update(version=99), "newer stopgrad"),
        (lambda m: m.pop("graphs"), "damaged"),
        (lambda m: m["graphs"]["eval"].update(file="../eval.onnx"), "no file of the folder"),
        (lambda m: m["graphs"]["train_step"]["inputs"][0].update(dtype="float7"), "float7"),
        (lambda m: m["graphs"]["train_step"].update(inputs=3), "damaged"),
    ):
        changed = json.loads(json.dumps(manifest))
        change(changed)
        (tmp_path / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(sg.FileError, match=said):
            Trainer(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(sg.FileError, match="cannot be read"):
        Trainer(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(sg.MissingFileError):
        Trainer(tmp_path)
    (tmp_path / "state.safetensors").write_bytes((folder / "state.safetensors").read_bytes())
    (tmp_path / "train_step.onnx").write_bytes((folder / "train_step.onnx").read_bytes()[:500])
    with pytest.raises(sg.EngineError, match="onnxruntime"):
        Trainer(tmp_path).step(x=normal(3, 4), labels=[0, 1, 2])


def test_results_that_are_not_those_of_the_manifest_are_refused(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model = onnx.load(tmp_path / "eval.onnx")
    next(node for node in model.graph.node if "loss" in node.output).output[:] = ["one"]
    shape = onnx.helper.make_node("Constant", [], ["shape"], value_ints=[2])
    model.graph.node.extend([shape, onnx.helper.make_node("Expand", ["one", "shape"], ["loss"])])
    loss = next(y for y in model.graph.output if y.name == "loss")
    loss.CopyFrom(onnx.helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [2]))
    onnx.save(model, tmp_path / "eval.onnx")
    ((x, y),) = batches(1)
    with pytest.raises(sg.GraphError, match=r"loss is float32\[2\], not float32\[\]"):
        Trainer(tmp_path, threads=1).evaluate(x=x, labels=y)


@pytest.mark.parametrize("graph", ["predict", "merge"])
def test_a_graph_without_outputs_is_refused(graph: str, folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["graphs"][graph]["outputs"] = []
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(sg.FileError, match=f"{graph} has no outputs"):
        Trainer(tmp_path, threads=1)


def test_manifests_that_were_changed_are_refused_or_run(folder: Path, tmp_path: Path) -> None:
    """Whatever stands in one, it is no error but ours."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        manifest = json.loads((folder / "manifest.json").read_text())
        places: list[tuple[Any, Any]] = []
        waiting: list[Any] = [manifest]
        while waiting:
            one = waiting.pop()
            if isinstance(one, (dict, list)):
                keys = list(one) if isinstance(one, dict) else range(len(one))
                places += [(one, key) for key in keys]
                waiting += [one[key] for key in keys]
        held, key = places[random.integers(len(places))]
        held[key] = [7, "zz", None, [1, "a"], {"a": 1}][random.integers(5)]
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        try:
            changed = Trainer(tmp_path, threads=1)
            changed.step(x=[[1, 2, 3, 4]], labels=[1])
            changed.predict(x=[[1, 2, 3, 4]])
        except sg.StopgradError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("path", [None, 5, b"x", ["x"], "", "/dev/zero", ".", "pipe", "a\0b", "none"])
def test_a_state_is_read_from_a_file_alone(
    path: Any, trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    before = trainer.state
    with pytest.raises(sg.StopgradError) as caught:
        trainer.restore(path)
    assert not isinstance(caught.value, sg.InternalError)
    for name, value in trainer.state.items():
        np.testing.assert_array_equal(value, before[name])


def test_a_folder_with_a_pipe_is_refused_at_once(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    os.mkfifo(tmp_path / "weights.bin")
    with pytest.raises(sg.FileError, match=r"holds 'weights.bin', on which a reader could wait for ever"):
        Trainer(tmp_path)
    (tmp_path / "weights.bin").unlink()
    (tmp_path / "manifest.json").unlink()
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(sg.FileError, match="is no plain file"):
        Trainer(tmp_path)


@pytest.mark.parametrize("text", ["[" * 200_000, "1" * 10_000, "\ufeff{}", '{"format": 1e999}'])
def test_a_manifest_that_is_no_json_of_ours_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(sg.FileError):
        Trainer(tmp_path)


OUTSIDE = {
    "a link": ("link", "0", "16"),
    "another folder": ("../secret", "0", "16"),
    "an absolute path": ("/etc/passwd", "0", "16"),
    "this folder": (".", "0", "16"),
    "a folder": ("folder", "0", "16"),
    "no name": ("", "0", "16"),
    "nothing": ("nothing", "0", "16"),
    "an offset that is a word": ("plain", "abc", "4"),
    "a negative offset": ("plain", "-5", "4"),
    "an offset behind the end": ("plain", "65", "0"),
    "a negative length": ("plain", "0", "-1"),
    "a length behind the end": ("plain", "60", "5"),
    "a huge length": ("plain", "0", str(2**62)),
    "a number of many digits": ("plain", "0", "9" * 5000),
    "another alphabet's digits": ("plain", "\u0663", "4"),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_what_is_exported_comes_from_the_folder_alone(what: str, folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for file in folder.iterdir():
        (home / file.name).write_bytes(file.read_bytes())
    (tmp_path / "secret").write_bytes(b"secret" * 16)
    (home / "plain").write_bytes(b"p" * 64)
    (home / "link").symlink_to(tmp_path / "secret")
    (home / "folder").mkdir()
    model = onnx.load(home / "predict.onnx", load_external_data=False)
    for name, place in (("weight", OUTSIDE[what]), ("right", ("plain", "48", "16"))):
        tensor = model.graph.initializer.add(name=name, data_type=1, dims=[4], data_location=1)
        for key, value in zip(("location", "offset", "length"), place, strict=True):
            tensor.external_data.add(key=key, value=value)
        if name == "weight":
            (home / "predict.onnx").write_bytes(model.SerializeToString())
            with pytest.raises(sg.FileError):
                Trainer(home).export(tmp_path / "made.onnx")
            assert not (tmp_path / "made.onnx").exists()
            del model.graph.initializer[-1]
    (home / "predict.onnx").write_bytes(model.SerializeToString())
    Trainer(home).export(tmp_path / "made.onnx")
    made = onnx.load(tmp_path / "made.onnx").graph.initializer
    assert next(tensor.raw_data for tensor in made if tensor.name == "right") == b"p" * 16


def test_data_that_a_model_says_to_hold_is_taken_from_it(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model = onnx.load(tmp_path / "predict.onnx", load_external_data=False)
    model.graph.initializer.add(name="w", data_type=1, dims=[1], raw_data=b"abcd", data_location=0)
    assert model.graph.initializer[-1].HasField("data_location")
    (tmp_path / "predict.onnx").write_bytes(model.SerializeToString())
    Trainer(tmp_path).export(tmp_path / "made.onnx")
    made = onnx.load(tmp_path / "made.onnx").graph.initializer
    assert next(tensor.raw_data for tensor in made if tensor.name == "w") == b"abcd"


def test_fields_of_every_kind_are_passed_over() -> None:
    whole = b"\x08\x96\x01" + b"\x11" + b"8" * 8 + b"\x1a\x03abc" + b"\x25" + b"4" * 4 + b"\x28\x00"
    found = list(fields(memoryview(whole)))
    assert [field.number for field in found] == [1, 2, 3, 4, 5]
    assert found[0].value == 150
    assert [bytes(field.value) for field in found[1:4]] == [b"8" * 8, b"abc", b"4" * 4]
    assert b"".join(field.whole for field in found) == whole
    with pytest.raises(sg.FileError, match="truncated"):
        list(fields(memoryview(whole[:9])))


@pytest.fixture
def disk_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stopgrad.graph.files.os.replace", refuse)


def test_what_cannot_be_written_leaves_the_old_file(
    trainer: Trainer, tmp_path: Path, disk_full: None
) -> None:
    for name in ("state.safetensors", "used.onnx"):
        (tmp_path / name).write_text("old")
        with pytest.raises(sg.FileError, match="full"):
            (trainer.save if name.startswith("state") else trainer.export)(tmp_path / name)
        assert (tmp_path / name).read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


# ------------------------------------------------------------------------------------ inputs of any name


def test_names_that_are_taken_are_given_to_labels_and_loss_with_a_number(tmp_path: Path) -> None:
    graph = sg.Graph()
    with graph.as_default():
        xs = {name: sg.placeholder(sg.float32, ["n", 3], name=name) for name in ("labels", "loss")}
        w = sg.parameter(normal(3), name="w")
        y = w * (xs["labels"] + xs["loss"])
    model = model_of(graph, xs, {"y": y}, {"w": w})
    sgo.training(model, loss="mse", optimizer="sgd", folder=tmp_path / "out")
    trainer = Trainer(tmp_path / "out")
    x = normal(2, 3)
    assert trainer.step(labels=x, loss=x, labels_1=x) > 0
    assert set(trainer.evaluate(labels=x, loss=x, labels_1=x)) == {"loss_1", "y"}


# ----------------------------------------------------------------------------------------- a light start


def test_it_runs_where_neither_onnx_nor_a_framework_is(folder: Path, tmp_path: Path) -> None:
    text = f"""
import sys
for name in ("onnx", "torch", "jax"):
    sys.modules[name] = None
from stopgrad.trainer import Trainer
from stopgrad_trainer import memory
from stopgrad_trainer.exported import fields
trainer = Trainer({str(folder)!r})
loss = trainer.step(x=[[1, 2, 3, 4]], labels=[1])
trainer.predict(x=[[1, 2, 3, 4]])
trainer.save({str(tmp_path / "s.safetensors")!r})
trainer.export({str(tmp_path / "used.onnx")!r})
print(loss > 0, [name for name in ("onnx", "torch", "jax") if sys.modules[name] is not None])
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(sg.__file__).parents[1],
        check=False,
    )
    assert done.stdout == "True []\n", done.stderr


def test_a_step_and_what_is_asked_need_nothing_of_the_large_package(folder: Path) -> None:
    text = f"""
import sys
from stopgrad_trainer import Trainer
trainer = Trainer({str(folder)!r})
trainer.step(x=[[1, 2, 3, 4]], labels=[1])
trainer.evaluate(x=[[1, 2, 3, 4]], labels=[1])
trainer.predict(x=[[1, 2, 3, 4]])
trainer.state
print([name for name in ("stopgrad", "onnx", "torch", "jax", "optree") if name in sys.modules])
try:
    trainer.step(x=[[1, 2, 3, 4]])
except Exception as error:
    print(type(error).__module__, str(error).splitlines())
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(sg.__file__).parents[1],
        check=False,
    )
    expected = "['step: labels is missing; it takes x, labels, learning_rate', '  at <string>:11']"
    assert done.stdout == f"[]\nstopgrad.errors {expected}\n", done.stdout + done.stderr


def test_without_onnxruntime_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(sg.EngineError, match=r"stopgrad\[onnx\]"):
        Trainer(folder)
