"""``sg.save`` and ``sg.load`` keep nested structures of arrays; what is in a file is never executed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import stopgrad as sg
from stopgrad.graph.files import write_arrays


class Layer(NamedTuple):
    w: Any
    b: Any


@dataclass
class Model:
    layer: Layer
    rate: float


TREE: dict[str, Any] = {
    "layers": [{"w": np.arange(6.0).reshape(2, 3)}, (np.float32(2.0), None, "text", True, 7)],
    "empty": {},
    "a.b": np.zeros(1, np.int8),
    "a": {"b": np.array([1j])},
    3: sg.cast(np.ones(2), sg.bfloat16),
}


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other) or isinstance(other, np.generic)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


def test_a_structure_comes_back_as_it_was(tmp_path: Path) -> None:
    for i, tree in enumerate([TREE, [], np.float64(3.5), (np.ones(2),), None]):
        sg.save(tmp_path / f"{i}", tree)
        same(sg.load(tmp_path / f"{i}"), tree)
    sg.save(TREE, tmp_path / "swapped")  # torch.save has this order.
    same(sg.load(str(tmp_path / "swapped")), TREE)


def test_other_libraries_read_it_and_their_files_are_read(tmp_path: Path) -> None:
    sg.save(tmp_path / "ours", {"layers": [{"w": np.ones((2, 3))}], "step": 7})
    theirs = load_file(tmp_path / "ours")
    assert theirs.keys() == {"layers.0.w"}
    save_file({"b": np.ones(2), "a.w": np.zeros(3)}, tmp_path / "theirs")
    same(sg.load(tmp_path / "theirs"), {"a.w": np.zeros(3), "b": np.ones(2)})


def test_records_come_back_as_dicts_or_like_what_is_given(tmp_path: Path) -> None:
    model = Model(Layer(np.ones((2, 3)), np.zeros(3)), 0.5)
    sg.save(tmp_path / "model", model)
    same(sg.load(tmp_path / "model"), {"layer": {"w": model.layer.w, "b": model.layer.b}, "rate": 0.5})
    found = sg.load(tmp_path / "model", like=Model(Layer(np.zeros((2, 3)), np.ones(3)), 0.0))
    assert isinstance(found, Model)
    assert isinstance(found.layer, Layer)
    np.testing.assert_array_equal(found.layer.w, np.ones((2, 3)))
    assert found.rate == 0.5
    for like, says in {
        (1.0,): r"it has no 0 and layer.b, layer.w, rate besides",
        Layer(1, 2): "it has no b, w|it has no w, b",
    }.items():
        with pytest.raises(sg.GraphError, match=says):
            sg.load(tmp_path / "model", like=like)
    with pytest.raises(sg.GraphError, match=r"holds float64\[3\] for layer.b, where float32\[3\] is wanted"):
        sg.load(tmp_path / "model", like=Model(Layer(np.zeros((2, 3)), np.ones(3, np.float32)), 0.0))


def test_what_a_file_cannot_hold_is_told(tmp_path: Path) -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [])
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    for tree, says in [
        ({"f": print}, "f is <built-in function print>, which is no array"),
        ({"x": x}, "save what Session.run or a function returned"),
        ({1.5: 1}, "has the key 1.5, no text or integer"),
        (deep, "more than 64 structures"),
    ]:
        with pytest.raises(sg.ArgumentError, match=says):
            sg.save(tmp_path / "x", tree)
    with pytest.raises(sg.ArgumentError, match="takes the path of a file and a structure"):
        sg.save({}, {})  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]
    with pytest.raises(FileNotFoundError):
        sg.load(tmp_path / "nothing")


NESTED = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize(
    "note",
    [
        "", "{}", "[]", "3", "[1, 2, 3]", '["array"]', '["array", 3]', '["is", []]', '["list", 3]',
        '["list", [3]]', '["list", [[0]]]', '["dict", [[[], ["is", 1]]]]', '["eval", "1"]',
        NESTED, '["array", "missing"]',
    ],
)  # fmt: skip
def test_a_structure_that_nobody_wrote_is_refused(note: str, tmp_path: Path) -> None:
    write_arrays(tmp_path / "x", {"a": np.ones(2)}, {"structure": note})
    with pytest.raises(sg.GraphError, match=r"sg\.save does not write|holds no value of missing"):
        sg.load(tmp_path / "x")
    nest = json.dumps(["list", [[0, ["is", 1]]]])
    for _ in range(80):
        nest = f'["list", [[0, {nest}]]]'
    write_arrays(tmp_path / "y", {"a": np.ones(2)}, {"structure": nest})
    with pytest.raises(sg.GraphError, match=r"sg\.save does not write"):
        sg.load(tmp_path / "y")
