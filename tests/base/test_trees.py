"""Functions of structures do what JAX's of the same names do, also for dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import pytest

import stopgrad as sg


class Pair(NamedTuple):
    w: Any
    b: Any


@dataclass
class Model:
    pair: Any
    rate: Any


TREE = {"b": [1, 2, None], "a": (3, Pair(4, 5)), "c": {}}


def test_they_do_what_jax_does() -> None:
    assert sg.tree_leaves(TREE) == jax.tree.leaves(TREE)
    assert sg.tree_map(lambda x: x + 1, TREE) == jax.tree.map(lambda x: x + 1, TREE)
    assert sg.tree_map(lambda x, y: x * y, TREE, TREE) == jax.tree.map(lambda x, y: x * y, TREE, TREE)
    assert sg.tree_reduce(lambda x, y: x - y, TREE) == jax.tree.reduce(lambda x, y: x - y, TREE)
    assert sg.tree_reduce(lambda x, y: x - y, TREE, 10) == jax.tree.reduce(lambda x, y: x - y, TREE, 10)
    leaves, structure = sg.tree_flatten(TREE)
    assert leaves == jax.tree.flatten(TREE)[0]
    assert sg.tree_unflatten(structure, "abcde") == jax.tree.unflatten(jax.tree.structure(TREE), "abcde")
    assert structure == sg.tree_structure(TREE) != sg.tree_structure([TREE])
    for name in sg.tree.__all__:
        assert getattr(sg.tree, name) is getattr(sg, f"tree_{name}")
        assert hasattr(jax.tree, name)


def test_paths_are_keys_positions_and_names_of_fields() -> None:
    found = sg.tree_map_with_path(lambda path, x, y: f"{path} {x + y}", TREE, TREE)
    assert found == {"b": ["b.0 2", "b.1 4", None], "a": ("a.0 6", Pair("a.1.w 8", "a.1.b 10")), "c": {}}


def test_a_dataclass_is_a_structure() -> None:
    assert sg.tree_map(lambda x: x + 1, Model(Pair(1, 2), 3)) == Model(Pair(2, 3), 4)


def test_structures_that_differ_are_refused() -> None:
    with pytest.raises(
        sg.ArgumentError, match=r"tree_map: the structures differ: \{'a': tensor\} and \[tensor\]"
    ):
        sg.tree_map(lambda x, y: x, {"a": 1}, [1])


def test_reports_and_arguments_name_the_fields_of_a_named_tuple() -> None:
    flow = sg.explain(lambda p: sg.stop_gradient(p.w) * p.b, Pair(1.0, 2.0))
    assert flow["p.b"].status == "flows"
    assert flow["p.w"].status == "stopped"
    lowered = sg.function(lambda p: p.w * p.b, engine="numpy").lower(Pair(1.0, 2.0))
    assert lowered.paths == ("p.w", "p.b")
