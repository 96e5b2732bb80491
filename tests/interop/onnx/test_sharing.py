"""Weights that exporters merged, or made two of: told, held apart, or kept as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import stopgrad.onnx as sgo
from stopgrad.interop.onnx.weights.sharing import shared

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def model_of(text: str, producer: str = "pytorch", **arrays: Any) -> Any:
    """A model with inputs x [n, 4] and i [n], whose nodes compute y."""
    header = '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 4] x, int64[n] i) => (float[n, m] y) '
    model = onnx.parser.parse_model(f"{header} {{ {text} }}")
    for name, array in arrays.items():
        tensor = onnx.numpy_helper.from_array(array, name.replace("__", "."))
        model.graph.initializer.append(tensor)
    model.producer_name = producer
    return model


def names(model: Any) -> list[str]:
    return [t.name for t in model.graph.initializer]


def older(value: Any) -> Any:
    """As PyTorch's older exporter writes two norms with equal scales."""
    text = '"b.weight" = Identity("a.weight") u = LayerNormalization(x, "a.weight") '
    model = model_of(text + 'y = LayerNormalization(u, "b.weight")', a__weight=value)
    model.graph.node[0].name = "Identity_7"
    return model


def test_what_began_with_the_same_numbers_is_told_and_held_apart() -> None:
    model = older(np.ones(4, np.float32))
    (note,) = shared(model, False)
    assert "'a.weight' also stands for 'b.weight'" in note
    assert "--split-shared" in note
    assert names(model) == ["a.weight"]
    (note,) = shared(model, True)
    assert note.startswith("1 parameter that the exporter had merged into another, ")
    assert note.endswith("is held apart: 'b.weight'")
    assert names(model) == ["a.weight", "b.weight"]
    assert [n.op_type for n in model.graph.node] == ["LayerNormalization"] * 2
    onnx.checker.check_model(model)


def test_other_equal_weights_of_different_names_are_tied() -> None:
    model = older(drawn(4))
    (note,) = shared(model, True)
    assert "tied weights, which are trained as one" in note
    assert names(model) == ["a.weight"]


def test_copies_of_a_layer_are_not_tied() -> None:
    value = drawn(4)
    model = older(value)
    for node, old, new in ((0, "a.weight", "layers.0.weight"), (1, "a.weight", "layers.0.weight")):
        model.graph.node[node].input[:] = [new if x == old else x for x in model.graph.node[node].input]
    model.graph.initializer[0].name = "layers.0.weight"
    model.graph.node[0].output[0] = model.graph.node[2].input[1] = "layers.1.weight"
    (note,) = shared(model, True)
    assert note.endswith("is held apart: 'layers.1.weight'")
    assert names(model) == ["layers.0.weight", "layers.1.weight"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(model.graph.initializer[1]), value)


LINE = "%layer_norm : call_function[target=aten.layer_norm](args = (%x, [4], %p_{}_weight, %p_{}_bias))"


def test_lines_of_an_exported_program_name_what_was_merged() -> None:
    text = 'u = LayerNormalization(x, "a.weight", "a.bias") y = LayerNormalization(u, "a.weight", "a.bias")'
    model = model_of(text, a__weight=np.ones(4, np.float32), a__bias=np.zeros(4, np.float32))
    inputs = "".join(f"p_{m}_{k}: PARAMETER target='{m}.{k}'\n" for m in "abc" for k in ("weight", "bias"))
    signature = "pkg.torch.export.ExportedProgram.graph_signature"
    model.graph.metadata_props.append(onnx.StringStringEntryProto(key=signature, value=f"# inputs\n{inputs}"))
    for node, module in zip(model.graph.node, "ab", strict=True):
        line = LINE.format(module, module)
        node.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.fx_node", value=line))
    notes = shared(model, False)
    assert ["also stands for 'b." in note for note in notes] == [True, True, False]
    assert "lacks parameters of the module: 'c.weight', 'c.bias'" in notes[2]
    shared(model, True)
    assert names(model) == ["a.weight", "a.bias", "b.weight", "b.bias"]
    assert [list(n.input)[1:] for n in model.graph.node] == [["a.weight", "a.bias"], ["b.weight", "b.bias"]]


def test_files_of_others_are_split_by_layers() -> None:
    text = "u = LayerNormalization(x, s) y = LayerNormalization(u, s)"
    model = model_of(text, "", s=np.ones(4, np.float32))
    assert "also stands for 's/1'" in shared(model, False)[0]
    shared(model, True)
    assert names(model) == ["s", "s/1"]
    assert shared(model_of(text, "", s=drawn(4)), True) == []


@pytest.mark.parametrize("tool", ["", "onnxruntime.transformers"])
def test_a_transposed_copy_of_an_embedding_is_tied_to_it(tool: str, tmp_path: Path) -> None:
    table = drawn(5, 4)
    text = 'h = Gather(table, i) u = Add(h, x) y = MatMul(u, "onnx::MatMul_9")'
    model = model_of(text, table=table, onnx__MatMul_9=np.ascontiguousarray(table.T))
    model.graph.initializer[1].name = "onnx::MatMul_9"
    model.producer_name = tool or model.producer_name  # What rewrites a file puts its own name there.
    onnx.save(model, tmp_path / "m.onnx")
    made = sgo.training(tmp_path / "m.onnx", loss="mse", optimizer="sgd", folder=tmp_path / "out")
    assert any("'onnx::MatMul_9' is 'table', transposed" in note for note in made.notes)
    assert [n for n, one in made.manifest["tensors"].items() if one["use"] == "trained"] == ["table"]

    # One step, by hand: both uses of the table count.
    x, i, labels = drawn(3, 4), np.array([0, 2, 2]), drawn(3, 5)
    trainer = sgo.Trainer(tmp_path / "out")
    trainer.step(x=x, i=i, labels=labels, learning_rate=0.5)
    u = table[i] + x
    g = 2.0 * (u @ table.T - labels) / labels.size
    expected = g.T @ u
    np.add.at(expected, i, g @ table)
    np.testing.assert_allclose(trainer.state["table"], table - 0.5 * expected, rtol=1e-4, atol=1e-6)

    # Rows are added into the other part of the gradient, not into zeros.
    written = onnx.load(tmp_path / "out" / "gradients.onnx").graph
    (scatter,) = [node for node in written.node if node.op_type == "ScatterND"]
    assert scatter.output[0] == "table/gradient"
    trainer.export(tmp_path / "trained.onnx")
    again = sgo.load(tmp_path / "trained.onnx")
    np.testing.assert_allclose(
        again(x, i), (trainer.state["table"][i] + x) @ trainer.state["table"].T, rtol=1e-4
    )


def test_merged_parameters_that_are_held_apart_are_trained_apart(tmp_path: Path) -> None:
    onnx.save(older(np.ones(4, np.float32)), tmp_path / "m.onnx")
    made = sgo.training(
        tmp_path / "m.onnx", loss="mse", optimizer="sgd", folder=tmp_path / "out", split_shared=True
    )
    (note,) = [note for note in made.notes if "merged" in note]
    assert "is held apart" in note
    trainer = sgo.Trainer(tmp_path / "out")
    trainer.step(x=drawn(3, 4), i=np.zeros(3, np.int64), labels=drawn(3, 4), learning_rate=0.5)
    assert {"a.weight", "b.weight"} <= set(trainer.state)
    assert not np.allclose(trainer.state["a.weight"], trainer.state["b.weight"])
