"""Models exported by PyTorch, loaded: values, gradients by all parameters, training; at open batch sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

import onnx_models
import onnxruntime
import torch
from onnx_models import CASES, WAYS, Exported, exported

import stopgrad as sg
import stopgrad.onnx as sgo

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # What the exporters warn of is PyTorch's.


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """So small models are slower with more, and processes of tests would wait for each other's."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


FED = 5
"""Not the batch size that the models were exported with."""
LOOSE = {"float32": 1e-4, "float64": 1e-9}
NARROW = {
    "bert dynamo": "the scale of attention is a float32, cast",
    "gpt dynamo": "the scale of attention is a float32, cast",
}
"""What exporters write in float32 of float64 modules."""
WRONG = {
    "resnet, training dynamo": "a double is divided by a float, which no runtime accepts",
}
"""Exports of float64 modules that are no valid models."""


def _values(y: Any) -> list[Any]:
    if isinstance(y, dict):
        return list(y.values())
    return list(y) if isinstance(y, (tuple, list)) else [y]


def _total(ys: Any, weights: Sequence[Any]) -> Any:
    return sum(sg.reduce_sum(y * w) for y, w in zip(_values(ys), weights, strict=True))


class Wanted:
    """What PyTorch computes: outputs, and the gradients of their weighted sum."""

    def __init__(self, of: Exported) -> None:
        self.inputs = of.draw(FED)
        state = {key: value.clone() for key, value in of.module.state_dict().items()}
        ys = _values(of.module(*self.inputs))
        generator = torch.Generator().manual_seed(3)
        weights = [torch.randn(y.shape, generator=generator, dtype=y.dtype) for y in ys]
        total = sum((y * w).sum() for y, w in zip(ys, weights, strict=True))
        self.parameters = dict(of.module.named_parameters())
        found = torch.autograd.grad(total, list(self.parameters.values()), allow_unused=True)
        of.module.load_state_dict(state)  # Running statistics as the export holds them.
        self.outputs = [y.detach().numpy() for y in ys]
        self.weights = [w.numpy() for w in weights]
        self.gradients = {
            name: np.zeros(p.shape) if g is None else g.numpy()
            for (name, p), g in zip(self.parameters.items(), found, strict=True)
        }
        self.arrays = [x.numpy() for x in self.inputs]
        # Of a bias before a norm the gradient is 0, and what is computed is rounding.
        self.least = 1e-3 * max(map(_size, self.gradients.values()))


def _named(model: Any, parameters: dict[str, Any]) -> dict[str, str]:
    """From the names that parameters have in PyTorch to those of the initializers that hold them."""
    values = model.values()
    found = {}
    for name, p in parameters.items():
        same = (k for k, v in values.items() if v.shape == p.shape and np.array_equal(v, p.detach().numpy()))
        found[name] = name if name in values else next(same)
    return found


def _size(x: Any) -> float:
    return float(np.abs(x).max(initial=0.0))


def _far(ours: Any, theirs: Any, least: float = 0.0) -> float:
    """The largest difference, relative to the largest value."""
    assert ours.shape == theirs.shape
    return _size(ours - theirs) / max(_size(theirs), least)


def _check(of: Exported, limit: float, engine: str) -> None:
    wanted = Wanted(of)
    model = sgo.load(of.path)
    assert list(model.inputs) == list(of.names)
    assert all(not isinstance(x.shape[0], int) for x in model.inputs.values())
    names = _named(model, wanted.parameters)

    def total(values: Any, *xs: Any) -> Any:
        return _total(model.apply(values, *xs), wanted.weights)

    for y, expected in zip(_values(model(*wanted.arrays)), wanted.outputs, strict=True):
        assert _far(y, expected) < limit
    made = sg.function(sg.grad(total), engine=engine)(model.values(), *wanted.arrays)
    for name, expected in wanted.gradients.items():
        assert made[names[name]].dtype == expected.dtype
        assert _far(made[names[name]], expected, wanted.least) < limit, name


def _limit(name: str, way: str, dtype: Any) -> float:
    kind = str(dtype).removeprefix("torch.")
    return 1e-7 if kind == "float64" and f"{name} {way}" in NARROW else LOOSE[kind]


EVERY = pytest.mark.parametrize(("name", "way"), [(name, way) for name in CASES for way in WAYS])


@EVERY
def test_gradients_are_those_of_autograd(name: str, way: str) -> None:
    _check(exported(name, way), LOOSE["float32"], "numpy")


@EVERY
def test_gradients_in_double_precision(name: str, way: str) -> None:
    if f"{name} {way}" in WRONG:
        with pytest.raises(sg.GraphError, match=r"tensor\(float\).*tensor\(double\)"):
            sgo.load(exported(name, way, torch.float64).path)
        return
    _check(exported(name, way, torch.float64), _limit(name, way, torch.float64), "numpy")


@EVERY
@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_of_larger_models(name: str, way: str, dtype: Any) -> None:
    if dtype is torch.float64 and f"{name} {way}" in WRONG:
        pytest.skip(WRONG[f"{name} {way}"])
    limit = LOOSE["float32"] if dtype is torch.float32 else _limit(name, way, dtype)
    _check(exported(name, way, dtype, larger=True), limit, "numpy")


@EVERY
@pytest.mark.nightly
def test_gradients_on_xla(name: str, way: str) -> None:
    _check(exported(name, way), LOOSE["float32"], "xla")


# ------------------------------------------------------------------------------- gradients as ONNX


def gradients_saved(of: Exported, wanted: Wanted, path: Path) -> dict[str, str]:
    """Write a model of the weighted sum and its gradients; the names of the gradients' outputs."""
    model = sgo.load(of.path)
    names = _named(model, wanted.parameters)
    with model.graph.as_default():
        total = _total(list(model.outputs.values()), [sg.constant(w) for w in wanted.weights])
        parameters = [model.parameters[names[name]] for name in wanted.gradients]
        found = sg.gradients(total, parameters)
        made = {f"d/{name}": g for name, g in zip(wanted.gradients, found, strict=True) if g is not None}
    sgo.save(path, {"total": total, **made}, dict(model.inputs))
    return {name: f"d/{name}" for name in wanted.gradients if f"d/{name}" in made}


@EVERY
def test_the_gradient_graph_runs_in_onnxruntime(name: str, way: str, tmp_path: Path) -> None:
    of = exported(name, way)
    wanted = Wanted(of)
    names = gradients_saved(of, wanted, tmp_path / "gradients.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(tmp_path / "gradients.onnx"), options)
    fed = dict(zip(of.names, wanted.arrays, strict=True))
    made = dict(zip(names, session.run(list(names.values()), fed), strict=True))
    for key, expected in wanted.gradients.items():
        if key in made:
            assert _far(made[key], expected, wanted.least) < LOOSE["float32"], key
        else:
            assert not expected.any(), key


def test_exports_are_kept() -> None:
    first = exported("mlp", "script")
    before = first.path.stat().st_mtime_ns
    assert exported("mlp", "script").path.stat().st_mtime_ns == before
    assert first.path.parent == onnx_models.folder()


# ---------------------------------------------------------------------------------------- training

STEPS, RATE = 20, 1e-2
TRAINED = {
    "mlp": "cross-entropy",
    "resnet, training": "cross-entropy",
    "resnet, resting": "cross-entropy",
    "lstm": "cross-entropy",
    "unet": "mse",
    "gpt": "cross-entropy",
}


def _batch(of: Exported, loss: str, step: int) -> tuple[tuple[Any, ...], Any]:
    """Inputs, and labels that fit the output."""
    xs = of.draw(FED, 100 + step)
    generator = torch.Generator().manual_seed(200 + step)
    shape = _output(of, xs).shape
    if loss == "mse":
        return xs, torch.randn(shape, generator=generator)
    return xs, torch.randint(0, shape[-1], shape[:-1], generator=generator)


def _output(of: Exported, xs: Any) -> Any:
    return _values(of.module(*xs))[0]


def _theirs(of: Exported, loss: str, xs: Any, labels: Any) -> Any:
    y = _output(of, xs)
    if loss == "mse":
        return torch.nn.functional.mse_loss(y, labels)
    return torch.nn.functional.cross_entropy(y.flatten(0, -2), labels.flatten())


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, marks=pytest.mark.nightly if way == "dynamo" and name != "mlp" else ())
        for name in TRAINED
        for way in WAYS
    ],
)
def test_steps_of_adamw_in_onnxruntime_are_those_of_pytorch(name: str, way: str, tmp_path: Path) -> None:
    of, loss = exported(name, way), TRAINED[name]
    parameters = dict(of.module.named_parameters())
    names = _named(sgo.load(of.path), parameters)
    options = f"{loss}:axis=-1" if loss == "cross-entropy" else loss
    made = sgo.training(of.path, loss=options, optimizer="adamw", folder=tmp_path / "out")
    trainer = sgo.Trainer(made.folder, threads=1)
    optimizer = torch.optim.AdamW(parameters.values(), lr=RATE)
    steepest = {key: torch.zeros_like(p) for key, p in parameters.items()}
    for step in range(STEPS):
        xs, labels = _batch(of, loss, step)
        optimizer.zero_grad()
        theirs = _theirs(of, loss, xs, labels)
        theirs.backward()
        for key, p in parameters.items():
            if p.grad is not None:
                steepest[key] = torch.maximum(steepest[key], p.grad.abs())
        optimizer.step()
        fed = {name: x.numpy() for name, x in zip(of.names, xs, strict=True)}
        ours = trainer.step(**fed, labels=labels.numpy(), learning_rate=RATE)
        assert ours == pytest.approx(theirs.item(), rel=1e-4)
    state = trainer.state
    # Where the gradient is 0 (a bias before a norm, that of the keys), Adam makes whole steps of rounding.
    least = 1e-5 * max(float(g.max()) for g in steepest.values())
    compared = 0
    for key, p in parameters.items():
        moved = steepest[key].numpy() > least
        if moved.any():
            far = np.abs(state[names[key]] - p.detach().numpy())[moved]
            assert _size(far) < 1e-4 * max(1.0, _size(p.detach().numpy())), key
        compared += int(moved.sum())
    assert compared > 0.5 * sum(p.numel() for p in parameters.values())
