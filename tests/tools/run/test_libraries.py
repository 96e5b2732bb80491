"""Libraries' own training loops under ``stopgrad run``: nothing in right scripts, the cause in wrong ones."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from run_scripts import in_forks

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Case(NamedTuple):
    """A script with a library's training loop, and what makes it wrong.

    Attributes:
        library: what must be installed.
        source: the right script.
        wrong: pairs of what is replaced in it, and by what.
        kind: what is found then.
        alone: whether it needs a process of its own.
    """

    library: str
    source: str
    wrong: tuple[tuple[str, str], ...]
    kind: str
    alone: bool = False


LIGHTNING = """
import logging, warnings
import torch
from torch import nn
import pytorch_lightning as pl
warnings.simplefilter("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pl.seed_everything(0, verbose=False)

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        self.old = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val", nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam([*self.body.parameters(), *self.head.parameters()], lr=1e-2)

data = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randint(0, 2, (24,)))
loader = torch.utils.data.DataLoader(data, batch_size=6)
trainer = pl.Trainer(max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0)
trainer.fit(Net(), loader, loader)
"""
MODEL = """
import torch
from transformers import BertConfig, BertForSequenceClassification
torch.manual_seed(0)
config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                    intermediate_size=16, max_position_embeddings=16, num_labels=2)
model = BertForSequenceClassification(config)
"""
TRAINER = (
    MODEL
    + """
import tempfile
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return {"input_ids": torch.arange(i, i + 6) % 20, "labels": torch.tensor(i % 2)}

# here
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, per_device_train_batch_size=4, num_train_epochs=2, report_to=[],
                                  use_cpu=True, save_strategy="no", disable_tqdm=True,
                                  learning_rate=1e-3, warmup_steps=2)
    trainer = Trainer(model=model, args=arguments, train_dataset=Data())
    trainer.remove_callback(PrinterCallback)
    trainer.train()
"""
)
PEFT = (
    MODEL
    + """
from peft import LoraConfig, get_peft_model
lora = LoraConfig(r=2, target_modules=["query", "value"], modules_to_save=["classifier"])
model = get_peft_model(model, lora)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for step in range(5):
    out = model(input_ids=torch.randint(0, 20, (4, 6)), labels=torch.randint(0, 2, (4,)))
    optimizer.zero_grad()
    out.loss.backward()
    optimizer.step()
"""
)
ACCELERATE = """
import torch
from torch import nn
from accelerate import Accelerator
torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
loader = torch.utils.data.DataLoader(data, batch_size=4)
# here
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for x, y in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
"""
TIMM = """
import torch
import timm
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
torch.manual_seed(0)
model = timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=16, patch_size=8, embed_dim=16,
                          depth=2, num_heads=2, num_classes=3, drop_path_rate=0.1)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
# here
ema = ModelEmaV3(model, decay=0.9)
for step in range(5):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(4, 3, 16, 16)), torch.randint(0, 3, (4,)))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    ema.update(model)
"""
KERAS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, activation="relu"),
                          keras.layers.BatchNormalization(), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="mse")
x = np.random.rand(32, 4).astype("float32")
model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=2, verbose=0)
"""
COMPILED = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@torch.compile(backend="eager")
def loss_of(x):
    return (model(x) - x[:, :1]).pow(2).mean()

for step in range(5):
    optimizer.zero_grad()
    loss = loss_of(torch.randn(8, 4))
    loss.backward()
    # here
    optimizer.step()
"""
WORKERS = """
import multiprocessing
import torch
from torch import nn

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        x = torch.full((4,), float(i)) / 16
        return x, x[:1]

def square(x):
    return x * x

if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for way in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context=way)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            # here
            optimizer.step()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(pool.map(square, [3]))
"""
RANKS = """
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# here
for step in range(5):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x[:, :1]).backward()
    optimizer.step()
print(f"rank {dist.get_rank()} done", flush=True)
dist.destroy_process_group()
"""
VISION = f"""import sys
sys.path.append({str(Path(in_forks.__code__.co_filename).parent)!r})
import torch_libraries
torch_libraries._let_torchvision_import()
"""
"""What the registry's torchvision, which several libraries import, needs beside a PyTorch for the CPU."""
CLEARED = (("# here", "optimizer.zero_grad()"),)
CASES = {
    "lightning": Case("pytorch_lightning", LIGHTNING, (("*self.head.p", "*self.old.p"),), "not-held"),
    "transformers": Case(
        "transformers",
        TRAINER,
        (
            (
                "# here",
                "optimizer = torch.optim.AdamW(model.parameters(), 1e-3)\n"
                "model.classifier = torch.nn.Linear(8, 2)",
            ),
            ("train_dataset=Data()", "train_dataset=Data(), optimizers=(optimizer, None)"),
        ),
        "not-held",
    ),
    "peft": Case(
        "peft",
        PEFT,
        (
            (
                "for p in model.parameters() if p.requires_grad]",
                "for n, p in model.named_parameters() if 'lora' in n]",
            ),
        ),
        "not-held",
    ),
    "accelerate": Case("accelerate", ACCELERATE, (("# here", "model[2] = nn.Linear(8, 2)"),), "not-held"),
    "timm": Case("timm", TIMM, (("# here", "model.reset_classifier(3)"),), "not-held"),
    "keras": Case(
        "keras", KERAS, (("optimizers.Adam(1e-2)", "optimizers.Adam(0.0)"),), "no-learning-rate", True
    ),
    "compiled": Case("torch", COMPILED, CLEARED, "zeroed-before-step"),
    "workers": Case("torch", WORKERS, CLEARED, "zeroed-before-step", True),
}


LOSS = "nn.functional.cross_entropy(self(x), y)\n        self.log"
STEP = "    optimizer.step()\n"
NORMALISED = "keras.layers.BatchNormalization()"
TRAINED = "[p for p in model.parameters() if p.requires_grad]"
MORE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "lightning": (
        ("self.body(x)", "self.body(x).detach()", "no-gradient"),
        ("lr=1e-2)", "lr=0.0)", "no-learning-rate"),
        (LOSS, LOSS.replace("self(x)", "(self(x) * 0).sqrt()"), "nan-gradient"),
        (LOSS, "nn.functional.mse_loss(self(x)[:, :1], y.float())\n        self.log", "broadcast-loss"),
        ("return loss\n", "return torch.tensor(loss.item())\n", "no-graph"),
    ),
    "transformers": (
        ("learning_rate=1e-3, warmup_steps=2", "learning_rate=0.0", "no-learning-rate"),
        ("# here", "model.bert.forward = torch.no_grad()(model.bert.forward)", "no-gradient"),
        ("torch.tensor(i % 2)", "torch.tensor(-100)", "empty-loss"),
    ),
    "peft": (
        (TRAINED, "[p for n, p in model.named_parameters() if 'query' in n]", "not-held"),
        ("    optimizer.zero_grad()\n", "", "never-cleared"),
        (STEP, f"    out.loss.backward()\n{STEP}", "second-backward"),
    ),
    "accelerate": (
        ("lr=1e-2", "lr=0.0", "no-learning-rate"),
        (f"    {STEP}", f"        optimizer.zero_grad()\n    {STEP}", "zeroed-before-step"),
        ("model.parameters(), 1.0)", "model.parameters(), 0.0)", "clipped-away"),
    ),
    "timm": (
        ("lr=1e-3", "lr=0.0", "no-learning-rate"),
        ("    optimizer.zero_grad()\n", "", "never-cleared"),
        ("torch.randint(0, 3, (4,))", "torch.full((4,), -100)", "empty-loss"),
        ("ema.update(model)", "ema.update(model)\n    model.load_state_dict(ema.module.state_dict())", ""),
    ),
    "keras": (
        (NORMALISED, f"keras.layers.Lambda(lambda x: x.detach()),\n    {NORMALISED}", "no-gradient"),
        ('loss="mse"', "loss=lambda y, p: keras.ops.mean((y[:, 0] - p) ** 2)", "broadcast-loss"),
        ("Adam(1e-2)", "Adam(1e-2, gradient_accumulation_steps=4)", ""),
        ("Adam(1e-2)", "SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5), 0.9)", ""),
    ),
    "compiled": (
        ("(model(x) - x", "(model(x).detach() - x", "no-graph"),
        ("    optimizer.zero_grad()\n", "", "never-cleared"),
    ),
}
"""Further mistakes in the loops: what is replaced, by what, and what is found then; one is none."""


def changed(case: Case) -> str:
    """The wrong variant of a script."""
    source = case.source
    for old, new in case.wrong:
        assert old in source, old
        source = source.replace(old, new)
    return source


def run_alone(path: Path) -> dict[str, Any]:
    """What ``stopgrad run`` finds in a script, in a process of its own."""
    out = path.with_suffix(".json")
    command = [sys.executable, "-m", "stopgrad", "run", "--json", str(out), str(path)]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
    )
    return {**json.loads(out.read_text()), "status": done.returncode, "printed": done.stdout + done.stderr}


def others(name: str, folder: Path) -> dict[str, str]:
    """The files of a loop's other mistakes, with what is found in each."""
    kinds = {}
    for i, (old, new, kind) in enumerate(MORE.get(name, ())):
        assert old in CASES[name].source, old
        path = folder / f"wrong{i}.py"
        path.write_text(VISION + CASES[name].source.replace(old, new))
        kinds[str(path)] = kind
    return kinds


@pytest.mark.first
@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=pytest.mark.nightly) if x in ("peft", "timm", "accelerate") else x for x in CASES],
)
def test_the_librarys_own_loop_and_mistakes_in_it(name: str, tmp_path: Path) -> None:
    """All in forks of one process that has imported PyTorch, unless the loop needs its own."""
    case = CASES[name]
    if importlib.util.find_spec(case.library) is None:
        pytest.skip(f"{case.library} is not installed")
    right, wrong, kinds = tmp_path / "right.py", tmp_path / "wrong.py", others(name, tmp_path)
    before = "" if case.alone else VISION
    right.write_text(before + case.source)
    wrong.write_text(before + changed(case))
    if case.alone:
        told = {str(path): run_alone(path) for path in (right, wrong)}
        told |= in_forks(*kinds) if kinds else {}
    else:
        told = in_forks(str(right), str(wrong), *kinds)
    found = told[str(right)]
    assert found["status"] == 0, found["printed"]
    assert not [one for one in found["findings"] if one["severity"] != "note"], found["printed"]
    assert not found["unknown"]
    assert case.kind in [one["kind"] for one in told[str(wrong)]["findings"]], told[str(wrong)]["printed"]
    assert found["steps"] >= 4
    for path, kind in kinds.items():
        said = [one["kind"] for one in told[path]["findings"] if one["severity"] != "note"]
        assert kind in said if kind else not said, told[path]["printed"][-2000:]


def test_ranks_of_torchrun(tmp_path: Path) -> None:
    for source, kind in (
        (RANKS, None),
        (RANKS.replace("model.parameters()", "model.module[0].parameters()"), "not-held"),
    ):
        path = tmp_path / "ranks.py"
        path.write_text(source)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        done = subprocess.run(
            [*command, "-m", "stopgrad", "run", str(path)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert sorted(re.findall(r"rank \d done", done.stdout)) == ["rank 0 done", "rank 1 done"]
        assert done.stderr.count("stopgrad: ") == 2, done.stderr
        kinds = re.findall(r"^([a-z-]+): ", done.stderr, re.MULTILINE)
        assert [one for one in kinds if one != "stopgrad"] == ([] if kind is None else [kind]), done.stderr


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs Keras")
def test_fit_of_keras_on_jax(tmp_path: Path) -> None:
    source = KERAS.replace('= "torch"', '= "jax"')
    stops = f"keras.layers.Lambda(keras.ops.stop_gradient),\n    {NORMALISED}"
    for text, kinds in ((source, []), (source.replace(NORMALISED, stops), ["no-gradient"])):
        path = tmp_path / "fit.py"
        path.write_text(text)
        found = run_alone(path)
        assert [one["kind"] for one in found["findings"]] == kinds, found["printed"]
        assert not found["unknown"]
        told = "sequential/dense/kernel, sequential/dense/bias receive no" in found["printed"]
        assert told is bool(kinds)


STEPS_OF_KERAS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, torch
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(model.trainable_variables)
for step in range(5):
    model.zero_grad()
    hidden = model.layers[0](torch.randn(8, 4))
    (model.layers[1](hidden) ** 2).mean().backward()
    with torch.no_grad():
        held = [v for v in model.trainable_variables if v.value.grad is not None]
        optimizer.apply([v.value.grad for v in held], held)
"""


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs Keras")
def test_steps_of_an_optimizer_of_keras_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    stops = STEPS_OF_KERAS.replace("torch.randn(8, 4))", "torch.randn(8, 4)).detach()")
    for text, kinds in ((STEPS_OF_KERAS, []), (stops, ["no-gradient"])):
        path = tmp_path / "loop.py"
        path.write_text(text)
        found = run_alone(path)
        assert [one["kind"] for one in found["findings"]] == kinds, found["printed"]
        assert not found["unknown"]
        assert found["steps"] == 5
