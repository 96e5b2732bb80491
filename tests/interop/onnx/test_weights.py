"""Which tensors of a file are weights: each sort of evidence, in small models written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.interop.onnx.weights import weighing_of
from stopgrad.interop.onnx.weights.exporters import module_of

RNG = np.random.default_rng(0)


def model_of(text: str, arrays: Mapping[str, Any], producer: str = "") -> Any:
    """A model with inputs x [n, 4] and s [n, 6, 6], whose nodes compute y."""
    header = '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 4] x, float[n, 6, 6] s) => (float[] y) '
    model = onnx.parser.parse_model(f"{header} {{ {text} }}")
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    model.producer_name = producer
    return model


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def sines(rows: int = 16, columns: int = 4) -> Any:
    angles = np.arange(rows)[:, None] * 10.0 ** -np.arange(columns / 2)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


MASK = np.triu(np.full((6, 6), -np.inf, np.float32), 1)
LOWEST = np.triu(np.full((6, 6), np.finfo(np.float32).min, np.float32), 1)
CASES: dict[str, tuple[str, Any, str, bool, str]] = {
    # What the tensor t is used for; the array; the producer; whether it is a weight; why.
    "a matrix": ("y = MatMul(x, t)", drawn(4, 3), "", True, "as a matrix"),
    "a matrix that is moved": ("u = Transpose(t) y = MatMul(x, u)", drawn(3, 4), "", True, "as a matrix"),
    "a bias": ("h = MatMul(x, w) y = Add(h, t)", drawn(3), "", True, "as a bias"),
    "a bias before a softmax": (
        "h = MatMul(x, w) u = Add(t, h) y = Softmax(u)", drawn(3), "pytorch", True, "as a bias",
    ),
    "a scale": ("y = LayerNormalization(x, t)", np.ones(4, np.float32), "", True, "as a scale"),
    "a table": ("i = Constant<value_ints=[1, 2]>() y = Gather(t, i)", drawn(9, 4), "", True, "looked up"),
    "a recurrence's first state": (
        "c = Constant<value_ints=[0]>() u = Unsqueeze(x, c) y, h = RNN<hidden_size=2>(u, wi, wh, b, , t)",
        np.zeros((1, 5, 2), np.float32), "", False, "begins",
    ),
    "infinities": ("u = Add(s, t) y = Softmax(u)", MASK, "", False, "holds -inf"),
    "the lowest number": ("u = Add(s, t) y = Softmax(u)", LOWEST, "", False, "-3.4e\\+38"),
    "a mask of half precision": (
        "u = Add(s, t) y = Softmax(u)", np.triu(np.full((6, 6), -1e4, np.float32)), "", False, "a mask",
    ),
    "what the exporter adds before a softmax": (
        "u = Add(s, t) y = Softmax(u)", drawn(6, 6), "pytorch", True, "nothing says",
    ),
    "only compared": ("u = Less(x, t) y = Where(u, x, w0)", drawn(4), "", False, "only compared"),
    "a triangle that is compared": (
        "u = Trilu(t) v = Equal(u, one) y = Where(v, s, s)", drawn(6, 6), "", False, "compared",
    ),
    "an index": ("i = Cast<to=7>(t) y = Gather(x, i)", drawn(3), "", False, "an index or a shape"),
    "a shape": ("i = Shape(t) y = Reshape(x, i)", drawn(3, 5), "", False, "an index or a shape"),
    "compared and multiplied": (
        "v = Less(x, t) u = Mul(x, t) y = Where(v, u, x)", drawn(4), "", True, "nothing",
    ),
    "sines": ("y = Add(x, t)", sines(), "", False, "sines and cosines"),
    "frequencies": ("y = Mul(s2, t)", 0.5 ** np.arange(12, dtype=np.float32), "", False, "equal ratios"),
    "positions": ("y = Mul(s2, t)", np.arange(12, dtype=np.float32), "", False, "equal steps"),
    "zeros and ones": ("y = Mul(s, t)", np.tril(np.ones((6, 6), np.float32)), "", False, "two numbers only"),
    "means of inputs": ("u = Sub(x, t) y = Div(u, w0)", drawn(4), "", False, "normalised"),
    "a single number": ("y = Mul(x, t)", np.float32(2.0), "", False, "single number"),
    "a single number of a module": ("y = Mul(x, t)", np.float32(2.0), "pytorch", True, "nothing says"),
    "a matrix of zeros and ones": ("y = MatMul(x, t)", np.eye(4, dtype=np.float32), "", True, "as a matrix"),
    "nothing": ("y = Mul(x, t)", drawn(4), "", True, "nothing says"),
    "a learned table": ("y = Add(x, t)", drawn(16, 4), "", True, "nothing says"),
    "equal rows": ("y = Add(x, t)", np.tile(drawn(1, 4) * 0.1, (16, 1)), "", True, "nothing says"),
}  # fmt: skip

MORE = {"w": drawn(4, 3), "w0": drawn(4), "wi": drawn(1, 2, 4), "wh": drawn(1, 2, 2), "b": drawn(1, 4)}
MORE |= {"one": np.float32(1)}


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name: str) -> None:
    text, array, producer, weight, why = CASES[name]
    weighing = weighing_of(model_of(text, {"t": array, **MORE}, producer))
    found = weighing.of("t", array)
    assert found.weight == weight, found
    assert re.search(why, found.why), found


@pytest.mark.parametrize(
    ("name", "weight", "why"),
    [
        ("encoder.inv_freq", False, "constants so"),
        ("attn.causal_mask", False, "constants so"),
        ("encoder.weight", True, "nothing says"),
        ("onnx::Mul_12", False, "no weight stands"),
        ("/block/Constant_output_0", False, "no weight stands"),
    ],
)
def test_names_say_something_where_nothing_else_does(name: str, weight: bool, why: str) -> None:
    array = drawn(4)
    model = model_of("y = Mul(x, t)", {"t": array}, "pytorch")
    model.graph.initializer[0].name = model.graph.node[0].input[1] = name
    found = weighing_of(model).of(name, array)
    assert found.weight == weight
    assert why in found.why


def test_a_tensor_that_the_exporter_adds_before_a_softmax_is_none_of_the_module() -> None:
    model = model_of("u = Add(s, t) y = Softmax(u)", {"t": drawn(6, 6)}, "pytorch")
    model.graph.initializer[0].name = model.graph.node[0].input[1] = "onnx::Add_3"
    found = weighing_of(model).of("onnx::Add_3", drawn(6, 6))
    assert not found.weight
    assert "softmax" in found.why


SIGNATURE = """
# inputs
p_head_weight: PARAMETER target='head.weight'
p_head_bias: PARAMETER target='head.bias'
p_wpe: PARAMETER target='wpe.weight'
b_scale: BUFFER target='scale' persistent=True
c_table: CONSTANT_TENSOR target='table'
x: USER_INPUT
"""


def of_export(lines: Mapping[str, str]) -> Any:
    """What PyTorch's exporter would write; *lines* are those of the program, by the results of nodes."""
    names = ("scale", "table", "val_3", "head.bias", "val_9")
    model = model_of(
        'a = Mul(x, scale) b = Mul(a, table) d = MatMul(b, val_3) e = Add(d, "head.bias") y = Add(e, val_9)',
        dict(zip(names, map(drawn, (4, 4, 4, 3, 8), (1, 1, 3, 1, 3)), strict=True)),
        "pytorch",
    )
    told = model.graph.metadata_props.add()
    told.key, told.value = "pkg.torch.export.ExportedProgram.graph_signature", SIGNATURE
    for node in model.graph.node:
        entry = node.metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.fx_node", lines.get(node.output[0], "")
    return model


def test_the_signature_of_an_exported_program_is_believed() -> None:
    line = "%linear : [num_users=1] = call_function[target=linear](args = (%b, %p_head_weight, %p_head_bias))"
    model = of_export({"d": line, "e": line})
    weighing = weighing_of(model)
    found = {t.name: weighing.of(t.name, onnx.numpy_helper.to_array(t)) for t in model.graph.initializer}
    assert {name: verdict.weight for name, verdict in found.items()} == {
        "scale": False, "table": False, "val_3": True, "head.bias": True, "val_9": True,
    }  # fmt: skip
    assert found["scale"].why == "the file says that it is a buffer"
    assert found["val_3"].of == ("head.weight",)
    assert found["val_9"].of == ("wpe.weight",)
    assert "nowhere else" in found["val_9"].why


@pytest.mark.parametrize(
    ("name", "nodes", "weight"),
    [
        ("val_9", "a = Trilu(val_9) b = Equal(a, scale) y = Where(b, s, s)", False),
        ("val_9", "y = Mul(s, val_9)", True),
        ("head.bias", 'b = Equal(s, "head.bias") y = Where(b, s, s)', True),  # As the file says.
    ],
)
def test_what_is_compared_is_no_parameter_that_the_file_does_not_have(
    name: str, nodes: str, weight: bool
) -> None:
    model = model_of(nodes, {name: np.ones((6, 6), np.float32), "scale": np.float32(0)}, "pytorch")
    signature = model.graph.metadata_props.add()
    signature.key, signature.value = "pkg.torch.export.ExportedProgram.graph_signature", SIGNATURE
    weighing = weighing_of(model)
    assert "wpe.weight" in weighing.unread
    assert weighing.of(name, np.ones((6, 6), np.float32)).weight == weight


def test_a_parameter_that_is_only_compared_is_named(tmp_path: Any) -> None:
    """Of what the file says is a parameter, a note says why it is not trained; of a mask, none."""
    said = {}
    for kind in ("PARAMETER", "BUFFER"):
        nodes = "h = MatMul(x, w) u = Less(h, t) z = Mul(h, h) y = Where(u, h, z)"
        model = model_of(nodes, {"w": drawn(4, 3), "t": drawn(3)}, "pytorch")
        signature = model.graph.metadata_props.add()
        signature.key = "pkg.torch.export.ExportedProgram.graph_signature"
        more = " persistent=True" if kind == "BUFFER" else ""
        signature.value = (
            f"# inputs\np_w: PARAMETER target='w'\np_t: {kind} target='t'{more}\nx: USER_INPUT\n"
        )
        del model.graph.input[1:]
        output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3])
        model.graph.output[0].CopyFrom(output)
        said[kind] = sgo.training(model, loss="mse", folder=None).notes
    assert any(note.startswith("'t' is not trained") for note in said["PARAMETER"])
    assert said["BUFFER"] == ()


def test_load_has_the_weights_alone_as_parameters() -> None:
    arrays = {"scale": drawn(4), "mask": np.full((1, 3), -np.inf, np.float32), "w": drawn(4, 3)}
    model = model_of("h = Mul(x, scale) u = MatMul(h, w) v = Add(u, mask) y = Softmax(v)", arrays)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", 1, ["n", 3]))
    assert list(sgo.load(model).parameters) == ["scale", "w"]
    assert list(sgo.load(model, parameters="mask").parameters) == ["scale", "mask", "w"]


def test_our_own_files_say_what_their_parameters_are() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["n", 12], name="x")
        w = sg.parameter(np.arange(12, dtype=np.float32), name="w")
        model = sgo.to_model({"y": x * w * np.linspace(1, 2, 12, dtype=np.float32) + sines(16, 12)[0]})
    back = sgo.load(model)
    assert list(back.parameters) == ["w"]
    assert list(sgo.load(sgo.to_model(back)).parameters) == ["w"]


@pytest.mark.parametrize("beside", ["/layer/Sqrt_2_output_0", "onnx::MatMul_289_quantized"])
def test_names_of_pytorchs_exporter_are_known_under_the_name_of_a_tool(beside: str) -> None:
    model = model_of("y = Mul(s, t)", {"t": np.float32([0.5]), beside: drawn(3, 3)}, "onnx.quantize")
    model.graph.initializer[0].name = model.graph.node[0].input[1] = "/layer/Constant_11_output_0"
    verdict = weighing_of(model).of("/layer/Constant_11_output_0", np.float32([0.5]))
    assert not verdict.weight
    assert "the exporter computed it" in verdict.why


def test_a_bias_behind_a_convolution_of_whole_numbers_is_a_weight() -> None:
    nodes = [
        onnx.helper.make_node("ConvInteger", ["q", "k", "z"], ["whole"]),
        onnx.helper.make_node("Cast", ["whole"], ["float"], to=1),
        onnx.helper.make_node("Mul", ["float", "scale"], ["scaled"]),
        onnx.helper.make_node("Reshape", ["onnx::Conv_7", "shape"], ["bias"]),
        onnx.helper.make_node("Add", ["scaled", "bias"], ["y"]),
    ]
    model = model_of("y = Identity(x)", {"onnx::Conv_7": drawn(3), "k": np.ones((3, 1, 2, 2), np.int8)})
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    verdict = weighing_of(model).of("onnx::Conv_7", drawn(3))
    assert verdict.weight
    assert "as a bias" in verdict.why


def test_tables_of_rotary_embeddings_are_constants_also_where_they_were_rounded() -> None:
    model = model_of("y = Cast<to=1>(x)", {"cos": sines(), "sin": sines()})
    node = onnx.helper.make_node("RotaryEmbedding", ["x", "i", "cos", "sin"], ["r"], domain="com.microsoft")
    model.graph.node.insert(0, node)
    for name in ("cos", "sin"):
        verdict = weighing_of(model).of(name, sines().astype(np.float16))
        assert not verdict.weight
        assert verdict.why == "the cosines and sines of rotary embeddings"


def test_names_of_nodes_name_modules() -> None:
    assert module_of("/encoder/layer.0/attention/MatMul") == "encoder.layer.0.attention"
    assert module_of("/layer1/layer1.0/conv/Conv") == "layer1.0.conv"
    assert module_of("MatMul_3") == module_of("/MatMul") == ""


def masked(path: Any) -> None:
    """A model with a weight, a mask, and a factor that looks like a table."""
    arrays = {"mask": np.array([[0.0, 0.0, -1e38]], np.float32), "w": drawn(4, 3), "onnx::Add_7": drawn(4, 3)}
    text = 'u = MatMul(x, w) t = MatMul(x, "onnx::Add_7") a = Add(u, t) v = Add(a, mask) y = Softmax(v)'
    model = model_of(text, arrays, "pytorch")
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", 1, ["n", 3]))
    onnx.save(model, path)


def test_training_follows_the_evidence_and_patterns_override_it(tmp_path: Any) -> None:
    masked(tmp_path / "m.onnx")

    def uses(**options: Any) -> dict[str, str]:
        made = sgo.training(tmp_path / "m.onnx", loss="mse", folder=None, **options)
        return {name: one["use"] for name, one in made.manifest["tensors"].items()}

    assert uses() == {"mask": "constant", "w": "trained", "onnx::Add_7": "trained"}
    assert uses(train="mask") == {"mask": "trained", "w": "trained", "onnx::Add_7": "trained"}
    assert uses(only="mask") == {"mask": "trained", "w": "frozen", "onnx::Add_7": "frozen"}
    assert uses(freeze="w") == {"mask": "constant", "w": "frozen", "onnx::Add_7": "trained"}
    assert uses(freeze=["w", "mask"]) == {"mask": "constant", "w": "frozen", "onnx::Add_7": "trained"}
    assert uses(only="w", train="mask") == {"mask": "trained", "w": "trained", "onnx::Add_7": "frozen"}
    with pytest.raises(sg.ArgumentError, match="train: 'masks' matches no parameter"):
        uses(train="masks")
    assert [f.name for f in tmp_path.iterdir()] == ["m.onnx"]


def test_names_that_only_files_can_have_are_trained_by_every_optimiser(tmp_path: Any) -> None:
    masked(tmp_path / "m.onnx")
    made = sgo.training(tmp_path / "m.onnx", loss="mse", optimizer="adamw", folder=None)
    assert "onnx::Add_7" in made.manifest["state"]
