"""Training graphs within a budget of memory: numbers as without one, and the memory that was reckoned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_training_tools import node, normal, write

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.interop.onnx.training.budget.fitting import Budget, Held, fit, notes_of
from stopgrad.interop.onnx.training.budget.schedules import Schedule, held_in
from stopgrad.interop.onnx.training.budget.tape import tape_of
from stopgrad.trainer import Trainer

BLOCKS, WIDTH, WIDE, BATCH = 4, 16, 64, 256


def residual(
    path: Path, batch: int | str = "batch", dropout: bool = False, width: int = WIDTH, half: bool = False
) -> Path:
    """Write blocks of a residual network: two products, with a tanh between, beside what comes in."""
    weights: dict[str, Any] = {"ratio": np.float32(0.3), "off": np.array(False)}
    nodes, x = [], "x"
    for i in range(BLOCKS):
        weights |= {f"a{i}.weight": normal(width, 4 * width, seed=i, scale=0.2)}
        weights |= {f"b{i}.weight": normal(4 * width, width, seed=9 + i, scale=0.2)}
        nodes += [node("MatMul", [x, f"a{i}.weight"], f"m{i}"), node("Tanh", [f"m{i}"], f"t{i}")]
        nodes += [node("Dropout", [f"t{i}", "ratio", "off"], f"d{i}")] if dropout else []
        nodes += [node("MatMul", [f"{'d' if dropout else 't'}{i}", f"b{i}.weight"], f"n{i}")]
        nodes += [node("Add", [x, f"n{i}"], "y" if i == BLOCKS - 1 else f"x{i}")]
        x = f"x{i}"
    dtype = onnx.TensorProto.FLOAT
    if half:
        dtype = onnx.TensorProto.FLOAT16
        weights = {name: x.astype(np.float16) if x.ndim else x for name, x in weights.items()}
    write(path, nodes, {"x": [batch, width]}, {"y": [batch, width]}, weights, dtype=dtype)
    return path


def figures(memory: Any, path: Path, **more: Any) -> Any:
    made = sgo.training(path, loss="mse", folder=path.parent / f"out_{memory}", memory=memory, **more)
    return made.folder, made.manifest["memory"]


def batch(seed: int, width: int = WIDTH, count: int = BATCH) -> dict[str, Any]:
    return {"x": normal(count, width, seed=seed), "labels": normal(count, width, seed=seed + 100)}


HOW: dict[str, tuple[float, dict[str, Any]]] = {
    "in place": (0.75, {}),
    "held twice": (0.98, {"optimizer": "adafactor"}),
    "dropout": (0.92, {"mode": "train"}),
    "bfloat16": (0.97, {"precision": "bfloat16"}),
}
"""The parts of the memory that they take without a budget, and settings."""


@pytest.mark.parametrize("how", HOW)
def test_steps_are_those_without_a_budget(how: str, tmp_path: Path) -> None:
    path = residual(tmp_path / "m.onnx", dropout=how == "dropout")
    part, settings = HOW[how]
    more = {"sizes": {"batch": BATCH}} | settings
    first, whole = figures("1GiB", path, **more)
    assert whole["again"] == 0
    assert whole["estimate"] == whole["without"]
    second, less = figures(int(part * whole["without"]), path, **more)
    assert less["again"] > 0
    assert less["estimate"] <= less["budget"] < less["without"] == whole["without"]
    one, other = Trainer(first, threads=1), Trainer(second, threads=1)
    for i in range(4):
        assert one.step(**batch(i)) == pytest.approx(other.step(**batch(i)), rel=1e-6)
    for name, value in one.state.items():
        np.testing.assert_allclose(other.state[name], value, 1e-4, 1e-6, err_msg=name)
    for name, value in one.gradients(**batch(7, count=3)).items():  # Other sizes than those of the budget.
        top = np.abs(value).max()
        np.testing.assert_allclose(other.gradients(**batch(7, count=3))[name], value, 1e-5, 1e-6 * top)


def test_a_model_of_float16_is_trained_within_a_budget(tmp_path: Path) -> None:
    """Its steps are those without a budget, to float16's rounding."""
    path = residual(tmp_path / "m.onnx", batch=BATCH, half=True)
    first, whole = figures("1GiB", path)
    second, less = figures(int(0.8 * whole["without"]), path)
    assert less["again"] > 0
    assert less["estimate"] <= less["budget"] < less["without"] == whole["without"]
    one, other = Trainer(first, threads=1), Trainer(second, threads=1)
    half = batch(0)
    half["x"] = half["x"].astype(np.float16)
    for name, value in one.gradients(**half).items():
        top = np.abs(value).max()
        np.testing.assert_allclose(other.gradients(**half)[name], value, 2e-3, 2e-3 * top, err_msg=name)
    losses = [[trainer.step(**half) for _ in range(3)] for trainer in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)
    assert losses[0][-1] < losses[0][0]


def strided(path: Path, batch: int | str, time: int | str) -> Path:
    """Write a model that reads each second of its inputs, up to where their number, computed, says."""
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [batch, time, 4], name="x")
        w = sg.parameter(normal(4, 4), name="w")
        y = sg.reduce_mean(sg.tanh((x @ w)[:, ::2]), axis=1)
        sgo.save(path, {"y": y}, {"x": x})
    return path


def test_sizes_that_are_computed_are_known(tmp_path: Path) -> None:
    """A model of open sizes is reckoned as the same model with these sizes in it."""
    (tmp_path / "fixed").mkdir()
    sizes = {"batch": 8, "time": 16}
    open_ = figures("1GiB", strided(tmp_path / "m.onnx", "batch", "time"), sizes=sizes)[1]
    fixed = figures("1GiB", strided(tmp_path / "fixed" / "m.onnx", 8, 16))[1]
    assert open_["unsized"] == fixed["unsized"] == []
    assert fixed["without"] <= open_["without"]  # What a fixed model need not be told is computed besides.
    assert fixed["without"] / open_["without"] > 0.7


def counted(sizes: dict[str, int]) -> tuple[dict[str, Any], list[str]]:
    """What is said of a graph in which the numbers decide how many there are of something."""
    nodes = [
        node("MatMul", ["x", "w"], "m"),
        node("NonZero", ["m"], "places"),
        node("Transpose", ["places"], "turned"),
        node("GatherND", ["m", "turned"], "picked"),
        node("Exp", ["picked"], "e"),
        node("ReduceMean", ["e"], "loss", keepdims=0),
    ]
    ports = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])]
    result = [onnx.helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [])]
    weight = onnx.numpy_helper.from_array(normal(4, 4), "w")
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", ports, result, [weight]))
    entry = fit({"gradients": model}, "gradients", "loss", Budget(2**20, sizes), Held(0, 0, 0))
    return entry, notes_of(entry)


def test_sizes_that_nobody_knows_are_named() -> None:
    entry, notes = counted({"batch": 8})
    assert entry["unsized"] == ["places", "turned", "picked", "e"]
    assert len(notes) == 2
    assert "the sizes of 4 tensors are not known, and not in the estimate: places, turned, picked" in notes[1]
    assert "and 1 more" in notes[1]
    assert "sizes={'places': 4096} (--sizes places=4096)" in notes[1]
    more, notes = counted({"batch": 8, "places": 64, "turned": 64, "picked": 32, "e": 32})
    assert (more["unsized"], len(notes)) == ([], 1)
    assert more["estimate"] >= entry["estimate"] + 64 * 8
    with pytest.raises(sg.ArgumentError, match="the model leaves no size 'place' open"):
        counted({"batch": 8, "place": 64})


def test_the_runtime_does_not_merge_what_is_computed_again(tmp_path: Path) -> None:
    path = residual(tmp_path / "m.onnx", batch=BATCH)
    _, whole = figures("1GiB", path)
    folder, less = figures(int(0.7 * whole["without"]), path)
    again = [n.name for n in onnx.load(folder / "gradients.onnx").graph.node if n.name.endswith("/again")]
    assert len(again) == less["again"] > 0
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(folder / "gradients.onnx", options, providers=["CPUExecutionProvider"])
    left = [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node]
    repeated = [n.op_type for n in onnx.load(folder / "gradients.onnx").graph.node if n.name in again]
    assert left.count("Tanh") == BLOCKS + repeated.count("Tanh") > BLOCKS


def test_without_a_budget_the_files_are_as_they_were(tmp_path: Path) -> None:
    path = residual(tmp_path / "m.onnx", batch=BATCH)
    first, none = figures(None, path)
    second, _ = figures("1GiB", path)
    assert none is None
    for name in ("gradients", "train_step"):
        assert (first / f"{name}.onnx").read_bytes() == (second / f"{name}.onnx").read_bytes()


def test_lower_budgets_compute_more_again(tmp_path: Path) -> None:
    path = residual(tmp_path / "m.onnx", batch=BATCH)
    _, whole = figures("1GiB", path)
    shares = [figures(int(part * whole["without"]), path)[1]["share"] for part in (0.9, 0.7, 0.6)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 0.5


def test_what_does_not_fit_is_an_error_with_figures(tmp_path: Path) -> None:
    path = residual(tmp_path / "m.onnx", batch=BATCH)
    with pytest.raises(
        sg.ArgumentError, match=r"does not fit into 97\.7 KiB; the smallest that was found takes"
    ) as e:
        figures("100kB", path)
    assert "of weights and optimizer state" in str(e.value)
    assert not (tmp_path / "out_100kB").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"memory": "1GiB"}, r"leaves batch open: say them with sizes=\{'batch': 8\} \(--sizes batch=8\)"),
        ({"memory": "1GiB", "sizes": {"batch": 8, "long": 1}}, "leaves no size 'long' open; it has batch"),
        ({"memory": "1GiB", "sizes": {"batch": 0}}, "'batch' is a whole number from 1 on, not 0"),
        ({"memory": "much"}, "a number of bytes, or a text such as '2GiB', not 'much'"),
        ({"memory": -1}, "a number of bytes, or a text such as '2GiB', not -1"),
        ({"sizes": {"batch": 8}}, "give it, too"),
    ],
)
def test_budgets_that_say_nothing(arguments: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = residual(tmp_path / "m.onnx")
    with pytest.raises(sg.ArgumentError, match=said):
        sgo.training(path, loss="mse", folder=tmp_path / "out", **arguments)


def test_memory_is_counted_from_where_it_is_taken_to_its_last_use() -> None:
    memory: list[Any] = [
        ([], {"a": 4}, False),
        (["a"], {"b": 4}, False),  # Both.
        (["b"], {"c": 4}, True),  # In the place of b.
        (["a", "c"], {"d": 1}, True),
    ]
    assert held_in(memory) == [4, 8, 8, 9]


def test_views_and_results_take_no_memory(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], "a"), node("Reshape", ["a", "s"], "v"), node("Tanh", ["v"], "y")]
    write(
        tmp_path / "m.onnx", nodes, {"x": [8, 4]}, {"y": [4, 8]}, {"w": normal(4, 4), "s": np.array([4, 8])}
    )
    tape = tape_of(onnx.load(tmp_path / "m.onnx"), {}, "y")
    assert Schedule(tape, ()).held_bytes == [128, 128, 128]


MEASURE = """
import sys, json
import numpy as np
from stopgrad_trainer import Trainer
trainer = Trainer(sys.argv[1], threads=1)
batch = dict(np.load(sys.argv[2]))
for _ in range(3):
    trainer.step(**batch)
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of a process is read from /proc")
def test_the_memory_of_a_process_is_what_was_reckoned(tmp_path: Path) -> None:
    """Of activations of 380 MB, in processes of their own."""
    path = residual(tmp_path / "m.onnx", batch=8192, width=128)
    np.savez(tmp_path / "batch.npz", **batch(0, 128, 8192))
    peaks, reckoned = [], []
    for memory in (1 << 32, None):
        memory = memory or int(0.5 * reckoned[0])
        folder, made = figures(memory, path)
        command = [sys.executable, "-c", MEASURE, str(folder), str(tmp_path / "batch.npz")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
        reckoned.append(made["estimate"])
    process = peaks[0] - reckoned[0]
    assert 40e6 < process < 160e6  # Python, NumPy and the runtime, besides the batch.
    assert peaks[1] - reckoned[1] == pytest.approx(process, abs=30e6)
    print(json.dumps([peaks, reckoned]))
