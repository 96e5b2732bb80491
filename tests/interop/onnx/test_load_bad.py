"""Models that are none, or mean harm: errors of ours that say what to do, and no memory taken."""

from __future__ import annotations

import os
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper

import stopgrad as sg
import stopgrad.onnx as sgo

F = np.float32


def model_of(text: str, opset: int = 21, more: str = "", functions: str = "") -> Any:
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}{more}]>\n{text}\n{functions}'
    )


def simple() -> Any:
    return model_of("g (float[n, 2] x) => (y) <float[2] w = {1, 2}> { a = Mul(x, w)\n y = Exp(a) }")


# -------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("source", [3, None, [b""], onnx.GraphProto()])
def test_what_is_no_model(source: Any) -> None:
    with pytest.raises(sg.ArgumentError, match=r"path of a model, its bytes or an onnx.ModelProto"):
        sgo.load(source)


def test_files_that_are_not_there_or_no_files(tmp_path: Path) -> None:
    with pytest.raises(sg.MissingFileError, match=r"no file .*no\.onnx"):
        sgo.load(tmp_path / "no.onnx")
    with pytest.raises(sg.FileError, match="cannot be read"):
        sgo.load(tmp_path)
    with pytest.raises(sg.FileError, match="cannot be read"):
        sgo.load("a\0b")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x08", b"\xff" * 100, b"PK\x03\x04" + b"\0" * 50])
def test_bytes_that_are_no_model(content: bytes) -> None:
    with pytest.raises(sg.FileError, match="is no ONNX model"):
        sgo.load(content)


def test_truncated_files() -> None:
    content = simple().SerializeToString()
    for length in range(len(content)):
        with pytest.raises(sg.StopgradError):
            sgo.load(content[:length])


# ----------------------------------------------------------------------------------------------- versions


def test_versions_that_are_not_known_yet_or_no_longer() -> None:
    proto = simple()
    proto.ir_version = 999
    with pytest.raises(sg.FileError, match=r"IR version 999.*install a newer onnx"):
        sgo.load(proto)
    with pytest.raises(sg.FileError, match=r"opset 999.*install a newer onnx"):
        sgo.load(model_of("g (float[n] x) => (y) { y = Exp(x) }", 999))
    with pytest.raises(sg.FileError, match=r"opset 11.*Softmax.*convert_version"):
        sgo.load(model_of("g (float[n, 3] x) => (y) { y = Softmax(x) }", 11))


def test_operators_of_older_opsets_that_are_still_the_same() -> None:
    model = sgo.load(model_of("g (float[n] x) => (y) { a = Exp(x)\n y = Add(a, x) }", 9))
    np.testing.assert_allclose(model(np.zeros(2, F)), [1, 1])


# ---------------------------------------------------------------------------------------------- operators


def test_unknown_operators_are_all_named_at_once() -> None:
    proto = model_of(
        """g (float[n] x, bool c) => (y)
        {
            [one] a = Whatever(x)
            [two] b = com.microsoft.Strange(a)
            [three] d = Whatever(b)
            [unused] e = Another(x)
            y = If (c) <
                then_branch = yes () => (t) { [inside] t = Hidden(d) },
                else_branch = no () => (f) { f = Neg(d) }
            >
        }""",
        more=', "com.microsoft": 1',
    )
    with pytest.raises(sg.GraphError) as caught:
        sgo.load(proto)
    message = str(caught.value)
    assert "3 operators" in message
    assert "Whatever (opset 21): 'one', 'three'" in message
    assert "com.microsoft::Strange: 'two'" in message
    assert "Hidden (opset 21): 'inside'" in message
    assert "Another" not in message  # Nothing depends on it.


def test_nodes_that_cannot_be_translated_are_all_named_at_once() -> None:
    proto = model_of("""
    g (float[2, 3] x, float[4] z) => (y, u, v)
    {
        [first] y = MatMul(x, z)
        [second] u = Transpose<perm = [0, 0]>(x)
        after = Exp(u)
        [third] v = Concat<axis = 7>(x, after)
    }""")
    with pytest.raises(sg.GraphError) as caught:
        sgo.load(proto)
    message = str(caught.value)
    assert "2 nodes" in message  # What follows from the second is not told.
    assert "MatMul 'first'" in message
    assert "Transpose 'second': the attribute perm is [0, 0]" in message


@pytest.mark.parametrize(
    ("node", "match"),
    [
        (helper.make_node("Add", ["x"], ["y"]), "takes 2 to 2 operands, not 1"),
        (helper.make_node("Add", ["x", ""], ["y"]), "operand B is missing"),
        (helper.make_node("Exp", ["x"], ["y", "z"]), "has 1 to 1 results, not 2"),
        (helper.make_node("Concat", ["x", "x"], ["y"]), "attribute 'axis' is missing"),
        (helper.make_node("Exp", ["x"], ["y"], axis=1), "no attribute 'axis'; it has none"),
        (helper.make_node("Concat", ["x"], ["y"], axis=1.5), "'axis' is of another type"),
        (helper.make_node("Add", ["x", "i"], ["y"]), "tensor.int64., where another is a tensor.float."),
        (helper.make_node("Exp", ["i"], ["y"]), "cannot be a tensor.int64."),
        (helper.make_node("Concat", ["x", "x"], ["y"], axis=5), "no axis 5 of 2"),
        (helper.make_node("Cast", ["x"], ["y"], to=99), "no element type here for number 99"),
        (helper.make_node("Scan", ["x"], ["y"], num_scan_inputs=5, body=onnx.GraphProto()), "scans 5 of 1"),
    ],
)
def test_nodes_that_are_not_as_their_operators_say(node: Any, match: str) -> None:
    proto = simple()
    proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "i"))
    del proto.graph.node[:]
    node.name = "bad"
    proto.graph.node.append(node)
    with pytest.raises(sg.GraphError, match=f"{node.op_type} 'bad': .*{match}"):
        sgo.load(proto)


# -------------------------------------------------------------------------------------------------- names


def changed(what: Any) -> Any:
    proto = simple()
    what(proto.graph)
    return proto


@pytest.mark.parametrize(
    ("what", "match"),
    [
        (lambda g: g.node[1].input.__setitem__(0, "nowhere"), "reads 'nowhere', which nothing computes"),
        (lambda g: g.node[0].input.__setitem__(0, "y"), "nodes form a cycle: .* reads from "),
        (lambda g: g.node[1].input.__setitem__(0, "y"), "nodes form a cycle: .* reads from "),
        (lambda g: g.node[1].output.__setitem__(0, "a"), "computes 'a', which is there already"),
        (lambda g: g.node[0].output.__setitem__(0, "x"), "computes 'x', which is there already"),
        (lambda g: g.input.add().CopyFrom(g.input[0]), "two of the inputs .* called 'x'"),
        (lambda g: g.initializer.add().CopyFrom(g.initializer[0]), "two of the initializers .* called 'w'"),
        (lambda g: g.output.add().CopyFrom(g.output[0]), "two of the outputs .* called 'y'"),
        (lambda g: setattr(g.input[0], "name", ""), "one of the inputs .* has no name"),
        (lambda g: setattr(g.output[0], "name", "none"), "nothing in .* computes its output 'none'"),
        (lambda g: g.initializer[0].dims.__setitem__(0, 3), "initializer 'w' cannot be read"),
        (lambda g: g.initializer[0].dims.__setitem__(0, -2), "one is negative"),
        (lambda g: setattr(g.initializer[0], "data_type", 77), "initializer 'w' cannot be read"),
    ],
)
def test_graphs_that_are_not_in_order(what: Any, match: str) -> None:
    with pytest.raises(sg.FileError, match=match):
        sgo.load(changed(what))


def test_inputs_that_are_no_tensors_or_of_unknown_types() -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    shapeless = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    eight = helper.make_tensor_value_info("x", TensorProto.FLOAT8E4M3FN, [2])
    for x, match in ((sequence, "is no tensor"), (shapeless, "has no shape"), (eight, "element type")):
        with pytest.raises(sg.StopgradError, match=f"input 'x' of the model .*{match}"):
            sgo.load(changed(lambda g, x=x: g.input[0].CopyFrom(x)))


# -------------------------------------------------------------------------------------------------- memory


def no_more_than(megabytes: float, source: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(sg.StopgradError):
            sgo.load(source)
        assert tracemalloc.get_traced_memory()[1] < megabytes * 2**20
    finally:
        tracemalloc.stop()


def huge(g: Any) -> None:
    g.initializer[0].dims[:] = [2**40, 2**10]


def huge_sparse(g: Any) -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [5.0])
    places = helper.make_tensor("", TensorProto.INT64, [1], [1])
    del g.initializer[:]
    g.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2**40]))


@pytest.mark.parametrize("what", [huge, huge_sparse])
def test_what_a_file_declares_takes_no_memory(what: Any) -> None:
    no_more_than(4, changed(what))


def test_constants_that_would_be_large_are_not_computed() -> None:
    proto = model_of("""
    g (float[n] x) => (y)
    <int64[1] size = {1000000000000}>
    {
        z = ConstantOfShape(size)
        s = ReduceSum<keepdims = 0>(z)
        y = Add(x, s)
    }""")
    tracemalloc.start()
    try:
        assert sgo.load(proto).outputs["y"].ndim == 1
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_functions_that_multiply_are_refused_in_time() -> None:
    """Thirty functions, each of which calls the next one twice."""
    functions = "\n".join(
        f'<domain: "own", opset_import: ["" : 21, "own" : 1]>\nf{i} (x) => (y) '
        f"{{ a = own.f{i + 1}(x)\n y = own.f{i + 1}(a) }}"
        for i in range(30)
    )
    functions += '\n<domain: "own", opset_import: ["" : 21]>\nf30 (x) => (y) { y = Neg(x) }'
    proto = model_of("g (float[n] x) => (y) { y = own.f0(x) }", more=', "own" : 1', functions=functions)
    start = time.monotonic()
    with pytest.raises(sg.FileError, match="become more than"):
        sgo.load(proto)
    assert time.monotonic() - start < 60


# ------------------------------------------------------------------------------------------- external data


def external(location: str, **more: str) -> Any:
    def change(g: Any) -> None:
        t = g.initializer[0]
        t.CopyFrom(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2]))
        t.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            t.external_data.add(key=key, value=value)

    return changed(change)


def test_external_data_stays_in_its_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    data = np.array([3, 4], F).tobytes()
    (tmp_path / "outside.bin").write_bytes(data)
    (inside / "own.bin").write_bytes(data)
    os.symlink(tmp_path / "outside.bin", inside / "link.bin")
    os.symlink(tmp_path, inside / "folder")

    def read(*args: Any, **more: str) -> Any:
        onnx.save(external(*args, **more), inside / "m.onnx")
        return sgo.load(inside / "m.onnx")

    np.testing.assert_array_equal(read("own.bin").values()["w"], [3, 4])
    np.testing.assert_array_equal(read("own.bin", offset="0", length="8").values()["w"], [3, 4])
    for place in (
        "../outside.bin",
        str(tmp_path / "outside.bin"),
        "link.bin",
        "folder/outside.bin",
        ".",
        "",
        "no.bin",
    ):
        with pytest.raises(sg.FileError, match="the initializer 'w' cannot be read"):
            read(place)
    for more in (
        {"length": "4"},
        {"length": "4000000000000"},
        {"offset": "9"},
        {"offset": "-1"},
        {"length": "x"},
        {"offset": "4", "length": "8"},
    ):
        with pytest.raises(sg.FileError, match="the initializer 'w' cannot be read"):
            read("own.bin", **more)


def test_errors_name_what_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"nothing")
    with pytest.raises(sg.FileError, match=re.escape("load: m.onnx is no ONNX model")):
        sgo.load(tmp_path / "m.onnx")


def test_an_output_of_an_unknown_element_type_is_refused_by_name() -> None:
    stored = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT4E2M1, [2], [1.0, 2.0])
    output = onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT4E2M1, [2])
    graph = onnx.helper.make_graph([], "g", [], [output], [stored])
    with pytest.raises(sg.GraphError, match=r"output 'w'.*no element type float4"):
        sgo.load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)]))
