"""Graphs and SavedModels that are damaged or hostile, or cannot be translated; and wrong arguments."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
import stopgrad.tensorflow as sgtf
from stopgrad.interop.tensorflow.messages import GraphDef

GRAPHS = Path(__file__).parent / "graphs"
FLOAT, INT32, STRING = 1, 3, 7


class Writing:
    """A graph that a test writes."""

    def __init__(self) -> None:
        self.graph = GraphDef()

    def node(self, op: str, name: str, *inputs: str, **types: int) -> Any:
        node = self.graph.node.add(op=op, name=name)
        node.input.extend(inputs)
        for key, number in types.items():
            node.attr[key].type = number
        return node

    def placeholder(self, name: str = "x", *sizes: int, dtype: int = FLOAT) -> Any:
        node = self.node("Placeholder", name, dtype=dtype)
        for size in sizes or (2,):
            node.attr["shape"].shape.dim.add().size = size
        return node

    def constant(self, name: str, *sizes: int, values: Any = (1.0,), dtype: int = FLOAT) -> Any:
        tensor = self.node("Const", name, dtype=dtype).attr["value"].tensor
        tensor.dtype = dtype
        for size in sizes:
            tensor.tensor_shape.dim.add().size = size
        (tensor.float_val if dtype == FLOAT else tensor.int_val).extend(values)
        return tensor

    def function(self, name: str, *calls: str) -> Any:
        """A function of one tensor that calls others, one after another."""
        found = self.graph.library.function.add()
        found.signature.name = name
        found.signature.input_arg.add(name="x", type=FLOAT)
        found.signature.output_arg.add(name="y", type=FLOAT)
        last = "x"
        for i, called in enumerate(calls):
            node = found.node_def.add(op="PartitionedCall", name=f"call{i}")
            node.input.append(last)
            node.attr["f"].func.name = called
            node.attr["Tout"].list.type.append(FLOAT)
            last = f"call{i}:output:0"
        found.ret["y"] = last
        return found

    def call(self, function: str) -> None:
        self.placeholder()
        node = self.node("PartitionedCall", "y", "x")
        node.attr["f"].func.name = function
        node.attr["Tout"].list.type.append(FLOAT)

    def load(self, *args: Any, **kwargs: Any) -> Any:
        return sgtf.load(self.graph.SerializeToString(), *args, **kwargs)


@pytest.fixture
def writing() -> Writing:
    return Writing()


# --------------------------------------------------------------------------------------------- not read


def test_unknown_operations_are_told_at_once_with_names_and_counts(writing: Writing) -> None:
    writing.placeholder()
    for i in range(10):
        writing.node("Fancy", f"f{i}", "x")
    writing.node("Other", "o", *[f"f{i}" for i in range(10)])
    with pytest.raises(sg.GraphError) as caught:
        writing.load()
    text = str(caught.value)
    assert "2 operations of the graph have no translation" in text
    assert "Fancy (10): 'f0', " in text
    assert "and 2 more" in text
    assert "Other (1): 'o'" in text


def test_all_nodes_that_cannot_be_translated_are_named_at_once(writing: Writing) -> None:
    writing.placeholder("x", 2)
    writing.placeholder("s", 3, dtype=INT32)
    for name in ("first", "second"):
        writing.node("Reshape", name, "x", "s", T=FLOAT, Tshape=INT32)
    with pytest.raises(sg.GraphError, match="2 nodes of the graph cannot be translated") as caught:
        writing.load()
    assert "first" in str(caught.value)
    assert "known={name: value}" in str(caught.value)


def test_the_cure_for_an_unknown_size_works(writing: Writing) -> None:
    writing.placeholder("x", 6)
    writing.placeholder("s", 2, dtype=INT32)
    writing.node("Reshape", "y", "x", "s", T=FLOAT, Tshape=INT32)
    model = writing.load(known={"s": np.array([2, 3], np.int32)})
    assert list(model.inputs) == ["x"]
    assert model(np.zeros(6, np.float32)).shape == (2, 3)


def test_a_custom_gradient_that_the_file_lacks_is_an_error_when_it_is_asked_for(writing: Writing) -> None:
    writing.placeholder("x", 2)
    node = writing.node("IdentityN", "y", "x")
    node.attr["T"].list.type.append(FLOAT)
    node.attr["_gradient_op_type"].s = b"CustomGradient-7"
    model = writing.load()
    x = np.ones(2, np.float32)
    assert np.array_equal(model(x), x)
    with pytest.raises(sg.GradientError, match=r"CustomGradient-7.*does not hold"):
        sg.grad(lambda x: sg.reduce_sum(model(x)))(x)


def test_a_graph_with_variables_and_no_checkpoint_says_that_it_must_be_frozen(writing: Writing) -> None:
    writing.node("VarHandleOp", "v", dtype=FLOAT)
    writing.node("ReadVariableOp", "y", "v", dtype=FLOAT)
    with pytest.raises(sg.GraphError, match="freeze the graph before"):
        writing.load()


# ----------------------------------------------------------------------------------------------- damaged


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda w: (w.node("Relu", "a", "b"), w.node("Relu", "b", "a"), w.node("Relu", "c", "a")),
            "need one",
        ),
        (lambda w: w.node("Relu", "a", "nobody"), "which is not there"),
        (lambda w: (w.placeholder(), w.placeholder()), "two nodes"),
        (lambda w: w.node("Relu", "a", "x:y"), "no result of a node"),
        (lambda w: (w.constant("c", 2**40), w.node("Relu", "y", "c", T=FLOAT)), "do not store|stores"),
        (lambda w: (w.constant("c", 2, values=[1.0] * 3), w.node("Relu", "y", "c", T=FLOAT)), "stores 3"),
        (lambda w: (w.function("f", "f"), w.call("f")), "64 deep"),
        (lambda w: (w.function("f", "nobody"), w.call("f")), "which is not there"),
        (lambda w: (w.node("Merge", "m"),), "lacks an operand"),
        (lambda w: (w.placeholder(), w.node("Merge", "m", "x", "x")), "no switch"),
    ],
)
def test_damaged_graphs_are_refused(build: Callable[[Writing], Any], message: str, writing: Writing) -> None:
    build(writing)
    with pytest.raises((sg.FileError, sg.GraphError), match=message):
        writing.load()


def test_functions_that_become_very_many_nodes_are_refused(writing: Writing) -> None:
    writing.function("f0")
    for i in range(1, 20):
        writing.function(f"f{i}", *[f"f{i - 1}"] * 4)
    writing.call("f19")
    with pytest.raises(sg.FileError, match="become more than"):
        writing.load()


def test_small_constants_that_declare_much_together_are_refused(writing: Writing) -> None:
    names = [f"c{i}" for i in range(100)]
    for name in names:
        writing.constant(name, 2**20)
    writing.node("AddN", "y", *names, T=FLOAT).attr["N"].i = 100
    with pytest.raises(sg.FileError, match="do not store"):
        writing.load()


@pytest.mark.parametrize("content", [b"", b"\x00" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"not a graph"])
def test_what_is_no_graph_is_refused(content: bytes, tmp_path: Path) -> None:
    for name in ("graph.pb", "graph.pbtxt"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(sg.FileError, match="no graph of TensorFlow"):
            sgtf.load(tmp_path / name)


# --------------------------------------------------------------------------------------------- saved models


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GRAPHS / "two_signatures", tmp_path / "model"))


@pytest.mark.parametrize(
    "name", ["saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"]
)
def test_a_link_in_a_saved_model_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    os.rename(folder / name, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder / name)
    with pytest.raises(sg.FileError, match=r"is no file|is a link"):
        sgtf.load(folder)


def test_a_linked_folder_of_variables_is_refused(folder: Path, tmp_path: Path) -> None:
    os.rename(folder / "variables", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder / "variables")
    with pytest.raises(sg.FileError, match="is a link"):
        sgtf.load(folder)


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    name = folder / "variables" / "variables.data-00000-of-00001"
    name.unlink()
    os.mkfifo(name)
    with pytest.raises(sg.FileError, match="is no file"):
        sgtf.load(folder)


def test_a_flipped_bit_of_a_variable_is_found(folder: Path) -> None:
    name = folder / "variables" / "variables.data-00000-of-00001"
    content = bytearray(name.read_bytes())
    content[5] ^= 4
    name.write_bytes(content)
    with pytest.raises(sg.FileError, match="checksum"):
        sgtf.load(folder)


def test_missing_files_are_told(folder: Path, tmp_path: Path) -> None:
    for name in ("variables/variables.data-00000-of-00001", "saved_model.pb"):
        (folder / name).unlink()
        with pytest.raises(sg.MissingFileError):
            sgtf.load(folder)
    with pytest.raises(sg.MissingFileError, match="there is no file"):
        sgtf.load(tmp_path / "none.pb")


# -------------------------------------------------------------------------------------------- arguments


def test_wrong_arguments_name_what_there_is() -> None:
    graph, model = GRAPHS / "softmax.pb", GRAPHS / "two_signatures"
    with pytest.raises(sg.ArgumentError, match="has no node 'nobody'"):
        sgtf.load(graph, "nobody")
    with pytest.raises(sg.ArgumentError, match=r"no signature .nobody.; it has .*counted"):
        sgtf.load(model, signature="nobody")
    with pytest.raises(sg.ArgumentError, match="no SavedModel"):
        sgtf.load(graph, signature="counted")
    with pytest.raises(sg.ArgumentError, match="'z', which is no input"):
        sgtf.load(graph, known={"z": 1})
    with pytest.raises(sg.ShapeError, match="has the sizes"):
        sgtf.load(graph, shapes={"x": (None, 5)})
    with pytest.raises(sg.DTypeError, match="float32"):
        sgtf.load(graph, known={"x": np.zeros((2, 4), np.int32)})


def test_given_shapes_name_open_sizes() -> None:
    model = sgtf.load(GRAPHS / "softmax.pb", shapes={"x": ("rows", 4)})
    assert [str(size) for size in model.inputs["x"].shape] == ["rows", "4"]


def test_an_input_without_a_number_of_axes_needs_a_shape(writing: Writing) -> None:
    node = writing.placeholder()
    node.attr["shape"].shape.unknown_rank = True
    writing.node("Relu", "y", "x", T=FLOAT)
    with pytest.raises(sg.ShapeError, match="shapes="):
        writing.load()
    assert writing.load(shapes={"x": (None, 3)})(np.ones((1, 3), np.float32)).shape == (1, 3)
