"""Steps whose functions of each element numba compiles: the same numbers as from ONNX Runtime."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx_training_tools import batches, mlp
from tiers import some

import stopgrad as sg
import stopgrad.onnx as sgo
from interop.test_trainer import HOW
from stopgrad.trainer import Trainer
from stopgrad_trainer import memory
from stopgrad_trainer.compiled import kernel
from stopgrad_trainer.contents import Port

pytest.importorskip("numba")

Array = np.ndarray


def trained(home: Path, **settings: object) -> Path:
    mlp(home / "mlp.onnx")
    folder = sgo.training(home / "mlp.onnx", loss="cross-entropy", folder=home / "out", **settings).folder
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("training"), optimizer="sgd:momentum=0.9")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("how", some([how for how, (_, divides) in HOW.items() if divides], 20))
def test_a_compiled_step_is_that_of_the_runtime(
    how: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks that are smaller than the tensors, by several threads, and after a state was restored."""
    folder = trained(tmp_path, **HOW[how][0])
    monkeypatch.setattr(memory, "BLOCK", 48)
    monkeypatch.setattr(memory, "COMPILED_BLOCK", 64)
    monkeypatch.setattr(memory, "FEW", 1)
    one, other = (Trainer(folder, threads=threads, compiled=compiled) for compiled in (True, False))
    assert one._runtime.kernels
    assert not other._runtime.kernels
    for _ in range(2):
        for x, y in batches(6):
            assert one.step(x=x, labels=y) == other.step(x=x, labels=y)
        for name, value in other.state.items():
            np.testing.assert_array_equal(one.state[name], value)
        one.reset()
        other.reset()


def test_large_states_are_compiled_by_themselves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((x, y),) = batches(1)
    count = sum(value.size for value in Trainer(folder).state.values())
    for least, compiled in ((count * 64, False), (1, True)):  # Each tensor fills up a multiple of 64.
        monkeypatch.setattr(memory, "WORTH_COMPILING", least)
        trainer = Trainer(folder)
        trainer.step(x=x, labels=y)
        assert bool(trainer._runtime.kernels) == compiled


def test_without_numba_the_runtime_computes_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((x, y),) = batches(1)
    monkeypatch.setattr(memory, "WORTH_COMPILING", 1)
    monkeypatch.setitem(sys.modules, "numba", None)
    Trainer(folder).step(x=x, labels=y)
    with pytest.raises(sg.EngineError, match=r"a compiled step needs numba.*stopgrad\[fast\]"):
        Trainer(folder, compiled=True)


def test_a_step_that_is_not_made_element_by_element_is_not_compiled(tmp_path: Path) -> None:
    folder = trained(tmp_path, optimizer="muon")
    Trainer(folder, compiled=False)
    with pytest.raises(sg.EngineError, match="compiled=True: the steps of this folder are not made element"):
        Trainer(folder, compiled=True)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([("Exp", ["g", ""], "y")], "Exp is not compiled"),
        ([("Mul", ["g", "zz"], "y")], "Mul is not compiled"),
        ([("Neg", ["g"], "z")], "there is no 'value_0/new'"),
        (None, "numba: "),
    ],
)
def test_files_that_are_not_compiled_name_what_is_in_the_way(
    folder: Path, tmp_path: Path, operations: list[tuple[str, list[str], str]] | None, message: str
) -> None:
    shutil.copytree(folder, tmp_path / "out")
    path = tmp_path / "out" / "update_0.onnx"
    if operations is None:
        path.write_bytes(b"\xff" * 40)
    else:
        model = onnx.load(path)
        del model.graph.node[:]
        names = {"g": "gradient_0", "y": "value_0/new"}
        model.graph.node.extend(
            helper.make_node(kind, [names.get(x, x) for x in inputs if x], [names.get(y, y)])
            for kind, inputs, y in operations
        )
        onnx.save(model, path)
    with pytest.raises(sg.EngineError, match=message):
        Trainer(tmp_path / "out", compiled=True)


OPERATIONS = [
    ("Mul", "x", "c"), ("Add", "x", "g"), ("Sub", "x", "g"), ("Div", "x", "g"), ("Max", "x", "g"),
    ("Min", "x", "g"), ("Neg", "x"), ("Abs", "x"), ("Sign", "x"), ("Sqrt", "x"), ("Identity", "x"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation[0])
def test_each_operation_is_that_of_the_runtime(
    operation: tuple[str, ...], dtype: str, tmp_path: Path
) -> None:
    """Zeros of both signs, ties, infinities, NaN, the smallest numbers, and many others."""
    kind, *names = operation
    info = np.finfo(dtype)
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        3.0,
        np.inf,
        -np.inf,
        np.nan,
        info.tiny,
        info.smallest_subnormal,
        info.max,
    ]
    pairs = np.array(np.meshgrid(special, special), dtype).reshape(2, -1)
    x, g = np.hstack([pairs, np.random.default_rng(0).standard_normal((2, 501)).astype(dtype)])
    c = np.array(1 / 3, dtype)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    value = lambda name, shape: helper.make_tensor_value_info(name, code, shape)
    inputs = [value("x", ["n"]), value("g", ["n"]), value("c", [])]
    graph = helper.make_graph([helper.make_node(kind, names, ["y"])], "f", inputs, [value("y", ["n"])])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), tmp_path / "f.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "f.onnx", providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x, "g": g, "c": c})
    ports = [
        Port("x", "parameter", dtype, ("n",), "", ""), Port("g", "gradient", dtype, ("n",), "", "w"),
        Port("c", "scalar", dtype, (), "", ""),
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        kernel(tmp_path / "f.onnx", ports, [Port("y", "parameter", dtype, ("n",), "x", "")])(x, g, c)
    np.testing.assert_array_equal(x, expected)
    if kind not in ("Max", "Min", "Sign"):  # They may give either zero.
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(x[numbers]), np.signbit(expected[numbers]))
