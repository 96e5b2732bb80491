"""Monitors as callbacks of the trainers of Lightning and transformers: the real ones."""

from __future__ import annotations

import copy
import io
import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
library = pytest.importorskip("torch_libraries").library
nn = torch.nn


@pytest.fixture(autouse=True)
def _quietly() -> Any:
    """The libraries' own warnings, and what they patch themselves, are not about us."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library("pytorch_lightning")
        library("transformers").Trainer  # noqa: B018 - it is imported now.
        with sgt.watch():
            pass  # PyTorch is patched once for the process.
        PLAIN[:] = patchable()
        yield


class Net(nn.Module):
    """A network that dies, fails or is cut at some step, as its loss is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        self.calls = 0
        self.dies: int | None = None
        self.error: tuple[int, BaseException] | None = None

    def forward(self, x: Any) -> Any:
        if self.calls == self.dies:
            self.first.bias.data.fill_(-100.0)
        self.calls += 1
        if self.error is not None and self.calls > self.error[0]:
            raise self.error[1]
        return self.head(torch.relu(self.first(x)))


PATCHED = [
    (torch.nn.Module, "__call__"),
    (torch.nn.Parameter, "__new__"),
    (torch, "compile"),
    (torch.inference_mode, "__enter__"),
]
PLAIN: list[Any] = []


def patchable() -> list[Any]:
    return [vars(owner)[name] for owner, name in PATCHED]


def nothing_is_patched(net: Any) -> bool:
    return (
        all(now is plain for now, plain in zip(patchable(), PLAIN, strict=True))
        and torch._C._len_torch_function_stack() == 0
        and "forward" not in vars(net)
        and not any(p._backward_hooks for p in net.parameters())
    )


def sampled(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def told(monitor: Any) -> list[tuple[int, str, tuple[str, ...]]]:
    return [(change.step, change.state, change.keys) for change in monitor.changes]


# ------------------------------------------------------------------------------------------ Lightning


def lightning_fit(net: Any, folder: Path, callbacks: list[Any], steps: int = 8, accumulate: int = 1) -> None:
    lightning = library("pytorch_lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    data = torch.utils.data.TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(1)))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        accumulate_grad_batches=accumulate,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=4))


def test_lightning_tells_of_a_layer_that_dies_in_the_next_sample(tmp_path: Path) -> None:
    net = Net()
    net.dies = 4
    monitor = sgt.monitor(net, every=3, to=[io.StringIO(), tmp_path / "run.jsonl"])
    lightning_fit(net, tmp_path, [monitor.lightning_callback()])
    assert sampled(tmp_path / "run.jsonl") == [0, 3, 6]
    assert told(monitor)[0] == (6, "zero", ("first.weight", "first.bias"))
    assert " relu is dead" in monitor.changes[0].cause
    assert "test_monitoring_trainers.py:" in monitor.changes[0].cause
    assert nothing_is_patched(net)


def test_lightning_counts_the_steps_of_the_optimizer(tmp_path: Path) -> None:
    net = Net()
    monitor = sgt.monitor(net, every=2, to=tmp_path / "run.jsonl")
    lightning_fit(net, tmp_path, [monitor.lightning_callback()], steps=4, accumulate=3)
    assert sampled(tmp_path / "run.jsonl") == [0, 2]
    assert monitor.changes == ()


def test_lightning_trains_the_same_bits_with_and_without_a_monitor(tmp_path: Path) -> None:
    net = Net()
    twin = copy.deepcopy(net)
    lightning_fit(net, tmp_path, [])
    monitor = sgt.monitor(twin, every=2, to=io.StringIO())
    lightning_fit(twin, tmp_path, [monitor.lightning_callback()])
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), KeyboardInterrupt()])
def test_a_lightning_training_that_fails_leaves_nothing_patched(error: BaseException, tmp_path: Path) -> None:
    net = Net()
    net.error = (2, error)
    monitor = sgt.monitor(net, every=1, to=tmp_path / "run.jsonl")
    with suppress(ZeroDivisionError, KeyboardInterrupt, SystemExit):  # It ends the process when interrupted.
        lightning_fit(net, tmp_path, [monitor.lightning_callback()])
    assert nothing_is_patched(net)
    assert sampled(tmp_path / "run.jsonl") == [0, 1]


# --------------------------------------------------------------------------------------- transformers


def trainer_fit(net: Any, folder: Path, callbacks: list[Any], steps: int = 8, **options: Any) -> None:
    transformers = library("transformers")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, labels: Any = None) -> Any:
            return {"loss": (self.net(x) - labels).square().mean(), "unused": self.net.first.weight.sum()}

    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    data = [{"x": row, "labels": torch.zeros(2)} for row in x]
    chosen = {
        **{"max_steps": steps, "per_device_train_batch_size": 4, "report_to": [], "use_cpu": True},
        **{"save_strategy": "no", "disable_tqdm": True, "logging_steps": 1000, "seed": 7},
    }
    arguments = transformers.TrainingArguments(str(folder), **chosen, **options)
    transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=callbacks).train()


def test_transformers_tells_of_a_layer_that_dies_in_the_next_sample(tmp_path: Path) -> None:
    net = Net()
    net.dies = 4
    monitor = sgt.monitor(net, every=3, to=[io.StringIO(), tmp_path / "run.jsonl"])
    trainer_fit(net, tmp_path, [monitor.trainer_callback()])
    assert sampled(tmp_path / "run.jsonl") == [0, 3, 6]
    assert told(monitor)[0] == (6, "zero", ("first.weight", "first.bias"))
    assert " relu is dead" in monitor.changes[0].cause
    assert "test_monitoring_trainers.py:" in monitor.changes[0].cause
    assert nothing_is_patched(net)


def test_transformers_counts_the_steps_of_the_optimizer(tmp_path: Path) -> None:
    net = Net()
    monitor = sgt.monitor(net, every=2, to=tmp_path / "run.jsonl")
    options = {"gradient_accumulation_steps": 3, "max_grad_norm": 1e-9}
    trainer_fit(net, tmp_path, [monitor.trainer_callback()], steps=4, **options)
    assert sampled(tmp_path / "run.jsonl") == [0, 2]
    assert monitor.changes == ()
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    norms = [line["parameters"]["head.weight"]["magnitude"]["norm"] for line in lines]
    assert min(norms) > 1e-3  # As they arrive, and not as they are clipped afterwards.


def test_transformers_trains_the_same_bits_with_and_without_a_monitor(tmp_path: Path) -> None:
    net = Net()
    twin = copy.deepcopy(net)
    trainer_fit(net, tmp_path, [])
    monitor = sgt.monitor(twin, every=2, to=io.StringIO())
    trainer_fit(twin, tmp_path, [monitor.trainer_callback()])
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), twin.parameters(), strict=True))


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise ZeroDivisionError("mine")


@pytest.mark.parametrize("where", ["forward", "backward", "interrupt"])
def test_a_training_of_transformers_that_fails_leaves_nothing_patched(where: str, tmp_path: Path) -> None:
    net = Net()
    if where == "backward":
        plain = net.head.forward
        net.head.forward = lambda x: plain(x) if net.calls < 3 else Fails.apply(plain(x))
    else:
        net.error = (2, KeyboardInterrupt() if where == "interrupt" else ZeroDivisionError("mine"))
    monitor = sgt.monitor(net, every=1, to=tmp_path / "run.jsonl")
    with pytest.raises((ZeroDivisionError, KeyboardInterrupt)):
        trainer_fit(net, tmp_path, [monitor.trainer_callback()])
    assert nothing_is_patched(net)
    assert sampled(tmp_path / "run.jsonl") == [0, 1]


def test_a_language_model_of_transformers_with_checkpoints_is_well(tmp_path: Path) -> None:
    transformers = library("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=20
    )
    net = transformers.LlamaForCausalLM(config)
    words = torch.randint(20, (16, 8))
    arguments = transformers.TrainingArguments(
        **{
            "output_dir": str(tmp_path),
            "max_steps": 2,
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
        },
        **{"save_strategy": "no", "gradient_checkpointing": True},
        gradient_checkpointing_kwargs={"use_reentrant": True},
    )
    monitor = sgt.monitor(net, every=1, to=tmp_path / "run.jsonl")
    data = [{"input_ids": row, "labels": row} for row in words]
    transformers.Trainer(net, arguments, train_dataset=data, callbacks=[monitor.trainer_callback()]).train()
    assert monitor.changes == ()
    first = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])["parameters"]
    assert len(first) == len(list(net.parameters()))
    assert all(one["magnitude"]["norm"] > 0 for one in first.values())
