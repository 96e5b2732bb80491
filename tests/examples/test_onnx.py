"""The examples of shipped training: what is trained, what is not, and what is not needed for it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import venv
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples_references import EXAMPLES, example
from pages import blocks

import stopgrad as sg
from stopgrad.tools import cli

pytestmark = pytest.mark.slow

onnxruntime = pytest.importorskip("onnxruntime")
stopgrad_trainer = pytest.importorskip("stopgrad_trainer")
onnx = pytest.importorskip("onnx")
safetensors = pytest.importorskip("safetensors.numpy")

SOURCES = Path(sg.__file__).parents[1]
DIGITS, TRANSFORMER = EXAMPLES / "onnx" / "digits", EXAMPLES / "onnx" / "transformer"
LOADED = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print("modules:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""
FRAMEWORKS = {"torch", "jax", "jaxlib", "tensorflow", "onnx", "onnxscript", "onnx_ir", "sklearn", "scipy"}


def prepared(name: str, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's exporter uses what PyTorch has deprecated.
        example(f"onnx/{name}/prepare").main(folder)
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared("digits", tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    threads = torch.get_num_threads()
    yield prepared("transformer", tmp_path_factory.mktemp("transformer"))
    torch.set_num_threads(threads)


def run(script: Path, folder: Path, python: str = sys.executable, **environment: str) -> tuple[str, set[str]]:
    """What a script prints, and the packages that it imported."""
    done = subprocess.run(
        [python, "-c", LOADED, script, folder],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed, _, modules = done.stdout.rpartition("modules: ")
    return printed, set(modules.split())


def weights(model: Path) -> dict[str, Any]:
    """The initializers of a model file, by name."""
    return {x.name: onnx.numpy_helper.to_array(x) for x in onnx.load(model).graph.initializer}


# ------------------------------------------------------------------------------------------------- digits


def accuracies(printed: str) -> tuple[float, float]:
    words = printed.split()
    before, after = words[words.index("before,") - 1], words[words.index("after") - 1]
    return float(before.rstrip("%")) / 100, float(after.rstrip("%")) / 100


def check_trained(printed: str, folder: Path) -> None:
    """It learnt the digits that it had not known, and the file that comes out does what was printed."""
    before, after = accuracies(printed)
    assert before < 0.6
    assert after > 0.94
    arrays = safetensors.load_file(folder / "digits.safetensors")
    session = onnxruntime.InferenceSession(str(folder / "trained.onnx"))
    assert [x.name for x in session.get_inputs()] == ["image"]
    (logits,) = session.run(None, {"image": arrays["held_out/images"]})
    assert (logits.argmax(axis=1) == arrays["held_out/labels"]).mean() == pytest.approx(after, abs=6e-4)


def test_the_head_is_trained_by_onnxruntime_and_no_framework_is_imported(digits: Path) -> None:
    printed, modules = run(DIGITS / "train.py", digits, PYTHONPATH=str(SOURCES))
    check_trained(printed, digits)
    assert "onnxruntime" in modules
    assert modules & FRAMEWORKS == set()


def test_of_the_digits_model_only_the_head_is_changed(digits: Path) -> None:
    trainer, losses, _, _ = example("onnx/digits/train").train(digits, steps=5)
    assert all(np.isfinite(losses))
    trainer.export(digits / "five.onnx")
    old, new = weights(digits / "model.onnx"), weights(digits / "five.onnx")
    assert {name for name in old if name.startswith("head/")} == {"head/w", "head/b"}
    for name in (name for name in old if name.startswith(("head/", "backbone/"))):
        assert np.array_equal(old[name], new[name]) == name.startswith("backbone/"), name


@pytest.mark.parametrize("name", ["digits", "transformer"])
def test_the_command_that_is_shown_makes_the_same_graphs(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command in the text above prepare.py."""
    folder: Path = request.getfixturevalue(name)
    text = example(f"onnx/{name}/prepare").__doc__
    words = shlex.split(text[text.index("stopgrad train-graph") :].replace("\\\n", " "))
    made = tmp_path / "training"
    command = [str(folder / "model.onnx") if word == "out/model.onnx" else word for word in words[1:]]
    assert command[-2:] == ["-o", "out/training"]
    assert cli.main([*command[:-1], str(made)]) == 0
    for file in (folder / "training").iterdir():
        assert (made / file.name).read_bytes() == file.read_bytes(), file.name


def test_the_program_of_the_page_trains(digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """What docs/ship.md shows for Python; what it shows for a browser is run there."""
    (digits / "out").symlink_to(digits)
    monkeypatch.chdir(digits)
    program, _ = blocks("ship.md", "python")  # The other is in tests/tools/test_serve.py.
    exec(compile(program, "ship.md", "exec"), {})
    assert int(capsys.readouterr().out.partition("%")[0]) > 85


@pytest.mark.nightly
def test_the_head_is_trained_where_nothing_else_is_installed(digits: Path, tmp_path: Path) -> None:
    """A new environment with onnxruntime and what stopgrad itself needs."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    source = tmp_path / "source"
    shutil.copytree(SOURCES, source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(SOURCES.parent / name, source)
    install = [python, "-m", "pip", "install", "--quiet", "onnxruntime", source]
    done = subprocess.run(install, capture_output=True, text=True, timeout=600)
    if "Failed to establish a new connection" in done.stderr:
        pytest.skip("A BARE ENVIRONMENT IS NOT TESTED: PyPI cannot be reached")
    assert done.returncode == 0, done.stderr
    there = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[0].lower() for line in there.splitlines()} & FRAMEWORKS == set()
    printed, _ = run(DIGITS / "train.py", digits, str(python))
    check_trained(printed, digits)


# -------------------------------------------------------------------------------------------- transformer


def adapters(trainer: Any) -> dict[str, Any]:
    """The small matrices that a trainer holds, by name."""
    ports = trainer.manifest["graphs"]["train_step"]["inputs"]
    return {
        port["name"]: np.array(trainer.state[port["name"]]) for port in ports if port["role"] == "parameter"
    }


def test_a_transformer_learns_another_text_by_adapters(transformer: Path) -> None:
    printed, modules = run(TRANSFORMER / "train.py", transformer, PYTHONPATH=str(SOURCES))
    assert modules & FRAMEWORKS == set()
    before, loss, after = printed.strip().splitlines()
    first, last = (float(part.split()[0]) for part in loss.removeprefix("loss: ").split(", "))
    assert last < 0.3 * first
    for word in ("fox", "hen", "ran", "river", "barn"):
        assert word not in before
    assert sum(word in after for word in ("fox", "hen", "ran", "river", "barn")) >= 3


def test_the_base_of_the_transformer_is_bit_for_bit_what_it_was(transformer: Path) -> None:
    trainer = stopgrad_trainer.Trainer(transformer / "training")
    adapted = {name.rpartition("/")[0] for name in adapters(trainer)}
    assert len(adapted) == 8
    example("onnx/transformer/train").train(trainer, steps=5)
    old = weights(transformer / "model.onnx")
    for file in ("train_step.onnx", "gradients.onnx", "merge.onnx", "predict.onnx"):
        shipped = weights(transformer / "training" / file)
        for name in set(shipped) & set(old):
            np.testing.assert_array_equal(shipped[name], old[name], err_msg=f"{file}: {name}")
    trainer.export(transformer / "five.onnx")
    new = weights(transformer / "five.onnx")
    for name, value in old.items():
        if name in adapted:
            first, second = trainer.state[f"{name}/lora_a"], trainer.state[f"{name}/lora_b"]
            assert not np.array_equal(new[name], value)
            np.testing.assert_allclose(new[name], value + 2.0 * (first @ second).T, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(new[name], value, err_msg=name)


def test_the_adapters_follow_those_of_pytorch(transformer: Path) -> None:
    """The same LoRA in PyTorch, on the same batches: the same losses and the same adapters."""
    torch = pytest.importorskip("torch")
    module, train = example("onnx/transformer/prepare"), example("onnx/transformer/train")
    trainer = stopgrad_trainer.Trainer(transformer / "training")
    model = module.Transformer()
    named = {name: torch.from_numpy(x.copy()) for name, x in weights(transformer / "model.onnx").items()}
    model.load_state_dict({name: named[name] for name in model.state_dict()})
    frozen = {name: x.detach() for name, x in model.named_parameters()}
    small = {name: torch.tensor(x, requires_grad=True) for name, x in adapters(trainer).items()}
    adapted = {name.rpartition("/")[0] for name in small}
    optimizer = torch.optim.AdamW(small.values(), lr=0.01)
    rng = np.random.default_rng(1)
    for _ in range(20):
        tokens, labels = train.batch(rng, train.SECOND)
        merged = {n: frozen[n] + 2.0 * (small[f"{n}/lora_a"] @ small[f"{n}/lora_b"]).T for n in adapted}
        logits = torch.func.functional_call(model, frozen | merged, (torch.from_numpy(tokens),))
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ours = trainer.step(tokens=tokens, labels=labels, learning_rate=0.01)
        assert ours == pytest.approx(loss.item(), rel=1e-4)
    for name, x in small.items():
        value, found = x.detach().numpy(), trainer.state[name]
        np.testing.assert_allclose(found, value, rtol=0, atol=1e-4 * np.abs(value).max(), err_msg=name)
