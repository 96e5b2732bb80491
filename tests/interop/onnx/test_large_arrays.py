"""Arrays of model files are read one by one, and a model read so is the one that the parser reads whole."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.interop.onnx import large_arrays, reading

DTYPES = [
    "float32",
    "float64",
    "float16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


def model(arrays: dict[str, Any], *more: TensorProto) -> onnx.ModelProto:
    """A model that returns its initializers."""
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()] + list(more)
    nodes = [helper.make_node("Identity", [t.name], [f"{t.name}_out"]) for t in tensors]
    outputs = [helper.make_tensor_value_info(f"{t.name}_out", t.data_type, list(t.dims)) for t in tensors]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def written(made: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


def values(source: Any) -> dict[str, Any]:
    found = sgo.load(source)()
    return found if isinstance(found, dict) else {"": found}


def test_large_arrays_of_every_dtype_are_read_from_the_file(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays = {name: draw.integers(0, 100, (300, 100)).astype(name) for name in DTYPES}
    arrays |= {"small": np.arange(3.0), "scalar": np.float32(2.0), "empty": np.zeros((0, 5))}
    path = written(model(arrays), tmp_path / "model.onnx")
    source = reading.read(path, lean=True)
    assert set(source.places) == set(DTYPES)
    assert source.model.ByteSize() < 4000
    found = values(path)
    for name, array in arrays.items():
        assert found[f"{name}_out"].dtype == array.dtype
        np.testing.assert_array_equal(found[f"{name}_out"], array)


def test_what_numpy_does_not_store_like_this_is_read_by_the_parser(tmp_path: Path) -> None:
    count = 20_000
    bits = TensorProto(
        name="bits", data_type=TensorProto.BFLOAT16, dims=[count], raw_data=b"\x80\x3f" * count
    )
    flags = numpy_helper.from_array(np.ones(count, bool), "flags")
    listed = TensorProto(name="listed", data_type=TensorProto.FLOAT, dims=[count], float_data=[0.5] * count)
    path = written(model({}, bits, flags, listed), tmp_path / "model.onnx")
    assert not reading.read(path, lean=True).places
    found = values(path)
    for name, value in (("bits", 1.0), ("flags", 1.0), ("listed", 0.5)):
        assert np.all(found[f"{name}_out"].astype(np.float64) == value)


@pytest.mark.parametrize("change", ["more bytes", "fewer bytes", "negative size", "huge size", "no dtype"])
def test_sizes_that_do_not_fit_are_refused_as_before(change: str, tmp_path: Path) -> None:
    made = model({"w": np.ones((200, 100), np.float32)})
    tensor = made.graph.initializer[0]
    if change == "no dtype":
        tensor.data_type = 99
    elif change.endswith("bytes"):
        tensor.raw_data = tensor.raw_data + b"\0" * 4 if change == "more bytes" else tensor.raw_data[4:]
    else:
        tensor.dims[0] = -200 if change == "negative size" else 2**62
    with pytest.raises(sg.StopgradError) as lean:
        sgo.load(written(made, tmp_path / "model.onnx"))
    with pytest.raises(sg.StopgradError) as whole:
        sgo.load(made.SerializeToString())
    assert type(lean.value) is type(whole.value)


def test_of_two_initializers_of_a_name_the_second_is_read_by_the_parser(tmp_path: Path) -> None:
    tensors = [numpy_helper.from_array(np.full(5000, v, np.float32), "w") for v in (1.0, 2.0)]
    made = model({}, tensors[0])
    made.graph.initializer.append(tensors[1])
    path = written(made, tmp_path / "model.onnx")
    with pytest.raises(sg.StopgradError) as whole:
        sgo.load(made)
    with pytest.raises(sg.StopgradError) as lean:
        sgo.load(path)
    assert type(lean.value) is type(whole.value)


def test_a_loaded_model_does_not_depend_on_its_file(tmp_path: Path) -> None:
    path = written(model({"w": np.full(10_000, 3.0)}), tmp_path / "model.onnx")
    loaded = sgo.load(path)
    path.write_bytes(b"\0" * path.stat().st_size)
    path.unlink()
    np.testing.assert_array_equal(loaded(), np.full(10_000, 3.0))


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(model({"w": np.full(10_000, 3.0)}), tmp_path / "model.onnx")
    lean = large_arrays.without_arrays

    def cut(*args: Any) -> Any:
        found = lean(*args)
        path.write_bytes(path.read_bytes()[:1000])
        return found

    monkeypatch.setattr(reading, "without_arrays", cut)
    with pytest.raises(sg.FileError, match="the initializer 'w' cannot be read: the file has become shorter"):
        sgo.load(path)


def test_mutants_are_what_the_parser_makes_of_them(tmp_path: Path) -> None:
    """Read in parts or whole, a changed file is the same model or the same kind of error."""
    draw = random.Random(0)
    whole = model({"w": np.arange(5000.0), "v": np.ones(6000, np.float32)}).SerializeToString()
    heads = [i for i in range(len(whole)) if i < 400 or i > len(whole) - 400 or 40_000 < i < 40_200]
    same = 0
    for _ in range(300):
        made = bytearray(whole)
        for _ in range(draw.choice((1, 1, 2))):
            made[draw.choice(heads)] = draw.randrange(256)
        (tmp_path / "model.onnx").write_bytes(made)
        found: list[Any] = []
        for source in (tmp_path / "model.onnx", bytes(made)):
            try:
                found.append({name: array.tobytes() for name, array in values(source).items()})
            except sg.StopgradError as error:
                found.append(type(error))
        assert found[0] == found[1]
        assert found[0] is not sg.InternalError
        same += isinstance(found[0], dict)
    assert 20 < same < 280


PEAK = """if True:
    import resource, sys
    import stopgrad.onnx as sgo
    sgo.load(sys.argv[1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded = sgo.load(sys.argv[2])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 16])
def test_loading_takes_the_memory_of_the_arrays_once(count: int, tmp_path: Path) -> None:
    size = 64 << 20
    big = model({f"w{i}": np.ones(size // count // 4, np.float32) for i in range(count)})
    paths = written(model({"w": np.ones(3)}), tmp_path / "small.onnx"), written(big, tmp_path / "big.onnx")
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, paths)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 < 1.3 * size
