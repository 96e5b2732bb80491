"""Libraries for PyTorch, unchanged, under a watch: where gradients arrive, and which lines cut the others."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("stopgrad.torch")

import torch
from library_table import LIGHT, losses_of_torch
from torch_libraries import Line, library
from torch_libraries_transformers import tiny_gpt
from torch_library_runs import seeded

import stopgrad.torch as sgt

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # What the libraries warn of is theirs.

LONGER = {"transformed codebook": 26, "linear attention": 26, "score of a discrete sample": 29}
"""Reports that are longer than others may be, with the most lines that they have."""
UNSEEN = {"cached negatives": "what a hook differentiates is not seen"}


def marks(loss: Any) -> list[Any]:
    """What a loss is marked as: nightly, if its library is no light one."""
    known = [pytest.mark.xfail(reason=why, strict=True) for name, why in UNSEEN.items() if name == loss.name]
    return known if loss.package in LIGHT else [*known, pytest.mark.nightly]


LOSSES = [
    pytest.param(loss, id=f"{loss.package}: {loss.name}", marks=marks(loss)) for loss in losses_of_torch()
]


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    """One thread for tiny tensors, and numbers that are the same every time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seeded(0)
    yield
    torch.set_num_threads(threads)


def received(key: str, parameter: Any) -> bool:
    """Whether autograd gave it a gradient; of a bias before a norm or a softmax it is but rounding."""
    return parameter.grad is not None and (key.endswith("bias") or bool(parameter.grad.abs().max() > 0))


def check_cut(flow: Any, line: Line) -> None:
    """The line, or where it has no text the reason, is among what cuts each of its parameters."""
    keys = [key for key in flow if fnmatch.fnmatchcase(key, line.keys)]
    assert keys, line
    for key in keys:
        cuts = flow[key].cuts
        if line.reason:
            assert any(line.reason in cut.reason for cut in cuts), (key, [cut.reason for cut in cuts])
        if line.text:
            at = [(cut.location.file, cut.location.line, cut.location.end_line) for cut in cuts]
            assert any(
                there == file and first <= number <= last
                for file, number in line.places
                for there, first, last in at
            ), (key, at)


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_said_of_a_library_is_what_autograd_does_and_what_its_source_says(loss: Any) -> None:
    found = loss.examined(loss.build)
    assert found.parameters
    most = LONGER.get(loss.name, 0)
    found.texts = [x for x in found.texts if len(x.splitlines()) > most or "site-packages" in x]
    assert not found.all


# ------------------------------------------------------------------------- code that calls backward itself


class Received:
    """The parameters of a model that autograd gave a gradient that is not all zero, at any time."""

    def __init__(self, model: Any) -> None:
        self.names: set[str] = set()
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda p, name=name: self._note(name, p))

    def _note(self, name: str, parameter: Any) -> None:
        if received(name, parameter):
            self.names.add(name)


def check_training(seen: Any, model: Any, got: Received, steps: int, line: Line) -> Any:
    """Each step's backward call is known with its line, and says of each parameter what autograd did."""
    calls = seen.backward_calls
    assert [call.kind for call in calls] == ["backward"] * steps
    for call in calls:
        assert (call.location.file, call.location.line) == line.place
        flow = call.explain(model)
        assert set(flow) == {name for name, _ in model.named_parameters(remove_duplicate=False)}
        assert {key for key in flow if flow[key].arrives} == got.names
    return flow


def test_a_step_of_the_trainer_of_transformers(tmp_path: Any) -> None:
    transformers, accelerate = library("transformers"), library("accelerate")
    library("transformers.trainer")
    model = tiny_gpt()
    model.transformer.h[0].requires_grad_(False)
    got = Received(model)
    data = [dict.fromkeys(("input_ids", "labels"), torch.randint(0, 20, (7,))) for _ in range(4)]
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model, options, train_dataset=data)
    with sgt.watch() as seen:
        trainer.train()
    line = Line("            loss.backward(**kwargs)", accelerate.Accelerator.backward)
    flow = check_training(seen, model, got, 2, line)
    assert {key for key in flow if not flow[key].arrives} == {
        name for name, _ in model.named_parameters() if name.startswith("transformer.h.0.")
    }


def test_a_step_of_the_trainer_of_lightning() -> None:
    lightning = library("pytorch_lightning")

    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)

        def training_step(self, batch: Any, _index: int) -> Any:
            features = self.body(batch).detach()  # The mistake.
            return self.head(features).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Module()
    got = Received(model)
    loader = torch.utils.data.DataLoader(torch.randn(4, 3), batch_size=2)
    trainer = lightning.Trainer(
        max_steps=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with sgt.watch() as seen:
        trainer.fit(model, loader)
    line = Line("            loss.backward(*args, **kwargs)", lightning.LightningModule.backward)
    flow = check_training(seen, model, got, 2, line)
    assert got.names == {"head.weight", "head.bias"}
    for key in ("body.weight", "body.bias"):
        (cut,) = flow[key].cuts
        assert cut.location.file == __file__
        assert "detach" in cut.location.source


# ------------------------------------------------------------------------------------------ torch.compile


def compiled_step(backend: str) -> None:
    model = torch.nn.ModuleDict({"body": torch.nn.Linear(3, 3), "head": torch.nn.Linear(3, 1)})
    x = torch.randn(4, 3)

    def forward(x: Any) -> Any:
        return model["head"](model["body"](x).relu().detach())

    compiled = torch.compile(forward, backend=backend)
    before = compiled(x)  # It is compiled already when it is watched.
    with sgt.watch() as seen:
        loss = compiled(x).square().mean()
    flow = seen.explain(loss, model)
    loss.backward()
    for key, parameter in model.named_parameters():
        assert flow[key].arrives == received(key, parameter) == key.startswith("head."), key
    (cut,) = flow["body.weight"].cuts
    assert cut.location.file == __file__
    assert "detach" in cut.location.source
    torch.testing.assert_close(compiled(x), before)


def test_a_compiled_function_is_seen_inside() -> None:
    compiled_step("eager")


@pytest.mark.nightly
def test_a_function_compiled_by_the_default_compiler_is_seen_inside() -> None:
    compiled_step("inductor")


# ------------------------------------------------------------------------------- frozen inside of the watch


def frozen_by_lightly() -> tuple[Any, Any, Line]:
    utils = library("lightly.models.utils")
    student, average = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    utils.deactivate_requires_grad(average)
    line = Line("param.requires_grad = False", utils.deactivate_requires_grad, "average.*")
    both = torch.nn.ModuleDict({"student": student, "average": average})
    x = torch.randn(2, 3)
    return both, lambda: (student(x) - average(x)).square().mean(), line


def frozen_by_peft() -> tuple[Any, Any, Line]:
    peft = library("peft")
    options = peft.LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True)
    model, ids = peft.get_peft_model(tiny_gpt(), options), torch.randint(0, 20, (2, 7))
    tuners = library("peft.tuners.tuners_utils")
    line = Line("            p.requires_grad = False", tuners.BaseTuner, "*.base_layer.*")
    return model, lambda: model(input_ids=ids, labels=ids).loss, line


def frozen_by_timm() -> tuple[Any, Any, Line]:
    utils = library("timm.utils.model")
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)), torch.randn(2, 3)
    utils.freeze(model, ["0"])
    return model, lambda: model(x).sum(), Line("p.requires_grad = False if mode ==", utils, "0.*")


@pytest.mark.parametrize("build", [frozen_by_lightly, frozen_by_peft, frozen_by_timm])
def test_of_a_model_that_is_frozen_inside_of_the_watch_the_line_that_froze_it_is_told(build: Any) -> None:
    with sgt.watch() as seen:
        model, compute, line = build()
        loss = compute()
    flow = seen.explain(loss, model)
    loss.backward()
    check_cut(flow, line)
    for key, parameter in model.named_parameters():
        assert flow[key].arrives == received(key, parameter), key
