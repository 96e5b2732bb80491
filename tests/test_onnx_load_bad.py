"""Models that are none, or mean harm: errors of ours that say what to do, and no memory taken."""

from __future__ import annotations

import os
import random
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import stopgrad as sg
import stopgrad.onnx as sgo
from onnx_node_tools import cases

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
        (lambda g: g.node[0].input.__setitem__(0, "y"), "computed only after it: .* or form a cycle"),
        (lambda g: g.node[1].input.__setitem__(0, "y"), "computed only after it: .* or form a cycle"),
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


# -------------------------------------------------------------------------------------------------- mutants

MODELS = [
    "g (float[n, 2] x) => (y) <float[2] w = {1, 2}> { a = Mul(x, w)\n y = Softmax<axis = -1>(a) }",
    """g (float[n, 4] x, bool c) => (y)
    <float[4, 3] w = {1,2,3,4,5,6,7,8,9,1,2,3}, int64[2] to = {-1, 3}, int64[1] k = {1}>
    {
        m = Gemm<alpha = 0.5>(x, w)
        s = Shape(m)
        t = ConstantOfShape<value = float[1] {2}>(s)
        r = Reshape(m, to)
        q = Add(r, t)
        top, at = TopK<axis = 1>(q, k)
        y = If (c) <
            then_branch = yes () => (a) { a = Neg(top) },
            else_branch = no () => (b) { b = Pad<mode = "edge">(top, pads)  }
        >
    }""",
    """g (float[3] x) => (y, ys)
    <int64 m = {3}>
    {
        y, ys = Loop (m, , x) <
            body = step (int64 i, bool going, float[3] s) => (bool again, float[3] next, float[3] row)
            { again = Identity(going)
              next = Add(s, x)
              row = Exp(s) }
        >
    }""",
]


def seeds() -> list[Any]:
    second = model_of(MODELS[1].replace(", pads)", ", eight)"))
    second.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.int64), "eight"))
    return [model_of(MODELS[0]), second, model_of(MODELS[2])]


def changed_bytes(draw: random.Random, contents: list[bytes]) -> bytes:
    """A file in which some bytes have been changed, taken away, doubled, or joined with another's."""
    content = bytearray(draw.choice(contents))
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at = draw.randrange(len(content))
        kind = draw.randrange(5)
        if kind == 0:
            content[at] = draw.randrange(256)
        elif kind == 1:
            content[at] ^= 1 << draw.randrange(8)
        elif kind == 2:
            del content[at : at + draw.randrange(1, 9)]
        elif kind == 3:
            content[at:at] = bytes(draw.choice((0, 1, 127, 255)) for _ in range(draw.randrange(1, 9)))
        else:
            other = draw.choice(contents)
            start = draw.randrange(len(other))
            content[at : at + 8] = other[start : start + draw.randrange(1, 40)]
        if not content:
            break
    return bytes(content)


NUMBERS = (0, 1, -1, 2, 3, 7, -3, 255, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))


def changed_fields(draw: random.Random, models: list[Any]) -> bytes:
    """A file that can be parsed, in which some numbers, names and parts are others."""
    proto = onnx.ModelProto()
    proto.CopyFrom(draw.choice(models))
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        changes = list(fields(draw, proto.graph))
        if changes:
            draw.choice(changes)()
    return proto.SerializeToString()


def fields(draw: random.Random, graph: Any) -> Any:
    """What can be changed in a graph, as functions."""
    names = [x for node in graph.node for x in (*node.input, *node.output)] or ["x"]
    for node in graph.node:
        for strings in (node.input, node.output):
            for i in range(len(strings)):
                yield lambda s=strings, i=i: s.__setitem__(i, draw.choice([*names, ""]))
            yield lambda s=strings: s.append(draw.choice(names))
            yield lambda s=strings: s.pop() if s else None
        for a in node.attribute:
            yield lambda a=a, node=node: node.attribute.remove(a)
            yield lambda a=a: setattr(a, "type", draw.randrange(15))
            yield lambda a=a: setattr(a, "i", draw.choice(NUMBERS))
            yield lambda a=a: setattr(a, "s", draw.choice([b"", b"\xff", b"none"]))
            yield lambda a=a: setattr(a, "f", draw.choice([0.0, -1.0, float("nan"), float("inf")]))
            yield lambda a=a: a.ints.append(draw.choice(NUMBERS))
            for i in range(len(a.ints)):
                yield lambda a=a, i=i: a.ints.__setitem__(i, draw.choice(NUMBERS))
            if a.HasField("g"):
                yield from fields(draw, a.g)
            if a.HasField("t"):
                yield lambda a=a: array_changed(draw, a.t)
        yield lambda node=node: setattr(node, "op_type", draw.choice(graph.node).op_type)
    for t in graph.initializer:
        yield lambda t=t: array_changed(draw, t)
        yield lambda t=t: setattr(t, "data_type", draw.randrange(30))
        yield lambda t=t: t.dims.append(draw.choice(NUMBERS))
    for x in (*graph.input, *graph.output):
        for d in x.type.tensor_type.shape.dim:
            yield lambda d=d: setattr(d, "dim_value", draw.choice(NUMBERS))
            yield lambda d=d: setattr(d, "dim_param", draw.choice(["n", "a b", "", "_1", "int32"]))
        yield lambda x=x: setattr(x.type.tensor_type, "elem_type", draw.randrange(30))


def array_changed(draw: random.Random, t: Any) -> None:
    """Other numbers in a tensor of the same type and sizes."""
    try:
        values = np.array(numpy_helper.to_array(t))
        values[...] = np.array(draw.choice(NUMBERS)).astype(values.dtype)
        t.CopyFrom(numpy_helper.from_array(values, t.name))
    except (ValueError, TypeError):
        pass


def check_mutants(seed: int, count: int, models: list[Any]) -> int:
    """How many of so many changed files can still be loaded; all others give an error of ours, soon."""
    draw, loaded = random.Random(seed), 0
    contents = [one.SerializeToString() for one in models]
    for i in range(count):
        content = changed_bytes(draw, contents) if i % 4 == 0 else changed_fields(draw, models)
        start = time.monotonic()
        try:
            sgo.load(content)
            loaded += 1
        except sg.InternalError as error:
            raise AssertionError(f"{content!r}") from error
        except sg.StopgradError:
            pass
        assert time.monotonic() - start < 20, f"slow: {content!r}"
    return loaded


def test_changed_files_give_errors_of_ours() -> None:
    assert 0 < check_mutants(0, 1500, seeds()) < 1500


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 5))
def test_changed_files_of_all_operators_give_errors_of_ours(seed: int) -> None:
    """In them the inputs are initializers, so that what must be known is."""
    assert check_mutants(seed, 15_000, [known_inside(case) for case in cases()])


def known_inside(case: Any) -> Any:
    """A node test's model with its whole numbers as initializers."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    given = dict(zip([x.name for x in case.model.graph.input if x.name], case.inputs, strict=False))
    for x in list(proto.graph.input):
        value = given.get(x.name)
        if isinstance(value, np.ndarray) and value.dtype.kind in "ib" and value.ndim <= 1:
            proto.graph.input.remove(x)
            proto.graph.initializer.append(numpy_helper.from_array(value, x.name))
    return proto


def test_errors_name_what_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"nothing")
    with pytest.raises(sg.FileError, match=re.escape("load: m.onnx is no ONNX model")):
        sgo.load(tmp_path / "m.onnx")
