"""Files of parameters and graphs: every bit comes back, names are data, and what a file says is checked."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_engines import each_engine_plainly
from bits import bits_of_every_kind
from places import ROOT
from safetensors.numpy import load_file, save_file

import stopgrad as sg
from stopgrad.base import sizes
from stopgrad.base.types import DTYPES, dtype_of, tensor_type
from stopgrad.graph import files
from stopgrad.graph.files import ArrayFile, write_arrays
from stopgrad.graph.text import limits
from stopgrad.graph.text.text import from_text

NAMES = [
    *(
        "allow_pickle",
        "file",
        "w",
        "w.npy",
        "w/npy",
        "metadata",
        "dtype.w",
        "constant.w",
        "graph",
        "a\\b",
        "a->b",
    ),
    *(
        "0",
        ".",
        "..",
        "...",
        "x" * 5000,
        "a/../../etc/passwd",
        "kwds",
        "args",
        "self",
        "__call__"[2:],
        "NUL",
        "W",
    ),
]


# -------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
@each_engine_plainly
def test_a_session_saves_and_restores_every_bit(
    dtype: sg.base.types.DType, engine: str, tmp_path: Path
) -> None:
    value = bits_of_every_kind(dtype)
    values = {
        "a": value,
        "b": value[:0].reshape(0, 3),
        "c": value[:1].reshape(()),
        "d": np.resize(value, (2, 3)),
    }
    with sg.Graph().as_default() as graph:
        parameters = {name: sg.parameter(v, name=name) for name, v in values.items()}
    with sg.Session(graph, engine) as session:
        session.save(tmp_path / "w")
        spoil = {name: np.zeros_like(v) for name, v in values.items()}
        write_arrays(tmp_path / "zeros", spoil)
        session.restore(tmp_path / "zeros")
        assert not session.value(parameters["a"]).view(np.uint8).any()
        session.restore(tmp_path / "w")
        for name, v in values.items():
            assert session.value(parameters[name]).tobytes() == v.tobytes()
            assert session.value(parameters[name]).shape == v.shape


def test_names_are_data(tmp_path: Path) -> None:
    with sg.Graph().as_default() as graph:
        parameters = [sg.parameter(np.full(2, float(i)), name=name) for i, name in enumerate(NAMES)]
        spoil = [sg.assign(p, p * 0.0) for p in parameters]
    assert [p.op.name for p in parameters] == NAMES
    with sg.Session(graph, "numpy") as session:
        session.save(tmp_path / "w")
        session.run(spoil)
        session.restore(tmp_path / "w")
        assert [session.value(p)[0] for p in parameters] == list(map(float, range(len(NAMES))))
    for name in ("__metadata__", "__x__", "a:b", "a b", "ü"):
        with pytest.raises(sg.GraphError, match="cannot name"), graph.as_default():
            sg.parameter(0.0, name=name)
    with pytest.raises(sg.GraphError, match="no array can be called '__metadata__'"):
        write_arrays(tmp_path / "w", {"__metadata__": np.zeros(2)})


def test_other_libraries_read_and_write_the_files(tmp_path: Path) -> None:
    with sg.Graph().as_default() as graph:
        w = sg.parameter(np.arange(6.0, dtype=np.float32).reshape(2, 3), name="layer/w")
    with sg.Session(graph, "numpy") as session:
        session.save(tmp_path / "w")
        found = load_file(tmp_path / "w")
        np.testing.assert_array_equal(found["layer/w"], session.value(w))
        save_file({"layer/w": found["layer/w"] + 1}, tmp_path / "v")
        session.restore(tmp_path / "v")
        assert session.value(w)[0, 0] == 1


# ----------------------------------------------------------------------------------------- what is checked


def restore(path: Path, value: Any) -> None:
    with sg.Graph().as_default() as graph:
        sg.parameter(value, name="w")
    with sg.Session(graph, "numpy") as session:
        session.restore(path)


def raw_file(path: Path, entries: dict[str, Any], data: bytes) -> None:
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (np.zeros(2, np.float32), np.zeros(2, np.int32)),
        (np.zeros(2, np.int64), np.zeros(2, np.float64)),
        (np.zeros(2, np.uint16), np.zeros(2, dtype_of("bfloat16").numpy)),
        (np.zeros((2, 2), np.float64), np.zeros(2, np.complex128)),
        (np.zeros(2, np.uint8), np.zeros(2, np.bool_)),
        (np.zeros(2), np.zeros((2, 1))),
        (np.zeros(2), np.zeros(3)),
    ],
)
def test_another_dtype_or_shape_is_refused(stored: Any, wanted: Any, tmp_path: Path) -> None:
    write_arrays(tmp_path / "w", {"w": stored})
    with pytest.raises(sg.GraphError, match=r"holds \w+\[.*\] for Parameter 'w'"):
        restore(tmp_path / "w", wanted)


def test_contents_that_no_tensor_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w"
    raw_file(path, {"w": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}, b"\x01\x02")
    with pytest.raises(sg.GraphError, match="bytes other than 0 and 1 for Parameter 'w'"):
        restore(path, np.zeros(2, np.bool_))
    raw_file(path, {"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}, b"\x01\x02")
    with pytest.raises(sg.GraphError, match="F8_E4M3"):
        restore(path, np.zeros(2, np.float32))
    for array in (np.array(["a", "b"]), np.array([None]), np.array([1.0], ">f8"), np.zeros(1, "M8[s]")):
        np.savez(path, w=array)
        with pytest.raises(sg.GraphError, match=r"no file of arrays that Session\.save or Graph\.save wrote"):
            restore(tmp_path / "w.npz", np.zeros(2))
        with pytest.raises(sg.GraphError, match=r"the mapping holds .* for the array 'x', not float64\[1\]"):
            from_text('x: float64[1] = Const(value=array("x"))', {"x": array})


def test_a_header_that_promises_more_than_there_is_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "w"
    raw_file(path, {"w": {"dtype": "F64", "shape": [2**37], "data_offsets": [0, 2**40]}}, b"")
    with pytest.raises(sg.GraphError, match="no file of arrays"):
        restore(path, np.zeros(2))
    path.write_bytes((10**15).to_bytes(8, "little") + b"{}")
    with pytest.raises(sg.GraphError, match="no file of arrays"):
        restore(path, np.zeros(2))


def test_only_what_is_asked_for_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arrays(tmp_path / "w", {"w": np.zeros(2), "other": np.zeros(10**6)})
    read: list[str] = []
    original = ArrayFile.read
    monkeypatch.setattr(
        ArrayFile, "read", lambda self, name, *a: (read.append(name), original(self, name, *a))[1]
    )
    restore(tmp_path / "w", np.zeros(2))
    assert read == ["w"]


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in {
        tmp_path: "it is a folder",
        tmp_path / "pipe": "it is a device or a pipe",
        Path("/dev/zero"): "it is a device or a pipe",
        tmp_path / "nowhere": "there is no such file",
    }.items():
        for read in (sg.Graph.load, lambda path: restore(path, 0.0)):
            with pytest.raises(sg.FileError, match=f"{re.escape(str(path))} cannot be read: {why}"):
                read(path)
    with pytest.raises(FileNotFoundError):
        sg.Graph.load(tmp_path / "nowhere")


# -------------------------------------------------------------------------------------------- replacing


def test_links_modes_and_long_names_are_kept(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / ("n" * 255), tmp_path / "link"
    link.symlink_to(real)
    write_arrays(link, {"w": np.zeros(2)})
    assert link.is_symlink()
    real.chmod(0o640)
    write_arrays(link, {"w": np.ones(2)})
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    with ArrayFile(real) as file:
        assert file.read("w", tensor_type(dtype_of("float64"), (2,)), "w").tolist() == [1.0, 1.0]
    assert sorted(file.name for file in tmp_path.rglob("*")) == sorted(["there", "link", real.name])


def test_a_new_file_has_the_mode_that_the_user_asks_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_arrays(tmp_path / "w", {"w": np.zeros(2)})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "w").stat().st_mode) == 0o640


# -------------------------------------------------------------------------------------------- limits


def test_a_header_is_refused_by_its_length_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    notes = ",".join(f'"{i}":""' for i in range(400_000)).encode()
    text = b'{"__metadata__":{' + notes + b"}}"
    assert len(text) > files.HEADER
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    for read in (sg.Graph.load, sg.Session(sg.Graph()).restore):
        with pytest.raises(sg.GraphError, match=f"header would be {len(text)} bytes long"):
            read(path)
    with pytest.raises(sg.GraphError, match="names, dtypes and shapes"):
        files.write_arrays(path, {"x" * files.HEADER: np.zeros(1)})
    assert path.read_bytes()[8:] == text


def test_security_md_lists_the_limits() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    listed = dict(re.findall(r"^\| `([A-Z]+)` \| (\d+) \|", text, re.MULTILINE))
    known = {name: getattr(limits, name) for name in dir(limits) if name.isupper()}
    known |= {name: getattr(sizes, name) for name in ("LARGEST", "LONGEST", "DEGREE")}
    known["HEADER"] = files.HEADER
    assert {name: int(value) for name, value in listed.items()} == known
