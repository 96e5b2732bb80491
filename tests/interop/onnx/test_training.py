"""Training graphs: trained by a stock ONNX Runtime, compared with PyTorch; frozen and stopped parts; LoRA."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx_training_tools import Twin, batches, mlp, node, normal, scaled, write
from pages import DOCS
from torch.nn import functional

import stopgrad as sg
import stopgrad.onnx as sgo

STEPS = 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    mlp(tmp_path / "mlp.onnx")
    return tmp_path / "mlp.onnx"


def trained(model: Path, folder: str = "out", **options: Any) -> sgo.Trainer:
    made = sgo.training(model, **{"loss": "cross-entropy", "folder": model.parent / folder, **options})
    return sgo.Trainer(made.folder, threads=1)


def twin(model: Path) -> Twin:
    return Twin({t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer})


def follows(trainer: sgo.Trainer, theirs: Twin, optimizer: Any, **fed: Any) -> None:
    """Twenty steps of both end at the same parameters."""
    for x, y in batches(STEPS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        optimizer.step()
        assert trainer.step(x=x, labels=y, **fed) == pytest.approx(loss.item(), rel=1e-4)
    for name, value in theirs.weights.items():
        np.testing.assert_allclose(trainer.state[name], value.detach().numpy(), rtol=1e-4, atol=1e-5)


OPTIMIZERS = [
    ("adamw", lambda w: torch.optim.AdamW(w, lr=0.05)),
    (
        "adamw:betas=0.8,0.95,weight_decay=0.1",
        lambda w: torch.optim.AdamW(w, 0.05, (0.8, 0.95), weight_decay=0.1),
    ),
    ("adam", lambda w: torch.optim.Adam(w, lr=0.05)),
    ("sgd", lambda w: torch.optim.SGD(w, lr=0.05)),
    ("sgd:momentum=0.9,nesterov=true", lambda w: torch.optim.SGD(w, lr=0.05, momentum=0.9, nesterov=True)),
]


@pytest.mark.parametrize(
    ("optimizer", "theirs"),
    [
        pytest.param(*one, id=one[0], marks=() if one[0] == "adamw" else pytest.mark.slow)
        for one in OPTIMIZERS
    ],
)
def test_twenty_steps_follow_pytorch(optimizer: str, theirs: Any, model: Path) -> None:
    other = twin(model)
    follows(trained(model, optimizer=optimizer), other, theirs([*other.weights.values()]), learning_rate=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lion", "rmsprop", "adagrad", "adafactor", "muon"])
def test_the_other_optimizers_lower_the_loss(optimizer: str, model: Path) -> None:
    trainer = trained(model, optimizer=optimizer)
    ((x, y),) = batches(1)
    losses = [trainer.step(x=x, labels=y, learning_rate=0.02) for _ in range(10)]
    assert losses[-1] < 0.9 * losses[0]


def test_gradients_are_clipped_by_their_norm_together(model: Path) -> None:
    trainer, theirs = trained(model, optimizer="sgd", clip=0.05), twin(model)
    ((x, y),) = batches(1)
    functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y)).backward()
    found = trainer.gradients(x=x, labels=y)  # Those that arrive.
    for name, w in theirs.weights.items():
        np.testing.assert_allclose(found[name], w.grad.numpy(), rtol=1e-4, atol=1e-6)
    norm = torch.nn.utils.clip_grad_norm_([*theirs.weights.values()], 0.05)
    assert norm > 0.1
    before = trainer.state
    trainer.step(x=x, labels=y, learning_rate=1.0)
    for name, w in theirs.weights.items():
        moved = before[name] - trainer.state[name]
        np.testing.assert_allclose(moved, w.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_gradients_of_several_steps_are_averaged(model: Path) -> None:
    trainer, theirs = trained(model, accumulate=3), twin(model)
    optimizer = torch.optim.AdamW([*theirs.weights.values()], lr=0.05)
    for i, (x, y) in enumerate(batches(9)):
        before = trainer.state["enc.weight"]
        (functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y)) / 3).backward()
        trainer.step(x=x, labels=y, learning_rate=0.05)
        if i % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        assert (trainer.state["enc.weight"] != before).any() == (i % 3 == 2)
    for name, value in theirs.weights.items():
        np.testing.assert_allclose(trainer.state[name], value.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_schedule_takes_the_place_of_the_learning_rate(model: Path) -> None:
    trainer, theirs = trained(model, optimizer="sgd", schedule="cosine:0.1,10,warmup=2"), twin(model)
    optimizer = torch.optim.SGD([*theirs.weights.values()], lr=1.0)
    schedule = sg.optimizers.warmup(sg.optimizers.cosine(0.1, 10), 2)
    assert [x["name"] for x in trainer.manifest["graphs"]["train_step"]["inputs"]][:3] == [
        "x",
        "labels",
        "enc.weight",
    ]
    for i, (x, y) in enumerate(batches(6)):
        optimizer.param_groups[0]["lr"] = float(schedule(i))
        optimizer.zero_grad()
        functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y)).backward()
        optimizer.step()
        trainer.step(x=x, labels=y)
    np.testing.assert_allclose(trainer.state["head.bias"], theirs.weights["head.bias"].detach(), rtol=1e-4)
    with pytest.raises(sg.ArgumentError, match="schedule"):
        trainer.step(x=x, labels=y, learning_rate=0.1)


# ------------------------------------------------------------------------------- frozen and stopped parts


def operations(folder: Path, graph: str = "gradients") -> list[str]:
    return [n.op_type for n in onnx.load(folder / f"{graph}.onnx").graph.node]


def test_frozen_parts_have_no_gradient_and_no_state(model: Path) -> None:
    whole, half = trained(model), trained(model, "half", freeze="enc.*")
    head = trained(model, "head", only=["head"])
    products = [operations(model.parent / name).count("MatMul") for name in ("out", "half", "head")]
    # Forward three; of the gradient: one for each weight that is trained, and one for each layer gone.
    fused = [operations(model.parent / name).count("Gemm") for name in ("out", "half", "head")]
    assert [a + b for a, b in zip(products, fused, strict=True)] == [3 + 3 + 2, 3 + 2 + 1, 3 + 1]
    assert half.manifest["frozen"] == ["enc.weight", "enc.bias"]
    assert [name for name in half.state if "enc" in name] == []
    assert len(whole.state) == 6 * 3 + 1
    assert len(head.state) == 2 * 3 + 1
    ((x, y),) = batches(1)
    for trainer in (whole, half, head):
        trainer.step(x=x, labels=y, learning_rate=0.1)
    np.testing.assert_array_equal(half.state["head.weight"], whole.state["head.weight"])
    np.testing.assert_array_equal(head.state["head.weight"], whole.state["head.weight"])


def test_the_page_has_every_key_of_the_manifest_and_no_other(model: Path) -> None:
    section = (DOCS / "train-graph.md").read_text().split("## `manifest.json`\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert {key for cell in cells for key in re.findall(r"`(\w+)`", cell)} == set(trained(model).manifest)


@pytest.mark.parametrize("stop", ["mid", "/mid/Relu", "mid/*", "mid_r"])
def test_nothing_is_generated_behind_a_stop(stop: str, model: Path) -> None:
    trainer = trained(model, stop=stop)
    assert sorted(trainer.manifest["untouched"]) == ["enc.bias", "enc.weight", "mid.bias", "mid.weight"]
    assert set(trainer.manifest["stopped"]) == {stop}
    assert [n for n in trainer.state if "head" not in n] == ["adamw/step"]
    names = operations(model.parent / "out")
    assert names.count("MatMul") + names.count("Gemm") == 3 + 1
    ((x, y),) = batches(1)
    before = trainer.predict(x=x)["logits"]
    trainer.step(x=x, labels=y)
    assert (trainer.predict(x=x)["logits"] != before).any()


def test_the_flow_report_is_of_what_is_shipped(model: Path) -> None:
    made = sgo.training(model, loss="mse", freeze="enc", stop="mid/Relu", folder=model.parent / "out")
    assert made.flow["head.weight"].status == "flows"
    assert made.flow["mid.weight"].status == "stopped"
    assert made.flow["enc.weight"].status == "stopped"
    assert any("mid.weight" in note for note in made.notes)


def test_single_numbers_are_trained_only_where_they_are_asked_for(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "w"], "a"), node("Mul", ["a", "scale"], "y")]
    weights = {"w": normal(3), "scale": np.array(2.0, np.float32)}
    write(tmp_path / "m.onnx", nodes, {"x": ["n", 3]}, {"y": ["n", 3]}, weights)
    assert list(trained(tmp_path / "m.onnx", loss="mse", optimizer="sgd").state) == ["w", "sgd/step"]
    both = trained(tmp_path / "m.onnx", loss="mse", optimizer="sgd", only=["w", "scale"])
    assert list(both.state) == ["w", "scale", "sgd/step"]


# --------------------------------------------------------------------------------------------------- LoRA


def test_adapters_are_trained_and_their_base_is_not(model: Path) -> None:
    trainer = trained(
        model, lora={"weights": ["enc.weight", "mid.*t"], "rank": 2, "alpha": 4.0}, only="head.bias"
    )
    state = trainer.state
    assert list(state)[:5] == ["head.bias", *(f"{w}.weight/lora_{k}" for w in ("enc", "mid") for k in "ab")]
    assert "enc.weight" in trainer.manifest["frozen"]
    plain = twin(model)
    theirs = {
        name: torch.tensor(value, requires_grad=True) for name, value in state.items() if "adamw" not in name
    }

    def forward(x: Any) -> Any:
        plain.weights["head.bias"] = theirs["head.bias"]
        saved = dict(plain.weights)
        for name in ("enc.weight", "mid.weight"):
            plain.weights[name] = (
                saved[name].detach() + 2.0 * theirs[f"{name}/lora_a"] @ theirs[f"{name}/lora_b"]
            )
        y = plain(x)
        plain.weights.update(saved)
        return y

    optimizer = torch.optim.AdamW([*theirs.values()], lr=0.05)
    for x, y in batches(STEPS):
        optimizer.zero_grad()
        functional.cross_entropy(forward(torch.tensor(x)), torch.tensor(y)).backward()
        optimizer.step()
        trainer.step(x=x, labels=y, learning_rate=0.05)
    for name, value in theirs.items():
        np.testing.assert_allclose(trainer.state[name], value.detach().numpy(), rtol=1e-4, atol=1e-5)
    expected = forward(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(trainer.predict(x=x)["logits"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(trainer.evaluate(x=x, labels=y)["logits"], expected, rtol=1e-4, atol=1e-5)
    trainer.export(model.parent / "merged.onnx")
    found = onnxruntime.InferenceSession(str(model.parent / "merged.onnx")).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_adapters_that_cannot_be_are_refused(model: Path) -> None:
    for lora, said in (
        ("head.bias", r"float32\[3\]"),
        ({"weights": "head.weight", "rank": 4}, "larger"),
        ({"weights": "head.weight", "rank": 0}, "from 1 on"),
        ({"weights": "head.weight", "alpha": -1.0}, "above 0"),
        ({"rank": 2}, "weights"),
        ({"weights": "head.weight", "size": 2}, "size"),
        ("tail.*", "tail"),
    ):
        with pytest.raises(sg.ArgumentError, match=said):
            trained(model, lora=lora)
    assert not (model.parent / "out").exists()


# ------------------------------------------------------------------------------- batch normalisation, dropout


def with_norm(path: Path, training: bool) -> Path:
    names = ["y0", "mean_new", "var_new"] if training else ["y0"]
    nodes = [
        node("MatMul", ["x", "w"], "a"),
        node(
            "BatchNormalization",
            ["a", "scale", "bias", "mean", "var"],
            names,
            "/norm",
            training_mode=int(training),
        ),
        node("MatMul", ["y0", "v"], "y"),
    ]
    weights = {"w": normal(4, 5), "v": normal(5, 3, seed=1), "scale": np.ones(5, np.float32)}
    weights |= {
        "bias": np.zeros(5, np.float32),
        "mean": np.zeros(5, np.float32),
        "var": np.ones(5, np.float32),
    }
    write(path, nodes, {"x": ["batch", 4]}, {"y": ["batch", 3]}, weights)
    return path


def norm_in_pytorch(model: Path) -> tuple[Any, Any]:
    weights = {
        t.name: torch.tensor(onnx.numpy_helper.to_array(t)) for t in onnx.load(model).graph.initializer
    }
    norm = torch.nn.BatchNorm1d(5)
    w, v = (weights[name].requires_grad_() for name in "wv")
    return lambda x: norm(torch.tensor(x) @ w) @ v, (norm, w, v)


@pytest.mark.parametrize(
    ("in_file", "mode"), [(True, "model"), pytest.param(False, "train", marks=pytest.mark.slow)]
)
def test_running_statistics_are_state_where_the_model_is_in_training(
    in_file: bool, mode: str, tmp_path: Path
) -> None:
    model = with_norm(tmp_path / "norm.onnx", in_file)
    trainer = trained(model, loss="mse", optimizer="sgd", mode=mode)
    assert trainer.manifest["state"]["mean"]["kind"] == "statistic"
    theirs, (norm, w, v) = norm_in_pytorch(model)
    optimizer = torch.optim.SGD([w, v, *norm.parameters()], lr=0.1)
    for i in range(5):
        x, y = normal(8, 4, seed=i), normal(8, 3, seed=50 + i)
        optimizer.zero_grad()
        loss = functional.mse_loss(theirs(x), torch.tensor(y))
        loss.backward()
        optimizer.step()
        assert trainer.step(x=x, labels=y, learning_rate=0.1) == pytest.approx(loss.item(), rel=1e-4)
    state = trainer.state
    np.testing.assert_allclose(state["w"], w.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state["scale"], norm.weight.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state["mean"], norm.running_mean.numpy(), rtol=1e-4, atol=1e-5)
    # ONNX keeps the population's variance, PyTorch the sample's: 8/7 of it.
    np.testing.assert_allclose((state["var"] - 0.9**5) * 8 / 7, norm.running_var.numpy() - 0.9**5, rtol=1e-4)
    norm.running_var = torch.tensor(state["var"])
    norm.eval()
    expected = theirs(x).detach().numpy()
    np.testing.assert_allclose(trainer.predict(x=x)["y"], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(trainer.evaluate(x=x, labels=y)["y"], expected, rtol=1e-4, atol=1e-4)
    trainer.export(tmp_path / "used.onnx")
    used = onnxruntime.InferenceSession(str(tmp_path / "used.onnx"))
    np.testing.assert_allclose(used.run(None, {"x": x[:1]})[0], expected[:1], rtol=1e-4, atol=1e-4)


def test_statistics_of_a_model_for_use_stay_as_they_are(tmp_path: Path) -> None:
    trainer = trained(with_norm(tmp_path / "norm.onnx", False), loss="mse", optimizer="sgd")
    assert list(trainer.state) == ["w", "v", "scale", "bias", "sgd/step"]


def test_mode_eval_trains_a_training_model_as_it_is_used(tmp_path: Path) -> None:
    trainer = trained(with_norm(tmp_path / "norm.onnx", True), loss="mse", optimizer="sgd", mode="eval")
    assert list(trainer.state) == ["w", "v", "scale", "bias", "sgd/step"]
    with pytest.raises(sg.ArgumentError, match="mode"):
        trained(tmp_path / "norm.onnx", loss="mse", mode="half")


def test_dropout_draws_anew_in_each_step_and_not_where_the_model_is_used(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], "a"), node("Dropout", ["a"], "b"), node("MatMul", ["b", "v"], "y")]
    weights = {"w": normal(4, 50, scale=0.1), "v": normal(50, 3, seed=1)}
    write(tmp_path / "m.onnx", nodes, {"x": ["batch", 4]}, {"y": ["batch", 3]}, weights)
    trainer = trained(tmp_path / "m.onnx", loss="mse", optimizer="sgd", mode="train")
    assert trainer.manifest["state"]["random_key"]["kind"] == "random"
    fed = {"x": normal(8, 4), "labels": normal(8, 3)}
    losses = [trainer.step(**fed, learning_rate=0.0) for _ in range(4)]
    assert len(set(losses)) == 4
    trainer.reset()
    assert [trainer.step(**fed, learning_rate=0.0) for _ in range(4)] == losses
    one, other = trainer.gradients(**fed)["w"], trainer.gradients(**fed)["w"]
    np.testing.assert_array_equal(one, other)  # At one state, they are of one draw.
    plain = trained(tmp_path / "m.onnx", "plain", loss="mse", optimizer="sgd")
    assert trainer.evaluate(**fed)["loss"] == plain.evaluate(**fed)["loss"]
    assert trainer.predict(x=fed["x"])["y"].shape == (8, 3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_models_of_other_floats_are_trained(dtype: Any, tmp_path: Path) -> None:
    model = scaled([3], dtype)
    sgo.training(model, loss="cross-entropy", optimizer="adamw", folder=tmp_path / "out")
    trainer = sgo.Trainer(tmp_path / "out", threads=1)
    x, y = normal(6, 3).astype(dtype), np.array([0, 1, 2, 0, 1, 2])
    w = torch.tensor(trainer.state["w"].astype(np.float32), requires_grad=True)
    optimizer = torch.optim.AdamW([w], lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        loss = functional.cross_entropy(torch.tensor(x.astype(np.float32)) * w, torch.tensor(y))
        loss.backward()
        optimizer.step()
        found = trainer.step(x=x, labels=y, learning_rate=0.05)
        assert found == pytest.approx(loss.item(), rel=3e-3 if dtype is np.float16 else 1e-5)
    assert trainer.state["w"].dtype == dtype
    assert trainer.state["adamw/m/w"].dtype == (np.float32 if dtype is np.float16 else dtype)


# ------------------------------------------------------------------------------------------- the files


def test_all_graphs_are_valid_and_their_batch_is_symbolic(model: Path) -> None:
    made = sgo.training(model, loss="cross-entropy", opset=18, folder=model.parent / "out")
    on_disk = json.loads((made.folder / "manifest.json").read_text())
    assert on_disk == json.loads(json.dumps(made.manifest))
    assert {f.name for f in made.folder.iterdir()} == {
        *(f"{name}.onnx" for name in ("train_step", "gradients", "eval", "predict", "merge")),
        *("scalars.onnx", "update_0.onnx"),
        *("state.safetensors", "manifest.json"),
    }
    for name, graph in on_disk["graphs"].items():
        found = onnx.load(made.folder / graph["file"])
        onnx.checker.check_model(found, full_check=True)
        assert {o.domain for o in found.opset_import} <= {""}, "a stock runtime knows all operators"
        assert [i.name for i in found.graph.input] == [x["name"] for x in graph["inputs"]], name
        assert [o.name for o in found.graph.output] == [y["name"] for y in graph["outputs"]], name
        for i, x in zip(
            [*found.graph.input, *found.graph.output], graph["inputs"] + graph["outputs"], strict=True
        ):
            shape = [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
            assert shape == x["shape"], (name, x)
        if name != "predict":
            assert found.opset_import[0].version == 18
    step = on_disk["graphs"]["train_step"]
    assert on_disk["step"] == {y["updates"]: y["name"] for y in step["outputs"] if "updates" in y}
    assert set(on_disk["step"]) == set(on_disk["state"]) == set(sgo.Trainer(made.folder).state)
    assert step["inputs"][0]["shape"] == ["batch", 4]


@pytest.mark.parametrize("optimizer", ["adamw", "adagrad:lr_decay=0.1", "sgd:momentum=0.9,dampening=0.1"])
def test_a_step_of_float32_needs_no_float64(optimizer: str, model: Path) -> None:
    made = sgo.training(
        model,
        loss="cross-entropy",
        optimizer=optimizer,
        schedule="cosine:0.1,9,warmup=2",
        folder=model.parent / "o",
    )
    graph = onnx.shape_inference.infer_shapes(onnx.load(made.folder / "train_step.onnx")).graph
    kinds = {x.type.tensor_type.elem_type for x in [*graph.value_info, *graph.output]}
    kinds |= {t.data_type for t in graph.initializer}
    assert onnx.TensorProto.FLOAT in kinds
    assert onnx.TensorProto.DOUBLE not in kinds


def test_what_is_exported_is_the_users_own_model(model: Path) -> None:
    trainer = trained(model, freeze="enc")
    for x, y in batches(3):
        trainer.step(x=x, labels=y)
    trainer.export(model.parent / "used.onnx")
    old, new = onnx.load(model), onnx.load(model.parent / "used.onnx")
    onnx.checker.check_model(new, full_check=True)
    assert list(new.graph.node) == list(old.graph.node)
    assert list(new.graph.input) == list(old.graph.input)
    held = {t.name: onnx.numpy_helper.to_array(t) for t in new.graph.initializer}
    before = {t.name: onnx.numpy_helper.to_array(t) for t in old.graph.initializer}
    assert set(held) == set(before)
    np.testing.assert_array_equal(held["enc.weight"], before["enc.weight"])
    np.testing.assert_array_equal(held["head.weight"], trainer.state["head.weight"])


def test_large_weights_are_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["stopgrad.interop.onnx.training.training_folders"], "APART", 10_000)
    weights = {"base": normal(64, 64), "head": normal(64, 3)}
    nodes = [node("MatMul", ["x", "base"], "a"), node("MatMul", ["a", "head"], "y")]
    write(tmp_path / "m.onnx", nodes, {"x": ["n", 64]}, {"y": ["n", 3]}, weights)
    trainer = trained(tmp_path / "m.onnx", loss="mse", optimizer="sgd", freeze="base")
    sizes = {f.name: f.stat().st_size for f in (tmp_path / "out").iterdir()}
    assert sizes["weights.bin"] == 64 * 64 * 4
    assert max(size for name, size in sizes.items() if name.endswith(".onnx")) < 8000
    x = normal(2, 64)
    trainer.step(x=x, labels=normal(2, 3))
    (tmp_path / "elsewhere").mkdir()
    trainer.export(tmp_path / "elsewhere" / "used.onnx")
    used = onnxruntime.InferenceSession(str(tmp_path / "elsewhere" / "used.onnx"))
    np.testing.assert_allclose(used.run(None, {"x": x})[0], trainer.predict(x=x)["y"], rtol=1e-5)


@pytest.fixture
def disk_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stopgrad.graph.files.os.replace", refuse)


def test_a_folder_is_written_whole_or_not_at_all(model: Path, disk_full: None) -> None:
    with pytest.raises(sg.FileError, match="full"):
        trained(model)
    assert [f.name for f in model.parent.iterdir()] == ["mlp.onnx"]


def test_an_older_training_folder_is_replaced_and_nothing_else(model: Path) -> None:
    trained(model)
    trained(model, freeze="enc")
    assert json.loads((model.parent / "out" / "manifest.json").read_text())["frozen"]
    (model.parent / "mine").mkdir()
    (model.parent / "mine" / "thesis.txt").write_text("...")
    with pytest.raises(sg.FileError, match="other files"):
        trained(model, "mine")
    with pytest.raises(sg.FileError, match="is a file"):
        trained(model, "mlp.onnx")
    with pytest.raises(sg.FileError, match="does not exist"):
        trained(model, "no/where")
    assert sorted(f.name for f in model.parent.iterdir()) == ["mine", "mlp.onnx", "out"]


# ---------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"freeze": "encc.*"}, "enc.weight"),
        ({"freeze": ["enc.*", "tail"]}, "'tail' matches no parameter"),
        ({"only": "enk.weight"}, "enc.weight"),
        ({"stop": "encoder/layer3"}, "there are enc"),
        ({"freeze": "*"}, "no parameter is left to train"),
        ({"freeze": [3]}, "a pattern of names is text"),
        ({"optimizer": "adamwx"}, "did you mean 'adamw'"),
        ({"optimizer": "adamw:lr=3"}, "'lr' does not exist"),
        ({"optimizer": 7}, "not 7"),
        ({"schedule": "cosinus:1,2"}, "did you mean 'cosine'"),
        ({"schedule": "cosine"}, "needs the option 'start'"),
        ({"schedule": "cosine:0.1,10", "learning_rate": 0.1}, "leave one"),
        ({"clip": 0.0}, "above 0"),
        ({"accumulate": 0}, "from 1 on"),
        ({"opset": 17}, "18 to 2"),
        ({"stop": "head"}, "no gradient"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(options: Any, said: str, model: Path) -> None:
    with pytest.raises(sg.StopgradError, match=said):
        trained(model, **options)
    assert [f.name for f in model.parent.iterdir()] == ["mlp.onnx"]


def test_damaged_files_are_refused_and_nothing_is_written(model: Path, tmp_path: Path) -> None:
    whole = model.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"\0" * 100, whole[:20] + b"\xff" * 40 + whole[60:]):
        model.write_bytes(content)
        with pytest.raises(sg.StopgradError):
            trained(model)
    assert [f.name for f in tmp_path.iterdir()] == ["mlp.onnx"]


@pytest.mark.parametrize(("version", "said"), [(6, "opset 6"), (99, "opset 99")])
def test_an_opset_that_is_not_known_is_refused(version: int, said: str, model: Path) -> None:
    changed = onnx.load(model)
    changed.opset_import[0].version = version
    model.write_bytes(changed.SerializeToString())
    with pytest.raises(sg.FileError, match=said):
        trained(model)
    assert [f.name for f in model.parent.iterdir()] == ["mlp.onnx"]


def test_names_with_signs_of_patterns_are_found_as_they_are(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "layers[0].w"], "a"), node("Mul", ["a", "layers[1].w"], "y")]
    weights = {"layers[0].w": normal(3), "layers[1].w": normal(3, seed=1)}
    write(tmp_path / "m.onnx", nodes, {"x": ["n", 3]}, {"y": ["n", 3]}, weights)
    trainer = trained(tmp_path / "m.onnx", loss="mse", optimizer="sgd", freeze="layers[0].w")
    assert list(trainer.state) == ["layers[1].w", "sgd/step"]
    trainer.step(x=normal(2, 3), labels=normal(2, 3))


def test_unknown_operators_are_all_listed(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Whirl", ["x"], ["a"], "first/Whirl", domain="own"),
        onnx.helper.make_node("Swirl", ["a"], ["b"], "second/Swirl", domain="own"),
        node("Mul", ["b", "w"], "y"),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "odd",
        [onnx.helper.make_tensor_value_info("x", 1, ["n", 3])],
        [onnx.helper.make_tensor_value_info("y", 1, ["n", 3])],
        [onnx.numpy_helper.from_array(normal(3), "w")],
    )
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("own", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "odd.onnx")
    with pytest.raises(sg.GraphError, match=r"(?s)first/Whirl.*second/Swirl"):
        trained(tmp_path / "odd.onnx", loss="mse")


def test_external_data_that_points_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.bin").write_bytes(normal(3).tobytes())
    model = write(
        tmp_path / "in" / "m.onnx",
        [node("Mul", ["x", "w"], "y")],
        {"x": ["n", 3]},
        {"y": ["n", 3]},
        {"w": normal(3)},
    )
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.bin")
    (tmp_path / "in" / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(sg.StopgradError, match="'w'"):
        sgo.training(tmp_path / "in" / "m.onnx", loss="mse", folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()
